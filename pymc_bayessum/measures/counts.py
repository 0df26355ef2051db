"""Measures on the integers."""

import math
from dataclasses import dataclass, field
from typing import override

import numpy as np

from pymc_bayessum.arguments import fraction, integer, positive
from pymc_bayessum.measures.base import IntegerMeasure
from pymc_bayessum.measures.mass import (
    negative_binomial_log_mass,
    poisson_log_mass,
    skellam_log_mass,
)
from pymc_bayessum.measures.supports import Integers, Naturals, Range, Support

__all__ = ["Counting", "Geometric", "Logarithmic", "NegativeBinomial", "Poisson", "Skellam"]


@dataclass(frozen=True)
class Poisson(IntegerMeasure):
    r"""Poisson distribution, :math:`p(x) = e^{-\mu} \mu^x / x!` on 0, 1, 2, ...

    Parameters
    ----------
    mu : float
        Mean, positive.

    Examples
    --------
    >>> from pymc_bayessum.measures import Poisson
    >>> Poisson(3.0).sample_distinct(4, rng=1).shape
    (4,)
    """

    mu: float = field(metadata={"check": positive})

    support = Naturals()

    @property
    @override
    def mean(self) -> float:
        return self.mu

    @property
    @override
    def sd(self) -> float:
        return math.sqrt(self.mu)

    @override
    def tail_ratio(self, x: int, side: int = 1) -> float:
        return self.mu / (x + 1) if side > 0 else x / self.mu

    def _log_prob(self, x: np.ndarray) -> np.ndarray:
        return poisson_log_mass(x, self.mu)

    def _sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.poisson(self.mu, n)


@dataclass(frozen=True)
class NegativeBinomial(IntegerMeasure):
    r"""Negative binomial distribution on 0, 1, 2, ...

    .. math:: p(x) = \binom{x + n - 1}{x} p^n (1 - p)^x

    the number of failures before the n-th success, with mean :math:`n (1 - p) / p`. To match a
    mean m, take :math:`p = n / (n + m)`.

    Parameters
    ----------
    n : float
        Number of successes, positive, not necessarily whole.
    p : float
        Probability of success, strictly between 0 and 1.

    Examples
    --------
    >>> from pymc_bayessum.measures import NegativeBinomial
    >>> NegativeBinomial(5.0, 0.25).mean
    15.0
    """

    n: float = field(metadata={"check": positive})
    p: float = field(metadata={"check": fraction})

    support = Naturals()

    @property
    @override
    def mean(self) -> float:
        return self.n * (1.0 - self.p) / self.p

    @property
    @override
    def sd(self) -> float:
        return math.sqrt(self.n * (1.0 - self.p)) / self.p

    @override
    def tail_ratio(self, x: int, side: int = 1) -> float:
        if side < 0:
            # Up to one success the mass only falls, so downwards there is no bound.
            return x / ((x + self.n - 1.0) * (1.0 - self.p)) if self.n > 1.0 else math.inf
        return (1.0 - self.p) * max((x + self.n) / (x + 1.0), 1.0)

    def _log_prob(self, x: np.ndarray) -> np.ndarray:
        return negative_binomial_log_mass(x, self.n, self.p)

    def _sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.negative_binomial(self.n, self.p, n)


@dataclass(frozen=True)
class Geometric(NegativeBinomial):
    r"""Geometric distribution, :math:`p(x) = p (1 - p)^x` on 0, 1, 2, ...

    The number of failures before the first success.

    Parameters
    ----------
    p : float
        Probability of success, strictly between 0 and 1.

    Examples
    --------
    >>> from pymc_bayessum.measures import Geometric
    >>> Geometric(0.25).mean
    3.0
    """

    n: float = field(default=1.0, init=False, repr=False)

    def _log_prob(self, x: np.ndarray) -> np.ndarray:
        return math.log(self.p) + x * math.log1p(-self.p)

    def _sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.geometric(self.p, n) - 1


