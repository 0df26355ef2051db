"""Potts models: log Z, posteriors, modes, sequences and NUTS, each normaliser beside its peers.

Run ``python benchmarks/potts.py`` (some twenty minutes) or ``--quick`` (a minute); ``--only`` picks
sections by their letters. Exact answers come from variable elimination in the same run. Peers run
beside us: importance sampling and annealed importance sampling at equal numbers of energies.
``before`` repeats errors measured once with a throw-away prototype, for orientation. Times are
wall-clock: run on a quiet machine.
"""

import argparse
import resource
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import nutpie
import pymc as pm
import pytensor
import pytensor.tensor as pt
from rich.console import Console
from rich.table import Table
from scipy.special import logsumexp, softmax

import pymc_bayessum as pbs
from pymc_bayessum.diagnostics.importance import smooth_weights
from pymc_bayessum.graphs import family as family_module
from pymc_bayessum.graphs import samplers as samplers_module
from pymc_bayessum.graphs.anchors import AnchoredRule
from pymc_bayessum.graphs.annealing import annealed_importance, tree_importance
from pymc_bayessum.graphs.bases import belief_propagation, conditional_mixture, tree_base
from pymc_bayessum.graphs.coordinates import identifiable
from pymc_bayessum.graphs.default_anchors import PottsAnchors, prior_parameters
from pymc_bayessum.graphs.elimination import Budget, elimination_plan, plan_within
from pymc_bayessum.graphs.exact import ExactNormalizer
from pymc_bayessum.graphs.family import PottsFamily
from pymc_bayessum.graphs.moments import statistics_of_marginals
from pymc_bayessum.graphs.pseudo import PseudoTarget, pseudo_mode
from pymc_bayessum.graphs.samplers import sample_exact, sample_states
from pymc_bayessum.graphs.statistics import PottsLayout
from pymc_bayessum.normalizers.anchored import Data, NormalPrior, default_anchored
from pymc_bayessum.normalizers.anchored import anchored as anchored_rule_of
from pymc_bayessum.normalizers.anchored.posterior import laplace_mean, posterior_sets

console = Console(width=150)


def clock(work: Callable, *arguments: Any, **options: Any) -> tuple[Any, float]:
    began = time.perf_counter()
    result = work(*arguments, **options)
    return result, time.perf_counter() - began


def anchored_at(
    layout: PottsLayout, anchors: np.ndarray, sampler: Any = None, **options: Any
) -> AnchoredRule:
    """Anchor at parameter vectors."""
    return anchored_rule_of(PottsFamily(layout, sampler), anchors, kind=AnchoredRule, **options)


def default_rule(layout: PottsLayout, observed: np.ndarray, h: Any, J: Any) -> AnchoredRule:
    """Anchor at rows as a model does, with the prior of its parameters."""
    return PottsAnchors(layout, prior_parameters(layout, h, J), 0, False)(observed)


def exact_log_z(layout: PottsLayout, theta: np.ndarray) -> float:
    plan = elimination_plan(layout.edges, layout.n_sites, layout.n_states)
    return plan.log_partition(*layout.expand(*layout.unflatten(theta)))


# --- A: one value of log Z ---------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A model whose log Z is wanted, and errors measured before."""

    name: str
    edges: np.ndarray
    h: np.ndarray
    J: np.ndarray
    before: dict[str, float]

    @property
    def exact(self) -> float | None:
        """Log Z by elimination, None where the graph is too wide."""
        layout = PottsLayout(len(self.h), 3, self.edges, "full", "full")
        plan = plan_within(layout, Budget.ONCE)
        return None if plan is None else plan.log_partition(self.h, self.J)


BEFORE = {
    "chain 15": {"IS uniform": 0.054, "paper": 0.027, "tree": 0.0005, "IS tree": 0.0025},
    "4x4 J=0.3": {"IS uniform": 0.029, "paper": 0.031, "tree": 0.003, "IS tree": 0.016},
    "10x10 J=0.3": {"IS uniform": 0.56, "paper": 0.71, "tree": 0.056, "IS tree": 0.058},
    "10x10 J=0.6": {"IS uniform": 2.0, "paper": 3.4, "tree": 0.15, "IS tree": 0.18},
    "10x10 J=1.0": {"IS uniform": 11.0, "paper": 15.0, "tree": 2.3, "IS tree": 2.3},
    "dense 15 sd=0.1": {"IS uniform": 0.062, "paper": 0.035, "tree": 0.008, "IS tree": 0.010},
    "dense 15 sd=0.3": {"IS uniform": 0.28, "paper": 0.41, "tree": 0.047, "IS tree": 0.072},
    "dense 30 sd=0.1": {"IS uniform": 0.19, "paper": 0.22, "tree": 0.046, "IS tree": 0.050},
}


def cases(quick: bool) -> list[Case]:
    rng = np.random.default_rng(0)
    found = []

    def add(name: str, edges: np.ndarray, n_sites: int, J: np.ndarray) -> None:
        h = 0.3 * rng.normal(size=(n_sites, 3))
        found.append(Case(name, edges, h, J, BEFORE.get(name, {})))

    def equal(edges: np.ndarray, coupling: float) -> np.ndarray:
        return np.broadcast_to(coupling * np.eye(3), (len(edges), 3, 3)).copy()

    chain = pbs.graphs.chain(15)
    add("chain 15", chain, 15, equal(chain, 0.3))
    for side in (4, 10) if quick else (4, 6, 8, 10):
        for coupling in (0.3,) if quick else (0.1, 0.3, 0.6, 1.0):
            edges = pbs.graphs.grid(side, side)
            add(f"{side}x{side} J={coupling}", edges, side**2, equal(edges, coupling))
    dense = [(15, 0.1)] if quick else [(15, 0.1), (15, 0.3), (30, 0.1)]
    for n_sites, sd in dense:
        edges = pbs.graphs.complete(n_sites)
        couplings = sd * rng.normal(size=(len(edges), 3, 3))
        add(f"dense {n_sites} sd={sd}", edges, n_sites, couplings)
    return found


def importance(case: Case, base: pbs.measures.Measure, n: int, seed: int) -> tuple[float, float]:
    layout = PottsLayout(len(case.h), 3, case.edges, "full", "full")
    x = base.sample(n, seed)
    ratio = layout.energy(x, case.h, case.J) - base.log_prob(x)
    return float(logsumexp(ratio) - np.log(n)), float(ratio.var())


