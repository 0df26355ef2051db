r"""Means and covariances of statistics averaged over a posterior, and rules put right by them.

A posterior :math:`p(c) \propto e^{n (c \cdot \bar t - \log Z(c))} p_0(c)` of many
parameters that is nearly normal has the mean and the covariance that solve

.. math:: n\,(\bar t - E[\nabla \log Z(c)]) + E[\nabla \log p_0(c)] = 0, \qquad
          \Sigma^{-1} = n\, E[\nabla^2 \log Z(c)] - E[\nabla^2 \log p_0(c)],

expectations over the posterior itself (Stein's identities of the normal distribution). And
:math:`E[\nabla \log Z]` is the mean of the statistics of draws from the model, one for each draw of
the parameters, :math:`E[\nabla^2 \log Z]` their mean covariance. So a rule whose gradient and
curvature have the same averages leads to the right posterior means and sds, to first order,
whatever its draws miss elsewhere. That takes no more than statistics of many draws, which need not
be kept.
"""

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from pymc_bayessum.executors import in_order
from pymc_bayessum.normalizers.anchored.draws import N_BATCHES
from pymc_bayessum.normalizers.anchored.mixture import stretched
from pymc_bayessum.normalizers.anchored.moments import Moments
from pymc_bayessum.normalizers.anchored.rule import Anchored, Slope
from pymc_bayessum.normalizers.coordinates import Coordinates
from pymc_bayessum.normalizers.family import Family
from pymc_bayessum.threads import in_threads

__all__ = [
    "Averages",
    "averages_until",
    "balanced",
    "curvature_of",
    "gradients",
    "model_averages",
]

#: Points in a set, in batches of neighbours.
SET = 100
#: Chains at each point,
CHAINS = 50
#: spacings, of draws that are nearly independent, in which they forget where they came from,
BURN_IN = 10
#: and draws of each of them.
ROUNDS = 10
#: A small target: with a larger one draws need not be many more than points.
FINE = 0.012
#: Draws for each parameter that tell the curvature.
CURVATURE_EACH = 800
#: Draws at which the target is given up.
MOST_DRAWS = 2_000_000
#: Times the target that would be left then, from which on it is given up at once.
HOPELESS = 4.0
#: Points at which a rule is evaluated together.
AT_A_TIME = 50


class Averages(NamedTuple):
    """Statistics of a model at points (S, r) of a posterior.

    Their means at each (S, r), the mean over the points of the covariance at each (r, r), and the
    numbers of draws behind the means and behind the covariance.
    """

    points: np.ndarray
    means: np.ndarray
    covariance: np.ndarray
    n_draws: int
    n_bends: int

    def joined(self, other: "Averages") -> "Averages":
        """Return the averages of both."""
        n_bends = self.n_bends + other.n_bends
        bend = self.n_bends * self.covariance + other.n_bends * other.covariance
        return Averages(
            np.concatenate([self.points, other.points]),
            np.concatenate([self.means, other.means]),
            bend / n_bends,
            self.n_draws + other.n_draws,
            n_bends,
        )


def model_averages(
    family: Family,
    points: np.ndarray,
    coordinates: Coordinates,
    *,
    rounds: int,
    thin: int,
    start: np.ndarray,
    rng: np.random.Generator,
    bends: bool = True,
    executor: Executor | None = None,
) -> Averages:
    """Draw from a model at points (S, r) of a posterior, and average.

    So many rounds of draws of each chain, ``thin`` sweeps between them, from states drawn near the
    points; ``bends`` asks for the covariance, too. An executor takes sets of points side by side.
    """
    sets = np.array_split(np.arange(len(points)), min(N_BATCHES, len(points)))
    average = partial(_averages_at, family, points, coordinates, rounds, thin, start, bends)
    parts = list(zip(sets, rng.spawn(len(sets)), strict=True))
    # Moves of ours are compiled; what else a family does may not be meant for several threads.
    threaded = executor is None and hasattr(family, "moves")
    found = in_threads(average, parts) if threaded else in_order(average, parts, executor)
    means, bend = zip(*found, strict=True)
    n_draws = len(points) * rounds * CHAINS
    covariance = np.sum(bend, axis=0) / len(points)
    return Averages(points, np.concatenate(means), covariance, n_draws, n_draws if bends else 0)


