"""How accurate a log-normaliser was over the draws."""

from collections.abc import Sequence
from typing import Any

import arviz_plots.visuals as azv
import numpy as np
import xarray as xr
from arviz_base.validate import validate_dict_argument
from arviz_plots import PlotCollection
from arviz_plots.plot_collection import backend_from_object

from pymc_bayessum.plots.pen import LABELS, Pen, Visuals, figure_kwargs, spelled, stack

__all__ = ["plot_normalizer"]

_FLOOR = 1e-17  # an error of exactly zero still needs a place on a logarithmic axis
_PANELS = ("error", "calibration", "khat")
_VISUALS = (*_PANELS, "zero_line", "diagonal", "khat_text", "thresholds", *LABELS)


def plot_normalizer(
    dt: xr.DataTree,
    *,
    normalizers: str | Sequence[str] | None = None,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    r"""Show how accurate each log-normaliser was over the draws, and whether that matters.

    One row a normaliser, three plots:

    * ``error``: log Z minus its reference, for every draw that was checked (the mean over the
      rows of the normaliser);
    * ``calibration``: the posterior standard deviation that the rule states against the true
      absolute error; points above the diagonal are errors larger than the sd;
    * ``khat``: the Pareto :math:`\hat k` of the weights that lead from the approximate to the
      reference posterior, for this normaliser alone and for the whole model, with the values
      below which the posterior is fine (0.5) and may still be corrected (the threshold of the
      check).

    Parameters
    ----------
    dt : DataTree
        With the ``normalizer`` group that :func:`~pymc_bayessum.check_normalizer` adds.
    normalizers : str or sequence of str, optional
        Names of the normalisers to show; all by default.
    plot_collection : PlotCollection, optional
        One with the dimensions ``normalizer`` and ``panel``, to draw on.
    backend : {"matplotlib", "bokeh", "plotly", "none"}, optional
    visuals : mapping of {str : mapping or False}, optional
        Keyword arguments for the visuals

        * error, calibration, khat -> :func:`arviz_plots.visuals.scatter_xy`
        * zero_line, thresholds -> :func:`arviz_plots.visuals.hline`
        * diagonal -> :func:`arviz_plots.visuals.line_xy`
        * khat_text -> :func:`arviz_plots.visuals.annotate_xy`
        * xlabel, ylabel, title -> the functions of those names
    **pc_kwargs
        Passed to :meth:`arviz_plots.PlotCollection.grid`.

    Returns
    -------
    PlotCollection

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> from pymc_bayessum.plots import plot_normalizer
    >>> values = (["chain", "draw", "normalizer"], np.full((1, 8, 1), 1e-3))
    >>> group = xr.Dataset(
    ...     {"log_z_error": values, "log_z_sd": values, "pareto_k": 0.1,
    ...      "pareto_k_alone": ("normalizer", [0.1])},
    ...     coords={"normalizer": ["y"]},
    ...     attrs={"khat_threshold": 0.7},
    ... )
    >>> pc = plot_normalizer(xr.DataTree.from_dict({"normalizer": group}), backend="none")
    >>> pc.viz["plot"].sizes["panel"]
    3
    """
    group = _checked_group(dt, normalizers)
    visuals = validate_dict_argument(visuals, valid_keys=_VISUALS)
    if plot_collection is None:
        frame = _each(group).expand_dims(panel=list(_PANELS)).to_dataset(name="check")
        size = (1200, 340 * group.sizes["normalizer"])
        plot_collection = PlotCollection.grid(
            frame,
            rows=["normalizer"],
            cols=["panel"],
            backend=backend,
            figure_kwargs=figure_kwargs(pc_kwargs, backend, size),
            **pc_kwargs,
        )
    _draw_error(Pen(plot_collection, visuals, {"panel": "error"}), group)
    _draw_calibration(Pen(plot_collection, visuals, {"panel": "calibration"}), group)
    _draw_khat(Pen(plot_collection, visuals, {"panel": "khat"}), group)
    return plot_collection


def _checked_group(dt: Any, names: str | Sequence[str] | None) -> xr.Dataset:
    if not isinstance(dt, xr.DataTree) or "normalizer" not in dt.children:
        raise ValueError(
            "dt must be a DataTree with a 'normalizer' group; pbs.check_normalizer(idata) adds it"
        )
    group = dt["normalizer"].to_dataset()
    if names is None:
        return group
    wanted = [names] if isinstance(names, str) else list(names)
    known = group["normalizer"].values.tolist()
    if not wanted or not set(wanted) <= set(known):
        raise ValueError(f"normalizers must be among {known}, got {wanted}")
    return group.sel(normalizer=wanted)


def _each(group: xr.Dataset) -> xr.DataArray:
    """Return one zero for each normaliser: data for visuals that need none."""
    return xr.zeros_like(group["normalizer"], dtype=float)


def _titles(group: xr.Dataset, text: str) -> xr.DataArray:
    names = group["normalizer"]
    return xr.DataArray([f"{n}: {text}" for n in names.values], coords=[("normalizer", names.data)])


def _flat(values: xr.DataArray) -> xr.DataArray:
    """Line the draws of all chains up, one chain after another."""
    plain = values.drop_vars(["chain", "draw"], errors="ignore")
    return plain.stack(sample=("chain", "draw"), create_index=False)


def _draw_error(pen: Pen, group: xr.Dataset) -> None:
    error = _flat(group["log_z_error"])
    number = xr.DataArray(np.arange(error.sizes["sample"]), dims="sample")
    unit = xr.apply_ufunc(_unit, error, input_core_dims=[["sample"]], vectorize=True)
    pen("zero_line", azv.hline, _each(group), color="B2", linestyle="C1")
    cloud = stack(x=number, y=error / unit)
    pen("error", azv.scatter_xy, cloud, color="C0", alpha=0.5, size=pen.size(3))
    label = xr.apply_ufunc(
        lambda u: "error of log Z" + ("" if u == 1.0 else f", in {u:.0e}"), unit, vectorize=True
    )
    pen.labels(_each(group), "draw", label, _titles(group, "error over the draws"))


def _unit(values: np.ndarray) -> float:
    """Return the power of ten in which very small or large values are shown."""
    largest = np.max(np.abs(values), where=np.isfinite(values), initial=0.0)
    return 1.0 if largest == 0.0 or 1e-3 <= largest < 1e4 else 10.0 ** np.floor(np.log10(largest))


def _draw_calibration(pen: Pen, group: xr.Dataset) -> None:
    title = _titles(group, "sd against error")
    pen.labels(_each(group), "stated sd of log Z", "|error of log Z|", title)
    sd, error = _flat(group["log_z_sd"]), abs(_flat(group["log_z_error"]))
    known = xr.apply_ufunc(np.isfinite, sd + error)
    cloud: xr.DataArray = stack(x=sd, y=error).where(known).clip(min=_FLOOR)
    cloud = xr.apply_ufunc(np.log10, cloud)
    silent = ~known.any("sample")
    pen.axes(_without_sd, _each(group).where(silent))
    low = xr.apply_ufunc(np.floor, cloud.min(["plot_axis", "sample"])) - 0.3
    high = xr.apply_ufunc(np.ceil, cloud.max(["plot_axis", "sample"])) + 0.3
    ends = xr.concat([low, high], "sample")
    pen("diagonal", azv.line_xy, stack(x=ends, y=ends), color="B2", linestyle="C1")
    pen("calibration", azv.scatter_xy, cloud, color="C0", alpha=0.5, size=pen.size(3))
    pen.axes(_decades, ends)


def _without_sd(da: xr.DataArray, target: Any) -> None:
    backend = backend_from_object(target)
    for bound, ticks in ((backend.xlim, backend.xticks), (backend.ylim, backend.yticks)):
        bound((0, 1), target)
        ticks([], [], target)
    backend.text(0.5, 0.5, "no sd is stated", target)


def _decades(da: xr.DataArray, target: Any) -> None:
    """Label both axes, which hold decimal logarithms, by powers of ten."""
    low, high = int(np.ceil(da.min())), int(np.floor(da.max()))
    ticks = np.arange(low, high + 1, max(1, -(-(high - low) // 5)))
    names = [f"1e{tick}" for tick in ticks]
    backend = backend_from_object(target)
    backend.yticks(ticks, names, target)
    backend.xticks(ticks, names, target)


def _draw_khat(pen: Pen, group: xr.Dataset) -> None:
    threshold = float(group.attrs["khat_threshold"])
    khat = {"alone": group["pareto_k_alone"]} if group.sizes["normalizer"] > 1 else {}
    khat["whole model"] = group["pareto_k"] + _each(group)
    values = np.concatenate([np.atleast_1d(k) for k in khat.values()])
    # Values beyond 3 all say the same; the text beside the dot has the number.
    low, high = min(-0.3, max(values.min(), -1.0) - 0.2), max(1.2, min(values.max(), 3.0) + 0.3)
    for value, style in ((0.5, "C2"), (threshold, "C1")):
        pen("thresholds", azv.hline, _each(group) + value, color="B2", linestyle=style)
    for place, k in enumerate(khat.values()):
        at = stack(x=xr.full_like(k, place), y=k.clip(low + 0.2, high - 0.2))
        pen("khat", azv.scatter_xy, at, color="C0", marker="C5", size=pen.size(8))
        text = xr.DataArray(
            [f"  {value:.2f}" for value in k.values], coords={"normalizer": group["normalizer"]}
        )
        pen("khat_text", spelled(azv.annotate_xy), at, text=text, horizontal_align="left")
    pen.axes(_khat_axes, _each(group), names=list(khat), limits=(low, high), threshold=threshold)
    pen.labels(_each(group), "", "Pareto k", _titles(group, "Pareto k of the weights"))


def _khat_axes(
    da: xr.DataArray,
    target: Any,
    names: Sequence[str],
    limits: tuple[float, float],
    threshold: float,
) -> None:
    """Say what each dot belongs to, and what each line means at the edge of the plot."""
    backend = backend_from_object(target)
    right = len(names) - 0.2
    backend.xlim((-0.5, right), target)
    backend.ylim(limits, target)
    gap = 0.02 * (limits[1] - limits[0])
    for height, align, text in (
        (0.5 - gap, "top", "fine below"),
        (threshold + gap, "bottom", "no correction above"),
    ):
        backend.text(
            right, height, text + " ", target, horizontal_align="right", vertical_align=align
        )
    backend.xticks(list(range(len(names))), list(names), target)
