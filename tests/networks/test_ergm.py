"""Random graph models against the list of all networks, closed forms and conditioning by hand."""

import itertools

import networkx as nx
import numpy as np
import pymc as pm
import pytest
from scipy.special import logsumexp, softmax

import pymc_bayessum as pbs
from pymc_bayessum.networks import family as module
from pymc_bayessum.networks.family import network_family
from pymc_bayessum.normalizers.anchored.estimated import Estimated
from pymc_bayessum.normalizers.anchored.rule import anchored

EDGES = pbs.ergm.edges()


def network_of(n_nodes, seed, density=0.4):
    ties = np.triu(np.random.default_rng(seed).random((n_nodes, n_nodes)) < density, 1)
    return (ties | ties.T).astype(int)


def model_of(terms, observed, **kwargs):
    with pm.Model() as model:
        theta = pm.Normal("theta", 0.0, 2.0, shape=len(terms))
        pbs.ERGM("y", theta, terms=terms, observed=observed, **kwargs)
    return model


def grid_posteriors(model, family, statistics, n=41):
    """Posterior on a grid by the model, and by the list of all networks."""
    rows, times = family.listing
    first, second = np.linspace(-7.0, 5.0, n), np.linspace(-5.0, 5.0, n)
    grid = np.array(list(itertools.product(first, second)))
    exact = grid @ statistics - logsumexp(grid @ rows.T + np.log(times), axis=1)
    exact -= (grid**2).sum(axis=1) / 8.0
    logp = model.compile_logp()
    found = np.array([logp({"theta": point}) for point in grid])
    return softmax(found), softmax(exact)


@pytest.mark.parametrize("second", [pbs.ergm.triangles(), pbs.ergm.gwesp(0.5)])
@pytest.mark.parametrize("normalizer", [None, "anchored"])
def test_six_nodes_against_all_graphs(second, normalizer):
    network = network_of(6, 3)
    terms = [EDGES, second]
    model = model_of(terms, network, normalizer=normalizer)
    family = network_family(terms, 6)
    statistics = np.array([term.count(network) for term in terms])
    found, exact = grid_posteriors(model, family, statistics)
    assert np.abs(found - exact).sum() / 2 < (0.01 if normalizer else 1e-10)


def test_seven_nodes_are_exact():
    network = network_of(7, 1)
    terms = [EDGES, pbs.ergm.gwesp(0.5)]
    model = model_of(terms, network)
    rows, times = network_family(terms, 7).listing
    theta = np.array([-0.7, 0.4])
    statistics = np.array([term.count(network) for term in terms])
    wanted = theta @ statistics - logsumexp(rows @ theta + np.log(times))
    found = model.compile_logp(vars=model.observed_RVs)({"theta": theta})
    assert np.isclose(found, wanted, rtol=1e-10)


def test_independent_ties_are_logistic_at_any_size():
    graph = nx.florentine_families_graph()
    wealth = np.linspace(-1.0, 1.0, 15)
    terms = [EDGES, pbs.ergm.nodecov(wealth)]
    model = model_of(terms, graph)
    theta = np.array([-1.3, 0.6])
    upper = np.triu_indices(15, 1)
    energy = theta[0] + theta[1] * np.add.outer(wealth, wealth)[upper]
    ties = nx.to_numpy_array(graph)[upper]
    wanted = (ties * energy - np.logaddexp(0.0, energy)).sum()
    found = model.compile_logp(vars=model.observed_RVs)({"theta": theta})
    assert np.isclose(found, wanted, rtol=1e-12)


def test_directed_networks_against_all_graphs():
    rng = np.random.default_rng(0)
    network = (rng.random((4, 4)) < 0.5).astype(int) * (1 - np.eye(4, dtype=int))
    terms = [EDGES, pbs.ergm.mutual(), pbs.ergm.triangles()]
    model = model_of(terms, nx.from_numpy_array(network, create_using=nx.DiGraph))
    every = []
    for ties in itertools.product([0, 1], repeat=12):
        other = np.zeros((4, 4))
        other[~np.eye(4, dtype=bool)] = ties
        every.append([term.count(other, directed=True) for term in terms])
    theta = np.array([-0.4, 0.8, 0.1])
    wanted = theta @ [term.count(network, directed=True) for term in terms]
    wanted -= logsumexp(np.array(every) @ theta)
    found = model.compile_logp(vars=model.observed_RVs)({"theta": theta})
    assert np.isclose(found, wanted, rtol=1e-10)


