"""The interval, and measures made of measures: mixtures, products, images."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, override

import numpy as np

from pymc_bayessum.arguments import function, reals
from pymc_bayessum.measures.base import IntegerMeasure, Measure, concatenate, require_measure
from pymc_bayessum.measures.sites import SiteMeasure, stochastic_beam
from pymc_bayessum.measures.supports import (
    Image,
    Integers,
    Interval,
    Line,
    Naturals,
    Pair,
    Points,
    Range,
    Support,
    take,
)

__all__ = ["IntegerMixture", "Mixture", "Product", "Pushforward", "UniformInterval"]


@dataclass(frozen=True)
class UniformInterval(Measure):
    """Uniform distribution on an interval.

    Parameters
    ----------
    low, high : float
        Ends, ``low < high``.

    Examples
    --------
    >>> from pymc_bayessum.measures import UniformInterval
    >>> UniformInterval(0.0, 2.0).log_prob([1.0, 3.0]).round(3).tolist()
    [-0.693, -inf]
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        interval = Interval(self.low, self.high)
        object.__setattr__(self, "low", interval.low)
        object.__setattr__(self, "high", interval.high)

    @property
    @override
    def support(self) -> Support:
        return Interval(self.low, self.high)

    def _log_prob(self, x: np.ndarray) -> np.ndarray:
        return np.full(len(x), -math.log(self.high - self.low))

    def _sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.uniform(self.low, self.high, n)


def _hull(supports: Sequence[Support]) -> Support:
    """Smallest support of the same kind that holds all of the given ones."""
    if all(s == supports[0] for s in supports):
        return supports[0]
    intervals = [s for s in supports if isinstance(s, Interval)]
    lines = [s for s in supports if isinstance(s, Line)]
    pairs = [s for s in supports if isinstance(s, Pair)]
    if len(intervals) == len(supports):
        return Interval(min(s.low for s in intervals), max(s.high for s in intervals))
    if len(lines) == len(supports):
        low, high = min(s.ends[0] for s in lines), max(s.ends[1] for s in lines)
        if math.isinf(low):
            return Integers()
        return Naturals(int(low)) if math.isinf(high) else Range(int(low), int(high))
    if len(pairs) == len(supports):
        return Pair(_hull([s.first for s in pairs]), _hull([s.second for s in pairs]))
    raise ValueError(
        f"measures must live on one kind of space, got {', '.join(map(str, supports))}"
    )


@dataclass(frozen=True, eq=False)
class Mixture(Measure):
    r"""Weighted mixture, :math:`\sum_i w_i P_i`.

    Parameters
    ----------
    weights : array_like of shape (K,)
        Positive, summing to one.
    measures : sequence of K measures
        All on one kind of space, all probabilities.

    Examples
    --------
    >>> from pymc_bayessum.measures import Mixture, Poisson
    >>> Mixture([0.3, 0.7], [Poisson(2.0), Poisson(9.0)]).sample(5, rng=0).shape
    (5,)
    """

    weights: np.ndarray
    measures: tuple[Measure, ...]
    _support: Support = field(init=False, repr=False)

    def __new__(cls, weights: Any = None, measures: Sequence[Measure] = ()) -> "Mixture":
        """Give mixtures on the integers the tail bounds of their parts, which have a type.

        Copying and unpickling come without arguments, and with the class already right.
        """
        measures = tuple(measures)
        on_integers = measures and all(isinstance(m, IntegerMeasure) for m in measures)
        return object.__new__(IntegerMixture if cls is Mixture and on_integers else cls)

    def __post_init__(self) -> None:
        weights = reals("weights", self.weights, 1)
        measures = tuple(self.measures)
        if len(measures) == 0 or len(weights) != len(measures):
            raise ValueError(
                f"weights and measures must have one length above zero, got {len(weights)} "
                f"and {len(measures)}"
            )
        for measure in measures:
            if not isinstance(measure, Measure):
                raise TypeError(f"measures must hold measures only, got {measure!r}")
            if measure.log_mass != 0.0:
                raise ValueError(f"measures must be probabilities, got {measure}")
        if (weights <= 0).any() or abs(weights.sum() - 1.0) > 1e-8:
            raise ValueError(
                f"weights must be positive and sum to one, got {weights} with sum {weights.sum()}"
            )
        weights = weights / weights.sum()
        weights.setflags(write=False)
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "measures", measures)
        object.__setattr__(self, "_support", _hull([m.support for m in measures]))

    @property
    @override
    def support(self) -> Support:
        return self._support

    def _log_prob(self, x: Points) -> np.ndarray:
        parts = np.stack([m.log_prob(x) for m in self.measures])
        return np.logaddexp.reduce(parts + np.log(self.weights)[:, None], axis=0)

    def _sample(self, n: int, rng: np.random.Generator) -> Points:
        count = rng.multinomial(n, self.weights)
        parts = [m.sample(int(c), rng) for m, c in zip(self.measures, count, strict=True)]
        return take(concatenate(parts), rng.permutation(n))

    def _sample_distinct(self, n: int, rng: np.random.Generator) -> Points:
        parts = [m for m in self.measures if isinstance(m, SiteMeasure)]
        same_order = all(np.array_equal(m.site_order, parts[0].site_order) for m in parts)
        if len(parts) == len(self.measures) and same_order:
            return stochastic_beam(parts, np.log(self.weights), n, rng)
        return super()._sample_distinct(n, rng)


