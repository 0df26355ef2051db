import numpy as np
import pytest

from pymc_bayessum import graphs
from pymc_bayessum.graphs.annealing import annealed_importance, log_constant, tree_importance
from pymc_bayessum.graphs.elimination import elimination_plan


def model(shape, coupling, seed=0):
    edges = graphs.grid(*shape)
    n_sites = int(np.prod(shape))
    fields = 0.3 * np.random.default_rng(seed).normal(size=(n_sites, 3))
    couplings = np.broadcast_to(coupling * np.eye(3), (len(edges), 3, 3)).copy()
    return fields, couplings, edges


def exact(fields, couplings, edges):
    return elimination_plan(edges, *fields.shape).log_partition(fields, couplings)


def test_tree_importance_within_its_error():
    parts = model((4, 4), 0.3)
    found = [tree_importance(*parts, 1000, np.random.default_rng(seed)) for seed in range(20)]
    errors = np.array([each.value for each in found]) - exact(*parts)
    sds = np.array([each.sd for each in found])
    assert abs(errors.mean()) < 4.0 * sds.mean() / np.sqrt(20)
    assert 0.5 < errors.std() / sds.mean() < 1.6
    # The control variate is worth having: plain importance sampling has sqrt(V / n).
    assert sds.mean() < 0.5 * np.sqrt(found[0].base_variance / 1000)


def test_annealing_within_its_error_where_the_tree_fails():
    parts = model((6, 6), 0.9)
    found = [
        annealed_importance(*parts, 100, 100, np.random.default_rng(seed)) for seed in range(8)
    ]
    errors = np.array([each.value for each in found]) - exact(*parts)
    sds = np.array([each.sd for each in found])
    assert found[0].base_variance > 1.0
    assert np.sqrt(np.mean(errors**2)) < 2.0 * sds.mean()
    assert abs(errors.mean()) < 4.0 * sds.mean() / np.sqrt(8)
    assert found[0].n_evals >= 100 * 100


@pytest.mark.parametrize(("coupling", "method"), [(0.2, "tree"), (0.9, "annealed")])
def test_method_follows_the_variance(coupling, method):
    parts = model((5, 5), coupling)
    found = log_constant(*parts, np.random.default_rng(1), n_evals=20_000)
    assert found.method == method
    assert abs(found.value - exact(*parts)) < 4.0 * found.sd


def test_empty_graph_is_exact():
    fields = np.log([[1.0, 2.0], [3.0, 4.0]])
    none = np.zeros((0, 2, 2)), np.zeros((0, 2), dtype=int)
    found = log_constant(fields, *none, np.random.default_rng(0), n_evals=500)
    assert found.value == pytest.approx(np.log(21.0), abs=1e-5)
