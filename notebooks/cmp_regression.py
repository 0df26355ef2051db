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
# # A count regression with a free variance
#
# How many bids does a firm receive once it has become a takeover target? Cameron and Johansson
# collected 126 cases. A Poisson regression ties the variance of a count to its mean; a negative
# binomial lets it grow beyond. What if it is smaller? The Conway-Maxwell-Poisson distribution
# (CMP) has a second parameter $\nu$ that moves the variance either way, and with `mu=` its first
# parameter is still the mean.

# %%
import logging
import warnings

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_bayessum as pbs

logging.getLogger("pymc").setLevel(logging.ERROR)
plt.rcParams |= {"figure.dpi": 110, "font.size": 10, "image.cmap": "cividis"}
SEED = 20

bids = pbs.datasets.takeoverbids()
binary = ["leglrest", "rearest", "finrest", "whtknght", "regulatn"]
scaled = ["bidprem", "insthold", "size", "sizesq"]
bids[["numbids", *binary, *scaled]].describe().loc[["mean", "std", "max"]].round(2)

# %% [markdown]
# Five columns are yes/no answers: a legal defence, a restructuring of assets, one of finances, a
# friendly third-party bidder, regulators involved. The others are the premium of the first bid,
# the share held by institutions, and the size of the firm with its square. These we scale to unit
# standard deviation, and all columns are centred, so that one prior fits all and the intercept
# speaks of an average firm.

# %%
X = bids[[*binary, *scaled]].astype(float)
X = X - X.mean()
X[scaled] /= X[scaled].std()
y = bids["numbids"].to_numpy()
print(f"{len(y)} firms, mean {y.mean():.2f} bids, variance {y.var(ddof=1):.2f}")

# %% [markdown]
# The plain variance is a little above the mean, but part of it is explained by the covariates.
# What matters is the spread around the regression, and that the model has to tell.
#
# ## Three models, one regression
#
# The three models share the mean; they differ in one line, the likelihood.


# %%
def fit(likelihood):
    with pm.Model(coords={"term": X.columns.to_list()}) as model:
        intercept = pm.Normal("intercept", 0.5, 1.0)
        slopes = pm.Normal("slopes", 0.0, 0.5, dims="term")
        mu = pm.math.exp(intercept + (X.to_numpy() * slopes).sum(axis=1))
        likelihood(mu)
        idata = pm.sample(
            500, tune=500, chains=2, cores=1, random_seed=SEED, progressbar=False, quiet=True
        )
        pm.compute_log_likelihood(idata, progressbar=False)
    return model, idata


def cmp(mu):
    nu = pm.LogNormal("nu", 0.0, 1.0)
    pbs.CMP("bids", mu=mu, nu=nu, observed=y)


def poisson(mu):
    pm.Poisson("bids", mu=mu, observed=y)


def negative_binomial(mu):
    alpha = pm.LogNormal("alpha", 3.0, 1.5)
    pm.NegativeBinomial("bids", mu=mu, alpha=alpha, observed=y)


cmp_model, cmp_fit = fit(cmp)
_, poisson_fit = fit(poisson)
_, negative_binomial_fit = fit(negative_binomial)
az.summary(cmp_fit, var_names=["intercept", "slopes", "nu"], kind="stats", round_to=2)

# %% [markdown]
# Slopes act on the log of the mean, as in any Poisson regression. A friendly third party and a
# legal defence go with more bids, a high first premium with fewer. (`eti89` are the ends of the
# central 89% interval.)
#
# ## What $\nu$ says
#
# $\nu = 1$ is Poisson. Above one the counts are *less* spread than Poisson, below one *more*: the
# variance is roughly the mean divided by $\nu$.