def _averages_at(
    family: Family,
    points: np.ndarray,
    coordinates: Coordinates,
    rounds: int,
    thin: int,
    start: np.ndarray,
    bends: bool,
    chosen: tuple[np.ndarray, np.random.Generator],
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean statistics at some of the points, (s, r), and the sum of the covariances."""
    places, rng = chosen
    size = coordinates.size
    means, bend = [], np.zeros((size, size))
    moves = getattr(family, "moves", getattr(family, "chain", None))
    for number in places:
        theta = coordinates.parameters(points[number])
        chain = None if moves is None else moves(theta)
        states = start[(number * CHAINS + np.arange(CHAINS)) % len(start)]
        if chain is not None:
            states = chain.advance(states, BURN_IN * thin, rng)
        drawn = []
        for _ in range(rounds):
            if chain is None:
                states = family.sample(theta, CHAINS, rng, states)
            else:
                states = chain.advance(states, thin, rng)
            drawn.append(states)
        every = np.concatenate(drawn)
        if bends or not hasattr(family, "conditional_means"):
            rows = coordinates.rows(family.statistics(every))[0]
        if bends:
            bend += np.cov(rows, rowvar=False).reshape(size, size)
        if hasattr(family, "conditional_means"):
            full = family.conditional_means(theta, every, np.zeros(len(every), dtype=np.int64))
            means.append(coordinates.select @ full[0])
        else:
            means.append(rows.mean(axis=0))
    return np.stack(means), bend


def averages_until(
    rule: Anchored,
    sets: Iterator[np.ndarray],
    precision: np.ndarray,
    n_rows: float,
    target: float,
    *,
    thin: int,
    start: np.ndarray,
    rng: np.random.Generator,
    n_bends: int,
    executor: Executor | None = None,
) -> tuple[Averages, float]:
    """Average over sets of points until what is left of error in the posterior mean is small.

    That is the error of the mean that the averages leave beside a rule, in sds, root mean square
    over directions of the posterior, whose inverse covariance is ``precision``; it is returned
    with them. Sets are a hundred points each, those that are correlated next to each other. Draws
    are those of :func:`model_averages`, at least ``n_bends`` of them for the covariance.
    """
    # With many rows the noise of draws outweighs what points of the posterior differ by.
    rounds = int(np.clip(n_rows * (FINE / target) ** 2 / 50, ROUNDS, 10 * ROUNDS))
    found: Averages | None = None
    lacking: list[np.ndarray] = []
    while True:
        new = model_averages(
            rule.family, next(sets), rule.coordinates, rounds=rounds, thin=thin, start=start,
            rng=rng, bends=found is None or found.n_bends < n_bends, executor=executor,
        )  # fmt: skip
        found = new if found is None else found.joined(new)
        lacking.append(_left(rule, new))
        error = _mean_error(np.mean(lacking, axis=0), precision, n_rows)
        enough = error <= target and found.n_bends >= n_bends
        # The error falls with the root of the draws; if it cannot fall far enough no more are made.
        hopeless = error * np.sqrt(found.n_draws / MOST_DRAWS) > HOPELESS * target
        if enough or hopeless or found.n_draws >= MOST_DRAWS:
            return found, error


def gradients(rule: Anchored, points: np.ndarray) -> np.ndarray:
    """Gradients of log Z at coordinates, (S, r)."""
    return np.concatenate([shares @ rule.nodes.rows for shares in _shares(rule, points)]) + (
        rule.slope.shift
    )


def _shares(rule: Anchored, points: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the weights of the nodes at points, (s, N), some points at a time."""
    for part in np.array_split(points, -(-len(points) // AT_A_TIME)):
        yield softmax(part @ rule.nodes.rows.T + rule.nodes.log_weights, axis=1)


def _left(rule: Anchored, averages: Averages) -> np.ndarray:
    """Return what the gradients of a rule lack, in batches of points, (B, r)."""
    left = averages.means - gradients(rule, averages.points)
    return left.reshape(-1, N_BATCHES, SET // N_BATCHES, left.shape[1]).mean(axis=(0, 2))


def _mean_error(batches: np.ndarray, precision: np.ndarray, n_rows: float) -> float:
    """Error of a posterior mean, in sds, rms over directions, from batches of what gradients lack.

    A gradient that is off by s moves the mean by n C s: in sds, squared, n^2 s'C s.
    """
    n = len(batches)
    spread = (batches - batches.mean(axis=0)) / np.sqrt(n * (n - 1.0))
    moved = np.sum(spread * np.linalg.solve(precision, spread.T).T)
    return float(n_rows * np.sqrt(moved / spread.shape[1]))


def curvature_of(rule: Anchored, averages: Averages) -> np.ndarray:
    """Mean over points of the second derivative of a rule's log Z, (r, r).

    Mean squares of the statistics less squares of their means: one sum over the nodes for all
    points together.
    """
    centre = rule.nodes.rows.mean(axis=0)
    rows, means, total = rule.nodes.rows - centre, [], np.zeros(len(rule.nodes.rows))
    for shares in _shares(rule, averages.points):
        total += shares.sum(axis=0)
        means.append(shares @ rows)
    every = np.concatenate(means)
    return (rows.T @ (total[:, None] * rows) - every.T @ every) / len(every)


def balanced[A: Anchored](rule: A, averages: Averages) -> A:
    """Give a rule of one anchor the gradient and the curvature of the model's own averages."""
    coordinates, anchor = rule.coordinates, rule.coordinates.of(rule.centre)
    bend = curvature_of(rule, averages)
    rule = replace(rule, nodes=stretched(rule.nodes, anchor, bend, averages.covariance))
    left = _left(rule, averages)
    # At the anchor the mean is what makes the averages right, not what draws there would say.
    lift = np.linalg.pinv(coordinates.select)
    here = rule.mean_and_covariance(anchor)[0]
    away = here + left - coordinates.select @ rule.moments.mean
    batches = rule.moments.mean + away @ lift.T
    return replace(
        rule,
        slope=Slope(rule.slope.shift + left.mean(axis=0), 1.0),
        moments=Moments(batches.mean(axis=0), batches, "posterior"),
    )
