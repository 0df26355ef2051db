r"""Exact normalisers of networks whose ties are independent of one another.

Where every term is a weight on ties, the sum over networks is a product over dyads,

.. math:: \log Z(\theta) = \theta \cdot \phi(\text{fixed}) + \sum_d \log(1 + e^{\theta \cdot w_d}) .
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_bayessum.normalizers.anchored.products import product
from pymc_bayessum.normalizers.protocol import Asked, Facts, Given, Reference

__all__ = ["DyadSum"]


@dataclass(frozen=True, eq=False)
class DyadSum:
    """The normaliser of independent ties.

    Parameters
    ----------
    base : ndarray, shape (d,)
        Statistics of the network that has the fixed ties only.
    rows : ndarray, shape (M, d)
        Distinct changes by a tie.
    times : ndarray, shape (M,)
        Number of dyads with each.

    Examples
    --------
    >>> coin = DyadSum(np.zeros(1), np.ones((1, 1)), np.array([3.0]))
    >>> bool(np.isclose(coin.log_z(np, np.array([0.5])), 3 * np.log1p(np.exp(0.5))))
    True
    """

    base: np.ndarray = field(repr=False)
    rows: np.ndarray = field(repr=False)
    times: np.ndarray = field(repr=False)

    @property
    def is_absolute(self) -> bool:
        """Always."""
        return True

    def log_z(self, xp: Any, *theta: Any) -> Any:
        """Log Z of parameter vectors (..., d)."""
        (vector,) = theta
        energy = product(xp, vector, self.rows.T)
        tied = pt.softplus(energy) if xp is pt else np.logaddexp(0.0, energy)
        return product(xp, vector, self.base) + xp.sum(tied * self.times, axis=-1)

    def sd(self, xp: Any, *theta: Any) -> None:
        """None: it is exact."""

    def reference(self, asked: Asked) -> Reference:
        """Itself: there is nothing better."""
        return Given(lambda theta: self.log_z(np, theta), "the product over dyads")

    def remedy(self, facts: Facts) -> str:
        """Say what can be wrong with a product that leaves nothing out."""
        return "a prior that keeps theta finite: the product over dyads is exact wherever it is"
