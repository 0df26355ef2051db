import dataclasses
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal

from pymc_bayessum import measures
from pymc_bayessum.kernels import (
    Brownian,
    ExpHamming,
    IntegratedBrownian,
    Matern,
    Polynomial,
    SquaredExponential,
)
from pymc_bayessum.rules.hyper import Selection, select_kernel

SITES = measures.UniformCategorical(8, 3)


def gaussian_draw(kernel, nodes, amplitude, seed):
    gram = amplitude * kernel(nodes, nodes)
    return np.random.default_rng(seed).multivariate_normal(np.zeros(len(gram)), gram)


@pytest.mark.parametrize(
    ("kernel", "nodes"),
    [
        (Brownian(0.5), np.array([7, 0, 3, 12])),
        (Matern(1.5, 4.0), np.array([7, 0, 3, 12, 4])),
        (Matern(2.5, 2.0, "sqrt"), np.array([7, 0, 3, 12, 4])),
        (SquaredExponential(3.0), np.array([7.0, 0.0, 3.5, 12.0])),
        (Polynomial(3), np.array([-1, 0, 2])),
        (2.0 * Brownian(1.0), np.array([1, 4, 9])),
        (ExpHamming(0.4), SITES.sample_distinct(12, rng=0)),
    ],
    ids=str,
)
def test_likelihood_is_that_of_the_normal_density_at_its_best_amplitude(kernel, nodes):
    y = np.random.default_rng(1).normal(size=len(nodes))
    gram = kernel(nodes, nodes)

    def minus_log_density(log_amplitude):
        return -multivariate_normal.logpdf(y, cov=math.exp(log_amplitude) * gram)

    best = minimize_scalar(minus_log_density, bounds=(-15.0, 15.0), method="bounded")
    alone = select_kernel([kernel], nodes, y)
    assert alone.log_marginal == pytest.approx(-best.fun, rel=1e-6)
    assert alone.amplitude == pytest.approx(math.exp(best.x), rel=1e-2)
    assert alone.log_marginal >= -best.fun - 1e-9


def test_the_likelihood_of_one_value():
    alone = select_kernel([Brownian()], [0], [3.0])
    assert alone.log_marginal == pytest.approx(-0.5 * (1.0 + math.log(2.0 * math.pi * 9.0)))
    assert alone.amplitude == pytest.approx(9.0)


def test_the_kernel_that_made_the_data_is_found():
    nodes = SITES.sample_distinct(150, rng=2)
    candidates = [ExpHamming(decay) for decay in (0.003, 0.03, 0.3, 3.0)]
    for truth in candidates[1:3]:
        y = gaussian_draw(truth, nodes, 5.0, seed=3)
        found = select_kernel(candidates, nodes, y)
        assert found.kernel == truth
        assert found.amplitude == pytest.approx(5.0, rel=0.5)
        assert not found.at_edge
        assert found.kernels == tuple(candidates)
        each = [select_kernel([kernel], nodes, y).log_marginal for kernel in candidates]
        np.testing.assert_allclose(found.log_marginals, each)
        assert found.log_marginal == max(each)


