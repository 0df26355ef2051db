"""Observed and predicted counts of a DataTree, one plot a variable."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from arviz_base.validate import validate_ci_prob
from arviz_plots import PlotCollection

from pymc_bayessum.plots.pen import figure_kwargs

__all__ = ["predicted_counts", "tails", "wrap"]

#: Visuals of a predicted quantity beside the observed one.
PREDICTIVE = ("predictive_markers", "predictive_line", "observed_markers", "credible_interval")


def predicted_counts(
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


def wrap(counts: Mapping[str, Any], backend: str | None, pc_kwargs: dict[str, Any]) -> Any:
    """Return a collection with one plot for each variable."""
    pc_kwargs.setdefault("cols", ["__variable__"])
    pc_kwargs.setdefault("col_wrap", 3)
    n_cols = min(len(counts), pc_kwargs["col_wrap"])
    n_rows = -(-len(counts) // n_cols)
    return PlotCollection.wrap(
        xr.Dataset(dict.fromkeys(counts, 0.0)),
        backend=backend,
        figure_kwargs=figure_kwargs(pc_kwargs, backend, (600 * n_cols, 400 * n_rows)),
        **pc_kwargs,
    )


def tails(ci_prob: float | None) -> tuple[float, float]:
    """Return the two probabilities between which an interval lies."""
    tail = (1.0 - validate_ci_prob(ci_prob)) / 2.0
    return tail, 1.0 - tail
