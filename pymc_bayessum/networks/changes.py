"""How statistics change with one tie, compiled.

A network is held as layers of one array: its matrix, lists of neighbours with places (a tie is
added or removed in constant time) and, where a term asks for it, the number of two-paths between
all nodes, which one tie changes along the neighbours of its two ends only.

States are packed: one bit for each dyad that may change, eight in a byte (``numpy.packbits`` with
``bitorder="little"``), since anchors hold thousands of networks at a time. Ties that are fixed are
listed beside.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from pymc_bayessum.networks.terms import Term

__all__ = [
    "MOST_NODES",
    "TIES",
    "Program",
    "change",
    "changes",
    "counts",
    "empty_counts",
    "fill",
    "program",
    "read_bit",
    "room",
    "toggle",
]

_DYADS, _OUT, _IN, _PARTNERS, _TRIANGLES, _MUTUAL = range(6)

#: Layers of a network; the last two are those before them where it is undirected.
TIES, _PATHS, _TO, _TO_PLACE, _FROM, _FROM_PLACE = range(6)
#: Most nodes whose numbers and counts fit in a layer.
MOST_NODES = 32_000

# Every call would count references to all of its arrays, which takes longer than a change; so would
# tuples of arrays, and a way out for a division by zero.
_inlined = njit(inline="always", error_model="numpy")


class Program(NamedTuple):
    """Terms in a form that compiled code reads.

    Their kinds (d,), their places (d,) among the weights (w, n, n) or tables (t, n + 1), and
    whether two-paths have to be counted.
    """

    kinds: np.ndarray
    slots: np.ndarray
    weights: np.ndarray
    tables: np.ndarray
    n_nodes: int
    directed: bool
    paths: bool


def program(terms: tuple[Term, ...], n_nodes: int, directed: bool) -> Program:
    """Write terms for networks of n nodes as arrays.

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
def room(terms):
    """Make room for a network: its layers and its degrees (out, in)."""
    n_layers = 6 if terms.directed else 4
    layers = np.zeros((n_layers, terms.n_nodes, terms.n_nodes), np.int16)
    return layers, np.zeros((2, terms.n_nodes), np.int16)


@_inlined
def _list(layers, degrees, to, i, j, add):
    """Put j on the list of i, or take it off; the last one fills the gap."""
    lists, places, side = (_TO, _TO_PLACE, 0) if to else (_FROM, _FROM_PLACE, 1)
    if add:
        layers[lists, i, degrees[side, i]] = j
        layers[places, i, j] = degrees[side, i]
        degrees[side, i] += 1
    else:
        degrees[side, i] -= 1
        last = layers[lists, i, degrees[side, i]]
        layers[lists, i, layers[places, i, j]] = last
        layers[places, i, last] = layers[places, i, j]


@_inlined
def toggle(layers, degrees, directed, paths, i, j):
    """Add the tie i -> j if it is not there, remove it if it is."""
    add = layers[TIES, i, j] == 0
    before, side = (_FROM, 1) if directed else (_TO, 0)
    if paths:
        sign = 1 if add else -1
        for a in range(degrees[0, j]):
            k = layers[_TO, j, a]
            if k != i:
                layers[_PATHS, i, k] += sign
                if not directed:
                    layers[_PATHS, k, i] += sign
        for a in range(degrees[side, i]):
            k = layers[before, i, a]
            if k != j:
                layers[_PATHS, k, j] += sign
                if not directed:
                    layers[_PATHS, j, k] += sign
    layers[TIES, i, j] = 1 if add else 0
    _list(layers, degrees, True, i, j, add)
    if directed:
        _list(layers, degrees, False, j, i, add)
    else:
        layers[TIES, j, i] = layers[TIES, i, j]
        _list(layers, degrees, True, j, i, add)


@_inlined
def _partners_change(layers, degrees, tables, slot, directed, i, j):
    """Change of the sum of table[shared partners] over ties, for a new tie i -> j."""
    # A tie that is there has counted itself among the partners of others already.
    present = layers[TIES, i, j]
    total = tables[slot, layers[_PATHS, i, j]]
    if directed:
        for a in range(degrees[0, j]):
            k = layers[_TO, j, a]
            if k != i and layers[TIES, i, k]:
                s = layers[_PATHS, i, k] - present
                total += tables[slot, s + 1] - tables[slot, s]
        for a in range(degrees[1, i]):
            k = layers[_FROM, i, a]
            if k != j and layers[TIES, k, j]:
                s = layers[_PATHS, k, j] - present
                total += tables[slot, s + 1] - tables[slot, s]
    else:
        # Nodes tied to both ends, as many as there are two-paths, are looked for on one list.
        left, a = layers[_PATHS, i, j], 0
        while left > 0:
            k = layers[_TO, j, a]
            a += 1
            if layers[TIES, i, k]:
                left -= 1
                s, t = layers[_PATHS, i, k] - present, layers[_PATHS, j, k] - present
                total += tables[slot, s + 1] - tables[slot, s]
                total += tables[slot, t + 1] - tables[slot, t]
    return total


