"""Sums of smooth functions over long stretches of integers, to machine precision."""

import math
from collections.abc import Callable

import numpy as np
from scipy import linalg

__all__ = ["long_sum"]

#: Stretches up to this length are summed term by term.
DIRECT = 2**14

#: Nodes of the Gauss rule of one panel.
NODES = 24


def _panel_rule(length: int) -> tuple[np.ndarray, np.ndarray]:
    r"""Gauss rule for :math:`\sum_{r=0}^{length-1} f(r)`.

    Golub and Welsch on the recurrence of the discrete Chebyshev polynomials (orthogonal under
    counting measure on 0, ..., n - 1), whose off-diagonal entries are
    :math:`\sqrt{j^2 (n^2 - j^2) / (4 (4 j^2 - 1))}`; exact for polynomials of degree 2 NODES - 1.
    """
    n = float(length)
    j = np.arange(1.0, NODES)
    off = np.sqrt(j**2 * (n**2 - j**2) / (4.0 * (4.0 * j**2 - 1.0)))
    nodes, vectors = linalg.eigh_tridiagonal(np.zeros(NODES), off)
    return nodes + 0.5 * (n - 1.0), n * vectors[0] ** 2


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

    Parameters
    ----------
    f : callable on float arrays
    low, high : int
    width : callable
        Longest allowed panel at a position.

    Returns
    -------
    float
    """
    split = min(high, low + DIRECT - 1)
    parts = [f(np.arange(low, split + 1, dtype=float)).sum()]
    position = split + 1
    rules: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    while position <= high:
        length = math.floor(min(position - low, width(position)))
        length = min(max(length, 2 * NODES), high - position + 1)
        if length <= 2 * NODES:
            parts.append(f(np.arange(position, position + length, dtype=float)).sum())
        else:
            if length not in rules:
                rules[length] = _panel_rule(length)
            nodes, weights = rules[length]
            parts.append(weights @ f(position + nodes))
        position += length
    return math.fsum(parts)
