"""The studies on the synthetic cases, each a function from effort to records."""

from collections.abc import Callable, Iterator

import numpy as np

from pymc_bayessum import Estimate, bayes_sum, measures, nystroem_rule, pivot_rule
from pymc_bayessum.kernels import Brownian, ExpHamming, Kernel, Matern, Polynomial
from pymc_bayessum.measures.supports import point_keys, take

from . import cases
from .records import Record, timed


def errors(seeds: int, quick: bool = False) -> Iterator[Record]:
    """Every method on every case at every size."""
    for case in cases.all_cases():
        sizes = case.sizes[:3] if quick and case.name in "bc" else case.sizes
        for method, run in case.methods.items():
            for n in sizes:
                for seed in range(seeds):
                    rng = np.random.default_rng([n, seed])
                    yield timed(
                        lambda run=run, n=n, rng=rng: run(n, rng),
                        part="errors",
                        case=case.name,
                        method=method,
                        n=n,
                        seed=seed,
                        exact=case.exact,
                    )
        if case.trace is not None:
            # One long design has all shorter ones in it; the longest of (b) is dear.
            last = 220 if case.name == "b" and quick else None
            yield from _traces(case, [n for n in case.sizes if n <= (last or 220)], seeds)


def long_designs(seeds: int, quick: bool = False) -> Iterator[Record]:
    """Active designs of (b) up to a thousand nodes."""
    yield from _traces(cases.case_b(), [120] if quick else [470, 1000], seeds)


def _traces(case: cases.Case, sizes: list[int], seeds: int) -> Iterator[Record]:
    for seed in range(seeds):
        trace = case.trace(max(sizes), np.random.default_rng([7, seed]))
        for n in sizes:
            at = trace[min(n, len(trace)) - 1]
            yield Record("errors", case.name, "active", n, seed, at.mean, at.sd, case.exact)


def dimension(seeds: int, quick: bool = False) -> Iterator[Record]:
    """Case (b) with more and more sites, at a fixed number of evaluations."""
    n = 60 if quick else 120
    for n_sites in (5, 15) if quick else (5, 10, 15, 20, 30, 50):
        case = cases.case_b(n_sites)
        for seed in range(seeds):
            found: dict[str, Callable[[], Estimate]] = {
                name: lambda run=case.methods[name], seed=seed: run(n, np.random.default_rng(seed))
                for name in ("MC", "BayesSum", "BayesSum, Sobol")
            }
            if n_sites == 5:
                del found["BayesSum, Sobol"]
            found["active"] = lambda case=case, seed=seed: case.trace(
                n, np.random.default_rng(seed)
            )[-1]
            for method, run in found.items():
                yield timed(
                    run,
                    part="dimension",
                    case="b",
                    method=method,
                    n=n,
                    seed=seed,
                    exact=case.exact,
                    setting=str(n_sites),
                )


def repeats(seeds: int, quick: bool = False) -> Iterator[Record]:
    """Independent draws, whose repeats cost an evaluation each, against distinct ones."""
    sites = measures.UniformCategorical(15, cases.N_STATES)
    gaussian = cases.gaussian_mixed(0.32, 0.1)
    studies: dict[str, tuple] = {
        "a": (cases.POISSON, cases.bell, lambda x, y: Brownian(), (10, 15, 24, 38, 60)),
        "b": (sites, cases.chain_summand, lambda x, y: ExpHamming(0.03), (28, 79, 220)),
        "d": (cases.MIXED, cases.ackley, lambda x, y: gaussian, (20, 60, 100)),
    }
    exact = {case.name: case.exact for case in cases.all_cases()}
    for name, (measure, f, pick, sizes) in studies.items():
        for n in sizes[:3] if quick else sizes:
            for seed in range(seeds):
                rng = np.random.default_rng([n, seed])
                drawn = {"distinct": measure.sample_distinct(n, rng)}
                drawn["repeated"] = _unique(measure.sample(n, rng))
                for method, x in drawn.items():
                    y = f(x)
                    estimate = bayes_sum(pick(x, y), measure, x).expectation(y)
                    yield Record(
                        "repeats", name, method, n, seed, estimate.mean, estimate.sd, exact[name]
                    )


def _unique(points):
    """Drop repeats: the noiseless posterior does not see them."""
    first = {key: i for i, key in reversed(list(enumerate(point_keys(points))))}
    return take(points, np.array(sorted(first.values())))


