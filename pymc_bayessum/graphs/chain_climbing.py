r"""Climbing to the mode of a Potts posterior with chains that go on while the parameters move.

The slope of the log-posterior is :math:`n (\bar t - E_\theta[t]) - (\theta - \mu) / \sigma^2`. Its
mean is estimated from Gibbs chains that are never started anew (Tieleman, "Training restricted
Boltzmann machines using approximations to the likelihood gradient", 2008), one end of each edge
summed out given the rest. Steps are taken in rounds. At the end of each the parameters are averaged
and held while chains go on: the slope that is left there says how far the mode still is. Nothing is
longer than the parameters, so half a million of them are no obstacle.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from pymc_bayessum.graphs.centring import Centring, centring
from pymc_bayessum.graphs.conditional_sums import conditional_sums
from pymc_bayessum.graphs.moments import consistent, statistics_of_marginals
from pymc_bayessum.graphs.samplers import GraphChain
from pymc_bayessum.graphs.statistics import PottsLayout
from pymc_bayessum.interrupts import Interrupted

__all__ = ["ChainClimb", "Posterior", "climb_by_chains", "look", "pearson"]

#: Steps of a round: this over their size, after which their noise is forgotten; and at most.
ROUND, MOST_STEPS = 4.0, 640
#: Sweeps of the chains before each.
SWEEPS = 2
#: Times chains are looked at while parameters are held.
LOOKS = 10
#: A slope that is left of so many posterior sds ends the climb,
TOLERANCE = 0.1
#: one that shrinks by less than this factor in a round halves the step,
SLOW = 0.7
#: and one that grows by so much sends the climb back.
WORSE = 2.0


@dataclass(frozen=True, eq=False)
class Posterior:
    """What is climbed: weighted data, and priors of independent parameters.

    Frequencies of sites (L, S) and pairs (E, S, S) in the data, the sum of their weights, and means
    and variances (d,) of normal priors; that of each coupling table has a factor
    ``exp(-group_rate * norm)`` besides.
    """

    layout: PottsLayout
    sites: np.ndarray
    pairs: np.ndarray
    n_rows: float
    mean: np.ndarray
    variance: np.ndarray
    group_rate: float

    @cached_property
    def scaled(self) -> Centring:
        """Directions in which it bends about equally."""
        layout = self.layout
        found = centring(layout, self.sites, self.pairs, self.n_rows, 1.0 / self.variance)
        if not self.group_rate:
            return found
        # A table shrinks towards zero as one, so all of it has steps of one length.
        h, J = layout.unflatten(found.scale)
        alike = 1.0 / np.sqrt((1.0 / J**2).mean(axis=(1, 2), keepdims=True))
        J = np.broadcast_to(alike, J.shape)
        return replace(found, scale=layout.flatten(h, J), unseen=np.empty(0))

    def slope(self, theta: np.ndarray, sites: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        """Return that of the log-posterior without its group part, given the model's marginals."""
        sites, pairs = self.sites - sites, self.pairs - pairs
        data = self.n_rows * statistics_of_marginals(self.layout, sites, pairs)
        return data - (theta - self.mean) / self.variance

    def step(self, theta: np.ndarray, slope: np.ndarray, size: float) -> np.ndarray:
        """Return theta after a step up the slope, and towards zero by the group prior."""
        moved = theta + size * self.scaled.lift(self.scaled.drop(slope))
        if not self.group_rate:
            return moved
        _, J = self.layout.unflatten(moved)
        _, scale = self.layout.unflatten(self.scaled.scale)
        threshold = size * self.group_rate * scale[:, 0, 0] ** 2
        norm = np.sqrt((J**2).sum(axis=(1, 2)))
        kept = np.where(norm > threshold, 1.0 - threshold / np.maximum(norm, threshold), 0.0)
        change = np.zeros(self.scaled.size)
        change[self.layout.n_field :] = ((kept[:, None, None] - 1.0) * J / scale).ravel()
        moved = moved + self.scaled.lift(change)
        # Exactly zero, not up to rounding.
        moved[self.layout.n_field :].reshape(J.shape)[kept == 0.0] = 0.0
        return moved

    def residual(self, theta: np.ndarray, slope: np.ndarray, size: float) -> np.ndarray:
        """Return the slope in posterior sds; that of the group prior included."""
        left = self.scaled.drop(slope)[: len(theta)]
        if self.group_rate:
            n_field = self.layout.n_field
            moved = (self.step(theta, slope, size) - theta)[n_field:]
            left[n_field:] = moved / (size * self.scaled.scale[n_field:])
        return left


@dataclass(frozen=True, eq=False)
class ChainClimb:
    """Where a climb is, and all it needs to go on.

    Chains that started from data stand at even places of the states (M, L). Steps of size one are
    those of Newton's method where sites are independent; the error is the slope left at theta (d,),
    in posterior sds, and ``pearson`` the correlation of connected statistics of data and model.
    """

    theta: np.ndarray
    states: np.ndarray
    step: float
    error: float = np.inf
    history: tuple[dict[str, Any], ...] = ()
    pearson: float = 0.0
    converged: bool = False


