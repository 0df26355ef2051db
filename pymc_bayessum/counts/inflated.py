"""Zero-inflated and hurdle Conway-Maxwell-Poisson distributions."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt
from numba import njit
from pymc.distributions.distribution import _support_point
from pymc.distributions.moments.means import _mean
from pymc.distributions.shape_utils import maybe_resize
from pymc.logprob.abstract import _icdf, _logccdf, _logcdf, _logprob
from pymc.math import log1mexp
from pytensor.graph.basic import Constant
from pytensor.link.numba.dispatch.basic import numba_njit
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify

from pymc_bayessum.counts.arguments import ZerosArguments
from pymc_bayessum.counts.cmp import CMPBasedRV, existing
from pymc_bayessum.counts.masses import Counted, Masses
from pymc_bayessum.counts.observed import CountDistribution
from pymc_bayessum.counts.random import VERSION, draw_cmp, draw_cmp_array
from pymc_bayessum.normalizers.predicted import Predicted, predicted

__all__ = ["HurdleCMP", "ZeroInflatedCMP"]

NO_SHARE = "draws need psi, the share of the CMP part, between 0 and 1"


class CMPWithZerosRV(CMPBasedRV):
    """Random variable of (psi, mu | lam | mode, nu): zero with probability 1 - psi at least.

    ``draw_one`` and ``draw_array`` draw the part that is not the point at zero.
    """

    signature = "(),(),()->()"
    draw_one: ClassVar[Any]
    draw_array: ClassVar[Any]

    def rng_fn(
        self, rng: np.random.Generator, psi: Any, first: Any, nu: Any, size: Any = None
    ) -> Any:
        """Draw exactly, whatever the normaliser."""
        psi = np.asarray(psi)
        if not np.all((psi >= 0) & (psi <= 1)):
            raise ValueError(NO_SHARE)
        if size is None:
            size = np.broadcast_shapes(psi.shape, np.shape(first), np.shape(nu))
        counts = self.draw_array(rng, self.log_rate(first, nu), nu, size)
        return np.where(rng.random(counts.shape) < psi, counts, 0)


class ZeroInflatedCMPRV(CMPWithZerosRV):
    """The part is CMP."""

    name = "ZeroInflatedCMP"
    _print_name = ("ZeroInflatedCMP", "\\operatorname{ZeroInflatedCMP}")
    draw_one = staticmethod(draw_cmp)
    draw_array = staticmethod(draw_cmp_array)


@njit(cache=True)
def draw_positive_cmp(rng, log_lam, nu):
    """One exact draw of a CMP count that is not zero, given ``log(lam)`` and ``nu``.

    For lam < 1/2 by rejection from a geometric distribution, whose ratio to the masses is
    (x!)^nu: at least half of the proposals are taken, and all of them as lam goes to zero. For
    larger rates at least a third of the draws of CMP is not zero, as Z > 1 + lam.
    """
    if not log_lam < -math.log(2.0):
        while True:
            x = draw_cmp(rng, log_lam, nu)
            if x != 0:
                return x
    if not nu >= 0.0:
        return -1
    while True:
        x = 1.0 + math.floor(math.log(1.0 - rng.random()) / log_lam)
        if math.log(1.0 - rng.random()) <= -nu * math.lgamma(x + 1.0):
            return np.int64(x)


@njit(cache=True)
def _draw_positive_rows(rng, log_lam, nu, out):
    for i in range(out.size):
        out[i] = draw_positive_cmp(rng, log_lam[i], nu[i])


class HurdleCMPRV(CMPWithZerosRV):
    """The part is CMP without its zeros."""

    name = "HurdleCMP"
    _print_name = ("HurdleCMP", "\\operatorname{HurdleCMP}")
    draw_one = staticmethod(draw_positive_cmp)
    draw_array = staticmethod(partial(draw_cmp_array, rows=_draw_positive_rows))


@numba_core_rv_funcify.register(CMPWithZerosRV)
def _numba_draw(op, node):
    log_rate, draw_one = op.parametrization.compiled_rate, op.draw_one

    @numba_njit
    def random(rng, psi, first, nu):
        if not 0.0 <= psi <= 1.0:
            raise ValueError(NO_SHARE)
        if rng.random() >= psi:
            return np.int64(0)
        return existing(draw_one(rng, log_rate(np.log(first), nu), nu))

    return random, VERSION


class ZeroInflatedCMP(ZerosArguments, CountDistribution):
    r"""Zero-inflated Conway-Maxwell-Poisson distribution.

    .. math::

        f(x \mid \psi, \mu, \nu) = (1 - \psi) [x = 0] + \psi \, \mathrm{CMP}(x \mid \mu, \nu)

    ========  ==========================================
    Support   :math:`x \in \mathbb{N}_0`
    Mean      :math:`\psi \mu`
    Variance  :math:`\psi (\sigma^2 + (1 - \psi) \mu^2)`, :math:`\sigma^2` the variance of the CMP
    ========  ==========================================

    Parameters
    ----------
    psi : tensor_like of float
        Expected proportion of CMP draws (0 <= psi <= 1).
    mu, lam, mode, nu, normalizer
        As for :class:`CMP`, of which ``mu`` is the mean.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_bayessum as pbs
    >>> x = pbs.ZeroInflatedCMP.dist(psi=0.7, mu=3.0, nu=1.0)
    >>> reference = pm.ZeroInflatedPoisson.dist(psi=0.7, mu=3.0)
    >>> bool(np.isclose(pm.logp(x, 0).eval(), pm.logp(reference, 0).eval()))
    True
    """

    rv_type = ZeroInflatedCMPRV
    rv_op = ZeroInflatedCMPRV.rv_op


class HurdleCMP(ZerosArguments, CountDistribution):
    r"""Hurdle Conway-Maxwell-Poisson distribution: zeros come from a process of their own.

    .. math::

        f(x \mid \psi, \mu, \nu) = \begin{cases}
            1 - \psi & x = 0 \\
            \psi \, \dfrac{\mathrm{CMP}(x \mid \mu, \nu)}{1 - \mathrm{CMP}(0 \mid \mu, \nu)}
              & x = 1, 2, \ldots
        \end{cases}

    ========  ==========================================
    Support   :math:`x \in \mathbb{N}_0`
    Mean      :math:`\psi \mu / (1 - 1 / Z)`
    ========  ==========================================

    As :math:`P(X = 0) = 1 / Z` for CMP, the truncation costs nothing that is not known already.

    Parameters
    ----------
    psi : tensor_like of float
        Probability of a positive count (0 <= psi <= 1).
    mu, lam, mode, nu, normalizer
        As for :class:`CMP`, of the distribution before its zeros are cut off.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_bayessum as pbs
    >>> x = pbs.HurdleCMP.dist(psi=0.7, mu=3.0, nu=1.0)
    >>> reference = pm.HurdlePoisson.dist(psi=0.7, mu=3.0)
    >>> bool(np.isclose(pm.logp(x, 2).eval(), pm.logp(reference, 2).eval()))
    True
    """

    rv_type = HurdleCMPRV
    rv_op = HurdleCMPRV.rv_op


# What PyMC asks. Both parts are probabilities, so that their sum is accurate


def _with_zeros(psi: Any, log_part: Any) -> Any:
    """Log of 1 - psi + psi exp(log_part)."""
    total = pt.log((1.0 - psi) + psi * pt.exp(log_part))
    return pt.switch(psi < 1.0, total, log_part)


def _checked(masses: Masses, result: Any, psi: Any) -> Any:
    return masses.check(result, **{"0 <= psi <= 1": (psi >= 0) & (psi <= 1)})


@_logprob.register(ZeroInflatedCMPRV)
def _zero_inflated_logp(op, values, rng, size, psi, first, nu, **kwargs):
    [value] = values
    masses, counted = op.masses_at(value, pt.log(first), nu), Counted.of(value)
    log_mass = masses.log_mass(counted.count)
    result = pt.log(psi) + log_mass
    if (rows := _known_rows(value, result, np.equal)) is None:
        zero = _with_zeros(psi, masses.log_zero)
        result = pt.switch(pt.eq(counted.count, 0), zero, result)
    else:
        zero = _with_zeros(rows.of(psi), rows.of(log_mass))
        result = rows.put(result, zero)
    return _checked(masses, counted.guard(result), psi)


@_logprob.register(HurdleCMPRV)
def _hurdle_logp(op, values, rng, size, psi, first, nu, **kwargs):
    [value] = values
    if (rows := _known_rows(value, psi + first + nu, np.greater)) is None:
        masses, counted = op.masses_at(value, pt.log(first), nu), Counted.of(value)
        positive = pt.log(psi) + masses.log_mass_positive(counted.count)
        result = pt.switch(pt.eq(counted.count, 0), pt.log1p(-psi), positive)
        return _checked(masses, counted.guard(result), psi)
    # The log of an exponential vanishes before rows are taken, not after.
    masses = op.masses_at(value, rows.of(pt.log(first)), rows.of(nu))
    count = pt.constant(value.data[rows.where], dtype="float64")
    positive = pt.log(rows.of(psi)) + masses.log_mass_positive(count)
    return _checked(masses, rows.put(pt.log1p(-psi), positive), psi)


@dataclass(frozen=True)
class _Rows:
    """Those rows of data that need more work than the others, known before sampling."""

    where: tuple[np.ndarray, ...]
    shape: tuple[int, ...]

    def of(self, x: Any) -> Any:
        """Return these rows of a tensor; what all rows share stays a scalar."""
        x = pt.as_tensor_variable(x)
        if all(x.type.broadcastable):
            return x.squeeze()
        same = x.ndim == len(self.shape) and not any(x.type.broadcastable)
        return (x if same else pt.broadcast_to(x, self.shape))[self.where]

    def put(self, x: Any, part: Any) -> Any:
        """Return the tensor with these rows replaced."""
        return pt.set_subtensor(pt.broadcast_to(x, self.shape)[self.where], part)


def _known_rows(value: Any, like: Any, than_zero: Any) -> _Rows | None:
    """Return the rows of constant counts that compare so with zero, if it is they that have rows.

    Half of a hurdle's time would otherwise go into rows that do not need it.
    """
    if not isinstance(value, Constant) or Counted.of(value).valid is not True:
        return None
    data = np.asarray(value.data)
    if data.ndim == 0 or data.ndim < like.ndim or 1 in data.shape:
        return None
    return _Rows(np.nonzero(than_zero(data, 0)), data.shape)


@_logcdf.register(ZeroInflatedCMPRV)
def _zero_inflated_logcdf(op, value, rng, size, psi, first, nu):
    masses = op.masses_at(value, pt.log(first), nu)
    result = _with_zeros(psi, masses.log_tail(value, upper=False))
    return _checked(masses, pt.switch(value < 0, -np.inf, result), psi)


@_logccdf.register(ZeroInflatedCMPRV)
def _zero_inflated_logccdf(op, value, rng, size, psi, first, nu):
    masses = op.masses(first, nu)
    result = pt.log(psi) + masses.log_tail(value, upper=True)
    return _checked(masses, pt.switch(value < 0, 0.0, result), psi)


@_icdf.register(ZeroInflatedCMPRV)
def _zero_inflated_icdf(op, value, rng, size, psi, first, nu):
    masses = op.masses(first, nu)
    result = masses.quantile(pt.clip((value - (1.0 - psi)) / psi, 0.0, 1.0))
    return masses.check(result, value, **{"0 < psi <= 1": (psi > 0) & (psi <= 1)})


@_logcdf.register(HurdleCMPRV)
def _hurdle_logcdf(op, value, rng, size, psi, first, nu):
    masses = op.masses_at(value, pt.log(first), nu)
    # P(0 < X <= x) is P(X <= x) - P(X = 0), or P(X > 0) - P(X > x) where zero is the rule.
    rare = masses.log_positive < -1.0
    complement = log1mexp(pt.switch(rare, _log_above(masses, value), -1.0))
    upto = masses.log_tail(pt.maximum(value, 1), upper=False)
    exists = pt.isfinite(upto)
    step = pt.switch(exists & ~rare, masses.log_zero - upto, -1.0)
    difference = upto + log1mexp(step) - masses.log_positive
    result = _with_zeros(psi, pt.switch(rare, complement, difference))
    result = pt.switch(value < 1, pt.log1p(-psi), pt.switch(exists, result, -np.inf))
    return _checked(masses, pt.switch(value < 0, -np.inf, result), psi)


@_logccdf.register(HurdleCMPRV)
def _hurdle_logccdf(op, value, rng, size, psi, first, nu):
    masses = op.masses(first, nu)
    above = pt.switch(value < 1, 0.0, _log_above(masses, value))
    return _checked(masses, pt.switch(value < 0, 0.0, pt.log(psi) + above), psi)


def _log_above(masses: Masses, value: Any) -> Any:
    """Log of P(X > value | X > 0) of CMP, for values from one on."""
    above = masses.log_tail(pt.maximum(value, 1), upper=True)
    return pt.switch(masses.is_zero, -np.inf, above - masses.log_positive)


@_icdf.register(HurdleCMPRV)
def _hurdle_icdf(op, value, rng, size, psi, first, nu):
    masses = op.masses(first, nu)
    share = pt.clip((value - (1.0 - psi)) / psi, 0.0, 1.0)
    at_zero = pt.exp(masses.log_zero)
    positive = pt.maximum(masses.quantile(at_zero + (1.0 - at_zero) * share), 1.0)
    result = pt.switch(value <= 1.0 - psi, 0.0, positive)
    return masses.check(result, value, **{"0 < psi <= 1": (psi > 0) & (psi <= 1)})


@_support_point.register(ZeroInflatedCMPRV)
def _zero_inflated_support_point(op, rv, rng, size, psi, first, nu):
    return maybe_resize(pt.round(psi * op.parametrization.centre(first, nu) + 0 * nu), size)


@_support_point.register(HurdleCMPRV)
def _hurdle_support_point(op, rv, rng, size, psi, first, nu):
    centre = pt.maximum(op.parametrization.centre(first, nu), 1.0)
    return maybe_resize(pt.round(psi * centre + 0 * nu), size)


@_mean.register(ZeroInflatedCMPRV)
def _zero_inflated_mean(op, rv, rng, size, psi, first, nu):
    return maybe_resize(psi * op.mean(first, nu), size)


@_mean.register(HurdleCMPRV)
def _hurdle_mean(op, rv, rng, size, psi, first, nu):
    share = psi * pt.exp(-op.masses(first, nu).log_positive)
    return maybe_resize(share * op.mean(first, nu), size)


# What diagnostics ask


def _of_share(op: CMPWithZerosRV, share: Any, first: Any, nu: Any) -> tuple[Any, Any]:
    """Mean and variance where E[X] and E[X^2] are a share of those of CMP."""
    part = op.mean(first, nu)
    mean = share * part
    return mean, share * (op.variance(first, nu) + part**2) - mean**2


@predicted.register(ZeroInflatedCMPRV)
def _zero_inflated_predicted(op, rng, size, psi, first, nu):
    mean, variance = _of_share(op, psi, first, nu)
    zero = pt.exp(_with_zeros(psi, op.masses(first, nu).log_zero))
    more_spread = "more spread than a zero-inflated CMP can be: try a negative binomial or a hurdle"
    return Predicted(mean, variance, zero, nu, more_spread)


@predicted.register(HurdleCMPRV)
def _hurdle_predicted(op, rng, size, psi, first, nu):
    share = psi * pt.exp(-op.masses(first, nu).log_positive)
    mean, variance = _of_share(op, share, first, nu)
    more_spread = "more spread than a CMP hurdle can be: try a negative binomial hurdle"
    return Predicted(mean, variance, 1.0 - psi, nu, more_spread)
