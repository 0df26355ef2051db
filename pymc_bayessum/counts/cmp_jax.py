"""All that the Conway-Maxwell-Poisson distribution has to tell JAX; loaded when JAX is used."""

import jax.numpy as jnp
from pytensor.link.jax.dispatch.random import jax_sample_fn

from pymc_bayessum.counts.cmp import CMPRV
from pymc_bayessum.counts.cmp_sums.jax_ops import from_mean
from pymc_bayessum.counts.cmp_sums.sums import LOG_SMALLEST
from pymc_bayessum.counts.random import draw_cmp_jax


@jax_sample_fn.register(CMPRV)
def _jax_draw(op, node):
    def sample(key, size, dtype, first, nu):
        shape = size if size is not None else jnp.broadcast_shapes(first.shape, nu.shape)
        first, nu = jnp.broadcast_arrays(jnp.asarray(first, float), jnp.asarray(nu, float))
        eta = jnp.log(first)
        if op.parametrization == "mode":
            eta = nu * eta
        elif op.parametrization == "mu":
            rate, log_z, *_ = from_mean(eta, nu)
            known = jnp.where(jnp.isfinite(log_z), rate, jnp.nan)
            eta = jnp.where(eta <= LOG_SMALLEST, eta, known)
        return draw_cmp_jax(key, eta, nu, shape).astype(dtype)

    return sample
