import numpy as np
import pytest

from pymc_bayessum import graphs
from pymc_bayessum.graphs.coordinates import identifiable
from pymc_bayessum.graphs.statistics import PottsLayout
from pymc_bayessum.normalizers.coordinates import plain, within

KINDS = [
    (field, coupling, False)
    for field in ("none", "shared", "full")
    for coupling in ("scalar", "edge", "shared", "full")
] + [(field, coupling, True) for field in ("scalar", "full") for coupling in ("scalar", "edge")]


@pytest.mark.parametrize(("field", "coupling", "spins"), KINDS)
@pytest.mark.parametrize("graph", ["ring", "complete", "grid"])
def test_energies_are_kept_with_no_coordinate_to_spare(field, coupling, spins, graph):
    edges = {"ring": graphs.ring(5), "complete": graphs.complete(4), "grid": graphs.grid(2, 3)}[
        graph
    ]
    layout = PottsLayout(
        int(edges.max()) + 1, 2 if spins else 3, edges, field, coupling, spins=spins
    )
    rng = np.random.default_rng(0)
    x = rng.integers(0, layout.n_states, (300, layout.n_sites))
    statistics, theta = layout.statistics(x), rng.normal(size=layout.n_parameters)
    found = identifiable(layout)
    rows, constant = found.rows(statistics)
    energy = rows @ found.of(theta) + constant + found.tilt @ theta
    np.testing.assert_allclose(energy, statistics @ theta, atol=1e-10)
    assert found.size == np.linalg.matrix_rank(statistics - statistics.mean(axis=0))
    back = found.of(found.parameters(found.of(theta)))
    np.testing.assert_allclose(back, found.of(theta), atol=1e-10)


def test_subspaces_are_found_from_draws():
    layout = PottsLayout(6, 3, graphs.grid(2, 3), "full", "scalar")
    rng = np.random.default_rng(1)
    covariate = rng.normal(size=(6, 3)).ravel()
    slopes, couplings = rng.normal(size=(2, 40))
    draws = np.column_stack([0.5 + slopes[:, None] * covariate, couplings])
    found = within(identifiable(layout), draws)
    assert found.size == 2
    statistics = layout.statistics(rng.integers(0, 3, (50, 6)))
    rows, constant = found.rows(statistics)
    for theta in draws[:5]:
        energy = rows @ found.of(theta) + constant + found.tilt @ theta
        np.testing.assert_allclose(energy, statistics @ theta, atol=1e-9)
        np.testing.assert_allclose(found.outside @ theta + found.outside_origin, 0.0, atol=1e-9)
        assert found.of(found.parameters(found.of(theta))) == pytest.approx(found.of(theta))
    outside = found.outside @ (draws[0] + np.eye(19)[1]) + found.outside_origin
    assert np.abs(outside).max() > 0.1


def test_full_spans_change_nothing():
    draws = np.random.default_rng(2).normal(size=(30, 3))
    whole = plain(3)
    assert within(whole, draws) is whole
    # Too few draws cannot tell.
    assert within(whole, draws[:2]) is whole


def test_empty_graph():
    layout = PottsLayout(3, 4, np.zeros((0, 2), dtype=int), "full", "none")
    assert identifiable(layout).size == 9
