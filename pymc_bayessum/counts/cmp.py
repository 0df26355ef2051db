r"""The Conway-Maxwell-Poisson distribution, by its mean, its rate or its mode."""

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.distributions.dist_math import (
    check_icdf_parameters,
    check_icdf_value,
    check_parameters,
    factln,
)
from pymc.distributions.distribution import Discrete, _support_point
from pymc.distributions.shape_utils import rv_size_is_none
from pymc.logprob.abstract import _icdf, _logccdf, _logcdf, _logprob
from pymc.pytensorf import floatX
from pytensor.compile.mode import optdb
from pytensor.graph.basic import Constant, Variable
from pytensor.link.numba.dispatch.basic import numba_njit
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_bayessum.counts.cmp_series import CMPSum
from pymc_bayessum.counts.cmp_sums.near_zero import width
from pymc_bayessum.counts.cmp_sums.ops import (
    VERSION,
    CMPCumulants,
    CMPFromMean,
    LoadForJax,
    log_tail,
    quantile,
    rate_and_log_z_of_mean,
)
from pymc_bayessum.counts.cmp_sums.sums import (
    LOG_MAX_MODE,
    LOG_SMALLEST,
    MAX_PEAK,
    MAX_WIDTH,
    rate_of_mean,
)
from pymc_bayessum.counts.random import NO_DRAW, draw_cmp, draw_cmp_array
from pymc_bayessum.normalizers import node
from pymc_bayessum.normalizers.summed import log_normalizer
from pymc_bayessum.rules.rule import Rule

__all__ = ["CMP", "cmp_log_z", "cmp_mean", "cmp_variance"]

# Derivatives hold counts divided by the parameter: a bound that keeps them in double precision.
LARGEST_COUNT = 1e15


class CMPRV(RandomVariable):
    """Random variable of (mu | lam | mode, nu); ``parametrization`` says which of the three."""

    name = "CMP"
    signature = "(),()->()"
    dtype = "int64"
    _print_name = ("CMP", "\\operatorname{CMP}")
    __props__ = (*RandomVariable.__props__, "parametrization", "rule")  # type: ignore[assignment]

    def __init__(
        self, parametrization: str = "mu", rule: Rule | None = None, **kwargs: Any
    ) -> None:
        self.parametrization = parametrization
        self.rule = rule
        super().__init__(**kwargs)

    def rng_fn(self, rng: np.random.Generator, first: Any, nu: Any, size: Any = None) -> Any:  # type: ignore[override]
        """Draw exactly, whatever the normaliser."""
        return draw_cmp_array(rng, _rate_of(self.parametrization, first, nu), nu, size)

    def __str__(self) -> str:
        """Name the Op and its parametrisation; the rule would print all of its arrays."""
        return f"CMP_rv{{{self.parametrization}}}"


@numba_njit
def _exists(count):
    if count < 0:
        raise ValueError(NO_DRAW)
    return count


@numba_core_rv_funcify.register(CMPRV)
def _numba_draw(op, node):
    if op.parametrization == "lam":

        @numba_njit
        def random(rng, lam, nu):
            return _exists(draw_cmp(rng, np.log(lam), nu))

    elif op.parametrization == "mode":

        @numba_njit
        def random(rng, mode, nu):
            return _exists(draw_cmp(rng, nu * np.log(mode), nu))

    else:

        @numba_njit
        def random(rng, mu, nu):
            return _exists(draw_cmp(rng, rate_of_mean(np.log(mu), nu), nu))

    return random, VERSION


optdb.register("load_cmp_for_jax", LoadForJax(f"{__package__}.cmp_jax"), "jax", position=0)


def _rate_of(parametrization: str, first: Any, nu: Any) -> Any:
    """Return the log rate as an array."""
    log_first, nu = _log(first), np.asarray(nu, dtype=float)
    if parametrization == "lam":
        return log_first
    if parametrization == "mode":
        return nu * log_first
    eta, log_z, *_ = CMPFromMean().evaluate(log_first, nu)
    known = np.where(np.isfinite(log_z), eta, np.nan)
    return np.where(log_first <= LOG_SMALLEST, log_first, known)


