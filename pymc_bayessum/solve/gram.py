"""Gram matrices of kernels, factorised once: what every rule and every marginal likelihood needs.

A factorised Gram matrix answers three questions: K^-1 v, y'K^-1 y and log det K. The dense one
below works for every kernel; `banded` holds those that cost O(N) on sorted numbers.
"""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular

from pymc_bayessum.kernels import Brownian, Kernel, Polynomial, Scaled, Stein
from pymc_bayessum.measures.supports import Points
from pymc_bayessum.solve.closed import BrownianGram
from pymc_bayessum.solve.banded import MarkovGram, markov_process
from pymc_bayessum.solve.feature import PolynomialGram

__all__ = ["DenseGram", "FlatMeanGram", "Gram", "ScaledGram", "factorize", "factorize_dense"]

#: Jitters tried in turn, as fractions of the mean diagonal.
JITTER_LADDER = (0.0, *(10.0**power for power in range(-14, -1)))


class Gram(Protocol):
    """A factorised Gram matrix K + jitter * I on N nodes, in the caller's node order."""

    @property
    def jitter(self) -> float:
        """What was added to the diagonal."""

    @property
    def n_informative(self) -> int:
        """Directions of the data that carry information: N less the free functions."""

    @property
    def log_det(self) -> float:
        """Logarithm of the determinant (on the informative directions)."""

    def quadratic_form(self, values: np.ndarray) -> np.ndarray:
        """Return y' K^-1 y over the last axis of ``values``."""

    def whiten(self, values: np.ndarray) -> np.ndarray:
        """Return a linear map of the last axis whose squares sum to the quadratic form."""


@dataclass(frozen=True, eq=False)
class DenseGram:
    """A Gram matrix held as its Cholesky factor.

    Parameters
    ----------
    factor : ndarray of shape (N, N)
        Lower triangular L with L L' = K + jitter * I.
    jitter : float
        What was added to the diagonal of K.

    Examples
    --------
    >>> import numpy as np
    >>> gram = factorize_dense(np.array([[4.0, 0.0], [0.0, 1.0]]))
    >>> float(gram.quadratic_form(np.array([2.0, 1.0]))), gram.jitter
    (2.0, 0.0)
    """

    factor: np.ndarray = field(repr=False)
    jitter: float = 0.0

    @property
    def n_informative(self) -> int:
        """Number of nodes."""
        return len(self.factor)

    @property
    def log_det(self) -> float:
        """Logarithm of det(K + jitter * I)."""
        return 2.0 * float(np.log(np.diagonal(self.factor)).sum())

    def solve(self, vector: np.ndarray) -> np.ndarray:
        """Return (K + jitter * I)^-1 v for v of shape (N,) or (N, M)."""
        return cho_solve((self.factor, True), vector)

    def quadratic_form(self, values: np.ndarray) -> np.ndarray:
        """Return y' (K + jitter * I)^-1 y over the last axis of ``values``."""
        return np.square(self.whiten(values)).sum(axis=-1)

    def whiten(self, values: np.ndarray) -> np.ndarray:
        """Return L^-1 y over the last axis of ``values``."""
        flat = np.asarray(values, dtype=float).reshape(-1, len(self.factor))
        return solve_triangular(self.factor, flat.T, lower=True).T.reshape(np.shape(values))


@dataclass(frozen=True, eq=False)
class ScaledGram:
    """The Gram matrix of ``scale`` times a kernel whose own is known.

    Parameters
    ----------
    scale : float
    base : Gram

    Examples
    --------
    >>> import numpy as np
    >>> gram = ScaledGram(4.0, factorize_dense(np.eye(2)))
    >>> float(gram.quadratic_form(np.array([2.0, 0.0])))
    1.0
    """

    scale: float
    base: Gram = field(repr=False)

    @property
    def jitter(self) -> float:
        """What was added to the diagonal."""
        return self.scale * self.base.jitter

    @property
    def n_informative(self) -> int:
        """Informative directions of the data."""
        return self.base.n_informative

    @property
    def log_det(self) -> float:
        """Logarithm of the determinant."""
        return self.base.log_det + self.n_informative * float(np.log(self.scale))

    def quadratic_form(self, values: np.ndarray) -> np.ndarray:
        """Return y'K^-1 y over the last axis of ``values``."""
        return self.base.quadratic_form(values) / self.scale

    def whiten(self, values: np.ndarray) -> np.ndarray:
        """Return the whitened values of the base over the root of the scale."""
        return self.base.whiten(values) / np.sqrt(self.scale)


