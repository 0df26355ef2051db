"""Looking back: whether the normalisers of a model held over its posterior."""

from pymc_bayessum.diagnostics.check import check_normalizer
from pymc_bayessum.diagnostics.checked_tree import CheckedTree
from pymc_bayessum.diagnostics.correct import correct
from pymc_bayessum.diagnostics.find import find_normalizers
from pymc_bayessum.diagnostics.labels import label_probabilities

__all__ = [
    "CheckedTree",
    "check_normalizer",
    "correct",
    "find_normalizers",
    "label_probabilities",
]
