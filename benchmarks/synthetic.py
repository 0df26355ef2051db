"""The literature's two synthetic cases: error of BayesSum beside four sampling methods.

(a) Poisson(30), f(x) = exp(-(x - 15)^2 / 8), Brownian kernel;
(b) uniform on {0, 1, 2}^15, f = exp(-energy / 2.269) of an open Potts chain, exponential Hamming
    kernel with its decay chosen by marginal likelihood, on evenly spread (Sobol) nodes and, as in
    the literature, on plain draws without replacement.

Kang, Briol, Karvonen and Chen, BayesSum. The reference columns are the errors their experiments
give when run again. Run ``python benchmarks/synthetic.py [--quick]``.
"""

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pymc_bayessum import bayes_sum, measures, nodes
from pymc_bayessum.kernels import Brownian, ExpHamming, IntegratedBrownian, Kernel, Matern
from pymc_bayessum.rules.baselines import (
    importance_sampling,
    monte_carlo,
    russian_roulette,
    stratified,
)
from pymc_bayessum.rules.hyper import select_kernel

BETA = 1.0 / 2.269
N_SITES, N_STATES = 15, 3
DECAYS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


@dataclass(frozen=True)
class Case:
    """One expectation, how to estimate it, and what is known about it."""

    name: str
    measure: measures.Measure
    proposal: measures.Measure
    f: Callable
    exact: float
    pick: Callable[[np.ndarray, np.ndarray], Kernel]
    designs: dict[str, Callable]
    sizes: tuple[int, ...]
    reference: dict[int, tuple[float, float]]
    reference_rate: str
    target: tuple[int, float]


def bell(x: np.ndarray) -> np.ndarray:
    return np.exp(-np.square(x - 15.0) / 8.0)


def bell_mean() -> float:
    terms = (
        math.exp(-((x - 15) ** 2) / 8.0 + x * math.log(30.0) - 30.0 - math.lgamma(x + 1))
        for x in range(201)
    )
    return math.fsum(terms)


def potts(x: np.ndarray) -> np.ndarray:
    agree = (x[:, 1:] == x[:, :-1]).sum(axis=1)
    return np.exp(-BETA * 0.1 * (x.sum(axis=1) + agree))


def potts_mean() -> float:
    """Transfer matrix along the chain."""
    field = np.exp(-BETA * 0.1 * np.arange(N_STATES))
    step = np.exp(-BETA * 0.1 * np.eye(N_STATES)) * field
    return float((field @ np.linalg.matrix_power(step, N_SITES - 1)).sum()) / N_STATES**N_SITES


def cases() -> list[Case]:
    fields = np.exp(-BETA * 0.1 * np.arange(N_STATES))
    sites = measures.UniformCategorical(N_SITES, N_STATES)
    return [
        Case(
            "(a) Poisson(30), bell, Brownian",
            measures.Poisson(30.0),
            measures.NegativeBinomial(5.0, 5.0 / 35.0),
            bell,
            bell_mean(),
            lambda x, y: Brownian(),
            {"BayesSum": nodes.distinct},
            (10, 15, 24, 38, 60),
            {10: (1.4e-2, 8.1e-3), 24: (1.0e-2, 3.1e-3), 60: (7.9e-3, 6e-13)},
            "MC .47, BayesSum 7.8",
            (60, 1e-11),
        ),
        Case(
            "(b) uniform on {0,1,2}^15, Potts chain, exp-Hamming",
            sites,
            measures.ProductCategorical(np.tile(fields / fields.sum(), (N_SITES, 1))),
            potts,
            potts_mean(),
            lambda x, y: select_kernel([ExpHamming(decay) for decay in DECAYS], x, y).kernel,
            {"BayesSum": nodes.spread, "on plain draws": nodes.distinct},
            (28, 79, 220, 470, 1000),
            {28: (9.1e-3, 8.6e-3), 220: (3.5e-3, 1.4e-3), 1000: (1.7e-3, 1.4e-4)},
            "MC .485, BayesSum 1.14",
            (1000, 1.5e-4),
        ),
    ]


