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
# # Any exponential family, in twenty lines
#
# Whatever is $p(x \mid \theta) \propto e^{\theta \cdot \phi(x)}$ on discrete states fits in PyMC
# with its constant: give the statistics and one way to draw. Here: rankings of twelve items near a
# known order, by the footrule, for which no closed form of the constant is known.

# %%
import logging
import warnings

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_bayessum as pbs

warnings.filterwarnings("ignore")
logging.getLogger("pymc").setLevel(logging.ERROR)

# %% [markdown]
# ## From statistics to a posterior
#
# The statistic is minus the distance from the known order; a proposal swaps two items.


# %%
def footrule(x):
    return -np.abs(x - np.arange(x.shape[1])).sum(axis=1).reshape(-1, 1)


def swap(state, rng):
    i, j = rng.integers(0, len(state)), rng.integers(0, len(state))
    kept = state[i]
    state[i] = state[j]
    state[j] = kept
    return state


family = pbs.Family(footrule, propose=swap, start=np.arange(12), names=["footrule"])
rankings = family.sample([0.25], 8, np.random.default_rng(3))
rankings

# %%
with pm.Model() as model:
    theta = pm.HalfNormal("theta", 1.0, shape=1)
    pbs.ExponentialFamily("rankings", theta, family=family, observed=rankings)
    idata = pm.sample(500, tune=500, chains=2, cores=1, random_seed=1, progressbar=False)
az.summary(idata, var_names="theta")

# %% [markdown]
# ## Is it right?
#
# The check compares the constant with fresh draws around the posterior.

# %%
print(pbs.check_normalizer(idata, model, progressbar=False))

# %% [markdown]
# Whether the sampler does what it should is asked on a small instance, where all rankings can be
# listed: draws must have the moments of the list, and exact draws must stay exact when moved on.

# %%
from itertools import permutations

every = np.array(list(permutations(range(6))))
pbs.Family(footrule, propose=swap, start=np.arange(6), support=every).verify()

# %% [markdown]
# ## The posterior of the distance, and what it predicts

# %%
with model:
    predicted = pm.sample_posterior_predictive(
        idata.isel(draw=slice(None, None, 5)), random_seed=2, progressbar=False
    )
drawn = predicted.posterior_predictive["rankings"].values.reshape(-1, 8, 12)
mean_distance = [-footrule(sample).mean() for sample in drawn]
figure, axes = plt.subplots(figsize=(6, 3))
axes.hist(mean_distance, bins=30, color="lightgrey")
axes.axvline(-footrule(rankings).mean(), color="black")
axes.set_xlabel("mean footrule distance: line observed, bars predicted")
