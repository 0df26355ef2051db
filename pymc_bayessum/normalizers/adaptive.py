r"""Sums over whole numbers that refine themselves where the summand needs it.

.. math:: \log Z(\theta) = \log \sum_{x \in \mathcal{X}} \exp g(x; \theta)

over the naturals, all integers or a range, for summands of any shape: several humps, a cusp, long
tails.  The support is laid out in panels of 16 nodes that double in length away from zero (or from
the ends of a range), each a rule of high degree (:func:`~.panels.dyadic_panels`); the shortest hold
every one of their numbers.  In each of ``ROUNDS`` rounds the ``REFINED`` panels that matter most
are cut in four: those of which two rules disagree most, and those within which the log summand is
so steep that a hump may hide between two nodes.  Which panels there are moves with θ in steps and
carries no gradient; the sum over their nodes does.

This is adaptive quadrature (Gander and Gautschi 2000, *BIT* 40, 84-101) with a fixed number of
evaluations, so that it can be compiled for every backend.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from numba import njit
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Apply
from pytensor.link.numba.dispatch.basic import register_funcify_default_op_cache_key

from pymc_bayessum.compiled_cache import version_of
from pymc_bayessum.measures.supports import Integers, Naturals, Range, Support
from pymc_bayessum.normalizers.interpreted import evaluated
from pymc_bayessum.normalizers.load_for_jax import load_for_jax
from pymc_bayessum.normalizers.located import WholeSteps, as_node
from pymc_bayessum.normalizers.logsum import SignedLogSum
from pymc_bayessum.normalizers.panels import DYADIC_NODES, dyadic_panels
from pymc_bayessum.normalizers.protocol import Asked, Exact, Reference, ReferenceValue
from pymc_bayessum.normalizers.references import log_sum

__all__ = ["AdaptiveSum"]

ROUNDS = 6
REFINED = 8
#: Panels that a panel is cut in.
PARTS = 4
#: Between two nodes of a panel the log summand may change by this before a hump could hide there.
STEEP = 3.0
#: Panels double up to this many times.
LONGEST = 44
#: Share of a sum, next to the end of the last panel, from which on it is not answered for.
UNSEEN = 1e-6


def layout(support: Support) -> tuple[np.ndarray, np.ndarray]:
    """Return starts and levels of panels that cover a support.

    Examples
    --------
    >>> starts, levels = layout(Range(0, 99))
    >>> starts.tolist(), levels.tolist()
    ([0.0, 16.0, 32.0, 64.0, 96.0], [0, 0, 1, 1, 0])
    """
    lengths = dyadic_panels().lengths.astype(float)
    if isinstance(support, Range):
        return _cover(support.low, support.high - support.low + 1, lengths)
    outwards = DYADIC_NODES * 2.0 ** np.arange(LONGEST)
    starts, levels = np.append(0.0, outwards), np.append(0, np.arange(LONGEST))
    if isinstance(support, Naturals):
        return starts + support.start, levels
    assert isinstance(support, Integers)
    mirrored = -(starts + lengths[levels])
    return np.concatenate([starts, mirrored]), np.concatenate([levels, levels])


def _cover(low: int, size: int, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Double the panels while they fit, then halve them towards the end."""
    starts, levels, done = [], [], 0
    while done < size:
        limit = min(size - done, max(done, DYADIC_NODES))
        level = max(int(np.searchsorted(lengths, limit, side="right")) - 1, 0)
        starts.append(float(low + done))
        levels.append(level)
        done += int(lengths[level])
    return np.array(starts), np.array(levels)


class RefinePanels(WholeSteps):
    """Cut the panels that matter most: starts and levels of all panels, -1 for those cut.

    Inputs are starts and levels of shape (rows, panels), the log summand at their nodes (rows,
    panels times nodes), and the tables of the panels.
    """

    __props__ = ("refined",)

    def __init__(self, refined: int = REFINED) -> None:
        self.refined = refined
        super().__init__()

    def make_node(self, *inputs: Any) -> Apply:
        """Take two tables of numbers, one of levels, and the panels."""
        start, level, g, *tables = (pt.as_tensor_variable(v) for v in inputs)
        tables = tables or [pt.constant(v) for v in panel_tables()]
        rows, panels = start.type.shape
        shape = (rows, None if panels is None else panels + PARTS * self.refined)
        outputs = [pt.tensor(dtype="float64", shape=shape), pt.tensor(dtype="int64", shape=shape)]
        return Apply(self, [start, level, g, *tables], outputs)

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Return the shape with the new panels."""
        rows, panels = shapes[0]
        return [(rows, panels + PARTS * self.refined)] * 2

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        """Run the compiled loops."""
        for storage, result in zip(output_storage, _refine(self.refined, *inputs), strict=True):
            storage[0] = result


def panel_tables() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return nodes and weights of shape (levels, nodes), and lengths."""
    panels = dyadic_panels()
    return (
        np.ascontiguousarray(panels.nodes.T.astype(float)),
        np.ascontiguousarray(panels.weights.T),
        panels.lengths.astype(float),
    )


