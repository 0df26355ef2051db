"""The Conway-Maxwell-Poisson Ops in JAX: the same compiled sums, called by XLA itself.

On a processor XLA calls them through its foreign function interface, without Python; elsewhere
(a graphics card) the host is called back. Derivatives are further outputs, joined by
``jax.custom_jvp``.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numba import carray, cfunc, njit, types
from pytensor.link.jax.dispatch.basic import jax_funcify
from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS

from pymc_bayessum.counts.cmp_sums import sums
from pymc_bayessum.counts.cmp_sums.ops import (
    VERSION,
    CMPCumulants,
    CMPFromMean,
    CMPQuantile,
    CMPTail,
)
from pymc_bayessum.counts.cmp_sums.sums import derivative_orders

# --- what XLA calls ------------------------------------------------------------------------------
#
# XLA hands over one `XLA_FFI_CallFrame` (xla/ffi/api/c_api.h). All of its fields that are read here
# are words of 64 bits, at these places:
_EXTENSION, _API, _ARGUMENTS, _RESULTS, _ATTRIBUTES = 1, 2, 9, 14, 20
_N_ARGUMENTS, _N_RESULTS = 7, 12
_DATA, _RANK, _DIMENSIONS = 3, 4, 5  # of a buffer
_METADATA_EXTENSION = 1

_WORDS = types.CPointer(types.int64)
# From an address to a pointer.
_words = sums.converted(types.int64, _WORDS, "inttoptr")
_doubles = sums.converted(types.int64, types.CPointer(types.float64), "inttoptr")


@njit
def _array(buffers, i):
    """Return the numbers of a buffer as one row."""
    buffer = _words(buffers[i])
    n = 1
    for axis in range(buffer[_RANK]):
        n *= _words(buffer[_DIMENSIONS])[axis]
    return carray(_doubles(buffer[_DATA]), n)


def _handle(frame):
    """Answer a call: two arrays are rows, three are tails; ``what`` is the only attribute."""
    if frame[_EXTENSION] != 0:
        extension = _words(frame[_EXTENSION])
        if extension[1] & 0xFFFFFFFF == _METADATA_EXTENSION:
            # Asked for the version of the interface: the one that is spoken.
            _words(extension[3])[3] = _words(frame[_API])[4]
            return 0
    arguments, results = _words(frame[_ARGUMENTS]), _words(frame[_RESULTS])
    what = _words(_words(_words(frame[_ATTRIBUTES])[0])[1])[0]
    first, second = _array(arguments, 0), _array(arguments, 1)
    out = np.empty((frame[_N_RESULTS], first.size))
    if frame[_N_ARGUMENTS] == 2:
        sums.rows(what, first, second, out)
    else:
        sums.tails(what, first, second, _array(arguments, 2), out)
    for i in range(out.shape[0]):
        result = _array(results, i)
        for j in range(result.size):
            result[j] = out[i, j]
    return 0


# A handler that was compiled with other sums would be called with other arguments.
CACHED_SRC_FUNCTIONS[_handle] = str(VERSION)
_HANDLER = cfunc(types.int64(_WORDS), cache=True)(_handle)
_TARGET = "pymc_bayessum_cmp"
jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(_HANDLER.ctypes), platform="cpu")


def _evaluate(what: int, n_outputs: int, *arrays: Any) -> tuple[Any, ...]:
    """Run the compiled sums on arrays of one shape."""
    arrays = jnp.broadcast_arrays(*arrays)
    if any(x.dtype != np.float64 for x in arrays):
        raise TypeError("CMP needs double precision: jax.config.update('jax_enable_x64', True)")
    results = [jax.ShapeDtypeStruct(arrays[0].shape, np.float64)] * n_outputs

    def by_host(*arrays):
        return [x.reshape(arrays[0].shape) for x in sums.evaluate(what, n_outputs, *arrays)]

    return tuple(
        lax.platform_dependent(
            *arrays,
            cpu=partial(
                jax.ffi.ffi_call(_TARGET, results, vmap_method="broadcast_all"),
                what=np.int64(what),
            ),
            default=partial(jax.pure_callback, by_host, results, vmap_method="broadcast_all"),
        )
    )


# --- the functions ------------------------------------------------------------------------------


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def cumulants(order: int, eta: Any, nu: Any) -> tuple[Any, ...]:
    """Return derivatives of log Z up to an order, for arrays that broadcast."""
    return _evaluate(order, len(derivative_orders(order)), eta, nu)


@cumulants.defjvp
def _cumulants_jvp(order, primals, tangents):
    return _derivatives_jvp(cumulants, 3, order, primals, tangents)


def _derivatives_jvp(function, highest, order, primals, tangents, *before):
    """Tangents of outputs that are derivatives, from the outputs of one order more.

    Those of the highest order that is computed are NaN; they are asked for, and not used, on the
    way to second derivatives.
    """
    (*_, by_eta, by_nu) = tangents
    orders = derivative_orders(order)
    known = min(order + 1, highest)
    values = dict(zip(derivative_orders(known), function(*before, known, *primals), strict=True))
    return (
        tuple(values[o] for o in orders),
        tuple(
            values.get((a + 1, b), jnp.nan) * by_eta + values.get((a, b + 1), jnp.nan) * by_nu
            for a, b in orders
        ),
    )


@jax.custom_jvp
def from_mean(log_mu: Any, nu: Any) -> tuple[Any, ...]:
    """Return eta, log Z, d eta/d log mu, d eta/d nu and E[L], for arrays that broadcast."""
    return _evaluate(sums.FROM_MEAN, 5, log_mu, nu)


@from_mean.defjvp
def _from_mean_jvp(primals, tangents):
    log_mu, nu = primals
    by_mu, by_nu = tangents
    outputs = from_mean(log_mu, nu)
    eta, log_z, eta_mu, eta_nu, mean_l = outputs
    answered = jnp.isfinite(log_z)
    mu = jnp.where(answered, jnp.exp(log_mu), 0.0)
    k = dict(zip(derivative_orders(3), cumulants(3, eta, nu), strict=True))
    variance = jnp.where(answered & (k[2, 0] > 0), k[2, 0], 1.0)
    d_eta = eta_mu * by_mu + eta_nu * by_nu
    d_variance = k[3, 0] * d_eta + k[2, 1] * by_nu
    d_covariance = k[2, 1] * d_eta + k[1, 2] * by_nu
    tangent = (
        d_eta,
        mu * d_eta - mean_l * by_nu,
        eta_mu * by_mu - eta_mu * d_variance / variance,
        -(d_covariance + eta_nu * d_variance) / variance,
        -(k[1, 1] * d_eta + k[0, 2] * by_nu),
    )
    return outputs, tuple(jnp.where(answered, t, 0.0) for t in tangent)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def log_tail(upper: bool, order: int, x: Any, eta: Any, nu: Any) -> tuple[Any, ...]:
    """Return log P(X <= x), or of X > x, and derivatives, for arrays that broadcast."""
    what = sums.LOG_SF if upper else sums.LOG_CDF
    return _evaluate(what, len(derivative_orders(order)), x, eta, nu)


@log_tail.defjvp
def _log_tail_jvp(upper, order, primals, tangents):
    return _derivatives_jvp(log_tail, 2, order, primals, tangents, upper)


def quantile(q: Any, eta: Any, nu: Any) -> Any:
    """Return the smallest count x with P(X <= x) >= q, for arrays that broadcast."""
    return _evaluate(sums.QUANTILE, 1, *map(lax.stop_gradient, (q, eta, nu)))[0]


jax_funcify.register(CMPCumulants, lambda op, **kwargs: partial(cumulants, op.order))
jax_funcify.register(CMPFromMean, lambda op, **kwargs: from_mean)
jax_funcify.register(CMPTail, lambda op, **kwargs: partial(log_tail, op.upper, op.order))
jax_funcify.register(CMPQuantile, lambda op, **kwargs: quantile)
