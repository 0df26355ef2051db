"""Sums of smooth functions over long stretches of integers, to machine precision."""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

__all__ = ["counting_gauss", "gauss_from_recurrence", "long_sum"]

#: Stretches up to this length are summed term by term.
DIRECT = 2**14

#: Nodes of the Gauss rule of one panel.
NODES = 24


def gauss_from_recurrence(
    alpha: np.ndarray, root_beta: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Gauss points and shares of the mass from three-term recurrences (Golub and Welsch, 1969).

    Of J recurrences, alpha (J, Q) and root_beta (J, Q - 1), at once.
    """
    count = alpha.shape[1]
    jacobi = np.zeros((len(alpha), count, count))
    k = np.arange(count)
    jacobi[:, k, k] = alpha
    jacobi[:, k[1:], k[:-1]] = root_beta
    points, vectors = np.linalg.eigh(jacobi)
    return points, np.square(vectors[:, 0, :])


def counting_gauss(lengths: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    r"""Gauss rules of ``count`` points for sums over consecutive integers, one for each length.

    Points are measured from the middle of the integers. The discrete Chebyshev polynomials,
    orthogonal on n integers, have the recurrence
    :math:`\sqrt{\beta_j} = \sqrt{j^2 (n^2 - j^2) / (4 (4 j^2 - 1))}`; the rules are exact for
    polynomials of degree 2 count - 1.
    """
    n = np.asarray(lengths, dtype=float)[:, None]
    square = np.arange(1.0, count) ** 2
    root_beta = np.sqrt(square * (n**2 - square) / (4.0 * (4.0 * square - 1.0)))
    points, shares = gauss_from_recurrence(np.zeros((len(n), count)), root_beta)
    return points, n * shares


def long_sum(
    f: Callable[[np.ndarray], np.ndarray],
    low: int,
    high: int,
    width: Callable[[float], float],
) -> float:
    """Sum f(r) over the integers ``low <= r <= high``.

    Short stretches are added term by term. Long ones are cut into panels, each summed by a Gauss
    rule for counting measure. A panel is no longer than its distance from ``low`` (where f may
    have a singularity) nor than ``width`` there (the scale on which f bends), which keeps f
    within the reach of a polynomial of degree 47.
    """
    split = min(high, low + DIRECT - 1)
    parts = [f(np.arange(low, split + 1, dtype=float)).sum()]
    position = split + 1
    rule = lru_cache(lambda length: counting_gauss(np.array([length]), NODES))
    while position <= high:
        length = math.floor(min(position - low, width(position)))
        length = min(max(length, 2 * NODES), high - position + 1)
        if length <= 2 * NODES:
            parts.append(f(np.arange(position, position + length, dtype=float)).sum())
        else:
            points, weights = rule(length)
            parts.append(weights[0] @ f(position + 0.5 * (length - 1.0) + points[0]))
        position += length
    return math.fsum(parts)
