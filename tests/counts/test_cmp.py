"""The CMP distribution in PyMC: parametrisations, limits, bad input, draws, tails, models."""

import functools
from typing import ClassVar

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.stats as sp
from pymc.testing import (
    BaseTestDistributionRandom,
    Domain,
    Nat,
    assert_support_point_is_expected,
    check_icdf,
    check_logcdf,
    check_logp,
    check_selfconsistency_discrete_logcdf,
)
from scipy.special import gammaln, logsumexp

import pymc_bayessum as pbs
from pymc_bayessum.counts.cmp_sums.ops import CMPFromMean

FORMS = ["mu", "lam", "mode"]
QUICK = {"mode": "FAST_COMPILE"}


def series(counts, eta, nu, last=20_000):
    """Log masses by the plain series."""
    x = np.arange(last + 1.0)
    return counts * eta - nu * gammaln(counts + 1) - logsumexp(eta * x - nu * gammaln(x + 1))


@functools.cache
def compiled(form):
    """Log mass of one count a row, and its gradient."""
    first, nu = pt.vectors("first", "nu")
    value = pt.vector("value")
    rv = pbs.CMP.dist(**{form: first}, nu=nu)
    logp = pm.logp(rv, value)
    outputs = [logp, *pt.grad(logp.sum(), [first, nu])]
    # A mode is a rate by one more operation, which Numba need not take ten seconds for.
    return pytensor.function(
        [first, nu, value], outputs, mode=QUICK["mode"] if form == "mode" else None
    )


@pytest.mark.parametrize("form", FORMS)
def test_masses_are_those_of_the_series(form):
    lam, nu = np.array([0.3, 0.97, 2.0, 9.0]), np.array([0.7, 0.05, 0.4, 1.6])
    first = {"lam": lam, "mode": lam ** (1 / nu), "mu": pbs.cmp_mean(lam, nu)}[form]
    for count in (0, 1, 4, 30):
        logp = compiled(form)(first, nu, np.full(4, float(count)))[0]
        expected = [series(count, np.log(a), b) for a, b in zip(lam, nu, strict=True)]
        np.testing.assert_allclose(logp, expected, rtol=1e-11)


@pytest.mark.usefixtures("plain")
def test_poisson_and_geometric():
    x = np.arange(40)
    for form in FORMS:
        logp = pm.logp(pbs.CMP.dist(**{form: np.float64(4.2)}, nu=1.0), x).eval()
        np.testing.assert_allclose(logp, sp.poisson.logpmf(x, 4.2), rtol=1e-12, atol=1e-12)
    logp = pm.logp(pbs.CMP.dist(lam=0.8, nu=0.0), x).eval()
    np.testing.assert_allclose(logp, sp.geom.logpmf(x + 1, 0.2), rtol=1e-12)
    logp = pm.logp(pbs.CMP.dist(mu=4.0, nu=0.0), x).eval()
    np.testing.assert_allclose(logp, sp.geom.logpmf(x + 1, 0.2), rtol=1e-10)


@pytest.mark.parametrize("mode", ["NUMBA", "FAST_COMPILE"])
@pytest.mark.parametrize("form", FORMS)
def test_no_rows_have_no_probabilities(form, mode):
    """As after ``pm.set_data`` to an empty table, with one nu for all rows."""
    first, nu, counts = pt.dvector("first"), pt.dscalar("nu"), pt.lvector("counts")
    logp = pm.logp(pbs.CMP.dist(**{form: first}, nu=nu), counts)
    nothing = {first: np.empty(0), nu: 1.3, counts: np.empty(0, dtype=int)}
    assert logp.eval(nothing, mode=mode).shape == (0,)


