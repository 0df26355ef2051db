"""Kernels: the prior belief about the summand."""

from .base import First, Kernel, Product, Pullback, Scaled, Second, Sum, Tensor
from .line import Brownian, IntegratedBrownian, Matern, Polynomial, SquaredExponential
from .sites import ExpHamming, Tanimoto, hamming
from .stein import Stein

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
