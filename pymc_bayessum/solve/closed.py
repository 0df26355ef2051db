"""The Brownian kernel on the integers, where everything is written down in closed form.

Under k(x, y) = min(x, y) + c the process starts at variance c and gathers one unit for each
step, so increments over disjoint stretches are independent. Given its values at sorted nodes the
mean is the piecewise-linear interpolant: towards zero at -c below the first node, constant beyond
the last. The weights are the sums of its hat functions under the measure.
"""

from dataclasses import dataclass, field
from typing import override

import numpy as np

from pymc_bayessum.kernels import Brownian
from pymc_bayessum.measures import Counting, IntegerMeasure
from pymc_bayessum.measures.supports import Points
from pymc_bayessum.solve.gram import Gram
from pymc_bayessum.solve.registry import Solution, register

__all__ = ["BrownianGram"]


@dataclass(frozen=True, eq=False)
class BrownianGram(Gram):
    """The Gram matrix of min(x, y) + c, diagonal in the increments of sorted nodes.

    ``order`` has the positions of the nodes in rising order, ``steps`` the prior variances of the
    increments: x_1 + c, x_2 - x_1, ...

    Examples
    --------
    >>> import numpy as np
    >>> gram = BrownianGram.of_nodes(np.array([4, 0]), shift=1.0)
    >>> float(gram.quadratic_form(np.array([3.0, 1.0])))
    2.0
    """

    order: np.ndarray = field(repr=False)
    steps: np.ndarray = field(repr=False)
    jitter: float = field(default=0.0, init=False)

    @classmethod
    def of_nodes(cls, nodes: np.ndarray, shift: float) -> "BrownianGram":
        """Factorise on nodes above ``-shift``."""
        order = np.argsort(nodes, kind="stable")
        return cls(order, np.diff(nodes[order].astype(float), prepend=-shift))

    @property
    @override
    def n_informative(self) -> int:
        return len(self.order)

    @property
    @override
    def log_det(self) -> float:
        return float(np.log(self.steps).sum())

    @override
    def whiten(self, values: np.ndarray) -> np.ndarray:
        """Return the increments over their standard deviations, in rising order of the nodes."""
        increments = np.diff(np.asarray(values, float)[..., self.order], prepend=0.0, axis=-1)
        return increments / np.sqrt(self.steps)


@register(Brownian, IntegerMeasure)
def solve_brownian(
    kernel: Brownian, measure: IntegerMeasure | None, points: Points, jitter: float | None
) -> Solution | None:
    """Write the weights down; ``None`` when a measure has too many integers to list."""
    x = np.asarray(points)
    if jitter or x.ndim != 1 or x.min() + kernel.shift <= 0.0:
        return None
    gram = BrownianGram.of_nodes(x, kernel.shift)
    if measure is None:
        return Solution(gram)
    if measure.ends[0] < 0:
        return None
    x = x[gram.order]
    if isinstance(measure, Counting):
        ascending, variance = _counting(x, measure.maximum, kernel.shift)
    else:
        listed = measure.listed(int(x[-1]))
        if listed is None:
            return None
        ascending, variance = _summed(x, *listed, kernel.shift)
    log_weights = np.empty(len(x))
    log_weights[gram.order] = ascending
    with np.errstate(under="ignore"):
        return Solution(gram, np.exp(log_weights), variance, log_weights)


def _counting(x: np.ndarray, maximum: int, shift: float) -> tuple[np.ndarray, float]:
    """Hat sums over 0..maximum: (h - 1) / 2 to either side of a gap h."""
    gaps = np.diff(x).astype(float)
    weights = np.ones(len(x))
    weights[:-1] += (gaps - 1) / 2
    weights[1:] += (gaps - 1) / 2
    # The kernel of S - w'y is constant between integers: h - 1 - k less (h - 1) / 2 in a gap.
    variance = float((gaps * (gaps**2 - 1)).sum()) / 12
    beyond = float(maximum - x[-1])
    weights[-1] += beyond
    variance += beyond * (beyond + 1) * (2 * beyond + 1) / 6
    below = float(x[0])
    share = below * ((below - 1) / 2 + shift) / (below + shift) if below else 0.0
    weights[0] += share
    left = below - 1 - np.arange(below)  # integers between the stretch and the first node
    variance += shift * (below - share) ** 2 + float(np.square(left - share).sum())
    return np.log(weights), variance


def _summed(
    nodes: np.ndarray, x: np.ndarray, log_prob: np.ndarray, shift: float
) -> tuple[np.ndarray, float]:
    """Hat sums by listing every integer, in logs so that far nodes keep their relative accuracy."""
    keep = np.isfinite(log_prob)
    x, log_prob = x[keep], log_prob[keep]
    # The gap before the first node begins where the process is zero, and the last never ends.
    edges = np.concatenate([[-shift], nodes, [np.inf]])
    gap = np.searchsorted(nodes, x, side="right")
    right_share = (x - edges[gap]) / (edges[gap + 1] - edges[gap])
    with np.errstate(divide="ignore"):
        terms = np.append(log_prob + np.log1p(-right_share), log_prob + np.log(right_share))
    index = np.append(gap, gap + 1)
    peak = np.full(len(edges), -np.inf)
    np.maximum.at(peak, index, terms)
    peak[np.isneginf(peak)] = 0.0
    sums = np.bincount(index, np.exp(terms - peak[index]), minlength=len(edges))
    with np.errstate(divide="ignore"):
        log_weights = (peak + np.log(sums))[1:-1]
    prob = np.where(x == edges[gap], 0.0, np.exp(log_prob))
    carried = np.bincount(gap, prob * right_share, minlength=len(nodes) + 1)
    return log_weights, _variance(nodes, x, prob, carried, shift)


def _variance(
    nodes: np.ndarray, x: np.ndarray, prob: np.ndarray, carried: np.ndarray, shift: float
) -> float:
    """Integral of the squared Peano kernel of S - w'y, which is constant between integers.

    In a gap its value on (r, r + 1) is the mass of the gap beyond r less the part of the gap's
    mass that the right node carries; beyond the last node it is the tail mass itself.
    """
    mass = np.zeros(max(int(x[-1]), int(nodes[-1])) + 2)
    mass[x] = prob
    cells = np.arange(len(mass) - 1)
    gap = np.searchsorted(nodes, cells, side="right")  # 0 below the first node, N beyond the last
    mass_beyond = np.append(np.cumsum(mass[::-1])[::-1], 0.0)
    gap_end = np.append(nodes, len(mass) - 1)
    kernel = mass_beyond[cells + 1] - mass_beyond[gap_end[gap]] - carried[gap]
    start = mass[: int(nodes[0])].sum() - carried[0]
    return float(np.square(kernel).sum() + shift * start**2)
