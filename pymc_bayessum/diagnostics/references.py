r"""A better value of log Z to hold a normaliser against.

Where a normaliser brings its own reference (an exact sum, elimination, a long series) that one is
used.  For an estimate on a graph too wide for elimination, draws are made around the posterior
itself.  Otherwise the log summand is evaluated at other nodes:

====================  ===========================================================================
support of the rule   reference
====================  ===========================================================================
naturals, integers    the series itself, term by term, until what is left is below 1e-13 of it
finite and small      every point
interval              Gauss-Legendre quadrature
anything else         importance sampling from the rule's measure with fresh nodes, and its
                      standard error
====================  ===========================================================================

A summand that was given to ``log_normalizer`` as a tensor over the nodes cannot be evaluated
anywhere else; there is no reference then.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pytensor
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace

from pymc_bayessum.arguments import as_generator
from pymc_bayessum.graphs.anchors import AnchoredRule, anchored_rule_at
from pymc_bayessum.graphs.base_rules import PottsRule
from pymc_bayessum.graphs.estimates import EstimatedLogZ
from pymc_bayessum.measures.supports import (
    Integers,
    Interval,
    Naturals,
    Pair,
    Points,
    Support,
    batch_size,
    take,
)
from pymc_bayessum.normalizers.logsum import Normalizer
from pymc_bayessum.rules.rule import Rule

__all__ = ["Reference", "ReferenceValue", "choose_reference"]

#: Most points that are summed one by one for one draw.
ENUMERATION_LIMIT = 2**17
#: Most terms (rows times nodes) of a series for one draw.
SERIES_LIMIT = 2**22
#: Share of a series that may be left out.
TAIL_SHARE = 1e-13
FRESH_NODES = 20_000
QUADRATURE_NODES = 200
#: States drawn around the posterior for each of two independent halves of a reference.
ANCHORED_NODES = 8_000
#: Principal axes of the posterior with an anchor on either side, where there are not more.
MOST_AXES = 4
_BLOCK = 32


class ReferenceValue(NamedTuple):
    """A reference at one draw.

    Attributes
    ----------
    log_z : ndarray
        In the shape of the normaliser.
    sd : float
        How uncertain it is itself: 0 if it is exact, infinite if it could not be computed.
    noise : float
        Half the difference of two independent halves of it, signed: how much of the variation
        over the draws is its own.  0 if it is exact.
    beyond : float
        Largest share of the sum that lies outside the range of the rule's nodes.
    needed : float
        Number up to which nodes are needed to see all but a billionth of the sum.
    """

    log_z: np.ndarray
    sd: float = 0.0
    noise: float = 0.0
    beyond: float = 0.0
    needed: float = np.nan


class Reference(Protocol):
    """Returns the reference at one draw."""

    description: str

    def prepare(self, inputs: Sequence[Sequence[np.ndarray]]) -> None:
        """Look at the node's inputs on some draws before it is evaluated on all."""

    def __call__(self, draw: Sequence[np.ndarray], inputs: Sequence[np.ndarray]) -> ReferenceValue:
        """Evaluate it, given the values of the model's variables and of the node's inputs."""


def choose_reference(
    normalizer: Normalizer,
    variables: Sequence[Variable],
    compile_kwargs: dict[str, Any] | None = None,
    random_seed: Any = None,
) -> Reference | None:
    """Return the best affordable reference for a normaliser, or None if there is none.

    Parameters
    ----------
    normalizer : Normalizer
        Found in the log-probability of a model.
    variables : sequence of Variable
        The value variables of that log-probability, whose values make up a draw.
    compile_kwargs : dict, optional
        Passed to ``pytensor.function``.
    random_seed : seed or Generator, optional
        For fresh nodes.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> import pymc_bayessum as pbs
    >>> from pymc_bayessum.normalizers.logsum import find_normalizers
    >>> rule = pbs.geometric_rule(0.5, n=5)
    >>> rate = pt.dscalar("rate")
    >>> (found,) = find_normalizers(pbs.log_normalizer(lambda x: -rate * x, rule))
    >>> reference = choose_reference(found, [rate])
    >>> value = reference([np.array(0.1)], [])
    >>> bool(np.isclose(value.log_z, -np.log1p(-np.exp(-0.1)))), round(value.beyond, 2)
    (True, 0.61)
    """
    if normalizer.reference is not None:
        return _Given(normalizer.reference)
    node = normalizer.log_z.owner
    if node is not None and isinstance(node.op, EstimatedLogZ):
        return _Anchored(node.op.rule, random_seed)
    rule = normalizer.rule
    if rule is None or not normalizer.nodes or rule.reach.support is None:
        return None
    summand = _compile_summand(normalizer, variables, compile_kwargs or {})
    support = rule.reach.support
    if isinstance(support, Naturals | Integers):
        return _Series(summand, support, rule)
    nodes = _fine_nodes(support)
    if nodes is not None:
        return _FixedNodes(summand, *nodes)
    if rule.measure is not None and rule.measure.log_mass == 0.0:
        return _FreshNodes(summand, rule, random_seed)
    return None


