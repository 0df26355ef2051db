"""Where a located sum looks next, row by row: compiled loops over the points seen so far.

Every function takes ``x`` and ``g`` of shape (points, rows), the numbers at which a log summand
was looked at and its values there, and ``first``, the smallest number that is not summed one by
one. :mod:`~pymc_bayessum.normalizers.located_jax` says the same in whole arrays.
"""

import numpy as np
from numba import njit

__all__ = ["final_points", "probe_points", "zoom_points"]

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
def zoom_points(x, g, first, out):
    """Fill in points between the neighbours of the best one."""
    n_points, n_rows = out.shape
    for row in range(n_rows):
        _, _, left, right = _mode(x[:, row], g[:, row], first[row])
        for k in range(n_points):
            out[k, row] = np.floor(left + (right - left) * (k + 1) / (n_points + 1))


@_compiled
def probe_points(x, g, first, distances, out):
    """Fill in points at some distances from the mode, in units of the width of the bell there."""
    for row in range(out.shape[1]):
        xs, gs = x[:, row], g[:, row]
        mode, height, left, right = _mode(xs, gs, first[row])
        behind, ahead = max(mode - left, 1.0), right - mode
        falls = _fall(xs, gs, height, left) / behind + _fall(xs, gs, height, right) / ahead
        width = 1.0 / np.sqrt(max(2.0 * falls / (behind + ahead), 1e-300))
        width = min(max(width, 1.0), max(right - left, 1.0))
        for k in range(len(distances)):
            out[k, row] = max(first[row], np.floor(mode + width * distances[k] + 0.5))


@_compiled
def final_points(x, g, first, limit, skewed, nodes, weights, lengths, out, weight, last):
    """Fill in the nodes, their weights, and where the summand has vanished.

    ``nodes`` and ``weights`` hold the panels of each length, even ones and then graded ones.
    """
    n_points, n_rows = out.shape
    n_panel, n_lengths = nodes.shape[0], len(lengths)
    n_head = n_points - n_panel
    for row in range(n_rows):
        xs, gs = x[:, row], g[:, row]
        mode, height, _, _ = _mode(xs, gs, first[row])
        behind = _extent(xs, gs, mode, height, first[row], -1.0, limit)
        ahead = _extent(xs, gs, mode, height, first[row], 1.0, limit)
        last[row] = mode + ahead
        for k in range(n_head):
            out[k, row] = first[row] - n_head + k
            weight[k, row] = 1.0
        if mode - behind > first[row]:
            spacing = np.ceil((behind + ahead + 1.0) / n_panel)
            for k in range(n_panel):
                out[n_head + k, row] = mode - behind + spacing * k
                weight[n_head + k, row] = spacing
            continue
        length = mode + ahead - first[row] + 1.0
        column = min(np.searchsorted(lengths, length), n_lengths - 1)
        if length > skewed * (mode - first[row] + 1.0):
            column += n_lengths
        for k in range(n_panel):
            out[n_head + k, row] = first[row] + nodes[k, column]
            weight[n_head + k, row] = weights[k, column]
