"""CMP: accuracy, speed beside PyMC's own counts, compilation, optimisers, NUTS, and a stress.

Run ``python benchmarks/cmp.py`` (a quarter of an hour) or ``--quick``; ``--only speed stress``
prints some of the tables. Peers run beside us in the same process; read the ratios, the seconds are
this machine's.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import mpmath as mp
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from rich.console import Console
from rich.table import Table
from scipy.optimize import minimize
from scipy.special import gammaln, logsumexp

import pymc_bayessum as pbs
from pymc_bayessum.counts.cmp_sums.ops import CMPCumulants, CMPFromMean

GLMMTMB_SECONDS = {0.4: 90.0, 2.0: 59.0}  # 20 000 rows, 3 covariates, one 2-core machine
console = Console(width=120)


def exact_log_z(log_lam: float, nu: float) -> float:
    """Sum the series in 40-digit arithmetic, from the mode outward."""
    with mp.workdps(40):
        eta, power = mp.mpf(log_lam), mp.mpf(nu)
        mode = int(mp.floor(mp.e ** (eta / power)))
        total = term = mp.mpf(1)
        x = mode
        while term > mp.mpf(10) ** -30 * total:
            x += 1
            term *= mp.e ** (eta - power * mp.log(x))
            total += term
        term = mp.mpf(1)
        for x in range(mode, 0, -1):
            term *= mp.e ** (power * mp.log(x) - eta)
            total += term
            if term < mp.mpf(10) ** -30 * total:
                break
        return float(mp.log(total) + mode * eta - power * mp.loggamma(mode + 1))


def asymptotic_log_z(log_lam: float, nu: float) -> float:
    """Four-term expansion in 1 / (nu m) of Gaunt, Iyengar, Olde Daalhuis and Simsek (2019)."""
    m = np.exp(log_lam / nu)
    c1 = (nu**2 - 1) / 24
    c2 = (nu**2 - 1) / 1152 * (nu**2 + 23)
    c3 = (nu**2 - 1) / 414720 * (5 * nu**4 - 298 * nu**2 + 11237)
    with np.errstate(divide="ignore", over="ignore"):  # it is infinite where m vanishes
        series = 1 + c1 / (nu * m) + c2 / (nu * m) ** 2 + c3 / (nu * m) ** 3
    leading = nu * m - (nu - 1) / 2 * np.log(m) - (nu - 1) / 2 * np.log(2 * np.pi)
    return leading - np.log(nu) / 2 + np.log(max(series, 1e-300))


def series_log_z(log_lam: float, nu: float, terms: int) -> float:
    x = np.arange(terms)
    return logsumexp(x * log_lam - nu * gammaln(x + 1))


def ten_node_log_z(log_lam: float, nu: float, mean: float) -> float:
    """Evaluate the rule of the BayesSum paper: Poisson base at the mean, nodes 0..9, min(x, y)."""
    rule = pbs.poisson_rule(mean, nodes=np.arange(10), kernel=pbs.kernels.Brownian(shift=0.0))
    try:
        return float(rule.log_sum(rule.nodes * log_lam - nu * gammaln(rule.nodes + 1)))
    except ValueError:  # the signed sum is not positive: no estimate
        return np.nan


def rate_of_mean(mean: float, nu: float) -> float:
    """Find log lam whose CMP has this mean, by bisection on the public mean function."""
    low, high = -60.0, nu * np.log(mean + 2) + 10
    for _ in range(200):
        middle = (low + high) / 2
        too_small = pbs.cmp_mean(np.exp(middle), nu) < mean
        low, high = (middle, high) if too_small else (low, middle)
    return (low + high) / 2


def accuracy(quick: bool) -> None:
    means = [0.01, 1.0, 10.0, 100.0, 1e3] if quick else [0.01, 0.1, 1.0, 10.0, 100.0, 1e3, 1e4, 1e5]
    nus = [0.01, 0.3, 1.0, 2.0, 20.0] if quick else [0.01, 0.03, 0.1, 0.3, 1.0, 2.0, 5.0, 20.0]
    table = Table(title="|error in log Z| against 40-digit arithmetic")
    for column in ["mean", "nu", "ours", "ten nodes", "100 terms", "asymptotic, 4 terms"]:
        table.add_column(column, justify="right")
    worst = 0.0
    for mean in means:
        for nu in nus:
            eta = rate_of_mean(mean, nu)
            truth = exact_log_z(eta, nu)
            ours = abs(float(pbs.cmp_log_z(eta, nu)) - truth)
            worst = max(worst, ours)
            errors = [
                ours,
                abs(ten_node_log_z(eta, nu, mean) - truth),
                abs(series_log_z(eta, nu, 100) - truth),
                abs(asymptotic_log_z(eta, nu) - truth),
            ]
            table.add_row(f"{mean:g}", f"{nu:g}", *(f"{e:.1e}" for e in errors))
    console.print(table)
    console.print(f"worst of ours: {worst:.1e}\n")


def best_of(function, *arguments, repeats: int = 7, number: int = 3) -> float:
    function(*arguments)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(number):
            function(*arguments)
        times.append((time.perf_counter() - start) / number)
    return min(times)


def regression(n: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    counts = rng.poisson(np.exp(1.2 + x @ np.array([0.3, -0.2, 0.1])))
    return x, counts


def speed_models(x: np.ndarray, counts: np.ndarray) -> dict:
    """Build log-densities of one regression under each distribution, as symbolic graphs."""
    n = len(counts)

    def log_mean(beta):
        return beta[0] + pt.dot(x, beta[1:4])

    def series(terms):
        nodes = np.arange(terms, dtype=float)

        def build(beta):
            eta, nu = log_mean(beta), pt.exp(beta[4])
            log_z = pt.logsumexp(eta[:, None] * nodes - nu * gammaln(nodes + 1), axis=-1)
            return counts * eta - nu * gammaln(counts + 1) - log_z

        return build

    def density(make):
        return lambda beta: pm.logp(make(beta), counts)

    return {
        "pm.Poisson": density(lambda b: pm.Poisson.dist(mu=pt.exp(log_mean(b)))),
        "pm.NegativeBinomial": density(
            lambda b: pm.NegativeBinomial.dist(mu=pt.exp(log_mean(b)), alpha=pt.exp(b[4]))
        ),
        "CMP rate, shared nu": density(
            lambda b: pbs.CMP.dist(lam=pt.exp(log_mean(b)), nu=pt.exp(b[4]))
        ),
        "CMP mode, shared nu": density(
            lambda b: pbs.CMP.dist(mode=pt.exp(log_mean(b)), nu=pt.exp(b[4]))
        ),
        "CMP mean, shared nu": density(
            lambda b: pbs.CMP.dist(mu=pt.exp(log_mean(b)), nu=pt.exp(b[4]))
        ),
        "CMP rate, nu by row": density(
            lambda b: pbs.CMP.dist(lam=pt.exp(log_mean(b)), nu=pt.exp(b[4] + 0.1 * x[:, 0]))
        ),
        "CMP mean, nu by row": density(
            lambda b: pbs.CMP.dist(mu=pt.exp(log_mean(b)), nu=pt.exp(b[4] + 0.1 * x[:, 0]))
        ),
        f"series, 60 terms ({n} x 60 array)": series(60),
        f"series, 200 terms ({n} x 200 array)": series(200),
    }


def speed(quick: bool) -> None:
    n = 45_000
    x, counts = regression(n)
    table = Table(title=f"log-likelihood and gradient, {n} rows, nu = 0.8")
    for column in ["model", "compile s", "ms a call", "ns a row", "x pm.Poisson"]:
        table.add_column(column, justify="right" if column != "model" else "left")
    point = np.array([1.2, 0.3, -0.2, 0.1, np.log(0.8)])
    reference = None
    for name, build in speed_models(x, counts).items():
        if quick and "200" in name:
            continue
        beta = pt.vector("beta", shape=(5,))
        total = build(beta).sum()
        gradient = pt.grad(total, beta, disconnected_inputs="ignore")
        start = time.perf_counter()
        function = pytensor.function([beta], [total, gradient], trust_input=True)
        function(point)
        compile_seconds = time.perf_counter() - start
        seconds = best_of(function, point, repeats=5 if quick else 15)
        reference = reference or seconds
        table.add_row(
            name,
            f"{compile_seconds:.1f}",
            f"{1e3 * seconds:.2f}",
            f"{1e9 * seconds / n:.0f}",
            f"{seconds / reference:.1f}",
        )
    console.print(table)


def map_fit(quick: bool) -> None:
    sizes = [20_000] if quick else [1000, 5000, 20_000, 100_000]
    table = Table(title="MAP, mean form, 3 covariates, mean about 5, one shared nu")
    for column in ["nu", "rows", "compile s", "fit s", "evaluations", "nu found", "glmmTMB / ours"]:
        table.add_column(column, justify="right")
    for nu in (0.4, 2.0):
        for n in sizes:
            rng = np.random.default_rng(n)
            x = rng.normal(size=(n, 3))
            mu = np.exp(1.5 + x @ np.array([0.3, -0.2, 0.1]))
            counts = pm.draw(pbs.CMP.dist(mu=mu, nu=nu), random_seed=n)
            with pm.Model() as model:
                beta = pm.Flat("beta", shape=4)
                log_nu = pm.Flat("log_nu")
                log_mu = beta[0] + pt.dot(x, beta[1:])
                pbs.CMP("y", mu=pt.exp(log_mu), nu=pt.exp(log_nu), observed=counts)
            start = time.perf_counter()
            logp_dlogp = model.logp_dlogp_function(ravel_inputs=True)
            logp_dlogp.set_extra_values({})
            initial = np.append(np.log(counts.mean()), np.zeros(4))
            logp_dlogp(initial)
            compile_seconds = time.perf_counter() - start

            def objective(theta, function=logp_dlogp, scale=n):
                value, gradient = function(theta)
                return -value / scale, -gradient / scale

            start = time.perf_counter()
            options = {"gtol": 1e-9, "ftol": 1e-15, "maxiter": 500}
            found = minimize(objective, initial, jac=True, method="L-BFGS-B", options=options)
            seconds = time.perf_counter() - start
            peer = f"{GLMMTMB_SECONDS[nu] / seconds:.0f}" if n == 20_000 else ""
            table.add_row(
                f"{nu}",
                str(n),
                f"{compile_seconds:.1f}",
                f"{seconds:.3f}",
                str(found.nfev),
                f"{np.exp(found.x[-1]):.4f}",
                peer,
            )
    console.print(table)


COMPILE_SCRIPT = """
import time, numpy as np, pymc as pm, pytensor.tensor as pt, pymc_bayessum as pbs
rng = np.random.default_rng(0)
x, counts = rng.normal(size=(1000, 3)), rng.poisson(2.0, size=1000)
with pm.Model() as model:
    beta, nu = pm.Normal("beta", shape=3), pm.HalfNormal("nu")
    NAME
