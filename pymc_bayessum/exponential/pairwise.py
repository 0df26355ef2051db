r"""Families whose statistics are sums over single sites and pairs of them, found by asking.

Statistics are a user's function, a black box. Evaluated at the zero state, with one site changed
and with two, it shows

.. math:: \phi(x) = \phi(0) + \sum_i a_i(x_i) + \sum_{i<j} b_{ij}(x_i, x_j)

if it is of that kind, which random states confirm. Then a change of one site costs a look at its
neighbours, not an evaluation of the function, and Gibbs sampling is compiled.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numba import njit

from pymc_bayessum.exponential.parallel import run_parallel, uniform

__all__ = ["GibbsChain", "Pairwise", "find_pairwise"]

#: Entries of states and of tables up to which the search is made.
LARGEST_SEARCH = 200_000_000
LARGEST_TABLE = 20_000_000
#: Entries of states that the function is given at a time.
_BLOCK = 2_000_000


@dataclass(frozen=True, eq=False)
class Pairwise:
    """Statistics taken apart into sites (L, S, d) and pairs (E, S, S, d), of edges that matter."""

    sites: np.ndarray = field(repr=False)
    edges: np.ndarray = field(repr=False)
    pairs: np.ndarray = field(repr=False)

    def changes(self, states: np.ndarray) -> np.ndarray:
        """Statistics of states less those of the zero state, (N, d)."""
        found = self.sites[np.arange(states.shape[1]), states].sum(axis=1)
        for (i, j), table in zip(self.edges, self.pairs, strict=True):
            found += table[states[:, i], states[:, j]]
        return found


def find_pairwise(
    statistics: Callable[[np.ndarray], np.ndarray], sites: int, n_states: int
) -> Pairwise | None:
    """Take statistics apart, or return None where they are not of this kind (or too large).

    Examples
    --------
    >>> def phi(x):
    ...     return np.stack([x.sum(axis=1), (x[:, 1:] * x[:, :-1]).sum(axis=1)], axis=1)
    >>> find_pairwise(phi, 4, 2).edges.tolist()
    [[0, 1], [1, 2], [2, 3]]
    >>> find_pairwise(lambda x: x.prod(axis=1, keepdims=True), 4, 2) is None
    True
    """
    n_pairs = sites * (sites - 1) // 2
    if n_pairs * (n_states - 1) ** 2 * sites > LARGEST_SEARCH:
        return None
    origin = statistics(np.zeros((1, sites), np.int64))[0]
    one, state = np.divmod(np.arange(sites * (n_states - 1)), n_states - 1)
    singles = np.zeros((sites, n_states, len(origin)))
    rows = np.zeros((len(one), sites), np.int64)
    rows[np.arange(len(one)), one] = state + 1
    singles[one, state + 1] = statistics(rows) - origin
    first, second = np.triu_indices(sites, 1)
    edges, tables, size = [], [], 0
    block = max(1, _BLOCK // (sites * (n_states - 1) ** 2))
    for begin in range(0, n_pairs, block):
        i, j = first[begin : begin + block], second[begin : begin + block]
        table = np.zeros((len(i), n_states, n_states, len(origin)))
        for a in range(1, n_states):
            for b in range(1, n_states):
                rows = np.zeros((len(i), sites), np.int64)
                rows[np.arange(len(i)), i], rows[np.arange(len(i)), j] = a, b
                table[:, a, b] = statistics(rows) - origin - singles[i, a] - singles[j, b]
        scale = 1e-9 * (1.0 + np.abs(singles).max(initial=0.0))
        matters = np.abs(table).max(axis=(1, 2, 3)) > scale
        edges.append(np.stack([i, j], axis=1)[matters])
        tables.append(table[matters])
        size += tables[-1].size
        if size > LARGEST_TABLE:
            return None
    if not edges:
        edges, tables = [np.zeros((0, 2), int)], [np.zeros((0, n_states, n_states, len(origin)))]
    found = Pairwise(singles, np.concatenate(edges), np.concatenate(tables))
    trial = np.random.default_rng(0).integers(0, n_states, (60, sites))
    wanted = statistics(trial) - origin
    if not np.allclose(found.changes(trial), wanted, rtol=1e-8, atol=1e-8):
        return None
    return found


@njit(cache=True, nogil=True)
def _sweep(fields, offsets, neighbours, tables, sweeps, starts, streams, ends):
    n_sites, n_states = fields.shape
    energy = np.empty(n_states)
    for chain in range(len(starts)):
        stream, state = streams[chain], ends[chain]
        state[:] = starts[chain]
        for _ in range(sweeps):
            for i in range(n_sites):
                for a in range(n_states):
                    energy[a] = fields[i, a]
                for k in range(offsets[i], offsets[i + 1]):
                    b = state[neighbours[k]]
                    for a in range(n_states):
                        energy[a] += tables[k, b, a]
                peak = energy.max()
                total = 0.0
                for a in range(n_states):
                    energy[a] = np.exp(energy[a] - peak)
                    total += energy[a]
                left = uniform(stream) * total
                chosen = 0
                while chosen < n_states - 1 and left >= energy[chosen]:
                    left -= energy[chosen]
                    chosen += 1
                state[i] = chosen


class GibbsChain:
    """Parallel Gibbs chains of a pairwise family at one parameter vector."""

    name = "gibbs"

    def __init__(self, pairwise: Pairwise, theta: np.ndarray) -> None:
        self.fields = np.ascontiguousarray(pairwise.sites @ theta)
        self.edges = pairwise.edges
        self.couplings = tables = pairwise.pairs @ theta
        ends = np.concatenate([pairwise.edges, pairwise.edges[:, ::-1]])
        both = np.concatenate([tables, np.swapaxes(tables, 1, 2)])
        order = np.argsort(ends[:, 0], kind="stable")
        self.neighbours = np.ascontiguousarray(ends[order, 1], dtype=np.int64)
        # Rows are the neighbour's state, columns the site's own.
        self.tables = np.ascontiguousarray(np.swapaxes(both[order], 1, 2))
        counts = np.bincount(ends[:, 0], minlength=len(self.fields))
        self.offsets = np.concatenate([[0], np.cumsum(counts)])

    def start(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Sites independent of one another and equally likely in all states."""
        n_sites, n_states = self.fields.shape
        return rng.integers(0, n_states, (n, n_sites))

    def advance(self, states: np.ndarray, sweeps: int, rng: np.random.Generator) -> np.ndarray:
        """Return the states some sweeps later."""
        arguments = self.fields, self.offsets, self.neighbours, self.tables, sweeps
        return run_parallel(_sweep, arguments, states.astype(np.int64), rng)

    def energy(self, states: np.ndarray) -> np.ndarray:
        """Return ``theta . phi`` of states up to a constant, (N,)."""
        single = self.fields[np.arange(states.shape[1]), states].sum(axis=1)
        first, second = states[:, self.edges[:, 0]], states[:, self.edges[:, 1]]
        return single + self.couplings[np.arange(len(self.edges)), first, second].sum(axis=1)
