# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Bring your own model
#
# A discrete model is often easy to write up to its constant. This notebook takes one such model
# from a formula to a checked posterior: measure, kernel, nodes, rule, Op, fit, check.
#
# The model is a power law that gives way to exponential decay, for sizes of things that cascade:
#
# $$p(x \mid a, b) = \frac{(1 + x)^{-a} e^{-b x}}{Z(a, b)}, \qquad x = 0, 1, 2, \ldots$$
#
# $Z$ has no elementary form, and for small $b$ the sum has tens of thousands of terms that matter.

# %%
import logging

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from scipy.special import logsumexp

import pymc_bayessum as pbs

logging.getLogger("pymc").setLevel(logging.ERROR)
plt.rcParams |= {"figure.dpi": 110, "font.size": 10, "image.cmap": "cividis"}
MAXIMUM = 40_000


def log_f(x, power, rate):
    return -power * pm.math.log1p(x) - rate * x


# %% [markdown]
# Data to fit: 500 sizes from known parameters, drawn by inverting the distribution function (a
# long sum, done once).

# %%
TRUE_POWER, TRUE_RATE = 1.3, 0.002
support = np.arange(MAXIMUM + 1)


def log_f_numpy(x, power, rate):
    return -power * np.log1p(x) - rate * x


rng = np.random.default_rng(3)
mass = np.exp(log_f_numpy(support, TRUE_POWER, TRUE_RATE))
y = rng.choice(support, size=500, p=mass / mass.sum())
print(f"{len(y)} sizes: median {np.median(y):.0f}, mean {y.mean():.0f}, largest {y.max()}")

# %% [markdown]
# ## Measure, kernel, nodes
#
# - **Measure.** The sum is plain, so counting measure on $0, \ldots, 40\,000$. (A `Geometric` base
#   would cover all naturals; here the decay makes the rest irrelevant for any rate above .0005.)
# - **Nodes.** Consecutive where the summand changes fast, then spaced ever wider. `spacing` says
#   how wide: a power law changes over a distance proportional to $x$.
# - **Kernel.** It should expect the same roughness everywhere. On the scale of $x$ the summand is
#   steep near zero and flat far out; on the scale of $\log(1 + x)$ it is even. So a smooth Matern
#   kernel of $\log(1 + x)$. To see what that is worth we also try a spline, the kernel of
#   integrated Brownian motion, on $x$ itself.

# %%
nodes = pbs.nodes.graded(
    MAXIMUM, consecutive=16, growth=1.2, spacing=lambda x: min(1.0 + x / 5.0, 400.0)
)
measure = pbs.measures.Counting(MAXIMUM)
print(f"{len(nodes)} nodes stand for {MAXIMUM + 1} terms\n")

candidates = {
    "spline in x": pbs.kernels.IntegratedBrownian(3),
    "Matern in log(1 + x)": pbs.kernels.Matern(4.5, 2.0, transform=np.log1p),
}
rules = {name: pbs.bayes_sum(kernel, measure, nodes) for name, kernel in candidates.items()}
for name, rule in rules.items():
    estimate, sd = rule.log_sum(log_f_numpy(nodes, TRUE_POWER, TRUE_RATE), return_sd=True)
    error = estimate - logsumexp(log_f_numpy(support, TRUE_POWER, TRUE_RATE))
    print(f"{name:21} error of log Z {error:8.1e}, stated sd {sd:7.1e}")
rule = rules["Matern in log(1 + x)"]

# %% [markdown]
# Both are accurate, the second far more so. But look at what the spline says of itself: it takes
# the steepness near zero for the steepness everywhere, and its error bar is absurd. The Matern bar
# is still cautious, as a prior that has seen a steep start has to be, but it is usable.
#
# Before any model is fitted we can ask how good the rule is, wherever the prior may go.

# %%
powers, rates = np.linspace(0.0, 3.0, 25), np.geomspace(0.0005, 0.1, 25)
error = np.empty((len(powers), len(rates)))
for i, power in enumerate(powers):
    for j, rate in enumerate(rates):
        long_sum = logsumexp(log_f_numpy(support, power, rate))
        error[i, j] = rule.log_sum(log_f_numpy(rule.nodes, power, rate)) - long_sum

