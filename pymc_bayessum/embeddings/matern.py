"""Matern kernels on counts: exact sums in linear time, from their state-space form."""

import math

import numpy as np
from scipy.linalg import pascal

from pymc_bayessum.embeddings.registry import Embedding, register
from pymc_bayessum.kernels import Matern
from pymc_bayessum.measures import Counting

__all__ = ["matern_sums"]

#: Points of one block of the linear-time sums.
BLOCK = 32

#: Queries answered at a time.
BATCH = 2**16


def matern_sums(
    kernel: Matern, t: np.ndarray, weights: np.ndarray, queries: np.ndarray
) -> np.ndarray:
    r"""Return :math:`\sum_i w_i g(|t_i - s|)` at many s, for the profile g of a Matern kernel.

    :math:`g(d) = e^{-ad} \sum_r c_r (a d)^r`, so the points to the left of s enter through the
    p + 1 numbers :math:`A_r(s) = \sum_{t_i \le s} w_i e^{-a(s - t_i)} (a (s - t_i))^r`, and these
    move on by a binomial formula with positive terms. Points are cut into blocks: a query meets
    the points of its own block one by one and all others through two such states. The cost is
    O(M + N) for M points (in any order) and N queries, both after the transform of the kernel, and
    with positive weights nothing cancels.
    """
    order = np.argsort(t, kind="stable")
    # Blocks of equal length; the last is filled up with points of no weight at its end.
    filled = np.concatenate([t[order], np.full(-len(t) % BLOCK, t[order[-1]])])
    points = filled.reshape(-1, BLOCK)
    masses = np.concatenate([weights[order], np.zeros(len(filled) - len(t))]).reshape(-1, BLOCK)
    left = _states(kernel, points, masses)
    right = _states(kernel, -points[::-1, ::-1], masses[::-1, ::-1])[::-1]
    out = np.empty(len(queries))
    for start in range(0, len(queries), BATCH):
        s = queries[start : start + BATCH]
        home = np.maximum(np.searchsorted(points[:, 0], s, side="right") - 1, 0)
        total = (kernel.profile(np.abs(s[:, None] - points[home])) * masses[home]).sum(axis=1)
        before = home > 0
        b = home[before] - 1
        total[before] += _read(kernel, left[b], s[before] - points[b, -1])
        after = home < len(points) - 1
        b = home[after] + 1
        total[after] += _read(kernel, right[b], points[b, 0] - s[after])
        out[start : start + BATCH] = total
    return out


def _states(kernel: Matern, points: np.ndarray, masses: np.ndarray) -> np.ndarray:
    """States at the last point of each block, of all points up to there, shape (B, p + 1)."""
    powers = np.arange(len(kernel.coefficients))
    ends = points[:, -1]
    d = kernel.rate * (ends[:, None] - points)
    own = np.empty((len(points), len(powers)))
    term = np.exp(-d) * masses
    for r in powers:
        own[:, r] = term.sum(axis=1)
        term = term * d
    # A_r(s + h) = exp(-a h) sum_j C(r, j) (a h)^(r - j) A_j(s).
    step = kernel.rate * np.diff(ends, prepend=ends[0])
    gap = np.maximum(powers[:, None] - powers[None, :], 0)
    binomials = pascal(len(powers), kind="lower", exact=False)
    moves = binomials * step[:, None, None] ** gap * np.exp(-step)[:, None, None]
    state = np.zeros(len(powers))
    for b, move in enumerate(moves):
        state = move @ state + own[b]
        own[b] = state
    return own


def _read(kernel: Matern, states: np.ndarray, distance: np.ndarray) -> np.ndarray:
    """Sum the kernel over the points in states, seen from distances beyond their ends."""
    p = len(kernel.coefficients) - 1
    binomials = pascal(p + 1, kind="lower", exact=False)
    step = kernel.rate * distance
    total = np.zeros_like(step)
    # exp(-step) sum_r c_r sum_j C(r, j) step^(r - j) A_j, gathered by powers of step.
    for power in range(p, -1, -1):
        r = np.arange(power, p + 1)
        total = total * step + states[:, r - power] @ (
            kernel.coefficients[r] * binomials[r, r - power]
        )
    return np.exp(-step) * total


@register(Matern, Counting)
def matern_counting(kernel: Matern, measure: Counting) -> Embedding | None:
    r"""Matern kernel under counting measure on 0, ..., M, without a transform.

    With :math:`G(D) = \sum_{d=0}^{D} g(d)` the sums of the profile,

    .. math:: \mu(y) = G(y) + G(M - y) - g(0), \qquad
              \sum_{x, x'} k(x, x') = (M + 1) g(0) + 2 \sum_{d=1}^M (M + 1 - d) g(d) .

    G stops growing once the profile is below 1e-40, so the cost does not exceed a hundred or so
    lengthscales. With a transform the sums are taken point by point in linear time.
    """
    if kernel.transform is not None:
        return None
    top = measure.maximum
    # exp(-r) times a polynomial of degree p in r: past this r nothing is left of it.
    p = len(kernel.coefficients) - 1
    reach = min(top, math.ceil((100.0 + 8.0 * p) / kernel.rate))

    def mean(y: np.ndarray) -> np.ndarray:
        sums = _prefix_sums(kernel.profile(np.arange(reach + 1.0)))

        def up_to(d: np.ndarray) -> np.ndarray:
            return np.where(d >= 0, sums[np.clip(d, 0, reach)], 0.0)

        inside = up_to(y) + up_to(top - y) - 1.0
        # Outside the range the distances run from the nearest to the farthest point of it.
        near = np.maximum(-y, y - top)
        if (near <= 0).all():
            return inside
        queries = -np.maximum(near, 1).astype(float)
        outside = matern_sums(kernel, np.arange(top + 1.0), np.ones(top + 1), queries)
        return np.where(near <= 0, inside, outside)

    def initial_error() -> float:
        d = np.arange(1.0, reach + 1.0)
        return (top + 1.0) + 2.0 * float(np.sum((top + 1.0 - d) * kernel.profile(d)))

    return Embedding(mean, initial_error)


def _prefix_sums(values: np.ndarray) -> np.ndarray:
    """Return running sums, in two levels so that rounding grows with the root of the length."""
    width = max(math.isqrt(len(values)), 1)
    padded = np.zeros(-(-len(values) // width) * width)
    padded[: len(values)] = values
    table = padded.reshape(-1, width)
    before = np.concatenate([[0.0], np.cumsum(table.sum(axis=1))[:-1]])
    return (before[:, None] + np.cumsum(table, axis=1)).ravel()[: len(values)]
