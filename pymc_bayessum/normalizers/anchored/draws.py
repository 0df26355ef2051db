"""Draws of an exponential family at a fixed parameter value.

Where the family offers chains, many run side by side: burn-in lasts until the mean energy has
stopped moving, and as long again; states are kept that many sweeps apart that energies are nearly
uncorrelated. Other families draw by themselves.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pymc_bayessum.normalizers.coordinates import Coordinates
from pymc_bayessum.normalizers.family import Chain, Family, OffersChain, OffersEnergy

__all__ = ["CHAINS", "Draws", "draw_at", "mean_statistics", "reduced", "some_of"]

#: Chains that are run side by side, at most.
CHAINS = 500
#: Sweeps after which burn-in ends whether energies have settled or not.
LONGEST_BURN_IN = 4000
#: Sweeps between states kept, at most.
LONGEST_SPACING = 30
#: Numbers of statistics up to which each is watched, beside the energy.
FEW_STATISTICS = 8
#: Numbers of statistics that are held at once.
_BLOCK = 8_000_000


@dataclass(frozen=True, eq=False)
class Draws:
    """Draws of a model at one parameter value.

    Attributes
    ----------
    states : ndarray, shape (N, ...)
    chain : ndarray of int, shape (N,)
        Number of the chain each came from; draws of one chain stand together. Independent draws
        have a number each.
    sampler : str
        Name of the chains; "exact" for independent draws of a family that has chains as well,
        "own" for one that has not.
    burn_in, thin : int
        Sweeps before the first state was kept, and between states kept.
    settled : bool
        Whether the mean energy had stopped moving when burn-in ended.
    """

    states: np.ndarray = field(repr=False)
    chain: np.ndarray = field(repr=False)
    sampler: str
    burn_in: int = 0
    thin: int = 1
    settled: bool = True


def draw_at(
    family: Family,
    theta: np.ndarray,
    n: int,
    rng: np.random.Generator,
    *,
    start: np.ndarray | None = None,
    n_chains: int | None = None,
) -> Draws:
    """Draw at one parameter value.

    Parameters
    ----------
    family : Family
    theta : ndarray, shape (d,)
    n : int
        Number of draws, rounded up to a multiple of the chains.
    rng : numpy.random.Generator
    start : ndarray, shape (C, ...), optional
        First states of the chains (repeated as needed).
    n_chains : int, optional
        By default 500, or fewer when there are few draws to make.

    Returns
    -------
    Draws

    Examples
    --------
    >>> import numpy as np
    >>> class Bits:
    ...     def statistics(self, states):
    ...         return states.sum(axis=1, keepdims=True).astype(float)
    ...     def sample(self, theta, n, rng, start=None):
    ...         return rng.random((n, 10)) < 1 / (1 + np.exp(-theta[0]))
    >>> draw_at(Bits(), np.zeros(1), 200, np.random.default_rng(0)).states.shape
    (200, 10)
    """
    chain = family.chain(theta) if isinstance(family, OffersChain) else None
    if chain is None:
        states = family.sample(theta, n, rng, start)
        name = "exact" if isinstance(family, OffersChain) else "own"
        return Draws(states, np.arange(len(states)), name)
    chains = min(CHAINS, max(50, n // 10)) if n_chains is None else n_chains
    states = chain.start(chains, rng) if start is None else start[np.arange(chains) % len(start)]

    def summary(states: np.ndarray) -> np.ndarray:
        """Energy, and the statistics themselves where they are few: fields may move slower."""
        if isinstance(chain, OffersEnergy) and len(theta) > FEW_STATISTICS:
            return chain.energy(states)[:, None]
        statistics = family.statistics(states)
        energy = (statistics @ theta)[:, None]
        return energy if len(theta) > FEW_STATISTICS else np.hstack([energy, statistics])

    states, burn_in, settled = _burn_in(chain, summary, states, rng)
    states, thin = _spacing(chain, summary, states, rng)
    kept = []
    for _ in range(-(-n // chains)):
        states = chain.advance(states, thin, rng)
        kept.append(states)
    stacked = np.stack(kept, axis=1).reshape(-1, *states.shape[1:])
    number = np.repeat(np.arange(chains), len(kept))
    return Draws(stacked, number, chain.name, burn_in, thin, settled)


def _burn_in(
    chain: Chain,
    summary: Callable[[np.ndarray], np.ndarray],
    states: np.ndarray,
    rng: np.random.Generator,
) -> tuple[np.ndarray, int, bool]:
    """Run until the means over chains no longer move, and as long again."""
    done, block, calm = 0, 10, 0
    before = summary(states)
    while done < LONGEST_BURN_IN // 2 and calm < 2:
        states = chain.advance(states, block, rng)
        done += block
        after = summary(states)
        noise = np.sqrt((before.var(axis=0) + after.var(axis=0)) / len(states)) + 1e-12
        moved = np.abs(after.mean(axis=0) - before.mean(axis=0)) / noise
        calm = calm + 1 if moved.max() < 2.5 else 0
        before = after
        if done >= 10 * block:
            block *= 2
    return chain.advance(states, done, rng), 2 * done, calm >= 2


def _spacing(
    chain: Chain,
    summary: Callable[[np.ndarray], np.ndarray],
    states: np.ndarray,
    rng: np.random.Generator,
) -> tuple[np.ndarray, int]:
    """Find the number of sweeps after which a chain has nearly forgotten where it was."""
    first = summary(states)
    first = first - first.mean(axis=0)
    for sweeps in range(1, LONGEST_SPACING + 1):
        states = chain.advance(states, 1, rng)
        now = summary(states)
        now = now - now.mean(axis=0)
        spread = np.sqrt((first**2).sum(axis=0) * (now**2).sum(axis=0))
        if ((first * now).sum(axis=0) <= 0.2 * spread).all():
            return states, sweeps
    return states, LONGEST_SPACING


def some_of(states: np.ndarray, n: int) -> np.ndarray:
    """Return at most n of the states, evenly spread."""
    if len(states) <= n:
        return states
    return states[np.linspace(0, len(states) - 1, n).astype(int)]


def mean_statistics(family: Family, states: Any, n_parameters: int) -> np.ndarray:
    """Average of the statistics over states, (d,), without holding all of them at once."""
    block = max(1, _BLOCK // max(1, n_parameters))
    total = np.zeros(n_parameters)
    for first in range(0, len(states), block):
        total += family.statistics(states[first : first + block]).sum(axis=0)
    return total / len(states)


def reduced(family: Family, coordinates: Coordinates, states: np.ndarray) -> np.ndarray:
    """Reduced statistics of states, (N, r), in blocks: all statistics may not fit in memory."""
    block = max(1, _BLOCK // max(1, coordinates.read.shape[1]))
    return np.concatenate(
        [
            coordinates.rows(family.statistics(states[first : first + block]))[0]
            for first in range(0, len(states), block)
        ]
    )
