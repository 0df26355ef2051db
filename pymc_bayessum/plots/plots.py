"""Pictures of a normaliser and of count-data fits, in the manner of arviz-plots.

Every function takes a DataTree, returns the :class:`arviz_plots.PlotCollection` it drew on, and
accepts ``backend`` (any that arviz-plots has), ``visuals`` (keyword arguments for each visual, or
``False`` to leave it out) and the keyword arguments of the collection, as arviz-plots does.
Information is carried by position, marker and line style; colour only repeats it, so that grey
print loses nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import arviz_plots.visuals as azv
import numpy as np
import xarray as xr
from arviz_base import rcParams
from arviz_base.validate import validate_ci_prob, validate_dict_argument
from arviz_plots import PlotCollection, plot_ppc_rootogram
from arviz_plots.plot_collection import backend_from_object

__all__ = ["plot_dispersion", "plot_normalizer", "plot_rootogram"]

_FLOOR = 1e-17  # an error of exactly zero still needs a place on a logarithmic axis
_PANELS = ("error", "calibration", "khat")
_LABELS = ("xlabel", "ylabel", "title")
_NORMALIZER_VISUALS = (*_PANELS, "zero_line", "diagonal", "khat_text", "thresholds", *_LABELS)
_PREDICTIVE = ("predictive_markers", "predictive_line", "observed_markers", "credible_interval")
_ROOTOGRAM_VISUALS = (*_PREDICTIVE, "observed_bars", "zero_line", "grid", *_LABELS)
_DISPERSION_VISUALS = (*_PREDICTIVE, "equal_line", *_LABELS)

type Visuals = Mapping[str, Mapping[str, Any] | bool]


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
    visuals = validate_dict_argument(visuals, valid_keys=_NORMALIZER_VISUALS)
    if plot_collection is None:
        frame = _each(group).expand_dims(panel=list(_PANELS)).to_dataset(name="check")
        size = (1200, 340 * group.sizes["normalizer"])
        plot_collection = PlotCollection.grid(
            frame,
            rows=["normalizer"],
            cols=["panel"],
            backend=backend,
            figure_kwargs=_figure(pc_kwargs, backend, size),
            **pc_kwargs,
        )
    _draw_error(_Pen(plot_collection, visuals, {"panel": "error"}), group)
    _draw_calibration(_Pen(plot_collection, visuals, {"panel": "calibration"}), group)
    _draw_khat(_Pen(plot_collection, visuals, {"panel": "khat"}), group)
    return plot_collection


def plot_rootogram(
    dt: xr.DataTree,
    *,
    kind: Literal["standing", "hanging"] = "standing",
    var_names: str | Sequence[str] | None = None,
    group: str = "posterior_predictive",
    coords: Mapping[str, Any] | None = None,
    ci_prob: float | None = None,
    max_bars: int = 60,
    num_samples: int = 1000,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    r"""Compare observed and predicted frequencies of counts on the square-root scale.

    ``kind="standing"`` is :func:`arviz_plots.plot_ppc_rootogram`: predicted frequencies with
    their interval beside the observed ones.  ``kind="hanging"`` lets the bars of the observed
    frequencies hang from the predicted ones: a bar that does not end within the interval around
    zero belongs to a count that is rarer (it ends above) or more frequent (below) than predicted
    (Kleiber and Zeileis, 2016, The American Statistician 70(3)).

    Beyond what arviz-plots does, several variables get a plot each, variables that were never
    observed are left out (with imputed observations there are some in the predictive group),
    long predictive samples are thinned, and counts over a wide range are gathered in bins.

    Parameters
    ----------
    dt : DataTree
        With the predictive group and ``observed_data``.
    kind : {"standing", "hanging"}
        Which of the two pictures.
    var_names : str or sequence of str, optional
        Count variables to show, one plot each.
    group : {"posterior_predictive", "prior_predictive"}
    coords : dict, optional
        Subset of the observations.
    ci_prob : float, optional
        Probability of the interval; ``rcParams["stats.ci_prob"]`` by default.
    max_bars : int
        Counts are binned by the smallest whole width that needs no more bars than this.
    num_samples : int
        At most this many predictive draws are used, evenly spaced.
    plot_collection : PlotCollection, optional
        One with a plot for each variable, to draw on.
    backend : {"matplotlib", "bokeh", "plotly", "none"}, optional
    visuals : mapping of {str : mapping or False}, optional
        For standing those of :func:`arviz_plots.plot_ppc_rootogram`; for hanging

        * predictive_line -> :func:`arviz_plots.visuals.line_xy`
        * predictive_markers -> :func:`arviz_plots.visuals.scatter_xy`
        * observed_bars, credible_interval -> :func:`arviz_plots.visuals.ci_line_y`
        * zero_line -> :func:`arviz_plots.visuals.hline`
        * xlabel, ylabel, title -> the functions of those names
    **pc_kwargs
        Passed to :meth:`arviz_plots.PlotCollection.wrap`.

    Returns
    -------
    PlotCollection

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> from pymc_bayessum.plots import plot_rootogram
    >>> rng = np.random.default_rng(1)
    >>> replicated = rng.poisson(3.0, size=(2, 50, 40))
    >>> dt = xr.DataTree.from_dict({
    ...     "posterior_predictive": xr.Dataset({"y": (("chain", "draw", "row"), replicated)}),
    ...     "observed_data": xr.Dataset({"y": ("row", rng.poisson(3.0, size=40))}),
    ... })
    >>> pc = plot_rootogram(dt, kind="hanging", backend="none")
    """
    if kind not in ("standing", "hanging"):
        raise ValueError(f"kind must be 'standing' or 'hanging', got {kind!r}")
    visuals = validate_dict_argument(visuals, valid_keys=_ROOTOGRAM_VISUALS)
    counts = _counts(dt, group, var_names, coords, num_samples)
    if plot_collection is None:
        plot_collection = _wrap(counts, backend, pc_kwargs)
    for name, (replicated, observed) in counts.items():
        width = _bin_width(replicated, observed, max_bars)
        replicated, observed = _binned(replicated, width), _binned(observed, width)
        xlabel = "count" if width == 1 else f"count, in bins of {width}"
        pen = _Pen(plot_collection, visuals, {}, name)
        if kind == "standing":
            _draw_standing(pen, group, replicated, observed, ci_prob)
            title = f"{name}: dots observed, diamonds predicted"
            pen("xlabel", azv.labelled_x, xr.DataArray(0.0), text=xlabel)
            pen("title", _title, xr.DataArray(0.0), text=title)
        else:
            _draw_hanging(pen, replicated, observed, ci_prob, xlabel)
    if kind == "standing":
        plot_collection.map(azv.set_yscale, store_artist=False, ignore_aes="all", scale="sqrt")
    return plot_collection


def plot_dispersion(
    dt: xr.DataTree,
    *,
    var_names: str | Sequence[str] | None = None,
    group: str = "posterior_predictive",
    coords: Mapping[str, Any] | None = None,
    n_groups: int | None = None,
    ci_prob: float | None = None,
    num_samples: int = 1000,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    r"""Show variance against mean, predicted and observed, on logarithmic axes.

    The observations are split into groups of equal size by their predicted mean :math:`m_i`.
    For each group the mean squared deviation from it,
    :math:`V_g = \frac{1}{n_g} \sum_{i \in g} (y_i - m_i)^2`, is computed for the data and for
    every predictive draw.  A model with the right dispersion has the observed values within the
    predicted intervals.  The dashed line is variance = mean, where Poisson counts lie:
    over-dispersed counts lie above it, under-dispersed ones below.

    Parameters
    ----------
    dt : DataTree
        With the predictive group and ``observed_data``.
    var_names : str or sequence of str, optional
        Count variables to show, one plot each.
    group : {"posterior_predictive", "prior_predictive"}
    coords : dict, optional
        Subset of the observations.
    n_groups : int, optional
        Number of groups.  By default one for every 25 observations, at most twelve; and one only
        where the predicted means do not differ by more than their simulation error.
    ci_prob : float, optional
        Probability of the interval; ``rcParams["stats.ci_prob"]`` by default.
    num_samples : int
        At most this many predictive draws are used, evenly spaced.
    plot_collection : PlotCollection, optional
        One with a plot for each variable, to draw on.
    backend : {"matplotlib", "bokeh", "plotly", "none"}, optional
    visuals : mapping of {str : mapping or False}, optional
        Keyword arguments for the visuals

        * equal_line, predictive_line -> :func:`arviz_plots.visuals.line_xy`
        * credible_interval -> :func:`arviz_plots.visuals.ci_line_y`
        * predictive_markers, observed_markers -> :func:`arviz_plots.visuals.scatter_xy`
        * xlabel, ylabel, title -> the functions of those names
    **pc_kwargs
        Passed to :meth:`arviz_plots.PlotCollection.wrap`.

    Returns
    -------
    PlotCollection

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> from pymc_bayessum.plots import plot_dispersion
    >>> rng = np.random.default_rng(1)
    >>> mean = np.linspace(1.0, 20.0, 100)
    >>> dt = xr.DataTree.from_dict({
    ...     "posterior_predictive": xr.Dataset(
    ...         {"y": (("chain", "draw", "row"), rng.poisson(mean, size=(2, 50, 100)))}
    ...     ),
    ...     "observed_data": xr.Dataset({"y": ("row", rng.poisson(mean))}),
    ... })
    >>> pc = plot_dispersion(dt, n_groups=4, backend="none")
    """
    visuals = validate_dict_argument(visuals, valid_keys=_DISPERSION_VISUALS)
    counts = _counts(dt, group, var_names, coords, num_samples)
    if plot_collection is None:
        plot_collection = _wrap(counts, backend, pc_kwargs)
    for name, (replicated, observed) in counts.items():
        pen = _Pen(plot_collection, visuals, {}, name)
        _draw_dispersion(pen, replicated, observed, n_groups, ci_prob)
    return plot_collection


# Parts that the pictures share


@dataclass(frozen=True)
class _Pen:
    """Maps visuals over the plots of a panel or variable: our defaults, then the user's wishes."""

    collection: PlotCollection
    visuals: Mapping[str, Any]
    coords: Mapping[str, Any]
    variable: str = "check"

    def __call__(self, visual: str, function: Any, data: xr.DataArray, **defaults: Any) -> None:
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
        self("ylabel", _ylabel, each, text=y)
        self("title", _title, each, text=title)

    def size(self, points: float) -> float:
        """Return a marker size: bokeh takes the diameter, the other backends its square."""
        return points if self.collection.backend == "bokeh" else points**2


