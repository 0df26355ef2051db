"""Normalising constants of discrete models inside PyMC, by Bayesian quadrature for sums."""

from pymc_bayessum import datasets, embeddings, graphs, kernels, measures, normalizers
from pymc_bayessum.counts import (
    CMP,
    HurdleCMP,
    ZeroInflatedCMP,
    bambi_family,
    cmp_log_z,
    cmp_mean,
    cmp_variance,
)
from pymc_bayessum.diagnostics import check_normalizer, correct, find_normalizers
from pymc_bayessum.embeddings import embed
from pymc_bayessum.graphs import (
    AnchoredRule,
    Ising,
    Potts,
    PottsFit,
    PottsRule,
    anchored_rule,
    fit_potts,
    potts_rule,
    pseudo_likelihood,
)
from pymc_bayessum.networks import terms as ergm
from pymc_bayessum.normalizers import log_normalizer
from pymc_bayessum.plots import plot_dispersion, plot_normalizer, plot_rootogram
from pymc_bayessum.rules import (
    Estimate,
    EvaluationError,
    Rule,
    active_bayes_sum,
    baselines,
    bayes_sum,
    coverage,
    geometric_rule,
    ksd,
    ksd_test,
    negative_binomial_rule,
    nodes,
    nystroem_rule,
    pivot_rule,
    poisson_rule,
    select_kernel,
    stein_rule,
)
from pymc_bayessum.unnormalized import Unnormalized

__version__ = "0.1.0"

__all__ = [
    "CMP",
    "AnchoredRule",
    "Estimate",
    "EvaluationError",
    "HurdleCMP",
    "Ising",
    "Potts",
    "PottsFit",
    "PottsRule",
    "Rule",
    "Unnormalized",
    "ZeroInflatedCMP",
    "active_bayes_sum",
    "anchored_rule",
    "bambi_family",
    "baselines",
    "bayes_sum",
    "check_normalizer",
    "cmp_log_z",
    "cmp_mean",
    "cmp_variance",
    "correct",
    "coverage",
    "datasets",
    "embed",
    "embeddings",
    "ergm",
    "find_normalizers",
    "fit_potts",
    "geometric_rule",
    "graphs",
    "kernels",
    "ksd",
    "ksd_test",
    "log_normalizer",
    "measures",
    "negative_binomial_rule",
    "nodes",
    "normalizers",
    "nystroem_rule",
    "pivot_rule",
    "plot_dispersion",
    "plot_normalizer",
    "plot_rootogram",
    "poisson_rule",
    "potts_rule",
    "pseudo_likelihood",
    "select_kernel",
    "stein_rule",
]
