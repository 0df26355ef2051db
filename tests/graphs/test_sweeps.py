import numpy as np
import pytest
from graph_models import all_states, listed

from pymc_bayessum import graphs
from pymc_bayessum.graphs.family import PottsFamily
from pymc_bayessum.graphs.moments import block_moments, statistics_of_marginals
from pymc_bayessum.graphs.samplers import GraphChain
from pymc_bayessum.graphs.statistics import PottsLayout

KINDS = [
    PottsLayout(6, 3, graphs.grid(2, 3), "none", "scalar"),
    PottsLayout(6, 3, graphs.grid(2, 3), "shared", "scalar"),
    PottsLayout(6, 2, graphs.grid(2, 3), "none", "scalar", spins=True),
    PottsLayout(6, 2, graphs.grid(2, 3), "scalar", "scalar", spins=True),
    PottsLayout(6, 2, graphs.complete(6), "shared", "scalar"),
]


@pytest.mark.parametrize("layout", KINDS)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_counts_summed_out_are_the_general_ones(layout, sign):
    """One coupling and one field have a shorter way to the means of blocks of two sites."""
    theta = 0.4 * np.random.default_rng(0).normal(size=layout.n_parameters)
    theta[-1] = 0.7 * sign
    states = np.random.default_rng(1).integers(0, layout.n_states, (20, 6))
    each = np.arange(20)
    full = layout.expand(*layout.unflatten(theta))
    wanted = statistics_of_marginals(layout, *block_moments(states, *full, layout.edges, each))
    found = PottsFamily(layout).conditional_means(theta, states, each)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    # Summed out or not, the mean over the model is the same.
    model = listed(layout, theta)
    every = PottsFamily(layout).conditional_means(theta, model.states, np.arange(len(model.states)))
    np.testing.assert_allclose(model.probs @ every, model.mean_statistics, atol=1e-12)


def test_strong_couplings_are_summed_out_too():
    layout = PottsLayout(2, 2, graphs.chain(2), "none", "scalar")
    for coupling in (40.0, 400.0, 2000.0):
        found = PottsFamily(layout).conditional_means(
            np.array([coupling]), np.array([[0, 1], [1, 1]]), np.array([0, 1])
        )
        np.testing.assert_allclose(found, 1.0, atol=1e-12)


@pytest.mark.parametrize("name", ["gibbs", "swendsen-wang"])
@pytest.mark.parametrize("layout", KINDS)
def test_a_sweep_leaves_the_model_as_it_is(layout, name):
    """Start from the model, in exact proportion: all states keep their frequencies."""
    theta = 0.3 * np.random.default_rng(2).normal(size=layout.n_parameters)
    theta[-1] = 0.4
    model = listed(layout, theta)
    rng = np.random.default_rng(3)
    n = 40_000
    chain = GraphChain(layout, *layout.unflatten(theta), name)
    after = chain.advance(model.draw(n, rng), 1, rng)
    place = after @ layout.n_states ** np.arange(5, -1, -1)
    assert (all_states(6, layout.n_states)[place] == after).all()
    seen = np.bincount(place, minlength=len(model.probs))
    expected = n * model.probs
    common = expected > 20
    scores = (seen - expected)[common] / np.sqrt(expected[common])
    assert np.mean(scores**2) == pytest.approx(1.0, abs=6.0 * np.sqrt(2.0 / common.sum()))


def test_draws_do_not_depend_on_the_number_of_threads(monkeypatch):
    from pymc_bayessum import threads

    layout = PottsLayout(400, 3, graphs.grid(20, 20), "shared", "scalar")
    found = []
    for count in (1, 2, 3):
        pool = threads._pool()[0]
        monkeypatch.setattr(threads, "_pool", lambda count=count, pool=pool: (pool, count))
        chain = GraphChain(layout, np.array([0.0, 0.1, 0.2]), 0.8, "swendsen-wang")
        rng = np.random.default_rng(4)
        found.append(chain.advance(chain.start(7, rng), 5, rng))
        monkeypatch.undo()
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
