"""Statistics of families under JAX, made on the host; loaded when JAX is used."""

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.link.jax.dispatch.basic import jax_funcify

from pymc_bayessum.exponential.statistics import Statistics, numeric_statistics


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
