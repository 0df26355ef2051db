"""Draws from graph models under JAX, made on the host; loaded when JAX is used."""

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.link.jax.dispatch.random import jax_sample_fn

from pymc_bayessum.graphs.potts import PottsRV


@jax_sample_fn.register(PottsRV)
def _jax_draw(op, node):
    def sample(key, size, dtype, h, J):
        h, J = jnp.asarray(h), jnp.asarray(J)
        size = op.batch_shape(h, J) if size is None else size

        def on_host(seed, fields, couplings):
            rng = np.random.default_rng(np.asarray(seed))
            values = np.asarray(fields), np.asarray(couplings)
            return op.rng_fn(rng, *values, size).astype(dtype)

        rows = jax.ShapeDtypeStruct((*size, op.layout.n_sites), dtype)
        seed = jax.random.bits(key, (4,), "uint32")
        return jax.pure_callback(on_host, rows, seed, h, J, vmap_method="sequential")

    return sample
