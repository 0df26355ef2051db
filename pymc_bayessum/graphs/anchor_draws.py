"""Draws of a Potts model at a fixed parameter value, and the means of its statistics there.

Draws come from exact elimination where the graph allows one pass of it (which reaches further than
what a sampler of the posterior can afford at every step), otherwise from many parallel chains:
Gibbs, joined with Swendsen-Wang where all couplings reward agreement. Burn-in lasts until the mean
energy has stopped moving, and as long again; states are kept that many sweeps apart that energies
are nearly uncorrelated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from pymc_bayessum.graphs.bases import belief_propagation, tree_base
from pymc_bayessum.graphs.estimates import exact_plan
from pymc_bayessum.graphs.moments import (
    block_moments,
    conditionals,
    consistent,
    statistics_of_marginals,
    stein_gibbs_moments,
)
from pymc_bayessum.graphs.samplers import (
    is_ferromagnetic,
    sample_exact,
    sample_gibbs,
    sample_swendsen_wang,
)
from pymc_bayessum.graphs.statistics import PottsLayout
from pymc_bayessum.kernels import ExpHamming
from pymc_bayessum.rules.stein import stein_rule

__all__ = [
    "Draws",
    "MomentMethod",
    "Moments",
    "SamplerChoice",
    "anchor_moments",
    "draw_at",
]

#: Chains that are run side by side, at most.
CHAINS = 500
#: Sweeps after which burn-in ends whether energies have settled or not.
LONGEST_BURN_IN = 4000
#: Sweeps between states kept, at most.
LONGEST_SPACING = 30
#: Numbers of statistics up to which each is watched, beside the energy.
FEW_STATISTICS = 8
#: Decay of the kernel under the difference operator.
DIFFERENCE_DECAY = 0.01

SamplerChoice = Literal["exact", "swendsen-wang", "gibbs"]
MomentMethod = Literal["exact", "rao-blackwell", "stein", "difference", "plain"]
Progress = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Draws:
    """Draws of a model at one parameter value.

    Attributes
    ----------
    states : ndarray of int16, shape (N, L)
        States 0 .. S-1.
    chain : ndarray of int, shape (N,)
        Number of the chain each came from; draws of one chain stand together. Independent draws
        have a number each.
    sampler : {"exact", "swendsen-wang", "gibbs"}
    burn_in, thin : int
        Sweeps before the first state was kept, and between states kept.
    settled : bool
        Whether the mean energy had stopped moving when burn-in ended.
    """

    states: np.ndarray = field(repr=False)
    chain: np.ndarray = field(repr=False)
    sampler: SamplerChoice
    burn_in: int = 0
    thin: int = 1
    settled: bool = True

    def part(self, chains: np.ndarray) -> Draws:
        """Return the draws of some of the chains, the chains renumbered from zero."""
        kept = np.isin(self.chain, chains)
        _, number = np.unique(self.chain[kept], return_inverse=True)
        return Draws(self.states[kept], number, self.sampler, self.burn_in, self.thin, self.settled)


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean of the sufficient statistics at a parameter value.

    Attributes
    ----------
    mean : ndarray, shape (d,)
    batches : ndarray, shape (B, d)
        Estimates from disjoint sets of chains, whose spread tells the error of the mean; a single
        row when the mean is exact.
    method : str
    """

    mean: np.ndarray
    batches: np.ndarray = field(repr=False)
    method: MomentMethod


def choose_sampler(
    layout: PottsLayout, theta: np.ndarray, sampler: SamplerChoice | None
) -> SamplerChoice:
    """Check the name of a sampler, or choose the best for the graph and the couplings."""
    _, couplings = layout.unflatten(theta)
    ferromagnetic = is_ferromagnetic(layout, couplings)
    if sampler is None:
        if exact_plan(layout) is not None:
            return "exact"
        return "swendsen-wang" if ferromagnetic else "gibbs"
    if sampler not in get_args(SamplerChoice):
        raise ValueError(f"sampler must be one of {get_args(SamplerChoice)}, got {sampler!r}")
    if sampler == "swendsen-wang" and not ferromagnetic:
        raise ValueError("sampler='swendsen-wang' needs scalar or edge couplings of at least zero")
    if sampler == "exact" and exact_plan(layout) is None:
        raise ValueError("sampler='exact': the graph is too wide for elimination, use chains")
    return sampler