def zero_mean(case: Case, n: int, seed: int) -> tuple[float, float]:
    """BayesSum of the paper: uniform base, zero prior mean, the decay by marginal likelihood."""
    measure = pbs.measures.UniformCategorical(len(case.h), 3)
    layout = PottsLayout(len(case.h), 3, case.edges, "full", "full")
    x = measure.sample_distinct(n, seed)
    energy = layout.energy(x, case.h, case.J)
    values = np.exp(energy - energy.max())
    best, log_z = -np.inf, np.nan
    for decay in (0.01, 0.03, 0.1, 0.3, 1.0):
        rule = pbs.bayes_sum(pbs.kernels.ExpHamming(decay), measure, x)
        evidence = -0.5 * n * np.log(rule.quadratic_form(values)) - 0.5 * rule.gram.log_det
        if evidence > best:
            best = evidence
            try:
                log_z = float(rule.log_sum(energy))
            except ValueError:  # the signed sum is not positive
                log_z = np.nan
    return log_z, float(energy.var())


def bayes_sum(case: Case, base: str, rows: Any, n: int, seed: int) -> tuple[float, float, float]:
    rule = pbs.potts_rule(case.h, case.J, case.edges, n=n, base=base, rng=seed, rows=rows)
    report = rule.report()
    return report["log_z"], report["V"], report["predicted_error"]


def controlled(case: Case, n: int, seed: int) -> tuple[float, float, float]:
    found = tree_importance(case.h, case.J, case.edges, n, np.random.default_rng(seed))
    return found.value, found.base_variance, found.sd


def annealed(case: Case, n_chains: int, n_steps: int, seed: int) -> tuple[float, float, float]:
    rng = np.random.default_rng(seed)
    found = annealed_importance(case.h, case.J, case.edges, n_chains, n_steps, rng)
    return found.value, found.base_variance, found.sd


def eliminated(layout: PottsLayout, h: np.ndarray, J: np.ndarray, seed: int) -> tuple[float, float]:
    return ExactNormalizer(layout).value(h, J), np.nan


def anchored(case: Case, n: int, seed: int) -> tuple[float, float, float]:
    """Evaluate an anchored rule half a sd of the energy away from its only anchor."""
    rng = np.random.default_rng(seed)
    layout = PottsLayout(len(case.h), 3, case.edges, "full", "full")
    theta = layout.flatten(case.h, case.J)
    step = rng.normal(size=len(theta))
    step -= step.mean()
    spread = layout.statistics(sample_states(layout, case.h, case.J, 200, rng, 50, "gibbs")) @ step
    anchor = theta + 0.5 / spread.std() * step
    rule = anchored_at(layout, anchor[None], n=n, n_moments=n, rng=rng)
    report = rule.report(case.h, case.J)
    return rule.value(case.h, case.J), report["V"], report["predicted_error"]


def one_value(quick: bool) -> None:
    n, seeds = 1000, range(2 if quick else 5)
    table = Table(title=f"A. log Z at one parameter value, {n} energies (annealing also 20 000)")
    for column in ("case", "log Z", "method", "mean |error|", "predicted", "V", "ms", "before"):
        table.add_column(column, justify="left" if column in ("case", "method") else "right")
    for case in cases(quick):
        exact = case.exact
        parts = case.h, case.J, case.edges
        if exact is None:
            exact = annealed_importance(*parts, 2000, 1000, np.random.default_rng(99)).value
        beliefs = belief_propagation(*parts)
        tree = tree_base(beliefs.sites, beliefs.pairs, case.edges)
        layout = PottsLayout(len(case.h), 3, case.edges, "full", "full")
        rows = sample_states(layout, case.h, case.J, 10, np.random.default_rng(5), 50, "gibbs")

        uniform = pbs.measures.UniformCategorical(len(case.h), 3)
        methods: dict[str, Callable] = {
            "IS uniform": partial(importance, case, uniform, n),
            "paper": partial(zero_mean, case, n),
            "uniform": partial(bayes_sum, case, "uniform", None, n),
            "mean-field": partial(bayes_sum, case, "mean-field", None, n),
            "conditionals": partial(bayes_sum, case, "conditionals", rows, n),
            "IS tree": partial(importance, case, tree, n),
            "IS tree, control": partial(controlled, case, n),
            "tree": partial(bayes_sum, case, "tree", None, n),
            "chow-liu": partial(bayes_sum, case, "chow-liu", None, n),
            "annealed 1000": partial(annealed, case, 20, 50),
            "annealed 20000": partial(annealed, case, 100, 200),
            "anchored": partial(anchored, case, n),
        }
        if plan_within(layout, Budget.ONCE) is not None:
            methods["exact"] = partial(eliminated, layout, case.h, case.J)
        for name, method in methods.items():
            errors, sds, times = [], [], []
            for seed in seeds:
                result, seconds = clock(method, seed)
                errors.append(abs(result[0] - exact))
                sds.append(result[2] if len(result) > 2 else np.nan)
                times.append(seconds)
            first = name == "IS uniform"
            table.add_row(
                case.name if first else "",
                f"{exact:.3f}" if first else "",
                name,
                f"{np.mean(errors):.4f}",
                "" if np.isnan(sds[0]) else f"{np.mean(sds):.4f}",
                f"{result[1]:.2f}",
                f"{1e3 * np.median(times):.0f}",
                f"{case.before[name]:.4f}" if name in case.before else "",
            )
    console.print(table)


def elimination_times(quick: bool) -> None:
    table = Table(title="X. exact, three states (wanted at 8x8: 10 ms, with gradient 40 ms)")
    for column in ("graph", "width", "table entries", "ms a value", "ms with gradient"):
        table.add_column(column, justify="left" if column == "graph" else "right")
    rng = np.random.default_rng(3)
    graphs = {f"{k}x{k}": (pbs.graphs.grid(k, k), k * k) for k in ((6, 8) if quick else (6, 8, 9))}
    graphs |= {"8x64": (pbs.graphs.grid(8, 64), 512), "complete 10": (pbs.graphs.complete(10), 10)}
    for name, (edges, n_sites) in graphs.items():
        layout = PottsLayout(n_sites, 3, edges, "full", "full")
        exact = ExactNormalizer(layout)
        h, J = pt.dmatrix("h"), pt.dtensor3("J")
        log_z = exact.log_z(h, J)
        point = 0.3 * rng.normal(size=(n_sites, 3)), 0.3 * rng.normal(size=(len(edges), 3, 3))
        times = []
        for outputs in ([log_z], [log_z, *pytensor.grad(log_z, [h, J])]):
            function = pytensor.function([h, J], outputs, trust_input=True)
            function(*point)
            times.append(1e3 * min(clock(function, *point)[1] for _ in range(10)))
        cells = str(exact.plan.width), f"{exact.plan.cost:.2g}"
        table.add_row(name, *cells, *(f"{t:.1f}" for t in times))
    console.print(table)


