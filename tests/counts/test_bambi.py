"""The Bambi family, where Bambi is installed."""

import numpy as np
import pytest

import pymc_bayessum as pbs

bmb = pytest.importorskip("bambi")


@pytest.fixture(scope="module")
def freight_model():
    model = bmb.Model("broken ~ transfers", pbs.datasets.freight(), family=pbs.bambi_family())
    model.build()
    return model


def test_log_probability_is_that_of_the_distribution(freight_model):
    backend = freight_model.backend.model
    frame = pbs.datasets.freight()
    assert {rv.name for rv in backend.observed_RVs} == {"broken"}
    point = backend.initial_point()
    values = {"Intercept": 2.3, "transfers": 0.26, "nu_log__": np.log(5.0)}
    point.update({name: np.asarray(values[name]) for name in point})
    logp = backend.compile_logp(vars=backend.observed_RVs)(point)
    design = frame["transfers"].to_numpy()
    # Bambi centres the covariates, so its intercept is the value at their mean.
    mu = np.exp(2.3 + 0.26 * (design - design.mean()))
    import pymc as pm

    direct = pm.logp(pbs.CMP.dist(mu=mu, nu=5.0), frame["broken"].to_numpy()).eval().sum()
    assert logp == pytest.approx(direct, abs=1e-8)


@pytest.mark.slow
def test_fit_predict_and_distributional_nu():
    frame = pbs.datasets.freight()
    formula = bmb.Formula("broken ~ transfers", "nu ~ 1")
    model = bmb.Model(formula, frame, family=pbs.bambi_family())
    idata = model.fit(draws=300, tune=300, chains=2, random_seed=1, progressbar=False)
    assert abs(float(idata["posterior"]["transfers"].mean()) - 0.2635) < 0.1
    model.predict(idata, kind="response")
    predicted = idata["posterior_predictive"]["broken"].mean(("chain", "draw"))
    assert np.corrcoef(predicted, frame["broken"])[0, 1] > 0.9


@pytest.mark.parametrize("name", ["link", "nu_link"])
def test_unknown_links_are_answered(name):
    with pytest.raises(ValueError, match=f"{name} must be"):
        pbs.bambi_family(**{name: "logit"})
