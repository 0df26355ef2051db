"""Counts: the Conway-Maxwell-Poisson distribution and its relatives."""

from pymc_bayessum.counts.bambi_family import bambi_family
from pymc_bayessum.counts.binomial import CMPBinomial
from pymc_bayessum.counts.cmp import CMP
from pymc_bayessum.counts.inflated import HurdleCMP, ZeroInflatedCMP
from pymc_bayessum.counts.latent import LatentCount
from pymc_bayessum.counts.moments import cmp_lam, cmp_log_z, cmp_mean, cmp_mode, cmp_variance
from pymc_bayessum.counts.multivariate import MultivariateCMP

__all__ = [
    "CMP",
    "CMPBinomial",
    "HurdleCMP",
    "LatentCount",
    "MultivariateCMP",
    "ZeroInflatedCMP",
    "bambi_family",
    "cmp_lam",
    "cmp_log_z",
    "cmp_mean",
    "cmp_mode",
    "cmp_variance",
]
