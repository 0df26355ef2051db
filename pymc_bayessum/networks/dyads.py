r"""Normalisers of networks whose ties are, or are taken to be, independent of one another.

Where every term is a weight on ties, the sum over networks is a product over dyads,

.. math:: \log Z(\theta) = \theta \cdot \phi(\text{fixed}) + \sum_d \log(1 + e^{\theta \cdot w_d}) .
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_bayessum.normalizers.anchored.node_sum import product
from pymc_bayessum.normalizers.protocol import Asked, Exact, Facts, Given, Reference, ReferenceValue

__all__ = ["Degenerate", "DyadSum"]


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


@dataclass(frozen=True, eq=False)
class Degenerate(DyadSum):
    r"""What stands in for the normaliser of a degenerate model: its fit is flagged.

    Where a model with strong clustering has one mode of nearly empty and one of nearly full
    networks, and the data lie between, no theta makes networks like the data probable: see
    :mod:`pymc_bayessum.networks.phases`. No draws could estimate log Z. The stand-in makes the
    likelihood the pseudo-likelihood, :math:`\sum_d \log p(y_d \mid y_{-d}; \theta)`, which is at
    least defined.
    """

    names: tuple[str, ...]

    is_absolute = False
    description = "nothing: the model is degenerate, its networks cannot be drawn"

    def reference(self, asked: Asked) -> Reference:
        """Nothing that could be computed."""
        return _Unknown(partial(self.log_z, np), self.description)

    def remedy(self, facts: Facts) -> str:
        """Say which terms to use instead."""
        culprits = [name for name in self.names if name.startswith(("triangles", "stars"))]
        return (
            f"another model: {' + '.join(self.names)} is degenerate on this network. Chains from "
            "empty and from full networks end in different places, so that its mass lies on "
            "networks unlike the data; what was fitted is the pseudo-likelihood. Replace "
            f"{', '.join(culprits) or 'terms that feed on themselves'} by terms with diminishing "
            "returns: pbs.ergm.gwesp(0.5) for triangles, pbs.ergm.gwdegree(0.5) for stars"
        )


class _Unknown(Given):
    """A reference that cannot be had: nothing better is known, and nothing of its error."""

    def __call__(self, draw: Sequence[np.ndarray], theta: Sequence[np.ndarray]) -> ReferenceValue:
        return super().__call__(draw, theta)._replace(sd=np.inf)
