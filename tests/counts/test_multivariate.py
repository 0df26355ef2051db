"""Counts that go together, against listing."""

from itertools import product

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.special import gammaln

import pymc_bayessum as pbs

QUICK = {"mode": "FAST_COMPILE"}
MU, NU = np.array([1.0, 2.0, 0.5]), np.array([1.0, 1.5, 0.6])
OMEGA = 0.5 * np.array([[0.0, 1.5, -0.5], [1.5, 0.0, 0.7], [-0.5, 0.7, 0.0]])
TOP = 60


def margin(mu, nu):
    """Probabilities of 0, ..., TOP with a given mean, by bisection on the log rate."""
    x = np.arange(TOP + 1)

    def masses(eta):
        logs = x * eta - nu * gammaln(x + 1)
        return np.exp(logs - np.logaddexp.reduce(logs))

    low, high = -20.0, 20.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if masses(middle) @ x < mu else (low, middle)
    return masses(middle)


MARGINS = [margin(m, v) for m, v in zip(MU, NU, strict=True)]
SHRUNK = np.array([p @ np.exp(-np.arange(TOP + 1)) for p in MARGINS])


def mass(y, omega=OMEGA):
    away = np.exp(-y.astype(float)) - SHRUNK
    pairs = sum(omega[i, j] * away[..., i] * away[..., j] for i in range(3) for j in range(i))
    return np.prod([p[y[..., i]] for i, p in enumerate(MARGINS)], axis=0) * (1.0 + pairs)


@pytest.fixture(scope="module")
def variable():
    return pbs.MultivariateCMP.dist(mu=MU, nu=NU, omega=OMEGA)


def test_mass_equals_the_listed_one(variable):
    y = np.array(list(product(range(6), repeat=3)))
    value = pm.logp(variable, y).eval(**QUICK)
    assert np.allclose(value, np.log(mass(y)), rtol=0, atol=1e-12)
    assert pm.logp(variable, [1, -1, 0]).eval(**QUICK) == -np.inf


def test_sums_to_one_and_has_its_margins(variable):
    y = np.array(list(product(range(30), range(25), range(30))))
    found = np.exp(pm.logp(variable, y).eval(**QUICK)).reshape(30, 25, 30)
    assert np.isclose(found.sum(), 1.0, rtol=1e-12)
    for axis, n in enumerate(found.shape):
        others = tuple(k for k in range(3) if k != axis)
        assert np.allclose(found.sum(axis=others), MARGINS[axis][:n], rtol=1e-10, atol=1e-13)


def test_draws_follow_the_masses(variable):
    draws = pm.draw(variable, 20_000, random_seed=1)
    x = np.arange(TOP + 1)
    slopes = [p @ (x * (np.exp(-x) - c)) for p, c in zip(MARGINS, SHRUNK, strict=True)]
    covariance = OMEGA * np.outer(slopes, slopes)
    found = np.cov(draws.T)
    off = ~np.eye(3, dtype=bool)
    assert np.allclose(found[off], covariance[off], atol=0.03)
    assert np.allclose(draws.mean(axis=0), MU, atol=0.04)


