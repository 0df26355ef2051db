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
# # The sales data: when ten nodes are not enough
#
# Quarterly sales of one article of clothing, 3168 small counts, from the paper that revived the
# Conway-Maxwell-Poisson distribution (Shmueli and others, 2005). Its probability
# $\lambda^x / (x!)^\nu / Z(\lambda, \nu)$ needs the infinite sum
# $Z(\lambda, \nu) = \sum_x \lambda^x / (x!)^\nu$. Kang, Briol, Karvonen and Chen use these data to
# try BayesSum with ten nodes. This notebook repeats that, looks at what happens, and then gets the
# right answer.

# %%
import logging
import warnings

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from scipy.optimize import minimize
from scipy.special import gammaln

import pymc_bayessum as pbs

logging.getLogger("pymc").setLevel(logging.ERROR)
plt.rcParams |= {"figure.dpi": 110, "font.size": 10, "image.cmap": "cividis"}
SEED = 7

histogram = pbs.datasets.sales(histogram=True)
x, frequency = histogram["sales"].to_numpy(), histogram["frequency"].to_numpy()
n = frequency.sum()
mean = (frequency @ x) / n
variance = (frequency @ (x - mean) ** 2) / n
print(f"{n} counts, mean {mean:.2f}, variance {variance:.2f}, largest {x.max()}")

# %% [markdown]
# ## The exact answer
#
# The log-likelihood is $T_1 \log\lambda - T_2 \nu - n \log Z(\lambda, \nu)$ with two sums of the
# data, so all the difficulty is in $\log Z$. `pbs.cmp_log_z` has it to rounding.

# %%
t1, t2 = frequency @ x, frequency @ gammaln(x + 1.0)


def log_likelihood(log_z, log_lam, nu):
    return t1 * log_lam - t2 * nu - n * log_z(log_lam, nu)


def maximise(log_z):
    best = minimize(
        lambda p: -log_likelihood(log_z, *p) / n,
        x0=[0.0, 0.2],
        method="Nelder-Mead",
        bounds=[(-3.0, 3.0), (0.0, 3.0)],
        options={"xatol": 1e-9, "fatol": 1e-13},
    )
    return np.exp(best.x[0]), best.x[1], -best.fun * n


lam, nu, top = maximise(pbs.cmp_log_z)
print(f"lam = {lam:.5f}, nu = {nu:.5f}, log-likelihood {top:.3f}")

# %% [markdown]
# Far more spread than Poisson ($\nu = 1$), not quite geometric ($\nu = 0$).
#
# ## Ten nodes
#
# The sum is written as an expectation under a Poisson distribution with the mean of the data, and
# estimated from the nodes 0 to 9 with a Brownian-motion kernel. The plain kernel $\min(x, y)$ is
# zero at $x = 0$: it claims that the summand vanishes there, and the largest term of the sum is
# lost. `Brownian(1.0)`, our default, is $\min(x, y) + 1$ and has no such blind spot. We try both.


# %%
def rule_log_z(rule):
    return lambda log_lam, nu: rule.log_sum(rule.nodes * log_lam - nu * gammaln(rule.nodes + 1.0))


rules = {
    "min(x, y)": pbs.poisson_rule(mean, nodes=np.arange(1, 10), kernel=pbs.kernels.Brownian(0.0)),
    "min(x, y) + 1": pbs.poisson_rule(mean, nodes=np.arange(10)),
}
print(f"{'kernel':15}{'log Z off by':>13}{'best lam':>10}{'best nu':>9}{'log-likelihood':>16}")
print(f"{'(exact)':15}{0:13.3f}{lam:10.4f}{nu:9.4f}{top:16.2f}")
for name, rule in rules.items():
    log_z = rule_log_z(rule)
    error = log_z(np.log(lam), nu) - pbs.cmp_log_z(np.log(lam), nu)
    print(f"{name:15}{error:13.3f}", "{:9.4f}{:9.4f}{:16.2f}".format(*maximise(log_z)))

# %% [markdown]
# A log-likelihood above the maximum is a sign that the probabilities sum to more than one. The
# error at the true optimum does not look large, but it enters once for each of 3168 counts: .05 is
# 158 units of log-likelihood. And it grows as $\nu$ falls, because the tail beyond the last node
# grows. So both estimates run to the boundary $\nu = 0$, and an optimiser that seems to find the
# right answer was only stopped on its way. (White below: $\nu$ so close to zero that the sum does
# not end, or ends beyond what any normaliser here answers for.)

