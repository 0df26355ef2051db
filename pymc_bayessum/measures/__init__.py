"""Base measures: where the points are and what mass they carry."""

from .base import IntegerMeasure, Measure
from .compound import Mixture, Product, Pushforward, UniformInterval
from .counts import Counting, Geometric, Logarithmic, NegativeBinomial, Poisson, Skellam
from .sites import (
    MarkovCategorical,
    ProductCategorical,
    SiteMeasure,
    TreeCategorical,
    UniformCategorical,
    UniformSpins,
)
from .supports import Image, Integers, Interval, Naturals, Pair, Range, Sites, Spins, Support

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
