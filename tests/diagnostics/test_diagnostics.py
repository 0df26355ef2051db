"""Does the check tell the truth? Against posteriors that are known exactly, and known failures."""

import inspect
import warnings

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from pytensor.compile.builders import OpFromGraph

import pymc_bayessum as pbs
from pymc_bayessum import datasets
from pymc_bayessum.diagnostics import CheckedTree
from pymc_bayessum.diagnostics.draws import time_budget_of
from pymc_bayessum.diagnostics.importance import khat_threshold, smooth_weights
from pymc_bayessum.diagnostics.verdict import judge_draws
from pymc_bayessum.normalizers.interpreted import PLAIN

PRIOR_RATE = 1.0
COUNTS = np.random.default_rng(0).geometric(1 - np.exp(-0.3), size=40) - 1
GRID = np.linspace(0.02, 1.5, 20_001)


def log_f(x, rate):
    return -rate * x


def geometric_model(rule, **kwargs):
    """Counts with p(x) ~ exp(-rate x), whose normaliser is known: 1 / (1 - exp(-rate))."""
    with pm.Model() as model:
        rate = pm.Exponential("rate", PRIOR_RATE)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*beyond them the summand is extrapolated")
            pbs.Unnormalized("y", log_f, rate, rule=rule, **{"observed": COUNTS, **kwargs})
    return model


def exact_log_z(rate):
    return -np.log1p(-np.exp(-rate))


def rule_log_z(rule, rate):
    return rule.log_sum(-np.asarray(rate)[..., None] * rule.nodes)


def posterior_on_grid(log_z):
    log_p = -GRID * COUNTS.sum() - len(COUNTS) * log_z - PRIOR_RATE * GRID
    p = np.exp(log_p - log_p.max())
    return p / p.sum()


def draws_of(rule, shape=(2, 200), seed=1):
    """Independent draws of the posterior with the rule's own normaliser, no sampler involved."""
    cumulative = np.cumsum(posterior_on_grid(rule_log_z(rule, GRID)))
    uniform = np.random.default_rng(seed).uniform(size=shape)
    return xr.Dataset({"rate": (("chain", "draw"), np.interp(uniform, cumulative, GRID))})


def check(idata, model, **kwargs):
    return pbs.check_normalizer(idata, model, progressbar=False, **kwargs)


@pytest.fixture(scope="module")
def usable():
    """A rule whose error moves the posterior, but not out of reach of the weights."""
    rule = pbs.geometric_rule(0.4, n=12)
    draws = draws_of(rule, (4, 500))
    return rule, draws, check(draws, geometric_model(rule))


def test_the_group_holds_the_known_errors(usable):
    rule, draws, checked = usable
    group = checked["normalizer"]
    rate = draws["rate"].values
    log_z, sd = rule.log_sum(-rate[..., None] * rule.nodes, return_sd=True)
    np.testing.assert_allclose(group["log_z"].values[..., 0], log_z, rtol=1e-12)
    np.testing.assert_allclose(group["log_z_sd"].values[..., 0], sd, rtol=1e-6)
    np.testing.assert_allclose(group["log_z_reference"].values[..., 0], exact_log_z(rate))
    # Every observation subtracts log Z once.
    error = -len(COUNTS) * (log_z - exact_log_z(rate))
    np.testing.assert_allclose(group["log_likelihood_error"], error, rtol=1e-9)
    assert group["times"].item() == pytest.approx(len(COUNTS))
    assert group["normalizer"].values.tolist() == ["y"]
    assert group["log_z"].dims == ("chain", "draw", "normalizer")
    assert group["log_weight"].sizes == {"chain": 4, "draw": 500}


