"""Draws from Potts and Ising models: exact where elimination is affordable, else Markov chains.

Chains are many and parallel: every chain makes the stated number of sweeps from its own start.

- Gibbs: each site in turn from its conditional distribution given its neighbours.
- Swendsen and Wang (1987): for couplings that only reward agreement, neighbours in the same state
  are bonded with probability ``1 - exp(-J)`` and each bonded cluster draws a new common state with
  the fields of its sites. Mixes at and below the critical temperature, where Gibbs does not. Each
  such sweep is followed by one of Gibbs, which moves single sites against strong fields.

States are 0 .. S-1 here, for spins too.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
from numba import njit

from pymc_bayessum.graphs.elimination import Budget, EliminationPlan, elimination_plan, plan_within
from pymc_bayessum.graphs.neighbours import neighbours
from pymc_bayessum.graphs.statistics import PottsLayout

__all__ = [
    "SWEEPS",
    "GraphChain",
    "SamplerName",
    "choose_sampler",
    "sample_exact",
    "sample_gibbs",
    "sample_states",
    "sample_swendsen_wang",
]

#: Sweeps a chain makes before its state counts as a draw, unless told otherwise.
SWEEPS = 200
#: Uniform numbers generated at a time.
_BLOCK = 2_000_000
#: Spread of log weights within one conditional up to which products are used instead of logs.
_PRODUCT_RANGE = 600.0

SamplerName = Literal["exact", "swendsen-wang", "gibbs"]


def choose_sampler(
    layout: PottsLayout, J: Any, sampler: SamplerName | None, budget: float
) -> SamplerName:
    """Check the name of a sampler, or choose the best for the graph and the couplings.

    Parameters
    ----------
    layout : PottsLayout
    J : array_like
        Numbers, of the layout's shape.
    sampler : {"exact", "swendsen-wang", "gibbs"} or None
    budget : float
        What elimination may cost, one of :class:`Budget`.

    Returns
    -------
    str
        Exact within the budget, else Swendsen-Wang if it applies, else Gibbs.

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> layout = PottsLayout(16, 2, graphs.grid(4, 4), "none", "scalar")
    >>> choose_sampler(layout, 0.4, None, Budget.DRAWS)
    'exact'
    """
    if sampler is None:
        if plan_within(layout, budget) is not None:
            return "exact"
        return "swendsen-wang" if _is_ferromagnetic(layout, J) else "gibbs"
    if sampler not in get_args(SamplerName):
        raise ValueError(f"sampler must be one of {get_args(SamplerName)}, got {sampler!r}")
    if sampler == "swendsen-wang" and not _is_ferromagnetic(layout, J):
        raise ValueError("sampler='swendsen-wang' needs scalar or edge couplings of at least zero")
    if sampler == "exact" and plan_within(layout, budget) is None:
        raise ValueError("sampler='exact': the graph is too wide for elimination, use chains")
    return sampler


def _is_ferromagnetic(layout: PottsLayout, J: Any) -> bool:
    """Whether all couplings reward agreement, and nothing else."""
    kinds = ("none", "scalar", "edge")
    return layout.coupling_kind in kinds and bool(
        np.all(np.asarray(J if J is not None else 0) >= 0)
    )


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

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum import graphs
    >>> layout = PottsLayout(9, 3, graphs.grid(3, 3), "none", "scalar")
    >>> x = sample_exact(layout, None, 100.0, 5, np.random.default_rng(0))
    >>> bool((x == x[:, :1]).all())
    True
    """
    plan = elimination_plan(layout.edges, layout.n_sites, layout.n_states)
    fields, couplings = _full(layout, h, J)
    prepared = _prepared(plan, fields.tobytes(), couplings.tobytes())
    return plan.draw(prepared, n, rng)


@lru_cache(maxsize=16)
def _prepared(plan: EliminationPlan, fields: bytes, couplings: bytes) -> tuple[np.ndarray, ...]:
    """Elimination with these parameters, kept: backends ask for one draw at a time."""
    shape = (plan.n_sites, plan.n_states)
    pair = (len(plan.edges), plan.n_states, plan.n_states)
    h, J = np.frombuffer(fields).reshape(shape), np.frombuffer(couplings).reshape(pair)
    return plan.prepare(h, J)