def pearson(
    layout: PottsLayout, one: tuple[np.ndarray, np.ndarray], two: tuple[np.ndarray, np.ndarray]
) -> float:
    """Correlate the connected statistics of edges between two sets of marginals, sites and pairs.

    Zero where one of them has nothing that varies.
    """
    first, second = layout.edges.T
    parts = [
        (pairs - sites[first, :, None] * sites[second, None, :]).ravel()
        for sites, pairs in (one, two)
    ]
    if not all(np.linalg.norm(part - part.mean()) > 1e-12 for part in parts):
        return 0.0
    return float(np.corrcoef(parts)[0, 1])


class _Chains(GraphChain):
    """Chains of a model, and the marginals they say it has."""

    def __init__(self, layout: PottsLayout, theta: np.ndarray):
        super().__init__(layout, *layout.unflatten(theta), "gibbs")

    def marginals(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        edges, share = self.layout.edges, np.full(len(states), 1.0 / len(states))
        sums = conditional_sums(states, share, *self.layout.expand(self.h, self.J), edges)
        return consistent(sums.sites, 0.5 * sums.pairs, edges)

    def disagreement(self, states: np.ndarray) -> float:
        """Difference of the mean energies of chains from data and of others, in its error."""
        energy = self.energy(states)
        groups = energy[::2], energy[1::2]
        error = np.sqrt(sum(group.var() / len(group) for group in groups))
        return float((groups[0].mean() - groups[1].mean()) / max(error, 1e-300))


def _climb(
    target: Posterior, at: ChainClimb, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Take the steps of a round; return the mean over its second half, and the chains."""
    theta, states, total = at.theta, at.states, np.zeros(len(at.theta))
    n_steps = min(MOST_STEPS, round(ROUND / at.step))
    for step in range(n_steps):
        chains = _Chains(target.layout, theta)
        states = chains.advance(states, SWEEPS, rng)
        theta = target.step(theta, target.slope(theta, *chains.marginals(states)), at.step)
        if step >= n_steps // 2:
            total += theta
    mean = total / (n_steps - n_steps // 2)
    if target.group_rate:
        n_field = target.layout.n_field
        mean[n_field:][theta[n_field:] == 0.0] = 0.0
    return mean, states


def look(
    target: Posterior, at: ChainClimb, rng: np.random.Generator
) -> tuple[ChainClimb, dict[str, float]]:
    """Hold the parameters; return the climb with the slope that is left, and the news of it."""
    theta, states = at.theta, at.states
    chains = _Chains(target.layout, theta)
    halves: list[Any] = []
    for _ in range(2):
        # Halves that share no draws: what they have in common is then the slope.
        states = chains.advance(states, LOOKS * SWEEPS, rng)
        parts = []
        for _ in range(LOOKS // 2):
            states = chains.advance(states, SWEEPS, rng)
            parts.append(chains.marginals(states))
        halves.append([np.mean(part, axis=0) for part in zip(*parts, strict=True)])
    left = [target.residual(theta, target.slope(theta, *half), at.step) for half in halves]
    # Where no slope is left the sign is chance, and the size still says what could be seen.
    error = float(np.sqrt(abs(np.mean(left[0] * left[1]))))
    both = tuple(0.5 * (one + two) for one, two in zip(*halves, strict=True))
    alike = pearson(target.layout, (target.sites, target.pairs), both)
    news = {"error": error, "pearson": alike, "disagreement": chains.disagreement(states)}
    return replace(at, states=states, error=error, pearson=alike), news


def climb_by_chains(
    target: Posterior,
    start: ChainClimb,
    rng: np.random.Generator,
    *,
    max_rounds: int,
    report: Callable[[str], None] = lambda news: None,
) -> ChainClimb:
    """Climb until the slope that is left is small, round by round, to the best place seen.

    The start has its error, as :func:`look` returns it; the news of each round are reported in
    words.
    """
    best = start
    for _ in range(max_rounds):
        began = time.perf_counter()
        try:
            theta, states = _climb(target, best, rng)
            here, news = look(target, replace(best, theta=theta, states=states), rng)
        except KeyboardInterrupt:
            told = f"the best of {len(best.history)} rounds is .partial"
            raise Interrupted(told, best) from None
        seconds = time.perf_counter() - began
        history = (*best.history, {"step": best.step, **news, "seconds": seconds})
        report(f"slope left {here.error:.2f} sd, Pearson {here.pearson:.3f}")
        if not here.error < WORSE * best.error:
            best = replace(best, step=best.step / 4.0, history=history)
            continue
        slow = here.error > SLOW * best.error
        agree = abs(news["disagreement"]) < 4.0
        best = replace(
            here,
            step=best.step / 2.0 if slow else best.step,
            history=history,
            converged=here.error < TOLERANCE and agree,
        )
        if best.converged:
            break
    return best