@njit(cache=True, error_model="numpy")
def _importance(g, nodes, weights, length):
    """Return the log of what refining a panel may change."""
    n = len(g)
    best = 0
    for k in range(n):
        if g[k] > g[best]:
            best = k
    top = g[best]
    if np.isinf(top):
        return -np.inf
    fine, rough, steepest = 0.0, 0.0, 0.0
    for k in range(n):
        f = np.exp(g[k] - top)
        fine += weights[k] * f
        if k + 1 < n:
            rough += 0.5 * (nodes[k + 1] - nodes[k]) * (f + np.exp(g[k + 1] - top))
            change = abs(max(g[k + 1], top - 60.0) - max(g[k], top - 60.0))
            steepest = max(steepest, change)
    rough += 0.5 * (1.0 + np.exp(g[n - 1] - top) + np.exp(g[0] - top) - 1.0)
    disagree = np.log(abs(fine - rough) / length + 1e-300)
    if steepest <= STEEP:
        return top + np.log(length) + disagree
    # How high a hump may be between the best node and its neighbours.
    if 0 < best < n - 1:
        a, b = nodes[best] - nodes[best - 1], nodes[best + 1] - nodes[best]
        rise_a, rise_b = top - g[best - 1], top - g[best + 1]
        curvature = 2.0 * (rise_a / a + rise_b / b) / (a + b)
        slope = (rise_a / a * b - rise_b / b * a) / (a + b)
        hidden = min(slope * slope / (2.0 * curvature), max(rise_a, rise_b))
        if np.isnan(hidden) or np.isinf(curvature):
            hidden = 0.0
    else:
        hidden = min(top - g[1 if best == 0 else n - 2], 50.0)
    return top + np.log(length) + max(disagree, hidden - 5.0)


@njit(cache=True, error_model="numpy")
def _refine(refined, start, level, g, nodes, weights, lengths):
    n_rows, n_panels = start.shape
    n_nodes = nodes.shape[1]
    starts = np.empty((n_rows, n_panels + PARTS * refined))
    levels = np.full((n_rows, n_panels + PARTS * refined), -1)
    scores = np.empty(n_panels)
    for row in range(n_rows):
        for p in range(n_panels):
            starts[row, p], levels[row, p] = start[row, p], level[row, p]
            scores[p] = -np.inf
            if level[row, p] > 0:
                k = level[row, p]
                values = g[row, p * n_nodes : (p + 1) * n_nodes]
                scores[p] = _importance(values, nodes[k], weights[k], lengths[k])
        starts[row, n_panels:] = start[row, 0]
        for r in range(refined):
            p = int(np.argmax(scores))
            if np.isinf(scores[p]):
                break
            scores[p] = -np.inf
            k = level[row, p]
            levels[row, p] = -1
            part = max(k - 2, 0)
            for j in range(min(PARTS, 2**k)):
                starts[row, n_panels + PARTS * r + j] = start[row, p] + j * lengths[part]
                levels[row, n_panels + PARTS * r + j] = part
    return starts, levels


@register_funcify_default_op_cache_key(RefinePanels)
def _numba_refine(op, node, **kwargs):
    refined = op.refined

    @njit
    def refine(start, level, g, nodes, weights, lengths):
        return _refine(refined, start, level, g, nodes, weights, lengths)

    return refine, version_of([Path(__file__)])


load_for_jax(f"{__package__}.adaptive_jax")


