"""Sampling estimates of sums and expectations, to hold a rule against.

Each function takes f (a function of a batch of points), a measure and a number of evaluations,
and returns an `Estimate` whose sd is that of its sampling distribution. All are unbiased.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from pymc_bayessum.arguments import as_generator, integer
from pymc_bayessum.measures import (
    IntegerMeasure,
    Measure,
    Product,
    SiteMeasure,
    UniformInterval,
    UniformSpins,
)
from pymc_bayessum.measures.base import require_measure
from pymc_bayessum.measures.supports import Points, batch_size, take
from pymc_bayessum.rules.rule import Estimate

__all__ = ["importance_sampling", "monte_carlo", "russian_roulette", "stratified"]

Function = Callable[[Points], Any]


def monte_carlo(f: Function, measure: Measure, n: int, rng: Any = None) -> Estimate:
    r"""Average f over independent draws, :math:`M / n \sum_i f(x_i)` with the total mass M.

    Parameters
    ----------
    f : callable
        From a batch of N points to an array (N,).
    measure : Measure
    n : int
        Number of draws, at least two.
    rng : None, int or numpy.random.Generator

    Examples
    --------
    >>> from pymc_bayessum.measures import Poisson
    >>> estimate = monte_carlo(lambda x: x, Poisson(4.0), 10_000, rng=1)
    >>> abs(estimate.mean - 4.0) < 4.0 * estimate.sd
    True
    """
    n = _checked(f, measure, n)
    y = _evaluate(f, measure.sample(n, as_generator(rng)))
    return _average(np.exp(measure.log_mass) * y, n)


def importance_sampling(
    f: Function, measure: Measure, proposal: Measure, n: int, rng: Any = None
) -> Estimate:
    r"""Average f over draws from another measure, :math:`1/n \sum_i f(x_i) p(x_i) / q(x_i)`.

    Parameters
    ----------
    f, measure, n, rng
        As for `monte_carlo`.
    proposal : Measure
        A probability q that gives mass wherever f p does.

    Examples
    --------
    >>> from pymc_bayessum.measures import NegativeBinomial, Poisson
    >>> proposal = NegativeBinomial(5.0, 5.0 / 9.0)
    >>> estimate = importance_sampling(lambda x: x, Poisson(4.0), proposal, 10_000, rng=1)
    >>> abs(estimate.mean - 4.0) < 4.0 * estimate.sd
    True
    """
    n = _checked(f, measure, n)
    require_measure("proposal", proposal)
    x = proposal.sample(n, as_generator(rng))
    log_q = proposal.log_prob(x) - proposal.log_mass
    return _average(_evaluate(f, x) * np.exp(measure.log_prob(x) - log_q), n)


def russian_roulette(f: Function, measure: Measure, n: int, rng: Any = None) -> Estimate:
    r"""Stop early at random and weight up what survives, so that nothing is lost on average.

    On the integers the terms of the series are taken outwards from the mean. The first half of
    the n are certain; each further one is reached with probability :math:`\rho`, chosen so that
    n evaluations are expected, and the j-th of them is divided by its chance
    :math:`\rho^j` of being reached (Lyne, Girolami, Atchade, Strathmann and Simpson, 2015).
    Where the points cannot be listed, 2 n draws each survive with probability 1/2 and then count
    twice.

    Parameters
    ----------
    f, measure, rng
        As for `monte_carlo`.
    n : int
        Expected number of evaluations, at least two.

    Returns
    -------
    Estimate
        With the number of evaluations that were made, and an sd from an unbiased estimate of the
        variance (zero where that is negative).

    Examples
    --------
    >>> from pymc_bayessum.measures import Poisson
    >>> estimate = russian_roulette(lambda x: x, Poisson(4.0), 40, rng=1)
    >>> abs(estimate.mean - 4.0) < 1e-6
    True
    """
    n = _checked(f, measure, n)
    rng = as_generator(rng)
    if isinstance(measure, IntegerMeasure):
        return _truncated_series(f, measure, n, rng)
    survived = np.flatnonzero(rng.random(2 * n) < 0.5)
    x = measure.sample(2 * n, rng)
    y = np.zeros(2 * n)
    if len(survived):
        y[survived] = 2.0 * _evaluate(f, take(x, survived))
    return _average(np.exp(measure.log_mass) * y, len(survived))


def stratified(f: Function, measure: Measure, n: int, rng: Any = None) -> Estimate:
    """Sample each of several strata, in proportion to its mass.

    On the integers and on an interval the strata are n // 2 bins of equal probability between
    quantiles, with two draws in each (an integer on the border of two bins belongs to both, in
    part). On sites they are the states of the site drawn first; on a product, the strata of its
    first part.

    Parameters
    ----------
    f, measure, rng
        As for `monte_carlo`.
    n : int
        Number of draws, at least two for each stratum.

    Examples
    --------
    >>> from pymc_bayessum.measures import UniformCategorical
    >>> estimate = stratified(lambda x: x[:, 0], UniformCategorical(5, 3), 60, rng=1)
    >>> estimate.sd, round(estimate.mean, 12)
    (0.0, 1.0)
    """
    n = _checked(f, measure, n)
    x, stratum, share = _strata(measure, n, as_generator(rng))
    y = _evaluate(f, x)
    count = np.bincount(stratum, minlength=len(share))
    mean = np.bincount(stratum, y, minlength=len(share)) / count
    square = np.bincount(stratum, np.square(y - mean[stratum]), minlength=len(share))
    mass = float(np.exp(measure.log_mass))
    variance = float(np.sum(share**2 * square / (count * (count - 1.0))))
    return Estimate(mass * float(share @ mean), mass * np.sqrt(variance).item(), len(y))


def _truncated_series(
    f: Function, measure: IntegerMeasure, n: int, rng: np.random.Generator
) -> Estimate:
    certain, expected = (n + 1) // 2, n // 2
    survival = expected / (1.0 + expected)
    reached = int(rng.geometric(1.0 - survival)) - 1
    x = _outward(measure, certain + reached)
    terms = _evaluate(f, x) * np.exp(measure.log_prob(x))
    chance = survival ** np.arange(1.0, len(x) - certain + 1.0)
    late = terms[certain:]
    mean = float(terms[:certain].sum() + (late / chance).sum())
    # Var = sum_jk a_j a_k (1 / chance_min(j,k) - 1); term (j, k) is seen with chance_max(j,k).
    spread = late * (1.0 / chance - 1.0)
    earlier = np.cumsum(spread) - spread
    variance = float((late / chance * (spread + 2.0 * earlier)).sum())
    return Estimate(mean, np.sqrt(max(variance, 0.0)).item(), len(x))


def _outward(measure: IntegerMeasure, count: int) -> np.ndarray:
    """Return the integers of a support outwards from the mean: c, c + 1, c - 1, c + 2, ..."""
    low, high = measure.ends
    centre = int(np.clip(round(measure.mean), low, high))
    step = np.arange(2 * count + 1)
    spiral = centre + np.where(step % 2 == 1, (step + 1) // 2, -(step // 2))
    return spiral[(spiral >= low) & (spiral <= high)][:count]


def _strata(
    measure: Measure, n: int, rng: np.random.Generator
) -> tuple[Points, np.ndarray, np.ndarray]:
    """Draw points with their strata; return also the strata's shares of the mass."""
    if isinstance(measure, Product):
        x, stratum, share = _strata(measure.first, n, rng)
        return (x, measure.second.sample(len(stratum), rng)), stratum, share
    if isinstance(measure, UniformSpins):
        stratum = _allocate(np.full(2, 0.5), n)
        spins = measure.sample(len(stratum), rng)
        spins[:, 0] = 2 * stratum - 1
        return spins, stratum, np.full(2, 0.5)
    if isinstance(measure, SiteMeasure):
        return _site_strata(measure, n, rng)
    if not isinstance(measure, (IntegerMeasure, UniformInterval)):
        raise ValueError(
            f"measure has no strata here: integers, sites or an interval, got {measure}"
        )
    bins = n // 2
    stratum = np.repeat(np.arange(bins), 2)
    u = (stratum + rng.random(2 * bins)) / bins
    share = np.full(bins, 1.0 / bins)
    if isinstance(measure, UniformInterval):
        return measure.low + (measure.high - measure.low) * u, stratum, share
    listed = measure.integers()
    cdf = np.cumsum(np.exp(measure.log_prob(listed) - measure.log_mass))
    place = np.searchsorted(cdf, u * cdf[-1], side="right")
    return listed[np.minimum(place, len(listed) - 1)], stratum, share