begin = time.process_time()
function = model.logp_dlogp_function(ravel_inputs=True)
function.set_extra_values({})
function(np.zeros(4))
print(time.process_time() - begin)
"""
_BY_COLUMN, _BY_MATRIX = "pt.exp(beta[0] + beta[1] * x[:, 0])", "pt.exp(x @ beta)"
_BY_SUM = "pt.exp((x * beta).sum(axis=-1))"
# Not all alike: PyTensor would fold equal counts, and compile scalars alone for pm.Poisson.
_COUNTS = "observed=counts)"
COMPILED = {
    "pm.Poisson": f"pm.Poisson('y', {_BY_COLUMN} * nu, {_COUNTS}",
    "CMP rate": f"pbs.CMP('y', lam={_BY_COLUMN}, nu=nu, {_COUNTS}",
    "CMP mode": f"pbs.CMP('y', mode={_BY_COLUMN}, nu=nu, {_COUNTS}",
    "CMP mean": f"pbs.CMP('y', mu={_BY_COLUMN}, nu=nu, {_COUNTS}",
    "CMP mean, nu by row": f"pbs.CMP('y', mu={_BY_COLUMN}, nu=nu * np.exp(x[:, 0]), {_COUNTS}",
    "pm.Poisson, design @ beta": f"pm.Poisson('y', {_BY_MATRIX} * nu, {_COUNTS}",
    "CMP mean, design @ beta": f"pbs.CMP('y', mu={_BY_MATRIX}, nu=nu, {_COUNTS}",
    "pm.Poisson, (design * beta).sum": f"pm.Poisson('y', {_BY_SUM} * nu, {_COUNTS}",
    "CMP mean, (design * beta).sum": f"pbs.CMP('y', mu={_BY_SUM}, nu=nu, {_COUNTS}",
}


def compile_times(quick: bool) -> None:
    """Compile in processes of their own: with an empty cache, and once more with what it left."""
    table = Table(title="processor seconds to compile a regression's log-probability and gradient")
    for column in ["model", "cold", "warm"]:
        table.add_column(column, justify="right" if column != "model" else "left")
    for name, line in COMPILED.items():
        if quick and name not in ("pm.Poisson", "CMP mean"):
            continue
        script = COMPILE_SCRIPT.replace("NAME", line)
        with tempfile.TemporaryDirectory() as cache:
            flags = f"{os.environ.get('PYTENSOR_FLAGS', '')},base_compiledir={cache}".lstrip(",")
            environment = os.environ | {"PYTENSOR_FLAGS": flags, "NUMBA_CACHE_DIR": cache}
            seconds = [
                float(
                    subprocess.run(
                        [sys.executable, "-c", script],
                        env=environment,
                        check=True,
                        capture_output=True,
                        text=True,
                    ).stdout
                )
                for _ in range(2)
            ]
        table.add_row(name, *(f"{each:.1f}" for each in seconds))
    console.print(table)


def public_data() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Load counts and design matrices of the public data sets."""
    data = pbs.datasets
    bids, weevils, freight = data.takeoverbids(), data.sitophilus(), data.freight()
    names = [
        "leglrest",
        "rearest",
        "finrest",
        "whtknght",
        "bidprem",
        "insthold",
        "size",
        "sizesq",
        "regulatn",
    ]
    groups = np.stack([weevils["extract"] == g for g in ("Leaf", "Branch", "Seed")], axis=1)
    covariates = {
        "freight": (freight["broken"], freight[["transfers"]]),
        "takeover bids": (bids["numbids"], bids[names]),
        "sitophilus": (weevils["ninsect"], groups),
        "Slovak syllables": (data.syllables("slovak")["syllables"] - 1, None),
        "Hungarian syllables": (data.syllables("hungarian")["syllables"] - 1, None),
        "sales": (data.sales()["sales"], None),
    }
    return {
        name: (
            np.asarray(y),
            np.column_stack([np.ones(len(y)), *([] if x is None else [np.asarray(x, float)])]),
        )
        for name, (y, x) in covariates.items()
    }


