"""Graphs: Potts and Ising models with their constant, and the parts they are made of."""

from pymc_bayessum.graphs.anchors import AnchoredRule, anchored_rule
from pymc_bayessum.graphs.base_rules import PottsRule, potts_rule
from pymc_bayessum.graphs.curves import CurveRule, curve_rule
from pymc_bayessum.graphs.fitting import PottsFit, StochasticPottsFit, fit_potts
from pymc_bayessum.graphs.label_step import LabelStep
from pymc_bayessum.graphs.layouts import (
    EliminationOrder,
    as_edges,
    chain,
    coloring,
    complete,
    elimination_order,
    from_adjacency,
    from_networkx,
    grid,
    ring,
    rooted_forest,
    spanning_tree,
)
from pymc_bayessum.graphs.ordinal import OrdinalMRF
from pymc_bayessum.graphs.potts import Ising, Potts
from pymc_bayessum.graphs.pseudo import PseudoLikelihoodFit, pseudo_likelihood
from pymc_bayessum.graphs.sequences import (
    contact_scores,
    sequence_states,
    sequence_weights,
    zero_sum,
)

__all__ = [
    "AnchoredRule",
    "CurveRule",
    "EliminationOrder",
    "Ising",
    "LabelStep",
    "OrdinalMRF",
    "Potts",
    "PottsFit",
    "PottsRule",
    "PseudoLikelihoodFit",
    "StochasticPottsFit",
    "anchored_rule",
    "as_edges",
    "chain",
    "coloring",
    "complete",
    "contact_scores",
    "curve_rule",
    "elimination_order",
    "fit_potts",
    "from_adjacency",
    "from_networkx",
    "grid",
    "potts_rule",
    "pseudo_likelihood",
    "ring",
    "rooted_forest",
    "sequence_states",
    "sequence_weights",
    "spanning_tree",
    "zero_sum",
]