class CMP(Discrete):
    r"""Conway-Maxwell-Poisson distribution: counts with more or less spread than Poisson.

    The pmf of this distribution is

    .. math:: f(x \mid \lambda, \nu) = \frac{\lambda^x}{(x!)^\nu Z(\lambda, \nu)}, \qquad
              Z(\lambda, \nu) = \sum_{j=0}^\infty \frac{\lambda^j}{(j!)^\nu}.

    .. plot::
        :context: close-figs

        import matplotlib.pyplot as plt
        import numpy as np
        import pymc as pm
        import pymc_bayessum as pbs
        x = np.arange(0, 25)
        for nu in [0.3, 1.0, 4.0]:
            pmf = np.exp(pm.logp(pbs.CMP.dist(mu=8.0, nu=nu), x).eval())
            plt.plot(x, pmf, '-o', label=r'$\mu$ = 8, $\nu$ = {}'.format(nu))
        plt.xlabel('x', fontsize=12)
        plt.ylabel('f(x)', fontsize=12)
        plt.ylim(0)
        plt.legend(loc=1)
        plt.show()

    ========  ==========================================================================
    Support   :math:`x \in \mathbb{N}_0`
    Mean      :math:`\mu`, about :math:`\lambda^{1/\nu} - (\nu - 1)/(2 \nu)`
    Variance  about :math:`\mu / \nu`; :func:`cmp_variance` computes it
    ========  ==========================================================================

    With :math:`\nu = 1` it is Poisson, with :math:`\nu = 0` geometric (:math:`\lambda < 1`), and as
    :math:`\nu` grows it tends to a Bernoulli distribution (for :math:`\mu < 1`). Counts spread more
    than Poisson for :math:`\nu < 1` and less for :math:`\nu > 1`.

    Exactly one of ``mu``, ``lam`` and ``mode`` is given. ``mu`` is recommended: it is the mean
    itself, nearly uncorrelated with ``nu`` in posteriors, and a regression of :math:`\log\mu` reads
    like a Poisson regression. The rate is then found by solving :math:`E[X] = \mu` and
    differentiated implicitly.

    Parameters
    ----------
    mu : tensor_like of float
        Mean of the distribution (mu > 0).
    nu : tensor_like of float
        Dispersion (nu >= 0).
    lam : tensor_like of float
        Rate :math:`\lambda` (lam > 0; below 1 where nu = 0).
    mode : tensor_like of float
        :math:`\lambda^{1/\nu}`, whose floor is the most probable count (mode > 0).
    normalizer : Rule, optional
        A rule to compute :math:`Z` with, for example the ten nodes under a Poisson base of Kang,
        Briol, Karvonen and Chen: ``pbs.poisson_rule(mu, n=10)``. The default is exact to rounding
        for any mean up to 1e5 and beyond.
    **kwargs
        ``observed``, ``dims``, ``shape``, ... as in any PyMC distribution.

    Notes
    -----
    The default normaliser answers where the mode is at most :math:`2^{20}` (and nu times it at
    most 1e12) and a summand that is still felt at zero is at most :math:`2^{17}` wide (so with
    nu = 0 for means up to 1.3e5).
    Beyond, the log-probability is -inf, and so it is where there is no distribution (nu = 0 and
    lam >= 1). Constant parameters beyond the answered range raise ValueError.

    PyMC accepts a `pm.Minibatch` of counts as floats or 32-bit integers, not of 64 bits (for
    `pm.Poisson` too).

    The log-probability and its gradient come from one pass over at most 96 terms a row, or from an
    interpolant in :math:`\log\mu` (or :math:`\log\lambda`) when many rows share one nu. Nothing
    has to be chosen; the accuracy is the same.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_bayessum as pbs
    >>> x = pbs.CMP.dist(mu=3.0, nu=1.0)
    >>> bool(np.isclose(pm.logp(x, 2).eval(), pm.logp(pm.Poisson.dist(3.0), 2).eval()))
    True
    >>> with pm.Model() as model:
    ...     slope = pm.Normal("slope")
    ...     nu = pm.HalfNormal("nu", 2.0)
    ...     _ = pbs.CMP("y", mu=pm.math.exp(slope * np.arange(3)), nu=nu, observed=[1, 2, 1])
    """

    rv_type = CMPRV

    def __new__(cls, name: str, *args: Any, **kwargs: Any) -> Any:
        """Add the distribution to the current model."""
        if kwargs.get("observed") is not None:
            kwargs["observed"] = _mark_fractions(kwargs["observed"])
        return super().__new__(cls, name, *args, **kwargs)

    @classmethod
    def rv_op(
        cls,
        first: Any,
        nu: Any,
        *,
        parametrization: str,
        rule: Rule | None,
        size: Any = None,
        rng: Any = None,
    ) -> TensorVariable:
        """Create the random variable for one parametrisation and rule."""
        op = CMPRV(parametrization=parametrization, rule=rule)
        rng = pt.random.shared_rng(seed=None) if rng is None else rng
        _, variable = op(first, nu, size=size, rng=rng, return_next_rng=True)
        return variable

    @classmethod
    def dist(  # type: ignore[override]
        cls,
        mu: Any = None,
        nu: Any = None,
        *,
        lam: Any = None,
        mode: Any = None,
        normalizer: Rule | None = None,
        **kwargs: Any,
    ) -> TensorVariable:
        """Create the distribution outside of a model.

        Raises
        ------
        ValueError
            If not exactly one of ``mu``, ``lam`` and ``mode`` is given, or if constant parameters
            are not positive or lie outside of the range the default normaliser answers for.
        """
        parametrization, first = the_parametrization(mu, lam, mode, nu, normalizer)
        first, nu = _as_float(first), _as_float(nu)
        _check_constants(parametrization, first, nu, normalizer is None)
        return super().dist([first, nu], parametrization=parametrization, rule=normalizer, **kwargs)


