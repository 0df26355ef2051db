r"""Natural splines and Matérn kernels on the line in O(N): rules with thousands of nodes.

Both kernels belong to processes f that solve :math:`(D + \lambda)^n f = \text{white noise}` in
t(x): the order-fold integrated Brownian motion with n = order + 1, rate zero and a free
polynomial, and the stationary Matérn process with n = nu + 1/2. Write g = exp(lambda t) f. Every
n-th divided difference of g at neighbouring nodes is an integral of white noise against one
B-spline of degree n - 1 (C. de Boor, A Practical Guide to Splines, 1978; for the rate zero this is
C. Reinsch's form of the smoothing spline). So with T the matrix of these differences,

    M = T K T'    is banded, and its entries are integrals of products of B-splines,

positive and computed without cancellation, and its condition number does not grow with N, while
that of K does, beyond what double precision bears.

The sum S over the integers is split in the same way. Between nodes f(x) is first interpolated by
the n nodes around x, which gives local weights w0; what is left, f(x) less its interpolant, is
again a divided difference, an integral of white noise against a B-spline with the extra knot x.
With kappa the covariances of these remainders with the differences T y,

    w = w0 + T' M^-1 kappa,

and the variance is the squared norm of what remains of the sum's noise integrand, so it cannot be
negative. Nothing is ever subtracted that is large against its result; with a jitter differences
of the values enter M too, and on graded nodes the weights of smooth kernels keep some six digits.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import override

import numpy as np
from scipy.linalg import cho_solve_banded, cholesky_banded, solve_banded
from scipy.sparse import csr_array

from pymc_bayessum.embeddings.long_sums import counting_gauss
from pymc_bayessum.kernels import IntegratedBrownian, Matern
from pymc_bayessum.measures import Counting, IntegerMeasure, Measure
from pymc_bayessum.measures.supports import Points
from pymc_bayessum.solve.gram import Gram
from pymc_bayessum.solve.panels import (
    Frame,
    Remainder,
    discrete_gauss,
    extra_points,
    panel_count,
)
from pymc_bayessum.solve.process import MarkovProcess
from pymc_bayessum.solve.registry import Solution, register

__all__ = ["MarkovGram", "solve_process"]

#: More panels than this are not worth it: the Gram matrix is then well-conditioned anyway.
PANEL_LIMIT = 40_000

#: Points that stand for the integers of one panel when only the variance is asked for. Its
#: integrand has a kink at each of them, which costs a relative (1 / points)^(2 n).
VARIANCE_POINTS = {1: 48, 2: 12}


@dataclass(frozen=True, eq=False)
class MarkovGram(Gram):
    """A Gram matrix held as M = T K T', banded, in the differences T of sorted nodes.

    Row i of ``differences`` (N, n + 1) holds the coefficients of the nodes i - n, ..., i in rising
    order (``order`` has their positions). M is factorised (Cholesky, lower banded form) on the rows
    from ``first`` on: n where polynomials are free, since the first n differences then say nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum.kernels import Matern
    >>> kernel, nodes = Matern(2.5, 4.0), np.arange(5)
    >>> gram = solve_process(MarkovProcess.of_matern(kernel), None, nodes).gram
    >>> y = np.array([1.0, 0.0, 2.0, 1.0, 3.0])
    >>> exact = y @ np.linalg.solve(kernel(nodes, nodes), y)
    >>> bool(abs(gram.quadratic_form(y) - exact) < 1e-9 * exact)
    True
    """

    order: np.ndarray = field(repr=False)
    differences: np.ndarray = field(repr=False)
    factor: np.ndarray = field(repr=False)
    first: int
    jitter: float = 0.0

    @classmethod
    def of_frame(cls, frame: Frame, order: np.ndarray, jitter: float) -> "MarkovGram":
        """Factorise on the nodes of a frame (at least n of them where polynomials are free)."""
        n = frame.process.n
        band = frame.noise_gram()
        first = n if frame.process.is_free else 0
        rows = frame.differences
        if jitter:
            band = np.vstack([band, np.zeros((1, len(order)))])
            for gap in range(n + 1):
                shared = rows[gap:, : n + 1 - gap] * rows[: len(rows) - gap, gap:]
                band[gap, : len(rows) - gap] += jitter * shared.sum(axis=1)
        band = band[:, first:]
        factor = cholesky_banded(band, lower=True) if band.shape[1] else band
        return cls(order, rows, factor, first, jitter)

    @property
    @override
    def n_informative(self) -> int:
        return len(self.order) - self.first

    @property
    @override
    def log_det(self) -> float:
        """Logarithm of det(K + jitter * I).

        With free polynomials, of the covariance of the differences, scaled so that the newest
        node of each has coefficient one: comparable between kernels of one order only.
        """
        newest = np.abs(self.differences[self.first :, -1])
        return 2.0 * float(np.log(self.factor[0]).sum() - np.log(newest).sum())

    @cached_property
    def matrix(self) -> csr_array:
        """T from row ``first`` on, for nodes in rising order, shape (N - first, N)."""
        count, n = len(self.order), self.differences.shape[1] - 1
        column = np.arange(count)[:, None] + np.arange(-n, 1)
        row, place = np.nonzero(column >= 0)
        entries = self.differences[row, place], (row, column[row, place])
        return csr_array(entries, shape=(count, count))[self.first :]

    def solve_differences(self, vector: np.ndarray) -> np.ndarray:
        """Return M^-1 v for v of shape (N - first, ...)."""
        return cho_solve_banded((self.factor, True), vector) if len(vector) else vector

    @override
    def whiten(self, values: np.ndarray) -> np.ndarray:
        """Return the differences of ``values`` over the last axis, made independent."""
        y = np.asarray(values, float)
        z = self.matrix @ y.reshape(-1, y.shape[-1]).T[self.order]
        if z.size:
            z = solve_banded((len(self.factor) - 1, 0), self.factor, z)
        return z.T.reshape(*y.shape[:-1], self.n_informative)


def solve_process(
    process: MarkovProcess,
    measure: IntegerMeasure | None,
    nodes: np.ndarray,
    jitter: float | None = None,
) -> Solution | None:
    """Weights, posterior variance and Gram matrix of a process, its values with noise ``jitter``.

    ``None`` where this way does not pay or does not work: too many panels, a measure that cannot be
    listed, or a transform that does not increase.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum.kernels import IntegratedBrownian
    >>> from pymc_bayessum.measures import Counting
    >>> process = MarkovProcess.of_spline(IntegratedBrownian(1))
    >>> solution = solve_process(process, Counting(8), np.array([0, 1, 2, 4, 6, 8]))
    >>> bool(abs(solution.weights.sum() - 9.0) < 1e-12)
    True
    """
    jitter = jitter or 0.0
    order = np.argsort(nodes, kind="stable")
    x = nodes[order].astype(float)
    t = process.warp(x)
    if not (np.isfinite(t).all() and (np.diff(t) > 0).all()):
        return None
    low, high = t[0], t[-1]
    atoms = None
    if measure is not None:
        atoms = Atoms.of_measure(process, measure, x)
        if atoms is None:
            return None
        first, last = process.warp(np.array(atoms.ends))
        low, high = min(low, first), max(high, last)
    if panel_count(process, low, high, len(t)) > PANEL_LIMIT:
        return None
    frame = Frame.of_nodes(process, t, low, high)
    gram = MarkovGram.of_frame(frame, order, jitter)
    if atoms is None:
        return Solution(gram)
    points, masses = atoms.condensed(frame, _points_per_panel(frame))
    remainder = Remainder.of_points(frame, points, masses)
    local = atoms.at_nodes + remainder.local_weights
    target = remainder.covariances()[gram.first :]
    if jitter:
        target = target - jitter * (gram.matrix @ local)
    solved = gram.solve_differences(target)
    weights = np.empty(len(x))
    weights[order] = local + gram.matrix.T @ solved
    coefficients = np.concatenate([np.zeros(gram.first), solved])
    stand_ins = atoms.condensed(frame, VARIANCE_POINTS.get(process.n, 6))
    remainder = remainder.with_points(*stand_ins)
    variance = remainder.squared_norm(coefficients) + jitter * float(weights @ weights)
    return Solution(gram, weights, variance)


@register(Matern, IntegerMeasure)
def solve_matern(
    kernel: Matern, measure: IntegerMeasure | None, points: Points, jitter: float | None
) -> Solution | None:
    """Solve in the differences of the stationary process."""
    nodes = np.asarray(points)
    if nodes.ndim != 1:
        return None
    return solve_process(MarkovProcess.of_matern(kernel), measure, nodes, jitter)


@register(IntegratedBrownian, Measure)
def solve_spline(
    kernel: IntegratedBrownian, measure: Measure | None, points: Points, jitter: float | None
) -> Solution | None:
    """Solve in the differences that free polynomials leave; no other way holds these."""
    process, nodes = MarkovProcess.of_spline(kernel), np.asarray(points)
    solution = None
    if nodes.ndim == 1 and (measure is None or isinstance(measure, IntegerMeasure)):
        if measure is not None and len(nodes) < process.n:
            raise ValueError(
                f"nodes: a kernel with free polynomials of degree {process.n - 1} needs at least "
                f"{process.n} nodes, got {len(nodes)}"
            )
        solution = solve_process(process, measure, nodes, jitter)
    if solution is None and measure is not None:
        raise ValueError(
            f"{kernel} leaves polynomials free, which is done for measures on the integers that "
            f"can be listed, got {measure}"
        )
    return solution


def _points_per_panel(frame: Frame) -> int:
    """Gauss points that sum products of integrands over the integers of a panel to rounding.

    Between nodes the covariances are polynomials of degree 2 n - 1 in t, for which n points are
    exact, times exponentials; a transform adds a slowly varying factor.
    """
    process = frame.process
    widest = process.rate * float(np.max(frame.right - frame.left, initial=0.0))
    # A few points more cost little and let short gaps keep their integers.
    return max(process.n + extra_points(widest), 6)


@dataclass(frozen=True, eq=False)
class Atoms:
    """The integers a sum runs over: the nodes, in rising order, with masses, and those beside them.

    The latter are listed with their masses or, where that is ``None``, all up to the ends of mass
    one.
    """

    nodes: np.ndarray = field(repr=False)
    at_nodes: np.ndarray = field(repr=False)
    listed: tuple[np.ndarray, np.ndarray] | None = field(repr=False)
    ends: tuple[float, float]

    @classmethod
    def of_measure(
        cls, process: MarkovProcess, measure: IntegerMeasure, nodes: np.ndarray
    ) -> "Atoms | None":
        """Collect what a measure sums over; ``None`` when there is too much of it."""
        if isinstance(measure, Counting) and process.unwarp is not None:
            ends = (0.0, float(measure.maximum))
            return cls(nodes, np.ones(len(nodes)), None, ends)
        listed = measure.listed(int(nodes[-1]), growth=float(process.n - 1))
        if listed is None:
            return None
        x, mass = listed[0].astype(float), np.exp(listed[1])
        if not (np.diff(process.warp(x)) > 0).all():
            return None
        place = np.clip(np.searchsorted(nodes, x), 0, len(nodes) - 1)
        is_node = nodes[place] == x
        at_nodes = np.zeros(len(nodes))
        at_nodes[place[is_node]] = mass[is_node]
        keep = ~is_node & (mass > 0.0)
        return cls(nodes, at_nodes, (x[keep], mass[keep]), (x[0], x[-1]))

    def condensed(self, frame: Frame, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Replace the integers in each panel by at most ``count`` points: a discrete Gauss rule.

        It is exact for polynomials of degree 2 count - 1 in t, or in x where t(x) is nearly a
        polynomial itself. Panels with fewer integers keep them; empty places hold the panel's
        middle with mass zero. Points (in t) and masses have shape (P, count).
        """
        middle = 0.5 * (frame.left + frame.right)
        points = np.repeat(middle[:, None], count, axis=1)
        masses = np.zeros((len(middle), count))
        if self.listed is None:
            self._fill_range(frame, points, masses)
        else:
            t, mass = frame.process.warp(self.listed[0]), self.listed[1]
            panel = np.clip(np.searchsorted(frame.left, t, side="right") - 1, 0, len(middle) - 1)
            _fill_panels(points, masses, panel, t, mass)
        return points, masses

    def _fill_range(self, frame: Frame, points: np.ndarray, masses: np.ndarray) -> None:
        """Take unit masses on consecutive integers, whose orthogonal polynomials are known."""
        process = frame.process
        assert process.unwarp is not None
        low = np.floor(process.unwarp(frame.left)) + 1.0
        high = np.floor(process.unwarp(frame.right))
        # The map back need not return the integer it started from.
        at = np.clip(frame.cell, 0, len(self.nodes) - 1)
        low = np.where(frame.left == frame.t[at], self.nodes[at] + 1.0, low)
        after = np.clip(frame.cell + 1, 0, len(self.nodes) - 1)
        high = np.where(frame.right == frame.t[after], self.nodes[after] - 1.0, high)
        low[0] = low[0] if frame.cell[0] >= 0 else self.ends[0]
        high[-1] = high[-1] if frame.cell[-1] < len(self.nodes) - 1 else self.ends[1]
        size = np.maximum(high - low + 1.0, 0.0).astype(int)
        count = points.shape[1]
        # Where the transform bends sharply, as the root does near zero, sum in t itself.
        steep = (high > 2.0 * low) & (not process.is_linear)
        many = np.flatnonzero((size > count) & ~steep)
        sizes, group = np.unique(size[many], return_inverse=True)
        offset, mass = counting_gauss(sizes, count)
        gauss = 0.5 * (low + high)[many, None] + offset[group]
        points[many] = process.warp(gauss.ravel()).reshape(gauss.shape)
        masses[many] = mass[group]
        size[many] = 0
        panel = np.repeat(np.arange(len(size)), size)
        x = low[panel] + np.arange(len(panel)) - (np.cumsum(size) - size)[panel]
        _fill_panels(points, masses, panel, process.warp(x), np.ones(len(x)))


def _fill_panels(
    points: np.ndarray, masses: np.ndarray, panel: np.ndarray, t: np.ndarray, mass: np.ndarray
) -> None:
    """Put masses at sorted points into their panels: as they are, or many as their Gauss rule."""
    size = np.bincount(panel, minlength=len(points))
    first = np.cumsum(size) - size
    few = size[panel] <= points.shape[1]
    place = panel[few], (np.arange(len(t)) - first[panel])[few]
    points[place], masses[place] = t[few], mass[few]
    for p in np.flatnonzero(size > points.shape[1]):
        own = slice(first[p], first[p] + size[p])
        points[p], masses[p] = discrete_gauss(t[own], mass[own], points.shape[1])
