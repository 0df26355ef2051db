"""Anchored normalisers as datasets of plain arrays, for netCDF."""

from typing import Any

import numpy as np
import xarray as xr

from pymc_bayessum.normalizers.anchored.errors import HeldOut, Precision
from pymc_bayessum.normalizers.anchored.mixture import Nodes
from pymc_bayessum.normalizers.anchored.moments import Moments
from pymc_bayessum.normalizers.anchored.rule import Anchored, Slope
from pymc_bayessum.normalizers.coordinates import Coordinates
from pymc_bayessum.normalizers.family import Family, LogConstant

__all__ = ["as_dataset", "as_fields"]

#: Fields that are made of arrays and numbers themselves.
PARTS: dict[str, Any] = {
    "coordinates": Coordinates,
    "nodes": Nodes,
    "moments": Moments,
    "slope": Slope,
    "held_out": HeldOut,
    "constant": LogConstant,
    "precision": Precision,
}
#: Fields that are arrays or numbers.
PLAIN = ("anchors", "inflation", "sampler", "settled", "states")
#: States whose statistics are written, to tell whether a model that reads them is the same.
N_PROBES = 4


def _names(kind: Any) -> tuple[str, ...]:
    fields = getattr(kind, "_fields", None) or kind.__dataclass_fields__
    return tuple(fields)


def as_dataset(rule: Anchored) -> xr.Dataset:
    """Write a normaliser out, all but its family, which is the model's.

    Arrays are variables, numbers and words attributes.
    """
    values = {name: getattr(rule, name) for name in PLAIN}
    for name, kind in PARTS.items():
        part = getattr(rule, name)
        values |= {} if part is None else {f"{name}.{f}": getattr(part, f) for f in _names(kind)}
    values["probes"] = rule.family.statistics(rule.states[:N_PROBES])
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    variables = {
        name: ([f"{name}_{axis}" for axis in range(value.ndim)], value)
        for name, value in arrays.items()
    }
    # netCDF has no booleans and no None among its attributes.
    attrs = {
        name: int(value) if isinstance(value, bool) else value
        for name, value in values.items()
        if name not in arrays and value is not None
    }
    return xr.Dataset(variables, attrs=attrs)


def as_fields(dataset: xr.Dataset, family: Family) -> dict[str, Any]:
    """Read what :func:`as_dataset` wrote: the fields of :class:`~.Anchored`, all but the family.

    Raises where something is missing, or the anchors were built for another family.
    """
    values: dict[str, Any] = {str(name): dataset[name].values for name in dataset.data_vars}
    values |= {str(name): value for name, value in dataset.attrs.items()}
    needed = [*PLAIN, "probes", *(f"{name}.{_names(kind)[0]}" for name, kind in PARTS.items())]
    missing = [name for name in needed if name not in values and not name.startswith("precision")]
    if missing:
        raise ValueError(f"these are no anchors: {', '.join(missing)} is not among their variables")
    try:
        probes = family.statistics(values["states"][:N_PROBES])
        same = probes.shape == values["probes"].shape and np.allclose(probes, values["probes"])
    except (IndexError, ValueError):  # of states of another shape
        same = False
    if not same:
        raise ValueError("the anchors were built for another model: its statistics are others")
    fields = {name: values[name] for name in PLAIN} | {"settled": bool(values["settled"])}
    for name, kind in PARTS.items():
        found = {f: values[f"{name}.{f}"] for f in _names(kind) if f"{name}.{f}" in values}
        fields[name] = kind(**found) if found else None
    return fields
