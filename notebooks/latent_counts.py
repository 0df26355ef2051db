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
# # Birds: what detection hides
#
# A hundred and fifty sites are visited six times. Every bird that is there is heard about every
# second time, so no count is the number of birds, and the largest of six is not either. How many
# birds are there, and does forest cover matter to the birds or to the listener?
#
# The number of birds $N_s$ at a site is a latent count. It is summed out of the likelihood,
# $p(y_s) = \sum_N p(N) \prod_t p(y_{st} \mid N)$, which leaves parameters that NUTS can sample. The
# usual way cuts the sum off at some K. `pbs.LatentCount` has no K.

# %%
import logging
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_bayessum as pbs

warnings.filterwarnings("ignore", category=FutureWarning)
logging.getLogger("pymc").setLevel(logging.ERROR)

# %% [markdown]
# ## The survey
# Forest draws birds (slope 0.8 on the log scale) and muffles them (slope -0.7 on the logit scale).
#
# One survey of many: with 60 sites and 4 visits, and with another seed, the slope came out as .31
# (sd .24), and a further survey of this size was three sds off in its level. Half the birds unheard
# leave a good deal to chance.

# %%
rng = np.random.default_rng(1)
n_sites, n_visits = 150, 6
forest = rng.uniform(-1.0, 1.0, n_sites)
birds = rng.poisson(np.exp(2.3 + 0.8 * forest))
heard = 1.0 / (1.0 + np.exp(0.2 + 0.7 * forest))
y = rng.binomial(birds[:, None], heard[:, None], (n_sites, n_visits))
print(f"{birds.sum()} birds; largest counts of each site add up to {y.max(axis=1).sum()}")

# %% [markdown]
# ## Without the latent count
# A Poisson regression of the counts sees birds times detection: the effect of forest on birds and
# that on hearing them come out as one.

# %%
settings = {"chains": 2, "cores": 1, "progressbar": False, "random_seed": 1}
with pm.Model() as naive:
    level, slope = pm.Normal("level", 2.0, 2.0), pm.Normal("slope", 0.0, 1.0)
    pm.Poisson("y", pm.math.exp(level + slope * forest)[:, None], observed=y)
    naive_idata = pm.sample(500, tune=500, **settings)
naive_slope = naive_idata["posterior"]["slope"]
mean, sd = float(naive_slope.mean()), float(naive_slope.std())
print(f"slope on forest {mean:.2f} (sd {sd:.2f}), truth 0.8")

# %% [markdown]
# ## With it

# %%
with pm.Model(coords={"site": np.arange(n_sites), "visit": np.arange(n_visits)}) as model:
    level, slope = pm.Normal("level", 2.0, 2.0), pm.Normal("slope", 0.0, 1.0)
    ease, muffle = pm.Normal("ease", 0.0, 1.0), pm.Normal("muffle", 0.0, 1.0)
    p = pm.math.sigmoid(ease + muffle * forest)[:, None]
    pbs.LatentCount(
        "y",
        latent=pm.Poisson.dist(pm.math.exp(level + slope * forest)),
        given=lambda n: pm.Binomial.dist(n, p),
        observed=y,
        dims=("site", "visit"),
    )
    idata = pm.sample(500, tune=500, **settings)
for name, truth in (("level", 2.3), ("slope", 0.8), ("ease", -0.2), ("muffle", -0.7)):
    draws = idata["posterior"][name]
    print(f"{name:7s} {float(draws.mean()):6.2f} (sd {float(draws.std()):.2f}), truth {truth}")

# %% [markdown]
# ## Was the sum good enough?
# The check adds the counts up one by one at draws of the posterior, and says if they run away:
# with fewer visits the data could not tell many quiet birds from few loud ones.

# %%
checked = pbs.check_normalizer(idata, model, draws=100, progressbar=False)
print(checked["normalizer"].attrs["report"])

# %% [markdown]
# ## The birds themselves

# %%
few = idata["posterior"].to_dataset().isel(draw=slice(0, None, 10))
counts = pbs.LatentCount.draw_latent(few, model, random_seed=2)["y_latent"]
low, middle, high = np.quantile(counts, [0.05, 0.5, 0.95], axis=(0, 1))
order = np.argsort(birds)
figure, axis = plt.subplots(figsize=(8, 3.5), layout="constrained")
axis.vlines(range(n_sites), low[order], high[order], color="C0", alpha=0.5, label="90% of N")
axis.plot(middle[order], "C0.", label="median")
axis.plot(birds[order], "k+", label="birds")
axis.plot(y.max(axis=1)[order], "C1_", label="largest count")
axis.set(xlabel="site, by its birds", ylabel="count")
axis.legend(ncols=4, loc="upper left")
inside = float(np.mean((birds >= low) & (birds <= high)))
total = counts.sum("site")
print(f"{inside:.0%} of the sites within their 90%")
print(f"all birds {int(total.mean())}, truth {birds.sum()}")
