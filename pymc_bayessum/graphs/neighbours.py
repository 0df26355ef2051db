"""Who is next to whom: couplings sorted by the site they act on, and the local fields they make."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numba import njit

__all__ = ["Neighbours", "adjacency", "local_fields", "neighbours", "softmax"]


class Neighbours(NamedTuple):
    """Neighbours of every site, one after the other, with the couplings turned towards the site.

    Those of site i stand at ``start[i] : start[i + 1]`` of ``site`` (2 E,), the neighbouring sites;
    ``table[k, b, a]`` couples state b of the k-th of these with state a of the site itself.
    """

    start: np.ndarray
    site: np.ndarray
    table: np.ndarray


def adjacency(edges: np.ndarray, n_sites: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sort the two ends of all edges by the site they belong to: ``start``, ``site``, ``end``.

    The ends at site i stand at ``start[i] : start[i + 1]``. ``site`` (2 E,) are the sites at the
    other ends; ``end`` (2 E,) is the edge, plus E where the site is the second of its two.

    Examples
    --------
    >>> import numpy as np
    >>> start, site, end = adjacency(np.array([[0, 1], [1, 2]]), 3)
    >>> start.tolist(), site.tolist(), end.tolist()
    ([0, 1, 3, 4], [1, 0, 2, 1], [0, 2, 1, 3])
    """
    return _adjacency(np.ascontiguousarray(edges).tobytes(), n_sites)


@lru_cache(maxsize=16)
def _adjacency(edge_bytes: bytes, n_sites: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    edges = np.frombuffer(edge_bytes, dtype=np.int64).reshape(-1, 2)
    here, there = edges.T.ravel(), edges[:, ::-1].T.ravel()
    end = np.lexsort((there, here))
    return np.searchsorted(here[end], np.arange(n_sites + 1)), there[end], end


def neighbours(couplings: np.ndarray, edges: np.ndarray, n_sites: int) -> Neighbours:
    """Sort the couplings of a graph, (E, S, S), by the site they act on.

    Examples
    --------
    >>> import numpy as np
    >>> found = neighbours(np.zeros((2, 3, 3)), np.array([[0, 1], [1, 2]]), 3)
    >>> found.start.tolist(), found.site.tolist()
    ([0, 1, 3, 4], [1, 0, 2, 1])
    """
    start, site, end = adjacency(edges, n_sites)
    table = np.concatenate([couplings.transpose(0, 2, 1), couplings])
    return Neighbours(start, site, table[end])


@njit(cache=True, nogil=True)
def local_fields(state, fields, start, site, table, out):
    """Log weight of every state of every site given its neighbours."""
    n_sites, n_states = fields.shape
    for i in range(n_sites):
        for a in range(n_states):
            out[i, a] = fields[i, a]
        for k in range(start[i], start[i + 1]):
            b = state[site[k]]
            for a in range(n_states):
                out[i, a] += table[k, b, a]


@njit(cache=True, nogil=True)
def softmax(log_weights, out):
    """Probabilities of log weights, written into ``out`` (which may be the weights)."""
    peak = log_weights.max()
    total = 0.0
    for a in range(len(log_weights)):
        out[a] = np.exp(log_weights[a] - peak)
        total += out[a]
    for a in range(len(log_weights)):
        out[a] /= total