def completions(network, pairs):
    for ties in itertools.product([0, 1], repeat=len(pairs)):
        other = network.copy()
        for (i, j), tie in zip(pairs, ties, strict=True):
            other[i, j] = other[j, i] = tie
        yield other


# One unknown dyad cannot tell the terms apart, which the whole family does.
@pytest.mark.parametrize("pairs", [[(0, 1), (2, 4), (1, 3)], [(0, 1)]], ids=["three", "one"])
def test_unknown_dyads_are_summed_out(pairs):
    network = network_of(5, 2)
    observed = network.astype(float)
    for i, j in pairs:
        observed[i, j] = observed[j, i] = np.nan
    terms = [EDGES, pbs.ergm.triangles()]
    model = model_of(terms, observed)
    rows, times = network_family(terms, 5).listing
    theta = np.array([-0.5, 0.7])
    some = [[term.count(one) for term in terms] for one in completions(network, pairs)]
    wanted = logsumexp(np.array(some) @ theta) - logsumexp(rows @ theta + np.log(times))
    found = model.compile_logp(vars=model.observed_RVs)({"theta": theta})
    assert np.isclose(found, wanted, rtol=1e-10)


def test_unknown_dyads_too_many_to_list_are_anchored(monkeypatch):
    network, pairs = network_of(6, 2), [(i, j) for i in range(2) for j in range(2, 6)]
    observed = network.astype(float)
    for i, j in pairs:
        observed[i, j] = observed[j, i] = np.nan
    terms = [EDGES, pbs.ergm.triangles()]
    rows, times = network_family(terms, 6).listing
    some = np.array([[term.count(one) for term in terms] for one in completions(network, pairs)])
    # As if the completions were too many: all networks are listed still.
    listed = module.listed
    monkeypatch.setattr(
        module, "listed", lambda *of: listed(*of) if len(of[-1]) > len(pairs) else None
    )
    model = model_of(terms, observed)
    logp = model.compile_logp(vars=model.observed_RVs, mode="FAST_COMPILE")
    # Known up to a constant, about the posterior.
    thetas = np.array([[-0.5, 0.2], [-0.2, -0.1], [-0.9, 0.4], [0.1, 0.0]])
    found = np.array([logp({"theta": theta}) for theta in thetas])
    wanted = logsumexp(thetas @ some.T, axis=1) - logsumexp(thetas @ rows.T + np.log(times), axis=1)
    error = np.abs(found - found[0] - wanted + wanted[0]).max()
    assert 1e-8 < error < 0.02


@pytest.mark.parametrize("normalizer", ["exactly", 3])
def test_unknown_dyads_need_a_normaliser_that_exists(normalizer):
    observed = network_of(5, 2).astype(float)
    observed[0, 1] = observed[1, 0] = np.nan
    with pytest.raises((TypeError, ValueError), match="normalizer must be"):
        model_of([EDGES, pbs.ergm.triangles()], observed, normalizer=normalizer)


def test_fixed_dyads_leave_the_sum():
    network = network_of(5, 2)
    fixed = np.zeros((5, 5), bool)
    fixed[0] = fixed[:, 0] = True
    terms = [EDGES, pbs.ergm.triangles()]
    model = model_of(terms, network, fixed=fixed)
    free = [(i, j) for i, j in itertools.combinations(range(1, 5), 2)]
    theta = np.array([-0.5, 0.7])
    every = [[term.count(one) for term in terms] for one in completions(network, free)]
    wanted = theta @ [term.count(network) for term in terms] - logsumexp(np.array(every) @ theta)
    found = model.compile_logp(vars=model.observed_RVs)({"theta": theta})
    assert np.isclose(found, wanted, rtol=1e-10)
    drawn = pm.draw(model["y"], 5, random_seed=0)
    assert (drawn[:, 0] == network[0]).all()


def test_several_networks_share_their_parameters():
    networks = [nx.gnp_random_graph(5, 0.5, seed=seed) for seed in range(3)]
    terms = [EDGES, pbs.ergm.gwesp(0.5)]
    model = model_of(terms, networks)
    theta = np.array([-0.2, 0.3])
    found = model.compile_logp(vars=model.observed_RVs, sum=False)({"theta": theta})[0]
    rows, times = network_family(terms, 5).listing
    level = logsumexp(rows @ theta + np.log(times))
    wanted = [
        theta @ [term.count(nx.to_numpy_array(one)) for term in terms] - level for one in networks
    ]
    np.testing.assert_allclose(found, wanted, rtol=1e-10)