# %%
nu = cmp_fit.posterior["nu"].to_numpy().ravel()
low, high = np.quantile(nu, [0.03, 0.97])
print(f"nu: mean {nu.mean():.2f}, 94% between {low:.2f} and {high:.2f}")
print(f"P(nu > 1) = {np.mean(nu > 1):.3f}")

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
left.hist(nu, bins=30, color="0.75", edgecolor="0.3")
left.axvline(1.0, color="black", linestyle="--")
left.text(1.02, left.get_ylim()[1] * 0.95, "Poisson", va="top")
left.set(xlabel=r"$\nu$", ylabel="posterior draws", title=r"Posterior of $\nu$")

counts = np.arange(9)
typical = float(np.exp(cmp_fit.posterior["intercept"].mean()))
for value, style, marker in [(1.0, "--", "s"), (float(nu.mean()), "-", "o")]:
    pmf = np.exp(pm.logp(pbs.CMP.dist(mu=typical, nu=value), counts).eval())
    label = rf"$\nu$ = {value:.2f}"
    right.plot(counts, pmf, style + marker, color="black", markerfacecolor="white", label=label)
right.set(xlabel="bids", ylabel="probability", title=f"An average firm, mean {typical:.2f}")
right.legend()
plt.show()

# %% [markdown]
# ## Does it predict better?
#
# Leave-one-out cross-validation compares what the three models would have predicted for each firm
# from the other 125. It warns where a single firm carries so much weight that the estimate for it
# is rough; we count those firms instead.

# %%
fits = {"CMP": cmp_fit, "Poisson": poisson_fit, "negative binomial": negative_binomial_fit}
with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)
    loos = {name: az.loo(idata, pointwise=True) for name, idata in fits.items()}
    comparison = az.compare(loos, round_to=2)
for name, loo in loos.items():
    print(f"{name}: {int((loo.pareto_k > 0.67).sum())} firms with a rough estimate")
comparison[["rank", "elpd", "p", "elpd_diff", "dse"]]

# %% [markdown]
# A tie: the differences are smaller than their standard errors (`dse`). That seems to disagree
# with the posterior of $\nu$, so let us see where the score is won and lost.

# %%
gain = loos["CMP"].elpd_i.values.ravel() - loos["Poisson"].elpd_i.values.ravel()
fig, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
ax.axhline(0.0, color="black", linewidth=0.8)
jitter = np.random.default_rng(SEED).uniform(-0.2, 0.2, len(y))
ax.plot(y + jitter, gain, "o", color="0.3", markerfacecolor="white")
ax.set(xlabel="bids (moved sideways a little)", ylabel="log score, CMP minus Poisson")
plt.show()
print(f"CMP predicts {np.sum(gain > 0)} of {len(y)} firms better;", end=" ")
print(f"the worst single firm costs it {-gain.min():.1f}, all others together bring", end=" ")
print(f"{gain.sum() - gain.min():.1f}")

# %% [markdown]
# CMP is better for most firms, by a little each, and pays for it with a few that had many bids: a
# tighter distribution is surprised more by what lies far out. So the data are under-dispersed in
# the middle, with an outlier or two, and a single $\nu$ cannot say both.
#
# ## The picture for counts: a rootogram
#
# Predicted frequencies with their intervals (diamonds, bars), and the observed ones (dots), on a
# square-root scale that gives rare and frequent counts the same eye.

# %%
with cmp_model:
    pm.sample_posterior_predictive(
        cmp_fit, extend_inferencedata=True, random_seed=SEED, progressbar=False
    )
pbs.plot_rootogram(cmp_fit)
plt.show()

# %% [markdown]
# The rootogram names the real trouble: fewer firms without a bid and more with exactly one than
# any of these models expects. CMP bends in that direction, which is what its $\nu$ above one says,
# but only a model that treats the first bid apart (`pbs.HurdleCMP`, say) would follow all the way.
#
# ## Was the normalising constant right?
#
# CMP divides by an infinite sum that has no closed form. The default is exact to rounding, and one
# line shows it on the draws themselves.

# %%
checked = pbs.check_normalizer(cmp_fit, cmp_model, draws=200, progressbar=False)
print(checked["normalizer"].attrs["report"])
