r"""All states of a small dense graph, listed in two halves: log Z and all marginals.

A graph without structure leaves elimination nothing to save. Its sites are split into halves A and
B; for each of the :math:`S^a` states x of A the weights of all states y of B are

.. math:: e^{a(x)} \, e^{b(y)} \prod_{k \in B} e^{c_k(x)[y_k]}, \qquad
          c_k(x)[s] = h_k[s] + \sum_{i \in A} J_{ik}[x_i, s],

and the product is built by doubling, one multiplication a state and no exponential. Sums over y
fold back the same way. What couples sites of one half enters by tables over that half alone, so a
state costs a handful of multiplications in a loop over contiguous memory.

Weights are relative to an upper bound of all exponents. Where the bound is so loose that their sum
would lose digits (couplings of hundreds) the same loops run on exponents, an exponential a state.

The arithmetic is that of its inputs: complex parameters give tangents, as in elimination.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

__all__ = ["LISTED", "listed_log_partition", "listed_marginals", "pack_listing"]

#: Stands in a packed plan where elimination has the end of its first array.
LISTED = -1
#: Sums of weights below this have lost too much to underflow.
_LEAST_TOTAL = 1e-200

# For functions never called from Python: without wrappers and checks they compile in less time.
_INNER: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_inner = njit(cache=True, error_model="numpy", **_INNER)


class _Halves(NamedTuple):
    """A graph in two halves, and memory for one state of the first."""

    fields: np.ndarray
    #: Tables of edges with the earlier site first.
    couplings: np.ndarray
    #: Edge of each pair of sites, or -1.
    edges: np.ndarray
    n_first: int
    #: Exponents of all states of A, and of B without its fields.
    first: np.ndarray
    second: np.ndarray
    #: c_k[s] for a state of A, and weights of all states of B.
    across: np.ndarray
    weights: np.ndarray


def pack_listing(edges: np.ndarray, n_sites: int, n_states: int) -> np.ndarray:
    """Write a graph into one integer array, in the form the compiled passes take."""
    head = [5 + edges.size, n_sites, n_states, len(edges), LISTED]
    return np.concatenate([head, edges.ravel()]).astype(np.int64)


@_inner
def _zero(like):
    """Zero in the arithmetic of an array, whatever the array holds."""
    return np.zeros(1, like.dtype)[0]


@_inner
def _half_exponents(fields, couplings, edges, first, last, with_fields):
    """Exponents of all states of the sites first .. last-1, by what lies within them alone.

    The first site is the fastest axis.
    """
    n_states = fields.shape[1]
    size = 1
    table = np.zeros(n_states ** (last - first), fields.dtype)
    for site in range(first, last):
        # From the end, so that what is not yet spread is still there to be read.
        for state in range(n_states - 1, -1, -1):
            field = fields[site, state] if with_fields else _zero(fields)
            for place in range(size):
                value = table[place] + field
                left = place
                for other in range(first, site):
                    other_state = left % n_states
                    left //= n_states
                    if edges[other, site] >= 0:
                        value += couplings[edges[other, site], other_state, state]
                table[state * size + place] = value
        size *= n_states
    return table


@_inner
def _turned(tables, ends):
    """Tables of edges with the earlier site first, or back again."""
    turned = np.empty_like(tables)
    for row in range(len(tables)):
        later = ends[2 * row] > ends[2 * row + 1]
        for i in range(tables.shape[1]):
            for j in range(tables.shape[2]):
                turned[row, i, j] = tables[row, j, i] if later else tables[row, i, j]
    return turned


@_inner
def _set_across(halves, x):
    """c_k(x)[s] of every site k of the second half, for a state x of the first."""
    fields, n_first, onto = halves.fields, halves.n_first, halves.across
    n_sites, n_states = fields.shape
    for k in range(n_first, n_sites):
        for state in range(n_states):
            onto[k - n_first, state] = fields[k, state]
        left = x
        for i in range(n_first):
            x_i = left % n_states
            left //= n_states
            edge = halves.edges[i, k]
            if edge >= 0:
                for state in range(n_states):
                    onto[k - n_first, state] += halves.couplings[edge, x_i, state]


@_inner
def _bound(across):
    """Largest exponent that the sites of the second half can add, site by site."""
    total = 0.0
    for k in range(len(across)):
        top = across[k, 0].real
        for state in range(1, across.shape[1]):
            top = max(top, across[k, state].real)
        total += top
    return total


@_inner
def _spread(across, weights):
    """Product over the sites of exp(c_k[y_k]), relative to its bound, for all states y."""
    n_states = across.shape[1]
    weights[0] = 1.0
    size = 1
    for k in range(len(across)):
        top = across[k, 0].real
        for state in range(1, n_states):
            top = max(top, across[k, state].real)
        if top == -np.inf:
            top = 0.0
        for state in range(n_states - 1, -1, -1):
            factor = np.exp(across[k, state] - top)
            start = state * size
            for place in range(size):
                weights[start + place] = weights[place] * factor
        size *= n_states


@_inner
def _set_exponents(halves, x):
    """Exponents of all states y, with A in state x, in place of the weights."""
    _set_across(halves, x)
    across, out = halves.across, halves.weights
    n_states = across.shape[1]
    out[0] = halves.first[x]
    size = 1
    for k in range(len(across)):
        for state in range(n_states - 1, -1, -1):
            for place in range(size):
                out[state * size + place] = out[place] + across[k, state]
        size *= n_states
    for place in range(size):
        out[place] += halves.second[place]


@_inner
def _fold(weights, sums):
    """Sum the weights over all y with y_k = s, folding axis after axis; destroys the weights."""
    n_sites, n_states = sums.shape
    size = len(weights)
    for k in range(n_sites - 1, -1, -1):
        size //= n_states
        for state in range(n_states):
            total = _zero(weights)
            start = state * size
            for place in range(size):
                total += weights[start + place]
            sums[k, state] = total
        for state in range(1, n_states):
            start = state * size
            for place in range(size):
                weights[place] += weights[start + place]


@_inner
def _levels(halves):
    """Upper bounds of the exponents of each x, and factors of at most one within B."""
    first, second = halves.first, halves.second
    inside = -np.inf
    for place in range(len(second)):
        inside = max(inside, second[place].real)
    bounds = np.empty(len(first))
    for x in range(len(first)):
        _set_across(halves, x)
        bounds[x] = first[x].real + _bound(halves.across) + inside
    return bounds, np.exp(second - inside) if inside > -np.inf else np.zeros_like(second)


@_inner
def _row(exact, halves, x, inner, bounds, top):
    """Weights of all states with A in state x, and the factor they still have to be given."""
    first, weights = halves.first, halves.weights
    if exact:
        _set_exponents(halves, x)
        for place in range(len(weights)):
            weights[place] = np.exp(weights[place] - top)
        return 1.0 + _zero(first)
    if bounds[x] == -np.inf:
        weights[:] = 0.0
        return _zero(first)
    _set_across(halves, x)
    _spread(halves.across, weights)
    for place in range(len(weights)):
        weights[place] *= inner[place]
    # The bound is real; what is imaginary in a(x) must not be lost.
    return np.exp(first[x] - first[x].real + bounds[x] - top)


@_inner
def _exact_top(halves):
    """Largest exponent of all states."""
    top = -np.inf
    for x in range(len(halves.first)):
        _set_exponents(halves, x)
        for exponent in halves.weights:
            top = max(top, exponent.real)
    return top


@_inner
def _split(fields, couplings, plan):
    """Split a graph into halves."""
    n_sites, ends = len(fields), plan[5:]
    edges = np.full((n_sites, n_sites), -1)
    for row in range(len(couplings)):
        i, j = ends[2 * row], ends[2 * row + 1]
        edges[min(i, j), max(i, j)] = row
    turned = _turned(couplings, ends)
    n_first = n_sites // 2
    first = _half_exponents(fields, turned, edges, 0, n_first, True)
    second = _half_exponents(fields, turned, edges, n_first, n_sites, False)
    across = np.empty((n_sites - n_first, fields.shape[1]), fields.dtype)
    weights = np.empty_like(second)
    return _Halves(fields, turned, edges, n_first, first, second, across, weights)


@_inner
def listed_log_partition(fields, couplings, plan):
    """Log Z, by all states."""
    halves = _split(fields, couplings, plan)
    bounds, inner = _levels(halves)
    top = bounds.max()
    for exact in (False, True):
        if exact:
            top = _exact_top(halves)
        if top == -np.inf:
            return -np.inf + _zero(fields)
        total = _zero(fields)
        for x in range(len(bounds)):
            factor = _row(exact, halves, x, inner, bounds, top)
            row = _zero(fields)
            for weight in halves.weights:
                row += weight
            total += factor * row
        if total.real > _LEAST_TOTAL:
            break
    return np.log(total) + top


@_inner
def listed_marginals(fields, couplings, plan):
    """Log Z, site marginals and edge marginals, by all states."""
    n_sites, n_states = fields.shape
    halves = _split(fields, couplings, plan)
    edges, n_first, weights = halves.edges, halves.n_first, halves.weights
    n_second = n_sites - n_first
    bounds, inner = _levels(halves)
    top = bounds.max()
    by_first, by_second = np.empty_like(halves.first), np.empty_like(halves.second)
    sums = np.empty((n_second, n_states), fields.dtype)
    cross = np.empty((n_first, n_states, n_second, n_states), fields.dtype)
    total = _zero(fields)
    for exact in (False, True):
        if exact:
            top = _exact_top(halves)
        if top == -np.inf:
            return -np.inf + _zero(fields), np.zeros_like(fields), np.zeros_like(couplings)
        by_second[:] = 0.0
        cross[:] = 0.0
        total = _zero(fields)
        for x in range(len(bounds)):
            factor = _row(exact, halves, x, inner, bounds, top)
            for place in range(len(weights)):
                by_second[place] += factor * weights[place]
            _fold(weights, sums)
            by_first[x] = 0.0
            for state in range(n_states):
                by_first[x] += factor * sums[0, state] if n_second else 0.0
            total += by_first[x]
            left = x
            for i in range(n_first):
                x_i = left % n_states
                left //= n_states
                for k in range(n_second):
                    for state in range(n_states):
                        cross[i, x_i, k, state] += factor * sums[k, state]
        if total.real > _LEAST_TOTAL:
            break
    site_marginals = np.zeros((n_sites, n_states), fields.dtype)
    pair_marginals = np.zeros(couplings.shape, fields.dtype)
    _within(by_first, edges, 0, n_first, total, site_marginals, pair_marginals)
    _within(by_second, edges, n_first, n_sites, total, site_marginals, pair_marginals)
    for i in range(n_first):
        for k in range(n_first, n_sites):
            if edges[i, k] >= 0:
                for state in range(n_states):
                    for other in range(n_states):
                        share = cross[i, state, k - n_first, other] / total
                        pair_marginals[edges[i, k], state, other] = share
    return np.log(total) + top, site_marginals, _turned(pair_marginals, plan[5:])


@_inner
def _within(table, edges, first, last, total, site_marginals, pair_marginals):
    """Marginals of the sites of one half and of the edges within it, from its table."""
    n_states = site_marginals.shape[1]
    states = np.empty(last - first, np.int64)
    for place in range(len(table)):
        share = table[place] / total
        left = place
        for site in range(first, last):
            states[site - first] = left % n_states
            left //= n_states
        for j in range(first, last):
            t = states[j - first]
            site_marginals[j, t] += share
            for i in range(first, j):
                if edges[i, j] >= 0:
                    pair_marginals[edges[i, j], states[i - first], t] += share
