"""Normalising constants of discrete models inside PyMC, by Bayesian quadrature for sums."""

from pymc_bayessum import datasets, embeddings, graphs, kernels, measures, nodes
from pymc_bayessum.distributions.cmp import CMP, cmp_log_z, cmp_mean, cmp_variance
from pymc_bayessum.distributions.unnormalized import Unnormalized
from pymc_bayessum.embeddings import embed
from pymc_bayessum.logsum import find_normalizers, log_normalizer
from pymc_bayessum.rules import (
    Estimate,
    Rule,
    bayes_sum,
    geometric_rule,
    negative_binomial_rule,
    poisson_rule,
)
from pymc_bayessum.stein import ksd, stein_rule

__version__ = "0.1.0"

__all__ = [
    "CMP",
    "Estimate",
    "Rule",
    "Unnormalized",
    "bayes_sum",
    "cmp_log_z",
    "cmp_mean",
    "cmp_variance",
    "datasets",
    "embed",
    "embeddings",
    "find_normalizers",
    "geometric_rule",
    "graphs",
    "kernels",
    "ksd",
    "log_normalizer",
    "measures",
    "negative_binomial_rule",
    "nodes",
    "poisson_rule",
    "stein_rule",
]
