r"""Compiled sums over Conway-Maxwell-Poisson terms: log Z and its derivatives, row by row.

With :math:`\eta = \log\lambda` and :math:`L(x) = \log x!` the normaliser is
:math:`\log Z = \log \sum_x e^{\eta x - \nu L(x)}`, and its partial derivatives are the joint
cumulants of :math:`(X, -L(X))`.
Every row is summed by one of two kinds of nodes, all with positive weights:

* equally spaced ones with the spacing as weight, around the mode. Spacing one is the series itself
  and is used while the width is below two; a wider bell that has left zero (nu times the mode at
  least ``NEAR_PEAK``) is summed at two thirds of a width, where the error of equal spacing,
  :math:`2 e^{-2 \pi^2 (s/h)^2}` for a bell of width s at spacing h, is below 1e-16;
* the rules of :mod:`.near_zero` for a wide summand that still feels the end at zero.

All are exact to some 1e-13, so that nothing is felt where one hands over to the next.
This module holds all compiled code, because numba's cache on disk looks at one file at a time.
"""

import ctypes
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, cfunc, njit, objmode, types
from numba.core import cgutils
from numba.extending import intrinsic
from scipy.special import gammaln

from pymc_bayessum.counts.cmp_sums.near_zero import FIRST_SCALE, N_SCALES, OFFSET, load_rules

LOG_MAX_MODE = math.log(2.0**20)
"""Summands with a mode beyond this are not answered for."""

MAX_WIDTH = FIRST_SCALE * 2.0 ** (N_SCALES / 2)
"""Summands near zero with a width beyond this are not answered for."""

MAX_PEAK = 1e12
"""Nor are they where the rounding of nu times the mode would show in log Z."""

LOG_SMALLEST = -600.0
"""Rates and means below exp of this are taken for zero: derivatives by them would overflow."""

NEAR_PEAK = 48.0
SPACING = 0.66  # of a width, for a bell that has left zero
DROP = 37.0  # terms below exp(-DROP) of the largest are left out
_SHORT = 40.0  # a series that ends before costs less than a rule near zero
N_TERMS = 96  # the most terms any row needs, a multiple of four

_RULES = load_rules()
_NEAR_X, _NEAR_L, _NEAR_W = _RULES.nodes, _RULES.log_factorials, _RULES.weights
_NEAR_SIZE = _RULES.sizes
_TABLE = 1024  # log factorials below this are looked up
_SMALLEST_STIRLING = 16.0  # four correction terms are exact to 1e-14 from here on
_LOG_FACTORIAL = gammaln(np.arange(1.0, _TABLE + 1.0))
_INDEX = np.arange(N_TERMS + 4.0)
_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)

# Functions that only compiled code calls; without an entry point for Python they compile faster.
_OPTIONS: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_inner = njit(cache=True, error_model="numpy", fastmath={"contract"}, **_OPTIONS)
# LLVM vectorises a sum only when it may reorder it.
_loop = njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"}, **_OPTIONS)
# Copied into their callers: fewer pieces to compile.
_inlined = njit(inline="always", error_model="numpy")


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


@_inlined
def _mode_and_width(eta, nu):
    """Mode and squared width (see near_zero.width); a width of 0 where not answered for."""
    mode, decay = 0.0, -eta
    if nu > 0.0:
        log_mode = eta / nu
        if log_mode > LOG_MAX_MODE:
            return 0.0, 0.0
        mode = _exp(log_mode)
        if nu * mode > MAX_PEAK:
            return 0.0, 0.0
        if nu * mode >= 1.0:
            return mode, mode / nu
        decay = OFFSET * nu - eta
        decay -= nu * math.log(decay - nu * math.log(nu))
    if not decay * MAX_WIDTH > 1.0:
        return 0.0, 0.0
    return mode, 1.0 / (decay * decay)


