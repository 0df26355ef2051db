"""What a kernel is, and kernels made of kernels."""

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, ClassVar, override

import numpy as np

from pymc_bayessum.arguments import Checked, function, positive
from pymc_bayessum.measures.supports import Pair, Points, Support, take

__all__ = [
    "Blocks",
    "First",
    "Kernel",
    "Product",
    "Pullback",
    "Scaled",
    "Second",
    "Sum",
    "Tensor",
    "require_kernel",
    "upper_blocks",
]


#: From positions of rows and columns to that block of a Gram matrix.
Blocks = Callable[[Any, Any], np.ndarray]

#: Side of the blocks in which a large Gram matrix is passed over: 4 MB of doubles.
BLOCK = 724


def upper_blocks(blocks: Blocks, n: int) -> Iterator[tuple[slice, slice, np.ndarray]]:
    """Pass over the blocks of an (n, n) Gram matrix on and above its diagonal, one at a time."""
    parts = [slice(begin, min(begin + BLOCK, n)) for begin in range(0, n, BLOCK)]
    for position, rows in enumerate(parts):
        for columns in parts[position:]:
            yield rows, columns, blocks(rows, columns)


class Kernel(Checked, ABC):
    """A positive-definite function of two points.

    ``k(x, y)`` is the Gram matrix of two batches, ``k.diagonal(x)`` the values k(x, x).
    ``k1 + k2``, ``k1 * k2`` and ``a * k`` are kernels on the same domain.
    """

    # A NumPy number on the left must leave the product to the kernel.
    __array_ufunc__ = None

    @property
    def growth(self) -> float | None:
        """Exponent g such that sqrt(k(x, x)) grows no faster than abs(x)**g, or ``None``.

        It is zero for a bounded kernel, and ``None`` when nothing is known. Sums over infinite
        supports need it.
        """
        return None

    @abstractmethod
    def __call__(self, x: Points, y: Points) -> np.ndarray:
        """Gram matrix (N, M) of two batches of N and M points."""

    @abstractmethod
    def diagonal(self, x: Points) -> np.ndarray:
        """Values k(x, x) at each point of a batch, shape (N,)."""

    def accepts(self, support: Support) -> bool:
        """Whether the kernel is positive definite on a support."""
        return True

    def on(self, points: Points) -> "Blocks":
        """Blocks of the Gram matrix of one batch, by positions (slices or index arrays)."""
        return lambda i, j: self(take(points, i), take(points, j))

    def __add__(self, other: Any) -> "Kernel":
        """Sum of two kernels on one domain."""
        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Any) -> "Kernel":
        """Product of two kernels on one domain, or a kernel times a positive number."""
        if isinstance(other, Kernel):
            return Product(self, other)
        if isinstance(other, Real):
            return Scaled(float(other), self)
        return NotImplemented

    __rmul__ = __mul__


def require_kernel(name: str, value: Any) -> Any:
    """Return a kernel, or raise for what is none."""
    if not isinstance(value, Kernel):
        raise TypeError(f"{name} must be a kernel, got {value!r}")
    return value


@dataclass(frozen=True)
class _OfTwo(Kernel):
    """Two kernels, with what joins their values and the exponents of their growth."""

    first: Kernel = field(metadata={"check": require_kernel})
    second: Kernel = field(metadata={"check": require_kernel})
    _join: ClassVar[Any] = staticmethod(operator.mul)
    _join_growth: ClassVar[Any] = staticmethod(operator.add)

    @property
    @override
    def growth(self) -> float | None:
        a, b = self.first.growth, self.second.growth
        return None if a is None or b is None else self._join_growth(a, b)

    @override
    def __call__(self, x: Points, y: Points) -> np.ndarray:
        return self._join(self.first(x, y), self.second(x, y))

    @override
    def diagonal(self, x: Points) -> np.ndarray:
        return self._join(self.first.diagonal(x), self.second.diagonal(x))

    @override
    def accepts(self, support: Support) -> bool:
        return self.first.accepts(support) and self.second.accepts(support)


@dataclass(frozen=True)
class _OnPart(Kernel):
    base: Kernel = field(metadata={"check": require_kernel})
    part: ClassVar[int]

    @property
    @override
    def growth(self) -> float | None:
        return self.base.growth

    @override
    def __call__(self, x: Points, y: Points) -> np.ndarray:
        return self.base(_part(x, self.part), _part(y, self.part))

    @override
    def diagonal(self, x: Points) -> np.ndarray:
        return self.base.diagonal(_part(x, self.part))

    @override
    def accepts(self, support: Support) -> bool:
        if not isinstance(support, Pair):
            return False
        return self.base.accepts((support.first, support.second)[self.part])


