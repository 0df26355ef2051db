"""Observed and predicted frequencies of counts on the square-root scale."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import arviz_plots.visuals as azv
import numpy as np
import xarray as xr
from arviz_base.validate import validate_dict_argument
from arviz_plots import PlotCollection

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

    ``kind="standing"`` is the picture of :func:`arviz_plots.plot_ppc_rootogram`: predicted
    frequencies with their interval beside the observed ones.  ``kind="hanging"`` lets the bars of
    the observed frequencies hang from the predicted ones: a bar that does not end within the
    interval around zero belongs to a count that is rarer (it ends above) or more frequent (below)
    than predicted (Kleiber and Zeileis, 2016, The American Statistician 70(3)).

    Beyond what arviz-plots does, several variables get a plot each, variables that were never
    observed are left out (with imputed observations there are some in the predictive group), and
    long predictive samples are thinned.  Counts over a wide range are gathered in bins; zero never
    is.  Counts that do not occur are drawn too.  The picture ends near the largest count that was
    observed; its last bar holds what was predicted beyond.

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
        Counts are binned by the smallest whole width that needs no more bars than this, zero and
        the last bar aside.
    num_samples : int
        At most this many predictive draws are used, evenly spaced.
    plot_collection : PlotCollection, optional
        One with a plot for each variable, to draw on.
    backend : {"matplotlib", "bokeh", "plotly", "none"}, optional
    visuals : mapping of {str : mapping or False}, optional
        Keyword arguments for the visuals

        * predictive_markers, observed_markers (standing) ->
          :func:`arviz_plots.visuals.scatter_xy`
        * credible_interval, observed_bars (hanging) -> :func:`arviz_plots.visuals.ci_line_y`
        * predictive_line (hanging) -> :func:`arviz_plots.visuals.line_xy`
        * zero_line (hanging) -> :func:`arviz_plots.visuals.hline`
        * grid (standing) -> :func:`arviz_plots.visuals.grid`
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
    draw = _draw_standing if kind == "standing" else _draw_hanging
    for name, pair in counts.items():
        found = _frequencies(*pair, max_bars, tails(ci_prob))
        draw(Pen(plot_collection, visuals, {}, name), found)
    if kind == "standing":
        plot_collection.map(azv.set_yscale, store_artist=False, ignore_aes="all", scale="sqrt")
    return plot_collection


class _Frequencies(NamedTuple):
    """How many counts lie in each bin: predicted, with an interval, and observed."""

    at: np.ndarray
    label: str
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    seen: np.ndarray


def _frequencies(
    replicated: np.ndarray, observed: np.ndarray, max_bars: int, interval: tuple[float, float]
) -> _Frequencies:
    """Count in at most so many bins, beside that of zero and that of all beyond."""
    both = np.unique(np.concatenate([replicated.ravel(), observed]))
    first, largest = int(min(both[both > 0], default=1)), int(observed.max())
    # Neither extreme draws nor a model that is far off decide how far the picture goes.
    usual = min(int(np.quantile(replicated, 0.999)), largest + max(3, largest // 5))
    end = max(first, largest, usual)
    width = -(-(end - first + 1) // max_bars)
    starts = np.arange(first, end + 1, width)
    beyond = bool(both[-1] >= starts[-1] + width)
    zero, more = [0] * bool(both[0] == 0), [starts[-1] + width] * beyond
    lowest = np.array([*zero, *starts, *more])
    at = np.where(lowest == 0, 0, lowest + (width - 1) // 2)
    label = "count" if width == 1 else f"count, in bins of {width}" + ", zero alone" * len(zero)
    label += f"; last: {lowest[-1]} and more" * beyond
    drawn, seen = (
        np.apply_along_axis(np.bincount, -1, np.digitize(counts, lowest) - 1, minlength=len(lowest))
        for counts in (replicated, observed)
    )
    low, high = np.quantile(drawn, interval, axis=0)
    return _Frequencies(at, label, drawn.mean(axis=0), low, high, seen)


def _draw_standing(pen: Pen, found: _Frequencies) -> None:
    expected = points(x=found.at, y=found.mean)
    pen("predictive_markers", azv.scatter_xy, expected, color="C0", marker="C4")
    ends = points(x=found.at, y_bottom=found.low, y_top=found.high)
    pen("credible_interval", azv.ci_line_y, ends, color="C0", alpha=0.3, width=3)
    seen = points(x=found.at, y=found.seen)
    pen("observed_markers", azv.scatter_xy, seen, color="B1", marker="C6")
    pen("grid", azv.grid, xr.DataArray(0.0), color="B3", axis="y")
    title = f"{pen.variable}: dots observed, diamonds predicted"
    pen.labels(xr.DataArray(0.0), found.label, "frequency", title)


def _draw_hanging(pen: Pen, found: _Frequencies) -> None:
    top, at = np.sqrt(found.mean), found.at
    pen("zero_line", azv.hline, xr.DataArray(0.0), color="B2", linestyle="C0")
    ends = points(x=at, y_bottom=top - np.sqrt(found.high), y_top=top - np.sqrt(found.low))
    pen("credible_interval", azv.ci_line_y, ends, color="C0", alpha=0.35, width=8)
    bars = points(x=at, y_bottom=top - np.sqrt(found.seen), y_top=top)
    pen("observed_bars", azv.ci_line_y, bars, color="B2", width=2.5)
    expected = points(x=at, y=top)
    pen("predictive_line", azv.line_xy, expected, color="C0")
    pen("predictive_markers", azv.scatter_xy, expected, color="C0", marker="C0", size=pen.size(4))
    title = f"{pen.variable}: bars observed, line predicted"
    pen.labels(xr.DataArray(0.0), found.label, "square root of frequency", title)