# --- B: how the error of an anchored rule grows ------------------------------------------------


def by_distance(quick: bool) -> None:
    distances = (0.1, 0.25, 0.5, 1.0) if quick else (0.1, 0.25, 0.5, 1.0, 1.5, 2.0)
    n, seeds = 1000, range(4 if quick else 20)
    rng = np.random.default_rng(1)
    lattice = PottsLayout(25, 3, pbs.graphs.grid(5, 5), "full", "scalar")
    dense = PottsLayout(10, 3, pbs.graphs.complete(10), "full", "full")
    models = [
        ("5x5 J=0.6", lattice, np.append(0.3 * rng.normal(size=75), 0.6)),
        ("dense 10 sd=0.2", dense, 0.2 * rng.normal(size=dense.n_parameters)),
    ]
    table = Table(title=f"B. rms error of log Z at s = sqrt(V) from one anchor, N = {n}")
    for column in ("model", "mean at the anchor", *(f"s = {s}" for s in distances)):
        table.add_column(column, justify="right" if column.startswith("s =") else "left")
    s = np.array(distances)
    table.add_row("theory", "plain", *(f"{e:.4f}" for e in np.sqrt(np.expm1(s**2) / n)))
    table.add_row("theory", "exact", *(f"{e:.4f}" for e in np.sqrt((np.expm1(s**2) - s**2) / n)))
    for name, layout, theta in models:
        there = exact_log_z(layout, theta)
        for moments in ("plain", "rao-blackwell", "stein", "difference", "exact"):
            errors: list[list[float]] = []
            for seed in seeds:
                own = np.random.default_rng(seed)
                rule = anchored_at(
                    layout,
                    theta[None],
                    n=n,
                    n_moments=n,
                    rng=own,
                    moments=moments,
                    sampler="gibbs",
                    constant=False,
                )
                errors.append([])
                for distance in distances:
                    step = own.normal(size=len(theta))
                    step *= distance / np.sqrt(rule.variances(theta + step)[0])
                    change = exact_log_z(layout, theta + step) - there
                    errors[-1].append(float(rule.log_z_at(np, theta + step)) - change)
            rms = np.sqrt(np.mean(np.square(errors), axis=0))
            table.add_row(name, moments, *(f"{e:.4f}" for e in rms))
    console.print(table)


# --- C: posterior of one image -----------------------------------------------------------------


def milliseconds(rule: pbs.AnchoredRule | pbs.PottsRule) -> float:
    """Time a value and gradient of log Z, compiled, in the two parameters of the image."""
    b, J = pt.dscalar("b"), pt.dscalar("J")
    log_z = rule.log_z(b * np.arange(3.0), J)
    function = pytensor.function([b, J], [log_z, *pytensor.grad(log_z, [b, J])])
    function(0.1, 0.5)
    times = []
    for _ in range(7):
        times.append(clock(repeat, function, 20)[1])
    return 1e3 * min(times) / 20


def repeat(function: Callable, times: int) -> None:
    for _ in range(times):
        function(0.1, 0.5)


def one_image(quick: bool) -> None:
    side, grid = 10, 9 if quick else 21
    states = np.arange(3.0)
    layout = PottsLayout(side**2, 3, pbs.graphs.grid(side, side), "shared", "scalar")
    table = Table(
        title=f"C. one {side}x{side} image, field b * state and coupling J: posterior against the "
        "exact one (wanted: total variation .02, 2 ms, 10 s)"
    )
    for column in (
        "truth (b, J)",
        "normaliser",
        "total variation",
        "shift of b, J in sds",
        "value and gradient, ms",
        "set-up, s",
        "rows summed",
        "before",
    ):
        table.add_column(
            column, justify="left" if column in ("truth (b, J)", "normaliser") else "right"
        )
    for b, coupling in [(0.1, 0.6)] if quick else [(0.1, 0.6), (0.05, 0.95), (0.0, 1.005)]:
        rng = np.random.default_rng(3)
        x = sample_exact(layout, b * states, coupling, 1, rng)
        with pm.Model():
            theta = pm.Normal("b") * states, pm.HalfNormal("J")
            default, seconds = clock(default_rule, layout, x, *theta)
            with without_elimination():
                with_chains = clock(default_rule, layout, x, *theta)
        centre = default.centre[2] / 2, default.centre[3]
        spread = [
            np.abs(default.anchors[:, k] * f - c).max()
            for k, f, c in ((2, 0.5, centre[0]), (3, 1.0, centre[1]))
        ]
        bs = np.linspace(centre[0] - 2 * spread[0], centre[0] + 2 * spread[0], grid)
        js = np.linspace(max(0.0, centre[1] - 2 * spread[1]), centre[1] + 2 * spread[1], grid)
        points = np.stack(np.meshgrid(bs, js, indexing="ij"), axis=-1).reshape(-1, 2)
        thetas = np.array([[0.0, p, 2 * p, j] for p, j in points])
        energy = thetas @ layout.statistics(x)[0] - 0.5 * (points**2).sum(axis=1)
        exact = softmax(energy - np.array([exact_log_z(layout, each) for each in thetas]))
        mean = exact @ points
        sd = np.sqrt(exact @ (points - mean) ** 2)
        anchors = default.anchors
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a uniform base may well ask for the end of the grid
            rules: dict[str, tuple] = {}
            for base, before in (("uniform", 0.998), ("tree", 0.25)):
                parts = b * states, coupling, layout.edges
                rules[base] = *clock(pbs.potts_rule, *parts, n=1000, base=base, rng=0), before
        sizes = [(1, 1000, 0.04), (5, 1000, 0.02)]
        if not quick:
            sizes += [(1, 50_000, 0.008), (5, 50_000, 0.004)]
        for k, n, before in sizes:
            options = {"sampler": "swendsen-wang", "moments": "rao-blackwell", "n": n}
            made = clock(anchored_at, layout, anchors[:k], rng=np.random.default_rng(4), **options)
            rules[f"{k} anchor(s), {n} draws, chains"] = *made, before
        rules["default, elimination at anchors"] = default, seconds, np.nan
        rules["default, chains only"] = *with_chains, 0.004
        for name, (rule, seconds, before) in rules.items():
            estimate = np.array([float(rule.log_z_at(np, each)) for each in thetas])
            found = softmax(np.where(np.isfinite(estimate), energy - estimate, -np.inf))
            shift = (found @ points - mean) / sd
            table.add_row(
                f"{b}, {coupling}" if name == "uniform" else "",
                name,
                f"{0.5 * np.abs(found - exact).sum():.4f}",
                f"{shift[0]:+.3f}, {shift[1]:+.3f}",
                f"{milliseconds(rule):.2f}" if "default" in name else "",
                f"{seconds:.1f}",
                f"{getattr(rule, 'n_distinct', rule.n_nodes)}",
                "" if np.isnan(before) else f"{before}",
            )
    console.print(table)


