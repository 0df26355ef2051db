"""The Conway-Maxwell-binomial distribution: proportions with free dispersion."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numba import njit
from pymc.distributions.dist_math import check_parameters
from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import register_funcify_default_op_cache_key
from pytensor.tensor.variable import TensorVariable

from pymc_bayessum.compiled_cache import version_of
from pymc_bayessum.counts.arguments import as_float
from pymc_bayessum.counts.observed import as_counts
from pymc_bayessum.normalizers.interpreted import evaluated
from pymc_bayessum.normalizers.node import log_z, normalized
from pymc_bayessum.normalizers.protocol import Asked, Facts, Given

__all__ = ["CMPBinomial"]

N_STEPS = 200


class CMPBinomial:
    r"""Conway-Maxwell-binomial distribution: a binomial that spreads more or less.

    .. math:: f(x \mid n, p, \nu) = \frac{\binom{n}{x}^{\nu} p^x (1 - p)^{n - x}}{Z(n, p, \nu)},
              \qquad Z = \sum_{j=0}^n \binom{n}{j}^{\nu} p^j (1 - p)^{n - j}

    (Kadane 2016, *Bayesian Analysis* 11, 403-420).

    ========  ==========================================================================
    Support   :math:`x \in \{0, 1, \ldots, n\}`
    Mean      :math:`\mu`; :math:`n p` where :math:`\nu = 1` or :math:`p = 1/2`
    ========  ==========================================================================

    With :math:`\nu = 1` it is binomial. Above, successes repel one another (as :math:`\nu` grows
    all mass gathers at :math:`n/2`); below they attract one another, with :math:`\nu = 0` the
    pmf is geometric in x, and further below it has a peak at either end.

    Parameters
    ----------
    name : str
        Name of the variable in the model (not in ``dist``).
    n : tensor_like of int
        Number of trials (n >= 0).
    p : tensor_like of float
        Probability of success where the trials are independent (0 < p < 1).
    mu : tensor_like of float
        Mean of the distribution, in place of ``p`` (0 < mu < n). It is solved for p and
        differentiated implicitly.
    nu : tensor_like of float
        Dispersion, any real number.
    **kwargs
        ``observed``, ``dims``, ``shape``, ... as in any PyMC distribution.

    Notes
    -----
    Every term of the sum is computed: the cost grows with the largest n.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_bayessum as pbs
    >>> x = pbs.CMPBinomial.dist(n=10, p=0.3, nu=1.0)
    >>> binomial = pm.Binomial.dist(10, 0.3)
    >>> bool(np.isclose(pm.logp(x, 4).eval(), pm.logp(binomial, 4).eval()))
    True
    >>> with pm.Model() as model:
    ...     mu = pm.Uniform("mu", 0, 12)
    ...     nu = pm.Normal("nu", 1.0, 1.0)
    ...     _ = pbs.CMPBinomial("y", n=12, mu=mu, nu=nu, observed=[3, 7, 5])
    """

    def __new__(
        cls,
        name: str,
        n: Any = None,
        p: Any = None,
        nu: Any = None,
        *,
        mu: Any = None,
        observed: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Add the distribution to the current model."""
        arguments, settings = _custom(n, p, mu, nu)
        if observed is not None:
            observed = as_counts(name, observed)
            _check_observed(name, observed, arguments[0])
        return pm.CustomDist(name, *arguments, **settings, observed=observed, **kwargs)

    @classmethod
    def dist(
        cls, n: Any = None, p: Any = None, nu: Any = None, *, mu: Any = None, **kwargs: Any
    ) -> TensorVariable:
        """Create the distribution outside of a model.

        Raises
        ------
        ValueError
            If not exactly one of ``p`` and ``mu`` is given, or constants are out of range.
        """
        arguments, settings = _custom(n, p, mu, nu)
        return pm.CustomDist.dist(*arguments, **settings, **kwargs)


