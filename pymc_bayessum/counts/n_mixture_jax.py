"""Counts seen by chance, for JAX: the sum written out."""

from pytensor.graph.fg import FunctionGraph
from pytensor.link.jax.dispatch import jax_funcify

from pymc_bayessum.counts.n_mixture import NMixtureSum


@jax_funcify.register(NMixtureSum)
def _sum(op, node, **kwargs):
    inputs = [v.type() for v in node.inputs[:3]]
    written = jax_funcify(FunctionGraph(inputs, op.written_out(*inputs), clone=False), **kwargs)
    return lambda c, s, y, *tables: written(c, s, y)
