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

__all__ = ["Expanded", "laplace_mean", "rare_point"]

#: Rows that would show a statistic, in variance, below which it is rare;
RARE_ROWS = 30.0
#: and posterior sds by which its parameter is raised.
RAISE = 2.0


class Expanded(NamedTuple):
    """A posterior near an anchor: its mean (r,) and its inverse covariance (r, r)."""

    mean: np.ndarray
    precision: np.ndarray


def laplace_mean(rule: Anchored, data: Data, prior: NormalPrior) -> Expanded:
    """Return the posterior mean as seen from the anchor of a rule."""
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


def rare_point(
    rule: Anchored, about: Expanded, data: Data, prior: NormalPrior
) -> np.ndarray | None:
    """Return a point at which what is rare at the anchor is drawn more often; None if nothing is.

    A statistic that hardly varies (a category nobody chose) is hardly among the draws at the
    anchor, yet its parameter is free to grow until it is no longer rare.
    """
    share = rule.nodes.share(rule.coordinates.of(rule.centre))
    away = rule.nodes.rows - share @ rule.nodes.rows
    rare = data.n_rows * (share @ away**2) < RARE_ROWS
    if not rare.any():
        return None
    # Towards where it varies more; what was not drawn at all has been driven out by data.
    skewed = share @ away**3
    towards = np.sign(np.where(skewed == 0.0, prior.mean - about.mean, skewed))
    sds = np.sqrt(np.diag(np.linalg.inv(about.precision)))
    return about.mean + np.where(rare, RAISE * towards * sds, 0.0)
