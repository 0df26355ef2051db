r"""Brownian motion on the naturals.

With :math:`k(x, y) = \min(x, y) + c` everything follows from the survival function
:math:`S(r) = P(X > r)`: :math:`\mu(y) = \sum_{x \le y} x p(x) + y S(y) + c`, and
:math:`E \min(X, X') = \sum_{r \ge 0} S(r)^2`.
"""

import math

import numpy as np
from scipy import special

from pymc_bayessum.embeddings.long_sums import long_sum
from pymc_bayessum.embeddings.registry import Embedding, find_row, register
from pymc_bayessum.kernels import Brownian
from pymc_bayessum.kernels.line import half_line
from pymc_bayessum.measures import (
    Counting,
    Geometric,
    IntegerMeasure,
    Logarithmic,
    Measure,
    NegativeBinomial,
    Poisson,
    UniformInterval,
)
from pymc_bayessum.measures.compound import IntegerMixture

__all__ = ["survival"]


def survival(measure: Measure, r: np.ndarray) -> np.ndarray:
    """P(X > r) at real r >= 0, to full relative accuracy.

    Between integers it is the smooth function that agrees with the survival function there.
    """
    match measure:
        case Poisson():
            return special.gammainc(r + 1.0, measure.mu)
        case Geometric():
            return np.exp((r + 1.0) * math.log1p(-measure.p))
        case NegativeBinomial():
            return special.betaincc(measure.n, r + 1.0, measure.p)
        case Logarithmic():
            # The sum of p^x / x over x > r is the incomplete beta function B(p; r + 1, 0), and the
            # complete one tends to 1 / b with its second argument b.
            return special.betainc(r + 1.0, 1e-20, measure.p) / 1e-20 / -math.log1p(-measure.p)
        case IntegerMixture():
            return measure.weights @ np.stack([survival(part, r) for part in measure.measures])
    raise NotImplementedError(f"no survival function for {type(measure).__name__}")


def _squared_survival_sum(measure: IntegerMeasure) -> float:
    """Sum of P(X > r)^2 over r >= 0, with a tail below 1e-18 of the total."""
    parts = measure.measures if isinstance(measure, IntegerMixture) else (measure,)
    # Far below its mean a survival function is one, and far above zero: it bends in between only.
    bends = [(m.mean, m.sd) for m in parts]
    low = max(math.floor(min(mean - 40.0 * sd for mean, sd in bends)), 0)
    _, high = measure.effective_range(-45.0, growth=1.0)

    def width(r: float) -> float:
        near = [sd for mean, sd in bends if abs(r - mean) <= 60.0 * sd]
        return 0.5 * min(near, default=math.inf)

    return low + long_sum(lambda r: survival(measure, r) ** 2, low, high, width)


@register(Brownian, Poisson)
def brownian_poisson(kernel: Brownian, measure: Poisson) -> Embedding:
    r"""Brownian motion under a Poisson distribution.

    .. math:: \mu(y) = \mu\, Q(y, \mu) + y\, P(y + 1, \mu) + c

    with the regularised incomplete gamma functions, and

    .. math:: E[k(X, X')] = \mu \left(1 - e^{-2\mu} (I_0(2\mu) + I_1(2\mu))\right) + c ,

    half of the mean difference (which is a Skellam variable) below the mean. For small means the
    bracket cancels and :math:`\sum_r P(X > r)^2` is summed instead.
    """
    mu = measure.mu

    def mean(y: np.ndarray) -> np.ndarray:
        z = np.maximum(half_line(y), 1.0)
        body = mu * special.gammaincc(z, mu) + z * special.gammainc(z + 1.0, mu)
        return np.where(y > 0, body, 0.0) + kernel.shift

    def initial_error() -> float:
        if mu < 10.0:
            return _squared_survival_sum(measure) + kernel.shift
        near = float(special.ive(0, 2.0 * mu) + special.ive(1, 2.0 * mu))
        return mu * (1.0 - near) + kernel.shift

    return Embedding(mean, initial_error)


