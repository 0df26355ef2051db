"""Sums and expectations with exact values, for tests to walk.

Every exact value comes from a closed form or from a computation that shares nothing with the
package: a generating function, a transfer matrix, a long sum of library-independent terms.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_bayessum import measures


@dataclass(frozen=True, eq=False)
class Problem:
    """The integral of f under a measure: an expectation, or a sum for counting measure."""

    name: str
    measure: measures.Measure
    f: Callable[[Any], np.ndarray]
    exact: float
    tags: frozenset[str]


def poisson_terms(mu: float, f: Callable[[int], float], last: int) -> float:
    """Sum of f(x) times the Poisson mass, in exact floating-point summation."""
    return math.fsum(
        f(x) * math.exp(x * math.log(mu) - mu - math.lgamma(x + 1)) for x in range(last + 1)
    )


BELL_MU = 30.0


def bell(x: Any) -> np.ndarray:
    """Integrand of the literature's Poisson case, a bell around 15."""
    return np.exp(-np.square(np.asarray(x, float) - 15.0) / 8.0)


CHAIN_SITES, CHAIN_STATES, CHAIN_BETA = 15, 3, 1.0 / 2.269


def chain_log_f(x: np.ndarray) -> np.ndarray:
    """Minus the energy of an open Potts chain, field 0.1 x_i and coupling 0.1 [x_i = x_j]."""
    x = np.asarray(x)
    field = 0.1 * x.sum(axis=1)
    coupling = 0.1 * (x[:, 1:] == x[:, :-1]).sum(axis=1)
    return -CHAIN_BETA * (field + coupling)


def chain_mean(n_sites: int = CHAIN_SITES) -> float:
    """Mean of exp(chain_log_f) under the uniform distribution, by transfer matrices."""
    states = np.arange(CHAIN_STATES)
    field = np.exp(-CHAIN_BETA * 0.1 * states)
    step = np.exp(-CHAIN_BETA * 0.1 * np.eye(CHAIN_STATES)) * field
    vector = field.copy()
    for _ in range(n_sites - 1):
        vector = vector @ step
    return float(vector.sum()) / CHAIN_STATES**n_sites


def _product_mean(probs: np.ndarray, factors: np.ndarray) -> float:
    return float(np.prod((probs * factors).sum(axis=1)))


_PROBS = np.array([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5], [0.8, 0.1, 0.1]])
_FACTORS = np.array([[1.0, 1.2, 0.9], [0.8, 1.1, 1.0], [1.3, 1.0, 0.7], [1.0, 0.9, 1.1]])
_INITIAL = np.array([0.6, 0.4])
_STEP = np.array([[0.7, 0.3], [0.2, 0.8]])


def _markov_mean(n_sites: int, weight: np.ndarray) -> float:
    vector = _INITIAL * weight
    for _ in range(n_sites - 1):
        vector = (vector @ _STEP) * weight
    return float(vector.sum())


def _problem(name: str, measure: measures.Measure, f: Any, exact: float, *tags: str) -> Problem:
    return Problem(name, measure, f, exact, frozenset(tags))


