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
# # An image that nobody has seen
#
# A picture of 48 x 48 pixels shows three kinds of tissue, under noise almost as large as the
# difference between them. Which pixel is what, how sure can we be, and how much do neighbours have
# to say?
#
# Labels $z$ follow a Potts model, $p(z) \propto \exp(J \sum_{(i,j)} [z_i = z_j])$, and a pixel is
# normal around the mean of its label. Labels, means, noise and the coupling $J$ are all unknown.
# The constant of the Potts model, a sum over $3^{2304}$ images, is what stands between the labels
# and their coupling.

# %%
import logging
import warnings

import arviz_stats as azs
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from pymc.distributions.transforms import ordered

import pymc_bayessum as pbs

warnings.filterwarnings("ignore", category=FutureWarning)
warnings.filterwarnings("ignore", message=".*ipywidgets|overflow encountered")
logging.getLogger("pymc").setLevel(logging.ERROR)

# %% [markdown]
# ## What there is, and what is seen
# The labels are a draw from the model at $J = .95$, not far below the point where one label takes
# over the whole lattice ($\log(1 + \sqrt 3) = 1.005$).

# %%
side, n_labels = 48, 3
edges = pbs.graphs.grid(side, side)
true_J, true_m, true_s = 0.95, np.array([0.0, 1.0, 2.0]), 0.75
labels = pm.draw(pbs.Potts.dist(None, true_J, edges, n_states=n_labels), random_seed=4)
image = np.random.default_rng(4).normal(true_m[labels], true_s)

fig, axes = plt.subplots(1, 2, figsize=(8, 4), layout="constrained")
for ax, values, title in zip(axes, (labels, image), ("hidden", "seen"), strict=True):
    ax.imshow(values.reshape(side, side), interpolation="none")
    ax.set(title=title, xticks=[], yticks=[])
plt.show()

# %% [markdown]
# ## The model
# As it would be written down. `z` has no `observed`. On a lattice of this width there is no exact
# sum, and there are no labels to anchor an approximation at; log Z is followed over the prior of
# $J$ instead, once, here. Ordered means give the labels their names.

# %%
with pm.Model(coords={"tissue": ["dark", "grey", "bright"]}) as model:
    J = pm.HalfNormal("J", 0.5)
    start = np.quantile(image, [0.2, 0.5, 0.8])
    m = pm.Normal("m", 1.0, 2.0, dims="tissue", transform=ordered, initval=start)
    s = pm.HalfNormal("s", 1.0)
    z = pbs.Potts("z", J=J, edges=edges, n_states=n_labels)
    pm.Normal("y", m[z], s, observed=image)

curve = pbs.find_normalizers(model)[0].rule
low, high = curve.limits
print(f"log Z followed from J = {low:.2f} to {high:.2f}, {len(curve.knots)} knots")

# %% [markdown]
# ## Sampling
# `pm.sample` sees that `z` are hidden labels and gives them `pbs.LabelStep`: all 2304 at once, by
# cluster moves and Gibbs sweeps with the likelihood as a field. NUTS does the rest. Convergence is
# looked at for the parameters; 2304 separate checks of labels would take longer than all else.

# %%
with model:
    idata = pm.sample(
        400,
        tune=400,
        chains=2,
        random_seed=1,
        progressbar=False,
        compute_convergence_checks=False,
    )
azs.summary(idata.posterior.to_dataset()[["J", "m", "s"]])

# %% [markdown]
# ## Posterior labels
# Each pixel has its probabilities; together they are images. Where tissues meet nobody can be sure.

# %%
probabilities = pbs.label_probabilities(idata, "z", shape=(side, side))
best = probabilities.argmax("label")
sure = probabilities.max("label")
nearest = np.abs(image[:, None] - true_m).argmin(axis=1)

fig, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
by_value = nearest.reshape(side, side), "each pixel by its value", "viridis"
by_model = best, "most probable label", "viridis"
certainty = sure, "its probability", "gray"
for ax, (values, title, colours) in zip(axes, (by_value, by_model, certainty), strict=True):
    drawn = ax.imshow(values, interpolation="none", cmap=colours)
    ax.set(title=title, xticks=[], yticks=[])
fig.colorbar(drawn, ax=axes[-1])
plt.show()

print(f"right by value, with the true means: {(nearest == labels).mean():.3f}")
print(f"right by the model:                  {(best.values.ravel() == labels).mean():.3f}")
print(f"as sure as that on average:          {float(sure.mean()):.3f}")

# %% [markdown]
# Probabilities can be taken at their word: of pixels given a probability, that share has the label.

# %%
given = probabilities.values.reshape(-1)
has = np.equal.outer(labels, np.arange(n_labels)).reshape(-1)
part = np.digitize(given, np.linspace(0.1, 0.9, 9))
stated = [given[part == k].mean() for k in range(10)]
found = [has[part == k].mean() for k in range(10)]
fig, ax = plt.subplots(figsize=(4, 4), layout="constrained")
ax.plot([0, 1], [0, 1], color="0.7")
ax.plot(stated, found, "o")
ax.set(xlabel="probability of a label", ylabel="share of pixels that have it")
plt.show()

# %% [markdown]
# ## The coupling
# It was never set. A coupling that is fixed by hand decides how smooth the labels come out; here
# the image itself says, and its uncertainty is part of everything above.

# %%
fig, ax = plt.subplots(figsize=(5, 3), layout="constrained")
ax.hist(idata.posterior["J"].values.ravel(), bins=30, color="C0")
ax.axvline(true_J, color="C1", label="of the hidden image")
ax.set(xlabel="J", yticks=[])
ax.legend()
plt.show()

# %% [markdown]
# ## Was the constant right?
# The curve of log Z was made before anything was known of $J$. Now that the posterior is there, it
# is held against chains around it.

# %%
print(pbs.check_normalizer(idata, model, random_seed=1, progressbar=False))
