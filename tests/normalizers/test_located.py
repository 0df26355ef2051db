"""Sums that find their nodes, wherever the summand is: against all terms that matter."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.special import gammaln, logsumexp

from pymc_bayessum.normalizers.located import LocatedSum, place

# Where the bells are, and how narrow: from some sds at the left end to sds of .01% of the mode.
MODES, DISPERSIONS = (
    np.ravel(x)
    for x in np.meshgrid(
        [3.0, 70.0, 2.3e3, 41_234.0, 3e5, 1.7e6, 2.9e7], [0.05, 0.3, 1.0, 3.0, 10.0]
    )
)


def log_mass(x, mode, nu):
    """Log mass of CMP over that at the mode, without the cancellation of large numbers.

    By Stirling's series, as a function of the distance from the mode.
    """
    d = (x - mode) / mode
    bend = (x + 0.5) * pt.log1p(d) - (x - mode) + 1.0 / (12.0 * (x + 0.1)) - 1.0 / (12.0 * mode)
    return pt.where(x < 1.0, -np.inf, -nu * bend)


def listed(mode, nu):
    """Sum all numbers within 12 sds and 60 / nu: what is left out is below 1e-15."""
    reach = 12.0 * np.sqrt(mode / nu) + 60.0 / nu
    x = np.arange(max(np.floor(mode - reach), 1.0), np.ceil(mode + reach))
    d = (x - mode) / mode
    bend = (x + 0.5) * np.log1p(d) - (x - mode) + 1.0 / (12.0 * (x + 0.1)) - 1.0 / (12.0 * mode)
    return logsumexp(-nu * bend)


@pytest.fixture(scope="module")
def graph():
    mode, nu = pt.dvector("mode"), pt.dvector("nu")
    nodes = place(lambda x: log_mass(x, mode, nu), pt.zeros_like(mode))
    located = LocatedSum(log_mass, lambda mode, nu: pt.zeros_like(mode))
    return [mode, nu], [located.log_z(pt, mode, nu), nodes.last]


@pytest.fixture(scope="module")
def found(graph):
    return pytensor.function(*graph, mode="FAST_COMPILE")(MODES, DISPERSIONS)


def test_bells_are_found_wherever_they_are(found):
    expected = [listed(mode, nu) for mode, nu in zip(MODES, DISPERSIONS, strict=True)]
    np.testing.assert_allclose(found[0], expected, atol=1e-9)


def test_jax_looks_at_the_same_points(graph, found):
    pytest.importorskip("jax")
    value, last = pytensor.function(*graph, mode="JAX")(MODES, DISPERSIONS)
    np.testing.assert_allclose(value, found[0], rtol=1e-10)
    np.testing.assert_allclose(last, found[1], rtol=1e-12)


def test_a_narrow_bell_of_log_factorials():
    """The summand as users write it, whose rounding is that of numbers of 1e8."""
    log_rate, nu = 10.0 * np.log(3e5), 10.0
    x = np.arange(3e5 - 4000.0, 3e5 + 4000.0)
    cmp = LocatedSum(lambda x, eta: x * eta - nu * pt.gammaln(x + 1.0), pt.zeros_like)
    value = cmp.log_z(pt, pt.constant(log_rate)).eval(mode="FAST_COMPILE")
    assert value == pytest.approx(logsumexp(x * log_rate - nu * gammaln(x + 1.0)), abs=1e-8)