def test_the_corrected_posterior_is_the_exact_one(usable):
    _, draws, checked = usable
    assert checked["normalizer"].attrs["verdict"] == "corrected"
    exact = posterior_on_grid(exact_log_z(GRID))
    mean = exact @ GRID
    sd = np.sqrt(exact @ GRID**2 - mean**2)
    ess = checked["normalizer"]["ess"].item()
    corrected = pbs.correct(checked, random_seed=3).posterior["rate"]
    assert abs(draws["rate"].mean() - mean) > 0.8 * sd
    assert corrected.mean() == pytest.approx(mean, abs=4 * sd / np.sqrt(ess))
    assert corrected.std() == pytest.approx(sd, rel=4 / np.sqrt(ess))
    assert corrected.sizes == draws["rate"].sizes
    # What the check said may have moved has indeed moved by no more.
    assert (
        abs(draws["rate"].mean() - mean) / draws["rate"].std()
        < checked["normalizer"].attrs["shift"]
    )


def test_enough_nodes_are_good():
    rule = pbs.geometric_rule(0.4, n=300)
    checked = check(draws_of(rule), geometric_model(rule))
    group = checked["normalizer"]
    assert group.attrs["verdict"] == "good"
    assert group["pareto_k"].item() < 0.5
    assert abs(group["log_z_error"]).max() < 1e-6
    assert group.attrs["advice"] == ""
    np.testing.assert_allclose(np.exp(group["log_weight"]).sum(), 1.0)


def test_too_few_nodes_are_not_to_be_trusted_and_not_corrected():
    rule = pbs.geometric_rule(0.4, n=6)
    checked = check(draws_of(rule), geometric_model(rule))
    group = checked["normalizer"]
    assert group.attrs["verdict"] == "not to be trusted"
    assert "more nodes" in group.attrs["advice"]
    assert "last node (5)" in group.attrs["advice"]
    with pytest.raises(ValueError, match=r"cannot be corrected: .* Pareto k .* more nodes"):
        pbs.correct(checked)


def test_a_constant_error_does_no_harm():
    rule = pbs.geometric_rule(0.4, n=80)
    with pm.Model() as model:
        rate = pm.Exponential("rate", PRIOR_RATE)
        # The reference knows nothing of the 3.0, which is the same for every draw.
        log_z = pbs.log_normalizer(lambda x: -rate * x, rule) + 3.0
        pm.Potential("y", -rate * COUNTS.sum() - len(COUNTS) * log_z)
    checked = check(draws_of(rule), model)
    assert checked["normalizer"].attrs["verdict"] == "good"
    assert checked["normalizer"]["times"].item() == pytest.approx(len(COUNTS))


def test_a_heavy_tail_of_nearly_equal_weights_is_no_reason_for_distrust():
    pareto = np.random.default_rng(2).pareto(1 / 0.8, size=400)
    for scale, verdict in ((0.005, "good"), (1.0, "not to be trusted")):
        weights = smooth_weights(np.log1p(scale * pareto))
        assert weights.khat > 0.6
        dims = ("chain", "draw", "normalizer")
        zeros = (dims, np.zeros((1, 400, 1)))
        group = xr.Dataset(
            {
                **dict.fromkeys(["log_z", "reference_sd", "reference_noise", "cut"], zeros),
                "log_weight": (dims[:2], weights.log_weights[None]),
                "times": ("normalizer", [1.0]),
                "reference": ("normalizer", ["exact"]),
            },
            attrs={
                "khat": weights.khat,
                "khat_threshold": khat_threshold(400),
                "ess": weights.ess,
                "shift": weights.shift,
                "draws": 400,
                "doubt": "",
            },
        )
        assert judge_draws(group)[0] == verdict


def test_no_positive_sum_is_reported():
    # A narrow rule with negative weights: at small rates its estimate is negative.
    rule = pbs.bayes_sum(pbs.kernels.IntegratedBrownian(1), pbs.measures.Counting(60), [0, 1, 2])
    assert (rule.weights < 0).any()
    rate = np.linspace(0.01, 3.0, 60)
    with pm.Model() as model:
        value = pm.Exponential("rate", 1.0)
        log_z = pbs.log_normalizer(lambda x: -value * x, rule)
        pm.Potential("y", pt.switch(pt.isfinite(log_z), -value - log_z, -np.inf))
    checked = check(xr.Dataset({"rate": (("chain", "draw"), rate[None])}), model)
    group = checked["normalizer"]
    assert group.attrs["verdict"] == "not to be trusted"
    assert "does not exist at" in group.attrs["reason"]
    assert not np.isnan(group["pareto_k"])


