r"""Sums over counts that find their own nodes.

.. math:: \log Z(\theta) = \log \sum_{x = a}^{\infty} \exp g(x; \theta)

for a summand :math:`e^g` that is a bell or falls from its left end, wherever and however wide it
is.  No cut-off is chosen and the number of evaluations is fixed:

1. a **scan** of g at numbers ever further from the left end, and three **zooms** to where the slope
   between the neighbours of the best vanishes, find the mode; a few **probes** on both sides find
   where g has fallen by ``DEPTH``, so that what lies beyond is some :math:`10^{-10}` of the sum;
2. the first ``GRADING`` numbers are summed one by one (a point mass at zero is among them);
3. a bell that does not reach them gets equally spaced nodes with the spacing h as weight, of which
   the error is about :math:`2 \exp(-2 \pi^2 \sigma^2 / h^2)` (the Poisson summation formula;
   Trefethen and Weideman, *The exponentially convergent trapezoidal rule*, 2014); one that does is
   summed by a panel that starts there (:mod:`~pymc_bayessum.normalizers.panels`).

Nodes move with θ, in whole steps, and carry no gradient: the sum does not depend on them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
from numba import njit
from pytensor.compile.builders import OpFromGraph
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.link.numba.dispatch.basic import register_funcify_default_op_cache_key
from pytensor.tensor.variable import TensorVariable

from pymc_bayessum.compiled_cache import version_of
from pymc_bayessum.normalizers.interpreted import evaluated
from pymc_bayessum.normalizers.load_for_jax import load_for_jax
from pymc_bayessum.normalizers.located_rows import (
    PROBES,
    final_points,
    probe_points,
    settled,
    zoom_points,
)
from pymc_bayessum.normalizers.panels import (
    GRADING,
    PANEL_NODES,
    SKEWED,
    even_panels,
    graded_panels,
)
from pymc_bayessum.normalizers.protocol import Asked, Exact, Reference, ReferenceValue

__all__ = [
    "N_EVALUATIONS",
    "LocatedSum",
    "Nodes",
    "WholeSteps",
    "as_node",
    "draw_by_nodes",
    "outside_variables",
    "place",
]

#: The summand is followed until it is exp(-DEPTH) of its largest value.
DEPTH = 26.0
#: Distances from the left end at which the summand is first looked at.
SCAN = np.concatenate(
    [[0, 1, 2, 4, GRADING, 12, 16, 24, 32, 40, 48], 64 * 4.0 ** np.arange(16)],
)
N_ZOOMS = 3
N_NODES = GRADING + PANEL_NODES
#: All evaluations of a summand: those that find the nodes, and the nodes.
N_EVALUATIONS = len(SCAN) + (N_ZOOMS + 1) * len(PROBES) + N_NODES
#: Most terms that are summed one by one for one draw.
REFERENCE_TERMS = 2**23
_BLOCK = 256
#: Numbers of which one is drawn.
N_CANDIDATES = 16


@cache
def panel_tables() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return nodes and weights of even and then of graded panels, and the lengths of either."""
    even, graded = even_panels(), graded_panels()
    nodes = np.concatenate([even.nodes, graded.nodes], axis=1).astype(float)
    return nodes, np.concatenate([even.weights, graded.weights], axis=1), even.lengths.astype(float)


