r"""The Conway-Maxwell-Poisson distribution, by its mean, its rate or its mode."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.distribution import _support_point
from pymc.distributions.moments.means import _mean
from pymc.distributions.shape_utils import maybe_resize
from pymc.logprob.abstract import _icdf, _logccdf, _logcdf, _logprob
from pytensor.link.numba.dispatch.basic import numba_njit
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_bayessum.counts.arguments import CMPArguments
from pymc_bayessum.counts.cmp_sums.ops import CMPFromMean
from pymc_bayessum.counts.masses import Counted, Masses, may_be_far_below
from pymc_bayessum.counts.moments import cmp_mean, cmp_variance
from pymc_bayessum.counts.observed import CountDistribution
from pymc_bayessum.counts.parametrization import MEAN, Parametrization
from pymc_bayessum.counts.random import NO_DRAW, VERSION, draw_cmp, draw_cmp_array
from pymc_bayessum.normalizers.load_for_jax import load_for_jax
from pymc_bayessum.normalizers.predicted import Predicted, predicted
from pymc_bayessum.rules.rule import Rule

__all__ = ["CMP", "CMPRV", "CMPBasedRV"]


class CMPBasedRV(RandomVariable):
    """Random variable whose last two parameters are (mu | lam | mode, nu) of a CMP.

    ``parametrization`` says which of the three, ``rule`` how Z is computed if not by default.
    """

    name = "CMP"
    signature = "(),()->()"
    dtype = "int64"
    __props__ = (*RandomVariable.__props__, "parametrization", "rule")  # type: ignore[assignment]  # PyTensor's () is taken for the type

    def __init__(
        self, parametrization: Parametrization = MEAN, rule: Rule | None = None, **kwargs: Any
    ) -> None:
        self.parametrization = parametrization
        self.rule = rule
        super().__init__(**kwargs)

    @classmethod
    def rv_op(
        cls,
        *parameters: Any,
        parametrization: Parametrization,
        rule: Rule | None,
        size: Any = None,
        rng: Any = None,
    ) -> TensorVariable:
        """Create the random variable for one parametrisation and rule."""
        op = cls(parametrization=parametrization, rule=rule)
        rng = pt.random.shared_rng(seed=None) if rng is None else rng
        _, variable = op(*parameters, size=size, rng=rng, return_next_rng=True)
        return variable

    def masses(self, first: Any, nu: Any) -> Masses:
        """Return the symbolic masses for tensors."""
        return Masses.of(self.parametrization, self.rule, pt.log(first), nu)

    def masses_at(self, value: Any, log_first: Any, nu: Any) -> Masses:
        """Return those to read a value's log-probability from, given the first parameter's log."""
        if self.rule is None and may_be_far_below(value):
            return Masses.within_reach(self.parametrization, log_first, nu)
        return Masses.of(self.parametrization, self.rule, log_first, nu)

    def mean(self, first: Any, nu: Any) -> Any:
        """Return the mean of the CMP part."""
        return cmp_mean(**{self.parametrization.name: first}, nu=nu)

    def variance(self, first: Any, nu: Any) -> Any:
        """Return the variance of the CMP part."""
        return cmp_variance(**{self.parametrization.name: first}, nu=nu)

    def log_rate(self, first: Any, nu: Any) -> Any:
        """Return the log rate for arrays."""
        with np.errstate(divide="ignore", invalid="ignore"):
            log_first = np.asarray(np.log(np.asarray(first, dtype=float)))
        nu = np.asarray(nu, dtype=float)
        return self.parametrization.log_rate(np, log_first, nu, CMPFromMean().evaluate)

    def __str__(self) -> str:
        """Name the Op and its parametrisation; the rule would print all of its arrays."""
        return f"{self.name}_rv{{{self.parametrization.name}}}"


class CMPRV(CMPBasedRV):
    """Random variable of (mu | lam | mode, nu)."""

    _print_name = ("CMP", "\\operatorname{CMP}")

    def rng_fn(self, rng: np.random.Generator, first: Any, nu: Any, size: Any = None) -> Any:
        """Draw, whatever the normaliser; see :mod:`.random` for what is drawn far out."""
        return draw_cmp_array(rng, self.log_rate(first, nu), nu, size)


@numba_njit
def existing(count):
    """Return a draw, or raise where it says that there is no distribution."""
    if count < 0:
        raise ValueError(NO_DRAW)
    return count


@numba_core_rv_funcify.register(CMPRV)
def _numba_draw(op, node):
    log_rate = op.parametrization.compiled_rate

    @numba_njit
    def random(rng, first, nu):
        return existing(draw_cmp(rng, log_rate(np.log(first), nu), nu))

    return random, VERSION


load_for_jax(f"{__package__}.counts_jax")


class CMP(CMPArguments, CountDistribution):
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
        Mean of the distribution (mu >= 0).
    nu : tensor_like of float
        Dispersion (nu >= 0).
    lam : tensor_like of float
        Rate :math:`\lambda` (lam >= 0; below 1 where nu = 0).
    mode : tensor_like of float
        :math:`\lambda^{1/\nu}`, whose floor is the most probable count (mode >= 0).
    normalizer : Rule, optional
        A rule to compute :math:`Z` with, for example the ten nodes under a Poisson base of Kang,
        Briol, Karvonen and Chen: ``pbs.poisson_rule(mu, n=10)``. The default is exact to rounding
        for any mean.
    **kwargs
        ``observed``, ``dims``, ``shape``, ... as in any PyMC distribution.

    Notes
    -----
    The default normaliser knows no bounds that matter: means from the smallest double to 2**50
    (1e15), nu from 0 on; above 1e12 the count is one of the two neighbours of the mean, as far as
    doubles go. Far out it is the asymptotic expansion of Gaunt, Iyengar, Olde Daalhuis and Simsek
    (2019). For counts up to 2**44 and means above 2**50 (where nu < 1e-6 above 2**50 * 1e-6 / nu,
    1e69 at most), log Z goes on as powers of the parameter's log that touch it: the
    log-probability stays finite, so that an optimiser that starts or steps there finds its way
    back. Data with larger counts have log Z itself, as :func:`cmp_log_z` does; a latent count that
    large beside such a mean has no probability. For the same reason a nu shared by all rows and
    given as exp(t) follows a polynomial of t above 1e12, and is never below 1e-30. The
    log-probability is -inf where there is no distribution, nu = 0 (given otherwise, also below
    1e-70) and lam >= 1.
    Draws are exact for means up to 2**53; beyond they are those of a normal distribution, and never
    more than an int64 holds.

    PyMC accepts a `pm.Minibatch` of counts as floats or 32-bit integers, not of 64 bits (for
    `pm.Poisson` too).

    The log-probability and its gradient come from one pass over some fifty terms a row, or, with
    64 rows and more, from a table in :math:`\log\mu` (or the rate) and :math:`\log\nu`. It is
    filled where rows fall, once in a process, and exact to 1e-11. Nothing has to be chosen.

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
    rv_op = CMPRV.rv_op


# What PyMC asks


@_logprob.register(CMPRV)
def _cmp_logp(op, values, rng, size, first, nu, **kwargs):
    [value] = values
    masses, counted = op.masses_at(value, pt.log(first), nu), Counted.of(value)
    return masses.check(counted.guard(masses.log_mass(counted.count)))


@_logcdf.register(CMPRV)
def _cmp_logcdf(op, value, rng, size, first, nu):
    masses = op.masses_at(value, pt.log(first), nu)
    return masses.check(masses.log_tail(value, upper=False))


@_logccdf.register(CMPRV)
def _cmp_logccdf(op, value, rng, size, first, nu):
    masses = op.masses(first, nu)
    return masses.check(masses.log_tail(value, upper=True))


@_icdf.register(CMPRV)
def _cmp_icdf(op, value, rng, size, first, nu):
    masses = op.masses(first, nu)
    return masses.check(masses.quantile(value), value)


@_support_point.register(CMPRV)
def _cmp_support_point(op, rv, rng, size, first, nu):
    return maybe_resize(pt.floor(op.parametrization.centre(first, nu) + 0 * nu), size)


@_mean.register(CMPRV)
def _cmp_mean(op, rv, rng, size, first, nu):
    return maybe_resize(op.mean(first, nu), size)


# What diagnostics ask


@predicted.register(CMPRV)
def _cmp_predicted(op, rng, size, first, nu):
    return Predicted(
        mean=op.mean(first, nu),
        variance=op.variance(first, nu),
        zero=pt.exp(op.masses(first, nu).log_zero),
        slack=nu,
        more_spread="more spread than CMP can be: try negative binomial, zero-inflated or hurdle",
    )
