"""Closed embeddings on the naturals and the integers."""

import numpy as np
from scipy import special

from ..kernels import Brownian
from ..measures import Counting, Poisson
from .registry import Embedding, register


@register(Brownian, Poisson)
def brownian_poisson(kernel: Brownian, measure: Poisson) -> Embedding:
    r"""Brownian motion under a Poisson distribution.

    .. math:: \mu(y) = \mu Q(y, \mu) + y P(y + 1, \mu) + c
    """
    mu = measure.mu

    def mean(y: np.ndarray) -> np.ndarray:
        z = np.maximum(y, 1).astype(float)
        body = mu * special.gammaincc(z, mu) + z * special.gammainc(z + 1.0, mu)
        return np.where(y > 0, body, 0.0) + kernel.shift

    def initial_error() -> float:
        r = np.arange(0, int(mu + 40 * np.sqrt(mu) + 60))
        return float((special.gammainc(r + 1.0, mu) ** 2).sum() + kernel.shift)

    return Embedding(mean, initial_error)


@register(Brownian, Counting)
def brownian_counting(kernel: Brownian, measure: Counting) -> Embedding:
    r"""Brownian motion under counting measure on 0, ..., M.

    .. math:: \mu(y) = y (y + 1) / 2 + y (M - y) + c (M + 1)
    """
    top = float(measure.maximum)

    def mean(y: np.ndarray) -> np.ndarray:
        z = np.minimum(y, measure.maximum).astype(float)
        return 0.5 * z * (z + 1.0) + z * (top - z) + kernel.shift * (top + 1.0)

    error = top * (top + 1.0) * (2.0 * top + 1.0) / 6.0 + kernel.shift * (top + 1.0) ** 2
    return Embedding(mean, error)
