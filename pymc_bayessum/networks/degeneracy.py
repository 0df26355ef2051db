"""What stands in for the normaliser of a degenerate random-graph model.

Where a model with strong clustering has one mode of nearly empty and one of nearly full networks,
and the data lie between, no theta makes networks like the data probable: see
:mod:`pymc_bayessum.networks.phases`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_bayessum.exponential.listing import distinct
from pymc_bayessum.networks.dyads import DyadSum
from pymc_bayessum.networks.family import NetworkFamily
from pymc_bayessum.normalizers.protocol import Asked, Facts, Reference, ReferenceValue

__all__ = ["Degenerate", "degenerate"]


@dataclass(frozen=True, eq=False)
class Degenerate:
    r"""What stands in for the normaliser of a degenerate model: its fit is flagged.

    No draws could estimate log Z. The stand-in makes the likelihood the pseudo-likelihood,
    :math:`\sum_d \log p(y_d \mid y_{-d}; \theta)`, which is at least defined.
    """

    names: tuple[str, ...]
    stand_in: DyadSum

    is_absolute = False

    def log_z(self, xp: Any, *theta: Any) -> Any:
        """Return the stand-in's value."""
        return self.stand_in.log_z(xp, *theta)

    def sd(self, xp: Any, *theta: Any) -> None:
        """None: nothing is known of its error."""

    def reference(self, asked: Asked) -> Reference:
        """Nothing that could be computed."""
        return _Unknown(self)

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


def degenerate(family: NetworkFamily) -> Degenerate:
    """Build the stand-in for a family with one observed network or several."""
    design = np.concatenate([family.changes(state) for state in family.typical])
    ties = family.ties(family.typical).ravel()
    n = len(family.typical)
    base = family.statistics(family.typical).sum(axis=0) - ties @ design
    rows, times = distinct(design)
    return Degenerate(family.names, DyadSum(base / n, rows, times / n))


@dataclass(frozen=True, eq=False)
class _Unknown:
    """A reference that cannot be had: nothing better is known, and nothing of its error."""

    normalizer: Degenerate
    description: str = "nothing: the model is degenerate, its networks cannot be drawn"

    def __call__(self, draw: Sequence[np.ndarray], theta: Sequence[np.ndarray]) -> ReferenceValue:
        return ReferenceValue(np.asarray(self.normalizer.log_z(np, *theta)), sd=np.inf)
