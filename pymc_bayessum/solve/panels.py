"""Integrals of B-splines against one another, panel by panel: the numerical part of `banded`.

The line is cut into panels: the gaps between nodes, the stretches of the measure outside of them,
and, where the process forgets quickly, parts of these. Inside a panel every noise integrand met
here is exp(rate * u) times a polynomial, unless a point of the sum lies in that very panel, where
it is cut once more.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np
from scipy.interpolate import BSpline
from scipy.special import factorial

from pymc_bayessum.embeddings.long_sums import gauss_from_recurrence
from pymc_bayessum.solve.process import MarkovProcess

__all__ = ["Frame", "Remainder"]

#: Widest panel, in units of the process's decay: exponentials stay polynomial-like on it.
PANEL_WIDTH = 2.0

#: Panels worked on at a time.
CHUNK = 64

#: Gauss-Legendre rules are asked for over and over.
_leggauss = lru_cache(maxsize=64)(np.polynomial.legendre.leggauss)


@dataclass(frozen=True, eq=False)
class Frame:
    """Sorted nodes t (N,) of a process, the panels between them and the differences on them.

    A panel runs from ``left`` to ``right`` (P,) in the gap t[cell], t[cell + 1] (cell -1 is below
    the first node, N - 1 beyond the last) and has Gauss points u and weights du (P, G). The i-th
    difference z_i takes the nodes i - n, ..., i, and its noise integrand is the B-spline on these
    knots times exp(rate * (u - t_i)). Where polynomials are not free the first n rows hold the
    lower differences of the nodes 0, ..., i.
    """

    process: MarkovProcess
    t: np.ndarray = field(repr=False)
    left: np.ndarray = field(repr=False)
    right: np.ndarray = field(repr=False)
    cell: np.ndarray = field(repr=False)
    u: np.ndarray = field(repr=False)
    du: np.ndarray = field(repr=False)

    @classmethod
    def of_nodes(
        cls, process: MarkovProcess, t: np.ndarray, lowest: float, highest: float
    ) -> "Frame":
        """Lay out panels over the nodes and whatever of ``lowest`` to ``highest`` is outside."""
        below, beyond = lowest < t[0], highest > t[-1]
        edges = np.concatenate([[lowest] if below else [], t, [highest] if beyond else []])
        widths = np.diff(edges)
        pieces = np.maximum(np.ceil(process.rate * widths / PANEL_WIDTH), 1.0).astype(int)
        gap = np.repeat(np.arange(len(widths)), pieces)
        part = np.arange(len(gap)) - (np.cumsum(pieces) - pieces)[gap]
        left = edges[gap] + part * (widths / pieces)[gap]
        right = np.append(left, edges[-1])[1:]
        extra = extra_points(process.rate * float(np.max(right - left, initial=0.0)))
        u, du = gauss_legendre(left, right, process.n + extra)
        return cls(process, t, left, right, gap - int(below), u, du)

    @cached_property
    def differences(self) -> np.ndarray:
        """Coefficients of the differences on the nodes i - n, ..., i, shape (N, n + 1)."""
        process, t = self.process, self.t
        n, count = process.n, len(t)
        rows = np.zeros((count, n + 1))
        if count > n:
            window = np.lib.stride_tricks.sliding_window_view(t, n + 1)
            scale = math.factorial(n - 1) * (window[:, -1] - window[:, 0])
            for k in range(n + 1):
                others = np.prod(window[:, k, None] - np.delete(window, k, axis=1), axis=1)
                decay = np.exp(process.rate * (window[:, k] - window[:, -1]))
                rows[n:, k] = scale * decay / others
        if not process.is_free:
            for i in range(min(n, count)):
                for k in range(i + 1):
                    others = np.prod(t[k] - np.delete(t[: i + 1], k))
                    rows[i, n - i + k] = math.exp(process.rate * (t[k] - t[i])) / others
        return rows

    @cached_property
    def basis(self) -> np.ndarray:
        """Integrands of the differences cell + 1, ..., cell + n at u, shape (P, n, G).

        No others are alive in a panel.
        """
        process, t, cell, u = self.process, self.t, self.cell, self.u
        n, count = process.n, len(t)
        out = np.zeros((len(cell), n, u.shape[1]))
        between = np.flatnonzero((cell >= 0) & (cell < count - 1))
        if count > n:
            # Knots made up beyond the ends never enter a B-spline that is kept.
            knots = np.pad(t, n - 1, mode="reflect", reflect_type="odd")
            splines = BSpline.design_matrix(u[between].ravel(), knots, n - 1).data
            out[between] = splines.reshape(len(between), -1, n).transpose(0, 2, 1)
            row = cell[:, None] + 1 + np.arange(n)
            newest = t[np.clip(row, 0, count - 1)]
            lag = process.rate * (u[:, None, :] - newest[:, :, None])
            is_kept = (row >= n) & (row < count)
            out *= np.exp(np.minimum(lag, 0.0)) * is_kept[:, :, None]
        if not process.is_free:
            for p in np.flatnonzero(cell < n - 1):
                for i in range(max(int(cell[p]) + 1, 0), min(n, count)):
                    out[p, i - int(cell[p]) - 1] = _first_integrand(process, t[: i + 1], u[p])
        return out

    @property
    def start(self) -> float:
        """Where the stationary state is taken."""
        return min(float(self.t[0]), float(self.left[0]) if len(self.left) else math.inf)

    def series(self, panel: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Legendre series (J, ..., n) of values (J, ..., G) at the Gauss points of J panels.

        The decay is taken out: every smooth integrand is exp(rate * u) times a polynomial of
        degree n - 1 there.
        """
        n = self.process.n
        grid, weights = _leggauss(self.u.shape[1])
        legendre = np.polynomial.legendre.legvander(grid, n - 1) * (np.arange(n) + 0.5)
        shape = (len(panel),) + (1,) * (values.ndim - 2) + (len(grid),)
        grown = np.exp(self.process.rate * (self.right[panel, None] - self.u[panel]))
        return (values * (weights * grown).reshape(shape)) @ legendre

    def evaluate(self, panel: np.ndarray, series: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Sum of Legendre series at points (J, U) of their panels, shape (J, ..., U)."""
        left, right = self.left[panel, None], self.right[panel, None]
        s = (2.0 * u - left - right) / (right - left)
        legendre = np.polynomial.legendre.legvander(s, self.process.n - 1)
        legendre *= np.exp(self.process.rate * (u - right))[..., None]
        swapped = legendre.transpose(0, 2, 1)
        return (series[:, None, :] @ swapped)[:, 0] if series.ndim == 2 else series @ swapped

    def state_rows(self) -> np.ndarray:
        """Coefficients of the first differences on the state at ``start``, shape (<= n, n).

        A divided difference of order i of (t - start)^j is a complete homogeneous symmetric
        polynomial of degree j - i, a sum of positive terms.
        """
        n, count = self.process.n, min(self.process.n, len(self.t))
        s = self.t[:count] - self.start
        rows = np.zeros((count, n))
        symmetric = np.zeros(n)
        symmetric[0] = 1.0
        for i, value in enumerate(s):
            for degree in range(1, n):
                symmetric[degree] += value * symmetric[degree - 1]
            decay = math.exp(-self.process.rate * value)
            rows[i, i:] = symmetric[: n - i] / factorial(np.arange(i, n)) * decay
        return rows

    def noise_gram(self) -> np.ndarray:
        """Return M = T K T' in lower banded form, shape (n, N)."""
        n, count = self.process.n, len(self.t)
        band = np.zeros((n, count + 2 * n))
        weighted = self.basis * (self.process.intensity * self.du[:, None, :])
        blocks = weighted @ self.basis.transpose(0, 2, 1)
        for s in range(n):
            for r in range(s, n):
                np.add.at(band[r - s], self.cell + 1 + s, blocks[:, r, s])
        band = band[:, :count]
        if not self.process.is_free:
            rows = self.state_rows()
            start = rows @ self.process.state_covariance @ rows.T
            for gap in range(len(rows)):
                band[gap, : len(rows) - gap] += np.diagonal(start, -gap)
        return band


def panel_count(process: MarkovProcess, low: float, high: float, count: int) -> float:
    """Bound on the number of panels that ``count`` nodes between ``low`` and ``high`` make."""
    return count + 1 + process.rate * (high - low) / PANEL_WIDTH


def extra_points(width: float) -> int:
    """Gauss points that exp(2 * width * s), 0 <= s <= 1, needs beyond those of a polynomial factor.

    k more points take in 2 k more terms of the Chebyshev series of exp(width * s) on [-1, 1],
    whose next one is about 2 (width / 2)^(2 k + 2) / (2 k + 2)!.
    """
    k = 0
    while width and 2.0 * (0.5 * width) ** (2 * k + 2) > 1e-17 * math.factorial(2 * k + 2):
        k += 1
    return k


def gauss_legendre(
    left: np.ndarray, right: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre points and weights on many intervals, along a new last axis."""
    s, w = _leggauss(count)
    half = 0.5 * (right - left)[..., None]
    return left[..., None] + half * (1.0 + s), half * w


def lanczos(
    s: np.ndarray, start: np.ndarray, count: int, least: float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Recurrence of the polynomials orthonormal at points s, by the Lanczos process.

    beta_(k+1) q_(k+1) = (s - alpha_k) q_k - beta_k q_(k-1), begun with the unit vector ``start``
    and ended where beta falls to ``least``. Returns alpha, beta (count,) and the polynomials at
    the points, times ``start``, (N, count).
    """
    basis = np.zeros((len(s), count))
    basis[:, 0] = start
    alpha, beta = np.zeros(count), np.zeros(count)
    for k in range(count):
        rest = s * basis[:, k]
        alpha[k] = rest @ basis[:, k]
        if k + 1 == count:
            break
        for _ in range(2):  # twice is enough to stay orthogonal
            rest = rest - basis[:, : k + 1] @ (rest @ basis[:, : k + 1])
        beta[k + 1] = np.linalg.norm(rest)
        if beta[k + 1] <= least:
            beta[k + 1] = 0.0
            break
        basis[:, k + 1] = rest / beta[k + 1]
    return alpha, beta, basis


def discrete_gauss(x: np.ndarray, mass: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss rule of ``count`` points for masses on more points than that, by the Lanczos process.

    Examples
    --------
    >>> import numpy as np
    >>> points, masses = discrete_gauss(np.arange(9.0), np.full(9, 2.0), 2)
    >>> bool(abs(masses @ points**3 - 2.0 * (np.arange(9.0) ** 3).sum()) < 1e-9)
    True
    """
    middle, half = 0.5 * (x[0] + x[-1]), 0.5 * (x[-1] - x[0])
    s = (x - middle) / half
    total = mass.sum()
    # Where the mass sits on fewer points than asked for the rest get none.
    alpha, beta, _ = lanczos(s, np.sqrt(mass / total), count, least=1e-13)
    points, share = gauss_from_recurrence(alpha[None], beta[None, 1:])
    return middle + half * points[0], total * share[0]


def _first_integrand(process: MarkovProcess, t: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Integrand of a divided difference of order i < n, by a recursion of positive terms.

    With F(k, r) the difference of (. - u)_+^r on the first k + 1 nodes, Leibniz' rule gives
    F(k, r) = (t_k - u)_+ F(k, r - 1) + F(k - 1, r - 1), started from B-splines, r = k - 1.
    """
    m, i = process.n - 1, len(t) - 1
    table: dict[tuple[int, int], np.ndarray] = {}
    for k in range(i + 1):
        for r in range(max(k - 1, 0), m + 1):
            ahead = np.maximum(t[k] - u, 0.0)
            if k == 0:
                table[k, r] = np.where(ahead > 0, ahead**r, 0.0)
            elif r == k - 1:
                table[k, r] = divided_power(t[: k + 1], u)
            else:
                table[k, r] = ahead * table[k, r - 1] + table[k - 1, r - 1]
    decay = np.exp(np.minimum(process.rate * (u - t[i]), 0.0))
    return table[i, m] * decay / math.factorial(m)


def divided_power(knots: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Divided difference of (. - u)_+^k on k + 2 knots: a B-spline over the length of its support.

    The knots (..., k + 2) rise along the last axis; u and the result have shape (..., G).
    """
    degree = knots.shape[-1] - 2
    tau = [knots[..., j, None] for j in range(degree + 2)]
    ahead = [u - knot for knot in tau]
    parts: list[np.ndarray | None] = []
    for j in range(degree + 1):
        inside = (ahead[j] >= 0.0) & (ahead[j + 1] < 0.0)
        # Most points share few knot intervals; what is zero everywhere is not carried along.
        parts.append(inside / (tau[j + 1] - tau[j]) if inside.any() else None)
    for r in range(1, degree + 1):
        for j in range(degree + 1 - r):
            here, after = parts[j], parts[j + 1]
            part = None if here is None else here * ahead[j]
            if after is not None:
                other = after * ahead[j + r + 1]
                part = -other if part is None else np.subtract(part, other, out=part)
            if part is not None:
                part /= tau[j + r + 1] - tau[j]
            parts[j] = part
    if parts[0] is None:
        return np.zeros(np.broadcast_shapes((*knots.shape[:-1], 1), u.shape))
    return parts[0]


@dataclass(frozen=True, eq=False)
class Remainder:
    """What local interpolation leaves of a weighted sum of f over points.

    The panels ``panel`` (J,) hold ``points`` in t with ``masses`` (J, Q), strictly inside. In each
    the n nodes from ``stencil`` (J,) on interpolate (-1 where f is left as it is), which adds up to
    ``local_weights`` (N,). The remainder's noise integrand, from points outside of each panel, is
    ``away`` (P, G), and ``state`` (n,) its coefficients on the state at the start.
    """

    frame: Frame
    panel: np.ndarray = field(repr=False)
    points: np.ndarray = field(repr=False)
    masses: np.ndarray = field(repr=False)
    stencil: np.ndarray = field(repr=False)
    local_weights: np.ndarray = field(repr=False)
    away: np.ndarray = field(repr=False)
    state: np.ndarray = field(repr=False)

    @classmethod
    def of_points(cls, frame: Frame, points: np.ndarray, masses: np.ndarray) -> "Remainder":
        """Interpolate the points of each panel, shape (P, Q), where that is harmless."""
        panel = np.flatnonzero((masses > 0.0).any(axis=1))
        points, masses = points[panel], masses[panel]
        stencil, coefficients = _interpolation(frame, panel, points, masses)
        n, count = frame.process.n, len(frame.t)
        weights = np.zeros(count)
        near = stencil >= 0
        if near.any():
            index = stencil[near, None] + np.arange(n)
            np.add.at(weights, index, (masses[near, :, None] * coefficients[near]).sum(axis=1))
        away = np.zeros_like(frame.u)
        part = cls(frame, panel, points, masses, stencil, weights, away, np.zeros(n))
        part._add_away()
        if not near.all():
            s = points[~near] - frame.start
            decayed = masses[~near] * np.exp(-frame.process.rate * s)
            for j in range(n):
                part.state[j] = (decayed * s**j).sum() / math.factorial(j)
        return part

    def with_points(self, points: np.ndarray, masses: np.ndarray) -> "Remainder":
        """Let other points, shape (P, Q), stand for those in each panel when seen from within."""
        return replace(self, points=points[self.panel], masses=masses[self.panel])

    @cached_property
    def sizes(self) -> np.ndarray:
        """Places of each panel up to the last with mass, shape (J,)."""
        return self.masses.shape[1] - np.argmax(self.masses[:, ::-1] > 0.0, axis=1)

    def covariances(self) -> np.ndarray:
        """Covariances of the remainder with the differences, shape (N,)."""
        frame = self.frame
        n, count = frame.process.n, len(frame.t)
        rows = np.arange(n)
        total = np.zeros(count + 2 * n)
        blocks = (frame.basis * (frame.du * self.away)[:, None, :]).sum(axis=2)
        np.add.at(total, frame.cell[:, None] + 1 + rows, blocks)
        for source, q in self._chunks(np.arange(len(self.panel))):
            panel, x = self.panel[source], self.points[source, :q]
            left = np.broadcast_to(frame.left[panel, None], x.shape)
            right = np.broadcast_to(frame.right[panel, None], x.shape)
            starts, ends = np.stack([left, x], axis=-1), np.stack([x, right], axis=-1)
            u, du = gauss_legendre(starts, ends, frame.u.shape[1])
            u, du = u.reshape(*x.shape, -1), du.reshape(*x.shape, -1)
            weighted = self.masses[source, :q, None] * self._integrand(source, q, u) * du
            flat = (len(source), -1)
            series = frame.series(panel, frame.basis[panel])
            basis = frame.evaluate(panel, series, u.reshape(flat))
            parts = (basis @ weighted.reshape(flat)[:, :, None])[:, :, 0]
            np.add.at(total, frame.cell[panel, None] + 1 + rows, parts)
        total = frame.process.intensity * total[:count]
        if not frame.process.is_free:
            state = frame.state_rows()
            total[: len(state)] += state @ (frame.process.state_covariance @ self.state)
        return total

    def squared_norm(self, coefficients: np.ndarray) -> float:
        """Variance of the remainder less the differences with these coefficients, shape (N,)."""
        frame = self.frame
        n = frame.process.n
        padded = np.concatenate([coefficients, np.zeros(2 * n)])
        combine = padded[frame.cell[:, None] + 1 + np.arange(n)]
        rest = self.away - (combine[:, None, :] @ frame.basis)[:, 0]
        cells = np.square(rest) * frame.du
        cells[self.panel] = 0.0
        norm = float(cells.sum())
        for source, q in self._chunks(np.arange(len(self.panel))):
            norm += self._norm_with_points(source, q, combine[self.panel[source]])
        norm *= frame.process.intensity
        if not frame.process.is_free:
            rows = frame.state_rows()
            state = self.state - coefficients[: len(rows)] @ rows
            norm += float(state @ frame.process.state_covariance @ state)
        return norm

    def _norm_with_points(self, source: np.ndarray, q: int, combine: np.ndarray) -> float:
        """Squared norm on some panels with points, cut at every point."""
        frame, panel = self.frame, self.panel[source]
        cuts = np.sort(self.points[source, :q], axis=1)
        left, right = frame.left[panel, None], frame.right[panel, None]
        u, du = gauss_legendre(
            np.concatenate([left, cuts], axis=1),
            np.concatenate([cuts, right], axis=1),
            frame.u.shape[1],
        )
        u, du = u.reshape(len(u), -1), du.reshape(len(u), -1)
        own = self._integrand(source, q, u[:, None, :])
        smooth = self.away[panel] - (combine[:, None, :] @ frame.basis[panel])[:, 0]
        rest = (self.masses[source, :q, None] * own).sum(axis=1)
        rest += frame.evaluate(panel, frame.series(panel, smooth), u)
        return float((np.square(rest) * du).sum())

    def _chunks(self, source: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
        """Cut work into pieces that stay in the cache, with their largest number of points."""
        for begin in range(0, len(source), CHUNK):
            part = source[begin : begin + CHUNK]
            yield part, int(self.sizes[part].max())

    def _add_away(self) -> None:
        """Add the integrand of every point on all panels but its own."""
        frame, (n, rate) = self.frame, (self.frame.process.n, self.frame.process.rate)
        near = self.stencil >= 0
        # Beyond this distance the process has forgotten all but a rounding error.
        horizon = (60.0 + 4.0 * n) / rate if rate else math.inf
        low, high = frame.left[self.panel] - horizon, self.points.max(axis=1)
        first, last = frame.t[self.stencil[near]], frame.t[self.stencil[near] + n - 1]
        low[near] = np.minimum(first, self.points[near].min(axis=1))
        high[near] = np.maximum(last, high[near])
        for step in (-1, 1):
            source, distance = np.arange(len(self.panel)), step
            while True:
                target = self.panel[source] + distance
                source = source[(target >= 0) & (target < len(frame.left))]
                target = self.panel[source] + distance
                reached = (frame.right[target] > low[source]) & (frame.left[target] < high[source])
                source = source[reached]
                if not len(source):
                    break
                for part, q in self._chunks(source):
                    to = self.panel[part] + distance
                    values = self._integrand(part, q, frame.u[to][:, None, :])
                    # Sources are distinct, hence so are the panels at one distance from them.
                    self.away[to] += (self.masses[part, :q, None] * values).sum(axis=1)
                distance += step

    def _integrand(self, source: np.ndarray, q: int, u: np.ndarray) -> np.ndarray:
        """Noise integrands of what is left at q points of some panels, shape (S, q, U)."""
        process, t = self.frame.process, self.frame.t
        n, rate = process.n, process.rate
        x = self.points[source, :q]
        out = np.zeros(np.broadcast_shapes((*x.shape, 1), u.shape))
        near = self.stencil[source] >= 0
        if near.any():
            stencil = t[self.stencil[source[near], None] + np.arange(n)]
            z, v = x[near], u[near]
            nodes = np.broadcast_to(stencil[:, None, :], (*z.shape, n))
            knots = np.sort(np.concatenate([nodes, z[..., None]], axis=-1), axis=-1)
            scale = np.prod(z[..., None] - nodes, axis=-1) / math.factorial(n - 1)
            values = divided_power(knots, v) * scale[..., None]
            if rate:
                values *= np.exp(rate * (v - z[..., None]))
            out[near] = values
        if not near.all():
            ahead = x[~near][..., None] - u[~near]
            ahead_of_u = np.maximum(ahead, 0.0)
            bare = ahead_of_u ** (n - 1) * np.exp(-rate * ahead_of_u) / math.factorial(n - 1)
            out[~near] = np.where(ahead > 0.0, bare, 0.0)
        return out


def _interpolation(
    frame: Frame, panel: np.ndarray, points: np.ndarray, masses: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Choose n nodes around each panel and the coefficients of interpolation from them.

    Interpolation multiplies rounding errors by the size of its coefficients, which grow like
    exp(rate * gap); leaving f as it is costs about (1 / (rate * gap))^(n - 1) in the solve that
    follows. The smaller of the two is taken.
    """
    process, t = frame.process, frame.t
    n, count = process.n, len(t)
    if count < n:
        return np.full(len(panel), -1), np.zeros((*points.shape, n))
    stencil = np.clip(frame.cell[panel] - (n - 2) // 2, 0, count - n)
    nodes = t[stencil[:, None] + np.arange(n)]
    coefficients = np.ones((*points.shape, n))
    for k in range(n):
        for other in range(n):
            if other != k:
                step = nodes[:, k] - nodes[:, other]
                coefficients[:, :, k] *= (points - nodes[:, other, None]) / step[:, None]
    lag = process.rate * (nodes[:, None, :] - points[..., None])
    coefficients *= np.exp(np.minimum(lag, 300.0))
    if process.is_free:
        return stencil, coefficients
    size = np.where(masses > 0.0, np.abs(coefficients).sum(axis=2), 0.0).max(axis=1)
    gap = (nodes[:, -1] - nodes[:, 0]) / max(n - 1, 1) if n > 1 else np.full(len(panel), math.inf)
    bare = (1.0 + 1.0 / (process.rate * gap)) ** (n - 1)
    return np.where(size <= bare, stencil, -1), coefficients