def counts_model(family: str, counts: np.ndarray, design: np.ndarray) -> pm.Model:
    with pm.Model() as model:
        beta = pm.Normal("beta", 0.0, 10.0, shape=design.shape[1])
        mean = pt.exp(pt.sum(design * beta, axis=1))
        if family == "pm.Poisson":
            pm.Poisson("y", mean, observed=counts)
            return model
        dispersion = pt.exp(pm.Normal("log_dispersion", 0.0, 2.0))
        if family == "pm.NegativeBinomial":
            pm.NegativeBinomial("y", mu=mean, alpha=dispersion, observed=counts)
        else:
            pbs.CMP("y", **{family.split()[1]: mean}, nu=dispersion, observed=counts)
    return model


def optimisers(quick: bool) -> None:
    """Run `pm.find_MAP` with its default method from poor starts."""
    families = ["pm.Poisson", "pm.NegativeBinomial", "CMP mu", "CMP lam", "CMP lam, same means"]
    n_starts = 3 if quick else 20
    table = Table(
        title=f"pm.find_MAP, {n_starts} starts, coefficients off by up to 5, dispersion .05 to 10: "
        "ends more than .1 below the best (of these: no success, a gradient above 1, still short "
        "if started again from there)"
    )
    for column in ["data", *families]:
        table.add_column(column, justify="left" if column == "data" else "right")
    for name, (counts, design) in public_data().items():
        if quick and name != "freight":
            continue
        cells = []
        for family in families:
            form, *same_means = family.split(", ")
            model = counts_model(form, counts, design)
            starts = poor_starts(counts, design, n_starts)
            ends = [search(model, at_mean(s) if same_means else s) for s in starts]
            best = search_on(model, min(ends, key=lambda end: end.value)).value
            short = [end for end in ends if end.value > best + 0.1]
            lasting = [search_on(model, end).value > best + 0.1 for end in short]
            told = sum(not end.success for end in short), sum(end.slope > 1 for end in short)
            cells.append(f"{len(short)} ({told[0]}, {told[1]}, {sum(lasting)})" if short else "0")
        table.add_row(name, *cells)
    console.print(table)


