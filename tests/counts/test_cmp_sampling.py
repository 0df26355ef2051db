"""NUTS on public data: converged chains without divergences, around the known optimum."""

import arviz as az
import pymc as pm
import pytest

import pymc_bayessum as pbs

BIDS = ["leglrest", "rearest", "finrest", "whtknght", "bidprem", "insthold", "size", "regulatn"]
QUIET = {"cores": 1, "random_seed": 1, "progressbar": False, "compute_convergence_checks": False}


def sales():
    frame = pbs.datasets.sales()
    with pm.Model() as model:
        mu = pm.LogNormal("mu", 1.0, 1.0)
        nu = pm.LogNormal("nu", -1.0, 1.0)
        pbs.CMP("sales", mu=mu, nu=nu, observed=frame["sales"].to_numpy())
    # Maximum likelihood in the mean: 3168 rows leave the prior no say.
    return model, {"nu": (0.12814296, 0.0117)}


def freight():
    frame = pbs.datasets.freight()
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 2.0, 2.0)
        slope = pm.Normal("slope", 0.0, 2.0)
        nu = pm.LogNormal("nu", 0.0, 2.0)
        mu = pm.math.exp(intercept + slope * frame["transfers"].to_numpy())
        pbs.CMP("broken", mu=mu, nu=nu, observed=frame["broken"].to_numpy())
    return model, {"intercept": (2.35337960, 0.05597919), "slope": (0.26354199, 0.03353774)}


def takeoverbids():
    frame = pbs.datasets.takeoverbids()
    x = frame[BIDS].to_numpy(dtype=float)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0.5, 1.0)
        slopes = pm.Normal("slopes", 0.0, 0.5, shape=len(BIDS))
        nu = pm.LogNormal("nu", 0.0, 1.0)
        mu = pm.math.exp(intercept + (x * slopes).sum(axis=1))
        pbs.CMP("bids", mu=mu, nu=nu, observed=frame["numbids"].to_numpy())
    return model, {}


@pytest.mark.slow
@pytest.mark.parametrize("build", [sales, freight, takeoverbids], ids=lambda f: f.__name__)
def test_nuts_converges(build):
    model, known = build()
    with model:
        idata = pm.sample(700, tune=700, chains=3, nuts_sampler="nutpie", **QUIET)
    assert int(idata["sample_stats"]["diverging"].sum()) == 0
    summary = az.summary(idata, round_to=None)
    assert (summary["r_hat"] < 1.02).all()
    assert (summary["ess_bulk"] > 400).all()
    for name, (value, error) in known.items():
        draws = idata["posterior"][name]
        # The posterior is skewed by little: its centre lies well within one standard error.
        assert abs(float(draws.median()) - value) < 0.7 * error
        assert 0.8 * error < float(draws.std()) < 1.6 * error


@pytest.mark.slow
@pytest.mark.parametrize("distribution", [pbs.ZeroInflatedCMP, pbs.HurdleCMP])
@pytest.mark.parametrize("sampler", ["nutpie", "numpyro"])
def test_zero_inflation_and_hurdles(distribution, sampler):
    pytest.importorskip(sampler)
    rv = distribution.dist(psi=0.7, mu=4.0, nu=2.0, shape=400)
    y = pm.draw(rv, random_seed=3, mode="FAST_COMPILE")
    with pm.Model():
        psi = pm.Uniform("psi")
        mu = pm.LogNormal("mu", 1.0, 1.0)
        nu = pm.LogNormal("nu", 0.0, 1.0)
        distribution("y", psi=psi, mu=mu, nu=nu, observed=y)
        # One chain: NumPyro warns of more chains than devices.
        idata = pm.sample(300, tune=300, chains=1, nuts_sampler=sampler, **QUIET)
    assert int(idata["sample_stats"]["diverging"].sum()) == 0
    posterior = idata["posterior"]
    for name, truth in (("psi", 0.7), ("mu", 4.0), ("nu", 2.0)):
        assert abs(float(posterior[name].mean()) - truth) < 4 * float(posterior[name].std())
