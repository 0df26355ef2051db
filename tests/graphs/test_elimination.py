import pickle

import numba
import numpy as np
import pytest
from graph_models import all_states
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from pymc_bayessum import graphs
from pymc_bayessum.graphs.elimination import Budget, elimination_plan, plan_within
from pymc_bayessum.graphs.statistics import PottsLayout


def by_listing(edges, h, J):
    """Log Z, mean and covariance of all indicators, from the list of all states."""
    layout = PottsLayout(*h.shape, edges, "full", "full")
    phi = layout.statistics(all_states(*h.shape))
    energy = phi @ layout.flatten(h, J)
    log_z = logsumexp(energy)
    probs = np.exp(energy - log_z)
    mean = probs @ phi
    return log_z, mean, (phi * probs[:, None]).T @ phi - np.outer(mean, mean)


@st.composite
def models(draw):
    n_states = draw(st.integers(1, 4))
    n_sites = draw(st.integers(1, {1: 6, 2: 8, 3: 6, 4: 5}[n_states]))
    pairs = graphs.complete(n_sites)
    keep = np.array(draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs))), bool)
    flip = np.array(draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs))), bool)
    edges = np.where(flip[:, None], pairs[:, ::-1], pairs)[keep]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = draw(st.sampled_from([0.0, 0.3, 1.0, 5.0, 50.0, 400.0]))
    h = scale * rng.uniform(-1, 1, size=(n_sites, n_states))
    J = scale * rng.uniform(-1, 1, size=(len(edges), n_states, n_states))
    return edges, h, J, rng


@given(models())
@settings(deadline=None, max_examples=150)
def test_agrees_with_listing(model):
    edges, h, J, rng = model
    plan = elimination_plan(edges, *h.shape)
    log_z, mean, covariance = by_listing(edges, h, J)
    tolerance = 1e-10 * max(1.0, abs(log_z))
    assert abs(plan.log_partition(h, J) - log_z) < tolerance
    value, sites, pairs = plan.marginals(h, J)
    assert abs(value - log_z) < tolerance
    np.testing.assert_allclose(np.concatenate([sites.ravel(), pairs.ravel()]), mean, atol=1e-9)
    steps = rng.normal(size=h.shape), rng.normal(size=J.shape)
    tangent = np.concatenate([part.ravel() for part in plan.tangent(h, J, *steps)])
    expected = covariance @ np.concatenate([part.ravel() for part in steps])
    np.testing.assert_allclose(tangent, expected, atol=1e-9)


@pytest.mark.parametrize("strength", [0.5, 50.0, -50.0, 1000.0])
def test_lattice_agrees_with_a_transfer_matrix(strength):
    """A strip of width 4: log Z by multiplying row-to-row matrices, in logarithms."""
    rows, width, n_states = 7, 4, 2
    rng = np.random.default_rng(0)
    h = rng.normal(size=(rows * width, n_states))
    edges = graphs.grid(rows, width)
    J = strength * np.tile(np.eye(n_states), (len(edges), 1, 1))
    states = all_states(width, n_states)
    within = strength * (states[:, 1:] == states[:, :-1]).sum(axis=1)
    between = strength * (states[:, None] == states[None]).sum(axis=2)
    message = np.zeros(len(states))
    for row in range(rows):
        field = h[row * width + np.arange(width), states].sum(axis=1)
        message = field + within + (logsumexp(between + message, axis=1) if row else 0.0)
    plan = elimination_plan(edges, rows * width, n_states)
    value, sites, pairs = plan.marginals(h, J)
    assert value == pytest.approx(logsumexp(message), rel=1e-13)
    assert plan.log_partition(h, J) == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(sites.sum(axis=1), 1.0)
    np.testing.assert_allclose(pairs.sum(axis=(1, 2)), 1.0)
    np.testing.assert_allclose(pairs.sum(axis=2), sites[edges[:, 0]], atol=1e-12)
    np.testing.assert_allclose(pairs.sum(axis=1), sites[edges[:, 1]], atol=1e-12)


def test_the_two_arithmetics_agree():
    """Just below and just above the range of plain arithmetic log Z moves smoothly."""
    plan = elimination_plan(graphs.grid(4, 4), 16, 3)
    rng = np.random.default_rng(1)
    h, J = rng.normal(size=(16, 3)), rng.uniform(-1, 1, size=(24, 3, 3))
    scales = np.linspace(20.0, 120.0, 101)
    values = [plan.marginals(scale * h, scale * J) for scale in scales]
    slopes = [(h * sites).sum() + (J * pairs).sum() for _, sites, pairs in values]
    steps = np.diff([value for value, *_ in values])
    # log Z is convex in the scale: every difference lies between the slopes at its ends.
    assert (steps >= np.array(slopes[:-1]) * np.diff(scales) - 1e-9).all()
    assert (steps <= np.array(slopes[1:]) * np.diff(scales) + 1e-9).all()


