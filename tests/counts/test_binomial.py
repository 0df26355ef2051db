"""The Conway-Maxwell-binomial distribution, against listing all numbers of successes."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.optimize import brentq
from scipy.special import gammaln, logit

import pymc_bayessum as pbs

QUICK = {"mode": "FAST_COMPILE"}
TRIALS = np.array([1, 5, 12, 40])
SUCCESSES = np.array([0, 2, 12, 17])
SHARES = np.array([0.3, 0.5, 0.8, 0.1])


def log_masses(n, odds, nu):
    x = np.arange(n + 1)
    logs = nu * (gammaln(n + 1) - gammaln(x + 1) - gammaln(n - x + 1)) + x * odds
    return logs - np.logaddexp.reduce(logs)


def log_odds(n, mu, nu):
    x = np.arange(n + 1)
    return brentq(lambda t: np.exp(log_masses(n, t, nu)) @ x - mu, -300, 300, xtol=1e-14)


def listed(nu, by_mean):
    odds = [
        log_odds(n, n * share, nu) if by_mean else logit(share)
        for n, share in zip(TRIALS, SHARES, strict=True)
    ]
    rows = zip(SUCCESSES, TRIALS, odds, strict=True)
    return np.array([log_masses(n, t, nu)[x] for x, n, t in rows])


@pytest.fixture(scope="module", params=["p", "mu"])
def compiled(request):
    """The log-mass, its gradient and second derivative in nu, as functions of p or mu and nu."""
    first, nu = pt.dvector("first"), pt.dscalar("nu")
    variable = pbs.CMPBinomial.dist(n=TRIALS, nu=nu, **{request.param: first})
    value = pm.logp(variable, SUCCESSES)
    by_first, by_nu = pytensor.grad(value.sum(), [first, nu])
    outputs = [value, by_first, by_nu, pytensor.grad(by_nu, nu)]
    return request.param == "mu", pytensor.function([first, nu], outputs, **QUICK)


@pytest.mark.parametrize("nu", [-1.5, -0.2, 0.0, 0.5, 1.0, 3.0])
def test_mass_equals_the_listed_one(compiled, nu):
    by_mean, function = compiled
    first = SHARES * TRIALS if by_mean else SHARES
    value, by_first, by_nu, curvature = function(first, nu)
    assert np.allclose(value, listed(nu, by_mean), rtol=0, atol=1e-12)
    step = 1e-4
    above, below = (function(first, nu + s) for s in (step, -step))
    assert np.isclose(by_nu, (above[0] - below[0]).sum() / (2 * step), rtol=1e-6, atol=1e-6)
    assert np.isclose(curvature, (above[2] - below[2]) / (2 * step), rtol=1e-5, atol=1e-5)
    above, below = (function(first * (1 + s), nu) for s in (step, -step))
    slopes = (above[0] - below[0]) / (2 * step * first)
    assert np.allclose(by_first, slopes, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("nu", [-1.0, 0.4, 2.5])
def test_sums_to_one_and_has_its_mean(nu):
    x = np.arange(21)
    variable = pbs.CMPBinomial.dist(n=20, mu=6.5, nu=nu)
    mass = np.exp(pm.logp(variable, x).eval(**QUICK))
    assert np.isclose(mass.sum(), 1.0, rtol=1e-13)
    assert np.isclose(mass @ x, 6.5, rtol=1e-12)
    cumulated = np.exp(pm.logcdf(variable, x).eval(**QUICK))
    assert np.allclose(cumulated, mass.cumsum(), rtol=1e-12)
    assert pm.logp(variable, 21).eval(**QUICK) == pm.logp(variable, -1).eval(**QUICK) == -np.inf


def test_is_binomial_where_nu_is_one():
    x = np.arange(11)
    ours, theirs = pbs.CMPBinomial.dist(n=10, p=0.3, nu=1.0), pm.Binomial.dist(10, 0.3)
    assert np.allclose(pm.logp(ours, x).eval(**QUICK), pm.logp(theirs, x).eval(**QUICK), rtol=1e-12)


@pytest.mark.parametrize("nu", [-0.5, 2.0])
def test_draws_follow_the_masses(nu):
    draws = pm.draw(pbs.CMPBinomial.dist(n=8, p=0.4, nu=nu, shape=4000), random_seed=1)
    expected = 4000 * np.exp(log_masses(8, logit(0.4), nu))
    observed = np.bincount(draws, minlength=9)
    kept = expected > 5
    chi2 = ((observed - expected)[kept] ** 2 / expected[kept]).sum()
    assert chi2 < 35


def test_trials_may_differ_by_row():
    draws = pm.draw(pbs.CMPBinomial.dist(n=np.array([2, 30]), p=0.5, nu=0.7), 200, random_seed=1)
    assert draws.shape == (200, 2)
    assert draws[:, 0].max() <= 2 < draws[:, 1].max()


@pytest.mark.filterwarnings("ignore:Skipping")
def test_backends_agree():
    nu = pt.dscalar("nu")
    value = pm.logp(pbs.CMPBinomial.dist(n=TRIALS, mu=SHARES * TRIALS, nu=nu), SUCCESSES)
    for mode in ("JAX", "NUMBA"):
        got = pytensor.function([nu], value, mode=mode)(0.6)
        assert np.allclose(got, listed(0.6, True), rtol=0, atol=1e-11)


@pytest.mark.filterwarnings("ignore:Skipping")
def test_numbers_of_trials_that_all_rows_share_on_jax():
    mu = pt.dscalar("mu")
    value = pm.logp(pbs.CMPBinomial.dist(n=12, mu=mu, nu=0.9), [0, 3, 12])
    here, there = (
        pytensor.function([mu], value, mode=mode)(6.0) for mode in ("FAST_COMPILE", "JAX")
    )
    assert np.allclose(here, there, rtol=1e-10)


@pytest.mark.usefixtures("plain")
def test_recovery_and_check():
    rng = np.random.default_rng(2)
    mass = np.exp(log_masses(15, log_odds(15, 5.0, 2.0), 2.0))
    y = rng.choice(16, size=400, p=mass)
    with pm.Model() as model:
        mu = pm.Uniform("mu", 0.0, 15.0)
        nu = pm.Normal("nu", 1.0, 2.0)
        pbs.CMPBinomial("y", n=15, mu=mu, nu=nu, observed=y)
        point = pm.find_MAP(progressbar=False)
    assert abs(point["mu"] - y.mean()) < 0.01
    assert abs(point["nu"] - 2.0) < 0.5
    checked = pbs.check_normalizer(point, model, progressbar=False)
    assert checked["normalizer"].attrs["verdict"] == "good"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 5, "nu": 1.0}, "exactly one of p and mu"),
        ({"n": 5, "p": 0.5, "mu": 2.0, "nu": 1.0}, "exactly one of p and mu"),
        ({"p": 0.5, "nu": 1.0}, "n must be given"),
        ({"n": 5, "p": 0.5}, "nu must be given"),
        ({"n": -1, "p": 0.5, "nu": 1.0}, "n must hold whole numbers >= 0, got -1"),
        ({"n": 2.5, "p": 0.5, "nu": 1.0}, "n must hold whole numbers >= 0, got 2.5"),
        ({"n": 5, "p": 1.2, "nu": 1.0}, "p must lie strictly between 0 and 1, got 1.2"),
        ({"n": 5, "mu": 5.0, "nu": 1.0}, "mu must lie strictly between 0 and n, got 5"),
        ({"n": 5, "p": 0.5, "nu": np.inf}, "nu must be finite"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        pbs.CMPBinomial.dist(**arguments)


def test_bad_observations():
    with pm.Model(), pytest.raises(ValueError, match="at most n, got 6"):
        pbs.CMPBinomial("y", n=5, p=0.5, nu=1.0, observed=[3, 6])
    with pm.Model(), pytest.raises(ValueError, match="counts"):
        pbs.CMPBinomial("y", n=5, p=0.5, nu=1.0, observed=[3.5])
