"""All networks on few nodes, listed by their statistics.

A Gray code walks through all states of the free dyads by one tie at a time, so each step costs one
change of the statistics. Equal statistics are merged on the way: log Z is then a short sum.
"""

import numpy as np
from numba import njit

from pymc_bayessum.exponential.listing import distinct
from pymc_bayessum.networks.changes import TIES, Program, change, empty_counts, fill, room, toggle

__all__ = ["LISTABLE", "listed"]

#: Free dyads up to which all networks are listed (2^21: seven nodes).
LISTABLE = 21


@njit(cache=True, nogil=True)
def _walk(terms, fixed, dyads, found):
    statistics = empty_counts(terms)
    none = np.zeros((len(dyads) + 7) // 8, np.uint8)
    layers, degrees = room(terms)
    fill(terms, fixed, dyads, none, layers, degrees, statistics)
    kinds, slots, weights, tables = terms.kinds, terms.slots, terms.weights, terms.tables
    directed, paths = terms.directed, terms.paths
    delta = np.empty(len(statistics))
    found[0] = statistics
    for step in range(1, len(found)):
        # From one code word to the next that bit changes which is the counter's lowest one.
        d = 0
        while not (step >> d) & 1:
            d += 1
        i, j = dyads[d, 0], dyads[d, 1]
        change(layers, degrees, kinds, slots, weights, tables, directed, i, j, delta)
        sign = -1.0 if layers[TIES, i, j] else 1.0
        for t in range(len(delta)):
            found[step, t] = found[step - 1, t] + sign * delta[t]
        toggle(layers, degrees, directed, paths, i, j)


def listed(terms: Program, fixed: np.ndarray, dyads: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """List the distinct statistics (M, d) of all networks, and how many networks have each (M,).

    They have the fixed ties (F, 2) and differ in the free dyads (D, 2), 2^D of them.

    Examples
    --------
    Three nodes have no tie, one, two or three of them, which are then a triangle.

    >>> from pymc_bayessum.networks.changes import program
    >>> from pymc_bayessum.networks.terms import edges, triangles
    >>> pairs, none = np.stack(np.triu_indices(3, 1), axis=1), np.empty((0, 2), np.int64)
    >>> rows, times = listed(program((edges(), triangles()), 3, False), none, pairs)
    >>> rows.tolist(), times.tolist()
    ([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [3.0, 1.0]], [1.0, 3.0, 3.0, 1.0])
    """
    found = np.empty((2 ** len(dyads), len(terms.kinds)))
    _walk(terms, fixed, dyads, found)
    return distinct(found)
