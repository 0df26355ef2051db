"""How the rules that are kept in ``near_zero.csv`` are found, see ``cmp_sums/near_zero.py``."""

import numpy as np
from scipy.optimize import nnls
from scipy.special import gammaln

from pymc_bayessum.counts.cmp_sums.near_zero import OFFSET, Array

STEP = np.sqrt(2.0)
"""From the width of one rule to that of the next."""

LARGEST_PEAK = 50.0
"""The rules answer for nu * mode below this: beyond, the summand has left zero."""


def summands_of_width(scale: float) -> tuple[Array, Array]:
    """Parameters eta and nu of summands of one width, from geometric to a bell that left zero."""
    log_peak = np.concatenate(
        [
            -np.geomspace(400.0, 4.0, 16),
            np.linspace(-3.5, np.log(LARGEST_PEAK), 28),
        ]
    )
    tail = OFFSET - np.minimum(log_peak, 0.0)
    sigma = np.where(log_peak >= 0, np.exp(0.5 * log_peak), 1.0 / (tail - np.log(tail)))
    nu = sigma / scale
    eta = nu * (log_peak - np.log(nu))
    return np.append(eta, -1.0 / scale), np.append(nu, 0.0)


def build_rule(scale: float, tolerance: float = 1e-14) -> tuple[Array, Array]:
    """Nodes and positive weights for summands of width ``scale`` to ``scale * STEP``.

    ``sum(weights * f(nodes))`` is the sum of f over the naturals. Singular values of the family
    below a share of the largest, the tolerance, are dropped.
    """
    pairs = [summands_of_width(s) for s in np.geomspace(0.97 * scale, 1.03 * STEP * scale, 8)]
    eta = np.concatenate([p[0] for p in pairs])
    nu = np.concatenate([p[1] for p in pairs])
    candidates = _candidates(scale)
    log_factorials = gammaln(candidates + 1.0)

    log_peak, sums = exact_sums(eta, nu, int(62 * scale) + 40)
    summand = np.exp(np.outer(eta, candidates) - np.outer(nu, log_factorials) - log_peak[:, None])
    summand /= sums[0][:, None]
    features = np.vstack(
        [
            summand,
            summand * candidates * (sums[0] / sums[1])[:, None],
            summand * log_factorials * (sums[0] / sums[2])[:, None],
        ]
    )
    # Every row of `features` sums to one over the naturals. Rotating to the kept singular vectors
    # and scaling each by the root of its singular value lets the active-set solver see all of
    # them; it then stops at a vertex, with as many nodes as conditions.
    left, singular, _ = np.linalg.svd(features, full_matrices=False)
    kept = left[:, singular > tolerance * singular[0]].T
    matrix = kept @ features
    root = 1.0 / np.sqrt(np.linalg.norm(matrix, axis=1))
    weights, _ = nnls(matrix * root[:, None], kept.sum(axis=1) * root, maxiter=50_000)
    chosen = weights > 0
    return candidates[chosen], weights[chosen]


def _candidates(scale: float) -> Array:
    """Integers a few hundredths of a width apart, consecutive near zero."""
    nodes, x = [0], 0.0
    while x < 85.0 * scale:
        x += max(1.0, min(0.04 * x, 0.085 * scale + 0.01 * x))
        nodes.append(int(x))
    return np.unique(nodes).astype(float)


def exact_sums(eta: Array, nu: Array, last: int) -> tuple[Array, Array]:
    """Log of the largest term, and sums of f, x f and log(x!) f by it, term by term."""
    x = np.arange(last + 1.0)
    log_factorials = gammaln(x + 1.0)
    log_peak = np.empty_like(eta)
    sums = np.empty((3, eta.size))
    for i in range(eta.size):
        exponent = eta[i] * x - nu[i] * log_factorials
        log_peak[i] = exponent.max()
        terms = np.exp(exponent - log_peak[i])
        sums[:, i] = terms.sum(), terms @ x, terms @ log_factorials
    return log_peak, sums
