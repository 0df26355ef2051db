"""Where a located sum looks next, in whole arrays: what JAX has to know of the compiled loops.

The same as :mod:`~pymc_bayessum.normalizers.located_rows`; the points are the first axis, and -inf
stands for what is not there.
"""

import jax.numpy as jnp
from pytensor.link.jax.dispatch import jax_funcify

from pymc_bayessum.normalizers.located import DEPTH, FinalPoints, ProbePoints, ZoomPoints
from pymc_bayessum.normalizers.located_rows import NEAR, PROBES, ROUND, UNIFORM
from pymc_bayessum.normalizers.panels import GRADING, PANEL_NODES, SKEWED


def _mode(x, g, first):
    inside = x >= first
    height = jnp.max(jnp.where(inside, g, -jnp.inf), axis=0)
    mode = jnp.min(jnp.where(inside & (g >= height), x, jnp.inf), axis=0)
    left = jnp.max(jnp.where(inside & (x < mode), x, -jnp.inf), axis=0)
    right = jnp.min(jnp.where(x > mode, x, jnp.inf), axis=0)
    right = jnp.where(jnp.isinf(right), mode + 1.0, right)
    return mode, height, jnp.maximum(left, first), right


def _fall(x, g, height, point):
    fall = height - jnp.max(jnp.where(x == point, g, -jnp.inf), axis=0)
    return jnp.where(jnp.isinf(height), 0.0, fall)


def _extent(x, g, mode, height, first, sign):
    limit = jnp.sqrt(DEPTH)
    distance = sign * (x - mode)
    side = (distance > 0.0) & (x >= first)
    fall = jnp.where(jnp.isinf(height), 0.0, height - g)
    depth = jnp.sqrt(jnp.maximum(fall, 0.0))
    inner = jnp.max(jnp.where(side & (depth < limit), distance, 0.0), axis=0)
    inner_depth = jnp.max(jnp.where(side & (distance == inner), depth, 0.0), axis=0)
    outer = jnp.min(jnp.where(side & (distance > inner), distance, jnp.inf), axis=0)
    outer_depth = jnp.max(jnp.where(side & (distance == outer), depth, 0.0), axis=0)
    share = (limit - inner_depth) / (outer_depth - inner_depth)
    share = jnp.where(jnp.isinf(outer_depth), 1.0, share)
    reach = jnp.where(jnp.isinf(outer), inner, inner + (outer - inner) * share)
    return jnp.ceil(1.03 * reach)


def _log_identric_mean(a, b):
    half = jnp.maximum(b - a, 1e-300) / (b + a)
    bend = (1.0 + half) * jnp.log1p(half) - (1.0 - half) * jnp.log1p(-half)
    return jnp.log(0.5 * (a + b)) + bend / (2.0 * half) - 1.0


def _expected_mode(x, g, first, mode, height, left, right):
    rise = _fall(x, g, height, left) / jnp.maximum(mode - left, 1.0)
    fall = _fall(x, g, height, right) / (right - mode)
    change = rise + fall
    known = (left < mode) & (change > 0.0) & (change < jnp.inf)
    at = mode - first + 1.0
    before = _log_identric_mean(left - first + 1.0, at)
    after = _log_identric_mean(at, right - first + 1.0)
    place = jnp.exp(before + (after - before) * rise / change)
    width = jnp.sqrt(place * (after - before) / change)
    return first - 1.0 + place, jnp.where(known, width, 0.0)


@jax_funcify.register(ZoomPoints)
def _zoom(op, **kwargs):
    steps = jnp.arange(1, len(PROBES) + 1)[:, None] / (len(PROBES) + 1)
    uniform, near = jnp.array(UNIFORM)[:, None], jnp.array(NEAR)[:, None]

    def zoom(x, g, first):
        mode, height, left, right = _mode(x, g, first)
        place, width = _expected_mode(x, g, first, mode, height, left, right)
        some = left + (right - left) * uniform
        expected = jnp.concatenate([some, place + width * near + 0.5])
        points = jnp.where(width > 0.0, expected, left + (right - left) * steps)
        return jnp.clip(jnp.floor(points), left, right)

    return zoom


@jax_funcify.register(ProbePoints)
def _probe(op, **kwargs):
    def probe(x, g, first):
        mode, height, left, right = _mode(x, g, first)
        behind, ahead = jnp.maximum(mode - left, 1.0), right - mode
        falls = _fall(x, g, height, left) / behind + _fall(x, g, height, right) / ahead
        width = 1.0 / jnp.sqrt(jnp.maximum(2.0 * falls / (behind + ahead), 1e-300))
        width = jnp.clip(width, 1.0, jnp.maximum(right - left, 1.0))
        return jnp.maximum(first, jnp.floor(mode + width * PROBES[:, None] + 0.5))

    return probe


@jax_funcify.register(FinalPoints)
def _final(op, **kwargs):
    def final(x, g, first, nodes, weights, lengths):
        mode, height, _, _ = _mode(x, g, first)
        behind, ahead = (_extent(x, g, mode, height, first, sign) for sign in (-1.0, 1.0))
        spacing = jnp.ceil((behind + ahead + 1.0) / PANEL_NODES)
        free = mode - behind + spacing * jnp.arange(PANEL_NODES)[:, None]
        length = mode + ahead - first + 1.0
        column = jnp.minimum(jnp.searchsorted(lengths, length), len(lengths) - 1)
        column += jnp.where(length > SKEWED * (mode - first + 1.0), len(lengths), 0)
        is_free = mode - behind - first > (behind + ahead) / ROUND
        x = jnp.where(is_free, free, first + nodes[:, column])
        weight = jnp.where(is_free, spacing, weights[:, column])
        head = first + jnp.arange(-GRADING, 0)[:, None]
        return (
            jnp.concatenate([head, x]),
            jnp.concatenate([jnp.ones_like(head), weight]),
            mode + ahead,
        )

    return final
