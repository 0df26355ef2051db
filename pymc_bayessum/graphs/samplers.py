"""Draws from Potts and Ising models: exact where elimination is affordable, else Markov chains.

Chains are many and parallel: every chain makes the stated number of sweeps from its own start.

- Gibbs: each site in turn from its conditional distribution given its neighbours.
- Swendsen and Wang (1987): for couplings that only reward agreement, neighbours in the same state
  are bonded with probability ``1 - exp(-J)`` and each bonded cluster draws a new common state with
  the fields of its sites. Mixes at and below the critical temperature, where Gibbs does not. Each
  such sweep is followed by one of Gibbs, which moves single sites against strong fields.

States are 0 .. S-1 here, for spins too.
"""

import warnings
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np

from pymc_bayessum.graphs.elimination import Budget, EliminationPlan, elimination_plan, plan_within
from pymc_bayessum.graphs.neighbours import adjacency, neighbours
from pymc_bayessum.graphs.statistics import PottsLayout
from pymc_bayessum.graphs.sweeps import Clusters, Sites, relative_factors, sweep
from pymc_bayessum.threads import in_parts

__all__ = [
    "SWEEPS",
    "GraphChain",
    "SamplerName",
    "choose_sampler",
    "sample_exact",
    "sample_gibbs",
    "sample_states",
    "site_tables",
]

#: Sweeps a chain makes before its state counts as a draw, unless told otherwise.
SWEEPS = 200
#: Spread of log weights within one conditional up to which products are used instead of logs.
_PRODUCT_RANGE = 600.0
#: A deficit of log weight that no chain accepts while it has a choice.
_FORBIDDEN = 1e5

SamplerName = Literal["exact", "swendsen-wang", "gibbs"]


def choose_sampler(
    layout: PottsLayout, J: Any, sampler: SamplerName | None, budget: float
) -> SamplerName:
    """Check the name of a sampler, or choose the best for the graph and the couplings.

    Exact where elimination is within the budget, else Swendsen-Wang if it applies, else Gibbs.

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
        return "swendsen-wang" if _rewards_agreement(layout, J) else "gibbs"
    if sampler not in get_args(SamplerName):
        raise ValueError(f"sampler must be one of {get_args(SamplerName)}, got {sampler!r}")
    if sampler == "swendsen-wang" and not _rewards_agreement(layout, J):
        raise ValueError("sampler='swendsen-wang' needs scalar or edge couplings of at least zero")
    if sampler == "exact" and plan_within(layout, budget) is None:
        raise ValueError("sampler='exact': the graph is too wide for elimination, use chains")
    return sampler


def _rewards_agreement(layout: PottsLayout, J: Any) -> bool:
    """Whether all couplings reward agreement, and nothing else."""
    kinds = ("none", "scalar", "edge")
    alike = layout.coupling_kind in kinds and layout.scores is None
    return alike and bool(np.all(np.asarray(J if J is not None else 0) >= 0))


def sample_exact(
    layout: PottsLayout, h: Any, J: Any, n: int, rng: np.random.Generator
) -> np.ndarray:
    """Independent exact draws (n, L) by backward sampling from the elimination of the graph.

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> layout = PottsLayout(9, 3, graphs.grid(3, 3), "none", "scalar")
    >>> x = sample_exact(layout, None, 100.0, 5, np.random.default_rng(0))
    >>> bool((x == x[:, :1]).all())
    True
    """
    plan = elimination_plan(layout.edges, layout.n_sites, layout.n_states)
    fields, couplings = (full.tobytes() for full in layout.expand(h, J))
    prepared = _prepared(plan, fields, couplings)
    draws = plan.draw(prepared, n, rng)
    # Where anything is allowed at all, draws are.
    if np.isneginf(layout.energy(draws[:1], h, J)).any():
        raise ValueError("h and J forbid every state (-inf): there is nothing to draw")
    return draws


@lru_cache(maxsize=16)
def _prepared(plan: EliminationPlan, fields: bytes, couplings: bytes) -> tuple[np.ndarray, ...]:
    """Elimination with these parameters, kept: backends ask for one draw at a time."""
    shape = (plan.n_sites, plan.n_states)
    pair = (len(plan.edges), plan.n_states, plan.n_states)
    h, J = np.frombuffer(fields).reshape(shape), np.frombuffer(couplings).reshape(pair)
    return plan.prepare(h, J)


class GraphChain:
    """Parallel Markov chains of a graph model at fixed parameters, of the layout's shapes.

    With Swendsen-Wang every sweep is followed by one of Gibbs.

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> layout = PottsLayout(16, 2, graphs.grid(4, 4), "scalar", "scalar", spins=True)
    >>> chain, rng = GraphChain(layout, 0.1, 0.4, "swendsen-wang"), np.random.default_rng(0)
    >>> chain.advance(chain.start(10, rng), 20, rng).shape
    (10, 16)
    """

    def __init__(self, layout: PottsLayout, h: Any, J: Any, name: SamplerName):
        self.layout, self.h, self.J, self.name = layout, h, J, name
        self.sites = site_tables(layout, h, J)
        self._by_cluster = name == "swendsen-wang"
        self._clusters = _cluster_tables(layout, h, J, self._by_cluster)

    def start(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return independent draws from the fields alone."""
        fields = _fields(self.layout, self.h)
        weights = np.exp(fields - fields.max(axis=1, keepdims=True))
        cumulative = np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=1)[:, :-1]
        return (rng.random((n, self.layout.n_sites))[..., None] > cumulative).sum(axis=-1)

    def advance(self, states: np.ndarray, sweeps: int, rng: np.random.Generator) -> np.ndarray:
        """Return the states some sweeps later, in as few bytes as hold them."""
        small = np.int8 if self.layout.n_states <= np.iinfo(np.int8).max else np.int16
        now = np.array(states, dtype=small, order="C")
        seeds = rng.integers(1, 2**64, size=(len(now), 4), dtype=np.uint64)
        tables = self._clusters, self.sites, self._by_cluster
        in_parts(sweep, len(now), now, seeds, sweeps, *tables)
        return now

    def energy(self, states: np.ndarray) -> np.ndarray:
        """Return the energies of states, shape (N,)."""
        return self.layout.energy(states, self.h, self.J)