def _custom(n: Any, p: Any, mu: Any, nu: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and keyword arguments for `pm.CustomDist`."""
    if (p is None) == (mu is None):
        given = "both" if p is not None else "neither"
        raise ValueError(f"exactly one of p and mu (the mean) must be given, got {given}")
    if n is None or nu is None:
        raise ValueError(f"{'n' if n is None else 'nu'} must be given")
    by_mean = p is None
    trials = pt.as_tensor_variable(n)
    first, nu = (as_float(x) for x in (mu if by_mean else p, nu))
    _check_constants(trials, first, nu, "mu" if by_mean else "p")

    def terms(n: Any, first: Any, nu: Any) -> tuple[Any, Any]:
        """Return the log odds of p, and the log terms along a last axis."""
        odds = LogOddsOfMean()(first, n, nu) if by_mean else pt.log(first) - pt.log1p(-first)
        return odds, _log_terms(n, odds, nu)

    def log_mass(value: Any, n: Any, first: Any, nu: Any) -> Any:
        odds, logs = terms(n, first, nu)
        z = log_z(BinomialSum(), n, odds, nu, value=pt.logsumexp(logs, axis=-1))
        inside = pt.and_(pt.ge(value, 0), pt.le(value, n))
        inside = pt.and_(inside, pt.eq(value, pt.floor(value)))
        safe = pt.switch(inside, value, 0)
        mass = normalized(nu * _log_choose(n, safe) + safe * odds, z)
        return check_parameters(
            pt.switch(inside, mass, -np.inf),
            pt.and_(first > 0, first < (n if by_mean else 1.0)),
            pt.ge(n, 0),
            msg=f"n >= 0, 0 < {'mu < n' if by_mean else 'p < 1'}",
        )

    def log_cdf(value: Any, n: Any, first: Any, nu: Any) -> Any:
        _, logs = terms(n, first, nu)
        counts = pt.arange(logs.shape[-1])
        up_to = pt.switch(counts <= pt.expand_dims(value, -1), logs, -np.inf)
        share = pt.logsumexp(up_to, axis=-1) - pt.logsumexp(logs, axis=-1)
        return pt.clip(share, -np.inf, 0.0)

    def draw(n: Any, first: Any, nu: Any, size: Any) -> Any:
        _, logs = terms(n, first, nu)
        return pm.Categorical.dist(logit_p=logs, size=size)

    return [trials, first, nu], {
        "dist": draw,
        "logp": log_mass,
        "logcdf": log_cdf,
        "class_name": "CMPBinomial",
    }


def _check_constants(n: Any, first: Any, nu: Any, name: str) -> None:
    trials = np.asarray(n.data, dtype=float) if isinstance(n, Constant) else np.inf
    good = (trials >= 0) & (trials == np.floor(trials))
    _refuse(trials, good, "n must hold whole numbers >= 0")
    if isinstance(nu, Constant):
        _refuse(nu.data, np.isfinite(nu.data), "nu must be finite")
    if isinstance(first, Constant):
        words, limit = ("1", 1.0) if name == "p" else ("n", trials)
        good = (first.data > 0) & (first.data < limit)
        _refuse(first.data, good, f"{name} must lie strictly between 0 and {words}")


def _refuse(values: Any, good: Any, message: str) -> None:
    good = np.asarray(good)
    if not good.all():
        raise ValueError(f"{message}, got {np.broadcast_to(values, good.shape)[~good].flat[0]:g}")


def _check_observed(name: str, observed: Any, n: Any) -> None:
    if isinstance(observed, Variable) or not isinstance(n, Constant):
        return
    above = np.ma.filled(np.ma.asarray(observed) > n.data, False)
    if np.any(above):
        raise ValueError(
            f"observed of {name} must be at most n, got {int(np.asarray(observed)[above].flat[0])}"
        )


def _log_choose(n: Any, x: Any) -> Any:
    return pt.gammaln(n + 1.0) - pt.gammaln(x + 1.0) - pt.gammaln(n - x + 1.0)


def _log_terms(n: Any, odds: Any, nu: Any) -> Any:
    """Return the log terms for 0, ..., max n along a last axis, -inf beyond each n."""
    n, odds, nu = (pt.expand_dims(v, -1) for v in (n, odds, nu))
    x = pt.arange(pt.max(n) + 1)
    inside = x <= n
    safe = pt.where(inside, x, 0)
    return pt.where(inside, nu * _log_choose(n, safe) + safe * odds, -np.inf)


@dataclass(frozen=True)
class BinomialSum:
    """The sum over all numbers of successes, of the number of trials, the log odds and nu."""

    is_absolute = True

    def log_z(self, xp: Any, n: Any, odds: Any, nu: Any) -> Any:
        """Return the log of the sum."""
        value = pt.logsumexp(_log_terms(*map(pt.as_tensor_variable, (n, odds, nu))), axis=-1)
        return value if xp is pt else evaluated(value)

    def sd(self, xp: Any, n: Any, odds: Any, nu: Any) -> None:
        """Return None: every term is there."""

    def reference(self, asked: Asked) -> Given:
        """Return the sum in another way and precision."""

        def extended(n: Any, odds: Any, nu: Any) -> np.ndarray:
            n, odds, nu = (np.asarray(v, dtype=np.longdouble)[..., None] for v in (n, odds, nu))
            x = np.arange(1, int(n.max(initial=0)) + 1)
            inside = x <= n
            # From one term to the next, without factorials.
            steps = nu * np.log(np.where(inside, (n - x + 1) / x, 1)) + odds
            logs = np.where(inside, np.cumsum(steps, axis=-1), -np.inf)
            return np.asarray(np.logaddexp(0, np.logaddexp.reduce(logs, axis=-1)), dtype=float)

        return Given(extended, "the sum in extended precision")

    def remedy(self, facts: Facts) -> str:
        """Say what can be wrong with it."""
        return "parameters nearer to the data: log odds or nu have left the range of floats"


class LogOddsOfMean(Op):
    r"""The log odds of p at which the distribution of n trials has a given mean.

    :math:`E[X]` grows with the log odds :math:`\theta`: Newton's method between bounds that close
    in. Derivatives are implicit, :math:`\partial\theta/\partial\mu = 1/\mathrm{Var}(X)` and
    :math:`\partial\theta/\partial\nu = -\mathrm{Cov}(X, \log\binom{n}{X}) / \mathrm{Var}(X)`.
    """

    __props__: tuple[str, ...] = ()

    def make_node(self, mu: Any, n: Any, nu: Any) -> Apply:  # type: ignore[override]  # an Op names its inputs
        """Broadcast three tensors."""
        inputs = [pt.cast(pt.as_tensor_variable(x), "float64") for x in (mu, n, nu)]
        inputs = list(pt.broadcast_arrays(*inputs))
        return Apply(self, inputs, [inputs[0].type()])

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Return the shape of the inputs."""
        return [shapes[0]]

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        """Solve row by row."""
        output_storage[0][0] = _solve(*inputs)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        """Differentiate the equation E[X] = mu, with sums that can be differentiated again."""
        _, n, nu = inputs
        logs = _log_terms(n, outputs[0], nu)
        share = pt.exp(logs - pt.expand_dims(pt.logsumexp(logs, axis=-1), -1))
        x = pt.arange(logs.shape[-1])
        inside = pt.le(x, pt.expand_dims(n, -1))
        choose = _log_choose(pt.expand_dims(n, -1), pt.switch(inside, x, 0))
        mean = pt.expand_dims(pt.sum(share * x, axis=-1), -1)
        variance = pt.sum(share * (x - mean) ** 2, axis=-1)
        covariance = pt.sum(share * (x - mean) * pt.switch(inside, choose, 0.0), axis=-1)
        by_mu = cotangents[0] / variance
        return [by_mu, disconnected_type(), -by_mu * covariance]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Whole numbers of trials have no derivative."""
        return [[True], [False], [True]]


@njit(cache=True, error_model="numpy")
def _solve_rows(mu, n, nu, out):
    for row in range(len(mu)):
        size = int(n[row])
        if not 0.0 < mu[row] < size:
            out[row] = np.nan
            continue
        log_choose = np.zeros(size + 1)
        for x in range(1, size + 1):
            log_choose[x] = log_choose[x - 1] + np.log((size - x + 1) / x)
        log_choose *= nu[row]
        odds = np.log(mu[row] / (size - mu[row]))
        bound = 800.0 + abs(nu[row]) * size
        low, high = -bound, bound
        for _ in range(N_STEPS):
            top = -np.inf
            for x in range(size + 1):
                top = max(top, log_choose[x] + x * odds)
            total, first, second = 0.0, 0.0, 0.0
            for x in range(size + 1):
                term = np.exp(log_choose[x] + x * odds - top)
                total += term
                first += term * (x - mu[row])
                second += term * (x - mu[row]) ** 2
            excess = first / total
            variance = second / total - excess * excess
            if excess > 0.0:
                high = odds
            else:
                low = odds
            step = odds - excess / variance
            new = step if low < step < high else 0.5 * (low + high)
            if abs(new - odds) <= 4e-16 * abs(odds) + 1e-300 or excess == 0.0:
                odds = new if excess != 0.0 else odds
                break
            odds = new
        out[row] = odds


@njit
def _solve(mu, n, nu):
    out = np.empty(mu.size)
    _solve_rows(mu.ravel(), n.ravel(), nu.ravel(), out)
    return out.reshape(mu.shape)


@register_funcify_default_op_cache_key(LogOddsOfMean)
def _numba_solve(op, node, **kwargs):
    return _solve, version_of([Path(__file__)])
