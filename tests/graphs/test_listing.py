"""Dense graphs by all of their states, against sums that list them one by one."""

import itertools

import numpy as np
import pytest
from scipy.special import logsumexp

from pymc_bayessum import graphs
from pymc_bayessum.graphs.elimination import Budget, EliminationPlan, elimination_plan, plan_within
from pymc_bayessum.graphs.statistics import PottsLayout


def shuffled(n_sites, rng, share=1.0):
    """A dense graph with its edges in any order and orientation."""
    edges = graphs.complete(n_sites)
    edges = edges[rng.permutation(len(edges))[: int(np.ceil(share * len(edges)))]]
    flip = rng.random(len(edges)) < 0.5
    return np.where(flip[:, None], edges[:, ::-1], edges)


def brute(fields, couplings, edges):
    """Log Z and both kinds of marginals by a plain loop."""
    n_sites, n_states = fields.shape
    states = np.array(list(itertools.product(range(n_states), repeat=n_sites)))
    energy = fields[np.arange(n_sites), states].sum(axis=1)
    for coupling, (i, j) in zip(couplings, edges, strict=True):
        energy += coupling[states[:, i], states[:, j]]
    log_z = logsumexp(energy)
    p = np.exp(energy - log_z)
    sites, pairs = np.zeros_like(fields), np.zeros_like(couplings)
    for site in range(n_sites):
        np.add.at(sites[site], states[:, site], p)
    for row, (i, j) in enumerate(edges):
        np.add.at(pairs[row], (states[:, i], states[:, j]), p)
    return log_z, sites, pairs


@pytest.mark.parametrize(
    ("n_sites", "n_states", "scale", "share"),
    [(9, 2, 0.5, 1.0), (8, 2, 3.0, 0.9), (7, 3, 1.0, 1.0), (6, 4, 0.5, 1.0), (8, 2, 400.0, 1.0)],
)
def test_all_states(n_sites, n_states, scale, share):
    rng = np.random.default_rng(n_sites)
    edges = shuffled(n_sites, rng, share)
    plan = elimination_plan(edges, n_sites, n_states)
    assert plan.is_listed
    fields = rng.normal(0.0, scale, (n_sites, n_states))
    couplings = rng.normal(0.0, scale, (len(edges), n_states, n_states))
    log_z, sites, pairs = brute(fields, couplings, edges)
    found = plan.marginals(fields, couplings)
    assert plan.log_partition(fields, couplings) == pytest.approx(log_z, rel=1e-14)
    assert found[0] == pytest.approx(log_z, rel=1e-14)
    np.testing.assert_allclose(found[1], sites, atol=1e-12)
    np.testing.assert_allclose(found[2], pairs, atol=1e-12)


def test_tangents_are_those_of_elimination():
    rng = np.random.default_rng(3)
    edges = shuffled(7, rng)
    plan = elimination_plan(edges, 7, 2)
    eliminated = EliminationPlan(7, 2, plan.edges, plan.order)
    # The same graph, told to eliminate.
    eliminated.__dict__["is_listed"] = False
    assert plan.is_listed
    arguments = [rng.normal(size=shape) for shape in [(7, 2), (21, 2, 2)] * 2]
    for found, wanted in zip(plan.tangent(*arguments), eliminated.tangent(*arguments), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-13)


def test_forbidden_states():
    rng = np.random.default_rng(4)
    edges = graphs.complete(6)
    plan = elimination_plan(edges, 6, 3)
    fields = rng.normal(size=(6, 3))
    couplings = rng.normal(size=(15, 3, 3))
    fields[[0, 2, 5], [0, 1, 2]] = -np.inf
    couplings[[0, 7, 14], 1, 2] = -np.inf
    log_z, sites, pairs = brute(fields, couplings, edges)
    found = plan.marginals(fields, couplings)
    assert found[0] == pytest.approx(log_z, rel=1e-14)
    np.testing.assert_allclose(found[1], sites, atol=1e-12)
    np.testing.assert_allclose(found[2], pairs, atol=1e-12)


def test_the_default_lists_what_it_can():
    def listed(n_sites, n_states):
        layout = PottsLayout(n_sites, n_states, graphs.complete(n_sites), "full", "full")
        plan = plan_within(layout, Budget.EVERY_STEP)
        return plan is not None and plan.is_listed

    assert [listed(n, 2) for n in (20, 22, 26)] == [True, True, False]
    assert [listed(n, 4) for n in (10, 11, 13)] == [True, True, False]
    assert [listed(n, 5) for n in (8, 9, 11)] == [True, True, False]
    grid = PottsLayout(36, 2, graphs.grid(6, 6), "full", "full")
    assert not plan_within(grid, Budget.EVERY_STEP).is_listed
