r"""What a cell of the table holds: polynomials in two numbers, and the values they go through.

What is asked of a row is a function of two numbers, s (its log mean; or its log mode where that is
positive, else its log rate) and log nu: always the same function. It is interpolated at Chebyshev
points in cells of the plane, by polynomials of total degree ``DEGREE``.

The values are sums over all terms that count, and the rate of a mean is found by Halley's method,
for all points of a cell at once. They are summed by NumPy although :mod:`.sums` has the same sums
compiled: a cell is filled once, and compiling those would take longer than a model needs.
"""

import math

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from scipy.special import gammaln

from pymc_bayessum.counts.cmp_sums.half_line import END_WEIGHTS
from pymc_bayessum.counts.cmp_sums.near_zero import width

Array = NDArray[np.float64]

DEGREE = 8
_SIDE = DEGREE + 1
_POINTS = chebyshev.chebpts1(_SIDE)
POWERS = [(i, k) for i in range(_SIDE) for k in range(_SIDE - i)]
"""Powers of s and of log nu that belong to the coefficients, in their order."""


def _interpolation() -> Array:
    """Matrix from values on a grid of Chebyshev points to coefficients of powers.

    Products of Chebyshev polynomials above the total degree are left out.
    """
    series = np.linalg.inv(chebyshev.chebvander(_POINTS, DEGREE))
    powers = [chebyshev.cheb2poly(row[: i + 1]) for i, row in enumerate(np.eye(_SIDE))]
    matrix = np.zeros((_SIDE, _SIDE, _SIDE, _SIDE))
    for i, k in POWERS:
        matrix[: i + 1, : k + 1] += np.multiply.outer(
            np.outer(powers[i], powers[k]), np.outer(series[i], series[k])
        )
    return np.array([matrix[i, k].ravel() for i, k in POWERS])


_TO_COEFFICIENTS = _interpolation()
# Where a cell is tested: between its points in one direction, at the ends of the other.
_BETWEEN = 0.999 * np.cos(np.pi * np.arange(_SIDE + 1) / _SIDE)
_ENDS = _BETWEEN[[0, -1]]
_GRID = np.array([(u, w) for u in _POINTS for w in _POINTS])
_TESTS = np.array(
    [(u, w) for u in _BETWEEN for w in _ENDS] + [(u, w) for u in _ENDS for w in _BETWEEN[1:-1:2]]
)
_AT_TESTS = np.array([_TESTS[:, 0] ** i * _TESTS[:, 1] ** k for i, k in POWERS]).T

_EPS = 2.3e-16
_DROP = 38.0  # terms below exp(-_DROP) of the largest are left out
_LEFT_ZERO = 48.0  # nu times the mode of a bell that no longer feels zero
_SPACING = 0.66  # of a width, for such a bell
_SMOOTH = 1024  # from here on a summand that is wide is integrated
_STIRLING = 16.0
_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
_LEGENDRE_X, _LEGENDRE_W = np.polynomial.legendre.leggauss(20)


def fill(by_mean: bool, s: float, half_s: float, v: float, half_v: float) -> Array | None:
    """Return coefficients of shape (len(POWERS), n_outputs) of a cell around s and v = log nu.

    None where they miss the tolerance; ``by_mean`` says whether s is the log mean.
    """
    points = np.concatenate([_GRID, _TESTS])
    at_s, at_v = s + half_s * points[:, 0], v + half_v * points[:, 1]
    values, rounding = (_by_mean if by_mean else _by_rate)(at_s, at_v)
    coefficients = _TO_COEFFICIENTS @ values[: len(_GRID)]
    misses = np.abs(_AT_TESTS @ coefficients - values[len(_GRID) :])
    # log Z is wanted to 1e-11 (the errors of both directions add up), and eta so that a count one
    # sd from the mean times it is; or both to rounding. The others are derivatives.
    tolerance = 3e-11 * np.abs(values).min(axis=0)
    if by_mean:
        mu = math.exp(s + half_s)
        tolerance[0] = 5e-12 / (1.0 + mu) + 2.0 * rounding
        tolerance[1] = 5e-12 * min(1.0, mu) + 2.0 * rounding * mu
    else:
        tolerance[0] = 5e-12 * min(1.0, math.exp(s)) + 2.0 * rounding
    return coefficients if np.all(misses <= tolerance) else None