PROBLEMS = (
    _problem(
        "poisson bell",
        measures.Poisson(BELL_MU),
        bell,
        poisson_terms(BELL_MU, lambda x: math.exp(-((x - 15) ** 2) / 8.0), 200),
        "naturals",
    ),
    _problem(
        "poisson generating function",
        measures.Poisson(6.0),
        lambda x: 0.7 ** np.asarray(x, float),
        math.exp(6.0 * (0.7 - 1.0)),
        "naturals",
        "smooth",
    ),
    _problem(
        "poisson second moment",
        measures.Poisson(9.0),
        lambda x: np.asarray(x, float) ** 2,
        9.0 + 81.0,
        "naturals",
        "smooth",
    ),
    _problem(
        "poisson reciprocal",
        measures.Poisson(3.0),
        lambda x: 1.0 / (np.asarray(x, float) + 1.0),
        -math.expm1(-3.0) / 3.0,
        "naturals",
        "smooth",
    ),
    _problem(
        "negative binomial generating function",
        measures.NegativeBinomial(2.5, 0.3),
        lambda x: 0.9 ** np.asarray(x, float),
        (0.3 / (1.0 - 0.7 * 0.9)) ** 2.5,
        "naturals",
        "smooth",
    ),
    _problem(
        "geometric reciprocal",
        measures.Geometric(0.2),
        lambda x: 1.0 / (np.asarray(x, float) + 1.0),
        -0.2 * math.log(0.2) / 0.8,
        "naturals",
        "smooth",
    ),
    _problem(
        "logarithmic generating function",
        measures.Logarithmic(0.6),
        lambda x: 0.5 ** np.asarray(x, float),
        math.log1p(-0.3) / math.log1p(-0.6),
        "naturals",
        "smooth",
    ),
    _problem(
        "skellam generating function",
        measures.Skellam(2.0, 3.0),
        lambda x: 1.1 ** np.asarray(x, float),
        math.exp(2.0 * (1.1 - 1.0) + 3.0 * (1.0 / 1.1 - 1.0)),
        "integers",
        "smooth",
    ),
    _problem(
        "counting squares",
        measures.Counting(40),
        lambda x: np.asarray(x, float) ** 2,
        40.0 * 41.0 * 81.0 / 6.0,
        "naturals",
        "counting",
        "smooth",
    ),
    _problem(
        "counting geometric series",
        measures.Counting(60),
        lambda x: 0.9 ** np.asarray(x, float),
        (1.0 - 0.9**61) / (1.0 - 0.9),
        "naturals",
        "counting",
        "smooth",
    ),
    _problem(
        "potts chain",
        measures.UniformCategorical(CHAIN_SITES, CHAIN_STATES),
        lambda x: np.exp(chain_log_f(x)),
        chain_mean(),
        "sites",
    ),
    _problem(
        "binary product",
        measures.UniformCategorical(8, 2),
        lambda x: np.prod(np.where(np.asarray(x) == 1, 1.2, 0.9), axis=1),
        1.05**8,
        "sites",
        "small",
    ),
    _problem(
        "ising chain",
        measures.UniformSpins(8),
        lambda x: np.exp(0.3 * (np.asarray(x)[:, 1:] * np.asarray(x)[:, :-1]).sum(axis=1)),
        math.cosh(0.3) ** 7,
        "sites",
        "small",
    ),
    _problem(
        "categorical product",
        measures.ProductCategorical(_PROBS),
        lambda x: np.prod(_FACTORS[np.arange(4), np.asarray(x)], axis=1),
        _product_mean(_PROBS, _FACTORS),
        "sites",
        "small",
    ),
    _problem(
        "markov chain",
        measures.MarkovCategorical(_INITIAL, _STEP, 7),
        lambda x: np.prod(np.array([0.9, 1.2])[np.asarray(x)], axis=1),
        _markov_mean(7, np.array([0.9, 1.2])),
        "sites",
        "small",
    ),
    _problem(
        "interval exponential",
        measures.UniformInterval(-1.0, 2.0),
        np.exp,
        (math.exp(2.0) - math.exp(-1.0)) / 3.0,
        "interval",
        "smooth",
    ),
    _problem(
        "mixed product",
        measures.Product(measures.UniformInterval(0.0, 1.0), measures.UniformCategorical(3, 2)),
        lambda z: np.exp(np.asarray(z[0])) * (1.0 + 0.2 * np.asarray(z[1]).sum(axis=1)),
        (math.e - 1.0) * 1.3,
        "pair",
    ),
)


def having(*tags: str) -> list[Problem]:
    """Problems with all of the given tags."""
    return [problem for problem in PROBLEMS if problem.tags >= set(tags)]
