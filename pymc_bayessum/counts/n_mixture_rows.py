r"""The sum over a count that was seen by chance, row by row: compiled loops.

.. math:: g(n) = c\,n + b(n) + \sum_t \log\frac{n!}{(n - y_t)!}

with :math:`b(n) = -\log n!` (Poisson), :math:`-s \log n!` (CMP with dispersion s) or
:math:`\log\Gamma(n + s) - \log n!` (negative binomial of size s).  The ratio of two neighbouring
terms needs no factorial, so a bell of few numbers is summed outwards from its mode by ratios; a
wide one by equally spaced nodes, or by the panels of :mod:`~pymc_bayessum.normalizers.panels` where
it reaches the left end.  g has one mode: its slope falls in n, or is negative throughout.  Where at
most one visit saw anything, thinning keeps a Poisson and a negative binomial count in their
families, and the sum has a closed form.
"""

import math

import numpy as np
from numba import njit

from pymc_bayessum.normalizers.log_factorial import log_factorial, log_gamma
from pymc_bayessum.normalizers.panels import GRADING, SKEWED

__all__ = ["CMP", "MOST_EVALUATIONS", "NEGATIVE_BINOMIAL", "POISSON", "sum_rows"]

POISSON, CMP, NEGATIVE_BINOMIAL = 0, 1, 2
#: Numbers on both sides of the mode that are summed by ratios where the rest does not matter.
UPWARDS, DOWNWARDS = 56, 48
MOST_NODES = UPWARDS + DOWNWARDS
#: Most steps towards the mode, and to each end.
TO_MODE, TO_END = 10, 5
#: All that a row can cost, with the two looks at whether ratios are enough.
MOST_EVALUATIONS = TO_MODE + 2 + 2 * TO_END + MOST_NODES
#: Terms below exp(-DEPTH) of the largest are left out.
DEPTH = 26.0
_FAR = 32.0
_SMALL = math.exp(-_FAR)
#: Spacing of nodes in standard deviations: the error for a normal bell is some exp(-46).
_SPACING = 0.65
#: A bell is taken to be one, and not to begin at the left end, if its mode is so many standard
#: deviations from there (a gamma density of shape 37) and it has fallen by so much.
_ROUND, _ENOUGH = 6.0, 24.0

_compiled = njit(cache=True, error_model="numpy")


@_compiled
def _ratio(kind, rate, c, s, y, n):
    """Return the term at n over that at n - 1: one division for as many as eight visits."""
    seen, above, below = 1.0, 1.0, 1.0
    for k in range(len(y)):
        above *= n
        below *= n - y[k]
        if k % 8 == 7:
            seen, above, below = seen * (above / below), 1.0, 1.0
    if kind == CMP:
        return seen * (above / below) * math.exp(c - s * math.log(n))
    if kind == NEGATIVE_BINOMIAL:
        above *= n - 1.0 + s
    return seen * (rate * above / (below * n))


@_compiled
def _slope_change(kind, s, y, n):
    """Return the derivative of the log ratio."""
    change = 0.0
    for k in range(len(y)):
        change -= y[k] / (n * (n - y[k]))
    if kind == CMP:
        return change - s / n
    if kind == NEGATIVE_BINOMIAL:
        return change - 1.0 / n + 1.0 / (n - 1.0 + s)
    return change - 1.0 / n


@_compiled
def _log_gamma_step(a, d):
    """Return log Gamma(a + d) - log Gamma(a), without the cancellation where a is large."""
    if a < 256.0:
        return log_gamma(a + d) - log_gamma(a)
    b = a + d
    tail = (1.0 / b - 1.0 / a) / 12.0 - (1.0 / b**3 - 1.0 / a**3) / 360.0
    return (a - 0.5) * math.log1p(d / a) + d * (math.log(b) - 1.0) + tail


@_compiled
def _digamma_step(a, d):
    """Return digamma(a + d) - digamma(a) for a whole d."""
    total = 0.0
    while a < 16.0 and d > 0.0:
        total, a, d = total + 1.0 / a, a + 1.0, d - 1.0
    if d <= 0.0:
        return total
    b = a + d
    tail = _digamma_tail(b) - _digamma_tail(a)
    return total + math.log1p(d / a) + tail


@_compiled
def _digamma_tail(a):
    i = 1.0 / (a * a)
    return -0.5 / a - i * (1 / 12 - i * (1 / 120 - i * (1 / 252 - i * (1 / 240 - i / 132))))