def sample_gibbs(
    layout: PottsLayout, h: Any, J: Any, n_chains: int, sweeps: int, rng: np.random.Generator
) -> np.ndarray:
    """Last states (n_chains, L) of Gibbs chains that start from the fields alone."""
    chain = GraphChain(layout, h, J, "gibbs")
    return chain.advance(chain.start(n_chains, rng), sweeps, rng)


def sample_states(
    layout: PottsLayout,
    h: Any,
    J: Any,
    n: int,
    rng: np.random.Generator,
    sweeps: int = SWEEPS,
    sampler: SamplerName | None = None,
) -> np.ndarray:
    """Draws (n, L) by the best sampler there is for the graph and the couplings, or the one named.

    Where they are not exact, each is the last state of a chain of so many sweeps.

    Examples
    --------
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
    draws = chain.advance(chain.start(n, rng), sweeps, rng)
    if J is not None and np.isneginf(J).any():
        stuck = int(np.isneginf(chain.energy(draws)).sum())
        if stuck:
            warnings.warn(
                f"{stuck} of {n} draws are still in a forbidden state (-inf) after {sweeps} sweeps "
                f"of {name}: raise sweeps=, or see whether J leaves any state at all",
                stacklevel=2,
            )
    return draws


def _fields(layout: PottsLayout, h: Any) -> np.ndarray:
    """Fields of all sites, (L, S), or of one where all have the same, (1, S)."""
    fields = np.ascontiguousarray(layout.expand_field(h))
    return fields[:1] if layout.field_kind != "full" and layout.has_state.all() else fields


@lru_cache(maxsize=16)
def _ends(layout: PottsLayout) -> tuple[np.ndarray, np.ndarray, int]:
    """Neighbours of all sites, and the most that one has; kept, as chains ask at every step."""
    start, site, _ = adjacency(layout.edges, layout.n_sites)
    return start, site, int(np.diff(start).max(initial=0))


def site_tables(layout: PottsLayout, h: Any, J: Any) -> Sites:
    """Tables that Gibbs sweeps read: factors, or logarithms where these spread too far."""
    fields = _fields(layout, h)
    start, site, most = _ends(layout)
    powers, pairs = np.empty(0), np.empty((0, layout.n_states, layout.n_states))
    strength = _strength(layout, J)
    if strength is not None and strength.ndim == 0 and np.isfinite(strength):
        rungs = np.arange(max(most, 1) + 1) * float(strength)
        # A state whose own factor vanishes beside the best (forbidden, or nearly) needs no
        # logarithms: no number of agreeing neighbours could make up for that.
        if np.ptp(rungs) <= _PRODUCT_RANGE:
            powers = np.exp(rungs - rungs.max())
            return Sites(start, site, relative_factors(fields), powers, pairs, False)
    own = fields - fields.max(axis=1, keepdims=True)
    least = own.min(axis=1, where=np.isfinite(own), initial=0.0)
    *_, table = neighbours(layout.expand_coupling(J), layout.edges, layout.n_sites)
    pairs = table - table.max(axis=(1, 2), keepdims=True, initial=-np.inf)
    owner = np.repeat(np.arange(layout.n_sites), np.diff(start))
    spreads = np.broadcast_to(-least, layout.n_sites).copy()
    np.add.at(spreads, owner, -pairs.min(axis=(1, 2), initial=0.0))
    logs = not bool(np.all(spreads <= _PRODUCT_RANGE))
    if logs:
        # Finite, so that a chain that starts among forbidden pairs still finds the way out.
        depth = _FORBIDDEN + 10.0 * (most * np.ptp(pairs[np.isfinite(pairs)]) - least.min())
        own = np.where(np.isneginf(own), -depth * (1.0 + most), own)
        pairs = np.where(np.isneginf(pairs), -depth, pairs)
    else:
        own, pairs = np.exp(own), np.exp(pairs)
    return Sites(start, site, np.ascontiguousarray(own), powers, pairs, logs)


def _strength(layout: PottsLayout, J: Any) -> np.ndarray | None:
    """Return what agreement is worth, () or (E,); None where couplings are tables."""
    if layout.coupling_kind in ("shared", "full") or layout.scores is not None:
        return None
    # Spins: J x_i x_j is 2 J [x_i = x_j] less a constant.
    value = np.asarray(0.0 if J is None else J, dtype=float)
    return (2.0 if layout.spins else 1.0) * value


def _cluster_tables(layout: PottsLayout, h: Any, J: Any, used: bool) -> Clusters:
    """Fields, edges and the probability of a bond on each edge between equal states."""
    bonds, fields = np.empty(0), np.zeros((1, layout.n_states))
    if used:
        strength = _strength(layout, J)
        assert strength is not None
        bonds, fields = np.full(layout.n_edges, -np.expm1(-strength)), _fields(layout, h)
    return Clusters(np.asarray(layout.edges), bonds, fields)