@register(Brownian, NegativeBinomial)
def brownian_negative_binomial(kernel: Brownian, measure: NegativeBinomial) -> Embedding:
    r"""Brownian motion under a negative binomial distribution.

    .. math:: \mu(y) = n \frac{1 - p}{p} I_p(n + 1, y) + y\, I_{1-p}(y + 1, n) + c

    because :math:`x p(x; n) = n (1 - p) / p \cdot p(x - 1; n + 1)`; this equals
    :math:`y - \sum_{r < y} I_p(n, r + 1) + c` without its y terms and their cancellation. The
    initial error is :math:`\sum_r I_{1-p}(r + 1, n)^2 + c`.
    """
    n, p = measure.n, measure.p

    def mean(y: np.ndarray) -> np.ndarray:
        z = np.maximum(half_line(y), 1.0)
        body = measure.mean * special.betainc(n + 1.0, z, p) + z * special.betaincc(n, z + 1.0, p)
        return np.where(y > 0, body, 0.0) + kernel.shift

    return Embedding(mean, lambda: _squared_survival_sum(measure) + kernel.shift)


@register(Brownian, Geometric)
def brownian_geometric(kernel: Brownian, measure: Geometric) -> Embedding:
    r"""Brownian motion under a geometric distribution.

    .. math:: \mu(y) = \frac{1 - p}{p} \left(1 - (1 - p)^y\right) + c, \qquad
              E[k(X, X')] = \frac{(1 - p)^2}{p (2 - p)} + c
    """
    p = measure.p

    def mean(y: np.ndarray) -> np.ndarray:
        return -measure.mean * np.expm1(half_line(y) * math.log1p(-p)) + kernel.shift

    return Embedding(mean, (1.0 - p) ** 2 / (p * (2.0 - p)) + kernel.shift)


@register(Brownian, Logarithmic)
def brownian_logarithmic(kernel: Brownian, measure: Logarithmic) -> Embedding:
    r"""Brownian motion under a logarithmic distribution.

    .. math:: \mu(y) = \frac{1}{-\log(1 - p)} \left(p \frac{1 - p^y}{1 - p}
              + y \sum_{x > y} \frac{p^x}{x}\right) + c

    a sum of positive terms; the initial error is :math:`\sum_r P(X > r)^2 + c`.
    """
    p = measure.p

    def mean(y: np.ndarray) -> np.ndarray:
        z = half_line(y)
        below = -measure.mean * np.expm1(z * math.log(p))
        return below + z * survival(measure, z) + kernel.shift

    return Embedding(mean, lambda: _squared_survival_sum(measure) + kernel.shift)


@register(Brownian, IntegerMixture)
def brownian_mixture(kernel: Brownian, measure: IntegerMixture) -> Embedding | None:
    r"""Brownian motion under a mixture of counts.

    The mean embedding is the mixture of those of the parts. The survival function is as well, and
    the initial error is :math:`\sum_r S(r)^2 + c`.
    """
    rows = [find_row(kernel, part) for part in measure.measures]
    if any(row is None for row in rows):
        return None

    def mean(y: np.ndarray) -> np.ndarray:
        return measure.weights @ np.stack([row.mean(y) for row in rows if row is not None])

    return Embedding(mean, lambda: _squared_survival_sum(measure) + kernel.shift)


@register(Brownian, Counting)
def brownian_counting(kernel: Brownian, measure: Counting) -> Embedding:
    r"""Brownian motion under counting measure on 0, ..., M.

    .. math:: \mu(y) = \frac{y (2 M + 1 - y)}{2} + c (M + 1), \qquad
              \sum_{x, x'} k(x, x') = \frac{M (M + 1) (2 M + 1)}{6} + c (M + 1)^2

    with y replaced by M beyond it.
    """
    top = float(measure.maximum)

    def mean(y: np.ndarray) -> np.ndarray:
        z = np.minimum(half_line(y), top)
        return 0.5 * z * (2.0 * top + 1.0 - z) + kernel.shift * (top + 1.0)

    error = top * (top + 1.0) * (2.0 * top + 1.0) / 6.0 + kernel.shift * (top + 1.0) ** 2
    return Embedding(mean, error)


@register(Brownian, UniformInterval)
def brownian_interval(kernel: Brownian, measure: UniformInterval) -> Embedding | None:
    r"""Brownian motion under the uniform distribution on [a, b] with a >= 0.

    .. math:: \mu(y) = a + \frac{(y - a) (2 b - a - y)}{2 (b - a)} + c, \qquad
              E[k(X, X')] = a + \frac{b - a}{3} + c

    with y clipped to the interval on the right, and :math:`\mu(y) = y + c` on its left.
    """
    a, b = measure.low, measure.high
    if a < 0.0:
        return None

    def mean(y: np.ndarray) -> np.ndarray:
        z = np.clip(half_line(y), a, b)
        inside = a + (z - a) * (2.0 * b - a - z) / (2.0 * (b - a))
        return np.where(y < a, y, inside) + kernel.shift

    return Embedding(mean, a + (b - a) / 3.0 + kernel.shift)
