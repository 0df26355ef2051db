"""How K⁻¹v is found: dense, in closed form, banded, through features, or by pivots."""

from pymc_bayessum.solve import banded, closed, feature  # noqa: F401  they enter their solvers
from pymc_bayessum.solve.dense import DenseGram, factorize_dense
from pymc_bayessum.solve.gram import Gram, KrigingGram, MeanSpaceGram
from pymc_bayessum.solve.registry import SOLVERS, Solution, factorize, register, solve

__all__ = [
    "SOLVERS",
    "DenseGram",
    "Gram",
    "KrigingGram",
    "MeanSpaceGram",
    "Solution",
    "factorize",
    "factorize_dense",
    "register",
    "solve",
]
