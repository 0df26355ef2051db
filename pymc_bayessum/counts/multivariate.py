"""Counts that go together: a multivariate distribution with CMP margins."""

from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numba import njit
from pymc.distributions.dist_math import check_parameters, factln
from pymc.distributions.distribution import _support_point
from pymc.logprob.abstract import _logprob
from pytensor.graph.basic import Constant
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_bayessum.counts.arguments import as_float, check_constants
from pymc_bayessum.counts.cmp_series import CMPSum
from pymc_bayessum.counts.cmp_sums.ops import log_z_of_rate, rate_and_log_z_of_mean
from pymc_bayessum.counts.observed import CountDistribution
from pymc_bayessum.counts.random import VERSION, draw_cmp
from pymc_bayessum.normalizers.interpreted import evaluated
from pymc_bayessum.normalizers.node import log_z, normalized

__all__ = ["MultivariateCMP"]

#: With more counts than this the bound on omega is that of the sum of sizes, which is stricter.
MOST_CORNERS = 12


@njit
def _draw(rng, eta, nu, shrunk, omega):
    """Draw independent counts until they are accepted by how much they go together."""
    n = len(eta)
    size = np.maximum(shrunk, 1.0 - shrunk)
    bound = 1.0
    for i in range(n):
        for j in range(i):
            bound += abs(omega[i, j]) * size[i] * size[j]
    counts = np.empty(n, dtype=np.int64)
    while True:
        for i in range(n):
            counts[i] = draw_cmp(rng, eta[i], nu[i])
            if counts[i] < 0:
                raise ValueError("there is no CMP distribution for these parameters")
        share = 1.0
        for i in range(n):
            for j in range(i):
                away = np.exp(-counts[i]) - shrunk[i]
                share += omega[i, j] * away * (np.exp(-counts[j]) - shrunk[j])
        if rng.random() * bound <= share:
            return counts


class MultivariateCMPRV(RandomVariable):
    """Vectors of counts, from log rates, dispersions, the means of exp(-Y), and omega."""

    name = "MultivariateCMP"
    signature = "(d),(d),(d),(d,d)->(d)"
    dtype = "int64"
    _print_name = ("MultivariateCMP", "\\operatorname{MultivariateCMP}")

    def rng_fn(self, rng: Any, eta: Any, nu: Any, shrunk: Any, omega: Any, size: Any = None) -> Any:
        """Draw by rejection, vector by vector."""
        arrays = [np.asarray(x, dtype=float) for x in (eta, nu, shrunk, omega)]
        if size is not None:
            arrays[0] = np.broadcast_to(arrays[0], (*size, arrays[0].shape[-1]))
        draw = np.vectorize(partial(_draw, rng), [np.int64], signature=self.signature)
        return draw(*arrays)


@numba_core_rv_funcify.register(MultivariateCMPRV)
def _numba_draw(op, node):
    return _draw, VERSION


class MultivariateCMP(CountDistribution):
    r"""Vectors of counts with Conway-Maxwell-Poisson margins that go together.

    .. math:: f(y) = \prod_i \mathrm{CMP}(y_i \mid \mu_i, \nu_i)
              \Bigl(1 + \sum_{i < j} \omega_{ij} d_i d_j\Bigr), \qquad
              d_i = e^{-y_i} - c_i, \quad c_i = E[e^{-Y_i}]

    a member of Sarmanov's family (Lee 1996, *Communications in Statistics - Theory and Methods* 25,
    1207-1222).  The margins are CMP whatever :math:`\omega`, and
    :math:`c_i = Z(\lambda_i / e, \nu_i) / Z(\lambda_i, \nu_i)` is a ratio of two of their sums.

    ==========  ========================================================================
    Support     :math:`y \in \mathbb{N}_0^d`
    Mean        :math:`\mu`
    Covariance  :math:`\omega_{ij} E[Y_i d_i] E[Y_j d_j]`, of the sign of :math:`\omega_{ij}`
    ==========  ========================================================================

    Parameters
    ----------
    mu : tensor_like of float, shape (d,)
        Means of the margins (mu > 0); further dimensions to the left are batches.
    nu : tensor_like of float, shape (d,)
        Dispersions of the margins (nu >= 0).
    omega : tensor_like of float, shape (d, d)
        How they go together: symmetric, with a zero diagonal, within bounds (see the notes).
    **kwargs
        ``observed``, ``dims``, ``shape``, ... as in any PyMC distribution.

    Notes
    -----
    It is a distribution where no term is negative: :math:`1 + \sum_{i<j} \omega_{ij} b_i b_j
    \ge 0` at all corners, :math:`b_i` being :math:`-c_i` or :math:`1 - c_i`.  For two counts

    .. math:: \frac{-1}{\max(c_1 c_2, (1 - c_1)(1 - c_2))} \le \omega_{12} \le
              \frac{1}{\max(c_1 (1 - c_2), c_2 (1 - c_1))}.

    Beyond, the log-probability is -inf, and constants raise ValueError.  Above 12 counts the
    stricter :math:`\sum_{i<j} |\omega_{ij}| \max(c_i, 1 - c_i) \max(c_j, 1 - c_j) \le 1` is asked
    for.  Sarmanov's family holds weak dependence only, the weaker the larger the means.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_bayessum as pbs
    >>> omega = np.array([[0.0, 1.5], [1.5, 0.0]])
    >>> y = pbs.MultivariateCMP.dist(mu=[1.0, 2.0], nu=[1.0, 1.5], omega=omega)
    >>> counts = pm.draw(y, 4, random_seed=1)
    >>> counts.shape
    (4, 2)
    >>> alone = pbs.MultivariateCMP.dist(mu=[1.0, 2.0], nu=[1.0, 1.0], omega=np.zeros((2, 2)))
    >>> poisson = pm.logp(pm.Poisson.dist([1.0, 2.0]), [0, 3]).eval().sum()
    >>> bool(np.isclose(pm.logp(alone, [0, 3]).eval(), poisson))
    True
    """

    rv_type = MultivariateCMPRV
    rv_op = MultivariateCMPRV()

    @classmethod
    def dist(cls, mu: Any, nu: Any, omega: Any, **kwargs: Any) -> TensorVariable:
        """Create the distribution outside of a model.

        Raises
        ------
        ValueError
            If lengths do not belong together, or constants are out of range.
        """
        mu, nu, omega = (as_float(x) for x in (mu, nu, omega))
        _check_shapes(mu, nu, omega)
        check_constants({"mu": mu, "nu": nu}, positive=["mu"])
        _check_omega(omega)
        known = all(isinstance(x, Constant) for x in (mu, nu, omega))
        mu, nu = pt.broadcast_arrays(mu, nu) if nu.type.ndim else (mu, nu + pt.zeros_like(mu))
        eta, value = rate_and_log_z_of_mean(pt.log(mu), nu)
        shrunk = pt.exp(log_z_of_rate(eta - 1.0, nu) - value)
        if known:
            _check_bounds(shrunk, omega)
        return super().dist([eta, nu, shrunk, omega], **kwargs)