# Not plain integers, for each of which numba would compile a function anew.
_NEAR, _TABULATED, _STIRLING = np.int64(0), np.int64(1), np.int64(2)
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
        log_centre = math.log(centre)
        slope = eta - nu * log_centre
        at_centre = _stirling_tail(centre)
        for i in range(n):
            away = first - centre + step * _INDEX[i]
            x = centre + away
            bend = (x + 0.5) * _log_ratio(x, centre) - away + (_stirling_tail(x) - at_centre)
            d[i] = away
            g[i] = away * log_centre + bend
            p[i] = _exp(slope * away - nu * bend)


@_inlined
def _terms(eta, nu, p, d, g):
    """Terms p, distances d = x - x0 and g = L(x) - L(x0) at the nodes of one row.

    Returns the number of nodes (0 where not answered for), x0, L(x0), and the log of what p
    has been divided by.
    """
    if not (0.0 <= nu <= MAX_PEAK and -1e15 < eta < 1e15):
        return 0, 0.0, 0.0, 0.0
    mode, square = _mode_and_width(eta, nu)
    if square == 0.0:
        return 0, 0.0, 0.0, 0.0
    peak = nu * mode
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
            return 0, 0.0, 0.0, 0.0
        n = _NEAR_SIZE[k]
        _fill_terms(_NEAR, k, n, 0.0, 0.0, 0.0, eta, nu, p, d, g)
        return n, 0.0, 0.0, 0.0
    n_right = max(n_right, 3.0)
    if centre + (n_right + 3) * step >= _TABLE and centre - n_left * step < _SMALLEST_STIRLING:
        n_left = np.floor((centre - _SMALLEST_STIRLING) / step)
    n = (int(min(n_left + n_right + 1.0, N_TERMS)) + 3) // 4 * 4
    first = centre - n_left * step
    kind = _TABULATED if first + n * step < _TABLE else _STIRLING
    _fill_terms(kind, n, n, first, step, centre, eta, nu, p, d, g)
    # eta x - nu log x! without the cancellation of the two at a large x.
    if centre < _TABLE:
        log_factorial = _LOG_FACTORIAL[int(centre)]
        log_term = eta * centre - nu * log_factorial
    else:
        log_centre = math.log(centre)
        rest = centre - 0.5 * log_centre - _HALF_LOG_2PI - _stirling_tail(centre)
        log_factorial = centre * log_centre - rest
        log_term = centre * (eta - nu * log_centre) + nu * rest
    if step > 1.0:
        log_term += math.log(step)
    return n, centre, log_factorial, log_term


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


@_inlined
def _log_sum(p, m):
    """Log of all terms; a sum that hardly exceeds its first term, one, keeps those digits."""
    return math.log1p(m[0]) if p[0] == 1.0 else math.log(p[0] + m[0])


@_inner
def cumulants(order, eta, nu, p, d, g, m, out):
    """Write the derivatives of log Z up to ``order`` (1 to 3) into ``out``.

    They are in the order of :func:`derivative_orders`. Where no answer is given log Z is +inf
    and its derivatives are zero. ``p``, ``d`` and ``g`` are room for ``N_TERMS`` numbers, ``m``
    for ten.
    """
    n, x0, l0, log_scale = _terms(eta, nu, p, d, g)
    if n == 0:
        out[:] = 0.0
        out[0] = math.inf
        return
    _moments(order, n, p, d, g, m)
    out[0] = log_scale + _log_sum(p, m)
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


# --- the rate that has a given mean -----------------------------------------------------------


@_inlined
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
    bend = math.log(2.0)
    if abs(nu - 1.0) > 1e-6:
        bend = math.expm1((1.0 - nu) * math.log(2.0)) / (1.0 - nu)
    return math.log(mu) + (nu - 1.0) * math.log((1.0 + (1.0 + bend) * mu + mu * mu) / (1.0 + mu))


