"""Observed and predicted frequencies of counts on the square-root scale."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import arviz_plots.visuals as azv
import numpy as np
import xarray as xr
from arviz_base.validate import validate_dict_argument
from arviz_plots import PlotCollection, plot_ppc_rootogram

from pymc_bayessum.plots.pen import LABELS, Pen, Visuals, points
from pymc_bayessum.plots.predicted import PREDICTIVE, predicted_counts, tails, wrap

__all__ = ["plot_rootogram"]

_VISUALS = (*PREDICTIVE, "observed_bars", "zero_line", "grid", *LABELS)


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
    visuals = validate_dict_argument(visuals, valid_keys=_VISUALS)
    counts = predicted_counts(dt, group, var_names, coords, num_samples)
    if plot_collection is None:
        plot_collection = wrap(counts, backend, pc_kwargs)
    for name, (replicated, observed) in counts.items():
        width = _bin_width(replicated, observed, max_bars)
        replicated, observed = _binned(replicated, width), _binned(observed, width)
        xlabel = "count" if width == 1 else f"count, in bins of {width}"
        pen = Pen(plot_collection, visuals, {}, name)
        if kind == "standing":
            _draw_standing(pen, group, replicated, observed, ci_prob)
            title = f"{name}: dots observed, diamonds predicted"
            pen("xlabel", azv.labelled_x, xr.DataArray(0.0), text=xlabel)
            pen("title", azv.labelled_title, xr.DataArray(0.0), text=title)
        else:
            _draw_hanging(pen, replicated, observed, ci_prob, xlabel)
    if kind == "standing":
        plot_collection.map(azv.set_yscale, store_artist=False, ignore_aes="all", scale="sqrt")
    return plot_collection


def _bin_width(replicated: np.ndarray, observed: np.ndarray, max_bars: int) -> int:
    low = min(observed.min(), replicated.min())
    # A few extreme draws should not decide for all.
    high = max(observed.max(), int(np.quantile(replicated, 0.999)))
    return int(-(-(high - low + 1) // max_bars))


def _binned(values: np.ndarray, width: int) -> np.ndarray:
    """Move each count to the middle of its bin."""
    return values // width * width + width // 2


def _draw_standing(
    pen: Pen, group: str, replicated: np.ndarray, observed: np.ndarray, ci_prob: float | None
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
    pen: Pen, replicated: np.ndarray, observed: np.ndarray, ci_prob: float | None, xlabel: str
) -> None:
    values = np.union1d(np.unique(replicated), observed)
    frequency = np.array([(replicated == value).sum(axis=1) for value in values])
    low, high = np.quantile(frequency, tails(ci_prob), axis=1)
    top = np.sqrt(frequency.mean(axis=1))
    hangs = top - np.sqrt([(observed == value).sum() for value in values])
    pen("zero_line", azv.hline, xr.DataArray(0.0), color="B2", linestyle="C0")
    interval = points(x=values, y_bottom=top - np.sqrt(high), y_top=top - np.sqrt(low))
    pen("credible_interval", azv.ci_line_y, interval, color="C0", alpha=0.35, width=8)
    bars = points(x=values, y_bottom=hangs, y_top=top)
    pen("observed_bars", azv.ci_line_y, bars, color="B2", width=2.5)
    expected = points(x=values, y=top)
    pen("predictive_line", azv.line_xy, expected, color="C0")
    pen("predictive_markers", azv.scatter_xy, expected, color="C0", marker="C0", size=pen.size(4))
    title = f"{pen.variable}: bars observed, line predicted"
    pen.labels(xr.DataArray(0.0), xlabel, "square root of frequency", title)
