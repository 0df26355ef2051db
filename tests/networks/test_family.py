"""Compiled changes, chains and lists of networks against definitions and against listing."""

import itertools

import numpy as np
import pytest
from scipy.special import expit, softmax

from pymc_bayessum.networks import terms
from pymc_bayessum.networks.family import network_family


def random_networks(rng, n_nodes, directed, size):
    ties = rng.random((size, n_nodes, n_nodes)) < rng.random((size, 1, 1))
    ties = ties & ~np.eye(n_nodes, dtype=bool)
    return (ties if directed else np.triu(ties) | np.swapaxes(np.triu(ties), 1, 2)).astype(int)


def all_terms(rng, n_nodes, directed):
    pair = rng.normal(size=(n_nodes, n_nodes))
    found = [
        terms.edges(),
        terms.triangles(),
        terms.stars(2),
        terms.stars(3, "in"),
        terms.degree(1),
        terms.degree(0, "in"),
        terms.gwesp(0.5),
        terms.gwdegree(0.7, "in"),
        terms.nodematch(rng.integers(0, 3, n_nodes)),
        terms.nodecov(rng.normal(size=n_nodes)),
        terms.edgecov(pair if directed else pair + pair.T),
    ]
    return [*found, terms.mutual()] if directed else found


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("some_fixed", [False, True])
def test_changes_are_differences_of_counts(directed, some_fixed):
    rng = np.random.default_rng(1)
    n_nodes = 9
    parts = all_terms(rng, n_nodes, directed)
    networks = random_networks(rng, n_nodes, directed, 40)
    free = None
    if some_fixed:
        free = rng.random((n_nodes, n_nodes)) < 0.7
        free = free | free.T
        networks = np.where(free, networks, networks[0])
    family = network_family(parts, n_nodes, directed, networks=networks, free=free)
    states = family.encode(networks)
    assert (family.decode(states) == networks).all()
    assert family.valid(networks).all()

    def definition(network):
        return np.array([part.count(network, directed) for part in parts])

    wanted = np.array([definition(network) for network in networks])
    np.testing.assert_allclose(family.statistics(states), wanted, atol=1e-10)
    for network, state in zip(networks[:5], states[:5], strict=True):
        gains = family.changes(state)
        for (i, j), gain in zip(family.dyads, gains, strict=True):
            with_tie, without = network.copy(), network.copy()
            with_tie[i, j], without[i, j] = 1, 0
            if not directed:
                with_tie[j, i], without[j, i] = 1, 0
            np.testing.assert_allclose(gain, definition(with_tie) - definition(without), atol=1e-10)


@pytest.mark.parametrize("directed", [False, True])
def test_listing_counts_every_network_once(directed):
    n_nodes = 3 if directed else 4
    parts = [terms.edges(), terms.triangles(), terms.stars(2)]
    family = network_family(parts, n_nodes, directed)
    rows, times = family.listing
    found = {}
    for ties in itertools.product([0, 1], repeat=len(family.dyads)):
        network = np.zeros((n_nodes, n_nodes))
        network[family.dyads[:, 0], family.dyads[:, 1]] = ties
        network = network if directed else network + network.T
        key = tuple(part.count(network, directed) for part in parts)
        found[key] = found.get(key, 0) + 1
    assert dict(zip(map(tuple, rows.tolist()), times.tolist(), strict=True)) == found


def test_listing_of_seven_nodes_is_complete_and_short():
    rows, times = network_family([terms.edges(), terms.gwesp(0.5)], 7).listing
    assert times.sum() == 2**21
    assert len(rows) < 1000
    assert network_family([terms.edges()], 8).listing is None


@pytest.mark.parametrize(
    ("directed", "n_nodes", "theta"),
    [(False, 5, [-0.5, 0.4, -0.1]), (True, 3, [0.3, 0.2, -0.4]), (False, 5, [-4.0, 0.5, 0.1])],
)
def test_chains_draw_from_the_family(directed, n_nodes, theta):
    family = network_family([terms.edges(), terms.gwesp(0.5), terms.stars(2)], n_nodes, directed)
    rows, times = family.listing
    chance = softmax(rows @ theta + np.log(times))
    mean = chance @ rows
    sd = np.sqrt(chance @ (rows - mean) ** 2)
    found = family.statistics(family.sample(np.array(theta), 4000, np.random.default_rng(0)))
    assert (np.abs(found.mean(axis=0) - mean) < 4.0 * sd / np.sqrt(4000)).all()
    # Not moments alone: how often each number of ties occurs.
    ties = np.arange(len(family.dyads) + 1)
    wanted = np.array([chance[rows[:, 0] == k].sum() for k in ties])
    seen = np.bincount(found[:, 0].astype(int), minlength=len(ties)) / 4000
    assert np.abs(seen - wanted).sum() / 2 < 0.03


