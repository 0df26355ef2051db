"""Minus infinity in fields and couplings: states and pairs of states that never occur."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from graph_models import all_states
from scipy.special import logsumexp

import pymc_bayessum as pbs
from pymc_bayessum.graphs.elimination import elimination_plan
from pymc_bayessum.graphs.samplers import sample_exact, sample_gibbs, sample_states
from pymc_bayessum.graphs.statistics import PottsLayout

INF = np.inf
S = 3
GRAPHS = {"lattice": (pbs.graphs.grid(2, 3), 6), "dense": (pbs.graphs.complete(6), 6)}
RNG = np.random.default_rng(0)


def some_forbidden(shape, share, rng):
    values = rng.normal(size=shape)
    values[rng.random(shape) < share] = -INF
    return values


def energies(h, J, edges, states):
    """By lookup, term by term: minus infinity needs no products here."""
    site = h[np.arange(len(h)), states].sum(axis=1)
    pair = J[np.arange(len(edges)), states[:, edges[:, 0]], states[:, edges[:, 1]]]
    return site + pair.sum(axis=1)


def forbidding(name, where):
    """Full parameters of a model in which some state is still possible."""
    edges, n_sites = GRAPHS[name]
    rng = np.random.default_rng(3)
    states = all_states(n_sites, S)
    while True:
        h = some_forbidden((n_sites, S), 0.25 if where != "J" else 0.0, rng)
        J = some_forbidden((len(edges), S, S), 0.15 if where != "h" else 0.0, rng)
        energy = energies(h, J, edges, states)
        if np.isfinite(energy).sum() > 3:
            return edges, h, J, states, energy


@pytest.mark.parametrize("where", ["h", "J", "both"])
@pytest.mark.parametrize("name", GRAPHS)
def test_exact_sums_and_their_derivatives(name, where):
    edges, h, J, states, energy = forbidding(name, where)
    plan = elimination_plan(edges, len(h), S)
    probs = np.exp(energy - logsumexp(energy))
    log_z, sites, pairs = plan.marginals(h, J)
    assert plan.log_partition(h, J) == pytest.approx(logsumexp(energy), abs=1e-12)
    assert log_z == pytest.approx(logsumexp(energy), abs=1e-12)
    at_site = states[:, :, None] == np.arange(S)
    np.testing.assert_allclose(sites, np.einsum("n,nia->ia", probs, at_site), atol=1e-12)
    at_edge = at_site[:, edges[:, 0], :, None] & at_site[:, edges[:, 1], None, :]
    np.testing.assert_allclose(pairs, np.einsum("n,neab->eab", probs, at_edge), atol=1e-12)
    # The Hessian on a step is the covariance of all statistics with the step's energy.
    h_step, J_step = RNG.normal(size=h.shape), RNG.normal(size=J.shape)
    step = energies(h_step, J_step, edges, states)
    weights = probs * (step - probs @ step)
    site_step, pair_step = plan.tangent(h, J, h_step, J_step)
    np.testing.assert_allclose(site_step, np.einsum("n,nia->ia", weights, at_site), atol=1e-10)
    np.testing.assert_allclose(pair_step, np.einsum("n,neab->eab", weights, at_edge), atol=1e-10)


@pytest.mark.parametrize("where", ["h", "J"])
def test_logp_of_every_state_in_numbers_and_symbols(where):
    edges, h, J, states, energy = forbidding("lattice", where)
    expected = energy - logsumexp(energy)
    rv = pbs.Potts.dist(h, J, edges)
    np.testing.assert_allclose(pm.logp(rv, states).eval(mode="FAST_COMPILE"), expected, atol=1e-10)
    x, fields, pairs = pt.lmatrix("x"), pt.dmatrix("h"), pt.dtensor3("J")
    symbolic = pbs.Potts.dist(fields, pairs, edges, n_sites=6, n_states=S)
    logp = pm.logp(symbolic, x).eval({x: states, fields: h, pairs: J}, mode="FAST_COMPILE")
    np.testing.assert_allclose(logp, expected, atol=1e-10)


def test_gradients_are_those_of_what_is_allowed():
    edges, h, J, states, energy = forbidding("lattice", "both")
    data = states[np.isfinite(energy)][:3]
    assert len(data) == 3
    step, scale = pt.dmatrix("step"), pt.dscalar("scale")
    x = pt.lmatrix("x")
    for rows, given in ((data, {}), (x, {x: data})):
        rv = pbs.Potts.dist(h + step, J + scale * np.ones(J.shape), edges, n_sites=6, n_states=S)
        total = pm.logp(rv, rows).sum()
        values = {step: np.zeros(h.shape), scale: 0.0, **given}
        slopes = pytensor.function(
            [step, scale, *given], [total, *pytensor.grad(total, [step, scale])],
            mode="FAST_COMPILE", on_unused_input="ignore",
        )(*values.values())  # fmt: skip
        probs = np.exp(energy - logsumexp(energy))
        at_site = states[:, :, None] == np.arange(S)
        mean = np.einsum("n,nia->ia", probs, at_site)
        seen = (data[:, :, None] == np.arange(S)).sum(axis=0)
        assert slopes[0] == pytest.approx(
            (energy[np.isfinite(energy)][:3] - logsumexp(energy)).sum()
        )
        np.testing.assert_allclose(slopes[1], seen - 3 * mean, atol=1e-9)
        assert slopes[2] == pytest.approx(0.0, abs=1e-9)


def test_data_in_a_forbidden_state():
    h = np.array([[0.0, -INF], [0.3, 0.1]])
    rv = pbs.Potts.dist(h, 0.2, [(0, 1)])
    logp = pm.logp(rv, [[1, 0], [0, 0]]).eval(mode="FAST_COMPILE")
    assert logp[0] == -INF
    assert np.isfinite(logp[1])
    total = pm.logp(rv, [[1, 0], [0, 0]]).sum().eval(mode="FAST_COMPILE")
    assert total == -INF


@pytest.mark.parametrize("coupling", [-INF, np.full(4, -INF)], ids=["scalar", "edge"])
def test_proper_colourings(coupling):
    """A ring of n sites has (q - 1)^n + (-1)^n (q - 1) proper colourings."""
    rv = pbs.Potts.dist(None, coupling, pbs.graphs.ring(4), n_states=3)
    x = np.array([[0, 1, 0, 2], [0, 0, 1, 2]])
    expected = [-np.log(2**4 + 2), -INF]
    np.testing.assert_allclose(pm.logp(rv, x).eval(mode="FAST_COMPILE"), expected)
    value = pt.lmatrix("x")
    np.testing.assert_allclose(
        pm.logp(rv, value).eval({value: x}, mode="FAST_COMPILE"), expected, atol=1e-12
    )


def test_draws_avoid_what_is_forbidden():
    edges, h, J, states, energy = forbidding("lattice", "both")
    layout = PottsLayout(6, S, edges, "full", "full")
    probs = np.exp(energy - logsumexp(energy))
    mean = np.einsum("n,nia->ia", probs, states[:, :, None] == np.arange(S))
    x = sample_exact(layout, h, J, 4000, np.random.default_rng(0))
    assert np.isfinite(energies(h, J, edges, x)).all()
    seen = np.stack([(x == state).mean(axis=0) for state in range(S)], axis=1)
    np.testing.assert_allclose(seen, mean, atol=0.04)


def test_chains_find_colourings_and_stay_there():
    """Four colours on a lattice: Gibbs moves between all of them."""
    edges = pbs.graphs.grid(2, 3)
    layout = PottsLayout(6, 4, edges, "full", "scalar")
    h = np.zeros((6, 4))
    h[0, 0] = -INF
    x = sample_gibbs(layout, h, -INF, 4000, 50, np.random.default_rng(1))
    assert (x[:, edges[:, 0]] != x[:, edges[:, 1]]).all()
    states = all_states(6, 4)
    proper = states[(states[:, edges[:, 0]] != states[:, edges[:, 1]]).all(axis=1)]
    proper = proper[proper[:, 0] != 0]
    expected = np.stack([(proper == state).mean(axis=0) for state in range(4)], axis=1)
    seen = np.stack([(x == state).mean(axis=0) for state in range(4)], axis=1)
    np.testing.assert_allclose(seen, expected, atol=0.04)


def test_clusters_with_forbidden_states():
    layout = PottsLayout(4, 2, pbs.graphs.chain(4), "full", "scalar")
    h = np.zeros((4, 2))
    h[0, 1] = -INF
    options = {"sweeps": 50, "sampler": "swendsen-wang"}
    x = sample_states(layout, h, 0.8, 4000, np.random.default_rng(2), **options)
    sites = elimination_plan(layout.edges, 4, 2).marginals(*layout.expand(h, 0.8))[1]
    np.testing.assert_allclose(x.mean(axis=0), sites[:, 1], atol=0.04)


def test_draws_that_stay_forbidden_are_told():
    """A triangle has no proper colouring by two colours."""
    triangle = PottsLayout(3, 2, pbs.graphs.ring(3), "none", "scalar")
    with pytest.warns(UserWarning, match="5 of 5 draws are still in a forbidden state"):
        sample_states(triangle, None, -INF, 5, np.random.default_rng(0), 10, "gibbs")


def test_what_leaves_nothing_is_told():
    with pytest.raises(ValueError, match="h must leave every site a state"):
        pbs.Potts.dist([[0.0, 0.0], [-INF, -INF]], 0.1, [(0, 1)])
    with pytest.raises(ValueError, match="J must be finite, got -inf"):
        pbs.Ising.dist(0.0, -INF, [(0, 1)])
    triangle = PottsLayout(3, 2, pbs.graphs.ring(3), "none", "scalar")
    with pytest.raises(ValueError, match="forbid every state"):
        sample_exact(triangle, None, -INF, 2, np.random.default_rng(0))
    nothing = pm.logp(pbs.Potts.dist(None, -INF, triangle.edges, n_states=2), [[0, 1, 0]])
    assert nothing.eval(mode="FAST_COMPILE").tolist() == [-INF]
    with pm.Model():
        level = pm.Normal("level")
        with pytest.raises(ValueError, match=r"needs an exact sum.* -15 in place"):
            pbs.Potts(
                "x", level + np.array([0.0, 0.0, -INF]), 0.1, pbs.graphs.complete(40),
                observed=np.zeros((3, 40), dtype=int),
            )  # fmt: skip


def test_derivatives_under_jax():
    """Those of pairs that are allowed, and zero for what is not."""
    edges, h, J, states, energy = forbidding("lattice", "both")
    row = states[np.isfinite(energy)][0]
    fields, scale = pt.dmatrix("h"), pt.dscalar("scale")
    logp = pm.logp(pbs.Potts.dist(fields, J + scale, edges, n_sites=6, n_states=S), row)
    value, slope = pytensor.function(
        [fields, scale], [logp, pt.grad(logp, fields)], mode="JAX", on_unused_input="ignore"
    )(h, 0.0)
    probs = np.exp(energy - logsumexp(energy))
    mean = np.einsum("n,nia->ia", probs, states[:, :, None] == np.arange(S))
    assert float(value) == pytest.approx(energy[np.isfinite(energy)][0] - logsumexp(energy))
    np.testing.assert_allclose(slope, (row[:, None] == np.arange(S)) - mean, atol=1e-9)