@contextmanager
def without_elimination() -> Iterator[None]:
    """Do as if graphs were too wide for a single elimination."""
    family_module.plan_within = samplers_module.plan_within = lambda layout, budget: None
    try:
        yield
    finally:
        family_module.plan_within = samplers_module.plan_within = plan_within


# --- D: modes ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExactMode:
    """Mode and curvature in identifiable coordinates, by elimination."""

    layout: PottsLayout
    point: np.ndarray
    curvature: np.ndarray

    def distance(self, theta: np.ndarray) -> float:
        """Distance to the mode in posterior sds, root mean square over directions."""
        away = identifiable(self.layout).of(theta) - self.point
        return float(np.sqrt(away @ self.curvature @ away / len(away)))

    def sd_ratio(self, covariance: np.ndarray) -> float:
        """Root mean square of posterior sds over the exact ones."""
        read = identifiable(self.layout).read
        return float(np.sqrt(np.trace(self.curvature @ read @ covariance @ read.T) / len(read)))


def exact_mode(layout: PottsLayout, x: np.ndarray, start: np.ndarray, n_draws: int) -> ExactMode:
    """Polish a start with exact gradients; curvature from many exact draws at it."""
    coordinates = identifiable(layout)
    precision = np.linalg.inv(coordinates.read @ coordinates.read.T)
    plan = elimination_plan(layout.edges, layout.n_sites, layout.n_states)
    draws = sample_exact(layout, *layout.unflatten(start), n_draws, np.random.default_rng(0))
    rows, _ = coordinates.rows(layout.statistics(draws))
    curvature = len(x) * np.cov(rows, rowvar=False) + precision
    target = coordinates.select @ layout.mean_statistics(x)
    point = coordinates.of(start)
    for _ in range(6):
        parameters = layout.unflatten(coordinates.parameters(point))
        _, sites, pairs = plan.marginals(*layout.expand(*parameters))
        mean = coordinates.select @ statistics_of_marginals(layout, sites, pairs)
        point = point + np.linalg.solve(curvature, len(x) * (target - mean) - precision @ point)
    return ExactMode(layout, point, curvature)


def modes(quick: bool) -> None:
    table = Table(
        title="D. mode for dense 15, 2000 sequences, 450 parameters, prior sd 1 (wanted: .05 and "
        ".12 sd from the exact one, sds within 8%, 60 s)"
    )
    for column in (
        "couplings",
        "method",
        "distance, sds",
        "predicted",
        "sd / exact sd",
        "anchors",
        "s",
        "before",
    ):
        table.add_column(column, justify="left" if column in ("couplings", "method") else "right")
    layout = PottsLayout(15, 3, pbs.graphs.complete(15), "full", "full")
    for sd in (0.1,) if quick else (0.1, 0.3):
        rng = np.random.default_rng(5)
        h = 0.5 * rng.normal(size=layout.field_shape)
        x = sample_exact(layout, h, sd * rng.normal(size=layout.coupling_shape), 2000, rng)
        start, seconds = clock(pbs.pseudo_likelihood, x, layout.edges)
        exact = exact_mode(layout, x, start.theta, 20_000 if quick else 100_000)
        table.add_row(
            f"sd {sd}",
            "pseudo-likelihood",
            f"{exact.distance(start.theta):.3f}",
            "",
            "",
            "",
            f"{seconds:.1f}",
            ".031" if sd == 0.1 else ".148",
        )
        options: dict[str, dict] = {
            "rao-blackwell": {},
            "rao-blackwell, same draws": {"moments": "rao-blackwell", "n_moments": 5000},
            "stein": {"moments": "stein", "n_moments": 5000},
            "difference": {"moments": "difference", "n_moments": 5000},
            "plain": {"moments": "plain", "n_moments": 5000},
        }
        before = {
            "rao-blackwell": (".020", ".079"),
            "rao-blackwell, same draws": (".14", ".27"),
            "stein": (".017", ".095"),
            "difference": (".21", ".92"),
            "plain": (".87", ".87"),
        }
        for name, extra in options.items():
            if quick and name not in ("rao-blackwell", "stein"):
                continue
            common = {"sampler": "gibbs", "max_anchors": 6, "rng": 6, "progressbar": False}
            fit, seconds = clock(
                pbs.fit_potts,
                x,
                layout.edges,
                start=layout.unflatten(start.theta),
                **{"moments": "rao-blackwell"} | common | extra,
            )
            table.add_row(
                "",
                name,
                f"{exact.distance(fit.theta):.3f}",
                f"{fit.mode_error:.3f}",
                f"{exact.sd_ratio(fit.covariance):.3f}",
                str(len(fit.history)),
                f"{seconds:.1f}",
                before[name][sd == 0.3],
            )
    console.print(table)


# --- E: sequences ------------------------------------------------------------------------------


