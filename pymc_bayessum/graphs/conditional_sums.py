r"""Sums over rows of each site's conditional distribution given the others, in one compiled pass.

Pseudo-likelihoods and their slopes are such sums over data, Rao-Blackwellised means of the
statistics such sums over draws. Sites are taken one after the other, all rows for each: its tables
stay in the cache, and nothing is held that is longer than the couplings.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from pymc_bayessum.graphs.neighbours import adjacency
from pymc_bayessum.threads import in_parts

__all__ = ["ConditionalSums", "conditional_sums", "counts"]


class ConditionalSums(NamedTuple):
    """Weighted sums over rows of what each site is expected to be, given the rest of its row.

    Of the log conditional probabilities of all sites, the log pseudo-likelihood; of the conditional
    probabilities (L, S); and of those of each edge (E, S, S), its first end summed out and, added
    to it, its second: twice what the marginals of edges are.
    """

    log_prob: float
    sites: np.ndarray
    pairs: np.ndarray


@njit(cache=True, nogil=True, error_model="numpy")
def _sum_sites(
    low, high, states, weights, fields, start, site, end, tables, log_prob, sites, pairs
):
    """Add up the sites ``low .. high - 1``; ``end`` says which table is whose."""
    n_states = fields.shape[1]
    local = np.empty(n_states)
    for i in range(low, high):
        first, last = start[i], start[i + 1]
        for row in range(len(states)):
            x = states[row]
            for a in range(n_states):
                local[a] = fields[i, a]
            for k in range(first, last):
                # Unsigned: nothing to wrap around, which would cost more than the sum.
                table = tables[end[k], np.uint64(x[site[k]])]
                for a in range(n_states):
                    local[a] += table[a]
            top = local.max()
            own = local[x[i]] - top
            total = 0.0
            for a in range(n_states):
                local[a] = np.exp(local[a] - top)
                total += local[a]
            log_prob[i] += weights[row] * (own - np.log(total))
            for a in range(n_states):
                local[a] *= weights[row] / total
                sites[i, a] += local[a]
            for k in range(first, last):
                pair = pairs[end[k], np.uint64(x[site[k]])]
                for a in range(n_states):
                    pair[a] += local[a]


def conditional_sums(
    states: np.ndarray,
    weights: np.ndarray,
    fields: np.ndarray,
    couplings: np.ndarray,
    edges: np.ndarray,
) -> ConditionalSums:
    r"""Sum over rows, for all sites on all cores, :math:`w \log p(x_i \mid x_{-i})` and the like.

    Examples
    --------
    Two sites, one row, no fields and no couplings: all conditionals are a half.

    >>> sums = conditional_sums(np.array([[0, 1]]), np.ones(1), np.zeros((2, 2)),
    ...                         np.zeros((1, 2, 2)), np.array([[0, 1]]))
    >>> bool(np.isclose(sums.log_prob, 2 * np.log(0.5))), sums.pairs.tolist()
    (True, [[[0.5, 1.0], [0.0, 0.5]]])
    """
    n_sites, n_edges = len(fields), len(edges)
    start, site, end = adjacency(edges, n_sites)
    tables = np.concatenate([couplings.transpose(0, 2, 1), couplings])
    log_prob, sites, pairs = np.zeros(n_sites), np.zeros(fields.shape), np.zeros(tables.shape)
    fields = np.ascontiguousarray(fields, dtype=float)
    in_parts(
        *(_sum_sites, n_sites, states, weights, fields, start, site, end, tables),
        *(log_prob, sites, pairs),
    )
    both = pairs[:n_edges].transpose(0, 2, 1) + pairs[n_edges:]
    return ConditionalSums(float(log_prob.sum()), sites, both)


@njit(cache=True, nogil=True, error_model="numpy")
def _count(states, weights, edges, sites, pairs):
    for row in range(len(states)):
        x = states[row]
        for i in range(len(x)):
            sites[i, x[i]] += weights[row]
    for e in range(len(edges)):
        i, j = edges[e, 0], edges[e, 1]
        for row in range(len(states)):
            pairs[e, states[row, i], states[row, j]] += weights[row]


def counts(
    states: np.ndarray, weights: np.ndarray, edges: np.ndarray, n_states: int
) -> tuple[np.ndarray, np.ndarray]:
    """Sum the weights of rows by the states of each site, (L, S), and of each edge, (E, S, S).

    Examples
    --------
    >>> x, weights = np.array([[0, 1], [1, 1]]), np.array([1.0, 2.0])
    >>> sites, pairs = counts(x, weights, np.array([[0, 1]]), 2)
    >>> sites.tolist(), pairs.tolist()
    ([[1.0, 2.0], [0.0, 3.0]], [[[0.0, 1.0], [0.0, 2.0]]])
    """
    sites = np.zeros((states.shape[1], n_states))
    pairs = np.zeros((len(edges), n_states, n_states))
    _count(states, weights, np.ascontiguousarray(edges), sites, pairs)
    return sites, pairs
