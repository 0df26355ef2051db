r"""Compiled sums over Conway-Maxwell-Poisson terms: log Z and its derivatives, row by row.

With :math:`\eta = \log\lambda` and :math:`L(x) = \log x!` the normaliser is
:math:`\log Z = \log \sum_x e^{\eta x - \nu L(x)}`, and its partial derivatives are the joint
cumulants of :math:`(X, -L(X))`. With m the mode :math:`e^{\eta/\nu}` and s the width, the sd,

* equally spaced nodes with the spacing as weight stand around the mode. Spacing one is the series
  itself and is used while the width is below two; a wider bell that has left zero (:math:`\nu m`
  at least ``NEAR_PEAK``) is summed at two thirds of a width, where the error of equal spacing,
  :math:`2 e^{-2 \pi^2 (s/h)^2}` at spacing h, is below 1e-16;
* the rules of :mod:`.near_zero` sum a wide summand that still feels the end at zero;
* where that is wider than all of those rules, the sum is an integral with an end correction,
  see :mod:`.half_line`;
* far out (m and :math:`\nu m` of at least ``FAR``) the asymptotic expansion, and where the rate
  is so small that two is never seen its first two terms, hold to rounding.

All are exact to some 1e-13, so that nothing is felt where one hands over to the next, and together
they leave out no parameter for which there is a distribution.
This module holds all compiled code, because numba's cache on disk looks at one file at a time.
"""

import ctypes
import math
from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import carray, cfunc, njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from scipy.special import gammaln

from pymc_bayessum.counts.cmp_sums.cells import DEGREE, POWERS, fill
from pymc_bayessum.counts.cmp_sums.half_line import END_WEIGHTS, half_line, unit_interval
from pymc_bayessum.counts.cmp_sums.near_zero import FIRST_SCALE, N_SCALES, OFFSET, load_rules

LOG_LARGEST = 500.0
"""Modes and means beyond exp of this are infinite: so would be derivatives of log Z."""

LOG_RARE = -40.0
"""Below this log rate (or log mean) a count of two adds nothing that a double could hold."""

LARGEST_NU = 1e12
"""Beyond, doubles do not weigh neighbouring counts: one of them, or two, are left."""

FAR = 1e4
"""The asymptotic expansion is used where the mode and nu times it are at least this."""

NEAR_PEAK = 48.0
SPACING = 0.66  # of a width, for a bell that has left zero
DROP = 37.0  # terms below exp(-DROP) of the largest are left out
_SHORT = 40.0  # a series that ends before costs less than a rule near zero
N_TERMS = 112  # the most terms any row needs, a multiple of four

_NEAR_X, _NEAR_L, _NEAR_W, _NEAR_SIZE = load_rules()
_TABLE = 1024  # log factorials below this are looked up
_SMALLEST_STIRLING = 16.0  # four correction terms are exact to 1e-14 from here on
_STEEP = 4096.0  # nu times the mode from which log-factorials are not subtracted
_LOG_FACTORIAL = gammaln(np.arange(1.0, _TABLE + 1.0))
_INDEX = np.arange(float(N_TERMS))
_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
_EPS = 2.3e-16
_LAST_NU, _LARGEST_FROZEN = 1e200, 1e60  # nu, and the mode beside a nu above LARGEST_NU
_LARGEST_SQUARE = 1e140  # of a width: third moments must be doubles

# Functions that only compiled code calls; without an entry point for Python they compile faster.
_OPTIONS: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_inner = njit(cache=True, error_model="numpy", fastmath={"contract"}, **_OPTIONS)
# LLVM vectorises a sum only when it may reorder it.
_loop = njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"}, **_OPTIONS)


# The arguments of a compiled call are not those of the function that emits it.
_intrinsic: Any = intrinsic


def converted(source: Any, target: Any, how: str = "bitcast") -> Any:
    """Make a compiled function that reads the bits of one type as another."""

    @_intrinsic
    def cast(typing_context, x):
        def codegen(context, builder, signature, args):
            return getattr(builder, how)(args[0], context.get_value_type(target))

        return target(source), codegen

    return cast


_to_bits = converted(types.float64, types.uint64)
_from_bits = converted(types.uint64, types.float64)

_LOG2_E = 1.4426950408889634
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
_ROUNDER = 6755399441055744.0  # 1.5 * 2**52: adding it rounds to an integer in the low bits
_EXPONENT_SHIFT = np.uint64(52)
_MANTISSA = np.uint64(0x000FFFFFFFFFFFFF)
_SQRT_HALF = np.uint64(0x3FE6A09E00000000)
_TO_EXPONENT = np.uint64(0x3FF0000000000000 - 0x3FE6A09E00000000)
_ROUNDER_BITS = np.uint64(0x4338000000000000 - 1023)


@_inner
def _exp(x):
    """exp(x) for x < 700 to one unit in the last place, without branches, so that it vectorises."""
    x = max(x, -700.0)
    shifted = x * _LOG2_E + _ROUNDER
    k = shifted - _ROUNDER
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    p = 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    return _from_bits(_to_bits(p) + (_to_bits(shifted) << _EXPONENT_SHIFT))


@_inner
def _log(x):
    """log(x) of a positive normal number, without branches (the fdlibm polynomial)."""
    moved = _to_bits(x) + _TO_EXPONENT
    k = _from_bits((moved >> _EXPONENT_SHIFT) + _ROUNDER_BITS) - _ROUNDER
    f = _from_bits((moved & _MANTISSA) + _SQRT_HALF) - 1.0
    s = f / (2.0 + f)
    z = s * s
    r = 1.479819860511658591e-01
    r = r * z + 1.531383769920937332e-01
    r = r * z + 1.818357216161805012e-01
    r = r * z + 2.222219843214978396e-01
    r = r * z + 2.857142874366239149e-01
    r = r * z + 3.999999999940941908e-01
    r = r * z + 6.666666666666735130e-01
    half = 0.5 * f * f
    return k * _LN2_HIGH - ((half - (s * (half + r * z) + k * _LN2_LOW)) - f)


@_inner
def _log_ratio(x, centre):
    """log(x / centre) to the last digit also where it is small: adds what the division lost."""
    ratio = x / centre
    return _log(ratio) + ((x - centre) - (ratio - 1.0) * centre) / x


@_inner
def _stirling_tail(x):
    """Correction log x! - ((x + 1/2) log x - x + log(2 pi)/2), for x >= 16."""
    r = 1.0 / x
    q = r * r
    return r * (1.0 / 12.0 - q * (1.0 / 360.0 - q * (1.0 / 1260.0 - q * (1.0 / 1680.0))))


@_inner
def _mode_and_width(eta, nu):
    """Mode and squared width (see near_zero.width); a width of 0 where there is no distribution."""
    mode, decay = 0.0, -eta
    if nu > 0.0:
        log_mode = eta / nu
        if log_mode > LOG_LARGEST:
            return 0.0, 0.0
        mode = _exp(log_mode)
        if nu * mode >= 1.0:
            # Far out no third moment is summed, and powers of 1 / nu must be doubles.
            known = (nu * mode >= FAR and nu > 1e-20) or mode < _LARGEST_SQUARE * nu
            return mode, mode / nu if known and nu * mode < math.inf else 0.0
        decay = OFFSET * nu - eta
        decay -= nu * math.log(decay - nu * math.log(nu))
    decay = max(decay, 0.0)
    return mode, 1.0 / (decay * decay) if decay * decay * _LARGEST_SQUARE > 1.0 else 0.0


