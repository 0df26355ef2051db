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
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, cfunc, njit, objmode, types
from numba.core import cgutils
from numba.extending import intrinsic
from scipy.special import gammaln

from pymc_bayessum.counts.cmp_sums.half_line import END_WEIGHTS, half_line, unit_interval
from pymc_bayessum.counts.cmp_sums.near_zero import FIRST_SCALE, N_SCALES, OFFSET, load_rules

LOG_LARGEST = 500.0
"""Modes and means beyond exp of this are infinite: so would be derivatives of log Z."""

LOG_RARE = -40.0
"""Below this log rate (or log mean) a count of two adds nothing that a double could hold."""

LARGEST_NU = 1e12
"""Beyond, neighbouring counts are not told apart by doubles, and log Z is infinite."""

FAR = 1e4
"""The asymptotic expansion is used where the mode and nu times it are at least this."""

NEAR_PEAK = 48.0
SPACING = 0.66  # of a width, for a bell that has left zero
DROP = 37.0  # terms below exp(-DROP) of the largest are left out
_SHORT = 40.0  # a series that ends before costs less than a rule near zero
N_TERMS = 112  # the most terms any row needs, a multiple of four

_RULES = load_rules()
_NEAR_X, _NEAR_L, _NEAR_W = _RULES.nodes, _RULES.log_factorials, _RULES.weights
_NEAR_SIZE = _RULES.sizes
_TABLE = 1024  # log factorials below this are looked up
_SMALLEST_STIRLING = 16.0  # four correction terms are exact to 1e-14 from here on
_LOG_FACTORIAL = gammaln(np.arange(1.0, _TABLE + 1.0))
_INDEX = np.arange(float(N_TERMS))
_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
_EPS = 2.3e-16
_LARGEST_SQUARE = 1e140  # of a width: third moments must be doubles

# Functions that only compiled code calls; without an entry point for Python they compile faster.
_OPTIONS: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_inner = njit(cache=True, error_model="numpy", fastmath={"contract"}, **_OPTIONS)
# LLVM vectorises a sum only when it may reorder it.
_loop = njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"}, **_OPTIONS)


def _bitcast(source: Any, target: Any) -> Any:
    """Make a compiled function that reads the bits of one type as another."""

    @intrinsic
    def cast(typing_context, x):
        def codegen(context, builder, signature, args):
            return builder.bitcast(args[0], context.get_value_type(target))

        return target(source), codegen

    return cast


_to_bits = _bitcast(types.float64, types.uint64)
_from_bits = _bitcast(types.uint64, types.float64)

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
    if not 0.0 <= nu <= LARGEST_NU:
        return math.inf, 0.0, 0.0
    if eta < LOG_RARE:
        return _special()(_RARE_RATE, eta, nu, 0.0, p.ctypes, m.ctypes), 0.0, 0.0
    if not eta < math.inf:
        return math.inf, 0.0, 0.0
    mode, square = _mode_and_width(eta, nu)
    if square == 0.0:
        return math.inf, 0.0, 0.0
    peak = nu * mode
    if min(mode, peak) >= FAR and mode >= 8.0 * nu:
        return _special()(_FAR_OUT, eta, nu, 0.0, p.ctypes, m.ctypes), 0.0, 0.0
    near = square >= FIRST_SCALE * FIRST_SCALE and peak < NEAR_PEAK
    centre = np.floor(mode)
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
    if not (0.0 <= nu <= LARGEST_NU and log_mu < LOG_LARGEST):
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


@njit
def _ask(which):
    with objmode(result="intp"):
        result = _address(which)
    return result


def _kept(which: int, result_type: Any, wrap: Any) -> Any:
    """Make a compiled function without arguments that returns something by its address.

    The address is asked for at the first call and kept in a variable of the calling module:
    written into the code as a number, it would be wrong in the next process that loads the code
    from disk.
    """

    @intrinsic
    def kept(typing_context):
        def codegen(context, builder, signature, args):
            number = ir.IntType(64)
            place = cgutils.add_global_variable(builder.module, number, f"cmp_address_{which}")
            place.linkage = "private"
            place.initializer = ir.Constant(number, 0)
            empty = builder.icmp_unsigned("==", builder.load(place), place.initializer)
            with builder.if_then(empty):
                ask_type = typing_context.resolve_value_type(_ask)
                ask_signature = typing_context.resolve_function_type(ask_type, (types.int64,), {})
                ask = context.get_function(ask_type, ask_signature)
                builder.store(ask(builder, (ir.Constant(number, which),)), place)
            return wrap(context, builder, builder.inttoptr(builder.load(place), cgutils.voidptr_t))

        return result_type(), codegen

    return kept


