"""Checks of arguments: each names the argument, what was given and what is allowed."""

from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np

__all__ = [
    "Checked",
    "as_generator",
    "at_full_length",
    "count",
    "fraction",
    "function",
    "integer",
    "positive",
    "real",
    "reals",
]


class Checked:
    """A dataclass whose fields may name a check: ``field(metadata={"check": positive})``."""

    def __post_init__(self) -> None:
        for item in fields(self):  # type: ignore[arg-type]  # whoever calls this is a dataclass
            if check := item.metadata.get("check"):
                object.__setattr__(self, item.name, check(item.name, getattr(self, item.name)))


def real(name: str, value: Any) -> float:
    """Return ``value`` as a finite float."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a real number, got {value!r}") from None
    if not np.isfinite(number):
        raise ValueError(f"{name} must be finite, got {number}")
    return number


def positive(name: str, value: Any) -> float:
    """Return ``value`` as a finite float above zero."""
    number = real(name, value)
    if number <= 0.0:
        raise ValueError(f"{name} must be positive, got {number}")
    return number


def fraction(name: str, value: Any) -> float:
    """Return ``value`` as a float strictly between zero and one."""
    number = real(name, value)
    if not 0.0 < number < 1.0:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {number}")
    return number


def integer(name: str, value: Any, minimum: int = 0) -> int:
    """Return ``value`` as an int of at least ``minimum``."""
    number = real(name, value)
    if number != int(number) or isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be an integer, got {value!r}")
    if number < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {int(value)}")
    return int(value)


#: An int of at least one.
count = partial(integer, minimum=1)


def function(name: str, value: Any) -> Any:
    """Return ``value`` if it can be called."""
    if not callable(value):
        raise TypeError(f"{name} must be callable, got {value!r}")
    return value


def reals(name: str, value: Any, ndim: int | tuple[int, ...]) -> np.ndarray:
    """Return ``value`` as a read-only float array of the given number of dimensions, all finite."""
    try:
        array = np.array(value, dtype=float)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be an array of real numbers, got {value!r}") from None
    allowed = (ndim,) if isinstance(ndim, int) else ndim
    if array.ndim not in allowed:
        raise ValueError(
            f"{name} must have {' or '.join(map(str, allowed))} dimensions, got shape {array.shape}"
        )
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must hold finite numbers only")
    array.setflags(write=False)
    return array


def as_generator(rng: Any = None) -> np.random.Generator:
    """Return a NumPy generator from ``None``, a seed or a generator."""
    return np.random.default_rng(rng)


def at_full_length(observed: Any, known: np.ndarray) -> Any:
    """Return observed numbers as floats where PyMC, which keeps 32 bits of others, has to."""
    is_long = np.any(np.abs(known) > np.iinfo(np.int32).max)
    return observed.astype("float64") if is_long and hasattr(observed, "astype") else observed
