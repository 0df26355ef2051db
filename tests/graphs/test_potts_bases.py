import numpy as np
import pytest
from graph_models import all_states, listed
from hypothesis import given, settings
from hypothesis import strategies as st

from pymc_bayessum import graphs
from pymc_bayessum.graphs.bases import (
    belief_propagation,
    conditional_mixture,
    edge_marginals,
    mean_field,
    mean_log_base,
    tree_base,
    tree_parameters,
)
from pymc_bayessum.graphs.moments import conditionals
from pymc_bayessum.graphs.statistics import PottsLayout
from pymc_bayessum.measures import ProductCategorical, TreeCategorical, UniformCategorical


def random_model(edges, n_sites, n_states, seed, scale=1.0):
    coupling = "full" if len(edges) else "none"
    layout = PottsLayout(n_sites, n_states, edges, "full", coupling)
    return listed(layout, scale * np.random.default_rng(seed).normal(size=layout.n_parameters))


@settings(deadline=None, max_examples=15)
@given(st.integers(2, 6), st.integers(2, 3), st.integers(0, 10_000))
def test_belief_propagation_is_exact_on_forests(n_sites, n_states, seed):
    rng = np.random.default_rng(seed)
    edges = [(int(rng.integers(i)), i) for i in range(1, n_sites) if rng.random() < 0.8]
    model = random_model(np.array(edges, dtype=int).reshape(-1, 2), n_sites, n_states, seed)
    found = belief_propagation(*model.full, model.layout.edges)
    sites, pairs = model.marginals
    assert found.converged
    np.testing.assert_allclose(found.sites, sites, atol=1e-8)
    np.testing.assert_allclose(found.pairs, pairs, atol=1e-8)
    tree = tree_base(found.sites, found.pairs, model.layout.edges)
    np.testing.assert_allclose(np.exp(tree.log_prob(model.states)), model.probs, atol=1e-5)


def test_belief_propagation_stays_finite_where_it_does_not_settle():
    model = random_model(graphs.complete(6), 6, 2, 4, scale=8.0)
    found = belief_propagation(*model.full, model.layout.edges, max_sweeps=30)
    assert not found.converged
    assert np.isfinite(found.sites).all()
    np.testing.assert_allclose(found.pairs.sum(axis=(1, 2)), 1.0)


def test_mean_field_bounds_the_constant_from_below():
    model = random_model(graphs.grid(2, 3), 6, 3, 1, scale=0.5)
    fields, couplings = model.full
    base = ProductCategorical(mean_field(fields, couplings, model.layout.edges))
    sites, pairs = edge_marginals(base, model.layout.edges)
    bound = (sites * fields).sum() + (pairs * couplings).sum() - mean_log_base(base)
    assert model.log_z - 0.5 < bound < model.log_z


def test_conditional_mixture_is_the_average_of_products():
    model = random_model(graphs.ring(4), 4, 3, 2)
    rows = model.states[[3, 50, 77]]
    found = conditional_mixture(*model.full, model.layout.edges, rows)
    probs = conditionals(rows, *model.full, model.layout.edges)
    wanted = np.mean([p[np.arange(4), model.states].prod(axis=1) for p in probs], axis=0)
    np.testing.assert_allclose(np.exp(found.log_prob(model.states)), wanted, rtol=1e-4, atol=1e-12)


BASES = [
    UniformCategorical(4, 3),
    ProductCategorical(np.random.default_rng(0).dirichlet(np.ones(3), size=4)),
    TreeCategorical(
        np.random.default_rng(1).dirichlet(np.ones(3)),
        [(2, 0), (0, 3), (2, 1)],
        np.random.default_rng(2).dirichlet(np.ones(3), size=(3, 3)),
    ),
    TreeCategorical(
        np.random.default_rng(3).dirichlet(np.ones(3), size=2),
        [(0, 2), (1, 3)],
        np.random.default_rng(4).dirichlet(np.ones(3), size=(2, 3)),
    ),
]


@pytest.mark.parametrize("base", BASES, ids=lambda base: type(base).__name__)
def test_marginals_and_entropy_of_bases(base):
    states, edges = all_states(4, 3), graphs.complete(4)
    log_q = base.log_prob(states)
    assert mean_log_base(base) == pytest.approx(np.exp(log_q) @ log_q, abs=1e-12)
    sites, pairs = edge_marginals(base, edges)
    indicator = states[:, :, None] == np.arange(3)
    np.testing.assert_allclose(sites, np.einsum("n,nia->ia", np.exp(log_q), indicator), atol=1e-13)
    joint = np.einsum(
        "n,nea,neb->eab", np.exp(log_q), indicator[:, edges[:, 0]], indicator[:, edges[:, 1]]
    )
    np.testing.assert_allclose(pairs, joint, atol=1e-13)


def test_mixtures_have_no_closed_entropy():
    model = random_model(graphs.ring(4), 4, 3, 2)
    base = conditional_mixture(*model.full, model.layout.edges, model.states[:2])
    with pytest.raises(TypeError, match="Mixture"):
        edge_marginals(base, model.layout.edges)


def test_tree_as_a_potts_model():
    model = random_model(graphs.grid(2, 3), 6, 3, 5)
    edges = model.layout.edges
    sites, pairs = model.marginals
    tree = tree_base(sites, pairs, edges)
    assert len(tree.edges) == 5
    fields, couplings = tree_parameters(tree, edges)
    energy = model.layout.energy(model.states, fields, couplings)
    np.testing.assert_allclose(energy, tree.log_prob(model.states), atol=1e-12)
    # The tree keeps the marginals of its own edges.
    kept = {tuple(sorted(edge)) for edge in tree.edges.tolist()}
    rows = [row for row, edge in enumerate(edges.tolist()) if tuple(sorted(edge)) in kept]
    np.testing.assert_allclose(edge_marginals(tree, edges)[1][rows], pairs[rows], atol=1e-5)
