"""Counts: the Conway-Maxwell-Poisson distribution and its relatives."""

from pymc_bayessum.counts.bambi_family import bambi_family
from pymc_bayessum.counts.cmp import CMP, cmp_log_z, cmp_mean, cmp_variance
from pymc_bayessum.counts.inflated import HurdleCMP, ZeroInflatedCMP

__all__ = [
    "CMP",
    "HurdleCMP",
    "ZeroInflatedCMP",
    "bambi_family",
    "cmp_log_z",
    "cmp_mean",
    "cmp_variance",
]
