"""A check speaks of the data that the draws were made with, or not at all."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_bayessum as pbs


@pytest.fixture
def model():
    with pm.Model() as model:
        x = pm.Data("x", np.linspace(0.0, 1.0, 40))
        y = pm.Data("counts", np.arange(40) % 5)
        slope = pm.Normal("slope")
        pbs.CMP("y", mu=pm.math.exp(slope * x), nu=1.2, observed=y)
    return model


@pytest.fixture
def tree(model):
    draws = np.random.default_rng(1).normal(0.5, 0.1, size=(1, 60))
    groups = {
        "posterior": xr.Dataset({"slope": (("chain", "draw"), draws)}),
        "observed_data": xr.Dataset({"y": ("row", np.arange(40) % 5)}),
        "constant_data": xr.Dataset({"x": ("row", np.linspace(0.0, 1.0, 40))}),
    }
    return xr.DataTree.from_dict(groups)


def test_same_data_and_how_many_rows(model, tree):
    checked = pbs.check_normalizer(tree, model, progressbar=False)
    assert checked["normalizer"].attrs["verdict"] == "good"
    assert "y over 40 rows" in str(checked)


def test_fewer_rows_are_refused(model, tree):
    with model:
        pm.set_data({"x": np.zeros(7), "counts": np.ones(7, int)})
    with pytest.raises(ValueError, match=r"y has shape \(40,\) in observed_data, \(7,\) in the"):
        pbs.check_normalizer(tree, model, progressbar=False)


def test_other_covariates_are_refused(model, tree):
    with model:
        pm.set_data({"x": np.linspace(0.0, 2.0, 40)})
    with pytest.raises(ValueError, match="x has other values in constant_data"):
        pbs.check_normalizer(tree, model, progressbar=False)


def test_missing_observations_keep_the_name():
    y = np.ma.masked_equal([3, 1, -1, 2], -1)
    with pm.Model() as model:
        mu = pm.HalfNormal("mu", 2.0)
        with pytest.warns(UserWarning, match="imputed"):
            pbs.CMP("y", mu=mu, nu=1.2, observed=y)
    rng = np.random.default_rng(1)
    posterior = xr.Dataset(
        {
            "mu": (("chain", "draw"), rng.gamma(9.0, 0.2, size=(1, 50))),
            "y_unobserved": (("chain", "draw", "missing"), rng.poisson(2.0, size=(1, 50, 1))),
        }
    )
    checked = pbs.check_normalizer(posterior, model, progressbar=False)["normalizer"]
    assert checked["normalizer"].values.tolist() == ["y"]
    assert checked.attrs["verdict"] == "good"
