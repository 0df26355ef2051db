"""What every measure can do, and the parts shared by measures on the integers."""

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from pymc_bayessum.arguments import Checked, as_generator, integer
from pymc_bayessum.measures.supports import (
    ENUMERATION_LIMIT,
    Line,
    Points,
    Support,
    batch_size,
    point_keys,
    take,
)

__all__ = ["IntegerMeasure", "Measure", "require_measure"]

#: Chance, in logs, that a draw without replacement would differ had the far tail been visited.
LOG_TAIL_CHANCE = math.log(1e-18)

#: Longest stretch of integers that is ever listed.
RANGE_LIMIT = 2**25

#: Longest stretch of integers that a rule sums one by one.
STRETCH_LIMIT = 2**22

#: The tail left out of such a sum weighs less than exp of this, relative to the last node's mass.
LOG_NEGLIGIBLE = -42.0


class Measure(Checked, ABC):
    """A measure on a discrete set, an interval, or a product of such.

    Most measures are probabilities; their ``log_mass`` is zero. Points come in batches: integer
    arrays (N,) on the naturals or integers, integer arrays (N, L) on sites, float arrays (N,) on
    an interval, and a tuple of two batches on a product.
    """

    @property
    @abstractmethod
    def support(self) -> Support:
        """The set of points with mass."""

    @property
    def log_mass(self) -> float:
        """Log of the total mass, zero for a probability."""
        return 0.0

    def log_prob(self, x: Points) -> np.ndarray:
        """Log mass (log density on an interval) at each point, ``-inf`` outside; shape (N,)."""
        x = self.support.as_points(x)
        inside = self.support.contains(x)
        out = np.full(batch_size(x), -np.inf)
        if inside.any():
            out[inside] = self._log_prob(x if inside.all() else take(x, inside))
        return out

    def sample(self, n: int, rng: Any = None) -> Points:
        """Draw ``n`` independent points (from the normalised measure), by a seed or Generator."""
        return self._sample(integer("n", n), as_generator(rng))

    def sample_distinct(self, n: int, rng: Any = None) -> Points:
        """Draw ``n`` distinct points: one after the other, each in proportion to its mass.

        This is what remains of independent draws when repeats are dropped, so the first k of the
        n points, in the order drawn, are themselves such a draw.
        """
        n = integer("n", n)
        if n > self.support.size:
            raise ValueError(
                f"n must be at most the {int(self.support.size)} points of {self.support}, got {n}"
            )
        return self._sample_distinct(n, as_generator(rng))

    @abstractmethod
    def _log_prob(self, x: Points) -> np.ndarray:
        """Log mass at points that are known to lie in the support."""

    @abstractmethod
    def _sample(self, n: int, rng: np.random.Generator) -> Points:
        """Draw independent points."""

    def _sample_distinct(self, n: int, rng: np.random.Generator) -> Points:
        """Drop repeats from independent draws; list the support when that takes too long."""
        seen: set = set()
        kept: list[Points] = [self._sample(0, rng)]
        drawn = 0
        while len(seen) < n and drawn < 1000 + 50 * n:
            batch = self._sample(2 * (n - len(seen)) + 8, rng)
            drawn += batch_size(batch)
            new = []
            for i, key in enumerate(point_keys(batch)):
                if key not in seen and len(seen) < n:
                    seen.add(key)
                    new.append(i)
            kept.append(take(batch, np.array(new, dtype=int)))
        if len(seen) < n:
            if self.support.size > ENUMERATION_LIMIT:
                raise ValueError(
                    f"n = {n} distinct points were not found: {drawn} draws gave {len(seen)}, and "
                    f"{self.support} is too large to list; ask for fewer"
                )
            # Given what is drawn, the rest of the sequence is again a draw without replacement
            # from what is left: exponential clocks have no memory.
            points = self.support.enumerate()
            left = np.array([key not in seen for key in point_keys(points)])
            points = take(points, left)
            kept.append(take(points, gumbel_top(self.log_prob(points), n - len(seen), rng)))
        return concatenate(kept)


def require_measure(name: str, value: Any) -> Any:
    """Return a measure, or raise for what is none."""
    if not isinstance(value, Measure):
        raise TypeError(f"{name} must be a measure, got {value!r}")
    return value


def concatenate(batches: list[Points]) -> Points:
    """Join batches of points."""
    if isinstance(batches[0], tuple):
        return tuple(concatenate(list(parts)) for parts in zip(*batches, strict=True))
    return np.concatenate(batches)


