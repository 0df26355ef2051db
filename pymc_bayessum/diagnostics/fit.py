r"""Whether data are more spread than their distribution can be.

With :math:`m_i`, :math:`v_i` and :math:`p_i` the mean, variance and probability of zero that a
model predicts for row i, averaged over the posterior, three things are looked at:

* the squares :math:`\sum_i (y_i - m_i)^2` against :math:`\sum_i v_i`.  The fourth moment of a
  log-concave count is at most about :math:`9 v^2 + v`, so that the former has a standard deviation
  of at most :math:`\sqrt{\sum_i 8 v_i^2 + v_i}`;
* the number of zeros against :math:`\sum_i p_i`;
* whether the posterior is piled up where the distribution is as spread as it can be.
"""

from typing import Any

import numpy as np
import pymc as pm
import pytensor
import xarray as xr
from pymc.pytensorf import extract_obs_data

from pymc_bayessum.diagnostics.draws import thin
from pymc_bayessum.diagnostics.evaluation import as_written
from pymc_bayessum.normalizers.predicted import Predicted, predicted

__all__ = ["misfit"]

#: So many draws tell averages over the posterior well enough.
DRAWS = 40
#: Differences of so many standard deviations, and of so much in size, are no accident.
SURPRISING, NOTABLE = 3.0, 0.2
#: A dispersion below this is as good as none.
NO_SLACK = 0.02


def misfit(model: pm.Model, posterior: xr.Dataset, compile_kwargs: dict[str, Any]) -> str:
    """Return one line for each observed variable that is more spread than it can be predicted.

    Parameters
    ----------
    model : pm.Model
    posterior : Dataset
        Draws of the free variables.
    compile_kwargs : dict
        Passed to ``pytensor.function``.

    Returns
    -------
    str
        Empty where there is nothing to say.
    """
    lines = []
    for rv in model.observed_RVs:
        moments = predicted(rv.owner.op, *rv.owner.inputs)
        counts = None if moments is None else _observed(model, rv)
        if moments is not None and counts is not None:
            said = _compare(counts, _average(model, moments, posterior, compile_kwargs))
            name = as_written(rv.name, model)
            lines += [f"{name}: {moments.more_spread} ({said})"] if said else []
    return "\n".join(lines)


def _observed(model: pm.Model, rv: Any) -> np.ndarray | None:
    try:
        return np.asarray(extract_obs_data(model.rvs_to_values[rv]), dtype=float)
    except TypeError:
        return None


def _average(
    model: pm.Model, moments: Predicted, posterior: xr.Dataset, compile_kwargs: dict[str, Any]
) -> dict[str, np.ndarray]:
    """Return the moments of each row, averaged over some draws of the posterior."""
    function = pytensor.function(
        model.free_RVs, list(moments[:4]), on_unused_input="ignore", **compile_kwargs
    )
    some = thin(posterior, DRAWS)
    arrays = [
        some[rv.name].to_numpy().reshape(-1, *some[rv.name].shape[2:]).astype(rv.dtype)
        for rv in model.free_RVs
    ]
    rows = [function(*(array[s] for array in arrays)) for s in range(len(arrays[0]))]
    mean, variance, zero, slack = (np.array([row[i] for row in rows]) for i in range(4))
    return {
        "mean": mean.mean(axis=0),
        # What is not known of the mean is spread too.
        "variance": variance.mean(axis=0) + mean.var(axis=0),
        "zero": zero.mean(axis=0),
        "piled": np.asarray(np.mean(slack < NO_SLACK)),
    }


def _compare(counts: np.ndarray, average: dict[str, np.ndarray]) -> str:
    """Return what was observed beside what was predicted, where they are far apart."""
    mean, variance, zero = (
        np.broadcast_to(average[name], counts.shape) for name in ("mean", "variance", "zero")
    )
    squares, spread = np.sum((counts - mean) ** 2), np.sum(variance)
    unsure = np.sqrt(np.sum(8 * variance**2 + variance))
    zeros, expected = np.sum(counts == 0), np.sum(zero)
    zeros_unsure = np.sqrt(np.sum(zero * (1 - zero)))
    piled = average["piled"] > 0.5
    too_wide = squares > (1 + NOTABLE) * spread and (
        squares > spread + SURPRISING * unsure or (piled and squares > spread + unsure)
    )
    too_many = zeros > expected + SURPRISING * zeros_unsure and zeros > (1 + NOTABLE) * expected
    if not (too_wide or too_many):
        return ""
    n = counts.size
    told = (
        f"variance {squares / n:.3g} observed, {spread / n:.3g} predicted; "
        f"zeros {zeros / n:.0%} observed, {expected / n:.0%} predicted"
    )
    return told + ("; the dispersion is at its limit" if piled else "")
