"""Draws from Potts and Ising models: exact where elimination is affordable, else Markov chains.

Chains are many and parallel, one draw each: every chain makes the stated number of sweeps from its
own start and only its last state is kept, so draws are independent of each other.

- Gibbs: each site in turn from its conditional distribution given its neighbours.
- Swendsen and Wang (1987): for couplings that only reward agreement, neighbours in the same state
  are bonded with probability ``1 - exp(-J)`` and each bonded cluster draws a new common state with
  the fields of its sites. Mixes at and below the critical temperature, where Gibbs does not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numba import njit

from pymc_bayessum.graphs.elimination import EliminationPlan, elimination_plan
from pymc_bayessum.graphs.statistics import PottsLayout

__all__ = [
    "SWEEPS",
    "choose_sampler",
    "sample_exact",
    "sample_gibbs",
    "sample_states",
    "sample_swendsen_wang",
]

#: Sweeps a chain makes before its state counts as a draw, unless told otherwise.
SWEEPS = 200
#: Table entries up to which draws are exact: they need one pass of elimination, without marginals.
EXACT_ENTRIES = 1e7
#: Uniform numbers generated at a time.
_BLOCK = 2_000_000
#: Spread of log weights within one conditional up to which products are used instead of logs.
_PRODUCT_RANGE = 600.0

SamplerName = Literal["exact", "swendsen-wang", "gibbs"]


def sample_exact(
    layout: PottsLayout, h: Any, J: Any, n: int, rng: np.random.Generator
) -> np.ndarray:
    """Independent exact draws by backward sampling from the elimination of the graph.

    Parameters
    ----------
    layout : PottsLayout
    h, J : array_like
        Numbers, of the layout's shapes.
    n : int
        Number of draws.
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of int64, shape (n, L)
        States 0 .. S-1, or spins -1 and +1.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum import graphs
    >>> from pymc_bayessum.graphs.statistics import PottsLayout
    >>> from pymc_bayessum.graphs.samplers import sample_exact
    >>> layout = PottsLayout(9, 3, graphs.grid(3, 3), "none", "scalar")
    >>> x = sample_exact(layout, None, 100.0, 5, np.random.default_rng(0))
    >>> bool((x == x[:, :1]).all())
    True
    """
    plan = elimination_plan(layout.edges, layout.n_sites, layout.n_states)
    fields, couplings = _full(layout, h, J)
    prepared = _prepared(plan, fields.tobytes(), couplings.tobytes())
    return layout.decode(plan.draw(prepared, n, rng))


@lru_cache(maxsize=16)
def _prepared(plan: EliminationPlan, fields: bytes, couplings: bytes) -> tuple[np.ndarray, ...]:
    """Elimination with these parameters, kept: backends ask for one draw at a time."""
    shape = (plan.n_sites, plan.n_states)
    pair = (len(plan.edges), plan.n_states, plan.n_states)
    h, J = np.frombuffer(fields).reshape(shape), np.frombuffer(couplings).reshape(pair)
    return plan.prepare(h, J)


def sample_gibbs(
    layout: PottsLayout,
    h: Any,
    J: Any,
    n_chains: int,
    sweeps: int,
    rng: np.random.Generator,
    start: np.ndarray | None = None,
) -> np.ndarray:
    """Last states of parallel Gibbs chains.

    Parameters
    ----------
    layout : PottsLayout
    h, J : array_like
        Numbers, of the layout's shapes.
    n_chains, sweeps : int
        A sweep updates every site once, in order.
    rng : numpy.random.Generator
    start : ndarray of int, shape (n_chains, L), optional
        First states; independent draws from the fields alone by default.

    Returns
    -------
    ndarray of int64, shape (n_chains, L)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum import graphs
    >>> from pymc_bayessum.graphs.statistics import PottsLayout
    >>> from pymc_bayessum.graphs.samplers import sample_gibbs
    >>> layout = PottsLayout(4, 3, graphs.ring(4), "full", "edge")
    >>> h, J = np.zeros((4, 3)), np.full(4, 0.5)
    >>> sample_gibbs(layout, h, J, 10, 20, np.random.default_rng(0)).shape
    (10, 4)
    """
    fields, couplings = _full(layout, h, J)
    states = _start(layout, fields, n_chains, rng, start)
    tables = _conditional_tables(layout, fields, couplings)
    _run(lambda uniforms: _gibbs(states, uniforms, *tables), sweeps, states.shape, rng)
    return layout.decode(states)


def sample_swendsen_wang(
    layout: PottsLayout,
    h: Any,
    J: Any,
    n_chains: int,
    sweeps: int,
    rng: np.random.Generator,
    start: np.ndarray | None = None,
) -> np.ndarray:
    """Last states of parallel Swendsen-Wang chains.

    Parameters
    ----------
    layout : PottsLayout
        With one coupling, or one for each edge (not a matrix of them).
    h, J : array_like
        Numbers, of the layout's shapes; no ``J`` negative.
    n_chains, sweeps : int
        A sweep bonds and redraws all clusters once.
    rng : numpy.random.Generator
    start : ndarray of int, shape (n_chains, L), optional
        First states; independent draws from the fields alone by default.

    Returns
    -------
    ndarray of int64, shape (n_chains, L)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum import graphs
    >>> from pymc_bayessum.graphs.statistics import PottsLayout
    >>> from pymc_bayessum.graphs.samplers import sample_swendsen_wang
    >>> layout = PottsLayout(16, 2, graphs.grid(4, 4), "scalar", "scalar", spins=True)
    >>> x = sample_swendsen_wang(layout, 0.1, 0.4, 10, 20, np.random.default_rng(0))
    >>> sorted(set(x.ravel().tolist()))
    [-1, 1]
    """
    if not is_ferromagnetic(layout, J):
        raise ValueError(
            "J must be one number, or one for each edge, and none negative for Swendsen-Wang, got "
            f"kind {layout.coupling_kind!r}; use sample_gibbs"
        )
    fields, _ = _full(layout, h, J)
    states = _start(layout, fields, n_chains, rng, start)
    tables = _cluster_tables(layout, fields, J)
    shape = (n_chains, layout.n_edges + layout.n_sites)
    _run(lambda uniforms: _swendsen_wang(states, uniforms, *tables), sweeps, shape, rng)
    return layout.decode(states)


def sample_states(
    layout: PottsLayout,
    h: Any,
    J: Any,
    n: int,
    rng: np.random.Generator,
    sweeps: int = SWEEPS,
    sampler: SamplerName | None = None,
) -> np.ndarray:
    """Draws by the best sampler there is for the graph and the couplings.

    Parameters
    ----------
    layout : PottsLayout
    h, J : array_like
        Numbers, of the layout's shapes.
    n : int
        Number of draws.
    rng : numpy.random.Generator
    sweeps : int
        Sweeps of each chain where draws are not exact. With Swendsen-Wang every sweep is followed
        by one of Gibbs, which moves single sites against strong fields.
    sampler : {"exact", "swendsen-wang", "gibbs"}, optional
        Chosen by :func:`choose_sampler` unless given.

    Returns
    -------
    ndarray of int64, shape (n, L)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum import graphs
    >>> from pymc_bayessum.graphs.statistics import PottsLayout
    >>> from pymc_bayessum.graphs.samplers import sample_states
    >>> layout = PottsLayout(400, 2, graphs.grid(20, 20), "none", "scalar", spins=True)
    >>> sample_states(layout, None, 0.3, 3, np.random.default_rng(0), sweeps=10).shape
    (3, 400)
    """
    name = choose_sampler(layout, J) if sampler is None else sampler
    if name == "exact":
        return sample_exact(layout, h, J, n, rng)
    if name == "gibbs":
        return sample_gibbs(layout, h, J, n, sweeps, rng)
    if name != "swendsen-wang":
        raise ValueError(f"sampler must be 'exact', 'swendsen-wang' or 'gibbs', got {sampler!r}")
    fields, couplings = _full(layout, h, J)
    states = _start(layout, fields, n, rng, None)
    clusters = _cluster_tables(layout, fields, J)
    tables = _conditional_tables(layout, fields, couplings)

    def both(uniforms: np.ndarray) -> None:
        for sweep in uniforms[:, None]:
            _swendsen_wang(states, sweep[..., : -layout.n_sites], *clusters)
            _gibbs(states, sweep[..., -layout.n_sites :], *tables)

    _run(both, sweeps, (n, layout.n_edges + 2 * layout.n_sites), rng)
    return layout.decode(states)


def choose_sampler(layout: PottsLayout, J: Any) -> SamplerName:
    """Exact up to :data:`EXACT_ENTRIES`, else Swendsen-Wang if it applies, else Gibbs."""
    plan = elimination_plan(layout.edges, layout.n_sites, layout.n_states)
    if plan.cost <= EXACT_ENTRIES:
        return "exact"
    return "swendsen-wang" if is_ferromagnetic(layout, J) else "gibbs"


def is_ferromagnetic(layout: PottsLayout, J: Any) -> bool:
    """Whether all couplings reward agreement, and nothing else."""
    kinds = ("none", "scalar", "edge")
    return layout.coupling_kind in kinds and bool(
        np.all(np.asarray(J if J is not None else 0) >= 0)
    )


def _full(layout: PottsLayout, h: Any, J: Any) -> tuple[np.ndarray, np.ndarray]:
    fields, couplings = layout.expand(h, J)
    if fields.ndim != 2 or couplings.ndim != 3:
        raise ValueError("h and J must be one set of parameters, not a batch")
    return np.ascontiguousarray(fields), np.ascontiguousarray(couplings)


def _start(
    layout: PottsLayout,
    fields: np.ndarray,
    n_chains: int,
    rng: np.random.Generator,
    start: np.ndarray | None,
) -> np.ndarray:
    shape = (n_chains, layout.n_sites)
    if start is not None:
        values = np.asarray(start)
        if values.shape != shape or not layout.valid(values).all():
            raise ValueError(f"start must hold valid states of shape {shape}, got {values.shape}")
        return np.array(layout.encode(values), dtype=np.int64, order="C")
    weights = np.exp(fields - fields.max(axis=1, keepdims=True))
    cumulative = np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=1)[:, :-1]
    return (rng.random(shape)[..., None] > cumulative).sum(axis=-1)


def _run(
    update: Callable[[np.ndarray], None],
    sweeps: int,
    shape: tuple[int, int],
    rng: np.random.Generator,
) -> None:
    """Update in blocks of sweeps, so that random numbers are made in bulk but never too many."""
    if sweeps < 0:
        raise ValueError(f"sweeps must not be negative, got {sweeps}")
    block = max(1, _BLOCK // max(1, shape[0] * shape[1]))
    for first in range(0, sweeps, block):
        update(rng.random((min(block, sweeps - first), *shape)))


@lru_cache(maxsize=32)
def _adjacency(layout: PottsLayout) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Neighbours of each site: offsets, sites, rows of edges, and whether the site comes second."""
    edges, rows = layout.edges, np.arange(layout.n_edges)
    here = np.concatenate([edges[:, 0], edges[:, 1]])
    there = np.concatenate([edges[:, 1], edges[:, 0]])
    second = np.repeat([False, True], layout.n_edges)
    by_site = np.argsort(here, kind="stable")
    offsets = np.searchsorted(here[by_site], np.arange(layout.n_sites + 1))
    return offsets, there[by_site], np.concatenate([rows, rows])[by_site], second[by_site]


