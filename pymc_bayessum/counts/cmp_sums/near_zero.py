r"""Positively weighted rules for Conway-Maxwell-Poisson summands that reach down to zero.

Write :math:`f_\theta(x) = \exp(\eta x - \nu \log x!)` for :math:`\theta = (\eta, \nu)` and let
the Gaussian-process prior of the summand be the one with covariance

.. math:: k(x, x') = \sum_{\theta \in \Theta} (1 + x x' + \log x! \, \log x'!) \,
   f_\theta(x) f_\theta(x') / Z(\theta)^2,

so that the prior is spanned by the summands themselves and by their first derivatives in
:math:`\theta`. For the summands of one width (:func:`width` between a scale and the next
half octave) this kernel has some fifty eigenvalues above 1e-14 of the largest. Conditioned on as
many nodes, the BayesSum weights :math:`w = K^{-1} \mu` under counting measure are the one
solution of "exact on every kept eigenfunction", and nodes at which that solution is positive are
found by non-negative least squares: positively weighted kernel quadrature in the sense of
Hayakawa, Oberhauser and Lyons (2022), generalised Gaussian quadrature in that of Yarvin and
Rokhlin (1998). The nodes come out graded: consecutive at zero, then about a third of a width
apart, sparse in the tail.

One rule a half octave is kept in ``near_zero.csv``; :func:`build_rule` recomputes any of them.
"""

from dataclasses import dataclass
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.special import gammaln

FIRST_SCALE = 2.0
N_SCALES = 32
STEP = np.sqrt(2.0)
"""Rule ``k`` answers for widths from ``FIRST_SCALE * STEP**k`` to one step more."""

LARGEST_PEAK = 50.0
"""The rules answer for nu * mode below this: beyond, the summand has left zero."""

# The sd of exp(y (1 + l) - y log y) on y > 0 solves 1/s - log s = OFFSET - l for l < 0.
OFFSET = 0.92

Array = NDArray[np.float64]


@dataclass(frozen=True)
class NearZeroRules:
    """The rules of all scales, a row each, padded with weight zero to a common number of nodes.

    ``sizes`` are their numbers of nodes, rounded up to whole vectors of four.
    """

    nodes: Array
    log_factorials: Array
    weights: Array
    sizes: NDArray[np.int64]


def width(eta: float | Array, nu: float | Array) -> Array:
    r"""Approximate standard deviation of the summand, the key of the family.

    With :math:`\ell = \eta/\nu + \log\nu` (the log of nu times the mode) the width is
    :math:`e^{\ell/2}/\nu` for :math:`\ell \ge 0`, the curvature at the mode, and else
    solves :math:`1/s = \nu (c + \log s) - \eta`, the geometric decay, to first order;
    :math:`\nu = 0` needs :math:`\eta < 0`.
    """
    eta, nu = np.broadcast_arrays(np.asarray(eta, float), np.asarray(nu, float))
    with np.errstate(divide="ignore", invalid="ignore"):
        log_nu = np.where(nu > 0, np.log(nu), 0.0)
        log_peak = np.where(nu > 0, eta / nu + log_nu, -np.inf)
        decay = OFFSET * nu - eta
        decay = decay - nu * np.log(decay - nu * log_nu)
        return np.where(log_peak >= 0, np.exp(0.5 * log_peak) / nu, 1.0 / decay)


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

    log_peak, sums = _exact_sums(eta, nu, int(62 * scale) + 40)
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


def _exact_sums(eta: Array, nu: Array, last: int) -> tuple[Array, Array]:
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


def load_rules() -> NearZeroRules:
    """Read the precomputed rules."""
    text = files(__package__).joinpath("near_zero.csv").read_text()
    table = np.array([line.split(",") for line in text.split()[1:]], dtype=float)
    sizes = np.bincount(table[:, 0].astype(int), minlength=N_SCALES)
    padded = -(-sizes // 4) * 4
    nodes = np.zeros((N_SCALES, padded.max()))
    weights = np.zeros((N_SCALES, padded.max()))
    for k in range(N_SCALES):
        nodes[k, : sizes[k]], weights[k, : sizes[k]] = table[table[:, 0] == k, 1:].T
    return NearZeroRules(nodes, gammaln(nodes + 1.0), weights, padded)
