"""CMP, zero-inflated and hurdle CMP where pm.Poisson goes: what PyMC offers, one by one.

Small data and few draws: what is asked is that they take part, and that the numbers are right
where they are known.
"""

import importlib.util

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from pymc.exceptions import ImputationWarning
from scipy.special import gammaln, logsumexp

import pymc_bayessum as pbs
from pymc_bayessum.normalizers import interpreted

# Nothing is compiled: the backends have tests of their own.
PLAIN = {"mode": interpreted.PLAIN}
QUIET = {"random_seed": 1, "progressbar": False, "compute_convergence_checks": False}
Y = np.array([0, 2, 1, 3, 0, 4, 2, 5])
X = np.column_stack([np.ones(8), np.linspace(-1.0, 1.0, 8)])
BETA, NU = np.array([0.4, 0.6]), 0.8
SHARE = 0.7
ALL = [pbs.CMP, pbs.ZeroInflatedCMP, pbs.HurdleCMP]

each = pytest.mark.parametrize("distribution", ALL)


def masses(distribution, log_lam, nu, last=300):
    """Probabilities of the counts 0, 1, ... by the formulas."""
    terms = np.arange(last) * log_lam - nu * gammaln(np.arange(last) + 1.0)
    if distribution is pbs.CMP:
        return np.exp(terms - logsumexp(terms))
    low = int(distribution is pbs.HurdleCMP)
    part = np.where(np.arange(last) < low, 0.0, np.exp(terms - logsumexp(terms[low:])))
    return SHARE * part + (1 - SHARE) * (np.arange(last) == 0)


def of(distribution, **parameters):
    """Add the share that the distributions with zeros of their own need."""
    return parameters if distribution is pbs.CMP else {"psi": SHARE, **parameters}


def expected_logp(distribution, counts, lam, nu=NU):
    rows = np.broadcast_to(lam, np.shape(counts))
    return np.array(
        [np.log(masses(distribution, np.log(r), nu)[c]) for c, r in zip(counts, rows, strict=True)]
    )


def regression(distribution, x=X, y=Y):
    """X @ beta with `pm.Data`, in rate form, for which masses are known without a solver."""
    with pm.Model() as model:
        design = pm.Data("design", x)
        counts = pm.Data("counts", y)
        beta = pm.Normal("beta", shape=2)
        nu = pm.LogNormal("nu", 0.0, 0.5)
        lam = pm.math.exp(design @ beta)
        distribution("y", **of(distribution, lam=lam, nu=nu), observed=counts, shape=lam.shape)
    return model


@pytest.fixture(scope="module")
def posterior():
    """Draws as a sampler would leave them."""
    rng = np.random.default_rng(1)
    return xr.DataTree.from_dict(
        {
            "posterior": xr.Dataset(
                {
                    "beta": (("chain", "draw", "term"), BETA + 0.1 * rng.normal(size=(1, 20, 2))),
                    "nu": (("chain", "draw"), NU * np.exp(0.1 * rng.normal(size=(1, 20)))),
                },
                coords={"chain": [0], "draw": np.arange(20)},
            )
        }
    )


@each
def test_a_design_matrix_in_data(distribution):
    model = regression(distribution)
    point = {"beta": BETA, "nu_log__": np.log(NU)}
    logp = model.compile_logp(vars=model.observed_RVs, sum=False, **PLAIN)(point)[0]
    expected = expected_logp(distribution, Y, np.exp(X @ BETA))
    np.testing.assert_allclose(logp, expected, rtol=1e-10)


@each
@pytest.mark.parametrize("rows", [3, 12])
def test_set_data_to_new_lengths(distribution, rows, posterior):
    with regression(distribution) as model:
        new = np.column_stack([np.ones(rows), np.linspace(-1.0, 1.0, rows)])
        pm.set_data({"design": new, "counts": np.zeros(rows, dtype=int)})
        predicted = pm.sample_posterior_predictive(
            posterior,
            predictions=True,
            var_names=["y"],
            compile_kwargs=PLAIN,
            random_seed=1,
            progressbar=False,
        )
        assert predicted["predictions"]["y"].shape == (1, 20, rows)
        logp = model.compile_logp(vars=model.observed_RVs, sum=False, **PLAIN)
        found = logp({"beta": BETA, "nu_log__": np.log(NU)})[0]
    expected = expected_logp(distribution, np.zeros(rows, dtype=int), np.exp(new @ BETA))
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@each
def test_mixture(distribution):
    weights = np.array([0.3, 0.7])
    parts = [distribution.dist(**of(distribution, lam=lam, nu=NU)) for lam in (0.5, 2.5)]
    mixture = pm.Mixture.dist(weights, parts)
    logp = pm.logp(mixture, Y).eval(**PLAIN)
    both = np.stack([masses(distribution, np.log(lam), NU)[Y] for lam in (0.5, 2.5)])
    np.testing.assert_allclose(logp, np.log(weights @ both), rtol=1e-10)
    many = distribution.dist(**of(distribution, lam=[0.5, 2.5], nu=NU), shape=2)
    logp = pm.logp(pm.Mixture.dist(weights, many), Y).eval(**PLAIN)
    np.testing.assert_allclose(logp, np.log(weights @ both), rtol=1e-10)
    assert pm.draw(mixture, 5, random_seed=1, **PLAIN).dtype == "int64"


