"""Posterior probabilities of hidden labels, as an image where they are one."""

from collections.abc import Sequence

import numpy as np
import xarray as xr

__all__ = ["label_probabilities"]


def label_probabilities(
    dt: xr.DataTree,
    var_name: str | None = None,
    *,
    labels: int | Sequence[int] | None = None,
    shape: tuple[int, int] | None = None,
    group: str = "posterior",
) -> xr.DataArray:
    """Return how probable each label is at each site.

    Parameters
    ----------
    dt : DataTree
        As ``pm.sample`` returns it.
    var_name : str, optional
        The labels; by default the only variable of integers.
    labels : int or sequence of int, optional
        The labels there are, or their number; by default those from 0 to the largest one drawn, or
        -1 and 1 where there are negative ones.
    shape : tuple of int, optional
        Rows and columns of an image, whose pixels are the sites in this order.
    group : str

    Returns
    -------
    DataArray
        The last dimension is ``label``; those before are the dimensions of the variable, and in
        place of the last of these ``row`` and ``column`` where a shape was given.

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> z = np.array([[[0, 1, 1, 2], [0, 0, 1, 2]]])
    >>> draws = xr.Dataset({"z": (("chain", "draw", "site"), z)})
    >>> image = label_probabilities(xr.DataTree.from_dict({"posterior": draws}), shape=(2, 2))
    >>> image.dims, image.sel(label=1).values.tolist()
    (('row', 'column', 'label'), [[0.0, 0.5], [1.0, 0.0]])
    """
    name = _named(dt, var_name, group)
    draws = dt[group].to_dataset()[name]
    values = _labels(draws, labels)
    # One label at a time: an indicator of all together would be as large as all draws again.
    shares = [(draws == value).mean(("chain", "draw")) for value in values]
    found = xr.concat(shares, dim=xr.DataArray(values, dims="label", name="label"))
    found = found.transpose(..., "label").rename("probability")
    if shape is None:
        return found
    pixels = str(found.dims[-2])
    if len(shape) != 2 or np.prod(shape) != found.sizes[pixels]:
        raise ValueError(f"shape must hold {found.sizes[pixels]} pixels, got {shape}")
    bare = found.reset_coords(drop=True).drop_vars(pixels, errors="ignore")
    return bare.coarsen({pixels: shape[1]}).construct({pixels: ("row", "column")})


def _named(dt: xr.DataTree, var_name: str | None, group: str) -> str:
    if group not in dt.children:
        raise ValueError(f"dt must have the group {group!r}, has {list(dt.children)}")
    variables = dt[group].to_dataset().data_vars
    integers = [str(name) for name, values in variables.items() if values.dtype.kind in "iu"]
    if var_name is None and len(integers) == 1:
        return integers[0]
    if var_name not in integers:
        raise ValueError(
            f"var_name must be one of the integer variables {integers}, got {var_name!r}"
        )
    return str(var_name)


def _labels(draws: xr.DataArray, labels: int | Sequence[int] | None) -> np.ndarray:
    low, high = int(draws.min()), int(draws.max())
    if labels is None:
        values = np.array([-1, 1]) if low < 0 else np.arange(high + 1)
    else:
        values = np.arange(labels) if isinstance(labels, int) else np.asarray(labels)
    if not {low, high} <= set(values.tolist()):
        raise ValueError(f"labels must hold all that were drawn, {low} to {high}, got {labels!r}")
    return values