@pytest.mark.usefixtures("plain")
def test_draws_are_networks_of_the_model():
    terms = [EDGES, pbs.ergm.gwesp(0.5)]
    theta = np.array([-1.0, 0.3])
    drawn = pm.draw(pbs.ERGM.dist(theta, terms=terms, n_nodes=6), 2000, random_seed=3)
    assert (drawn == np.swapaxes(drawn, 1, 2)).all()
    rows, times = network_family(terms, 6).listing
    chance = softmax(rows @ theta + np.log(times))
    mean = chance @ rows
    sd = np.sqrt(chance @ (rows - mean) ** 2)
    found = np.array([[term.count(one) for term in terms] for one in drawn]).mean(axis=0)
    assert (np.abs(found - mean) < 4.0 * sd / np.sqrt(2000)).all()


@pytest.fixture(scope="module")
def karate():
    return nx.to_numpy_array(nx.karate_club_graph(), weight=None).astype(int)


def test_degenerate_models_are_flagged(karate):
    with pytest.warns(UserWarning, match=r"degenerate.*gwesp"):
        model = model_of([EDGES, pbs.ergm.triangles()], karate)
    idata = pm.sample(
        100, tune=100, chains=2, cores=1, random_seed=0, progressbar=False, model=model
    )
    checked = pbs.check_normalizer(idata, model, progressbar=False)
    assert checked["normalizer"].attrs["verdict"] == "not to be trusted"
    assert "gwesp" in str(checked)


def test_sparse_and_full_networks_are_joined():
    """With many triangles the full network outweighs all others, and chains do not find it."""
    ties = nx.to_numpy_array(nx.path_graph(6))[None].astype(int)
    family = network_family([EDGES, pbs.ergm.triangles()], 6, networks=ties)
    rng, centre = np.random.default_rng(0), np.array([-1.5, 0.0])
    near, far = np.array([-1.3, -0.3]), np.array([-3.0, 2.6])
    assert family.remembers_start(far, rng)
    assert len(family.joined(np.array([centre, near]), rng)) == 2
    anchors = family.joined(np.array([centre, near, far]), rng)
    assert not any(family.remembers_start(theta, rng) for theta in anchors)
    alone = network_family([pbs.ergm.triangles()], 6, networks=ties)
    assert alone.joined(np.array([[-1.0], [2.6]]), rng) is None
    rule = anchored(family, anchors, n=20_000, rng=rng, start=family.typical)
    points = np.array([[-3.0, 2.2], [-3.0, 2.4], far, [-2.0, 0.5]])
    exact = family.exact.log_z(np, points) - family.exact.log_z(np, centre)
    found = rule.log_z_at(np, points) - rule.log_z_at(np, centre)
    np.testing.assert_allclose(found, exact, atol=0.15)


def test_a_sound_model_of_the_same_network_is_not_flagged(karate):
    family = network_family([EDGES, pbs.ergm.gwesp(0.5)], 34, networks=karate[None])
    rng = np.random.default_rng(0)
    assert not family.remembers_start(np.array([-3.1, 0.8]), rng)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observed": np.eye(4)}, "loop at node 0"),
        ({"observed": nx.path_graph(4), "directed": True}, "undirected kind"),
        ({"observed": nx.path_graph(4), "n_nodes": 5}, "observed has 4 nodes"),
        ({"observed": nx.path_graph(4), "fixed": np.ones((3, 3), bool)}, "fixed must be a matrix"),
        ({"observed": nx.path_graph(4), "fixed": np.ones((4, 4), bool)}, "no dyad that may change"),
        ({"observed": nx.path_graph(4), "theta": [0.1, 0.2]}, r"1 entry \(edges\).*got 2"),
        ({"observed": nx.path_graph(4), "terms": [EDGES, EDGES]}, "collinear"),
        ({"observed": nx.path_graph(4), "theta": [[0.1], [0.2]]}, r"leading dimensions \(2,\)"),
        ({"observed": None}, "n_nodes must be given"),
    ],
)
def test_bad_models_are_refused(change, message):
    arguments = {"theta": [0.1], "terms": [EDGES]} | change
    if len(arguments["terms"]) == 2:
        arguments["theta"] = [0.1, 0.2]
    with pm.Model(), pytest.raises((TypeError, ValueError), match=message):
        pbs.ERGM("y", arguments.pop("theta"), **arguments)


def test_larger_networks_are_anchored_and_good():
    network = network_of(12, 5, 0.25)
    model = model_of([EDGES, pbs.ergm.gwesp(0.5)], network)
    normalizer = model["y"].owner.op.normalizer.unknown.normalizer
    assert isinstance(normalizer, Estimated)
    assert normalizer.rule.settled
