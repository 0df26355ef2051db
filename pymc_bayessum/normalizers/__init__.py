"""The door between sums and models: the protocol of a normaliser, and the node that holds one."""

from pymc_bayessum.normalizers.node import Found, LogZ, log_z, normalized
from pymc_bayessum.normalizers.protocol import (
    Asked,
    Facts,
    Given,
    Normalizer,
    Reference,
    ReferenceValue,
)
from pymc_bayessum.normalizers.summed import log_normalizer

__all__ = [
    "Asked",
    "Facts",
    "Found",
    "Given",
    "LogZ",
    "Normalizer",
    "Reference",
    "ReferenceValue",
    "log_normalizer",
    "log_z",
    "normalized",
]
