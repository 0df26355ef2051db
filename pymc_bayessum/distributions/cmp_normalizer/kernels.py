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

import math

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from scipy.special import gammaln

from pymc_bayessum.distributions.cmp_normalizer.near_zero import (
    FIRST_SCALE,
    N_SCALES,
    OFFSET,
    load_rules,
)

LOG_MAX_MODE = math.log(2.0**20)
"""Summands with a mode beyond this are not answered for."""

MAX_WIDTH = FIRST_SCALE * 2.0 ** (N_SCALES / 2)
"""Summands near zero with a width beyond this are not answered for."""

NEAR_PEAK = 48.0
SPACING = 0.66  # of a width, for a bell that has left zero
DROP = 37.0  # terms below exp(-DROP) of the largest are left out
N_TERMS = 96  # the most terms any row needs, a multiple of four

_RULES = load_rules()
_NEAR_X, _NEAR_L, _NEAR_W = _RULES.nodes, _RULES.log_factorials, _RULES.weights
_N_NEAR = _NEAR_X.shape[1]
_TABLE = 1024  # log factorials below this are looked up
_SMALLEST_STIRLING = 16.0  # four correction terms are exact to 1e-14 from here on
_LOG_FACTORIAL = gammaln(np.arange(1.0, _TABLE + 1.0))
_INDEX = np.arange(N_TERMS + 4.0)
_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
_LOG_NEAR_PEAK = math.log(NEAR_PEAK)

# LLVM vectorises sums only when it may reorder them; the functions below keep exact rounding.
_REORDER = {"reassoc", "contract", "nsz"}


@intrinsic
def _to_bits(typing_context, x):
    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(64))

    return types.uint64(types.float64), codegen


@intrinsic
def _from_bits(typing_context, x):
    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.uint64), codegen


_LOG2_E = 1.4426950408889634
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
_ROUNDER = 6755399441055744.0  # 1.5 * 2**52: adding it rounds to an integer in the low bits
_EXPONENT_SHIFT = np.uint64(52)
_MANTISSA = np.uint64(0x000FFFFFFFFFFFFF)
_SQRT_HALF = np.uint64(0x3FE6A09E00000000)
_TO_EXPONENT = np.uint64(0x3FF0000000000000 - 0x3FE6A09E00000000)
_ROUNDER_BITS = np.uint64(0x4338000000000000 - 1023)


@njit(cache=True, error_model="numpy", fastmath={"contract"})
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


@njit(cache=True, error_model="numpy", fastmath={"contract"})
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


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def _stirling_tail(x):
    """Correction log x! - ((x + 1/2) log x - x + log(2 pi)/2), for x >= 16."""
    r = 1.0 / x
    q = r * r
    return r * (1.0 / 12.0 - q * (1.0 / 360.0 - q * (1.0 / 1260.0 - q * (1.0 / 1680.0))))


@njit(cache=True, error_model="numpy")
def log_factorial(x):
    """Log of x! for a whole number x >= 0, given as a float."""
    if x < _TABLE:
        return _LOG_FACTORIAL[int(x)]
    return (x + 0.5) * math.log(x) - x + _HALF_LOG_2PI + _stirling_tail(x)


@njit(cache=True, error_model="numpy")
def log_term(x, eta, nu):
    """Return eta x - nu log x!, without the cancellation of the two at large x."""
    if x < _TABLE:
        return eta * x - nu * _LOG_FACTORIAL[int(x)]
    log_x = math.log(x)
    return x * (eta - nu * log_x) + nu * (x - 0.5 * log_x - _HALF_LOG_2PI - _stirling_tail(x))


@njit(cache=True, error_model="numpy")
def _width(eta, nu):
    """Log of nu times the mode, and the width (see near_zero.width); 0 where not answered for."""
    log_peak = -math.inf
    log_nu = 0.0
    if nu > 0.0:
        log_nu = math.log(nu)
        log_mode = eta / nu
        if log_mode > LOG_MAX_MODE:
            return 0.0, 0.0
        log_peak = log_mode + log_nu
    if log_peak >= 0.0:
        return log_peak, math.exp(0.5 * log_peak) / nu
    decay = OFFSET * nu - eta
    if decay - nu * log_nu > 0.0:
        decay -= nu * math.log(decay - nu * log_nu)
    if not decay * MAX_WIDTH > 1.0:
        return 0.0, 0.0
    return log_peak, 1.0 / decay