def _by_rate(s: Array, v: Array) -> tuple[Array, float]:
    """Return log Z less its growth, E[X] and -E[L] a point, and the rounding of the first."""
    nu = np.exp(v)
    eta = np.where(s > 0.0, s * nu, s)
    log_z, mean, mean_l, *_ = _moments(eta, nu)
    rounding = _EPS * np.max((np.abs(eta) + nu) * mean)
    return np.stack(
        [log_z - np.where(s > 0.0, nu * np.exp(s), 0.0), mean, -mean_l], axis=1
    ), rounding


def _by_mean(s: Array, v: Array) -> tuple[Array, float]:
    """Return what the mean form has a point, smaller and smoother, and the rounding of the first.

    With a = eta - nu log mu these are a, log Z - mu (a + nu), d eta/d log mu, d eta/d nu and E[L]:
    an error of a then cancels from y eta - log Z where y is the mean.
    """
    mu, nu = np.exp(s), np.exp(v)
    low, high = _bracket(mu, nu)
    eta = np.clip(_first_guess(mu, nu), low, high)
    for _ in range(100):
        log_z, mean, mean_l, dd, dg, ddd, ddg = _moments(eta, nu)
        excess = np.log1p((mean - mu) / mu)
        low, high = np.where(excess <= 0.0, eta, low), np.where(excess > 0.0, eta, high)
        slope = dd / mean
        newton = -excess / slope
        h = newton / np.maximum(0.5, 1.0 + 0.5 * newton * (ddd / dd - slope))
        if np.all(
            (np.abs(h) * np.maximum(1.0, np.sqrt(dd)) < 3e-8)
            | (np.abs(h) < 4.0 * _EPS * np.abs(eta))
        ):
            break
        inside = (eta + h > low) & (eta + h < high)
        eta = np.where(inside, eta + h, 0.5 * (low + high))
    log_z = log_z + h * (mean + h * (dd / 2.0 + h * ddd / 6.0))
    a = eta + h - nu * s
    variance = dd + h * ddd
    outputs = [a, log_z - mu * (a + nu), mu / variance, (dg + h * ddg) / variance]
    outputs.append(mean_l + h * (dg + 0.5 * h * ddg))
    return np.stack(outputs, axis=1), _EPS * np.max(nu * (1.0 + np.abs(s)))


def _bracket(mu: Array, nu: Array) -> tuple[Array, Array]:
    """Bounds of eta, which grows with nu at a given mean.

    It is log(mu / (1 + mu)) for nu = 0, log mu for nu = 1 and log(mu / (1 - mu)) as nu grows.
    E[X^nu] = lambda and E[(X + 1)^-nu] < 1 / lambda give the others by Jensen's inequality.
    """
    s = np.log(mu)
    bernoulli = np.where(mu < 1.0, s - np.log1p(-np.minimum(mu, 0.9999)), np.inf)
    low = np.where(nu < 1.0, s - np.log1p(mu), np.maximum(s, nu * s))
    high = np.where(nu < 1.0, np.minimum(s, nu * s), np.minimum(nu * np.log1p(mu), bernoulli))
    return low - 1e-12 * (1.0 + np.abs(low)), high + 1e-12 * (1.0 + np.abs(high))


def _first_guess(mu: Array, nu: Array) -> Array:
    """Log rate of about the mean mu."""
    with np.errstate(divide="ignore", invalid="ignore"):
        # Three neighbouring counts carry the mass: a quadratic in the rate.
        k = np.floor(mu + 0.5)
        f = mu - k
        ratio = np.where(k > 0.0, (k / (k + 1.0)) ** nu, 0.0)
        root = np.sqrt(f * f + 4.0 * ratio * (1.0 - f * f))
        steep = nu * np.log(k + 1.0) + np.log(
            np.where(f > 0.0, (f + root) / (2.0 * (1.0 - f)), 2.0 * ratio * (1.0 + f) / (root - f))
        )
        bell = nu * np.log(mu + (nu - 1.0) / (2.0 * nu) + (nu**2 - 1.0) / (24.0 * nu**2 * mu))
        # Exact for nu = 0 and nu = 1, and to second order in mu.
        bend = np.expm1((1.0 - nu) * np.log(2.0)) / (1.0 - nu)
        bend = np.where(np.abs(nu - 1.0) > 1e-6, bend, np.log(2.0))
        other = nu * np.log(mu) + (nu - 1.0) * np.log1p((bend + (1.0 - bend) / (1.0 + mu)) / mu)
    guess = np.where((nu * mu > 0.9) & (mu > 0.6), bell, other)
    guess = np.where((nu >= 4.0) & (mu < 0.21 * nu) & np.isfinite(steep), steep, guess)
    return np.where(np.isfinite(guess), guess, nu * np.log(mu))


