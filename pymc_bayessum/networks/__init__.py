"""Random networks: exponential random graph models."""

from pymc_bayessum.networks.ergm import ERGM

__all__ = ["ERGM"]
