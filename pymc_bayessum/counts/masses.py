r"""Symbolic log masses, tails and quantiles of CMP, from which its distributions are made.

.. math:: \log P(X = x) = x \eta - \nu \log x! - \log Z(\eta, \nu), \qquad P(X = 0) = 1 / Z.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.dist_math import (
    check_icdf_parameters,
    check_icdf_value,
    check_parameters,
    factln,
)
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Constant
from pytensor.scalar.basic import Cast, Exp
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.symbolic import TensorSymbolicOp

from pymc_bayessum.counts.cmp_series import CMPSum
from pymc_bayessum.counts.cmp_sums.ops import log_tail, quantile
from pymc_bayessum.counts.cmp_sums.sums import LOG_RARE
from pymc_bayessum.counts.parametrization import Parametrization
from pymc_bayessum.normalizers import node
from pymc_bayessum.normalizers.summed import log_normalizer
from pymc_bayessum.rules.rule import Rule

__all__ = ["LARGEST_COUNT", "Counted", "Masses", "may_be_far_below"]

# The largest number that a double tells from its neighbours.
LARGEST_COUNT = 2.0**53
# The mean beyond which log Z goes on as powers, and counts that lie far below it. As means are
# exp(eta / nu) but for 1 / nu, it is larger below some nu.
_FURTHEST, _FAR_BELOW, _SMALL_NU, _LEAST_NU = 2.0**50, 2.0**44, 1e-6, 1e-60
# Logs of nu between which exp(log_nu) is nu.
_LOG_NU_RANGE = math.log(1e-30), math.log(1e12)


@dataclass(frozen=True)
class Counted:
    """A value of which it is known, or asked, whether it is a count.

    ``count`` is the value, or zero where it is no count, which keeps NaN out of gradients;
    ``valid`` whether it is a whole number from zero on, True where that is known beforehand.
    """

    count: Any
    valid: Any

    @classmethod
    def of(cls, value: Any) -> "Counted":
        """Ask a value: of data that PyMC made whole, what was given."""
        value = _before_casts(value)
        valid = _is_count(value)
        # Log-factorials of small integer types would be single precision.
        if valid is True:
            return cls(pt.constant(value.data, dtype="float64"), valid)
        return cls(pt.cast(pt.switch(valid, value, 0), "float64"), valid)

    def guard(self, log_mass: Any) -> Any:
        """Return -inf where the value is no count."""
        return log_mass if self.valid is True else pt.switch(self.valid, log_mass, -np.inf)


def may_be_far_below(value: Any) -> bool:
    """Return whether all counts may lie far below the mean at which sums end."""
    source = _before_casts(value)
    if isinstance(source, SharedVariable):
        return bool(np.all(source.get_value(borrow=True) <= _FAR_BELOW))
    return not isinstance(source, Constant) or bool(np.all(source.data <= _FAR_BELOW))


def _before_casts(value: Any) -> Any:
    """Return the data that PyMC cast to whole numbers, or the value itself."""
    source = value
    while source.owner is not None and isinstance(
        getattr(source.owner.op, "scalar_op", None), Cast
    ):
        source = source.owner.inputs[0]
    return source if isinstance(source, SharedVariable) else value


def _is_count(value: Any) -> Any:
    if isinstance(value, Constant):
        data = np.asarray(value.data)
        if np.all((data >= 0) & (data == np.floor(data)) & (data < LARGEST_COUNT)):
            return True
    whole = pt.ge(value, 0)
    if value.dtype.startswith(("int", "uint", "bool")):
        return whole
    return pt.and_(whole, pt.and_(pt.eq(value, pt.floor(value)), pt.lt(value, LARGEST_COUNT)))


class LogMinusOne(TensorSymbolicOp):
    r"""Return :math:`\log(e^x - 1)` for positive x, and its derivative, 1 / (1 - exp(-x)).

    From one exponential, and not inlined: LLVM vectorises it in a loop of its own, while the loop
    over a hurdle's rows is too long for that. Most of a hurdle's time beside that of CMP is here.
    """

    __props__ = ()
    inline = False

    def build_inner_graph(self, x: Any) -> list[Any]:
        """Write them so that nothing overflows or cancels."""
        complement = _one_minus_exp(x)
        return [x + pt.log(complement), 1.0 / complement]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        """Multiply by the derivatives: that of s = 1 / (1 - exp(-x)) is s - s**2."""
        slope = outputs[1]
        by_output = zip(cotangents, (slope, slope * (1.0 - slope)), strict=True)
        parts = [c * d for c, d in by_output if not isinstance(c.type, DisconnectedType)]
        return [sum(parts[1:], start=parts[0])]


_TAYLOR = [(-1) ** k / math.factorial(k + 1) for k in range(12)]


def _one_minus_exp(x: Any) -> Any:
    """Return 1 - exp(-x) to rounding, at half of what expm1 costs."""
    small, near = pt.minimum(x, 0.25), 0.0
    for coefficient in reversed(_TAYLOR):
        near = near * small + coefficient
    return pt.switch(pt.lt(x, 0.25), near * small, 1.0 - pt.exp(-x))


def _within_doubles(nu: Any) -> Any:
    """Return nu; where it is exp(t), a polynomial of t instead above 1e12, and at least 1e-30.

    A search that lost its memory takes all of a gradient as a step: to a nu of zero or infinity.
    Not for a nu of each row, as the loop over rows would be too long for LLVM to vectorise.
    """
    log_nu = _exponent(nu) if all(nu.type.broadcastable) else None
    if log_nu is None:
        return nu
    least, most = _LOG_NU_RANGE
    above = pt.switch(pt.gt(log_nu, most), log_nu - most, 0.0)
    near = pt.switch(pt.gt(least, log_nu), least, log_nu - above)
    growth = 1.0 + above * (1.0 + above * (1 / 2 + above * (1 / 6 + above * (1 / 24))))
    return pt.exp(near) * growth


def _exponent(x: Any) -> Any:
    """Return t where x is exp(t), or None."""
    if x.owner is None:
        return None
    if isinstance(getattr(x.owner.op, "scalar_op", None), Exp):
        return x.owner.inputs[0]
    if isinstance(x.owner.op, DimShuffle):
        inner = _exponent(x.owner.inputs[0])
        return None if inner is None else x.owner.op(inner)
    return None


@dataclass(frozen=True)
class Masses:
    """One CMP distribution a row, as tensors: the log of the parameter given, nu, and the rest.

    Where sums end before the mean, ``eta`` and ``log_z`` are those of where they end; the log rate
    is larger by ``excess``, and log Z by ``gain``.
    """

    form: Parametrization
    log_first: Any
    nu: Any
    eta: Any
    log_z: Any
    excess: Any = None
    gain: Any = None

    @classmethod
    def of(cls, form: Parametrization, rule: Rule | None, log_first: Any, nu: Any) -> "Masses":
        """Find rate and normaliser; by a rule, where there is one."""
        eta, value = form.rate_and_log_z(log_first, nu)
        if rule is None:
            log_z = node.log_z(CMPSum(), eta, nu, value=value)
        else:
            rows, dispersion = pt.expand_dims(eta, -1), pt.expand_dims(nu, -1)
            log_z = log_normalizer(lambda x: rows * x - dispersion * factln(x), rule)
        return cls(form, log_first, nu, eta, log_z)

    @classmethod
    def within_reach(cls, form: Parametrization, log_first: Any, nu: Any) -> "Masses":
        """Sum no further than a mean of 2**50, beyond which log Z is nearly a power of log_first.

        Log Z grows with the mean. A poor start of a search, or a step of it, may be at exp(1000):
        no double, or one whose slope an optimiser cannot remember beside those near the optimum.
        What is there instead touches log Z. It outgrows cubics, as line searches that interpolate
        by these come back quickly from what does; and it grows with the distance from the origin
        rather than from where sums end, as otherwise the way down might be along nu.
        """
        nu = _within_doubles(nu)
        more = pt.maximum(_SMALL_NU / pt.maximum(nu, _LEAST_NU), 1.0)
        last = form.of_mode(pt.log(_FURTHEST * more), nu)
        beyond = pt.gt(log_first, last)
        inside = cls.of(form, None, pt.switch(beyond, last, log_first), nu)
        distance = pt.switch(beyond, log_first - last, 0.0)
        excess = form.far_rate(distance, nu)
        far = pt.switch(beyond, pt.switch(pt.gt(log_first, 1e30), 1e30, log_first), 0.0)
        near = pt.minimum(distance, 1.0)
        bend = 1e-2 * far**5 * near**2 * (3.0 - 2.0 * near)
        gain = _FURTHEST * more * (excess + bend)
        return cls(form, log_first, nu, inside.eta, inside.log_z, excess, gain)

    @property
    def is_zero(self) -> Any:
        """Where the count is zero for certain: at a rate of zero."""
        return pt.eq(self.log_first, -np.inf)

    def _log_f(self, count: Any) -> Any:
        """Return the log of an unnormalised mass, less what log Z gains where sums have ended."""
        log_f = count * self.eta - self.nu * factln(count)
        if self.excess is None:
            return log_f
        far = count * self.excess - self.gain
        if not isinstance(count, float | Constant):
            # Counts of which nothing was known may be too large to lie far below.
            far = pt.switch(pt.le(count, _FAR_BELOW) | pt.eq(self.gain, 0.0), far, -np.inf)
        return log_f + far

    def log_mass(self, count: Any) -> Any:
        """Return the log-probability of a count."""
        result = node.normalized(self._log_f(count), self.log_z)
        return pt.switch(self.is_zero, pt.switch(pt.eq(count, 0), 0.0, -np.inf), result)

    @property
    def log_zero(self) -> Any:
        """Log of P(X = 0) = 1 / Z."""
        return pt.switch(self.is_zero, 0.0, node.normalized(self._log_f(0.0), self.log_z))

    @property
    def log_z_positive(self) -> Any:
        """Log of Z - 1, the normaliser of the counts from one on; the log rate where it is tiny."""
        known, _ = LogMinusOne()(pt.switch(pt.gt(self.log_z, 0.0), self.log_z, np.nan))
        return pt.switch(pt.lt(self.eta, LOG_RARE), self.eta, known)

    @property
    def log_positive(self) -> Any:
        """Log of P(X > 0) = 1 - 1 / Z."""
        return pt.switch(pt.isfinite(self.log_z), self.log_z_positive - self.log_z, 0.0)

    def log_mass_positive(self, count: Any) -> Any:
        """Return the log-probability of a count given that it is not zero.

        As the rate goes to zero the count is one.
        """
        result = node.normalized(self._log_f(count), self.log_z_positive)
        return pt.switch(self.is_zero, pt.switch(pt.eq(count, 1), 0.0, -np.inf), result)

    def log_tail(self, value: Any, upper: bool) -> Any:
        """Return the log of P(X <= value), or of P(X > value)."""
        certain = pt.switch(pt.lt(value, 0) if upper else pt.ge(value, 0), 0.0, -np.inf)
        value = pt.floor(pt.cast(value, "float64"))
        eta = pt.switch(pt.isfinite(self.log_z), self.eta, np.nan)
        if self.excess is None:
            tail = log_tail(value, eta, self.nu, upper)
        elif upper:
            tail = log_tail(value, eta + self.excess, self.nu, upper)
        else:
            # Far below the mode the last mass is all of a lower tail.
            is_far = pt.gt(self.gain, 0.0) & pt.le(value, _FAR_BELOW)
            eta = pt.switch(is_far, eta, eta + self.excess)
            far = pt.switch(is_far, value * self.excess - self.gain, 0.0)
            tail = log_tail(value, eta, self.nu, upper) + far
        return pt.switch(self.is_zero, certain, tail)

    def quantile(self, q: Any) -> Any:
        """Return the smallest count x with P(X <= x) >= q."""
        eta = pt.switch(pt.isfinite(self.log_z), self.eta, np.nan)
        return pt.switch(self.is_zero, 0.0, quantile(q, eta, self.nu))

    def check(self, result: Any, q: Any = None, **more: Any) -> Any:
        """Add PyMC's check of the parameters, and of a quantile's probability q.

        ``more`` are conditions by what they say.
        """
        # The log is NaN for a negative number, and free where the parameter is an exponential.
        # Two in one, as each is a loop to compile; others may be of other rows.
        conditions = [pt.ge(self.log_first, -np.inf) & pt.ge(self.nu, 0), *more.values()]
        message = ", ".join([f"{self.form.name} >= 0", "nu >= 0", *more])
        if q is None:
            return check_parameters(result, *conditions, msg=message)
        return check_icdf_parameters(check_icdf_value(result, q), *conditions, msg=message)
