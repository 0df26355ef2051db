r"""Means of the sufficient statistics of a Potts model, better than plain averages over draws.

The gradient of log Z at a parameter is E[phi] there, so an error in the mean of phi is an error in
every posterior. Three estimates, all from draws of the model and its unnormalised mass alone:

* plain averages;
* Rao-Blackwellised ones: the two ends of an edge are summed out given all other sites, a site given
  its neighbours;
* control functionals in the Stein space of the Gibbs operator :math:`A_i f = E[f | x_{-i}] - f`
  (Oates, Girolami and Chopin, "Control functionals for Monte Carlo integration", 2017, with a
  discrete operator), fitted on one half of the draws and averaged over the other.

States are 0 .. S-1 here and parameters are written out in full: fields (L, S), couplings (E, S, S).
"""

from typing import Any

import numpy as np
from numba import njit
from scipy.linalg import cho_factor, cho_solve

from pymc_bayessum.graphs.neighbours import local_fields, neighbours, softmax
from pymc_bayessum.graphs.sequences import zero_sum
from pymc_bayessum.graphs.statistics import PottsLayout, one_hot

__all__ = [
    "block_moments",
    "conditionals",
    "consistent",
    "statistics_of_marginals",
    "stein_gibbs_kernel",
    "stein_gibbs_moments",
]

#: Decays of the exponential Hamming kernel that the Stein estimate chooses from.
DECAYS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
#: Parts of the draws that are left out in turn there, and what is added to the diagonal of a Gram
#: matrix, as a fraction of its mean.
FOLDS, RIDGE = 5, 1e-4
#: Largest coupling up to which conditionals of edges are multiplied instead of added in logs.
PRODUCT_RANGE = 50.0
#: Rows that are widened to 64-bit integers at a time.
ROWS_AT_A_TIME = 20_000


@njit(cache=True, nogil=True)
def _all_conditionals(states, fields, start, site, table, out):
    local = np.empty_like(fields)
    for row in range(len(states)):
        local_fields(states[row], fields, start, site, table, local)
        for i in range(len(fields)):
            softmax(local[i], out[row, i])


def conditionals(
    states: np.ndarray, fields: np.ndarray, couplings: np.ndarray, edges: np.ndarray
) -> np.ndarray:
    """Probabilities (N, L, S) of the states of every site given all other sites of rows (N, L).

    Examples
    --------
    >>> edges, couplings = np.array([[0, 1]]), np.log([[[3.0, 1.0], [1.0, 1.0]]])
    >>> conditionals(np.array([[0, 0]]), np.zeros((2, 2)), couplings, edges).round(2).tolist()
    [[[0.75, 0.25], [0.75, 0.25]]]
    """
    around = neighbours(couplings, edges, len(fields))
    out = np.empty((len(states), *fields.shape))
    fields = np.ascontiguousarray(fields, dtype=float)
    states = np.ascontiguousarray(states, dtype=np.int64)
    _all_conditionals(states, fields, *around, out)
    return out


@njit(cache=True, nogil=True, error_model="numpy")
def _accumulate_blocks(
    states, group, fields, couplings, factors, edges, start, site, table, logs, sites, pairs
):
    """Add the conditional marginals of sites and of edges, row by row, to their group."""
    n_sites, n_states = fields.shape
    local = np.empty((n_sites, n_states))
    single = np.empty((n_sites, n_states))
    first = np.empty(n_states)
    second = np.empty(n_states)
    joint = np.empty((n_states, n_states))
    inverse = 1.0 / factors
    for row in range(len(states)):
        state, site_sums, pair_sums = states[row], sites[group[row]], pairs[group[row]]
        local_fields(state, fields, start, site, table, local)
        for place in range(n_sites):
            softmax(local[place], single[place])
        site_sums += single
        for e in range(np.uint64(len(edges))):
            # Unsigned: nothing to wrap around.
            i, j = np.uint64(edges[e, 0]), np.uint64(edges[e, 1])
            at_i, at_j = np.uint64(state[i]), np.uint64(state[j])
            # The conditionals hold the coupling of this edge to the current other end: take it off.
            total = 0.0
            if logs:
                for a in range(n_states):
                    first[a] = local[i, a] - couplings[e, a, at_j]
                    second[a] = local[j, a] - couplings[e, at_i, a]
                for a in range(n_states):
                    for b in range(n_states):
                        joint[a, b] = first[a] + second[b] + couplings[e, a, b]
                joint[:] = np.exp(joint - joint.max())
                total = joint.sum()
            else:
                for a in range(n_states):
                    first[a] = single[i, a] * inverse[e, a, at_j]
                    second[a] = single[j, a] * inverse[e, at_i, a]
                for a in range(n_states):
                    for b in range(n_states):
                        joint[a, b] = first[a] * second[b] * factors[e, a, b]
                        total += joint[a, b]
            share = 1.0 / total
            for a in range(n_states):
                for b in range(n_states):
                    pair_sums[e, a, b] += share * joint[a, b]


