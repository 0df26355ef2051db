"""The door between sums and models: symbolic log-normalisers that diagnostics find again."""

from pymc_bayessum.normalizers.logsum import find_normalizers, log_normalizer, normalized

__all__ = ["find_normalizers", "log_normalizer", "normalized"]
