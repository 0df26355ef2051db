"""Work on executors: the same results as in one process, whoever dies."""

import os
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context, parent_process
from pathlib import Path

import numpy as np
import pymc as pm
import pytest

import pymc_bayessum as pbs
from pymc_bayessum.anchoring.variables import anchorable
from pymc_bayessum.executors import in_order
from pymc_bayessum.threads import in_parts

KERNEL, MEASURE = pbs.kernels.Brownian(), pbs.measures.Poisson(8.0)


def summand(x):
    return np.exp(-x / 10.0)


def fails_at_three(x):
    if x[0] == 3:
        raise RuntimeError("not here")
    return summand(x)


def dies_once(marker, x):
    """Kill the worker that evaluates the first point that is large, once."""
    if x > 6 and not Path(marker).exists():
        Path(marker).touch()
        os._exit(1)
    return x * x


def ups_and_bonds(x):
    return np.stack([x.sum(axis=1), (x[:, 1:] == x[:, :-1]).sum(axis=1)], axis=1)


def anchored_family(statistics=ups_and_bonds):
    family = pbs.Family(statistics, sites=8, n_states=2)
    with pm.Model() as model:
        theta = pm.Normal("theta", 0.0, 1.0, shape=2)
        rows = np.tri(8, 8, -1, dtype=int)
        pbs.ExponentialFamily("x", theta, family=family, normalizer="anchored", shape=(8, 8))
    return pm.observe(model, {"x": rows})


def anchored_spins():
    with pm.Model() as model:
        J = pm.Normal("J", 0.3, 0.1)
        pbs.Ising("x", None, J, pbs.graphs.grid(16, 16), shape=(256,))
    return pm.observe(model, {"x": np.where(np.arange(256) % 16 > 7, 1, -1)})


class StatisticsDieOnce:
    """Kill a worker in the middle of its draws, once."""

    def __init__(self, marker):
        self.marker, self.asked = str(marker), 0

    def __call__(self, x):
        self.asked += parent_process() is not None
        if self.asked == 30 and not Path(self.marker).exists():
            Path(self.marker).touch()
            os._exit(1)
        return ups_and_bonds(x)


def nodes_of(model, **how):
    pbs.anchor(model, progressbar=False, **how)
    (part,) = anchorable(model)
    normalizer = part.held.normalizer
    return getattr(normalizer, "rule", normalizer).nodes


def assert_same_anchors(build, pool):
    one, many = nodes_of(build()), nodes_of(build(), executor=pool)
    np.testing.assert_array_equal(one.rows, many.rows)
    np.testing.assert_array_equal(one.log_weights, many.log_weights)


class DiesOnce:
    def __init__(self, marker):
        self.marker = str(marker)

    def __call__(self, x):
        return dies_once(self.marker, x)


def active(n=40, **options):
    return pbs.active_bayes_sum(summand, KERNEL, MEASURE, n, rng=0, **options)


def test_batches_choose_what_single_steps_choose():
    one, four = active(), active(batch=4)
    np.testing.assert_array_equal(one.nodes, four.nodes)
    assert four.estimate.mean == one.estimate.mean
    gains = [np.array([step.gain for step in run.history]) for run in (one, four)]
    np.testing.assert_array_equal(*gains)
    assert [step.sd for step in one.history] == [step.sd for step in four.history]


def test_batches_with_kernels_to_choose_from_keep_the_information():
    kernels = [pbs.kernels.Matern(2.5, lengthscale) for lengthscale in (1.0, 4.0, 16.0)]
    how = {"kernel": kernels, "measure": MEASURE, "n": 30, "rng": 0, "candidates": np.arange(60)}
    one, five = (pbs.active_bayes_sum(summand, batch=b, **how) for b in (1, 5))
    exact = np.exp(8.0 * (np.exp(-0.1) - 1.0))
    for run in (one, five):
        assert run.estimate.mean == pytest.approx(exact, abs=1e-3)

    def left(run):
        return pbs.bayes_sum(kernels[1], MEASURE, run.nodes).variance

    start = kernels[1], MEASURE
    before = pbs.bayes_sum(*start, one.nodes[:10]).variance
    assert np.log(before / left(five)) > 0.9 * np.log(before / left(one))


def use_the_pool():
    in_parts(lambda first, last: None, 8)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_a_forked_process_has_threads_of_its_own():
    use_the_pool()
    child = get_context("fork").Process(target=use_the_pool, daemon=True)
    child.start()
    child.join(60)
    assert child.exitcode == 0


@pytest.mark.parametrize("batch", [1, 3])
def test_threads(batch):
    with ThreadPoolExecutor(2) as pool:
        found = active(batch=batch, executor=pool)
    np.testing.assert_array_equal(found.values, active().values)


def test_failures_keep_what_was_learnt():
    with ThreadPoolExecutor(2) as pool, pytest.raises(pbs.EvaluationError, match="not here") as bad:
        pbs.active_bayes_sum(
            fails_at_three, KERNEL, MEASURE, 10, initial=[1, 2, 3, 4], executor=pool, batch=2
        )
    assert bad.value.partial.values.shape == (2,)
    np.testing.assert_array_equal(bad.value.partial.pending, [3, 4])


def test_what_is_no_executor():
    with pytest.raises(TypeError, match=r"executor must be a concurrent.futures.Executor"):
        active(executor=4)
    with pytest.raises(TypeError, match=r"executor must be a concurrent.futures.Executor"):
        pbs.anchor(pm.Model(), executor=4)
    with pytest.raises(ValueError, match="batch must be at least 1"):
        active(batch=0)


def test_a_process_pool_whose_worker_is_killed(tmp_path):
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        assert_same_anchors(anchored_spins, pool)
        with pytest.raises(TypeError, match="define functions at the top of a module"):
            nodes_of(anchored_family(lambda x: ups_and_bonds(x)), executor=pool)
        with pytest.warns(RuntimeWarning, match="workers of the executor have died"):
            found = list(in_order(DiesOnce(tmp_path / "once"), range(10), pool))
        assert found == [x * x for x in range(10)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            assert list(in_order(abs, [-1, -2], pool)) == [1, 2]  # a pool that is broken already


def test_a_dask_cluster_whose_worker_is_killed(tmp_path):
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True}
    with (
        distributed.LocalCluster(
            **options, dashboard_address=None, silence_logs=50, local_directory=str(tmp_path)
        ) as cluster,
        distributed.Client(cluster) as client,
        client.get_executor() as pool,
    ):
        dies = StatisticsDieOnce(tmp_path / "at_anchors")
        assert_same_anchors(partial(anchored_family, dies), pool)
        assert (tmp_path / "at_anchors").exists()
        found = active(n=20, batch=5, executor=pool)
    np.testing.assert_array_equal(found.values, active(n=20).values)