# Failures that must be noticed


@pytest.fixture(scope="module")
def sales():
    return datasets.sales()["sales"].to_numpy()


def sales_model(counts, normalizer):
    with pm.Model() as model:
        lam = pm.HalfNormal("lam", 2.0)
        nu = pm.HalfNormal("nu", 1.0)
        pbs.CMP("sales", lam=lam, nu=nu, observed=counts, normalizer=normalizer)
    return model


@pytest.mark.slow
def test_ten_nodes_on_the_sales_data_are_not_to_be_trusted(sales):
    rule = pbs.poisson_rule(3.0, nodes=np.arange(10))
    with sales_model(sales, rule):
        idata = pm.sample(
            500, tune=500, chains=2, cores=1, progressbar=False, random_seed=1,
            nuts_sampler="nutpie", compute_convergence_checks=False,
        )  # fmt: skip
        checked = pbs.check_normalizer(idata, progressbar=False)
    group = checked["normalizer"]
    assert group.attrs["verdict"] == "not to be trusted"
    assert group["pareto_k"] > group.attrs["khat_threshold"]
    assert "more nodes" in group.attrs["advice"]
    assert "NOT TO BE TRUSTED" in str(checked)
    # At the maximum likelihood the sum beyond the ninth term is known to be missing.
    assert float(group["log_z_error"].mean()) < -0.1


@pytest.mark.slow
def test_the_default_of_cmp_on_the_sales_data_is_good(sales):
    with sales_model(sales, None):
        idata = pm.sample(
            500, tune=500, chains=2, cores=1, progressbar=False, random_seed=1,
            nuts_sampler="nutpie", compute_convergence_checks=False,
        )  # fmt: skip
        checked = pbs.check_normalizer(idata, progressbar=False)
        point = pm.find_MAP(progressbar=False)
        at_mode = pbs.check_normalizer(point, progressbar=False)
    group = checked["normalizer"]
    assert group.attrs["verdict"] == "good"
    assert group["pareto_k"] < 0.5
    assert abs(group["log_z_error_max"]).max() < 1e-9
    assert group["times"].item() == pytest.approx(len(sales))
    assert at_mode["normalizer"].attrs["verdict"] == "good"


@pytest.mark.parametrize(("mean", "nu"), [(0.05, 0.3), (3.0, 0.02), (800.0, 3.0)])
def test_the_default_of_cmp_is_as_exact_as_it_states(mean, nu):
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", mean)
        dispersion = pm.HalfNormal("dispersion", nu)
        mu = scale * np.linspace(0.8, 1.2, 40)
        pbs.CMP("y", mu=mu, nu=dispersion, observed=rng.poisson(mean, 40))
    values = np.exp(rng.normal(np.log([mean, nu]), 0.02, size=(1, 30, 2)))
    draws = xr.Dataset(
        {
            name: (("chain", "draw"), values[..., i])
            for i, name in enumerate(["scale", "dispersion"])
        }
    )
    group = check(draws, model)["normalizer"]
    assert group.attrs["verdict"] == "good"
    assert (abs(group["log_z_error_max"]) <= 5 * group["log_z_sd"]).all()


