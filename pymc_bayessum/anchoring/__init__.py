"""Anchors as a step of their own: built, renewed, written to files and read from them."""

from pymc_bayessum.anchoring.anchor import anchor, anchored_at_other_data, keep_anchors

__all__ = ["anchor", "anchored_at_other_data", "keep_anchors"]
