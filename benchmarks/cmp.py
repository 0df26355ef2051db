"""CMP: accuracy of log Z, time a row beside PyMC's own counts, MAP fits, and a stress of the plane.

Run ``python benchmarks/cmp.py`` (a few minutes) or ``python benchmarks/cmp.py --quick``. Peers run
beside us in the same process; read the ratios, the seconds are this machine's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time

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
    sizes = [1000, 5000, 20_000] if quick else [1000, 5000, 20_000, 100_000]
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
x = rng.normal(size=(1000, 3))
with pm.Model() as model:
    beta, nu = pm.Normal("beta", shape=3), pm.HalfNormal("nu")
    NAME
begin = time.perf_counter()
function = model.logp_dlogp_function(ravel_inputs=True)
function.set_extra_values({})
function(np.zeros(4))
print(time.perf_counter() - begin)
"""
_BY_COLUMN, _BY_MATRIX = "pt.exp(beta[0] + beta[1] * x[:, 0])", "pt.exp(x @ beta)"
_COUNTS = "observed=np.ones(1000, int))"
COMPILED = {
    "pm.Poisson": f"pm.Poisson('y', {_BY_COLUMN} * nu, {_COUNTS}",
    "CMP rate": f"pbs.CMP('y', lam={_BY_COLUMN}, nu=nu, {_COUNTS}",
    "CMP mode": f"pbs.CMP('y', mode={_BY_COLUMN}, nu=nu, {_COUNTS}",
    "CMP mean": f"pbs.CMP('y', mu={_BY_COLUMN}, nu=nu, {_COUNTS}",
    "CMP mean, nu by row": f"pbs.CMP('y', mu={_BY_COLUMN}, nu=nu * np.exp(x[:, 0]), {_COUNTS}",
    "pm.Poisson, design @ beta": f"pm.Poisson('y', {_BY_MATRIX} * nu, {_COUNTS}",
    "CMP mean, design @ beta": f"pbs.CMP('y', mu={_BY_MATRIX}, nu=nu, {_COUNTS}",
}


def compile_times() -> None:
    """Compile in processes of their own: with an empty cache, and once more with what it left."""
    table = Table(title="seconds to compile a regression's log-probability and gradient")
    for column in ["model", "cold", "warm"]:
        table.add_column(column, justify="right" if column != "model" else "left")
    for name, line in COMPILED.items():
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


def stress(quick: bool) -> None:
    """Check that no parameter makes the density NaN or +inf, nor its gradient infinite."""
    n = 50_000 if quick else 1_000_000
    rng = np.random.default_rng(7)
    first = np.exp(rng.uniform(-40, 40, n))
    nu = np.exp(rng.uniform(-15, 10, n))
    nu[rng.random(n) < 0.01] = 0.0
    counts = np.floor(np.exp(rng.uniform(-1, 14, n))).astype(int)
    table = Table(title=f"{n} random parameters and counts, over the plane and far beyond it")
    for column in ["parametrisation", "finite", "-inf", "NaN or +inf", "gradient not finite"]:
        table.add_column(column, justify="right")
    for form in ("mu", "lam", "mode"):
        p, v = pt.vector("p"), pt.vector("v")
        logp = pm.logp(pbs.CMP.dist(**{form: p}, nu=v), counts)
        grads = pt.grad(pt.where(pt.isinf(logp), 0.0, logp).sum(), [p, v])
        value, *slopes = pytensor.function([p, v], [logp, *grads])(first, nu)
        finite = np.isfinite(value)
        bad = np.isnan(value) | (value == np.inf)
        steep = finite & ~np.all(np.isfinite(slopes), axis=0)
        table.add_row(
            form, str(finite.sum()), str((value == -np.inf).sum()), str(bad.sum()), str(steep.sum())
        )
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="finish within about a minute")
    quick = parser.parse_args().quick
    accuracy(quick)
    speed(quick)
    compile_times()
    map_fit(quick)
    stress(quick)


if __name__ == "__main__":
    main()