@_inlined
def _triangles_change(layers, degrees, directed, i, j):
    total = float(layers[_PATHS, i, j])
    if directed:
        total += layers[_PATHS, j, i]
        for a in range(degrees[0, i]):
            k = layers[_TO, i, a]
            if k != j:
                total += layers[TIES, j, k]
        for a in range(degrees[1, i]):
            k = layers[_FROM, i, a]
            if k != j:
                total += layers[TIES, k, j]
    return total


@_inlined
def change(layers, degrees, kinds, slots, weights, tables, directed, i, j, delta):
    """Write into delta what the statistics gain by the tie i -> j, were it not there."""
    present = layers[TIES, i, j]
    for t in range(len(kinds)):
        kind, slot = kinds[t], slots[t]
        if kind == _DYADS:
            delta[t] = weights[slot, i, j]
        elif kind == _OUT:
            before = degrees[0, i] - present
            delta[t] = tables[slot, before + 1] - tables[slot, before]
            if not directed:
                before = degrees[0, j] - present
                delta[t] += tables[slot, before + 1] - tables[slot, before]
        elif kind == _IN:
            before = degrees[1, j] - present
            delta[t] = tables[slot, before + 1] - tables[slot, before]
        elif kind == _PARTNERS:
            delta[t] = _partners_change(layers, degrees, tables, slot, directed, i, j)
        elif kind == _TRIANGLES:
            delta[t] = _triangles_change(layers, degrees, directed, i, j)
        else:
            delta[t] = layers[TIES, j, i]


@njit(cache=True, nogil=True)
def read_bit(packed, d):
    """Whether dyad d is tied in a packed state."""
    return (packed[d >> 3] >> (d & 7)) & 1


@njit(cache=True, nogil=True)
def empty_counts(terms):
    """Statistics of the network without ties: only functions of degrees can count there."""
    statistics = np.zeros(len(terms.kinds))
    for t in range(len(terms.kinds)):
        if terms.kinds[t] == _OUT or terms.kinds[t] == _IN:
            statistics[t] = terms.n_nodes * terms.tables[terms.slots[t], 0]
    return statistics


@njit(cache=True, nogil=True)
def fill(terms, fixed, dyads, packed, layers, degrees, statistics):
    """Build a network tie by tie where another was, and add what they change to the statistics."""
    kinds, slots, weights, tables = terms.kinds, terms.slots, terms.weights, terms.tables
    directed, paths = terms.directed, terms.paths
    layers[:], degrees[:] = 0, 0
    delta = np.empty(len(statistics))
    n_fixed = len(fixed)
    for d in range(n_fixed + len(dyads)):
        if d < n_fixed:
            i, j = fixed[d, 0], fixed[d, 1]
        elif read_bit(packed, d - n_fixed):
            i, j = dyads[d - n_fixed, 0], dyads[d - n_fixed, 1]
        else:
            continue
        change(layers, degrees, kinds, slots, weights, tables, directed, i, j, delta)
        toggle(layers, degrees, directed, paths, i, j)
        for t in range(len(statistics)):
            statistics[t] += delta[t]


@njit(cache=True, nogil=True)
def counts(terms, fixed, dyads, states):
    """Count the statistics of packed networks, shape (N, d)."""
    found = np.empty((len(states), len(terms.kinds)))
    layers, degrees = room(terms)
    for row in range(len(states)):
        found[row] = empty_counts(terms)
        fill(terms, fixed, dyads, states[row], layers, degrees, found[row])
    return found


@njit(cache=True, nogil=True)
def changes(terms, fixed, dyads, packed):
    """Return what each free dyad's tie adds to the statistics given all others, (D, d)."""
    found = np.empty((len(dyads), len(terms.kinds)))
    layers, degrees = room(terms)
    fill(terms, fixed, dyads, packed, layers, degrees, np.zeros(len(terms.kinds)))
    kinds, slots, weights, tables = terms.kinds, terms.slots, terms.weights, terms.tables
    directed = terms.directed
    for d in range(len(dyads)):
        i, j = dyads[d, 0], dyads[d, 1]
        change(layers, degrees, kinds, slots, weights, tables, directed, i, j, found[d])
    return found