def test_an_anchor_far_from_the_posterior_is_not_to_be_trusted():
    edges = pbs.graphs.grid(4, 4)
    rng = np.random.default_rng(5)
    rows = pm.draw(pbs.Ising.dist(h=0.1, J=0.4, edges=edges, shape=(200, 16)), random_seed=2)
    far = pbs.anchored_rule(0.0, -0.3, edges, ising=True, n=500, rng=1)
    near = pbs.anchored_rule(0.1, 0.4, edges, ising=True, n=20_000, rng=1)
    draws = xr.Dataset(
        {
            "h": (("chain", "draw"), rng.normal(0.1, 0.01, size=(2, 100))),
            "J": (("chain", "draw"), rng.normal(0.4, 0.01, size=(2, 100))),
        }
    )
    verdicts = {}
    for name, rule in {"far": far, "near": near, "exact": "exact"}.items():
        with pm.Model() as model:
            h, J = pm.Normal("h"), pm.Normal("J")
            pbs.Ising("y", h=h, J=J, edges=edges, observed=rows, normalizer=rule)
        group = check(draws, model)["normalizer"]
        verdicts[name] = group.attrs["verdict"]
        if name == "far":
            assert "another anchor" in group.attrs["advice"]
    assert verdicts == {"far": "not to be trusted", "near": "good", "exact": "good"}


def test_a_summand_given_as_a_tensor_is_judged_by_its_own_word():
    for n, verdict in ((80, "good"), (12, "not to be trusted")):
        rule = pbs.geometric_rule(0.4, n=n)
        with pm.Model() as model:
            rate = pm.Exponential("rate", PRIOR_RATE)
            log_z = pbs.log_normalizer(-rate * rule.nodes, rule)
            pm.Potential("y", -rate * COUNTS.sum() - len(COUNTS) * log_z)
        group = check(draws_of(rule), model)["normalizer"]
        assert group["reference"].item() == "none"
        if group.attrs["verdict"] != "good":
            assert "callable" in group.attrs["advice"]
        assert group.attrs["verdict"] == verdict


# Whatever the draws come from


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["nutpie", "pymc", "numpyro"])
def test_after_every_sampler(sampler):
    if sampler == "numpyro":
        pytest.importorskip("numpyro")
    with geometric_model(pbs.geometric_rule(0.4, n=80)):
        idata = pm.sample(
            50, tune=100, chains=1, cores=1, progressbar=False, random_seed=1,
            nuts_sampler=sampler, compute_convergence_checks=False,
        )  # fmt: skip
        checked = pbs.check_normalizer(idata, progressbar=False)
    group = checked["normalizer"]
    assert group.attrs["verdict"] == "good"
    assert group["pareto_k"] < 0.5
    assert group.attrs["draws"] == 50
    assert "normalizer" in idata.children


@pytest.fixture(scope="module")
def freight():
    """The mean form with dims: broken ampules by transfers."""
    frame = datasets.freight()
    with pm.Model(coords={"shipment": np.arange(10), "term": ["level", "slope"]}) as model:
        beta = pm.Normal("beta", [2.3, 0.3], 1.0, dims="term")
        nu = pm.LogNormal("nu", 1.0, 1.0)
        mu = pm.math.exp(beta[0] + beta[1] * frame["transfers"].to_numpy())
        pbs.CMP("broken", mu=mu, nu=nu, observed=frame["broken"].to_numpy(), dims="shipment")
    return model


@pytest.mark.usefixtures("plain")
def test_after_find_map(freight):
    with freight:
        point = pm.find_MAP(progressbar=False)
        checked = pbs.check_normalizer(point, progressbar=False)
    assert checked["normalizer"].attrs["verdict"] == "good"
    assert checked["posterior"]["beta"].dims == ("chain", "draw", "term")
    assert checked["posterior"]["term"].values.tolist() == ["level", "slope"]
    assert "stopped short" not in str(checked)


@pytest.mark.usefixtures("plain")
@pytest.mark.skipif(
    "return_inferencedata" not in inspect.signature(pm.find_MAP).parameters,
    reason="before PyMC 6.4 find_MAP returned a point only",
)
def test_after_find_map_as_a_tree(freight):
    with freight:
        tree = pm.find_MAP(progressbar=False, jitter=False, return_inferencedata=True)
        report = str(check(tree, freight))
    assert "the mode is 0.001 posterior sds from that of the reference" in report
    assert "stopped short" not in report


