"""The Bambi families, where Bambi is installed."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

import pymc_bayessum as pbs

bmb = pytest.importorskip("bambi")

KINDS = {"cmp": pbs.CMP, "zero_inflated": pbs.ZeroInflatedCMP, "hurdle": pbs.HurdleCMP}


@pytest.fixture(scope="module")
def frame():
    """Counts by group, with an exposure and, as often, stored as floats."""
    rng = np.random.default_rng(1)
    n = 40
    data = pd.DataFrame({"x": 3.0 + rng.normal(size=n), "group": list("abcd") * 10})
    data["log_exposure"] = np.log(rng.uniform(0.5, 2.0, n))
    data["colour"] = ["red", "green", "blue", "red"] * 10
    effect = data["group"].map({"a": -0.5, "b": 0.0, "c": 0.2, "d": 0.5})
    mean = np.exp(0.2 * data["x"] + effect + data["log_exposure"])
    data["y"] = rng.poisson(mean).astype(float)
    # pandas warns of the way in which Bambi asks for columns of text.
    return data.astype({"group": "category", "colour": "category"})


@pytest.fixture(scope="module")
def grouped(frame):
    """A fit with groups, offset and a factor; few short draws: what is asked of them is exact.

    Without Numba, which takes half a minute over a product of matrices.
    """
    formula = "y ~ x + colour + offset(log_exposure) + (x | group)"
    model = bmb.Model(formula, frame, family=pbs.bambi_family())
    quiet = {"random_seed": 1, "progressbar": False, "compute_convergence_checks": False}
    short = {"nuts": {"max_treedepth": 3}, "compile_kwargs": {"mode": "FAST_COMPILE"}}
    idata = model.fit(draws=60, tune=40, chains=1, **short, **quiet)
    return model, idata


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("plain")
def test_log_probability_is_that_of_the_distribution(kind):
    data = pbs.datasets.freight()
    model = bmb.Model("broken ~ transfers", data, family=pbs.bambi_family(kind))
    model.build()
    backend = model.backend.model
    assert {rv.name for rv in backend.observed_RVs} == {"broken"}
    values = {"Intercept": 2.3, "transfers": 0.26, "nu_log__": np.log(5.0), "psi_logodds__": 1.2}
    point = {name: np.asarray(values[name]) for name in backend.initial_point()}
    logp = backend.compile_logp(vars=backend.observed_RVs)(point)
    design = data["transfers"].to_numpy()
    # Bambi centres the covariates, so its intercept is the value at their mean.
    mu = np.exp(2.3 + 0.26 * (design - design.mean()))
    share = {} if kind == "cmp" else {"psi": 1 / (1 + np.exp(-1.2))}
    rv = KINDS[kind].dist(**share, mu=mu, nu=5.0)
    assert logp == pytest.approx(pm.logp(rv, data["broken"].to_numpy()).eval().sum(), abs=1e-8)


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


@pytest.mark.slow
def test_float_counts_groups_and_offset(grouped, frame):
    model, idata = grouped
    assert idata["posterior"]["1|group"].sizes["group__factor_dim"] == 4
    seen = model.backend.model.rvs_to_values[model.backend.model["y"]]
    np.testing.assert_array_equal(seen.data, frame["y"])


@pytest.mark.slow
def test_prediction_for_new_data(grouped, frame):
    """The mean doubles with the exposure, and there is one row for each new one."""
    model, idata = grouped
    new = frame.iloc[:3]
    double = new.assign(log_exposure=new["log_exposure"] + np.log(2.0))
    means = [
        model.predict(idata, data=data, inplace=False)["posterior"]["mu"].values
        for data in (new, double)
    ]
    assert means[0].shape == (1, 60, 3)
    np.testing.assert_allclose(means[1], 2 * means[0], rtol=1e-10)
    response = model.predict(idata, kind="response", data=double, inplace=False)
    assert response["posterior_predictive"]["y"].shape == (1, 60, 3)


@pytest.mark.slow
@pytest.mark.usefixtures("plain")
def test_check_normalizer_takes_a_bambi_model(grouped):
    model, idata = grouped
    checked = pbs.check_normalizer(idata, model, draws=50, progressbar=False)
    assert checked["normalizer"].attrs["verdict"] == "good"


@pytest.mark.slow
@pytest.mark.usefixtures("plain")
def test_draws_of_bambi_are_those_of_its_pymc_model(grouped, frame):
    """Offsets and centred intercepts give back the means that Bambi itself predicts."""
    from pymc_bayessum.diagnostics.bambi_models import as_pymc_draws

    model, idata = grouped
    backend = model.backend.model
    draws = as_pymc_draws(idata["posterior"].to_dataset(), model)
    free = [rv.name for rv in backend.free_RVs]
    assert set(free) <= set(draws.data_vars)
    with backend:
        found = pm.compute_deterministics(draws[free], var_names=["mu"], progressbar=False)
    expected = model.predict(idata, inplace=False)["posterior"]["mu"]
    xr.testing.assert_allclose(found["mu"].drop_vars("__obs__"), expected.drop_vars("__obs__"))


@pytest.mark.parametrize("kind", ["zero_inflated", "hurdle"])
def test_shares_with_a_formula_of_their_own(kind, frame):
    formula = bmb.Formula("y ~ x", "psi ~ x")
    model = bmb.Model(formula, frame, family=pbs.bambi_family(kind))
    model.build()
    backend = model.backend.model
    assert {"psi_Intercept", "psi_x"} <= {rv.name for rv in backend.free_RVs}
    assert np.isfinite(backend.point_logps()["y"])


@pytest.mark.parametrize("name", ["kind", "link", "nu_link", "psi_link"])
def test_unknown_words_are_answered(name):
    with pytest.raises(ValueError, match=f"{name} must be .*, got 'square'"):
        pbs.bambi_family(**{name: "square"})


def test_counts_are_checked(frame):
    model = bmb.Model("y ~ x", frame.assign(y=frame["y"] + 0.5), family=pbs.bambi_family())
    with pytest.raises(ValueError, match=r"observed of y must hold counts .* row 0 holds"):
        model.build()
