r"""A better value of log Z to hold a rule against: the log summand at other nodes.

====================  ===========================================================================
support of the rule   reference
====================  ===========================================================================
naturals, integers    the series itself, term by term, until what is left is below 1e-13 of it
finite and small      every point, and whether the summand goes on beyond the last of a range
interval              Gauss-Legendre quadrature
anything else         importance sampling from the rule's measure with fresh nodes, and its
                      standard error
====================  ===========================================================================

A summand that was given to ``log_normalizer`` as a tensor over the nodes cannot be evaluated
anywhere else; there is no reference then.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pytensor
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import toposort

from pymc_bayessum.measures.supports import (
    Integers,
    Interval,
    Naturals,
    Pair,
    Points,
    Range,
    Support,
    batch_size,
    take,
)
from pymc_bayessum.normalizers.protocol import Asked, Reference, ReferenceValue
from pymc_bayessum.rules.rule import Rule

__all__ = ["log_sum", "rule_reference"]

#: Most points that are summed one by one for one draw.
ENUMERATION_LIMIT = 2**17
#: Most terms (rows times nodes) of a series for one draw.
SERIES_LIMIT = 2**22
#: Draws at which a series may be followed that far without an end; at later ones less is tried.
PATIENCE = 5
HASTY_LIMIT = 2**17
#: Share of a series that may be left out.
TAIL_SHARE = 1e-13
FRESH_NODES = 20_000
QUADRATURE_NODES = 200
_BLOCK = 32


def rule_reference(rule: Rule, asked: Asked) -> Reference | None:
    """Return the best affordable reference for a rule and its log summand, or None.

    What is asked for holds in ``theta`` the summand and, where it can be evaluated elsewhere, the
    nodes.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> import pymc_bayessum as pbs
    >>> rule = pbs.geometric_rule(0.5, n=5)
    >>> rate = pt.dscalar("rate")
    >>> (found,) = pbs.find_normalizers(pbs.log_normalizer(lambda x: -rate * x, rule))
    >>> asked = Asked(found.theta, [], [rate], {}, np.random.default_rng(0))
    >>> value = rule_reference(rule, asked)([np.array(0.1)], [])
    >>> bool(np.isclose(value.log_z, -np.log1p(-np.exp(-0.1)))), round(value.beyond, 2)
    (True, 0.61)
    """
    support = rule.reach.support
    if len(asked.theta) == 1 or support is None:
        return None
    summand = _compile_summand(asked)
    if isinstance(support, Naturals | Integers):
        return _Series(summand, support, rule)
    nodes = _fine_nodes(support)
    if nodes is not None:
        return _FixedNodes(summand, *nodes, support)
    if rule.measure is not None and rule.measure.log_mass == 0.0:
        return _FreshNodes(summand, rule, asked.rng)
    return None


type _Summand = Callable[[Sequence[np.ndarray], Points], np.ndarray]


def _compile_summand(asked: Asked) -> _Summand:
    """Compile the log summand as a function of the draw and of nodes, of shape (..., nodes)."""
    log_f, *nodes = asked.theta
    given = [node.type.clone(shape=(None,) * node.type.ndim)() for node in nodes]
    moved = _rebuilt(log_f, dict(zip(nodes, given, strict=True)))
    function = pytensor.function(
        [*asked.variables, *given], moved, on_unused_input="ignore", **asked.compile_kwargs
    )
    function.trust_input = True
    dtypes = [node.type.dtype for node in nodes]

    def summand(draw: Sequence[np.ndarray], nodes: Points) -> np.ndarray:
        parts = nodes if isinstance(nodes, tuple) else (nodes,)
        arrays = [np.asarray(p, dtype=dtype) for p, dtype in zip(parts, dtypes, strict=True)]
        return np.asarray(function(*draw, *arrays), dtype=float)

    return summand


def _rebuilt(output: Variable, swaps: dict[Variable, Variable]) -> Variable:
    """Apply the operations below the swapped variables anew; what lies above stays the same.

    The ready-made replacements of PyTensor keep to the old lengths.
    """
    new = dict(swaps)
    for node in toposort([output]):
        if any(x in new for x in node.inputs):
            outputs = node.op(*(new.get(x, x) for x in node.inputs), return_list=True)
            new.update(zip(node.outputs, outputs, strict=True))
    return new.get(output, output)


class _Series:
    """The terms one by one from the middle outwards, until the rest does not matter."""

    def __init__(self, summand: _Summand, support: Naturals | Integers, rule: Rule):
        self.summand = summand
        self.low = support.start if isinstance(support, Naturals) else None
        self.lowest, self.highest = int(rule.reach.lowest or 0), int(rule.reach.highest or 0)
        self.least = max(2 * max(abs(self.highest), abs(self.lowest)) + 64, 256)
        self.reach, self.failures = self.least, 0
        self.description = "the series, term by term"

    def __call__(self, draw: Sequence[np.ndarray], theta: Sequence[np.ndarray]) -> ReferenceValue:
        reach, limit = self.reach, SERIES_LIMIT if self.failures < PATIENCE else HASTY_LIMIT
        while True:
            first = -reach if self.low is None else self.low
            nodes = np.arange(first, reach + 1)
            terms = self.summand(draw, nodes)
            log_z = log_sum(terms)
            tails = [terms] if self.low is not None else [terms, terms[..., ::-1]]
            left = max(float(np.max(_tail_share(tail, log_z))) for tail in tails)
            if left < TAIL_SHARE or np.isnan(left) or terms.size > limit // 2:
                break
            reach *= 2
        # The next draw begins where this one ended, but one that has no end sets no example.
        if left < TAIL_SHARE:
            self.reach = max(self.least, reach // 2)
        else:
            self.failures += 1
        share = np.exp(terms - log_z[..., None])
        outside = (nodes < self.lowest) | (nodes > self.highest)
        upper = share[..., ::-1].cumsum(axis=-1)[..., ::-1]
        seen = nodes[(upper > 1e-9).reshape(-1, len(nodes)).any(axis=0)]
        return ReferenceValue(
            log_z,
            sd=float(np.log1p(left)) if left > TAIL_SHARE else 0.0,
            beyond=float(share[..., outside].sum(axis=-1).max()),
            needed=float(seen.max()) if len(seen) else np.nan,
        )


def _tail_share(terms: np.ndarray, log_z: np.ndarray) -> np.ndarray:
    """Bound what comes after the last term, as a share of the sum.

    By a geometric series of blocks: single terms may vanish in between.
    """
    before = log_sum(terms[..., -2 * _BLOCK : -_BLOCK])
    last = log_sum(terms[..., -_BLOCK:])
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        ratio = np.exp(last - before)
        bound = np.where(ratio < 1.0, np.exp(last - log_z) * ratio / (1.0 - ratio), np.inf)
    return np.where(np.isneginf(last), 0.0, bound)


class _FixedNodes:
    """Every point of a small support, or the nodes of a classical quadrature rule.

    A range that ends where its summand does not is said to cut it: there is as much of the summand
    beyond its upper end as the numbers there tell, as many as there are in the range.
    """

    def __init__(self, summand: _Summand, nodes: Points, log_weights: np.ndarray, support: Support):
        self.summand, self.nodes, self.log_weights = summand, nodes, log_weights
        self.beyond = None
        if isinstance(support, Range):
            self.beyond = np.arange(support.high + 1, support.high + 1 + max(support.size, 64))
        exact = not log_weights.any()
        self.description = f"{'all' if exact else 'quadrature with'} {len(log_weights)} points"

    def __call__(self, draw: Sequence[np.ndarray], theta: Sequence[np.ndarray]) -> ReferenceValue:
        log_z = np.asarray(log_sum(self.summand(draw, self.nodes) + self.log_weights))
        if self.beyond is None:
            return ReferenceValue(log_z)
        with np.errstate(all="ignore"):  # the summand may have no meaning there
            further = self.summand(draw, self.beyond)
            ends = np.cumsum(~np.isfinite(further), axis=-1) > 0
            share = np.exp(log_sum(np.where(ends, -np.inf, further)) - log_z)
        return ReferenceValue(log_z, cut=float(np.nan_to_num(share).max()))


class _FreshNodes:
    """Importance sampling with nodes the rule has not seen."""

    def __init__(self, summand: _Summand, rule: Rule, rng: np.random.Generator):
        assert rule.measure is not None
        self.summand = summand
        self.nodes = rule.measure.sample(FRESH_NODES, rng)
        self.log_base = rule.measure.log_prob(self.nodes)
        self.description = f"importance sampling with {FRESH_NODES} fresh nodes"

    def __call__(self, draw: Sequence[np.ndarray], theta: Sequence[np.ndarray]) -> ReferenceValue:
        logs = self.summand(draw, self.nodes) - self.log_base
        log_z = log_sum(logs) - np.log(FRESH_NODES)
        relative = np.exp(logs - log_z[..., None])
        sd = relative.std(axis=-1).max() / np.sqrt(FRESH_NODES)
        halves = [log_sum(half) for half in np.array_split(logs, 2, axis=-1)]
        noise = np.mean(halves[0] - halves[1]) / 2
        return ReferenceValue(np.asarray(log_z), sd=float(sd), noise=float(noise))


def log_sum(logs: np.ndarray) -> np.ndarray:
    """Return the log of the sum of exponentials over the last axis, in half the time of SciPy's."""
    peak = logs.max(axis=-1)
    level = np.where(np.isfinite(peak), peak, 0.0)
    with np.errstate(divide="ignore", over="ignore"):
        return np.log(np.exp(logs - level[..., None]).sum(axis=-1)) + level


def _fine_nodes(support: Support) -> tuple[Points, np.ndarray] | None:
    """Return nodes and log weights that sum (or integrate) over a support, if it is small."""
    if isinstance(support, Interval):
        x, w = np.polynomial.legendre.leggauss(QUADRATURE_NODES)
        half = (support.high - support.low) / 2
        return support.low + half * (x + 1), np.log(half * w)
    if isinstance(support, Pair):
        parts = _fine_nodes(support.first), _fine_nodes(support.second)
        if parts[0] is None or parts[1] is None:
            return None
        (x, log_v), (y, log_w) = parts[0], parts[1]
        if len(log_v) * len(log_w) > ENUMERATION_LIMIT:
            return None
        i, j = (index.ravel() for index in np.indices((len(log_v), len(log_w))))
        return (take(x, i), take(y, j)), log_v[i] + log_w[j]
    if support.size > ENUMERATION_LIMIT:
        return None
    nodes = support.enumerate()
    return nodes, np.zeros(batch_size(nodes))
