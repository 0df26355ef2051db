"""Whether a model still holds the data that its draws were made with."""

from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from pymc.backends.arviz import find_constants, find_observations

__all__ = ["require_same_data"]


def require_same_data(tree: xr.DataTree, model: pm.Model) -> None:
    """Raise where the model's data are not those that a tree of draws keeps.

    A check of other rows than the sampler saw would judge another posterior. Groups and variables
    that the tree does not have are not compared.

    Examples
    --------
    >>> import xarray as xr
    >>> with pm.Model() as model:
    ...     _ = pm.Poisson("y", 3.0, observed=[1, 2])
    >>> tree = xr.DataTree.from_dict({"observed_data": xr.Dataset({"y": ("row", [1, 2, 0])})})
    >>> require_same_data(tree, model)
    Traceback (most recent call last):
        ...
    ValueError: the draws were made with other data than the model holds now: y has shape (3,) ...
    """
    now: dict[str, dict[str, Any]] = {
        "observed_data": find_observations(model),
        "constant_data": find_constants(model),
    }
    for group, values in now.items():
        kept = tree[group].dataset if group in tree.children else {}
        for name in sorted(values.keys() & set(kept)):
            then, here = np.asarray(kept[name]), np.asarray(values[name])
            if then.shape != here.shape:
                told = f"{name} has shape {then.shape} in {group}, {here.shape} in the model"
            elif not np.allclose(then, here, rtol=1e-6, equal_nan=True):
                told = f"{name} has other values in {group} than in the model"
            else:
                continue
            raise ValueError(
                f"the draws were made with other data than the model holds now: {told}. Put the "
                "data back with pm.set_data, or pass the model the draws come from"
            )