@pytest.mark.parametrize("as_tree", [False, True])
@pytest.mark.parametrize(
    ("beta", "nu", "told"),
    [
        ([2.3, 0.3], 3.0, "posterior sds from the mode: the search stopped short"),
        ([3.0, 0.1], 2.0, "not that of a mode; perhaps the search stopped short"),
    ],
)
def test_a_search_that_stopped_short_is_told(freight, beta, nu, told, as_tree):
    end = {"beta": np.array(beta), "nu": np.array(nu)}
    if as_tree:
        dims = {"beta": ("chain", "draw", "term"), "nu": ("chain", "draw")}
        draw = xr.Dataset({name: (dims[name], x[None, None]) for name, x in end.items()})
        end = xr.DataTree.from_dict({"posterior": draw, "optimizer_result": xr.Dataset()})
    report = str(check(end, freight))
    assert told in report
    assert "more spread" not in report


@pytest.mark.parametrize(("n", "verdict"), [(12, "not to be trusted"), (40, "good")])
def test_a_mode_that_has_moved_is_noticed(n, verdict):
    rule = pbs.geometric_rule(0.4, n=n)
    approximate = np.log(posterior_on_grid(rule_log_z(rule, GRID)))
    mode = GRID[np.argmax(approximate)]
    exact = GRID[np.argmax(posterior_on_grid(exact_log_z(GRID)))]
    # The sd of log rate at the mode, by the curvature of the log posterior.
    curvature = np.gradient(np.gradient(approximate, np.log(GRID)), np.log(GRID))
    sd = 1 / np.sqrt(-curvature[np.searchsorted(GRID, mode)])
    checked = check({"rate": mode}, geometric_model(rule))
    group = checked["normalizer"]
    moved = (np.log(exact) - np.log(mode)) / sd
    assert group.attrs["shift"] == pytest.approx(moved, rel=0.2, abs=0.01)
    assert group.attrs["verdict"] == verdict
    assert "posterior sds from that of the reference" in str(checked)


@pytest.mark.usefixtures("plain")
def test_after_advi():
    rule = pbs.geometric_rule(0.4, n=80)
    with geometric_model(rule):
        approximation = pm.fit(300, progressbar=False, random_seed=1)
        draws = approximation.sample(200, random_seed=1)
        checked = pbs.check_normalizer(draws, progressbar=False)
    assert checked["normalizer"].attrs["verdict"] == "good"
    assert checked["normalizer"].attrs["draws"] == 200


def test_from_a_file(tmp_path, usable):
    rule, draws, _ = usable
    xr.DataTree.from_dict({"posterior": draws}).to_netcdf(tmp_path / "draws.nc")
    with xr.open_datatree(tmp_path / "draws.nc") as reloaded:
        again = check(reloaded, geometric_model(rule), draws=600)
        assert again["normalizer"].attrs["verdict"] == "corrected"
        again.to_netcdf(tmp_path / "checked.nc")
    with xr.open_datatree(tmp_path / "checked.nc") as stored:
        assert stored["normalizer"].attrs["report"] == again["normalizer"].attrs["report"]
        assert "rate" in pbs.correct(stored).posterior


def test_several_normalisers_each_by_its_name():
    good, bad = pbs.geometric_rule(0.4, n=300), pbs.geometric_rule(0.4, n=12)
    with pm.Model() as model:
        rate = pm.Exponential("rate", PRIOR_RATE)
        scale = pm.LogNormal("scale", 0.0, 0.1)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*beyond them the summand is extrapolated")
            pbs.Unnormalized("first", log_f, rate, rule=good, observed=COUNTS[:10])
            pbs.Unnormalized("second", log_f, rate * scale, rule=bad, observed=COUNTS[10:])
    rng = np.random.default_rng(4)
    draws = draws_of(bad).assign(
        scale=(("chain", "draw"), np.exp(rng.normal(0.0, 0.1, size=(2, 200))))
    )
    group = check(draws, model)["normalizer"]
    assert group["normalizer"].values.tolist() == ["first", "second"]
    np.testing.assert_allclose(group["times"], [10, 30])
    alone = group["log_likelihood_error_alone"]
    np.testing.assert_allclose(alone.sum("normalizer"), group["log_likelihood_error"], atol=1e-9)
    assert abs(alone.sel(normalizer="first")).max() < 1e-5
    assert group.attrs["advice"].startswith("second: more nodes")