# Not plain integers, for each of which numba would compile a function anew.
_NEAR, _TABULATED, _STIRLING = np.int64(0), np.int64(1), np.int64(2)
_RARE_RATE, _FAR_OUT, _WIDE = np.int64(0), np.int64(1), np.int64(2)
_FIRST, _THIRD = np.int64(1), np.int64(3)


@_loop
def _fill_terms(kind, k, n, first, step, centre, eta, nu, p, d, g):
    """Write terms p, distances d = x - centre and g = L(x) - L(centre) at n nodes."""
    if kind == _NEAR:
        for i in range(n):
            d[i] = _NEAR_X[k, i]
            g[i] = _NEAR_L[k, i]
            p[i] = _NEAR_W[k, i] * _exp(eta * _NEAR_X[k, i] - nu * _NEAR_L[k, i])
    elif kind == _TABULATED:
        at_centre = _LOG_FACTORIAL[int(centre)]
        stride = int(step)
        for i in range(n):
            d[i] = first - centre + step * _INDEX[i]
            g[i] = _LOG_FACTORIAL[int(first) + stride * i] - at_centre
        for i in range(n):
            p[i] = _exp(eta * d[i] - nu * g[i])
    else:
        for i in range(n):
            d[i] = first - centre + step * _INDEX[i]
            p[i] = 1.0
        _weigh(n, centre, eta, nu, p, d, g)


@_loop
def _weigh(n, centre, eta, nu, p, d, g):
    """Multiply weights p by terms at centre + d (by that at the centre), by Stirling; write g."""
    log_centre = math.log(centre)
    slope = eta - nu * log_centre
    at_centre = _stirling_tail(centre)
    for i in range(n):
        x = centre + d[i]
        bend = (x + 0.5) * _log_ratio(x, centre) - d[i] + (_stirling_tail(x) - at_centre)
        g[i] = d[i] * log_centre + bend
        p[i] *= _exp(slope * d[i] - nu * bend)


@_inner
def _summarise(order, eta, nu, p, d, g, m):
    """Write means and central moments into ``m`` (see ``_moments``), about x0 and L(x0).

    Returns log Z (+inf where there is no distribution), x0 and L(x0).
    """
    # Beside a mode near zero, derivatives in it are nu times as large.
    if not 0.0 <= nu <= (LARGEST_NU if eta < -LARGEST_NU else _LAST_NU):
        return math.inf, 0.0, 0.0
    if eta < LOG_RARE:
        return _special()(_RARE_RATE, eta, nu, 0.0, p.ctypes, m.ctypes), 0.0, 0.0
    if not eta < math.inf:
        return math.inf, 0.0, 0.0
    mode, square = _mode_and_width(eta, nu)
    if square == 0.0:
        return math.inf, 0.0, 0.0
    peak = nu * mode
    if nu > LARGEST_NU:
        m[:10] = 0.0
        if eta < 0.5 * nu:
            # Counts 0 and 1, whose weights are doubles still.
            log_z = max(eta, 0.0) + math.log1p(math.exp(-abs(eta)))
            m[1] = math.exp(eta - log_z)
            m[3] = m[1] * math.exp(-log_z)
            m[6] = m[3] * (1.0 - 2.0 * m[1])
            return log_z, 0.0, 0.0
        centre = np.floor(mode)
        return _above(centre, eta, nu), centre, log_factorial(centre)
    if min(mode, peak) >= FAR and mode >= 8.0 * nu:
        return _special()(_FAR_OUT, eta, nu, 0.0, p.ctypes, m.ctypes), 0.0, 0.0
    centre = np.floor(mode)
    near = square >= FIRST_SCALE * FIRST_SCALE and peak < NEAR_PEAK
    step, n_left, n_right = 1.0, centre, 0.0
    if peak >= 1.0:
        # The right tail falls by nu (x log(x/mode) - x + mode): Bernstein's bound on it, and a
        # Newton step that stays on the safe side.
        third = DROP / (3.0 * nu)
        reach = 2.0 * DROP * square
        end = mode + third + math.sqrt(third * third + reach)
        if end > 1.1 * mode:
            end = (end - mode + DROP / nu) / _log(end / mode)
        if near and end < _SHORT:
            near = False
        else:
            step = max(1.0, np.floor(SPACING * math.sqrt(square)))
        n_right = np.ceil((end - centre) / step)
        n_left = min(np.ceil(math.sqrt(reach) / step), np.floor(centre / step))
    elif not near:
        # The tangent of L at `touch` bounds the tail from above.
        touch = 0.5 * DROP * math.sqrt(square)
        slope = -eta + nu * math.log(max(touch, 1.0))
        n_right = np.ceil((DROP + nu * touch) / slope) - centre
    if near:
        # Half octaves of the width are octaves of its square.
        k = int(_to_bits(square / (FIRST_SCALE * FIRST_SCALE)) >> _EXPONENT_SHIFT) - 1023
        if k >= N_SCALES:
            return _special()(_WIDE, eta, nu, math.sqrt(square), p.ctypes, m.ctypes), 0.0, 0.0
        n = _NEAR_SIZE[k]
        _fill_terms(_NEAR, k, n, 0.0, 0.0, 0.0, eta, nu, p, d, g)
        _moments(order, n, p, d, g, m)
        return _log_sum(p, m), 0.0, 0.0
    n_right = max(n_right, 3.0)
    if not n_left + n_right >= 0.0:
        return math.inf, 0.0, 0.0
    n = (int(min(n_left + n_right + 1.0, N_TERMS)) + 3) // 4 * 4
    tabulated = centre - n_left * step + n * step < _TABLE
    if peak >= _STEEP and centre - n_left * step >= _SMALLEST_STIRLING:
        # Differences of large log-factorials, times nu, would lose the digits of the mean.
        tabulated = False
    if not tabulated and centre - n_left * step < _SMALLEST_STIRLING:
        # Terms so far below the mode are negligible where others lie beyond the table.
        n_left = np.floor((centre - _SMALLEST_STIRLING) / step)
    first = centre - n_left * step
    kind = _TABULATED if tabulated else _STIRLING
    _fill_terms(kind, n, n, first, step, centre, eta, nu, p, d, g)
    _moments(order, n, p, d, g, m)
    return (
        log_term(centre, eta, nu) + math.log(step) + _log_sum(p, m),
        centre,
        log_factorial(centre),
    )


@_loop
def _moments(order, n, p, d, g, m):
    """Write the sum of all terms but the first, means and central moments into ``m``.

    They are in the order sum; d, g; dd, dg, gg; ddd, ddg, dgg, ggg.
    """
    rest = 0.0
    sum_d = p[0] * d[0]
    sum_g = p[0] * g[0]
    for i in range(1, n):
        rest += p[i]
        sum_d += p[i] * d[i]
        sum_g += p[i] * g[i]
    total = p[0] + rest
    m[0] = rest
    m[1] = sum_d / total
    m[2] = sum_g / total
    if order >= 2:
        mean_d, mean_g = m[1], m[2]
        dd, dg, gg, ddd, ddg, dgg, ggg = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for i in range(n):
            a = d[i] - mean_d
            b = g[i] - mean_g
            aa = p[i] * a * a
            bb = p[i] * b * b
            dd += aa
            dg += p[i] * a * b
            gg += bb
            ddd += aa * a
            ddg += aa * b
            dgg += bb * a
            ggg += bb * b
        m[3], m[4], m[5] = dd / total, dg / total, gg / total
        m[6], m[7], m[8], m[9] = ddd / total, ddg / total, dgg / total, ggg / total


@_inner
def _log_sum(p, m):
    """Log of all terms; a sum that hardly exceeds its first term, one, keeps those digits."""
    return math.log1p(m[0]) if p[0] == 1.0 else math.log(p[0] + m[0])


