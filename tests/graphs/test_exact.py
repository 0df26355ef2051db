import networkx as nx
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from graph_models import listed
from pytensor.gradient import grad
from pytensor.graph import FunctionGraph, rewrite_graph

from pymc_bayessum import graphs
from pymc_bayessum.diagnostics import find_normalizers
from pymc_bayessum.graphs.elimination import elimination_plan
from pymc_bayessum.graphs.exact import ExactNormalizer, LogPartition, Marginals
from pymc_bayessum.graphs.statistics import GraphNormalizer, PottsLayout
from pymc_bayessum.normalizers import Asked

LAYOUT = PottsLayout(6, 3, graphs.grid(2, 3), "shared", "scalar")
THETA = np.array([0.3, -0.2, 0.5, 0.7])
MODES = ["NUMBA", "JAX", "FAST_COMPILE"]


@pytest.fixture(scope="module")
def truth():
    model = listed(LAYOUT, THETA)
    phi = LAYOUT.statistics(model.states)
    mean = model.probs @ phi
    return model.log_z, mean, (phi * model.probs[:, None]).T @ phi - np.outer(mean, mean)


@pytest.mark.parametrize("mode", MODES)
def test_value_gradient_and_hessian(truth, mode):
    theta = pt.dvector("theta", shape=(4,))
    log_z = ExactNormalizer(LAYOUT).log_z(theta[:3], theta[3])
    first = grad(log_z, theta)
    step = np.array([0.3, -1.0, 0.5, 2.0])
    outputs = [log_z, first, grad((first * step).sum(), theta)]
    value, gradient, second = pytensor.function([theta], outputs, mode=mode)(THETA)
    assert abs(value - truth[0]) < 1e-10
    np.testing.assert_allclose(gradient, truth[1], atol=1e-10)
    np.testing.assert_allclose(second, truth[2] @ step, atol=1e-10)


@pytest.mark.parametrize("mode", MODES)
def test_batch(mode):
    h = pt.dmatrix("h", shape=(None, 3))
    log_z = ExactNormalizer(LAYOUT).log_z(h, THETA[3])
    fields = np.stack([THETA[:3], np.zeros(3)])
    value, by_h = pytensor.function([h], [log_z, grad(log_z.sum(), h)], mode=mode)(fields)
    models = [listed(LAYOUT, np.append(field, THETA[3])) for field in fields]
    np.testing.assert_allclose(value, [model.log_z for model in models], atol=1e-10)
    means = np.stack([model.mean_statistics for model in models])
    np.testing.assert_allclose(by_h, means[:, :3], atol=1e-10)


def test_under_jax_transformations(truth):
    jax = pytest.importorskip("jax")
    theta = pt.dvector("theta", shape=(4,))
    log_z = ExactNormalizer(LAYOUT).log_z(theta[:3], theta[3])
    compiled = pytensor.function([theta], log_z, mode="JAX").vm.jit_fn

    def function(values):
        return compiled(values)[0]

    value, gradient = jax.value_and_grad(function)(THETA)
    assert abs(value - truth[0]) < 1e-10
    np.testing.assert_allclose(gradient, truth[1], atol=1e-10)
    np.testing.assert_allclose(jax.hessian(function)(THETA), truth[2], atol=1e-10)
    both = jax.vmap(function)(np.stack([THETA, 0 * THETA]))
    np.testing.assert_allclose(both, [truth[0], 6 * np.log(3)], atol=1e-10)


def test_one_forward_pass_for_value_and_gradient():
    theta = pt.dvector("theta", shape=(4,))
    log_z = ExactNormalizer(LAYOUT).log_z(theta[:3], theta[3])
    both = rewrite_graph(
        [log_z, grad(log_z, theta)], include=("canonicalize", "specialize"), clone=True
    )
    ops = [type(node.op) for node in FunctionGraph(outputs=both).apply_nodes]
    assert LogPartition not in ops
    assert ops.count(Marginals) == 1


def test_derivatives_end_at_the_second_order():
    theta = pt.dvector("theta", shape=(4,))
    log_z = ExactNormalizer(LAYOUT).log_z(theta[:3], theta[3])
    second = grad(grad(log_z, theta)[0], theta)[1]
    with pytest.raises(Exception, match="second order only"):
        grad(second, theta)


def test_shapes_are_checked():
    op = LogPartition(elimination_plan(graphs.chain(3), 3, 2))
    with pytest.raises(ValueError, match=r"h must have shape \(3, 2\), got \(3, 3\)"):
        op(np.zeros((3, 3)), np.zeros((2, 2, 2)))
    assert str(op) == "LogPartition{3 sites, 2 states}"


def test_face():
    exact = ExactNormalizer(LAYOUT)
    assert isinstance(exact, GraphNormalizer)
    assert exact.plan.width == 2


def test_numbers(truth):
    exact = ExactNormalizer(LAYOUT)
    assert exact.value(THETA[:3], THETA[3]) == pytest.approx(truth[0], abs=1e-10)
    _, sites, pairs = exact.plan.marginals(*LAYOUT.expand(THETA[:3], THETA[3]))
    np.testing.assert_allclose(sites.sum(axis=0), truth[1][:3])
    assert np.trace(pairs.sum(axis=0)) == pytest.approx(truth[1][3])


def test_too_wide():
    with pytest.raises(ValueError, match=r"width 39, .* the limit is .*anchored_rule") as caught:
        ExactNormalizer(PottsLayout(40, 2, graphs.complete(40), "none", "scalar", spins=True))
    assert "about width 22 for 40 sites" in str(caught.value)


def test_any_networkx_graph():
    graph = nx.petersen_graph()
    layout = PottsLayout(10, 2, graphs.from_networkx(graph), "scalar", "scalar", spins=True)
    model = listed(layout, np.array([0.2, 0.4]))
    assert ExactNormalizer(layout).value(0.2, 0.4) == pytest.approx(model.log_z, abs=1e-10)


@pytest.mark.parametrize("batch", [(), (2,)])
def test_diagnostics_find_it(batch):
    h = pt.tensor("h", shape=(*batch, 3), dtype="float64")
    log_z = ExactNormalizer(LAYOUT).log_z(h, THETA[3])
    (found,) = find_normalizers(log_z)
    assert found.log_z is log_z
    fields, couplings = LAYOUT.expand(np.broadcast_to(THETA[:3], (*batch, 3)), THETA[3])
    expected = np.full(batch, listed(LAYOUT, THETA).log_z)
    reference = found.normalizer.reference(Asked(found.theta, [], [], {}, np.random.default_rng()))
    value = reference([], [fields, couplings])
    np.testing.assert_allclose(value.log_z, expected, atol=1e-10)
