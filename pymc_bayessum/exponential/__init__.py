"""Any discrete exponential family: statistics, a way to draw, and its normalising constant."""

from pymc_bayessum.exponential.distribution import ExponentialFamily
from pymc_bayessum.exponential.family import Family

__all__ = ["ExponentialFamily", "Family"]
