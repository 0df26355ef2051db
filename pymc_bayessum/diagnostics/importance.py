r"""Weights that lead from one set of draws to another: Pareto smoothing and resampling.

Log ratios :math:`r_s` of a target to a proposal, one for each draw, give normalised weights
:math:`w_s \propto e^{r_s}`, whose largest values are smoothed by a fitted generalised Pareto
distribution (Vehtari, Simpson, Gelman, Yao and Gabry, 2024, JMLR 25(72)).
"""

from dataclasses import dataclass

import arviz_stats  # noqa: F401  registers the accessor that psislw hangs on
import numpy as np
import xarray as xr
from scipy.special import logsumexp

__all__ = ["Weights", "khat_threshold", "resample", "smooth_weights"]

#: Log ratios within this range are constant: the weights differ by less than one percent.
CONSTANT_RANGE = 0.01
#: Fewer draws have too short a tail for a Pareto fit.
MINIMUM_DRAWS = 25


@dataclass(frozen=True, eq=False)
class Weights:
    """Normalised, smoothed log weights and what they are worth.

    The effective sample size is 1 / sum of squared weights.  The tail index of the ratios is 0
    where they, or the largest of them, are constant (bounded ratios have an index of at most 0, and
    a fit to rounding errors would say nothing), and infinite where there are too few draws to fit
    one, where a single draw has all the weight, or where a ratio is infinite or undefined.
    """

    log_weights: np.ndarray
    khat: float
    ess: float

    @property
    def shift(self) -> float:
        """Most any posterior mean can have moved, in posterior sds.

        The coefficient of variation of the weights, which bounds the difference of weighted and
        plain mean of any function in units of its standard deviation (Cauchy-Schwarz).
        """
        if self.ess == 0.0:  # no draw has a weight
            return np.inf
        return float(np.sqrt(max(self.log_weights.size / self.ess - 1.0, 0.0)))


def khat_threshold(n_draws: int) -> float:
    """Return the tail index up to which n draws can be reweighted, min(1 - 1/log10(n), 0.7).

    Examples
    --------
    >>> round(khat_threshold(1000), 3), khat_threshold(100_000)
    (0.667, 0.7)
    """
    return float(min(1.0 - 1.0 / np.log10(max(n_draws, 11)), 0.7))


def smooth_weights(log_ratio: np.ndarray) -> Weights:
    """Return the Pareto-smoothed weights of log ratios of target to proposal, one for each draw.

    Examples
    --------
    >>> import numpy as np
    >>> constant = smooth_weights(np.full(100, -3.0))
    >>> constant.khat, round(constant.ess)
    (0.0, 100)
    >>> heavy = smooth_weights(np.random.default_rng(1).exponential(2.0, size=1000))
    >>> heavy.khat > 1.0
    True
    """
    log_ratio = np.asarray(log_ratio, dtype=float)
    sound = ~np.isnan(log_ratio) & ~np.isposinf(log_ratio)
    log_weights = np.where(sound, log_ratio, -np.inf)
    if np.isneginf(log_weights).all():
        flat = np.full(log_ratio.shape, -np.log(log_ratio.size))
        return Weights(flat, np.inf, 0.0)
    if not sound.all():
        khat = np.inf
    elif np.ptp(log_weights) < CONSTANT_RANGE:
        khat = 0.0
    elif log_weights.size < MINIMUM_DRAWS:
        khat = np.inf
    elif not _has_tail(log_weights):
        khat = 0.0
    else:
        # psislw takes negative log ratios, as leave-one-out does.
        negative = xr.DataArray(-log_weights.ravel(), dims="sample")
        smoothed, index = negative.azstats.psislw(dim="sample")
        log_weights = smoothed.values.reshape(log_ratio.shape)
        # There is no fit where a single draw has all the weight.
        khat = float(np.nan_to_num(index, nan=np.inf))
    log_weights = log_weights - logsumexp(log_weights)
    ess = float(np.exp(-logsumexp(2.0 * log_weights)))
    return Weights(log_weights, khat, ess)


def _has_tail(log_weights: np.ndarray) -> bool:
    """Tell whether the largest ratios differ as numbers, so that a Pareto fit exists."""
    n_tail = log_weights.size // 5 if log_weights.size <= 225 else int(3 * log_weights.size**0.5)
    tail = np.exp(np.sort(log_weights, axis=None)[-n_tail - 1 :] - log_weights.max())
    return bool(np.ptp(tail) > 1e-12)


def resample(weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return positions drawn systematically in proportion to weights, in random order.

    A weight w among n, of a total of one, is drawn floor(n w) or ceil(n w) times.

    Examples
    --------
    >>> import numpy as np
    >>> drawn = resample(np.array([0.5, 0.0, 0.25, 0.25]), np.random.default_rng(1))
    >>> np.sort(drawn).tolist()
    [0, 0, 2, 3]
    """
    n = len(weights)
    ticks = (np.arange(n) + rng.uniform()) / n
    cumulative = np.cumsum(weights) / np.sum(weights)
    return rng.permutation(np.minimum(np.searchsorted(cumulative, ticks), n - 1))
