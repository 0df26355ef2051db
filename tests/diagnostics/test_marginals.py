"""Marginals of normal posteriors, whose change is known in closed form."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_bayessum as pbs
from pymc_bayessum.diagnostics.marginals import moved_marginals, summed_marginals
from pymc_bayessum.normalizers import Given, log_z


def normal_change(mean, precision, covariance):
    """Log ratio of N(mean, precision^-1) to N(0, covariance)."""
    inverse = np.linalg.inv(covariance)

    def change(x):
        away = x - mean
        return float(x @ inverse @ x - away @ precision @ away) / 2.0, 0.0

    return change


def test_correlated_normals():
    rng = np.random.default_rng(1)
    root = rng.normal(size=(12, 12)) / 3.0
    covariance = root @ root.T + np.eye(12)
    draws = rng.multivariate_normal(np.zeros(12), covariance, size=6000)
    sds = np.sqrt(np.diag(covariance))
    mean = 0.05 * sds * rng.choice([-1.0, 1.0], size=12)
    change = normal_change(mean, np.linalg.inv(covariance), covariance)
    assert moved_marginals(draws, change).shift == pytest.approx(0.05, abs=0.01)
    wider = normal_change(np.zeros(12), np.linalg.inv(1.1 * covariance), covariance)
    # First order in the variance: 1 / 1.1 of the true change of a tenth.
    assert moved_marginals(draws, wider).stretch == pytest.approx(0.05, abs=0.01)


@pytest.mark.parametrize("size", [1, 2])
def test_summed_on_a_grid(size):
    """Means and sds in closed form, from draws that only say where the posterior is."""
    rng = np.random.default_rng(3)
    root = np.array([[1.0, 0.0], [0.8, 0.3]])[:size, :size]
    covariance = root @ root.T
    draws = rng.multivariate_normal(np.zeros(size), covariance, size=300)
    inverse = np.linalg.inv(covariance)
    mean, sds = np.array([0.3, -0.1])[:size], np.sqrt(np.diag(covariance))
    change = normal_change(mean, inverse / 1.44, covariance)
    moved = summed_marginals(
        draws, lambda x: -0.5 * float(x @ inverse @ x), lambda x: x, lambda x: (change(x)[0], x[0])
    )
    assert moved.shift == pytest.approx(np.max(np.abs(mean) / (1.2 * sds)), abs=1e-4)
    assert moved.stretch == pytest.approx(1.0 - 1.0 / 1.2, abs=1e-4)
    # A slope of one along the first parameter moves it by its variance, and what goes with it.
    noise = 1.44 * covariance[0] / (1.2 * sds)
    assert moved.noise == pytest.approx(noise.max(), abs=1e-3)


def normal_density(x):
    return -0.5 * float(x @ x)


def narrow_peaks(x):
    return float(np.logaddexp(-((50.0 * (x[0] - 1.1)) ** 2), -((50.0 * (x[0] + 1.0)) ** 2)))


@pytest.mark.parametrize(
    ("density", "change"),
    [
        (narrow_peaks, lambda x: (0.0, 0.0)),
        (normal_density, lambda x: (0.5 * x[0] ** 2, 0.0)),
        (normal_density, lambda x: (np.nan if x[0] > 6.0 else 0.0, 0.0)),
    ],
    ids=["narrow peaks", "a posterior that goes on", "no log Z far out"],
)
def test_a_grid_that_does_not_do(density, change):
    draws = np.random.default_rng(4).normal(size=(400, 1))
    assert summed_marginals(draws, density, lambda x: x, change) is None


class Tilted:
    """log Z of independent exponentials e^(theta x^2 / 2), with an error that is known.

    It is in log Z, or else in the reference.
    """

    is_absolute = True

    def __init__(self, error, true_error=lambda xp, theta: 0.0):
        self.error, self.true_error = error, true_error

    def log_z(self, xp, theta):
        return xp.sum(theta**2, axis=-1) / 2.0 + self.error(xp, theta)

    def sd(self, xp, theta):
        return None

    def reference(self, asked):
        return Given(
            lambda theta: (theta**2).sum(axis=-1) / 2.0 - self.true_error(np, theta),
            "the closed form",
        )

    def remedy(self, facts):
        return "no error"


N_PARAMETERS = 40


def check(tilted, n_parameters=N_PARAMETERS):
    """The check on draws of a posterior N(0, 1 / 100) in each of some parameters."""
    with pm.Model() as model:
        theta = pm.Flat("theta", shape=n_parameters)
        pm.Potential("y", -100.0 * log_z(tilted, theta))
    draws = np.random.default_rng(2).normal(0.0, 0.1, size=(2, 500, n_parameters))
    posterior = xr.Dataset({"theta": (("chain", "draw", "site"), draws)})
    return pbs.check_normalizer(posterior, model, progressbar=False)["normalizer"].attrs


def verdict(error):
    return check(Tilted(error))["verdict"]


def in_the_tail(strength):
    """An error of log Z that is felt beyond one posterior sd."""
    return Tilted(
        lambda xp, t: 0.0 * xp.sum(t, axis=-1),
        lambda xp, t: strength * np.maximum(10.0 * t[..., 0] - 1.0, 0.0) ** 2 / 100.0,
    )


@pytest.mark.parametrize("n_parameters", [1, 2])
def test_a_heavy_tail_of_little_mass_does_no_harm(n_parameters):
    """Beyond one sd the density is e^(-x^2 / 2 + .3 (x - 1)^2): the mean moves by .07 sd."""
    x = np.linspace(-12.0, 12.0, 200_001)
    mass = np.exp(-0.5 * x**2 + 0.3 * np.maximum(x - 1.0, 0.0) ** 2)
    mean = (mass @ x) / mass.sum()
    sd = np.sqrt((mass @ (x - mean) ** 2) / mass.sum())
    assert mean / sd < 0.1
    assert sd < 1.1
    found = check(in_the_tail(0.3), n_parameters)
    assert found["khat"] > 0.5
    assert found["verdict"] == "good"
    assert "no sd by more than" in found["reason"]


@pytest.mark.parametrize("n_parameters", [1, 2])
def test_a_tail_that_matters_does(n_parameters):
    """With .6 in place of .3 there is no end to it."""
    assert check(in_the_tail(0.6), n_parameters)["verdict"] == "not to be trusted"


def test_many_small_errors_do_no_harm():
    """Each mean is off by .05 sd and the weights are far too uneven to say so: sd .3 of the log."""
    signs = np.where(np.arange(N_PARAMETERS) % 2, 1.0, -1.0)
    assert verdict(lambda xp, t: 0.005 * xp.sum(signs * t, axis=-1)) == "good"


def test_many_larger_errors_do():
    signs = np.where(np.arange(N_PARAMETERS) % 2, 1.0, -1.0)
    assert verdict(lambda xp, t: 0.02 * xp.sum(signs * t, axis=-1)) != "good"


def test_wrong_spread_does():
    assert verdict(lambda xp, t: 0.2 * xp.sum(t**2, axis=-1)) != "good"