def _function(which: int, signature: Any) -> Any:
    """Make a compiled function that returns a function by its address."""
    function_type = types.FunctionType(signature)

    def wrap(context, builder, address):
        function = cgutils.create_struct_proxy(function_type)(context, builder)
        function.c_addr = address
        return function._getvalue()

    return _kept(which, function_type, wrap)


def _memory(which: int, item: Any) -> Any:
    """Make a compiled function that returns a pointer to items by their address."""
    pointer = types.CPointer(item)

    def wrap(context, builder, address):
        return builder.bitcast(address, context.get_value_type(pointer))

    return _kept(which, pointer, wrap)


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


_row = _function(0, _ROW)
_special = _function(1, _SPECIAL)


# --- a table of cells that all rows share ---------------------------------------------------------
#
# What is asked of a row is a function of two numbers, s (its log mean; or its log mode where that
# is positive, else its log rate) and log nu: always the same function. It is interpolated at
# Chebyshev points in cells of the plane. A cell is filled when a row first falls into it, split
# into four while it misses the tolerance, and kept as long as the process lives. What a cell holds
# does not depend on the rows, so that nothing does depend on what was asked before.


def _chebyshev(degree: int) -> tuple[Any, Any]:
    """Points, and the matrix from values there to coefficients of powers."""
    points = np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))
    return points, np.linalg.inv(np.vander(points, increasing=True))


