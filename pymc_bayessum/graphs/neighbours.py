"""Who is next to whom: couplings sorted by the site they act on, and the local fields they make."""

from functools import lru_cache

import numpy as np
from numba import njit

__all__ = ["adjacency", "local_fields", "neighbours", "softmax"]


def adjacency(edges: np.ndarray, n_sites: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sort the two ends of all edges by the site they belong to: ``start``, ``site``, ``end``.

    The ends at site i stand at ``start[i] : start[i + 1]``. ``site`` (2 E,) are the sites at the
    other ends; ``end`` (2 E,) is the edge, plus E where the site is the second of its two.

    Examples
    --------
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


def neighbours(
    couplings: np.ndarray, edges: np.ndarray, n_sites: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sort the couplings of a graph, (E, S, S), by the site they act on: ``start, site, table``.

    The first two as of :func:`adjacency`; ``table[k, b, a]`` (2 E, S, S) couples state b of the
    k-th neighbour with state a of the site itself.

    Examples
    --------
    >>> neighbours(np.array([[[1, 2], [3, 4]]]), np.array([[0, 1]]), 2)[2].tolist()
    [[[1, 3], [2, 4]], [[1, 2], [3, 4]]]
    """
    start, site, end = adjacency(edges, n_sites)
    table = np.concatenate([couplings.transpose(0, 2, 1), couplings])
    return start, site, table[end]


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