def _conditional_tables(
    layout: PottsLayout, fields: np.ndarray, couplings: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, bool]:
    """Field factors, and for each neighbour a table (its state, own state); logs if they spread."""
    offsets, there, rows, second = _adjacency(layout)
    pairs = couplings[rows]
    pairs = np.where(second[:, None, None], pairs, pairs.transpose(0, 2, 1))
    own = fields - fields.max(axis=1, keepdims=True)
    pairs = pairs - pairs.max(axis=(1, 2), keepdims=True, initial=-np.inf)
    spread = -own.min(axis=1)
    site = np.repeat(np.arange(layout.n_sites), np.diff(offsets))
    np.add.at(spread, site, -pairs.min(axis=(1, 2), initial=0.0))
    logs = not bool(np.all(spread <= _PRODUCT_RANGE))
    if not logs:
        own, pairs = np.exp(own), np.exp(pairs)
    return offsets, there, np.ascontiguousarray(own), np.ascontiguousarray(pairs), logs


def _cluster_tables(
    layout: PottsLayout, fields: np.ndarray, J: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fields, edges and the probability of a bond on each edge between equal states."""
    # Spins: J x_i x_j is 2 J [x_i = x_j] less a constant.
    strength = np.broadcast_to(np.asarray(0.0 if J is None else J, dtype=float), layout.n_edges)
    return fields, layout.edges, -np.expm1(-(2.0 if layout.spins else 1.0) * strength)


@njit(cache=True)
def _choose(weights, uniform):
    """Index drawn with probabilities proportional to the weights."""
    total = 0.0
    for weight in weights:
        total += weight
    left = uniform * total
    state = 0
    while state < len(weights) - 1 and left >= weights[state]:
        left -= weights[state]
        state += 1
    return state


@njit(cache=True)
def _gibbs(states, uniforms, offsets, there, own, pairs, logs):
    """Sweep all chains in place, once for each leading index of ``uniforms``."""
    n_states = own.shape[1]
    weights = np.empty(n_states)
    for chain in range(states.shape[0]):
        x = states[chain]
        for sweep in range(uniforms.shape[0]):
            for site in range(states.shape[1]):
                for state in range(n_states):
                    weights[state] = own[site, state]
                for k in range(offsets[site], offsets[site + 1]):
                    other = x[there[k]]
                    if logs:
                        for state in range(n_states):
                            weights[state] += pairs[k, other, state]
                    else:
                        for state in range(n_states):
                            weights[state] *= pairs[k, other, state]
                if logs:
                    top = weights.max()
                    for state in range(n_states):
                        weights[state] = np.exp(weights[state] - top)
                x[site] = _choose(weights, uniforms[sweep, chain, site])


@njit(cache=True)
def _root(parent, site):
    """Find the representative of a cluster, halving paths on the way."""
    while parent[site] != site:
        parent[site] = parent[parent[site]]
        site = parent[site]
    return site


@njit(cache=True)
def _swendsen_wang(states, uniforms, fields, edges, bonds):
    """Bond and redraw all chains in place, once for each leading index of ``uniforms``."""
    n_chains, n_sites = states.shape
    n_edges, n_states = edges.shape[0], fields.shape[1]
    parent = np.empty(n_sites, np.int64)
    pooled = np.empty((n_sites, n_states))
    weights = np.empty(n_states)
    for chain in range(n_chains):
        x = states[chain]
        for sweep in range(uniforms.shape[0]):
            uniform = uniforms[sweep, chain]
            for site in range(n_sites):
                parent[site] = site
            for row in range(n_edges):
                first, second = edges[row, 0], edges[row, 1]
                if x[first] == x[second] and uniform[row] < bonds[row]:
                    parent[_root(parent, first)] = _root(parent, second)
            pooled[:] = 0.0
            for site in range(n_sites):
                cluster = _root(parent, site)
                for state in range(n_states):
                    pooled[cluster, state] += fields[site, state]
            for site in range(n_sites):
                if parent[site] == site:
                    top = pooled[site].max()
                    for state in range(n_states):
                        weights[state] = np.exp(pooled[site, state] - top)
                    x[site] = _choose(weights, uniform[n_edges + site])
            for site in range(n_sites):
                x[site] = x[_root(parent, site)]
