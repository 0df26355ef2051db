"""Anchors as a step of their own: built, renewed, written to files and read from them."""

from pymc_bayessum.anchoring.anchor import anchor, keep_anchors
from pymc_bayessum.anchoring.sources import anchored_at_other_data

__all__ = ["anchor", "anchored_at_other_data", "keep_anchors"]
