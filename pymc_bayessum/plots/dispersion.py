"""Variance against mean, predicted and observed."""

from collections.abc import Mapping, Sequence
from typing import Any

import arviz_plots.visuals as azv
import numpy as np
import xarray as xr
from arviz_base.validate import validate_dict_argument
from arviz_plots import PlotCollection
from arviz_plots.plot_collection import backend_from_object

from pymc_bayessum.plots.pen import LABELS, Pen, Visuals, points
from pymc_bayessum.plots.predicted import PREDICTIVE, predicted_counts, tails, wrap

__all__ = ["plot_dispersion"]

_VISUALS = (*PREDICTIVE, "equal_line", *LABELS)


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
    dt, var_names, group, coords, ci_prob, num_samples, plot_collection, backend, **pc_kwargs
        As for :func:`plot_rootogram`.
    n_groups : int, optional
        Number of groups.  By default one for every 25 observations, at most twelve; and one only
        where the predicted means do not differ by more than their simulation error.
    visuals : mapping of {str : mapping or False}, optional
        Keyword arguments for the visuals

        * equal_line, predictive_line -> :func:`arviz_plots.visuals.line_xy`
        * credible_interval -> :func:`arviz_plots.visuals.ci_line_y`
        * predictive_markers, observed_markers -> :func:`arviz_plots.visuals.scatter_xy`
        * xlabel, ylabel, title -> the functions of those names

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
    visuals = validate_dict_argument(visuals, valid_keys=_VISUALS)
    counts = predicted_counts(dt, group, var_names, coords, num_samples)
    if plot_collection is None:
        plot_collection = wrap(counts, backend, pc_kwargs)
    for name, (replicated, observed) in counts.items():
        pen = Pen(plot_collection, visuals, {}, name)
        _draw_dispersion(pen, replicated, observed, n_groups, ci_prob)
    return plot_collection


def _draw_dispersion(
    pen: Pen,
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
    low, high = np.quantile(drawn, tails(ci_prob), axis=1)
    middle = np.median(drawn, axis=1)
    # Groups without any spread need a place on the logarithmic axis.
    positive = np.concatenate([means, found, low, high, middle])
    floor = positive[positive > 0].min() / 2 if (positive > 0).any() else 1.0
    x, seen, low, high, middle = (
        np.log10(np.maximum(v, floor)) for v in (means, found, low, high, middle)
    )
    margin = 0.15 if len(groups) > 1 else 0.4
    span = np.array([x.min() - margin, x.max() + margin])
    pen("equal_line", azv.line_xy, points(x=span, y=span), color="B2", linestyle="C1")
    interval = points(x=x, y_bottom=low, y_top=high)
    pen("credible_interval", azv.ci_line_y, interval, color="C0", alpha=0.4, width=6)
    pen("predictive_line", azv.line_xy, points(x=x, y=middle), color="C0")
    markers = points(x=x, y=middle)
    pen("predictive_markers", azv.scatter_xy, markers, color="C0", marker="C0", size=pen.size(5))
    data = points(x=x, y=seen)
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