def train(
    layout: PottsLayout,
    x: np.ndarray,
    n: int,
    weights: Callable,
    rng: np.random.Generator,
    steps: int = 1000,
    refresh: int = 100,
    rate: float = 1e-3,
) -> np.ndarray:
    """Adam on the log-posterior, nodes of the conditional mixture renewed every ``refresh`` steps.

    ``weights(nodes, base)`` gives the weights of the nodes: those of a rule, or equal ones.
    """
    target, n_rows = layout.mean_statistics(x), len(x)
    theta = 0.01 * rng.normal(size=layout.n_parameters)
    first, second = np.zeros_like(theta), np.zeros_like(theta)
    for step in range(steps):
        if step % refresh == 0:
            rows = x[rng.choice(n_rows, 10, replace=False)]
            fields, couplings = layout.expand(*layout.unflatten(theta))
            base = conditional_mixture(fields, couplings, layout.edges, rows)
            nodes = base.sample_distinct(n, rng)
            log_base = base.log_prob(nodes)
            statistics = layout.statistics(nodes)
            share = weights(nodes, base)
        ratio = statistics @ theta - log_base
        terms = share * np.exp(ratio - ratio.max())
        mean = terms @ statistics / terms.sum()
        slope = target - mean - theta / n_rows
        first = 0.9 * first + 0.1 * slope
        second = 0.999 * second + 0.001 * slope**2
        unbiased = first / (1 - 0.9 ** (step + 1)), second / (1 - 0.999 ** (step + 1))
        theta = theta + rate * unbiased[0] / (np.sqrt(unbiased[1]) + 1e-8)
    return theta


def paper_weights(nodes: np.ndarray, base: pbs.measures.Measure) -> np.ndarray:
    """Weights of BayesSum with the decay and the zero mean that the paper trains with."""
    return pbs.bayes_sum(pbs.kernels.ExpHamming(0.1104), base, nodes).weights


def equal_weights(nodes: np.ndarray, base: pbs.measures.Measure) -> np.ndarray:
    return np.full(len(nodes), 1.0 / len(nodes))


def energy_of(layout: PottsLayout, theta: np.ndarray, states: np.ndarray) -> np.ndarray:
    return layout.energy(states, *layout.unflatten(theta))


def sequences(quick: bool) -> None:
    table = Table(
        title="E. 2000 sequences of 15 symbols with probabilities .4/.4/.2: mode against the exact "
        "one, and KSD^2 x 1000 of the fitted model on fresh sequences"
    )
    for column in ("graph", "N", "method", "distance, sds", "KSD^2 x 1000", "s"):
        table.add_column(column, justify="left" if column in ("graph", "method") else "right")
    rng = np.random.default_rng(7)
    probs = [0.4, 0.4, 0.2]
    x, fresh = (rng.choice(3, size=(2000, 15), p=probs) for _ in range(2))
    kernel = pbs.kernels.ExpHamming(0.1104)
    graphs = {"chain": pbs.graphs.chain(15), "complete": pbs.graphs.complete(15)}
    for graph, edges in graphs.items():
        if quick and graph == "complete":
            continue
        layout = PottsLayout(15, 3, edges, "full", "full")
        start = pbs.pseudo_likelihood(x, edges)
        exact = exact_mode(layout, x, start.theta, 20_000)

        def add(n: str, name: str, theta: np.ndarray, seconds: float, exact=exact, graph=graph):
            fit = 1e3 * pbs.ksd(fresh, partial(energy_of, exact.layout, theta), kernel, 3)
            took = f"{seconds:.1f}" if seconds else ""
            table.add_row(graph, n, name, f"{exact.distance(theta):.3f}", f"{fit:.2f}", took)

        truth = layout.flatten(np.tile(np.log(probs), (15, 1)), np.zeros(layout.coupling_shape))
        add("", "true model", truth, 0.0)
        add("", "exact mode", identifiable(layout).parameters(exact.point), 0.0)
        for n in (100,) if quick else (50, 100, 200):
            spent = 0.0
            for name, weights in (("Monte Carlo", equal_weights), ("paper", paper_weights)):
                own = np.random.default_rng(8)
                theta, seconds = clock(train, layout, x, n, weights, own)
                add(str(n), name, theta, seconds)
                spent = seconds
            for label, size in ((str(n), n), ("equal time", max(200, int(2000 * spent)))):
                options = {"n": size, "n_moments": size, "moments": "rao-blackwell"}
                common = {"sampler": "gibbs", "max_anchors": 4, "rng": 9, "progressbar": False}
                fit, seconds = clock(pbs.fit_potts, x, edges, **options, **common)
                add(f"{label} ({size})", "anchored", fit.theta, seconds)
    console.print(table)


# --- F: NUTS -----------------------------------------------------------------------------------


def recovery(quick: bool) -> None:
    table = Table(title="F. NUTS on simulated Ising lattices: truth within 3 posterior sds")
    for column in (
        "lattice",
        "normaliser",
        "sampler",
        "seeds",
        "J and h within 3 sd",
        "divergences",
        "s a seed",
    ):
        table.add_column(column, justify="left" if column in ("lattice", "normaliser") else "right")
    seeds = range(1 if quick else 20)
    for side in (16,) if quick else (6, 8, 16):
        edges = pbs.graphs.grid(side, side)
        layout = PottsLayout(side**2, 2, edges, "scalar", "scalar", spins=True)
        for sampler in ("nutpie",) if quick else ("nutpie", "numpyro"):
            hits, divergences, began = 0, 0, time.perf_counter()
            for seed in seeds:
                own = np.random.default_rng(seed)
                x = layout.decode(sample_states(layout, 0.05, 0.3, 4, own, 300, "swendsen-wang"))
                with pm.Model():
                    h, J = pm.Normal("h", 0.0, 0.5), pm.HalfNormal("J", 0.5)
                    normalizer = default_rule(layout, x, h, J) if side > 8 else "exact"
                    pbs.Ising("x", h, J, edges, normalizer=normalizer, observed=x)
                    drawn = pm.sample(
                        500,
                        tune=500,
                        chains=2,
                        cores=1,
                        random_seed=seed,
                        progressbar=False,
                        nuts_sampler=sampler,
                        compute_convergence_checks=False,
                    )
                found = drawn.posterior
                hits += all(
                    abs(float(found[name].mean()) - truth) < 3 * float(found[name].std())
                    for name, truth in (("h", 0.05), ("J", 0.3))
                )
                divergences += int(drawn.sample_stats["diverging"].sum())
            seconds = (time.perf_counter() - began) / len(seeds)
            table.add_row(
                f"{side}x{side}",
                "exact" if side <= 8 else "default (anchored)",
                sampler,
                str(len(seeds)),
                f"{hits} of {len(seeds)}",
                str(divergences),
                f"{seconds:.1f}",
            )
    console.print(table)


# --- G: how the set-up grows --------------------------------------------------------------------