def test_forbidden_states():
    """Fields of -inf take states away."""
    rng = np.random.default_rng(0)
    edges = graphs.ring(5)
    h, J = rng.normal(size=(5, 3)), rng.normal(size=(5, 3, 3))
    h[:, 2] = -np.inf
    value, sites, pairs = elimination_plan(edges, 5, 3).marginals(h, J)
    expected, smaller, smaller_pairs = elimination_plan(edges, 5, 2).marginals(
        h[:, :2], J[:, :2, :2]
    )
    assert value == pytest.approx(expected, rel=1e-13)
    np.testing.assert_allclose(sites[:, :2], smaller)
    np.testing.assert_allclose(pairs[:, :2, :2], smaller_pairs)
    assert (sites[:, 2] == 0).all()


def test_long_chain():
    n_sites = 2000
    plan = elimination_plan(graphs.chain(n_sites), n_sites, 2)
    coupling = 0.7
    value = plan.log_partition(
        np.zeros((n_sites, 2)), np.tile(coupling * np.eye(2), (n_sites - 1, 1, 1))
    )
    assert value == pytest.approx(np.log(2) + (n_sites - 1) * np.log(1 + np.exp(coupling)))


@pytest.mark.parametrize("edges", [graphs.grid(3, 3), graphs.complete(6), [], graphs.chain(4)])
def test_draws_have_the_exact_marginals(edges):
    n_sites, n_states, n = (9 if len(edges) == 12 else 6), 3, 20_000
    rng = np.random.default_rng(len(edges))
    layout = PottsLayout(n_sites, n_states, edges, "full", "full")
    h = rng.normal(size=(n_sites, n_states))
    J = rng.normal(size=(layout.n_edges, n_states, n_states))
    plan = elimination_plan(edges, n_sites, n_states)
    x = plan.draw(plan.prepare(h, J), n, rng)
    _, sites, pairs = plan.marginals(h, J)
    mean = np.concatenate([sites.ravel(), pairs.ravel()])
    scores = (layout.mean_statistics(x) - mean) / np.sqrt(mean * (1 - mean) / n)
    assert np.abs(scores).max() < 4.5
    assert np.mean(scores**2) < 2.0


def test_draws_at_strong_couplings():
    plan = elimination_plan(graphs.grid(4, 4), 16, 3)
    J = np.tile(900.0 * np.eye(3), (24, 1, 1))
    x = plan.draw(plan.prepare(np.zeros((16, 3)), J), 300, np.random.default_rng(0))
    assert (x == x[:, :1]).all()
    assert set(x[:, 0]) == {0, 1, 2}


def test_plans_are_shared_and_pickled():
    edges = graphs.grid(3, 3)
    plan = elimination_plan(edges, 9, 2)
    assert elimination_plan(edges.copy(), 9, 2) is plan
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert plan != elimination_plan(edges, 9, 3)


def test_shapes_are_checked():
    plan = elimination_plan(graphs.chain(3), 3, 2)
    with pytest.raises(ValueError, match=r"h must have shape \(3, 2\), got \(2, 2\)"):
        plan.log_partition(np.zeros((2, 2)), np.zeros((2, 2, 2)))
    with pytest.raises(ValueError, match=r"J must have shape \(2, 2, 2\), got \(2, 2\)"):
        plan.log_partition(np.zeros((3, 2)), np.zeros((2, 2)))


def test_limits():
    small = plan_within(PottsLayout(64, 3, graphs.grid(8, 8), "none", "scalar"), Budget.EVERY_STEP)
    larger = PottsLayout(144, 3, graphs.grid(12, 12), "none", "scalar")
    assert plan_within(larger, Budget.ON_REQUEST) is not None
    assert plan_within(larger, Budget.EVERY_STEP) is None
    dense = PottsLayout(40, 2, graphs.complete(40), "none", "scalar")
    assert plan_within(dense, Budget.ON_REQUEST) is None
    # All messages, one table and its local part: what the passes allocate.
    assert small.memory == 8 * (2 * sum(3 ** len(c) for c in small.order.cliques) + 2 * 3**9)


def test_what_memory_held_before_does_not_matter():
    """Fill the heap with NaN first: tables that are not set would show it."""

    @numba.njit
    def soil(n):
        for size in range(1, n):
            _ = [np.full(size, np.nan) for _ in range(20)]

    for edges, n_sites in ((graphs.chain(4), 4), (np.empty((0, 2), int), 1), (graphs.ring(5), 5)):
        plan = elimination_plan(edges, n_sites, 2)
        h, J = np.zeros((n_sites, 2)), np.zeros((len(edges), 2, 2))
        for _ in range(40):
            soil(40)
            values = [plan.log_partition(h, J)]
            soil(40)
            values.append(plan.marginals(h, J)[0])
            np.testing.assert_allclose(values, n_sites * np.log(2.0), rtol=1e-12)
