"""Distinct nodes, evenly spread nodes and graded grids."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pymc_bayessum import measures as ms
from pymc_bayessum import nodes


class TestDistinct:
    @pytest.mark.parametrize(
        "measure",
        [ms.Poisson(30.0), ms.Counting(80), ms.UniformCategorical(15, 3), ms.Skellam(9.0, 2.0)],
        ids=str,
    )
    def test_distinct_and_inside(self, measure):
        x = nodes.distinct(measure, 60, rng=0)
        assert len(np.unique(x, axis=0)) == 60
        assert measure.support.contains(x).all()
        np.testing.assert_array_equal(x, nodes.distinct(measure, 60, rng=0))

    def test_pairs(self):
        x, y = nodes.distinct(ms.Product(ms.Counting(4), ms.UniformSpins(3)), 40, rng=1)
        assert len({(a, *b) for a, b in zip(x.tolist(), y.tolist(), strict=True)}) == 40

    def test_bad_input(self):
        with pytest.raises(TypeError, match="measure must be a measure, got 3"):
            nodes.distinct(3, 5)
        with pytest.raises(ValueError, match="n must be at least 1"):
            nodes.distinct(ms.Poisson(1.0), 0)
        with pytest.raises(ValueError, match="n must be at most the 4 points"):
            nodes.distinct(ms.Counting(3), 5)


class TestSpread:
    @pytest.mark.parametrize(
        "measure",
        [
            ms.UniformCategorical(15, 3),
            ms.UniformSpins(12),
            ms.ProductCategorical([[0.7, 0.2, 0.1], [0.2, 0.0, 0.8]] * 4),
            ms.UniformInterval(-2.0, 5.0),
        ],
        ids=lambda m: type(m).__name__,
    )
    def test_distinct_inside_and_repeatable(self, measure):
        x = nodes.spread(measure, 200, rng=1)
        assert len(np.unique(x, axis=0)) == len(x) == 200
        assert np.isfinite(measure.log_prob(x)).all()
        np.testing.assert_array_equal(x, nodes.spread(measure, 200, rng=1))
        assert not np.array_equal(x, nodes.spread(measure, 200, rng=2))

    def test_shares_of_states_are_even(self):
        """Every state of every site has its probability to within a few points."""
        probs = np.array([[0.7, 0.2, 0.1], [0.25, 0.25, 0.5]] * 6)
        x = nodes.spread(ms.ProductCategorical(probs), 1024, rng=0)
        share = (x[:, :, None] == np.arange(3)).mean(axis=0)
        # Independent draws would miss by .015; repeats dropped from the likeliest states cost .01.
        assert np.abs(share - probs).max() < 0.012

    def test_every_coordinate_of_an_interval_is_stratified(self):
        x = nodes.spread(ms.UniformInterval(3.0, 5.0), 64, rng=0)
        assert (np.histogram(x, 64, (3.0, 5.0))[0] == 1).all()

    def test_pairs(self):
        measure = ms.Product(ms.UniformInterval(-1.0, 1.0), ms.UniformCategorical(2, 5))
        x, y = nodes.spread(measure, 50, rng=1)
        assert x.shape == (50,)
        assert y.shape == (50, 2)
        assert measure.support.contains((x, y)).all()

    def test_the_whole_support(self):
        x = nodes.spread(ms.UniformSpins(3), 8, rng=0)
        assert len(np.unique(x, axis=0)) == 8

    def test_bad_input(self):
        with pytest.raises(TypeError, match="measure must be a measure, got 3"):
            nodes.spread(3, 5)
        with pytest.raises(TypeError, match=r"measure must be UniformCategorical, .*Poisson"):
            nodes.spread(ms.Poisson(3.0), 5)
        with pytest.raises(ValueError, match="n must be at most the 8 points"):
            nodes.spread(ms.UniformSpins(3), 9)
        with pytest.raises(ValueError, match="n must be at least 1"):
            nodes.spread(ms.UniformSpins(3), 0)
        with pytest.raises(ValueError, match=r"n = 4 is too close .* use nodes\.distinct"):
            nodes.spread(ms.ProductCategorical([[1.0, 0.0], [0.5, 0.5]]), 4)


class TestGraded:
    @settings(deadline=None, max_examples=80)
    @given(
        st.integers(0, 20_000),
        st.integers(0, 60),
        st.floats(1.0, 3.0),
        st.one_of(st.none(), st.floats(1.0, 500.0)),
    )
    def test_contract(self, maximum, consecutive, growth, spacing):
        if growth < 1.01 and maximum > 2000:
            maximum = 2000
        x = nodes.graded(maximum, consecutive, growth, spacing)
        step = np.diff(x)
        assert x.dtype == np.int64
        assert x[0] == 0
        assert x[-1] == maximum
        assert (step >= 1).all()
        start = min(consecutive, maximum)
        assert x[: start + 1].tolist() == list(range(start + 1))
        cap = spacing if spacing is not None else 0.3 * np.sqrt(x[:-1])
        assert (step <= np.maximum(cap, 1)).all()
        # Each step exceeds the one before by the factor, or by one.
        assert (step[1:] <= np.maximum(growth * step[:-1], step[:-1] + 1)).all()

    def test_even_end(self):
        step = np.diff(nodes.graded(10**6, 10, 1.2, 300.0))
        assert (np.diff(step[:-2]) >= 0).all()
        assert step[-3] >= step[-2] >= step[-1] >= step[-2] - 1 >= 100

    def test_function_of_the_position(self):
        x = nodes.graded(5000, 20, 1.3, lambda z: 0.1 * z)
        step = np.diff(x)
        assert (step <= np.maximum(0.1 * x[:-1], 1)).all()
        assert len(x) < 150

    def test_as_coarse_as_it_may(self):
        # Without a binding cap the number of nodes grows with the log of the range.
        assert len(nodes.graded(10**9, 24, 1.15, 1e12)) < 200

    def test_all_consecutive(self):
        assert nodes.graded(7, spacing=1).tolist() == list(range(8))
        assert nodes.graded(7, growth=1.0).tolist() == list(range(8))
        assert nodes.graded(0).tolist() == [0]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"maximum": -1}, "maximum must be at least 0"),
            ({"maximum": 10.5}, "maximum must be an integer"),
            ({"maximum": 10, "consecutive": -2}, "consecutive must be at least 0"),
            ({"maximum": 10, "growth": 0.9}, "growth must be at least 1"),
            ({"maximum": 10, "growth": math.nan}, "growth must be finite"),
            ({"maximum": 10, "spacing": 0.5}, "spacing must be at least 1"),
            ({"maximum": 99, "spacing": lambda x: math.nan}, "spacing must give a number"),
        ],
    )
    def test_bad_input(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            nodes.graded(**arguments)
