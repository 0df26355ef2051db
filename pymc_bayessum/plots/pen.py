"""What the pictures share: a pen that draws visuals, and data as arviz-plots wants them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import arviz_plots.visuals as azv
import numpy as np
import xarray as xr
from arviz_base import rcParams
from arviz_plots import PlotCollection

__all__ = ["Pen", "Visuals", "figure_kwargs", "points", "spelled", "stack"]

type Visuals = Mapping[str, Mapping[str, Any] | bool]

#: Visuals that every picture has.
LABELS = ("xlabel", "ylabel", "title")


@dataclass(frozen=True)
class Pen:
    """Maps visuals over the plots of a panel or variable: our defaults, then the user's wishes."""

    collection: PlotCollection
    visuals: Mapping[str, Any]
    coords: Mapping[str, Any]
    variable: str = "check"

    def __call__(self, visual: str, function: Any, data: xr.DataArray, **defaults: Any) -> None:
        """Draw one visual on every plot."""
        wishes = self.visuals.get(visual, {})
        if wishes is False:
            return
        self.collection.map(
            function,
            "_".join([visual, *self.coords.values()]),
            data=data.to_dataset(name=self.variable),
            coords=self.coords,
            ignore_aes="all",
            **{**defaults, **({} if wishes is True else wishes)},
        )

    def axes(self, function: Any, data: xr.DataArray, **kwargs: Any) -> None:
        """Set limits and ticks, which leave no visual behind."""
        self.collection.map(
            function,
            data=data.to_dataset(name=self.variable),
            coords=self.coords,
            ignore_aes="all",
            store_artist=False,
            **kwargs,
        )

    def labels(self, each: xr.DataArray, x: str, y: Any, title: Any) -> None:
        """Write axis labels and title; the latter two may be arrays, one entry a plot."""
        self("xlabel", azv.labelled_x, each, text=x)
        self("ylabel", spelled(azv.labelled_y), each, text=y)
        self("title", spelled(azv.labelled_title), each, text=title)

    def size(self, points: float) -> float:
        """Return a marker size: bokeh takes the diameter, the other backends its square."""
        return points if self.collection.backend == "bokeh" else points**2


def spelled(visual: Any) -> Any:
    """Return a visual whose text may be an array, one entry a plot."""

    def write(da: xr.DataArray, target: Any, text: Any, **kwargs: Any) -> Any:
        return visual(da, target, text=str(np.asarray(text)), **kwargs)

    return write


def figure_kwargs(
    pc_kwargs: dict[str, Any], backend: str | None, size: tuple[float, float]
) -> dict[str, Any]:
    """Take the figure's arguments out of the collection's and fill in a size in dots."""
    figure = dict(pc_kwargs.pop("figure_kwargs", {}))
    if "figsize" not in figure:
        figure |= {"figsize": size, "figsize_units": "dots"}
    if (backend or rcParams["plot.backend"]) == "matplotlib":
        # Without a style of ArviZ the labels of neighbouring plots would overlap.
        figure.setdefault("layout", "constrained")
    return figure


def stack(**parts: xr.DataArray) -> xr.DataArray:
    """Stack x, y, ... along ``plot_axis``, as the visuals of arviz-plots want them."""
    aligned = xr.broadcast(*parts.values())
    stacked = xr.concat(aligned, dim="plot_axis", coords="minimal", compat="override")
    return stacked.assign_coords(plot_axis=list(parts))


def points(**parts: Any) -> xr.DataArray:
    """Stack plain arrays of one length along ``plot_axis``."""
    return stack(**{key: xr.DataArray(np.atleast_1d(v), dims="at") for key, v in parts.items()})
