"""Which counts want a CMP: leave-one-out scores beside Poisson and the negative binomial.

Then NUTS on simulated rows beside what brms took for as many, on another machine of two cores.
Run ``python benchmarks/headline.py`` (some minutes) or ``--quick`` (one data set, a minute).
``--figure FILE`` draws the rootograms of the first data set, which the README shows.
"""

import argparse
import logging
import time
import warnings

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm

import pymc_bayessum as pbs

FAMILIES = ("CMP", "Poisson", "negative binomial")


def data_sets() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return counts and design matrix of each data set."""
    words = pbs.datasets.syllables("slovak")["syllables"].to_numpy() - 1
    freight, weevils = pbs.datasets.freight(), pbs.datasets.sitophilus()
    bids, sales = pbs.datasets.takeoverbids(), pbs.datasets.sales()["sales"].to_numpy()
    extracts = pd.get_dummies(weevils["extract"], dtype=float).iloc[:, 1:]
    return {
        "Slovak syllables": (words, np.empty((len(words), 0))),
        "freight": (freight["broken"].to_numpy(), freight[["transfers"]].to_numpy(float)),
        "takeover bids": (bids["numbids"].to_numpy(), bids[["whtknght", "size"]].to_numpy(float)),
        "sitophilus": (weevils["ninsect"].to_numpy(), extracts.to_numpy()),
        "sales": (sales, np.empty((len(sales), 0))),
    }


def fitted(family: str, y: np.ndarray, x: np.ndarray):
    """Sample a regression with one family, its log-likelihood and predictions."""
    with pm.Model():
        log_mu = pm.Normal("centre", np.log(y.mean()), 2.5)
        if x.shape[1]:
            slope = pm.Normal("slope", 0, 2.5 / x.std(axis=0), shape=x.shape[1])
            log_mu = log_mu + ((x - x.mean(axis=0)) * slope).sum(axis=1)
        mu = pm.math.exp(log_mu) * np.ones(len(y))
        if family == "CMP":
            pbs.CMP("y", mu=mu, nu=pm.LogNormal("nu", 0, 1.5), observed=y)
        elif family == "Poisson":
            pm.Poisson("y", mu, observed=y)
        else:
            pm.NegativeBinomial("y", mu=mu, alpha=pm.LogNormal("alpha", 2, 2), observed=y)
        quiet = {"random_seed": 1, "progressbar": False}
        idata = pm.sample(chains=4, cores=1, **quiet)
        pm.compute_log_likelihood(idata, progressbar=False)
        pm.sample_posterior_predictive(idata, extend_inferencedata=True, **quiet)
    return idata


def draw(fits: dict, path: str) -> None:
    """Hanging rootograms, one family beside the other."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(7.2, 2.7), sharey=True, dpi=150)
    for axis, family in zip(axes, ("Poisson", "CMP"), strict=True):
        idata = fits[family]
        y = idata["observed_data"]["y"].to_numpy()
        grid = np.arange(8)
        seen = np.bincount(y, minlength=8)
        drawn = idata["posterior_predictive"]["y"].stack(s=("chain", "draw")).to_numpy()
        counts = np.stack([(drawn == k).sum(axis=0) for k in grid])
        low, mid, high = np.quantile(np.sqrt(counts), [0.05, 0.5, 0.95], axis=1)
        axis.bar(grid, np.sqrt(seen), 0.8, mid - np.sqrt(seen), color="#b8b7b0", label="seen")
        error = [mid - low, high - mid]
        axis.errorbar(grid, mid, error, fmt="o-", color="#00204c", ms=4, label="predicted, 90%")
        axis.axhline(0, color="black", lw=0.8)
        axis.set(title=family, xlabel="syllables of a word beyond the first")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("square root of words")
    axes[1].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path)


#: brms 2.18, com_poisson, 1000 rows with nu = .4: seconds, and divergent of 300 draws.
BRMS = (261.0, 188)


def beside_brms() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(1000, 3))
    mu = np.exp(1.5 + x @ [0.3, -0.2, 0.1])
    y = pm.draw(pbs.CMP.dist(mu=mu, nu=0.4), random_seed=1)
    began = time.perf_counter()
    with pm.Model():
        slope, centre = pm.Normal("slope", 0, 1, shape=3), pm.Normal("centre", 1.5, 2.5)
        nu = pm.LogNormal("nu", 0, 1.5)
        pbs.CMP("y", mu=pm.math.exp(centre + (x * slope).sum(axis=1)), nu=nu, observed=y)
        idata = pm.sample(300, tune=300, chains=1, random_seed=1, progressbar=False)
    seconds = time.perf_counter() - began
    divergent = int(idata["sample_stats"]["diverging"].sum())
    found = idata["posterior"]["nu"]
    print("\nNUTS, 300 + 300 iterations of one chain, 1000 rows, nu = .4, compilation included")
    print(f"      ours {seconds:6.1f} s, {divergent:3d} divergent; nu {float(found.mean()):.3f}")
    print(f"  brms 2.18 {BRMS[0]:5.1f} s, {BRMS[1]:3d} divergent (another machine)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the first data set only")
    parser.add_argument("--figure", help="where to draw the rootograms of the first data set")
    options = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    print(f"{'data':>17} {'rows':>5}  {'family':>17}  elpd_loo  behind (se)   nu")
    for number, (name, (y, x)) in enumerate(data_sets().items()):
        fits = {family: fitted(family, y, x) for family in FAMILIES}
        if number == 0 and options.figure:
            draw(fits, options.figure)
        scores = {family: az.loo(idata, pointwise=True) for family, idata in fits.items()}
        best = max(scores.values(), key=lambda score: score.elpd)
        for family, score in scores.items():
            behind = np.asarray(best.elpd_i - score.elpd_i)
            se = np.sqrt(len(y) * behind.var())
            nu = f"{float(fits[family]['posterior']['nu'].mean()):.2f}" if family == "CMP" else ""
            print(
                f"{name:>17} {len(y):>5}  {family:>17}  {score.elpd:8.1f}"
                f"  {behind.sum():6.1f} ({se:.1f})  {nu:>5}",
                flush=True,
            )
        if options.quick:
            break
    beside_brms()


if __name__ == "__main__":
    main()
