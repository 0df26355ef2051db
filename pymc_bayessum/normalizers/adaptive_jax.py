"""Which panels an adaptive sum refines, in whole arrays: what JAX has to know of it."""

import jax
import jax.numpy as jnp
from pytensor.link.jax.dispatch import jax_funcify

from pymc_bayessum.normalizers.adaptive import PARTS, STEEP, RefinePanels


def _importance(g, nodes, weights, length):
    """Return the log of what refining each panel may change; the nodes are the last axis."""
    best = jnp.argmax(g, axis=-1, keepdims=True)
    top = jnp.take_along_axis(g, best, axis=-1)
    level = jnp.where(jnp.isinf(top), 0.0, top)
    f = jnp.exp(g - level)
    gaps = jnp.diff(nodes, axis=-1)
    rough = (0.5 * gaps * (f[..., 1:] + f[..., :-1])).sum(axis=-1) + 0.5 * (f[..., 0] + f[..., -1])
    disagree = jnp.log(jnp.abs((weights * f).sum(axis=-1) - rough) / length + 1e-300)
    kept = jnp.maximum(g, level - 60.0)
    steep = jnp.abs(jnp.diff(kept, axis=-1)).max(axis=-1) > STEEP
    n = g.shape[-1]
    inner = jnp.clip(best, 1, n - 2)

    def at(array, index):
        return jnp.take_along_axis(array, index, axis=-1)[..., 0]

    a, b = at(nodes, inner) - at(nodes, inner - 1), at(nodes, inner + 1) - at(nodes, inner)
    rise_a, rise_b = at(g, inner) - at(g, inner - 1), at(g, inner) - at(g, inner + 1)
    curvature = 2.0 * (rise_a / a + rise_b / b) / (a + b)
    slope = (rise_a / a * b - rise_b / b * a) / (a + b)
    hidden = jnp.minimum(slope**2 / (2.0 * curvature), jnp.maximum(rise_a, rise_b))
    hidden = jnp.where(jnp.isnan(hidden) | jnp.isinf(curvature), 0.0, hidden)
    beside = jnp.where(best == 0, 1, n - 2)
    at_end = jnp.minimum(top[..., 0] - at(g, beside), 50.0)
    hidden = jnp.where((best == inner)[..., 0], hidden, at_end)
    change = jnp.where(steep, jnp.maximum(disagree, hidden - 5.0), disagree)
    return jnp.where(jnp.isinf(top[..., 0]), -jnp.inf, level[..., 0] + jnp.log(length) + change)


@jax_funcify.register(RefinePanels)
def _refine(op, **kwargs):
    def refine(start, level, g, nodes, weights, lengths):
        n_rows, n_panels = start.shape
        known = jnp.maximum(level, 0)
        score = _importance(
            g.reshape(n_rows, n_panels, -1), nodes[known], weights[known], lengths[known]
        )
        score = jnp.where(level > 0, score, -jnp.inf)
        best, chosen = jax.lax.top_k(score, op.refined)
        exists = ~jnp.isinf(best)
        old = jnp.take_along_axis(level, chosen, axis=1)
        part = jnp.maximum(old - 2, 0)
        steps = jnp.arange(PARTS)
        starts = jnp.take_along_axis(start, chosen, axis=1)[..., None]
        starts = starts + steps * lengths[part][..., None]
        used = exists[..., None] & (steps < 2 ** jnp.maximum(old, 0)[..., None])
        levels = jnp.where(used, part[..., None], -1)
        starts = jnp.where(used, starts, start[:, :1, None])
        rows = jnp.arange(n_rows)[:, None]
        level = level.at[rows, chosen].set(jnp.where(exists, -1, old))
        return (
            jnp.concatenate([start, starts.reshape(n_rows, -1)], axis=1),
            jnp.concatenate([level, levels.reshape(n_rows, -1)], axis=1),
        )

    return refine
