"""Compiled sweeps of graph models: Gibbs and Swendsen-Wang, many chains, on all cores.

Each chain carries its own stream of random numbers (xoshiro256+, Blackman and Vigna, 2021), so
results do not depend on how chains are shared out among threads.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

__all__ = [
    "Clusters",
    "Sites",
    "agreements",
    "conditional_counts",
    "relative_factors",
    "sweep",
]

_compiled = njit(cache=True, nogil=True, error_model="numpy")
_inline = njit(nogil=True, error_model="numpy", inline="always")


class Sites(NamedTuple):
    """What Gibbs needs: the neighbours of each site and the factors of its conditional."""

    #: The neighbours of site i stand at ``start[i] : start[i + 1]`` of ``site`` (2 E,).
    start: np.ndarray
    site: np.ndarray
    #: Factors of the fields, (L, S), or (1, S) where all sites have the same.
    own: np.ndarray
    #: Where all couplings are one number: ``exp(J k)`` for k agreeing neighbours; else empty.
    powers: np.ndarray
    #: Otherwise a factor for each neighbour's state and the own, (2 E, S, S).
    pairs: np.ndarray
    #: Whether logarithms stand in ``own`` and ``pairs``.
    logs: bool


class Clusters(NamedTuple):
    """What Swendsen-Wang needs: the edges, and the chance of a bond on each between equal states.

    Fields are (L, S), or (1, S) where all sites have the same.
    """

    edges: np.ndarray
    bonds: np.ndarray
    fields: np.ndarray


@_inline
def _uniform(seed):
    """Next number of a stream in [0, 1)."""
    result = seed[0] + seed[3]
    shifted = seed[1] << np.uint64(17)
    seed[2] ^= seed[0]
    seed[3] ^= seed[1]
    seed[1] ^= seed[2]
    seed[0] ^= seed[3]
    seed[2] ^= shifted
    seed[3] = (seed[3] << np.uint64(45)) | (seed[3] >> np.uint64(19))
    return (result >> np.uint64(11)) * 1.1102230246251565e-16


@_compiled
def _draw(weights, uniform):
    """Index drawn with probabilities proportional to the weights; no branch to guess wrong."""
    total = 0.0
    for weight in weights:
        total += weight
    left = uniform * total
    running = 0.0
    state = 0
    for k in range(len(weights) - 1):
        running += weights[k]
        state += left >= running
    return state


@_compiled
def _gibbs_counting(x, seed, sites, weights, counts):
    """Sweep one chain where all couplings are one number: count the neighbours that agree."""
    start, site, own, powers, _, _ = sites
    n_states = np.uint64(own.shape[1])
    alike = own.shape[0] == 1
    # Up to eight counts of at most 255 are the bytes of one number, which needs no memory.
    packs = n_states <= 8 and len(powers) <= 256
    for i in range(np.uint64(len(x))):
        row = np.uint64(0) if alike else i
        first, last = np.uint64(start[i]), np.uint64(start[i + np.uint64(1)])
        packed, total = np.uint64(0), 0.0
        if packs:
            for k in range(first, last):
                packed += np.uint64(1) << (np.uint64(x[np.uint64(site[k])]) << np.uint64(3))
        else:
            counts[:] = 0
            for k in range(first, last):
                counts[x[site[k]]] += 1
        for a in range(n_states):
            if packs:
                count = packed >> (a << np.uint64(3)) & np.uint64(255)
            else:
                count = np.uint64(counts[a])
            total += own[row, a] * powers[count]
            weights[a] = total
        left = _uniform(seed) * total
        state = 0
        for a in range(n_states - np.uint64(1)):
            state += left >= weights[a]
        x[i] = state


@_inline
def _multiply(x, row, first, last, own, site, pairs, weights):
    """Multiply the factors of each state of a site, those of its neighbours in turn.

    A few states at a time, so that their products stay in registers.
    """
    top = np.uint64(len(weights) - 1)
    a = np.uint64(0)
    if top == 1:
        weight, other = own[row, 0], own[row, 1]
        for k in range(first, last):
            state = np.uint64(x[np.uint64(site[k])])
            weight *= pairs[k, state, np.uint64(0)]
            other *= pairs[k, state, np.uint64(1)]
        weights[0], weights[1] = weight, other
        a = np.uint64(2)
    while a <= top:
        b, c = min(a + np.uint64(1), top), min(a + np.uint64(2), top)
        d = min(a + np.uint64(3), top)
        at_a, at_b, at_c, at_d = own[row, a], own[row, b], own[row, c], own[row, d]
        for k in range(first, last):
            state = np.uint64(x[np.uint64(site[k])])
            at_a *= pairs[k, state, a]
            at_b *= pairs[k, state, b]
            at_c *= pairs[k, state, c]
            at_d *= pairs[k, state, d]
        weights[a], weights[b], weights[c], weights[d] = at_a, at_b, at_c, at_d
        a += np.uint64(4)


@_compiled
def _add_logarithms(x, row, first, last, sites, weights):
    """Add logarithms where factors would leave the range of a double."""
    weights[:] = sites.own[row]
    for k in range(first, last):
        weights += sites.pairs[k, np.uint64(x[np.uint64(sites.site[k])])]
    weights[:] = np.exp(weights - weights.max())


@_compiled
def _gibbs_by_table(low, high, states, seeds, sites, weights):
    """Sweep the chains ``low .. high - 1``, site by site: the tables of one stay in the cache."""
    start, site, own, _, pairs, logs = sites
    alike = own.shape[0] == 1
    for i in range(states.shape[1]):
        # Unsigned numbers wrap around nowhere: to see to that would cost more than the products.
        row = np.uint64(0 if alike else i)
        first, last = np.uint64(start[i]), np.uint64(start[i + 1])
        for chain in range(low, high):
            if logs:
                _add_logarithms(states[chain], row, first, last, sites, weights)
            else:
                _multiply(states[chain], row, first, last, own, site, pairs, weights)
            states[chain, i] = _draw(weights, _uniform(seeds[chain]))


@_inline
def _root(parent, i):
    """Follow parents to the first, and shorten the way for those who come after."""
    up = parent[i]
    while up != i:
        above = parent[up]
        parent[i] = above
        i = above
        up = parent[i]
    return i


@_compiled
def _swendsen_wang(x, seed, clusters, parent, pooled, weights):
    """Bond and redraw one chain; the root of a cluster is its first site."""
    edges, bonds, fields = clusters
    n_sites, n_states = len(x), fields.shape[1]
    alike = fields.shape[0] == 1
    for i in range(n_sites):
        parent[i] = i
    for e in range(len(edges)):
        # Unsigned: nothing to wrap around.
        one, other = np.uint32(edges[e, 0]), np.uint32(edges[e, 1])
        if x[one] == x[other] and _uniform(seed) < bonds[e]:
            one, other = _root(parent, one), _root(parent, other)
            parent[max(one, other)] = min(one, other)
    # Parents come before their children, so one pass finds all roots.
    for i in range(n_sites):
        parent[i] = parent[parent[i]]
    even = alike and (fields == fields[0, 0]).all()
    if even:
        weights[:] = 1.0
    else:
        pooled[:] = 0.0
        for i in range(n_sites):
            if alike:
                pooled[parent[i], 0] += 1.0
            else:
                for a in range(n_states):
                    pooled[parent[i], a] += fields[i, a]
    for i in range(n_sites):
        root = parent[i]
        if root < i:
            x[i] = x[root]
            continue
        if not even:
            top = -np.inf
            for a in range(n_states):
                weights[a] = pooled[i, 0] * fields[0, a] if alike else pooled[i, a]
                top = max(top, weights[a])
            for a in range(n_states):
                weights[a] = np.exp(weights[a] - top)
        x[i] = _draw(weights, _uniform(seed))


@_compiled
def sweep(low, high, states, seeds, sweeps, clusters, sites, by_cluster):
    """Run the chains ``low .. high - 1`` in place: Gibbs, after clusters if ``by_cluster``."""
    n_states = sites.own.shape[1]
    n_sites = states.shape[1]
    weights = np.empty(n_states)
    counts = np.zeros(n_states, np.int64)
    parent = np.empty(n_sites if by_cluster else 0, np.uint32)
    width = 1 if clusters.fields.shape[0] == 1 else n_states
    pooled = np.empty((n_sites if by_cluster else 0, width))
    if len(sites.powers) == 0:
        for _ in range(sweeps):
            if by_cluster:
                for chain in range(low, high):
                    _swendsen_wang(states[chain], seeds[chain], clusters, parent, pooled, weights)
            _gibbs_by_table(low, high, states, seeds, sites, weights)
        return
    for chain in range(low, high):
        for _ in range(sweeps):
            if by_cluster:
                _swendsen_wang(states[chain], seeds[chain], clusters, parent, pooled, weights)
            _gibbs_counting(states[chain], seeds[chain], sites, weights, counts)


@_compiled
def relative_factors(fields):
    """Return ``exp`` of fields, each row relative to its largest."""
    factors = np.empty_like(fields)
    for i in range(len(fields)):
        top = fields[i, 0]
        for value in fields[i, 1:]:
            top = max(top, value)
        for a in range(fields.shape[1]):
            factors[i, a] = np.exp(fields[i, a] - top)
    return factors


@_compiled
def agreements(low, high, states, edges, out):
    """Count the edges between equal states in the rows ``low .. high - 1``."""
    for row in range(low, high):
        x = states[row]
        count = 0
        for e in range(len(edges)):
            count += x[edges[e, 0]] == x[edges[e, 1]]
        out[row] = count


@_compiled
def conditional_counts(low, high, states, sites, edges, out):
    r"""Count sites in each state and agreeing edges, each expected given the rest of its row.

    A site is summed out given its neighbours, an edge given the neighbours of both ends. With the
    weights :math:`u, v` of the two ends without their common edge and :math:`w = e^J`, the edge
    agrees with probability :math:`w\,u \cdot v / (|u| |v| + (w - 1)\,u \cdot v)`.
    """
    n_states = sites.own.shape[1]
    alike = sites.own.shape[0] == 1
    factor = sites.powers[1] / sites.powers[0]
    n_sites = states.shape[1]
    weights = np.empty((n_sites, n_states))
    counts = np.zeros(n_states, np.int64)
    for row in range(low, high):
        x = states[row]
        out[row, :] = 0.0
        for i in range(n_sites):
            counts[:] = 0
            for k in range(sites.start[i], sites.start[i + 1]):
                counts[x[sites.site[k]]] += 1
            total = 0.0
            for a in range(n_states):
                value = sites.own[0 if alike else i, a] * sites.powers[counts[a]]
                weights[i, a] = value
                total += value
            for a in range(n_states):
                out[row, a] += weights[i, a] / total
        agreed = 0.0
        for e in range(len(edges)):
            i, j = edges[e, 0], edges[e, 1]
            at_i, at_j = x[i], x[j]
            # The weights hold this edge with the other end as it is: take it off.
            both, sum_i, sum_j = 0.0, 0.0, 0.0
            for a in range(n_states):
                first = weights[i, a] / factor if a == at_j else weights[i, a]
                second = weights[j, a] / factor if a == at_i else weights[j, a]
                both += first * second
                sum_i += first
                sum_j += second
            agreed += factor * both / (sum_i * sum_j + (factor - 1.0) * both)
        out[row, n_states] = agreed
