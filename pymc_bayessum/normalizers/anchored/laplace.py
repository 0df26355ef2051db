r"""A posterior of many parameters, expanded about the anchor of a rule.

With the slope g and the precision :math:`\Sigma^{-1}` of the log-posterior at the anchor and the
third cumulants :math:`\kappa_{ijk}` of the statistics there, the posterior mean is, to the first
order beyond Laplace's approximation (Tierney and Kadane, 1986),

.. math:: E[c] = c_0 + \Sigma \Big(g - \frac n2 \sum_{jk} \kappa_{\cdot jk} \Sigma_{jk}\Big),

and the third cumulants enter through :math:`E[\phi\, (\phi^\top \Sigma \phi)]` of centred
statistics, one sum over draws.
"""

from typing import NamedTuple

import numpy as np

from pymc_bayessum.normalizers.anchored.climbing import Data, NormalPrior
from pymc_bayessum.normalizers.anchored.rule import Anchored

__all__ = ["Expanded", "laplace_mean"]


class Expanded(NamedTuple):
    """A posterior near an anchor: its mean (r,) and its inverse covariance (r, r)."""

    mean: np.ndarray
    precision: np.ndarray


def laplace_mean(rule: Anchored, data: Data, prior: NormalPrior) -> Expanded:
    """Return the posterior mean as seen from the anchor of a rule.

    Parameters
    ----------
    rule : Anchored
        With one anchor.
    data : Data
    prior : NormalPrior
    """
    anchor = rule.coordinates.of(rule.centre)
    mean, spread = rule.mean_and_covariance(anchor)
    precision = data.n_rows * spread + prior.precision
    slope = data.n_rows * (rule.coordinates.select @ data.mean - mean)
    slope -= prior.precision @ (anchor - prior.mean)
    share = rule.nodes.share(anchor)
    away = rule.nodes.rows - share @ rule.nodes.rows
    squares = np.sum(away * np.linalg.solve(precision, away.T).T, axis=1)
    skewed = (share * (squares - share @ squares)) @ away
    step = np.linalg.solve(precision, slope - 0.5 * data.n_rows * skewed)
    return Expanded(anchor + step, precision)