@_compiled
def _factorials(kind, s, y, n):
    """Return the part of g that is made of factorials of whole numbers."""
    total = (len(y) - (s if kind == CMP else 1.0)) * log_factorial(n)
    for k in range(len(y)):
        total -= log_factorial(n - y[k])
    return total


@_compiled
def _log_term(kind, c, s, y, low, base, n):
    """Return g(n) - g(low), given the factorials at ``low``."""
    total = c * (n - low) + (_factorials(kind, s, y, n) - base)
    return total + _log_gamma_step(low + s, n - low) if kind == NEGATIVE_BINOMIAL else total


@_compiled
def _shape_score(kind, s, low, n):
    """Return the derivative of g(n) - g(low) in s."""
    if kind == CMP:
        return log_factorial(low) - log_factorial(n)
    if kind == NEGATIVE_BINOMIAL:
        return _digamma_step(low + s, n - low)
    return 0.0


@_compiled
def _find_mode(kind, rate, c, s, y, low):
    """Return the mode: where the ratio falls below one, by Newton's method in log(n - low)."""
    if not _ratio(kind, rate, c, s, y, low + 1.0) > 1.0:
        return low
    ahead = math.exp(min(c / s, 40.0)) if kind == CMP and s > 0.0 else rate
    if kind == NEGATIVE_BINOMIAL and c < 0.0:
        # Far out g is nearly c n + (s - 1 + sum of y) log n.
        ahead = (s - 1.0 + y.sum()) / -c - low
    ahead = min(max(ahead, 1.0), 1e15)
    for _ in range(TO_MODE):
        n = low + ahead
        slope = math.log(_ratio(kind, rate, c, s, y, n))
        # Where the slope does not fall any more there is nothing to go by: on, twice as far.
        change = min(_slope_change(kind, s, y, n), -1e-300) * ahead
        factor = math.exp(min(max(-slope / change, -4.0), 4.0))
        ahead *= factor
        if abs(factor - 1.0) * ahead < 0.5:
            break
    return low + math.floor(min(max(ahead, 1.0), 1e15))


@_compiled
def _by_ratios(kind, rate, c, s, y, low, mode, out):
    """Sum all numbers that matter, outwards from the mode.

    ``out`` receives the sum over the term at the mode, and the means of n - mode and of the
    derivative in s, from the mode on.
    """
    total, first, second = 1.0, 0.0, 0.0
    term, n, score = 1.0, mode, 0.0
    while n < mode + UPWARDS:
        n += 1.0
        ratio = _ratio(kind, rate, c, s, y, n)
        term *= ratio
        if kind == NEGATIVE_BINOMIAL:
            score += 1.0 / (n - 1.0 + s)
        elif kind == CMP:
            score -= math.log(n)
        total += term
        first += term * (n - mode)
        second += term * score
        if not (term * ratio > _SMALL * (1.0 - ratio) * total):
            break
    term, n, score = 1.0, mode, 0.0
    while n > max(low, mode - DOWNWARDS) and term > _SMALL * total:
        term /= _ratio(kind, rate, c, s, y, n)
        if kind == NEGATIVE_BINOMIAL:
            score -= 1.0 / (n - 1.0 + s)
        elif kind == CMP:
            score += math.log(n)
        n -= 1.0
        total += term
        first += term * (n - mode)
        second += term * score
    out[0], out[1], out[2] = total, first / total, second / total


@_compiled
def _is_narrow(kind, c, s, y, low, base, mode, height):
    """Whether all but some 1e-16 of the sum is next to the mode."""
    deep = height - _FAR
    if _log_term(kind, c, s, y, low, base, mode + UPWARDS) > deep:
        return False
    down = mode - DOWNWARDS
    return down <= low or _log_term(kind, c, s, y, low, base, down) < deep


@_compiled
def _end(kind, rate, c, s, y, low, base, mode, height, distance, sign):
    """Return how far from the mode g has fallen by DEPTH, by tangents, which reach too far."""
    for _ in range(TO_END):
        n = mode + sign * distance
        if n <= low:
            return mode - low
        fall = height - _log_term(kind, c, s, y, low, base, n)
        if fall >= DEPTH:
            return distance
        steepness = -sign * math.log(_ratio(kind, rate, c, s, y, max(n, low + 1.0)))
        more = (DEPTH - fall) / steepness if steepness > 0.0 else distance
        distance = math.ceil(distance + min(max(more, 0.1 * distance), 4.0 * distance))
    return distance


