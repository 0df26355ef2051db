"""Exact summation: measures as weighted points, for pairs without a closed form."""

import math

import numpy as np

from pymc_bayessum.embeddings.matern import matern_sums
from pymc_bayessum.embeddings.registry import Embedding
from pymc_bayessum.kernels import Kernel, Matern
from pymc_bayessum.measures import IntegerMeasure, Measure, Mixture, Product, Pushforward
from pymc_bayessum.measures.base import concatenate
from pymc_bayessum.measures.supports import Points, batch_size, take

__all__ = ["NotSummable", "summed_embedding", "weighted_points"]

#: Most points a measure may be reduced to.
POINT_LIMIT = 2**21

#: Most pairs of points in an initial error.
PAIR_LIMIT = 2**31

#: Entries of a Gram matrix held at a time.
BLOCK_ENTRIES = 2**22

#: Logs of the mass that may be left out: far below rounding where that is cheap, else at it.
CAREFUL, PLAIN = -95.0, -42.0


class NotSummable(ValueError):
    """A measure cannot be reduced to a moderate number of weighted points."""


def weighted_points(measure: Measure, growth: float | None) -> tuple[Points, np.ndarray]:
    """Points and masses that stand for a measure to machine precision.

    The growth of the functions to be summed (:attr:`Kernel.growth`) enters the bound on the tail
    that is left out. `NotSummable` is raised for too many points, or infinitely many without order.
    """
    match measure:
        case IntegerMeasure():
            for log_eps in (CAREFUL, PLAIN):
                low, high = measure.effective_range(log_eps, growth or 0.0)
                if high - low < POINT_LIMIT:
                    points = np.arange(low, high + 1)
                    return points, np.exp(measure.log_prob(points))
            raise NotSummable(f"it spreads over {high - low + 1} integers, too many to sum over")
        case Mixture():
            parts = [weighted_points(part, growth) for part in measure.measures]
            weights = [w * p[1] for w, p in zip(measure.weights, parts, strict=True)]
            return concatenate([p[0] for p in parts]), np.concatenate(weights)
        case Product():
            x, wx = weighted_points(measure.first, growth)
            y, wy = weighted_points(measure.second, growth)
            n, m = len(wx), len(wy)
            if n * m > POINT_LIMIT:
                raise NotSummable(f"it comes to {n} times {m} pairs, too many to sum over")
            first, second = np.repeat(np.arange(n), m), np.tile(np.arange(m), n)
            return (take(x, first), take(y, second)), wx[first] * wy[second]
        case Pushforward():
            points, masses = weighted_points(measure.measure, growth)
            return measure.forward(points), masses
    size = measure.support.size
    if size > POINT_LIMIT:
        count = "infinitely many" if math.isinf(size) else f"{size:.3g}"
        raise NotSummable(f"its support has {count} points, too many to sum over")
    points = measure.support.enumerate()
    return points, np.exp(measure.log_prob(points))


def summed_embedding(kernel: Kernel, measure: Measure) -> Embedding:
    r"""Embedding by summation over all points of a measure.

    On an infinite support the sum stops where
    :math:`\sum_{x > K} p(x) \sqrt{k(x, x)}` is below 1e-40 of the whole (1e-18 where the range
    would be too long), which bounds what is left out by Cauchy and Schwarz. Where the growth of
    the kernel is not known, the terms :math:`p(x) \sqrt{k(x, x)}` must have become negligible at
    the ends of the range of the measure itself.
    """
    growth = kernel.growth
    if growth != 0.0 and _is_pushed(measure):
        # The exponent belongs to points after the map, the bound on the tail to those before it.
        growth = None
    points, weights = weighted_points(measure, growth)
    if growth is None and math.isinf(measure.support.size):
        _check_tails(kernel, measure, points, weights)
    if isinstance(kernel, Matern):
        t = kernel.warp(points)
        return Embedding(
            lambda y: matern_sums(kernel, t, weights, kernel.warp(y)),
            lambda: float(weights @ matern_sums(kernel, t, weights, t)),
        )

    def initial_error() -> float:
        terms = weights * np.sqrt(kernel.diagonal(points))
        kept = terms > 1e-20 * terms.max()
        x, w = take(points, kept), weights[kept]
        if len(w) ** 2 > PAIR_LIMIT:
            raise NotSummable(
                f"the initial error of {type(kernel).__name__} under {type(measure).__name__} is "
                f"a sum over {len(w)} times {len(w)} points, too many"
            )
        return float(w @ _weighted_gram(kernel, x, w, x))

    return Embedding(lambda y: _weighted_gram(kernel, points, weights, y), initial_error)


def _is_pushed(measure: Measure) -> bool:
    if isinstance(measure, Product):
        return _is_pushed(measure.first) or _is_pushed(measure.second)
    return isinstance(measure, Pushforward)


def _weighted_gram(kernel: Kernel, x: Points, weights: np.ndarray, y: Points) -> np.ndarray:
    """Sum of weights times kernel over x, at each y, a block of x at a time."""
    n = batch_size(y)
    step = max(BLOCK_ENTRIES // max(n, 1), 1)
    total = np.zeros(n)
    for start in range(0, len(weights), step):
        index = np.arange(start, min(start + step, len(weights)))
        total += weights[index] @ kernel(take(x, index), y)
    return total


def _check_tails(kernel: Kernel, measure: Measure, points: Points, weights: np.ndarray) -> None:
    """Refuse a sum whose terms p(x) sqrt(k(x, x)) have not died out at the ends of the range.

    The terms beyond an end are bounded by the geometric series with the ratio found there, which
    holds as long as the ratios do not rise again.
    """
    base = measure
    while isinstance(base, Pushforward):
        base = base.measure
    if not isinstance(base, IntegerMeasure):
        raise NotSummable("nothing is known of the growth of this kernel on an infinite support")
    terms = weights * np.sqrt(kernel.diagonal(points))
    for end, tail in zip(base.ends, (terms[:10][::-1], terms[-10:]), strict=True):
        if math.isfinite(end):
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.nan_to_num(tail[1:] / tail[:-1], nan=0.0, posinf=np.inf).max()
        if not (ratio < 1.0 and tail[-1] * ratio <= 1e-18 * (1.0 - ratio) * terms.sum()):
            raise NotSummable("its terms do not die out, so the tail cannot be bounded")