type _Summand = Callable[[Sequence[np.ndarray], Points], np.ndarray]


def _compile_summand(
    normalizer: Normalizer, variables: Sequence[Variable], compile_kwargs: dict[str, Any]
) -> _Summand:
    """Compile the log summand as a function of the draw and of nodes, of shape (..., nodes)."""
    given = [node.type.clone(shape=(None,) * node.type.ndim)() for node in normalizer.nodes]
    swaps = dict(zip(normalizer.nodes, given, strict=True))
    assert normalizer.log_f is not None
    log_f = clone_replace(normalizer.log_f, swaps, rebuild_strict=False)
    function = pytensor.function(
        [*variables, *given], log_f, on_unused_input="ignore", **compile_kwargs
    )
    function.trust_input = True
    dtypes = [node.type.dtype for node in normalizer.nodes]

    def summand(draw: Sequence[np.ndarray], nodes: Points) -> np.ndarray:
        parts = nodes if isinstance(nodes, tuple) else (nodes,)
        arrays = [np.asarray(p, dtype=dtype) for p, dtype in zip(parts, dtypes, strict=True)]
        return np.asarray(function(*draw, *arrays), dtype=float)

    return summand


class _Ready:
    """What needs no preparation."""

    def prepare(self, inputs: Sequence[Sequence[np.ndarray]]) -> None:
        pass


class _Given(_Ready):
    """What the normaliser itself offers."""

    def __init__(self, function: Callable[..., np.ndarray]):
        self.function = function
        self.description = getattr(function, "description", "its own")

    def __call__(self, draw: Sequence[np.ndarray], inputs: Sequence[np.ndarray]) -> ReferenceValue:
        return ReferenceValue(np.asarray(self.function(*inputs), dtype=float))


class _Series(_Ready):
    """The terms one by one from the middle outwards, until the rest does not matter."""

    def __init__(self, summand: _Summand, support: Naturals | Integers, rule: Rule):
        self.summand = summand
        self.low = support.start if isinstance(support, Naturals) else None
        self.lowest, self.highest = int(rule.reach.lowest or 0), int(rule.reach.highest or 0)
        self.reach = max(2 * max(abs(self.highest), abs(self.lowest)) + 64, 256)
        self.description = "the series, term by term"

    def __call__(self, draw: Sequence[np.ndarray], inputs: Sequence[np.ndarray]) -> ReferenceValue:
        while True:
            first = -self.reach if self.low is None else self.low
            nodes = np.arange(first, self.reach + 1)
            terms = self.summand(draw, nodes)
            log_z = _log_sum(terms)
            tails = [terms] if self.low is not None else [terms, terms[..., ::-1]]
            left = max(float(np.max(_tail_share(tail, log_z))) for tail in tails)
            if left < TAIL_SHARE or np.isnan(left) or terms.size > SERIES_LIMIT // 2:
                break
            self.reach *= 2
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
    before = _log_sum(terms[..., -2 * _BLOCK : -_BLOCK])
    last = _log_sum(terms[..., -_BLOCK:])
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        ratio = np.exp(last - before)
        bound = np.where(ratio < 1.0, np.exp(last - log_z) * ratio / (1.0 - ratio), np.inf)
    return np.where(np.isneginf(last), 0.0, bound)