@dataclass(frozen=True, eq=False)
class FlatMeanGram:
    r"""A Gram matrix seen after an unknown constant was removed from the data.

    With a flat prior on the constant mean of the process the data enter through

    .. math:: y'K^{-1}y - \frac{(1'K^{-1}y)^2}{1'K^{-1}1}, \qquad
              \log\det K + \log(1'K^{-1}1),

    the exponent and the normaliser of the restricted likelihood, on N - 1 directions.

    Parameters
    ----------
    base : Gram

    Examples
    --------
    >>> import numpy as np
    >>> gram = FlatMeanGram(factorize_dense(np.eye(3)))
    >>> round(float(gram.quadratic_form(np.array([1.0, 2.0, 3.0]))), 12), gram.n_informative
    (2.0, 2)
    """

    base: Gram = field(repr=False)

    @property
    def jitter(self) -> float:
        """What was added to the diagonal."""
        return self.base.jitter

    @property
    def n_informative(self) -> int:
        """Number of nodes less one, for the constant."""
        return self.base.n_informative - 1

    @property
    def log_det(self) -> float:
        """Log determinant on the informative directions."""
        ones = self._whitened_ones()
        return self.base.log_det + float(np.log(ones @ ones))

    def quadratic_form(self, values: np.ndarray) -> np.ndarray:
        """Return the quadratic form over the last axis of ``values``."""
        return np.square(self.whiten(values)).sum(axis=-1)

    def whiten(self, values: np.ndarray) -> np.ndarray:
        """Return L^-1 y less its projection on L^-1 1, over the last axis of ``values``."""
        ones = self._whitened_ones()
        white = self.base.whiten(values)
        return white - (white @ ones)[..., None] * (ones / (ones @ ones))

    def _whitened_ones(self) -> np.ndarray:
        return self.base.whiten(np.ones(self.base.n_informative))


def factorize(kernel: Kernel, points: Points, jitter: float | None = None) -> Gram:
    """Factorise the Gram matrix of a kernel on distinct points, by the cheapest exact way.

    Parameters
    ----------
    kernel : Kernel
    points : batch of N points
    jitter : float, optional
        Added to the diagonal; by default the smallest that works.

    Returns
    -------
    Gram

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum.kernels import Brownian, SquaredExponential
    >>> round(factorize(Brownian(), np.array([3, 8])).log_det, 6)     # det [[4, 4], [4, 9]] = 20
    2.995732
    >>> factorize(SquaredExponential(1.0), np.arange(4.0)).jitter
    0.0
    """
    if isinstance(kernel, Stein):
        # Its functions have mean zero under p; the mean itself is a free constant.
        return FlatMeanGram(factorize_dense(kernel(points, points), jitter))
    if isinstance(kernel, Scaled):
        inner = None if jitter is None else jitter / kernel.scale
        return ScaledGram(kernel.scale, factorize(kernel.base, points, inner))
    if not isinstance(points, tuple) and np.ndim(points) == 1:
        x = np.asarray(points)
        if isinstance(kernel, Brownian) and not jitter and x.min() + kernel.shift > 0.0:
            return BrownianGram.of_nodes(x, kernel.shift)
        process = markov_process(kernel)
        if process is not None and MarkovGram.suits(process, x):
            return MarkovGram.of_nodes(process, x, jitter or 0.0)
        if isinstance(kernel, Polynomial) and jitter is None:
            return PolynomialGram.of_nodes(x, kernel.degree)
    return factorize_dense(kernel(points, points), jitter)


def factorize_dense(matrix: np.ndarray, jitter: float | None = None) -> DenseGram:
    """Factorise a Gram matrix with the smallest jitter that works.

    Without a given jitter the ladder 0, 1e-14, 1e-13, ..., 1e-2 (times the mean diagonal) is
    climbed until the Cholesky factorisation succeeds with every pivot above rounding level. A
    factorisation that merely does not break down would leave weights that are rounding noise in
    the directions of the vanishing pivots.

    Parameters
    ----------
    matrix : ndarray of shape (N, N)
        The Gram matrix; not changed.
    jitter : float, optional
        Taken as it is, added to the diagonal; raises when the factorisation then fails.

    Returns
    -------
    DenseGram

    Examples
    --------
    >>> import numpy as np
    >>> factorize_dense(np.ones((3, 3))).jitter
    1e-14
    """
    if jitter is not None:
        try:
            return DenseGram(_cholesky(matrix, jitter), jitter)
        except np.linalg.LinAlgError:
            raise ValueError(
                f"jitter={jitter} is too small: the Gram matrix of {len(matrix)} nodes plus "
                "jitter on its diagonal is not positive definite; give a larger jitter or None"
            ) from None
    diagonal = np.diagonal(matrix)
    scale = float(diagonal.mean())
    for step in JITTER_LADDER:
        try:
            factor = _cholesky(matrix, step * scale)
        except np.linalg.LinAlgError:
            continue
        rounding = 4.0 * np.finfo(float).eps * np.maximum(diagonal, step * scale)
        if (np.square(np.diagonal(factor)) > rounding).all():
            return DenseGram(factor, step * scale)
    raise ValueError(
        f"the Gram matrix of {len(matrix)} nodes is not positive definite, not even with "
        f"{JITTER_LADDER[-1]:g} of its mean diagonal {scale:g} added: is the kernel positive "
        "definite?"
    )


def _cholesky(matrix: np.ndarray, jitter: float) -> np.ndarray:
    shifted = matrix + jitter * np.eye(len(matrix)) if jitter else matrix
    return cholesky(shifted, lower=True)
