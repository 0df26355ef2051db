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
# # Random networks: the Florentine families
#
# Which families of fifteenth-century Florence married into which? An exponential random graph model
# says how probable a network $y$ is by what it counts in it,
# $p(y \mid \theta) = e^{\theta \cdot \phi(y)} / Z(\theta)$. The constant sums over all networks on
# fifteen nodes, $2^{105}$ of them. Here it is estimated from networks drawn near the posterior,
# NUTS does the rest, and a check says whether that was good enough.

# %%
import logging
import warnings

import arviz as az
import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pymc as pm

import pymc_bayessum as pbs

warnings.filterwarnings("ignore")
logging.getLogger("pymc").setLevel(logging.ERROR)
families = nx.florentine_families_graph()

# %%
figure, axes = plt.subplots(figsize=(7, 4.5))
nx.draw_networkx(families, nx.kamada_kawai_layout(families), node_color="lightgrey", ax=axes)
axes.axis("off")
# %% [markdown]
# ## Ties and shared partners
#
# `edges()` sets the density; `gwesp(0.5)` counts ties whose ends have partners in common, each
# further partner for less. A positive parameter means clustering beyond what density explains.

# %%
terms = [pbs.ergm.edges(), pbs.ergm.gwesp(0.5)]
with pm.Model(coords={"term": ["edges", "gwesp"]}) as model:
    theta = pm.Normal("theta", 0.0, 2.0, dims="term")
    pbs.ERGM("ties", theta, terms=terms, observed=families)
    idata = pm.sample(500, tune=500, chains=2, cores=1, random_seed=1, progressbar=False)
az.summary(idata, var_names="theta")

# %% [markdown]
# No clustering to speak of: the families had few triangles for their density. Was the constant good
# enough over this posterior?

# %%
print(pbs.check_normalizer(idata, model, progressbar=False))

# %% [markdown]
# ## Does the model explain the network?
#
# Networks drawn from the posterior predictive, beside the observed one: degrees, shared partners of
# ties, distances between families (the last one: not connected).

# %%
with model:
    predicted = pm.sample_posterior_predictive(
        idata.isel(draw=slice(None, None, 5)), random_seed=2, progressbar=False
    )
pbs.plot_network_fit(predicted, backend="matplotlib")
# %% [markdown]
# ## Independent ties are exact
#
# Did connected families differ in how many councillors, or how much wealth, they had? With terms
# that weigh single ties the constant is a product over pairs, whatever the size. As a stand-in for
# wealth, known for some of the families only, take who was among the three richest.

# %%
rich = np.array([float(name in {"Medici", "Strozzi", "Barbadori"}) for name in families])
with pm.Model(coords={"term": ["edges", "rich"]}) as with_wealth:
    theta = pm.Normal("theta", 0.0, 2.0, dims="term")
    pbs.ERGM("ties", theta, terms=[pbs.ergm.edges(), pbs.ergm.nodecov(rich)], observed=families)
    wealthy = pm.sample(500, tune=500, chains=2, cores=1, random_seed=1, progressbar=False)
az.summary(wealthy, var_names="theta")

# %% [markdown]
# ## A model that cannot work
#
# Triangles without diminishing returns, on a sparse network of 34 people: the model is degenerate.
# It says so, and what to use.

# %%
warnings.filterwarnings("always", message="the fit will need")
club = nx.Graph(nx.karate_club_graph().edges)
with warnings.catch_warnings(record=True) as told, pm.Model():
    theta = pm.Normal("theta", 0.0, 2.0, shape=2)
    pbs.ERGM("ties", theta, terms=[pbs.ergm.edges(), pbs.ergm.triangles()], observed=club)
print(told[-1].message)
