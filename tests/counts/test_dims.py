"""CMP with named dimensions against CMP with positions."""

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytest
from xarray import DataArray

import pymc_bayessum as pbs
from pymc_bayessum.dims import CMP

SOLD = np.random.default_rng(0).poisson(3.0, (5, 4))
COORDS = {"day": np.arange(5), "shop": list("abcd")}


@pytest.fixture(scope="module")
def named():
    with pm.Model(coords=COORDS) as model:
        day, shop = pmd.Normal("by_day", dims="day"), pmd.Normal("by_shop", dims="shop")
        nu = pmd.HalfNormal("nu", 2.0)
        sold = pmd.Data("sold", SOLD.T, dims=("shop", "day"))
        CMP("y", mu=pmd.math.exp(day + shop), nu=nu, observed=sold)
    return model


@pytest.mark.parametrize("form", ["mu", "lam"])
def test_same_log_probability_and_gradient(form):
    with pm.Model(coords=COORDS) as model:
        day, shop = pmd.Normal("by_day", dims="day"), pmd.Normal("by_shop", dims="shop")
        nu = pmd.HalfNormal("nu", 2.0)
        sold = pmd.Data("sold", SOLD.T, dims=("shop", "day"))
        CMP("y", **{form: pmd.math.exp(day + shop)}, nu=nu, observed=sold)
    with pm.Model(coords=COORDS) as plain:
        day, shop = pm.Normal("by_day", dims="day"), pm.Normal("by_shop", dims="shop")
        nu = pm.HalfNormal("nu", 2.0)
        rate = pm.math.exp(day[:, None] + shop)
        pbs.CMP("y", **{form: rate}, nu=nu, observed=SOLD, dims=("day", "shop"))
    rng = np.random.default_rng(1)
    point = {
        "by_day": 0.3 * rng.normal(size=5),
        "by_shop": 0.3 * rng.normal(size=4),
        "nu_log__": np.array(-0.2),
    }
    assert model.compile_logp()(point) == pytest.approx(plain.compile_logp()(point), rel=1e-12)
    np.testing.assert_allclose(
        model.compile_dlogp()(point), plain.compile_dlogp()(point), rtol=1e-9, atol=1e-10
    )


def test_predictive_draws_have_the_dims(named):
    with named:
        prior = pm.sample_prior_predictive(7, random_seed=1)
    assert prior["prior_predictive"]["y"].sizes == {"chain": 1, "draw": 7, "shop": 4, "day": 5}


def test_draws_follow_the_mean():
    mu = DataArray([0.5, 4.0], dims="a")
    draws = pm.draw(CMP.dist(mu=mu, nu=1.7, dim_lengths={"b": 20_000}), random_seed=3)
    assert draws.shape == (20_000, 2) or draws.shape == (2, 20_000)
    means = draws.mean(axis=np.argmax(draws.shape))
    np.testing.assert_allclose(means, [0.5, 4.0], atol=5 * 2.0 / np.sqrt(20_000))


def test_bad_input():
    with pytest.raises(ValueError, match=r"exactly one of mu .* got mu and lam"):
        CMP.dist(mu=1.0, lam=1.0, nu=1.0)
    with pytest.raises(ValueError, match="nu must be given"):
        CMP.dist(mu=1.0)
    with pytest.raises(ValueError, match="must have dims"):
        CMP.dist(mu=np.ones(3), nu=1.0)


def test_a_rule_as_normaliser():
    rule = pbs.poisson_rule(4.0, nodes=np.arange(10))
    mu = DataArray([2.0, 4.0], dims="a")
    logp = pm.logp(CMP.dist(lam=mu, nu=0.5, normalizer=rule), pmd.as_xtensor(3)).values.eval()
    expected = pm.logp(pbs.CMP.dist(lam=np.array([2.0, 4.0]), nu=0.5, normalizer=rule), 3).eval()
    np.testing.assert_allclose(logp, expected, rtol=1e-12)
    with pytest.raises(TypeError, match="normalizer must be None or a Rule"):
        CMP.dist(lam=mu, nu=0.5, normalizer="exact")
