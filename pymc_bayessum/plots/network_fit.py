"""Goodness of fit of a random-graph model: what its networks look like beside the observed one."""

from collections.abc import Callable
from math import ceil
from typing import Any

import arviz_plots.visuals as azv
import numpy as np
import xarray as xr
from arviz_base.validate import validate_dict_argument
from arviz_plots import PlotCollection
from scipy.sparse.csgraph import shortest_path

from pymc_bayessum.arguments import integer
from pymc_bayessum.plots.pen import LABELS, Pen, Visuals, points
from pymc_bayessum.plots.predicted import tails, wrap

__all__ = ["plot_network_fit"]

_VISUALS = ("credible_interval", "predictive_markers", "observed_line", "observed_markers", *LABELS)


def plot_network_fit(
    dt: xr.DataTree,
    *,
    var_name: str | None = None,
    group: str = "posterior_predictive",
    ci_prob: float | None = None,
    num_samples: int = 200,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Compare degrees, shared partners and distances of an observed and of predicted networks.

    Three plots (Hunter, Goodreau and Handcock, "Goodness of fit of social network models", 2008):
    the share of nodes with each degree, of ties with each number of shared partners, and of pairs
    at each geodesic distance (the last one: not connected). Observed shares that lie outside of the
    intervals are what the model does not explain.

    Parameters
    ----------
    dt : DataTree
        With the predictive group and ``observed_data``, networks as matrices (n, n).
    var_name : str, optional
        The network; the only variable of the group by default.
    group, ci_prob, backend, **pc_kwargs
        As for :func:`plot_rootogram`.
    num_samples : int
        At most this many predicted networks are used, evenly spaced.
    plot_collection : PlotCollection, optional
        One with the plots ``degree``, ``shared partners`` and ``distance``, to draw on.
    visuals : mapping of {str : mapping or False}, optional
        Keyword arguments for the visuals

        * credible_interval -> :func:`arviz_plots.visuals.ci_line_y`
        * predictive_markers, observed_markers -> :func:`arviz_plots.visuals.scatter_xy`
        * observed_line -> :func:`arviz_plots.visuals.line_xy`
        * xlabel, ylabel, title -> the functions of those names

    Returns
    -------
    PlotCollection

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> from pymc_bayessum.plots import plot_network_fit
    >>> ties = np.triu(np.random.default_rng(0).random((21, 6, 6)) < 0.4, 1)
    >>> ties = (ties | np.swapaxes(ties, 1, 2)).astype(int)
    >>> drawn = xr.Dataset({"y": (("chain", "draw", "i", "j"), ties[None, 1:])})
    >>> seen = xr.Dataset({"y": (("i", "j"), ties[0])})
    >>> dt = xr.DataTree.from_dict({"posterior_predictive": drawn, "observed_data": seen})
    >>> pc = plot_network_fit(dt, backend="none")
    """
    visuals = validate_dict_argument(visuals, valid_keys=_VISUALS)
    observed, predicted = _networks(dt, var_name, group, num_samples)
    if plot_collection is None:
        plot_collection = wrap(dict.fromkeys(_PARTS), backend, pc_kwargs)
    for name, (shares, label) in _PARTS.items():
        seen = shares(observed)
        found = [shares(one) for one in predicted]
        length = max(map(len, [seen, *found]))
        table = np.array([_padded(one, length) for one in found])
        low, high = np.quantile(table, tails(ci_prob), axis=0)
        pen = Pen(plot_collection, visuals, {}, name)
        at = np.arange(length)
        ends = points(x=at, y_bottom=low, y_top=high)
        pen("credible_interval", azv.ci_line_y, ends, color="C0", alpha=0.5, width=6)
        middle = points(x=at, y=np.median(table, axis=0))
        pen("predictive_markers", azv.scatter_xy, middle, color="C0", marker="C0", size=pen.size(4))
        line = points(x=at, y=_padded(seen, length))
        pen("observed_line", azv.line_xy, line, color="B2")
        pen("observed_markers", azv.scatter_xy, line, color="B2", marker="C1", size=pen.size(4))
        pen.labels(xr.DataArray(0.0), name, label, "line observed, bars predicted")
    return plot_collection


def _networks(
    dt: xr.DataTree, var_name: str | None, group: str, num_samples: int
) -> tuple[np.ndarray, np.ndarray]:
    if group not in dt.children:
        raise ValueError(f"there is no group {group!r}: run pm.sample_{group} first")
    if var_name is None:
        square = [str(name) for name, data in dt[group].data_vars.items() if data.ndim == 4]
        if len(square) != 1:
            raise ValueError(f"var_name must be given, {group} has the networks {square}")
        (var_name,) = square
    predicted = np.asarray(dt[group][var_name])
    predicted = predicted.reshape(-1, *predicted.shape[-2:])
    observed = np.asarray(dt["observed_data"][var_name])
    if observed.ndim != 2 or observed.shape != predicted.shape[-2:]:
        raise ValueError(f"{var_name} must be one network (n, n), got shape {observed.shape}")
    return observed, predicted[:: ceil(len(predicted) / integer("num_samples", num_samples, 1))]


def _padded(shares: np.ndarray, length: int) -> np.ndarray:
    return np.pad(shares, (0, length - len(shares)))


def _degrees(network: np.ndarray) -> np.ndarray:
    return np.bincount(network.sum(axis=1), minlength=1) / len(network)


def _partners(network: np.ndarray) -> np.ndarray:
    shared = (network @ network)[network > 0]
    return np.bincount(shared, minlength=1) / max(1, len(shared))


def _distances(network: np.ndarray) -> np.ndarray:
    n = len(network)
    lengths = shortest_path(network, unweighted=True)[~np.eye(n, dtype=bool)]
    # Pairs that are not connected stand at distance n, which no path has.
    lengths[np.isinf(lengths)] = n
    return np.bincount(lengths.astype(int), minlength=n + 1) / (n * (n - 1))


_PARTS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], str]] = {
    "degree": (_degrees, "share of nodes"),
    "shared partners": (_partners, "share of ties"),
    "distance": (_distances, "share of pairs"),
}