def the_parametrization(mu: Any, lam: Any, mode: Any, nu: Any, rule: Any) -> tuple[str, Any]:
    """Name and value of the one parameter that is given beside nu; raise for bad arguments."""
    given = {
        name: value
        for name, value in (("mu", mu), ("lam", lam), ("mode", mode))
        if value is not None
    }
    if len(given) != 1:
        raise ValueError(
            "exactly one of mu (the mean), lam (the rate), mode (lam**(1/nu)) must be given, "
            f"got {' and '.join(given) or 'none of them'}"
        )
    if nu is None:
        raise ValueError("nu must be given; nu = 1 is the Poisson distribution")
    if rule is not None:
        _check_rule(rule)
    [(name, value)] = given.items()
    return name, value


def _mark_fractions(observed: Any) -> Any:
    """Put -1, of log-probability -inf, where an observation is no whole number.

    PyMC would cut off the fraction and take the rest for a count.
    """
    if isinstance(observed, Variable) or np.asarray(observed).dtype.kind != "f":
        return observed
    values = np.asarray(observed)
    fractional = np.isfinite(values) & (values != np.floor(values))
    return np.where(fractional, -1.0, values) if fractional.any() else observed


def _as_float(x: Any) -> Any:
    """Return a float tensor; what is known beforehand stays a plain constant."""
    if isinstance(x, Variable) and not isinstance(x, Constant):
        return floatX(x)
    data = x.data if isinstance(x, Constant) else x
    return pt.constant(np.asarray(data, dtype=pytensor.config.floatX))


def _check_rule(rule: Any) -> None:
    if not isinstance(rule, Rule):
        raise TypeError(f"normalizer must be None or a Rule, as made by poisson_rule, got {rule!r}")
    if isinstance(rule.nodes, tuple) or rule.nodes.ndim != 1 or np.any(rule.nodes < 0):
        raise ValueError("normalizer must be a rule on the naturals: one whole number >= 0 a node")


def _check_constants(parametrization: str, first: Any, nu: Any, default_rule: bool) -> None:
    """Raise for constant parameters that no distribution has, or that are not answered for."""
    constants = {
        name: np.asarray(x.data, dtype=float)
        for name, x in ((parametrization, first), ("nu", nu))
        if isinstance(x, Constant)
    }
    for name, values in constants.items():
        bad = ~(np.isfinite(values) & ((values >= 0) if name == "nu" else (values > 0)))
        if bad.any():
            raise ValueError(
                f"{name} must be finite and {'>= 0' if name == 'nu' else '> 0'}, "
                f"got {values[bad].flat[0]}"
            )
    if len(constants) < 2 or not default_rule:
        return
    values, nus = constants.values()
    # With nu = 0 only lam < 1 has a normaliser: -inf, as where a sampler gets there, no error.
    beyond = ~_answered(parametrization, values, nus) & ~((nus == 0) & (parametrization != "mu"))
    if beyond.any():
        first_bad, nu_bad = (
            x[beyond].flat[0] for x in np.broadcast_arrays(values, nus, beyond)[:2]
        )
        raise ValueError(
            f"{parametrization} = {first_bad} with nu = {nu_bad} is outside of the range the "
            f"default normaliser answers for: a mode of at most {np.exp(LOG_MAX_MODE):.0f}, and a "
            f"width of at most {MAX_WIDTH:.0f} near zero; pass normalizer=, a rule made for it"
        )