def _title(da: xr.DataArray, target: Any, text: Any, **kwargs: Any) -> Any:
    return azv.labelled_title(da, target, text=str(np.asarray(text)), **kwargs)


def _ylabel(da: xr.DataArray, target: Any, text: Any, **kwargs: Any) -> Any:
    return azv.labelled_y(da, target, text=str(np.asarray(text)), **kwargs)


def _annotate(da: xr.DataArray, target: Any, text: Any, **kwargs: Any) -> Any:
    return azv.annotate_xy(da, target, text=str(np.asarray(text)), **kwargs)


def _figure(
    pc_kwargs: dict[str, Any], backend: str | None, size: tuple[float, float]
) -> dict[str, Any]:
    figure = dict(pc_kwargs.pop("figure_kwargs", {}))
    if "figsize" not in figure:
        figure |= {"figsize": size, "figsize_units": "dots"}
    if (backend or rcParams["plot.backend"]) == "matplotlib":
        # Without a style of ArviZ the labels of neighbouring plots would overlap.
        figure.setdefault("layout", "constrained")
    return figure


def _wrap(counts: Mapping[str, Any], backend: str | None, pc_kwargs: dict[str, Any]) -> Any:
    """Return a collection with one plot for each variable."""
    pc_kwargs.setdefault("cols", ["__variable__"])
    pc_kwargs.setdefault("col_wrap", 3)
    n_cols = min(len(counts), pc_kwargs["col_wrap"])
    n_rows = -(-len(counts) // n_cols)
    return PlotCollection.wrap(
        xr.Dataset(dict.fromkeys(counts, 0.0)),
        backend=backend,
        figure_kwargs=_figure(pc_kwargs, backend, (600 * n_cols, 400 * n_rows)),
        **pc_kwargs,
    )


def _stack(**parts: xr.DataArray) -> xr.DataArray:
    """Stack x, y, ... along ``plot_axis``, as the visuals of arviz-plots want them."""
    aligned = xr.broadcast(*parts.values())
    stacked = xr.concat(aligned, dim="plot_axis", coords="minimal", compat="override")
    return stacked.assign_coords(plot_axis=list(parts))


def _points(**parts: Any) -> xr.DataArray:
    """Stack plain arrays of one length along ``plot_axis``."""
    return _stack(**{key: xr.DataArray(np.atleast_1d(v), dims="at") for key, v in parts.items()})


# The normaliser


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


def _draw_error(pen: _Pen, group: xr.Dataset) -> None:
    error = _flat(group["log_z_error"])
    number = xr.DataArray(np.arange(error.sizes["sample"]), dims="sample")
    unit = xr.apply_ufunc(_unit, error, input_core_dims=[["sample"]], vectorize=True)
    pen("zero_line", azv.hline, _each(group), color="B2", linestyle="C1")
    cloud = _stack(x=number, y=error / unit)
    pen("error", azv.scatter_xy, cloud, color="C0", alpha=0.5, size=pen.size(3))
    label = xr.apply_ufunc(
        lambda u: "error of log Z" + ("" if u == 1.0 else f", in {u:.0e}"), unit, vectorize=True
    )
    pen.labels(_each(group), "draw", label, _titles(group, "error over the draws"))


def _unit(values: np.ndarray) -> float:
    """Return the power of ten in which very small or large values are shown."""
    largest = np.max(np.abs(values), where=np.isfinite(values), initial=0.0)
    return 1.0 if largest == 0.0 or 1e-3 <= largest < 1e4 else 10.0 ** np.floor(np.log10(largest))


def _draw_calibration(pen: _Pen, group: xr.Dataset) -> None:
    title = _titles(group, "sd against error")
    pen.labels(_each(group), "stated sd of log Z", "|error of log Z|", title)
    sd, error = _flat(group["log_z_sd"]), abs(_flat(group["log_z_error"]))
    known = xr.apply_ufunc(np.isfinite, sd + error)
    cloud: xr.DataArray = _stack(x=sd, y=error).where(known).clip(min=_FLOOR)
    cloud = xr.apply_ufunc(np.log10, cloud)
    silent = ~known.any("sample")
    pen.axes(_without_sd, _each(group).where(silent))
    low = xr.apply_ufunc(np.floor, cloud.min(["plot_axis", "sample"])) - 0.3
    high = xr.apply_ufunc(np.ceil, cloud.max(["plot_axis", "sample"])) + 0.3
    ends = xr.concat([low, high], "sample")
    pen("diagonal", azv.line_xy, _stack(x=ends, y=ends), color="B2", linestyle="C1")
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


def _draw_khat(pen: _Pen, group: xr.Dataset) -> None:
    threshold = float(group.attrs["khat_threshold"])
    khat = {"alone": group["pareto_k_alone"]} if group.sizes["normalizer"] > 1 else {}
    khat["whole model"] = group["pareto_k"] + _each(group)
    values = np.concatenate([np.atleast_1d(k) for k in khat.values()])
    # Values beyond 3 all say the same; the text beside the dot has the number.
    low, high = min(-0.3, max(values.min(), -1.0) - 0.2), max(1.2, min(values.max(), 3.0) + 0.3)
    for value, style in ((0.5, "C2"), (threshold, "C1")):
        pen("thresholds", azv.hline, _each(group) + value, color="B2", linestyle=style)
    for place, k in enumerate(khat.values()):
        at = _stack(x=xr.full_like(k, place), y=k.clip(low + 0.2, high - 0.2))
        pen("khat", azv.scatter_xy, at, color="C0", marker="C5", size=pen.size(8))
        text = xr.DataArray(
            [f"  {value:.2f}" for value in k.values], coords={"normalizer": group["normalizer"]}
        )
        pen("khat_text", _annotate, at, text=text, horizontal_align="left")
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


# Count data


def _counts(
    dt: xr.DataTree,
    group: str,
    var_names: str | Sequence[str] | None,
    coords: Mapping[str, Any] | None,
    num_samples: int,
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return for each variable predictive counts (draws, rows) and the observed counts (rows,)."""
    missing = [name for name in (group, "observed_data") if name not in dt.children]
    if missing:
        raise ValueError(f"dt must have the groups {group!r} and 'observed_data', lacks {missing}")
    predictive, data = dt[group].to_dataset(), dt["observed_data"].to_dataset()
    shared = [str(name) for name in predictive.data_vars if name in data.data_vars]
    names = shared if var_names is None else list(np.atleast_1d(var_names))
    if not names or not set(names) <= set(shared):
        raise ValueError(f"var_names must be among {shared}, which were observed, got {var_names}")
    counts = {}
    for name in names:
        observed = data[name].sel(_present(coords, data[name]))
        replicated = predictive[name].sel(_present(coords, predictive[name]))
        replicated = replicated.stack(sample=("chain", "draw"), create_index=False)
        n_draws = replicated.sizes["sample"]
        kept = np.unique(np.linspace(0, n_draws - 1, min(n_draws, num_samples)).astype(int))
        replicated = replicated.isel(sample=kept).transpose("sample", *observed.dims)
        pair = replicated.to_numpy().reshape(len(kept), -1), observed.to_numpy().ravel()
        seen = np.isfinite(pair[1])
        counts[name] = _integers(name, pair[0][:, seen]), _integers(name, pair[1][seen])
    return counts


def _present(coords: Mapping[str, Any] | None, da: xr.DataArray) -> dict[str, Any]:
    return {key: value for key, value in (coords or {}).items() if key in da.dims}


def _integers(name: str, values: np.ndarray) -> np.ndarray:
    whole = np.round(values)
    if values.size == 0 or not np.array_equal(values, whole):
        raise ValueError(f"variable {name!r} must hold counts, got values that are not integers")
    return whole.astype(np.int64)


def _bin_width(replicated: np.ndarray, observed: np.ndarray, max_bars: int) -> int:
    low = min(observed.min(), replicated.min())
    # A few extreme draws should not decide for all.
    high = max(observed.max(), int(np.quantile(replicated, 0.999)))
    return int(-(-(high - low + 1) // max_bars))


def _binned(values: np.ndarray, width: int) -> np.ndarray:
    """Move each count to the middle of its bin."""
    return values // width * width + width // 2


def _draw_standing(
    pen: _Pen, group: str, replicated: np.ndarray, observed: np.ndarray, ci_prob: float | None
) -> None:
    visuals: dict[Any, Any] = {**pen.visuals, "xlabel": False, "title": False}
    tree = {
        group: xr.Dataset({pen.variable: (("chain", "draw", "row"), replicated[None])}),
        "observed_data": xr.Dataset({pen.variable: ("row", observed)}),
    }
    plot_ppc_rootogram(
        xr.DataTree.from_dict(tree),
        group=group,
        ci_prob=ci_prob,
        # The square root is taken once, when every plot has its data.
        yscale="linear",
        plot_collection=pen.collection,
        visuals=visuals,
    )


def _draw_hanging(
    pen: _Pen, replicated: np.ndarray, observed: np.ndarray, ci_prob: float | None, xlabel: str
) -> None:
    values = np.union1d(np.unique(replicated), observed)
    frequency = np.array([(replicated == value).sum(axis=1) for value in values])
    low, high = np.quantile(frequency, _tails(ci_prob), axis=1)
    top = np.sqrt(frequency.mean(axis=1))
    hangs = top - np.sqrt([(observed == value).sum() for value in values])
    pen("zero_line", azv.hline, xr.DataArray(0.0), color="B2", linestyle="C0")
    interval = _points(x=values, y_bottom=top - np.sqrt(high), y_top=top - np.sqrt(low))
    pen("credible_interval", azv.ci_line_y, interval, color="C0", alpha=0.35, width=8)
    bars = _points(x=values, y_bottom=hangs, y_top=top)
    pen("observed_bars", azv.ci_line_y, bars, color="B2", width=2.5)
    expected = _points(x=values, y=top)
    pen("predictive_line", azv.line_xy, expected, color="C0")
    pen("predictive_markers", azv.scatter_xy, expected, color="C0", marker="C0", size=pen.size(4))
    title = f"{pen.variable}: bars observed, line predicted"
    pen.labels(xr.DataArray(0.0), xlabel, "square root of frequency", title)


def _tails(ci_prob: float | None) -> tuple[float, float]:
    tail = (1.0 - validate_ci_prob(ci_prob)) / 2.0
    return tail, 1.0 - tail


def _draw_dispersion(
    pen: _Pen,
    replicated: np.ndarray,
    observed: np.ndarray,
    n_groups: int | None,
    ci_prob: float | None,
) -> None:
    fitted = replicated.mean(axis=0)
    groups = _groups(replicated, fitted, n_groups)
    means = np.array([fitted[rows].mean() for rows in groups])
    squares = (observed - fitted) ** 2
    found = np.array([squares[rows].mean() for rows in groups])
    drawn = np.array([((replicated - fitted)[:, rows] ** 2).mean(axis=1) for rows in groups])
    low, high = np.quantile(drawn, _tails(ci_prob), axis=1)
    middle = np.median(drawn, axis=1)
    # Groups without any spread need a place on the logarithmic axis.
    positive = np.concatenate([means, found, low, high, middle])
    floor = positive[positive > 0].min() / 2 if (positive > 0).any() else 1.0
    x, seen, low, high, middle = (
        np.log10(np.maximum(v, floor)) for v in (means, found, low, high, middle)
    )
    margin = 0.15 if len(groups) > 1 else 0.4
    span = np.array([x.min() - margin, x.max() + margin])
    pen("equal_line", azv.line_xy, _points(x=span, y=span), color="B2", linestyle="C1")
    interval = _points(x=x, y_bottom=low, y_top=high)
    pen("credible_interval", azv.ci_line_y, interval, color="C0", alpha=0.4, width=6)
    pen("predictive_line", azv.line_xy, _points(x=x, y=middle), color="C0")
    markers = _points(x=x, y=middle)
    pen("predictive_markers", azv.scatter_xy, markers, color="C0", marker="C0", size=pen.size(5))
    data = _points(x=x, y=seen)
    pen("observed_markers", azv.scatter_xy, data, color="B1", marker="x", size=pen.size(7))
    heights = np.concatenate([span, seen, low, high])
    y = np.array([heights.min() - margin, heights.max() + margin])
    pen.axes(_count_ticks, xr.DataArray(0.0), x=span, y=y)
    title = f"{pen.variable}: crosses observed, line predicted, dashed variance = mean"
    pen.labels(xr.DataArray(0.0), "predicted mean", "variance", title)


def _groups(replicated: np.ndarray, fitted: np.ndarray, n_groups: int | None) -> list[np.ndarray]:
    """Split the rows by their predicted mean."""
    n_rows = len(fitted)
    if n_groups is None:
        noise = replicated.var(axis=0).mean() / len(replicated)
        n_groups = max(1, min(12, n_rows // 25)) if fitted.var() > 4.0 * noise else 1
    elif not 1 <= n_groups <= n_rows:
        raise ValueError(f"n_groups must be between 1 and {n_rows} observations, got {n_groups}")
    return np.array_split(np.argsort(fitted, kind="stable"), n_groups)


def _count_ticks(da: xr.DataArray, target: Any, x: np.ndarray, y: np.ndarray) -> None:
    """Label both axes, which hold decimal logarithms, by the numbers themselves."""
    backend = backend_from_object(target)
    for limits, ticks, bound in (
        (x, backend.xticks, backend.xlim),
        (y, backend.yticks, backend.ylim),
    ):
        width = np.ptp(limits)
        steps = range(1, 10) if width < 0.5 else [1, 2, 5] if width < 2.5 else [1]
        decades = range(int(np.floor(limits[0])), int(np.ceil(limits[1])) + 1)
        shown = [step * 10.0**decade for decade in decades for step in steps]
        shown = [value for value in shown if limits[0] <= np.log10(value) <= limits[1]]
        ticks(list(np.log10(shown)), [f"{value:g}" for value in shown], target)
        bound(tuple(limits), target)
