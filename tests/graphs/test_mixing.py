import warnings

import numpy as np
import pytest

import pymc_bayessum as pbs
from pymc_bayessum.graphs.mixing import memory
from pymc_bayessum.graphs.samplers import GraphChain
from pymc_bayessum.graphs.statistics import PottsLayout

EDGES = pbs.graphs.grid(24, 24)
N = 24 * 24


def draw(rv, h, J):
    return rv.owner.op.rng_fn(np.random.default_rng(0), np.asarray(h), np.asarray(J), (2,))


def test_frozen_chains_warn_with_what_was_seen():
    h = np.zeros(N)
    rv = pbs.Ising.dist(h, -1.5, EDGES, sweeps=40)
    with pytest.warns(UserWarning, match=r"20 sweeps of gibbs later .* itself on \d+% .*sweeps="):
        draw(rv, h, -1.5)


def test_the_sign_of_a_whole_lattice_is_remembered():
    """Below the transition single sites never turn the lattice over; clusters do."""
    layout = PottsLayout(N, 2, EDGES, "none", "scalar", spins=True)
    rng = np.random.default_rng(2)
    assert memory(GraphChain(layout, None, 0.8, "gibbs"), 200, rng)[2]
    assert not memory(GraphChain(layout, None, 0.8, "swendsen-wang"), 200, rng)[2]


def test_chains_that_forget_do_not_warn():
    h = 0.1 * np.ones(N)
    rv = pbs.Ising.dist(h, 0.2, EDGES, sweeps=100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw(rv, h, 0.2)


def test_clusters_held_by_strong_fields():
    """Two halves under opposite fields of thirty: clusters cannot turn against them."""
    layout = PottsLayout(N, 2, EDGES, "full", "scalar", spins=True)
    rng = np.random.default_rng(1)
    h = np.where(rng.random(N) < 0.5, 30.0, -30.0)
    own, others, remembers = memory(GraphChain(layout, h, 16.0, "swendsen-wang"), 100, rng)
    assert remembers
    assert own > others
    assert not memory(GraphChain(layout, 0.0 * h, 0.44, "swendsen-wang"), 100, rng)[2]
