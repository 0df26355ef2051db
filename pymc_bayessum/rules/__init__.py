"""Nodes and weights: BayesSum rules, their relatives, and what they are compared with."""

from pymc_bayessum.rules import baselines, nodes
from pymc_bayessum.rules.active import EvaluationError, active_bayes_sum
from pymc_bayessum.rules.calibration import coverage
from pymc_bayessum.rules.hyper import select_kernel
from pymc_bayessum.rules.lowrank import nystroem_rule, pivot_rule
from pymc_bayessum.rules.rule import (
    Estimate,
    Rule,
    bayes_sum,
    geometric_rule,
    negative_binomial_rule,
    poisson_rule,
)
from pymc_bayessum.rules.stein import ksd, ksd_test, stein_rule

__all__ = [
    "Estimate",
    "EvaluationError",
    "Rule",
    "active_bayes_sum",
    "baselines",
    "bayes_sum",
    "coverage",
    "geometric_rule",
    "ksd",
    "ksd_test",
    "negative_binomial_rule",
    "nodes",
    "nystroem_rule",
    "pivot_rule",
    "poisson_rule",
    "select_kernel",
    "stein_rule",
]
