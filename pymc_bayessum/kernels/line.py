"""Kernels on the naturals, the integers and the real line."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, override

import numpy as np

from pymc_bayessum.arguments import count, integer, positive, real
from pymc_bayessum.kernels.base import Kernel
from pymc_bayessum.measures.supports import Image, Interval, Line, Points, Support, numbers

__all__ = [
    "Brownian",
    "IntegratedBrownian",
    "Matern",
    "Polynomial",
    "SquaredExponential",
    "half_line",
]


def _line(points: Points) -> np.ndarray:
    """Batch of numbers as floats, shape (N,)."""
    return numbers(points, 1).astype(float)


def half_line(points: Points) -> np.ndarray:
    """Batch of numbers of at least zero as floats, shape (N,)."""
    x = _line(points)
    if (x < 0).any():
        raise ValueError(f"this kernel needs points of at least zero, got {x.min():g}")
    return x


def _on_line(kernel: Kernel, support: Support) -> bool:
    return isinstance(support, (Line, Interval, Image))


def _on_half_line(kernel: Kernel, support: Support) -> bool:
    if isinstance(support, Line):
        return support.ends[0] >= 0
    return support.low >= 0 if isinstance(support, Interval) else isinstance(support, Image)


@dataclass(frozen=True)
class Brownian(Kernel):
    r"""Brownian motion started with a random level, :math:`k(x, y) = \min(x, y) + c`.

    The shift c is the prior variance of f(0); with c = 0 every function in the space vanishes at
    zero and the term x = 0 of a sum is lost.

    Parameters
    ----------
    shift : float
        At least zero.

    Examples
    --------
    >>> from pymc_bayessum.kernels import Brownian
    >>> Brownian()([0, 2], [1, 5]).tolist()
    [[1.0, 1.0], [2.0, 3.0]]
    """

    shift: float = 1.0

    growth = 0.5
    accepts = _on_half_line

    def __post_init__(self) -> None:
        shift = real("shift", self.shift)
        if shift < 0.0:
            raise ValueError(f"shift must be at least zero, got {shift}")
        object.__setattr__(self, "shift", shift)

    @override
    def __call__(self, x: Points, y: Points) -> np.ndarray:
        return np.minimum.outer(half_line(x), half_line(y)) + self.shift

    @override
    def diagonal(self, x: Points) -> np.ndarray:
        return half_line(x) + self.shift


@dataclass(frozen=True)
class IntegratedBrownian(Kernel):
    r"""Brownian motion integrated ``order`` times, the kernel of natural splines.

    .. math:: k_m(x, y) = \int_0^{\min(x, y)} \frac{(x - u)^m (y - u)^m}{(m!)^2} du
              = \frac{1}{(m!)^2} \sum_{j=0}^m \binom{m}{j} \frac{d^{m-j} a^{m+j+1}}{m + j + 1}

    with a the smaller and d the difference of the two points, both divided by ``scale`` first.
    Order zero is :math:`\min(x, y)`. The Gram matrix holds this part alone; a rule adds a free
    polynomial of degree ``order`` (:attr:`free_degree`), so that its weights are exact for such
    polynomials and the posterior mean is the natural spline of degree 2 order + 1.

    Parameters
    ----------
    order : int
        At least zero.
    scale : float
        Unit of length. The kernel grows like :math:`(x / scale)^{2 order + 1}`: with points near
        1e6 keep the default up to order 15 or so, and give a larger scale beyond.

    Examples
    --------
    >>> from pymc_bayessum.kernels import IntegratedBrownian
    >>> IntegratedBrownian(0)([2], [3]).tolist()
    [[2.0]]
    """

    order: int = field(metadata={"check": integer})
    scale: float = field(default=1.0, metadata={"check": positive})

    accepts = _on_half_line

    @property
    def free_degree(self) -> int:
        """Degree of the polynomials that the prior leaves free."""
        return self.order

    @property
    @override
    def growth(self) -> float | None:
        return self.order + 0.5

    @override
    def __call__(self, x: Points, y: Points) -> np.ndarray:
        a = np.minimum.outer(half_line(x), half_line(y)) / self.scale
        d = np.abs(np.subtract.outer(half_line(x), half_line(y))) / self.scale
        m = self.order
        total = np.zeros_like(a)
        for j in range(m + 1):
            total += math.comb(m, j) / (m + j + 1) * d ** (m - j) * a ** (m + j + 1)
        return total / math.factorial(m) ** 2

    @override
    def diagonal(self, x: Points) -> np.ndarray:
        m = self.order
        return (half_line(x) / self.scale) ** (2 * m + 1) / ((2 * m + 1) * math.factorial(m) ** 2)


@dataclass(frozen=True)
class Matern(Kernel):
    r"""Matern kernel of half-integer smoothness, of any order.

    .. math:: k(x, y) = e^{-r} \frac{p!}{(2p)!} \sum_{i=0}^p \frac{(p + i)!}{i! (p - i)!}
              (2 r)^{p - i}, \qquad r = \sqrt{2 \nu}\, |t(x) - t(y)| / \ell

    with :math:`\nu = p + 1/2`.

    Parameters
    ----------
    nu : float
        0.5, 1.5, 2.5, ...
    lengthscale : float
        Positive, in units of t.
    transform : None, "sqrt" or callable
        The map t applied to both points first: none, :math:`2 \sqrt{x}` (in which counts have
        constant spread), or any injective function of an array.

    Examples
    --------
    >>> from pymc_bayessum.kernels import Matern
    >>> Matern(0.5, 1.0)([0.0], [1.0]).round(6).tolist()
    [[0.367879]]
    """

    nu: float = field(metadata={"check": positive})
    lengthscale: float = field(metadata={"check": positive})
    transform: Literal["sqrt"] | Callable[[np.ndarray], np.ndarray] | None = None

    growth = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nu - 0.5 != int(self.nu - 0.5):
            raise ValueError(f"nu must be one of 0.5, 1.5, 2.5, ..., got {self.nu}")
        if not (self.transform is None or self.transform == "sqrt" or callable(self.transform)):
            raise ValueError(
                f'transform must be None, "sqrt" or a function, got {self.transform!r}'
            )

    @property
    def rate(self) -> float:
        """Decay of the kernel in units of t, sqrt(2 nu) / lengthscale."""
        return math.sqrt(2.0 * self.nu) / self.lengthscale

    @cached_property
    def coefficients(self) -> np.ndarray:
        """Coefficients c with k = exp(-r) sum_i c[i] r**i, shape (p + 1,)."""
        p = round(self.nu - 0.5)
        f = math.factorial
        return np.array(
            [2**i * f(p) * f(2 * p - i) / (f(2 * p) * f(p - i) * f(i)) for i in range(p + 1)]
        )

    def warp(self, x: Points) -> np.ndarray:
        """Apply the transform t to a batch."""
        if callable(self.transform):
            return _line(self.transform(_line(x)))
        return 2.0 * np.sqrt(half_line(x)) if self.transform == "sqrt" else _line(x)

    def profile(self, distance: np.ndarray) -> np.ndarray:
        """Kernel as a function of the distance in t."""
        r = self.rate * distance
        total = np.zeros_like(r)
        for coefficient in self.coefficients[::-1]:
            total = total * r + coefficient
        return total * np.exp(-r)

    @override
    def __call__(self, x: Points, y: Points) -> np.ndarray:
        return self.profile(np.abs(np.subtract.outer(self.warp(x), self.warp(y))))

    @override
    def diagonal(self, x: Points) -> np.ndarray:
        return np.ones(len(self.warp(x)))

    @override
    def accepts(self, support: Support) -> bool:
        accepts = _on_half_line if self.transform == "sqrt" else _on_line
        return accepts(self, support)


@dataclass(frozen=True)
class Polynomial(Kernel):
    r"""Polynomial kernel, :math:`k(x, y) = (x y + 1)^r`.

    Its Gram matrices have rank r + 1 at most, so more nodes than that need a nugget.

    Parameters
    ----------
    degree : int
        At least one.

    Examples
    --------
    >>> from pymc_bayessum.kernels import Polynomial
    >>> Polynomial(2)([2], [3]).tolist()
    [[49.0]]
    """

    degree: int = field(metadata={"check": count})

    accepts = _on_line

    @property
    @override
    def growth(self) -> float | None:
        return float(self.degree)

    @override
    def __call__(self, x: Points, y: Points) -> np.ndarray:
        return (np.multiply.outer(_line(x), _line(y)) + 1.0) ** self.degree

    @override
    def diagonal(self, x: Points) -> np.ndarray:
        return (_line(x) ** 2 + 1.0) ** self.degree


@dataclass(frozen=True)
class SquaredExponential(Kernel):
    r"""Squared-exponential (Gaussian) kernel, :math:`k(x, y) = e^{-(x - y)^2 / (2 \ell^2)}`.

    Parameters
    ----------
    lengthscale : float
        Positive.

    Examples
    --------
    >>> from pymc_bayessum.kernels import SquaredExponential
    >>> SquaredExponential(1.0)([0.0], [0.0]).tolist()
    [[1.0]]
    """

    lengthscale: float = field(metadata={"check": positive})

    growth = 0.0
    accepts = _on_line

    @override
    def __call__(self, x: Points, y: Points) -> np.ndarray:
        z = np.subtract.outer(_line(x), _line(y)) / self.lengthscale
        return np.exp(-0.5 * z * z)

    @override
    def diagonal(self, x: Points) -> np.ndarray:
        return np.ones(len(_line(x)))