@dataclass(frozen=True)
class Logarithmic(IntegerMeasure):
    r"""Logarithmic distribution, :math:`p(x) = -p^x / (x \log(1 - p))` on 1, 2, 3, ...

    Parameters
    ----------
    p : float
        Strictly between 0 and 1.

    Examples
    --------
    >>> from pymc_bayessum.measures import Logarithmic
    >>> bool(Logarithmic(0.5).log_prob([0])[0] == -float("inf"))
    True
    """

    p: float = field(metadata={"check": fraction})

    support = Naturals(1)

    @property
    @override
    def mean(self) -> float:
        return self.p / ((1.0 - self.p) * -math.log1p(-self.p))

    @property
    @override
    def sd(self) -> float:
        return math.sqrt(max(self.mean / (1.0 - self.p) - self.mean**2, 0.0))

    @override
    def tail_ratio(self, x: int, side: int = 1) -> float:
        return self.p if side > 0 else math.inf

    def _log_prob(self, x: np.ndarray) -> np.ndarray:
        return x * math.log(self.p) - np.log(x) - math.log(-math.log1p(-self.p))

    def _sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.logseries(self.p, n)


@dataclass(frozen=True)
class Skellam(IntegerMeasure):
    r"""Difference of two independent Poisson counts, on all integers.

    .. math:: p(x) = e^{-\mu_1 - \mu_2} (\mu_1 / \mu_2)^{x / 2} I_x(2 \sqrt{\mu_1 \mu_2})

    Parameters
    ----------
    mu1, mu2 : float
        Means of the two counts, positive.

    Examples
    --------
    >>> from pymc_bayessum.measures import Skellam
    >>> Skellam(2.0, 5.0).mean
    -3.0
    """

    mu1: float = field(metadata={"check": positive})
    mu2: float = field(metadata={"check": positive})

    support = Integers()

    @property
    @override
    def mean(self) -> float:
        return self.mu1 - self.mu2

    @property
    @override
    def sd(self) -> float:
        return math.sqrt(self.mu1 + self.mu2)

    @override
    def tail_ratio(self, x: int, side: int = 1) -> float:
        # I_{v+1}(z) / I_v(z) < z / (v + 1/2 + sqrt((v + 1/2)^2 + z^2)), J. Segura (2011).
        # and I_v(z) / I_{v+1}(z) < (v + 1 + sqrt((v + 1)^2 + z^2)) / z, D. Amos (1974).
        v = side * x
        up, down = (self.mu1, self.mu2) if side > 0 else (self.mu2, self.mu1)
        z = 2.0 * math.sqrt(up) * math.sqrt(down)
        if v < 0:
            return math.sqrt(up / down) * (math.hypot(v, z) - v) / z
        return math.sqrt(up / down) * z / (v + 0.5 + math.hypot(v + 0.5, z))

    def _log_prob(self, x: np.ndarray) -> np.ndarray:
        return skellam_log_mass(x, self.mu1, self.mu2)

    def _sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.poisson(self.mu1, n) - rng.poisson(self.mu2, n)


@dataclass(frozen=True)
class Counting(IntegerMeasure):
    """Mass one on each of 0, 1, ..., maximum: its integrals are sums, not means.

    Parameters
    ----------
    maximum : int
        Largest integer, at least zero.

    Examples
    --------
    >>> from pymc_bayessum.measures import Counting
    >>> import math
    >>> round(math.exp(Counting(9).log_mass), 12)
    10.0
    """

    maximum: int = field(metadata={"check": integer})

    @property
    @override
    def support(self) -> Support:
        return Range(0, self.maximum)

    @property
    @override
    def log_mass(self) -> float:
        return math.log(self.maximum + 1)

    @property
    @override
    def mean(self) -> float:
        return 0.5 * self.maximum

    @property
    @override
    def sd(self) -> float:
        return math.sqrt(self.maximum * (self.maximum + 2) / 12.0)

    @override
    def tail_ratio(self, x: int, side: int = 1) -> float:
        return 1.0

    @override
    def effective_range(self, log_eps: float = -95.0, growth: float = 0.0) -> tuple[int, int]:
        return 0, self.maximum

    def _log_prob(self, x: np.ndarray) -> np.ndarray:
        return np.zeros(len(x))

    def _sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.integers(0, self.maximum + 1, n)

    def _sample_distinct(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.choice(self.maximum + 1, n, replace=False)