@_compiled
def _by_nodes(kind, rate, c, s, y, low, base, mode, height, panels, out):
    """Sum a wide bell; ``out`` receives the same, over the term at ``low`` and from there on."""
    nodes, weights, lengths = panels
    bend = -_slope_change(kind, s, y, max(mode, low + 1.0) + 0.5)
    width = 1.0 / math.sqrt(max(bend, 1e-20))
    # Where the slope rises, from below, towards that of a geometric distribution, that is c.
    steepness = -math.log(_ratio(kind, rate, c, s, y, mode + 1.0)) if bend > 0.0 else -c
    reach = math.sqrt(2.0 * DEPTH) * width
    if steepness * reach > DEPTH:
        reach = DEPTH / steepness
    reach = math.ceil(reach)
    ahead = _end(kind, rate, c, s, y, low, base, mode, height, reach, 1.0)
    behind = _end(kind, rate, c, s, y, low, base, mode, height, reach, -1.0)
    begin, n_head, column = mode - behind, 0, 0
    if mode - low > _ROUND * width and (begin > low or height > _ENOUGH):
        spacing = max(math.floor(_SPACING * width), 1.0)
        spacing = max(spacing, math.ceil((behind + ahead + 1.0) / MOST_NODES))
        n_nodes = int((behind + ahead) / spacing) + 1
    else:
        begin, n_head, n_nodes, spacing = low + GRADING, GRADING, nodes.shape[0], 1.0
        length = mode + ahead - begin + 1.0
        column = min(np.searchsorted(lengths, length), len(lengths) - 1)
        if column > 0 and length > SKEWED * (max(mode, begin) - begin + 1.0):
            column += len(lengths)
    total, first, second = 0.0, 0.0, 0.0
    for k in range(n_head + n_nodes):
        if k < n_head:
            n, weight = low + k, 1.0
        elif n_head == 0:
            n, weight = begin + spacing * k, spacing
        else:
            n, weight = begin + nodes[k - n_head, column], weights[k - n_head, column]
        term = weight * math.exp(_log_term(kind, c, s, y, low, base, n) - height)
        total += term
        first += term * (n - low)
        if kind != POISSON:
            second += term * _shape_score(kind, s, low, n)
    out[0], out[1], out[2] = math.log(total) + height, first / total, second / total


@_compiled
def _has_closed_form(kind, rate, y):
    """Whether the sum is a series of powers: visits that saw nothing do not enter g."""
    n_seen = 0
    for seen in y:
        n_seen += seen > 0.0
    return n_seen <= 1 and (kind == POISSON or (kind == NEGATIVE_BINOMIAL and rate < 1.0))


@_compiled
def _in_closed_form(kind, rate, s, low, out):
    """Exponential series (Poisson) or binomial series, over the term at ``low``."""
    if kind == POISSON:
        out[0], out[1], out[2] = rate, rate, 0.0
    else:
        out[2] = -math.log1p(-rate)
        out[0], out[1] = (low + s) * out[2], (low + s) * rate / (1.0 - rate)


@_compiled
def sum_rows(kind, c, s, y, nodes, weights, lengths):
    r"""Return, for each row, log sum exp(g(n) - g(low)) and its derivatives in c and s.

    ``y`` has shape (rows, visits), ``low`` is its largest number; ``nodes``, ``weights`` and
    ``lengths`` are the panels, even ones and then graded ones.
    """
    n_rows = len(y)
    out, row = np.empty((3, n_rows)), np.empty(3)
    for k in range(n_rows):
        low = 0.0
        for seen in y[k]:
            low = max(low, seen)
        rate = math.exp(min(c[k], 700.0))
        if np.isnan(c[k]) or np.isnan(s[k]) or c[k] == np.inf:
            row[0] = row[1] = row[2] = np.nan
        elif rate == 0.0:
            row[0] = row[1] = row[2] = 0.0
        elif _has_closed_form(kind, rate, y[k]):
            _in_closed_form(kind, rate, s[k], low, row)
        else:
            mode = _find_mode(kind, rate, c[k], s[k], y[k], low)
            base = _factorials(kind, s[k], y[k], low)
            height = _log_term(kind, c[k], s[k], y[k], low, base, mode)
            if _is_narrow(kind, c[k], s[k], y[k], low, base, mode, height):
                _by_ratios(kind, rate, c[k], s[k], y[k], low, mode, row)
                row[0] = math.log(row[0]) + height
                row[1] += mode - low
                row[2] += _shape_score(kind, s[k], low, mode)
            else:
                panels = nodes, weights, lengths
                _by_nodes(kind, rate, c[k], s[k], y[k], low, base, mode, height, panels, row)
        # Assigned as a whole, a column would be compiled at length.
        for j in range(3):
            out[j, k] = row[j]
    return out
