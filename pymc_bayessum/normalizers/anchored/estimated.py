"""An estimate of log Z of an exponential family as a normaliser that models use."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pymc_bayessum.normalizers.anchored.reference import AnchoredReference, AveragedReference
from pymc_bayessum.normalizers.anchored.rule import Anchored
from pymc_bayessum.normalizers.family import Family
from pymc_bayessum.normalizers.protocol import Asked, Facts, Given, Reference

__all__ = ["Estimate", "Estimated"]


#: Parameters beyond which a check looks at each of them, and log Z is asked for that often.
MANY_PARAMETERS = 64


class Estimate(Protocol):
    """What is known of log Z of a family: anchored, or a rule on a fixed base."""

    @property
    def family(self) -> Family:
        """The family."""

    @property
    def is_absolute(self) -> bool:
        """Whether log Z is known, and not up to a constant only."""

    @property
    def states(self) -> np.ndarray:
        """Some states, (C, ...), to start chains from."""

    @property
    def remedy(self) -> str:
        """What to do where it was not good enough."""

    def log_z_at(self, xp: Any, theta: Any) -> Any:
        """Log Z of parameter vectors (..., d)."""

    def sd_at(self, xp: Any, theta: Any) -> Any:
        """Its predicted standard error."""

    def v(self, theta: np.ndarray) -> float:
        """Variance of the log ratio between a parameter vector and where it has nodes."""


@dataclass(frozen=True, eq=False)
class Estimated:
    """The normaliser of an estimate, as a function of parameter vectors."""

    rule: Estimate

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
                return Given(_over_batches(exact), "the exact sum")
        if isinstance(rule, Anchored) and many:
            return AveragedReference(rule, asked)
        return AnchoredReference(rule, asked)

    def remedy(self, facts: Facts) -> str:
        """Say what the estimate says."""
        return self.rule.remedy


def _over_batches(exact: Callable[[np.ndarray], float]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda theta: np.apply_along_axis(exact, -1, theta)
