"""Markov chains of families that are known by their statistics alone."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numba import njit
from numba.core.errors import NumbaError, NumbaWarning

__all__ = ["ProposalChain", "SiteChain", "compiled_metropolis"]


@dataclass(frozen=True, eq=False)
class SiteChain:
    """Parallel Gibbs chains that evaluate the statistics (N, d) of all states (N, L) of a site."""

    statistics: Callable[[np.ndarray], np.ndarray]
    sites: int
    n_states: int
    theta: np.ndarray

    name = "gibbs"

    def start(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Sites independent of one another and equally likely in all states."""
        return rng.integers(0, self.n_states, (n, self.sites))

    def advance(self, states: np.ndarray, sweeps: int, rng: np.random.Generator) -> np.ndarray:
        """Return the states some sweeps later: all chains' choices for a site are one call."""
        states = states.copy()
        for _ in range(sweeps):
            for site in range(self.sites):
                choices = np.repeat(states, self.n_states, axis=0)
                choices[:, site] = np.tile(np.arange(self.n_states), len(states))
                energy = (self.statistics(choices) @ self.theta).reshape(len(states), -1)
                # The largest of energies with Gumbel noise is a draw in their proportion.
                states[:, site] = np.argmax(energy + rng.gumbel(size=energy.shape), axis=1)
        return states


def _metropolis(propose, statistics, theta, states, steps, rng):
    for chain in range(len(states)):
        state = states[chain].copy()
        energy = 0.0
        now = statistics(state.reshape((1, -1)))[0]
        for k in range(len(theta)):
            energy += theta[k] * now[k]
        for _ in range(steps):
            proposed = propose(state.copy(), rng)
            then = statistics(proposed.reshape((1, -1)))[0]
            other = 0.0
            for k in range(len(theta)):
                other += theta[k] * then[k]
            if other >= energy or rng.random() < np.exp(other - energy):
                state, energy = proposed, other
        states[chain] = state


def compiled_metropolis(
    propose: Callable[..., Any],
    statistics: Callable[[np.ndarray], np.ndarray],
    state: np.ndarray,
    n_statistics: int,
) -> Callable[..., None] | None:
    """Compile Metropolis steps with a user's functions, or return None where numba cannot.

    A proposal, of one state and a generator, must be as likely to return. The state given is one
    to try it on.
    """
    # What others compiled themselves is taken as it is.
    quick: Any = [f if hasattr(f, "py_func") else njit(f) for f in (propose, statistics)]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NumbaWarning)
            run: Any = partial(njit(_metropolis), *quick)
            run(np.zeros(n_statistics), state[None].copy(), 2, np.random.default_rng(0))
    except (NumbaError, TypeError, ValueError, NotImplementedError):
        return None
    return run


@dataclass(frozen=True, eq=False)
class ProposalChain:
    """Parallel Metropolis chains with a user's symmetric proposal, from first states (C, L).

    Where :func:`compiled_metropolis` could compile the steps, by these.
    """

    propose: Callable[..., Any]
    statistics: Callable[[np.ndarray], np.ndarray]
    first: np.ndarray
    theta: np.ndarray
    compiled: Callable[..., None] | None

    name = "metropolis"

    def start(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """First states: those given, in turn."""
        return self.first[np.arange(n) % len(self.first)].copy()

    def advance(self, states: np.ndarray, sweeps: int, rng: np.random.Generator) -> np.ndarray:
        """Return the states some sweeps later, of as many proposals as a state has entries."""
        states = np.array(states)
        steps = sweeps * states.shape[1]
        if self.compiled is not None:
            self.compiled(self.theta, states, steps, rng)
            return states
        energy = self.statistics(states) @ self.theta
        for _ in range(steps):
            proposed = np.stack([self.propose(state.copy(), rng) for state in states])
            other = self.statistics(proposed) @ self.theta
            taken = rng.random(len(states)) < np.exp(np.minimum(other - energy, 0.0))
            states[taken], energy[taken] = proposed[taken], other[taken]
        return states