@_inner
def log_factorial(x):
    """Return log x! for a whole number x."""
    if x < _TABLE:
        return _LOG_FACTORIAL[int(x)]
    return (x + 0.5) * math.log(x) - x + _HALF_LOG_2PI + _stirling_tail(x)


@_inner
def log_term(x, eta, nu):
    """Return eta x - nu log x! for a whole number x, without the cancellation of the two."""
    if x < _TABLE:
        return eta * x - nu * _LOG_FACTORIAL[int(x)]
    log_x = math.log(x)
    return x * (eta - nu * log_x) + nu * (x - 0.5 * log_x - _HALF_LOG_2PI - _stirling_tail(x))


@_inner
def _above(x, eta, nu):
    """Return the log term at the mode, and so much more that rounding makes none larger."""
    if x > _LARGEST_FROZEN:
        return math.inf
    return log_term(x, eta, nu) + 1e-14 * (abs(eta) * x + nu * log_factorial(x))


@_inner
def cumulants(order, eta, nu, p, d, g, m, out):
    """Write the derivatives of log Z up to ``order`` (1 to 3) into ``out``.

    They are in the order of :func:`derivative_orders`. Where there is no distribution log Z is
    +inf and its derivatives are zero. ``p``, ``d``, ``g`` and ``m`` are room for ``N_TERMS``
    numbers.
    """
    log_z, x0, l0 = _summarise(order, eta, nu, p, d, g, m)
    out[0] = log_z
    if not log_z < math.inf:
        out[1:] = 0.0
        return
    out[1] = x0 + m[1]
    out[2] = -(l0 + m[2])
    if order >= 2:
        out[3], out[4], out[5] = m[3], -m[4], m[5]
    if order >= 3:
        out[6], out[7], out[8], out[9] = m[6], -m[7], m[8], -m[9]


def derivative_orders(order: int) -> list[tuple[int, int]]:
    """List the derivatives (a, b), a-fold in eta and b-fold in nu, up to a total order.

    Examples
    --------
    >>> derivative_orders(2)
    [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2)]
    """
    return [(total - b, b) for total in range(order + 1) for b in range(total + 1)]


# --- where no sum is needed, or none is short enough ---------------------------------------------
#
# Compiled only when a row first asks for it.

# Gaunt, Iyengar, Olde Daalhuis and Simsek (2019), in logarithms: log Z is nu m, logarithms of m
# and nu, and c nu^s m^k for these c, k and s.
_MONOMIALS = np.array(
    [
        (1.0, 1.0, 1.0),
        (1.0 / 24.0, -1.0, 1.0),
        (-1.0 / 24.0, -1.0, -1.0),
        (1.0 / 48.0, -2.0, 0.0),
        (-1.0 / 48.0, -2.0, -2.0),
        (-9.0 / 5760.0, -3.0, 1.0),
        (170.0 / 5760.0, -3.0, -1.0),
        (-161.0 / 5760.0, -3.0, -3.0),
    ]
)


