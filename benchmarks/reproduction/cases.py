"""The four synthetic cases, each with its exact value and the ways to estimate it."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import special

from pymc_bayessum import (
    Estimate,
    active_bayes_sum,
    bayes_sum,
    measures,
    nodes,
    select_kernel,
    stein_rule,
)
from pymc_bayessum.kernels import (
    Brownian,
    ExpHamming,
    First,
    Kernel,
    Matern,
    Second,
    SquaredExponential,
    Stein,
    Tensor,
)
from pymc_bayessum.rules.baselines import (
    importance_sampling,
    monte_carlo,
    russian_roulette,
    stratified,
)

BETA = 1.0 / 2.269
N_STATES = 3
DECAYS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
ACTIVE_DECAYS = tuple(np.geomspace(0.002, 0.3, 12))
N_GRID = 17
#: Nodes by which a decay is chosen; more of them cost much and change little.
CHOSEN_BY = 300

Method = Callable[[int, np.random.Generator], Estimate]


@dataclass(frozen=True)
class Case:
    """One expectation.

    ``methods`` take a number of evaluations and a generator; ``trace`` runs a sequential design
    and gives the estimate after every evaluation.
    """

    name: str
    title: str
    exact: float
    sizes: tuple[int, ...]
    methods: dict[str, Method]
    trace: Callable[[int, np.random.Generator], list[Estimate]] | None = None
    known: dict[str, dict[int, float]] = field(default_factory=dict)
    known_rates: dict[str, str] = field(default_factory=dict)


def trace_of(f: Callable, kernel: Any, measure: Any, **options: Any) -> Callable:
    def run(n: int, rng: np.random.Generator) -> list[Estimate]:
        result = active_bayes_sum(f, kernel, measure, n, rng=rng, **options)
        last = Estimate(result.estimate.mean, result.estimate.sd, n)
        steps = [Estimate(step.mean, step.sd, step.n_evals) for step in result.history[:-1]]
        return [*steps, last]

    return run


# (a) counts


def bell(x: np.ndarray) -> np.ndarray:
    return np.exp(-np.square(x - 15.0) / 8.0)


def bell_mean() -> float:
    return math.fsum(
        math.exp(-((x - 15) ** 2) / 8.0 + x * math.log(30.0) - 30.0 - math.lgamma(x + 1))
        for x in range(201)
    )


POISSON = measures.Poisson(30.0)


def counts_rule(n: int, rng: np.random.Generator, kernel: Kernel | None = None) -> Estimate:
    x = POISSON.sample_distinct(n, rng)
    return bayes_sum(kernel or Brownian(), POISSON, x).expectation(bell(x))


def case_a() -> Case:
    # Matching means: p = t / (t + mean) with t = 5.
    proposal = measures.NegativeBinomial(5.0, 5.0 / 35.0)
    return Case(
        "a",
        "Poisson(30), bell around 15, Brownian kernel",
        bell_mean(),
        (10, 15, 24, 38, 60),
        {
            "MC": lambda n, rng: monte_carlo(bell, POISSON, n, rng),
            "IS": lambda n, rng: importance_sampling(bell, POISSON, proposal, n, rng),
            "RR": lambda n, rng: russian_roulette(bell, POISSON, n, rng),
            "SS": lambda n, rng: stratified(bell, POISSON, n, rng),
            "BayesSum": counts_rule,
        },
        trace_of(bell, Brownian(), POISSON),
        {
            "MC": {10: 1.4e-2, 24: 1.0e-2, 60: 7.9e-3},
            "BayesSum": {10: 8.1e-3, 24: 3.1e-3, 60: 6e-13},
            "active": {10: 8.7e-3, 24: 1.9e-3, 60: 2e-7},
        },
        {
            "MC": ".455",
            "RR": ".335",
            "SS": ".454",
            "IS": ".515",
            "BayesSum": "7.32",
            "active": "7.71",
        },
    )


# (b) and (c) a chain of sites


def chain_energy(x: np.ndarray) -> np.ndarray:
    """Field 0.1 * state and coupling 0.1 * [equal neighbours], at inverse temperature BETA."""
    return BETA * 0.1 * (x.sum(axis=1) + (x[:, 1:] == x[:, :-1]).sum(axis=1))


def chain_summand(x: np.ndarray) -> np.ndarray:
    return np.exp(-chain_energy(x))


def chain_mean(n_sites: int) -> float:
    """Mean of exp(-energy) under the uniform distribution, by transfer matrices."""
    site = np.exp(-BETA * 0.1 * np.arange(N_STATES))
    step = np.exp(-BETA * 0.1 * np.eye(N_STATES)) * site
    vector = site / N_STATES
    for _ in range(n_sites - 1):
        vector = vector @ step / N_STATES
    return float(vector.sum())


def sites_rule(measure: measures.Measure, x: np.ndarray, decays: tuple = DECAYS) -> Estimate:
    y = chain_summand(x)
    kernels = [ExpHamming(decay) for decay in decays]
    kernel = kernels[0]
    if len(kernels) > 1:
        kernel = select_kernel(kernels, x[:CHOSEN_BY], y[:CHOSEN_BY]).kernel
    return bayes_sum(kernel, measure, x).expectation(y)


def case_b(n_sites: int = 15) -> Case:
    sites = measures.UniformCategorical(n_sites, N_STATES)
    tilt = np.exp(-BETA * 0.1 * np.arange(N_STATES))
    proposal = measures.ProductCategorical(np.tile(tilt / tilt.sum(), (n_sites, 1)))
    f = chain_summand
    return Case(
        "b",
        f"uniform on {{0,1,2}}^{n_sites}, Potts chain, exponential Hamming kernel",
        chain_mean(n_sites),
        (28, 79, 220, 470, 1000),
        {
            "MC": lambda n, rng: monte_carlo(f, sites, n, rng),
            "IS": lambda n, rng: importance_sampling(f, sites, proposal, n, rng),
            "RR": lambda n, rng: russian_roulette(f, sites, n, rng),
            "SS": lambda n, rng: stratified(f, sites, n, rng),
            "BayesSum": lambda n, rng: sites_rule(sites, sites.sample_distinct(n, rng)),
            "BayesSum, Sobol": lambda n, rng: sites_rule(sites, nodes.spread(sites, n, rng)),
        },
        trace_of(f, [ExpHamming(decay) for decay in ACTIVE_DECAYS], sites),
        {
            "MC": {28: 9.1e-3, 220: 3.5e-3, 1000: 1.7e-3},
            "BayesSum": {28: 8.6e-3, 220: 1.4e-3, 1000: 1.4e-4},
            "active": {28: 5.1e-3, 220: 2.5e-4, 1000: 5.2e-5},
        },
        {
            "MC": ".530",
            "RR": ".515",
            "SS": ".552",
            "IS": ".545",
            "BayesSum": "1.139",
            "active": "1.251",
        },
    )


def logistic(x: np.ndarray) -> np.ndarray:
    return special.expit(x.mean(axis=1))


def chain_measure(n_sites: int = 15) -> measures.Measure:
    """Return p ~ exp(+energy) of the chain, as a Markov chain with messages from its far end."""
    state = np.arange(N_STATES)
    site = np.exp(BETA * 0.1 * state)
    pair = np.exp(BETA * 0.1 * np.eye(N_STATES))
    message = np.ones(N_STATES)
    tables = []
    for _ in range(n_sites - 1):
        weight = pair * (site * message)
        tables.append(weight / weight.sum(axis=1, keepdims=True))
        message = weight.sum(axis=1)
    start = site * message
    return measures.MarkovCategorical(start / start.sum(), np.array(tables[::-1]))


def logistic_mean(n_sites: int = 15) -> float:
    """E_p[logistic(mean state)]: the state and the sum so far, passed along the chain."""
    state = np.arange(N_STATES)
    joint = np.zeros((N_STATES, n_sites * (N_STATES - 1) + 1))
    joint[state, state] = np.exp(BETA * 0.1 * state)
    for _ in range(n_sites - 1):
        ahead = np.zeros_like(joint)
        for s in state:
            weight = np.exp(BETA * 0.1 * (s + (state == s)))
            ahead[s, s:] = (weight @ joint)[: joint.shape[1] - s]
        joint = ahead
    mass = joint.sum(axis=0) / joint.sum()
    return float(mass @ special.expit(np.arange(joint.shape[1]) / n_sites))


def stein_estimate(x: np.ndarray, decays: tuple = DECAYS[:-1]) -> Estimate:
    y = logistic(x)
    if len(decays) == 1:
        return stein_rule(ExpHamming(decays[0]), chain_energy, x, N_STATES).expectation(y)
    kernels = [Stein(ExpHamming(decay), chain_energy, N_STATES) for decay in decays]
    kernel = select_kernel(kernels, x[:CHOSEN_BY], y[:CHOSEN_BY]).kernel
    return stein_rule(kernel, chain_energy, x, N_STATES).expectation(y)


def self_normalised(n: int, rng: np.random.Generator) -> Estimate:
    """Weight uniform draws by p, whose constant cancels."""
    x = measures.UniformCategorical(15, N_STATES).sample(n, rng)
    w = np.exp(chain_energy(x))
    w /= w.sum()
    mean = float(w @ logistic(x))
    return Estimate(mean, float(np.sqrt(np.square(w * (logistic(x) - mean)).sum())), n)


def case_c() -> Case:
    uniform = measures.UniformCategorical(15, N_STATES)
    model = chain_measure()
    return Case(
        "c",
        "unnormalised Potts chain on 15 sites, Stein kernel",
        logistic_mean(),
        (100, 178, 316, 562, 1000),
        {
            "MC": lambda n, rng: monte_carlo(logistic, model, n, rng),
            "IS": self_normalised,
            "BayesSum": lambda n, rng: stein_estimate(uniform.sample_distinct(n, rng)),
            "BayesSum, draws of p": lambda n, rng: stein_estimate(model.sample_distinct(n, rng)),
        },
        None,
        {
            "MC": {100: 7.9e-3, 316: 3.1e-3, 1000: 2.3e-3},
            "BayesSum": {100: 1.05e-3, 316: 1.5e-4, 1000: 1.9e-5},
        },
        {"MC": ".540", "BayesSum": "1.80"},
    )


# (d) an interval beside a grid of 17 x 17 points

MIXED = measures.Product(
    measures.UniformInterval(-1.0, 1.0), measures.UniformCategorical(2, N_GRID)
)


def ackley(point: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    x, y = point[0], -1.0 + 0.125 * point[1]
    slope = 1.0 + 0.1 * y.sum(axis=1)
    turns = 2.0 * np.pi * (1.0 + 0.05 * np.square(y).sum(axis=1))
    return 20.0 + math.e - 20.0 * np.exp(-0.2 * np.abs(slope * x)) - np.exp(np.cos(turns * x))


def ackley_mean() -> float:
    grid = -1.0 + 0.125 * np.arange(N_GRID)
    a, b = (v.ravel() for v in np.meshgrid(grid, grid))
    slope = 0.2 * (1.0 + 0.1 * (a + b))
    turns = 2.0 * np.pi * (1.0 + 0.05 * (a * a + b * b))
    order = np.arange(1, 40)[:, None]
    series = (special.iv(order, 1.0) / order * np.sin(order * turns)).sum(axis=0)
    wells = special.iv(0, 1.0) + 2.0 / turns * series
    return float(np.mean(20.0 * np.expm1(-slope) / slope - wells + 20.0 + math.e))


def over_both(kx: Kernel, ky: Kernel) -> Kernel:
    return First(kx) + Second(ky) + Tensor(kx, ky)


def gaussian_mixed(lengthscale: float, decay: float) -> Kernel:
    return over_both(SquaredExponential(lengthscale), ExpHamming(decay))


def matern_mixed(lengthscale: float, decay: float) -> Kernel:
    return over_both(Matern(2.5, lengthscale), ExpHamming(decay))


def mixed_estimate(x: Any, families: tuple = (gaussian_mixed, matern_mixed)) -> Estimate:
    """Hyperparameters, and the family itself, by marginal likelihood."""
    y = ackley(x)
    bounds = [(0.05, 5.0), (1e-4, 3.0)]
    found = [select_kernel(family, x, y, bounds=bounds) for family in families]
    best = max(found, key=lambda selection: selection.log_marginal)
    return bayes_sum(best.kernel, MIXED, x).expectation(y)


def case_d() -> Case:
    ends = [measures.UniformInterval(*ends) for ends in ((-1.0, 1.0), (-1.0, -0.5), (0.5, 1.0))]
    # The summand is largest near both ends.
    proposal = measures.Product(measures.Mixture([0.5, 0.25, 0.25], ends), MIXED.second)
    active_kernels = [matern_mixed(s, d) for s in (0.2, 0.4, 0.8) for d in (1e-3, 5e-3, 0.05)]

    def fixed(n: int, rng: np.random.Generator) -> Estimate:
        x = MIXED.sample_distinct(n, rng)
        return bayes_sum(gaussian_mixed(0.32, 0.1), MIXED, x).expectation(ackley(x))

    return Case(
        "d",
        "interval times a 17 x 17 grid, kx + ky + kx ky",
        ackley_mean(),
        (20, 35, 60, 100),
        {
            "MC": lambda n, rng: monte_carlo(ackley, MIXED, n, rng),
            "IS": lambda n, rng: importance_sampling(ackley, MIXED, proposal, n, rng),
            "RR": lambda n, rng: russian_roulette(ackley, MIXED, n, rng),
            "SS": lambda n, rng: stratified(ackley, MIXED, n, rng),
            "BayesSum, fixed": fixed,
            "BayesSum": lambda n, rng: mixed_estimate(MIXED.sample_distinct(n, rng)),
            "BayesSum, Sobol": lambda n, rng: mixed_estimate(
                nodes.spread(MIXED, n, rng), (matern_mixed,)
            ),
        },
        trace_of(ackley, active_kernels, MIXED),
        {
            "MC": {20: 0.233, 60: 0.134, 100: 0.113},
            "BayesSum, fixed": {20: 0.080, 60: 0.029, 100: 0.019},
            "BayesSum": {20: 0.061, 60: 0.016, 100: 0.011},
        },
        {"MC": ".48", "BayesSum, fixed": ".89 to 1.07"},
    )


def all_cases() -> list[Case]:
    return [case_a(), case_b(), case_c(), case_d()]
