"""Fits that are badly wrong must not pass, whatever their reference grows from."""

import networkx as nx
import numpy as np
import pymc as pm
import xarray as xr

import pymc_bayessum as pbs


def posterior_on(grid, model):
    """Draws of a model of one variable J, from its log-probability on a grid."""
    logp = model.compile_logp()
    log_mass = np.array([logp({"J": j}) for j in grid])
    mass = np.exp(log_mass - log_mass.max())
    draws = np.random.default_rng(0).choice(grid, size=(2, 200), p=mass / mass.sum())
    return xr.Dataset({"J": (("chain", "draw"), draws)})


def verdict(posterior, model):
    checked = pbs.check_normalizer(posterior, model, progressbar=False, random_seed=1)
    return checked["normalizer"].attrs


def test_an_anchor_far_from_the_data():
    """Draws at a coupling six posterior sds away: the posterior ends up nowhere near the data."""
    torus = nx.convert_node_labels_to_integers(nx.grid_2d_graph(15, 15, periodic=True))
    edges = pbs.graphs.from_networkx(torus)
    image = pm.draw(pbs.Ising.dist(None, 0.38, edges, n_sites=225), random_seed=3)[None]
    rule = pbs.anchored_rule(None, 0.56, edges, ising=True, n=2000, rng=1, n_sites=225)
    with pm.Model() as model:
        J = pm.Normal("J")
        pbs.Ising("x", None, J, edges, observed=image, normalizer=rule)
    posterior = posterior_on(np.linspace(-1.0, 1.0, 4001), model)
    assert abs(float(posterior["J"].mean()) - 0.38) > 0.3
    found = verdict(posterior, model)
    assert found["verdict"] == "not to be trusted"
    assert "V is" in found["reason"]


def test_a_plain_rule_on_a_uniform_base_at_strong_coupling():
    """Fresh nodes of the same base would agree with it; elimination does not."""
    edges = pbs.graphs.grid(6, 6)
    base = pbs.measures.UniformCategorical(36, 3)
    nodes = base.sample_distinct(200, 1)
    rule = pbs.bayes_sum(pbs.kernels.ExpHamming(0.1), base, nodes)
    image = pm.draw(pbs.Potts.dist(None, 1.2, edges, n_states=3), random_seed=2)[None]
    with pm.Model() as model:
        J = pm.Normal("J")
        pbs.Potts("x", None, J, edges, n_states=3, observed=image, normalizer=rule)
    found = verdict(posterior_on(np.linspace(0.0, 4.0, 401), model), model)
    assert found["verdict"] == "not to be trusted"


def test_draws_without_numbers_are_corrected_by_their_own_weights():
    """Thinned draws that bear no labels must not get the weights of the first ones."""
    with pm.Model() as model:
        rate = pm.HalfNormal("rate")
        rule = pbs.geometric_rule(0.3, n=12)
        y = (np.random.default_rng(1).geometric(0.25, 40) - 1).clip(max=11)
        pbs.Unnormalized("y", lambda x, rate: -rate * x, rate, rule=rule, observed=y)
    # The later draws are far off, so that weights tell the former from the latter.
    draws = np.sort(np.random.default_rng(2).normal(0.3, 0.05, 400))[None]
    tree = xr.DataTree.from_dict({"posterior": xr.Dataset({"rate": (("chain", "draw"), draws)})})
    checked = pbs.check_normalizer(tree, model, draws=100, progressbar=False)
    group = checked["normalizer"]
    assert group["draw"].values.max() == 399
    if group.attrs["verdict"] != "not to be trusted":
        kept = tree["posterior"]["rate"].values[:, group["draw"].values]
        weighted = float((np.exp(group["log_weight"].values) * kept).sum())
        corrected = pbs.correct(checked, random_seed=1)["posterior"]["rate"]
        assert abs(float(corrected.mean()) - weighted) < 0.2 * draws.std()
