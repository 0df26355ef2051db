"""Moments of CMP on arrays, tensors and named dimensions, against sums taken term by term."""

import functools

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from pymc.distributions.moments.means import mean
from scipy.special import gammaln, logsumexp

import pymc_bayessum as pbs
from pymc_bayessum.normalizers.interpreted import PLAIN

FORMS = ["lam", "mu", "mode"]
LAM, NU = np.array([0.4, 1.3, 4.0]), np.array([0.3, 1.0, 2.0])
MOMENTS = {
    "log_z": pbs.cmp_log_z,
    "mu": pbs.cmp_mean,
    "variance": pbs.cmp_variance,
    "lam": pbs.cmp_lam,
    "mode": pbs.cmp_mode,
}


def brute_force(lam, nu):
    """All moments of one distribution, summed."""
    x = np.arange(500.0)
    terms = x * np.log(lam) - nu * gammaln(x + 1)
    log_z = logsumexp(terms)
    p = np.exp(terms - log_z)
    average = p @ x
    variance = p @ (x - average) ** 2
    return {
        "log_z": log_z,
        "mu": average,
        "variance": variance,
        "lam": lam,
        "mode": lam ** (1 / nu),
    }


@pytest.fixture(scope="module")
def exact():
    rows = [brute_force(lam, nu) for lam, nu in zip(LAM, NU, strict=True)]
    return {name: np.array([row[name] for row in rows]) for name in MOMENTS}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", MOMENTS)
def test_on_arrays(name, form, exact):
    found = MOMENTS[name](**{form: exact[form]}, nu=NU)
    np.testing.assert_allclose(found, exact[name], rtol=1e-10)


@functools.cache
def compiled(name, form):
    first, nu = pt.vectors("first", "nu")
    value = MOMENTS[name](**{form: first}, nu=nu)
    gradient = pt.grad(value.sum(), [first, nu], disconnected_inputs="ignore")
    return pytensor.function([first, nu], [value, *gradient], mode=PLAIN)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", MOMENTS)
