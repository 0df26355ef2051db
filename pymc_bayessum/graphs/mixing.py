"""Whether chains of a graph model forget: a warning for draws that are not from the model yet."""

import warnings
from collections.abc import Iterator
from functools import lru_cache
from itertools import count

import numpy as np

from pymc_bayessum.graphs.elimination import Budget
from pymc_bayessum.graphs.samplers import GraphChain, SamplerName, choose_sampler
from pymc_bayessum.graphs.statistics import PottsLayout

__all__ = ["memory", "warn_of_memory"]

#: Chains that are watched; half of them start from the fields, half from one state everywhere.
WATCHED = 16
#: So many sets of parameters of a graph are watched, and then one in so many.
EVERY = 32
#: What counts as memory: share of sites, and standard errors.
LEAST_SHARE, LEAST_ERRORS = 0.05, 5.0


def memory(chain: GraphChain, sweeps: int, rng: np.random.Generator) -> tuple[float, float, bool]:
    """Compare where chains end with where they were half way, their own way and that of others.

    Return the shares of sites on which an end agrees with its own half way and with that of others,
    and whether the two differ by more than chance.

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> layout = PottsLayout(64, 2, graphs.grid(8, 8), "none", "scalar", spins=True)
    >>> rng = np.random.default_rng(0)
    >>> [memory(GraphChain(layout, None, J, "gibbs"), 100, rng)[2] for J in (0.2, 1.5)]
    [False, True]
    """
    layout = chain.layout
    start = chain.start(WATCHED, rng)
    allowed = np.isfinite(layout.expand_field(chain.h))
    for row in range(0, WATCHED, 2):
        state = (row // 2) % layout.n_states
        start[row] = np.where(allowed[:, state], state, start[row])
    half = chain.advance(start, sweeps // 2, rng)
    end = chain.advance(half, sweeps - sweeps // 2, rng)
    own = (end == half).mean(axis=1)
    shifts = [(end == np.roll(half, k, axis=0)).mean(axis=1) for k in range(1, WATCHED)]
    others = np.mean(shifts, axis=0)
    gap = own - others
    error = gap.std(ddof=1) / np.sqrt(WATCHED)
    remembers = gap.mean() > max(LEAST_SHARE, LEAST_ERRORS * error)
    return float(own.mean()), float(others.mean()), bool(remembers)


@lru_cache(maxsize=64)
def _turns(layout: PottsLayout) -> Iterator[int]:
    """Count the sets of parameters of a graph."""
    return count()


@lru_cache(maxsize=16)
def _watched(
    layout: PottsLayout, h: bytes, J: bytes, name: SamplerName, sweeps: int
) -> tuple[float, float, bool] | None:
    """Memory at a set of parameters, kept: draws are asked for one by one. None: not its turn."""
    turn = next(_turns(layout))
    if turn > EVERY and turn % EVERY:
        return None
    fields = np.frombuffer(h).reshape(layout.field_shape)
    couplings = np.frombuffer(J).reshape(layout.coupling_shape)
    # A stream of its own: watching must not change what is drawn.
    return memory(GraphChain(layout, fields, couplings, name), sweeps, np.random.default_rng(0))


def warn_of_memory(layout: PottsLayout, h: np.ndarray, J: np.ndarray, sweeps: int) -> None:
    """Warn where chains still know after half of their sweeps where they were before."""
    name = choose_sampler(layout, J, None, Budget.DRAWS)
    seen = None if name == "exact" else _watched(layout, h.tobytes(), J.tobytes(), name, sweeps)
    if seen is not None and seen[2]:
        own, others, _ = seen
        warnings.warn(
            f"draws may not have mixed: {sweeps - sweeps // 2} sweeps of {name} later a chain "
            f"agrees with itself on {own:.0%} of the sites, with another chain on {others:.0%}. "
            f"Couplings or fields are strong: raise sweeps= (it is {sweeps}) until the two are "
            "alike, and do not trust these draws before",
            stacklevel=3,
        )
