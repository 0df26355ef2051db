r"""Moments of CMP, on arrays, on xarray objects and on tensors inside of models.

Every function takes :math:`\nu` and exactly one of ``lam``, ``mu`` and ``mode``. Arrays and tensors
broadcast by position, xarray objects and ``pymc.dims`` variables by the names of their dimensions.
Tensors have gradients.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytensor.tensor as pt
import xarray as xr
from pymc.pytensorf import floatX
from pytensor.graph.basic import Variable
from pytensor.xtensor import as_xtensor, broadcast
from pytensor.xtensor.type import XTensorVariable

from pymc_bayessum.counts.arguments import check_numbers, stacked
from pymc_bayessum.counts.cmp_series import CMPSum
from pymc_bayessum.counts.cmp_sums.ops import CMPCumulants, CMPFromMean
from pymc_bayessum.counts.parametrization import MEAN, Parametrization, chosen

__all__ = ["cmp_lam", "cmp_log_z", "cmp_mean", "cmp_mode", "cmp_variance"]


def cmp_log_z(
    log_lam: Any = None, nu: Any = None, *, lam: Any = None, mu: Any = None, mode: Any = None
) -> Any:
    r"""Return :math:`\log \sum_x \lambda^x / (x!)^\nu`.

    Parameters
    ----------
    log_lam, nu : array_like, tensor or DataArray
        Log of the rate, and dispersion; they broadcast.
    lam, mu, mode : array_like, tensor or DataArray
        Rate, mean or mode, in place of the log rate.

    Returns
    -------
    float, ndarray, tensor or DataArray
        +inf where the sum diverges or is not answered for (see :class:`CMP`).

    Examples
    --------
    >>> import numpy as np
    >>> float(np.exp(cmp_log_z(np.log(1.5), 1.2)).round(5))
    4.01341
    >>> float(cmp_log_z(mu=4.0, nu=1.0).round(6))
    4.0
    """
    if log_lam is None:
        return _moment(_log_z, lam, nu, mu, mode)
    if lam is not None or mu is not None or mode is not None or nu is None:
        raise TypeError("cmp_log_z needs nu and exactly one of log_lam, lam and mu (or mode)")
    return _dispatch(CMPSum().log_z, {"log_lam": log_lam, "nu": nu})


def cmp_mean(lam: Any = None, nu: Any = None, *, mu: Any = None, mode: Any = None) -> Any:
    r"""Mean of the CMP distribution with rate :math:`\lambda` and dispersion :math:`\nu`.

    Parameters
    ----------
    lam, nu : array_like, tensor or DataArray
        Rate (lam >= 0) and dispersion; they broadcast.
    mu, mode : array_like, tensor or DataArray
        The mean itself, or the mode :math:`\lambda^{1/\nu}`, in place of the rate.

    Returns
    -------
    float, ndarray, tensor or DataArray
        NaN where there is no distribution or none is answered for (see :class:`CMP`).

    Examples
    --------
    >>> float(cmp_mean(10.0, 1.2).round(6))
    6.727397
    >>> float(cmp_mean(mode=5.0, nu=1.0).round(6))
    5.0
    """
    return _moment(_mean, lam, nu, mu, mode)


def cmp_variance(lam: Any = None, nu: Any = None, *, mu: Any = None, mode: Any = None) -> Any:
    r"""Variance of the CMP distribution with rate :math:`\lambda` and dispersion :math:`\nu`.

    Parameters
    ----------
    lam, mu, mode, nu : array_like, tensor or DataArray
        As for :func:`cmp_mean`; where none is answered for the variance is NaN.

    Examples
    --------
    >>> float(cmp_variance(10.0, 1.2).round(6))
    5.679674
    >>> float(cmp_variance(mu=4.0, nu=1.0).round(6))
    4.0

    The posterior of the dispersion index is a line in the model:

    >>> import pymc as pm
    >>> with pm.Model():
    ...     mu, nu = pm.Gamma("mu", 2, 1), pm.LogNormal("nu")
    ...     index = pm.Deterministic("index", cmp_variance(mu=mu, nu=nu) / mu)
    """
    return _moment(_variance, lam, nu, mu, mode)


def cmp_lam(lam: Any = None, nu: Any = None, *, mu: Any = None, mode: Any = None) -> Any:
    r"""Rate :math:`\lambda` of the CMP distribution with a given mean or mode.

    Parameters
    ----------
    lam, mu, mode, nu : array_like, tensor or DataArray
        As for :func:`cmp_mean`.

    Examples
    --------
    >>> float(cmp_lam(mu=6.727397, nu=1.2).round(4))
    10.0
    """
    return _moment(_lam, lam, nu, mu, mode)


def cmp_mode(lam: Any = None, nu: Any = None, *, mu: Any = None, mode: Any = None) -> Any:
    r"""Mode :math:`\lambda^{1/\nu}`, whose floor is the most probable count.

    Parameters
    ----------
    lam, mu, mode, nu : array_like, tensor or DataArray
        As for :func:`cmp_mean`.

    Examples
    --------
    >>> float(cmp_mode(lam=9.0, nu=2.0).round(6))
    3.0
    """
    return _moment(_mode, lam, nu, mu, mode)


# One body for arrays and tensors: ``xp`` is numpy or pytensor.tensor


def _log_rate(xp: Any, form: Parametrization, first: Any, nu: Any) -> Any:
    return form.log_rate(xp, xp.log(first), nu, partial(CMPFromMean().on, xp))


def _log_z(xp: Any, form: Parametrization, first: Any, nu: Any) -> Any:
    if form is MEAN:
        log_z = CMPFromMean().on(xp, xp.log(first), nu)[1]
    else:
        log_z = CMPCumulants(1).on(xp, _log_rate(xp, form, first, nu), nu)[0]
    return _zero_at_zero(xp, first, log_z)


def _mean(xp: Any, form: Parametrization, first: Any, nu: Any) -> Any:
    if form is MEAN:
        return first + 0.0 * nu
    log_z, mean, _ = CMPCumulants(1).on(xp, _log_rate(xp, form, first, nu), nu)
    return _where_it_exists(xp, first, log_z, mean)


def _variance(xp: Any, form: Parametrization, first: Any, nu: Any) -> Any:
    if form is MEAN:
        _, log_z, slope, *_ = CMPFromMean().on(xp, xp.log(first), nu)
        # The slope of the log rate in the log mean is the mean by the variance.
        variance = first / xp.where(xp.isfinite(log_z), slope, 1.0)
    else:
        log_z, _, _, variance, *_ = CMPCumulants(2).on(xp, _log_rate(xp, form, first, nu), nu)
    return _where_it_exists(xp, first, log_z, variance)


def _lam(xp: Any, form: Parametrization, first: Any, nu: Any) -> Any:
    return xp.exp(_log_rate(xp, form, first, nu))


def _mode(xp: Any, form: Parametrization, first: Any, nu: Any) -> Any:
    return xp.exp(_log_rate(xp, form, first, nu) / nu)


def _where_it_exists(xp: Any, first: Any, log_z: Any, moment: Any) -> Any:
    return _zero_at_zero(xp, first, xp.where(xp.isfinite(log_z), moment, np.nan))


def _zero_at_zero(xp: Any, first: Any, value: Any) -> Any:
    """Without a rate, a mean or a mode above zero there are no counts but zero."""
    return xp.where(xp.equal(first, 0), 0.0, value)


def _moment(body: Callable[..., Any], lam: Any, nu: Any, mu: Any, mode: Any) -> Any:
    if nu is None or sum(x is not None for x in (lam, mu, mode)) != 1:
        raise TypeError(f"cmp{body.__name__} needs nu and exactly one of lam and mu (or mode)")
    form, first = chosen(mu, lam, mode)
    return _dispatch(lambda xp, first, nu: body(xp, form, first, nu), {form.name: first, "nu": nu})


def _dispatch(body: Callable[[Any, Any, Any], Any], arguments: Mapping[str, Any]) -> Any:
    """Run a body in the library of its arguments."""
    pair = [stacked(x) for x in arguments.values()]
    for name, x in zip(arguments, pair, strict=True):
        _check(name, x)
    if any(isinstance(x, XTensorVariable) for x in pair):
        first, nu = broadcast(*(as_xtensor(_as_floats(x)) for x in pair))
        return as_xtensor(body(pt, first.values, nu.values), dims=first.dims)
    if any(isinstance(x, Variable) for x in pair):
        return body(pt, *(floatX(pt.as_tensor_variable(x)) for x in pair))
    if any(isinstance(x, (xr.DataArray, xr.Dataset)) for x in pair):
        return xr.apply_ufunc(lambda *arrays: _on_arrays(body, *arrays), *pair)
    return _on_arrays(body, *pair)


def _on_arrays(body: Callable[[Any, Any, Any], Any], first: Any, nu: Any) -> Any:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.asarray(body(np, _as_floats(first), _as_floats(nu)))[()]


def _check(name: str, x: Any) -> None:
    """Refuse numbers that no distribution has; of tensors nothing is known yet."""
    if isinstance(x, Variable):
        return
    for array in x.values() if isinstance(x, xr.Dataset) else [x]:
        if name != "log_lam":
            check_numbers(name, array)
        elif np.isnan(np.asarray(array, dtype=float)).any():
            raise ValueError("log_lam must be a number, got nan")


def _as_floats(x: Any) -> Any:
    return x if isinstance(x, Variable) else np.asarray(x, dtype=float)