def ablations(seeds: int, quick: bool = False) -> Iterator[Record]:
    """Kernels in case (a), decays in case (b)."""
    kernels: dict[str, Kernel] = {
        f"Polynomial({degree})": Polynomial(degree) for degree in (2, 5, 8)
    }
    kernels |= {"Brownian": Brownian(), "Matern 5/2": Matern(2.5, 4.0)}
    exact = cases.bell_mean()
    for name, kernel in kernels.items():
        for n in (10, 15, 24, 38, 60):
            for seed in range(seeds):
                x = cases.POISSON.sample_distinct(n, np.random.default_rng([n, seed]))
                estimate = bayes_sum(kernel, cases.POISSON, x).expectation(cases.bell(x))
                yield Record("ablations", "a", name, n, seed, estimate.mean, estimate.sd, exact)
    sites = measures.UniformCategorical(15, cases.N_STATES)
    exact = cases.chain_mean(15)
    for decay in (0.01, 0.03, 0.1, 0.3, 1.0):
        for n in (28, 79, 220) if quick else (28, 79, 220, 470, 1000):
            for seed in range(seeds):
                x = sites.sample_distinct(n, np.random.default_rng([n, seed]))
                estimate = cases.sites_rule(sites, x, (decay,))
                yield Record(
                    "ablations",
                    "b",
                    f"decay {decay:g}",
                    n,
                    seed,
                    estimate.mean,
                    estimate.sd,
                    exact,
                )


def calibration(seeds: int, quick: bool = False) -> Iterator[Record]:
    """Estimates with the amplitude at one and at its empirical-Bayes value."""
    sites = measures.UniformCategorical(15, cases.N_STATES)
    rules = {
        "a": (24, lambda rng: _with_values(Brownian(), cases.POISSON, 24, cases.bell, rng)),
        "b": (100, lambda rng: _chosen(sites, 100, rng)),
        "c": (100, lambda rng: _stein(sites, 100, rng)),
        "d": (60, lambda rng: _mixed(60, rng)),
    }
    for case in cases.all_cases():
        n, build = rules[case.name]
        for seed in range(seeds // 5 if case.name == "d" and not quick else seeds):
            rule, y = build(np.random.default_rng([n, seed]))
            for method, amplitude in (("amplitude 1", 1.0), ("empirical Bayes", None)):
                found = rule.expectation(y, amplitude=amplitude)
                yield Record(
                    "calibration", case.name, method, n, seed, found.mean, found.sd, case.exact
                )


def _with_values(kernel, measure, n, f, rng):
    x = measure.sample_distinct(n, rng)
    return bayes_sum(kernel, measure, x), f(x)


def _chosen(sites, n, rng):
    x = sites.sample_distinct(n, rng)
    y = cases.chain_summand(x)
    kernels = [ExpHamming(decay) for decay in cases.DECAYS]
    return bayes_sum(cases.select_kernel(kernels, x, y).kernel, sites, x), y


def _stein(sites, n, rng):
    x = sites.sample_distinct(n, rng)
    return cases.stein_rule(ExpHamming(0.01), cases.chain_energy, x, cases.N_STATES), (
        cases.logistic(x)
    )


def _mixed(n, rng):
    x = cases.MIXED.sample_distinct(n, rng)
    y = cases.ackley(x)
    bounds = [(0.05, 5.0), (1e-4, 3.0)]
    kernel = cases.select_kernel(cases.matern_mixed, x, y, bounds=bounds).kernel
    return bayes_sum(kernel, cases.MIXED, x), y


def low_rank(seeds: int, quick: bool = False) -> Iterator[Record]:
    """Many nodes at a chosen rank: the full rule, low rank with and without refinement, pivots."""
    sites = measures.UniformCategorical(15, cases.N_STATES)
    n = 1000 if quick else 3000
    kernel, exact = ExpHamming(0.03), cases.chain_mean(15)
    for seed in range(seeds):
        x = sites.sample_distinct(n, np.random.default_rng(seed))
        y = cases.chain_summand(x)
        runs: dict[str, Callable] = {"full": lambda x=x: bayes_sum(kernel, sites, x)}
        for rank in (50, 200, 800):
            for refine in (0, 2):
                runs[f"rank {rank}, {refine} steps"] = (
                    lambda x=x, rank=rank, refine=refine, seed=seed: nystroem_rule(
                        kernel, sites, x, rank, refine, rng=seed
                    )
                )
            runs[f"{rank} pivots only"] = lambda x=x, rank=rank, seed=seed: pivot_rule(
                kernel, sites, x, rank, rng=seed
            )
        for method, build in runs.items():

            def run(build=build, y=y, x=x):
                rule = build()
                values = y if len(rule) == len(y) else cases.chain_summand(rule.nodes)
                return rule.expectation(values)

            yield timed(run, part="low rank", case="b", method=method, n=n, seed=seed, exact=exact)
