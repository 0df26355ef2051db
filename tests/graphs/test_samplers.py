import numpy as np
import pytest
from numba import njit

from pymc_bayessum import graphs
from pymc_bayessum.graphs.elimination import Budget
from pymc_bayessum.graphs.exact import ExactNormalizer
from pymc_bayessum.graphs.samplers import (
    GraphChain,
    choose_sampler,
    sample_exact,
    sample_gibbs,
    sample_states,
)
from pymc_bayessum.graphs.statistics import PottsLayout
from pymc_bayessum.graphs.sweeps import _swendsen_wang

GRID = graphs.grid(3, 3)
POTTS = PottsLayout(9, 3, GRID, "full", "edge")
SPINS = PottsLayout(9, 2, GRID, "full", "edge", spins=True)
MATRIX = PottsLayout(9, 3, GRID[:, ::-1], "shared", "full")


def parameters(layout, sign=0):
    rng = np.random.default_rng(5)
    h = 0.5 * rng.normal(size=layout.field_shape)
    J = 0.5 * rng.normal(size=layout.coupling_shape)
    return h, np.abs(J) if sign else J


def assert_marginals(layout, h, J, x):
    """Site and edge frequencies are the exact marginals, up to the noise of independent rows."""
    full = PottsLayout(layout.n_sites, layout.n_states, layout.edges, "full", "full")
    _, sites, pairs = ExactNormalizer(layout).plan.marginals(*layout.expand(h, J))
    mean = np.concatenate([sites.ravel(), pairs.ravel()])
    seen = full.mean_statistics(x)
    # What is expected less than ten times has no normal score; it is held to that noise instead.
    variance = np.maximum(mean * (1 - mean), 10 / len(x))
    scores = (seen - mean) / np.sqrt(variance / len(x))
    assert np.abs(scores).max() < 4.5
    assert np.mean(scores**2) < 2.0


@njit
def bond_and_redraw(states, seeds, sweeps, clusters):
    n_chains, n_sites = states.shape
    n_states = clusters.fields.shape[1]
    parent, pooled = np.empty(n_sites, np.uint32), np.empty((n_sites, n_states))
    weights = np.empty(n_states)
    for chain in range(n_chains):
        for _ in range(sweeps):
            _swendsen_wang(states[chain], seeds[chain], clusters, parent, pooled, weights)


def clusters_alone(layout, h, J, n, sweeps, rng, start=None):
    """Swendsen-Wang without the Gibbs sweeps that chains make between."""
    chain = GraphChain(layout, h, J, "swendsen-wang")
    states = np.array(chain.start(n, rng) if start is None else start, dtype=np.int8)
    seeds = rng.integers(1, 2**64, size=(n, 4), dtype=np.uint64)
    bond_and_redraw(states, seeds, sweeps, chain._clusters)
    return states


@pytest.mark.parametrize("layout", [POTTS, SPINS, MATRIX], ids=["potts", "spins", "matrix"])
@pytest.mark.parametrize("sampler", ["exact", "gibbs"])
def test_any_couplings(layout, sampler):
    h, J = parameters(layout)
    rng = np.random.default_rng(1)
    assert_marginals(
        layout, h, J, sample_states(layout, h, J, 10_000, rng, sweeps=60, sampler=sampler)
    )


@pytest.mark.parametrize("layout", [POTTS, SPINS], ids=["potts", "spins"])
def test_couplings_that_reward_agreement(layout):
    h, J = parameters(layout, sign=1)
    rng = np.random.default_rng(2)
    assert_marginals(layout, h, J, clusters_alone(layout, h, J, 10_000, 40, rng))
    mixed = sample_states(layout, h, J, 10_000, rng, sweeps=25, sampler="swendsen-wang")
    assert_marginals(layout, h, J, mixed)


def test_clusters_mix_where_single_sites_do_not():
    """Below the critical temperature from an ordered start: all states equally often."""
    layout = PottsLayout(9, 3, GRID, "none", "scalar")
    start = np.zeros((3000, 9), dtype=int)
    rng = np.random.default_rng(3)
    x = clusters_alone(layout, None, 4.0, 3000, 60, rng, start)
    assert_marginals(layout, None, 4.0, x)
    stuck = GraphChain(layout, None, 4.0, "gibbs").advance(start, 60, rng)
    assert (stuck == 0).mean() > 0.6


def test_strong_couplings_do_not_underflow():
    layout = PottsLayout(9, 3, GRID, "none", "scalar")
    rng = np.random.default_rng(4)
    start = np.ones((50, 9), dtype=int)
    for x in (
        GraphChain(layout, None, 2000.0, "gibbs").advance(start, 5, rng),
        clusters_alone(layout, None, 2000.0, 50, 5, rng, start),
    ):
        assert (x == x[:, :1]).all()
    layout = PottsLayout(9, 3, GRID, "full", "scalar")
    h = np.zeros((9, 3))
    h[:, 1] = 5000.0
    assert (sample_gibbs(layout, h, -3.0, 50, 5, rng) == 1).all()


def test_choice():
    assert choose_sampler(POTTS, np.zeros(12), None, Budget.DRAWS) == "exact"
    wide = PottsLayout(900, 3, graphs.grid(30, 30), "shared", "scalar")
    assert choose_sampler(wide, 0.5, None, Budget.DRAWS) == "swendsen-wang"
    assert choose_sampler(wide, -0.5, None, Budget.DRAWS) == "gibbs"
    matrix = PottsLayout(900, 3, graphs.grid(30, 30), "none", "shared")
    assert choose_sampler(matrix, np.eye(3), None, Budget.DRAWS) == "gibbs"


def test_empty_graph():
    layout = PottsLayout(4, 2, [], "full", "none")
    h = np.log([[0.2, 0.8], [0.5, 0.5], [0.9, 0.1], [0.3, 0.7]])
    rng = np.random.default_rng(0)
    for x in (
        sample_exact(layout, h, None, 20_000, rng),
        sample_gibbs(layout, h, None, 20_000, 1, rng),
        clusters_alone(layout, h, None, 20_000, 1, rng),
    ):
        np.testing.assert_allclose(x.mean(axis=0), np.exp(h[:, 1]), atol=0.02)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda rng: sample_states(POTTS, None, -np.ones(12), 2, rng, 1, "swendsen-wang"),
            "needs scalar or edge couplings of at least zero",
        ),
        (
            lambda rng: sample_states(
                *(MATRIX, np.zeros(3), np.zeros((12, 3, 3))), 2, rng, sampler="swendsen-wang"
            ),
            "needs scalar or edge couplings of at least zero",
        ),
        (
            lambda rng: sample_states(POTTS, *parameters(POTTS), 2, rng, sampler="metropolis"),
            "sampler must be",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.random.default_rng(0))