@_inner
def from_mean(log_mu, nu, p, d, g, m, out):
    r"""Write eta, log Z, d eta/d log mu, d eta/d nu and E[L] for the mean mu into ``out``.

    ``out[0]`` holds where to start, or NaN. Halley's method on the log of the mean, inside a
    bracket; the last, tiny step is taken by the Taylor series of what has been summed already.
    Where no answer is given log Z is +inf and the rest zero. ``p``, ``d`` and ``g`` are room for
    ``N_TERMS`` numbers, ``m`` for ten.
    """
    start = out[0]
    out[:] = 0.0
    out[1] = math.inf
    if not (nu >= 0.0 and nu < math.inf and LOG_SMALLEST < log_mu < LOG_MAX_MODE + 1.0):
        return
    mu = math.exp(log_mu)
    eta = start if start == start else _first_guess(mu, nu)
    low, high = -math.inf, math.inf
    for _ in range(100):
        n, x0, l0, log_scale = _terms(eta, nu, p, d, g)
        if n > 0:
            _moments(_THIRD, n, p, d, g, m)
        if start == start and not (n > 0 and abs(x0 + m[1] - mu) < 0.3 * mu):
            # Not where it should be: start anew.
            start = math.nan
            eta = _first_guess(mu, nu)
            continue
        if n == 0:
            high = eta
            eta = 0.5 * (low + high) if low > -math.inf else high - 0.1 * abs(high) - 1e-3
            continue
        mean, dd, dg, ddd, ddg = x0 + m[1], m[3], m[4], m[6], m[7]
        if not dd > 1e-150:
            return
        excess = math.log1p(((x0 - mu) + m[1]) / mu)
        if excess > 0.0:
            high = eta
        else:
            low = eta
        slope = dd / mean
        newton = -excess / slope
        halley = newton / max(0.5, 1.0 + 0.5 * newton * (ddd / dd - slope))
        if abs(halley) * max(1.0, math.sqrt(dd)) < 3e-6:
            h = halley
            out[0] = eta + h
            out[1] = log_scale + _log_sum(p, m) + h * (mean + h * (dd / 2.0 + h * ddd / 6.0))
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


def _pointer(name: str, signature: Any, address: Callable[[], int]) -> Any:
    """Make a compiled function without arguments that returns a function by its address.

    The address is asked for at the first call and kept in a variable of the calling module:
    written into the code as a number, it would be wrong in the next process that loads the code
    from disk.
    """
    function_type = types.FunctionType(signature)

    @njit
    def ask():
        with objmode(result="intp"):
            result = address()
        return result

    @intrinsic
    def pointer(typing_context):
        def codegen(context, builder, signature, args):
            number = ir.IntType(64)
            kept = cgutils.add_global_variable(builder.module, number, name)
            kept.linkage = "private"
            kept.initializer = ir.Constant(number, 0)
            with builder.if_then(builder.icmp_unsigned("==", builder.load(kept), kept.initializer)):
                ask_type = typing_context.resolve_value_type(ask)
                ask_signature = typing_context.resolve_function_type(ask_type, (), {})
                answer = context.get_function(ask_type, ask_signature)(builder, ())
                builder.store(answer, kept)
            function = cgutils.create_struct_proxy(function_type)(context, builder)
            function.c_addr = builder.inttoptr(builder.load(kept), cgutils.voidptr_t)
            return function._getvalue()

        return function_type(), codegen

    return pointer


_DOUBLES = types.CPointer(types.float64)
FROM_MEAN = 0
"""What to compute, beside the orders 1 to 3 of cumulants."""

_ROW = types.void(types.int64, types.float64, types.float64, _DOUBLES, types.int64, _DOUBLES)


def _mean_row_by_pointer(what, first, nu, work, n_outputs, out):
    # Four arrays in a row; taking slices of one would cost as much as the sums themselves.
    work = carray(work, (4, N_TERMS))
    from_mean(first, nu, work[0], work[1], work[2], work[3], carray(out, n_outputs))


def _cumulants_row_by_pointer(what, first, nu, work, n_outputs, out):
    work = carray(work, (4, N_TERMS))
    cumulants(what, first, nu, work[0], work[1], work[2], work[3], carray(out, n_outputs))


@cache
def _compiled_row(by_mean: bool) -> Any:
    return cfunc(_ROW, cache=True)(_mean_row_by_pointer if by_mean else _cumulants_row_by_pointer)