def torus_log_z(side: int, coupling: float) -> float:
    """Log Z of spins without a field on a torus (Kaufman, 1949)."""
    angles = np.pi * np.arange(2 * side) / side
    gamma = np.arccosh(np.cosh(2 * coupling) / np.tanh(2 * coupling) - np.cos(angles))
    gamma[0] = 2 * coupling + np.log(np.tanh(coupling))
    half = side * np.abs(gamma) / 2
    cosh, sinh = half + np.log1p(np.exp(-2 * half)), half + np.log(-np.expm1(-2 * half))
    terms = np.array([cosh[1::2].sum(), sinh[1::2].sum(), cosh[::2].sum(), sinh[::2].sum()])
    signs = np.array([1.0, 1.0, 1.0, np.sign(gamma[0])])
    bracket = terms.max() + np.log(signs @ np.exp(terms - terms.max()))
    return side**2 / 2 * np.log(2 * np.sinh(2 * coupling)) + bracket - np.log(2)


def against_the_torus(rule: AnchoredRule, total: float) -> tuple[float, float, float]:
    """Total variation, shift of the mean in sds and ratio of sds of the posterior of J."""
    outer = np.ptp(rule.anchors)
    js = np.linspace(rule.anchors.min() - outer, rule.anchors.max() + outer, 301)
    js = js[js > 0.01]
    side = round(np.sqrt(rule.layout.n_sites))
    energy = total * js - 0.5 * js**2
    exact = softmax(energy - [torus_log_z(side, j) for j in js])
    found = softmax(energy - [float(rule.log_z_at(np, np.array([j]))) for j in js])
    means = exact @ js, found @ js
    sds = [np.sqrt(p @ (js - m) ** 2) for p, m in zip((exact, found), means, strict=True)]
    variation = 0.5 * np.abs(found - exact).sum()
    return float(variation), (means[1] - means[0]) / sds[0], sds[1] / sds[0]


def lattice_growth(quick: bool) -> None:
    table = Table(
        title="G. set-up of the default normaliser for one image (wanted, two quiet cores: 32x32 "
        "5 s, 64x64 15 s, 128x128 45 s, 256x256 3 min, 512x512 10 min, 2 GB; total variation .03, "
        "1 ms)"
    )
    for column in (
        "lattice",
        "model",
        "set-up, s",
        "of both cores, s",
        "total variation",
        "shift, sds",
        "sd / exact sd",
        "predicted",
        "draws",
        "value and gradient, ms",
        "flagged",
        "GB at most",
    ):
        table.add_column(column, justify="left" if column in ("lattice", "model") else "right")
    sides = (16, 32) if quick else (16, 32, 64, 128, 256, 512)
    for side in sides:
        for name, n_states, coupling in (
            ("torus, J = .38", 2, 0.38),
            ("torus, J = .44", 2, 0.44),
            ("spins, field, J = .3", 2, 0.3),
            ("3 states, field, J = .8", 3, 0.8),
        ):
            if side == 512 and "field" in name:
                continue
            add_lattice(table, side, name, n_states, coupling)
    console.print(table)


def add_lattice(table: Table, side: int, name: str, n_states: int, coupling: float) -> None:
    edges = pbs.graphs.grid(side, side, periodic="torus" in name)
    kinds = {2: ("scalar" if "field" in name else "none"), 3: "shared"}
    layout = PottsLayout(side**2, n_states, edges, kinds[n_states], "scalar", n_states == 2)
    h = {"none": None, "scalar": 0.02, "shared": np.array([0.0, 0.02, 0.04])}[layout.field_kind]
    rng = np.random.default_rng(side)
    x = layout.decode(sample_states(layout, h, coupling, 1, rng, 300, "swendsen-wang").astype(int))
    with pm.Model() as model:
        J = pm.HalfNormal("J")
        b = pm.Normal("b") if h is not None else None
        field = b * np.arange(3.0) if n_states == 3 else b
        kind = pbs.Potts if n_states == 3 else pbs.Ising
        extra = {"n_states": 3} if n_states == 3 else {}
        before = time.process_time()
        _, seconds = clock(kind, "x", field, J, edges, observed=x, **extra)
        cpu = time.process_time() - before
    (found,) = pbs.find_normalizers(model)
    rule = found.rule
    function = model.compile_fn(
        [model.logp(), model.dlogp()], inputs=model.value_vars, point_fn=False
    )
    point = model.initial_point()
    values = [np.asarray(point[v.name]) for v in model.value_vars]
    function(*values)
    each = min(clock(function, *values)[1] for _ in range(50))
    exact = ("", "", "")
    if h is None:
        total = float(layout.statistics(layout.encode(x))[0, 0])
        exact = tuple(
            f"{v:+.3f}" if k == 1 else f"{v:.4f}"
            for k, v in enumerate(against_the_torus(rule, total))
        )
    table.add_row(
        f"{side}x{side}",
        name,
        f"{seconds:.1f}",
        f"{cpu:.1f}",
        *exact,
        f"{rule.precision.mean:.3f} sd, {100 * rule.precision.sd:.1f}%",
        str(rule.n_nodes),
        f"{1e3 * each:.2f}",
        str(rule.report()["flagged"]),
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f}",
    )


# --- H: networks of many items ------------------------------------------------------------------


def listed_log_z(layout: PottsLayout, thetas: np.ndarray) -> np.ndarray:
    """Log Z by listing all states."""
    plan = plan_within(layout, Budget.ON_REQUEST)
    assert plan is not None
    return np.array([plan.log_partition(*layout.expand(*layout.unflatten(t))) for t in thetas])


def pseudo_sds(layout: PottsLayout, x: np.ndarray, point: np.ndarray, prior: NormalPrior) -> Any:
    """Sds that the curvature of a pseudo-likelihood of spins has at its mode."""
    spins = 2.0 * x - 1.0
    h, J = layout.unflatten(identifiable(layout).parameters(point))
    n_sites, edges = layout.n_sites, layout.edges
    full = np.zeros((n_sites, n_sites))
    full[edges[:, 0], edges[:, 1]] = full[edges[:, 1], edges[:, 0]] = J
    # Minus the second derivative of log p(x_i | rest) in its local field.
    bend = 1.0 / np.cosh(h + spins @ full) ** 2
    curvature = prior.precision.copy()
    for i in range(n_sites):
        inputs = np.zeros((len(x), n_sites + len(edges)))
        inputs[:, i] = 1.0
        at, other = edges == i, spins[:, edges[:, ::-1]]
        inputs[:, n_sites:] = np.where(at.any(axis=1), (other * at).sum(axis=2), 0.0)
        curvature += (inputs * bend[:, i, None]).T @ inputs
    return np.sqrt(np.diag(np.linalg.inv(curvature)))


