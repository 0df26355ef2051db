"""Looking back: whether the normalisers of a model held over its posterior."""

from pymc_bayessum.diagnostics.check import check_normalizer, correct

__all__ = ["check_normalizer", "correct"]