fig, (left, right) = plt.subplots(1, 2, figsize=(9.4, 3.4), layout="constrained")
left.loglog(rule.nodes + 1, rule.weights, ".", color="black", markersize=3)
left.set(xlabel="node + 1", ylabel="weight", title="A weight is about the gap it stands for")
shades = right.pcolormesh(rates, powers, np.log10(np.maximum(abs(error), 1e-16)))
right.plot(TRUE_RATE, TRUE_POWER, "*", color="white", markeredgecolor="black", markersize=13)
right.set(xscale="log", xlabel="rate b", ylabel="power a", title="Error of log Z")
fig.colorbar(shades, ax=right, label="log10 of the error")
plt.show()
print(f"largest error {abs(error).max():.1e}; at the true parameters (star)", end=" ")
print(f"{abs(error[np.abs(powers - TRUE_POWER).argmin(), np.abs(rates - TRUE_RATE).argmin()]):.1e}")

# %% [markdown]
# ## The Op
#
# `pbs.log_normalizer` is the symbolic $\log Z$. Its gradient is an expectation under the model,
# which comes from the same exponentials: $\partial \log Z / \partial b = -E[X]$.

# %%
power, rate = pt.dscalar("power"), pt.dscalar("rate")
log_z = pbs.log_normalizer(lambda x: log_f(x, power, rate), rule)
value_and_slope = pytensor.function([power, rate], [log_z, pytensor.grad(log_z, rate)])
value, slope = value_and_slope(TRUE_POWER, TRUE_RATE)
print(f"log Z = {value:.8f}, long sum {np.log(mass.sum()):.8f}")
print(f"-d log Z / db = {-slope:.6f}, long sum for E[X] {mass @ support / mass.sum():.6f}")

# %% [markdown]
# ## Fit
#
# `pbs.Unnormalized` does the rest: it divides by the constant, knows the support, and finds a place
# to start.

# %%
with pm.Model() as model:
    power = pm.Normal("power", 1.0, 1.0)
    rate = pm.LogNormal("rate", np.log(0.003), 0.5)
    pbs.Unnormalized("y", log_f, power, rate, rule=rule, observed=y)
    idata = pm.sample(
        500, tune=500, chains=2, cores=1, random_seed=4, progressbar=False, quiet=True
    )
for name, true in [("power", TRUE_POWER), ("rate", TRUE_RATE)]:
    draws = idata.posterior[name]
    print(f"{name}: {float(draws.mean()):.4f} +- {float(draws.std()):.4f}, true {true}")

# %% [markdown]
# ## Check
#
# One line asks whether the rule held on the draws that the sampler took.

# %%
checked = pbs.check_normalizer(idata, model, draws=200, progressbar=False)
print(checked["normalizer"].attrs["report"])

# %%
fig, (left, right) = plt.subplots(1, 2, figsize=(9.4, 3.6), layout="constrained")
posterior = idata.posterior
left.plot(posterior["rate"].values.ravel(), posterior["power"].values.ravel(), ".", color="0.6")
left.plot(TRUE_RATE, TRUE_POWER, "*", color="white", markeredgecolor="black", markersize=14)
left.set(xlabel="rate b", ylabel="power a", title="Posterior and true values (star)")

at = np.unique(np.geomspace(1, 4000, 60).astype(int))
some = rng.choice(posterior.sizes["draw"], 30, replace=False)
for k in some:
    one = {name: float(posterior[name][0, k]) for name in ("power", "rate")}
    curve = np.exp(log_f_numpy(support, **one))
    above = curve[::-1].cumsum()[::-1] / curve.sum()
    right.loglog(at, above[at], color="0.75", linewidth=0.8)
right.loglog(at, [(y >= size).mean() for size in at], "o", color="black", markersize=3)
right.set(xlabel="size x", ylabel="share of sizes at least x", ylim=(1e-3, 1))
right.set(title="Data (dots) and 30 posterior draws")
plt.show()
