"""Points of the posterior that an anchored rule leads to, by Hamiltonian Monte Carlo.

Chains side by side, in coordinates in which the posterior is nearly standard normal: each step is
two matrix products. A normal approximation would not do in many dimensions: where log Z bends
upward faster than a parabola, as near a transition, it puts points that the posterior never visits.
"""

from collections.abc import Iterator

import numpy as np
from scipy.special import logsumexp

from pymc_bayessum.normalizers.anchored.averages import SET
from pymc_bayessum.normalizers.anchored.climbing import Data, NormalPrior
from pymc_bayessum.normalizers.anchored.laplace import Expanded
from pymc_bayessum.normalizers.anchored.rule import Anchored

__all__ = ["posterior_sets"]

#: Length of a step and number of them, for standard normals of hundreds of dimensions.
STEP, STEPS = 0.35, 7
#: Moves before the first points, and in a set of them.
WARM_UP, MOVES = 20, 2
#: Chains.
CHAINS = SET // MOVES


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
