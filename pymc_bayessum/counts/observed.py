"""Observed counts, checked when a model is built.

A wrong shape broadcasts without a word and a fraction is cut off without one: either gives a wrong
posterior and no error. What can be known beforehand is therefore refused here, with the row.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pymc.distributions.distribution import Discrete
from pymc.distributions.shape_utils import convert_dims
from pymc.model.core import modelcontext
from pymc.pytensorf import constant_fold, extract_obs_data, rvs_in_graph
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import explicit_graph_inputs

from pymc_bayessum.arguments import at_full_length
from pymc_bayessum.counts.arguments import stacked
from pymc_bayessum.counts.masses import LARGEST_COUNT
from pymc_bayessum.normalizers.interpreted import evaluated

__all__ = ["CountDistribution", "as_counts", "check_coords"]

type Lengths = tuple[int | None, ...]

#: What the distribution itself does not need to know: the model takes it.
_OF_THE_MODEL = {"rng", "initval", "total_size", "transform", "default_transform", "shape", "size"}


class CountDistribution(Discrete):
    """A distribution of counts that checks what it is given before the model takes it."""

    def __new__(
        cls, name: str, *args: Any, observed: Any = None, dims: Any = None, **kwargs: Any
    ) -> Any:
        """Add the variable to the model on the context stack.

        Raises
        ------
        ValueError
            If the observations are no counts, or parameters, observations and coords have
            lengths that do not belong together.
        """
        if observed is not None:
            observed = as_counts(name, observed)
        parameters = {key: x for key, x in kwargs.items() if key not in _OF_THE_MODEL}
        _check_lengths(name, cls.dist(*args, **parameters), observed, dims)
        return super().__new__(cls, name, *args, observed=observed, dims=dims, **kwargs)


def as_counts(name: str, observed: Any) -> Any:
    """Return observations of a variable as whole numbers, masked where they are missing.

    They are an array, masked array, pandas or xarray object, tensor or list of tensors. NaN (in
    arrays) and masked entries are missing, whatever lies below the mask; others that are negative,
    fractional or not below 2**53 raise ValueError.

    Examples
    --------
    >>> as_counts("y", [3.0, 0.0])
    array([3, 0])
    >>> as_counts("y", [3, -1])
    Traceback (most recent call last):
        ...
    ValueError: observed of y must hold counts 0, 1, 2, ... below 2**53: row 1 holds -1
    """
    observed = stacked(observed)
    if isinstance(observed, Variable):
        try:
            known = np.asarray(extract_obs_data(observed))
        except TypeError:  # nothing is known: no constant, `pm.Data` or `pm.Minibatch`
            return observed
        _check_values(name, known, False)
        return at_full_length(observed, known)
    values, missing = _values_and_missing(name, observed)
    _check_values(name, values, missing)
    counts = np.where(missing, 0, values).astype(np.int64)
    masked = np.ma.MaskedArray(counts, missing) if missing.any() else counts
    return at_full_length(masked, counts)


def _values_and_missing(name: str, observed: Any) -> tuple[np.ndarray, np.ndarray]:
    if hasattr(observed, "to_numpy") and hasattr(observed, "isnull"):  # pandas, xarray
        missing = np.asarray(observed.isnull())
        values = np.asarray(observed.to_numpy())
    else:
        missing = np.ma.getmaskarray(observed)
        values = np.ma.getdata(observed)
    if values.dtype.kind not in "biuf":
        # pandas keeps missing values of integer columns as objects
        try:
            if values.dtype.kind in "cmM":
                raise TypeError("NumPy makes floats of complex numbers and of durations")
            values = np.where(missing, 0, values).astype(float)
        except (TypeError, ValueError):
            raise TypeError(f"observed of {name} must hold counts, got {observed!r}") from None
    return values, missing | np.isnan(values)


def _check_values(name: str, values: np.ndarray, missing: Any) -> None:
    with np.errstate(invalid="ignore"):
        is_count = (values >= 0) & (values < LARGEST_COUNT) & (values == np.floor(values))
        bad = ~is_count & ~np.asarray(missing)
    if bad.any():
        first = np.argwhere(bad)[0].tolist()
        row = first[0] if len(first) == 1 else tuple(first)
        raise ValueError(
            f"observed of {name} must hold counts 0, 1, 2, ... below 2**53: "
            f"{'' if not first else f'row {row} '}holds {values[bad].flat[0]}"
        )


def check_coords(name: str, observed: Any, dims: Sequence[str]) -> None:
    """Raise where observations and the coords of their dims have different lengths."""
    named, seen = _coord_lengths(dims), _lengths(observed)
    if not _agree(named, seen):
        raise ValueError(
            f"observed of {name} has shape {seen}, its dims {tuple(dims)} have the lengths {named}"
        )


def _coord_lengths(dims: Sequence[str]) -> Lengths:
    known = modelcontext(None).dim_lengths
    return tuple(_length(known[dim]) if dim in known else None for dim in dims)


def _check_lengths(name: str, unshaped: Variable, observed: Any, dims: Any) -> None:
    """Raise where parameters would widen the observations, or coords have another length."""
    implied = _lengths(unshaped)
    if (dims := convert_dims(dims)) is not None:
        if observed is not None:
            check_coords(name, observed, dims)
        if not _fit(implied, named := _coord_lengths(dims)):
            raise ValueError(
                f"the parameters of {name} have shape {implied}, its dims {dims} have the "
                f"lengths {named}"
            )
    if observed is not None and not _fit(implied, seen := _lengths(observed)):
        raise ValueError(
            f"observed of {name} has shape {seen}, its parameters have shape {implied}: they would "
            "broadcast against one another; give one count for each row of the parameters"
        )


def _agree(one: Lengths, other: Lengths) -> bool:
    return len(one) == len(other) and all(
        a == b or None in (a, b) for a, b in zip(one, other, strict=True)
    )


def _fit(implied: Lengths, seen: Lengths) -> bool:
    """Whether parameters broadcast to a shape without making it larger."""
    return len(implied) <= len(seen) and all(
        a in (b, 1, None) or b is None
        for a, b in zip(reversed(implied), reversed(seen), strict=False)
    )


def _lengths(x: Any) -> Lengths:
    if not isinstance(x, Variable):
        return np.shape(x)
    static = x.type.shape
    lengths: Any = x.shape  # type: ignore[attr-defined]  # a tensor
    return tuple(_length(lengths[i]) if n is None else n for i, n in enumerate(static))


def _length(x: Any) -> int | None:
    """Return a length as far as it is known now: data may change it later."""
    if isinstance(x, Variable):
        [x] = constant_fold([x], raise_not_constant=False)
    if not isinstance(x, Variable):
        return int(x)
    return None if rvs_in_graph(x) or list(explicit_graph_inputs(x)) else int(evaluated(x))
