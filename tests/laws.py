"""Laws on whole numbers that are known up to their constant, for sums that find their nodes.

``LAWS`` were at hand when the sums were made. ``MORE_LAWS`` were written down afterwards, and
nothing was changed for them; ``MISSED`` names those of them that are not summed to 1e-8.
"""

from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt

__all__ = ["LAWS", "MISSED", "MORE_LAWS", "Law", "listed"]


class Law(NamedTuple):
    """A log summand, symbolic in x and its parameters, its support and where its mass lies."""

    log_f: Any
    theta: tuple[float, ...]
    support: Any = "naturals"
    low: int = 0
    high: int = 20_000


def _log_binomial(n, x):
    return pt.gammaln(n + 1.0) - pt.gammaln(x + 1.0) - pt.gammaln(n - x + 1.0)


def _log_poisson(x, mean):
    return x * pt.log(mean) - mean - pt.gammaln(x + 1.0)


LAWS = {
    "hyper-Poisson": Law(lambda x, a, b: x * pt.log(a) - pt.gammaln(x + b), (40.0, 0.3)),
    "COM-negative-binomial": Law(
        lambda x, r, p, v: v * (pt.gammaln(x + r) - pt.gammaln(x + 1.0)) + x * pt.log(p),
        (3.0, 0.99, 0.7),
    ),
    "discrete Weibull": Law(
        lambda x, q, b: -q * x**b + pt.log(-pt.expm1(-q * ((x + 1.0) ** b - x**b))),
        (0.4, 0.5),
    ),
    "Zipf with exponential cut-off": Law(
        lambda x, s, c: -s * pt.log1p(x) - c * x, (1.3, 1e-4), high=600_000
    ),
    "Zipf on a range": Law(lambda x, s: -s * pt.log(x), (1.1,), range(1, 300_001), 1, 300_000),
    "discrete Laplace": Law(
        lambda x, m, s: -pt.abs(x - m) / s, (1234.7, 300.0), "integers", -9000, 12_000
    ),
    "Good": Law(lambda x, q, s: x * pt.log(q) + s * pt.log1p(x), (0.999, 2.5), high=80_000),
    "two far humps": Law(
        lambda x, a, b: pt.logaddexp(_log_poisson(x, a), _log_poisson(x, b)), (5.0, 9000.0)
    ),
    "two near humps": Law(
        lambda x, a, b: pt.logaddexp(_log_poisson(x, a), _log_poisson(x, b)), (300.0, 420.0)
    ),
    "two normals": Law(
        lambda x, a, b: pt.logaddexp(-0.5 * ((x + a) / 30.0) ** 2, -0.5 * ((x - b) / 400.0) ** 2),
        (900.0, 5000.0),
        "integers",
        -2000,
        12_000,
    ),
    "CMP, over-dispersed": Law(
        lambda x, m, v: v * (x * pt.log(m) - pt.gammaln(x + 1.0)), (500.0, 0.05)
    ),
    "CMP, under-dispersed": Law(
        lambda x, m, v: v * (x * pt.log(m) - pt.gammaln(x + 1.0)), (9000.0, 3.0)
    ),
    "log-series": Law(
        lambda x, q: pt.switch(x > 0, x * pt.log(q) - pt.log(pt.maximum(x, 1)), -np.inf),
        (0.999,),
        high=80_000,
    ),
    "Yule with cut-off": Law(
        lambda x, r, c: pt.gammaln(x + 1.0) - pt.gammaln(x + 1.0 + r) - c * x,
        (2.5, 1e-3),
        high=80_000,
    ),
    "generalised Poisson": Law(
        lambda x, t, a: (x - 1.0) * pt.log(t + a * x) - a * x - pt.gammaln(x + 1.0), (20.0, 0.9)
    ),
    "negative binomial": Law(
        lambda x, r, q: pt.gammaln(x + r) - pt.gammaln(x + 1.0) + x * pt.log(q),
        (0.2, 0.9995),
        high=120_000,
    ),
    "U on a range": Law(lambda x, v: v * _log_binomial(3000.0, x), (-0.3,), range(3001), 0, 3000),
    "binomial on a range": Law(
        lambda x, p: _log_binomial(1e5, x) + x * (pt.log(p) - pt.log1p(-p)),
        (0.3,),
        range(100_001),
        0,
        100_000,
    ),
    "uniform on a range": Law(lambda x, c: c + 0.0 * x, (1.0,), range(-7, 100_000), -7, 99_999),
    "Hermite-like": Law(
        lambda x, a, b: x * a - pt.gammaln(x + 1.0) + b * pt.sqrt(x + 1.0), (2.0, 4.0)
    ),
}