def _site_strata(
    measure: SiteMeasure, n: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fix the first site of the measure's order, then draw the others given it."""
    first = int(measure.site_order[0])
    share = np.exp(measure.log_conditional(np.zeros((1, measure.n_sites), dtype=np.int64), 0))[0]
    states = np.flatnonzero(share > 0.0)
    share = share[states] / share[states].sum()
    stratum = _allocate(share, n)
    x = np.zeros((len(stratum), measure.n_sites), dtype=np.int64)
    x[:, first] = states[stratum]
    measure.fill(x, 1, rng)
    return x, stratum, share


def _allocate(share: np.ndarray, n: int) -> np.ndarray:
    """Strata of n draws in proportion to their shares, with two draws at least in each."""
    if n < 2 * len(share):
        raise ValueError(f"n must be at least two for each of {len(share)} strata, got {n}")
    count = np.maximum(np.floor(share * n).astype(int), 2)
    while count.sum() > n:
        count[np.argmax(count)] -= 1
    for stratum in np.argsort(-(share * n - count), kind="stable")[: n - count.sum()]:
        count[stratum] += 1
    return np.repeat(np.arange(len(share)), count)


def _checked(f: Function, measure: Measure, n: int) -> int:
    if not callable(f):
        raise TypeError(f"f must be a function of a batch of points, got {f!r}")
    require_measure("measure", measure)
    return integer("n", n, 2)


def _evaluate(f: Function, x: Points) -> np.ndarray:
    count = batch_size(x)
    y = np.asarray(f(x), dtype=float)
    if y.shape != (count,):
        raise ValueError(f"f must return one value for each of {count} points, got {y.shape}")
    if not np.isfinite(y).all():
        raise ValueError("f must return finite values, got NaN or infinity among them")
    return y


def _average(y: np.ndarray, n_evals: int) -> Estimate:
    return Estimate(float(y.mean()), float(y.std(ddof=1)) / np.sqrt(len(y)).item(), n_evals)
