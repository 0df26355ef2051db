"""Normalising constants of discrete models inside PyMC, by Bayesian quadrature for sums."""

from pymc_bayessum import baselines, datasets, embeddings, graphs, kernels, measures, nodes
from pymc_bayessum.active import EvaluationError, active_bayes_sum
from pymc_bayessum.anchors import AnchoredRule, anchored_rule
from pymc_bayessum.calibration import coverage
from pymc_bayessum.diagnostics import check_normalizer, correct
from pymc_bayessum.distributions.bambi_family import bambi_family
from pymc_bayessum.distributions.cmp import CMP, cmp_log_z, cmp_mean, cmp_variance
from pymc_bayessum.distributions.inflated import HurdleCMP, ZeroInflatedCMP
from pymc_bayessum.distributions.potts import Ising, Potts
from pymc_bayessum.distributions.unnormalized import Unnormalized
from pymc_bayessum.embeddings import embed
from pymc_bayessum.fitting import PottsFit, fit_potts, pseudo_likelihood
from pymc_bayessum.hyper import select_kernel
from pymc_bayessum.logsum import find_normalizers, log_normalizer
from pymc_bayessum.lowrank import nystroem_rule, pivot_rule
from pymc_bayessum.plots import plot_dispersion, plot_normalizer, plot_rootogram
from pymc_bayessum.potts_rules import PottsRule, potts_rule
from pymc_bayessum.rules import (
    Estimate,
    Rule,
    bayes_sum,
    geometric_rule,
    negative_binomial_rule,
    poisson_rule,
)
from pymc_bayessum.stein import ksd, ksd_test, stein_rule

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
