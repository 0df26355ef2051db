"""CMP with named dimensions against CMP with positions."""

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytensor
import pytest
from scipy import stats
from xarray import DataArray, Dataset

import pymc_bayessum as pbs
from pymc_bayessum.dims import CMP, HurdleCMP, ZeroInflatedCMP

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
    (logp, dlogp), expected = (
        each.compile_fn([each.logp(), each.dlogp()], mode="FAST_COMPILE")(point)
        for each in (model, plain)
    )
    assert logp == pytest.approx(expected[0], rel=1e-12)
    np.testing.assert_allclose(dlogp, expected[1], rtol=1e-9, atol=1e-10)
    if form == "mu":  # and as it would be sampled
        assert model.compile_logp()(point) == pytest.approx(expected[0], rel=1e-12)


@pytest.mark.usefixtures("plain")
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


@pytest.mark.parametrize(
    ("distribution", "share"), [(CMP, {}), (ZeroInflatedCMP, {"psi": 0.5}), (HurdleCMP, {"psi": 1})]
)
def test_plain_numbers_draw(distribution, share):
    rv = distribution.dist(**share, mu=3.0, nu=1, dim_lengths={"b": 500})
    draws = pm.draw(rv, random_seed=1)
    assert draws.shape == (500,)
    assert draws.dtype == "int64"
    mean = {CMP: 3.0, ZeroInflatedCMP: 1.5, HurdleCMP: 3.0 / -np.expm1(-3.0)}[distribution]
    assert abs(draws.mean() - mean) < 5 * 2.0 / np.sqrt(500)


@pytest.mark.parametrize(
    ("named", "plain"), [(ZeroInflatedCMP, pbs.ZeroInflatedCMP), (HurdleCMP, pbs.HurdleCMP)]
)
def test_with_zeros(named, plain):
    psi, mu = DataArray([0.3, 0.8], dims="a"), DataArray([1.0, 2.0, 4.0], dims="b")
    value = DataArray([0, 1, 5], dims="b")
    logp = pm.logp(named.dist(psi, mu=mu, nu=0.7), pmd.as_xtensor(value))
    by_position = plain.dist(psi.values[:, None], mu=mu.values, nu=0.7)
    expected = pm.logp(by_position, np.tile(value, (2, 1)))
    found, expected = pytensor.function([], [logp.values, expected], mode="FAST_COMPILE")()
    assert logp.dims == ("a", "b")
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_observed_data_are_checked():
    with pm.Model(coords=COORDS):
        for observed, message in (
            (DataArray([1.0, 2.5, 0.0, 1.0], dims="shop"), "row 1 holds 2.5"),
            (DataArray([1, -2, 0, 1], dims="shop"), "row 1 holds -2"),
            (DataArray([1, 2, 0], dims="shop"), r"shape \(3,\), its dims \('shop',\)"),
            ([1, 2, 0, 1], "must have dims"),
        ):
            with pytest.raises(ValueError, match=message):
                CMP("y", mu=2.0, nu=1.0, observed=observed)
        sold = pmd.Data("sold", np.full((5, 4), 0.5), dims=("day", "shop"))
        with pytest.raises(ValueError, match=r"row \(0, 0\) holds 0.5"):
            HurdleCMP("y", psi=0.5, mu=2.0, nu=1.0, observed=sold)


def test_counts_of_more_than_32_bits(plain):
    with pm.Model(coords={"row": [0, 1]}) as model:
        CMP("y", mu=2e12, nu=1.0, observed=DataArray(np.array([1, 10**14]), dims="row"))
    expected = stats.poisson.logpmf([1, 10**14], 2e12).sum()
    np.testing.assert_allclose(model.compile_logp()({}), expected, rtol=1e-14)


def test_bad_input():
    with pytest.raises(ValueError, match=r"mu must be finite and >= 0, got -1.0"):
        CMP.dist(mu=-1.0, nu=1.0)
    with pytest.raises(ValueError, match=r"nu must be finite and >= 0, got -1.0"):
        CMP.dist(mu=1.0, nu=DataArray([1.0, -1.0], dims="a"))
    with pytest.raises(ValueError, match=r"psi must be finite and between 0 and 1, got 2.0"):
        ZeroInflatedCMP.dist(psi=2, mu=1.0, nu=1.0)
    with pytest.raises(ValueError, match=r"exactly one of mu .* got mu and lam"):
        CMP.dist(mu=1.0, lam=1.0, nu=1.0)
    with pytest.raises(ValueError, match=r"nu must be given"):
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


def test_the_check_reads_models_with_named_dimensions():
    counts = np.array([3, 0, 2, 5, 1, 4])
    with pm.Model(coords={"row": range(6)}) as model:
        mean, nu = pmd.HalfNormal("mean", sigma=5.0), pmd.HalfNormal("nu")
        CMP("y", mu=mean, nu=nu, observed=DataArray(counts, dims="row"), dims="row")
    rng = np.random.default_rng(0)
    draws = {name: (("chain", "draw"), rng.uniform(1.0, 3.0, (1, 60))) for name in ("mean", "nu")}
    checked = pbs.check_normalizer(Dataset(draws), model, progressbar=False)
    assert checked["normalizer"].attrs["verdict"] == "good"