# Each is compiled only when it is first asked for.
_mean_row = _pointer("cmp_mean_row", _ROW, lambda: _compiled_row(True).address)
_cumulants_row = _pointer("cmp_cumulants_row", _ROW, lambda: _compiled_row(False).address)


# --- many rows that share nu ------------------------------------------------------------------
#
# All that is asked of a row is then a smooth function of one number, log rate or log mean. It is
# interpolated at the Chebyshev points of cells, which are halved until the last coefficients of
# every output are negligible.


def _chebyshev(degree: int) -> tuple[Any, Any, Any]:
    """Points, and the matrices from values there to Chebyshev coefficients and on to powers."""
    points = np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))
    coefficients = np.linalg.inv(np.polynomial.chebyshev.chebvander(points, degree))
    units = np.eye(degree + 1)
    powers = np.zeros((degree + 1, degree + 1))
    for k in range(degree + 1):
        powers[: k + 1, k] = np.polynomial.chebyshev.cheb2poly(units[k, : k + 1])
    return points, coefficients, powers


_DEGREE = 9
_POINTS, _CHEBYSHEV, _POWERS = _chebyshev(_DEGREE)

_FEWEST_ROWS = 256  # below, summing each row costs no more than a table
_WIDEST = 0.6  # cell, in log rate or log mean
_SLOTS = 4096  # of the index; a cell covers one or more of them
_LOWEST = -30.0  # rows below are summed
_SMALLEST_NU = 1e-4  # below, the range that is answered for has no closed form
_MAX_CELLS = 1024
_EPS = 2.3e-16