def block_moments(
    states: np.ndarray,
    fields: np.ndarray,
    couplings: np.ndarray,
    edges: np.ndarray,
    group: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    r"""Rao-Blackwellised marginals of sites and edges, averaged over draws.

    Each draw contributes :math:`p(x_i = a | x_{-i})` to site i and the joint conditional
    :math:`p(x_i = a, x_j = b | x_{-ij})` to the edge (i, j). Summing out both ends of an edge
    rather than one takes most of the noise away on dense graphs: five times less than single-site
    conditionals at weak coupling. Averages, (G, L, S) and (G, E, S, S), are taken in each of the
    groups 0 .. G-1 that the draws (N, L) belong to; one group by default.

    Examples
    --------
    Two sites: the joint conditional of both is the model itself, whatever the draws.

    >>> edges, couplings = np.array([[0, 1]]), np.log([[[3.0, 1.0], [1.0, 1.0]]])
    >>> _, pairs = block_moments(np.array([[1, 0]]), np.zeros((2, 2)), couplings, edges)
    >>> pairs.round(3).tolist()
    [[[[0.5, 0.167], [0.167, 0.167]]]]
    """
    labels = np.zeros(len(states), dtype=np.int64) if group is None else group
    counts = np.bincount(labels)
    fields = np.ascontiguousarray(fields, dtype=float)
    couplings = np.ascontiguousarray(couplings, dtype=float)
    around = neighbours(couplings, edges, len(fields))
    sites = np.zeros((len(counts), *fields.shape))
    pairs = np.zeros((len(counts), *couplings.shape))
    factors = np.exp(np.clip(couplings, -PRODUCT_RANGE, PRODUCT_RANGE))
    logs = bool(np.abs(couplings).max(initial=0.0) > PRODUCT_RANGE)
    for first in range(0, len(states), ROWS_AT_A_TIME):
        some = slice(first, first + ROWS_AT_A_TIME)
        _accumulate_blocks(
            np.ascontiguousarray(states[some], dtype=np.int64),
            labels[some],
            fields,
            couplings,
            factors,
            edges,
            *around,
            logs,
            sites,
            pairs,
        )
    return sites / counts[:, None, None], pairs / counts[:, None, None, None]


def consistent(
    sites: np.ndarray, pairs: np.ndarray, edges: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    r"""Make estimated marginals agree with each other.

    Statistics of a Potts model obey linear identities: an edge summed over one end is the other
    end's marginal. Estimates that break them would tilt log Z along parameter directions that do
    not change the model. The interaction of each edge (its marginal centred along both axes) is
    kept and its main effects are those of the sites,

    .. math:: \tilde P_{ij}(a, b) = D_{ij}(a, b) + f_i(a) / S + f_j(b) / S - 1 / S^2 .

    Examples
    --------
    >>> sites, pairs = np.array([[0.6, 0.4], [0.5, 0.5]]), np.array([[[0.5, 0.1], [0.1, 0.3]]])
    >>> consistent(sites, pairs, np.array([[0, 1]]))[1].sum(axis=2).round(3).tolist()
    [[0.6, 0.4]]
    """
    n_states = sites.shape[-1]
    first = sites[..., edges[:, 0], :, None]
    second = sites[..., edges[:, 1], None, :]
    return sites, zero_sum(pairs) + (first + second) / n_states - 1.0 / n_states**2


def statistics_of_marginals(layout: PottsLayout, sites: Any, pairs: Any) -> np.ndarray:
    """Mean of the sufficient statistics (..., d) from the marginals of sites and edges.

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> layout = PottsLayout(2, 2, graphs.chain(2), "shared", "scalar")
    >>> sites, pairs = np.array([[0.6, 0.4], [0.5, 0.5]]), np.array([[[0.4, 0.2], [0.1, 0.3]]])
    >>> statistics_of_marginals(layout, sites, pairs).round(2).tolist()
    [1.1, 0.9, 0.7]
    """
    sites, pairs = np.asarray(sites, dtype=float), np.asarray(pairs, dtype=float)
    batch = sites.shape[:-2]
    if layout.spins:
        sites = sites[..., 1] - sites[..., 0]
    if layout.coupling_kind in ("scalar", "edge"):
        pairs = (pairs * layout.unit_couplings).sum(axis=(-1, -2))
    parts = [np.zeros((*batch, 0))]
    for part, kind in ((sites, layout.field_kind), (pairs, layout.coupling_kind)):
        if kind in ("scalar", "shared"):
            part = part.sum(axis=len(batch))
        if kind != "none":
            parts.append(part.reshape((*batch, -1)))
    return np.concatenate(parts, axis=-1)


def stein_gibbs_kernel(
    first: np.ndarray,
    first_conditionals: np.ndarray,
    second: np.ndarray,
    second_conditionals: np.ndarray,
    decay: float,
) -> np.ndarray:
    r"""Stein kernel (N, M) of the Gibbs operator on the exponential Hamming kernel.

    With :math:`A_i f(x) = E[f | x_{-i}] - f(x)`, whose mean under the model is zero for every f,

    .. math:: k_p(x, y) = \sum_i A_i^x A_i^y \prod_j \rho^{[x_j \ne y_j]}
              = (1 - \rho) \sum_i u_i(x) \cdot u_i(y) \prod_{j \ne i} \rho^{[x_j \ne y_j]},

    where :math:`\rho = e^{-\mathrm{decay}}` and :math:`u_i(x) = p(\cdot | x_{-i}) - e_{x_i}`. The
    factor at site i differs from that of all sites by 1 or :math:`1 / \rho`, so the whole matrix
    is three matrix products.

    Examples
    --------
    >>> x = np.array([[0], [1]])
    >>> p = np.array([[[0.75, 0.25]], [[0.75, 0.25]]])
    >>> k = stein_gibbs_kernel(x, p, x, p, 0.1)
    >>> np.abs(k @ np.array([0.75, 0.25])).max() < 1e-15
    np.True_
    """
    n_states = first_conditionals.shape[-1]
    rho = np.exp(-decay)
    indicators, drift, paired = [], [], []
    for states, probs in ((first, first_conditionals), (second, second_conditionals)):
        indicator = one_hot(states, n_states).astype(float)
        step = probs - indicator
        indicators.append(indicator.reshape(len(states), -1))
        drift.append(step.reshape(len(states), -1))
        paired.append((indicator[..., :, None] * step[..., None, :]).reshape(len(states), -1))
    distance = first.shape[1] - indicators[0] @ indicators[1].T
    kernel = drift[0] @ drift[1].T / rho + (1.0 - 1.0 / rho) * (paired[0] @ paired[1].T)
    kernel *= (1.0 - rho) * np.exp(-decay * distance)
    return kernel


def stein_gibbs_moments(states: np.ndarray, values: np.ndarray, probs: np.ndarray) -> np.ndarray:
    """Values (N, d) at draws of the model, less a part that has mean zero under it.

    On all folds but one a Gaussian process with an unknown constant mean and the kernel of
    :func:`stein_gibbs_kernel` is fitted to the values (the statistics, or their Rao-Blackwellised
    versions); its Stein part is taken off on the fold left out. The mean of what is left is the
    estimate, and its spread tells the error. Left-out averages keep the estimate free of the bias
    that weights fitted and used on the same draws have along global directions; draws ordered chain
    by chain are independent between folds. Of the decays of the kernel the one with the least
    variance on the folds left out is used.
    """
    return _left_out(states, values, probs, _best_decay(states, values, probs))


def _left_out(
    states: np.ndarray, values: np.ndarray, probs: np.ndarray, decay: float
) -> np.ndarray:
    """Values less the Stein part fitted to the other folds, shape (N, d).

    Examples
    --------
    A single site: the conditional is the model itself, and hardly anything is left to chance.

    >>> x = np.array([[0], [1], [1], [0], [0], [1]])
    >>> p = np.tile([[[0.75, 0.25]]], (6, 1, 1))
    >>> _left_out(x, (x == 0).astype(float), p, 0.1).round(3).ravel().tolist()
    [0.75, 0.75, 0.75, 0.75, 0.75, 0.75]
    """
    everyone = np.arange(len(states))
    rest = np.empty_like(values, dtype=float)
    for left_out in np.array_split(everyone, FOLDS):
        fitted = np.setdiff1d(everyone, left_out)
        x, p = states[fitted], probs[fitted]
        gram = stein_gibbs_kernel(x, p, x, p, decay)
        gram[np.diag_indices_from(gram)] += RIDGE * np.trace(gram) / len(gram)
        factor = cho_factor(gram, lower=True, overwrite_a=True)
        ones = cho_solve(factor, np.ones(len(fitted)))
        solved = cho_solve(factor, values[fitted])
        solved -= np.outer(ones, solved.sum(axis=0) / ones.sum())
        cross = stein_gibbs_kernel(states[left_out], probs[left_out], x, p, decay)
        rest[left_out] = values[left_out] - cross @ solved
    return rest


def _best_decay(states: np.ndarray, values: np.ndarray, probs: np.ndarray) -> float:
    """Decay with the least variance on left-out folds, judged on some draws and directions."""
    some = slice(0, min(len(states), 1000))
    directions = np.random.default_rng(0).normal(size=(values.shape[1], min(16, values.shape[1])))
    spread = values.std(axis=0)
    directions /= np.where(spread > 0.0, spread, np.inf)[:, None]
    noise = [
        _left_out(states[some], values[some] @ directions, probs[some], decay).var(axis=0).sum()
        for decay in DECAYS
    ]
    return DECAYS[int(np.argmin(noise))]
