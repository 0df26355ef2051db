r"""Discrete Stein kernels: kernels whose mean under an unnormalised distribution is zero.

States of a site are turned in a circle, :math:`\neg s = s + 1 \bmod S`. With :math:`\neg_i x` the
vector x whose site i is turned and :math:`\neg_i^{-1}` its inverse, the difference operators are

.. math:: \Delta_i f(x) = f(x) - f(\neg_i x), \qquad \Delta_i^* f(x) = f(x) - f(\neg_i^{-1} x),

adjoint to each other under plain summation, and the score of a positive p is
:math:`s_i(x) = \Delta_i p(x) / p(x)`, which needs no normalising constant. For every function g

.. math:: \mathrm{E}_p[s_i(X) g(X) - \Delta_i^* g(X)] = 0,

and the Stein operator applied to both arguments of a base kernel is a kernel with zero mean
(Yang, Liu, Rao and Neville, "Goodness-of-fit testing for discrete distributions via Stein
discrepancy", 2018).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, override

import numpy as np

from pymc_bayessum.arguments import function, integer
from pymc_bayessum.kernels.base import Blocks, Kernel, Scaled, Sum, require_kernel
from pymc_bayessum.kernels.sites import ExpHamming, hamming, same_sites
from pymc_bayessum.measures.supports import Points, Sites, Support, numbers, take

__all__ = ["Stein", "as_states", "score", "turn"]

#: Above this many states one comparison a site is cheaper than a product of indicators.
INDICATOR_STATES = 8

#: Points taken at a time where only the diagonal of a Gram matrix is wanted.
DIAGONAL_BLOCK = 64


def as_states(name: str, points: Points, n_states: int) -> np.ndarray:
    """Return points as integers (N, L) with states 0, ..., n_states - 1, or raise."""
    x = numbers(points, 2, name=name)
    if x.shape[1] == 0:
        raise ValueError(f"{name} must have at least one site, got shape {x.shape}")
    support = Sites(x.shape[1], n_states)
    outside = ~support.contains(x)
    if outside.any():
        raise ValueError(
            f"{name} must hold states 0, ..., {n_states - 1}, got {x[outside][0]} (spins are "
            "2 * state - 1: translate inside log_prob)"
        )
    return support.as_points(x)


def turn(x: np.ndarray, site: int, n_states: int, step: int = 1) -> np.ndarray:
    """Return points (N, L) with one site turned by ``step`` states, -1 for the inverse turn.

    Examples
    --------
    >>> import numpy as np
    >>> turn(np.array([[0, 2]]), 1, n_states=3).tolist()
    [[0, 0]]
    """
    turned = x.copy()
    turned[:, site] = (turned[:, site] + step) % n_states
    return turned


def score(log_prob: Callable[[np.ndarray], Any], x: Points, n_states: int) -> np.ndarray:
    r"""Difference score of an unnormalised distribution.

    .. math:: s_i(x) = \frac{p(x) - p(\neg_i x)}{p(x)} = 1 - e^{\log p(\neg_i x) - \log p(x)}

    ``log_prob`` is a log-probability up to a constant, from integer points (N, L) to (N,), finite
    at these. A compiled PyTensor function of one integer matrix, or of one integer vector (then
    called point by point), will do.

    Examples
    --------
    >>> import numpy as np
    >>> score(lambda x: np.log(0.25 + 0.5 * x[:, 0]), [[0], [1]], n_states=2).round(3).tolist()
    [[-2.0], [0.667]]
    """
    states = as_states("x", x, integer("n_states", n_states, 2))
    here = _evaluate(log_prob, states)
    if not np.isfinite(here).all():
        worst = int(np.flatnonzero(~np.isfinite(here))[0])
        raise ValueError(
            f"log_prob must be finite at the points of a Stein kernel, got {here[worst]} at "
            f"{states[worst]}"
        )
    out = np.empty(states.shape)
    for site in range(states.shape[1]):
        there = _evaluate(log_prob, turn(states, site, n_states))
        with np.errstate(over="ignore"):
            out[:, site] = -np.expm1(there - here)
    if not np.isfinite(out).all():
        worst, site = (int(i[0]) for i in np.nonzero(~np.isfinite(out)))
        raise ValueError(
            f"the score overflows at {states[worst]}: turning site {site} changes log_prob by more "
            "than floating-point numbers can hold, or to NaN"
        )
    return out


def _evaluate(log_prob: Callable[[np.ndarray], Any], x: np.ndarray) -> np.ndarray:
    """Values (N,) of a function on points, whether it takes a batch or one point at a time."""
    # A compiled PyTensor function says of its first input what it takes.
    graph = getattr(getattr(log_prob, "maker", None), "fgraph", None)
    if graph is not None:
        x = x.astype(graph.inputs[0].type.dtype)
    if graph is not None and graph.inputs[0].type.ndim == 1:
        values = [_single(log_prob(row)) for row in x]
    else:
        values = _single(log_prob(x))
    array = np.asarray(values, dtype=float)
    if array.shape != (len(x),):
        raise ValueError(
            f"log_prob must map points of shape {x.shape} to values of shape ({len(x)},), got "
            f"shape {array.shape}"
        )
    return array


def _single(output: Any) -> Any:
    # A compiled PyTensor function with a list of outputs returns a list.
    return output[0] if isinstance(output, (list, tuple)) and len(output) == 1 else output


class Scored(NamedTuple):
    """Points with their score: all that a Stein kernel needs to know of p."""

    points: np.ndarray
    score: np.ndarray


@dataclass(frozen=True)
class Stein(Kernel):
    r"""Stein kernel of an unnormalised distribution on sites: its mean under p is zero.

    .. math::

        k_p(x, y) = \sum_i s_i(x) s_i(y) k(x, y) - s_i(x) \Delta^*_{y_i} k(x, y)
                    - s_i(y) \Delta^*_{x_i} k(x, y) + \Delta^*_{x_i} \Delta^*_{y_i} k(x, y)

    with the score :math:`s_i` and backward difference :math:`\Delta^*` of
    the module. p must be positive everywhere. For `ExpHamming`, with
    :math:`r = e^{-\lambda}`, a turn of one site changes k by a factor, and

    .. math::

        k_p(x, y) = k(x, y) \sum_i s_i(x) s_i(y) + (1 - s_i(x)) u_i + (1 - s_i(y)) v_i,

        u_i = (1 - r) [x_i = y_i] + (1 - r^{-1}) [x_i + 1 = y_i], \quad
        v_i = (1 - r) [x_i = y_i] + (1 - r^{-1}) [y_i + 1 = x_i],

    which costs O(L) a pair; sums and multiples of such kernels are split up. Any other base is
    evaluated 3 L + 1 times a pair.

    Parameters
    ----------
    base : Kernel
        A kernel on sites.
    log_prob : callable
        Log-probability up to a constant, from integer points (N, L) to (N,); see
        `pymc_bayessum.kernels.stein.score`.
    n_states : int
        States of each site, at least two.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum.kernels import ExpHamming, Stein
    >>> p = np.array([0.2, 0.3, 0.5])
    >>> k = Stein(ExpHamming(0.5), lambda x: np.log(p[x[:, 0]]), n_states=3)
    >>> bool(np.allclose(p @ k([[0], [1], [2]], [[0], [1], [2]]), 0.0, atol=1e-14))
    True
    """

    base: Kernel = field(metadata={"check": require_kernel})
    log_prob: Callable[[np.ndarray], Any] = field(metadata={"check": function})
    n_states: int = field(metadata={"check": partial(integer, minimum=2)})

    growth = 0.0

    @override
    def __call__(self, x: Points, y: Points) -> np.ndarray:
        scored = self.scored(x)
        return self.gram(scored, scored if y is x else self.scored(y))

    @override
    def diagonal(self, x: Points) -> np.ndarray:
        return _diagonal(self.base, self.scored(x), self.n_states)

    @override
    def accepts(self, support: Support) -> bool:
        return (
            isinstance(support, Sites)
            and support.n_states == self.n_states
            and self.base.accepts(support)
        )

    @override
    def on(self, points: Points) -> Blocks:
        # The score is dear and shared by all blocks.
        scored = self.scored(points)
        return lambda i, j: self.gram(Scored(*take(scored, i)), Scored(*take(scored, j)))

    def scored(self, points: Points) -> Scored:
        """Check points and add their score, so that many blocks can be built from one score."""
        states = as_states("points", points, self.n_states)
        return Scored(states, score(self.log_prob, states, self.n_states))

    def gram(self, x: Scored, y: Scored) -> np.ndarray:
        """Gram matrix (N, M) of points whose score is known."""
        same_sites(x.points, y.points)
        return _gram(self.base, x, y, self.n_states)


def _gram(base: Kernel, x: Scored, y: Scored, n_states: int) -> np.ndarray:
    if isinstance(base, Scaled):
        return base.scale * _gram(base.base, x, y, n_states)
    if isinstance(base, Sum):
        return _gram(base.first, x, y, n_states) + _gram(base.second, x, y, n_states)
    if isinstance(base, ExpHamming):
        return _exp_hamming_gram(base, x, y, n_states)
    k = base(x.points, y.points)
    out = (x.score @ y.score.T) * k
    for site in range(x.points.shape[1]):
        x_back, y_back = (turn(z.points, site, n_states, -1) for z in (x, y))
        k_x, k_y = base(x_back, y.points), base(x.points, y_back)
        out -= x.score[:, site, None] * (k - k_y) + (k - k_x) * y.score[None, :, site]
        out += k - k_x - k_y + base(x_back, y_back)
    return out


def _exp_hamming_gram(base: ExpHamming, x: Scored, y: Scored, n_states: int) -> np.ndarray:
    same, turned = -np.expm1(-base.decay), -np.expm1(base.decay)
    out = x.score @ y.score.T
    n_sites = x.points.shape[1]
    if n_states <= INDICATOR_STATES:
        # One product of indicators at BLAS speed: [x_i = y_i] is a sum over states.
        hot_x, hot_y = (_indicators(z.points, n_states) for z in (x, y))
        factor_x, factor_y = (
            np.repeat(1.0 - z.score, n_states, axis=1)
            * (same * hot + turned * _indicators((z.points + 1) % n_states, n_states))
            for z, hot in ((x, hot_x), (y, hot_y))
        )
        out += np.hstack([factor_x, hot_x]) @ np.hstack([hot_y, factor_y]).T
        distance = n_sites - hot_x @ hot_y.T
    else:
        distance = hamming(x.points, y.points)
        for site in range(n_sites):
            step = (y.points[None, :, site] - x.points[:, site, None]) % n_states
            left, right = 1.0 - x.score[:, site, None], 1.0 - y.score[None, :, site]
            out += np.where(step == 0, same * (left + right), 0.0)
            out += np.where(step == 1, turned * left, 0.0)
            out += np.where(step == n_states - 1, turned * right, 0.0)
    return out * np.exp(-base.decay * distance)


def _indicators(x: np.ndarray, n_states: int) -> np.ndarray:
    return (x[:, :, None] == np.arange(n_states)).reshape(len(x), -1).astype(float)


def _diagonal(base: Kernel, x: Scored, n_states: int) -> np.ndarray:
    if isinstance(base, Scaled):
        return base.scale * _diagonal(base.base, x, n_states)
    if isinstance(base, Sum):
        return _diagonal(base.first, x, n_states) + _diagonal(base.second, x, n_states)
    if isinstance(base, ExpHamming):
        same = -np.expm1(-base.decay)
        return (x.score**2 + 2.0 * same * (1.0 - x.score)).sum(axis=1)
    out = np.empty(len(x.points))
    for i in range(0, len(out), DIAGONAL_BLOCK):
        part = Scored(*take(x, slice(i, i + DIAGONAL_BLOCK)))
        out[i : i + DIAGONAL_BLOCK] = np.diagonal(_gram(base, part, part, n_states))
    return out