def draw_at(
    layout: PottsLayout,
    theta: np.ndarray,
    n: int,
    rng: np.random.Generator,
    *,
    sampler: SamplerChoice | None = None,
    start: np.ndarray | None = None,
    n_chains: int | None = None,
) -> Draws:
    """Draw at one parameter value.

    Parameters
    ----------
    layout : PottsLayout
    theta : ndarray, shape (d,)
    n : int
        Number of draws, rounded up to a multiple of the chains.
    rng : numpy.random.Generator
    sampler : {"exact", "swendsen-wang", "gibbs"}, optional
        The best one by default.
    start : ndarray of int, shape (C, L), optional
        First states 0 .. S-1 of the chains (repeated as needed); by default draws of a tree fitted
        to the model.
    n_chains : int, optional
        By default 500, or fewer when there are few draws to make.

    Returns
    -------
    Draws

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum import graphs
    >>> layout = PottsLayout(9, 2, graphs.grid(3, 3), "none", "scalar")
    >>> draws = draw_at(layout, np.array([0.4]), 200, np.random.default_rng(0), sampler="gibbs")
    >>> draws.states.shape, draws.settled
    ((200, 9), True)
    """
    name = choose_sampler(layout, theta, sampler)
    h, J = layout.unflatten(theta)
    if name == "exact":
        states = layout.encode(sample_exact(layout, h, J, n, rng)).astype(np.int16)
        return Draws(states, np.arange(n), "exact")
    chains = min(CHAINS, max(50, n // 10)) if n_chains is None else n_chains
    if start is None:
        fields, couplings = layout.expand(h, J)
        beliefs = belief_propagation(fields, couplings, layout.edges, max_sweeps=100)
        states = tree_base(beliefs.sites, beliefs.pairs, layout.edges).sample(chains, rng)
    else:
        states = start[np.arange(chains) % len(start)].astype(np.int64)

    def advance(states: np.ndarray, sweeps: int) -> np.ndarray:
        now = layout.decode(states)
        if name == "gibbs":
            return layout.encode(sample_gibbs(layout, h, J, chains, sweeps, rng, start=now))
        for _ in range(sweeps):
            now = sample_swendsen_wang(layout, h, J, chains, 1, rng, start=now)
            now = sample_gibbs(layout, h, J, chains, 1, rng, start=now)
        return layout.encode(now)

    def summary(states: np.ndarray) -> np.ndarray:
        """Energy, and the statistics themselves where they are few: fields may move slower."""
        values = layout.decode(states)
        energy = layout.energy(values, h, J)[:, None]
        if layout.n_parameters > FEW_STATISTICS:
            return energy
        return np.concatenate([energy, layout.statistics(values)], axis=1)

    states, burn_in, settled = _burn_in(advance, summary, states)
    states, thin = _spacing(advance, summary, states)
    kept = []
    for _ in range(-(-n // chains)):
        states = advance(states, thin)
        kept.append(states.astype(np.int16))
    stacked = np.stack(kept, axis=1).reshape(-1, layout.n_sites)
    return Draws(stacked, np.repeat(np.arange(chains), len(kept)), name, burn_in, thin, settled)


def _burn_in(
    advance: Callable[[np.ndarray, int], np.ndarray],
    summary: Callable[[np.ndarray], np.ndarray],
    states: np.ndarray,
) -> tuple[np.ndarray, int, bool]:
    """Run until the means over chains no longer move, and as long again."""
    done, block, calm = 0, 10, 0
    before = summary(states)
    while done < LONGEST_BURN_IN // 2 and calm < 2:
        states = advance(states, block)
        done += block
        after = summary(states)
        noise = np.sqrt((before.var(axis=0) + after.var(axis=0)) / len(states)) + 1e-12
        moved = np.abs(after.mean(axis=0) - before.mean(axis=0)) / noise
        calm = calm + 1 if moved.max() < 2.5 else 0
        before = after
        if done >= 10 * block:
            block *= 2
    return advance(states, done), 2 * done, calm >= 2


def _spacing(
    advance: Callable[[np.ndarray, int], np.ndarray],
    summary: Callable[[np.ndarray], np.ndarray],
    states: np.ndarray,
) -> tuple[np.ndarray, int]:
    """Find the number of sweeps after which a chain has nearly forgotten where it was."""
    first = summary(states)
    first = first - first.mean(axis=0)
    for sweeps in range(1, LONGEST_SPACING + 1):
        states = advance(states, 1)
        now = summary(states)
        now = now - now.mean(axis=0)
        spread = np.sqrt((first**2).sum(axis=0) * (now**2).sum(axis=0))
        if ((first * now).sum(axis=0) <= 0.2 * spread).all():
            return states, sweeps
    return states, LONGEST_SPACING


def anchor_moments(
    layout: PottsLayout,
    theta: np.ndarray,
    draws: Draws,
    *,
    method: MomentMethod | None = None,
    n_batches: int = 10,
    n_stein: int = 2000,
) -> Moments:
    """Estimate the mean of the statistics at the parameters the draws were made at.

    Parameters
    ----------
    layout : PottsLayout
    theta : ndarray, shape (d,)
    draws : Draws
    method : {"exact", "rao-blackwell", "stein", "difference", "plain"}, optional
        ``"exact"``: by elimination. ``"rao-blackwell"``: both ends of each edge summed out.
        ``"stein"``: control functionals of the Gibbs operator on top of that, cross-fitted.
        ``"difference"``: weights of Stein BayesSum with the difference operator. ``"plain"``:
        averages. By default exact where the graph allows it, else Rao-Blackwellised.
    n_batches : int
        Sets of chains whose separate estimates tell the error.
    n_stein : int
        Draws used by the two Stein methods, whose cost grows with their cube.

    Returns
    -------
    Moments

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum import graphs
    >>> layout = PottsLayout(9, 2, graphs.grid(3, 3), "none", "scalar")
    >>> theta = np.array([0.4])
    >>> draws = draw_at(layout, theta, 200, np.random.default_rng(0), sampler="gibbs")
    >>> found = anchor_moments(layout, theta, draws, method="rao-blackwell")
    >>> exact = anchor_moments(layout, theta, draws).mean
    >>> bool(np.abs(found.mean - exact).max() < 0.2)
    True
    """
    if method is None:
        method = "rao-blackwell" if exact_plan(layout) is None else "exact"
    if method not in get_args(MomentMethod):
        raise ValueError(f"moments must be one of {get_args(MomentMethod)}, got {method!r}")
    h, J = layout.unflatten(theta)
    fields, couplings = layout.expand(h, J)
    if method == "exact":
        plan = exact_plan(layout)
        if plan is None:
            raise ValueError("moments='exact': the graph is too wide for elimination")
        _, sites, pairs = plan.marginals(fields, couplings)
        mean = statistics_of_marginals(layout, sites, pairs)
        return Moments(mean, mean[None], method)
    if method == "difference":
        # Half of the draws each: the spread of the two tells the error, if with little certainty.
        parts = np.array_split(_spread(draws.states, n_stein), 2)
        halves = np.stack([_difference_mean(layout, h, J, part) for part in parts])
        whole = _difference_mean(layout, h, J, np.concatenate(parts))
        return Moments(whole, halves, method)
    n_batches = min(n_batches, int(draws.chain.max()) + 1)
    batch = draws.chain % n_batches
    if method == "plain":
        batches = np.stack(
            [
                layout.mean_statistics(layout.decode(draws.states[batch == number]))
                for number in range(n_batches)
            ]
        )
        return Moments(_weighted(batches, batch), batches, method)
    sites, pairs = block_moments(draws.states, fields, couplings, layout.edges, batch)
    batches = statistics_of_marginals(layout, *consistent(sites, pairs, layout.edges))
    if method == "rao-blackwell":
        return Moments(_weighted(batches, batch), batches, method)
    states = _spread(draws.states, n_stein)
    sites, pairs = block_moments(states, fields, couplings, layout.edges, np.arange(len(states)))
    values = statistics_of_marginals(layout, *consistent(sites, pairs, layout.edges))
    probs = conditionals(states, fields, couplings, layout.edges)
    rest, _ = stein_gibbs_moments(states, values, probs)
    batches = np.stack([part.mean(axis=0) for part in np.array_split(rest, n_batches)])
    return Moments(rest.mean(axis=0), batches, method)


def _difference_mean(layout: PottsLayout, h: Any, J: Any, states: np.ndarray) -> np.ndarray:
    nodes = np.unique(states, axis=0)
    rule = stein_rule(
        ExpHamming(DIFFERENCE_DECAY),
        lambda x: layout.energy(layout.decode(x), h, J),
        nodes,
        layout.n_states,
    )
    return rule.weights @ layout.statistics(layout.decode(nodes))


def _spread(states: np.ndarray, n: int) -> np.ndarray:
    """At most n of the states, evenly spread."""
    if len(states) <= n:
        return states
    return states[np.linspace(0, len(states) - 1, n).astype(int)]


def _weighted(batches: np.ndarray, batch: np.ndarray) -> np.ndarray:
    share = np.bincount(batch) / len(batch)
    return share @ batches