def test_missing_observations_count_too():
    rule = pbs.geometric_rule(0.4, n=12)
    counts = np.ma.masked_array(COUNTS, np.arange(len(COUNTS)) % 4 == 0)
    n_missing = int(counts.mask.sum())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Imputation|.*imput|.*missing")
        model = geometric_model(rule, observed=counts)
    imputed = np.random.default_rng(2).geometric(0.3, size=(2, 200, n_missing)) - 1
    draws = draws_of(rule).assign(y_unobserved=(("chain", "draw", "missing"), imputed))
    group = check(draws, model)["normalizer"]
    rate = draws["rate"].values
    error = -len(COUNTS) * (rule_log_z(rule, rate) - exact_log_z(rate))
    np.testing.assert_allclose(group["log_likelihood_error"], error, rtol=1e-9)
    # The rate is one number, so both parts of the data share one log Z.
    assert group["times"].item() == pytest.approx(len(COUNTS))


def test_mixtures_use_log_z_in_their_own_way():
    psi, nu = 0.7, 0.8
    counts = np.array([0, 0, 3, 1])
    rule = pbs.poisson_rule(2.0, n=8)
    with pm.Model() as model:
        lam = pm.Exponential("lam", 1.0)
        pbs.ZeroInflatedCMP("y", psi=psi, lam=lam, nu=nu, normalizer=rule, observed=counts)
    lams = np.array([0.5, 1.5, 2.5])
    group = check(xr.Dataset({"lam": (("chain", "draw"), lams[None])}), model)["normalizer"]

    def log_likelihood(log_z, lam):
        zero = np.log((1 - psi) + psi * np.exp(-log_z))
        log_factorials = np.log([6.0, 1.0])
        rest = np.log(psi) + np.array([3, 1]) * np.log(lam) - nu * log_factorials - log_z
        return 2 * zero + rest.sum()

    expected = [
        log_likelihood(float(z), lam) - log_likelihood(float(r), lam)
        for z, r, lam in zip(
            group["log_z"].values[0, :, 0],
            group["log_z_reference"].values[0, :, 0],
            lams,
            strict=True,
        )
    ]
    np.testing.assert_allclose(group["log_likelihood_error"].values[0], expected, rtol=1e-8)


def test_equal_normalisers_are_one_and_hidden_ones_are_found():
    rate = pt.dscalar("rate")
    rule = pbs.geometric_rule(0.4, n=30)
    inner = -rate * 2.0 - pbs.log_normalizer(lambda x: -rate * x, rule)
    hidden = OpFromGraph([rate], [inner])
    with pm.Model() as model:
        rate = pm.Exponential("rate", PRIOR_RATE)
        pm.Potential("a", hidden(rate) + hidden(rate))
    draws = draws_of(rule, (1, 60))
    group = check(draws, model)["normalizer"]
    assert group["normalizer"].values.tolist() == ["a"]
    assert group["times"].item() == pytest.approx(2.0)


def test_a_normaliser_in_a_loop_is_not_passed_over_in_silence():
    rule = pbs.geometric_rule(0.4, n=30)
    with pm.Model() as model:
        rate = pm.Exponential("rate", PRIOR_RATE)
        pbs.Unnormalized("y", log_f, rate, rule=rule, observed=[1, 2])
        looped = pytensor.scan(
            lambda i, r: -pbs.log_normalizer(lambda x: -r * x * i, rule),
            sequences=pt.arange(1, 3),
            non_sequences=rate,
            return_updates=False,
        )
        pm.Potential("p", looped.sum())
    with pytest.warns(UserWarning, match="cannot be checked"):
        group = check(draws_of(rule, (1, 30)), model)["normalizer"]
    assert group["normalizer"].values.tolist() == ["y"]


