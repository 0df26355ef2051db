"""From any kernel and measure to their embedding: sums, mixtures, products, images."""

import math
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

import numpy as np

from pymc_bayessum.embeddings.algebra import expand, sides
from pymc_bayessum.embeddings.polynomial import polynomial_error, raw_moments
from pymc_bayessum.embeddings.registry import ROWS, Embedding, find_row
from pymc_bayessum.embeddings.sites import exp_hamming_cross
from pymc_bayessum.embeddings.summation import NotSummable, summed_embedding, weighted_points
from pymc_bayessum.kernels import (
    Brownian,
    ExpHamming,
    IntegratedBrownian,
    Kernel,
    Matern,
    Polynomial,
    Pullback,
    SquaredExponential,
    Tanimoto,
)
from pymc_bayessum.kernels.base import require_kernel
from pymc_bayessum.measures import Interval, Measure, Mixture, Product, Pushforward, SiteMeasure
from pymc_bayessum.measures.base import require_measure
from pymc_bayessum.measures.supports import Points, batch_size

__all__ = ["cross", "embed"]


def embed(kernel: Kernel, measure: Measure) -> Embedding:
    r"""Mean embedding and initial error of a kernel under a measure.

    .. math:: \mu(y) = \int k(x, y) P(dx), \qquad \iint k(x, x') P(dx) P(dx')

    A measure with mass other than one (``Counting``) is not normalised. Closed forms (after Kang,
    Briol, Karvonen and Chen, "BayesSum", and beyond it) are rows of a registry, which the
    documentation prints as a dictionary.

    Sums and scalings of kernels are taken apart, products merged where they can be
    (:func:`~pymc_bayessum.embeddings.algebra.multiply`). ``First``, ``Second`` and ``Tensor``
    kernels under a ``Product`` of measures use the embeddings of the parts; a ``Pullback`` by the
    inverse of a ``Pushforward`` uses those of the measure before the map. Whatever is left is
    summed exactly, when the support is finite and moderate or the tail can be bounded.

    Parameters
    ----------
    kernel : Kernel
    measure : Measure

    Raises
    ------
    ValueError
        When there is neither a closed form nor a feasible sum; the message names the pair and
        the kernels that work with the measure.

    Examples
    --------
    >>> import pymc_bayessum.embeddings as embeddings
    >>> from pymc_bayessum import kernels, measures
    >>> e = embeddings.embed(kernels.ExpHamming(0.1), measures.UniformCategorical(15, 3))
    >>> e.mean([[0] * 15]).round(6).tolist()
    [0.37413]
    """
    require_kernel("kernel", kernel)
    require_measure("measure", measure)
    if not kernel.accepts(measure.support):
        raise _no_embedding(kernel, measure, f"the kernel does not live on {measure.support}")
    parts = []
    for scale, part in expand(kernel):
        try:
            parts.append((scale, _embed_term(part, measure)))
        except NotSummable as reason:
            raise _no_embedding(part, measure, str(reason)) from None
    as_points = measure.support.as_points

    def mean(y: Points) -> np.ndarray:
        points = as_points(y)
        return np.sum([scale * part.mean(points) for scale, part in parts], axis=0)

    return Embedding(mean, lambda: math.fsum(s * part.initial_error for s, part in parts))


def _embed_term(kernel: Kernel, measure: Measure) -> Embedding:
    """Embed a kernel without sums or scales: by its row, the parts of the measure, or a sum."""
    closed = find_row(kernel, measure) or _embed_structure(kernel, measure)
    return closed or summed_embedding(kernel, measure)


def _embed_structure(kernel: Kernel, measure: Measure) -> Embedding | None:
    """Embed through the parts of a measure, or ``None`` when its structure does not help."""
    if isinstance(measure, Product):
        parts = sides(kernel)
        if parts is None:
            return None
        first, second = (
            _mass(part) if side is None else embed(side, part)
            for side, part in zip(parts, (measure.first, measure.second), strict=True)
        )
        return Embedding(
            lambda y: first.mean(y[0]) * second.mean(y[1]),
            lambda: first.initial_error * second.initial_error,
        )
    if isinstance(measure, Mixture):
        rows = [embed(kernel, part) for part in measure.measures]
        return Embedding(
            lambda y: measure.weights @ np.stack([row.mean(y) for row in rows]),
            lambda: cross(kernel, measure, measure),
        )
    if (
        isinstance(measure, Pushforward)
        and isinstance(kernel, Pullback)
        and kernel.mapping == measure.inverse
    ):
        base = embed(kernel.base, measure.measure)
        return Embedding(lambda y: base.mean(measure.inverse(y)), lambda: base.initial_error)
    return None


def _mass(measure: Measure) -> Embedding:
    """Embedding of the constant kernel."""
    mass = math.exp(measure.log_mass)
    return Embedding(lambda y: np.full(batch_size(y), mass), mass * mass)


