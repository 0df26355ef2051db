r"""Three ways to say which CMP distribution is meant: by its mean, its rate or its mode.

Beside :math:`\nu` one more number places the distribution. Whichever it is, the log rate
:math:`\eta = \log\lambda` follows from its logarithm and :math:`\nu`; all else is a function of
:math:`\eta` and :math:`\nu`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt
from numba import njit

from pymc_bayessum.counts.cmp_sums.ops import rate_and_log_z_of_mean
from pymc_bayessum.counts.cmp_sums.sums import LOG_LARGEST, rate_of_mean

__all__ = ["MEAN", "MODE", "RATE", "Parametrization", "chosen"]


@njit(cache=True)
def _rate_itself(log_lam, nu):
    return log_lam


@njit(cache=True)
def _rate_of_mode(log_mode, nu):
    return nu * log_mode


@dataclass(frozen=True)
class Parametrization:
    """One of the three.

    ``name`` is the argument of the distributions, ``meaning`` says what it is in words, and
    ``compiled_rate`` is the log rate of one row, for numba, of the parameter's log and nu.
    """

    name: ClassVar[str]
    meaning: ClassVar[str]
    compiled_rate: ClassVar[Any]

    def log_rate(self, xp: Any, log_first: Any, nu: Any, from_mean: Callable[..., Any]) -> Any:
        """Return the log rate in an array library, where ``from_mean`` solves for it and log Z."""
        return self.compiled_rate.py_func(log_first, nu)

    def rate_and_log_z(self, log_first: Any, nu: Any) -> tuple[Any, Any]:
        """Return the symbolic log rate, and log Z if it was found on the way, else None."""
        return self.compiled_rate.py_func(log_first, nu), None

    def far_rate(self, log_first: Any, nu: Any) -> Any:
        """Return the log rate where mean and mode are large, and all but the same."""
        return nu * log_first

    def of_mode(self, log_mode: Any, nu: Any) -> Any:
        """Return the parameter's log there."""
        return log_mode

    def centre(self, first: Any, nu: Any) -> Any:
        """Return a number near the mode, symbolically."""
        return first


class Mean(Parametrization):
    """By the mean: the rate solves E[X] = mu."""

    name = "mu"
    meaning = "the mean"
    compiled_rate = staticmethod(rate_of_mean)

    def log_rate(self, xp: Any, log_first: Any, nu: Any, from_mean: Callable[..., Any]) -> Any:
        """Solve for it; NaN where there is none."""
        eta, log_z, *_ = from_mean(log_first, nu)
        known = xp.where(xp.isfinite(log_z), eta, np.nan)
        # The mode is the mean by then.
        return xp.where(log_first >= LOG_LARGEST, nu * log_first, known)

    def rate_and_log_z(self, log_first: Any, nu: Any) -> tuple[Any, Any]:
        """Return both from one solution."""
        return rate_and_log_z_of_mean(log_first, nu)


class Rate(Parametrization):
    """By the rate itself."""

    name = "lam"
    meaning = "the rate"
    compiled_rate = staticmethod(_rate_itself)

    def far_rate(self, log_first: Any, nu: Any) -> Any:
        """Return the argument."""
        return log_first

    def of_mode(self, log_mode: Any, nu: Any) -> Any:
        """Return the rate's log."""
        return nu * log_mode

    def centre(self, first: Any, nu: Any) -> Any:
        """Return the mode, at most exp(20): nu -> 0 would send it to infinity."""
        return pt.exp(pt.minimum(pt.log(first) / pt.maximum(nu, 1e-300), 20.0))


class Mode(Parametrization):
    """By the mode lam**(1/nu)."""

    name = "mode"
    meaning = "lam**(1/nu)"
    compiled_rate = staticmethod(_rate_of_mode)


MEAN, RATE, MODE = Mean(), Rate(), Mode()


def chosen(mu: Any = None, lam: Any = None, mode: Any = None) -> tuple[Parametrization, Any]:
    """Return the one parametrisation that is given, and its value; raise for none, or for more.

    Examples
    --------
    >>> form, value = chosen(lam=2.0)
    >>> form.name, value
    ('lam', 2.0)
    """
    values = {MEAN: mu, RATE: lam, MODE: mode}
    given = [(form, value) for form, value in values.items() if value is not None]
    if len(given) != 1:
        allowed = ", ".join(f"{form.name} ({form.meaning})" for form in values)
        names = " and ".join(form.name for form, _ in given)
        raise ValueError(f"exactly one of {allowed} must be given, got {names or 'none of them'}")
    return given[0]
