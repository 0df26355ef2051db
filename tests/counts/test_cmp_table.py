"""The table that rows share: what its cells hold, and that threads may fill and read it at once."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy.special import gammaln

from pymc_bayessum.counts.cmp_sums.cells import POWERS, fill
from pymc_bayessum.counts.cmp_sums.ops import CMPCumulants, CMPFromMean


def summed(eta, nu):
    """Log Z, E[X] and E[L], all terms added up."""
    x = np.arange(400_000.0 if nu < 0.05 else 40_000.0)
    l_x = gammaln(x + 1)
    exponent = eta * x - nu * l_x
    terms = np.exp(exponent - exponent.max())
    total = terms.sum()
    return exponent.max() + np.log(total), terms @ x / total, terms @ l_x / total


# Few counts, a bell, a bell far from zero, a wide summand at zero, and steps at whole numbers.
CELLS = [(-3.0, 0.5, 0.1), (1.0, -0.2, 0.1), (6.0, 1.0, 0.25), (6.5, -5.0, 0.1), (0.4, 1.9, 0.02)]


@pytest.mark.parametrize(("s", "v", "half"), CELLS)
@pytest.mark.parametrize("by_mean", [True, False])
def test_a_cell_holds_the_sums(by_mean, s, v, half):
    coefficients = fill(by_mean, s, half, v, half / 2)
    u, w = np.random.default_rng(1).uniform(-1, 1, 2)
    found = np.array([u**i * w**k for i, k in POWERS]) @ coefficients
    at, nu = s + half * u, np.exp(v + half / 2 * w)
    if by_mean:
        mu = np.exp(at)
        eta = found[0] + nu * at
        log_z, mean, mean_l = summed(eta, nu)
        assert mean == pytest.approx(mu, rel=1e-9)
        assert found[1] + mu * (found[0] + nu) == pytest.approx(log_z, rel=1e-10)
        assert found[4] == pytest.approx(mean_l, rel=1e-9)
        # eta grows with the log of the mean, and with nu, as outputs two and three say.
        h = 1e-5
        up, down = (summed(eta + d, nu)[1] for d in (h, -h))
        assert found[2] == pytest.approx(mu * 2 * h / (up - down), rel=1e-6)
        assert summed(eta + h * found[3], nu + h)[1] == pytest.approx(mu, rel=1e-7)
    else:
        eta, growth = (nu * at, nu * np.exp(at)) if at > 0 else (at, 0.0)
        log_z, mean, mean_l = summed(eta, nu)
        assert found[0] + growth == pytest.approx(log_z, rel=1e-10)
        assert found[1:].tolist() == pytest.approx([mean, -mean_l], rel=1e-9)


def test_no_polynomial_follows_the_steps():
    """The mean of a large nu climbs from one whole number to the next."""
    assert fill(True, 1.2, 0.25, 3.8, 0.125) is None


def test_threads_share_the_table():
    rng = np.random.default_rng(3)
    log_mu, nu = rng.uniform(-2, 4, (8, 3000)), np.exp(rng.uniform(-1, 1, (8, 3000)))
    log_mu[4:], nu[4:] = log_mu[:4], nu[:4]  # at the same places at the same time
    with ThreadPoolExecutor(8) as pool:
        for op in (CMPFromMean(), CMPCumulants(1)):
            together = np.array(list(pool.map(op.evaluate, log_mu, nu)))
            alone = np.array([op.evaluate(*rows) for rows in zip(log_mu, nu, strict=True)])
            np.testing.assert_array_equal(together, alone)
            few = np.array(op.evaluate(log_mu[0, :50], nu[0, :50]))  # summed, not read
            np.testing.assert_allclose(together[0, :, :50], few, rtol=1e-9, atol=1e-11)


def test_nu_beyond_all_bounds():
    """Two neighbours of the mean, and no count above probability one; an optimiser may try it."""
    log_mu, nu = np.log([0.3, 9.37, 1e5 + 0.5, 1e15]), np.array([2e12, 1e20, 1e35, 1e200])[:, None]
    eta, log_z, by_mu, by_nu, mean_l = CMPFromMean().evaluate(log_mu, nu)
    k = np.floor(np.exp(log_mu))
    assert np.all(np.isfinite([eta, log_z, by_mu, by_nu, mean_l]))
    np.testing.assert_allclose(eta / nu, np.log(k + 1) + 0 * nu, rtol=1e-9, atol=1e-9)
    for y in (np.maximum(k - 1, 0), k, k + 1, 2 * k + 2):
        assert np.all(y * eta - nu * gammaln(y + 1) - log_z <= 0)
    assert np.all(np.isfinite(CMPCumulants(3).evaluate(nu * log_mu[1:], nu)))