def cross(kernel: Kernel, first: Measure, second: Measure) -> float:
    r"""Integral of a kernel under two measures, :math:`\iint k(x, x') P(dx) Q(dx')`.

    Closed for polynomial kernels (moments), for the exponential Hamming kernel under products,
    and under trees whose edges together make a forest, and for tensor kernels under products of
    measures. On an interval it is a Gauss quadrature of the closed mean embedding; elsewhere an
    exact sum of that over the points of the smaller measure.

    Examples
    --------
    >>> from pymc_bayessum import embeddings, kernels, measures
    >>> k, p = kernels.Polynomial(1), measures.Poisson(3.0)
    >>> embeddings.cross(k, p, measures.Poisson(2.0))
    7.0
    """
    return math.fsum(scale * _cross_term(part, first, second) for scale, part in expand(kernel))


def _cross_term(kernel: Kernel, first: Measure, second: Measure) -> float:
    if isinstance(first, Mixture) or isinstance(second, Mixture):
        left = _components(first)
        right = _components(second)
        return math.fsum(
            w * v * (embed(kernel, p).initial_error if p is q else cross(kernel, p, q))
            for w, p in left
            for v, q in right
        )
    if isinstance(kernel, Polynomial):
        m, n = raw_moments(first, kernel.degree), raw_moments(second, kernel.degree)
        if m is not None and n is not None:
            return polynomial_error(kernel.degree, m, n)
    if (
        isinstance(kernel, ExpHamming)
        and isinstance(first, SiteMeasure)
        and isinstance(second, SiteMeasure)
    ):
        closed = exp_hamming_cross(kernel, first, second)
        if closed is not None:
            return closed
    if isinstance(first, Product) and isinstance(second, Product):
        parts = sides(kernel)
        if parts is not None:
            return math.prod(
                math.exp(p.log_mass + q.log_mass) if side is None else cross(side, p, q)
                for side, p, q in zip(
                    parts, (first.first, first.second), (second.first, second.second), strict=True
                )
            )
    if isinstance(first.support, Interval) and isinstance(second.support, Interval):
        return _interval_mean(embed(kernel, second).mean, first.support, second.support)
    reduced = []
    reasons = []
    for here, there in ((first, second), (second, first)):
        try:
            reduced.append((*weighted_points(here, kernel.growth), there))
        except NotSummable as reason:
            reasons.append(str(reason))
    if not reduced:
        raise _no_embedding(kernel, first, reasons[0])
    points, weights, other = min(reduced, key=lambda item: len(item[1]))
    return float(weights @ embed(kernel, other).mean(points))


def _components(measure: Measure) -> list[tuple[float, Measure]]:
    if isinstance(measure, Mixture):
        return [(float(w), m) for w, m in zip(measure.weights, measure.measures, strict=True)]
    return [(1.0, measure)]


def _interval_mean(f: Callable[[np.ndarray], np.ndarray], over: Interval, other: Interval) -> float:
    """Mean of f over an interval; f is smooth but at the ends of another interval."""
    inner = [end for end in (other.low, other.high) if over.low < end < over.high]
    breaks = [over.low, *sorted(inner), over.high]
    nodes, weights = np.polynomial.legendre.leggauss(32)
    previous = math.nan
    for panels in 2 ** np.arange(2, 14):
        edges = np.concatenate([np.linspace(a, b, panels + 1) for a, b in pairwise(breaks)])
        half = 0.5 * np.diff(edges)[:, None]
        x = (edges[:-1, None] + half) + half * nodes
        total = float(np.sum(half * weights * f(x.ravel()).reshape(x.shape)))
        if abs(total - previous) <= 1e-14 * abs(total):
            break
        previous = total
    return total / (over.high - over.low)


#: One of each kind, to tell which kinds work with a measure.
_KINDS: tuple[Kernel, ...] = (
    Brownian(),
    ExpHamming(1.0),
    IntegratedBrownian(1),
    Matern(0.5, 1.0),
    Polynomial(1),
    SquaredExponential(1.0),
    Tanimoto(),
)


def _working_kernels(measure: Measure) -> str:
    """Name the kernels that :func:`embed` answers for under a measure."""
    if isinstance(measure, Product):
        first, second = _working_kernels(measure.first), _working_kernels(measure.second)
        return f"First of {first}; Second of {second}; Tensor of one of each"
    if isinstance(measure, Pushforward):
        return f"Pullback by its inverse of {_working_kernels(measure.measure)}"
    known = {type(kind) for kind in _KINDS}
    rows = [kernel for kernel, kind in ROWS.entries if isinstance(measure, kind)]
    names = {kernel.__name__ for kernel in rows if kernel not in known}
    for kind in _KINDS:
        if kind.accepts(measure.support):
            with suppress(ValueError):
                _embed_term(kind, measure)
                names.add(type(kind).__name__)
    return ", ".join(sorted(names)) or "none"


def _no_embedding(kernel: Kernel, measure: Measure, reason: str) -> ValueError:
    return ValueError(
        f"no embedding of {type(kernel).__name__} under {type(measure).__name__}: {reason}. "
        f"Kernels that work with this measure: {_working_kernels(measure)}"
    )