class _FixedNodes(_Ready):
    """Every point of a small support, or the nodes of a classical quadrature rule."""

    def __init__(self, summand: _Summand, nodes: Points, log_weights: np.ndarray):
        self.summand, self.nodes, self.log_weights = summand, nodes, log_weights
        exact = not log_weights.any()
        self.description = f"{'all' if exact else 'quadrature with'} {len(log_weights)} points"

    def __call__(self, draw: Sequence[np.ndarray], inputs: Sequence[np.ndarray]) -> ReferenceValue:
        terms = self.summand(draw, self.nodes) + self.log_weights
        return ReferenceValue(np.asarray(_log_sum(terms)))


class _FreshNodes(_Ready):
    """Importance sampling with nodes the rule has not seen."""

    def __init__(self, summand: _Summand, rule: Rule, random_seed: Any):
        assert rule.measure is not None
        self.summand = summand
        self.nodes = rule.measure.sample(FRESH_NODES, random_seed)
        self.log_base = rule.measure.log_prob(self.nodes)
        self.description = f"importance sampling with {FRESH_NODES} fresh nodes"

    def __call__(self, draw: Sequence[np.ndarray], inputs: Sequence[np.ndarray]) -> ReferenceValue:
        logs = self.summand(draw, self.nodes) - self.log_base
        log_z = _log_sum(logs) - np.log(FRESH_NODES)
        relative = np.exp(logs - log_z[..., None])
        sd = relative.std(axis=-1).max() / np.sqrt(FRESH_NODES)
        halves = [_log_sum(half) for half in np.array_split(logs, 2, axis=-1)]
        noise = np.mean(halves[0] - halves[1]) / 2
        return ReferenceValue(np.asarray(log_z), sd=float(sd), noise=float(noise))


class _Anchored:
    """States drawn at the posterior mean, and along its main axes where these are few.

    Two rules from independent draws; the reference is their mean.  They know log Z up to a
    constant, on which no posterior depends, and agree with the estimate at the posterior mean.
    """

    description = f"{2 * ANCHORED_NODES} states drawn around the posterior mean, where both agree"

    def __init__(self, rule: PottsRule | AnchoredRule, random_seed: Any):
        self.rule = rule
        self.rng = as_generator(random_seed)
        self.halves: list[AnchoredRule] = []
        self.levels: list[float] = []

    def prepare(self, inputs: Sequence[Sequence[np.ndarray]]) -> None:
        thetas = np.concatenate([np.atleast_2d(theta) for (theta,) in inputs])
        anchors = _anchors(thetas.reshape(-1, thetas.shape[-1]))
        self.halves = [
            anchored_rule_at(
                self.rule.layout,
                anchors,
                n=ANCHORED_NODES,
                n_moments=ANCHORED_NODES,
                rng=self.rng,
                constant=False,
            )
            for _ in range(2)
        ]
        level = self.rule._log_z(np, anchors[0])
        self.levels = [float(level - half._log_z(np, anchors[0])) for half in self.halves]

    def __call__(self, draw: Sequence[np.ndarray], inputs: Sequence[np.ndarray]) -> ReferenceValue:
        (theta,) = inputs
        first, second = (
            half._log_z(np, theta) + level
            for half, level in zip(self.halves, self.levels, strict=True)
        )
        points = theta.reshape(-1, theta.shape[-1])
        sd = max(
            np.sqrt(half._change_variance(np, point) / 2)
            for half in self.halves
            for point in points
        )
        if not all(half.settled for half in self.halves):
            sd = np.inf
        noise = float(np.mean(first - second) / 2)
        return ReferenceValue(np.asarray((first + second) / 2), sd=float(sd), noise=noise)


def _anchors(thetas: np.ndarray) -> np.ndarray:
    """Return the mean of parameter vectors, and points along the axes of their spread."""
    centre = thetas.mean(axis=0)
    _, singular, axes = np.linalg.svd(thetas - centre, full_matrices=False)
    sds = singular / np.sqrt(max(len(thetas) - 1, 1))
    main = sds > 1e-6 * max(sds.max(), 1e-12)
    if len(thetas) < 3 or main.sum() > MOST_AXES:
        return centre[None]
    steps = 1.5 * sds[main, None] * axes[main]
    return np.concatenate([centre[None], centre + steps, centre - steps])


def _log_sum(logs: np.ndarray) -> np.ndarray:
    """Return the log of the sum of exponentials over the last axis."""
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
