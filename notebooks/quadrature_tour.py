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
# # A tour of the quadrature
#
# Under every normaliser of this package lies the same small machine: an expectation (or a sum) of a
# function on a discrete set, estimated from its values at a few nodes, with an error bar. It is
# useful by itself whenever a function is expensive. This notebook walks through it: nodes and
# weights, how fast the error falls, active design, unnormalised distributions, mixed domains, and
# whether the error bars can be believed.

# %%
import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit

import pymc_bayessum as pbs
from pymc_bayessum import baselines, kernels, measures, nodes

plt.rcParams |= {"figure.dpi": 110, "font.size": 10, "image.cmap": "cividis"}

# %% [markdown]
# ## An expectation with an error bar
#
# $X$ is Poisson with mean 30 and $f$ a bell around 15: the interesting part of the function lies in
# the tail of the distribution, where plain sampling rarely looks.

# %%
poisson = measures.Poisson(30.0)


def bell(x):
    return np.exp(-np.square(x - 15.0) / 8.0)


everything = np.arange(200)
exact = float(np.exp(poisson.log_prob(everything)) @ bell(everything))

x = nodes.distinct(poisson, 24, rng=1)
rule = pbs.bayes_sum(kernels.Brownian(), poisson, x)
estimate = rule.expectation(bell(x))
print(f"exact {exact:.5f}, from {estimate.n_evals} nodes {estimate.mean:.5f} +- {estimate.sd:.5f}")

# %% [markdown]
# `distinct` draws without repeats: the same point twice costs an evaluation and teaches nothing.
#
# This first answer is a warning, too: it is off by more than three of its own standard deviations.
# Most of the 24 nodes lie where $f$ is zero, and from them the prior learns that $f$ is small
# everywhere. An error bar is as good as the prior, and a bell in the tail is not what a stationary
# prior expects. Once the nodes cover the bell, the error falls to almost nothing, while sampling
# still improves by the square root of the number of evaluations.


# %%
def mean_error(estimator, sizes, repeats=20):
    return [
        np.mean([abs(estimator(int(n), seed).mean - exact) for seed in range(repeats)])
        for n in sizes
    ]


def bayes_sum(n, seed):
    x = nodes.distinct(poisson, n, rng=seed)
    return pbs.bayes_sum(kernels.Brownian(), poisson, x).expectation(bell(x))


methods = {
    "Monte Carlo": (lambda n, s: baselines.monte_carlo(bell, poisson, n, rng=s), ":^"),
    "stratified": (lambda n, s: baselines.stratified(bell, poisson, n, rng=s), "-.s"),
    "BayesSum": (bayes_sum, "-o"),
}
sizes = np.array([8, 12, 16, 24, 32, 40, 50])
fig, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
for name, (estimator, style) in methods.items():
    error = np.maximum(mean_error(estimator, sizes), 1e-13)
    ax.loglog(sizes, error, style, color="black", markerfacecolor="white", label=name)
ax.set(xlabel="evaluations", ylabel="mean absolute error")
ax.set_xticks(sizes, sizes)
ax.minorticks_off()
ax.legend()
plt.show()

# %% [markdown]
# ## Choosing nodes one by one
#
# When $f$ is expensive, let each evaluation go where it teaches most about the sum. With a fixed
# kernel that depends on where the nodes are, not on the values; the values decide when to stop.

# %%
result = pbs.active_bayes_sum(bell, kernels.Brownian(), poisson, 30, rng=2)
steps = np.array([step.n_evals for step in result.history])
means = np.array([step.mean for step in result.history])
sds = np.array([step.sd for step in result.history])

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
left.plot(everything[:61], np.exp(poisson.log_prob(everything[:61])) / 0.08, "--", color="0.5")
left.plot(everything[:61], bell(everything[:61]), "-", color="black")
left.plot(result.nodes, np.full(len(result.nodes), -0.06), "|", color="black", markersize=9)
left.text(17.5, 0.9, "f")
left.text(36, 0.75, "Poisson mass (scaled)", color="0.4")
left.set(xlabel="x", title="30 nodes (ticks)", ylim=(-0.12, 1.1))
right.fill_between(steps, means - 2 * sds, means + 2 * sds, color="0.85", label="mean ± 2 sd")
right.plot(steps, means, "-", color="black")
right.axhline(exact, linestyle="--", color="black", label="exact")
right.set(xlabel="evaluations", ylabel="estimate", title="What was known when")
right.legend()
plt.show()
print(
    f"after 30 evaluations: error {result.estimate.mean - exact:.1e}, sd {result.estimate.sd:.1e}"
)

# %% [markdown]
# The first ten are draws, the rest is design. It fills the range that has mass, from the middle
# outwards, and reaches the bell last: nothing had told it that this is where $f$ lives.
# `target_sd=` stops early, and a run that failed or was interrupted goes on with `resume=`.
#
# ## Vectors of states
#
# Fifteen sites with three states each: 14 million points. The function is the weight
# $\exp(-\text{energy})$ of a chain of sites that interact with their neighbours; its mean is a
# normalising constant, and a transfer matrix gives the exact answer. The kernel falls with the
# number of sites that differ, at a rate chosen by the values themselves.

# %%
BETA, L, S = 1 / 2.269, 15, 3


def chain_log_weight(x):
    return -BETA * (0.1 * x.sum(axis=1) + 0.1 * (x[:, 1:] == x[:, :-1]).sum(axis=1))