@dataclass(frozen=True)
class AdaptiveSum(Exact):
    """The normaliser of any summand over whole numbers; its parameters are those of the summand.

    ``log_f(x, *theta)`` is symbolic, with the numbers along the last axis; panels are refined in
    so many rounds, so many each time. Its error is far below what a posterior feels, or the check
    tells.

    Examples
    --------
    >>> laplace = AdaptiveSum(lambda x, scale: -pt.abs(x - 0.5) / scale, Integers())
    >>> bool(np.isclose(laplace.log_z(np, 50.0), np.log(1 / np.sinh(0.01))))
    True
    """

    log_f: Callable[..., Any]
    support: Support
    rounds: int = ROUNDS
    refined: int = REFINED

    advice = (
        "a rule made for the summand (rule=): it has humps that are too narrow for where they are, "
        "or too many of them, or hardly falls"
    )

    def log_z(self, xp: Any, *theta: Any) -> Any:
        """Return the symbolic log-sum, or its value."""
        symbolic = [pt.as_tensor_variable(part) for part in theta]
        x, weight = self.nodes(*symbolic)
        g = self._evaluate(disconnected_grad(x), symbolic)
        weight = disconnected_grad(weight)
        value = SignedLogSum()(g, pt.log(weight), pt.ones_like(weight))
        value = self._if_it_ends(value, symbolic)
        return value if xp is pt else evaluated(value)

    def _if_it_ends(self, value: Any, theta: Sequence[Any]) -> Any:
        """Return +inf for a sum that has not ended with the last panel, or never does."""
        if isinstance(self.support, Range):
            return value
        ends = DYADIC_NODES * 2.0**LONGEST * np.array([1.0, -1.0])
        ends = ends[:1] if isinstance(self.support, Naturals) else ends
        last = disconnected_grad(self._evaluate(pt.constant(ends), theta) + np.log(ends[0]))
        endless = pt.any(pt.gt(last, pt.expand_dims(value, -1) + np.log(UNSEEN)), axis=-1)
        return pt.where(endless, np.inf, value)

    def nodes(self, *theta: Any) -> tuple[Any, Any]:
        """Return nodes and weights of shape (..., nodes); panels that were cut weigh nothing."""
        nodes, weights, _ = (pt.constant(table) for table in panel_tables())
        starts, levels = layout(self.support)
        x = starts[:, None] + panel_tables()[0][levels]
        g = self._evaluate(pt.constant(x.ravel()), theta)
        batch = [g.shape[i] for i in range(g.type.ndim - 1)]
        g = pt.reshape(g, (-1, x.size))
        start, level = (
            pt.broadcast_to(v, (g.shape[0], len(v))) for v in (starts, levels.astype("int64"))
        )

        def at(start: Any, level: Any) -> Any:
            points = pt.expand_dims(start, -1) + nodes[pt.maximum(level, 0)]
            return pt.reshape(points, (*batch, -1))

        n_new = PARTS * self.refined * DYADIC_NODES
        evaluate = as_node(lambda x: self._evaluate(x, theta), (*[None] * len(batch), n_new))
        for number in range(self.rounds):
            n_panels = len(starts) + number * PARTS * self.refined
            cut: Any = RefinePanels(self.refined).make_node(start, level, g).outputs
            start, level = cut
            new = evaluate(at(start[:, n_panels:], level[:, n_panels:]))
            g = pt.join(1, g, pt.reshape(new, (g.shape[0], -1)))
        weight = pt.where(pt.ge(level, 0)[..., None], weights[pt.maximum(level, 0)], 0.0)
        return at(start, level), pt.reshape(weight, (*batch, -1))

    def _evaluate(self, x: Any, theta: Sequence[Any]) -> Any:
        """Return the log summand, -inf where it is not defined or outside of a range."""
        whole = pt.cast(x, "int64")
        inside = pt.ones_like(x, dtype=bool)
        if isinstance(self.support, Range):
            inside = pt.le(x, self.support.high)
            whole = pt.minimum(whole, self.support.high)
        g = self.log_f(whole, *theta)
        return pt.where(pt.and_(inside, pt.invert(pt.isnan(g))), g, -np.inf)

    def reference(self, asked: Asked) -> Reference:
        """Return the same sum with many times as many nodes, laid out otherwise."""
        return Finer(self, asked)


class Finer:
    """Every panel cut into short ones beforehand, then refined; summed with NumPy."""

    description = "the same sum on many times as many nodes"

    def __init__(self, normalizer: AdaptiveSum, asked: Asked):
        theta = [v.type() for v in asked.theta]
        x = pt.dvector("x")
        log_f = normalizer._evaluate(x, theta)
        options = {"on_unused_input": "ignore", **asked.compile_kwargs}
        self._log_f = pytensor.function([x, *theta], log_f, **options)
        finer = replace(normalizer, rounds=ROUNDS + 3, refined=4 * REFINED)
        self._nodes = pytensor.function(theta, finer.log_z(pt, *theta), **options)
        self._x, self._weight = _fine_nodes(normalizer.support)

    def __call__(self, draw: Sequence[np.ndarray], theta: Sequence[np.ndarray]) -> ReferenceValue:
        """Return the refined sum; where plain fine nodes see more than it does, it is unsure."""
        refined = np.asarray(self._nodes(*theta), dtype=float)
        terms = self._log_f(self._x, *theta) + np.log(self._weight)
        plain = log_sum(terms)
        missed = np.any(plain > refined + 1e-4)
        best = np.where(plain > refined + 1e-4, plain, refined)
        return ReferenceValue(best, sd=np.inf if missed else 0.0)


def _fine_nodes(support: Support, cut: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights of panels that are cut in so many, or down to single numbers."""
    nodes, weights, lengths = panel_tables()
    points, masses = [], []
    for start, level in zip(*layout(support), strict=True):
        part = max(level - int(np.log2(cut)), 0)
        starts = start + lengths[part] * np.arange(int(lengths[level] / lengths[part]))
        points.append((starts[:, None] + nodes[part]).ravel())
        masses.append(np.tile(weights[part], len(starts)))
    x, weight = np.concatenate(points), np.concatenate(masses)
    if isinstance(support, Range):
        weight = np.where(x <= support.high, weight, 0.0)
        x = np.minimum(x, support.high)
    kept = weight > 0.0
    return x[kept], weight[kept]
