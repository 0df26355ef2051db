r"""Polynomial kernels, from the raw moments of the measure.

:math:`\mu(y) = \sum_n \binom{r}{n} y^n E[X^n]` and
:math:`E[k(X, X')] = \sum_n \binom{r}{n} E[X^n]^2`.
"""

import math

import numpy as np
from scipy import special

from pymc_bayessum.embeddings.registry import Embedding, register
from pymc_bayessum.kernels import Polynomial
from pymc_bayessum.measures import (
    Counting,
    Logarithmic,
    Measure,
    Mixture,
    NegativeBinomial,
    Poisson,
    Skellam,
    UniformInterval,
)

__all__ = ["raw_moments", "stirling_numbers"]


def stirling_numbers(degree: int) -> np.ndarray:
    """Stirling numbers of the second kind S(n, j) for n, j = 0, ..., degree."""
    n = np.arange(degree + 1)
    return special.stirling2(n[:, None], n, exact=True).astype(float)


def raw_moments(measure: Measure, degree: int) -> np.ndarray | None:
    """Integrals of x**n for n = 0, ..., degree, or ``None`` where they are not known.

    All rows but that of the interval add positive terms only, so the moments keep their relative
    accuracy at any parameter.
    """
    j = np.arange(degree)
    match measure:
        case Poisson():
            # Touchard polynomials, through the factorial moments mu^j.
            factorial = measure.mu ** np.arange(degree + 1.0)
        case NegativeBinomial():
            # n (n + 1) ... (n + j - 1) ((1 - p) / p)^j.
            odds = (1.0 - measure.p) / measure.p
            factorial = np.concatenate([[1.0], np.cumprod((measure.n + j) * odds)])
        case Logarithmic():
            # (j - 1)! (p / (1 - p))^j / -log(1 - p).
            odds = measure.p / (1.0 - measure.p)
            steps = np.concatenate([[odds / -math.log1p(-measure.p)], j[1:] * odds])
            factorial = np.concatenate([[1.0], np.cumprod(steps)])
        case Counting():
            # sum_x x^n = sum_j S(n, j) j! C(M + 1, j + 1).
            size = measure.maximum + 1
            counts = [math.factorial(k) * math.comb(size, k + 1) for k in range(degree + 1)]
            factorial = np.array(counts, dtype=float)
        case Skellam():
            return _skellam_moments(measure, degree)
        case UniformInterval():
            a, b = measure.low, measure.high
            sums = [math.fsum(a**i * b ** (n - i) for i in range(n + 1)) for n in range(degree + 1)]
            return np.array(sums) / np.arange(1.0, degree + 2.0)
        case Mixture():
            moments = [raw_moments(part, degree) for part in measure.measures]
            known = [each for each in moments if each is not None]
            return measure.weights @ np.array(known) if len(known) == len(moments) else None
        case _:
            return None
    return stirling_numbers(degree) @ factorial


def _skellam_moments(measure: Skellam, degree: int) -> np.ndarray:
    # Cumulants mu1 + (-1)^n mu2; with the larger rate first none of them is negative.
    flip = measure.mu1 < measure.mu2
    high, low = max(measure.mu1, measure.mu2), min(measure.mu1, measure.mu2)
    cumulants = np.array([high + (-1) ** n * low for n in range(1, degree + 1)])
    moments = _moments_from_cumulants(cumulants[:, None])[:, 0]
    return moments * (-1.0) ** np.arange(degree + 1) if flip else moments


def _moments_from_cumulants(cumulants: np.ndarray) -> np.ndarray:
    """Raw moments 0, ..., r of r cumulants; both along the first axis."""
    degree = len(cumulants)
    moments = np.zeros((degree + 1, *cumulants.shape[1:]))
    moments[0] = 1.0
    for n in range(degree):
        for j in range(n + 1):
            moments[n + 1] += math.comb(n, j) * cumulants[j] * moments[n - j]
    return moments


def polynomial_error(degree: int, first: np.ndarray, second: np.ndarray) -> float:
    """Integral of (x y + 1)**degree under two measures with the given raw moments."""
    return math.fsum(math.comb(degree, n) * first[n] * second[n] for n in range(degree + 1))


@register(Polynomial, Measure)
def polynomial_moments(kernel: Polynomial, measure: Measure) -> Embedding | None:
    r"""Polynomial kernel under any measure with known moments.

    Poisson (Touchard polynomials), negative binomial and geometric
    (:math:`\sum_j S(n, j)\, j! \binom{n_0 + j - 1}{j} ((1 - p) / p)^j`), logarithmic, counting
    measure, an interval, and mixtures of these.
    """
    moments = raw_moments(measure, kernel.degree)
    if moments is None:
        return None
    weights = np.array([math.comb(kernel.degree, n) for n in range(kernel.degree + 1)]) * moments

    def mean(y: np.ndarray) -> np.ndarray:
        return np.polynomial.polynomial.polyval(y.astype(float), weights)

    return Embedding(mean, polynomial_error(kernel.degree, moments, moments))


@register(Polynomial, Skellam)
def polynomial_skellam(kernel: Polynomial, measure: Skellam) -> Embedding:
    r"""Polynomial kernel under a Skellam distribution.

    :math:`\mu(y)` is the r-th moment of :math:`1 + y X`, whose cumulants are
    :math:`1 + y (\mu_1 - \mu_2)` and then :math:`y^n (\mu_1 + (-1)^n \mu_2)` (complete Bell
    polynomials). Taking the constant into the first cumulant avoids the cancellation that the
    expansion in powers of y has at negative y.
    """
    degree = kernel.degree

    def mean(y: np.ndarray) -> np.ndarray:
        z = y.astype(float)
        cumulants = np.stack(
            [z**n * (measure.mu1 + (-1) ** n * measure.mu2) for n in range(1, degree + 1)]
        )
        cumulants[0] += 1.0
        return _moments_from_cumulants(cumulants)[degree]

    moments = _skellam_moments(measure, degree)
    return Embedding(mean, polynomial_error(degree, moments, moments))
