"""How often `check_normalizer` is right: seeded failures and healthy fits with exact posteriors.

Every case is a model of one parameter whose log Z is approximated in a way that may be too poor.
Both posteriors, with that log Z and with the exact one, are computed on a grid; draws of the first
are what the check sees. A fit has failed if the mean has moved by more than .1 of the exact
posterior's sd, or if its sd is off by more than 10%. The verdict is right if it says "good" to fits
that have not failed and something else to those that have; where it says "corrected", the corrected
draws must be within these bounds.

Each case stands beside the approximate curvature diagnostic of Kang, Hughes and Haran
(2024, *Computational Statistics & Data Analysis* 189): with scores u and second derivatives H of a
log-posterior, E[u^2 + H] = 0 over its draws (the second Bartlett identity). It needs u and H at
every draw, hence draws of the model there; here they are exact, as if from infinitely many.

Run ``python benchmarks/check_power.py [--quick] [--processes 2]``.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import networkx as nx
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from scipy.special import gammaln, logsumexp

import pymc_bayessum as pbs
from pymc_bayessum.normalizers.anchored.estimated import Estimated
from pymc_bayessum.normalizers.anchored.rule import anchored

sys.path.append(str(Path(__file__).parents[1] / "tests" / "graphs"))

from torus import torus_log_z

SHIFT, STRETCH = 0.1, 0.1
N_CHAINS, N_DRAWS = 4, 400
#: Draws of the model at each draw of the posterior, for the curvature diagnostic.
EACH = (10, 100, 1000)


@dataclass(frozen=True)
class Fit:
    """A model of one parameter theta, and its log-posteriors on a grid."""

    model: pm.Model
    grid: np.ndarray
    approximate: np.ndarray
    exact: np.ndarray


@dataclass(frozen=True)
class Outcome:
    """What became of a case: by how much it moved, the verdict, and what was left after it."""

    name: str
    shift: float
    stretch: float
    verdict: str
    curvature: float
    left: tuple[float, float] | None
    seconds: float
    reason: str

    @property
    def failed(self) -> bool:
        """Whether the approximate posterior is not the exact one."""
        return self.shift > SHIFT or self.stretch > STRETCH

    @property
    def right(self) -> bool:
        """Whether the verdict says so."""
        return (self.verdict == "good") != self.failed


def moments(grid, log_mass):
    mass = np.exp(log_mass - np.nanmax(log_mass))
    mass = np.nan_to_num(mass) / np.nansum(mass)
    mean = mass @ grid
    return mean, np.sqrt(mass @ (grid - mean) ** 2), mass


def moved(fit):
    """Return by how much the approximate posterior has moved, in sds, and stretched."""
    mean, sd, _ = moments(fit.grid, fit.exact)
    there, spread, _ = moments(fit.grid, fit.approximate)
    return abs(there - mean) / sd, abs(spread / sd - 1.0)


def run(name: str, build: Callable[[], Fit]) -> Outcome:
    """Draw from the approximate posterior and ask the check about it."""
    fit = build()
    shift, stretch = moved(fit)
    _, _, mass = moments(fit.grid, fit.approximate)
    rng = np.random.default_rng(0)
    draws = rng.choice(fit.grid, size=(N_CHAINS, N_DRAWS), p=mass)
    # Between the points of the grid, where the posterior is too.
    draws = draws + (fit.grid[1] - fit.grid[0]) * rng.uniform(-0.5, 0.5, draws.shape)
    tree = xr.DataTree.from_dict({"posterior": xr.Dataset({"theta": (("chain", "draw"), draws)})})
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checked = pbs.check_normalizer(tree, fit.model, progressbar=False, random_seed=1)
    seconds = time.perf_counter() - start
    attrs = checked["normalizer"].attrs
    left = None
    if attrs["verdict"] == "corrected":
        corrected = pbs.correct(checked, random_seed=1)["posterior"]["theta"].values
        mean, sd, _ = moments(fit.grid, fit.exact)
        left = abs(corrected.mean() - mean) / sd, abs(corrected.std() / sd - 1.0)
    return Outcome(
        name,
        shift,
        stretch,
        attrs["verdict"],
        curvature_diagnostic(fit, draws.ravel()),
        left,
        seconds,
        attrs["reason"],
    )


def curvature_diagnostic(fit, draws):
    """Return how many standard errors the mean of u^2 + H is from zero."""
    score = np.gradient(fit.exact, fit.grid)
    identity = np.interp(draws, fit.grid, score**2 + np.gradient(score, fit.grid))
    return abs(identity.mean()) / (identity.std() / np.sqrt(len(draws)))


# Counts: laws on the naturals, summed by a rule or on a support that is cut short


def cmp_law(nu):
    """Return x theta - nu log x!, for arrays and for tensors."""
    return lambda xp, x, t: t * x - nu * (gammaln if xp is np else pt.gammaln)(x + 1.0)


def humps_law(far):
    """Return two Poisson humps, the second of them ``far`` times as far out, with a third."""

    def log_f(xp, x, t):
        log_factorial = (gammaln if xp is np else pt.gammaln)(x + 1.0)
        first = t * x - xp.exp(t)
        second = (t + np.log(far)) * x - far * xp.exp(t) - np.log(2.0)
        return xp.logaddexp(first, second) - log_factorial

    return log_f


def count_fit(law, rule, theta, n, seed, top=3000):
    """Return the fit of a law to n of its draws (those that the support of the rule has)."""
    x = np.arange(top)
    masses = np.exp(law(np, x, theta) - logsumexp(law(np, x, theta)))
    seen = np.where(x < rule.reach.support.size, masses, 0.0)
    y = np.random.default_rng(seed).choice(x, size=n, p=seen / seen.sum())
    with pm.Model() as model, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # data beyond the nodes are what is looked for
        parameter = pm.Normal("theta", theta, 1.0)
        pbs.Unnormalized(
            "y", lambda x, t: law(pt, x, t), parameter, rule=rule, observed=y.astype("int64")
        )
    sd = 1.0 / np.sqrt(n * (masses @ x**2 - (masses @ x) ** 2))
    reach = min(max(12.0 * sd, 0.2), 1.0)
    grid = np.linspace(theta - reach, theta + reach, 1001)
    prior = -0.5 * (grid - theta) ** 2
    energy = law(np, y, grid[:, None]).sum(axis=1)
    exact = logsumexp(law(np, x, grid[:, None]), axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.array([float(rule.log_sum(law(np, rule.nodes, t))) for t in grid])
    approximate = np.where(np.isfinite(found), prior + energy - n * found, -np.inf)
    return Fit(model, grid, approximate, prior + energy - n * exact)


def poisson_based(seed):
    """Return a CMP law under a Poisson base: nodes from few to enough, bases right and wrong."""
    rng = np.random.default_rng(seed)
    nu, mean = rng.choice([0.6, 1.0, 1.0, 1.6]), rng.uniform(2.0, 15.0)
    n_nodes = int(mean * rng.uniform(0.6, 2.2)) + 3
    rule = pbs.poisson_rule(mean * rng.choice([0.3, 0.7, 1.0, 1.0, 1.5, 3.0]), n=n_nodes)
    return count_fit(cmp_law(nu), rule, nu * np.log(mean), int(rng.choice([20, 100, 500])), seed)


def geometric_based(seed):
    """Return the same under a geometric base, whose nodes may not reach."""
    rng = np.random.default_rng(seed)
    nu, mean = rng.choice([0.5, 1.0]), rng.uniform(2.0, 25.0)
    rule = pbs.geometric_rule(rng.choice([0.1, 0.3, 0.6]), n=int(mean * rng.uniform(0.7, 3.0)) + 3)
    return count_fit(cmp_law(nu), rule, nu * np.log(mean), int(rng.choice([20, 100, 500])), seed)


def cut_short(seed):
    """Return a law on the naturals, summed over 0, ..., K alone."""
    rng = np.random.default_rng(seed)
    nu, mean = rng.choice([0.6, 1.0]), rng.uniform(5.0, 30.0)
    highest = int(mean + rng.uniform(0.0, 6.0) * np.sqrt(mean / nu))
    base = pbs.measures.Counting(highest)
    rule = pbs.bayes_sum(pbs.kernels.Brownian(), base, np.arange(highest + 1))
    return count_fit(cmp_law(nu), rule, nu * np.log(mean), int(rng.choice([50, 300])), seed)


def two_humps(seed):
    """Return a law with two humps, of which the nodes reach the first alone, or both."""
    rng = np.random.default_rng(seed)
    mean, far = rng.uniform(3.0, 8.0), rng.choice([4.0, 8.0])
    reach = rng.choice([2.0, 3.0, 2.0 * far, 3.0 * far])
    rule = pbs.poisson_rule(mean * rng.choice([1.0, far]), n=int(reach * mean) + 5)
    return count_fit(humps_law(far), rule, np.log(mean), int(rng.choice([30, 200])), seed)


# Graphs: spins on a torus, whose constant has a closed form; small lattices by elimination


def torus_fit(side, coupling, n_images, away, n, seed, sampler=None):
    """Return an Ising model anchored ``away`` posterior sds from its mode."""
    graph = nx.convert_node_labels_to_integers(nx.grid_2d_graph(side, side, periodic=True))
    edges, n_sites = pbs.graphs.from_networkx(graph), side * side
    model_at = pbs.Ising.dist(None, coupling, edges, n_sites=n_sites)
    images = pm.draw(model_at, n_images, random_seed=seed).reshape(n_images, n_sites)
    pairs = np.asarray(edges)
    energy = float((images[:, pairs[:, 0]] * images[:, pairs[:, 1]]).sum())
    grid = np.linspace(-0.2, 1.0, 2401) + 1e-4
    log_z = np.array([torus_log_z(side, side, abs(t)) for t in grid])
    exact = energy * grid - n_images * log_z - 0.5 * grid**2
    mode, sd, _ = moments(grid, exact)
    anchor = float(np.clip(mode + away * sd, -0.15, 0.95))
    rule = pbs.anchored_rule(
        None,
        anchor,
        edges,
        ising=True,
        n=n,
        rng=seed,
        n_sites=n_sites,
        sampler=sampler,
        constant=False,
    )
    with pm.Model() as model:
        parameter = pm.Normal("theta", 0.0, 1.0)
        pbs.Ising("x", None, parameter, edges, observed=images, normalizer=rule)
    found = np.array([rule.value(None, t) for t in grid])
    return Fit(model, grid, energy * grid - n_images * found - 0.5 * grid**2, exact)


def plain_potts(side, coupling, n_nodes, seed, n_states=3):
    """Return a Potts model on a small lattice, summed by nodes of a uniform base."""
    edges = pbs.graphs.grid(side, side)
    base = pbs.measures.UniformCategorical(side * side, n_states)
    rule = pbs.bayes_sum(pbs.kernels.ExpHamming(0.1), base, base.sample_distinct(n_nodes, seed))
    image = pm.draw(pbs.Potts.dist(None, coupling, edges, n_states=n_states), random_seed=seed)
    grid = np.linspace(-0.5, 3.0, 701)
    log_p = []
    for normalizer in (rule, None):
        with pm.Model() as model:
            parameter = pm.Normal("theta", 0.0, 1.0)
            pbs.Potts(
                "x",
                None,
                parameter,
                edges,
                n_states=n_states,
                observed=image[None],
                normalizer=normalizer,
            )
        logp = model.compile_logp(mode="FAST_COMPILE")
        log_p.append((model, np.array([float(logp({"theta": t})) for t in grid])))
    (model, approximate), (_, exact) = log_p
    return Fit(model, grid, approximate, exact)


# Families: a ring of spins, by its draws alone, and random networks


def ring_statistics(states):
    spins = 2 * np.asarray(states) - 1
    return (spins * np.roll(spins, 1, axis=-1)).sum(axis=-1)[..., None].astype(float)


def draw_ring(theta, n, rng, n_sites):
    """Draw exactly: bonds are broken independently, but for their number, which is even."""
    broken = rng.random((4 * n + 64, n_sites)) < 1.0 / (1.0 + np.exp(2.0 * float(theta[0])))
    even = broken[broken.sum(axis=-1) % 2 == 0][:n]
    return np.cumsum(even, axis=-1) % 2


def ring_fit(n_sites, coupling, n_rows, away, n, seed, gibbs=False):
    """Return spins on a ring, anchored away from the mode; by exact draws or by Gibbs sampling."""
    rng = np.random.default_rng(seed)
    data = draw_ring([coupling], n_rows, rng, n_sites)
    energy = float(ring_statistics(data).sum())
    grid = np.linspace(-1.0, 5.0, 3001)
    log_z = n_sites * np.log(2.0 * np.cosh(grid)) + np.log1p(np.tanh(grid) ** n_sites)
    exact = energy * grid - n_rows * log_z - 0.5 * (grid / 2.0) ** 2
    mode, sd, _ = moments(grid, exact)
    if gibbs:
        family = pbs.Family(ring_statistics, sites=n_sites, n_states=2)
    else:
        family = pbs.Family(ring_statistics, lambda t, n, rng, start: draw_ring(t, n, rng, n_sites))
    anchors = np.array([[mode + away * sd]])
    rule = anchored(family, anchors, n=n, n_moments=n, rng=rng, constant=False)
    with pm.Model() as model:
        parameter = pm.Normal("theta", 0.0, 2.0)
        pbs.ExponentialFamily(
            "x", pt.stack([parameter]), family, observed=data, normalizer=Estimated(rule)
        )
    found = np.array([float(rule.log_z_at(np, np.array([t]))) for t in grid])
    return Fit(model, grid, energy * grid - n_rows * found - 0.5 * (grid / 2.0) ** 2, exact)


def drawn_curvature(fit, n_each, n_sites=80, n_rows=5):
    """Return the curvature diagnostic of a ring from draws of the model at each of 1600 draws.

    The square of the noisy score has the variance of its noise taken off.
    """
    rng = np.random.default_rng(0)
    _, _, mass = moments(fit.grid, fit.approximate)
    draws = rng.choice(fit.grid, size=N_CHAINS * N_DRAWS, p=mass)
    energy = float(ring_statistics(fit.model.rvs_to_values[fit.model["x"]].data).sum())
    identity = []
    for theta in draws:
        statistics = ring_statistics(draw_ring([theta], n_each, rng, n_sites))
        variance = statistics.var(ddof=1)
        score = energy - n_rows * statistics.mean() - theta / 4.0
        identity.append(score**2 - n_rows**2 * variance / n_each - n_rows * variance - 0.25)
    return abs(np.mean(identity)) / (np.std(identity) / np.sqrt(len(draws)))


def network_fit(edge, triangle, seed, n_nodes=6):
    """Return a network with triangles, anchored where it could be listed."""
    terms = [pbs.ergm.edges(), pbs.ergm.triangles()]
    theta = np.array([edge, triangle])
    network = pm.draw(pbs.ERGM.dist(theta, terms, n_nodes=n_nodes), random_seed=seed)
    grid = np.linspace(triangle - 4.0, triangle + 4.0, 401)
    log_p = []
    for normalizer in ("anchored", "exact"):
        with pm.Model() as model:
            parameter = pm.Normal("theta", 0.0, 1.0)
            pbs.ERGM(
                "x",
                pt.stack([edge, parameter]),
                terms,
                observed=network,
                normalizer=normalizer,
                random_seed=seed,
            )
        logp = model.compile_logp(mode="FAST_COMPILE")
        log_p.append((model, np.array([float(logp({"theta": t})) for t in grid])))
    (model, approximate), (_, exact) = log_p
    return Fit(model, grid, approximate, exact)


def catalogue() -> dict[str, Callable[[], Fit]]:
    """Return all cases by name; each is built from its own seed."""
    cases: dict[str, Callable[[], Fit]] = {}
    for kind in (poisson_based, geometric_based, cut_short, two_humps):
        for seed in range(60):
            cases[f"{kind.__name__} {seed}"] = partial(kind, seed)
    for away in (0.0, 0.5, 1.0, 2.0, -2.0, 5.0, -5.0, 10.0):
        for side, coupling, n in (
            (8, 0.3, 2000),
            (12, 0.38, 2000),
            (12, 0.38, 40),
            (16, 0.42, 5000),
        ):
            name = f"torus {side}x{side} J {coupling:g}, {n} draws {away:+g} sd away"
            cases[name] = partial(torus_fit, side, coupling, 1, away, n, 1)
    for away, n in ((0.0, 4000), (1.0, 1000), (2.0, 200), (3.0, 100), (5.0, 1000), (10.0, 4000)):
        for coupling, seed in product((0.4, 1.2), (2, 4, 5)):
            name = f"ring J {coupling:g}, {n} draws {away:+g} sd away, {seed}"
            cases[name] = partial(ring_fit, 80, coupling, 5, away, n, seed)
    for coupling in (0.3, 1.0, 2.0, 3.0):
        cases[f"ring J {coupling:g}, Gibbs"] = partial(
            ring_fit, 80, coupling, 5, 0.0, 1000, 3, gibbs=True
        )
    for coupling, n in ((0.1, 500), (0.2, 500), (0.5, 500), (0.9, 300), (1.2, 200), (1.2, 1000)):
        for side in (4, 6):
            name = f"Potts {side}x{side} J {coupling:g}, {n} plain nodes"
            cases[name] = partial(plain_potts, side, coupling, n, 2)
    for triangle in (-0.5, 0.2, 0.8, 1.5):
        for seed in (1, 2):
            cases[f"network with triangles {triangle:+g}, {seed}"] = partial(
                network_fit, -1.0, triangle, seed
            )
    return cases


def outcome(name: str) -> Outcome:
    """Run one case by its name."""
    return run(name, catalogue()[name])


HEADER = (
    f"{'case':44s} {'shift':>8s} {'stretch':>8s}  {'verdict':17s}  {'left after':12s} {'s':>5s} "
    "curvature"
)


def line(o: Outcome) -> str:
    """Return an outcome as a row of the table."""
    left = "" if o.left is None else f"{o.left[0]:.2f}, {o.left[1]:.2f}"
    return (
        f"{o.name:44s} {o.shift:8.2f} {o.stretch:8.2f}  {o.verdict:17s}  {left:12s} "
        f"{o.seconds:5.1f} {o.curvature:9.1f}{'' if o.right else '  <- wrong'}"
    )


def summary(outcomes: list[Outcome]) -> None:
    """Print the confusion matrix, and every miss by its name."""
    verdicts = ("good", "corrected", "not to be trusted")
    print(f"\n{'':10s} fits  {'  '.join(verdicts)}")
    for failed, label in ((False, "healthy"), (True, "failed")):
        row = [o.verdict for o in outcomes if o.failed == failed]
        cells = "  ".join(f"{row.count(v):{len(v)}d}" for v in verdicts)
        print(f"{label:10s} {len(row):4d}  {cells}")
    by_curvature = sum((o.curvature > 1.96) == o.failed for o in outcomes)
    print(f"curvature diagnostic, 5%: right on {by_curvature} of {len(outcomes)}")
    for o in outcomes:
        if not o.right:
            print(f"wrong: {o.name}: {o.reason}")
        elif o.left is not None and max(o.left) > SHIFT:
            print(f"corrected, but not enough: {o.name}: {o.left[0]:.2f}, {o.left[1]:.2f}")


def costs() -> None:
    """Print the curvature diagnostic from draws of the model beside the check, on four rings."""
    print(f"\n{'curvature by draws of the model':34s}" + "".join(f"{m:>10d} each" for m in EACH))
    for away, n in ((0.0, 4000), (2.0, 200), (3.0, 100), (5.0, 1000)):
        build = partial(ring_fit, 80, 1.2, 5, away, n, 2)
        cells = "".join(f"{drawn_curvature(build(), m):15.1f}" for m in EACH)
        found = run("", build)
        print(f"ring J 1.2, {n} draws {away:+g} sd away".ljust(34) + f"{cells}  {found.verdict}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="every tenth case, within a minute")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--only", default="", help="cases whose names begin with this")
    arguments = parser.parse_args()
    names = [name for name in catalogue() if name.startswith(arguments.only)]
    names = names[::10] if arguments.quick else names
    print(HEADER)
    outcomes = []
    with ProcessPoolExecutor(arguments.processes) as executor:
        for found in executor.map(outcome, names):
            outcomes.append(found)
            print(line(found), flush=True)
    summary(outcomes)
    if not (arguments.quick or arguments.only):
        costs()


if __name__ == "__main__":
    main()
