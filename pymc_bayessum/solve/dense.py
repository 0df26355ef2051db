"""The dense solver, which suits every kernel: Cholesky with the smallest jitter that works."""

import warnings
from dataclasses import dataclass, field
from typing import override

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular

from pymc_bayessum.embeddings import embed
from pymc_bayessum.kernels import Kernel, Scaled, Stein
from pymc_bayessum.measures import Measure
from pymc_bayessum.measures.supports import Points
from pymc_bayessum.solve.gram import InvertibleGram, KrigingGram, ScaledGram
from pymc_bayessum.solve.registry import Solution, register, solve

__all__ = ["DenseGram", "factorize_dense"]

#: Jitters tried in turn, as fractions of the mean diagonal.
JITTER_LADDER = (0.0, *(10.0**power for power in range(-14, -1)))


@dataclass(frozen=True, eq=False)
class DenseGram(InvertibleGram):
    """A Gram matrix held as its Cholesky factor, lower triangular L with L L' = K + jitter * I."""

    factor: np.ndarray = field(repr=False)
    jitter: float = 0.0

    @property
    @override
    def n_informative(self) -> int:
        return len(self.factor)

    @property
    @override
    def log_det(self) -> float:
        return 2.0 * float(np.log(np.diagonal(self.factor)).sum())

    @override
    def solve(self, vector: np.ndarray) -> np.ndarray:
        return cho_solve((self.factor, True), vector)

    @override
    def whiten(self, values: np.ndarray) -> np.ndarray:
        flat = np.asarray(values, dtype=float).reshape(-1, len(self.factor))
        return solve_triangular(self.factor, flat.T, lower=True).T.reshape(np.shape(values))


def factorize_dense(matrix: np.ndarray, jitter: float | None = None) -> DenseGram:
    """Factorise a Gram matrix with the smallest jitter that works.

    Without a given jitter the ladder 0, 1e-14, 1e-13, ..., 1e-2 (times the mean diagonal) is
    climbed until the Cholesky factorisation succeeds with every pivot above rounding level. A
    factorisation that merely does not break down would leave weights that are rounding noise in
    the directions of the vanishing pivots. A given jitter is taken as it is, and the factorisation
    may then fail.

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


@register(Kernel, Measure)
def solve_dense(
    kernel: Kernel, measure: Measure | None, points: Points, jitter: float | None
) -> Solution:
    """Weights and variance from the dense Gram matrix and the embedding."""
    # Asked for first: it may have to refuse the pair, and the Gram matrix is dear.
    embedding = None if measure is None else embed(kernel, measure)
    gram = factorize_dense(kernel(points, points), jitter)
    if embedding is None:
        return Solution(gram)
    mean = embedding.mean(points)
    weights = gram.solve(mean)
    raw = float(embedding.initial_error - weights @ mean)
    if raw < -1e-6 * embedding.initial_error:
        warnings.warn(
            f"the posterior variance came out as {raw:.3g} against an initial error of "
            f"{embedding.initial_error:.3g}, more than rounding explains; it is set to zero. Do "
            f"the embedding and the Gram matrix of {kernel} agree?",
            RuntimeWarning,
            stacklevel=4,
        )
    # In exact arithmetic the variance is a squared norm; below zero it is rounding alone.
    return Solution(gram, weights, max(raw, 0.0), clipped=max(0.0, -raw))


@register(Scaled, Measure)
def solve_scaled(
    kernel: Scaled, measure: Measure | None, points: Points, jitter: float | None
) -> Solution:
    """Solve for the base, which may have a way of its own: the weights do not feel the scale."""
    base = solve(kernel.base, measure, points, None if jitter is None else jitter / kernel.scale)
    return base._replace(
        gram=ScaledGram(kernel.scale, base.gram),
        variance=kernel.scale * base.variance,
        clipped=kernel.scale * base.clipped,
    )


@register(Stein, Measure)
def solve_stein(
    kernel: Stein, measure: Measure | None, points: Points, jitter: float | None
) -> Solution | None:
    """Leave the mean free: the functions of a Stein kernel have mean zero under its own p."""
    if measure is not None:
        return None
    n = len(points)
    gram = KrigingGram(factorize_dense(kernel(points, points), jitter), np.ones((n, 1)))
    return Solution(gram, *gram.weights(np.ones(1), np.zeros(n), 0.0))
