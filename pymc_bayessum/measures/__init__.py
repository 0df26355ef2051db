"""Base measures: where the points are and what mass they carry."""

from pymc_bayessum.measures.base import IntegerMeasure, Measure
from pymc_bayessum.measures.compound import Mixture, Product, Pushforward, UniformInterval
from pymc_bayessum.measures.counts import (
    Counting,
    Geometric,
    Logarithmic,
    NegativeBinomial,
    Poisson,
    Skellam,
)
from pymc_bayessum.measures.sites import (
    MarkovCategorical,
    ProductCategorical,
    SiteMeasure,
    TreeCategorical,
    UniformCategorical,
    UniformSpins,
)
from pymc_bayessum.measures.supports import (
    Image,
    Integers,
    Interval,
    Naturals,
    Pair,
    Range,
    Sites,
    Spins,
    Support,
)

__all__ = [
    "Counting",
    "Geometric",
    "Image",
    "IntegerMeasure",
    "Integers",
    "Interval",
    "Logarithmic",
    "MarkovCategorical",
    "Measure",
    "Mixture",
    "Naturals",
    "NegativeBinomial",
    "Pair",
    "Poisson",
    "Product",
    "ProductCategorical",
    "Pushforward",
    "Range",
    "SiteMeasure",
    "Sites",
    "Skellam",
    "Spins",
    "Support",
    "TreeCategorical",
    "UniformCategorical",
    "UniformInterval",
    "UniformSpins",
]