class WholeSteps(Op):
    """An Op whose outputs move in whole steps and carry no gradient."""

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Nothing is connected."""
        return [[False] * len(node.outputs) for _ in node.inputs]


class _Points(WholeSteps):
    """Where to look next, from the points seen so far, their values, and the left ends.

    Inputs have shape (points, rows) and (rows,). Where no row has to be looked at any further there
    are no points (but in JAX, which wants to know beforehand how many there are).
    """

    __props__: tuple[str, ...] = ()
    #: The compiled loops, which return the outputs as arrays.
    run: Any

    def make_node(self, x: Any, g: Any, first: Any) -> Apply:  # type: ignore[override]  # an Op names its inputs
        """Take three float tensors."""
        inputs = [pt.cast(pt.as_tensor_variable(v), "float64") for v in (x, g, first)]
        shape = (None, inputs[2].type.shape[0])
        return Apply(self, inputs, [pt.tensor(dtype="float64", shape=shape)])

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        """Run the compiled loops."""
        results = self.run(*inputs)
        results = results if isinstance(results, tuple) else (results,)
        for storage, result in zip(output_storage, results, strict=True):
            storage[0] = result


def _unless_settled(fill: Any) -> Any:
    """Return a compiled function that has points filled in where some row needs them."""

    @njit
    def run(x, g, first):
        done = settled(x, g, first, PANEL_NODES, DEPTH)
        out = np.empty((0 if done else len(PROBES), first.size))
        fill(x, g, first, out)
        return out

    return staticmethod(run)


class ZoomPoints(_Points):
    """Points between the neighbours of the best one, and where the mode is expected."""

    run = _unless_settled(zoom_points)


class ProbePoints(_Points):
    """Points on both sides of the mode, by the width of the bell."""

    run = _unless_settled(probe_points)


class FinalPoints(_Points):
    """The nodes, their weights, and where the summand has vanished.

    At most ``N_NODES`` nodes, the same number for all rows.
    """

    def make_node(  # type: ignore[override]  # an Op names its inputs
        self, x: Any, g: Any, first: Any, *tables: Any
    ) -> Apply:
        """Take three float tensors and, for those who compile it, the panels."""
        node = super().make_node(x, g, first)
        tables = tables or tuple(map(pt.constant, panel_tables()))
        row = node.inputs[2].type
        table = pt.TensorType("float64", (None, *row.shape))
        return Apply(self, [*node.inputs, *tables], [table(), table(), row()])

    @staticmethod
    @njit
    def run(x, g, first, nodes, weights, lengths):
        """Return nodes, weights and ends."""
        return final_points(x, g, first, np.sqrt(DEPTH), SKEWED, GRADING, nodes, weights, lengths)


# PyTensor keeps compiled graphs on disk under the properties of their Ops and this number.
_FOLDER = Path(__file__).parent
VERSION = version_of([*_FOLDER.glob("located*.py"), _FOLDER / "panels.py"])


@register_funcify_default_op_cache_key(_Points)
def _numba_points(op, node, **kwargs):
    return op.run, VERSION


load_for_jax(f"{__package__}.located_jax")


class Nodes(NamedTuple):
    """Where a summand is evaluated, and how much each node stands for.

    ``x`` are whole numbers, held as floats, of shape (nodes, ...), and so are their weights;
    ``last``, of the batch shape, is where the summand was found to have vanished.
    """

    x: Any
    weight: Any
    last: Any


def place(log_f: Callable[[Any], Any], low: Any) -> Nodes:
    """Find the nodes of a sum from ``low`` on, of a log summand at numbers of shape (nodes, ...).

    Examples
    --------
    >>> nodes = place(lambda x: x * np.log(0.999), pt.zeros(()))
    >>> bool(np.isclose((nodes.weight * 0.999**nodes.x).sum().eval(), 1000.0))
    True
    """
    low = pt.as_tensor_variable(low)
    batch = [low.shape[i] for i in range(low.type.ndim)]

    def rows(values: Any) -> Any:
        # Not -1: where there are no points nothing tells how many rows there are.
        return pt.reshape(values, (values.shape[0], low.size)) if low.type.ndim != 1 else values

    def whole(values: Any) -> Any:
        return pt.reshape(values, (values.shape[0], *batch)) if low.type.ndim != 1 else values

    column = SCAN.reshape(-1, *[1] * low.type.ndim)
    x = low + column
    # Written out, the first look needs no more than what the data do not settle beforehand.
    g = rows(_defined(log_f(x)) + pt.zeros_like(x))
    x, first = rows(x), pt.reshape(low, (-1,)) + float(GRADING)
    evaluate = as_node(log_f, (None, *[None] * low.type.ndim))
    for op in (*[ZoomPoints()] * N_ZOOMS, ProbePoints()):
        points = op(x, g, first)
        x, g = pt.join(0, x, points), pt.join(0, g, rows(evaluate(whole(points))))
    nodes, weight, last = FinalPoints().make_node(x, g, first).outputs
    return Nodes(
        whole(nodes), whole(weight), pt.reshape(last, batch) if low.type.ndim != 1 else last
    )


def as_node(log_f: Callable[[Any], Any], shape: tuple[int | None, ...]) -> Callable[[Any], Any]:
    """Return a function of x as one node, which is compiled once however often it is used.

    x has this shape, None for lengths that are not known, and so has the result.
    """
    x = pt.tensor("x", dtype="float64", shape=shape)
    value = _defined(log_f(x)) + pt.zeros_like(x)
    outside = outside_variables(log_f, x)
    inner = [variable.type() for variable in outside]
    swaps = dict(zip(outside, inner, strict=True))
    [value] = graph_replace([value], swaps, strict=False) if swaps else [value]
    op = OpFromGraph([x, *inner], [value])
    return lambda points: op(pt.specify_shape(points, shape), *outside)


def outside_variables(function: Callable[[Any], Any], x: Any) -> list[Variable]:
    """Return the variables that a function of x uses but does not make: its parameters.

    Two calls share them and nothing else.

    Examples
    --------
    >>> rate = pt.exp(pt.scalar("log_rate"))
    >>> outside_variables(lambda x: pt.exp(-rate * x), pt.vector("x")) == [rate]
    True
    """
    first, second = function(x), function(x.type())
    outside = set(ancestors([first])) & set(ancestors([second]))
    inputs = [v for v in ancestors([first]) if v.owner is not None and v not in outside]
    used = dict.fromkeys(v for made in inputs for v in made.owner.inputs)
    return [
        v
        for v in used
        if v in outside and isinstance(v, TensorVariable) and not isinstance(v, Constant)
    ]


def draw_by_nodes(
    x: np.ndarray,
    weight: np.ndarray,
    log_f: np.ndarray,
    target: Callable[[np.ndarray], np.ndarray],
    rng: np.random.Generator,
) -> np.ndarray:
    """Draw a number for each row of a sum, by its nodes: sampling-importance-resampling.

    A node is drawn by its share, a number uniformly from those it stands for, and of 16 such
    numbers one by its probability over that of being proposed. Where all numbers are nodes this
    is exact. Nodes ``x``, in rising order, their weights and the log summand there have shape
    (nodes, ...); ``target`` is the log summand at numbers of shape (16, ...).
    """
    with np.errstate(divide="ignore"):
        log_share = np.log(weight) + np.nan_to_num(log_f, nan=-np.inf)
    share = np.exp(log_share - log_share.max(axis=0))
    share /= share.sum(axis=0)
    middle = np.floor((x[1:] + x[:-1]) / 2.0)
    lower = np.concatenate([x[:1], middle + 1.0])
    upper = np.concatenate([middle, x[-1:]])
    u = rng.random((N_CANDIDATES, *x.shape[1:]))
    cumulated = share.cumsum(axis=0)
    chosen = np.stack([(cumulated < part).sum(axis=0) for part in u])
    chosen = np.minimum(chosen, len(x) - 1)
    first, last, part = (np.take_along_axis(a, chosen, axis=0) for a in (lower, upper, share))
    size = last - first + 1.0
    candidates = first + np.floor(size * rng.random(size.shape))
    with np.errstate(divide="ignore"):
        log_ratio = target(candidates) - np.log(part / size)
    best = (np.nan_to_num(log_ratio, nan=-np.inf) + rng.gumbel(size=size.shape)).argmax(axis=0)
    return np.take_along_axis(candidates, best[None], axis=0)[0]


def _defined(g: Any) -> Any:
    """Take a summand to be zero where it is not defined."""
    return pt.where(pt.isnan(g), -np.inf, g)


@dataclass(frozen=True)
class LocatedSum(Exact):
    """The normaliser of a summand over counts, which finds its nodes at each set of parameters.

    ``log_f(x, *theta)`` is the symbolic log summand at whole numbers of shape (nodes, ...), and
    ``low(*theta)`` the left ends, of the batch shape. Its error is far below what a posterior
    feels, or the check tells.

    Examples
    --------
    >>> poisson = LocatedSum(lambda x, eta: x * eta - pt.gammaln(x + 1.0), pt.zeros_like)
    >>> bool(np.isclose(poisson.log_z(np, np.log(3.0)), 3.0))
    True
    """

    log_f: Callable[..., Any]
    low: Callable[..., Any]

    advice = (
        "the summand has several humps or no smooth bell, or reaches very far: a rule made for it, "
        "or a prior that keeps it in reach"
    )

    def at(self, theta: Sequence[Any]) -> Callable[[Any], Any]:
        """Return the log summand at given parameters."""
        return lambda x: self.log_f(x, *theta)

    def log_z(self, xp: Any, *theta: Any) -> Any:
        """Return the symbolic log-sum, or its value."""
        symbolic = [pt.as_tensor_variable(part) for part in theta]
        log_f, low = self.at(symbolic), self.low(*symbolic)
        nodes = place(log_f, low)
        value = _log_sum(log_f, disconnected_grad(nodes.x), disconnected_grad(nodes.weight))
        return value if xp is pt else evaluated(value)

    def reference(self, asked: Asked) -> Reference:
        """Return the sum over all numbers, one by one."""
        return OneByOne(self, asked)


class OneByOne:
    """The terms of a located sum, all of them, until what is left does not matter."""

    description = "the sum, term by term"

    def __init__(self, normalizer: LocatedSum, asked: Asked):
        theta = [x.type() for x in asked.theta]
        low = normalizer.low(*theta)
        start = pt.tensor("start", dtype="float64", shape=low.type.shape)
        x = start + np.arange(_BLOCK, dtype=float).reshape(-1, *[1] * low.type.ndim)
        terms = normalizer.log_f(x, *theta)
        options = {"on_unused_input": "ignore", **asked.compile_kwargs}
        nodes = place(normalizer.at(theta), low)
        self._ends = pytensor.function(theta, [low, nodes.last], **options)
        self._terms = pytensor.function([start, *theta], terms, **options)

    def __call__(self, draw: Sequence[np.ndarray], theta: Sequence[np.ndarray]) -> ReferenceValue:
        """Sum twice as far as the nodes reach; whatever is still there then is uncertain."""
        low, last = self._ends(*theta)
        n_blocks = int(np.ceil(2.0 * (last - low).max() / _BLOCK)) + 1
        n_kept = max(1, min(n_blocks, REFERENCE_TERMS // (_BLOCK * max(low.size, 1))))
        total, final = np.full(low.shape, -np.inf), np.full(low.shape, -np.inf)
        for block in range(n_kept):
            terms = np.nan_to_num(self._terms(low + block * _BLOCK, *theta), nan=-np.inf)
            final = np.logaddexp.reduce(terms, axis=0)
            total = np.logaddexp(total, final)
        with np.errstate(invalid="ignore"):
            left = np.exp(final - total)
        unsure = n_kept < n_blocks or float(np.nanmax(left, initial=0.0)) > 1e-9
        return ReferenceValue(total, sd=np.inf if unsure else 0.0, needed=float(last.max()))


def _log_sum(log_f: Callable[[Any], Any], x: Any, weight: Any) -> Any:
    """Return the symbolic log of a weighted sum of exponentials over the first axis."""
    g = _defined(log_f(x))
    height = disconnected_grad(pt.max(g, axis=0))
    level = pt.where(pt.isinf(height), 0.0, height)
    total = pt.sum(weight * pt.exp(g - level), axis=0)
    positive = total > 0
    return pt.where(positive, pt.log(pt.where(positive, total, 1.0)) + level, -np.inf)
