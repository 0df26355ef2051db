"""Normalising constants of discrete models inside PyMC, by Bayesian quadrature for sums."""

# ruff: noqa: E402
from pymc_bayessum.interrupts import while_importing

while_importing()

import pymc_bayessum.compiled_cache  # noqa: F401  # before anything is compiled
from pymc_bayessum import datasets, embeddings, graphs, kernels, measures, normalizers
from pymc_bayessum.anchoring import anchor, keep_anchors
from pymc_bayessum.counts import (
    CMP,
    CMPBinomial,
    HurdleCMP,
    LatentCount,
    MultivariateCMP,
    ZeroInflatedCMP,
    bambi_family,
    cmp_lam,
    cmp_log_z,
    cmp_mean,
    cmp_mode,
    cmp_variance,
)
from pymc_bayessum.diagnostics import (
    check_normalizer,
    correct,
    find_normalizers,
    label_probabilities,
)
from pymc_bayessum.embeddings import embed
from pymc_bayessum.exponential import ExponentialFamily, Family
from pymc_bayessum.graphs import (
    AnchoredRule,
    Ising,
    LabelStep,
    OrdinalMRF,
    Potts,
    PottsFit,
    PottsRule,
    StochasticPottsFit,
    anchored_rule,
    contact_scores,
    fit_potts,
    potts_rule,
    pseudo_likelihood,
    sequence_states,
    sequence_weights,
)
from pymc_bayessum.networks import ERGM
from pymc_bayessum.networks import terms as ergm
from pymc_bayessum.normalizers import log_normalizer
from pymc_bayessum.plots import plot_dispersion, plot_network_fit, plot_normalizer, plot_rootogram
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
    "ERGM",
    "AnchoredRule",
    "CMPBinomial",
    "Estimate",
    "EvaluationError",
    "ExponentialFamily",
    "Family",
    "HurdleCMP",
    "Ising",
    "LabelStep",
    "LatentCount",
    "MultivariateCMP",
    "OrdinalMRF",
    "Potts",
    "PottsFit",
    "PottsRule",
    "Rule",
    "StochasticPottsFit",
    "Unnormalized",
    "ZeroInflatedCMP",
    "active_bayes_sum",
    "anchor",
    "anchored_rule",
    "bambi_family",
    "baselines",
    "bayes_sum",
    "check_normalizer",
    "cmp_lam",
    "cmp_log_z",
    "cmp_mean",
    "cmp_mode",
    "cmp_variance",
    "contact_scores",
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
    "keep_anchors",
    "kernels",
    "ksd",
    "ksd_test",
    "label_probabilities",
    "log_normalizer",
    "measures",
    "negative_binomial_rule",
    "nodes",
    "normalizers",
    "nystroem_rule",
    "pivot_rule",
    "plot_dispersion",
    "plot_network_fit",
    "plot_normalizer",
    "plot_rootogram",
    "poisson_rule",
    "potts_rule",
    "pseudo_likelihood",
    "select_kernel",
    "sequence_states",
    "sequence_weights",
    "stein_rule",
]
