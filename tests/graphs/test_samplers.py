import numpy as np
import pytest

from pymc_bayessum import graphs
from pymc_bayessum.graphs.elimination import Budget
from pymc_bayessum.graphs.exact import ExactNormalizer
from pymc_bayessum.graphs.samplers import (
    choose_sampler,
    sample_exact,
    sample_gibbs,
    sample_states,
    sample_swendsen_wang,
)
from pymc_bayessum.graphs.statistics import PottsLayout

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
    sites, pairs = ExactNormalizer(layout).marginals(h, J)
    mean = np.concatenate([sites.ravel(), pairs.ravel()])
    seen = full.mean_statistics(x)
    # What is expected less than ten times has no normal score; it is held to that noise instead.
    variance = np.maximum(mean * (1 - mean), 10 / len(x))
    scores = (seen - mean) / np.sqrt(variance / len(x))
    assert np.abs(scores).max() < 4.5
    assert np.mean(scores**2) < 2.0


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
    assert_marginals(layout, h, J, sample_swendsen_wang(layout, h, J, 10_000, 40, rng))
    mixed = sample_states(layout, h, J, 10_000, rng, sweeps=25, sampler="swendsen-wang")
    assert_marginals(layout, h, J, mixed)


def test_clusters_mix_where_single_sites_do_not():
    """Below the critical temperature from an ordered start: all states equally often."""
    layout = PottsLayout(9, 3, GRID, "none", "scalar")
    start = np.zeros((3000, 9), dtype=int)
    rng = np.random.default_rng(3)
    x = sample_swendsen_wang(layout, None, 4.0, 3000, 60, rng, start=start)
    assert_marginals(layout, None, 4.0, x)
    stuck = sample_gibbs(layout, None, 4.0, 3000, 60, rng, start=start)
    assert (stuck == 0).mean() > 0.6


def test_strong_couplings_do_not_underflow():
    layout = PottsLayout(9, 3, GRID, "none", "scalar")
    rng = np.random.default_rng(4)
    for x in (
        sample_gibbs(layout, None, 2000.0, 50, 5, rng, start=np.ones((50, 9), dtype=int)),
        sample_swendsen_wang(layout, None, 2000.0, 50, 5, rng, start=np.ones((50, 9), dtype=int)),
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
        sample_swendsen_wang(layout, h, None, 20_000, 1, rng),
    ):
        np.testing.assert_allclose(x.mean(axis=0), np.exp(h[:, 1]), atol=0.02)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda rng: sample_swendsen_wang(POTTS, None, -np.ones(12), 2, 1, rng), "none negative"),
        (
            lambda rng: sample_swendsen_wang(MATRIX, np.zeros(3), np.zeros((12, 3, 3)), 2, 1, rng),
            "kind 'full'; use sample_gibbs",
        ),
        (
            lambda rng: sample_gibbs(
                *(POTTS, *parameters(POTTS)), 2, 1, rng, start=np.zeros((2, 8))
            ),
            r"start must hold valid states of shape \(2, 9\)",
        ),
        (
            lambda rng: sample_gibbs(
                *(SPINS, *parameters(SPINS)), 2, 1, rng, start=np.full((2, 9), -1)
            ),
            "start must hold valid states",
        ),
        (lambda rng: sample_gibbs(POTTS, *parameters(POTTS), 2, -1, rng), "sweeps must not be"),
        (
            lambda rng: sample_states(POTTS, *parameters(POTTS), 2, rng, sampler="metropolis"),
            "sampler must be",
        ),
        (
            lambda rng: sample_exact(POTTS, np.zeros((4, 9, 3)), np.zeros(12), 2, rng),
            "not a batch",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.random.default_rng(0))
