r"""The Conway-Maxwell-Poisson normaliser as the plain series it is: slow at large means, but exact.

.. math:: \log Z(\eta, \nu) = \log \sum_{x \ge 0} e^{\eta x} (x!)^{-\nu}

The terms rise to the mode :math:`m = e^{\eta / \nu}` and fall from there.  From one term to the
next it is one multiplication by :math:`e^\eta x^{-\nu}`, and rows that share :math:`\nu` share the
powers, so that a row costs about a nanosecond a term.  It has nothing in common with the rules
that it is a reference for: those of `CMP`, whose normaliser stands here too.
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
#: Above this mode the series is not summed.
_HIGHEST_MODE = 1e8
#: A series near its radius of convergence is closed by its geometric tail after so many terms.
_MOST_TERMS = 10_000_000
_SMALL = 1e-18
#: What the default rules of `CMP` are exact to, and what rounding adds to a large log Z.
_RULE_SD = 1e-13
_ROUNDING = 2e-15


def cmp_series(eta: Any, nu: Any) -> np.ndarray:
    r"""Return :math:`\log Z` of arrays, term by term; +inf if infinite, or with a mode above 1e8.

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
        """Return the plain series."""
        return Given(cmp_series, "the series, term by term")

    def remedy(self, facts: Facts) -> str:
        """Say where the sums end."""
        return "a prior that keeps nu away from 0, where the sum does not converge"


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
    log_mode = eta / nu if nu > 0.0 else math.inf * eta
    if nu < 0.0 or math.isnan(log_mode) or log_mode > math.log(_HIGHEST_MODE):
        return math.inf, known
    start = int(math.exp(log_mode)) if log_mode > 0.0 else 0
    # Without a rate the only term is the first, and its zero times the log rate is no number.
    scale = start * eta - nu * math.lgamma(start + 1.0) if start > 0 else 0.0
    if start > _N_POWERS // 2 or abs(eta) > 600.0:
        return scale + math.log(_sum_far(eta, nu, start)), known
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
def _sum_far(eta, nu, start):
    """Return the sum of all terms in units of the one at the mode, by logarithms."""
    total, term = 1.0 + _sum_upwards(eta, nu, start), 1.0
    for x in range(start, 0, -1):
        term *= math.exp(nu * math.log(x) - eta)
        total += term
        if term * x < _SMALL * total:
            break
    return total


@njit(cache=True)
def _sum_upwards(eta, nu, start):
    """Return the sum of the terms beyond one, in units of that one."""
    total, term, step = 0.0, 1.0, 1.0
    for x in range(start + 1, start + _MOST_TERMS):
        step = math.exp(eta - nu * math.log(x))
        term *= step
        total += term
        if term * step <= _SMALL * (1.0 - step):
            break
    return total + (term * step / (1.0 - step) if step < 1.0 else 0.0)
