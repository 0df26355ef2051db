"""How statistics change with one tie, compiled.

A network is held as its matrix, lists of neighbours with places (a tie is added or removed in
constant time) and, where a term asks for it, the number of two-paths between all nodes, which one
tie changes along the neighbours of its two ends only.

States are packed: one bit for each dyad that may change, eight in a byte (``numpy.packbits`` with
``bitorder="little"``), since anchors hold thousands of networks at a time. Ties that are fixed are
listed beside.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from pymc_bayessum.networks.terms import Term

__all__ = [
    "Program",
    "change",
    "changes",
    "counts",
    "empty_counts",
    "fill",
    "program",
    "read_bit",
    "toggle",
]

_DYADS, _OUT, _IN, _PARTNERS, _TRIANGLES, _MUTUAL = range(6)


class Program(NamedTuple):
    """Terms in a form that compiled code reads.

    Attributes
    ----------
    kinds : ndarray of int64, shape (d,)
    slots : ndarray of int64, shape (d,)
        Place of the term among the weights or tables.
    weights : ndarray, shape (w, n, n)
    tables : ndarray, shape (t, n + 1)
    n_nodes : int
    directed : bool
    paths : bool
        Whether two-paths have to be counted.
    """

    kinds: np.ndarray
    slots: np.ndarray
    weights: np.ndarray
    tables: np.ndarray
    n_nodes: int
    directed: bool
    paths: bool


class Network(NamedTuple):
    """A network with its lists of neighbours; both lists are one where it is undirected."""

    ties: np.ndarray
    out: np.ndarray
    n_out: np.ndarray
    out_place: np.ndarray
    into: np.ndarray
    n_into: np.ndarray
    into_place: np.ndarray
    paths: np.ndarray


def program(terms: tuple[Term, ...], n_nodes: int, directed: bool) -> Program:
    """Write terms for networks of n nodes as arrays.

    Parameters
    ----------
    terms : tuple of Term
    n_nodes : int
    directed : bool

    Returns
    -------
    Program

    Examples
    --------
    >>> from pymc_bayessum.networks.terms import edges, gwesp
    >>> program((edges(), gwesp(0.5)), 4, directed=False).kinds.tolist()
    [0, 3]
    """
    codes = {"dyads": _DYADS, "partners": _PARTNERS, "triangles": _TRIANGLES, "mutual": _MUTUAL}
    kinds: list[int] = []
    slots: list[int] = []
    weights: list[np.ndarray] = []
    tables: list[np.ndarray] = []
    for term in terms:
        if term.kind == "dyads":
            slots.append(len(weights))
            weights.append(term.matrix(n_nodes, directed))
        elif term.kind in ("degrees", "partners"):
            slots.append(len(tables))
            tables.append(term.table(n_nodes))
        else:
            slots.append(0)
        if term.kind == "degrees":
            kinds.append(_OUT if term.direction == "out" or not directed else _IN)
        else:
            kinds.append(codes[term.kind])
    return Program(
        np.array(kinds, dtype=np.int64),
        np.array(slots, dtype=np.int64),
        np.ascontiguousarray(np.reshape(weights, (-1, n_nodes, n_nodes)), dtype=float),
        np.ascontiguousarray(np.reshape(tables, (-1, n_nodes + 1)), dtype=float),
        n_nodes,
        directed,
        bool(np.isin(kinds, (_PARTNERS, _TRIANGLES)).any()),
    )


@njit(cache=True, nogil=True)
def start_network(n_nodes, directed):
    """Make the network without ties."""
    ties = np.zeros((n_nodes, n_nodes), np.uint8)
    paths = np.zeros((n_nodes, n_nodes), np.int32)
    out = np.zeros((n_nodes, n_nodes), np.int32)
    n_out = np.zeros(n_nodes, np.int32)
    out_place = np.zeros((n_nodes, n_nodes), np.int32)
    if not directed:
        return Network(ties, out, n_out, out_place, out, n_out, out_place, paths)
    into = np.zeros((n_nodes, n_nodes), np.int32)
    n_into = np.zeros(n_nodes, np.int32)
    into_place = np.zeros((n_nodes, n_nodes), np.int32)
    return Network(ties, out, n_out, out_place, into, n_into, into_place, paths)


@njit(cache=True, nogil=True)
def _list(lists, lengths, places, i, j, add):
    """Put j on the list of i, or take it off; the last one fills the gap."""
    if add:
        lists[i, lengths[i]] = j
        places[i, j] = lengths[i]
        lengths[i] += 1
    else:
        lengths[i] -= 1
        last = lists[i, lengths[i]]
        lists[i, places[i, j]] = last
        places[i, last] = places[i, j]


@njit(cache=True, nogil=True)
def toggle(network, terms, i, j):
    """Add the tie i -> j if it is not there, remove it if it is."""
    add = network.ties[i, j] == 0
    if terms.paths:
        sign = 1 if add else -1
        for a in range(network.n_out[j]):
            k = network.out[j, a]
            if k != i:
                network.paths[i, k] += sign
                if not terms.directed:
                    network.paths[k, i] += sign
        for a in range(network.n_into[i]):
            k = network.into[i, a]
            if k != j:
                network.paths[k, j] += sign
                if not terms.directed:
                    network.paths[j, k] += sign
    network.ties[i, j] = 1 if add else 0
    _list(network.out, network.n_out, network.out_place, i, j, add)
    if terms.directed:
        _list(network.into, network.n_into, network.into_place, j, i, add)
    else:
        network.ties[j, i] = network.ties[i, j]
        _list(network.out, network.n_out, network.out_place, j, i, add)


@njit(cache=True, nogil=True)
def _partners_change(network, table, i, j):
    """Change of the sum of table[shared partners] over ties, for a new tie i -> j."""
    present = network.ties[i, j]
    total = table[network.paths[i, j]]
    for a in range(network.n_out[j]):
        k = network.out[j, a]
        if k != i and network.ties[i, k]:
            # A tie that is there has counted itself among the partners already.
            before = network.paths[i, k] - present
            total += table[before + 1] - table[before]
    for a in range(network.n_into[i]):
        k = network.into[i, a]
        if k != j and network.ties[k, j]:
            before = network.paths[k, j] - present
            total += table[before + 1] - table[before]
    return total


@njit(cache=True, nogil=True)
def _triangles_change(network, i, j, directed):
    total = network.paths[i, j]
    if directed:
        total += network.paths[j, i]
        for a in range(network.n_out[i]):
            k = network.out[i, a]
            if k != j:
                total += network.ties[j, k]
        for a in range(network.n_into[i]):
            k = network.into[i, a]
            if k != j:
                total += network.ties[k, j]
    return float(total)


@njit(cache=True, nogil=True)
def change(network, terms, i, j, delta):
    """Write into delta what the statistics gain by the tie i -> j, were it not there."""
    present = network.ties[i, j]
    for t in range(len(terms.kinds)):
        kind, slot = terms.kinds[t], terms.slots[t]
        if kind == _DYADS:
            delta[t] = terms.weights[slot, i, j]
        elif kind == _OUT:
            before = network.n_out[i] - present
            delta[t] = terms.tables[slot, before + 1] - terms.tables[slot, before]
            if not terms.directed:
                before = network.n_out[j] - present
                delta[t] += terms.tables[slot, before + 1] - terms.tables[slot, before]
        elif kind == _IN:
            before = network.n_into[j] - present
            delta[t] = terms.tables[slot, before + 1] - terms.tables[slot, before]
        elif kind == _PARTNERS:
            delta[t] = _partners_change(network, terms.tables[slot], i, j)
        elif kind == _TRIANGLES:
            delta[t] = _triangles_change(network, i, j, terms.directed)
        else:
            delta[t] = network.ties[j, i]


@njit(cache=True, nogil=True)
def read_bit(packed, d):
    """Whether dyad d is tied in a packed state."""
    return (packed[d >> 3] >> (d & 7)) & 1


@njit(cache=True, nogil=True)
def empty_counts(terms, n_nodes):
    """Statistics of the network without ties: only functions of degrees can count there."""
    statistics = np.zeros(len(terms.kinds))
    for t in range(len(terms.kinds)):
        if terms.kinds[t] == _OUT or terms.kinds[t] == _IN:
            statistics[t] = n_nodes * terms.tables[terms.slots[t], 0]
    return statistics


@njit(cache=True, nogil=True)
def fill(terms, fixed, dyads, packed, statistics):
    """Build a network tie by tie, and add what they change to the statistics."""
    network = start_network(terms.n_nodes, terms.directed)
    delta = np.empty(len(statistics))
    n_fixed = len(fixed)
    for d in range(n_fixed + len(dyads)):
        if d < n_fixed:
            i, j = fixed[d, 0], fixed[d, 1]
        elif read_bit(packed, d - n_fixed):
            i, j = dyads[d - n_fixed, 0], dyads[d - n_fixed, 1]
        else:
            continue
        change(network, terms, i, j, delta)
        toggle(network, terms, i, j)
        statistics += delta
    return network


@njit(cache=True, nogil=True)
def counts(terms, fixed, dyads, states):
    """Count the statistics of packed networks, shape (N, d)."""
    found = np.empty((len(states), len(terms.kinds)))
    for row in range(len(states)):
        found[row] = empty_counts(terms, terms.n_nodes)
        fill(terms, fixed, dyads, states[row], found[row])
    return found


@njit(cache=True, nogil=True)
def changes(terms, fixed, dyads, packed):
    """Return what each free dyad's tie adds to the statistics given all others, (D, d)."""
    found = np.empty((len(dyads), len(terms.kinds)))
    network = fill(terms, fixed, dyads, packed, np.zeros(len(terms.kinds)))
    for d in range(len(dyads)):
        change(network, terms, dyads[d, 0], dyads[d, 1], found[d])
    return found