# %%
lams, nus = np.linspace(0.7, 1.3, 61), np.linspace(0.0, 0.35, 61)
shown = {"exact": pbs.cmp_log_z, "ten nodes": rule_log_z(rules["min(x, y) + 1"])}
fig, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
for ax, (name, log_z) in zip(axes, shown.items(), strict=True):
    surface = np.full((len(nus), len(lams)), np.nan)
    for i, one_nu in enumerate(nus):
        for j, one_lam in enumerate(lams):
            if one_nu > 0 or one_lam < 1:
                surface[i, j] = log_likelihood(log_z, np.log(one_lam), one_nu)
    best = maximise(log_z)
    below = np.array([-1000, -500, -200, -100, -50, -20, -5, 0])
    bands = ax.contourf(lams, nus, surface - best[2], levels=below, extend="min")
    ax.contour(lams, nus, surface - best[2], levels=below, colors="white", linewidths=0.4)
    ax.plot(*best[:2], "o", color="black", markersize=7, clip_on=False, label="its maximum")
    ax.plot(lam, nu, "*", color="white", markeredgecolor="black", markersize=13, label="the truth")
    ax.set(xlabel=r"$\lambda$", title=name)
axes[0].set_ylabel(r"$\nu$")
axes[1].legend(loc="upper left")
fig.colorbar(bands, ax=axes, label="log-likelihood below its maximum")
plt.show()

# %% [markdown]
# ## What the check says
#
# We would not have known the exact answer. So: sample the model with the ten nodes as PyMC would,
# and ask.


# %%
def build(normalizer=None):
    with pm.Model() as model:
        lam = pm.LogNormal("lam", 0.0, 1.0)
        nu = pm.HalfNormal("nu", 1.0)
        counts = pbs.datasets.sales()["sales"]
        pbs.CMP("sales", lam=lam, nu=nu, normalizer=normalizer, observed=counts)
    return model


settings = dict(
    draws=500, tune=500, chains=2, cores=1, random_seed=SEED, progressbar=False, quiet=True
)
ten_nodes = build(rules["min(x, y) + 1"])
with ten_nodes, warnings.catch_warnings():
    warnings.simplefilter("ignore")
    draws = pm.sample(**settings)
r_hat = az.rhat(draws).to_dataset().to_array().max()
print(f"divergences: {int(draws['sample_stats']['diverging'].sum())}, r_hat: {float(r_hat):.3f}")
checked = pbs.check_normalizer(draws, ten_nodes, draws=200, progressbar=False)
print(checked["normalizer"].attrs["report"])

# %% [markdown]
# The verdict is clear; the first line is all that the sampler says. The picture: the error of
# $\log Z$ on every draw, against what the rule says of itself, and how uneven the weights would
# be that lead to the right posterior. (A Pareto k far off the scale is drawn at its top, with its
# value beside it.)

# %%
pbs.plot_normalizer(checked)
plt.show()

# %% [markdown]
# ## The default
#
# Leave `normalizer` out and nothing has to be chosen.

# %%
exact = build()
with exact:
    right = pm.sample(**settings)
verdict = pbs.check_normalizer(right, exact, draws=200, progressbar=False)
print(verdict["normalizer"].attrs["report"])

# %%
fig, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
clouds = [("ten nodes", draws, "^", "0.75"), ("default", right, "o", "0.3")]
for name, idata, marker, shade in clouds:
    posterior = idata.posterior
    ax.plot(
        posterior["lam"].values.ravel()[::4],
        posterior["nu"].values.ravel()[::4],
        marker,
        color=shade,
        markersize=3,
        linestyle="none",
        label=f"posterior, {name}",
    )
ax.plot(lam, nu, "*", color="white", markeredgecolor="black", markersize=14, label="exact maximum")
ax.set(xlabel=r"$\lambda$", ylabel=r"$\nu$")
ax.legend(loc="upper left")
plt.show()

# %% [markdown]
# The lesson is not that quadrature fails. The same ten evaluations are plenty for a summand that
# ends at nine; here six percent of the counts, and far more of the sum when $\nu$ is small, lie
# beyond. A rule sees what its nodes see. That is why the check is part of the package,
# and why `CMP` comes with nodes that reach as far as the sum does.