def networks(quick: bool) -> None:
    table = Table(
        title="H. networks of spins, anchored by force, against listing: errors of posterior means "
        "in sds and of sds, from draws of the rule's posterior weighted by the exact sum; sds of "
        "the pseudo-likelihood's posterior over the exact ones"
    )
    for column in (
        "items",
        "rows",
        "parameters",
        "set-up, s",
        "predicted",
        "draws",
        "effective",
        "shift, rms",
        "largest",
        "sd / exact sd",
        "from",
        "to",
        "pseudo sd / exact sd",
        "worst",
        "flagged",
    ):
        table.add_column(column, justify="right")
    for n_items, n_rows, n_sets in [(12, 500, 20), (15, 1000, 20)] if quick else NETWORKS:
        add_network(table, n_items, n_rows, n_sets)
    console.print(table)


#: Items, rows, and sets of a hundred draws at which states are listed.
NETWORKS = [(15, 500, 160), (20, 500, 320), (20, 1000, 160), (20, 5000, 160), (25, 1000, 80)]


def add_network(table: Table, n_items: int, n_rows: int, n_sets: int) -> None:
    layout = PottsLayout(n_items, 2, pbs.graphs.complete(n_items), "full", "edge", spins=True)
    rng = np.random.default_rng(n_items + n_rows)
    J = rng.normal(0.0, 0.3, layout.n_edges) * (rng.random(layout.n_edges) < 0.3)
    x = sample_states(layout, rng.normal(0.0, 0.5, n_items), J, n_rows, rng, 400, "gibbs")
    coordinates = identifiable(layout)
    size = coordinates.size
    prior = NormalPrior(np.zeros(size), np.eye(size))
    data = Data(layout.mean_statistics(x), n_rows)
    start = pseudo_mode(PseudoTarget(layout, x, np.ones(len(x))), coordinates, prior)[0]
    rule, seconds = clock(
        default_anchored, PottsFamily(layout), data, coordinates, prior, start, rng=rng, chains=x,
        progressbar=False, kind=AnchoredRule,
    )  # fmt: skip
    sets = posterior_sets(rule, data, prior, laplace_mean(rule, data, prior), rng)
    points = np.concatenate([next(sets) for _ in range(n_sets)])
    thetas = coordinates.parameters(points)
    found = np.concatenate([rule.log_z_at(np, part) for part in np.array_split(thetas, n_sets)])
    weights = smooth_weights(n_rows * (found - listed_log_z(layout, thetas)))
    share = np.exp(weights.log_weights)
    mean, sds = points.mean(axis=0), points.std(axis=0)
    exact_mean = share @ points
    exact_sds = np.sqrt(share @ (points - exact_mean) ** 2)
    shift, ratio = (mean - exact_mean) / exact_sds, sds / exact_sds
    pseudo = pseudo_sds(layout, x, start, prior) / exact_sds
    table.add_row(
        str(n_items),
        str(n_rows),
        str(size),
        f"{seconds:.1f}",
        "" if rule.precision is None else f"{rule.precision.mean:.3f}",
        str(len(points)),
        f"{weights.ess:.0f}",
        f"{np.sqrt(np.mean(shift**2)):.3f}",
        f"{np.abs(shift).max():.3f}",
        f"{ratio.mean():.3f}",
        f"{ratio.min():.3f}",
        f"{ratio.max():.3f}",
        f"{pseudo.mean():.3f}",
        f"{pseudo.min():.3f}",
        str(rule.report()["flagged"]),
    )


# --- N, O: simulated networks, by default and by coverage ----------------------------------------


class Network(NamedTuple):
    """A simulated network: its graph, its parameters and its rows in the model's own alphabet."""

    layout: PottsLayout
    fields: np.ndarray
    couplings: np.ndarray
    rows: np.ndarray


def simulated_network(n_items: int, n_categories: int, n_rows: int, seed: int) -> Network:
    """Simulate spins (two categories) or an ordinal network, by one rule for all sizes and seeds.

    A fifth of the pairs are coupled, with either sign, by normals of sd .3 for scores of unit
    variance. Fields are normals of sd .3. Scores lie around the middle of the scale, where
    couplings draw answers neither up nor down: no category is nearly empty.
    """
    rng = np.random.default_rng([seed, n_items, n_categories, n_rows])
    pairs = pbs.graphs.complete(n_items)
    couplings = (rng.random(len(pairs)) < 0.2) * rng.normal(0.0, 0.3, len(pairs))
    if n_categories == 2:
        layout = PottsLayout(n_items, 2, pairs, "full", "edge", spins=True)
        fields = rng.normal(0.0, 0.3, n_items)
        states = sample_states(layout, fields, couplings, n_rows, rng, 400, "gibbs")
        return Network(layout, fields, couplings, 2 * states - 1)
    couplings /= score_variance(n_categories)
    fields = rng.normal(0.0, 0.3, (n_items, n_categories))
    table = np.tile(centred_scores(n_categories), (n_items, 1))
    layout = PottsLayout(n_items, n_categories, pairs, "full", "edge", scores=table)
    rows = sample_states(layout, fields, couplings, n_rows, rng, 400, "gibbs")
    return Network(layout, fields, couplings, rows)


def centred_scores(n_categories: int) -> np.ndarray:
    """Scores 0 .. C-1 around their middle: couplings then hardly correlate with thresholds."""
    return np.arange(n_categories) - (n_categories - 1) / 2.0


def score_variance(n_categories: int) -> float:
    """Variance of the scores 0 .. C-1, all alike."""
    return (n_categories**2 - 1.0) / 12.0


def network_model(network: Network, as_data: bool = False) -> pm.Model:
    """Write the model with wide priors: N(0, .5) for couplings of scores of unit variance."""
    layout = network.layout
    with pm.Model() as model:
        rows = pm.Data("rows", network.rows) if as_data else network.rows
        if layout.spins:
            fields = pm.Normal("fields", 0.0, 1.0, shape=layout.n_sites)
            couplings = pm.Normal("couplings", 0.0, 0.5, shape=layout.n_edges)
            pbs.Ising("x", fields, couplings, layout.edges, observed=rows)
        else:
            sd = 0.5 / score_variance(layout.n_states)
            free = pm.Normal("fields", 0.0, 1.0, shape=(layout.n_sites, layout.n_states - 1))
            couplings = pm.Normal("couplings", 0.0, sd, shape=layout.n_edges)
            thresholds = pt.concatenate([np.zeros((layout.n_sites, 1)), free], axis=1)
            scores = centred_scores(layout.n_states)
            pbs.OrdinalMRF("x", thresholds, couplings, scores=scores, observed=rows)
    return model


