r"""Sums of smooth functions over long runs of whole numbers, from few of their values.

A panel is the run 0, ..., L - 1 with ``PANEL_NODES`` whole nodes in it and positive weights that
give the sum over the whole run of every polynomial of high degree in a coordinate v(x) exactly:

===========  ======================  ==========================================================
panel        coordinate              for summands that
===========  ======================  ==========================================================
``even``     :math:`v = x`           vary as fast at the one end as at the other: a cut bell
``graded``   :math:`v = \log(x + c)`  vary fast near the left end and ever slower away from it
===========  ======================  ==========================================================

The nodes are those of Chebyshev in v, moved to the next whole numbers (interpolatory rules at
such nodes converge geometrically: Trefethen, *Approximation Theory and Approximation Practice*,
chapter 19).  Lengths grow by an eighth of an octave, from the panel that holds every one of its
numbers; where a panel is longer than needed its right end is where the summand has vanished.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.polynomial import chebyshev, legendre

__all__ = [
    "DYADIC_NODES",
    "GRADING",
    "PANEL_NODES",
    "SKEWED",
    "Panels",
    "dyadic_panels",
    "even_panels",
    "graded_panels",
]

PANEL_NODES = 56
DYADIC_NODES = 16
N_DYADIC = 46
_LENGTHS = np.ceil(PANEL_NODES * 2.0 ** (np.arange(161) / 8)).astype(int)
#: Numbers to the left of a graded panel that are summed one by one.
GRADING = 8
#: Where a summand reaches that many times further than its mode the graded panel is the better one,
#: whatever its length: below some 1e-8 with up to 1e7 numbers, seen with negative binomial masses.
SKEWED = 10.0
#: Runs up to here are summed one by one when the weights are made.
_ONE_BY_ONE = 2048


class Panels(NamedTuple):
    """Nodes and weights, of shape (PANEL_NODES, number of lengths), and the lengths."""

    nodes: np.ndarray
    weights: np.ndarray
    lengths: np.ndarray


@cache
def even_panels() -> Panels:
    """Panels for summands that are as smooth at the one end as at the other.

    Examples
    --------
    The sum of 0, ..., L - 1 for the tenth length:

    >>> nodes, weights, lengths = even_panels()
    >>> n = lengths[10]
    >>> bool(np.isclose(weights[:, 10] @ nodes[:, 10], n * (n - 1) / 2))
    True
    """
    return _panels(_LENGTHS, lambda x: x)


@cache
def graded_panels() -> Panels:
    """Panels for summands that vary fast near the left end only.

    Examples
    --------
    >>> nodes, weights, lengths = graded_panels()
    >>> terms = 1 / (GRADING + np.arange(lengths[60]))
    >>> bool(np.isclose(weights[:, 60] @ terms[nodes[:, 60]], terms.sum()))
    True
    """
    return _panels(_LENGTHS, lambda x: np.log(x + GRADING + 2.0))


@cache
def dyadic_panels() -> Panels:
    """Short panels of lengths ``DYADIC_NODES`` times a power of two.

    Examples
    --------
    >>> nodes, weights, lengths = dyadic_panels()
    >>> int(lengths[3]), bool(np.isclose(weights[:, 3].sum(), lengths[3]))
    (128, True)
    """
    return _panels(DYADIC_NODES * 2 ** np.arange(N_DYADIC), lambda x: x, DYADIC_NODES)


def _panels(
    lengths: np.ndarray, coordinate: Callable[[np.ndarray], np.ndarray], n_nodes: int = PANEL_NODES
) -> Panels:
    rows = [_panel(int(length), coordinate, n_nodes) for length in lengths]
    nodes, weights = (np.stack(part, axis=-1) for part in zip(*rows, strict=True))
    return Panels(nodes, weights, lengths)


def _panel(
    length: int, coordinate: Callable[[np.ndarray], np.ndarray], n_nodes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights: as many moments right as positive weights can give."""
    if length == n_nodes:
        return np.arange(length), np.ones(length)
    start, stop = coordinate(np.array([-0.5, length - 0.5]))

    def scaled(x: np.ndarray) -> np.ndarray:
        return (2.0 * coordinate(x) - start - stop) / (stop - start)

    nodes = _chebyshev_nodes(length, scaled, n_nodes)
    points, masses = _whole_run(length)
    moments = chebyshev.chebvander(scaled(points), n_nodes - 1).T @ masses
    basis = chebyshev.chebvander(scaled(nodes), n_nodes - 1).T
    first = np.gradient(nodes.astype(float))
    for n_moments in range(n_nodes, 0, -1):
        lacking = moments[:n_moments] - basis[:n_moments] @ first
        # The smallest change of weights that are right to first order, relative to them.
        scale = np.sqrt(first)
        change = np.linalg.lstsq(basis[:n_moments] * scale, lacking, rcond=1e-14)[0]
        weights = first + scale * change
        if (weights > 0.0).all():
            break
    return nodes, weights


def _chebyshev_nodes(
    length: int, scaled: Callable[[np.ndarray], np.ndarray], n_nodes: int
) -> np.ndarray:
    """Return different whole numbers next to the Chebyshev points of the coordinate."""
    wanted = -np.cos(np.pi * (np.arange(n_nodes) + 0.5) / n_nodes)
    low, high = np.full(n_nodes, -0.5), np.full(n_nodes, length - 0.5)
    for _ in range(64):
        middle = (low + high) / 2.0
        below = scaled(middle) < wanted
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    order = np.arange(n_nodes)
    nodes = np.clip(np.round(low).astype(int), 0, length - 1)
    nodes = np.maximum.accumulate(nodes - order) + order
    ends = length - n_nodes + order
    return np.minimum(nodes, ends)


def _whole_run(length: int) -> tuple[np.ndarray, np.ndarray]:
    r"""Return points and masses that sum any smooth function over 0, ..., length - 1.

    Beyond the first numbers by Gauss-Legendre quadrature and the first term of the Euler-Maclaurin
    formula at midpoints: :math:`\sum_{x=a}^{b-1} f(x) = \int_{a-1/2}^{b-1/2} f - [f'] / 24`.
    """
    head = min(length, _ONE_BY_ONE)
    points, masses = [np.arange(head, dtype=float)], [np.ones(head)]
    if length > head:
        x, w = legendre.leggauss(60)
        n_pieces = int(np.ceil(4.0 * np.log2(length / head)))
        edges = np.geomspace(head - 0.5, length - 0.5, n_pieces + 1)
        middle, half = (edges[1:] + edges[:-1]) / 2.0, np.diff(edges) / 2.0
        points += [(middle[:, None] + half[:, None] * x).ravel(), edges[[-1, -1, 0, 0]]]
        masses += [(half[:, None] * w).ravel(), np.array([-1.0, 1.0, 1.0, -1.0]) / 24.0]
        points[-1] += [0.0, -1.0, 1.0, 0.0]
    return np.concatenate(points), np.concatenate(masses)
