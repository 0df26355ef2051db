"""Simulation-based calibration: whether the truth lies in the posterior as often as it should.

Parameters are drawn from the prior, data from the model, and the posterior of these data is asked
for the probability that it gives to values below the truth. Over many replicates these are uniform
where model, normaliser and anchors are right (Talts, Betancourt, Simpson, Vehtari and Gelman,
2018). Each replicate goes the way a user goes: one generative model, ``pm.observe`` with the
simulated data, the log-probability of that model, whose anchors are built for just these data. The
posterior is taken on a grid, so that no sampler's noise is in the ranks; ``--simuk`` runs simuk's
own loop with NUTS instead.

The table holds the p-value of a chi-squared test of uniformity in ten bins, and that of the same
replicates with one per cent of log Z added, which has to be seen.

Run ``python benchmarks/calibration.py [--quick] [--workers 2] [--simuk] [--seed 1]``.
"""

import argparse
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache, partial

import numpy as np
import pymc as pm
import pytensor
from scipy import stats

import pymc_bayessum as pbs
from pymc_bayessum.executors import in_order
from pymc_bayessum.normalizers.interpreted import PLAIN

BINS = 10
#: Of log Z: what a test of uniformity has to see.
PLANTED = 0.01


def cmp_by_mean():
    """Build counts with unknown mean and dispersion; ranks are those of the mean."""
    with pm.Model() as model:
        mu = pm.Gamma("mu", 8.0, 1.0)
        nu = pm.Gamma("nu", 8.0, 8.0)
        pbs.CMP("x", mu=mu, nu=nu, shape=100)
    return model


def potts():
    """Build images of three colours on 6 x 6, exact."""
    with pm.Model() as model:
        J = pm.Normal("J", 0.4, 0.2)
        pbs.Potts("x", None, J, pbs.graphs.grid(6, 6), n_states=3, shape=(60, 36))
    return model


def ising():
    """Build images of spins on 16 x 16, anchored at each simulated set."""
    with pm.Model() as model:
        J = pm.Normal("J", 0.3, 0.06)
        pbs.Ising("x", None, J, pbs.graphs.grid(16, 16), shape=(16, 256))
    return model


MODELS = {"CMP by mean": cmp_by_mean, "Potts 6x6": potts, "Ising 16x16": ising}
#: Prior quantile functions, the one that is ranked first.
PRIORS = {
    "CMP by mean": {"mu": stats.gamma(8.0), "nu": stats.gamma(8.0, scale=1 / 8.0)},
    "Potts 6x6": {"J": stats.norm(0.4, 0.2)},
    "Ising 16x16": {"J": stats.norm(0.3, 0.06)},
}


@lru_cache
def generative(name):
    return MODELS[name]()


def log_posterior(name, data):
    """Functions of parameters: the log-likelihood of a model observed anew, and its log Z."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = pbs.anchor(pm.observe(generative(name), {"x": data}), progressbar=False)
        (found,) = pbs.find_normalizers(model)
    (x,) = model.observed_RVs
    names = list(PRIORS[name])
    values = [model[each] for each in names]
    likelihood = pytensor.function(values, pm.logp(x, data).sum(), mode=PLAIN)
    log_z = pytensor.function(values, found.log_z, mode=PLAIN, on_unused_input="ignore")
    return likelihood, lambda *theta: len(data) * float(np.mean(log_z(*theta)))


def ranked(name, truth, functions):
    """Return P(first parameter < truth) under the posterior, plain and with an error planted."""
    priors = list(PRIORS[name].values())
    low, high = np.zeros(len(priors)), np.ones(len(priors))
    n = 60 if len(priors) == 1 else 18
    likelihood, log_z = functions
    for _ in range(2):  # cells of equal prior mass, closing in on the posterior
        edges = [np.linspace(a, b, n + 1) for a, b in zip(low, high, strict=True)]
        middle = [0.5 * (edge[1:] + edge[:-1]) for edge in edges]
        places = np.stack(np.meshgrid(*middle, indexing="ij"), axis=-1).reshape(-1, len(priors))
        theta = [prior.ppf(column) for prior, column in zip(priors, places.T, strict=True)]
        logp = np.array([float(likelihood(*each)) for each in zip(*theta, strict=True)])
        kept = logp > logp.max() - 14.0
        width = (high - low) / n
        low = np.maximum(low, places[kept].min(axis=0) - 1.5 * width)
        high = np.minimum(high, places[kept].max(axis=0) + 1.5 * width)
    level = np.array([log_z(*each) for each in zip(*theta, strict=True)])
    found = []
    for error in (0.0, PLANTED):
        wrong = logp - error * level
        weight = np.exp(wrong - wrong.max())
        mass = weight.reshape([n] * len(priors)).sum(axis=tuple(range(1, len(priors))))
        below = np.concatenate([[0.0], np.cumsum(mass / mass.sum())])
        found.append(float(np.interp(priors[0].cdf(truth), edges[0], below)))
    return found


def replicate(name, seed):
    """Draw parameters and data, and rank the truth."""
    model = generative(name)
    parameter = next(iter(PRIORS[name]))
    truth, data = pm.draw([model[parameter], model["x"]], random_seed=seed, mode="FAST_COMPILE")
    return ranked(name, truth, log_posterior(name, data))


def uniform_p(ranks):
    """p-value of the chi-squared test of uniformity."""
    counts = np.histogram(ranks, bins=BINS, range=(0.0, 1.0))[0]
    return stats.chisquare(counts).pvalue


def by_simuk(name, n, seed):
    """Ranks by simuk's own loop, with NUTS."""
    import simuk

    model = generative(name)
    data = pm.draw(model["x"], random_seed=seed)
    draws = {"draws": 99, "tune": 300, "chains": 1, "cores": 1}
    loop = simuk.SBC(
        pm.observe(model, {"x": data}),
        num_simulations=n,
        seed=seed,
        sample_kwargs=draws,
        progress_bar=False,
    )
    loop.run_simulations()
    first = next(iter(PRIORS[name]))
    return (loop.simulations["prior_sbc"][first].values.ravel() + 0.5) / 100.0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few replicates")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--simuk", action="store_true", help="simuk's loop with NUTS")
    parser.add_argument("--replicates", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="another one draws other replicates")
    parser.add_argument("--ranks", help="CSV file for the ranks")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    options = parser.parse_args()
    n = 20 if options.quick else options.replicates
    seeds = range(1000 * options.seed, 1000 * options.seed + n)
    kept = {}
    executor = ProcessPoolExecutor(options.workers) if options.workers > 1 else None
    print(f"{n} replicates, p of a chi-squared test of uniform ranks in {BINS} bins")
    print(f"{'model':14} {'p':>8} {'p, 1% of log Z added':>22} {'seconds':>9}")
    for name in options.models:
        began = time.perf_counter()
        if options.simuk:
            ranks, planted = by_simuk(name, n, 1 + options.seed), np.nan
        else:
            found = list(in_order(partial(replicate, name), seeds, executor))
            ranks, planted = np.array(found).T
            planted = uniform_p(planted)
        kept[name] = ranks
        seconds = time.perf_counter() - began
        print(f"{name:14} {uniform_p(ranks):8.3f} {planted:22.2g} {seconds:9.0f}", flush=True)
    if options.ranks:
        table = np.column_stack(list(kept.values()))
        np.savetxt(options.ranks, table, "%.4f", ",", header=",".join(kept), comments="")
    if executor is not None:
        executor.shutdown()


if __name__ == "__main__":
    main()
