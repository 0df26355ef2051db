import numpy as np
import pytest
from graph_models import listed

from pymc_bayessum import graphs
from pymc_bayessum.graphs.moments import (
    block_moments,
    conditionals,
    consistent,
    statistics_of_marginals,
    stein_gibbs_kernel,
    stein_gibbs_moments,
)
from pymc_bayessum.graphs.statistics import PottsLayout

KINDS = [
    ("none", "scalar", False),
    ("shared", "scalar", False),
    ("shared", "shared", False),
    ("full", "edge", False),
    ("full", "full", False),
    ("full", "edge", True),
    ("scalar", "scalar", True),
]


@pytest.fixture(scope="module")
def model():
    layout = PottsLayout(5, 3, graphs.ring(5), "full", "full")
    return listed(layout, np.random.default_rng(0).normal(size=layout.n_parameters))


def test_conditionals_are_those_of_the_model(model):
    probs = conditionals(model.states, *model.full, model.layout.edges)
    energy = model.layout.energy(model.states, *model.layout.unflatten(model.theta))
    position = {tuple(row): k for k, row in enumerate(model.states.tolist())}
    for row in (0, 17, 200):
        for site in range(5):
            others = [model.states[row].copy() for _ in range(3)]
            for state, other in enumerate(others):
                other[site] = state
            weights = np.exp([energy[position[tuple(other.tolist())]] for other in others])
            np.testing.assert_allclose(probs[row, site], weights / weights.sum(), rtol=1e-12)


@pytest.mark.parametrize("product_range", [50.0, 0.0])
def test_block_moments_have_the_right_mean(model, product_range, monkeypatch):
    monkeypatch.setattr("pymc_bayessum.graphs.moments.PRODUCT_RANGE", product_range)
    rows = np.arange(len(model.states))
    sites, pairs = block_moments(model.states, *model.full, model.layout.edges, rows)
    exact_sites, exact_pairs = model.marginals
    np.testing.assert_allclose(np.einsum("n,nia->ia", model.probs, sites), exact_sites, atol=1e-13)
    np.testing.assert_allclose(
        np.einsum("n,neab->eab", model.probs, pairs), exact_pairs, atol=1e-13
    )


def test_block_moments_survive_enormous_couplings():
    couplings = np.full((1, 2, 2), -900.0) + 1800.0 * np.eye(2)
    _, pairs = block_moments(np.array([[0, 1]]), np.zeros((2, 2)), couplings, np.array([[0, 1]]))
    np.testing.assert_allclose(pairs[0, 0], 0.5 * np.eye(2), atol=1e-12)


def test_blocks_beat_plain_averages(model):
    x = model.draw(2000, np.random.default_rng(1))
    _, pairs = block_moments(x, *model.full, model.layout.edges)
    _, exact = model.marginals
    plain = statistics_of_marginals(model.layout, *model.marginals)
    plain = model.layout.mean_statistics(x) - plain
    better = np.abs(pairs[0] - exact)
    assert np.sqrt(np.mean(better**2)) < 0.6 * np.sqrt(np.mean(plain[15:] ** 2))


def test_consistent_marginals_obey_the_identities(model):
    rng = np.random.default_rng(2)
    sites, pairs = model.marginals
    np.testing.assert_allclose(consistent(sites, pairs, model.layout.edges)[1], pairs, atol=1e-14)
    noisy = pairs + rng.normal(scale=0.01, size=pairs.shape)
    noisy_sites = sites + rng.dirichlet(np.ones(3), size=5) * 0.01 - 0.01 / 3
    noisy_sites /= noisy_sites.sum(axis=1, keepdims=True)
    _, found = consistent(noisy_sites, noisy, model.layout.edges)
    first, second = model.layout.edges.T
    np.testing.assert_allclose(found.sum(axis=2), noisy_sites[first], atol=1e-14)
    np.testing.assert_allclose(found.sum(axis=1), noisy_sites[second], atol=1e-14)
    # The interaction, which alone is identified by an edge, is left alone.
    contrast = found[:, 1, 1] - found[:, 0, 1] - found[:, 1, 0] + found[:, 0, 0]
    wanted = noisy[:, 1, 1] - noisy[:, 0, 1] - noisy[:, 1, 0] + noisy[:, 0, 0]
    np.testing.assert_allclose(contrast, wanted, atol=1e-13)


@pytest.mark.parametrize(("field_kind", "coupling_kind", "spins"), KINDS)
def test_statistics_of_marginals(field_kind, coupling_kind, spins):
    layout = PottsLayout(
        4, 2 if spins else 3, graphs.ring(4), field_kind, coupling_kind, spins=spins
    )
    model = listed(layout, np.random.default_rng(3).normal(size=layout.n_parameters))
    found = statistics_of_marginals(layout, *model.marginals)
    np.testing.assert_allclose(found, model.mean_statistics, atol=1e-13)


def test_stein_gibbs_kernel_is_its_definition_and_has_mean_zero():
    layout = PottsLayout(3, 3, graphs.complete(3), "full", "full")
    model = listed(layout, np.random.default_rng(4).normal(size=layout.n_parameters))
    probs = conditionals(model.states, *model.full, layout.edges)
    decay = 0.3
    found = stein_gibbs_kernel(model.states, probs, model.states, probs, decay)
    base = np.exp(-decay * (model.states[:, None] != model.states[None]).sum(axis=-1))
    place = {tuple(row): k for k, row in enumerate(model.states.tolist())}
    wanted = np.zeros_like(base)
    for site in range(3):
        # E[. | rest] - identity as a matrix over all states, applied to both arguments.
        operator = -np.eye(len(base))
        for row, state in enumerate(model.states):
            for value in range(3):
                other = state.copy()
                other[site] = value
                operator[row, place[tuple(other.tolist())]] += probs[row, site, value]
        wanted += operator @ base @ operator.T
    np.testing.assert_allclose(found, wanted, atol=1e-13)
    assert np.abs(found @ model.probs).max() < 1e-15
    assert np.linalg.eigvalsh(found).min() > -1e-12


def test_stein_estimate_beats_blocks_and_plain_averages():
    layout = PottsLayout(6, 3, graphs.complete(6), "full", "full")
    model = listed(layout, 0.2 * np.random.default_rng(5).normal(size=layout.n_parameters))
    x = model.draw(600, np.random.default_rng(6))
    each = np.arange(len(x))
    marginals = block_moments(x, *model.full, layout.edges, each)
    values = statistics_of_marginals(layout, *consistent(*marginals, layout.edges))
    rest = stein_gibbs_moments(x, values, conditionals(x, *model.full, layout.edges))
    errors = [
        np.sqrt(np.mean((mean - model.mean_statistics) ** 2))
        for mean in (rest.mean(axis=0), values.mean(axis=0), layout.mean_statistics(x))
    ]
    assert errors[0] < 0.5 * errors[1] < 0.25 * errors[2]