@_inner
def _expand(eta, nu, k):
    """Write log Z and its derivatives by the asymptotic expansion into ``k``."""
    log_mode, log_nu = eta / nu, math.log(nu)
    r = 1.0 / nu
    k[0] = 0.5 * (log_mode - eta - log_nu) - (nu - 1.0) * _HALF_LOG_2PI
    k[1] = 0.5 * (r - 1.0)
    k[2] = -0.5 * r * (log_mode + 1.0) - _HALF_LOG_2PI
    k[3], k[4], k[5] = 0.0, -0.5 * r * r, r * r * (log_mode + 0.5)
    k[6], k[7], k[8], k[9] = 0.0, 0.0, r**3, -(r**3) * (3.0 * log_mode + 1.0)
    for i in range(len(_MONOMIALS)):
        c, exponent, power = _MONOMIALS[i]
        # A derivative in eta divides by nu. Those of nu^s m^k in nu are polynomials in q.
        for a in range(4):
            q = power - exponent * log_mode
            factor = c * _exp(exponent * log_mode + power * log_nu)
            k[a * (a + 1) // 2] += factor
            if a <= 2:
                k[(a + 1) * (a + 2) // 2 + 1] += factor * q * r
            if a <= 1:
                k[(a + 2) * (a + 3) // 2 + 2] += factor * (q * (q - 2.0) + power) * r * r
            if a == 0:
                cube = q * (q * (q - 6.0) + 3.0 * power + 6.0) - 4.0 * power
                k[9] += factor * cube * r**3
            c *= exponent
            power -= 1.0


_LOG_2 = math.log(2.0)
_HALF_LINE_X, _HALF_LINE_W = half_line()
_UNIT_X, _UNIT_W = unit_interval()
_END_X, _END_W = np.arange(float(len(END_WEIGHTS))), END_WEIGHTS
_DOUBLES = types.CPointer(types.float64)
_SPECIAL = types.float64(
    types.int64, types.float64, types.float64, types.float64, _DOUBLES, _DOUBLES
)


def _special_by_pointer(kind, eta, nu, width, work, m):
    """Write moments into ``m`` and return log Z; ``_WIDE`` needs the width of the summand."""
    work, m = carray(work, (4, N_TERMS)), carray(m, 10)
    if kind == _WIDE:
        p, d, g = work[0], work[1], work[2]
        n_nodes, n_end = len(_HALF_LINE_X), len(_END_X)
        for i in range(N_TERMS):
            d[i], p[i] = 0.0, 0.0
            if i < n_nodes:
                d[i], p[i] = width * _HALF_LINE_X[i], width * _HALF_LINE_W[i]
            elif i < n_nodes + n_end:
                d[i], p[i] = _END_X[i - n_nodes], _END_W[i - n_nodes]
            g[i] = math.lgamma(d[i] + 1.0)
            p[i] *= _exp(eta * d[i] - nu * g[i])
        _moments(_THIRD, N_TERMS, p, d, g, m)
        return _log_sum(p, m)
    if kind == _FAR_OUT:
        _expand(eta, nu, m)
    else:
        # Counts 0 and 1, and what a count of two adds to moments of L.
        rate, two = math.exp(eta), _LOG_2 * math.exp(2.0 * eta - nu * _LOG_2)
        m[0] = m[1] = m[3] = m[6] = rate
        m[2], m[4], m[5] = -two, -2.0 * two, _LOG_2 * two
        m[7], m[8], m[9] = -4.0 * two, 2.0 * _LOG_2 * two, -_LOG_2 * _LOG_2 * two
    # Moments are those of L, derivatives those of -L.
    for i in (2, 4, 7, 9):
        m[i] = -m[i]
    return m[0]


# --- the rate that has a given mean -----------------------------------------------------------

_LEAST_VARIANCE = 1e-150  # by which derivatives are still divided


@_inner
def _first_guess(mu, nu):
    """Log rate of about the mean mu, within a tenth of 1/sd everywhere."""
    if nu >= 4.0 and mu < 0.21 * nu:
        # Three neighbouring counts carry the mass: a quadratic in the rate.
        k = math.floor(mu + 0.5)
        f = mu - k
        log_ratio = nu * math.log(k / (k + 1.0)) if k > 0.0 else -math.inf
        root = math.sqrt(f * f + 4.0 * math.exp(log_ratio) * (1.0 - f * f))
        log_rate = nu * math.log(k + 1.0)
        if f > 0.0:
            return log_rate + math.log((f + root) / (2.0 * (1.0 - f)))
        # The ratio itself may be too small for a double, its log is not.
        if root - f > 0.0:
            return log_rate + log_ratio + math.log(2.0 * (1.0 + f) / (root - f))
        return log_rate + 0.5 * log_ratio
    if nu * mu > 0.9 and mu > 0.6:
        # The mean is mode - (nu - 1)/(2 nu) - (nu^2 - 1)/(24 nu^2 mode) - ...
        return nu * math.log(mu + (nu - 1.0) / (2.0 * nu) + (nu * nu - 1.0) / (24.0 * nu * nu * mu))
    # Exact for nu = 0 and nu = 1, and to second order in mu.
    bend = _LOG_2
    if abs(nu - 1.0) > 1e-6:
        bend = math.expm1((1.0 - nu) * _LOG_2) / (1.0 - nu)
    return nu * math.log(mu) + (nu - 1.0) * math.log1p((bend + (1.0 - bend) / (1.0 + mu)) / mu)


@_inner
def from_mean(log_mu, nu, p, d, g, m, out):
    r"""Write eta, log Z, d eta/d log mu, d eta/d nu and E[L] for the mean mu into ``out``.

    Halley's method on the log of the mean, inside a bracket; the last, tiny step is taken by the
    Taylor series of what has been summed already. Where there is no distribution log Z is +inf
    and the rest zero. ``p``, ``d``, ``g`` and ``m`` are room for ``N_TERMS`` numbers.
    """
    out[:] = 0.0
    out[1] = math.inf
    if not (0.0 <= nu <= _LAST_NU and log_mu < LOG_LARGEST):
        return
    mu = math.exp(log_mu)
    if log_mu < LOG_RARE:
        out[0], out[1], out[2] = log_mu, mu, 1.0
        out[3] = 2.0 * _LOG_2 * math.exp(log_mu - nu * _LOG_2)
        out[4] = 0.5 * mu * out[3]
        return
    # The log of a whole number is that number: a large nu would see the rounding.
    whole = math.floor(mu + 0.5)
    if abs(mu - whole) <= 2.0 * _EPS * whole * max(1.0, abs(log_mu)):
        mu = whole
    if nu > LARGEST_NU:
        # Two neighbours carry the mass.
        k = np.floor(mu)
        f, step = max(mu - k, 1e-6), math.log(k + 1.0)
        out[0] = nu * step + math.log(f / (1.0 - f))
        out[1] = _above(k, out[0], nu) - math.log1p(-f)
        if out[1] < math.inf:
            out[2], out[3], out[4] = mu / (f * (1.0 - f)), step, log_factorial(k) + f * step
        else:
            out[0] = 0.0
        return
    eta = _first_guess(mu, nu)
    low, high = -math.inf, math.inf
    for _ in range(100):
        log_z, x0, l0 = _summarise(_THIRD, eta, nu, p, d, g, m)
        if not log_z < math.inf:
            high = eta
            eta = 0.5 * (low + high) if low > -math.inf else high - 0.1 * abs(high) - 1e-3 / mu
            continue
        mean, dd, dg, ddd, ddg = x0 + m[1], m[3], m[4], m[6], m[7]
        if not dd > _LEAST_VARIANCE:
            # One count for certain, as far as doubles go.
            out[0], out[1], out[2] = eta, log_z, mu / _LEAST_VARIANCE
            out[3], out[4] = eta / nu, l0 + m[2]
            return
        excess = math.log1p(((x0 - mu) + m[1]) / mu)
        if excess > 0.0:
            high = eta
        else:
            low = eta
        slope = dd / mean
        newton = -excess / slope
        halley = newton / max(0.5, 1.0 + 0.5 * newton * (ddd / dd - slope))
        size = abs(halley)
        if size * max(1.0, math.sqrt(dd)) < 3e-6 or size < 4.0 * _EPS * abs(eta):
            h = halley
            out[0] = eta + h
            out[1] = log_z + h * (mean + h * (dd / 2.0 + h * ddd / 6.0))
            out[2] = mu / (dd + h * ddd)
            out[3] = (dg + h * ddg) / (dd + h * ddd)
            out[4] = l0 + m[2] + h * (dg + 0.5 * h * ddg)
            return
        eta += halley
        if not low < eta < high:
            if low > -math.inf and high < math.inf:
                eta = 0.5 * (low + high)
            elif low > -math.inf:
                eta = low + min(halley, 1.0)
            else:
                eta = high + max(halley, -1.0)


# --- pointers to compiled functions -------------------------------------------------------------
#
# numba links and optimises all that a function calls anew for each of its callers. Behind a pointer
# the sums over a row are compiled once, and the graphs that users compile stay small.


# What compiled code calls to learn an address. It is known by its name: written into the code as a
# number, it would be wrong in the next process that loads the code from disk.
_ASK = "pymc_bayessum_cmp_address"

# How to find each address, in the order of the numbers by which they are asked for.
_PLACES: list[Callable[[], int]] = []


def _kept(find: Callable[[], int], result_type: Any, wrap: Any) -> Any:
    """Make a compiled function without arguments that returns something by its address.

    The address is asked for at the first call and kept in a variable of the calling module.
    """
    which = len(_PLACES)
    _PLACES.append(find)

    @_intrinsic
    def kept(typing_context):
        def codegen(context, builder, signature, args):
            number = ir.IntType(64)
            place = cgutils.add_global_variable(builder.module, number, f"cmp_address_{which}")
            place.linkage = "private"
            place.initializer = ir.Constant(number, 0)
            empty = builder.icmp_unsigned("==", builder.load(place), place.initializer)
            with builder.if_then(empty):
                ask_type = ir.FunctionType(number, [number])
                ask = cgutils.get_or_insert_function(builder.module, ask_type, _ASK)
                builder.store(builder.call(ask, [ir.Constant(number, which)]), place)
            return wrap(context, builder, builder.inttoptr(builder.load(place), cgutils.voidptr_t))

        return result_type(), codegen

    return kept


@ctypes.CFUNCTYPE(*[ctypes.c_int64] * 2)
def _address(which: int) -> int:
    return _PLACES[which]()


def _place(function: Any) -> Any:
    return ctypes.cast(function, ctypes.c_void_p).value


llvmlite.binding.add_symbol(_ASK, _place(_address))


def _function(signature: Any, find: Callable[[], int]) -> Any:
    """Make a compiled function that returns a function by its address."""
    function_type = types.FunctionType(signature)

    def wrap(context, builder, address):
        function = cgutils.create_struct_proxy(function_type)(context, builder)
        function.c_addr = address
        return function._getvalue()

    return _kept(find, function_type, wrap)


def _memory(item: Any, array: Callable[[], Any]) -> Any:
    """Make a compiled function that returns a pointer to the items of an array by its address."""
    pointer = types.CPointer(item)

    def wrap(context, builder, address):
        return builder.bitcast(address, context.get_value_type(pointer))

    return _kept(lambda: array().ctypes.data, pointer, wrap)


@cache
def _compiled(signature: Any, function: Any) -> Any:
    """Compile a function when it is first asked for."""
    return cfunc(signature, cache=True, error_model="numpy", fastmath={"contract"})(function)


def _behind_pointer(signature: Any, function: Any) -> Any:
    """Make a compiled function that returns what a function is compiled to."""
    return _function(signature, lambda: _compiled(signature, function).address)


FROM_MEAN = 0
"""What to compute, beside the orders 1 to 3 of cumulants."""

_ROW = types.void(types.int64, types.float64, types.float64, _DOUBLES, types.int64, _DOUBLES)


def _row_by_pointer(what, first, nu, work, n_outputs, out):
    # Four arrays in a row; taking slices of one would cost as much as the sums themselves.
    work, out = carray(work, (4, N_TERMS)), carray(out, n_outputs)
    p, d, g, m = work[0], work[1], work[2], work[3]
    if what == FROM_MEAN:
        from_mean(first, nu, p, d, g, m, out)
    else:
        cumulants(what, first, nu, p, d, g, m, out)


_row = _behind_pointer(_ROW, _row_by_pointer)
_special = _behind_pointer(_SPECIAL, _special_by_pointer)


@_intrinsic
def _pointer(typing_context, array):
    """Return where an array begins."""

    def codegen(context, builder, signature, args):
        return cgutils.create_struct_proxy(signature.args[0])(context, builder, args[0]).data

    return _DOUBLES(array), codegen


# --- a table of cells that all rows share ---------------------------------------------------------
#
# A cell of the plane (see `cells`) is filled when a row first falls into it, split into four while
# it misses the tolerance, and kept as long as the process lives. What it holds does not depend on
# the rows, so that nothing does depend on what was asked before.

_FEWEST_ROWS = 64  # below, rows are summed
_BLOCK = 1024  # rows that are read step by step
_LOW_S, _HIGH_S, _LOW_V, _HIGH_V = -8.0, 9.5, -7.0, 4.0
_ROOTS_S, _ROOTS_V = 35, 44  # cells before any is split: 1/2 by 1/4
_DEEPEST = 4  # splits
_FINE_S, _FINE_V = _ROOTS_S << _DEEPEST, _ROOTS_V << _DEEPEST
_PER_FINE_S, _PER_FINE_V = _FINE_S / (_HIGH_S - _LOW_S), _FINE_V / (_HIGH_V - _LOW_V)
_MOST_FILLS = 1 << 12  # ten times what a model visits; beyond, rows are summed
_HEAD = 4  # middle and inverse half width of a cell in s, then in log nu
_N_POWERS = len(POWERS)
# A vector holds a coefficient of up to four outputs, power by power. Of the fifth output it holds
# those of four powers of s, and vectors follow one another from the lowest power of log nu on.
_PARTS = ((4, 0), (1, 4))  # how many outputs, and which is the first
_LENGTHS = range(DEGREE + 1, 0, -4)  # vectors of four powers of s each
_STARTS = np.cumsum([_N_POWERS, *_LENGTHS])  # which vector is their first
_FIFTH = [_HEAD + 4 * (_STARTS[i // 4] + k) + i % 4 for i, k in POWERS]
_CELL = _HEAD + 4 * _STARTS[-1]
_LINE = _HEAD + 5 * (DEGREE + 1) + 3  # of a cell at one nu: its middle and inverse half width in s

# The index has an entry for each of the finest cells there may be: the number of a cell from 1 on,
# -1 where rows are summed, or 0 where nothing is known yet.
_ENTRIES = types.CPointer(types.int16)
_UNKNOWN, _SUMMED = 0, -1


class _Table:
    """Memory of the index and of the cells, which the system provides as they are filled."""

    def __init__(self, by_mean: bool) -> None:
        self.by_mean = by_mean
        self.index = np.zeros(_FINE_S * _FINE_V, np.int16)
        # No vector lies across two lines of the processor's memory: that would cost a fifth.
        memory = np.zeros(_MOST_FILLS * _CELL + 8)
        aligned = -memory.ctypes.data // memory.itemsize % 8
        self.cells = memory[aligned : aligned - 8].reshape(_MOST_FILLS, _CELL)
        self._known: dict[tuple[int, int, int], int] = {}
        self._n_cells = 0
        self._lock = Lock()

    def find(self, i: int, j: int) -> int:
        """Return what the index says at a place, from now on.

        It is written here, after the cell that it names: several threads may share the table.
        """
        with self._lock:
            for splits in range(_DEEPEST + 1):
                span = 1 << (_DEEPEST - splits)
                at = (splits, i // span, j // span)
                if at not in self._known:
                    if len(self._known) == _MOST_FILLS:
                        return _SUMMED
                    self._known[at] = self._fill(*at)
                entry = self._known[at]
                if entry != _UNKNOWN:
                    return entry
            return _SUMMED

    def _fill(self, splits: int, i: int, j: int) -> int:
        """Fill a cell and return its number from 1 on, or 0 where it misses."""
        span = 1 << (_DEEPEST - splits)
        half_s, half_v = 0.5 * span / _PER_FINE_S, 0.5 * span / _PER_FINE_V
        s, v = _LOW_S + (2 * i + 1) * half_s, _LOW_V + (2 * j + 1) * half_v
        coefficients = fill(self.by_mean, s, half_s, v, half_v)
        if coefficients is None:
            return _UNKNOWN
        cell = self.cells[self._n_cells]
        vectors = cell[_HEAD : _HEAD + 4 * _N_POWERS].reshape(-1, 4)
        vectors[:, : coefficients.shape[1]] = coefficients[:, :4]
        if self.by_mean:
            cell[_FIFTH] = coefficients[:, 4]
        cell[:_HEAD] = s, 1.0 / half_s, v, 1.0 / half_v
        self._n_cells += 1
        return self._n_cells


@cache
def _table(by_mean: bool) -> _Table:
    return _Table(by_mean)


_FIND = types.int64(types.int64, types.int64, types.int64)


@ctypes.CFUNCTYPE(*[ctypes.c_int64] * 4)
def _find_entry(by_mean: int, i: int, j: int) -> int:
    return _table(bool(by_mean)).find(i, j)


_find = _function(_FIND, lambda: _place(_find_entry))


@_intrinsic
def _load(typing_context, entries, i):
    def codegen(context, builder, signature, args):
        return builder.load_atomic(builder.gep(args[0], [args[1]]), "acquire", 2)

    return types.int16(_ENTRIES, types.int64), codegen


@_intrinsic
def _store(typing_context, entries, i, value):
    def codegen(context, builder, signature, args):
        value = builder.trunc(args[2], ir.IntType(16))
        builder.store_atomic(value, builder.gep(args[0], [args[1]]), "release", 2)
        return context.get_dummy_value()

    return types.void(_ENTRIES, types.int64, types.int64), codegen


# Polynomials of all outputs at once, in vectors. Written out: LLVM would not find it by itself.


def _horner(builder: Any, coefficients: Any, x: Any) -> Any:
    """Emit a polynomial, given the vectors of its coefficients from the lowest power on."""
    multiply_add = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(x.type, [x.type] * 3),
        f"llvm.fmuladd.v{x.type.count}f64",
    )
    *rest, total = coefficients
    for coefficient in reversed(rest):
        total = builder.call(multiply_add, [total, x, coefficient])
    return total


def _vectors(builder: Any, pointer: Any, width: int, first: int, n: int) -> list[Any]:
    """Emit loads of n vectors that follow one another."""
    kind = ir.VectorType(ir.DoubleType(), width).as_pointer()
    places = [builder.gep(pointer, [ir.IntType(64)(first + width * i)]) for i in range(n)]
    return [builder.load(builder.bitcast(place, kind), align=8) for place in places]


def _broadcast(builder: Any, x: Any, width: int) -> Any:
    kind = ir.VectorType(ir.DoubleType(), width)
    vector = builder.insert_element(ir.Constant(kind, ir.Undefined), x, ir.IntType(32)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), width), None)
    return builder.shuffle_vector(vector, ir.Constant(kind, ir.Undefined), zeros)


def _collapsed(builder: Any, cell: Any, w: Any, first: int) -> list[Any]:
    """Emit the coefficients of powers of s at one nu, of a part of the outputs."""
    w = _broadcast(builder, w, 4)

    def at_nu(start, n):
        return _horner(builder, _vectors(builder, cell, 4, _HEAD + 4 * start, n), w)

    if first == 0:
        return [at_nu(POWERS.index((i, 0)), DEGREE + 1 - i) for i in range(DEGREE + 1)]
    groups = [at_nu(*group) for group in zip(_STARTS, _LENGTHS, strict=False)]
    lanes = [
        builder.extract_element(group, ir.IntType(32)(o)) for group in groups for o in range(4)
    ]
    return [_broadcast(builder, lane, 1) for lane in lanes[: DEGREE + 1]]


def _readers(n_outputs: int) -> tuple[Any, Any, Any]:
    """Make compiled functions that read a cell, a cell at one nu, and what that one wrote."""
    result = types.UniTuple(types.float64, n_outputs)
    parts = [(width, first) for width, first in _PARTS if first < n_outputs]

    def outputs(context, builder, lines, u):
        """Emit the polynomials in s, given what makes the coefficients of a part."""
        items = []
        for width, first in parts:
            vector = _horner(builder, lines(width, first), _broadcast(builder, u, width))
            items += [builder.extract_element(vector, ir.IntType(32)(o)) for o in range(width)]
        return context.make_tuple(builder, result, items[:n_outputs])

    @_intrinsic
    def read(typing_context, cell, u, w):
        def codegen(context, builder, signature, args):
            cell, u, w = args

            def lines(width, first):
                return _collapsed(builder, cell, w, first)

            return outputs(context, builder, lines, u)

        return result(_DOUBLES, types.float64, types.float64), codegen

    @_intrinsic
    def collapse(typing_context, cell, w, line):
        def codegen(context, builder, signature, args):
            cell, w, line = args
            for width, first in parts:
                start = _HEAD + first * (DEGREE + 1)
                for i, vector in enumerate(_collapsed(builder, cell, w, first)):
                    place = builder.gep(line, [ir.IntType(64)(start + width * i)])
                    builder.store(vector, builder.bitcast(place, vector.type.as_pointer()), align=8)
            return context.get_dummy_value()

        return types.void(_DOUBLES, types.float64, _DOUBLES), codegen

    @_intrinsic
    def read_line(typing_context, line, u):
        def codegen(context, builder, signature, args):
            def lines(width, first):
                start = _HEAD + first * (DEGREE + 1)
                return _vectors(builder, args[0], width, start, DEGREE + 1)

            return outputs(context, builder, lines, args[1])

        return result(_DOUBLES, types.float64), codegen

    return read, collapse, read_line


@_intrinsic
def _at(typing_context, pointer, i):
    """Move a pointer."""

    def codegen(context, builder, signature, args):
        return builder.gep(args[0], [args[1]])

    return _DOUBLES(_DOUBLES, types.int64), codegen


_EACH = types.int64(types.int64, types.int64, _DOUBLES, types.int64, _DOUBLES, _DOUBLES)
_SHARED = types.int64(types.int64, _DOUBLES, types.float64, _DOUBLES)


def _rows_readers(by_mean: bool) -> tuple[Any, Any]:
    """Write functions that read rows that differ in nu, and rows that share it.

    They write the outputs one after the other, and return how many rows are left to be summed,
    whose first output is NaN.
    """
    n_outputs = 5 if by_mean else 3
    read, collapse, read_line = _readers(n_outputs)
    index_of = _memory(types.int16, lambda: _table(by_mean).index)
    cells_of = _memory(types.float64, lambda: _table(by_mean).cells)

    @_inner
    def place(s, v):
        """Return where the index speaks of a point."""
        return int((s - _LOW_S) * _PER_FINE_S) * _FINE_V + int((v - _LOW_V) * _PER_FINE_V)

    @_inner
    def find(index, at):
        entry = np.int64(_load(index, at))
        if entry == _UNKNOWN:
            entry = _find()(by_mean, at // _FINE_V, at % _FINE_V)
            _store(index, at, entry)
        return entry

    @_inner
    def position(first, nu):
        return first if by_mean or first <= 0.0 else first / nu

    @_inner
    def write(values, out, i, n):
        """Write what a cell holds of row i of n."""
        out[i], out[n + i], out[2 * n + i] = values[0], values[1], values[2]
        if by_mean:
            out[3 * n + i], out[4 * n + i] = values[3], values[4]

    @_inner
    def complete(s, nu, out, i, n):
        """Turn that into the outputs, which are larger."""
        if by_mean:
            out[n + i] += _exp(s) * (out[i] + nu)
            out[i] += nu * s
        else:
            out[i] += nu * _exp(s) if s > 0.0 else 0.0

    def each(n, step_first, first, step_nu, nu, out):
        index, cells = index_of(), cells_of()
        s, v, dispersion = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK)
        # Rows of a block that share a cell: the last of them, and the one before each.
        last, before = np.full(_MOST_FILLS + 1, -1), np.empty(_BLOCK, np.int64)
        at, seen = np.empty(_BLOCK, np.int64), np.empty(_BLOCK, np.int64)
        left = 0
        # Step by step, because the steps of one row wait for each other, and cell by cell, because
        # the next row would find another in the memory that is near.
        for start in range(0, n, _BLOCK):
            m = min(_BLOCK, n - start)
            for k in range(m):
                s[k], dispersion[k] = first[step_first * (start + k)], nu[step_nu * (start + k)]
            for k in range(m):
                s[k], v[k] = position(s[k], dispersion[k]), _log(dispersion[k])
                inside = (s[k] > _LOW_S) & (s[k] < _HIGH_S) & (dispersion[k] > 1e-3)
                inside &= (v[k] > _LOW_V) & (v[k] < _HIGH_V)
                at[k] = place(s[k], v[k]) if inside else -1
            n_seen = 0
            for k in range(m):
                entry = find(index, at[k]) if at[k] >= 0 else _SUMMED
                if entry == _SUMMED:
                    out[start + k] = math.nan
                    left += 1
                    continue
                before[k] = last[entry]
                last[entry] = k
                if before[k] < 0:
                    seen[n_seen] = entry
                    n_seen += 1
            for entry in seen[:n_seen]:
                cell = _at(cells, (entry - 1) * _CELL)
                k = last[entry]
                last[entry] = -1
                while k >= 0:
                    values = read(cell, (s[k] - cell[0]) * cell[1], (v[k] - cell[2]) * cell[3])
                    write(values, out, start + k, n)
                    k = before[k]
            for k in range(m):
                complete(s[k], dispersion[k], out, start + k, n)
        return left

    def shared(n, first, nu, out):
        index, cells = index_of(), cells_of()
        v = _log(nu)
        # Polynomials in s alone, each behind the middle and the inverse half width of its cell.
        lines = np.empty(_FINE_S * _LINE)
        kept = np.zeros(_FINE_S)  # 0 where nothing is known yet, -1 where rows are summed
        left = 0
        for i in range(n):
            s = position(first[i], nu)
            if _LOW_S < s < _HIGH_S:
                slot = int((s - _LOW_S) * _PER_FINE_S)
                line = _at(_pointer(lines), slot * _LINE)
                if kept[slot] == 0.0:
                    entry = find(index, place(s, v))
                    kept[slot] = 1.0 if entry > 0 else -1.0
                    if entry > 0:
                        cell = _at(cells, (entry - 1) * _CELL)
                        collapse(cell, (v - cell[2]) * cell[3], line)
                        line[0], line[1] = cell[0], cell[1]
                if kept[slot] > 0.0:
                    write(read_line(line, (s - line[0]) * line[1]), out, i, n)
                    continue
            out[i] = math.nan
            left += 1
        for i in range(n):
            complete(position(first[i], nu), nu, out, i, n)
        return left

    return _behind_pointer(_EACH, each), _behind_pointer(_SHARED, shared)


_mean_each, _mean_shared = _rows_readers(True)
_rate_each, _rate_shared = _rows_readers(False)


# --- entry points ------------------------------------------------------------------------------

_SIZED = (types.int64, _DOUBLES)  # an array: how many numbers, and where
_ROWS = types.void(types.int64, types.int64, *_SIZED, *_SIZED, *_SIZED)


def _sum_by_pointer(what, n, step_first, first, step_nu, nu, n_outputs, out):
    """Sum the rows whose first output is NaN."""
    work, row = np.empty((4, N_TERMS)), np.empty(n_outputs)
    for i in range(n):
        if math.isnan(out[i]):
            _row()(what, first[step_first * i], nu[step_nu * i], work.ctypes, n_outputs, row.ctypes)
            for j in range(n_outputs):
                out[j * n + i] = row[j]


def _rows_by_pointer(what, n, n_first, first, n_nu, nu, n_outputs, out):
    step_first, step_nu = int(n_first > 1), int(n_nu > 1)
    left = n
    if what <= 1 and n >= _FEWEST_ROWS:
        i = 1
        while i < n_nu and nu[i] == nu[0]:
            i += 1
        if i == n_nu and n_first == n and 1e-3 < nu[0] < 50.0:
            if what == FROM_MEAN:
                left = _mean_shared()(n, first, nu[0], out)
            else:
                left = _rate_shared()(n, first, nu[0], out)
        elif what == FROM_MEAN:
            left = _mean_each()(n, step_first, first, step_nu, nu, out)
        else:
            left = _rate_each()(n, step_first, first, step_nu, nu, out)
    else:
        for i in range(n):
            out[i] = math.nan
    if left > 0:
        _sum()(what, n, step_first, first, step_nu, nu, n_outputs, out)


_rows = _behind_pointer(_ROWS, _rows_by_pointer)
_sum = _behind_pointer(_ROWS, _sum_by_pointer)


@njit(**_OPTIONS)
def rows(what, first, nu, out):
    """Write the outputs of n rows into ``out`` (m, ...).

    ``what`` is FROM_MEAN (m = 5) or the order of the derivatives (m = 3, 6, 10). All arrays are
    contiguous, ``first`` and ``nu`` of n numbers or 1.
    """
    n_outputs = out.shape[0]
    n = out.size // n_outputs
    _rows()(what, n, first.size, _pointer(first), nu.size, _pointer(nu), n_outputs, _pointer(out))


@njit(**_OPTIONS)
def rate_of_mean(log_mu, nu):
    """Log rate of the distribution with one mean, NaN where there is none."""
    if log_mu >= LOG_LARGEST:  # the mode is the mean by then
        return nu * log_mu
    out = np.empty((5, 1))
    rows(FROM_MEAN, np.full(1, log_mu), np.full(1, nu), out)
    return out[0, 0] if out[1, 0] < math.inf else math.nan


# --- tails ---------------------------------------------------------------------------------------

LOG_CDF, LOG_SF, QUANTILE = 0, 1, 2
"""What to compute of the distribution function."""

_LEAST_LOG = -740.0  # of a probability that a double still tells from zero
_LARGEST_COUNT = 9e15  # that a double tells from its neighbours
_MOST_BLOCKS = 8  # of terms; a tail that is longer is integrated from there on
_FIRST_SMOOTH = 96.0  # count from which on that may start


@_inner
def log_fall(x, centre, eta, nu):
    """Return the log of the term at x by that at a centre, to the last digits at any count."""
    if min(x, centre) < _TABLE:
        return log_term(x, eta, nu) - log_term(centre, eta, nu)
    away = x - centre
    bend = (x + 0.5) * _log_ratio(x, centre) - away + (_stirling_tail(x) - _stirling_tail(centre))
    return (eta - nu * math.log(centre)) * away - nu * bend


@_inner
def _log_mass(x, eta, nu, log_z):
    """Return the log probability of a count, without the rounding of log Z where that is large."""
    if nu > 0.0 and eta > 0.0:
        mode = _exp(min(eta / nu, LOG_LARGEST))
        if min(mode, nu * mode) >= FAR and mode >= 8.0 * nu and x >= 0.5 * mode:
            # The asymptotic expansion about a real mode, at which the slope vanishes.
            away = x - mode
            bend = (x + 0.5) * _log_ratio(x, mode) - away + _stirling_tail(x)
            rest = (nu - 1.0 / nu) / (24.0 * mode) + (1.0 - 1.0 / (nu * nu)) / (48.0 * mode * mode)
            return -nu * bend - 0.5 * math.log(mode / nu) - _HALF_LOG_2PI - rest
    return log_term(x, eta, nu) - log_z


@_inner
def _add(n, away, shift_l, scale, p, d, g, t):
    """Add terms to raw sums of 1, d, g, dd, dg and gg."""
    for i in range(n):
        a, b, w = d[i] + away, g[i] + shift_l, p[i] * scale
        t[0] += w
        t[1] += w * a
        t[2] += w * b
        t[3] += w * a * a
        t[4] += w * a * b
        t[5] += w * b * b


@_inner
def _integrate(edge, down, eta, nu, p, d, g):
    """Write weighted terms at nodes, relative to that at ``edge``, for the sum from there outward.

    Downward it ends at ``_FIRST_SMOOTH``, unless it has died out before. Returns their number.
    """
    sign = -1.0 if down else 1.0
    slope = -sign * (eta - nu * math.log(edge))
    n = 0
    if down and log_term(edge, eta, nu) < DROP:
        length = edge - _FIRST_SMOOTH
        for i in range(len(_UNIT_X)):
            d[n], p[n] = -length * _UNIT_X[i], length * _UNIT_W[i]
            n += 1
        for i in range(len(_END_X)):
            d[n], p[n] = _END_X[i] - length, _END_W[i]
            n += 1
    else:
        reach = 2.0 / (max(slope, 0.0) + math.sqrt(slope * slope + 2.0 * nu / edge))
        for i in range(len(_HALF_LINE_X)):
            d[n], p[n] = sign * reach * _HALF_LINE_X[i], reach * _HALF_LINE_W[i]
            if edge + d[n] < _SMALLEST_STIRLING:
                d[n], p[n] = 0.0, 0.0
            n += 1
    for i in range(len(_END_X)):
        d[n], p[n] = sign * _END_X[i], _END_W[i]
        n += 1
    for i in range(n):
        d[i] = (edge + d[i]) - edge  # as a large count is rounded, so is the distance
    _weigh(n, edge, eta, nu, p, d, g)
    return n


@_inner
def _tail(x, down, eta, nu, p, d, g, t):
    """Sum terms from x on, outward, all that are above exp(-DROP) of the first.

    Writes their sum by the first term, E[X - x], E[L(X) - L(x)] and central second moments over
    the tail into ``t``.
    """
    t[:] = 0.0
    edge = x
    shift_l = 0.0  # L at the inner edge of a block, less L(x)
    n_blocks = 0
    while True:
        scale = math.exp(log_fall(edge, x, eta, nu))
        if n_blocks >= _MOST_BLOCKS and edge > 2.0 * _TABLE:
            n = _integrate(edge, down, eta, nu, p, d, g)
            _add(n, edge - x, shift_l, scale, p, d, g, t)
            if down and log_term(edge, eta, nu) < DROP:
                n = np.int64(_FIRST_SMOOTH)
                _fill_terms(_TABULATED, n, n, 0.0, 1.0, 0.0, eta, nu, p, d, g)
                first_l = log_factorial(x)
                _add(n, -x, -first_l, math.exp(-log_term(x, eta, nu)), p, d, g, t)
            break
        n_blocks += 1
        n = np.int64(N_TERMS)
        if down:
            n = min(n, np.int64(edge) + 1)
            if edge >= _TABLE > edge - n:
                n = np.int64(edge) - _TABLE + 1
            first = edge - n + 1.0
        else:
            if edge < _TABLE <= edge + n:
                n = _TABLE - np.int64(edge)
            first = edge
        kind = _TABULATED if edge < _TABLE else _STIRLING
        _fill_terms(kind, n, n, first, 1.0, edge, eta, nu, p, d, g)
        _add(n, edge - x, shift_l, scale, p, d, g, t)
        outer = first if down else first + n - 1.0
        outer_l = (g[0] if down else g[n - 1]) + shift_l
        # Log-concave, so all beyond is smaller still.
        if log_fall(outer, x, eta, nu) < -DROP or (down and outer <= 0.0):
            break
        step = -1.0 if down else 1.0
        edge = outer + step
        shift_l = outer_l + step * math.log(outer if down else edge)
    total = t[0]
    t[1] /= total
    t[2] /= total
    t[3] = t[3] / total - t[1] * t[1]
    t[4] = t[4] / total - t[1] * t[2]
    t[5] = t[5] / total - t[2] * t[2]


@_inner
def _distribution_function(upper, x, eta, nu, log_z, moments, p, d, g, t, out):
    """Write log P(X <= x) (or of X > x) and its derivatives in eta and nu into ``out``.

    ``moments`` holds E[X], -E[L] and the second derivatives of log Z. The smaller tail is summed
    and the other one is its complement.
    """
    out[:] = 0.0
    out[0] = -math.inf
    if not (log_z < math.inf and x >= 0.0):
        if upper and log_z < math.inf and x < 0.0:
            out[0] = 0.0
        return
    down = x < moments[0]
    edge = x if down else x + 1.0
    start = _log_mass(edge, eta, nu, log_z) if edge < _LARGEST_COUNT else -math.inf
    if not start > -1e300:
        out[0] = 0.0 if down == upper else -math.inf
        return
    same = down != upper  # whether what is asked for is the tail that is summed
    if not same and start < _LEAST_LOG:
        out[0] = 0.0
        return
    _tail(edge, down, eta, nu, p, d, g, t)
    log_q = start + math.log(t[0])
    shift = log_factorial(edge)
    mean = edge + t[1] - moments[0]
    minus_l = -(shift + t[2]) - moments[1]
    if same:
        out[0] = min(log_q, 0.0)
        out[1], out[2] = mean, minus_l
        out[3], out[4], out[5] = t[3] - moments[2], -t[4] - moments[3], t[5] - moments[4]
        return
    q = min(math.exp(log_q), 1.0 - 1e-16)
    odds = q / (1.0 - q)
    out[0] = math.log1p(-q)
    out[1], out[2] = -odds * mean, -odds * minus_l
    # Of log(1 - q): minus odds times (log q)'' + (1 + odds) (log q)' (log q)'.
    out[3] = -odds * (t[3] - moments[2] + (1.0 + odds) * mean * mean)
    out[4] = -odds * (-t[4] - moments[3] + (1.0 + odds) * mean * minus_l)
    out[5] = -odds * (t[5] - moments[4] + (1.0 + odds) * minus_l * minus_l)


@_inner
def _reaches(q, x, eta, nu, log_z, moments, p, d, g, t, out):
    """Whether P(X <= x) is at least q, or falls short of it by rounding alone."""
    upper = q > 0.5
    _distribution_function(upper, x, eta, nu, log_z, moments, p, d, g, t, out)
    if upper:
        return math.exp(out[0]) <= (1.0 - q) * (1.0 + 1e-12) + _EPS
    return out[0] >= math.log(q) - 1e-12


@_inner
def _quantile(q, eta, nu, log_z, moments, p, d, g, t, out):
    """Smallest count x with P(X <= x) >= q."""
    if not (log_z < math.inf and 0.0 <= q <= 1.0):
        return math.nan
    if q == 1.0:
        return math.inf
    if q == 0.0 or _reaches(q, 0.0, eta, nu, log_z, moments, p, d, g, t, out):
        return 0.0
    low, high = 0.0, max(1.0, np.floor(moments[0]))
    step = max(1.0, np.floor(math.sqrt(moments[2])))
    while not _reaches(q, high, eta, nu, log_z, moments, p, d, g, t, out):
        low = high
        high += step
        step *= 2.0
    while high - low > 1.0:
        middle = np.floor(low + 0.5 * (high - low))
        if middle in (low, high):  # beyond the counts that a double tells apart
            break
        if _reaches(q, middle, eta, nu, log_z, moments, p, d, g, t, out):
            high = middle
        else:
            low = middle
    return high


_TAILS = types.void(types.int64, types.int64, *_SIZED, *_SIZED, *_SIZED, *_SIZED)


def _tails_by_pointer(what, n, n_x, x, n_eta, eta, n_nu, nu, n_outputs, out):
    x, eta, nu = carray(x, n_x), carray(eta, n_eta), carray(nu, n_nu)
    out = carray(out, (n_outputs, n))
    work, row = np.empty((4, N_TERMS)), np.empty(6)
    p, d, g = np.empty(N_TERMS), np.empty(N_TERMS), np.empty(N_TERMS)
    t, result = np.empty(6), np.empty(6)
    step_x, step_eta, step_nu = int(n_x > 1), int(n_eta > 1), int(n_nu > 1)
    for i in range(n):
        at, rate, dispersion = x[step_x * i], eta[step_eta * i], nu[step_nu * i]
        if i == 0 or step_eta or step_nu:
            _row()(2, rate, dispersion, work.ctypes, 6, row.ctypes)
        if what == QUANTILE:
            out[0, i] = _quantile(at, rate, dispersion, row[0], row[1:], p, d, g, t, result)
        else:
            _distribution_function(
                what == LOG_SF, at, rate, dispersion, row[0], row[1:], p, d, g, t, result
            )
            for j in range(n_outputs):
                out[j, i] = result[j]


_tails = _behind_pointer(_TAILS, _tails_by_pointer)


@njit(**_OPTIONS)
def tails(what, x, eta, nu, out):
    """Write the distribution function of all rows and its derivatives into ``out`` (m, ...).

    ``what`` is LOG_CDF or LOG_SF (m = 3 or 6), or QUANTILE (m = 1, and x a probability). The
    other arrays are contiguous, of n numbers or 1.
    """
    n_outputs = out.shape[0]
    n = out.size // n_outputs
    x_at, eta_at, nu_at = _pointer(x), _pointer(eta), _pointer(nu)
    sizes = x.size, eta.size, nu.size
    _tails()(what, n, sizes[0], x_at, sizes[1], eta_at, sizes[2], nu_at, n_outputs, _pointer(out))


def evaluate(what: int, n_outputs: int, *arrays: Any) -> Any:
    """Return what :func:`rows` (of two arrays) or :func:`tails` (of three) writes, from Python."""
    flat = [np.ascontiguousarray(x, dtype=float).reshape(-1) for x in arrays]
    out = np.empty((n_outputs, *np.broadcast_shapes(*(x.shape for x in flat))))
    at = [x.ctypes.data_as(ctypes.POINTER(ctypes.c_double)) for x in (*flat, out)]
    sizes = [*(x.size for x in flat), n_outputs]
    sized = [part for pair in zip(sizes, at, strict=True) for part in pair]
    called = (_ROWS, _rows_by_pointer) if len(flat) == 2 else (_TAILS, _tails_by_pointer)
    _compiled(*called).ctypes(what, out.shape[1], *sized)
    return out
