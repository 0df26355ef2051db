"""Graphs: Potts and Ising models with their constant, and the parts they are made of."""

from pymc_bayessum.graphs.anchors import AnchoredRule, anchored_rule
from pymc_bayessum.graphs.base_rules import PottsRule, potts_rule
from pymc_bayessum.graphs.curves import CurveRule, curve_rule
from pymc_bayessum.graphs.fitting import PottsFit, fit_potts
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
from pymc_bayessum.graphs.pseudo import pseudo_likelihood

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
    "anchored_rule",
    "as_edges",
    "chain",
    "coloring",
    "complete",
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
    "spanning_tree",
]