class Sum(_OfTwo):
    """Sum of two kernels on one domain, made by ``first + second``.

    Examples
    --------
    >>> from pymc_bayessum.kernels import Brownian, Polynomial
    >>> (Brownian() + Polynomial(1))([2], [3]).tolist()
    [[10.0]]
    """

    _join, _join_growth = staticmethod(operator.add), staticmethod(max)


class Product(_OfTwo):
    """Product of two kernels on one domain, made by ``first * second``.

    Examples
    --------
    >>> from pymc_bayessum.kernels import Brownian, Polynomial
    >>> (Brownian() * Polynomial(1))([2], [3]).tolist()
    [[21.0]]
    """


@dataclass(frozen=True)
class Scaled(Kernel):
    """A kernel times a positive number (the amplitude), made by ``scale * base``.

    Parameters
    ----------
    scale : float
        Positive.
    base : Kernel

    Examples
    --------
    >>> from pymc_bayessum.kernels import Brownian
    >>> (2.0 * Brownian())([2], [3]).tolist()
    [[6.0]]
    """

    scale: float = field(metadata={"check": positive})
    base: Kernel = field(metadata={"check": require_kernel})

    @property
    @override
    def growth(self) -> float | None:
        return self.base.growth

    @override
    def __call__(self, x: Points, y: Points) -> np.ndarray:
        return self.scale * self.base(x, y)

    @override
    def diagonal(self, x: Points) -> np.ndarray:
        return self.scale * self.base.diagonal(x)

    @override
    def accepts(self, support: Support) -> bool:
        return self.base.accepts(support)


class First(_OnPart):
    """A kernel on the first parts of pairs, k((x, y), (x', y')) = base(x, x').

    Examples
    --------
    >>> from pymc_bayessum.kernels import Brownian, First
    >>> First(Brownian())(([2], [7]), ([3], [8])).tolist()
    [[3.0]]
    """

    part = 0


class Second(_OnPart):
    """A kernel on the second parts of pairs, k((x, y), (x', y')) = base(y, y').

    Examples
    --------
    >>> from pymc_bayessum.kernels import Brownian, Second
    >>> Second(Brownian())(([2], [7]), ([3], [8])).tolist()
    [[8.0]]
    """

    part = 1


class Tensor(_OfTwo):
    """Product of one kernel on each part of pairs, first(x, x') * second(y, y').

    ``First(kx) * Second(ky)`` is the same kernel and is treated alike.

    Examples
    --------
    >>> from pymc_bayessum.kernels import Brownian, Tensor
    >>> Tensor(Brownian(), Brownian())(([2], [7]), ([3], [8])).tolist()
    [[24.0]]
    """

    @override
    def __call__(self, x: Points, y: Points) -> np.ndarray:
        return self.first(_part(x, 0), _part(y, 0)) * self.second(_part(x, 1), _part(y, 1))

    @override
    def diagonal(self, x: Points) -> np.ndarray:
        return self.first.diagonal(_part(x, 0)) * self.second.diagonal(_part(x, 1))

    @override
    def accepts(self, support: Support) -> bool:
        return (
            isinstance(support, Pair)
            and self.first.accepts(support.first)
            and self.second.accepts(support.second)
        )


@dataclass(frozen=True)
class Pullback(Kernel):
    """A kernel seen through a map, k(x, y) = base(mapping(x), mapping(y)).

    With the inverse of a :class:`~pymc_bayessum.measures.Pushforward` as the mapping, the image of
    a measure keeps the closed embeddings of the measure itself.

    Parameters
    ----------
    base : Kernel
    mapping : callable
        From batches of points to batches of points in the domain of ``base``.

    Examples
    --------
    >>> from pymc_bayessum.kernels import Brownian, Pullback
    >>> Pullback(Brownian(), lambda y: [v // 2 for v in y])([4], [6]).tolist()
    [[3.0]]
    """

    base: Kernel = field(metadata={"check": require_kernel})
    mapping: Callable[[Points], Points] = field(metadata={"check": function})

    @property
    @override
    def growth(self) -> float | None:
        # A bounded kernel stays bounded; of the rest nothing is known without the mapping.
        return 0.0 if self.base.growth == 0.0 else None

    @override
    def __call__(self, x: Points, y: Points) -> np.ndarray:
        return self.base(self.mapping(x), self.mapping(y))

    @override
    def diagonal(self, x: Points) -> np.ndarray:
        return self.base.diagonal(self.mapping(x))


def _part(points: Points, index: int) -> Points:
    if not isinstance(points, (tuple, list)) or len(points) != 2:
        raise TypeError("a kernel on a product domain takes pairs (first, second) of batches")
    return points[index]
