"""Where a measure lives: small frozen objects that know their points."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, override

import numpy as np

from pymc_bayessum.arguments import Checked, count, real

__all__ = [
    "Image",
    "Integers",
    "Interval",
    "Line",
    "Naturals",
    "Pair",
    "Points",
    "Range",
    "Sites",
    "Spins",
    "Support",
    "batch_size",
    "numbers",
    "point_keys",
    "take",
]

#: A batch of points: an array, or a pair of arrays on a product.
Points = Any

#: Above this many points ``enumerate`` refuses: the array would not be useful in memory.
ENUMERATION_LIMIT = 2**22


def numbers(points: Points, ndim: int, finite: bool = True, name: str = "points") -> np.ndarray:
    """Batch of numbers with ``ndim`` dimensions; integers where they are integers."""
    array = np.asarray(points)
    if array.dtype.kind not in "iufb":
        raise TypeError(f"{name} must be numbers, got an array of dtype {array.dtype}")
    if ndim == 1 and array.ndim == 0:
        array = array[None]
    if array.ndim != ndim:
        shape = "(N,)" if ndim == 1 else "(N, L)"
        raise ValueError(f"{name} must have shape {shape}, got shape {array.shape}")
    if finite and array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity among them")
    return array


def _whole(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind != "f":
        return array.astype(np.int64, copy=False)
    whole = array.astype(np.int64)
    if (whole != array).any():
        raise ValueError(f"points must be integers, got {array[whole != array][0]} among them")
    return whole


class Support(Checked, ABC):
    """The set of points a measure gives mass to."""

    @property
    @abstractmethod
    def size(self) -> float:
        """Number of points, ``inf`` when there are infinitely many or more than a float holds."""

    @abstractmethod
    def as_points(self, points: Points) -> Points:
        """Return the batch in its usual form; raise when shape or type are wrong."""

    @abstractmethod
    def contains(self, points: Points) -> np.ndarray:
        """Return which points of the batch lie in the support, a boolean array (N,)."""

    def enumerate(self) -> Points:
        """Return all points, one batch in a fixed order."""
        if self.size > ENUMERATION_LIMIT:
            raise ValueError(
                f"{self} has {self.size:.4g} points, more than the {ENUMERATION_LIMIT} "
                "that can be listed"
            )
        return self._enumerate()

    def _enumerate(self) -> Points:
        raise NotImplementedError


class Line(Support):
    """Points that are whole numbers, shape (N,): all of them between two ends."""

    @property
    @abstractmethod
    def ends(self) -> tuple[float, float]:
        """Smallest and largest integer, possibly infinite."""

    @property
    @override
    def size(self) -> float:
        low, high = self.ends
        return high - low + 1

    @override
    def as_points(self, points: Points) -> np.ndarray:
        return _whole(numbers(points, 1))

    @override
    def contains(self, points: Points) -> np.ndarray:
        x, (low, high) = numbers(points, 1, finite=False), self.ends
        return (x >= low) & (x <= high) & np.isfinite(x) & (x == np.floor(x))


@dataclass(frozen=True)
class Naturals(Line):
    """The integers ``start, start + 1, ...``."""

    start: int = 0

    @property
    @override
    def ends(self) -> tuple[float, float]:
        return self.start, math.inf


@dataclass(frozen=True)
class Integers(Line):
    """All integers."""

    ends = -math.inf, math.inf


@dataclass(frozen=True)
class Range(Line):
    """The integers ``low, ..., high``, both ends included."""

    low: int
    high: int

    @property
    @override
    def ends(self) -> tuple[float, float]:
        return self.low, self.high

    def _enumerate(self) -> np.ndarray:
        return np.arange(self.low, self.high + 1)


class _Vectors(Support):
    """Points that are vectors of whole numbers, shape (N, L)."""

    n_sites: int
    n_states: int

    @property
    @override
    def size(self) -> float:
        # A whole number, where it is not too large for a float.
        is_small = self.n_sites * math.log(self.n_states) < 700.0
        return self.n_states**self.n_sites if is_small else math.inf

    @override
    def as_points(self, points: Points) -> np.ndarray:
        x = _whole(numbers(points, 2))
        if x.shape[1] != self.n_sites:
            raise ValueError(f"points must have {self.n_sites} sites, got shape {x.shape}")
        return x

    @override
    def contains(self, points: Points) -> np.ndarray:
        x = numbers(points, 2, finite=False)
        return self._are_states(x).all(axis=1) & (x.shape[1] == self.n_sites)

    @abstractmethod
    def _are_states(self, x: np.ndarray) -> np.ndarray:
        """Tell which numbers a site may take."""


@dataclass(frozen=True)
class Sites(_Vectors):
    """All vectors of ``n_sites`` states, each one of ``0, ..., n_states - 1``."""

    n_sites: int = field(metadata={"check": count})
    n_states: int = field(metadata={"check": count})

    def _are_states(self, x: np.ndarray) -> np.ndarray:
        return (x >= 0) & (x < self.n_states) & (x == np.floor(x))

    def decode(self, index: np.ndarray) -> np.ndarray:
        """Return the points with the given positions in the listing, last site fastest."""
        place = self.n_states ** np.arange(self.n_sites - 1, -1, -1)
        x = np.asarray(index, dtype=np.int64)[:, None] // place
        x %= self.n_states
        return x

    def _enumerate(self) -> np.ndarray:
        return self.decode(np.arange(int(self.size)))


@dataclass(frozen=True)
class Spins(_Vectors):
    """All vectors of ``n_sites`` spins, each -1 or +1."""

    n_sites: int = field(metadata={"check": count})

    n_states = 2

    def _are_states(self, x: np.ndarray) -> np.ndarray:
        return np.abs(x) == 1

    def _enumerate(self) -> np.ndarray:
        return 2 * Sites(self.n_sites, 2).enumerate() - 1


@dataclass(frozen=True)
class Interval(Support):
    """The real numbers between ``low`` and ``high``, both ends included."""

    low: float = field(metadata={"check": real})
    high: float = field(metadata={"check": real})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low >= self.high:
            raise ValueError(f"low must be below high, got low={self.low}, high={self.high}")

    @property
    @override
    def size(self) -> float:
        return math.inf

    @override
    def as_points(self, points: Points) -> np.ndarray:
        return numbers(points, 1).astype(float)

    @override
    def contains(self, points: Points) -> np.ndarray:
        x = numbers(points, 1, finite=False)
        return (x >= self.low) & (x <= self.high)


@dataclass(frozen=True)
class Pair(Support):
    """All pairs of a point of ``first`` and a point of ``second``: a tuple of two batches."""

    first: Support
    second: Support

    @property
    @override
    def size(self) -> float:
        return self.first.size * self.second.size

    @override
    def as_points(self, points: Points) -> tuple[Points, Points]:
        if not isinstance(points, (tuple, list)) or len(points) != 2:
            raise TypeError("points on a product must be a pair (first, second) of batches")
        x, y = self.first.as_points(points[0]), self.second.as_points(points[1])
        if batch_size(x) != batch_size(y):
            raise ValueError(
                f"both parts of a pair must have equal length, got {batch_size(x)} "
                f"and {batch_size(y)}"
            )
        return x, y

    @override
    def contains(self, points: Points) -> np.ndarray:
        x, y = self.as_points(points)
        return self.first.contains(x) & self.second.contains(y)

    def _enumerate(self) -> tuple[Points, Points]:
        x, y = self.first.enumerate(), self.second.enumerate()
        n, m = batch_size(x), batch_size(y)
        return take(x, np.repeat(np.arange(n), m)), take(y, np.tile(np.arange(m), n))


@dataclass(frozen=True)
class Image(Support):
    """The image of a support under an invertible map."""

    base: Support
    forward: Callable[[Points], Points]
    inverse: Callable[[Points], Points]

    @property
    @override
    def size(self) -> float:
        return self.base.size

    @override
    def as_points(self, points: Points) -> Points:
        if isinstance(points, tuple):
            return points
        array = np.asarray(points)
        return numbers(array, max(array.ndim, 1))

    @override
    def contains(self, points: Points) -> np.ndarray:
        y = self.as_points(points)
        # A map such as y // 2 sends points beside the image onto the support, hence the way back.
        x = self.inverse(y)
        inside = np.asarray(self.base.contains(x), dtype=bool)
        kept, back = (
            np.column_stack(part if isinstance(part, tuple) else (part,)).astype(float)
            for part in (take(y, inside), self.forward(take(x, inside)))
        )
        inside[inside] = np.isclose(kept, back, rtol=1e-9, atol=1e-12).all(axis=1)
        return inside

    def _enumerate(self) -> Points:
        return self.forward(self.base.enumerate())


def batch_size(points: Points) -> int:
    """Return the number of points in a batch."""
    return batch_size(points[0]) if isinstance(points, tuple) else len(points)


def take(points: Points, index: Any) -> Points:
    """Return the points of a batch at the given positions."""
    if isinstance(points, tuple):
        return tuple(take(part, index) for part in points)
    return points[index]


def point_keys(points: Points) -> list[bytes] | list[tuple]:
    """Return one hashable key for each point of a batch, equal where points are equal."""
    if isinstance(points, tuple):
        return list(zip(*(point_keys(part) for part in points), strict=True))
    return [point.tobytes() for point in np.ascontiguousarray(points)]