_DEGREE = 7
_POINTS, _TO_POWERS = _chebyshev(_DEGREE)
_SIDE = _DEGREE + 1
# Where a cell is tested: between its points in one direction, on the outermost in the other.
_BETWEEN = 0.999 * np.cos(np.pi * np.arange(_SIDE + 1) / _SIDE)
_TESTS = np.array(
    [(u, w) for u in _BETWEEN for w in _POINTS[[0, -1]]]
    + [(u, w) for u in _POINTS[[0, -1]] for w in _BETWEEN[:: _SIDE // 2]]
)

_FEWEST_ROWS = 64  # below, rows are summed
_LOW_S, _HIGH_S, _LOW_V, _HIGH_V = -8.0, 9.5, -7.0, 4.0
_ROOTS_S, _ROOTS_V = 35, 44  # cells before any is split: 1/2 by 1/4
_PER_S, _PER_V = _ROOTS_S / (_HIGH_S - _LOW_S), _ROOTS_V / (_HIGH_V - _LOW_V)
_DEEPEST = 4  # splits
_FINE_S, _FINE_V = _ROOTS_S << _DEEPEST, _ROOTS_V << _DEEPEST
_PER_FINE_S, _PER_FINE_V = _FINE_S / (_HIGH_S - _LOW_S), _FINE_V / (_HIGH_V - _LOW_V)
_MAX_CELLS = 1 << 13
_HEAD = 4  # middle and inverse half width of a cell in s, then in log nu
_LINE = 5 * _SIDE  # coefficients of one power of s: of five outputs, or of three and none
_CELL = _HEAD + _SIDE * _LINE

# The index has an entry for each of the finest cells there may be, and in front of them how many
# cells are in use. An entry is the number of a cell from 1 on, or -1 where rows are summed; else
# minus twice the number of splits that are known to be needed.
_INDEX_HEAD = 1
_WORDS = types.CPointer(types.int64)


@cache
def _table(by_mean: bool) -> tuple[Any, Any]:
    """Memory of the index and of the cells, which the system provides as they are filled."""
    index = np.zeros(_INDEX_HEAD + _FINE_S * _FINE_V, np.int64)
    return index, np.zeros((_MAX_CELLS, _CELL))


_mean_index, _mean_cells = _memory(2, types.int64), _memory(3, types.float64)
_rate_index, _rate_cells = _memory(4, types.int64), _memory(5, types.float64)


# Several threads may share the table: an entry is published after the cell that it names.
_atomic: Any = intrinsic


@_atomic
def _load(typing_context, words, i):
    def codegen(context, builder, signature, args):
        return builder.load_atomic(builder.gep(args[0], [args[1]]), "acquire", 8)

    return types.int64(_WORDS, types.int64), codegen


@_atomic
def _store(typing_context, words, i, value):
    def codegen(context, builder, signature, args):
        builder.store_atomic(args[2], builder.gep(args[0], [args[1]]), "release", 8)
        return context.get_dummy_value()

    return types.void(_WORDS, types.int64, types.int64), codegen


@_atomic
def _take(typing_context, words, i, count):
    """Add to an entry and return what it was before."""

    def codegen(context, builder, signature, args):
        return builder.atomic_rmw("add", builder.gep(args[0], [args[1]]), args[2], "acq_rel")

    return types.int64(_WORDS, types.int64, types.int64), codegen


@_inner
def _smooth_row(what, s, v, work, row):
    """Write what is interpolated at a point: smaller and smoother than the outputs themselves.

    The mean form has a = eta - nu log mu and log Z - mu a - nu mu: an error of a then cancels from
    y eta - log Z where y is the mean. Returns the rounding to expect of the first two.
    """
    nu = math.exp(v)
    first = s * nu if what != FROM_MEAN and s > 0.0 else s
    _row()(what, first, nu, work.ctypes, row.size, row.ctypes)
    if what == FROM_MEAN:
        mu = math.exp(s)
        row[0] -= nu * s
        row[1] -= mu * (row[0] + nu)
        return _EPS * nu * (1.0 + abs(s))
    if s > 0.0:
        row[0] -= nu * math.exp(s)
    return _EPS * (abs(first) + nu) * row[1]


@_inner
def _fill_cell(what, s, half_s, v, half_v, index, cells, work, row):
    """Interpolate around (s, log nu); return the cell's number from 1 on, or 0 where it misses."""
    n_outputs = row.size
    values = np.empty((_SIDE, _SIDE, n_outputs))
    cell = np.zeros(_CELL)
    cell[0], cell[1], cell[2], cell[3] = s, 1.0 / half_s, v, 1.0 / half_v
    smallest = np.full(n_outputs, math.inf)
    rounding = 0.0
    for i in range(_SIDE):
        for j in range(_SIDE):
            at_s, at_v = s + half_s * _POINTS[i], v + half_v * _POINTS[j]
            rounding = max(rounding, _smooth_row(what, at_s, at_v, work, row))
            for o in range(n_outputs):
                values[i, j, o] = row[o]
                smallest[o] = min(smallest[o], abs(row[o]))
    # Loops, not products of matrices: they compile in a fraction of the time.
    for o in range(n_outputs):
        for i in range(_SIDE):
            for j in range(_SIDE):
                half = 0.0
                for k in range(_SIDE):
                    half += _TO_POWERS[i, k] * values[k, j, o]
                for k in range(_SIDE):
                    cell[_HEAD + _LINE * i + _SIDE * o + k] += half * _TO_POWERS[k, j]
    found, room = np.empty(n_outputs), np.empty(_LINE)
    fits = True
    for t in range(len(_TESTS)):
        u, w = _TESTS[t, 0], _TESTS[t, 1]
        _smooth_row(what, s + half_s * u, v + half_v * w, work, row)
        _read(cell, u, w, room, found)
        for o in range(n_outputs):
            # log Z is wanted to 1e-11 (the errors of both directions add up), and eta so that a
            # count one sd from the mean times it is; or both to rounding. Others are derivatives.
            tolerance = 3e-11 * smallest[o]
            if what == FROM_MEAN and o <= 1:
                mu = math.exp(s + half_s)
                tolerance = 5e-12 / (1.0 + mu) + 2.0 * rounding
                if o == 1:
                    tolerance *= 1.0 + mu
            elif o == 0:
                tolerance = 5e-12 + 2.0 * rounding
            fits = fits and abs(found[o] - row[o]) <= tolerance
    if not fits:
        return 0
    number = _take(index, 0, 1)
    if number >= _MAX_CELLS:
        return -1
    for i in range(cell.size):
        cells[number, i] = cell[i]
    return number + 1


@_loop
def _read(cell, u, w, room, out):
    """Evaluate the polynomials of a cell at u, w from -1 to 1."""
    # Powers by few steps, sums without memory in between: a row takes some thirty nanoseconds.
    u2, w2 = u * u, w * w
    u3, u4, w4 = u2 * u, u2 * u2, w2 * w2
    u5, u6, u7 = u4 * u, u4 * u2, u4 * u3
    for k in range(_SIDE * out.size):
        room[k] = (
            (cell[_HEAD + k] + cell[_HEAD + _LINE + k] * u)
            + (cell[_HEAD + 2 * _LINE + k] * u2 + cell[_HEAD + 3 * _LINE + k] * u3)
            + (cell[_HEAD + 4 * _LINE + k] * u4 + cell[_HEAD + 5 * _LINE + k] * u5)
            + (cell[_HEAD + 6 * _LINE + k] * u6 + cell[_HEAD + 7 * _LINE + k] * u7)
        )
    for o in range(out.size):
        k = _SIDE * o
        low = (room[k] + room[k + 1] * w) + w2 * (room[k + 2] + room[k + 3] * w)
        high = (room[k + 4] + room[k + 5] * w) + w2 * (room[k + 6] + room[k + 7] * w)
        out[o] = low + w4 * high


@_inner
def _make_cell(what, s, v, entry, index, cells, work, row):
    """Fill the largest cell around a point that will do, and return its entry of the index."""
    for splits in range(-entry // 2, _DEEPEST + 1):
        span = 1 << (_DEEPEST - splits)
        i = int((s - _LOW_S) * _PER_FINE_S) // span * span
        j = int((v - _LOW_V) * _PER_FINE_V) // span * span
        half_s, half_v = 0.5 * span / _PER_FINE_S, 0.5 * span / _PER_FINE_V
        middle_s, middle_v = _LOW_S + i / _PER_FINE_S + half_s, _LOW_V + j / _PER_FINE_V + half_v
        entry = _fill_cell(what, middle_s, half_s, middle_v, half_v, index, cells, work, row)
        if entry == 0:
            entry = -1 if splits == _DEEPEST else -2 * (splits + 1)
        for k in range(i, i + span):
            for n in range(j, j + span):
                _store(index, _INDEX_HEAD + k * _FINE_V + n, entry)
        if entry >= -1:
            break
    return entry


@_inner
def _find_cell(what, s, v, index, cells, work, row):
    """Return the number of the cell that holds a point, or -1 where there is none."""
    if not (_LOW_S < s < _HIGH_S and _LOW_V < v < _HIGH_V):
        return -1
    i, j = int((s - _LOW_S) * _PER_FINE_S), int((v - _LOW_V) * _PER_FINE_V)
    entry = _load(index, _INDEX_HEAD + i * _FINE_V + j)
    if entry == 0 or entry < -1:
        entry = _make_cell(what, s, v, entry, index, cells, work, row)
    return max(entry - 1, -1)


@_inner
def _coordinate(what, first, nu):
    return first / nu if what != FROM_MEAN and first > 0.0 else first


@_inner
def _sum_row(what, first, nu, work, row, out, i):
    """Write the outputs of row i, summed."""
    _row()(what, first, nu, work.ctypes, row.size, row.ctypes)
    for o in range(row.size):
        out[o, i] = row[o]


@_inner
def _read_each(what, first, nu, index, cells, work, row, out):
    """Write the outputs of rows that differ in nu."""
    step_first, step_nu = int(first.size > 1), int(nu.size > 1)
    found, room = np.empty(row.size), np.empty(_LINE)
    for i in range(out.shape[1]):
        x, dispersion = first[step_first * i], nu[step_nu * i]
        number = -1
        s = v = 0.0
        if dispersion > 1e-3:
            s, v = _coordinate(what, x, dispersion), _log(dispersion)
            number = _find_cell(what, s, v, index, cells, work, row)
        if number < 0:
            _sum_row(what, x, dispersion, work, row, out, i)
            continue
        cell = cells[number]
        _read(cell, (s - cell[0]) * cell[1], (v - cell[2]) * cell[3], room, found)
        a, b = found[0], found[1]
        out[2, i] = found[2]
        if what == FROM_MEAN:
            out[3, i], out[4, i] = found[3], found[4]
            b += _exp(s) * (a + dispersion)
            a += dispersion * s
        elif s > 0.0:
            a += dispersion * _exp(s)
        out[0, i], out[1, i] = a, b


@_inner
def _read_shared(what, first, nu, index, cells, work, row, out):
    """Write the outputs of rows that share nu: polynomials in s alone, made from the cells."""
    n_outputs = row.size
    v = math.log(nu)
    number_at = np.zeros(
        _FINE_S, np.int32
    )  # 0 where nothing is known yet, -1 where rows are summed
    lines = np.empty((_FINE_S, 2 + _SIDE * n_outputs))
    n_lines = 0
    for i in range(first.size):
        s = _coordinate(what, first[i], nu)
        number = -1
        if _LOW_S < s < _HIGH_S:
            slot = int((s - _LOW_S) * _PER_FINE_S)
            number = number_at[slot]
            if number == 0:
                found = _find_cell(what, s, v, index, cells, work, row)
                number = -1
                if found >= 0:
                    _collapse(cells[found], v, n_outputs, lines[n_lines])
                    n_lines += 1
                    number = n_lines
                number_at[slot] = number
        if number < 0:
            _sum_row(what, first[i], nu, work, row, out, i)
            continue
        number -= 1
        u = (s - lines[number, 0]) * lines[number, 1]
        a, b, c = lines[number, 2], lines[number, 3], lines[number, 4]
        if what == FROM_MEAN:
            e, f = lines[number, 5], lines[number, 6]
            for k in range(7, 2 + 5 * _SIDE, 5):
                a = a * u + lines[number, k]
                b = b * u + lines[number, k + 1]
                c = c * u + lines[number, k + 2]
                e = e * u + lines[number, k + 3]
                f = f * u + lines[number, k + 4]
            out[3, i], out[4, i] = e, f
            b += _exp(s) * (a + nu)
            a += nu * s
        else:
            for k in range(5, 2 + 3 * _SIDE, 3):
                a = a * u + lines[number, k]
                b = b * u + lines[number, k + 1]
                c = c * u + lines[number, k + 2]
            if s > 0.0:
                a += nu * _exp(s)
        out[0, i], out[1, i], out[2, i] = a, b, c


@_inner
def _collapse(cell, v, n_outputs, line):
    """Write the polynomials of a cell at one nu, from the highest power of s to the lowest."""
    line[0], line[1] = cell[0], cell[1]
    w = (v - cell[2]) * cell[3]
    for o in range(n_outputs):
        for i in range(_SIDE):
            total = 0.0
            for k in range(_SIDE - 1, -1, -1):
                total = total * w + cell[_HEAD + _LINE * i + _SIDE * o + k]
            line[2 + (_SIDE - 1 - i) * n_outputs + o] = total


# --- entry points ------------------------------------------------------------------------------

_ROWS = types.void(
    types.int64,
    types.int64,
    types.int64,
    _DOUBLES,
    types.int64,
    _DOUBLES,
    types.int64,
    _DOUBLES,
)


def _rows_by_pointer(what, n, n_first, first, n_nu, nu, n_outputs, out):
    first, nu, out = carray(first, n_first), carray(nu, n_nu), carray(out, (n_outputs, n))
    work, row = np.empty((4, N_TERMS)), np.empty(n_outputs)
    if what <= 1 and n >= _FEWEST_ROWS:
        index = _mean_index() if what == FROM_MEAN else _rate_index()
        cells = carray(_mean_cells() if what == FROM_MEAN else _rate_cells(), (_MAX_CELLS, _CELL))
        i = 1
        while i < n_nu and nu[i] == nu[0]:
            i += 1
        if i == n_nu and n_first == n and 1e-3 < nu[0] < 50.0:
            _read_shared(what, first, nu[0], index, cells, work, row, out)
        else:
            _read_each(what, first, nu, index, cells, work, row, out)
        return
    step_first, step_nu = int(n_first > 1), int(n_nu > 1)
    for i in range(n):
        _row()(what, first[step_first * i], nu[step_nu * i], work.ctypes, n_outputs, row.ctypes)
        for j in range(n_outputs):
            out[j, i] = row[j]


_rows = _function(6, _ROWS)


@njit(**_OPTIONS)
def rows(what, first, nu, out):
    """Write the outputs of all rows into ``out`` (m, n); ``first`` and ``nu`` are (n,) or (1,).

    ``what`` is FROM_MEAN (m = 5) or the order of the derivatives (m = 3, 6, 10). All arrays are
    contiguous.
    """
    _rows()(
        what,
        out.shape[1],
        first.size,
        first.ctypes,
        nu.size,
        nu.ctypes,
        out.shape[0],
        out.ctypes,
    )


@njit(**_OPTIONS)
def rate_of_mean(log_mu, nu):
    """Log rate of the distribution with one mean, NaN where there is none."""
    if log_mu >= LOG_LARGEST:  # the mode is the mean by then
        return nu * log_mu
    out = np.empty((5, 1))
    rows(FROM_MEAN, np.full(1, log_mu), np.full(1, nu), out)
    return out[0, 0] if out[1, 0] < math.inf else math.nan


def evaluate_rows(what: int, first: Any, nu: Any, out: Any) -> None:
    """Do the same as :func:`rows`, from Python."""
    arrays = [x.ctypes.data_as(ctypes.POINTER(ctypes.c_double)) for x in (first, nu, out)]
    _compiled("rows").ctypes(
        what, out.shape[1], first.size, arrays[0], nu.size, arrays[1], out.shape[0], arrays[2]
    )


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


_TAILS = types.void(
    types.int64,
    types.int64,
    types.int64,
    _DOUBLES,
    types.int64,
    _DOUBLES,
    types.int64,
    _DOUBLES,
    types.int64,
    _DOUBLES,
)


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


_tails = _function(7, _TAILS)


@njit(**_OPTIONS)
def tails(what, x, eta, nu, out):
    """Write the distribution function of all rows and its derivatives into ``out`` (m, n).

    ``what`` is LOG_CDF or LOG_SF (m = 3 or 6), or QUANTILE (m = 1, and x a probability). The
    other arrays are contiguous, (n,) or (1,).
    """
    _tails()(
        what,
        out.shape[1],
        x.size,
        x.ctypes,
        eta.size,
        eta.ctypes,
        nu.size,
        nu.ctypes,
        out.shape[0],
        out.ctypes,
    )


def evaluate_tails(what: int, x: Any, eta: Any, nu: Any, out: Any) -> None:
    """Do the same as :func:`tails`, from Python."""
    x_at, eta_at, nu_at, out_at = (
        a.ctypes.data_as(ctypes.POINTER(ctypes.c_double)) for a in (x, eta, nu, out)
    )
    sizes = x.size, eta.size, nu.size
    _compiled("tails").ctypes(
        what, out.shape[1], sizes[0], x_at, sizes[1], eta_at, sizes[2], nu_at, len(out), out_at
    )


# --- where things are ------------------------------------------------------------------------

_BY_NAME = {
    "row": (_ROW, _row_by_pointer),
    "special": (_SPECIAL, _special_by_pointer),
    "rows": (_ROWS, _rows_by_pointer),
    "tails": (_TAILS, _tails_by_pointer),
}


@cache
def _compiled(name: str) -> Any:
    """Compile a function when it is first asked for."""
    signature, function = _BY_NAME[name]
    return cfunc(signature, cache=True)(function)


def _address(which: int) -> int:
    """Address of what ``_function`` and ``_memory`` know by a number."""
    if 2 <= which <= 5:
        return _table(which <= 3)[which % 2].ctypes.data
    return _compiled({0: "row", 1: "special", 6: "rows", 7: "tails"}[which]).address
