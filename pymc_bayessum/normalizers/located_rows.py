r"""Where a located sum looks next, row by row: compiled loops over the points seen so far.

Three points about a mode tell where it is. Log-factorials are nearly :math:`u \log u - u`, so that
log masses of counts have slopes that are linear in log u, and the difference quotient of
:math:`u \log u - u` between a and b is the slope at their identric mean :math:`I(a, b) = e^{-1}
(b^b / a^a)^{1 / (b - a)}`: the slope vanishes where a line through the two quotients does. With u
counted from the left end that is exact for Poisson and CMP, and next to a mode for any bell.

Every function takes ``x`` and ``g`` of shape (points, rows), the numbers at which a log summand
was looked at and its values there, and ``first``, the smallest number that is not summed one by
one. :mod:`~pymc_bayessum.normalizers.located_jax` says the same in whole arrays.
"""

import math

import numpy as np
from numba import njit

__all__ = [
    "NEAR",
    "PROBES",
    "ROUND",
    "UNIFORM",
    "final_points",
    "probe_points",
    "settled",
    "zoom_points",
]

#: A zoom looks at these parts of the way between the neighbours of the best point, and at these
#: distances from where the mode is expected, in units of the width of the bell there.
UNIFORM, NEAR = (0.25, 0.5, 0.75), (-8.0, -2.0, 0.0, 2.0, 8.0)

#: A probe looks at these distances from the mode, in units of the width of the bell there.
PROBES = np.array([-24.0, -12.0, -6.0, -3.0, 3.0, 6.0, 12.0, 24.0])

#: A bell is free of its left end if it keeps from there by this part of its length.
ROUND = 16.0

_compiled = njit(cache=True, error_model="numpy")


@_compiled
def _mode(x, g, first):
    """Return the best point, the value there, and the points seen next to it."""
    mode, height = first, -np.inf
    for k in range(len(x)):
        if x[k] >= first and (g[k] > height or (g[k] == height and x[k] < mode)):
            mode, height = x[k], g[k]
    left, right = first, np.inf
    for k in range(len(x)):
        if left < x[k] < mode:
            left = x[k]
        if mode < x[k] < right:
            right = x[k]
    return mode, height, left, mode + 1.0 if np.isinf(right) else right


@_compiled
def _copy(x, g, row, xs, gs):
    """Copy a row: its points lie far apart in memory, and are gone through many times."""
    for k in range(len(xs)):
        xs[k], gs[k] = x[k, row], g[k, row]


@_compiled
def _fall(x, g, height, point):
    """Return how much lower the log summand is at a point that was seen."""
    for k in range(len(x)):
        if x[k] == point:
            return 0.0 if np.isinf(height) else height - g[k]
    return 0.0


@_compiled
def _extent(x, g, mode, height, first, sign, limit):
    """Return how far from the mode the summand has vanished, on one side.

    Between the last point within the depth and the first beyond it, linearly in the square root of
    the fall: exact for a bell, on the safe side for longer tails.
    """
    inner, inner_depth = 0.0, 0.0
    outer, outer_depth = np.inf, np.inf
    for k in range(len(x)):
        distance = sign * (x[k] - mode)
        if distance > inner and x[k] >= first and height - g[k] < limit * limit:
            inner, inner_depth = distance, np.sqrt(max(height - g[k], 0.0))
    for k in range(len(x)):
        distance = sign * (x[k] - mode)
        if inner < distance < outer and x[k] >= first:
            outer, outer_depth = distance, np.sqrt(max(height - g[k], 0.0))
    if np.isinf(outer):
        return np.ceil(1.03 * inner)
    # Where g is -inf the bell may reach all the way.
    share = 1.0 if np.isinf(outer_depth) else (limit - inner_depth) / (outer_depth - inner_depth)
    return np.ceil(1.03 * (inner + (outer - inner) * share))


@_compiled
def settled(x, g, first, n_panel, depth):
    """Whether all rows have vanished within a panel of single numbers: no need to look further."""
    for row in range(len(first)):
        height, beyond = -np.inf, -np.inf
        for k in range(len(x)):
            if x[k, row] >= first[row]:
                height = max(height, g[k, row])
            if x[k, row] >= first[row] + n_panel:
                beyond = max(beyond, g[k, row])
        if not beyond < height - depth:
            return False
    return True


@_compiled
def _log_identric_mean(a, b):
    """Return log I(a, b) for 1 <= a < b, to rounding also where they are neighbours."""
    half = (b - a) / (b + a)
    bend = (1.0 + half) * math.log1p(half) - (1.0 - half) * math.log1p(-half)
    return math.log(0.5 * (a + b)) + bend / (2.0 * half) - 1.0


