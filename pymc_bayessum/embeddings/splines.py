"""Integrated Brownian motion under counting measure."""

import math
from functools import lru_cache

import numpy as np

from pymc_bayessum.embeddings.polynomial import stirling_numbers
from pymc_bayessum.embeddings.registry import Embedding, register
from pymc_bayessum.kernels import IntegratedBrownian
from pymc_bayessum.kernels.line import half_line
from pymc_bayessum.measures import Counting


def _binomials(n: np.ndarray, top: int) -> np.ndarray:
    """C(n, j) for j = 0, ..., top along the last axis, zero where j > n."""
    n = np.asarray(n, dtype=float)[..., None]
    j = np.arange(top)
    return np.concatenate(
        [np.ones_like(n), np.cumprod(np.maximum(n - j, 0.0) / (j + 1.0), axis=-1)], axis=-1
    )


@lru_cache
def _in_binomials(q: int) -> np.ndarray:
    """Coefficients of x**q in the binomials C(x, j), j = 0, ..., q: S(q, j) j!."""
    return stirling_numbers(q)[q] * np.array([float(math.factorial(j)) for j in range(q + 1)])


def _product_sum(z: np.ndarray | float, p: int, q: int, times: int = 1) -> np.ndarray:
    r"""Sum of (z - x)**p x**q over x = 0, ..., z; with ``times`` two, the sum of these up to z.

    In binomial coefficients sums over x telescope:
    :math:`\sum_x \binom{z - x}{i} \binom{x}{j} = \binom{z + 1}{i + j + 1}`. No term is negative,
    so nothing cancels, whatever the size of z.
    """
    joint = np.convolve(_in_binomials(p), _in_binomials(q))
    return _binomials(np.asarray(z, dtype=float) + times, p + q + times)[..., times:] @ joint


@register(IntegratedBrownian, Counting)
def integrated_brownian_counting(kernel: IntegratedBrownian, measure: Counting) -> Embedding:
    r"""Integrated Brownian motion under counting measure on 0, ..., M.

    With a the smaller and d the difference of two points,
    :math:`k_m = (m!)^{-2} \sum_j \binom{m}{j} d^{m-j} a^{m+j+1} / (m + j + 1)`, so

    .. math:: (m!)^2 \mu(y) = \sum_j \frac{\binom{m}{j}}{m + j + 1} \left(
              \sum_{x=0}^{y} (y - x)^{m-j} x^{m+j+1} + y^{m+j+1} \sum_{d=1}^{M-y} d^{m-j} \right)

    and both inner sums are sums of binomial coefficients with Stirling numbers of the second
    kind, O(1) in M. The initial error sums once more. Beyond M the first sum ends at M and
    :math:`y - x` is split at M, again into positive terms.
    """
    m, top, scale = kernel.order, measure.maximum, kernel.scale
    # Powers are taken of plain integers and scaled at the end: the kernel is homogeneous.
    unit = 1.0 / (math.factorial(m) ** 2 * scale ** (2 * m + 1))
    terms = [(m - j, m + j + 1, math.comb(m, j) / (m + j + 1)) for j in range(m + 1)]

    def mean(y: np.ndarray) -> np.ndarray:
        inner = np.minimum(half_line(y), top)
        beyond = y - inner
        total = np.zeros(len(y))
        for p, q, weight in terms:
            below = np.zeros(len(y))
            for i in range(p + 1):
                # ((y - M) + (M - x))^p beyond M; elsewhere only the term i = p is left.
                below += math.comb(p, i) * beyond ** (p - i) * _product_sum(inner, i, q)
            above = _product_sum(top - inner, 0, p) - (1.0 if p == 0 else 0.0)
            total += weight * (below + np.where(beyond == 0, inner**q * above, 0.0))
        return unit * total

    def initial_error() -> float:
        total = 0.0
        for p, q, weight in terms:
            # Pairs x < y, twice; where p is zero those with x = y, which vanish elsewhere, apart.
            total += weight * 2.0 * float(_product_sum(top if p else top - 1.0, p, q, times=2))
            if p == 0:
                total += weight * float(_product_sum(top, 0, q))
        return unit * total

    return Embedding(mean, initial_error)
