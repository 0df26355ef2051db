"""The draws that a check looks at: from any sampler, from a file, or a single point."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from arviz_base import from_dict

__all__ = [
    "as_tree",
    "first",
    "free_variables",
    "thin",
    "time_budget_of",
    "values_of",
]


def as_tree(idata: Any, model: pm.Model, group: str) -> tuple[xr.DataTree, dict[str, Any] | None]:
    """Return the draws as a tree; and the point itself, where that is all there is."""
    if isinstance(idata, xr.DataTree):
        if group not in idata.children:
            raise ValueError(f"idata must have a group {group!r}, got {list(idata.children)}")
        # From PyMC 6.4 on a search may be returned as a tree, beside the one draw that it ends at.
        if "optimizer_result" in idata.children:
            end = idata[group].to_dataset().isel(chain=0, draw=0)
            return idata, {str(name): value.to_numpy() for name, value in end.data_vars.items()}
        return idata, None
    if isinstance(idata, xr.Dataset):
        return xr.DataTree.from_dict({group: idata}), None
    if not isinstance(idata, Mapping):
        raise TypeError(
            f"idata must be a DataTree or Dataset of draws or a point as pm.find_MAP returns it, "
            f"got {type(idata).__name__}"
        )
    names = [rv.name for rv in model.free_RVs if rv.name in idata]
    point = {name: np.asarray(idata[name])[None, None] for name in names}
    coords = {dim: list(labels) for dim, labels in model.coords.items() if labels is not None}
    tree = from_dict({group: point}, coords=coords, dims=model.named_vars_to_dims)
    return tree, dict(idata)


def free_variables(posterior: xr.Dataset, group: str, model: pm.Model) -> xr.Dataset:
    """Return the draws of the model's free variables, and nothing else."""
    names = [rv.name for rv in model.free_RVs]
    missing = [name for name in names if name not in posterior]
    if missing:
        raise ValueError(
            f"the draws must hold every free variable of the model, but {missing} are not in the "
            f"group {group!r}"
        )
    if not {"chain", "draw"} <= set(posterior.dims):
        raise ValueError(
            f"the draws must have the dimensions chain and draw, got {dict(posterior.sizes)}"
        )
    # Numbered, so that draws that are left out leave gaps and a correction finds the others again.
    bare = [dim for dim in ("chain", "draw") if dim not in posterior.coords]
    numbered = posterior.assign_coords({dim: np.arange(posterior.sizes[dim]) for dim in bare})
    return numbered[names].transpose("chain", "draw", ...)


def time_budget_of(attrs: Mapping[Any, Any]) -> float:
    """Return the seconds that a check may take: half of what the sampling did."""
    return float(np.clip(attrs.get("sampling_time", np.inf) / 2.0, 3.0, 60.0))


def thin(posterior: xr.Dataset, draws: int) -> xr.Dataset:
    """Leave out draws, evenly, until about so many are left, of each chain as many."""
    if draws < 1:
        raise ValueError(f"draws must be at least 1, got {draws}")
    available = posterior.sizes["draw"]
    each = min(available, -(-draws // posterior.sizes["chain"]))
    return posterior.isel(draw=np.linspace(0, available - 1, each).round().astype(int))


def first(posterior: xr.Dataset, n: int) -> xr.Dataset:
    """Return the first n draws, one chain after the other, as if they were of one chain."""
    flat = posterior.stack(place=("chain", "draw")).isel(place=slice(n))
    flat = flat.reset_index("place", drop=True).rename(place="draw").expand_dims(chain=[0])
    return flat.assign_coords(draw=np.arange(n)).transpose("chain", "draw", ...)


def values_of(posterior: xr.Dataset, variables: Sequence[Any]) -> list[list[np.ndarray]]:
    """Return for each draw the values of variables of these names, in their types."""
    arrays = []
    for variable in variables:
        values = posterior[variable.name].to_numpy().astype(variable.dtype)
        arrays.append(values.reshape(-1, *values.shape[2:]))
    # A draw of a scalar must still be an array.
    return [[np.asarray(array[s]) for array in arrays] for s in range(len(arrays[0]))]