@each
def test_do_and_observe(distribution):
    with pm.Model() as free:
        nu = pm.LogNormal("nu")
        distribution("y", **of(distribution, lam=1.5, nu=nu), shape=8)
    observed = pm.observe(free, {"y": Y})
    logp = observed.compile_logp(vars=observed.observed_RVs, sum=False, **PLAIN)
    expected = expected_logp(distribution, Y, 1.5)
    np.testing.assert_allclose(logp({"nu_log__": np.log(NU)})[0], expected, rtol=1e-10)
    fixed = pm.do(observed, {"nu": NU})
    assert not fixed.free_RVs
    logp = fixed.compile_logp(sum=False, **PLAIN)({})[0]
    np.testing.assert_allclose(logp, expected, rtol=1e-10)


@each
def test_latent_counts(distribution):
    """Counts that are thinned before they are seen, sampled by a step for whole numbers."""
    with pm.Model() as model:
        count = distribution("count", **of(distribution, lam=2.5, nu=NU))
        pm.Binomial("seen", n=count, p=0.5, observed=2)
        idata = pm.sample(400, tune=100, chains=1, cores=1, step=pm.Metropolis(), **QUIET)
    logp = model.compile_logp(vars=[model["count"]], **PLAIN)
    expected = expected_logp(distribution, [4], 2.5)[0]
    assert logp({"count": np.array(4)}) == pytest.approx(expected)
    prior = masses(distribution, np.log(2.5), NU)[:60]
    n = np.arange(60)
    weight = prior * n * (n - 1) * 0.5**n
    exact = weight @ n / weight.sum()
    assert abs(float(idata["posterior"]["count"].mean()) - exact) < 0.6


@each
@pytest.mark.parametrize("missing", ["nan", "masked"])
def test_missing_observations(distribution, missing):
    """What is missing is a latent count; its log-probability and that of the rest are right."""
    gone = np.array([False, True, False, False, False, False, True, False])
    observed = np.where(gone, np.nan, Y) if missing == "nan" else np.ma.masked_array(Y, gone)
    lam = np.linspace(0.5, 2.0, 8)
    with pm.Model() as model:
        parameters = of(distribution, lam=lam, nu=pm.LogNormal("nu"))
        with pytest.warns(ImputationWarning):
            distribution("y", **parameters, observed=observed)
    point = {"nu_log__": np.log(NU), "y_unobserved": np.array([1, 2])}
    kept, imputed = model["y_observed"], model["y_unobserved"]
    found = model.compile_logp(vars=[kept, imputed], sum=False, **PLAIN)(point)
    np.testing.assert_allclose(found[0], expected_logp(distribution, Y[~gone], lam[~gone]))
    np.testing.assert_allclose(found[1], expected_logp(distribution, [1, 2], lam[gone]))
    start = model.initial_point(random_seed=1)
    assert np.isfinite(model.compile_logp(**PLAIN)(start))


@pytest.mark.usefixtures("plain")
@each
def test_missing_observations_are_sampled(distribution):
    with pm.Model():
        parameters = of(distribution, lam=1.5, nu=pm.LogNormal("nu", 0.0, 0.3))
        with pytest.warns(ImputationWarning):
            distribution("y", **parameters, observed=[1, np.nan, 2, 0])
        idata = pm.sample(20, tune=20, chains=1, cores=1, **QUIET)
    assert idata["posterior"]["y_unobserved"].shape == (1, 20, 1)
    assert np.all(idata["posterior"]["y_unobserved"] >= 0)