site = np.exp(-BETA * 0.1 * np.arange(S))
transfer = np.exp(-BETA * 0.1 * np.eye(S)) * site
chain_exact = site @ np.linalg.matrix_power(transfer, L - 1) @ np.ones(S) / S**L

uniform = measures.UniformCategorical(L, S)
decays = [kernels.ExpHamming(d) for d in (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)]


def chain_estimate(n, seed):
    x = nodes.distinct(uniform, n, rng=seed)
    y = np.exp(chain_log_weight(x))
    kernel = pbs.select_kernel(decays, x, y).kernel
    rule = pbs.bayes_sum(kernel, uniform, x)
    return kernel, rule.expectation(y), rule.expectation(y, amplitude=1.0)


kernel, estimate, _ = chain_estimate(300, 0)
plain = baselines.monte_carlo(lambda x: np.exp(chain_log_weight(x)), uniform, 300, rng=0)
print(f"exact          {chain_exact:.6f}")
print(f"BayesSum       {estimate.mean:.6f} +- {estimate.sd:.6f}   {kernel}")
print(f"Monte Carlo    {plain.mean:.6f} +- {plain.sd:.6f}")

# %% [markdown]
# ## A distribution known up to its constant
#
# Now the chain is itself the distribution, $p(x) \propto \exp(-\text{energy})$, and we want an
# expectation under it. A Stein kernel has mean zero under $p$ whatever its constant, so the
# constant is never needed, and the nodes need not be draws from $p$.


# %%
def smooth(x):
    return expit(x.mean(axis=1))


def by_transfer():
    # E[f] depends on the sum of the states alone: follow the weight of every sum along the chain.
    weight = {(s, s): site[s] for s in range(S)}
    for _ in range(L - 1):
        longer = {}
        for (last, total), w in weight.items():
            for s in range(S):
                key = (s, total + s)
                longer[key] = longer.get(key, 0.0) + w * transfer[last, s]
        weight = longer
    z = sum(weight.values())
    return sum(w * expit(total / L) for (_, total), w in weight.items()) / z


stein_exact = by_transfer()
x = nodes.distinct(uniform, 300, rng=3)
stein = pbs.stein_rule(kernels.ExpHamming(0.01), chain_log_weight, x, n_states=S)
estimate = stein.expectation(smooth(x))
print(f"exact {stein_exact:.6f}, Stein rule {estimate.mean:.6f} +- {estimate.sd:.6f}")
print(f"weights sum to {stein.weights.sum():.6f}; plain average of the nodes", end=" ")
print(f"{smooth(x).mean():.6f}")

# %% [markdown]
# ## A number and some switches
#
# Measures multiply. Here $X$ is uniform on an interval and $C$ a row of four switches, and the
# kernel says that there is an effect of each and of both together.

# %%
interval, switches = measures.UniformInterval(0.0, 1.0), measures.UniformCategorical(4, 2)
mixed = measures.Product(interval, switches)
kx, kc = kernels.Matern(2.5, 0.4), kernels.ExpHamming(0.3)
kernel = kernels.First(kx) + kernels.Second(kc) + kernels.Tensor(kx, kc)


def response(point):
    x, c = point
    return np.sin(3.0 * x + 0.3 * c.sum(axis=1)) + 0.5 * c[:, 0]


every_switch = np.indices((2,) * 4).reshape(4, -1).T
grid, gauss = np.polynomial.legendre.leggauss(30)
grid = 0.5 * (grid + 1.0)
mixed_exact = np.mean(
    [0.5 * gauss @ response((grid, np.tile(row, (30, 1)))) for row in every_switch]
)
for n in (20, 60, 100):
    point = nodes.distinct(mixed, n, rng=4)
    estimate = pbs.bayes_sum(kernel, mixed, point).expectation(response(point))
    plain = baselines.monte_carlo(response, mixed, n, rng=4)
    print(
        f"n = {n:3}: BayesSum {estimate.mean:.5f} +- {estimate.sd:.5f}   "
        f"Monte Carlo {plain.mean:.3f} +- {plain.sd:.3f}   exact {mixed_exact:.5f}"
    )

# %% [markdown]
# ## Can the error bars be believed?
#
# Repeat an estimate with many node sets, and count how often intervals of a nominal level hold the
# exact value. The scale of a Gaussian-process prior matters for that: with amplitude one the bars
# are far too long here; with the amplitude estimated from the values (the default) they are about
# right.

# %%
repeats = [chain_estimate(100, seed) for seed in range(80)]
levels = np.linspace(0.1, 0.95, 9)
columns = {
    "estimated amplitude (default)": ([fitted for _, fitted, _ in repeats], "-o"),
    "amplitude one": ([unit for _, _, unit in repeats], "--s"),
}
fig, ax = plt.subplots(figsize=(4.6, 4.2), layout="constrained")
ax.plot([0, 1], [0, 1], color="0.6", linewidth=1)
for name, (estimates, style) in columns.items():
    observed = pbs.coverage(estimates, chain_exact, levels=levels).observed
    ax.plot(levels, observed, style, color="black", markerfacecolor="white", label=name)
ax.set(xlabel="nominal level", ylabel="share of intervals that hold the truth")
ax.set(xlim=(0, 1), ylim=(0, 1.02), title="Chain of 15 sites, 100 nodes, 80 repeats")
ax.legend(loc="lower right")
plt.show()

# %% [markdown]
# So the bars are a good guide where the function looks like what the kernel expects, as here, and
# too short where its interesting part has not been seen, as in the first example. Nothing that
# looks at the values alone can know about a part it has not seen.