@_logprob.register(MultivariateCMPRV)
def _log_mass(op, values, rng, size, eta, nu, shrunk, omega, **kwargs):
    [value] = values
    constant = log_z(CMPSum(), eta, nu, value=log_z_of_rate(eta, nu))
    counts = pt.and_(pt.ge(value, 0), pt.eq(value, pt.floor(value)))
    safe = pt.switch(counts, value, 0)
    margins = pt.sum(normalized(safe * eta - nu * factln(safe), constant), axis=-1)
    share = 1.0 + _pairs(pt.exp(-safe) - shrunk, omega)
    # At the very bound a corner may be zero, or below it by rounding.
    together = pt.switch(share > 0.0, pt.log(pt.maximum(share, 1e-300)), -np.inf)
    return check_parameters(
        pt.switch(pt.all(counts, axis=-1), margins + together, -np.inf),
        pt.ge(_lowest(shrunk, omega), -1e-12),
        msg="omega within its bounds",
    )


@_support_point.register(MultivariateCMPRV)
def _middle(op, rv, rng, size, eta, nu, shrunk, omega):
    return pt.zeros_like(rv) + pt.floor(pt.exp(eta / pt.maximum(nu, 1.0))).astype("int64")


def _pairs(away: Any, omega: Any) -> Any:
    """Return the sum over pairs, half of the quadratic form."""
    inner = pt.sum(omega * pt.expand_dims(away, -2), axis=-1)
    return 0.5 * pt.sum(away * inner, axis=-1)


def _lowest(shrunk: Any, omega: Any) -> Any:
    """Return the least that 1 plus the sum over pairs can be."""
    n = omega.type.shape[-1]
    if n is None or n > MOST_CORNERS:
        size = pt.maximum(shrunk, 1.0 - shrunk)
        return 1.0 - _pairs(size, pt.abs(omega))
    corners = np.array(list(product([0.0, 1.0], repeat=n)))
    away = corners - pt.expand_dims(shrunk, -2)
    return 1.0 + pt.min(_pairs(away, pt.expand_dims(omega, -3)), axis=-1)


def _check_shapes(mu: Any, nu: Any, omega: Any) -> None:
    if mu.type.ndim < 1 or omega.type.ndim < 2:
        raise ValueError(
            "mu must have the shape (d,) and omega (d, d), got "
            f"{mu.type.ndim} and {omega.type.ndim} dimensions"
        )
    n = mu.type.shape[-1]
    for name, lengths in (("nu", nu.type.shape[-1:]), ("omega", omega.type.shape[-2:])):
        if n is not None and any(length not in {n, None} for length in lengths):
            raise ValueError(f"{name} must fit the {n} means of mu, got the shape {lengths}")


def _check_omega(omega: Any) -> None:
    if isinstance(omega, Constant):
        if not np.isfinite(omega.data).all():
            raise ValueError("omega must be finite")
        if not np.array_equal(omega.data, np.swapaxes(omega.data, -1, -2)):
            raise ValueError("omega must be symmetric")
        if np.diagonal(omega.data, axis1=-2, axis2=-1).any():
            raise ValueError("omega must have a zero diagonal")


def _check_bounds(shrunk: Any, omega: Any) -> None:
    """Raise for constants of which some probability would be negative."""
    lowest = evaluated(_lowest(shrunk, omega))
    if (lowest < -1e-12).any():
        raise ValueError(
            "omega is out of its bounds: some probability would be negative "
            f"(1 + sum omega b b is as low as {lowest.min():.3g}, b between -c and 1 - c with "
            f"c = {evaluated(shrunk).round(4).tolist()})"
        )
