r"""Whether data are more spread than their distribution can be.

With :math:`m_i`, :math:`v_i` and :math:`p_i` the mean, variance and probability of zero that a
model predicts for row i, averaged over the posterior, three things are looked at:

* the squares :math:`\sum_i (y_i - m_i)^2` against :math:`\sum_i v_i`.  The former has the
  variance :math:`\sum_i \mu_{4i} - v_i^2`; the fourth moment :math:`\mu_4` of a log-concave count
  is at most about :math:`9 v^2 + v`, and that of others is known (see :mod:`.listed`).  The sum is
  skewed, and nearly log-normal;
* the number z of zeros against :math:`\sum_i p_i = n \bar p`. More of them than that have a
  probability of at most :math:`\exp(-n\, \mathrm{KL}(z/n \,\|\, \bar p))` (Hoeffding, 1963,
  JASA 58), also where a single one would be rare;
* whether the posterior is piled up where the distribution is as spread as it can be, which is said
  beside the others: data of a geometric distribution pile it up too.
"""

from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
import xarray as xr
from pymc.pytensorf import extract_obs_data
from scipy.special import rel_entr

from pymc_bayessum.diagnostics.draws import thin, values_of
from pymc_bayessum.diagnostics.evaluation import as_written
from pymc_bayessum.diagnostics.listed import MORE_SPREAD, listed
from pymc_bayessum.normalizers.predicted import Predicted, predicted

__all__ = ["misfit"]

#: So many draws tell averages over the posterior well enough.
DRAWS = 40
#: Differences of so many standard deviations, and of so much in size, are no accident.
SURPRISING, NOTABLE = 3.0, 0.2
#: A dispersion below this is as good as none.
NO_SLACK = 0.02


class _Expected(NamedTuple):
    """What is predicted of each row, over the posterior.

    ``wobble`` is the variance of its squared deviation from the mean, or more; ``piled`` tells
    whether the posterior is where the distribution is as spread as it can be.
    """

    mean: np.ndarray
    variance: np.ndarray
    zero: np.ndarray
    wobble: np.ndarray
    piled: bool
    more_spread: str


def misfit(model: pm.Model, posterior: xr.Dataset, compile_kwargs: dict[str, Any]) -> str:
    """Return one line for each observed variable that is more spread than it can be predicted."""
    lines = []
    draws = values_of(thin(posterior, DRAWS), model.free_RVs)
    for rv in model.observed_RVs:
        moments, counts = predicted(rv.owner.op, *rv.owner.inputs), _observed(model, rv)
        if counts is None or counts.size == 0:
            continue
        expected: _Expected | None
        if moments is not None:
            expected = _averaged(moments, model.free_RVs, draws, compile_kwargs)
        else:
            expected = _summed(rv, counts, model.free_RVs, draws, compile_kwargs)
        said = "" if expected is None else _compare(counts, expected)
        lines += [f"{as_written(rv.name, model)}: {said}"] if said else []
    return "\n".join(lines)


def _observed(model: pm.Model, rv: Any) -> np.ndarray | None:
    try:
        return np.asarray(extract_obs_data(model.rvs_to_values[rv]), dtype=float)
    except TypeError:
        return None


def _averaged(
    moments: Predicted, variables: Any, draws: Any, compile_kwargs: dict[str, Any]
) -> _Expected:
    """Average the moments of each row over draws."""
    function = pytensor.function(
        variables, list(moments[:4]), on_unused_input="ignore", **compile_kwargs
    )
    rows = [function(*draw) for draw in draws]
    mean, variance, zero, slack = (np.array([row[i] for row in rows]) for i in range(4))
    # What is not known of the mean is spread too.
    whole = variance.mean(axis=0) + mean.var(axis=0)
    return _Expected(
        mean=mean.mean(axis=0),
        variance=whole,
        zero=zero.mean(axis=0),
        wobble=8 * whole**2 + whole,
        piled=bool(np.mean(slack < NO_SLACK) > 0.5),
        more_spread=moments.more_spread,
    )


def _summed(
    rv: Any, counts: np.ndarray, variables: Any, draws: Any, compile_kwargs: dict[str, Any]
) -> _Expected | None:
    """Sum the moments of each row over the numbers it may be, where these can be listed."""
    masses = listed(rv, int(counts.max()), variables, draws, compile_kwargs)
    if masses is None:
        return None
    x = np.arange(len(masses)).reshape(-1, *[1] * (masses.ndim - 1))
    mean = (x * masses).sum(axis=0)
    variance, fourth = (((x - mean) ** power * masses).sum(axis=0) for power in (2, 4))
    more_spread = MORE_SPREAD[type(rv.owner.op)]
    return _Expected(mean, variance, masses[0], fourth - variance**2, False, more_spread)


def _compare(counts: np.ndarray, expected: _Expected) -> str:
    """Return what was observed beside what was predicted, where they are far apart."""
    mean, variance, zero, wobble = (np.broadcast_to(each, counts.shape) for each in expected[:4])
    squares, spread = np.sum((counts - mean) ** 2), np.sum(variance)
    with np.errstate(divide="ignore", invalid="ignore"):  # of what has no spread at all
        log_variance = np.log1p(np.sum(wobble) / spread**2)
        limit = spread * np.exp(SURPRISING * np.sqrt(log_variance) - log_variance / 2)
    zeros, likely = np.sum(counts == 0), np.sum(zero)
    too_wide = squares > (1 + NOTABLE) * spread and squares > limit
    n = counts.size
    seen, share = zeros / n, np.clip(likely / n, 0.0, 1.0)
    deviance = 2 * n * (rel_entr(seen, share) + rel_entr(1 - seen, 1 - share))
    too_many = zeros > (1 + NOTABLE) * likely and deviance > SURPRISING**2
    if not (too_wide or too_many):
        return ""
    told = (
        f"variance {squares / n:.3g} observed, {spread / n:.3g} predicted; "
        f"zeros {seen:.0%} observed, {share:.0%} predicted"
    )
    told += "; the dispersion is at its limit" if expected.piled else ""
    return f"{expected.more_spread} ({told})"
