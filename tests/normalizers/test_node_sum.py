"""Log-sums over many nodes in one pass, against NumPy, on every backend."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.special import logsumexp, softmax

from pymc_bayessum.normalizers.anchored import node_sum
from pymc_bayessum.normalizers.anchored.node_sum import NodeSum, log_sum

RNG = np.random.default_rng(0)
SIZE = 40
#: Rows that four bytes hold, in the order in which a transposed product leaves them.
ROWS = np.asfortranarray(RNG.choice([-1.0, 0.5, 1.0], (2000, SIZE)))
WEIGHTS = RNG.normal(size=len(ROWS))
POINTS = RNG.normal(0.0, 0.3, (3, SIZE))


@pytest.fixture(autouse=True)
def memory_counts_early(monkeypatch):
    monkeypatch.setattr(node_sum, "LARGE", 1000)


def compiled(outputs, inputs, backend):
    return pytensor.function(inputs, outputs, mode={"numba": None, "c": "CVM"}.get(backend, "JAX"))


@pytest.mark.parametrize(
    "backend", ["numba", pytest.param("c", marks=pytest.mark.c_backend), "jax"]
)
@pytest.mark.parametrize("rows", [ROWS, ROWS + 1e-9], ids=["four bytes", "eight bytes"])
def test_value_and_gradient(backend, rows):
    point = pt.dvector("point")
    value = log_sum(pt, point, rows, WEIGHTS)
    run = compiled([value, pytensor.grad(value, point)], [point], backend)
    for at in POINTS:
        terms = rows @ at + WEIGHTS
        found, slope = run(at)
        assert found == pytest.approx(logsumexp(terms), abs=1e-11)
        np.testing.assert_allclose(slope, softmax(terms) @ rows, atol=1e-12)


def test_rows_are_read_in_four_bytes_where_these_hold_them():
    point = pt.dvector("point")
    for rows, dtype in ((ROWS, "float32"), (ROWS + 1e-9, "float64")):
        run = compiled(log_sum(pt, point, rows, WEIGHTS), [point], "numba")
        (node,) = [node for node in run.maker.fgraph.apply_nodes if isinstance(node.op, NodeSum)]
        assert node.inputs[1].type.dtype == dtype
        assert node.inputs[1].data.flags.c_contiguous


def test_value_and_gradient_share_one_pass():
    point = pt.dvector("point")
    value = log_sum(pt, point, ROWS, WEIGHTS)
    run = compiled([value, pytensor.grad(value, point)], [point], "numba")
    assert sum(isinstance(node.op, NodeSum) for node in run.maker.fgraph.apply_nodes) == 1


def test_few_nodes_are_written_out():
    point = pt.dvector("point")
    value = log_sum(pt, point, ROWS[:10], WEIGHTS[:10])
    run = compiled(value, [point], "numba")
    assert not any(isinstance(node.op, NodeSum) for node in run.maker.fgraph.apply_nodes)
    assert run(POINTS[0]) == pytest.approx(logsumexp(ROWS[:10] @ POINTS[0] + WEIGHTS[:10]))


@pytest.mark.parametrize("backend", ["numba", "jax"])
def test_batches(backend):
    points = pt.dmatrix("points")
    value = log_sum(pt, points, ROWS, WEIGHTS)
    found, slopes = compiled([value, pytensor.grad(value.sum(), points)], [points], backend)(POINTS)
    terms = POINTS @ ROWS.T + WEIGHTS
    np.testing.assert_allclose(found, logsumexp(terms, axis=1), atol=1e-11)
    np.testing.assert_allclose(slopes, softmax(terms, axis=1) @ ROWS, atol=1e-12)


@pytest.mark.c_backend
def test_second_derivatives():
    point, step = pt.dvector("point"), pt.dvector("step")
    slope = pytensor.grad(log_sum(pt, point, ROWS, WEIGHTS), point)
    found = compiled(pytensor.grad(slope @ step, point), [point, step], "c")(POINTS[0], POINTS[1])
    share = softmax(ROWS @ POINTS[0] + WEIGHTS)
    away = ROWS - share @ ROWS
    np.testing.assert_allclose(found, (away * share[:, None]).T @ (away @ POINTS[1]), atol=1e-12)


def test_far_away_nothing_overflows():
    point = pt.dvector("point")
    value = log_sum(pt, point, ROWS, WEIGHTS)
    run = compiled([value, pytensor.grad(value, point)], [point], "numba")
    far = 1e6 * POINTS[0]
    found, slope = run(far)
    assert found == pytest.approx(logsumexp(ROWS @ far + WEIGHTS), rel=1e-14)
    assert np.isfinite(slope).all()
    assert np.isnan(run(np.full(SIZE, np.nan))[0])