class End(NamedTuple):
    """Where a search ended: the negative log-probability, and the largest slope that is left.

    A start without a finite log-probability is refused by PyMC: it says so.
    """

    value: float = np.inf
    success: bool = False
    slope: float = np.inf
    point: dict[str, np.ndarray] | None = None


def poor_starts(
    counts: np.ndarray, design: np.ndarray, n: int
) -> Iterator[dict[str, np.ndarray | float]]:
    centre = np.append(np.log(counts.mean()), np.zeros(design.shape[1] - 1))
    rng = np.random.default_rng(2)
    for _ in range(n):
        beta = centre + rng.uniform(-5, 5, len(centre))
        yield {"beta": beta, "log_dispersion": rng.uniform(np.log(0.05), np.log(10.0))}


def at_mean(start: dict[str, Any]) -> dict[str, Any]:
    """Return coefficients of the rate that give the means meant: log(lam) is near nu log(mu)."""
    return start | {"beta": np.exp(start["log_dispersion"]) * start["beta"]}


def search(model: pm.Model, start: dict[str, Any]) -> End:
    start = {rv.name: start[rv.name] for rv in model.free_RVs}
    try:
        with model, np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            point, raw = pm.find_MAP(start, progressbar=False, return_raw=True)
    except pm.exceptions.SamplingError:
        return End()
    value = float(np.nan_to_num(raw.fun, nan=np.inf))
    return End(value, raw.success, float(np.abs(raw.jac).max()), point)


