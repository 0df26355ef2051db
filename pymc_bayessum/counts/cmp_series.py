r"""The Conway-Maxwell-Poisson normaliser as the plain series it is: slow at large means, but exact.

.. math:: \log Z(\eta, \nu) = \log \sum_{x \ge 0} e^{\eta x} (x!)^{-\nu}

The terms rise to the mode :math:`m = e^{\eta / \nu}` and fall from there.  From one term to the
next it is one multiplication by :math:`e^\eta x^{-\nu}`, and rows that share :math:`\nu` share the
powers, so that a row costs about a nanosecond a term.  Where millions of terms differ by little
from one to the next their sum is an integral, with the corrections of Euler and Maclaurin at zero.
It has nothing in common with the rules that it is a reference for: those of `CMP`, whose
normaliser stands here too.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from pymc_bayessum.counts.cmp_sums.ops import CMPCumulants
from pymc_bayessum.normalizers.protocol import Asked, Facts, Given, Reference

__all__ = ["CMPSum", "cmp_series"]

#: Powers of the first integers are kept from row to row.
_N_POWERS = 1 << 16
#: Above this mode, and where there are more terms, the series is an integral.
_MANY = 1e8
_MOST_TERMS = 1_000_000
#: No sum of `CMP` goes further than a mean of 2**50, and none here than this.
_HIGHEST_LOG_MODE = 60.0
#: Points of its trapezoidal rule, and how far below the largest log term it ends.
_N_POINTS = 1000
_DEPTH = 45.0
_SMALL = 1e-18
#: What the default rules of `CMP` are exact to, and what rounding adds to a large log Z.
_RULE_SD = 1e-13
_ROUNDING = 2e-15


def cmp_series(eta: Any, nu: Any) -> np.ndarray:
    r"""Return :math:`\log Z` of arrays, term by term where these are few; +inf if infinite.

    Modes above exp(60) are not summed, and are +inf too.

    Examples
    --------
    >>> import numpy as np
    >>> cmp_series(np.log(1.5), [0.0, 1.0, 1.2]).round(4).tolist()
    [inf, 1.5, 1.3896]
    """
    eta, nu = np.asarray(eta, dtype=float), np.asarray(nu, dtype=float)
    shape = np.broadcast_shapes(eta.shape, nu.shape)
    out = np.empty(shape)
    _sum_rows(np.broadcast_to(eta, shape).ravel(), np.broadcast_to(nu, shape).ravel(), out.ravel())
    return out


@dataclass(frozen=True)
class CMPSum:
    """The default normaliser of `CMP`, a function of the log rate and the dispersion."""

    is_absolute = True

    def log_z(self, xp: Any, eta: Any, nu: Any) -> Any:
        """Log Z by the compiled sums, or by the Op around them."""
        return CMPCumulants(1).on(xp, eta, nu)[0]

    def sd(self, xp: Any, eta: Any, nu: Any) -> Any:
        """Return what the rules are exact to, and what rounding adds to a large log Z."""
        return _RULE_SD + _ROUNDING * xp.abs(self.log_z(xp, eta, nu))

    def reference(self, asked: Asked) -> Reference:
        """Return the plain series, by another way than the sums."""
        return Given(cmp_series, "the series, term by term")

    def remedy(self, facts: Facts) -> str:
        """Say where the sums end, and the digits of doubles."""
        return (
            "a prior that keeps nu away from 0, where the sum does not converge, and nu times the "
            "mean below 1e14, where log Z has no digits left"
        )


@njit(cache=True)
def _sum_rows(eta, nu, out):
    power = np.empty(_N_POWERS)
    known = 1
    for i in range(len(eta)):
        if i == 0 or nu[i] != nu[i - 1]:
            known = 1
        out[i], known = _sum(eta[i], nu[i], power, known)


@njit(cache=True)
def _sum(eta, nu, power, known):
    """Return one row, and how many powers are known by now."""
    if math.isnan(eta) or math.isnan(nu):
        return math.nan, known
    if nu < 0.0 or (nu == 0.0 and eta >= 0.0):
        return math.inf, known
    if nu == 0.0:
        return -math.log(-math.expm1(eta)), known
    log_mode = eta / nu
    if log_mode > _HIGHEST_LOG_MODE:
        return math.inf, known
    start = np.floor(math.exp(log_mode)) if log_mode > 0.0 else 0.0
    # Without a rate the only term is the first, and its zero times the log rate is no number.
    scale = _log_term(start, eta, nu) if start > 0.0 else 0.0
    # Terms about a mode as narrow as a count are told apart wherever it is.
    is_smooth = start > max(_MANY, 9.0 * nu)
    if is_smooth or _log_term(start + _MOST_TERMS, eta, nu) > scale - _DEPTH:
        return _integral(eta, nu), known
    if start > 2.0**53:
        return math.inf, known
    start = int(start)
    if start > _N_POWERS // 2 or abs(eta) > 600.0:
        around = _sum_upwards(eta, nu, start) + _sum_downwards(eta, nu, start)
        return scale + math.log1p(around), known
    rate = math.exp(eta)
    while known <= start:
        power[known] = math.exp(-nu * math.log(known))
        known += 1
    total, term = 1.0, 1.0
    for x in range(start, 0, -1):
        term /= rate * power[x]
        total += term
        if term < _SMALL:
            break
    term, step, x = 1.0, 1.0, start
    # Until what follows, bounded by a geometric series, is too small to count.
    while term * step > _SMALL * (1.0 - step) and x < _N_POWERS - 1:
        x += 1
        if x == known:
            power[x] = math.exp(-nu * math.log(x))
            known += 1
        step = rate * power[x]
        term *= step
        total += term
    if x == _N_POWERS - 1:
        total += term * _sum_upwards(eta, nu, x)
    return scale + math.log(total), known


@njit(cache=True)
def _sum_downwards(eta, nu, start):
    """Return the sum of the terms before one, in units of that one."""
    total, term = 0.0, 1.0
    for x in range(start, 0, -1):
        term *= math.exp(nu * math.log(x) - eta)
        total += term
        if term * x < _SMALL * (1.0 + total):
            break
    return total


@njit(cache=True)
def _sum_upwards(eta, nu, start):
    """Return the sum of the terms beyond one, in units of that one."""
    total, term, step, x = 0.0, 1.0, 1.0, start
    while term * step > _SMALL * (1.0 - step):
        x += 1
        step = math.exp(eta - nu * math.log(x))
        term *= step
        total += term
    return total


@njit(cache=True)
def _log_term(x, eta, nu):
    return x * eta - nu * math.lgamma(x + 1.0)


@njit(cache=True)
def _integral(eta, nu):
    """Return log Z where terms follow one another smoothly, by the trapezoidal rule in log x."""
    log_mode = eta / nu
    is_far = log_mode > 0.0 and nu * math.exp(log_mode) > 100.0
    offset = 0.0
    if is_far:
        mode = math.exp(log_mode)
        offset = nu * (mode - 0.5 * (log_mode + math.log(2.0 * math.pi)) - 1.0 / (12.0 * mode))
    # The largest of x f(x), which is concave in log x, by thirds; then where it has fallen off.
    low, high = -_DEPTH, 80.0
    for _ in range(200):
        left, right = low + (high - low) / 3.0, high - (high - low) / 3.0
        if _log_density(left, eta, nu, is_far) < _log_density(right, eta, nu, is_far):
            low = left
        else:
            high = right
    peak = 0.5 * (low + high)
    top = _log_density(peak, eta, nu, is_far)
    first = _where_it_falls(peak, -2.0 * _DEPTH, top, eta, nu, is_far)
    last = _where_it_falls(peak, 100.0, top, eta, nu, is_far)
    width, total = (last - first) / _N_POINTS, 0.0
    for i in range(_N_POINTS + 1):
        total += math.exp(_log_density(first + i * width, eta, nu, is_far) - top)
    # Half of the first term, and the slope there.
    at_zero = (0.5 - (eta + nu * np.euler_gamma) / 12.0) * math.exp(-offset - top)
    return offset + top + math.log(total * width + at_zero)


@njit(cache=True)
def _where_it_falls(peak, end, top, eta, nu, is_far):
    """Return log x between the peak and an end beyond which no term counts."""
    for _ in range(100):
        middle = 0.5 * (peak + end)
        if _log_density(middle, eta, nu, is_far) < top - _DEPTH:
            end = middle
        else:
            peak = middle
    return end


@njit(cache=True)
def _log_density(log_x, eta, nu, is_far):
    """Return log of x f(x); far out, where f would be a difference of large numbers, over f(mode).

    There, with v = log(x / mode), Stirling's series leaves nu * mode * (v e^v - e^v + 1).
    """
    if not is_far:
        x = math.exp(log_x)
        return log_x + _log_term(x, eta, nu)
    log_mode = eta / nu
    v = log_x - log_mode
    if abs(v) > 0.1:
        fall = v * math.exp(v) - math.expm1(v)
    else:
        fall, power = 0.0, v * v
        for k in range(2, 16):
            power /= k
            fall += (k - 1) * power
            power *= v
    mode = math.exp(log_mode)
    corrections = 0.5 * v + (math.exp(-v) - 1.0) / (12.0 * mode)
    return log_x - nu * (mode * fall + corrections)
