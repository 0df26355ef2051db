"""The CMP normaliser over the whole plane, against series summed in 40-digit arithmetic."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln, logsumexp

import pymc_bayessum as pbs
from pymc_bayessum.counts.cmp_sums.ops import CMPCumulants, CMPFromMean


def exact(log_lam, nu):
    """Log Z, E[X], E[log X!] and the largest exponent, from the mode outward."""
    with mp.workdps(40):
        eta, power = mp.mpf(log_lam), mp.mpf(nu)
        mode = int(mp.floor(mp.exp(eta / power))) if eta > 0 and power > 0 else 0
        log_factorial = mp.loggamma(mode + 1)
        top = mode * eta - power * log_factorial
        sums = [mp.mpf(1), mp.mpf(mode), log_factorial]
        for step in (1, -1):
            x, term, log_x_factorial = mode, mp.mpf(1), log_factorial
            while x + step >= 0:
                log_x = mp.log(x + 1 if step == 1 else x)
                term *= mp.exp(step * (eta - power * log_x))
                log_x_factorial += step * log_x
                x += step
                sums[0] += term
                sums[1] += term * x
                sums[2] += term * log_x_factorial
                if term < mp.mpf(10) ** -22 * sums[0]:
                    break
        largest = max(abs(mode * eta), abs(power * log_factorial))
        return (
            float(mp.log(sums[0]) + top),
            float(sums[1] / sums[0]),
            float(sums[2] / sums[0]),
            float(largest),
        )


def check_against_series(log_lam, nu):
    log_z, mean, log_factorial = (float(x) for x in CMPCumulants(1).evaluate(log_lam, nu))
    truth, true_mean, true_log_factorial, largest = exact(log_lam, nu)
    assert abs(log_z - truth) <= max(1e-9, 1e-15 * largest)
    assert mean == pytest.approx(true_mean, rel=1e-8)
    assert -log_factorial == pytest.approx(true_log_factorial, rel=1e-8, abs=1e-12)


def rate_of(mean, nu):
    return float(CMPFromMean().evaluate(np.log(mean), nu)[0])


@pytest.mark.parametrize("nu", [0.01, 0.03, 0.1, 0.3, 0.7, 1.0, 1.5, 5.0, 20.0])
@pytest.mark.parametrize("mean", [0.01, 0.5, 3.0, 20.0, 150.0, 2e3])
def test_log_z_and_both_gradients_on_the_plane(mean, nu):
    check_against_series(rate_of(mean, nu), nu)


@pytest.mark.parametrize(("mean", "nu"), [(1e5, 0.05), (1e5, 1.0), (1e5, 20.0), (2e4, 0.01)])
def test_large_means(mean, nu):
    check_against_series(rate_of(mean, nu), nu)


@settings(deadline=None, max_examples=40)
@given(st.floats(-4.0, 6.0), st.floats(-4.6, 3.0))
def test_random_places(log_mean, log_nu):
    nu = float(np.exp(log_nu))
    check_against_series(rate_of(np.exp(log_mean), nu), nu)


@settings(deadline=None, max_examples=200)
@given(st.floats(-4.6, 11.5), st.floats(-4.6, 3.0))
def test_the_rate_of_a_mean_has_that_mean(log_mean, log_nu):
    mean, nu = float(np.exp(log_mean)), float(np.exp(log_nu))
    assert float(pbs.cmp_mean(np.exp(rate_of(mean, nu)), nu)) == pytest.approx(mean, rel=1e-10)


def test_limits():
    lam = np.array([0.1, 0.5, 0.9, 0.999])
    np.testing.assert_allclose(pbs.cmp_log_z(np.log(lam), 0.0), -np.log1p(-lam), rtol=1e-11)
    rate = np.geomspace(0.01, 1e5, 50)
    np.testing.assert_allclose(pbs.cmp_log_z(np.log(rate), 1.0), rate, rtol=1e-14, atol=1e-12)
    np.testing.assert_allclose(pbs.cmp_log_z(np.log(lam), 200.0), np.log1p(lam), rtol=1e-12)
    assert pbs.cmp_log_z(0.0, 0.0) == np.inf
    assert pbs.cmp_log_z(0.1, 0.0) == np.inf


@pytest.mark.parametrize(("lam", "nu"), [(1.5, 1.2), (10.0, 1.2), (1.5, 0.5)])
def test_mean_and_variance_are_those_of_the_series(lam, nu):
    x = np.arange(500)
    log_terms = x * np.log(lam) - nu * gammaln(x + 1)
    mass = np.exp(log_terms - logsumexp(log_terms))
    mean = mass @ x
    assert float(pbs.cmp_mean(lam, nu)) == pytest.approx(mean, rel=1e-12)
    assert float(pbs.cmp_variance(lam, nu)) == pytest.approx(mass @ (x - mean) ** 2, rel=1e-12)


def test_published_value():
    assert float(np.exp(pbs.cmp_log_z(np.log(1.5), 1.2))) == pytest.approx(4.01341, abs=5e-6)


@pytest.mark.parametrize("nu", [0.02, 0.11, 0.4, 0.9, 1.3, 4.0, 15.0])
def test_nothing_is_felt_where_one_rule_hands_over_to_the_next(nu):
    """Neighbouring parameters differ by what the derivatives say, across every hand-over."""
    log_mean = np.linspace(np.log(0.01), np.log(1e4), 20_001)
    eta = CMPFromMean().evaluate(log_mean, np.full_like(log_mean, nu))[0]
    log_z, mean, *_ = CMPCumulants(3).evaluate(eta, np.full_like(eta, nu))
    variance, third = (CMPCumulants(3).evaluate(eta, np.full_like(eta, nu))[i] for i in (3, 6))
    step = np.diff(eta)
    # Hermite's two-point formula, of error step**5 times a fifth cumulant.
    expected = step / 2 * (mean[1:] + mean[:-1]) - step**2 / 12 * np.diff(variance)
    jump = np.abs(np.diff(log_z) - expected)
    fifth = np.abs(np.gradient(np.gradient(third, eta), eta))
    rounding = 1e-9 + 4e-15 * np.abs(log_z[1:])
    assert np.all(jump <= rounding + step**5 / 120 * np.maximum(fifth[1:], fifth[:-1]))


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("form", ["lam", "mu"])
def test_many_rows_are_interpolated_to_the_same_values(form, shared):
    rng = np.random.default_rng(3)
    n = 6000
    log_mean = rng.uniform(np.log(0.02), np.log(2e3), n)
    for centre in (0.05, 0.4, 1.0, 3.0, 18.0):
        nu = np.array([centre]) if shared else centre * np.exp(rng.normal(0, 0.3, n))
        op, at = CMPFromMean(), log_mean
        if form == "lam":
            op, at = CMPCumulants(1), CMPFromMean().evaluate(log_mean, nu)[0]
        together = op.evaluate(at, nu)
        pieces = zip(np.split(at, 120), np.split(np.broadcast_to(nu, n), 120), strict=True)
        one_by_one = np.concatenate([op.evaluate(*piece) for piece in pieces], axis=1)
        scale = np.maximum(1.0, np.abs(one_by_one))
        assert np.all(np.abs(together - one_by_one) <= 1e-9 * scale)
        log_z = 1 if form == "mu" else 0
        bound = np.maximum(1e-9, 4e-15 * np.abs(one_by_one[log_z]))
        assert np.all(np.abs(together[log_z] - one_by_one[log_z]) <= bound)


def test_rows_that_are_all_alike():
    together = CMPFromMean().evaluate(np.full(3000, np.log(4.0)), np.array([0.3]))
    alone = CMPFromMean().evaluate(np.log(4.0), 0.3)
    for row, value in zip(together, alone, strict=True):
        np.testing.assert_allclose(row, float(value), rtol=1e-9)


def test_anything_at_all_is_never_nan():
    rng = np.random.default_rng(1)
    eta = rng.uniform(-1e3, 1e3, 20_000) * rng.choice([1e-3, 1.0, 1e3], 20_000)
    nu = np.exp(rng.uniform(-30, 30, 20_000))
    nu[:100] = 0.0
    values = np.array(CMPCumulants(3).evaluate(eta, nu))
    assert not np.any(np.isnan(values))
    assert np.all(np.isfinite(values[1:]))
    assert np.all(values[0] >= 0)  # the term at zero is one
    answered = np.isfinite(values[0]) & (nu < 20) & (eta < 2) & (nu > 0.2)
    x = np.arange(3000)
    for i in np.flatnonzero(answered)[:200]:
        series = logsumexp(x * eta[i] - nu[i] * gammaln(x + 1))
        assert values[0, i] == pytest.approx(series, abs=1e-10)