def test_minibatches_and_truncation():
    counts = np.random.default_rng(3).poisson(3.0, size=40)
    with pm.Model() as model:
        mu, nu = pm.HalfNormal("mu", 5.0), pm.HalfNormal("nu", 2.0)
        some = pm.Minibatch(counts.astype(float), batch_size=10)
        pbs.CMP("y", mu=mu, nu=nu, observed=some, total_size=40)
        pm.Truncated("z", pbs.CMP.dist(mu=mu, nu=nu), upper=10, observed=counts)
    rng = np.random.default_rng(5)
    draws = xr.Dataset(
        {
            "mu": (("chain", "draw"), rng.normal(3.0, 0.2, size=(1, 40))),
            "nu": (("chain", "draw"), rng.normal(1.0, 0.05, size=(1, 40))),
        }
    )
    group = check(draws, model)["normalizer"]
    assert group.attrs["verdict"] == "good"
    assert abs(group["log_z_error"]).max() < 1e-12


# The face of it


def test_it_is_the_tree_and_prints_the_verdict(usable):
    rule, draws, _ = usable
    idata = xr.DataTree.from_dict({"posterior": draws})
    checked = check(idata, geometric_model(rule), draws=400)
    assert isinstance(checked, xr.DataTree)
    assert isinstance(checked, CheckedTree)
    assert list(idata.children) == ["posterior", "normalizer"]
    text = str(checked)
    assert text == repr(checked)
    assert text.startswith("Normaliser check: CORRECTED")
    assert "over 400 draws of 2000" in text
    assert "pbs.correct(idata)" in text
    assert "more nodes" in text
    assert len(text.splitlines()) <= 9
    assert "CORRECTED" in checked._repr_html_()
    # A part of it, and a selection, are ordinary trees.
    assert "log_weight" in repr(checked["normalizer"])
    assert checked.sel(draw=checked["normalizer"]["draw"]).posterior.sizes["draw"] == 100


def test_thinning_keeps_to_the_budget(usable):
    rule, draws, _ = usable
    model = geometric_model(rule)
    assert check(draws, model, draws=50)["normalizer"].sizes["draw"] == 13  # of each of 4 chains
    assert check(draws, model, time_budget=1e-6)["normalizer"].attrs["draws"] == 52
    few = check(draws, model, draws=4)["normalizer"]
    assert few.attrs["draws"] == 4
    assert "too few" in few.attrs["reason"]


def test_it_takes_half_as_long_as_the_sampling():
    assert time_budget_of({"sampling_time": 12.0}) == 6.0
    assert time_budget_of({"sampling_time": 1e4}) == 60.0
    assert time_budget_of({"sampling_time": 0.1}) == 3.0
    assert time_budget_of({}) == 60.0


@pytest.mark.usefixtures("plain")
def test_correct_carries_what_belongs_to_the_draws(usable):
    rule, draws, _ = usable
    shape = (4, 500)
    twice = xr.Dataset({"twice": (("chain", "draw"), 2 * draws["rate"].values)})
    loglik = xr.Dataset({"y": (("chain", "draw", "row"), np.zeros((*shape, 2)))})
    model = geometric_model(rule)
    data = xr.Dataset({"y": ("row", model.rvs_to_values[model["y"]].data)})
    idata = xr.DataTree.from_dict(
        {
            "posterior": draws,
            "posterior_predictive": twice,
            "log_likelihood": loglik,
            "observed_data": data,
        }
    )
    corrected = pbs.correct(idata, model, draws=800, progressbar=False)
    assert set(corrected.children) == {"posterior", "posterior_predictive", "observed_data"}
    assert corrected.posterior.sizes == {"chain": 4, "draw": 200}
    np.testing.assert_allclose(
        corrected.posterior_predictive["twice"], 2 * corrected.posterior["rate"]
    )
    assert "resampled" in corrected.attrs["correction"]


