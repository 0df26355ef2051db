"""Latent counts: against sums over all of them, one by one."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from pytensor.link.c.op import COp
from scipy import stats
from scipy.special import gammaln

import pymc_bayessum as pbs
from pymc_bayessum.normalizers.located import N_EVALUATIONS

N_SITES = 40
TOP = 10_000
# Quick to build: what is asked for once needs no compiled code.
QUICK = {"mode": "FAST_COMPILE"}


def by_listing(log_latent, log_data, top=TOP):
    """Sum over N = 0, ..., top: functions of N, of shape (top + 1, sites)."""
    n = np.arange(top + 1)[:, None]
    return np.logaddexp.reduce(log_latent(n) + log_data(n), axis=0)


def log_binomial(y, p):
    def log_data(n):
        terms = stats.binom.logpmf(y, n[..., None], p)
        return np.where(np.isnan(y), 0.0, terms).sum(axis=-1)

    return log_data


def counts(mean, p, n_visits, rng, n_sites=N_SITES):
    n = rng.poisson(mean, n_sites)
    return rng.binomial(n[:, None], p, (n_sites, n_visits)), n


@pytest.fixture(scope="module")
def n_mixture():
    """The log-likelihood of an N-mixture and its gradient, as a function of y, mean and p."""
    y, mean, p = pt.lmatrix("y"), pt.dscalar("mean"), pt.dscalar("p")
    variable = pbs.LatentCount.dist(
        latent=pm.Poisson.dist(mean), given=lambda n: pm.Binomial.dist(n, p), shape=(N_SITES, 3)
    )
    value = pm.logp(variable, y)
    gradient = pytensor.grad(value.sum(), [mean, p])
    return pytensor.function([y, mean, p], [value, *gradient], **QUICK)


def test_number_of_evaluations_is_bounded():
    assert N_EVALUATIONS <= 128


@pytest.mark.parametrize("mean", [0.1, 1.0, 30.0, 400.0, 5000.0])
@pytest.mark.parametrize("p", [0.01, 0.3, 0.95])
def test_n_mixture_equals_the_listed_sum(n_mixture, mean, p):
    y, _ = counts(mean, p, 3, np.random.default_rng(1))
    y[0] = 0
    y[1] = [0, 1, 0]
    value, by_mean, by_p = n_mixture(y, np.float64(mean), np.float64(p))
    n = np.arange(TOP + 1)[:, None]
    terms = stats.poisson.logpmf(n, mean) + log_binomial(y, p)(n)
    listed = np.logaddexp.reduce(terms, axis=0)
    assert np.allclose(value, listed, rtol=0, atol=1e-8)
    share = np.exp(terms - listed)
    expected = (share * n).sum(axis=0)
    # d/d mean = E[N] / mean - 1, d/d p = sum_t y_t / p - (E[N] - y_t) / (1 - p)
    assert np.isclose(by_mean, (expected / mean - 1.0).sum(), rtol=1e-8, atol=1e-7)
    by_data = (y / p - (expected[:, None] - y) / (1.0 - p)).sum()
    assert np.isclose(by_p, by_data, rtol=1e-8, atol=1e-6)


@pytest.mark.parametrize(
    ("latent", "log_latent"),
    [
        (
            lambda: pm.NegativeBinomial.dist(mu=900.0, alpha=0.3),
            lambda n: stats.nbinom.logpmf(n, 0.3, 0.3 / 900.3),
        ),
        (
            lambda: pm.ZeroInflatedPoisson.dist(psi=0.4, mu=300.0),
            lambda n: np.logaddexp(
                np.where(n == 0, np.log(0.6), -np.inf), np.log(0.4) + stats.poisson.logpmf(n, 300)
            ),
        ),
        (
            lambda: pbs.CMP.dist(lam=2.0, nu=0.2),
            lambda n: n * np.log(2.0) - 0.2 * gammaln(n + 1) - pbs.cmp_log_z(lam=2.0, nu=0.2),
        ),
        (lambda: pm.Geometric.dist(0.01), lambda n: stats.geom.logpmf(n, 0.01)),
    ],
    ids=["negative binomial", "zero-inflated", "CMP", "geometric"],
)
def test_other_counts_equal_the_listed_sum(latent, log_latent):
    y = np.array([[0, 0], [0, 1], [4, 2], [17, 30], [60, 45]])
    variable = pbs.LatentCount.dist(
        latent=latent(), given=lambda n: pm.Binomial.dist(n, 0.1), shape=y.shape
    )
    value = pm.logp(variable, y).eval(**QUICK)
    assert np.allclose(value, by_listing(log_latent, log_binomial(y, 0.1)), rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("given", "log_data", "y"),
    [
        (
            lambda n: pm.Bernoulli.dist(1.0 - 0.9**n),
            lambda y: lambda n: stats.bernoulli.logpmf(y, 1.0 - 0.9 ** n[..., None]).sum(axis=-1),
            np.array([[0, 0, 0], [1, 0, 0], [1, 1, 1]]),
        ),
        (
            lambda n: pm.Poisson.dist(0.25 * n),
            lambda y: lambda n: stats.poisson.logpmf(y, 0.25 * n[..., None]).sum(axis=-1),
            np.array([[0, 0, 0], [3, 2, 0], [9, 12, 11]]),
        ),
        (
            lambda n: pm.Normal.dist(n, 2.0),
            lambda y: lambda n: stats.norm.logpdf(y, n[..., None], 2.0).sum(axis=-1),
            np.array([[0.3, -0.2, 1.0], [30.5, 28.0, 33.1], [8.0, 9.5, 7.0]]),
        ),
        (
            lambda n: pm.BetaBinomial.dist(2.0, 3.0, n),
            lambda y: lambda n: stats.betabinom.logpmf(y, n[..., None], 2.0, 3.0).sum(axis=-1),
            np.array([[0, 0, 0], [3, 2, 0], [9, 12, 11]]),
        ),
    ],
    ids=["Royle-Nichols", "thinned", "measured", "beta-binomial"],
)
def test_other_data_equal_the_listed_sum(given, log_data, y):
    variable = pbs.LatentCount.dist(latent=pm.Poisson.dist(20.0), given=given, shape=y.shape)
    listed = by_listing(lambda n: stats.poisson.logpmf(n, 20.0), log_data(y), top=400)
    assert np.allclose(pm.logp(variable, y).eval(**QUICK), listed, rtol=0, atol=1e-8)


def test_missing_visits_drop_out():
    y = np.array([[2.0, np.nan, 1.0], [np.nan, np.nan, np.nan], [0.0, 0.0, np.nan]])
    listed = by_listing(lambda n: stats.poisson.logpmf(n, 4.0), log_binomial(y, 0.4), top=200)
    assert np.isclose(listed[1], 0.0)
    for observed in (y, np.ma.masked_invalid(y)):
        with pm.Model() as model:
            rate = pm.Exponential("rate", 1.0)
            pbs.LatentCount(
                "y",
                latent=pm.Poisson.dist(rate),
                given=lambda n: pm.Binomial.dist(n, 0.4),
                observed=observed,
            )
        values = model.compile_logp(vars=model["y"], sum=False, **QUICK)(
            {"rate_log__": np.log(4.0)}
        )
        assert np.allclose(values[0], listed, atol=1e-10)


@pytest.fixture(scope="module")
def birds():
    """A model with covariates and names, its data, and the counts behind them."""
    rng = np.random.default_rng(3)
    y, n = counts(12.0, 0.4, 4, rng, n_sites=60)
    coords = {"site": np.arange(60), "visit": list("abcd")}
    with pm.Model(coords=coords) as model:
        rate = pm.Exponential("rate", 0.1)
        p = pm.Beta("p", 2.0, 2.0)
        pbs.LatentCount(
            "y",
            latent=pm.Poisson.dist(rate),
            given=lambda n: pm.Binomial.dist(n, p),
            observed=y,
            dims=("site", "visit"),
        )
        idata = pm.sample(
            300, tune=400, chains=2, cores=1, random_seed=1, progressbar=False, nuts_sampler="pymc"
        )
    return model, idata, y, n


def exact_posterior(y):
    """Means of rate and p by listing counts and a grid of both parameters."""
    rate, p = np.linspace(6.0, 30.0, 97)[:, None], np.linspace(0.1, 0.75, 131)
    n = np.arange(161)
    log_n = stats.poisson.logpmf(n, rate[..., None])  # (rates, 1, n)
    total = stats.expon.logpdf(rate, scale=10.0) + stats.beta.logpdf(p, 2.0, 2.0)
    for row in y:
        log_y = stats.binom.logpmf(row[:, None, None], n, p[:, None]).sum(axis=0)
        total = total + np.logaddexp.reduce(log_n + log_y, axis=-1)
    weight = np.exp(total - total.max())
    weight /= weight.sum()
    return (weight * rate).sum(), (weight * p).sum()


def test_posterior_is_that_of_the_listed_sum(birds):
    _, idata, y, _ = birds
    rate, p = exact_posterior(y)
    posterior = idata["posterior"]
    for name, exact in (("rate", rate), ("p", p)):
        draws = posterior[name]
        assert abs(float(draws.mean()) - exact) < 0.4 * float(draws.std())


@pytest.mark.c_backend
def test_check_calls_it_good_and_no_compiler(birds, monkeypatch):
    """Where there is one it would take two minutes for what the check needs once."""
    model, idata, _, _ = birds

    def refuse(*_):
        raise AssertionError("C code")

    monkeypatch.setattr(COp, "make_c_thunk", refuse)
    checked = pbs.check_normalizer(idata, model, draws=20, progressbar=False)
    attrs = checked["normalizer"].attrs
    assert attrs["verdict"] == "good"
    assert attrs["note"] == ""
    assert float(abs(checked["normalizer"]["log_z_error_max"]).max()) < 1e-8


def test_check_names_counts_that_run_away(birds):
    model, _, _, _ = birds
    # Many birds seldom seen: as good as few birds often seen, as far as these draws go.
    rate = np.geomspace(10.0, 2000.0, 30)
    draws = {"rate": (("chain", "draw"), rate[None]), "p": (("chain", "draw"), 4.8 / rate[None])}
    posterior = xr.Dataset(draws, {"chain": [0], "draw": np.arange(30)})
    checked = pbs.check_normalizer(posterior, model, progressbar=False, compile_kwargs=QUICK)
    attrs = checked["normalizer"].attrs
    assert "the latent count runs away" in attrs["note"]
    assert "the latent count runs away" in attrs["report"]


def test_latent_counts_come_back(birds):
    model, idata, y, n = birds
    few = idata["posterior"].to_dataset().isel(draw=slice(0, None, 15))
    with pytensor.config.change_flags(**QUICK):
        drawn = pbs.LatentCount.draw_latent(few, model, random_seed=2)["y_latent"]
    assert drawn.dims == ("chain", "draw", "site")
    assert (drawn >= y.max(axis=1)).all()
    # Given rate and p the mean of N is known by listing.
    expected = []
    for chain in range(2):
        for draw in range(few.sizes["draw"]):
            at = few.isel(chain=chain, draw=draw)
            k = np.arange(200)[:, None]
            terms = stats.poisson.logpmf(k, float(at["rate"])) + log_binomial(y, float(at["p"]))(k)
            share = np.exp(terms - np.logaddexp.reduce(terms, axis=0))
            expected.append((share * k).sum(axis=0))
    error = drawn.values.reshape(-1, 60).mean() - np.mean(expected)
    assert abs(error) < 0.15
    assert np.corrcoef(drawn.mean(("chain", "draw")), n)[0, 1] > 0.8


def test_wide_counts_are_drawn_right():
    with pm.Model() as model:
        rate = pm.Exponential("rate", 1e-4)
        pbs.LatentCount(
            "y",
            latent=pm.Poisson.dist(rate),
            given=lambda n: pm.Binomial.dist(n, 0.5),
            observed=[[2000]],
        )
    draws = {"rate": (("chain", "draw"), np.full((1, 200), 4000.0))}
    posterior = xr.Dataset(draws, {"chain": [0], "draw": np.arange(200)})
    with pytensor.config.change_flags(**QUICK):
        n = pbs.LatentCount.draw_latent(posterior, model, random_seed=1)["y_latent"].values.ravel()
    # What was not seen is Poisson with mean 2000.
    assert stats.kstest(n - 2000, stats.poisson(2000.0).cdf).pvalue > 0.001
    assert len(np.unique(n)) > 50


def test_draws_follow_the_model():
    variable = pbs.LatentCount.dist(
        latent=pm.Poisson.dist(np.array([3.0, 50.0])),
        given=lambda n: pm.Binomial.dist(n, 0.5),
        shape=(2, 3),
    )
    draws = pm.draw(variable, 3000, random_seed=1)
    assert draws.shape == (3000, 2, 3)
    assert np.allclose(draws.mean(axis=(0, 2)), [1.5, 25.0], rtol=0.05)
    # One count a site: visits go together, cov = p^2 mean.
    assert np.isclose(np.cov(draws[:, 1, 0], draws[:, 1, 1])[0, 1], 12.5, rtol=0.2)
    assert abs(np.cov(draws[:, 0, 0], draws[:, 1, 0])[0, 1]) < 0.5


def test_shape_of_draws_comes_from_the_parameters():
    p = np.full((4, 3), 0.5)
    variable = pbs.LatentCount.dist(
        latent=pm.Poisson.dist(5.0), given=lambda n: pm.Binomial.dist(n, p)
    )
    draws = pm.draw(variable, 2000, random_seed=1)
    assert draws.shape == (2000, 4, 3)
    # Every site has a count of its own.
    assert abs(np.corrcoef(draws[:, 0, 0], draws[:, 1, 0])[0, 1]) < 0.1


@pytest.mark.usefixtures("plain")
def test_predictive_and_loo(birds):
    model, idata, y, _ = birds
    some = idata["posterior"].to_dataset().isel(draw=slice(0, 5))
    tree = xr.DataTree.from_dict({"posterior": some})
    with model:
        predicted = pm.sample_posterior_predictive(tree, random_seed=1, progressbar=False)
        prior = pm.sample_prior_predictive(5, random_seed=1)
        pm.compute_log_likelihood(tree, progressbar=False)
    assert predicted["posterior_predictive"]["y"].dims == ("chain", "draw", "site", "visit")
    assert abs(float(predicted["posterior_predictive"]["y"].mean()) - y.mean()) < 0.5
    assert prior["prior_predictive"]["y"].sizes["site"] == 60
    assert tree["log_likelihood"]["y"].dims == ("chain", "draw", "site")


@pytest.mark.filterwarnings("ignore:Skipping")
@pytest.mark.parametrize("mean", [3.0, [2.0, 5.0]])
def test_jax_takes_mixtures(mean):
    """Whose parts PyMC sizes by the shape of a draw."""
    pytest.importorskip("jax")
    scale = pt.dscalar("scale")
    zero_inflated = pm.ZeroInflatedPoisson.dist(0.7, scale * pt.constant(mean))
    seen = pbs.LatentCount.dist(
        latent=zero_inflated, given=lambda n: pm.Binomial.dist(n, 0.3), shape=(2, 2)
    )
    logp = pm.logp(seen, np.array([[0, 0], [1, 2]])).sum()
    plain, jax = (pytensor.function([scale], logp, mode=m)(1.5) for m in ("FAST_COMPILE", "JAX"))
    assert jax == pytest.approx(float(plain), rel=1e-12)


@pytest.mark.filterwarnings("ignore:Skipping")
def test_jax_agrees(n_mixture):
    y, _ = counts(30.0, 0.3, 3, np.random.default_rng(1))
    mean, p = pt.dscalar("mean"), pt.dscalar("p")
    variable = pbs.LatentCount.dist(
        latent=pm.Poisson.dist(mean), given=lambda n: pm.Binomial.dist(n, p), shape=y.shape
    )
    value = pm.logp(variable, y)
    gradient = pytensor.grad(value.sum(), [mean, p])
    outputs = pytensor.function([mean, p], [value, *gradient], mode="JAX")(30.0, 0.3)
    for here, there in zip(outputs, n_mixture(y, np.float64(30.0), np.float64(0.3)), strict=True):
        assert np.allclose(here, there, rtol=1e-10)


def thinned(n):
    return pm.Binomial.dist(n, 0.5)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"latent": 3.0, "given": thinned}, TypeError, "latent must be the distribution"),
        ({"latent": pm.Normal.dist(), "given": thinned}, TypeError, "latent must be"),
        (
            {"latent": pm.Multinomial.dist(3, [0.5, 0.5]), "given": thinned},
            ValueError,
            "single counts",
        ),
        ({"latent": pm.Poisson.dist(3.0), "given": 0.5}, TypeError, "given must be a function"),
        (
            {"latent": pm.Poisson.dist(3.0), "given": lambda n: 0.5 * n},
            TypeError,
            "given must return a distribution",
        ),
        (
            {"latent": pm.Poisson.dist(3.0), "given": lambda n: pm.Poisson.dist(2.0)},
            ValueError,
            "given must use the count",
        ),
        (
            {
                "latent": pm.Poisson.dist(3.0),
                "given": lambda n: pm.Multinomial.dist(n, [0.5, 0.5]),
            },
            ValueError,
            "single numbers",
        ),
    ],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        pbs.LatentCount.dist(shape=(2, 2), **arguments)


@pytest.mark.parametrize(
    ("observed", "message"),
    [
        ([1, 2, 3], r"shape \(sites, visits\)"),
        (np.zeros((3, 0)), r"shape \(sites, visits\)"),
        ([[1.5, 2.0]], "whole numbers, got 1.5"),
        ([[1, np.inf]], "NaN for no visit, got inf"),
        ([[1, -2]], "counts 0, 1, 2, ..., or NaN for no visit, got -2"),
    ],
)
def test_bad_observations(observed, message):
    with pm.Model(), pytest.raises(ValueError, match=message):
        pbs.LatentCount("y", latent=pm.Poisson.dist(3.0), given=thinned, observed=observed)


@pytest.mark.parametrize(
    ("mean", "p", "name"), [(np.ones(4), 0.5, "latent"), (1.0, np.array([0.1, 0.2]), "given")]
)
def test_parameters_that_do_not_fit_the_data(mean, p, name):
    with pm.Model(), pytest.raises(ValueError, match=f"{name} must fit observed"):
        pbs.LatentCount(
            "y",
            latent=pm.Poisson.dist(mean),
            given=lambda n: pm.Binomial.dist(n, p),
            observed=np.ones((3, 3)),
        )


def test_a_variable_of_the_model_is_no_latent():
    with pm.Model():
        n = pm.Poisson("n", 3.0)
        with pytest.raises(ValueError, match="must not be a variable of the model"):
            pbs.LatentCount("y", latent=n, given=thinned, observed=[[1]])


def test_draw_latent_needs_the_model_and_its_draws(birds):
    model, idata, _, _ = birds
    with pytest.raises(ValueError, match="every free variable"):
        pbs.LatentCount.draw_latent(idata["posterior"].to_dataset()[["p"]], model)
    with pm.Model() as empty, pytest.raises(ValueError, match="observed LatentCount"):
        pbs.LatentCount.draw_latent(idata, empty)


@pytest.mark.parametrize("first", [np.nan, 0.0])
def test_counts_of_more_than_32_bits(first):
    """Thinned Poisson counts are Poisson counts, each visit with its own birds."""
    with pm.Model() as model:
        pbs.LatentCount(
            "y",
            latent=pm.Poisson.dist(np.array([3.0, 1e10])),
            given=lambda n: pm.Binomial.dist(n, 0.5),
            observed=np.array([[first, 0], [np.nan, 5_000_010_000]]),
        )
    seen = model.compile_logp(sum=False, **QUICK)({})[0]
    expected = stats.poisson.logpmf([0, 5_000_010_000], [1.5, 5e9])
    expected[0] = expected[0] if np.isnan(first) else 3.0 * (0.25 - 1.0)
    # Rounding of the exponents, 5e9 * log(5e9).
    np.testing.assert_allclose(seen, expected, rtol=1e-14, atol=1e-15 * 1.1e11)
