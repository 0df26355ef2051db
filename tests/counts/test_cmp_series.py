"""The plain CMP series against high precision and closed forms."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln, i0e, logsumexp

from pymc_bayessum.counts.cmp_series import cmp_series


def high_precision(eta, nu):
    """Log Z with forty digits, from the mode outwards."""
    with mpmath.workdps(40):
        rate, nu = mpmath.e ** mpmath.mpf(eta), mpmath.mpf(nu)
        start = int(mpmath.floor(rate ** (1 / nu)))
        total = term = mpmath.mpf(1)
        x = start
        while term > total * mpmath.mpf(10) ** -30 or x < start + 10:
            x += 1
            term *= rate / mpmath.mpf(x) ** nu
            total += term
        term = mpmath.mpf(1)
        for x in range(start, 0, -1):
            term *= mpmath.mpf(x) ** nu / rate
            total += term
        scale = start * mpmath.mpf(eta) - nu * mpmath.loggamma(start + 1)
        return float(mpmath.log(total) + scale)


@settings(deadline=None, max_examples=40)
@given(st.floats(0.01, 300.0), st.floats(0.05, 10.0))
def test_agrees_with_forty_digits(mode, nu):
    eta = nu * math.log(mode)
    largest_exponent = mode * abs(eta) + 1.0
    assert float(cmp_series(eta, nu)) == pytest.approx(
        high_precision(eta, nu), abs=1e-13 + 1e-15 * largest_exponent
    )


def test_far_from_zero_it_works_in_logarithms():
    nu, mode = 3.0, 60_000.0
    eta = nu * math.log(mode)
    # The asymptotic expansion with one correction (Gaunt, Iyengar, Olde Daalhuis and Simsek, 2019).
    c1 = (nu**2 - 1) / 24
    leading = nu * mode - (nu - 1) / 2 * math.log(2 * math.pi * mode) - 0.5 * math.log(nu)
    expansion = leading + math.log1p(c1 / (nu * mode))
    assert float(cmp_series(eta, nu)) == pytest.approx(expansion, rel=1e-13)


@pytest.mark.parametrize("mode", [2e8, 1e12, 1e15])
def test_far_modes_in_closed_form(mode):
    """Poisson counts, and a Bessel function at nu = 2."""
    assert float(cmp_series(math.log(mode), 1.0)) == pytest.approx(mode, rel=1e-14)
    bessel = 2.0 * mode + math.log(i0e(2.0 * mode))
    assert float(cmp_series(2.0 * math.log(mode), 2.0)) == pytest.approx(bessel, rel=1e-14)


@pytest.mark.parametrize("nu", [1e-4, 0.03, 0.7, 20.0, 1e4, 1e6])
@pytest.mark.parametrize("mode", [2e8, 1e12, 1e15])
def test_far_modes_by_their_expansion(mode, nu):
    leading = nu * mode - (nu - 1) / 2 * math.log(2 * math.pi * mode) - 0.5 * math.log(nu)
    expansion = leading + math.log1p((nu**2 - 1) / (24 * nu * mode))
    assert float(cmp_series(nu * math.log(mode), nu)) == pytest.approx(expansion, rel=1e-14)


@pytest.mark.parametrize(
    ("eta", "nu"), [(0.0, 1e-6), (-1e-5, 1e-8), (1e-5, 1e-6), (-1e-5, 1e-9), (2.4e-5, 2e-6)]
)
def test_millions_of_terms_are_an_integral(eta, nu):
    x = np.arange(10_000_000.0)
    log_terms = eta * x - nu * gammaln(x + 1.0)
    assert log_terms[-1] < log_terms.max() - 45.0
    assert float(cmp_series(eta, nu)) == pytest.approx(logsumexp(log_terms), abs=1e-12)


def test_closed_forms_and_what_has_no_sum():
    lam = np.array([0.3, 0.999])
    np.testing.assert_allclose(cmp_series(np.log(lam), 0.0), -np.log1p(-lam), rtol=1e-12)
    np.testing.assert_allclose(cmp_series(np.log([0.5, 40.0]), 1.0), [0.5, 40.0], rtol=1e-14)
    assert float(cmp_series(np.log(0.4), 800.0)) == pytest.approx(np.log(1.4), rel=1e-15)
    assert cmp_series(0.0, 0.0) == np.inf
    assert cmp_series(1.0, 1e-3) == np.inf  # mode e^1000
    assert cmp_series(1.0, -1.0) == np.inf
    assert np.isnan(cmp_series(np.nan, 1.0))


def test_rows_broadcast_and_do_not_disturb_each_other():
    eta = np.array([[0.5], [2.0], [-1.0]])
    nu = np.array([0.4, 1.0, 0.4, 2.0])
    table = cmp_series(eta, nu)
    assert table.shape == (3, 4)
    for i, j in np.ndindex(3, 4):
        assert table[i, j] == cmp_series(eta[i, 0], nu[j])


def test_without_a_rate_there_is_one_term():
    np.testing.assert_array_equal(cmp_series(-np.inf, [0.0, 0.7, 1.0, 30.0]), 0.0)