#: Items, categories and rows of networks that get their normaliser by default.
BY_DEFAULT = [
    (20, 4, 500),
    (25, 2, 1000),
    (25, 4, 1000),
    (30, 2, 500),
    (30, 2, 5000),
    (30, 3, 1000),
]


def networks_by_default(quick: bool, seeds: range = range(2)) -> None:
    table = Table(
        title="N. simulated networks, sampled by nutpie (two chains of 500 + 500) with the default "
        "normaliser"
    )
    for column in (
        "items",
        "categories",
        "rows",
        "parameters",
        "seed",
        "set-up, s",
        "set-up, CPU s",
        "sampling, CPU s",
        "pseudo, CPU s",
        "gradients a draw",
        "divergences",
        "flagged",
        "check",
        "because",
    ):
        table.add_column(column, justify="right")
    cases = [(12, 4, 300)] if quick else BY_DEFAULT
    for case in cases:
        for seed in seeds[:1] if quick else seeds:
            add_default(table, *case, seed)
    console.print(table)


def add_default(table: Table, n_items: int, n_categories: int, n_rows: int, seed: int) -> None:
    network = simulated_network(n_items, n_categories, n_rows, seed)
    began, began_at = time.process_time(), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a flag is a column
        model = network_model(network)
        model.logp()  # anchors it at the data
        set_up, seconds = time.process_time() - began, time.perf_counter() - began_at
        began = time.process_time()
        with model:
            idata = pm.sample(
                500, tune=500, chains=2, random_seed=seed, progressbar=False, nuts_sampler="nutpie"
            )
        sampling = time.process_time() - began
        checked = pbs.check_normalizer(idata, model, random_seed=seed, progressbar=False)
    (normalizer,) = pbs.find_normalizers(model)
    rule = normalizer.rule
    flagged = isinstance(rule, AnchoredRule) and rule.report()["flagged"]
    stats, found = idata["sample_stats"], checked["normalizer"].attrs
    layout = network.layout
    table.add_row(
        str(n_items),
        str(n_categories),
        str(n_rows),
        str(n_items * (n_categories - 1) + layout.n_edges),
        str(seed),
        f"{seconds:.0f}",
        f"{set_up:.0f}",
        f"{sampling:.0f}",
        f"{pseudo_seconds(network, seed):.0f}" if layout.spins else "",
        f"{float(stats['n_steps'].mean()):.0f}",
        str(int(stats["diverging"].sum())),
        str(flagged),
        found["verdict"],
        found["reason"],
    )
    console.print(table)  # rows take minutes: what is known is shown


def pseudo_seconds(network: Network, seed: int) -> float:
    """Sample the posterior of a pseudo-likelihood of spins in the same way."""
    layout, rows = network.layout, network.rows.astype(float)
    with pm.Model():
        fields = pm.Normal("fields", 0.0, 1.0, shape=layout.n_sites)
        couplings = pm.Normal("couplings", 0.0, 0.5, shape=layout.n_edges)
        i, j = layout.edges.T
        half = pt.zeros((layout.n_sites, layout.n_sites))[i, j].set(couplings)
        local = fields + pt.dot(rows, half + half.T)
        pm.Potential("pseudo", -pt.softplus(-2.0 * rows * local).sum())
        began = time.process_time()
        pm.sample(
            500, tune=500, chains=2, random_seed=seed, progressbar=False, nuts_sampler="nutpie"
        )
    return time.process_time() - began


#: Items, categories and rows of networks whose intervals are counted.
COVERED = (8, 4, 500)


def coverage(quick: bool, n_networks: int = 100) -> None:
    """Sample posteriors of many networks with one compiled model, and count what they cover."""
    n_items, n_categories, n_rows = COVERED
    networks = [
        simulated_network(n_items, n_categories, n_rows, seed)
        for seed in range(5 if quick else n_networks)
    ]
    compiled = nutpie.compile_pymc_model(network_model(networks[0], as_data=True))
    inside: dict[str, list[np.ndarray]] = {"fields": [], "couplings": []}
    for seed, network in enumerate(networks):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = nutpie.sample(
                compiled.with_data(rows=network.rows), draws=300, tune=200, chains=1, seed=seed,
                progress_bar=False,
            )  # fmt: skip
        # Thresholds of the first category are held at zero.
        truth = {
            "fields": network.fields[:, 1:] - network.fields[:, :1],
            "couplings": network.couplings,
        }
        for name, values in truth.items():
            low, high = tree["posterior"][name].quantile([0.05, 0.95], dim=("chain", "draw"))
            inside[name].append(np.ravel((low.values <= values) & (values <= high.values)))
    table = Table(title=f"O. 90% intervals over {len(networks)} simulated networks, exact log Z")
    for column in ("items", "categories", "rows", "parameters", "intervals", "cover", "se"):
        table.add_column(column, justify="right")
    for name, found in (*inside.items(), ("all", [*inside["fields"], *inside["couplings"]])):
        hits = np.concatenate(found)
        each = np.array([part.mean() for part in found])
        table.add_row(
            *map(str, (*COVERED, name, hits.size)),
            f"{100 * hits.mean():.1f}%",
            f"{100 * each.std() / np.sqrt(len(each)):.1f}%",
        )
    console.print(table)


SECTIONS = {
    "A": one_value,
    "X": elimination_times,
    "B": by_distance,
    "C": one_image,
    "D": modes,
    "E": sequences,
    "F": recovery,
    "G": lattice_growth,
    "H": networks,
    "N": networks_by_default,
    "O": coverage,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer cases and seeds")
    parser.add_argument("--only", default="", help="letters of the sections to run, such as CD")
    arguments = parser.parse_args()
    for letter, section in SECTIONS.items():
        if arguments.only and letter not in arguments.only:
            continue
        if arguments.quick and letter == "F" and "F" not in arguments.only:
            continue
        section(arguments.quick)


if __name__ == "__main__":
    main()
