"""Observed and predicted frequencies of counts on the square-root scale."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

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
    for name, (replicated, observed) in counts.items():
        bins = _bins(replicated, observed, max_bars)
        pen = Pen(plot_collection, visuals, {}, name)
        draw = _draw_standing if kind == "standing" else _draw_hanging
        draw(pen, bins, bins.frequencies(replicated), bins.frequencies(observed), tails(ci_prob))
    if kind == "standing":
        plot_collection.map(azv.set_yscale, store_artist=False, ignore_aes="all", scale="sqrt")
    return plot_collection


@dataclass(frozen=True)
class _Bins:
    """Bins of counts by their lowest ones, in order.

    Attributes
    ----------
    lowest : ndarray of int
    width : int
        Of all bins but that of zero, which is one, and the last, which has no upper end.
    beyond : bool
        Whether there is anything beyond the width of the last one.
    """

    lowest: np.ndarray
    width: int
    beyond: bool

    @property
    def middles(self) -> np.ndarray:
        """Where they are drawn."""
        return np.where(self.lowest == 0, 0, self.lowest + (self.width - 1) // 2)

    @property
    def label(self) -> str:
        """What they hold, in words."""
        wide = "" if self.width == 1 else f", in bins of {self.width}"
        zero = ", zero alone" if wide and self.lowest[0] == 0 else ""
        return f"count{wide}{zero}" + (f"; last: {self.lowest[-1]} and more" * self.beyond)

    def frequencies(self, values: np.ndarray) -> np.ndarray:
        """Return how many of the values, along their last axis, lie in each bin."""
        place = np.atleast_2d(np.searchsorted(self.lowest, values, side="right") - 1)
        n, n_bins = len(place), len(self.lowest)
        rows = place + n_bins * np.arange(n)[:, None]
        return np.bincount(rows.ravel(), minlength=n * n_bins).reshape(n, n_bins)


def _bins(replicated: np.ndarray, observed: np.ndarray, max_bars: int) -> _Bins:
    """Return at most so many bins, beside that of zero and that of all beyond."""
    both = np.unique(np.concatenate([replicated.ravel(), observed]))
    first, largest = int(min(both[both > 0], default=1)), int(observed.max())
    # Neither extreme draws nor a model that is far off decide how far the picture goes.
    usual = min(int(np.quantile(replicated, 0.999)), largest + max(3, largest // 5))
    end = max(first, largest, usual)
    width = -(-(end - first + 1) // max_bars)
    starts = np.arange(first, end + 1, width)
    beyond = bool(both[-1] >= starts[-1] + width)
    zero, more = [0] * bool(both[0] == 0), [starts[-1] + width] * beyond
    return _Bins(np.array([*zero, *starts, *more]), int(width), beyond)


def _draw_standing(
    pen: Pen,
    bins: _Bins,
    replicated: np.ndarray,
    observed: np.ndarray,
    interval: tuple[float, float],
) -> None:
    low, high = np.quantile(replicated, interval, axis=0)
    at = bins.middles
    expected = points(x=at, y=replicated.mean(axis=0))
    pen("predictive_markers", azv.scatter_xy, expected, color="C0", marker="C4")
    ends = points(x=at, y_bottom=low, y_top=high)
    pen("credible_interval", azv.ci_line_y, ends, color="C0", alpha=0.3, width=3)
    seen = points(x=at, y=observed[0])
    pen("observed_markers", azv.scatter_xy, seen, color="B1", marker="C6")
    pen("grid", azv.grid, xr.DataArray(0.0), color="B3", axis="y")
    title = f"{pen.variable}: dots observed, diamonds predicted"
    pen.labels(xr.DataArray(0.0), bins.label, "frequency", title)


def _draw_hanging(
    pen: Pen,
    bins: _Bins,
    replicated: np.ndarray,
    observed: np.ndarray,
    interval: tuple[float, float],
) -> None:
    low, high = np.quantile(replicated, interval, axis=0)
    top = np.sqrt(replicated.mean(axis=0))
    hangs = top - np.sqrt(observed[0])
    at = bins.middles
    pen("zero_line", azv.hline, xr.DataArray(0.0), color="B2", linestyle="C0")
    ends = points(x=at, y_bottom=top - np.sqrt(high), y_top=top - np.sqrt(low))
    pen("credible_interval", azv.ci_line_y, ends, color="C0", alpha=0.35, width=8)
    bars = points(x=at, y_bottom=hangs, y_top=top)
    pen("observed_bars", azv.ci_line_y, bars, color="B2", width=2.5)
    expected = points(x=at, y=top)
    pen("predictive_line", azv.line_xy, expected, color="C0")
    pen("predictive_markers", azv.scatter_xy, expected, color="C0", marker="C0", size=pen.size(4))
    title = f"{pen.variable}: bars observed, line predicted"
    pen.labels(xr.DataArray(0.0), bins.label, "square root of frequency", title)
