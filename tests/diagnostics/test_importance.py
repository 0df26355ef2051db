"""Pareto-smoothed weights against exact answers, and on everything that could go wrong."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pymc_bayessum.diagnostics.importance import khat_threshold, resample, smooth_weights


@pytest.fixture
def rng():
    return np.random.default_rng(20)


def test_a_shifted_normal_is_recovered(rng):
    x = rng.normal(size=20_000)
    shift = 0.4
    weights = smooth_weights(shift * x)  # log N(x; shift, 1) - log N(x; 0, 1), up to a constant
    w = np.exp(weights.log_weights)
    assert w @ x == pytest.approx(shift, abs=4 / np.sqrt(weights.ess))
    assert weights.khat < 0.5
    # The variance of lognormal weights is known: ESS = S exp(-shift^2).
    assert weights.ess == pytest.approx(len(x) * np.exp(-(shift**2)), rel=0.03)
    assert weights.shift == pytest.approx(np.sqrt(np.expm1(shift**2)), rel=0.05)


def test_the_tail_index_of_a_known_tail_is_found(rng):
    # exp(r) with r exponential of mean k is Pareto with index k.
    for k in (0.3, 0.9):
        assert smooth_weights(rng.exponential(k, size=50_000)).khat == pytest.approx(k, abs=0.1)


def test_the_shift_bounds_what_any_mean_moves(rng):
    x = rng.normal(size=(4, 500))
    weights = smooth_weights(0.3 * x + 0.1 * x**2)
    w = np.exp(weights.log_weights)
    for g in (x, x**2, np.sin(3 * x), x > 1):
        moved = abs((w * g).sum() - g.mean()) / g.std()
        assert moved <= weights.shift + 1e-12


@pytest.mark.parametrize(
    ("log_ratio", "khat"),
    [
        (np.zeros(100), 0.0),
        (np.zeros(1), 0.0),
        (1e-13 * np.arange(100.0), 0.0),
        (np.r_[np.zeros(999), -100.0], 0.0),
        (np.repeat([0.0, 1.0], 500), 0.0),
        (np.r_[np.zeros(999), 100.0], np.inf),
        (np.arange(10.0), np.inf),
        (np.r_[np.inf, np.zeros(99)], np.inf),
        (np.r_[np.nan, np.zeros(99)], np.inf),
        (np.full(50, -np.inf), np.inf),
    ],
)
def test_degenerate_ratios_have_an_answer(log_ratio, khat):
    weights = smooth_weights(log_ratio)
    assert weights.khat == khat
    assert np.exp(weights.log_weights).sum() == pytest.approx(1.0)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.floats(-15, 3), st.sampled_from([1, 5, 30, 300]))
def test_never_nan(seed, log10_scale, size):
    log_ratio = 10**log10_scale * np.random.default_rng(seed).standard_t(3, size=(2, size))
    weights = smooth_weights(log_ratio)
    assert weights.log_weights.shape == log_ratio.shape
    assert np.exp(weights.log_weights).sum() == pytest.approx(1.0)
    assert not np.isnan([weights.khat, weights.ess, weights.shift]).any()
    assert 1 - 1e-9 <= weights.ess <= log_ratio.size + 1e-9


def test_threshold_grows_to_seven_tenths():
    assert khat_threshold(100) == pytest.approx(0.5)
    assert khat_threshold(2200) == pytest.approx(0.7, abs=0.01)
    assert khat_threshold(10**6) == 0.7


def test_resampling_takes_the_floor_or_the_ceiling(rng):
    weights = rng.dirichlet(np.ones(50))
    counts = np.bincount(resample(weights, rng), minlength=50)
    assert np.all(np.abs(counts - 50 * weights) < 1)
    assert resample(np.array([0.0, 1.0, 0.0]), rng).tolist() == [1, 1, 1]


def test_resampling_equal_weights_keeps_every_draw(rng):
    assert np.sort(resample(np.full(40, 1 / 40), rng)).tolist() == list(range(40))
