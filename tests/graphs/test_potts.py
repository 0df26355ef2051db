import warnings

import arviz as az
import networkx as nx
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from graph_models import all_states, listed
from hypothesis import given, settings
from hypothesis import strategies as st
from pymc.distributions.distribution import support_point
from pytensor.graph import FunctionGraph, rewrite_graph
from pytensor.graph.traversal import explicit_graph_inputs
from scipy.special import ellipk

import pymc_bayessum as pbs
from pymc_bayessum.graphs.energies import RowLogp
from pymc_bayessum.graphs.exact import ExactNormalizer, LogPartition
from pymc_bayessum.graphs.samplers import sample_exact
from pymc_bayessum.graphs.statistics import PottsLayout, potts_layout

EDGES = pbs.graphs.grid(2, 3)
L, S, E = 6, 3, len(EDGES)
ROWS = all_states(L, S)
RNG = np.random.default_rng(0)
FIELDS = {"none": None, "shared": RNG.normal(size=S), "full": RNG.normal(size=(L, S))}
COUPLINGS = {
    "scalar": 0.6,
    "edge": RNG.normal(size=E),
    "shared": RNG.normal(size=(S, S)),
    "full": RNG.normal(size=(E, S, S)),
}


def evaluate(variable, given=None):
    """Without a compiler: the numbers are those of the Ops themselves."""
    return variable.eval(given or {}, mode="FAST_COMPILE")


def exact_logp(layout, h, J, x):
    return layout.energy(layout.encode(x), h, J) - listed(layout, layout.flatten(h, J)).log_z


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("field", FIELDS)
def test_logp_of_every_state(field, coupling):
    h, J = FIELDS[field], COUPLINGS[coupling]
    layout, given_h, given_J = potts_layout(h, J, EDGES, n_states=S)
    expected = exact_logp(layout, given_h, given_J, ROWS)
    rv = pbs.Potts.dist(h, J, EDGES, n_states=S)
    np.testing.assert_allclose(evaluate(pm.logp(rv, ROWS)), expected, atol=1e-10)
    x = pt.lmatrix("x")
    np.testing.assert_allclose(evaluate(pm.logp(rv, x), {x: ROWS}), expected, atol=1e-10)


@pytest.mark.parametrize("h", [None, 0.3, RNG.normal(size=L)], ids=["none", "scalar", "full"])
@pytest.mark.parametrize("J", [-0.4, RNG.normal(size=E)], ids=["scalar", "edge"])
def test_ising_logp(h, J):
    layout, given_h, given_J = potts_layout(h, J, EDGES, ising=True)
    x = 2 * all_states(L, 2) - 1
    expected = exact_logp(layout, given_h, given_J, x)
    rv = pbs.Ising.dist(h, J, EDGES)
    np.testing.assert_allclose(evaluate(pm.logp(rv, x)), expected, atol=1e-10)
    value = pt.lmatrix("x")
    np.testing.assert_allclose(evaluate(pm.logp(rv, value), {value: x}), expected, atol=1e-10)


