"""Closed embeddings under the uniform distribution on an interval."""

import math

import numpy as np
from scipy import special

from pymc_bayessum.embeddings.registry import Embedding, register
from pymc_bayessum.kernels import Matern, SquaredExponential
from pymc_bayessum.measures import UniformInterval


@register(SquaredExponential, UniformInterval)
def squared_exponential_interval(kernel: SquaredExponential, measure: UniformInterval) -> Embedding:
    r"""Squared-exponential kernel under the uniform distribution on [a, b], D = b - a.

    .. math:: \mu(y) = \frac{\ell}{D} \sqrt{\frac{\pi}{2}} \left(
              \mathrm{erf}\frac{b - y}{\sqrt{2} \ell} + \mathrm{erf}\frac{y - a}{\sqrt{2} \ell}
              \right), \qquad
              E[k(X, X')] = \frac{2}{D^2} \left( \ell D \sqrt{\frac{\pi}{2}}\,
              \mathrm{erf}\frac{D}{\sqrt{2} \ell} - \ell^2 (1 - e^{-D^2 / 2 \ell^2}) \right)

    Outside the interval the difference of complementary error functions is used.
    """
    a, b, ell = measure.low, measure.high, kernel.lengthscale
    width = b - a
    unit = math.sqrt(2.0) * ell

    def mean(y: np.ndarray) -> np.ndarray:
        inside = special.erf((b - y) / unit) + special.erf((y - a) / unit)
        gap = np.maximum(np.maximum(a - y, y - b), 0.0)
        outside = special.erfc(gap / unit) - special.erfc((gap + width) / unit)
        return ell * math.sqrt(0.5 * math.pi) / width * np.where(gap > 0.0, outside, inside)

    z = width / ell
    error = (2.0 / z**2) * (
        z * math.sqrt(0.5 * math.pi) * special.erf(z / math.sqrt(2.0)) + math.expm1(-0.5 * z * z)
    )
    return Embedding(mean, error)


@register(Matern, UniformInterval)
def matern_interval(kernel: Matern, measure: UniformInterval) -> Embedding | None:
    r"""Matern kernel of any half-integer order under the uniform distribution on [a, b].

    With the profile :math:`e^{-r} \sum_i c_i r^i`, :math:`r = \alpha d`, D = b - a, and the
    regularised incomplete gamma function P,

    .. math:: \mu(y) = \frac{1}{\alpha D} \sum_i c_i\, i! \left( P(i + 1, \alpha (y - a))
              + P(i + 1, \alpha (b - y)) \right)

    .. math:: E[k(X, X')] = \frac{2}{z^2} \sum_i c_i\, i! \left(
              z P(i + 1, z) - (i + 1) P(i + 2, z) \right), \qquad z = \alpha D .
    """
    if kernel.transform is not None:
        return None
    a, b, rate = measure.low, measure.high, kernel.rate
    weights = [c * math.factorial(i) for i, c in enumerate(kernel.coefficients)]
    z = rate * (b - a)

    def mean(y: np.ndarray) -> np.ndarray:
        total = np.zeros_like(y)
        left, right = rate * (y - a), rate * (b - y)
        near = np.maximum(np.maximum(-left, -right), 0.0)
        for i, weight in enumerate(weights):
            inside = special.gammainc(i + 1.0, np.maximum(left, 0.0)) + special.gammainc(
                i + 1.0, np.maximum(right, 0.0)
            )
            outside = special.gammaincc(i + 1.0, near) - special.gammaincc(i + 1.0, near + z)
            total += weight * np.where(near > 0.0, outside, inside)
        return total / z

    error = (2.0 / z**2) * math.fsum(
        weight * (z * special.gammainc(i + 1.0, z) - (i + 1) * special.gammainc(i + 2.0, z))
        for i, weight in enumerate(weights)
    )
    return Embedding(mean, error)