def _answered(parametrization: str, first: Any, nu: Any) -> Any:
    """Whether the default normaliser answers, from closed forms (for means to first order)."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        eta = np.log(first)
        if parametrization == "mode":
            eta = nu * eta
        elif parametrization == "mu":
            # nu log(mean + (nu - 1) / (2 nu)) far from zero, the geometric rate near it
            mode = first + (nu - 1) / (2 * nu)
            eta = np.where(nu * first > 10, nu * np.log(mode), eta + (nu - 1) * np.log1p(first))
        log_mode = np.where(nu > 0, eta / nu, np.where(eta < 0, -np.inf, np.inf))
        wide = width(eta, nu) > MAX_WIDTH
        log_peak = log_mode + np.log(nu)
        return (
            (log_mode <= LOG_MAX_MODE) & (log_peak <= np.log(MAX_PEAK)) & ~(wide & (log_peak < 4))
        )


def _rate_and_log_z(op: CMPRV, first: Any, nu: Any) -> tuple[Any, Any, Any]:
    """Return log of the first parameter, the log rate and log Z, symbolically."""
    log_first = pt.log(first)
    value = None
    if op.parametrization == "mu":
        eta, value = rate_and_log_z_of_mean(log_first, nu)
    else:
        eta = log_first if op.parametrization == "lam" else nu * log_first
    if op.rule is None:
        return log_first, eta, node.log_z(CMPSum(), eta, nu, value=value)
    rows, dispersion = pt.expand_dims(eta, -1), pt.expand_dims(nu, -1)
    return log_first, eta, log_normalizer(lambda x: rows * x - dispersion * factln(x), op.rule)


def _is_zero(op: CMPRV, log_first: Any, eta: Any) -> Any:
    """Whether the rate is so small, or zero, that the count is zero for certain."""
    tiny = pt.le(log_first, LOG_SMALLEST)
    return pt.and_(tiny, pt.le(eta, LOG_SMALLEST)) if op.parametrization == "mode" else tiny


def _check(result: Any, log_first: Any, nu: Any, op: CMPRV) -> Any:
    # The log is NaN for a negative number, and free where the parameter is an exponential.
    return check_parameters(
        result, pt.invert(pt.isnan(log_first)), nu >= 0, msg=f"{op.parametrization} >= 0, nu >= 0"
    )


def _is_count(value: Any) -> Any:
    """Whether a value is a whole number from zero on: True where that is known beforehand."""
    if isinstance(value, Constant):
        data = np.asarray(value.data)
        if np.all((data >= 0) & (data == np.floor(data)) & (data < LARGEST_COUNT)):
            return True
    whole = pt.ge(value, 0)
    if value.dtype.startswith(("int", "uint", "bool")):
        return whole
    return pt.and_(whole, pt.and_(pt.eq(value, pt.floor(value)), pt.lt(value, LARGEST_COUNT)))


@_logprob.register(CMPRV)
def _cmp_logp(op, values, rng, size, first, nu, **kwargs):
    [value] = values
    log_first, eta, log_z = _rate_and_log_z(op, first, nu)
    valid = _is_count(value)
    # A stand-in for what is no count keeps NaN out of the gradient.
    count = value if valid is True else pt.switch(valid, value, 0)
    count = pt.cast(count, "float64")  # log-factorials of small integer types are single precision
    result = node.normalized(count * eta - nu * factln(count), log_z)
    zero = _is_zero(op, log_first, eta)
    if op.parametrization == "mode":  # a mode far below one may still have a rate near one
        result = pt.switch(log_first > LOG_SMALLEST, result, -np.inf)
    result = pt.switch(zero, pt.switch(pt.eq(count, 0), 0.0, -np.inf), result)
    if valid is not True:
        result = pt.switch(valid, result, -np.inf)
    return _check(result, log_first, nu, op)


def _tail(op: CMPRV, value: Any, first: Any, nu: Any, upper: bool) -> Any:
    log_first, eta, log_z = _rate_and_log_z(op, first, nu)
    if op.parametrization == "mu":  # the rate is zero where no answer is given
        eta = pt.switch(pt.isfinite(log_z), eta, np.nan)
    result = log_tail(pt.floor(value), eta, nu, upper)
    certain = pt.switch(pt.ge(value, 0) if not upper else pt.lt(value, 0), 0.0, -np.inf)
    result = pt.switch(_is_zero(op, log_first, eta), certain, result)
    return _check(result, log_first, nu, op)


@_logcdf.register(CMPRV)
def _cmp_logcdf(op, value, rng, size, first, nu):
    return _tail(op, value, first, nu, upper=False)


@_logccdf.register(CMPRV)
def _cmp_logccdf(op, value, rng, size, first, nu):
    return _tail(op, value, first, nu, upper=True)


@_icdf.register(CMPRV)
def _cmp_icdf(op, value, rng, size, first, nu):
    log_first, eta, log_z = _rate_and_log_z(op, first, nu)
    known = quantile(value, pt.switch(pt.isfinite(log_z), eta, np.nan), nu)
    result = pt.switch(_is_zero(op, log_first, eta), 0.0, known)
    result = check_icdf_value(result, value)
    return check_icdf_parameters(
        result, pt.invert(pt.isnan(log_first)), nu >= 0, msg=f"{op.parametrization} >= 0, nu >= 0"
    )


@_support_point.register(CMPRV)
def _cmp_support_point(op, rv, rng, size, first, nu):
    if op.parametrization == "lam":
        # At most exp(20), where nu -> 0 sends the mode to infinity.
        first = pt.exp(pt.minimum(pt.log(first) / pt.maximum(nu, 1e-300), 20.0))
    point = pt.floor(first + 0 * nu)
    return point if rv_size_is_none(size) else pt.broadcast_to(point, size)


def cmp_log_z(log_lam: Any, nu: Any) -> Any:
    r"""Return :math:`\log \sum_x \lambda^x / (x!)^\nu`.

    Parameters
    ----------
    log_lam, nu : array_like of float
        Log of the rate, and dispersion; they broadcast.

    Returns
    -------
    ndarray or float
        +inf where the sum diverges or is not answered for (see :class:`CMP`).

    Examples
    --------
    >>> float(np.exp(cmp_log_z(np.log(1.5), 1.2)).round(5))
    4.01341
    """
    return _moments(log_lam, nu)[0]


def cmp_mean(lam: Any, nu: Any) -> Any:
    r"""Mean of the CMP distribution with rate :math:`\lambda` and dispersion :math:`\nu`.

    Parameters
    ----------
    lam, nu : array_like of float
        Rate (lam > 0) and dispersion; they broadcast.

    Returns
    -------
    ndarray or float
        NaN where there is no distribution or none is answered for (see :class:`CMP`).

    Examples
    --------
    >>> float(cmp_mean(10.0, 1.2).round(6))
    6.727397
    """
    log_z, mean, *_ = _moments(_log(lam), nu)
    return np.where(np.isfinite(log_z), mean, np.nan)[()]


def cmp_variance(lam: Any = None, nu: Any = None, *, mu: Any = None) -> Any:
    r"""Variance of the CMP distribution with rate :math:`\lambda` and dispersion :math:`\nu`.

    Parameters
    ----------
    lam, nu : array_like of float
        Rate (lam > 0) and dispersion; they broadcast.
    mu : array_like of float
        The mean, in place of the rate.

    Returns
    -------
    ndarray or float
        NaN where there is no distribution or none is answered for (see :class:`CMP`).

    Examples
    --------
    >>> float(cmp_variance(10.0, 1.2).round(6))
    5.679674
    >>> float(cmp_variance(mu=4.0, nu=1.0).round(6))
    4.0
    """
    if (lam is None) == (mu is None) or nu is None:
        raise TypeError("cmp_variance needs nu and exactly one of lam and mu")
    if lam is None:
        _, log_z, slope, *_ = CMPFromMean().evaluate(_log(mu), nu)
        known = np.isfinite(log_z)
        return np.where(known, np.asarray(mu, dtype=float) / np.where(known, slope, 1.0), np.nan)[
            ()
        ]
    log_z, _, _, variance, *_ = _moments(_log(lam), nu)
    return np.where(np.isfinite(log_z), variance, np.nan)[()]


def _log(lam: Any) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log(np.asarray(lam, dtype=float)))


def _moments(log_lam: Any, nu: Any) -> list[Any]:
    return [x[()] for x in CMPCumulants(2).evaluate(log_lam, nu)]