def test_no_normaliser_no_probability():
    assert pm.logp(pbs.CMP.dist(lam=1.5, nu=0.0), 3).eval() == -np.inf
    assert pm.logp(pbs.CMP.dist(mode=1.5, nu=0.0), 3).eval() == -np.inf
    assert pm.logcdf(pbs.CMP.dist(lam=1.5, nu=0.0), 3).eval() == -np.inf


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"nu": 1.0}, "none of them"),
        ({"mu": 1.0, "lam": 2.0, "nu": 1.0}, "got mu and lam"),
        ({"mu": 1.0, "lam": 2.0, "mode": 1.0, "nu": 1.0}, "got mu and lam and mode"),
        ({"mu": 1.0}, "nu must be given"),
        ({"mu": -0.5, "nu": 1.0}, "mu must be finite and >= 0, got -0.5"),
        ({"lam": -2, "nu": 1}, "lam must be finite and >= 0, got -2.0"),
        ({"mode": [1.0, np.nan], "nu": 1.0}, "mode must be finite and >= 0, got nan"),
        ({"mu": 2.0, "nu": -0.1}, "nu must be finite and >= 0, got -0.1"),
        ({"mu": 2.0, "nu": np.inf}, "nu must be finite"),
        ({"mu": [1.0, 2.0, 3.0], "nu": [1.0, 2.0]}, "broadcast"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        pbs.CMP.dist(**arguments)
    with pm.Model(), pytest.raises(ValueError, match=message):
        pbs.CMP("y", **arguments, observed=[1, 2, 3])


@pytest.mark.usefixtures("plain")
def test_parameters_that_turn_bad():
    nu = pt.scalar("nu")
    logp = pm.logp(pbs.CMP.dist(mu=2.0, nu=nu), 3)
    with pytest.raises(pm.logprob.utils.ParameterValueError, match="mu >= 0, nu >= 0"):
        logp.eval({nu: -1.0})
    with pm.Model() as model:
        nu = pm.Normal("nu")
        slope = pm.Normal("slope")
        pbs.CMP("y", mu=pm.math.exp(slope), nu=nu, observed=[3])
    logp = model.compile_logp(sum=False)
    assert logp({"nu": -1.0, "slope": 0.0})[-1] == -np.inf
    assert logp({"nu": 1.0, "slope": 34.0})[-1] == pytest.approx(3 * 34 - np.exp(34.0), rel=1e-12)


@pytest.mark.usefixtures("plain")
def test_observations_that_are_no_counts():
    value = pt.vector("value")
    logp = pm.logp(pbs.CMP.dist(mu=2.0, nu=0.7), value)
    result = logp.eval({value: [-1.0, 2.5, np.nan, np.inf, -np.inf, 3.0]})
    assert np.all(result[:5] == -np.inf)
    assert np.isfinite(result[5])


@pytest.mark.parametrize("form", FORMS)
def test_never_nan_never_plus_infinity(form):
    """Over the plane and far beyond it: 10 000 rows with an answer, 10 000 anywhere."""
    rng = np.random.default_rng(8)
    n = 10_000
    nu = np.exp(rng.uniform(np.log(0.01), np.log(20), n))
    log_mu = rng.uniform(np.log(0.01), np.log(1e5), n)
    eta = CMPFromMean().evaluate(log_mu, nu)[0]
    first = np.exp({"mu": log_mu, "lam": eta, "mode": eta / nu}[form])
    first[~(first > 0)] = 1e-300
    count = np.floor(np.exp(log_mu) * rng.uniform(0, 3, n))
    logp, *gradient = compiled(form)(first, nu, count)
    within = (first > 1e-290) & (first < 1e290)  # the rate itself overflows at large means
    assert np.all(np.isfinite(logp[within]))
    assert np.all(logp <= 0)
    assert np.all(np.isfinite(gradient))

    # From where on a count divided by the parameter, a derivative, is still a double.
    wild = np.exp(rng.uniform(-640, 700, n))
    wild_nu = np.where(rng.random(n) < 0.1, 0.0, np.exp(rng.uniform(-700, 700, n)))
    count = np.floor(np.exp(rng.uniform(0, 700, n))) * (rng.random(n) < 0.8)
    logp, *gradient = compiled(form)(wild, wild_nu, count)
    assert not np.any(np.isnan(logp))
    assert np.all(logp <= 1e-12)
    assert np.all(np.isfinite(gradient) | (logp == -np.inf))


@pytest.mark.usefixtures("plain")
def test_masses_sum_to_one():
    rng = np.random.default_rng(9)
    x = np.arange(60_000)
    first, nu = pt.scalars("first", "nu")
    for form in FORMS:
        total = pt.sum(pt.exp(pm.logp(pbs.CMP.dist(**{form: first}, nu=nu), x)))
        function = pytensor.function([first, nu], total)
        for _ in range(30):
            dispersion = np.exp(rng.uniform(np.log(0.01), np.log(20)))
            mu = np.exp(rng.uniform(np.log(0.01), np.log(3000)))
            eta = CMPFromMean().evaluate(np.log(mu), dispersion)[0]
            value = {"mu": mu, "lam": np.exp(eta), "mode": np.exp(eta / dispersion)}[form]
            if 0 < value < np.inf:
                assert abs(function(value, dispersion) - 1) < 1e-9


Rates = Domain([0.0, 0.05, 0.6, 0.95, 3.0, np.inf])
Dispersions = Domain([0.0, 0.4, 0.7, 1.0, 3.0, np.inf])


def reference_logp(value, lam, nu):
    return series(value, np.log(lam), nu, 3000)


def reference_logcdf(value, lam, nu):
    return logsumexp(series(np.arange(value + 1.0), np.log(lam), nu, 3000))


def reference_icdf(q, lam, nu):
    masses = np.exp(series(np.arange(3000.0), np.log(lam), nu, 3000))
    return np.searchsorted(np.cumsum(masses), q * (1 - 1e-13))


@pytest.mark.usefixtures("plain")
def test_pymc_checks():
    domains = {"lam": Rates, "nu": Dispersions}
    check_logp(pbs.CMP, Nat, domains, reference_logp, n_samples=40)
    check_logcdf(pbs.CMP, Nat, domains, reference_logcdf, n_samples=40)
    check_selfconsistency_discrete_logcdf(pbs.CMP, Nat, domains, n_samples=20)
    check_icdf(pbs.CMP, domains, reference_icdf, n_samples=40)


@pytest.mark.usefixtures("plain")
class TestDraws(BaseTestDistributionRandom):
    pymc_dist = pbs.CMP
    pymc_dist_params: ClassVar = {"mu": 2.5, "nu": 0.6}
    expected_rv_op_params: ClassVar = {"mu": 2.5, "nu": 0.6}
    checks_to_run: ClassVar = ["check_pymc_params_match_rv_op", "check_rv_size"]


@pytest.mark.parametrize("form", FORMS)
def test_draws_follow_the_masses(form):
    rv = pbs.CMP.dist(**{form: np.array([0.4, 1.8])}, nu=0.5)
    draws = pm.draw(rv, draws=40_000, random_seed=5)
    x = np.arange(30)
    masses = np.exp(pm.logp(rv, x[:, None]).eval())
    for i in range(2):
        counts = np.bincount(draws[:, i], minlength=30)[:30]
        kept = masses[:, i] * len(draws) > 5
        statistic = np.sum(
            (counts - masses[:, i] * len(draws))[kept] ** 2 / (masses[kept, i] * len(draws))
        )
        assert sp.chi2.sf(statistic, kept.sum() - 1) > 1e-4


def test_draws_in_jax():
    pytest.importorskip("jax")
    rv = pbs.CMP.dist(mu=3.0, nu=0.7, size=(4000,))
    with pytest.warns(UserWarning, match="SharedVariables"):
        draws = pytensor.function([], rv, mode="JAX")()
    variance = float(pbs.cmp_variance(np.exp(_rate(3.0, 0.7)), 0.7))
    assert abs(draws.mean() - 3.0) < 4 * np.sqrt(variance / 4000)
    assert draws.dtype == "int64"


def _rate(mu, nu):
    return float(CMPFromMean().evaluate(np.log(mu), nu)[0])


@pytest.mark.usefixtures("plain")
def test_truncated_and_censored():
    counts = np.arange(1, 9)
    base = pbs.CMP.dist(mu=3.0, nu=0.6)
    masses = np.exp(series(np.arange(200.0), _rate(3.0, 0.6), 0.6))
    truncated = pm.Truncated.dist(base, lower=1, upper=8)
    expected = np.log(masses[1:9] / masses[1:9].sum())
    np.testing.assert_allclose(pm.logp(truncated, counts).eval(), expected, rtol=1e-11)
    censored = pm.Censored.dist(base, lower=1, upper=6)
    expected = np.log([masses[:2].sum(), masses[3], masses[6:].sum(), 1e-300])
    logp = pm.logp(censored, [1, 3, 6, 7]).eval()
    np.testing.assert_allclose(logp[:3], expected[:3], rtol=1e-11)
    assert logp[3] == -np.inf
    with pm.Model() as model:
        mu, nu = pm.HalfNormal("mu", 5.0), pm.HalfNormal("nu")
        pm.Truncated("t", pbs.CMP.dist(mu=mu, nu=nu), lower=1, upper=8, observed=[1, 4, 8])
        pm.Censored("c", pbs.CMP.dist(mu=mu, nu=nu), lower=1, upper=6, observed=[1, 3, 6])
    both = model.compile_fn([model.logp(), model.dlogp()])
    at = {"mu_log__": 1.1, "nu_log__": -0.4}
    step = 1e-5
    around = [[both({**at, name: at[name] + s})[0] for s in (step, -step)] for name in at]
    numerical = [(above - below) / (2 * step) for above, below in around]
    np.testing.assert_allclose(both(at)[1], numerical, rtol=1e-7)
    draws = pm.draw(pm.Truncated.dist(base, lower=2, upper=4), 200, random_seed=1)
    assert set(np.unique(draws)) == {2, 3, 4}


@pytest.mark.usefixtures("plain")
def test_support_point():
    for arguments, size, expected in (
        ({"mu": 3.7, "nu": 0.5}, None, 3),
        ({"mode": 4.2, "nu": 2.0}, None, 4),
        ({"lam": 9.0, "nu": 2.0}, (2, 3), np.full((2, 3), 3)),
        ({"lam": 0.9, "nu": 0.0}, None, 0),
        ({"mu": [0.2, 5.0], "nu": 1.0}, (4, 2), np.tile([0, 5], (4, 1))),
    ):
        with pm.Model() as model:
            pbs.CMP("x", **arguments, size=size)
        assert_support_point_is_expected(model, expected)


@pytest.fixture(scope="module")
def regression():
    rng = np.random.default_rng(11)
    x = rng.normal(size=60)
    y = rng.poisson(np.exp(1.0 + 0.4 * x))
    coords = {"obs": np.arange(60), "term": ["one", "x"]}
    with pm.Model(coords=coords) as model:
        data = pm.Data("data", np.column_stack([np.ones(60), x]), dims=("obs", "term"))
        beta = pm.Normal("beta", dims="term")
        nu = pm.HalfNormal("nu", 2.0)
        pbs.CMP("y", mu=pm.math.exp((data * beta).sum(axis=1)), nu=nu, observed=y, dims="obs")
        idata = pm.sample(
            300, tune=400, chains=2, cores=1, progressbar=False, random_seed=3, quiet=True
        )
    return model, idata


@pytest.mark.slow
def test_a_regression_from_end_to_end(regression):
    model, idata = regression
    with model:
        predictive = pm.sample_posterior_predictive(
            idata, random_seed=1, progressbar=False, var_names=["y"]
        )
        prior = pm.sample_prior_predictive(20, random_seed=1, compile_kwargs=QUICK)
        with_likelihood = pm.compute_log_likelihood(idata, progressbar=False)
    assert predictive["posterior_predictive"]["y"].dims == ("chain", "draw", "obs")
    assert prior["prior_predictive"]["y"].shape == (1, 20, 60)
    point = {name: idata["posterior"][name][0, 0].values for name in ("beta", "nu")}
    mu = np.exp(model["data"].get_value() @ point["beta"])
    y = model.rvs_to_values[model["y"]].eval()
    expected = [series(c, _rate(m, point["nu"]), point["nu"]) for c, m in zip(y, mu, strict=True)]
    np.testing.assert_allclose(with_likelihood["log_likelihood"]["y"][0, 0], expected, rtol=1e-9)
    assert np.isfinite(az.loo(idata).elpd)
    with model:
        pm.set_data({"data": np.ones((5, 2))}, coords={"obs": np.arange(5)})
        new = pm.sample_posterior_predictive(
            idata, random_seed=1, progressbar=False, predictions=True, compile_kwargs=QUICK
        )
    assert new["predictions"]["y"].shape[-1] == 5


@pytest.mark.usefixtures("plain")
def test_minibatch():
    y = np.random.default_rng(0).poisson(4.0, 500).astype(float)
    batch = pm.Minibatch(y, batch_size=50)
    with pm.Model() as model:
        mu, nu = pm.HalfNormal("mu", 5.0), pm.HalfNormal("nu")
        pbs.CMP("y", mu=mu, nu=nu, observed=batch, total_size=500)
        approximation = pm.fit(20, progressbar=False, random_seed=1, compile_kwargs=QUICK)
    assert np.all(np.isfinite(approximation.hist))
    assert model.point_logps()["y"] < 0


@pytest.mark.usefixtures("plain")
def test_rules_as_normalisers():
    """The ten-node rule on a Poisson base stays at hand, with the error it has."""
    from pymc_bayessum import kernels

    rule = pbs.poisson_rule(4.0, nodes=np.arange(60))
    x = np.arange(15)
    for form, first in (("lam", 3.0), ("mode", 3.0), ("mu", 3.0)):
        exact = pm.logp(pbs.CMP.dist(**{form: first}, nu=1.2), x).eval()
        ours = pm.logp(pbs.CMP.dist(**{form: first}, nu=1.2, normalizer=rule), x).eval()
        np.testing.assert_allclose(ours, exact, rtol=1e-9)
    ten = pbs.poisson_rule(3.0, nodes=np.arange(10))
    log_z = ten.log_sum(ten.nodes * np.log(2.0) - 0.5 * gammaln(ten.nodes + 1))
    logp = pm.logp(pbs.CMP.dist(lam=2.0, nu=0.5, normalizer=ten), 0).eval()
    np.testing.assert_allclose(logp, -log_z, rtol=1e-12)
    with pytest.raises(TypeError, match="normalizer must be None or a Rule"):
        pbs.CMP.dist(lam=2.0, nu=0.5, normalizer="exact")
    spins = pbs.bayes_sum(
        kernels.ExpHamming(0.5), pbs.measures.UniformCategorical(2, 2), np.array([[0, 0], [1, 1]])
    )
    with pytest.raises(ValueError, match="rule on the naturals"):
        pbs.CMP.dist(lam=2.0, nu=0.5, normalizer=spins)


def test_printing_and_random_variable_properties():
    rv = pbs.CMP.dist(mu=2.0, nu=1.0)
    assert str(rv.owner.op) == "CMP_rv{mu}"
    assert rv.dtype == "int64"
    with pm.Model() as model:
        pbs.CMP("y", mu=2.0, nu=1.0)
    assert "CMP" in model.str_repr()


@pytest.mark.parametrize("mode", ["NUMBA", "JAX"])
def test_large_nu_is_two_neighbouring_counts(mode):
    """Between k and k + 1 with the mean in between, as far as double precision goes."""
    if mode == "JAX":
        pytest.importorskip("jax")
    mu, nu = np.meshgrid([0.1, 0.5, 0.9, 2.5, 7.3], [300.0, 3000.0, 1e4, 1e6])
    x = np.floor(mu)[..., None] + [-1, 0, 1, 2]
    rv = pbs.CMP.dist(mu=mu[..., None], nu=nu[..., None])
    masses = np.exp(pytensor.function([], pm.logp(rv, x), mode=mode)())
    above = mu - np.floor(mu)
    expected = np.stack([0 * mu, 1 - above, above, 0 * mu], axis=-1)
    np.testing.assert_allclose(masses, expected, atol=2e-6)  # three counts at nu = 300
    if mode == "NUMBA":
        draws = pm.draw(pbs.CMP.dist(mu=mu, nu=nu), 2000, random_seed=1)
        assert np.all((draws == np.floor(mu)) | (draws == np.floor(mu) + 1))
        np.testing.assert_allclose(draws.mean(axis=0), mu, atol=5 * 0.5 / np.sqrt(2000))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.usefixtures("plain")
def test_a_rate_of_zero_gives_zeros(form):
    """As with pm.Poisson: rows without exposure."""
    first = pt.vector("first")
    rv = pbs.CMP.dist(**{form: first}, nu=1.3)
    outputs = [pm.logp(rv, x) for x in (0, 1)]
    outputs += [pm.logcdf(rv, 0), pm.icdf(rv, 0.5), rv]
    function = pytensor.function([first], outputs)
    at_zero, at_one, logcdf, median, draws = function([0.0] * 4)
    np.testing.assert_array_equal(at_zero, np.zeros(4))
    np.testing.assert_array_equal(at_one, np.full(4, -np.inf))
    np.testing.assert_array_equal([logcdf, median, draws], np.zeros((3, 4)))
    at_zero, at_one, logcdf, median, draws = function([1e-300] * 4)
    np.testing.assert_allclose(at_zero, np.zeros(4), atol=1e-299)
    np.testing.assert_allclose(at_one, np.log(1e-300) * (1.3 if form == "mode" else 1.0))
    np.testing.assert_allclose([logcdf, median, draws], np.zeros((3, 4)), atol=1e-299)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("distribution", [pbs.CMP, pbs.ZeroInflatedCMP, pbs.HurdleCMP])
def test_a_constant_rate_of_zero(form, distribution, plain):
    """The row adds log P(0), which does not depend on nu."""
    share = {} if distribution is pbs.CMP else {"psi": 0.8}
    at_zero = np.log(0.2) if distribution is pbs.HurdleCMP else 0.0
    both = []
    for first, y in [([0.0, 3.0], [0, 2]), ([3.0], [2])]:
        with pm.Model() as model:
            nu = pm.LogNormal("nu")
            distribution("y", **share, **{form: np.array(first)}, nu=nu, observed=y)
        point = {"nu_log__": np.array(0.3)}
        both.append(
            (model.compile_logp()(point) - at_zero * (len(y) - 1), model.compile_dlogp()(point))
        )
    np.testing.assert_allclose(both[0][0], both[1][0], rtol=1e-14)
    np.testing.assert_allclose(both[0][1], both[1][1], rtol=1e-14)


@pytest.mark.usefixtures("plain")
def test_a_mode_below_one_with_a_large_nu():
    """The rate is tiny, and its powers are still probabilities."""
    logp = pm.logp(pbs.CMP.dist(mode=0.9, nu=1e4), np.array([0, 1])).eval()
    np.testing.assert_allclose(logp, [0.0, 1e4 * np.log(0.9)], rtol=1e-12, atol=1e-15)


@pytest.mark.c_backend
def test_no_draws_where_there_is_no_distribution():
    with pytest.raises(ValueError, match="CMP draws need"):
        pm.draw(pbs.CMP.dist(lam=1.5, nu=0.0), 3)
    nu = pt.scalar("nu")
    for mode in ("NUMBA", "CVM"):
        function = pytensor.function([nu], pbs.CMP.dist(lam=1.5, nu=nu), mode=mode)
        assert function(1.0) >= 0
        with pytest.raises(ValueError, match="CMP draws need"):
            function(0.0)