class GraphChain:
    """Parallel Markov chains of a graph model at fixed parameters.

    Parameters
    ----------
    layout : PottsLayout
    h, J : array_like
        Numbers, of the layout's shapes.
    name : {"swendsen-wang", "gibbs"}
        With Swendsen-Wang every sweep is followed by one of Gibbs.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum import graphs
    >>> layout = PottsLayout(16, 2, graphs.grid(4, 4), "scalar", "scalar", spins=True)
    >>> chain, rng = GraphChain(layout, 0.1, 0.4, "swendsen-wang"), np.random.default_rng(0)
    >>> chain.advance(chain.start(10, rng), 20, rng).shape
    (10, 16)
    """

    def __init__(self, layout: PottsLayout, h: Any, J: Any, name: SamplerName):
        self.layout, self.h, self.J, self.name = layout, h, J, name
        self.fields, self.couplings = _full(layout, h, J)
        self._sites = _conditional_tables(layout, self.fields, self.couplings)
        self._clusters = None
        if name == "swendsen-wang":
            self._clusters = _cluster_tables(layout, self.fields, J)

    def start(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return independent draws from the fields alone."""
        weights = np.exp(self.fields - self.fields.max(axis=1, keepdims=True))
        cumulative = np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=1)[:, :-1]
        return (rng.random((n, self.layout.n_sites))[..., None] > cumulative).sum(axis=-1)

    def advance(self, states: np.ndarray, sweeps: int, rng: np.random.Generator) -> np.ndarray:
        """Return the states some sweeps later, as int16."""
        n_sites, n_edges = self.layout.n_sites, self.layout.n_edges
        now = np.array(states, dtype=np.int64, order="C")
        if self._clusters is None:
            _run(lambda u: _gibbs(now, u, *self._sites), sweeps, now.shape, rng)
        else:
            for _ in range(sweeps):
                _swendsen_wang(now, rng.random((1, len(now), n_edges + n_sites)), *self._clusters)
                _gibbs(now, rng.random((1, len(now), n_sites)), *self._sites)
        return now.astype(np.int16)

    def energy(self, states: np.ndarray) -> np.ndarray:
        """Return the energies of states, shape (N,)."""
        return self.layout.energy(states, self.h, self.J)


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
    ndarray of int, shape (n_chains, L)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum import graphs
    >>> layout = PottsLayout(4, 3, graphs.ring(4), "full", "edge")
    >>> h, J = np.zeros((4, 3)), np.full(4, 0.5)
    >>> sample_gibbs(layout, h, J, 10, 20, np.random.default_rng(0)).shape
    (10, 4)
    """
    chain = GraphChain(layout, h, J, "gibbs")
    return chain.advance(_start(chain, n_chains, rng, start), sweeps, rng)


def sample_swendsen_wang(
    layout: PottsLayout,
    h: Any,
    J: Any,
    n_chains: int,
    sweeps: int,
    rng: np.random.Generator,
    start: np.ndarray | None = None,
) -> np.ndarray:
    """Last states of parallel Swendsen-Wang chains, without Gibbs sweeps between.

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
    >>> layout = PottsLayout(16, 2, graphs.grid(4, 4), "scalar", "scalar", spins=True)
    >>> x = sample_swendsen_wang(layout, 0.1, 0.4, 10, 20, np.random.default_rng(0))
    >>> sorted(set(x.ravel().tolist()))
    [0, 1]
    """
    if not _is_ferromagnetic(layout, J):
        raise ValueError(
            "J must be one number, or one for each edge, and none negative for Swendsen-Wang, got "
            f"kind {layout.coupling_kind!r}; use sample_gibbs"
        )
    chain = GraphChain(layout, h, J, "gibbs")
    states = _start(chain, n_chains, rng, start)
    tables = _cluster_tables(layout, chain.fields, J)
    shape = (n_chains, layout.n_edges + layout.n_sites)
    _run(lambda uniforms: _swendsen_wang(states, uniforms, *tables), sweeps, shape, rng)
    return states


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
        Sweeps of each chain where draws are not exact; only its last state is kept.
    sampler : {"exact", "swendsen-wang", "gibbs"}, optional
        Chosen by :func:`choose_sampler` unless given.

    Returns
    -------
    ndarray of int, shape (n, L)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum import graphs
    >>> layout = PottsLayout(400, 2, graphs.grid(20, 20), "none", "scalar", spins=True)
    >>> sample_states(layout, None, 0.3, 3, np.random.default_rng(0), sweeps=10).shape
    (3, 400)
    """
    name = choose_sampler(
        layout, J, sampler, Budget.DRAWS if sampler is None else Budget.ON_REQUEST
    )
    if name == "exact":
        return sample_exact(layout, h, J, n, rng)
    chain = GraphChain(layout, h, J, name)
    return chain.advance(chain.start(n, rng), sweeps, rng)


def _full(layout: PottsLayout, h: Any, J: Any) -> tuple[np.ndarray, np.ndarray]:
    fields, couplings = layout.expand(h, J)
    if fields.ndim != 2 or couplings.ndim != 3:
        raise ValueError("h and J must be one set of parameters, not a batch")
    return np.ascontiguousarray(fields), np.ascontiguousarray(couplings)


def _start(
    chain: GraphChain, n_chains: int, rng: np.random.Generator, start: np.ndarray | None
) -> np.ndarray:
    if start is None:
        return chain.start(n_chains, rng)
    values, shape = np.asarray(start), (n_chains, chain.layout.n_sites)
    if values.shape != shape or values.min() < 0 or values.max() >= chain.layout.n_states:
        raise ValueError(f"start must hold valid states of shape {shape}, got {values.shape}")
    return np.array(values, dtype=np.int64, order="C")


def _run(
    update: Callable[[np.ndarray], None],
    sweeps: int,
    shape: tuple[int, ...],
    rng: np.random.Generator,
) -> None:
    """Update in blocks of sweeps, so that random numbers are made in bulk but never too many."""
    if sweeps < 0:
        raise ValueError(f"sweeps must not be negative, got {sweeps}")
    block = max(1, _BLOCK // max(1, shape[0] * shape[1]))
    for first in range(0, sweeps, block):
        update(rng.random((min(block, sweeps - first), *shape)))


def _conditional_tables(
    layout: PottsLayout, fields: np.ndarray, couplings: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, bool]:
    """Field factors, and for each neighbour a table (its state, own state); logs if they spread."""
    around = neighbours(couplings, layout.edges, layout.n_sites)
    own = fields - fields.max(axis=1, keepdims=True)
    pairs = around.table - around.table.max(axis=(1, 2), keepdims=True, initial=-np.inf)
    spread = -own.min(axis=1)
    site = np.repeat(np.arange(layout.n_sites), np.diff(around.start))
    np.add.at(spread, site, -pairs.min(axis=(1, 2), initial=0.0))
    logs = not bool(np.all(spread <= _PRODUCT_RANGE))
    if not logs:
        own, pairs = np.exp(own), np.exp(pairs)
    return around.start, around.site, np.ascontiguousarray(own), np.ascontiguousarray(pairs), logs


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
