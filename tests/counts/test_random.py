"""Exact CMP draws against the mass function summed by brute force."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

from pymc_bayessum.counts.random import draw_cmp_array, draw_cmp_jax

# Geometric limit, over-dispersed, Poisson, under-dispersed, nearly tied modes, large mean.
CASES = [
    (np.log(0.5), 0.0),
    (0.0, 0.01),
    (0.06, 0.01),
    (2.0, 0.5),
    (np.log(30.0), 1.0),
    (20.0, 5.0),
    (-3.0, 20.0),
    (13.86, 20.0),
    (20 * np.log(2.0) + 1e-9, 20.0),
    (300 * np.log(2.0), 300.0),
    (3.45, 0.3),
    (-4.6, 0.5),
]


def mass(log_lam, nu):
    x = np.arange(200_000)
    log_mass = x * log_lam - nu * gammaln(x + 1)
    weights = np.exp(log_mass - log_mass.max())
    return weights / weights.sum()


def chi_square_p_value(draws, probabilities):
    """P-value of draws against probabilities, cells pooled to an expected count of 20 or more."""
    cell_of = np.floor(np.cumsum(probabilities) * len(draws) / 40).astype(int)
    observed = np.bincount(cell_of[draws], minlength=cell_of.max() + 1)
    expected = np.bincount(cell_of, weights=probabilities) * len(draws)
    keep = expected > 20
    observed = np.append(observed[keep], observed[~keep].sum())
    expected = np.append(expected[keep], expected[~keep].sum())
    if expected[-1] < 5:
        observed, expected = observed[:-1], expected[:-1]
    if len(expected) == 1:
        return 1.0
    return stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue


@pytest.mark.parametrize(("log_lam", "nu"), CASES)
def test_draws_follow_the_mass_function(log_lam, nu):
    draws = draw_cmp_array(np.random.default_rng(20), log_lam, nu, size=100_000)
    assert draws.dtype == np.int64
    assert chi_square_p_value(draws, mass(log_lam, nu)) > 1e-4


def test_jax_draws_follow_the_mass_function():
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        log_lam, nu = np.array(CASES).T
        draws = draw_cmp_jax(jax.random.key(3), log_lam, nu, (20_000, len(CASES)))
        for column, case in enumerate(CASES):
            assert chi_square_p_value(np.asarray(draws[:, column]), mass(*case)) > 1e-4
        nothing = draw_cmp_jax(jax.random.key(1), np.array([0.0, 1.0]), np.array([0.0, -1.0]), (2,))
        assert np.asarray(nothing).tolist() == [-1, -1]


# Modes of 1e6, 1e12, 1e15 and 1e17, the last drawn as normal; and geometric with mean 1e12.
FAR_CASES = [(nu * np.log(mode), nu) for mode in (1e6, 1e12, 1e15, 1e17) for nu in (0.3, 2.0)]
FAR_CASES += [(-1e-12, 0.0)]


def far_quantiles(draws, log_lam, nu):
    """Uniform numbers, if the draws follow the leading terms of the distribution far out."""
    if nu == 0.0:
        return -np.expm1(draws * log_lam)
    mode = np.exp(log_lam / nu)
    # Wilson and Hilferty's cube root of a gamma variable, a bell of the same skewness.
    shape = mode * nu
    root = np.cbrt((draws + 0.5 + (1 - 1 / nu) / 2) / mode)
    return stats.norm.cdf(3 * np.sqrt(shape) * (root - 1 + 1 / (9 * shape)))


@pytest.mark.parametrize("backend", ["numba", "jax"])
@pytest.mark.parametrize(("log_lam", "nu"), FAR_CASES)
def test_draws_far_out(backend, log_lam, nu):
    if backend == "numba":
        draws = draw_cmp_array(np.random.default_rng(4), log_lam, nu, size=20_000)
    else:
        jax = pytest.importorskip("jax")
        with jax.enable_x64(True):
            draws = np.asarray(draw_cmp_jax(jax.random.key(5), log_lam, nu, (20_000,)))
    assert stats.kstest(far_quantiles(draws, log_lam, nu), "uniform").pvalue > 1e-4


@pytest.mark.parametrize(("log_lam", "nu"), [(1.0, 0.01), (1e300, 1.0), (60.0, 1.0), (np.inf, 2.0)])
def test_more_than_an_int64_holds(log_lam, nu):
    largest = np.iinfo(np.int64).max
    draws = draw_cmp_array(np.random.default_rng(1), log_lam, nu, size=3)
    assert np.all(draws > 0.999 * largest)
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        draws = draw_cmp_jax(jax.random.key(5), log_lam, nu, (3,))
    assert np.all(np.asarray(draws) > 0.999 * largest)


def test_parameters_broadcast_row_by_row():
    log_lam = np.array([[-30.0], [np.log(50.0)]])
    nu = np.array([1.0, 1.0, 2.0])
    draws = draw_cmp_array(np.random.default_rng(1), log_lam, nu)
    assert draws.shape == (2, 3)
    assert np.all(draws[0] == 0)
    assert draws[1, 0] > 10
    assert draw_cmp_array(np.random.default_rng(1), -np.inf, 1.0, size=(4,)).tolist() == [0] * 4


@pytest.mark.parametrize(("log_lam", "nu"), [(0.0, 0.0), (1.0, -1.0), (np.nan, 1.0)])
def test_no_draws_without_a_distribution(log_lam, nu):
    with pytest.raises(ValueError, match="CMP draws need nu >= 0"):
        draw_cmp_array(np.random.default_rng(1), log_lam, nu, size=3)