class IntegerMixture(IntegerMeasure, Mixture):
    """Mixture of measures on the integers; made by :class:`Mixture` itself."""

    measures: tuple[IntegerMeasure, ...]

    @property
    @override
    def mean(self) -> float:
        return float(self.weights @ np.array([m.mean for m in self.measures]))

    @property
    @override
    def sd(self) -> float:
        mean = np.array([m.mean for m in self.measures])
        sd = np.array([m.sd for m in self.measures])
        return float(np.sqrt(self.weights @ (sd**2 + (mean - self.mean) ** 2)))

    @override
    def tail_ratio(self, x: int, side: int = 1) -> float:
        # A ratio of sums is at most the largest of the ratios; parts that have ended drop out, and
        # for those that have not begun there is no bound.
        ratios = [0.0]
        for m in self.measures:
            begin, end = m.ends if side > 0 else m.ends[::-1]
            if side * x < side * begin:
                return math.inf
            if side * x < side * end:
                ratios.append(m.tail_ratio(x, side))
        return max(ratios)


@dataclass(frozen=True, eq=False)
class Product(Measure):
    """Two independent measures side by side; points are pairs of batches.

    Examples
    --------
    >>> from pymc_bayessum.measures import Product, UniformCategorical, UniformInterval
    >>> x, y = Product(UniformInterval(0, 1), UniformCategorical(2, 3)).sample(5, rng=0)
    >>> x.shape, y.shape
    ((5,), (5, 2))
    """

    first: Measure = field(metadata={"check": require_measure})
    second: Measure = field(metadata={"check": require_measure})

    @property
    @override
    def support(self) -> Support:
        return Pair(self.first.support, self.second.support)

    @property
    @override
    def log_mass(self) -> float:
        return self.first.log_mass + self.second.log_mass

    def _log_prob(self, x: Points) -> np.ndarray:
        return self.first.log_prob(x[0]) + self.second.log_prob(x[1])

    def _sample(self, n: int, rng: np.random.Generator) -> Points:
        return self.first.sample(n, rng), self.second.sample(n, rng)


@dataclass(frozen=True, eq=False)
class Pushforward(Measure):
    r"""Image of a measure under an invertible map.

    Parameters
    ----------
    measure : Measure
    forward, inverse : callable
        The map and its inverse, both on batches of points.
    log_jacobian : callable, optional
        On an interval, :math:`\log |d\,\mathrm{inverse}(y) / dy|`. When missing it is taken by
        central differences, good to about ten digits. Never used on discrete supports.

    Examples
    --------
    >>> from pymc_bayessum.measures import Poisson, Pushforward
    >>> odd = Pushforward(Poisson(3.0), lambda x: 2 * x + 1, lambda y: (y - 1) // 2)
    >>> odd.log_prob([4]).tolist()
    [-inf]
    """

    measure: Measure = field(metadata={"check": require_measure})
    forward: Callable[[Points], Points] = field(metadata={"check": function})
    inverse: Callable[[Points], Points] = field(metadata={"check": function})
    log_jacobian: Callable[[Points], np.ndarray] | None = None

    @property
    @override
    def support(self) -> Support:
        return Image(self.measure.support, self.forward, self.inverse)

    @property
    @override
    def log_mass(self) -> float:
        return self.measure.log_mass

    def _log_prob(self, x: Points) -> np.ndarray:
        base = self.measure.log_prob(self.inverse(x))
        if not isinstance(self.measure.support, Interval):
            return base
        if self.log_jacobian is not None:
            return base + self.log_jacobian(x)
        step = 6e-6 * np.maximum(np.abs(x), 1.0)
        with np.errstate(divide="ignore"):
            slope = (self.inverse(x + step) - self.inverse(x - step)) / (2.0 * step)
            return base + np.log(np.abs(slope))

    def _sample(self, n: int, rng: np.random.Generator) -> Points:
        return self.forward(self.measure.sample(n, rng))

    def _sample_distinct(self, n: int, rng: np.random.Generator) -> Points:
        return self.forward(self.measure.sample_distinct(n, rng))
