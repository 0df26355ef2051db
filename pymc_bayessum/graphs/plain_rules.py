"""A plain rule over rows of states as the normaliser of a graph model."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_bayessum.graphs.energies import symbolic_energy
from pymc_bayessum.graphs.estimates import symbolic_parameters
from pymc_bayessum.graphs.family import PottsFamily
from pymc_bayessum.graphs.statistics import PottsLayout
from pymc_bayessum.normalizers.protocol import Asked, Given, Reference
from pymc_bayessum.normalizers.summed import RuleSum, sum_by
from pymc_bayessum.rules.rule import Rule

__all__ = ["GraphRuleSum", "RuleNormalizer"]


@dataclass(frozen=True)
class GraphRuleSum(RuleSum):
    """A plain rule's sum over the states of a graph; elimination is its reference where it can be.

    Fresh nodes from the same base, the reference of a rule on sites, miss what the rule misses.
    """

    family: PottsFamily

    def reference(self, asked: Asked) -> Reference | None:
        """Return the exact sum, or what the rule itself has."""
        exact = self.family.exact_log_z()
        if exact is None:
            return super().reference(asked._replace(theta=asked.theta[:-1]))
        return Given(
            lambda log_f, nodes, theta: np.apply_along_axis(exact, -1, theta), "the exact sum"
        )


@dataclass(frozen=True, eq=False)
class RuleNormalizer:
    """A plain rule over the states of a graph, its nodes (N, L), as the graph's normaliser."""

    layout: PottsLayout
    rule: Rule

    is_absolute = True

    def __post_init__(self) -> None:
        nodes = self.rule.nodes
        n_sites = self.layout.n_sites
        if isinstance(nodes, tuple) or nodes.ndim != 2 or nodes.shape[1] != n_sites:
            shape = "a pair" if isinstance(nodes, tuple) else nodes.shape
            raise ValueError(f"normalizer must have nodes of shape (N, {n_sites}), got {shape}")
        if nodes.dtype.kind not in "iu" or not self.layout.valid(nodes).all():
            raise ValueError("normalizer has nodes with states that the model does not have")

    def log_z(self, h: Any, J: Any) -> TensorVariable:
        """Return the symbolic log Z."""
        layout = self.layout
        theta = symbolic_parameters(layout, h, J)
        h, J = pt.as_tensor_variable(h), pt.as_tensor_variable(J)
        if h.type.ndim > len(layout.field_shape) or J.type.ndim > len(layout.coupling_shape):
            # The axis of the nodes comes last, after all batch dimensions.
            h = pt.expand_dims(h, h.type.ndim - len(layout.field_shape))
            J = pt.expand_dims(J, J.type.ndim - len(layout.coupling_shape))
        return sum_by(
            GraphRuleSum(self.rule, PottsFamily(layout)),
            lambda nodes: symbolic_energy(layout, layout.encode(nodes), h, J),
            theta,
        )