@njit(cache=True, error_model="numpy", fastmath=_REORDER)
def _near_terms(k, eta, nu, p, d, g):
    for i in range(_N_NEAR):
        d[i] = _NEAR_X[k, i]
        g[i] = _NEAR_L[k, i]
        p[i] = _NEAR_W[k, i] * _exp(eta * _NEAR_X[k, i] - nu * _NEAR_L[k, i])


@njit(cache=True, error_model="numpy", fastmath=_REORDER)
def _table_terms(n, first, step, centre, eta, nu, p, d, g):
    at_centre = _LOG_FACTORIAL[centre]
    for i in range(n):
        d[i] = first - centre + step * _INDEX[i]
        g[i] = _LOG_FACTORIAL[first + step * i] - at_centre
    for i in range(n):
        p[i] = _exp(eta * d[i] - nu * g[i])


@njit(cache=True, error_model="numpy", fastmath=_REORDER)
def _stirling_terms(n, first, step, centre, eta, nu, p, d, g):
    log_centre = math.log(centre)
    slope = eta - nu * log_centre
    at_centre = _stirling_tail(centre)
    for i in range(n):
        away = first - centre + step * _INDEX[i]
        x = centre + away
        bend = (x + 0.5) * _log(x / centre) - away + (_stirling_tail(x) - at_centre)
        d[i] = away
        g[i] = away * log_centre + bend
        p[i] = _exp(slope * away - nu * bend)