@_compiled
def _expected_mode(x, g, first, mode, height, left, right):
    """Return where the slope vanishes, and the width of the bell there; 0 where nothing tells."""
    if not left < mode < right:
        return mode, 0.0
    rise = _fall(x, g, height, left) / (mode - left)
    fall = _fall(x, g, height, right) / (right - mode)
    change = rise + fall
    if not 0.0 < change < np.inf:
        return mode, 0.0
    at = mode - first + 1.0
    before = _log_identric_mean(left - first + 1.0, at)
    after = _log_identric_mean(at, right - first + 1.0)
    place = math.exp(before + (after - before) * rise / change)
    return first - 1.0 + place, math.sqrt(place * (after - before) / change)


@_compiled
def zoom_points(x, g, first, out):
    """Fill in points between the neighbours of the best one, some where the mode is expected."""
    n_points, n_rows = out.shape
    xs, gs = np.empty(len(x)), np.empty(len(x))
    for row in range(n_rows):
        _copy(x, g, row, xs, gs)
        mode, height, left, right = _mode(xs, gs, first[row])
        place, width = _expected_mode(xs, gs, first[row], mode, height, left, right)
        for k in range(n_points):
            if width == 0.0:
                point = left + (right - left) * (k + 1) / (n_points + 1)
            elif k < len(UNIFORM):
                point = left + (right - left) * UNIFORM[k]
            else:
                point = place + width * NEAR[k - len(UNIFORM)] + 0.5
            out[k, row] = min(max(np.floor(point), left), right)


@_compiled
def probe_points(x, g, first, out):
    """Fill in points on both sides of the mode, by the width of the bell there."""
    xs, gs = np.empty(len(x)), np.empty(len(x))
    for row in range(out.shape[1]):
        _copy(x, g, row, xs, gs)
        mode, height, left, right = _mode(xs, gs, first[row])
        behind, ahead = max(mode - left, 1.0), right - mode
        falls = _fall(xs, gs, height, left) / behind + _fall(xs, gs, height, right) / ahead
        width = 1.0 / np.sqrt(max(2.0 * falls / (behind + ahead), 1e-300))
        width = min(max(width, 1.0), max(right - left, 1.0))
        for k in range(len(out)):
            out[k, row] = max(first[row], np.floor(mode + width * PROBES[k] + 0.5))


@_compiled
def final_points(x, g, first, limit, skewed, n_head, nodes, weights, lengths):
    """Return the nodes, their weights, and where the summand has vanished.

    ``nodes`` and ``weights`` hold the panels of each length, even ones and then graded ones. Where
    every row sums its numbers one by one there are no more nodes than the longest row needs.
    """
    n_rows, (n_panel, n_lengths) = len(first), (nodes.shape[0], len(lengths))
    begin, spacing, last = np.empty(n_rows), np.empty(n_rows), np.empty(n_rows)
    column = np.empty(n_rows, dtype=np.int64)
    xs, gs = np.empty(len(x)), np.empty(len(x))
    needed = 1.0
    for row in range(n_rows):
        _copy(x, g, row, xs, gs)
        mode, height, _, _ = _mode(xs, gs, first[row])
        behind = _extent(xs, gs, mode, height, first[row], -1.0, limit)
        ahead = _extent(xs, gs, mode, height, first[row], 1.0, limit)
        last[row] = mode + ahead
        # Near its left end a bell of few standard deviations is none: it begins there.
        if mode - behind - first[row] > (behind + ahead) / ROUND:
            begin[row], column[row] = mode - behind, 0
            spacing[row] = np.ceil((behind + ahead + 1.0) / n_panel)
            needed = max(needed, np.ceil((behind + ahead + 1.0) / spacing[row]))
            continue
        length = mode + ahead - first[row] + 1.0
        begin[row], spacing[row] = first[row], 1.0
        column[row] = min(np.searchsorted(lengths, length), n_lengths - 1)
        needed = max(needed, length if column[row] == 0 else float(n_panel))
        if column[row] > 0 and length > skewed * (mode - first[row] + 1.0):
            column[row] += n_lengths
    n_kept = n_head + min(int(needed), n_panel)
    out, weight = np.empty((n_kept, n_rows)), np.empty((n_kept, n_rows))
    for k in range(n_head):
        for row in range(n_rows):
            out[k, row], weight[k, row] = first[row] - n_head + k, 1.0
    for k in range(n_kept - n_head):
        for row in range(n_rows):
            # The first panel is one by one: equal spacing stretches it.
            out[n_head + k, row] = begin[row] + spacing[row] * nodes[k, column[row]]
            weight[n_head + k, row] = spacing[row] * weights[k, column[row]]
    return out, weight, last
