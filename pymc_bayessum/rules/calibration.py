"""Do the error bars hold? Coverage of posterior intervals over repetitions with a known answer."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import stats

from pymc_bayessum.arguments import real
from pymc_bayessum.rules.rule import Estimate

__all__ = ["Coverage", "coverage"]

#: The nominal levels of the table, unless others are asked for.
LEVELS = (0.5, 0.8, 0.9, 0.95)


@dataclass(frozen=True, eq=False)
class Coverage:
    """How often intervals held the exact value.

    Attributes
    ----------
    levels : ndarray of shape (K,)
        Nominal levels.
    observed : ndarray of shape (K,)
        Share of the central intervals of each level that held the exact value.
    standard_error : ndarray of shape (K,)
        Sampling error of ``observed``, were the intervals right.
    scores : ndarray of shape (R,)
        (mean - exact) / sd of every estimate; 0 where both error and sd are zero.
    """

    levels: np.ndarray
    observed: np.ndarray
    standard_error: np.ndarray
    scores: np.ndarray = field(repr=False)


def coverage(
    estimates: Iterable[Estimate],
    exact: Any,
    levels: Iterable[float] = LEVELS,
    degrees_of_freedom: float | None = None,
) -> Coverage:
    r"""Compare the posterior intervals of repeated estimates with the exact value.

    The central interval of level c is mean :math:`\pm\, q_{(1 + c)/2}` sd with normal quantiles q.
    For functions drawn from the prior itself, with the empirical-Bayes amplitude over N values,
    (exact - mean) / sd follows Student's t distribution with N degrees of freedom (N - 1 for a
    Stein rule), so that normal intervals fall short by a little at small N.

    Parameters
    ----------
    estimates : iterable of R Estimate
        One for each repetition (a seed, or a draw of the function).
    exact : float or array_like of shape (R,)
        The exact value, or one for each repetition.
    levels : iterable of float
        Nominal levels between 0 and 1.
    degrees_of_freedom : float, optional
        Take the quantiles from Student's t distribution.

    Examples
    --------
    >>> from pymc_bayessum.rules.rule import Estimate
    >>> estimates = [Estimate(mean, 1.0, 10) for mean in (-1.0, 0.1, 0.3, 2.5)]
    >>> coverage(estimates, 0.0, levels=(0.5, 0.95)).observed.tolist()
    [0.5, 0.75]
    """
    pairs = [(float(estimate.mean), float(estimate.sd)) for estimate in estimates]
    if not pairs:
        raise ValueError("estimates must hold at least one estimate, got none")
    mean, sd = np.array(pairs).T
    nominal = np.array([real("levels", level) for level in levels])
    if ((nominal <= 0.0) | (nominal >= 1.0)).any():
        raise ValueError(f"levels must lie strictly between 0 and 1, got {nominal}")
    error = mean - np.broadcast_to(np.asarray(exact, dtype=float), mean.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = np.where(error == 0.0, 0.0, error / sd)
    # With infinitely many degrees of freedom the t distribution is the normal one.
    freedom = np.inf if degrees_of_freedom is None else degrees_of_freedom
    quantiles = stats.t.ppf(0.5 * (1.0 + nominal), freedom)
    observed = (np.abs(scores)[:, None] <= quantiles).mean(axis=0)
    return Coverage(nominal, observed, np.sqrt(nominal * (1.0 - nominal) / len(scores)), scores)
