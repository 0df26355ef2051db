"""Exact sums over graphs by variable elimination: log Z, all marginals, their tangents, draws.

Sites are summed out one by one along an :class:`~pymc_bayessum.graphs.EliminationOrder`. The step
of site ``v`` multiplies everything that still mentions ``v`` (its field, its edges to later sites,
messages of earlier steps) into a table over ``v`` and its separator ``F`` and sums over ``v``; what
remains is a message over ``F``, handed to the step of the earliest site in ``F``. A second pass in
reverse gives every site and edge marginal, ``d log Z / d h`` and ``d log Z / d J`` (Dechter, 1999;
Lauritzen and Spiegelhalter, 1988).

Tables are flat, the axis of ``v`` fastest and later sites slower, so a message lies in the table of
its step in few long runs and no transposition is ever needed.

Numbers. A message is a sum over the eliminated side, so the logarithms of its entries spread by at
most the sum, over the edges that cross to ``F``, of the ranges of their couplings. While that bound
stays below :data:`LINEAR_RANGE` no entry can underflow and the sums run in plain arithmetic; beyond
it (couplings of 50 and more) the same plan runs on logarithms. In the backward pass tables hold
probabilities, where underflow is harmless.

Tangents. The marginals are analytic in the parameters, so one run of the same code in complex
arithmetic at ``theta + i eps d`` gives the product of the Hessian with ``d`` to machine precision
(Squire and Trapp, 1998).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numba import njit

from pymc_bayessum.graphs import EliminationOrder, as_edges, elimination_order

__all__ = ["EliminationPlan", "elimination_plan", "is_affordable"]

#: Table entries up to which elimination is chosen by default: some 20 ms a value, 60 ms with all
#: marginals. A lattice of 3 states and width 10, or of 2 states and width 15, is just within.
AFFORDABLE_ENTRIES = 5e6
#: Table entries and bytes up to which elimination is done at all, when asked for.
LARGEST_ENTRIES = 5e8
LARGEST_MEMORY = 4e9
#: Largest spread of log factors within a table for which plain arithmetic is used.
LINEAR_RANGE = 500.0
#: Step of the complex tangent; its product with exp(-LINEAR_RANGE) is still a normal number.
_TANGENT_STEP = 1e-40


@dataclass(frozen=True, eq=False)
class EliminationPlan:
    """Everything the compiled passes need to know of a graph, worked out once.

    Build it with :func:`elimination_plan`.

    Attributes
    ----------
    n_sites, n_states : int
    edges : ndarray of int, shape (E, 2)
    order : EliminationOrder
    arrays : tuple of ndarray
        The steps as flat integer arrays, see ``_flatten``.
    """

    n_sites: int
    n_states: int
    edges: np.ndarray
    order: EliminationOrder

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        return self.n_sites, self.n_states, self.edges.tobytes()

    def __eq__(self, other: object) -> bool:
        """Compare graphs and alphabets."""
        return isinstance(other, EliminationPlan) and self._key == other._key

    def __hash__(self) -> int:
        """Hash of graph and alphabet."""
        return hash(self._key)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the graph only; the plan is worked out again."""
        return elimination_plan, (self.edges, self.n_sites, self.n_states)

    @property
    def width(self) -> int:
        """Largest separator of the order."""
        return self.order.width

    @property
    def cost(self) -> float:
        """Table entries of one forward pass, ``sum of S ** (1 + separator)``."""
        return self.order.cost(self.n_states)

    @property
    def memory(self) -> float:
        """Bytes held while marginals are computed: all messages and two tables."""
        sizes = [float(self.n_states) ** len(clique) for clique in self.order.cliques]
        return 8.0 * (2.0 * sum(sizes) + 2.0 * self.n_states * max(sizes))

    @cached_property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The steps as flat integer arrays."""
        return _flatten(self)

    def log_partition(self, h: np.ndarray, J: np.ndarray) -> float:
        """Log Z for full parameters ``h`` (L, S) and ``J`` (E, S, S)."""
        return float(log_partition(*self._full(h, J), *self.arrays))

    def marginals(self, h: np.ndarray, J: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Log Z, site marginals (L, S) and edge marginals (E, S, S)."""
        value, sites, pairs = marginals(*self._full(h, J), *self.arrays)
        return float(value), sites, pairs

    def tangent(
        self, h: np.ndarray, J: np.ndarray, h_step: np.ndarray, J_step: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Directional derivative of both kinds of marginals: the Hessian of log Z on a step."""
        return marginals_tangent(*self._full(h, J), *self._full(h_step, J_step), *self.arrays)

    def sample(self, h: np.ndarray, J: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
        """Independent exact draws, ``(n, L)`` states 0 .. S-1."""
        return self.draw(self.prepare(h, J), n, rng)

    def prepare(self, h: np.ndarray, J: np.ndarray) -> tuple[np.ndarray, ...]:
        """Do the part of drawing that depends on the parameters only, for :meth:`draw`."""
        return prepare(*self._full(h, J), *self.arrays)

    def draw(
        self, prepared: tuple[np.ndarray, ...], n: int, rng: np.random.Generator
    ) -> np.ndarray:
        """Independent exact draws, ``(n, L)``, from what :meth:`prepare` returned."""
        site, pair, messages = prepared
        uniforms = rng.random((n, self.n_sites))
        return draw(site, pair, messages, uniforms, *self.arrays)

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


def elimination_plan(edges: Any, n_sites: int, n_states: int) -> EliminationPlan:
    """Plan the elimination of a graph; the same graph gives the same object.

    Parameters
    ----------
    edges : array_like of int, shape (E, 2), or networkx.Graph
    n_sites, n_states : int

    Returns
    -------
    EliminationPlan

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum import graphs
    >>> from pymc_bayessum.elimination import elimination_plan
    >>> plan = elimination_plan(graphs.ring(6), 6, 2)
    >>> bool(np.isclose(plan.log_partition(np.zeros((6, 2)), np.zeros((6, 2, 2))), 6 * np.log(2)))
    True
    """
    pairs = as_edges(edges, n_sites)
    return _cached_plan(pairs.tobytes(), int(n_sites), int(n_states))


@lru_cache(maxsize=64)
def _cached_plan(edge_bytes: bytes, n_sites: int, n_states: int) -> EliminationPlan:
    pairs = np.frombuffer(edge_bytes, dtype=np.int64).reshape(-1, 2)
    return EliminationPlan(n_sites, n_states, pairs, elimination_order(pairs, n_sites, n_states))


def is_affordable(plan: EliminationPlan) -> bool:
    """Whether elimination is cheap enough to be the default, see :data:`AFFORDABLE_ENTRIES`."""
    return plan.cost <= AFFORDABLE_ENTRIES


def is_possible(plan: EliminationPlan) -> bool:
    """Whether elimination can be done at all: time and memory within the stated limits."""
    return plan.cost <= LARGEST_ENTRIES and plan.memory <= LARGEST_MEMORY


def _pointers(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of unequal length as (offsets, values)."""
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    offsets[1:] = np.cumsum([len(row) for row in rows])
    return offsets, np.array([value for row in rows for value in row], dtype=np.int64)


def _runs(table: list[int], factor: list[int], n_states: int) -> list[tuple[int, int]]:
    """Lay a factor over a table: (size, stride in the factor) of each run of axes, slowest first.

    Neighbouring axes of the table that the factor has (or lacks) together make one run; a factor
    does not move along a run it lacks, which is stride zero.
    """
    has = set(factor)
    runs: list[tuple[int, int]] = []
    stride = 1
    for site in reversed(table):
        present = site in has
        if runs and (runs[-1][1] > 0) == present:
            runs[-1] = (runs[-1][0] * n_states, runs[-1][1])
        else:
            runs.append((n_states, stride if present else 0))
        stride *= n_states if present else 1
    return runs[::-1]


def _flatten(plan: EliminationPlan) -> tuple[np.ndarray, ...]:
    """Write the steps as flat arrays.

    Returns
    -------
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
        ends = [order.order[late] for late, *_ in nearest]
        scopes = [[*ends[::-1], site]]
        scopes += [[*order.cliques[child][::-1]] for child in incoming[step]]
        separators.append(separator)
        local.append(
            [
                value
                for other, (_, row, flip) in zip(ends, nearest, strict=True)
                for value in (row, flip, other)
            ]
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
    return (
        np.array(order.order, dtype=np.int64),
        *_pointers(separators),
        *_pointers(local),
        *_pointers(factors),
        *_pointers(runs),
        messages,
        *_pointers([sorted(rows) for rows in crossing]),
    )


@njit(cache=True)
def _advance(count, runs, first, n_runs, offset):
    """Move a factor's offset on by one step of its slower runs."""
    run = n_runs - 2
    while run >= 0:
        stride = runs[first + 2 * run + 1]
        count[run] += 1
        offset += stride
        if count[run] < runs[first + 2 * run]:
            break
        offset -= stride * count[run]
        count[run] = 0
        run -= 1
    return offset


@njit(cache=True)
def _lay(work, size, factor, runs, first, last):
    """Fill a table with a factor, repeated along the runs the factor lacks."""
    n_runs = (last - first) // 2
    inner = runs[last - 2]
    count = np.zeros(n_runs, np.int64)
    offset = 0
    for place in range(0, size, inner):
        part = factor[offset : offset + inner]
        target = work[place : place + inner]
        for k in range(inner):
            target[k] = part[k]
        offset = _advance(count, runs, first, n_runs, offset)


@njit(cache=True)
def _spread(work, size, factor, runs, first, last, logs):
    """Multiply (on logarithms: add) a factor into a table; the last run always has stride one."""
    n_runs = (last - first) // 2
    inner = runs[last - 2]
    count = np.zeros(n_runs, np.int64)
    offset = 0
    for place in range(0, size, inner):
        part = factor[offset : offset + inner]
        target = work[place : place + inner]
        if logs:
            for k in range(inner):
                target[k] += part[k]
        else:
            for k in range(inner):
                target[k] *= part[k]
        offset = _advance(count, runs, first, n_runs, offset)


@njit(cache=True)
def _gather(work, size, target, runs, first, last):
    """Sum a table onto the axes of a factor: the transpose of ``_spread``."""
    n_runs = (last - first) // 2
    inner = runs[last - 2]
    count = np.zeros(n_runs, np.int64)
    offset = 0
    for place in range(0, size, inner):
        part = work[place : place + inner]
        onto = target[offset : offset + inner]
        for k in range(inner):
            onto[k] += part[k]
        offset = _advance(count, runs, first, n_runs, offset)


@njit(cache=True)
def _spread_of(values):
    """Range of the logarithms in a small table; not finite where an entry is not."""
    low = values[0].real
    high = low
    for value in values:
        low = min(low, value.real)
        high = max(high, value.real)
    return high - low


@njit(cache=True)
def _needs_logs(h, J, sites, local_at, local, factor_at, factors, cross_at, cross):
    """Whether some table could spread beyond what plain arithmetic holds."""
    n_edges = J.shape[0]
    ranges = np.empty(n_edges)
    for row in range(n_edges):
        ranges[row] = _spread_of(J[row].ravel())
    bounds = np.zeros(len(sites))
    for step in range(len(sites)):
        table = _spread_of(h[sites[step]])
        for k in range(local_at[step], local_at[step + 1], 3):
            table += ranges[local[k]]
        for k in range(factor_at[step] + 1, factor_at[step + 1]):
            table += bounds[factors[k]]
        if not table <= LINEAR_RANGE:  # also true for NaN
            return True
        for k in range(cross_at[step], cross_at[step + 1]):
            bounds[step] += ranges[cross[k]]
    return False


@njit(cache=True)
def _potentials(h, J, logs):
    """Tables of field and coupling factors, each divided by its largest entry, and the shift."""
    site, pair = h.copy(), J.copy()
    shift = 0.0
    for table in range(h.shape[0] + J.shape[0]):
        row = table - h.shape[0]
        flat = site[table] if row < 0 else pair[row].ravel()
        top = flat[0].real
        for value in flat:
            top = max(top, value.real)
        if not np.isfinite(top):
            top = 0.0
        shift += top
        for k in range(len(flat)):
            flat[k] = flat[k] - top if logs else np.exp(flat[k] - top)
    return site, pair, shift


@njit(cache=True)
def _local_factor(target, site, pair, local, first, last, logs):
    """Product of a site's field and its edges to later sites; returns its size."""
    n_states = len(site)
    size = n_states
    for state in range(n_states):
        target[state] = site[state]
    for k in range(first, last, 3):
        coupling = pair[local[k]] if local[k + 1] else pair[local[k]].T
        for other in range(n_states - 1, -1, -1):
            for rest in range(0, size, n_states):
                for state in range(n_states):
                    value = coupling[other, state]
                    old = target[rest + state]
                    target[other * size + rest + state] = old + value if logs else old * value
        size *= n_states
    return size


@njit(cache=True)
def _table(
    step, work, scratch, site, pair, messages, sites, local_at, local, factor_at, factors,
    run_at, runs, message_at, logs,
):  # fmt: skip
    """Product of all factors of a step, in ``work``; returns the sizes of table and local part."""
    n_states = site.shape[1]
    size = (message_at[step + 1] - message_at[step]) * n_states
    first, last = local_at[step], local_at[step + 1]
    local_size = n_states ** (1 + (last - first) // 3)
    whole = local_size == size
    target = work if whole else scratch
    _local_factor(target, site[sites[step]], pair, local, first, last, logs)
    for k in range(factor_at[step], factor_at[step + 1]):
        source = factors[k]
        if source >= 0:
            message = messages[message_at[source] : message_at[source + 1]]
            _spread(work, size, message, runs, run_at[k], run_at[k + 1], logs)
        elif not whole:
            _lay(work, size, scratch, runs, run_at[k], run_at[k + 1])
    return size, local_size


@njit(cache=True)
def _log_sum(values, start, n_states):
    """Log-sum-exp over consecutive entries, -inf when all are."""
    top = values[start].real
    for state in range(1, n_states):
        top = max(top, values[start + state].real)
    if top == -np.inf:
        return values[start]
    total = values[start] * 0.0
    for state in range(n_states):
        total += np.exp(values[start + state] - top)
    return np.log(total) + top


@njit(cache=True)
def _forward(
    h, J, logs, work, scratch, messages, scales, sites, local_at, local, factor_at, factors,
    run_at, runs, message_at,
):  # fmt: skip
    """Sum out every site; fills messages and their scales, returns factors and log Z."""
    n_states = h.shape[1]
    site, pair, shift = _potentials(h, J, logs)
    total = scales[0] * 0.0 + shift
    for step in range(len(sites)):
        size, _ = _table(
            step, work, scratch, site, pair, messages, sites, local_at, local, factor_at, factors,
            run_at, runs, message_at, logs,
        )  # fmt: skip
        message = messages[message_at[step] : message_at[step + 1]]
        top = -np.inf
        for rest in range(size // n_states):
            if logs:
                message[rest] = _log_sum(work, rest * n_states, n_states)
            else:
                value = work[rest * n_states]
                for state in range(1, n_states):
                    value += work[rest * n_states + state]
                message[rest] = value
            top = max(top, message[rest].real)
        scales[step] = top
        if len(message) == 1:
            scales[step] = message[0]
        elif logs and top == -np.inf:
            scales[step] = 0.0
        for rest in range(len(message)):
            if logs:
                message[rest] -= scales[step]
            else:
                message[rest] /= scales[step]
        total += scales[step] if logs else np.log(scales[step])
    return site, pair, total


@njit(cache=True)
def _buffers(h, sites, local_at, message_at):
    """Work table, scratch table, messages and scales for one pass."""
    n_states = h.shape[1]
    largest = 0
    local_largest = 0
    for step in range(len(sites)):
        size = (message_at[step + 1] - message_at[step]) * n_states
        local_size = n_states ** (1 + (local_at[step + 1] - local_at[step]) // 3)
        largest = max(largest, size)
        if local_size < size:
            local_largest = max(local_largest, local_size)
    work = np.empty(largest, h.dtype)
    scratch = np.empty(local_largest, h.dtype)
    return work, scratch, np.empty(message_at[-1], h.dtype), np.empty(len(sites), h.dtype)


@njit(cache=True)
def log_partition(
    h, J, sites, separator_at, separators, local_at, local, factor_at, factors, run_at, runs,
    message_at, cross_at, cross,
):  # fmt: skip
    """Log Z by one forward pass."""
    logs = _needs_logs(h, J, sites, local_at, local, factor_at, factors, cross_at, cross)
    work, scratch, messages, scales = _buffers(h, sites, local_at, message_at)
    _, _, total = _forward(
        h, J, logs, work, scratch, messages, scales, sites, local_at, local, factor_at, factors,
        run_at, runs, message_at,
    )  # fmt: skip
    return total


@njit(cache=True)
def marginals(
    h, J, sites, separator_at, separators, local_at, local, factor_at, factors, run_at, runs,
    message_at, cross_at, cross,
):  # fmt: skip
    """Log Z, site and edge marginals by a forward and a backward pass."""
    logs = _needs_logs(h, J, sites, local_at, local, factor_at, factors, cross_at, cross)
    work, scratch, messages, scales = _buffers(h, sites, local_at, message_at)
    site, pair, total = _forward(
        h, J, logs, work, scratch, messages, scales, sites, local_at, local, factor_at, factors,
        run_at, runs, message_at,
    )  # fmt: skip
    n_states = h.shape[1]
    outside = np.empty_like(messages)
    site_marginals, pair_marginals = np.zeros_like(h), np.zeros_like(J)
    for step in range(len(sites) - 1, -1, -1):
        size, local_size = _table(
            step, work, scratch, site, pair, messages, sites, local_at, local, factor_at, factors,
            run_at, runs, message_at, logs,
        )  # fmt: skip
        n_rest = size // n_states
        if n_rest == 1:
            outside[message_at[step]] = 0.0 if logs else 1.0
        around = outside[message_at[step] : message_at[step + 1]]
        for rest in range(n_rest):
            start = rest * n_states
            if logs:
                weight = around[rest] - scales[step]
                for state in range(n_states):
                    value = work[start + state] + weight
                    # The guard keeps exp(-inf + 0i) from becoming NaN.
                    work[start + state] = np.exp(value) if value.real > -740.0 else 0.0
            else:
                weight = around[rest] / scales[step]
                for state in range(n_states):
                    work[start + state] *= weight
        for k in range(factor_at[step] + 1, factor_at[step + 1]):
            low, high = message_at[factors[k]], message_at[factors[k] + 1]
            onto = outside[low:high]
            onto[:] = 0.0
            _gather(work, size, onto, runs, run_at[k], run_at[k + 1])
            for rest in range(high - low):
                message = messages[low + rest]
                if onto[rest].real == 0.0:
                    onto[rest] = -np.inf if logs else 0.0
                elif logs:
                    onto[rest] = np.log(onto[rest]) - message
                else:
                    onto[rest] /= message
        block = work
        if local_size < size:
            k = factor_at[step]
            scratch[:local_size] = 0.0
            _gather(work, size, scratch, runs, run_at[k], run_at[k + 1])
            block = scratch
        for k in range(local_at[step + 1] - 3, local_at[step] - 1, -3):
            onto_pair = pair_marginals[local[k]]
            if not local[k + 1]:
                onto_pair = onto_pair.T
            inner = local_size // n_states
            for rest in range(0, inner, n_states):
                for state in range(n_states):
                    folded = block[rest + state]
                    onto_pair[0, state] += folded
                    for other in range(1, n_states):
                        value = block[other * inner + rest + state]
                        onto_pair[other, state] += value
                        folded += value
                    block[rest + state] = folded
            local_size = inner
        for state in range(n_states):
            site_marginals[sites[step], state] = block[state]
    return total, site_marginals, pair_marginals


@njit(cache=True)
def marginals_tangent(
    h, J, h_step, J_step, sites, separator_at, separators, local_at, local, factor_at, factors,
    run_at, runs, message_at, cross_at, cross,
):  # fmt: skip
    """Directional derivative of the marginals along (h_step, J_step) by a complex step."""
    longest = 0.0
    for value in h_step.ravel():
        longest = max(longest, abs(value))
    for value in J_step.ravel():
        longest = max(longest, abs(value))
    if longest == 0.0:
        return np.zeros_like(h), np.zeros_like(J)
    turn = 1j * _TANGENT_STEP / longest
    _, site_marginals, pair_marginals = marginals(
        h + turn * h_step, J + turn * J_step, sites, separator_at, separators, local_at, local,
        factor_at, factors, run_at, runs, message_at, cross_at, cross,
    )  # fmt: skip
    back = longest / _TANGENT_STEP
    return site_marginals.imag * back, pair_marginals.imag * back


@njit(cache=True)
def prepare(
    h, J, sites, separator_at, separators, local_at, local, factor_at, factors, run_at, runs,
    message_at, cross_at, cross,
):  # fmt: skip
    """Logarithms of field factors, coupling factors and messages."""
    logs = _needs_logs(h, J, sites, local_at, local, factor_at, factors, cross_at, cross)
    work, scratch, messages, scales = _buffers(h, sites, local_at, message_at)
    site, pair, _ = _forward(
        h, J, logs, work, scratch, messages, scales, sites, local_at, local, factor_at, factors,
        run_at, runs, message_at,
    )  # fmt: skip
    if not logs:
        site, pair, messages = np.log(site), np.log(pair), np.log(messages)
    return site, pair, messages


@njit(cache=True)
def draw(
    site, pair, messages, uniforms, sites, separator_at, separators, local_at, local, factor_at,
    factors, run_at, runs, message_at, cross_at, cross,
):  # fmt: skip
    """Exact draws, one for each row of ``uniforms``: sites in reverse order of elimination."""
    n_states = site.shape[1]
    draws = np.zeros(uniforms.shape, np.int64)
    weights = np.empty(n_states)
    for row in range(len(draws)):
        x = draws[row]
        for step in range(len(sites) - 1, -1, -1):
            here = sites[step]
            weights[:] = site[here]
            for k in range(local_at[step], local_at[step + 1], 3):
                other = x[local[k + 2]]
                for state in range(n_states):
                    if local[k + 1]:
                        weights[state] += pair[local[k], other, state]
                    else:
                        weights[state] += pair[local[k], state, other]
            for k in range(factor_at[step] + 1, factor_at[step + 1]):
                source = factors[k]
                place = 0
                for axis in range(separator_at[source], separator_at[source + 1] - 1):
                    place = place * n_states + x[separators[axis]]
                place = message_at[source] + place * n_states
                for state in range(n_states):
                    weights[state] += messages[place + state]
            top = weights.max()
            total = 0.0
            for state in range(n_states):
                weights[state] = np.exp(weights[state] - top)
                total += weights[state]
            left = uniforms[row, here] * total
            state = 0
            while state < n_states - 1 and left >= weights[state]:
                left -= weights[state]
                state += 1
            x[here] = state
    return draws
