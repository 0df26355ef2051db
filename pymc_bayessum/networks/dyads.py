r"""Exact normalisers of networks whose ties are independent of one another.

Where every term is a weight on ties, the sum over networks is a product over dyads,

.. math:: \log Z(\theta) = \theta \cdot \phi(\text{fixed}) + \sum_d \log(1 + e^{\theta \cdot w_d}) .
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_bayessum.normalizers.anchored.products import product
from pymc_bayessum.normalizers.protocol import Exact

__all__ = ["DyadSum"]


@dataclass(frozen=True, eq=False)
class DyadSum(Exact):
    """The normaliser of independent ties.

    Statistics (d,) of the network that has the fixed ties only, distinct changes (M, d) by a tie,
    and the number of dyads with each.

    Examples
    --------
    >>> coin = DyadSum(np.zeros(1), np.ones((1, 1)), np.array([3.0]))
    >>> bool(np.isclose(coin.log_z(np, np.array([0.5])), 3 * np.log1p(np.exp(0.5))))
    True
    """

    base: np.ndarray = field(repr=False)
    rows: np.ndarray = field(repr=False)
    times: np.ndarray = field(repr=False)

    description = "the product over dyads"
    advice = "a prior that keeps theta finite: the product over dyads is exact wherever it is"

    def log_z(self, xp: Any, *theta: Any) -> Any:
        """Log Z of parameter vectors (..., d)."""
        (vector,) = theta
        energy = product(xp, vector, self.rows.T)
        tied = pt.softplus(energy) if xp is pt else np.logaddexp(0.0, energy)
        return product(xp, vector, self.base) + xp.sum(tied * self.times, axis=-1)