def gumbel_top(log_prob: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Positions of the ``n`` largest of ``log_prob`` plus Gumbel noise, in falling order."""
    score = log_prob + rng.gumbel(size=len(log_prob))
    if np.isfinite(log_prob).sum() < n:
        raise ValueError(
            f"n must be at most the {int(np.isfinite(log_prob).sum())} points with mass, got {n}"
        )
    return np.argsort(-score, kind="stable")[:n]


class IntegerMeasure(Measure):
    """A measure on a set of integers whose tails are bounded by geometric series.

    Besides the mass function a subclass knows its ``mean`` and ``sd``, which say where to begin
    looking, and :meth:`tail_ratio`, which says where one may stop.
    """

    @property
    @abstractmethod
    def mean(self) -> float:
        """Mean of the normalised measure."""

    @property
    @abstractmethod
    def sd(self) -> float:
        """Standard deviation of the normalised measure."""

    @property
    def ends(self) -> tuple[float, float]:
        """Smallest and largest integer with mass, possibly infinite."""
        support = self.support
        assert isinstance(support, Line), "a measure on integers has a support of integers"
        return support.ends

    @abstractmethod
    def tail_ratio(self, x: int, side: int = 1) -> float:
        """Bound on mass(z + side) / mass(z) for every z at ``x`` and further out.

        ``side`` is +1 for the upper and -1 for the lower tail.
        """

    def log_tail(self, x: int, side: int = 1, growth: float = 0.0) -> float:
        """Bound on the log of the mass beyond ``x``, weighted with (z / x)**growth.

        The weight makes it serve sums of kernels that grow. It is ``inf`` where the geometric bound
        does not hold yet.
        """
        return self._log_tail(x, float(self.log_prob(np.array([x]))[0]), side, growth)

    def _log_tail(self, x: int, log_prob: float, side: int, growth: float) -> float:
        low, high = self.ends
        if (side > 0 and x >= high) or (side < 0 and x <= low):
            return -math.inf
        ratio = self.tail_ratio(x, side) * (1.0 + 1.0 / max(abs(x), 1)) ** growth
        if ratio >= 1.0 - 1e-12:
            return math.inf
        return log_prob + math.log(ratio) - math.log1p(-ratio)

    def effective_range(self, log_eps: float = -95.0, growth: float = 0.0) -> tuple[int, int]:
        """Integers ``low, high`` outside of which the mass is below ``exp(log_eps)`` of the total.

        It is weighted with (1 + abs(x))**growth, relative to the same weight at the mean.
        """
        low, high = self.ends
        target = log_eps + self.log_mass + growth * math.log1p(abs(self.mean))

        def last(side: int, end: float) -> int:
            x, step = self.mean, max(self.sd, 1.0)
            while True:
                # Masses at many places are hardly dearer than at one.
                steps = step * 1.2 ** np.arange(24)
                candidates = x + side * np.cumsum(steps)
                x, step = candidates[-1], 1.2 * steps[-1]
                z = np.ceil(candidates) if side > 0 else np.floor(candidates)
                z = z[side * z < side * end]
                for place, log_prob in zip(z.tolist(), self.log_prob(z), strict=True):
                    weight = growth * math.log1p(abs(place))
                    if self._log_tail(int(place), log_prob, side, growth) + weight <= target:
                        return int(place)
                if len(z) < len(steps):
                    return int(end)

        return last(-1, low), last(1, high)

    def integers(self, log_eps: float = -95.0, growth: float = 0.0) -> np.ndarray:
        """All integers of the effective range; raise when there are too many to list."""
        low, high = self.effective_range(log_eps, growth)
        if high - low >= RANGE_LIMIT:
            raise ValueError(
                f"{self} spreads over {high - low + 1} integers, more than the {RANGE_LIMIT} that "
                "can be summed one by one"
            )
        return np.arange(low, high + 1)

    def listed(self, last: int, growth: float = 0.0) -> tuple[np.ndarray, np.ndarray] | None:
        """List the integers up to a tail that is negligible beside the mass at ``last``.

        The tail is weighted with z**growth. Returned are the integers and their log masses, or
        ``None`` when there are too many.

        Examples
        --------
        >>> from pymc_bayessum.measures import Counting
        >>> Counting(2).listed(1)[0]
        array([0, 1, 2])
        """
        low, high = self.effective_range(growth=growth)
        if math.isfinite(self.ends[0]):
            low = int(self.ends[0])
        high = max(last, high)
        while True:
            if high - low > STRETCH_LIMIT:
                return None
            x = np.arange(low, high + 1)
            log_prob = self.log_prob(x)
            beyond = log_prob[x >= last]
            peak = beyond.max()
            log_beyond = peak + math.log(np.exp(beyond - peak).sum())
            if self.log_tail(high, growth=growth) <= log_beyond + LOG_NEGLIGIBLE:
                return x, log_prob
            high += max(high - low, 64)

    def _sample_distinct(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Exponential clocks (Gumbel top-n), widened until the tails cannot ring before the n-th.

        Point x rings at time E / mass(x) with E standard exponential, and the first n to ring are
        the draw. A tail of mass T rings before time t with probability at most T t, so the range
        is widened until that is below 1e-18.
        """
        low, high = self.effective_range(-40.0)
        if high - low > 2**22:
            # So wide a measure repeats itself rarely, and dropping repeats is exact as well.
            return Measure._sample_distinct(self, n, rng)
        lowest, highest = self.ends
        x = np.arange(low, high + 1)
        log_time = np.log(rng.standard_exponential(len(x))) - self.log_prob(x)
        while True:
            if len(x) >= RANGE_LIMIT:
                raise ValueError(f"drawing {n} distinct points of {self} visits too many integers")
            log_nth = np.partition(log_time, n - 1)[n - 1] if 0 < n <= len(x) else math.inf
            if n == 0:
                log_nth = -math.inf
            grown = False
            for side, edge, end in ((1, high, highest), (-1, low, lowest)):
                if edge == end or log_nth + self.log_tail(edge, side) <= LOG_TAIL_CHANCE:
                    continue
                wider = edge + side * max(len(x) // 2, n, 16)
                wider = int(min(wider, end) if side > 0 else max(wider, end))
                new = np.arange(edge + 1, wider + 1) if side > 0 else np.arange(wider, edge)
                x = np.concatenate([x, new])
                time = np.log(rng.standard_exponential(len(new))) - self.log_prob(new)
                log_time = np.concatenate([log_time, time])
                low, high = (low, wider) if side > 0 else (wider, high)
                grown = True
            if not grown:
                return x[np.argsort(log_time, kind="stable")[:n]]
