"""An estimate of log Z of an exponential family as a normaliser that models use."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_bayessum.normalizers.anchored.reference import AnchoredReference, AveragedReference
from pymc_bayessum.normalizers.anchored.rule import Anchored
from pymc_bayessum.normalizers.protocol import Asked, Facts, Given, Reference

__all__ = ["Estimated"]

#: Parameters beyond which a check looks at each of them, and log Z is asked for that often.
MANY_PARAMETERS = 64


@dataclass(frozen=True, eq=False)
class Estimated:
    """The normaliser of an estimate, as a function of parameter vectors.

    An estimate, be it anchored, a curve or a rule on a fixed base, has a ``family``, ``states``
    (C, ...) to start its chains from, ``is_absolute``, a ``remedy`` in words,
    ``log_z_at(xp, theta)`` with its error ``sd_at(xp, theta)``, and ``v(theta)``, the variance of
    the log ratio between parameters and where it has nodes.
    """

    rule: Any

    @property
    def is_absolute(self) -> bool:
        """Whether log Z is known, and not up to a constant only."""
        return self.rule.is_absolute

    def log_z(self, xp: Any, *theta: Any) -> Any:
        """Log Z of a parameter vector (..., d)."""
        return self.rule.log_z_at(xp, *theta)

    def sd(self, xp: Any, *theta: Any) -> Any:
        """Predicted standard error of log Z."""
        return self.rule.sd_at(xp, *theta)

    def reference(self, asked: Asked) -> Reference:
        """Exact sums where the family has them, else draws around the posterior."""
        rule = self.rule
        many = isinstance(rule, Anchored) and rule.n_parameters > MANY_PARAMETERS
        if hasattr(rule.family, "exact_log_z"):
            exact = rule.family.exact_log_z(often=many)
            if exact is not None:
                return Given(lambda theta: np.apply_along_axis(exact, -1, theta), "the exact sum")
        if many:
            return AveragedReference(rule, asked)
        return AnchoredReference(rule, asked)

    def remedy(self, facts: Facts) -> str:
        """Say what the estimate says."""
        return self.rule.remedy
