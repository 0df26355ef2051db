"""Draws and statistics of families under JAX, made on the host; loaded when JAX is used."""

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.link.jax.dispatch.basic import jax_funcify
from pytensor.link.jax.dispatch.random import jax_sample_fn

from pymc_bayessum.exponential.distribution import ExponentialFamilyRV
from pymc_bayessum.exponential.statistics import Statistics, numeric_statistics


@jax_sample_fn.register(ExponentialFamilyRV)
def _jax_draw(op, node):
    def sample(key, size, dtype, theta):
        theta = jnp.asarray(theta)
        batch = theta.shape[:-1] if size is None else tuple(size)

        def on_host(seed, values):
            rng = np.random.default_rng(np.asarray(seed))
            return op.rng_fn(rng, np.asarray(values), batch).astype(dtype)

        states = jax.ShapeDtypeStruct((*batch, *op.family.state_shape), dtype)
        seed = jax.random.bits(key, (4,), "uint32")
        return jax.pure_callback(on_host, states, seed, theta, vmap_method="sequential")

    return sample


@jax_funcify.register(Statistics)
def _jax_statistics(op, node, **kwargs):
    family = op.family

    def statistics(value):
        value = jnp.asarray(value)
        batch = value.shape[: value.ndim - len(family.state_shape)]
        found = jax.ShapeDtypeStruct((*batch, family.n_statistics), jnp.float64)
        valid = jax.ShapeDtypeStruct(batch, jnp.bool_)

        def on_host(values):
            return numeric_statistics(family, np.asarray(values))

        return jax.pure_callback(on_host, (found, valid), value, vmap_method="sequential")

    return statistics
