"""What JAX makes of a guarded value; loaded when JAX is used."""

from pytensor.link.jax.dispatch.basic import jax_funcify

from pymc_bayessum.normalizers.anchored.guards import Guard


@jax_funcify.register(Guard)
def _jax_guard(op, **kwargs):
    return lambda value, *conditions: value