def _nodes(eta: Array, nu: Array) -> tuple[Array, Array]:
    """Nodes and weights that sum the terms of all these parameters."""
    mode, wide = np.exp(eta / nu), width(eta, nu)
    third, reach = _DROP / (3.0 * nu), 2.0 * _DROP * wide**2
    # Bernstein's bound on the fall of a bell; before it has a peak, a tangent of L at `touch`.
    touch = 0.5 * _DROP * wide
    bell = nu * mode >= 1.0
    tail = (_DROP + nu * touch) / np.maximum(nu * np.log(np.maximum(touch, 1.0)) - eta, 1e-9)
    end = np.where(bell, mode + third + np.sqrt(third**2 + reach), tail).max() + 3.0
    if (nu * mode).min() >= _LEFT_ZERO:
        step = max(1.0, math.floor(_SPACING * wide.min()))
        nodes = np.arange(max(0.0, math.floor((mode - np.sqrt(reach)).min())), end + step, step)
        return nodes, np.full(nodes.size, step)
    nodes = np.arange(min(end, 2.0 * _SMOOTH))
    if end <= 2.0 * _SMOOTH:
        return nodes, np.ones(nodes.size)
    # The sum beyond is an integral and Gregory's correction at its end.
    edges = np.geomspace(_SMOOTH, end, 1 + math.ceil(math.log(end / _SMOOTH) / math.log(1.5)))
    half = 0.5 * np.diff(edges)
    panels = edges[:-1, None] + half[:, None] * (1.0 + _LEGENDRE_X)
    ends = _SMOOTH + np.arange(len(END_WEIGHTS))
    parts = [nodes[:_SMOOTH], ends, panels.ravel()]
    weights = [np.ones(_SMOOTH), END_WEIGHTS, np.outer(half, _LEGENDRE_W).ravel()]
    return np.concatenate(parts), np.concatenate(weights)


def _stirling_tail(x: Array) -> Array:
    q = 1.0 / (x * x)
    return (1.0 / 12.0 - q * (1.0 / 360.0 - q * (1.0 / 1260.0 - q / 1680.0))) / x


def _moments(eta: Array, nu: Array) -> tuple[Array, ...]:
    """Return log Z, E[X], E[L] and central moments dd, dg, ddd, ddg of X and L, a row each."""
    x, weights = _nodes(eta, nu)
    centre = np.exp(eta / nu)
    if x[0] >= _STIRLING:
        # About the mode itself, where no digits are lost to the size of L.
        slope, log_centre = eta - nu * np.log(centre), np.log(centre)
        tail = _stirling_tail(centre)
        d = x - centre[:, None]
        bend = (x + 0.5) * np.log1p(d / centre[:, None]) - d + (_stirling_tail(x) - tail[:, None])
        g = d * log_centre[:, None] + bend
        terms = weights * np.exp(slope[:, None] * d - nu[:, None] * bend)
        at_centre = (centre + 0.5) * log_centre - centre + _HALF_LOG_2PI + tail
        level = centre * slope + nu * (centre - 0.5 * log_centre - _HALF_LOG_2PI - tail)
    else:
        centre = np.rint(np.minimum(centre, x[-1]))
        at_centre = gammaln(centre + 1.0)
        d, g = x - centre[:, None], gammaln(x + 1.0) - at_centre[:, None]
        terms = weights * np.exp(eta[:, None] * d - nu[:, None] * g)
        level = eta * centre - nu * at_centre
    rest = terms[:, 1:].sum(axis=1)
    total = terms[:, 0] + rest
    # A sum that hardly exceeds its first term, one, keeps those digits.
    log_sum = np.where(terms[:, 0] == 1.0, np.log1p(rest), np.log(total))
    terms /= total[:, None]
    mean_d, mean_g = (terms * d).sum(axis=1), (terms * g).sum(axis=1)
    d -= mean_d[:, None]
    g -= mean_g[:, None]
    second = terms * d
    dd, dg = (second * d).sum(axis=1), (second * g).sum(axis=1)
    second *= d
    ddd, ddg = (second * d).sum(axis=1), (second * g).sum(axis=1)
    return level + log_sum, centre + mean_d, at_centre + mean_g, dd, dg, ddd, ddg