def test_one_step_leaves_exact_draws_unchanged():
    family = network_family([terms.edges(), terms.triangles()], 4)
    theta = np.array([-0.7, 0.6])
    bits = np.arange(2**6, dtype=np.uint8)[:, None]
    chance = softmax(family.statistics(bits) @ theta)
    rng = np.random.default_rng(2)
    from pymc_bayessum.networks.sampler import run_chains

    start = bits[rng.choice(64, size=60_000, p=chance)]
    end = run_chains(family.program, theta, family.fixed, family.dyads, start, 1, rng)
    flow = np.zeros((64, 64))
    np.add.at(flow, (start[:, 0], end[:, 0]), 1.0)
    # Detailed balance: as many go from one state to another as come back.
    moved = flow + flow.T
    unbalanced = (flow - flow.T)[moved > 0] / np.sqrt(moved[moved > 0])
    assert np.abs(unbalanced).max() < 5.0


def test_draws_are_the_same_whatever_the_number_of_threads(monkeypatch):
    family = network_family([terms.edges(), terms.triangles()], 6)
    theta = np.array([-0.5, 0.1])
    found = []
    for cores in (1, 3):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        found.append(family.sample(theta, 7, np.random.default_rng(5)))
    assert (found[0] == found[1]).all()


def test_fixed_dyads_stay():
    rng = np.random.default_rng(0)
    network = random_networks(rng, 6, False, 1)
    free = np.ones((6, 6), bool)
    free[0, :] = free[:, 0] = False
    family = network_family([terms.edges(), terms.triangles()], 6, networks=network, free=free)
    drawn = family.decode(family.sample(np.zeros(2), 50, rng))
    assert (drawn[:, 0] == network[0, 0]).all()
    assert drawn[:, 1:, 1:].std(axis=0).max() > 0.3
    assert not family.valid(1 - network - np.eye(6, dtype=int))[0]
    assert not family.valid(2 * network)[0]


def test_pseudo_mode_of_independent_ties_is_logistic_regression():
    rng = np.random.default_rng(4)
    group = np.arange(40) % 2
    same = np.equal.outer(group, group)
    ties = rng.random((40, 40)) < expit(np.where(same, -0.5, -1.5))
    network = (np.triu(ties, 1) | np.triu(ties, 1).T).astype(int)[None]
    family = network_family([terms.edges(), terms.nodematch(group)], 40, networks=network)
    found = family.pseudo_mode(family.typical, sd=1e3)
    upper = np.triu(np.ones((40, 40), bool), 1)
    rate = [network[0][upper & ~same].mean(), network[0][upper & same].mean()]
    logit = np.log(rate) - np.log1p(-np.array(rate))
    np.testing.assert_allclose(found, [logit[0], logit[1] - logit[0]], atol=1e-4)


def test_collinear_terms_are_named():
    same = np.equal.outer([0, 0, 1, 1], [0, 0, 1, 1])
    with pytest.raises(ValueError, match=r"collinear.*edges.*nodematch.*edgecov"):
        network_family([terms.edges(), terms.nodematch([0, 0, 1, 1]), terms.edgecov(1.0 - same)], 4)
    with pytest.raises(ValueError, match=r"collinear.*edges.*nodematch"):
        network_family([terms.edges(), terms.triangles(), terms.nodematch(np.ones(4))], 4)
    with pytest.raises(ValueError, match="degree\\(7\\) is the same for every network"):
        network_family([terms.edges(), terms.degree(7)], 5)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "at least one term"),
        (["edges"], "list of terms"),
        ([terms.mutual()], "directed"),
        ([terms.nodecov([1.0, 2.0])], "given for 2 nodes, the network has 4"),
        ([terms.edgecov(np.arange(16.0).reshape(4, 4))], "symmetric"),
    ],
)
def test_terms_that_do_not_fit_are_refused(parts, message):
    with pytest.raises((TypeError, ValueError), match=message):
        network_family(parts, 4)
