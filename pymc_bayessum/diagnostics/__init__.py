"""Looking back: whether the normalisers of a model held over its posterior."""

from pymc_bayessum.diagnostics.check import check_normalizer, correct
from pymc_bayessum.diagnostics.find import find_normalizers

__all__ = ["check_normalizer", "correct", "find_normalizers"]
