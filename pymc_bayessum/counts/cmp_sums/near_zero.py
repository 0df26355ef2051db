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

One rule a half octave is kept in ``near_zero.csv``; ``tests/counts/near_zero_rules.py`` recomputes
any of them.
"""

from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

FIRST_SCALE = 2.0
N_SCALES = 32
"""Rule ``k`` answers for widths from ``FIRST_SCALE * 2**(k / 2)`` to half an octave more."""

# The sd of exp(y (1 + l) - y log y) on y > 0 solves 1/s - log s = OFFSET - l for l < 0.
OFFSET = 0.92

Array = NDArray[np.float64]


class NearZeroRules(NamedTuple):
    """The rules of all scales, a row each, padded with weight zero to a common number of nodes.

    ``sizes`` are their numbers of nodes, rounded up to whole vectors of four.
    """

    nodes: Array
    log_factorials: Array
    weights: Array
    sizes: NDArray[np.int64]


def width(eta: Array, nu: Array) -> Array:
    r"""Approximate standard deviation of the summand, the key of the family.

    With :math:`\ell = \eta/\nu + \log\nu` (the log of nu times the mode) the width is
    :math:`e^{\ell/2}/\nu` for :math:`\ell \ge 0`, the curvature at the mode, and else
    solves :math:`1/s = \nu (c + \log s) - \eta`, the geometric decay, to first order.
    """
    log_nu = np.log(nu)
    log_peak = eta / nu + log_nu
    decay = OFFSET * nu - eta
    with np.errstate(divide="ignore", invalid="ignore"):
        decay = decay - nu * np.log(decay - nu * log_nu)
        return np.where(log_peak >= 0, np.exp(0.5 * log_peak) / nu, 1.0 / decay)


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
