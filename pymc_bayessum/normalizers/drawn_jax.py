"""Draws of states under JAX, made on the host; loaded when JAX is used."""

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.link.jax.dispatch.random import jax_sample_fn

from pymc_bayessum.normalizers.drawn import StatesRV


@jax_sample_fn.register(StatesRV)
def _jax_draw(op, node):
    def sample(key, size, dtype, *parameters):
        arrays = [jnp.asarray(part) for part in parameters]
        batch = op.batch_shape(*arrays) if size is None else tuple(size)

        def on_host(seed, *values):
            rng = np.random.default_rng(np.asarray(seed))
            return op.rng_fn(rng, *values, batch).astype(dtype)

        states = jax.ShapeDtypeStruct((*batch, *op.state_shape), dtype)
        seed = jax.random.bits(key, (4,), "uint32")
        return jax.pure_callback(on_host, states, seed, *arrays, vmap_method="sequential")

    return sample
