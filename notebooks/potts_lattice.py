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
# # Couplings on a lattice
#
# Ten small images, each a 10 by 10 lattice of three colours. Neighbours like to agree; how much?
# In a Potts model the probability of an image is
#
# $$p(x) = \frac{1}{Z(h, J)} \exp\Big(\sum_i h(x_i) + J \sum_{(i, j)} [x_i = x_j]\Big)$$
#
# with a field $h$ for the colours and a coupling $J$ over all neighbouring pairs. $Z$ is a sum over
# $3^{100}$ images. This notebook estimates $h$ and $J$ without the constant (pseudo-likelihood),
# with it (the posterior mode), and then samples the whole posterior with NUTS.

# %%
import logging

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_bayessum as pbs

logging.getLogger("pymc").setLevel(logging.ERROR)
plt.rcParams |= {"figure.dpi": 110, "font.size": 10, "image.cmap": "cividis"}

SIDE, N_IMAGES = 10, 10
TRUE_H, TRUE_J = np.array([0.15, 0.0, -0.15]), 0.6
edges = pbs.graphs.grid(SIDE, SIDE)
model_of_images = pbs.Potts.dist(
    h=TRUE_H, J=TRUE_J, edges=edges, n_sites=SIDE**2, shape=(N_IMAGES, SIDE**2)
)
images = pm.draw(model_of_images, random_seed=11)

fig, axes = plt.subplots(1, 5, figsize=(9, 2.1), layout="constrained")
for ax, image in zip(axes, images, strict=False):
    ax.imshow(image.reshape(SIDE, SIDE), vmin=0, vmax=2)
    ax.set(xticks=[], yticks=[])
fig.suptitle("Five of the ten images")
plt.show()

# %% [markdown]
# ## Without the constant
#
# The pseudo-likelihood multiplies the probabilities of each site given its neighbours, which need
# no constant. It is fast, and a good place to start; but neighbours share data, so the curvature
# of the pseudo-likelihood promises too much certainty.

# %%
shapes = {"field_kind": "shared", "coupling_kind": "scalar"}
pseudo = pbs.pseudo_likelihood(images, edges, **shapes)
print(f"J = {float(pseudo.J):.3f} (true {TRUE_J})")

# %% [markdown]
# ## With the constant: the mode
#
# `fit_potts` climbs the full posterior. The constant is not computed anew at every step: images are
# drawn at an anchor, and $\log Z(\theta)$ nearby follows from the draws. When the climb has gone
# too far for them, a new anchor is set, the last one next to the mode.

# %%
fit = pbs.fit_potts(images, edges, **shapes, n=20_000, rng=12, progressbar=False)
h_sd, J_sd = fit.sd
print(f"J = {float(fit.J):.3f} +- {float(J_sd):.3f} (true {TRUE_J})")
print("h =", np.round(fit.h - fit.h.mean(), 3), "(true", f"{TRUE_H})")
print(f"anchors: {len(fit.history)}; error of the mode {fit.mode_error:.3f} posterior sd")
print(fit.advice)

# %% [markdown]
# ## With the constant: the posterior
#
# The last anchor becomes the normaliser of a PyMC model. Adding a number to all of $h$ changes
# nothing, so $h$ gets a prior that sums to zero.

# %%
with pm.Model(coords={"colour": [0, 1, 2]}) as model:
    h = pm.ZeroSumNormal("h", sigma=1.0, dims="colour")
    J = pm.Normal("J", 0.0, 1.0)
    pbs.Potts("x", h, J, edges=edges, observed=images, normalizer=fit.normalizer)
    idata = pm.sample(
        500, tune=500, chains=2, cores=1, random_seed=13, progressbar=False, quiet=True
    )
draws = idata.posterior["J"].values.ravel()
print(f"J = {draws.mean():.3f} +- {draws.std():.3f} (true {TRUE_J})")
print(
    "h =", np.round(idata.posterior["h"].mean(("chain", "draw")).values, 3), "(true", f"{TRUE_H})"
)

# %%
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.3), layout="constrained")
left.hist(draws, bins=30, color="0.8", edgecolor="0.4", density=True)
for value, style, name in [
    (float(pseudo.J), ":", "pseudo-likelihood"),
    (float(fit.J), "--", "mode"),
    (TRUE_J, "-", "true"),
]:
    left.axvline(value, linestyle=style, color="black", label=name)
left.set(xlabel="J", ylabel="posterior density")
left.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)

posterior_h = idata.posterior["h"].stack(sample=("chain", "draw")).values
low, high = np.quantile(posterior_h, [0.03, 0.97], axis=1)
right.vlines(range(3), low, high, color="black")
right.plot(range(3), posterior_h.mean(axis=1), "o", color="black", label="posterior, 94% interval")
right.plot(range(3), TRUE_H, "x", color="black", markersize=9, label="true")
right.set(xlabel="colour", ylabel="h", xticks=range(3), xlim=(-0.5, 2.5))
right.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
plt.show()

# %% [markdown]
# ## Was it good enough?
#
# A lattice of width 10 is at the edge of what can be summed exactly, by eliminating one site after
# the other: too slow to sample with, but fast enough to judge two hundred draws by.

# %%
checked = pbs.check_normalizer(idata, model, draws=200, progressbar=False)
print(checked["normalizer"].attrs["report"])

# %% [markdown]
# Two numbers there deserve a word. $\log Z$ is off by 150 because `fit_potts` does not spend time
# on its value at the anchor: a constant drops out of every posterior. What counts is how the error
# *varies* over the draws, and that is the small standard deviation in the line of the
# log-likelihood. (`pbs.anchored_rule` estimates the value too, for those who compare models.)