@njit(cache=True, error_model="numpy")
def _terms(eta, nu, p, d, g):
    """Terms p, distances d = x - x0 and g = L(x) - L(x0) at the nodes of one row.

    Returns the number of nodes (0 where not answered for), x0, L(x0), and the log of what p
    has been divided by.
    """
    if not (nu >= 0.0 and -math.inf < eta < math.inf and nu < math.inf):
        return 0, 0.0, 0.0, 0.0
    log_peak, width = _width(eta, nu)
    if width == 0.0:
        return 0, 0.0, 0.0, 0.0
    if width >= FIRST_SCALE and log_peak < _LOG_NEAR_PEAK:
        if width >= MAX_WIDTH:
            return 0, 0.0, 0.0, 0.0
        k = int(2.0 * math.log2(width / FIRST_SCALE))
        _near_terms(min(k, N_SCALES - 1), eta, nu, p, d, g)
        return _N_NEAR, 0.0, 0.0, 0.0

    mode = math.exp(eta / nu) if nu > 0.0 else 0.0
    centre = math.floor(mode)
    step = 1.0
    if log_peak < 0.0:
        # The tangent of L at `touch` bounds the tail from above; the left end is zero.
        touch = 0.5 * DROP * width
        slope = -eta + nu * math.log(max(touch, 1.0))
        n_right = math.ceil((DROP + nu * touch) / slope) - centre
        n_left = centre
    else:
        # Bernstein's bound on the tails of x log x - x.
        third = DROP / (3.0 * nu)
        reach = 2.0 * DROP * mode / nu
        step = max(1.0, math.floor(SPACING * width))
        n_right = math.ceil((third + math.sqrt(third * third + reach)) / step)
        n_left = min(math.ceil(math.sqrt(reach) / step), math.floor(centre / step))
    n_right = max(n_right, 3.0)
    if centre + (n_right + 3) * step >= _TABLE and centre - n_left * step < _SMALLEST_STIRLING:
        n_left = math.floor((centre - _SMALLEST_STIRLING) / step)
    n = int(n_left + n_right + 1.0)
    n = min((n + 3) // 4 * 4, N_TERMS)
    first = centre - n_left * step
    if first + n * step < _TABLE:
        _table_terms(n, int(first), int(step), int(centre), eta, nu, p, d, g)
    else:
        _stirling_terms(n, first, step, centre, eta, nu, p, d, g)
    return n, centre, log_factorial(centre), log_term(centre, eta, nu) + math.log(step)


@njit(cache=True, error_model="numpy", fastmath=_REORDER)
def _first_moments(n, p, d, g):
    """Sum of all terms but the first, and the means of d and g."""
    rest = 0.0
    sum_d = p[0] * d[0]
    sum_l = p[0] * g[0]
    for i in range(1, n):
        rest += p[i]
        sum_d += p[i] * d[i]
        sum_l += p[i] * g[i]
    total = p[0] + rest
    return rest, sum_d / total, sum_l / total


@njit(cache=True, error_model="numpy", fastmath=_REORDER)
def _second_moments(n, p, d, g, mean_d, mean_l):
    total, dd, dl, ll = 0.0, 0.0, 0.0, 0.0
    for i in range(n):
        a = d[i] - mean_d
        b = g[i] - mean_l
        total += p[i]
        dd += p[i] * a * a
        dl += p[i] * a * b
        ll += p[i] * b * b
    return dd / total, dl / total, ll / total


@njit(cache=True, error_model="numpy", fastmath=_REORDER)
def _third_moments(n, p, d, g, mean_d, mean_l):
    total, ddd, ddl, dll, lll = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(n):
        a = d[i] - mean_d
        b = g[i] - mean_l
        total += p[i]
        ddd += p[i] * a * a * a
        ddl += p[i] * a * a * b
        dll += p[i] * a * b * b
        lll += p[i] * b * b * b
    return ddd / total, ddl / total, dll / total, lll / total


@njit(cache=True, error_model="numpy")
def _first_cumulants(n, x0, l0, log_scale, p, d, g):
    """Return log Z, and the means of d and g."""
    rest, mean_d, mean_l = _first_moments(n, p, d, g)
    # A sum that hardly exceeds its first term, one, keeps the digits of the excess.
    log_sum = math.log1p(rest) if p[0] == 1.0 else math.log(p[0] + rest)
    return log_scale + log_sum, mean_d, mean_l


@njit(cache=True, error_model="numpy")
def cumulants(order, eta, nu, p, d, g, out):
    """Write the derivatives of log Z up to ``order`` (1 to 3) into ``out``.

    They are in the order of :func:`derivative_orders`. Where no answer is given log Z is +inf
    and its derivatives are zero. ``p``, ``d`` and ``g`` are room for ``N_TERMS`` numbers each.
    """
    n, x0, l0, log_scale = _terms(eta, nu, p, d, g)
    if n == 0:
        out[:] = 0.0
        out[0] = math.inf
        return
    log_z, mean_d, mean_l = _first_cumulants(n, x0, l0, log_scale, p, d, g)
    out[0] = log_z
    out[1] = x0 + mean_d
    out[2] = -(l0 + mean_l)
    if order >= 2:
        dd, dl, ll = _second_moments(n, p, d, g, mean_d, mean_l)
        out[3], out[4], out[5] = dd, -dl, ll
    if order >= 3:
        ddd, ddl, dll, lll = _third_moments(n, p, d, g, mean_d, mean_l)
        out[6], out[7], out[8], out[9] = ddd, -ddl, dll, -lll


def derivative_orders(order):
    """List the derivatives (a, b), a-fold in eta and b-fold in nu, up to a total order.

    Examples
    --------
    >>> derivative_orders(2)
    [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2)]
    """
    return [(total - b, b) for total in range(order + 1) for b in range(total + 1)]


@njit(cache=True, error_model="numpy")
def cumulants_of_rows(order, eta, nu, out):
    """Write derivatives of log Z into ``out`` (m, n); ``eta`` and ``nu`` are (n,) or (1,)."""
    p, d, g = np.empty(N_TERMS), np.empty(N_TERMS), np.empty(N_TERMS)
    row = np.empty(out.shape[0])
    for i in range(out.shape[1]):
        cumulants(order, eta[i % eta.size], nu[i % nu.size], p, d, g, row)
        for j in range(out.shape[0]):
            out[j, i] = row[j]


# --- the rate that has a given mean -----------------------------------------------------------


@njit(cache=True, error_model="numpy")
def _first_guess(mu, nu):
    """Log rate of about the mean mu, within a tenth of 1/sd everywhere."""
    if nu >= 4.0 and mu < 0.21 * nu:
        # Three neighbouring counts carry the mass: a quadratic in the rate.
        k = math.floor(mu + 0.5)
        f = mu - k
        ratio = (k / (k + 1.0)) ** nu
        root = math.sqrt(f * f + 4.0 * ratio * (1.0 - f * f))
        odds = (f + root) / (2.0 * (1.0 - f)) if f > 0 else 2.0 * ratio * (1.0 + f) / (root - f)
        return nu * math.log(k + 1.0) + math.log(odds)
    if nu * mu > 0.9 and mu > 0.6:
        # The mean is mode - (nu - 1)/(2 nu) - (nu^2 - 1)/(24 nu^2 mode) - ...
        return nu * math.log(mu + (nu - 1.0) / (2.0 * nu) + (nu * nu - 1.0) / (24.0 * nu * nu * mu))
    # Exact for nu = 0 and nu = 1, and to second order in mu.
    bend = math.log(2.0)
    if abs(nu - 1.0) > 1e-6:
        bend = (2.0 ** (1.0 - nu) - 1.0) / (1.0 - nu)
    return math.log(mu) + (nu - 1.0) * math.log((1.0 + (1.0 + bend) * mu + mu * mu) / (1.0 + mu))


@njit(cache=True, error_model="numpy")
def from_mean(log_mu, nu, p, d, g, out):
    r"""Write eta, log Z, d eta/d log mu, d eta/d nu and E[L] for the mean mu into ``out``.

    Halley's method on the log of the mean, inside a bracket; the last, tiny step is taken by the
    Taylor series of what has been summed already. Where no answer is given log Z is +inf and the
    rest zero. ``p``, ``d`` and ``g`` are room for ``N_TERMS`` numbers each.
    """
    out[:] = 0.0
    out[1] = math.inf
    if not (nu >= 0.0 and nu < math.inf and -600.0 < log_mu < LOG_MAX_MODE + 1.0):
        return
    mu = math.exp(log_mu)
    eta = _first_guess(mu, nu)
    low, high = -math.inf, math.inf
    for _ in range(100):
        n, x0, l0, log_scale = _terms(eta, nu, p, d, g)
        if n == 0:
            high = eta
            eta = 0.5 * (low + high) if low > -math.inf else high - 0.1 * abs(high) - 1e-3
            continue
        log_z, mean_d, mean_l = _first_cumulants(n, x0, l0, log_scale, p, d, g)
        dd, dl, _ = _second_moments(n, p, d, g, mean_d, mean_l)
        ddd, ddl, _, _ = _third_moments(n, p, d, g, mean_d, mean_l)
        mean = x0 + mean_d
        if not dd > 1e-150:
            return
        excess = math.log1p(((x0 - mu) + mean_d) / mu)
        if excess > 0.0:
            high = eta
        else:
            low = eta
        slope = dd / mean
        newton = -excess / slope
        halley = newton / max(0.5, 1.0 + 0.5 * newton * (ddd / dd - slope))
        if abs(halley) * max(1.0, math.sqrt(dd)) < 1e-5:
            h = halley
            out[0] = eta + h
            out[1] = log_z + h * (mean + h * (dd / 2.0 + h * ddd / 6.0))
            out[2] = mu / (dd + h * ddd)
            out[3] = (dl + h * ddl) / (dd + h * ddd)
            out[4] = l0 + mean_l + h * (dl + 0.5 * h * ddl)
            return
        eta += halley
        if not low < eta < high:
            if low > -math.inf and high < math.inf:
                eta = 0.5 * (low + high)
            elif low > -math.inf:
                eta = low + min(halley, 1.0)
            else:
                eta = high + max(halley, -1.0)


@njit(cache=True, error_model="numpy")
def from_mean_of_rows(log_mu, nu, out):
    """Apply :func:`from_mean` to ``log_mu`` and ``nu``, (n,) or (1,); ``out`` is (5, n)."""
    p, d, g = np.empty(N_TERMS), np.empty(N_TERMS), np.empty(N_TERMS)
    row = np.empty(5)
    for i in range(out.shape[1]):
        from_mean(log_mu[i % log_mu.size], nu[i % nu.size], p, d, g, row)
        for j in range(5):
            out[j, i] = row[j]


@njit(cache=True, error_model="numpy")
def rate_of_mean(log_mu, nu):
    """Log rate of the distribution with one mean, NaN where no answer is given."""
    p, d, g = np.empty(N_TERMS), np.empty(N_TERMS), np.empty(N_TERMS)
    out = np.empty(5)
    from_mean(log_mu, nu, p, d, g, out)
    return out[0] if out[1] < math.inf else math.nan
