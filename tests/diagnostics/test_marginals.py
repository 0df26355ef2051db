"""Marginals of normal posteriors, whose change is known in closed form."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_bayessum as pbs
from pymc_bayessum.diagnostics.marginals import moved_marginals
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


class Tilted:
    """log Z of 40 independent exponentials e^(theta x^2 / 2), with an error that is known."""

    is_absolute = True

    def __init__(self, error):
        self.error = error

    def log_z(self, xp, theta):
        return xp.sum(theta**2, axis=-1) / 2.0 + self.error(xp, theta)

    def sd(self, xp, theta):
        return None

    def reference(self, asked):
        return Given(lambda theta: (theta**2).sum(axis=-1) / 2.0, "the closed form")

    def remedy(self, facts):
        return "no error"


N_PARAMETERS = 40


def verdict(error):
    """The check on draws of a posterior N(0, 1 / 100) in each of forty parameters."""
    with pm.Model() as model:
        theta = pm.Flat("theta", shape=N_PARAMETERS)
        pm.Potential("y", -100.0 * log_z(Tilted(error), theta))
    draws = np.random.default_rng(2).normal(0.0, 0.1, size=(2, 500, N_PARAMETERS))
    posterior = xr.Dataset({"theta": (("chain", "draw", "site"), draws)})
    group = pbs.check_normalizer(posterior, model, progressbar=False)["normalizer"]
    return group.attrs["verdict"]


def test_many_small_errors_do_no_harm():
    """Each mean is off by .05 sd and the weights are far too uneven to say so: sd .3 of the log."""
    signs = np.where(np.arange(N_PARAMETERS) % 2, 1.0, -1.0)
    assert verdict(lambda xp, t: 0.005 * xp.sum(signs * t, axis=-1)) == "good"


def test_many_larger_errors_do():
    signs = np.where(np.arange(N_PARAMETERS) % 2, 1.0, -1.0)
    assert verdict(lambda xp, t: 0.02 * xp.sum(signs * t, axis=-1)) != "good"


def test_wrong_spread_does():
    assert verdict(lambda xp, t: 0.2 * xp.sum(t**2, axis=-1)) != "good"
