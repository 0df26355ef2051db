"""Kernels: the prior belief about the summand."""

from pymc_bayessum.kernels.base import First, Kernel, Product, Pullback, Scaled, Second, Sum, Tensor
from pymc_bayessum.kernels.line import (
    Brownian,
    IntegratedBrownian,
    Matern,
    Polynomial,
    SquaredExponential,
)
from pymc_bayessum.kernels.sites import ExpHamming, Tanimoto, hamming
from pymc_bayessum.kernels.stein import Stein

__all__ = [
    "Brownian",
    "ExpHamming",
    "First",
    "IntegratedBrownian",
    "Kernel",
    "Matern",
    "Polynomial",
    "Product",
    "Pullback",
    "Scaled",
    "Second",
    "SquaredExponential",
    "Stein",
    "Sum",
    "Tanimoto",
    "Tensor",
    "hamming",
]
