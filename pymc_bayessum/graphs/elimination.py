"""Exact sums over graphs by variable elimination: log Z, all marginals, their tangents, draws.

Sites are summed out one by one along an :class:`~pymc_bayessum.graphs.EliminationOrder`. The step
of site ``v`` multiplies everything that still mentions ``v`` (its field, its edges to later sites,
messages of earlier steps) into a table over ``v`` and its separator ``F`` and sums over ``v``; what
remains is a message over ``F``, handed to the step of the earliest site in ``F``. A second pass in
reverse gives every site and edge marginal, ``d log Z / d h`` and ``d log Z / d J`` (Dechter, 1999;
Lauritzen and Spiegelhalter, 1988). Graphs without structure to use, complete ones above all, have
their states listed instead, see :mod:`.listing_passes`.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from pymc_bayessum.graphs.elimination_passes import call_native, draw, prepare
from pymc_bayessum.graphs.layouts import (
    EliminationOrder,
    as_edges,
    elimination_order,
    least_width,
)
from pymc_bayessum.graphs.listing_passes import pack_listing
from pymc_bayessum.graphs.statistics import PottsLayout

__all__ = ["Budget", "EliminationPlan", "elimination_plan", "least_cost", "plan_within"]


class Budget:
    """Table entries up to which elimination is used, by how often it has to run.

    ``EVERY_STEP``: at each step of a sampler, some 6 ms a value, 20 ms with all marginals. A
    lattice of 9 x 9 with 3 states or of 14 x 14 with 2 is within. ``DRAWS``: one pass for
    predictive draws. ``ONCE``: now and then while a normaliser is set up, about a second each.
    ``ON_REQUEST``: at all, when asked for.
    """

    EVERY_STEP = 2e6
    DRAWS = 1e7
    ONCE = 1e8
    ON_REQUEST = 5e8


#: What a state costs where all are listed, in table entries of elimination.
STATE_COST = 0.25
#: Bytes up to which elimination is done at all.
LARGEST_MEMORY = 4e9
#: Plans that are kept, by graph and alphabet, and how many of them.
_PLANS: dict[tuple[bytes, int, int], "EliminationPlan"] = {}
MOST_PLANS = 64


def _power(base: int, exponent: int) -> float:
    """Return a power that stays finite where it overflows."""
    return math.exp(min(exponent * math.log(base), 700.0))


def listing_cost(n_sites: int, n_states: int) -> float:
    """Table entries of elimination that take as long as listing all states."""
    return STATE_COST * _power(n_states, n_sites)


@dataclass(frozen=True, eq=False)
class EliminationPlan:
    """Everything the compiled passes need to know of a graph; see :func:`elimination_plan`."""

    n_sites: int
    n_states: int
    edges: np.ndarray
    order: EliminationOrder

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        return self.n_sites, self.n_states, self.edges.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EliminationPlan) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the graph only; the plan is worked out again."""
        return elimination_plan, (self.edges, self.n_sites, self.n_states)

    @property
    def width(self) -> int:
        """Largest separator of the order."""
        return self.order.width

    @cached_property
    def is_listed(self) -> bool:
        """Whether the graph is so dense that listing all states is cheaper than elimination."""
        return listing_cost(self.n_sites, self.n_states) < self.order.cost(self.n_states)

    @property
    def cost(self) -> float:
        """Table entries of one forward pass, ``sum of S ** (1 + separator)``, or as much work."""
        return min(self.order.cost(self.n_states), listing_cost(self.n_sites, self.n_states))

    @property
    def memory(self) -> float:
        """Bytes held while marginals are computed: all messages and two tables, or four halves."""
        if self.is_listed:
            return 32.0 * float(self.n_states) ** (self.n_sites - self.n_sites // 2)
        sizes = [float(self.n_states) ** len(clique) for clique in self.order.cliques]
        return 8.0 * (2.0 * sum(sizes) + 2.0 * self.n_states * max(sizes))

    @cached_property
    def packed(self) -> np.ndarray:
        """Sizes and steps in one integer array, the form in which the compiled passes take them."""
        if self.is_listed:
            return pack_listing(self.edges, self.n_sites, self.n_states)
        return self._steps

    @cached_property
    def _steps(self) -> np.ndarray:
        return _pack(self)

    def log_partition(self, h: np.ndarray, J: np.ndarray) -> float:
        """Log Z for full parameters ``h`` (L, S) and ``J`` (E, S, S)."""
        value = np.full(1, np.nan)
        call_native("log_partition", *self._full(h, J), self.packed, value)
        return float(value[0])

    def marginals(self, h: np.ndarray, J: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Log Z, site marginals (L, S) and edge marginals (E, S, S)."""
        fields, couplings = self._full(h, J)
        value, sites, pairs = np.full(1, np.nan), np.empty_like(fields), np.empty_like(couplings)
        call_native("marginals", fields, couplings, self.packed, value, sites, pairs)
        return float(value[0]), sites, pairs

    def tangent(
        self, h: np.ndarray, J: np.ndarray, h_step: np.ndarray, J_step: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Directional derivative of both kinds of marginals: the Hessian of log Z on a step."""
        fields, couplings = self._full(h, J)
        sites, pairs = np.empty_like(fields), np.empty_like(couplings)
        steps = self._full(h_step, J_step)
        call_native("tangent", fields, couplings, *steps, self.packed, sites, pairs)
        return sites, pairs

    def prepare(self, h: np.ndarray, J: np.ndarray) -> tuple[np.ndarray, ...]:
        """Do the part of drawing that depends on the parameters only, for :meth:`draw`."""
        # Writable, as all other passes have them: for read-only arrays all would be compiled anew.
        fields, couplings = (np.require(full, requirements="W") for full in self._full(h, J))
        return prepare(fields, couplings, self._steps)

    def draw(
        self, prepared: tuple[np.ndarray, ...], n: int, rng: np.random.Generator
    ) -> np.ndarray:
        """Independent exact draws, ``(n, L)``, from what :meth:`prepare` returned."""
        site, pair, messages = prepared
        uniforms = rng.random((n, self.n_sites))
        return draw(site, pair, messages, uniforms, self._steps)

    def _full(self, h: Any, J: Any) -> tuple[np.ndarray, np.ndarray]:
        shape = (self.n_sites, self.n_states)
        fields = np.ascontiguousarray(h, dtype=float)
        couplings = np.ascontiguousarray(J, dtype=float)
        if fields.shape != shape:
            raise ValueError(f"h must have shape {shape}, got {fields.shape}")
        pair = (len(self.edges), self.n_states, self.n_states)
        if couplings.shape != pair:
            raise ValueError(f"J must have shape {pair}, got {couplings.shape}")
        return fields, couplings


def elimination_plan(
    edges: Any, n_sites: int, n_states: int, *, most_entries: float = math.inf
) -> EliminationPlan:
    """Plan the elimination of a graph; the same graph gives the same object.

    Orders with a table of more than ``most_entries`` are given up on the way; a `ValueError` where
    all are.

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> plan = elimination_plan(graphs.ring(6), 6, 2)
    >>> bool(np.isclose(plan.log_partition(np.zeros((6, 2)), np.zeros((6, 2, 2))), 6 * np.log(2)))
    True
    """
    pairs = as_edges(edges, n_sites)
    key = pairs.tobytes(), int(n_sites), int(n_states)
    plan = _PLANS.get(key)
    if plan is None:
        order = elimination_order(pairs, n_sites, n_states, most_entries=most_entries)
        plan = EliminationPlan(int(n_sites), int(n_states), pairs, order)
        _PLANS[key] = plan
        if len(_PLANS) > MOST_PLANS:
            del _PLANS[next(iter(_PLANS))]
    return plan


def _bound(layout: PottsLayout) -> tuple[int, float]:
    """Lower bounds of the width and of the table entries, found at a glance."""
    width = least_width(layout.edges, layout.n_sites)
    listed = listing_cost(layout.n_sites, layout.n_states)
    return width, min(_power(layout.n_states, 1 + width), listed)


@lru_cache(maxsize=64)
def plan_within(layout: PottsLayout, budget: float) -> EliminationPlan | None:
    """Elimination plan of a model's graph if it costs no more than a budget, else None.

    Graphs that are plainly too wide are told by a bound, without a search for an order. The budget
    is one of :class:`Budget`.

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> small = PottsLayout(100, 3, graphs.grid(10, 10), "shared", "scalar")
    >>> wide = PottsLayout(400, 3, graphs.grid(20, 20), "shared", "scalar")
    >>> [plan_within(layout, Budget.ONCE) is None for layout in (small, wide)]
    [False, True]
    """
    if _bound(layout)[1] > budget:
        return None
    try:
        plan = elimination_plan(
            layout.edges, layout.n_sites, layout.n_states, most_entries=Budget.ON_REQUEST
        )
    except ValueError:
        return None
    return plan if plan.cost <= budget and plan.memory <= LARGEST_MEMORY else None


def least_cost(layout: PottsLayout) -> tuple[int, float]:
    """Width and table entries that elimination of a model's graph has at least, for messages.

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> least_cost(PottsLayout(40, 2, graphs.complete(40), "none", "scalar"))[0]
    39
    """
    width, entries = _bound(layout)
    if entries > Budget.ON_REQUEST:
        return width, entries
    plan = elimination_plan(layout.edges, layout.n_sites, layout.n_states)
    return plan.width, plan.cost


def _pointers(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of unequal length as (offsets, values)."""
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    offsets[1:] = np.cumsum([len(row) for row in rows])
    return offsets, np.array([value for row in rows for value in row], dtype=np.int64)


def _runs(table: list[int], factor: set[int], n_states: int) -> list[tuple[int, int]]:
    """Lay a factor over a table: (size, stride in the factor) of each run of axes, slowest first.

    Neighbouring axes of the table that the factor has (or lacks) together make one run; a factor
    does not move along a run it lacks, which is stride zero.
    """
    runs: list[tuple[int, int]] = []
    stride = 1
    for site in reversed(table):
        present = site in factor
        if runs and (runs[-1][1] > 0) == present:
            runs[-1] = (runs[-1][0] * n_states, runs[-1][1])
        else:
            runs.append((n_states, stride if present else 0))
        stride *= n_states if present else 1
    return runs[::-1]


def _pack(plan: EliminationPlan) -> np.ndarray:
    """Write sizes and steps into one integer array.

    It holds its own length, the numbers of sites, states and edges, the ends of twelve arrays, and
    then those arrays, offsets each before what they point into:

    sites : (L,) the site eliminated in each step
    separators : offsets and sites of each separator, latest first (the axes of its message)
    local : offsets, and for each edge to a later site its row in ``edges``, whether the site
        eliminated comes second in it, and the later site; nearest in the order first
    factors : offsets, and for each factor of a step its source (an earlier step, or -1 for the
        product of field and local edges)
    runs : offsets for each factor, sizes and strides, see ``_runs``
    messages : (L + 1,) offset of each message in one buffer
    crossing : offsets and edges between what a message has summed out and its separator
    """
    order, n_states = plan.order, plan.n_states
    position = {site: step for step, site in enumerate(order.order)}
    edges = plan.edges.tolist()
    later_edges: list[list[tuple[int, int, int]]] = [[] for _ in order.order]
    for row, (first, second) in enumerate(edges):
        flip = position[first] > position[second]
        early, late = (second, first) if flip else (first, second)
        later_edges[position[early]].append((position[late], row, int(flip)))

    incoming: list[list[int]] = [[] for _ in order.order]
    crossing: list[set[int]] = [set() for _ in order.order]
    separators, local, factors, runs = [], [], [], []
    for step, site in enumerate(order.order):
        clique = order.cliques[step]
        separator = list(clique[::-1])
        table = [*separator, site]
        nearest = sorted(later_edges[step])
        scopes = [{site, *(order.order[late] for late, *_ in nearest)}]
        scopes += [set(order.cliques[child]) for child in incoming[step]]
        separators.append(separator)
        local.append(
            [value for late, row, flip in nearest for value in (row, flip, order.order[late])]
        )
        factors.append([-1, *incoming[step]])
        runs += [
            [value for run in _runs(table, scope, n_states) for value in run] for scope in scopes
        ]
        crossing[step] |= {row for _, row, _ in nearest}
        for child in incoming[step]:
            crossing[step] |= {row for row in crossing[child] if site not in edges[row]}
        if clique:
            incoming[position[clique[0]]].append(step)

    sizes = [n_states ** len(clique) for clique in order.cliques]
    messages = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    arrays = (
        np.array(order.order, dtype=np.int64),
        *_pointers(separators),
        *_pointers(local),
        *_pointers(factors),
        *_pointers(runs),
        messages,
        *_pointers([sorted(rows) for rows in crossing]),
    )
    array_ends = 4 + len(arrays) + np.cumsum([len(array) for array in arrays])
    head = [array_ends[-1], plan.n_sites, n_states, len(edges), *array_ends]
    return np.concatenate([head, *arrays]).astype(np.int64)