def search_on(model: pm.Model, end: End) -> End:
    """Start again from where a search ended, until nothing changes."""
    before = End()
    while end.point is not None and end.value < before.value - 1e-6:
        before, end = end, search(model, end.point)
    return before if before.value < end.value else end


def relatives(quick: bool) -> None:
    """Compare zero-inflated and hurdle with CMP itself: gradients and draws of skewed counts."""
    n = 20_190
    rng = np.random.default_rng(4)
    x = rng.normal(size=n)
    counts = rng.negative_binomial(0.8, 0.8 / (0.8 + np.exp(0.9 + 0.3 * x)))
    table = Table(title=f"{n} rows: value and gradient, and draws, by those of CMP")
    for column in ["distribution", "gradient ms", "x CMP", "draw ms", "x CMP"]:
        table.add_column(column, justify="left" if column == "distribution" else "right")
    reference: list[float] = []
    for distribution in (pbs.CMP, pbs.ZeroInflatedCMP, pbs.HurdleCMP):
        beta = pt.vector("beta", shape=(4,))
        own = {} if distribution is pbs.CMP else {"psi": pt.sigmoid(beta[3])}
        rows = {"mu": pt.exp(beta[0] + beta[1] * x), "nu": pt.exp(beta[2])}
        variable = distribution.dist(**own, **rows)
        total = pm.logp(variable, counts).sum()
        gradient = pt.grad(total, beta)
        function = pytensor.function([beta], [total, gradient], trust_input=True)
        draw = pytensor.function([beta], variable, trust_input=True)
        point = np.array([0.9, 0.3, -1.0, 0.2])
        repeats = 5 if quick else 15
        seconds = [best_of(f, point, repeats=repeats, number=1) for f in (function, draw)]
        reference = reference or seconds
        cells = [
            (f"{1e3 * s:.2f}", f"{s / r:.2f}") for s, r in zip(seconds, reference, strict=True)
        ]
        table.add_row(distribution.__name__, *cells[0], *cells[1])
    console.print(table)


def backends(quick: bool) -> None:
    """Compare JAX with numba on the same rows."""
    x, counts = regression(45_000)
    table = Table(title="value and gradient, 45000 rows, JAX by numba")
    for column in ["model", "numba ms", "JAX ms", "ratio"]:
        table.add_column(column, justify="left" if column == "model" else "right")
    point = np.array([1.2, 0.3, -0.2, 0.1, np.log(0.8)])
    models = speed_models(x, counts)
    for name in ["CMP mean, shared nu"] if quick else [m for m in models if m.startswith("CMP")]:
        beta = pt.vector("beta", shape=(5,))
        total = models[name](beta).sum()
        seconds = []
        for mode in ("NUMBA", "JAX"):
            outputs = [total, pt.grad(total, beta)]
            function = pytensor.function([beta], outputs, mode=mode, trust_input=True)
            seconds.append(best_of(lambda at, f=function: np.asarray(f(at)[1]), point))
        ratio = seconds[1] / seconds[0]
        table.add_row(name, *(f"{1e3 * s:.2f}" for s in seconds), f"{ratio:.2f}")
    console.print(table)