def test_gradient():
    mu, nu, w = pt.dvector("mu"), pt.dvector("nu"), pt.dscalar("w")
    variable = pbs.MultivariateCMP.dist(mu=mu, nu=nu, omega=w * OMEGA)
    value = pm.logp(variable, np.array([[0, 1, 2], [3, 0, 0]])).sum()
    gradient = pytensor.grad(value, [mu, nu, w])
    function = pytensor.function([mu, nu, w], [value, *gradient], **QUICK)
    start = [MU, NU, np.float64(1.0)]
    _, *slopes = function(*start)
    step = 1e-6
    for k, slope in enumerate(slopes):
        for index in np.ndindex(np.shape(slope)):
            above, below = ([np.array(v) for v in start] for _ in range(2))
            above[k][index] += step
            below[k][index] -= step
            numeric = (function(*above)[0] - function(*below)[0]) / (2 * step)
            assert np.isclose(np.asarray(slope)[index], numeric, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:Skipping")
def test_backends_agree():
    mu, nu = pt.dvector("mu"), pt.dvector("nu")
    y = np.array([[0, 1, 2], [3, 0, 0]])
    value = pm.logp(pbs.MultivariateCMP.dist(mu=mu, nu=nu, omega=OMEGA), y)
    outputs = [value, *pytensor.grad(value.sum(), [mu, nu])]
    here, there = (
        pytensor.function([mu, nu], outputs, mode=mode)(MU, NU) for mode in ("FAST_COMPILE", "JAX")
    )
    assert np.allclose(here[0], np.log(mass(y)), rtol=1e-10)
    for a, b in zip(here, there, strict=True):
        assert np.allclose(a, b, rtol=1e-9)


@pytest.mark.usefixtures("plain")
def test_recovery_and_check():
    omega = np.array([[0.0, 2.0], [2.0, 0.0]])
    y = pm.draw(
        pbs.MultivariateCMP.dist(mu=[1.0, 1.5], nu=[1.0, 1.0], omega=omega), 3000, random_seed=3
    )
    with pm.Model() as model:
        mu = pm.Exponential("mu", 1.0, shape=2)
        nu = pm.HalfNormal("nu", 2.0, shape=2)
        w = pm.Normal("w", 0.0, 2.0)
        pbs.MultivariateCMP("y", mu=mu, nu=nu, omega=w * (omega / 2.0), observed=y)
        point = pm.find_MAP(progressbar=False)
    assert np.allclose(point["mu"], y.mean(axis=0), atol=0.05)
    assert abs(point["w"] - 2.0) < 0.6
    checked = pbs.check_normalizer(point, model, progressbar=False)
    assert checked["normalizer"].attrs["verdict"] == "good"


def test_omega_beyond_its_bounds_has_no_probability():
    w = pt.dscalar("w")
    pattern = np.array([[0.0, 1.0], [1.0, 0.0]])
    variable = pbs.MultivariateCMP.dist(mu=MU[:2], nu=NU[:2], omega=w * pattern)
    function = pytensor.function([w], pm.logp(variable, [0, 0]), **QUICK)
    c, d = SHRUNK[:2]
    low, high = -1 / max(c * d, (1 - c) * (1 - d)), 1 / max(c * (1 - d), d * (1 - c))
    for inside in (0.999 * low, 0.999 * high):
        assert np.isfinite(function(inside))
    for outside in (1.001 * low, 1.001 * high):
        with pytest.raises(Exception, match="omega within its bounds"):
            function(outside)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mu": [1.0, -2.0]}, "mu must be finite and > 0"),
        ({"nu": [1.0, -2.0]}, "nu must be finite and >= 0"),
        ({"nu": [1.0, 1.0, 1.0]}, "nu must fit the 2 means"),
        ({"omega": np.zeros((3, 3))}, "omega must fit the 2 means"),
        ({"omega": np.zeros(2)}, "omega \\(d, d\\)"),
        ({"omega": np.array([[0.0, 1.0], [0.5, 0.0]])}, "omega must be symmetric"),
        ({"omega": np.eye(2)}, "omega must have a zero diagonal"),
        ({"omega": np.array([[0.0, 99.0], [99.0, 0.0]])}, "omega is out of its bounds"),
    ],
)
def test_bad_arguments(change, message):
    arguments = {"mu": [1.0, 2.0], "nu": [1.0, 1.0], "omega": np.zeros((2, 2))} | change
    with pytest.raises(ValueError, match=message):
        pbs.MultivariateCMP.dist(**arguments)


def test_bad_observations():
    with pm.Model(), pytest.raises(ValueError, match="counts"):
        pbs.MultivariateCMP(
            "y", mu=[1.0, 2.0], nu=[1.0, 1.0], omega=np.zeros((2, 2)), observed=[[0.5, 1.0]]
        )
