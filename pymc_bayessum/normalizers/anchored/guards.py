"""Values that are handed on while a condition holds, and raise what to do where it does not."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.raise_op import CheckAndRaise

from pymc_bayessum.normalizers.anchored.node_sum import product
from pymc_bayessum.normalizers.coordinates import Coordinates
from pymc_bayessum.normalizers.load_for_jax import load_for_jax

__all__ = ["Guard", "while_inside", "while_same"]

#: What to do where data were exchanged below a compiled function.
STALE = (
    "the data have changed since this log-probability was built, and its normaliser is anchored at "
    "other data: compile it again, or sample anew. pbs.anchor(model) renews the anchors beforehand"
)
#: What to do where parameters are none of those that a normaliser was built for.
OUTSIDE = (
    "the parameters are none of those that the normaliser was anchored for. Where covariates have "
    "changed (pm.set_data), pbs.anchor(model) renews the anchors; values that hardly any draw of "
    "the prior shows need a normalizer= of yours"
)


class Guard(CheckAndRaise):
    """A value, while conditions hold."""

    def __str__(self) -> str:
        """Name it without the message."""
        return type(self).__name__


# Under JAX there is nothing that could raise; data are constants of the compiled function there.
load_for_jax(f"{__package__}.guards_jax")


def while_same(value: Any, data: np.ndarray) -> Any:
    """Guard data that a graph can change by those of the anchors.

    Examples
    --------
    >>> import pytensor
    >>> data = pytensor.shared(np.arange(2))
    >>> guarded = while_same(data, np.arange(2))
    >>> guarded.eval().tolist()
    [0, 1]
    >>> data.set_value(np.arange(3))
    >>> guarded.eval()
    Traceback (most recent call last):
        ...
    ValueError: the data have changed since this log-probability was built, ...
    """
    guard = Guard(ValueError, STALE)
    shaped = guard(value, pt.all(pt.eq(value.shape, np.array(data.shape, dtype=np.int64))))
    return guard(shaped, pt.all(pt.eq(shaped, data)))


def while_inside(xp: Any, value: Any, theta: Any, coordinates: Coordinates) -> Any:
    """Guard log Z by whether coordinates represent the parameters (..., d).

    For other parameters it is +inf in ``numpy``; in ``pytensor.tensor`` they raise (infinite ones
    excepted, which samplers try).
    """
    if coordinates.outside is None:
        return value
    missed = product(xp, theta, coordinates.outside.T) + coordinates.outside_origin
    scale = 1.0 + xp.max(xp.abs(theta), axis=-1)
    inside = xp.max(xp.abs(missed), axis=-1) <= 1e-6 * scale
    value = xp.where(inside, value, np.inf)
    if xp is not pt:
        return value
    return Guard(ValueError, OUTSIDE)(value, pt.all(inside | pt.isinf(scale) | pt.isnan(scale)))