def test_a_progress_bar_on_request(usable, capsys):
    rule, draws, _ = usable
    model = geometric_model(rule)
    pbs.check_normalizer(draws, model, draws=8)
    assert "Checking normalisers" in capsys.readouterr().err
    pbs.check_normalizer(draws, model, draws=8, progressbar=False)
    assert capsys.readouterr().err == ""


def test_bad_input_is_answered(usable):
    rule, draws, _ = usable
    model = geometric_model(rule)
    with pytest.raises(ValueError, match="must have a group 'posterior'"):
        check(xr.DataTree(), model)
    with pytest.raises(TypeError, match="idata must be a DataTree"):
        check([1.0], model)
    with pytest.raises(ValueError, match=r"\['rate'\] are not in the group"):
        check(draws.rename(rate="other"), model)
    with pytest.raises(ValueError, match=r"\['rate'\] are not in the group"):
        check({"other": 1.0}, model)
    with pytest.raises(ValueError, match="dimensions chain and draw"):
        check(draws.rename(draw="step"), model)
    with pytest.raises(ValueError, match="draws must be at least 1"):
        check(draws, model, draws=0)
    with pm.Model() as plain:
        pm.Poisson("y", pm.Exponential("rate", 1.0), observed=COUNTS)
    with pytest.raises(ValueError, match="no log-normaliser to check"):
        check(draws, plain)
    with pytest.raises(TypeError, match="context"):
        pbs.check_normalizer(draws)


def test_correct_says_that_nothing_was_checked():
    idata = xr.DataTree.from_dict({"posterior": xr.Dataset({"a": (("chain", "draw"), [[1.0]])})})
    with pytest.raises(ValueError, match="no group 'normalizer': run check_normalizer first"):
        pbs.correct(idata)


def test_normalisers_of_a_censored_variable_depend_on_the_model_itself():
    """Of a censored variable PyMC derives the log-probability from a copy."""
    with pm.Model() as model:
        mu, nu = pm.Gamma("mu", 2, 1), pm.LogNormal("nu")
        pm.Censored("y", pbs.CMP.dist(mu=mu, nu=nu), upper=6, observed=[1, 3, 6])
    found = pbs.find_normalizers(model)
    assert {each.parameters for each in found} == {(mu, nu)}
    log_z = found[0].log_z.eval({mu: 4.0, nu: 1.0}, mode=PLAIN)
    np.testing.assert_allclose(log_z, 4.0, rtol=1e-12)


@pytest.mark.parametrize("distribution", [pbs.CMP, pbs.ZeroInflatedCMP, pbs.HurdleCMP])
@pytest.mark.parametrize(
    ("mean", "dispersion"),
    [(0.0, 0.9), (1e-30, 2.0), (3e7, 6e-9), (3e9, 0.0), (1e12, 0.9), (1e14, 1e-2)],
)
def test_cmp_is_good_wherever_it_goes(distribution, mean, dispersion, plain):
    """Rows without exposure, and means beyond what a series can be summed to."""
    share = {} if distribution is pbs.CMP else {"psi": 0.8}
    with pm.Model() as model:
        scale, nu = pm.LogNormal("scale"), pm.LogNormal("nu")
        mu = np.array([mean, 3.0]) * scale
        distribution("y", **share, mu=mu, nu=nu, observed=[np.floor(mean), 2])
    noise = np.random.default_rng(1).standard_normal((2, 2, 150))
    draws = {"scale": 1.0 + 1e-7 * noise[0], "nu": dispersion * (1.0 + 1e-2 * noise[1])}
    posterior = xr.Dataset({name: (("chain", "draw"), x) for name, x in draws.items()})
    found = pbs.check_normalizer(posterior, model, progressbar=False)["normalizer"]
    assert found.attrs["verdict"] == "good"
    assert "nan" not in found.attrs["report"]
    assert "inf" not in found.attrs["report"]