def errors(case: Case, n: int, seeds: int) -> dict[str, np.ndarray]:
    """Absolute errors of every method over the seeds."""
    found: dict[str, list[float]] = {}
    for seed in range(seeds):
        rng = np.random.default_rng([n, seed])
        estimates = {
            "MC": monte_carlo(case.f, case.measure, n, rng),
            "IS": importance_sampling(case.f, case.measure, case.proposal, n, rng),
            "roulette": russian_roulette(case.f, case.measure, n, rng),
            "stratified": stratified(case.f, case.measure, n, rng),
        }
        for name, design in case.designs.items():
            x = design(case.measure, n, rng)
            y = case.f(x)
            estimates[name] = bayes_sum(case.pick(x, y), case.measure, x).expectation(y)
        for name, estimate in estimates.items():
            found.setdefault(name, []).append(abs(estimate.mean - case.exact))
    return {name: np.array(values) for name, values in found.items()}


def rate(sizes: tuple[int, ...], means: list[float]) -> float:
    """Fitted exponent alpha of error ~ N^-alpha."""
    return -float(np.polyfit(np.log(sizes), np.log(np.maximum(means, 1e-16)), 1)[0])


def run(case: Case, seeds: int) -> None:
    print(f"\n{case.name}; exact value {case.exact:.9g}; mean absolute error over {seeds} seeds")
    table = {n: errors(case, n, seeds) for n in case.sizes}
    names = list(table[case.sizes[0]])
    width = max(map(len, names)) + 2
    head = "".join(f"{name:>{width}}" for name in names)
    print(f"{'N':>6}{head}{'MC / best':>12}   reference MC, BayesSum")
    for n in case.sizes:
        means = {name: float(values.mean()) for name, values in table[n].items()}
        best = min(means[name] for name in case.designs)
        cells = "".join(f"{means[name]:>{width}.1e}" for name in names)
        known = case.reference.get(n)
        beside = f"{known[0]:.1e}, {known[1]:.1e}" if known else ""
        print(f"{n:>6}{cells}{means['MC'] / best:>12.3g}   {beside}")
    rates = [rate(case.sizes, [float(table[n][name].mean()) for n in case.sizes]) for name in names]
    print(f"{'rate':>6}" + "".join(f"{value:>{width}.2f}" for value in rates), end="")
    print(f"{'':>12}   {case.reference_rate}")
    n, goal = case.target
    for name in case.designs:
        values = table[n][name]
        noise = values.std(ddof=1) / math.sqrt(len(values))
        verdict = "met" if values.mean() <= goal else "not met"
        print(f"  N = {n}, {name}: {values.mean():.2e} +- {noise:.1e}, goal {goal:g} {verdict}")


def timings() -> None:
    """Wall-clock time of building a rule, best of five."""

    def best(build: Callable[[], object]) -> float:
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            build()
            times.append(time.perf_counter() - begin)
        return min(times)

    sites = measures.UniformCategorical(N_SITES, N_STATES)
    x = nodes.distinct(sites, 1000, 0)
    grid = np.unique(np.round(np.linspace(0.0, math.sqrt(4000.0), 430) ** 2).astype(int))
    counting = measures.Counting(int(grid[-1]))
    rows = [("ExpHamming, 1000 nodes on 15 sites", lambda: bayes_sum(ExpHamming(0.01), sites, x))]
    for kernel in (
        Brownian(),
        IntegratedBrownian(4),
        Matern(2.5, 8.0, "sqrt"),
        Matern(8.5, 8.0, "sqrt"),
    ):
        label = f"{kernel}, {len(grid)} nodes on 0..{grid[-1]}"
        rows.append((label, lambda kernel=kernel: bayes_sum(kernel, counting, grid)))
    print("\nbuilding a rule, best of five")
    for label, build in rows:
        print(f"  {1e3 * best(build):8.1f} ms   {label}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer seeds, within a minute")
    quick = parser.parse_args().quick
    for case in cases():
        run(case, (50 if case.measure.support.size == math.inf else 6) if quick else 50)
    timings()


if __name__ == "__main__":
    main()