@_inner
def _interpolate(sum_row, what, at, nu, work, row, out):
    """Write the outputs of all rows for one nu; a row that no cell holds is summed.

    The mean form interpolates a = eta - nu log mu and log Z - mu a - nu mu, which are small and
    smooth; an error of a then cancels from y eta - log Z where y is the mean.
    """
    by_mean = what == FROM_MEAN
    n_outputs = out.shape[0]
    low, high = math.inf, -math.inf
    for x in at:
        low = min(low, x)
        high = max(high, x)
    low = max(low, _LOWEST)
    high = min(high, LOG_MAX_MODE - 1.0 if by_mean else nu * LOG_MAX_MODE)
    # Rows at the very ends fall inside of the first and last slot, also when all rows are alike.
    margin = 1e-9 * (high - low) + 1e-7 * (1.0 + abs(high))
    low, high = low - margin, high + margin
    usable = high > low
    slot = (high - low) / _SLOTS
    per_slot = 1.0 / slot if usable else 0.0
    index = np.full(_SLOTS, -1, np.int32)
    max_cells = min(_MAX_CELLS, at.size // (2 * _DEGREE))
    ends = np.empty((max_cells, 2))
    table = np.empty((max_cells, _DEGREE + 1, n_outputs))
    values = np.empty((_DEGREE + 1, n_outputs))

    span = _SLOTS if usable else 0
    while span > 1 and slot * span > _WIDEST:
        span //= 2
    # From the right: small means with a large nu take the most cells, and may be left to the sums.
    end, n_cells, n_tries = _SLOTS, 0, 0
    while usable and end > 0 and n_cells < max_cells and n_tries < 2 * max_cells:
        n_tries += 1
        half = 0.5 * span * slot
        middle = low + end * slot - half
        mu, scale = 0.0, 0.0
        for i in range(_DEGREE + 1):
            x = middle + half * _POINTS[i]
            row[0] = math.nan
            sum_row(what, x, nu, work.ctypes, n_outputs, row.ctypes)
            if by_mean:
                mu = math.exp(x)
                row[0] -= nu * x
                row[1] -= mu * (row[0] + nu)
                scale = max(scale, nu * (1.0 + abs(x)))
            else:
                scale = max(scale, abs(x) * row[1])
            for j in range(n_outputs):
                values[i, j] = row[j]
        fits = True
        for j in range(n_outputs):
            largest, tail = 0.0, 0.0
            for k in range(_DEGREE + 1):
                largest = max(largest, abs(values[k, j]))
                table[n_cells, k, j] = 0.0
            for k in range(_DEGREE + 1):
                coefficient = 0.0
                for i in range(_DEGREE + 1):
                    coefficient += _CHEBYSHEV[k, i] * values[i, j]
                for i in range(_DEGREE + 1):
                    table[n_cells, i, j] += _POWERS[i, k] * coefficient
                if k >= _DEGREE - 1:
                    tail = max(tail, abs(coefficient))
            # log Z is wanted to 1e-12, and eta so that a count one sd from the mean times it is; or
            # both to rounding. The others are derivatives.
            tolerance = 1e-10 * largest
            if by_mean and j == 0:
                tolerance = 1e-12 / (1.0 + mu) + 4.0 * _EPS * scale
            elif by_mean and j == 1:
                tolerance = 1e-12 + 4.0 * _EPS * scale * mu
            elif j == 0:
                tolerance = 1e-12 + 4.0 * _EPS * scale
            fits = fits and tail <= tolerance
        if not fits and span > 1:
            span //= 2
            continue
        if fits:
            index[end - span : end] = n_cells
            ends[n_cells, 0], ends[n_cells, 1] = middle, 1.0 / half
            n_cells += 1
        end -= span
        # Where a wider cell may end, try one again.
        if end % (2 * span) == 0 and 4.0 * half <= _WIDEST:
            span *= 2

    for i in range(at.size):
        x = at[i]
        cell = -1
        if usable and low < x < high:
            cell = index[min(int((x - low) * per_slot), _SLOTS - 1)]
        if cell < 0:
            row[0] = math.nan
            sum_row(what, x, nu, work.ctypes, n_outputs, row.ctypes)
            for j in range(n_outputs):
                out[j, i] = row[j]
            continue
        u = (x - ends[cell, 0]) * ends[cell, 1]
        a, b, c = table[cell, _DEGREE, 0], table[cell, _DEGREE, 1], table[cell, _DEGREE, 2]
        for k in range(_DEGREE - 1, -1, -1):
            a = a * u + table[cell, k, 0]
            b = b * u + table[cell, k, 1]
            c = c * u + table[cell, k, 2]
        if by_mean:
            e, f = table[cell, _DEGREE, 3], table[cell, _DEGREE, 4]
            for k in range(_DEGREE - 1, -1, -1):
                e = e * u + table[cell, k, 3]
                f = f * u + table[cell, k, 4]
            out[3, i], out[4, i] = e, f
            b += _exp(x) * (a + nu)
            a += nu * x
        out[0, i], out[1, i], out[2, i] = a, b, c


# --- many rows, each with its own mean and nu -----------------------------------------------------
#
# A good first guess spares most rows the second pass over the terms. It is interpolated in log mu
# and log nu, on cells of the box that the rows span. Nothing rests on its accuracy.

_GUESS_DEGREE = 5
_GUESS_POINTS, _first_map, _second_map = _chebyshev(_GUESS_DEGREE)
_GUESS_MAP = np.ascontiguousarray(_second_map @ _first_map)


@_inner
def _cells(low, high):
    """Return the number of cells of about unit width, at most 24."""
    return int(min(max(np.ceil(high - low), 1.0), 24.0))


_GUESS = types.void(types.int64, _DOUBLES, _DOUBLES, _DOUBLES)


def _guess_by_pointer(n, log_mu, nu, eta):
    """Write a guess of each row's log rate, or NaN, into ``eta``."""
    log_mu, nu, eta = carray(log_mu, n), carray(nu, n), carray(eta, n)
    work, row = np.empty((4, N_TERMS)), np.empty(5)
    sum_row = _mean_row()
    q = _GUESS_DEGREE + 1
    low, high, low_v, high_v = math.inf, -math.inf, math.inf, -math.inf
    for i in range(nu.size):
        eta[i] = math.nan
        if _SMALLEST_NU < nu[i] < 1e3 and _LOWEST < log_mu[i] < LOG_MAX_MODE - 1.0:
            low, high = min(low, log_mu[i]), max(high, log_mu[i])
            low_v, high_v = min(low_v, nu[i]), max(high_v, nu[i])
    if not (low < high and low_v < high_v):
        return
    low_v, high_v = math.log(low_v), math.log(high_v)
    n_mu, n_nu = _cells(low, high), _cells(low_v, high_v)
    while n_mu * n_nu * 4 * q * q > nu.size and n_mu * n_nu > 1:
        if n_mu >= n_nu:
            n_mu -= 1
        else:
            n_nu -= 1
    width, width_v = (high - low) * (1.0 + 1e-9) / n_mu, (high_v - low_v) * (1.0 + 1e-9) / n_nu
    table = np.zeros((n_mu, n_nu, q, q))
    values = np.empty((q, q))
    for a in range(n_mu):
        for b in range(n_nu):
            for i in range(q):
                for j in range(q):
                    s = low + (a + 0.5 + 0.5 * _GUESS_POINTS[i]) * width
                    v = math.exp(low_v + (b + 0.5 + 0.5 * _GUESS_POINTS[j]) * width_v)
                    row[0] = math.nan
                    sum_row(FROM_MEAN, s, v, work.ctypes, 5, row.ctypes)
                    values[i, j] = row[0] - v * s if row[1] < math.inf else math.nan
            # Loops, not products of matrices: they compile in a fraction of the time.
            for i in range(q):
                for j in range(q):
                    half = 0.0
                    for k in range(q):
                        half += _GUESS_MAP[i, k] * values[k, j]
                    for k in range(q):
                        table[a, b, i, k] += half * _GUESS_MAP[k, j]
    for i in range(nu.size):
        if _SMALLEST_NU < nu[i] < 1e3 and low <= log_mu[i] <= high:
            u = (log_mu[i] - low) / width
            v = (_log(nu[i]) - low_v) / width_v
            a, b = min(int(u), n_mu - 1), min(int(max(v, 0.0)), n_nu - 1)
            u, v = 2.0 * (u - a) - 1.0, 2.0 * (v - b) - 1.0
            total = 0.0
            for j in range(q - 1, -1, -1):
                inner = 0.0
                for k in range(q - 1, -1, -1):
                    inner = inner * v + table[a, b, j, k]
                total = total * u + inner
            eta[i] = total + nu[i] * log_mu[i]


@cache
def _compiled_guess() -> Any:
    return cfunc(_GUESS, cache=True)(_guess_by_pointer)


_guess_rates = _pointer("cmp_guess", _GUESS, lambda: _compiled_guess().address)


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
    sum_row = _mean_row() if what == FROM_MEAN else _cumulants_row()
    if what <= 1 and n_first >= _FEWEST_ROWS and nu[0] >= _SMALLEST_NU:
        i = 1
        while i < n_nu and nu[i] == nu[0]:
            i += 1
        if i == n_nu:
            _interpolate(sum_row, what, first, nu[0], work, row, out)
            return
    if what == FROM_MEAN and n_first == n_nu >= _FEWEST_ROWS:
        _guess_rates()(n, first.ctypes, nu.ctypes, out.ctypes)
    else:
        out[0] = math.nan
    step_first, step_nu = int(n_first > 1), int(n_nu > 1)
    for i in range(n):
        row[0] = out[0, i]
        sum_row(what, first[step_first * i], nu[step_nu * i], work.ctypes, n_outputs, row.ctypes)
        for j in range(n_outputs):
            out[j, i] = row[j]


@cache
def _compiled_rows() -> Any:
    return cfunc(_ROWS, cache=True)(_rows_by_pointer)


_rows = _pointer("cmp_rows", _ROWS, lambda: _compiled_rows().address)


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
    """Log rate of the distribution with one mean, NaN where no answer is given."""
    if log_mu <= LOG_SMALLEST:  # zero, as good as always
        return log_mu
    out = np.empty((5, 1))
    rows(FROM_MEAN, np.full(1, log_mu), np.full(1, nu), out)
    return out[0, 0] if out[1, 0] < math.inf else math.nan


def evaluate_rows(what: int, first: Any, nu: Any, out: Any) -> None:
    """Do the same as :func:`rows`, from Python."""
    arrays = [x.ctypes.data_as(ctypes.POINTER(ctypes.c_double)) for x in (first, nu, out)]
    _compiled_rows().ctypes(
        what, out.shape[1], first.size, arrays[0], nu.size, arrays[1], out.shape[0], arrays[2]
    )


# --- tails ---------------------------------------------------------------------------------------

LOG_CDF, LOG_SF, QUANTILE = 0, 1, 2
"""What to compute of the distribution function."""

_LEAST_LOG = -740.0  # of a probability that a double still tells from zero


@_inner
def log_term(x, eta, nu):
    """Return eta x - nu log x! for a whole number x."""
    if x < _TABLE:
        return eta * x - nu * _LOG_FACTORIAL[int(x)]
    log_x = math.log(x)
    return x * (eta - nu * log_x) + nu * (x - 0.5 * log_x - _HALF_LOG_2PI - _stirling_tail(x))


@_inner
def log_factorial(x):
    """Return log x! for a whole number x."""
    if x < _TABLE:
        return _LOG_FACTORIAL[int(x)]
    return (x + 0.5) * math.log(x) - x + _HALF_LOG_2PI + _stirling_tail(x)


@_inner
def _tail(x, down, eta, nu, p, d, g, t):
    """Sum terms from x on, outward, all that are above exp(-DROP) of the first.

    Writes their sum by the first term, E[X - x], E[L(X) - L(x)] and central second moments over
    the tail into ``t``.
    """
    start = log_term(x, eta, nu)
    total, s_d, s_g, s_dd, s_dg, s_gg = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    edge = x
    shift_l = 0.0  # L at the inner edge of a block, less L(x)
    while True:
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
        scale = math.exp(log_term(edge, eta, nu) - start)
        for i in range(n):
            a, b, w = d[i] + (edge - x), g[i] + shift_l, p[i] * scale
            total += w
            s_d += w * a
            s_g += w * b
            s_dd += w * a * a
            s_dg += w * a * b
            s_gg += w * b * b
        outer = first if down else first + n - 1.0
        outer_l = (g[0] if down else g[n - 1]) + shift_l
        # Log-concave, so all beyond is smaller still.
        if log_term(outer, eta, nu) - start < -DROP or (down and outer <= 0.0):
            break
        step = -1.0 if down else 1.0
        edge = outer + step
        shift_l = outer_l + step * math.log(outer if down else edge)
    t[0] = total
    t[1], t[2] = s_d / total, s_g / total
    t[3] = s_dd / total - t[1] * t[1]
    t[4] = s_dg / total - t[1] * t[2]
    t[5] = s_gg / total - t[2] * t[2]


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
    start = log_term(edge, eta, nu) - log_z if edge < 1e15 else -math.inf
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
        middle = np.floor(0.5 * (low + high))
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
    sum_row = _cumulants_row()
    step_x, step_eta, step_nu = int(n_x > 1), int(n_eta > 1), int(n_nu > 1)
    for i in range(n):
        at, rate, dispersion = x[step_x * i], eta[step_eta * i], nu[step_nu * i]
        if i == 0 or step_eta or step_nu:
            sum_row(2, rate, dispersion, work.ctypes, 6, row.ctypes)
        if what == QUANTILE:
            out[0, i] = _quantile(at, rate, dispersion, row[0], row[1:], p, d, g, t, result)
        else:
            _distribution_function(
                what == LOG_SF, at, rate, dispersion, row[0], row[1:], p, d, g, t, result
            )
            for j in range(n_outputs):
                out[j, i] = result[j]


@cache
def _compiled_tails() -> Any:
    return cfunc(_TAILS, cache=True)(_tails_by_pointer)


_tails = _pointer("cmp_tails", _TAILS, lambda: _compiled_tails().address)


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
    _compiled_tails().ctypes(
        what, out.shape[1], sizes[0], x_at, sizes[1], eta_at, sizes[2], nu_at, len(out), out_at
    )