@each
def test_censored(distribution):
    lower, upper = 1, 4
    base = distribution.dist(**of(distribution, lam=1.5, nu=NU))
    logp = pm.logp(pm.Censored.dist(base, lower=lower, upper=upper), [1, 3, 4, 5]).eval(**PLAIN)
    known = masses(distribution, np.log(1.5), NU)
    expected = np.log([known[:2].sum(), known[3], known[4:].sum()])
    np.testing.assert_allclose(logp[:3], expected, rtol=1e-10)
    assert logp[3] == -np.inf


@each
@pytest.mark.usefixtures("plain")
def test_truncated(distribution):
    base = distribution.dist(**of(distribution, lam=1.5, nu=NU))
    truncated = pm.Truncated.dist(base, lower=1, upper=4)
    known = masses(distribution, np.log(1.5), NU)
    logp = pm.logp(truncated, [1, 3, 4, 5]).eval(**PLAIN)
    expected = np.log(known[[1, 3, 4]] / known[1:5].sum())
    np.testing.assert_allclose(logp[:3], expected, rtol=1e-9)
    assert logp[3] == -np.inf
    draws = pm.draw(truncated, 50, random_seed=1)
    assert set(np.unique(draws)) <= {1, 2, 3, 4}


@each
def test_random_intercepts_and_slopes(distribution):
    """With dims, an offset, and the groups' effects correlated with nothing."""
    coords = {"row": np.arange(8), "shop": ["a", "b"], "effect": ["intercept", "slope"]}
    shop, exposure = np.array([0, 1] * 4), np.linspace(0.5, 2.0, 8)
    with pm.Model(coords=coords) as model:
        scale = pm.HalfNormal("scale", dims="effect")
        effects = pm.Normal("effects", 0, scale, dims=("shop", "effect"))
        log_lam = effects[shop, 0] + effects[shop, 1] * X[:, 1] + np.log(exposure)
        parameters = of(distribution, lam=pm.math.exp(log_lam), nu=NU)
        distribution("y", **parameters, observed=Y, dims="row")
    values = np.array([[0.3, 0.5], [-0.2, 0.1]])
    point = {"scale_log__": np.zeros(2), "effects": values}
    logp = model.compile_logp(vars=model.observed_RVs, sum=False, **PLAIN)(point)[0]
    lam = exposure * np.exp(values[shop, 0] + values[shop, 1] * X[:, 1])
    np.testing.assert_allclose(logp, expected_logp(distribution, Y, lam), rtol=1e-10)
    with model:
        prior = pm.sample_prior_predictive(4, random_seed=1, compile_kwargs=PLAIN)
    assert prior["prior_predictive"]["y"].sizes == {"chain": 1, "draw": 4, "row": 8}


@each
def test_graphviz(distribution):
    pytest.importorskip("graphviz")
    assert distribution.__name__ in pm.model_to_graphviz(regression(distribution)).source


def without_matrices(*distributions):
    """The same regression: what Numba makes of a product of matrices takes half a minute."""
    with pm.Model() as model:
        beta, nu = pm.Normal("beta", 0.0, 0.5, shape=2), pm.LogNormal("nu", 0.0, 0.5)
        for distribution in distributions:
            parameters = of(distribution, mu=pm.math.exp((X * beta).sum(axis=1)), nu=nu)
            distribution(distribution.__name__, **parameters, observed=Y)
    return model


@pytest.mark.slow
def test_several_processes():
    with without_matrices(pbs.HurdleCMP):
        options = {"nuts_sampler": "pymc", "mp_ctx": "forkserver"}
        idata = pm.sample(20, tune=20, chains=2, cores=2, **options, **QUIET)
    assert idata["posterior"]["beta"].shape == (2, 20, 2)


@pytest.mark.slow
@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("nutpie", "jax"))), reason="needs nutpie and JAX"
)
def test_nutpie_with_jax():
    with without_matrices(*ALL):
        idata = pm.sample(50, tune=100, chains=1, nuts_sampler="nutpie", backend="jax", **QUIET)
    assert np.all(np.isfinite(idata["posterior"]["beta"]))
    assert float(idata["posterior"]["beta"].std()) > 0


@each
def test_mean_as_pymc_knows_it(distribution):
    from pymc.distributions.moments.means import mean

    rv = distribution.dist(**of(distribution, lam=pt.as_tensor([0.5, 1.5]), nu=NU), shape=(3, 2))
    known = [masses(distribution, np.log(lam), NU) @ np.arange(300) for lam in (0.5, 1.5)]
    np.testing.assert_allclose(mean(rv).eval(**PLAIN), np.tile(known, (3, 1)), rtol=1e-10)