def test_candidates_may_come_from_different_families():
    nodes = np.arange(0, 60, 2)
    y = gaussian_draw(Matern(4.5, 9.0), nodes, 1.0, seed=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = select_kernel([Brownian(), Matern(0.5, 9.0), Matern(4.5, 9.0)], nodes, y)
    assert found.kernel == Matern(4.5, 9.0)


@pytest.mark.parametrize(("truth", "edge"), [(0.3, 0.1), (0.002, 0.01)])
def test_a_winner_at_the_edge_of_a_family_is_announced(truth, edge):
    nodes = SITES.sample_distinct(150, rng=2)
    y = gaussian_draw(ExpHamming(truth), nodes, 1.0, seed=4)
    candidates = [ExpHamming(decay) for decay in (0.03, 0.01, 0.1)]
    with pytest.warns(UserWarning, match="the end of its family"):
        found = select_kernel(candidates, nodes, y)
    assert found.at_edge
    assert found.kernel.decay == edge


def test_no_edge_without_a_family_ordered_by_one_number():
    nodes, y = np.arange(5), np.array([1.0, 2.0, 4.0, 3.0, 1.0])
    for candidates in (
        [Brownian(1.0)],
        [Brownian(1.0), Brownian(3.0)],
        [Brownian(1.0), Matern(0.5, 1.0), Matern(0.5, 3.0)],
        [Matern(0.5, 1.0), Matern(1.5, 3.0), Matern(2.5, 9.0)],
    ):
        assert not select_kernel(candidates, nodes, y).at_edge


def test_bounded_search_finds_the_top_of_the_likelihood():
    nodes = np.arange(0, 90, 3)
    y = gaussian_draw(Matern(2.5, 12.0), nodes, 2.0, seed=6)

    def minus(log_scale):
        return -select_kernel([Matern(2.5, math.exp(log_scale))], nodes, y).log_marginal

    best = minimize_scalar(minus, bounds=(math.log(1.0), math.log(200.0)), method="bounded")
    found = select_kernel(lambda scale: Matern(2.5, scale), nodes, y, bounds=(1.0, 200.0))
    assert found.log_marginal == pytest.approx(-best.fun, abs=1e-4)
    assert found.kernel.lengthscale == pytest.approx(math.exp(best.x), rel=2e-2)
    assert found.log_marginal == found.log_marginals.max()
    assert not found.at_edge


def test_bounded_search_over_two_parameters():
    nodes = np.arange(0, 60, 2)
    y = gaussian_draw(SquaredExponential(8.0) + 0.01 * Brownian(), nodes, 1.0, seed=7)
    found = select_kernel(
        lambda scale, share: SquaredExponential(scale) + share * Brownian(),
        nodes,
        y,
        bounds=[(1.0, 60.0), (1e-4, 1e2)],
    )
    grid = [
        select_kernel([SquaredExponential(scale) + share * Brownian()], nodes, y).log_marginal
        for scale in np.geomspace(1.0, 60.0, 25)
        for share in np.geomspace(1e-4, 1e2, 25)
    ]
    assert found.log_marginal >= max(grid) - 1e-3


def test_a_search_that_ends_on_a_bound_is_announced():
    nodes = np.arange(0, 90, 3)
    y = gaussian_draw(Matern(2.5, 12.0), nodes, 2.0, seed=6)
    for bounds in ((0.5, 2.0), (100.0, 300.0)):
        with pytest.warns(UserWarning, match="on the bounds"):
            found = select_kernel(lambda scale: Matern(2.5, scale), nodes, y, bounds=bounds)
        assert found.at_edge


@settings(max_examples=15, deadline=None)
@given(scale=st.floats(1e-6, 1e6))
def test_rescaling_the_values_moves_the_amplitude_alone(scale):
    nodes, y = np.array([0, 1, 4, 6]), np.array([1.0, -2.0, 0.5, 0.3])
    candidates = [Brownian(0.1), Matern(1.5, 2.0), Matern(1.5, 20.0)]
    plain, scaled = (select_kernel(candidates, nodes, v) for v in (y, scale * y))
    assert scaled.kernel == plain.kernel
    assert scaled.amplitude == pytest.approx(scale**2 * plain.amplitude)


def test_splines_compare_among_their_own_order_only():
    nodes = np.arange(0, 40, 3)
    y = np.sin(nodes / 6.0)
    found = select_kernel([IntegratedBrownian(2, s) for s in (1.0, 5.0)], nodes, y)
    assert np.ptp(found.log_marginals) == pytest.approx(0.0, abs=1e-6)
    with pytest.raises(ValueError, match="same polynomials free"):
        select_kernel([IntegratedBrownian(2), IntegratedBrownian(1)], nodes, y)
    with pytest.raises(ValueError, match="nothing is left"):
        select_kernel([IntegratedBrownian(1)], [0, 3], [1.0, 2.0])


def test_a_selection_is_frozen():
    found = select_kernel([Brownian()], [0, 1], [1.0, 2.0])
    assert isinstance(found, Selection)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.amplitude = 1.0


@pytest.mark.parametrize(
    ("kernels", "nodes", "values", "error", "message"),
    [
        ([], [0, 1], [1.0, 2.0], ValueError, "at least one kernel"),
        ([Brownian], [0, 1], [1.0, 2.0], TypeError, "kernels only"),
        (Brownian(), [0, 1], [1.0, 2.0], TypeError, "alone"),
        ([Brownian()], [0, 0], [1.0, 2.0], ValueError, "distinct, got 0"),
        ([Brownian()], [], [], ValueError, "at least one point"),
        ([Brownian()], 3, [1.0], ValueError, "single value"),
        ([Brownian()], [0, 1], [1.0], ValueError, r"shape \(2,\)"),
        ([Brownian()], [0, 1], [1.0, np.nan], ValueError, "values must be finite"),
        ([Brownian()], [0, 1], [0.0, 0.0], ValueError, "not all be zero"),
        ([Brownian()], [0, 1], ["a", "b"], TypeError, "real numbers"),
        (
            lambda decay: ExpHamming(decay),
            [[0], [1]],
            [1.0, 2.0],
            ValueError,
            "bounds must be given",
        ),
    ],
)
def test_bad_input_is_named(kernels, nodes, values, error, message):
    with pytest.raises(error, match=message):
        select_kernel(kernels, nodes, values)


def test_bad_bounds_are_named():
    for bounds in ((0.0, 1.0), (2.0, 1.0), (-1.0, 1.0)):
        with pytest.raises(ValueError, match="0 < low < high"):
            select_kernel(Brownian, [0, 1], [1.0, 2.0], bounds=bounds)
    with pytest.raises(ValueError, match="one pair"):
        select_kernel(Brownian, [0, 1], [1.0, 2.0], bounds=(1.0, 2.0, 3.0))
    with pytest.raises(ValueError, match="bounds go with a function"):
        select_kernel([Brownian()], [0, 1], [1.0, 2.0], bounds=(1.0, 2.0))
    with pytest.raises(TypeError, match="must return a kernel"):
        select_kernel(lambda shift: shift, [0, 1], [1.0, 2.0], bounds=(1.0, 2.0))