def test_on_tensors_with_gradients(name, form, exact):
    first, step = exact[form], 1e-6
    value, by_first, by_nu = compiled(name, form)(first, NU)
    np.testing.assert_allclose(value, exact[name], rtol=1e-10)

    def moment(first, nu):
        return MOMENTS[name](**{form: first}, nu=nu)

    numerical = (moment(first + step, NU) - moment(first - step, NU)) / (2 * step)
    np.testing.assert_allclose(by_first, numerical, rtol=1e-6, atol=1e-8)
    numerical = (moment(first, NU + step) - moment(first, NU - step)) / (2 * step)
    np.testing.assert_allclose(by_nu, numerical, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", MOMENTS)
def test_by_the_names_of_dimensions(name):
    mu = xr.DataArray([1.0, 2.0, 5.0], coords={"shop": list("abc")})
    nu = xr.DataArray([0.5, 2.0], coords={"year": [2001, 2002]})
    found = MOMENTS[name](mu=mu, nu=nu)
    assert found.sizes == {"shop": 3, "year": 2}
    expected = MOMENTS[name](mu=mu.values[:, None], nu=nu.values)
    np.testing.assert_array_equal(found.sel(year=2002, shop="b"), expected[1, 1])
    draws = xr.Dataset({"a": mu, "b": 2 * mu})
    assert set(MOMENTS[name](mu=draws, nu=nu).data_vars) == {"a", "b"}
    named = MOMENTS[name](mu=pmd.as_xtensor(mu), nu=pmd.as_xtensor(nu))
    assert named.dims == ("shop", "year")
    np.testing.assert_allclose(named.values.eval(mode=PLAIN), expected, rtol=1e-12)


def test_scalars_and_shapes():
    assert isinstance(pbs.cmp_mean(10.0, 1.2), float)
    np.testing.assert_allclose(pbs.cmp_mean(10.0, 1.2), 6.727397, rtol=1e-6)
    np.testing.assert_allclose(pbs.cmp_variance(10.0, 1.2), 5.679674, rtol=1e-6)
    np.testing.assert_allclose(np.exp(pbs.cmp_log_z(np.log(1.5), 1.2)), 4.01341, rtol=2e-6)
    assert pbs.cmp_variance(LAM[:, None], NU).shape == (3, 3)
    assert pbs.cmp_log_z(np.log(LAM)[:, None], NU).shape == (3, 3)
    assert pbs.cmp_variance(mu=pt.scalar(), nu=pt.scalar()).ndim == 0
    assert pbs.cmp_mean(pt.vector(), 1.0).ndim == 1
    assert pbs.cmp_variance(mu=[pt.scalar(), pt.scalar()], nu=1.0).type.shape == (2,)


def test_where_there_is_no_distribution():
    assert np.isnan(pbs.cmp_mean(1.5, 0.0))
    assert pbs.cmp_log_z(0.5, 0.0) == np.inf
    assert np.isnan(pbs.counts.cmp_lam(mu=5.0, nu=1e300))
    assert np.isclose(pbs.counts.cmp_mode(mu=1e250, nu=1.0), 1e250)


@pytest.mark.parametrize("moment", MOMENTS.values())
@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_numbers_that_no_distribution_has(moment, bad):
    for form in FORMS:
        with pytest.raises(ValueError, match=f"{form} must be finite and >= 0, got {bad}"):
            moment(**{form: [2.0, bad]}, nu=1.0)
    with pytest.raises(ValueError, match=f"nu must be finite and >= 0, got {bad}"):
        moment(mu=xr.DataArray([1.0, 2.0], dims="row"), nu=xr.DataArray(bad))


def test_a_log_rate_is_any_number():
    assert pbs.cmp_log_z(-np.inf, 1.3) == 0.0
    with pytest.raises(ValueError, match="log_lam must be a number, got nan"):
        pbs.cmp_log_z([0.0, np.nan], 1.3)


def test_without_a_rate_all_counts_are_zero():
    for form in FORMS:
        assert pbs.cmp_mean(**{form: 0.0}, nu=1.3) == 0.0
        assert pbs.cmp_variance(**{form: 0.0}, nu=1.3) == 0.0
        assert pbs.cmp_log_z(**{form: 0.0}, nu=1.3) == 0.0


@pytest.mark.parametrize("moment", MOMENTS.values())
def test_exactly_one_parameter_beside_nu(moment):
    for arguments in ({"nu": 1.0}, {"lam": 2.0, "mu": 3.0, "nu": 1.0}, {"mu": 1.0}):
        with pytest.raises(TypeError, match=r"exactly one of .*lam and mu"):
            moment(**arguments)
    with pytest.raises(TypeError, match=r"exactly one of log_lam, lam and mu \(or mode\)"):
        pbs.cmp_log_z(0.5, 1.0, mu=3.0)


def test_mean_of_a_random_variable(exact):
    for form in FORMS:
        rv = pbs.CMP.dist(**{form: exact[form]}, nu=NU, shape=(2, 3))
        found = mean(rv).eval(mode=PLAIN)
        np.testing.assert_allclose(found, np.tile(exact["mu"], (2, 1)), rtol=1e-10)


@pytest.mark.slow
@pytest.mark.usefixtures("plain")
def test_summaries_in_a_model():
    """The posterior of the dispersion index is that of the moments at its draws."""
    with pm.Model():
        mu, nu = pm.Gamma("mu", 2, 1), pm.LogNormal("nu", 0, 0.5)
        pm.Deterministic("index", pbs.cmp_variance(mu=mu, nu=nu) / mu)
        pbs.CMP("y", mu=mu, nu=nu, observed=[1, 3, 2, 2, 0, 1])
        idata = pm.sample(50, tune=50, chains=1, progressbar=False, quiet=True, random_seed=1)
    posterior = idata["posterior"].to_dataset()
    index = pbs.cmp_variance(mu=posterior["mu"], nu=posterior["nu"]) / posterior["mu"]
    xr.testing.assert_allclose(index, posterior["index"].rename(None), rtol=1e-10)
