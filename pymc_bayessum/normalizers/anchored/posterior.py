r"""The posterior of many parameters that an anchored rule leads to: expanded, and drawn.

With the slope g and the precision :math:`\Sigma^{-1}` of the log-posterior at the anchor and the
third cumulants :math:`\kappa_{ijk}` of the statistics there, the posterior mean is, to the first
order beyond Laplace's approximation (Tierney and Kadane, 1986),

.. math:: E[c] = c_0 + \Sigma \Big(g - \frac n2 \sum_{jk} \kappa_{\cdot jk} \Sigma_{jk}\Big),

and the third cumulants enter through :math:`E[\phi\, (\phi^\top \Sigma \phi)]` of centred
statistics, one sum over draws.

Points are drawn by Hamiltonian Monte Carlo, chains side by side, in coordinates in which the
posterior is nearly standard normal: each step is two matrix products. A normal approximation would
not do in many dimensions: where log Z bends upward faster than a parabola, as near a transition, it
puts points that the posterior never visits.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from pymc_bayessum.normalizers.anchored.averages import SET
from pymc_bayessum.normalizers.anchored.climbing import Data, NormalPrior
from pymc_bayessum.normalizers.anchored.rule import Anchored

__all__ = ["Expanded", "laplace_mean", "posterior_sets", "rare_point"]

#: Rows that would show a statistic, in variance, below which it is rare;
RARE_ROWS = 30.0
#: and posterior sds by which its parameter is raised.
RAISE = 2.0
#: Length of a step and number of them, for standard normals of hundreds of dimensions.
STEP, STEPS = 0.35, 7
#: Moves before the first points, and in a set of them.
WARM_UP, MOVES = 20, 2
#: Chains.
CHAINS = SET // MOVES


class Expanded(NamedTuple):
    """A posterior near an anchor: its mean (r,) and its inverse covariance (r, r)."""

    mean: np.ndarray
    precision: np.ndarray


def laplace_mean(rule: Anchored, data: Data, prior: NormalPrior) -> Expanded:
    """Return the posterior mean as seen from the anchor of a rule."""
    anchor = rule.coordinates.of(rule.centre)
    mean, spread = rule.mean_and_covariance(anchor)
    precision = data.n_rows * spread + prior.precision
    slope = data.n_rows * (rule.coordinates.select @ data.mean - mean)
    slope -= prior.precision @ (anchor - prior.mean)
    share = rule.nodes.share(anchor)
    away = rule.nodes.rows - share @ rule.nodes.rows
    squares = np.sum(away * np.linalg.solve(precision, away.T).T, axis=1)
    skewed = (share * (squares - share @ squares)) @ away
    step = np.linalg.solve(precision, slope - 0.5 * data.n_rows * skewed)
    return Expanded(anchor + step, precision)


def rare_point(
    rule: Anchored, about: Expanded, data: Data, prior: NormalPrior
) -> np.ndarray | None:
    """Return a point at which what is rare at the anchor is drawn more often; None if nothing is.

    A statistic that hardly varies (a category nobody chose) is hardly among the draws at the
    anchor, yet its parameter is free to grow until it is no longer rare.
    """
    share = rule.nodes.share(rule.coordinates.of(rule.centre))
    away = rule.nodes.rows - share @ rule.nodes.rows
    rare = data.n_rows * (share @ away**2) < RARE_ROWS
    if not rare.any():
        return None
    # Towards where it varies more; what was not drawn at all has been driven out by data.
    skewed = share @ away**3
    towards = np.sign(np.where(skewed == 0.0, prior.mean - about.mean, skewed))
    sds = np.sqrt(np.diag(np.linalg.inv(about.precision)))
    return about.mean + np.where(rare, RAISE * towards * sds, 0.0)


def posterior_sets(
    rule: Anchored, data: Data, prior: NormalPrior, about: Expanded, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Yield sets of points, shape (S, r), those of one chain next to each other.

    ``about`` is a normal approximation, for scales and first points.
    """
    root = np.linalg.cholesky(np.linalg.inv(about.precision))
    target = rule.coordinates.select @ data.mean
    anchor = rule.coordinates.of(rule.centre)
    rows, weights = rule.nodes.rows, rule.nodes.log_weights

    def log_density(standard: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        points = about.mean + standard @ root.T
        terms = points @ rows.T + weights
        level = logsumexp(terms, axis=1)
        np.exp(terms - level[:, None], out=terms)
        away = (points - prior.mean) @ prior.precision
        log_z = level + (points - anchor) @ rule.slope.shift
        value = data.n_rows * (points @ target - log_z)
        value -= 0.5 * np.sum(away * (points - prior.mean), axis=1)
        slope = data.n_rows * (target - terms @ rows - rule.slope.shift) - away
        return value, slope @ root

    # Half the spread: no chain starts where the posterior never is.
    now = 0.5 * rng.normal(size=(CHAINS, len(root)))
    value, slope = log_density(now)
    drawn: list[np.ndarray] = []
    for move in range(10**9):
        speed = rng.normal(size=now.shape)
        energy = value - 0.5 * np.sum(speed**2, axis=1)
        length = STEP * rng.uniform(0.8, 1.2)
        there, slope_there = now, slope
        for _ in range(STEPS):
            speed = speed + 0.5 * length * slope_there
            there = there + length * speed
            value_there, slope_there = log_density(there)
            speed = speed + 0.5 * length * slope_there
        gain = value_there - 0.5 * np.sum(speed**2, axis=1) - energy
        taken = np.log(rng.random(CHAINS)) < np.nan_to_num(gain, nan=-np.inf)
        now, slope = (
            np.where(taken[:, None], new, old) for new, old in ((there, now), (slope_there, slope))
        )
        value = np.where(taken, value_there, value)
        if move >= WARM_UP:
            drawn.append(about.mean + now @ root.T)
        if len(drawn) == MOVES:
            yield np.stack(drawn, axis=1).reshape(-1, len(root))
            drawn = []