MORE_LAWS = {
    "discrete log-normal": Law(
        lambda x, m, s: -0.5 * ((pt.log1p(x) - m) / s) ** 2 - pt.log1p(x),
        (5.0, 1.2),
        high=5_000_000,
    ),
    "discrete gamma": Law(
        lambda x, a, b: (a - 1.0) * pt.log1p(x) - b * (x + 1.0), (30.0, 0.001), high=300_000
    ),
    "discrete Student t": Law(
        lambda x, m, s: -5.0 * pt.log1p(((x - m) / s) ** 2 / 9.0),
        (40.3, 50.0),
        "integers",
        -2_000_000,
        2_000_000,
    ),
    "discrete Gumbel": Law(
        lambda x, m, s: -(x - m) / s - pt.exp(-(x - m) / s), (-400.0, 77.0), "integers", -2000, 6000
    ),
    "COM-binomial on a range": Law(
        lambda x, v, a: v * _log_binomial(5000.0, x) + x * a, (2.5, 0.7), range(5001), 0, 5000
    ),
    "beta-binomial on a range": Law(
        lambda x, a, b: (
            pt.gammaln(x + a) + pt.gammaln(20_000.0 - x + b) + _log_binomial(20_000.0, x)
        ),
        (0.4, 2.0),
        range(20_001),
        0,
        20_000,
    ),
    "hypergeometric": Law(
        lambda x, a, b: _log_binomial(a, x) + _log_binomial(b, 900.0 - x),
        (4000.0, 6000.0),
        range(901),
        0,
        900,
    ),
    "Zipf-Mandelbrot": Law(lambda x, s, q: -s * pt.log(x + q), (6.0, 50.0), high=5_000_000),
    "three humps": Law(
        lambda x, a, b: pt.logaddexp(
            pt.logaddexp(_log_poisson(x, 20.0), _log_poisson(x, a)), _log_poisson(x, b)
        ),
        (200.0, 2000.0),
    ),
    "weekly rhythm": Law(
        lambda x, q, a: x * pt.log(q) + a * pt.cos(2.0 * np.pi * x / 7.0), (0.99, 2.0)
    ),
    "odd numbers doubled": Law(lambda x, q, a: x * pt.log(q) + a * (x % 2), (0.995, np.log(2.0))),
    "heaped at tens": Law(
        lambda x, m, a: _log_poisson(x, m) + a * pt.eq(x % 10, 0), (300.0, 1.5), high=2000
    ),
    "bell at a million": Law(
        lambda x, m, s: -0.5 * ((x - m) / s) ** 2, (1e6, 1000.0), low=980_000, high=1_020_000
    ),
    "narrow bell far out": Law(
        lambda x, m, s: -0.5 * ((x - m) / s) ** 2, (138_270.0, 2.0), low=138_000, high=139_000
    ),
    "plateau": Law(lambda x, m, s: -((x / m) ** s), (3000.0, 8.0)),
    "discrete logistic": Law(
        lambda x, m, s: -(x - m) / s - 2.0 * pt.softplus(-(x - m) / s),
        (3333.0, 200.0),
        "integers",
        -10_000,
        20_000,
    ),
    "discrete inverse Gaussian": Law(
        lambda x, a, b: -1.5 * pt.log1p(x) - a * (x + 1.0) - b / (x + 1.0),
        (0.001, 400.0),
        high=80_000,
    ),
    "stretched exponential": Law(lambda x, m, s: -((x / m) ** s), (20.0, 0.3), high=8_000_000),
    "gap of a hundred": Law(
        lambda x, q, a: pt.switch(pt.eq(x, 0), a, pt.switch(pt.lt(x, 100), -np.inf, x * pt.log(q))),
        (0.97, 5.0),
    ),
    "spike on two exponentials": Law(
        lambda x, s, a: -pt.abs(x) / s + a * pt.eq(x, 777),
        (515.0, 6.0),
        "integers",
        -30_000,
        30_000,
    ),
    "Bessel": Law(
        lambda x, a, v: x * pt.log(a) - pt.gammaln(x + 1.0) - pt.gammaln(x + v + 1.0), (1e6, 3.3)
    ),
}
MISSED = (
    "weekly rhythm",
    "odd numbers doubled",
    "narrow bell far out",
    "spike on two exponentials",
)


def listed(law: Law, theta: tuple[float, ...] | None = None) -> np.ndarray:
    """Return the log-mass at every number where there is any."""
    x = np.arange(law.low, law.high + 1)
    values = [pt.constant(np.float64(v)) for v in (theta or law.theta)]
    logs = law.log_f(pt.constant(x), *values).eval(mode="FAST_COMPILE")
    return logs - pm.math.logsumexp(pt.constant(logs)).eval(mode="FAST_COMPILE")