def groups(quick: bool) -> None:
    """Sample random intercepts of 500 groups, with one nu and with a covariate on nu."""
    if quick:  # minutes of sampling
        return
    n = 45_000
    rng = np.random.default_rng(0)
    group, x, z = rng.integers(0, 500, n), rng.normal(size=n), rng.normal(size=n)
    mean = np.exp(1.2 + 0.3 * x + 0.4 * rng.normal(size=500)[group])
    counts = pm.draw(pbs.CMP.dist(mu=mean, nu=np.exp(-0.2 + 0.2 * z)), random_seed=1)
    table = Table(title=f"NUTS, {n} rows, 500 groups, 300 + 300 iterations of one chain")
    for column in ["model", "seconds", "x shared nu"]:
        table.add_column(column, justify="left" if column == "model" else "right")
    reference = None
    for name in ("CMP mean, shared nu", "CMP mean, nu ~ z", "pm.Poisson", "pm.NegativeBinomial"):
        with pm.Model():
            scale, effect = pm.HalfNormal("scale"), pm.Normal("effect", shape=500)
            log_mu = pm.Normal("a", 0, 2) + pm.Normal("b") * x + scale * effect[group]
            dispersion = pt.exp(pm.Normal("c") + (pm.Normal("d") * z if "~" in name else 0.0))
            if name == "pm.Poisson":
                pm.Poisson("y", pt.exp(log_mu), observed=counts)
            elif name == "pm.NegativeBinomial":
                pm.NegativeBinomial("y", mu=pt.exp(log_mu), alpha=dispersion, observed=counts)
            else:
                pbs.CMP("y", mu=pt.exp(log_mu), nu=dispersion, observed=counts)
            start = time.perf_counter()
            pm.sample(300, tune=300, chains=1, cores=1, random_seed=3, progressbar=False)
            seconds = time.perf_counter() - start
        reference = reference or seconds
        table.add_row(name, f"{seconds:.0f}", f"{seconds / reference:.1f}")
    console.print(table)


def anywhere(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Log means from 1e-300 to 1e15 and nu from 0 to 1e6; half of them hug inner borders."""
    log_mu = rng.uniform(np.log(1e-300), np.log(1e15), n)
    log_mu[: n // 2] = rng.uniform(np.log(1e-3), np.log(1e7), n // 2)
    nu = np.exp(rng.uniform(np.log(1e-12), np.log(1e6), n))
    nu[::100] = 0.0
    mode = np.exp(np.maximum(log_mu, -40.0))
    near = np.abs(1 + rng.normal(size=n) * 10.0 ** rng.uniform(-16, -1, n))
    borders = [1.0 / mode, 48.0 / mode, 1e4 / mode, mode / 4.0, mode / 8.0]
    which = rng.integers(0, 2 * len(borders), n)
    for i, border in enumerate(borders):
        nu = np.where(which == i, np.minimum(border * near, 1e6), nu)
    for edge in (1.0, 16.0, 1024.0, 1e4):
        log_mu = np.where(rng.random(n) < 0.02, np.log(edge * near), log_mu)
    return log_mu, nu


def stress(quick: bool) -> None:
    """Check that no parameter makes log Z or a derivative NaN or infinite, by mean and by rate."""
    n, chunk = (2_000_000, 1_000_000) if quick else (100_000_000, 1_000_000)
    rng = np.random.default_rng(7)
    holes = {"mean": 0, "rate, derivatives to order 3": 0}
    misses = 0
    for _ in range(n // chunk):
        log_mu, nu = anywhere(rng, chunk)
        by_mean = np.array(CMPFromMean().evaluate(log_mu, nu))
        k = np.array(CMPCumulants(3).evaluate(by_mean[0], nu))
        holes["mean"] += int((~np.isfinite(by_mean)).any(axis=0).sum())
        holes["rate, derivatives to order 3"] += int((~np.isfinite(k)).any(axis=0).sum())
        felt = 1e-10 + 4e-16 * np.abs(by_mean[0]) * k[3] / np.exp(log_mu)
        misses += int((np.abs(k[1] / np.exp(log_mu) - 1) > felt).sum())
    table = Table(title=f"{n:.0e} points, means 1e-300 to 1e15, nu 0 to 1e6, half at borders")
    for column in ["form", "not finite"]:
        table.add_column(column)
    for form, count in holes.items():
        table.add_row(form, str(count))
    table.add_row("mean of the rate found is not the mean asked for", str(misses))
    console.print(table)


def main() -> None:
    counted = accuracy, speed, backends, relatives, compile_times
    fitted = map_fit, optimisers, groups
    tables = {table.__name__: table for table in (*counted, *fitted, stress)}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="finish within about a minute")
    parser.add_argument("--only", nargs="+", choices=tables, default=[*tables], help="some tables")
    arguments = parser.parse_args()
    for name in arguments.only:
        tables[name](arguments.quick)


if __name__ == "__main__":
    main()
