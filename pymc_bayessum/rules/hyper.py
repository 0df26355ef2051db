"""Empirical Bayes: which kernel, and how large, do the values themselves speak for.

The log marginal likelihood of values y under a zero-mean Gaussian process with kernel A k is

    -1/2 y'K^-1 y / A - N/2 log A - 1/2 log det K - N/2 log(2 pi),

largest in A at A = y'K^-1 y / N, which leaves

    -N/2 (1 + log(2 pi A)) - 1/2 log det K

to be compared between kernels.
"""

import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from pymc_bayessum.arguments import reals
from pymc_bayessum.kernels import Kernel
from pymc_bayessum.measures.supports import Points, batch_size
from pymc_bayessum.rules.rule import distinct_points
from pymc_bayessum.solve import MeanSpaceGram, factorize

__all__ = ["Selection", "best_of", "select_kernel"]

#: Points of the grid, in each direction, from which a continuous search starts.
START_POINTS = {1: 13, 2: 6}

#: A parameter this close to its bound, as a fraction of the range, counts as on it.
EDGE_FRACTION = 1e-3


@dataclass(frozen=True, eq=False)
class Selection:
    """The kernel that empirical Bayes picks.

    Attributes
    ----------
    kernel : Kernel
        The best candidate, of amplitude one.
    amplitude : float
        Its closed-form amplitude y'K^-1 y / N; ``amplitude * kernel`` is the fitted kernel.
    log_marginal : float
        Its log marginal likelihood: where the kernel leaves polynomials free, that of what they do
        not explain.
    kernels : tuple of Kernel
        All candidates, or all kernels the search looked at.
    log_marginals : ndarray
        Their log marginal likelihoods.
    at_edge : bool
        Whether the best lies at the end of a family ordered by one parameter, or on a bound.
    """

    kernel: Kernel
    amplitude: float
    log_marginal: float
    kernels: tuple[Kernel, ...] = field(repr=False)
    log_marginals: np.ndarray = field(repr=False)
    at_edge: bool = False


def select_kernel(
    kernels: Sequence[Kernel] | Callable[..., Kernel],
    nodes: Points,
    values: Any,
    bounds: Any = None,
    jitter: float | None = None,
) -> Selection:
    """Pick the kernel of largest marginal likelihood, amplitude profiled out.

    Parameters
    ----------
    kernels : sequence of Kernel, or a callable
        Candidates; or a function that makes a kernel of one or more positive parameters, such as
        ``ExpHamming`` or ``lambda scale: Matern(2.5, scale)``, to be searched within ``bounds``.
    nodes : batch of N distinct points
    values : array_like of shape (N,)
        The function at the nodes, not all zero.
    bounds : pair of float, or sequence of pairs, optional
        Lower and upper bound of each parameter, positive; the search is on the log scale, from
        the best point of a grid. Only with a callable.
    jitter : float, optional
        As in `bayes_sum`.

    Warns
    -----
    UserWarning
        When the best of three or more candidates of one family, ordered by one parameter, is its
        first or last, or the search ends on a bound: the best parameter is likely outside.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum.kernels import Matern
    >>> x = np.arange(0, 40, 2)
    >>> y = np.sin(x / 5.0)
    >>> candidates = [Matern(2.5, scale) for scale in (1.0, 10.0, 1000.0)]
    >>> select_kernel(candidates, x, y).kernel.lengthscale
    10.0
    >>> found = select_kernel(lambda scale: Matern(2.5, scale), x, y, bounds=(1.0, 1000.0))
    >>> 1.0 < found.kernel.lengthscale < 1000.0
    True
    """
    nodes, y = _checked(nodes, values)
    if isinstance(kernels, Kernel):
        raise TypeError(f"kernels must be several kernels or a function, got {kernels!r} alone")
    if callable(kernels):
        return _search(kernels, nodes, y, _checked_bounds(bounds), jitter)
    if bounds is not None:
        raise ValueError("bounds go with a function that makes kernels, not with candidates")
    candidates = tuple(kernels)
    if not candidates:
        raise ValueError("kernels must hold at least one kernel, got none")
    for kernel in candidates:
        if not isinstance(kernel, Kernel):
            raise TypeError(f"kernels must hold kernels only, got {kernel!r}")
    selection = best_of(candidates, nodes, y, jitter=jitter)
    if selection.at_edge:
        _warn_edge(f"{selection.kernel}, the end of its family")
    return selection


def best_of(
    kernels: Sequence[Kernel],
    nodes: Points,
    values: np.ndarray,
    columns: np.ndarray | None = None,
    jitter: float | None = None,
) -> Selection:
    """Pick among candidates, without checks or warnings, and with any functions in the mean.

    With ``columns`` (N, P), functions at the nodes whose coefficients are unknown, the likelihood
    is the restricted one: of what they do not explain.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum.kernels import Matern
    >>> x = np.arange(0, 40, 2)
    >>> candidates = [Matern(2.5, scale) for scale in (1.0, 10.0)]
    >>> best_of(candidates, x, 50.0 + np.sin(x / 5.0), np.ones((20, 1))).kernel.lengthscale
    10.0
    """
    candidates = tuple(kernels)
    profiles = [_profile(kernel, nodes, values, jitter, columns) for kernel in candidates]
    if len({informative for _, _, informative in profiles}) > 1:
        raise ValueError(
            "kernels must leave the same polynomials free for their likelihoods to be comparable, "
            f"got {', '.join(map(str, candidates))}"
        )
    scores = np.array([score for score, _, _ in profiles])
    best = int(np.argmax(scores))
    at_edge = _at_edge(candidates, best)
    return Selection(
        candidates[best], profiles[best][1], float(scores[best]), candidates, scores, at_edge
    )