def test_ising_is_the_potts_model_of_two_states():
    h, J = RNG.normal(size=L), 0.3
    spins = 2 * all_states(L, 2) - 1
    by_spins = evaluate(pm.logp(pbs.Ising.dist(h, J, EDGES), spins))
    states = pbs.Potts.dist(np.stack([-h, h], axis=1), 2 * J, EDGES)
    np.testing.assert_allclose(by_spins, evaluate(pm.logp(states, (spins + 1) // 2)))


def test_states_out_of_range():
    rv = pbs.Potts.dist(FIELDS["full"], 0.3, EDGES)
    x = np.array([[0, 1, 2, 0, 1, 2], [0, 1, 2, 0, 1, 3], [-1, 1, 2, 0, 1, 2]])
    value = pt.lmatrix("x")
    for logp in (evaluate(pm.logp(rv, x)), evaluate(pm.logp(rv, value), {value: x})):
        assert np.isfinite(logp[0])
        assert (logp[1:] == -np.inf).all()
    spins = pbs.Ising.dist(0.1, 0.3, EDGES)
    x = np.array([[1, -1, 1, 1, 1, 1], [1, -1, 1, 0, 1, 1], [1, -1, 1, 3, 1, 1]])
    for logp in (evaluate(pm.logp(spins, x)), evaluate(pm.logp(spins, value), {value: x})):
        assert np.isfinite(logp[0])
        assert (logp[1:] == -np.inf).all()


def test_one_row_and_more_dimensions():
    rv = pbs.Potts.dist(FIELDS["full"], 0.3, EDGES)
    rows = evaluate(pm.logp(rv, ROWS[:6]))
    assert evaluate(pm.logp(rv, ROWS[4])) == pytest.approx(rows[4])
    cube = evaluate(pm.logp(rv, ROWS[:6].reshape(2, 3, L)))
    np.testing.assert_allclose(cube, rows.reshape(2, 3))


def test_batch_of_parameters():
    h, J = RNG.normal(size=(4, L, S)), RNG.normal(size=4)
    layout = PottsLayout(L, S, EDGES, "full", "scalar")
    expected = np.stack([exact_logp(layout, h[k], J[k], ROWS[:10]) for k in range(4)], axis=1)
    x = np.repeat(ROWS[:10, None], 4, axis=1)
    logp = pm.logp(pbs.Potts.dist(h, J, EDGES), x)
    np.testing.assert_allclose(evaluate(logp), expected, atol=1e-10)
    full = pbs.Potts.dist(h, layout.expand_coupling(J), EDGES)
    np.testing.assert_allclose(evaluate(pm.logp(full, x)), expected, atol=1e-10)
    shared = pbs.Potts.dist(None, J, EDGES, n_states=S, coupling="scalar")
    assert evaluate(pm.logp(shared, x)).shape == (10, 4)
    spins = pbs.Ising.dist(RNG.normal(size=(4, L)), J, EDGES)
    assert evaluate(pm.logp(spins, np.ones((10, 4, L), dtype=int))).shape == (10, 4)


def test_log_z_once_for_all_rows():
    h, J = pt.dmatrix("h", shape=(L, S)), pt.dscalar("J")
    for x in (ROWS, pt.lmatrix("x")):
        logp = pm.logp(pbs.Potts.dist(h, J, EDGES, shape=(len(ROWS), L)), x)
        nodes = FunctionGraph(outputs=[logp], clone=True).apply_nodes
        (log_z,) = [node for node in nodes if isinstance(node.op, LogPartition)]
        assert log_z.outputs[0].type.ndim == 0


def test_sum_over_rows_uses_the_sum_of_statistics():
    h, J = pt.dvector("h", shape=(S,)), pt.dscalar("J")
    total = pm.logp(pbs.Potts.dist(h, J, EDGES), ROWS).sum()
    graph = rewrite_graph([total], include=("canonicalize",), clone=True)
    nodes = FunctionGraph(outputs=graph, clone=True).apply_nodes
    assert not any(isinstance(node.op, RowLogp) for node in nodes)
    longest = [max(var.type.shape, default=1) for node in nodes for var in node.inputs]
    assert max(longest) < len(ROWS)
    values = {h: FIELDS["shared"], J: 0.4}
    layout = PottsLayout(L, S, EDGES, "shared", "scalar")
    expected = exact_logp(layout, FIELDS["shared"], 0.4, ROWS).sum()
    compiled = pytensor.function([h, J], graph[0], mode="FAST_COMPILE")
    assert compiled(values[h], values[J]) == pytest.approx(expected)


def test_gradient_of_the_likelihood():
    """Observed less expected statistics, with data written in and with data passed."""
    layout = PottsLayout(L, S, EDGES, "full", "full")
    h, J = pt.dmatrix("h", shape=(L, S)), pt.dtensor3("J", shape=(E, S, S))
    data = ROWS[RNG.integers(0, len(ROWS), size=20)]
    values = FIELDS["full"], COUPLINGS["full"]
    model = listed(layout, layout.flatten(*values))
    seen = layout.statistics(layout.encode(data)).sum(axis=0)
    expected = seen - len(data) * model.mean_statistics
    x = pt.lmatrix("x")
    for variable, inputs in ((data, {}), (x, {x: data})):
        total = pm.logp(pbs.Potts.dist(h, J, EDGES), variable).sum()
        gradients = pytensor.grad(total, [h, J])
        given = {h: values[0], J: values[1], **inputs}
        seen = np.concatenate([evaluate(part, given).ravel() for part in gradients])
        np.testing.assert_allclose(seen, expected, atol=1e-9)


@given(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3), st.sampled_from([np.nan, np.inf, -np.inf, 1.0]))
@settings(deadline=None, max_examples=25)
def test_never_nan_and_never_plus_infinity(field, coupling, factor):
    with np.errstate(all="ignore"):
        logp = NEVER(np.array([field, 0.0, -field]) * factor, coupling)
    assert not np.isnan(logp).any()
    assert (logp < np.inf).all()
    if factor == 1.0:
        assert (logp <= 1e-9).all()
        assert np.isfinite(logp).all()


def _both_paths():
    h, J = pt.dvector("h", shape=(S,)), pt.dscalar("J")
    x = pt.constant(ROWS[:5]) + pt.zeros((), dtype="int64") * pt.cast(J > 0, "int64")
    rv = pbs.Potts.dist(h, J, EDGES)
    outputs = pt.stack([pm.logp(rv, ROWS[:5]), pm.logp(rv, x)])
    return pytensor.function([h, J], outputs, mode="FAST_COMPILE")


NEVER = _both_paths()


@pytest.fixture(scope="module")
def model():
    """Fields by site and state, one coupling, named dimensions, forty rows."""
    truth = PottsLayout(L, S, EDGES, "full", "scalar")
    data = sample_exact(truth, FIELDS["full"], 0.5, 40, np.random.default_rng(1))
    coords = {"site": range(L), "state": list("abc"), "row": range(40)}
    with pm.Model(coords=coords) as model:
        h = pm.Normal("h", dims=("site", "state"))
        J = pm.Normal("J")
        pbs.Potts("x", h, J, EDGES, observed=data, dims=("row", "site"))
    return model


def test_named_dimensions(model):
    assert model["x"].owner.op.layout.field_kind == "full"
    assert model.named_vars_to_dims["x"] == ("row", "site")
    assert isinstance(model["x"].owner.op.normalizer, ExactNormalizer)


@pytest.mark.usefixtures("plain")
def test_prior_predictive_and_loo(model):
    with model:
        prior = pm.sample_prior_predictive(30, random_seed=0)
        x = prior.prior_predictive["x"]
        assert x.sizes["row"] == 40
        assert x.sizes["site"] == L
        assert set(np.unique(x)) == {0, 1, 2}
        # A posterior of sorts: what follows only needs draws of the parameters.
        trace = xr.DataTree.from_dict({"posterior": prior.prior.to_dataset()})
        predictive = pm.sample_posterior_predictive(trace, random_seed=1, progressbar=False)
        assert predictive.posterior_predictive["x"].shape == (1, 30, 40, L)
        pm.compute_log_likelihood(trace, progressbar=False)
    pointwise = trace.log_likelihood["x"]
    assert pointwise.shape == (1, 30, 40)
    layout = PottsLayout(L, S, EDGES, "full", "scalar")
    data = np.asarray(model.rvs_to_values[model["x"]].data)
    h, J = trace.posterior["h"].values[0, 7], trace.posterior["J"].values[0, 7]
    np.testing.assert_allclose(pointwise[0, 7], exact_logp(layout, h, J, data), atol=1e-9)
    with warnings.catch_warnings():
        # Draws from the prior are poor ones for it: only that it runs row by row is asked.
        warnings.simplefilter("ignore")
        assert az.loo(trace, pointwise=True).elpd_i.shape == (40,)


def test_draws():
    layout = PottsLayout(L, S, EDGES, "full", "scalar")
    h = FIELDS["full"]
    rv = pbs.Potts.dist(h, 0.5, EDGES, shape=(4000, L))
    x = pm.draw(rv, random_seed=3, mode="FAST_COMPILE")
    assert x.dtype == np.int64
    _, sites, _ = ExactNormalizer(layout).plan.marginals(*layout.expand(h, 0.5))
    seen = np.stack([(x == state).mean(axis=0) for state in range(S)], axis=1)
    np.testing.assert_allclose(seen, sites, atol=0.035)


@pytest.mark.filterwarnings("ignore:The RandomType SharedVariables")
def test_draws_under_jax():
    pytest.importorskip("jax")
    rv = pbs.Potts.dist(FIELDS["full"] + [500.0, 0.0, 0.0], 0.5, EDGES, shape=(2, 3, L))
    x = pm.draw(rv, random_seed=3, mode="JAX")
    assert x.shape == (2, 3, L)
    assert (x == 0).all()
    free = pbs.Ising.dist(0.0, 0.0, EDGES, shape=(400, L))
    assert abs(pm.draw(free, random_seed=3, mode="JAX").mean()) < 0.1


def test_draws_of_a_batch_by_the_op_itself():
    h = np.zeros((2, 1, S))
    h[0, :, 0] = h[1, :, 1] = 500.0
    rv = pbs.Potts.dist(h, np.array([0.1, 0.2]), EDGES, n_sites=L)
    op, rng = rv.owner.op, np.random.default_rng(0)
    parameters = h[:, 0], np.array([0.1, 0.2])
    assert op.rng_fn(rng, *parameters, None).shape == (2, L)
    x = op.rng_fn(rng, *parameters, (3, 2))
    assert (x[:, 0] == 0).all()
    assert (x[:, 1] == 1).all()
    assert op.rng_fn(rng, h[0, 0], 0.1, (3, 2)).shape == (3, 2, L)


def test_draws_beyond_elimination():
    edges = pbs.graphs.grid(24, 24)
    rv = pbs.Ising.dist(h=None, J=0.2, edges=edges, sweeps=30)
    x = rv.owner.op.rng_fn(np.random.default_rng(0), 0.0, 0.2, (200,))
    agree = (x[:, edges[:, 0]] * x[:, edges[:, 1]]).mean()
    # Onsager's energy of the infinite plane; at this J the free border lowers it by one percent.
    modulus = 2 * np.sinh(0.4) / np.cosh(0.4) ** 2
    integral = 2 / np.pi * (2 * np.tanh(0.4) ** 2 - 1) * ellipk(modulus**2)
    assert agree == pytest.approx((1 + integral) / (2 * np.tanh(0.4)), abs=0.01)


def test_support_point():
    h = np.zeros((L, S))
    h[np.arange(L), [0, 1, 2, 2, 1, 0]] = 1.0
    point = support_point(pbs.Potts.dist(h, 0.3, EDGES, shape=(4, L)))
    assert evaluate(point).tolist() == [[0, 1, 2, 2, 1, 0]] * 4
    shared = support_point(pbs.Potts.dist([0.0, 1.0], 0.3, EDGES))
    assert evaluate(shared).tolist() == [1] * L
    spins = support_point(pbs.Ising.dist([1.0, -1.0, 1.0, 1.0, -1.0, 1.0], 0.3, EDGES))
    assert evaluate(spins).tolist() == [1, -1, 1, 1, -1, 1]
    empty = support_point(pbs.Potts.dist(None, 0.3, EDGES, n_states=S, shape=(2, L)))
    assert evaluate(empty).shape == (2, L)


def test_empty_graph_is_independent_sites():
    probs = np.array([[0.2, 0.8], [0.5, 0.5], [0.9, 0.1]])
    rv = pbs.Potts.dist(np.log(probs), edges=[])
    x = all_states(3, 2)
    expected = np.log(probs[np.arange(3), x]).sum(axis=1)
    np.testing.assert_allclose(evaluate(pm.logp(rv, x)), expected)
    assert rv.owner.op.normalizer.plan.width == 0
    spins = pbs.Ising.dist(0.4, edges=[], n_sites=2)
    assert evaluate(pm.logp(spins, [1, 1])) == pytest.approx(-2 * np.log1p(np.exp(-0.8)))


def test_networkx_graph():
    rv = pbs.Ising.dist(0.1, 0.2, nx.cycle_graph(5))
    layout = PottsLayout(5, 2, pbs.graphs.ring(5), "scalar", "scalar", spins=True)
    expected = exact_logp(layout, 0.1, 0.2, np.ones((1, 5), dtype=int))
    assert evaluate(pm.logp(rv, np.ones((1, 5), dtype=int))) == pytest.approx(expected)


def test_a_plain_rule_as_normalizer():
    """A rule whose nodes are all states sums exactly, whatever its kernel."""
    layout = PottsLayout(4, 2, pbs.graphs.ring(4), "shared", "scalar")
    measure = pbs.measures.UniformCategorical(4, 2)
    rule = pbs.bayes_sum(pbs.kernels.ExpHamming(0.3), measure, all_states(4, 2))
    h, J = np.array([0.2, -0.1]), 0.5
    x = all_states(4, 2)
    rv = pbs.Potts.dist(h, J, layout.edges, normalizer=rule)
    expected = exact_logp(layout, h, J, x)
    np.testing.assert_allclose(evaluate(pm.logp(rv, x)), expected, atol=1e-6)
    normalizer = rv.owner.op.normalizer
    assert len(normalizer.rule) == 16
    both = evaluate(normalizer.log_z(np.stack([h, 0 * h]), J))
    zero = listed(layout, np.array([0.0, 0.0, J])).log_z
    np.testing.assert_allclose(both, [listed(layout, np.append(h, J)).log_z, zero], atol=1e-6)


def test_a_full_normalizer_serves_other_kinds():
    full = ExactNormalizer(PottsLayout(L, S, EDGES, "full", "full"))
    h, J = FIELDS["shared"], 0.5
    rv = pbs.Potts.dist(h, J, EDGES, normalizer=full)
    layout = PottsLayout(L, S, EDGES, "shared", "scalar")
    expected = exact_logp(layout, h, J, ROWS[:5])
    np.testing.assert_allclose(evaluate(pm.logp(rv, ROWS[:5])), expected)


WIDE = pbs.graphs.complete(40)
OTHER = ExactNormalizer(PottsLayout(L, S, EDGES, "shared", "edge"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pbs.Potts.dist(FIELDS["full"], 0.1), "edges must be given"),
        (lambda: pbs.Potts.dist(FIELDS["full"], 0.1, [(0, 6)]), r"allowed: 0 \.\. 5"),
        (lambda: pbs.Potts.dist(FIELDS["full"], 0.1, [(1, 1)]), "self-loop"),
        (lambda: pbs.Potts.dist(FIELDS["full"], 0.1, [(0, 1), (1, 0)]), "given 2 times"),
        (lambda: pbs.Potts.dist(FIELDS["full"], np.zeros(3), EDGES), "J must have one of the"),
        (lambda: pbs.Potts.dist([[0.0, np.inf]] * L, 0.1, EDGES), "h must be finite, got inf"),
        (lambda: pbs.Potts.dist(FIELDS["full"], np.nan, EDGES), "J must be finite, got nan"),
        (lambda: pbs.Potts.dist(FIELDS["full"], 0.1, EDGES, sweeps=0), "sweeps must be a"),
        (
            lambda: pbs.Potts.dist(FIELDS["full"], 0.1, EDGES, normalizer="best"),
            "normalizer must be None, 'exact' or a rule, got 'best'",
        ),
        (
            lambda: pbs.Ising.dist(0.1, 0.1, WIDE, normalizer="exact"),
            r"width 39, .*limit is 5e\+08 entries.*anchored_rule",
        ),
        (lambda: pm.logp(pbs.Ising.dist(0.1, 0.1, WIDE), np.ones(40)), "elimination width 39"),
        (lambda: pbs.Potts.dist(pt.dmatrix("h"), 0.1, EDGES), "n_states cannot be told from"),
        (lambda: pbs.Ising.dist(0.1, 0.1, EDGES, n_states=3), "n_states of an Ising model is 2"),
        (
            lambda: pbs.Potts.dist(FIELDS["shared"], 0.1, EDGES, normalizer=OTHER),
            "built for h of kind 'shared' and J of kind 'edge'",
        ),
        (
            lambda: pbs.Potts.dist(FIELDS["shared"], 0.1, EDGES[:-1], n_sites=L, normalizer=OTHER),
            "another graph: 6 sites, 3 states, 7 edges",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_bad_types():
    with pytest.raises(TypeError, match="normalizer must be None, 'exact' or a rule, got 3"):
        pbs.Potts.dist(FIELDS["full"], 0.1, EDGES, normalizer=3)


def test_data_of_another_length():
    with pm.Model():
        J = pm.Normal("J")
        with pytest.raises(ValueError, match="n_sites is not consistent"):
            pbs.Ising("x", np.zeros(6), J, EDGES, observed=np.ones((3, 5), dtype=int))


def recovers(posterior, truth):
    for name, value in truth.items():
        draws = posterior[name]
        mean, sd = draws.mean(("chain", "draw")), draws.std(("chain", "draw"))
        assert (np.abs(mean - value) < 3 * sd).all(), name


def lattice_model(side, data):
    with pm.Model() as model:
        h = pm.ZeroSumNormal("h", shape=S)
        J = pm.Normal("J")
        pbs.Potts("x", h, J, pbs.graphs.grid(side, side), observed=pm.Data("data", data))
    return model


def simulate(side, truth, seed, n=20):
    layout = PottsLayout(side**2, S, pbs.graphs.grid(side, side), "shared", "scalar")
    return sample_exact(layout, truth["h"], truth["J"], n, np.random.default_rng(seed))


TRUTH = {"h": np.array([0.3, -0.1, -0.2]), "J": 0.6}


@pytest.mark.slow
def test_nutpie_recovers_a_lattice():
    nutpie = pytest.importorskip("nutpie")
    model = lattice_model(6, simulate(6, TRUTH, 0))
    compiled = nutpie.compile_pymc_model(model)
    for seed in range(2):
        trace = nutpie.sample(
            compiled.with_data(data=simulate(6, TRUTH, seed)),
            draws=250,
            tune=200,
            chains=2,
            cores=1,
            seed=seed,
            progress_bar=False,
        )
        recovers(trace.posterior, TRUTH)
        assert int(trace.sample_stats["diverging"].sum()) == 0


@pytest.mark.slow
def test_nutpie_recovers_a_wider_lattice():
    pytest.importorskip("nutpie")
    with lattice_model(8, simulate(8, TRUTH, 5)):
        trace = pm.sample(
            draws=150, tune=150, chains=1, cores=1, nuts_sampler="nutpie", random_seed=1,
            progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
    recovers(trace.posterior, TRUTH)
    assert int(trace.sample_stats["diverging"].sum()) == 0


@pytest.mark.slow
def test_numpyro_recovers_a_lattice():
    pytest.importorskip("numpyro")
    with lattice_model(6, simulate(6, TRUTH, 7)):
        trace = pm.sample(
            draws=150, tune=150, chains=2, nuts_sampler="numpyro", random_seed=1,
            progressbar=False, compute_convergence_checks=False,
            nuts={"chain_method": "vectorized"},
        )  # fmt: skip
    recovers(trace.posterior, TRUTH)
    assert int(trace.sample_stats["diverging"].sum()) == 0


def autologistic(X, edges):
    """Fields by a regression whose rows are data, all lengths unknown to the graph of PyTensor."""
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        beta = pm.Normal("beta", shape=X.shape[1])
        fields = pm.Data("X", X) @ beta
        y = np.where(rng.random((2, len(X))) < 0.5, 1, -1)
        pbs.Ising("y", fields, pm.Normal("J"), edges, observed=y)
    return model


def test_fields_by_regression_on_data_that_may_change():
    X = RNG.normal(size=(L, 2))
    model = autologistic(X, EDGES)
    logp = model.compile_logp(mode="FAST_COMPILE")
    data = np.asarray(model.rvs_to_values[model["y"]].data)
    layout = PottsLayout(L, 2, EDGES, "full", "scalar", spins=True)
    point = {"beta": np.array([0.4, -0.7]), "J": np.array(0.3)}
    prior = sum(-0.5 * value**2 - 0.5 * np.log(2 * np.pi) for value in (0.4, -0.7, 0.3))
    for rows in (X, 2.0 * X[::-1]):
        with model:
            pm.set_data({"X": rows})
        expected = exact_logp(layout, rows @ point["beta"], 0.3, data).sum() + prior
        assert logp(point) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("make", "kinds"),
    [
        (lambda h, J: pbs.Ising.dist(h["v"], J["v"], EDGES), ("full", "edge")),
        (lambda h, J: pbs.Ising.dist(h["v"], 0.3, [(0, 1)], n_sites=L), ("full", "scalar")),
        (lambda h, J: pbs.Potts.dist(h["v"], J["v"], EDGES, n_states=S), ("shared", "edge")),
        (lambda h, J: pbs.Potts.dist(h["m"], J["m"], EDGES, n_states=S), ("full", "shared")),
        (lambda h, J: pbs.Potts.dist(h["m"], J["t"], EDGES, n_states=S), ("full", "full")),
    ],
)
def test_lengths_that_only_the_graph_knows(make, kinds):
    h, J = ({"v": pt.dvector(name), "m": pt.dmatrix(name), "t": pt.dtensor3(name)} for name in "hJ")
    rv = make(h, J)
    layout = rv.owner.op.layout
    assert (layout.field_kind, layout.coupling_kind) == kinds
    fields, couplings = RNG.normal(size=layout.field_shape), RNG.normal(size=layout.coupling_shape)
    if layout.coupling_shape == ():
        couplings = 0.3
    given = dict(zip([*h.values(), *J.values()], 3 * [fields] + 3 * [couplings], strict=True))
    x = layout.decode(all_states(L, layout.n_states)[:5])
    logp = pm.logp(rv, x)
    used = {v: given[v] for v in explicit_graph_inputs([logp]) if v in given}
    np.testing.assert_allclose(
        evaluate(logp, used), exact_logp(layout, fields, couplings, x), atol=1e-10
    )


def test_lengths_that_do_not_fit_the_graph():
    h = pt.dvector("h")
    logp = pm.logp(pbs.Ising.dist(h, 0.3, EDGES), np.ones(L, dtype=int))
    with pytest.raises(AssertionError, match="SpecifyShape"):
        evaluate(logp, {h: np.zeros(L - 1)})
    with pytest.raises(ValueError, match="n_sites cannot be told from an empty graph"):
        pbs.Ising.dist(h, edges=[])


@pytest.mark.usefixtures("plain")
def test_several_images_of_one_lattice():
    """Rows are independent given the parameters: their log-probabilities add up."""
    images = np.random.default_rng(4).integers(0, S, size=(3, L))
    with pm.Model() as model:
        J = pm.Normal("J")
        pbs.Potts("x", FIELDS["shared"], J, EDGES, observed=images)
    layout = PottsLayout(L, S, EDGES, "shared", "scalar")
    rows = exact_logp(layout, FIELDS["shared"], 0.4, images)
    total = model.compile_logp(vars=[model["x"]], mode="FAST_COMPILE")({"J": np.array(0.4)})
    assert total == pytest.approx(rows.sum())
    with model:
        prior = pm.sample_prior_predictive(4, random_seed=0)
        trace = xr.DataTree.from_dict({"posterior": prior.prior.to_dataset()})
        pm.compute_log_likelihood(trace, progressbar=False)
    assert trace.log_likelihood["x"].shape == (1, 4, 3)
    assert prior.prior_predictive["x"].shape == (1, 4, 3, L)


def test_one_site_alone():
    """A field of one row and no edges can only mean one site."""
    field = np.array([[0.1, 0.4, 2.0]])
    logp = pm.logp(pbs.Potts.dist(field, 0.0, edges=[]), np.array([[0], [1], [2]])).eval()
    np.testing.assert_allclose(logp, field[0] - np.log(np.exp(field[0]).sum()), rtol=1e-12)


def test_images_that_are_not_in_rows():
    images = np.ones((3, 4, 4), dtype=int)
    with pm.Model(), pytest.raises(ValueError, match=r"observed\.reshape\(-1, 16\)"):
        pbs.Ising("x", 0.0, 0.1, pbs.graphs.grid(4, 4), observed=images)
