r"""Low-rank Gram matrices by randomly pivoted Cholesky.

With r pivots drawn among N points in proportion to what is left on the diagonal,
:math:`K \approx F F'` with F of shape (N, r), in O(N r^2) time and N r numbers (Chen, Epperly,
Tropp and Webber, "Randomly pivoted Cholesky", 2022).
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, override

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from pymc_bayessum.arguments import as_generator, integer
from pymc_bayessum.kernels import Kernel
from pymc_bayessum.kernels.base import Blocks
from pymc_bayessum.measures.supports import Points, batch_size
from pymc_bayessum.solve.gram import InvertibleGram

__all__ = ["LowRankGram", "PivotedCholesky", "pivoted_cholesky"]

#: Candidates for pivots examined at a time; products of matrices beat those of vectors.
PIVOT_BLOCK = 64

#: Relative size of the residual trace at which a factorisation is complete.
COMPLETE = 1e-14

#: Least noise, relative to the mean diagonal, so that the low-rank part does not cancel.
LEAST_NOISE = 1e-9


@dataclass(frozen=True, eq=False)
class PivotedCholesky:
    """A partial Cholesky factorisation, K approximately F F' with the factor F (N, r).

    The rows of F at the ``pivots`` (r,), in order, are lower triangular. ``diagonal`` is that of K,
    ``residual`` that of K - F F' (never below zero), and ``blocks`` gives those of K by positions.
    """

    factor: np.ndarray = field(repr=False)
    pivots: np.ndarray = field(repr=False)
    residual: np.ndarray = field(repr=False)
    diagonal: np.ndarray = field(repr=False)
    blocks: Blocks = field(repr=False)

    @property
    def rank(self) -> int:
        """Number of pivots."""
        return len(self.pivots)

    @property
    def gram(self) -> "LowRankGram":
        """The low rank and the mean residual: what is left out is taken for white noise."""
        noise = max(float(self.residual.mean()), LEAST_NOISE * float(self.diagonal.mean()))
        return LowRankGram(self.factor, noise)


def pivoted_cholesky(kernel: Kernel, points: Points, rank: int, rng: Any = None) -> PivotedCholesky:
    """Factorise a Gram matrix to a chosen rank, with pivots drawn at random.

    Each pivot is drawn in proportion to the diagonal of what is left. They are found in blocks:
    candidates are drawn from the diagonal as it was and kept with the probability that corrects
    for what the earlier ones of the block took away, which leaves their distribution the same
    (Epperly, Tropp and Webber, "Embrace rejection", 2024). There are fewer pivots than ``rank``
    when the matrix has a lower rank.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum.kernels import SquaredExponential
    >>> x = np.linspace(0.0, 1.0, 200)
    >>> partial = pivoted_cholesky(SquaredExponential(0.5), x, 10, rng=0)
    >>> partial.factor.shape, bool(partial.residual.max() < 1e-6)
    ((200, 10), True)
    """
    n = batch_size(points)
    size = integer("rank", rank, 1)
    if size > n:
        raise ValueError(f"rank must be at most the {n} points, got {size}")
    blocks, diagonal = kernel.on(points), kernel.diagonal(points)
    rng = as_generator(rng)
    everything = np.arange(n)
    factor = np.zeros((n, size))
    residual = diagonal.astype(float)
    pivots: list[int] = []
    total = residual.sum()
    while len(pivots) < size and residual.sum() > COMPLETE * total:
        done = len(pivots)
        drawn = rng.choice(n, size=PIVOT_BLOCK, p=residual / residual.sum())
        left = blocks(drawn, drawn) - factor[drawn, :done] @ factor[drawn, :done].T
        kept = _accepted(left, residual[drawn], rng)[: size - done]
        if not kept:
            # Only rounding is left of what was drawn; drop it, or the loop would not end.
            residual[drawn] = 0.0
            continue
        chosen, corner = drawn[kept], left[np.ix_(kept, kept)]
        columns = blocks(everything, chosen) - factor[:, :done] @ factor[chosen, :done].T
        stop = done + len(kept)
        # Accepted pivots were checked one by one, so the corner has a Cholesky factor.
        lower = cholesky(corner, lower=True)
        factor[:, done:stop] = solve_triangular(lower, columns.T, lower=True).T
        factor[chosen, done:stop] = lower
        residual = np.maximum(residual - np.square(factor[:, done:stop]).sum(axis=1), 0.0)
        residual[chosen] = 0.0
        pivots.extend(int(i) for i in chosen)
    rank = len(pivots)
    chosen = np.array(pivots, dtype=int)
    return PivotedCholesky(factor[:, :rank], chosen, residual, diagonal, blocks)


def _accepted(left: np.ndarray, bound: np.ndarray, rng: np.random.Generator) -> list[int]:
    """Positions kept by rejection: each with probability (what is left now) / (what was left)."""
    left = left.copy()
    kept = []
    coins = rng.random(len(bound))
    floor = 1e-13 * np.abs(np.diagonal(left)).max()
    for i, coin in enumerate(coins):
        now = left[i, i]
        if now > floor and coin * bound[i] < now:
            kept.append(i)
            left -= np.outer(left[:, i], left[i]) / now
    return kept


@dataclass(frozen=True, eq=False)
class LowRankGram(InvertibleGram):
    """The matrix F F' + jitter * I in place of a Gram matrix, F of shape (N, r), jitter positive.

    Examples
    --------
    >>> import numpy as np
    >>> gram = LowRankGram(np.array([[1.0], [0.0]]), jitter=1.0)     # diag(2, 1)
    >>> round(float(gram.quadratic_form(np.array([2.0, 1.0]))), 12)
    3.0
    """

    factor: np.ndarray = field(repr=False)
    jitter: float

    @property
    @override
    def n_informative(self) -> int:
        return len(self.factor)

    @property
    @override
    def log_det(self) -> float:
        values = self._spectrum[0]
        free = len(self.factor) - len(values)
        return float(np.log(values + self.jitter).sum() + free * np.log(self.jitter))

    @override
    def solve(self, vector: np.ndarray) -> np.ndarray:
        inner = -1.0 / (self.jitter * (self._spectrum[0] + self.jitter))
        return self._apply(vector.T, 1.0 / self.jitter, inner).T

    @override
    def whiten(self, values: np.ndarray) -> np.ndarray:
        """Return (F F' + jitter * I)^(-1/2) y over the last axis of ``values``."""
        a, b = np.sqrt(self.jitter), np.sqrt(self._spectrum[0] + self.jitter)
        # (1/b - 1/a) / (b^2 - a^2), rearranged so that small eigenvalues do not cancel.
        return self._apply(np.asarray(values, dtype=float), 1.0 / a, -1.0 / (a * b * (a + b)))

    @cached_property
    def _spectrum(self) -> tuple[np.ndarray, np.ndarray]:
        values, vectors = np.linalg.eigh(self.factor.T @ self.factor)
        return np.maximum(values, 0.0), vectors

    def _apply(self, values: np.ndarray, identity: float, inner: np.ndarray) -> np.ndarray:
        vectors = self._spectrum[1]
        projected = (values @ self.factor) @ vectors
        return identity * values + ((projected * inner) @ vectors.T) @ self.factor.T