def _search(
    make: Callable[..., Kernel],
    nodes: Points,
    y: np.ndarray,
    bounds: list[list[float]],
    jitter: float | None,
) -> Selection:
    """Bounded search on the log scale from the best point of a grid."""
    seen: list[tuple[Kernel, float, float]] = []

    def loss(log_parameters: np.ndarray) -> float:
        kernel = make(*(float(value) for value in np.exp(log_parameters)))
        if not isinstance(kernel, Kernel):
            raise TypeError(f"kernels must return a kernel, got {kernel!r}")
        score, amplitude, _ = _profile(kernel, nodes, y, jitter)
        seen.append((kernel, amplitude, score))
        return -score

    low, high = np.log(np.array(bounds)).T
    axes = np.linspace(low, high, START_POINTS.get(len(bounds), 4)).T
    grid = np.array(list(itertools.product(*axes)))
    start = grid[int(np.argmin([loss(point) for point in grid]))]
    # At the upper bound the step must go down.
    step = np.where(start < high, 0.4, -0.4) * (axes[:, 1] - axes[:, 0])
    simplex = np.vstack([start, start + np.diag(step)])
    # Jitter that comes and goes makes gradients unreliable; a simplex search does not ask for any.
    result = minimize(
        loss,
        start,
        method="Nelder-Mead",
        bounds=list(zip(low, high, strict=True)),
        options={"initial_simplex": simplex, "xatol": 1e-4, "fatol": 1e-6, "maxiter": 400},
    )
    place = (result.x - low) / (high - low)
    at_edge = bool(((place < EDGE_FRACTION) | (place > 1.0 - EDGE_FRACTION)).any())
    kernel, amplitude, score = max(seen, key=lambda item: item[2])
    if at_edge:
        _warn_edge(f"{kernel}, on the bounds {bounds}")
    scores = np.array([item[2] for item in seen])
    return Selection(kernel, amplitude, score, tuple(item[0] for item in seen), scores, at_edge)


def _profile(
    kernel: Kernel,
    nodes: Points,
    y: np.ndarray,
    jitter: float | None,
    columns: np.ndarray | None = None,
) -> tuple[float, float, int]:
    """Log marginal likelihood, amplitude and number of informative directions."""
    gram = factorize(kernel, nodes, jitter)
    if columns is not None:
        gram = MeanSpaceGram(gram, columns)
    count = gram.n_informative
    if count == 0:
        raise ValueError(
            f"nodes: {kernel} leaves as many polynomials free as there are nodes ({len(y)}), so "
            "nothing is left to judge it by"
        )
    amplitude = float(gram.quadratic_form(y)) / count
    with np.errstate(divide="ignore"):
        log_amplitude = float(np.log(amplitude))
    score = -0.5 * count * (1.0 + math.log(2.0 * math.pi) + log_amplitude) - 0.5 * gram.log_det
    return score, amplitude, count


def _checked(nodes: Points, values: Any) -> tuple[Points, np.ndarray]:
    points = distinct_points(None, nodes)
    count = batch_size(points)
    y = np.asarray(values)
    if y.dtype.kind not in "iufb":
        raise TypeError(f"values must be real numbers, got an array of dtype {y.dtype}")
    if y.shape != (count,):
        raise ValueError(f"values must have shape ({count},) like the nodes, got {y.shape}")
    if not np.isfinite(y).all():
        raise ValueError("values must be finite, got NaN or infinity among them")
    if not y.any():
        raise ValueError("values must not all be zero: every amplitude would fit them")
    return points, y.astype(float)


def _checked_bounds(bounds: Any) -> list[list[float]]:
    if bounds is None:
        raise ValueError("bounds must be given with a function that makes kernels")
    pairs = np.atleast_2d(reals("bounds", bounds, (1, 2))).tolist()
    for pair in pairs:
        if len(pair) != 2:
            raise ValueError(f"bounds must be one pair (low, high) or several, got {bounds!r}")
        if not 0.0 < pair[0] < pair[1]:
            raise ValueError(f"bounds must satisfy 0 < low < high, got {tuple(pair)}")
    return pairs


def _at_edge(kernels: tuple[Kernel, ...], best: int) -> bool:
    """Whether three or more kernels differ in one number alone, and the best has its extreme."""
    kind = type(kernels[0])
    if len(kernels) < 3 or not is_dataclass(kind) or any(type(k) is not kind for k in kernels):
        return False
    columns = [[getattr(kernel, item.name) for kernel in kernels] for item in fields(kind)]
    varied = [column for column in columns if any(v != column[0] for v in column)]
    if len(varied) != 1 or not all(isinstance(v, (int, float)) for v in varied[0]):
        return False
    return varied[0][best] in (min(varied[0]), max(varied[0]))


def _warn_edge(where: str) -> None:
    warnings.warn(
        f"the marginal likelihood is largest at {where}; a better kernel may lie beyond: widen the "
        "candidates or bounds",
        UserWarning,
        stacklevel=3,
    )
