"""Unnormalised models against their exact likelihoods."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from laws import LAWS, MISSED, MORE_LAWS, listed
from pytensor.compile.mode import Mode
from scipy import stats
from scipy.optimize import minimize

import pymc_bayessum as pbs
from pymc_bayessum import kernels, measures
from pymc_bayessum.diagnostics import find_normalizers
from pymc_bayessum.normalizers.protocol import Asked
from pymc_bayessum.rules.rule import bayes_sum, poisson_rule
from pymc_bayessum.unnormalized import Unnormalized

PYTHON = Mode(linker="py", optimizer="fast_compile")
QUIET = {"progressbar": False, "random_seed": 3, "compute_convergence_checks": False}


class PowerLaw:
    """Power law with exponential cut-off on 1, 2, ...: f(x) = x^-a e^(-b x)."""

    support = np.arange(1, 4001)
    a_prior, b_scale = (1.0, 1.0), 0.5

    @staticmethod
    def log_f(x, a, b):
        return -a * pt.log(x) - b * x

    @staticmethod
    def exact(x, a, b):
        return -a * np.log(x) - b * x

    @staticmethod
    def rule():
        """Logarithmic base x^-1 p^x, of the same kind as the model; the last node has the tail."""
        return bayes_sum(kernels.Brownian(), measures.Logarithmic(0.97), np.arange(1, 301))


class DiscreteLaplace:
    """Two-sided geometric distribution on the integers: f(x) = e^(-|x - a| / b)."""

    support = np.arange(-2000, 2001)
    a_prior, b_scale = (0.0, 2.0), 3.0

    @staticmethod
    def log_f(x, a, b):
        return -pt.abs(x - a) / b

    @staticmethod
    def exact(x, a, b):
        return -np.abs(x - a) / b

    @staticmethod
    def rule():
        """Geometric base folded onto both sides: 0, -1, 1, -2, 2, ... for 0, 1, 2, 3, 4, ..."""
        base = measures.Pushforward(measures.Geometric(0.05), unfold, fold)
        return bayes_sum(kernels.Matern(0.5, 20.0), base, np.arange(-120, 121))


def unfold(x):
    return x // 2 - (x % 2) * x


def fold(y):
    return 2 * abs(y) - (y < 0)


PROBLEMS = [PowerLaw, DiscreteLaplace]


def exact_logp(problem, x, *theta):
    everywhere = problem.exact(problem.support, *theta)
    peak = everywhere.max()
    return problem.exact(x, *theta) - peak - np.log(np.exp(everywhere - peak).sum())


@pytest.fixture(scope="module", params=PROBLEMS, ids=lambda problem: problem.__name__)
def fitted(request):
    """A model of forty draws and the problem it came from."""
    problem = request.param
    p = np.exp(exact_logp(problem, problem.support, 1.2, 0.2 if problem is PowerLaw else 2.0))
    y = np.random.default_rng(5).choice(problem.support, p=p / p.sum(), size=40)
    with pm.Model(coords={"row": range(40)}) as model:
        theta = pm.Normal("a", *problem.a_prior), pm.HalfNormal("b", problem.b_scale)
        Unnormalized("y", problem.log_f, *theta, rule=problem.rule(), observed=y, dims="row")
    return problem, y, model


def log_posterior(problem, y, a, b):
    mean, sd = problem.a_prior
    prior = -(((a - mean) / sd) ** 2) / 2 - (b / problem.b_scale) ** 2 / 2
    return exact_logp(problem, y, a, b).sum() + prior


def test_logp_is_the_exact_one(fitted):
    problem, y, model = fitted
    logp = model.compile_logp(vars=model["y"], sum=False, mode=PYTHON)
    for a, b in [(0.7, 0.3), (1.5, 1.0), (2.5, 2.0)]:
        (found,) = logp({"a": a, "b_log__": np.log(b)})
        np.testing.assert_allclose(found, exact_logp(problem, y, a, b), rtol=1e-9, atol=1e-9)


@pytest.mark.usefixtures("plain")
def test_maximum_a_posteriori(fitted):
    problem, y, model = fitted
    point = pm.find_MAP(model=model, progressbar=False, include_transformed=False)
    options = {"xatol": 1e-9, "fatol": 1e-12}
    start = [problem.a_prior[0], problem.b_scale]
    exact = minimize(
        lambda theta: -log_posterior(problem, y, *theta),
        start,
        method="Nelder-Mead",
        options=options,
    )
    np.testing.assert_allclose([point["a"], point["b"]], exact.x, rtol=2e-3, atol=1e-4)


@pytest.mark.slow
def test_posterior_by_nuts(fitted):
    problem, y, model = fitted
    idata = pm.sample(400, tune=300, chains=1, cores=1, model=model, **QUIET)
    mean, sd = problem.a_prior
    a, b = np.linspace(mean - 4 * sd, mean + 4 * sd, 81), problem.b_scale * np.linspace(0.01, 3, 81)
    log_mass = np.array([[log_posterior(problem, y, one, other) for other in b] for one in a])
    mass = np.exp(log_mass - log_mass.max())
    mass /= mass.sum()
    for name, grid, marginal in [("a", a, mass.sum(axis=1)), ("b", b, mass.sum(axis=0))]:
        mean = grid @ marginal
        sd = np.sqrt((grid - mean) ** 2 @ marginal)
        draws = idata.posterior[name].values
        assert abs(draws.mean() - mean) < 0.4 * sd
        assert 0.7 < draws.std() / sd < 1.4


def test_normaliser_is_found_in_the_model(fitted):
    problem, y, model = fitted
    (found,) = find_normalizers(model)
    assert found.name == "y"
    assert found.parameters == (model["a"], model["b"])
    point = {model["a"]: 1.5, model["b"]: 0.5}
    log_z = found.log_z.eval(point, mode=PYTHON)
    exact = problem.exact(y, 1.5, 0.5) - exact_logp(problem, y, 1.5, 0.5)
    np.testing.assert_allclose(np.broadcast_to(log_z, exact.shape), exact, rtol=1e-9)


@pytest.mark.parametrize("coefficient", [lambda t, k: t[k], lambda t, k: t[..., k]])
def test_vector_of_parameters(coefficient):
    """A discrete Gaussian with its two coefficients in one vector, as ndims_params says."""
    rule = bayes_sum(kernels.Brownian(), measures.Counting(20), np.arange(21))

    def log_f(x, t):
        return coefficient(t, 0) * x + coefficient(t, 1) * x**2

    x, y = np.arange(21), np.array([3, 4, 8])
    with pm.Model() as model:
        t = pm.Normal("t", shape=2)
        Unnormalized("y", log_f, t, rule=rule, observed=y, ndims_params=[1])
    terms = 0.9 * x - 0.1 * x**2
    exact = terms[y] - np.log(np.exp(terms).sum())
    (found,) = model.compile_logp(vars=model["y"], sum=False, mode=PYTHON)({"t": [0.9, -0.1]})
    np.testing.assert_allclose(found, exact)


def test_whole_parameters_keep_double_precision():
    """PyTensor would hold the constant 3.0 in single precision."""
    rv = Unnormalized.dist(
        lambda x, mu: x * pt.log(mu) - pt.gammaln(x + 1), 3.0, rule=poisson_rule(3.0, n=60)
    )
    np.testing.assert_allclose(pm.logp(rv, 2).eval(mode=PYTHON), np.log(4.5) - 3.0, rtol=1e-12)


def test_points_outside_of_the_support():
    """Zero lies outside of the power law, where log_f and its gradient are infinite."""
    a = pt.scalar("a")
    power_law = Unnormalized.dist(PowerLaw.log_f, a, 0.5, rule=PowerLaw.rule(), shape=(3,))
    logp = pm.logp(power_law, np.array([-1, 0, 2]))
    value, slope = logp.eval({a: 1.0}, mode=PYTHON), pt.grad(logp[2] + logp[0], a)
    np.testing.assert_array_equal(value[:2], -np.inf)
    np.testing.assert_allclose(value[2], exact_logp(PowerLaw, 2, 1.0, 0.5))
    assert np.isfinite(slope.eval({a: 1.0}, mode=PYTHON))
    x = pt.vector("x")
    between = pm.logp(power_law, x).eval({a: 1.0, x: [1.5, np.nan, 3.0]}, mode=PYTHON)
    np.testing.assert_array_equal(between == -np.inf, [True, True, False])


@pytest.fixture(scope="module")
def finite_rule():
    return bayes_sum(kernels.Brownian(), measures.Counting(9), np.arange(10))


def log_geometric(x, slope):
    return slope * x


class TestDraws:
    def test_enumerated_support(self, finite_rule):
        slope = np.array([-1.0, 0.0, 0.5])
        rv = Unnormalized.dist(log_geometric, slope, rule=finite_rule, size=(4000, 3))
        draws = pm.draw(rv, random_seed=1, mode=PYTHON)
        assert draws.shape == (4000, 3)
        assert draws.dtype == "int64"
        p = np.exp(np.outer(slope, np.arange(10)))
        p /= p.sum(axis=1, keepdims=True)
        for column, probabilities in zip(draws.T, p, strict=True):
            frequencies = np.bincount(column, minlength=10) / 4000
            assert np.abs(frequencies - probabilities).max() < 5 * np.sqrt(0.25 / 4000)

    @pytest.mark.usefixtures("plain")
    def test_prior_and_posterior_predictive(self, finite_rule):
        with pm.Model(coords={"row": range(5)}):
            slope = pm.Normal("slope")
            Unnormalized(
                "y", log_geometric, slope, rule=finite_rule, observed=[0, 1, 0, 2, 9], dims="row"
            )
            prior = pm.sample_prior_predictive(7, random_seed=1)
            both = pm.sample_posterior_predictive(prior.prior, progressbar=False, random_seed=1)
        for draws in (prior.prior_predictive["y"], both.posterior_predictive["y"]):
            assert draws.dims == ("chain", "draw", "row")
            assert draws.dtype == "int64"
            assert ((draws >= 0) & (draws <= 9)).all()

    def test_sampler_of_the_user(self):
        def random(mu, rng=None, size=None):
            return rng.poisson(mu, size=size)

        def log_f(x, mu):
            return x * pt.log(mu) - pt.gammaln(x + 1)

        rule = poisson_rule(4.0, n=40)
        with pm.Model() as model:
            mu = pm.Gamma("mu", 4.0, 1.0)
            Unnormalized("y", log_f, mu, rule=rule, random=random, observed=[3, 4, 5])
        np.testing.assert_allclose(
            pm.logp(model["y"], [2]).eval({mu: 3.0}, mode=PYTHON), np.log(4.5) - 3.0, rtol=1e-12
        )
        draws = pm.draw(
            Unnormalized.dist(log_f, 3.0, rule=rule, random=random, size=3000),
            random_seed=2,
            mode=PYTHON,
        )
        assert draws.dtype == "int64"
        assert abs(draws.mean() - 3.0) < 5 * np.sqrt(3.0 / 3000)

    def test_no_sampler(self):
        rv = Unnormalized.dist(PowerLaw.log_f, 1.0, 0.5, rule=PowerLaw.rule())
        with pytest.raises(
            NotImplementedError, match=r"do not enumerate the support .* pass random="
        ):
            pm.draw(rv, mode=PYTHON)


class TestSites:
    """An Ising ring of five sites: f(x) = exp(h sum x_i + j sum x_i x_(i+1))."""

    points = np.array(np.meshgrid(*[[-1, 1]] * 5, indexing="ij")).reshape(5, -1).T

    @staticmethod
    def log_f(x, h, j):
        return pt.sum(h * x, axis=-1) + j * pt.sum(x * pt.roll(x, 1, axis=-1), axis=-1)

    def exact(self, x, h, j):
        def log_f(x):
            return (h * x).sum(axis=-1) + j * (x * np.roll(x, 1, axis=-1)).sum(axis=-1)

        return log_f(x) - np.log(np.exp(log_f(self.points)).sum())

    @pytest.fixture(scope="class")
    @classmethod
    def rule(cls):
        return bayes_sum(kernels.ExpHamming(0.4), measures.UniformSpins(5), cls.points)

    @pytest.mark.parametrize("h", [0.3, np.array([0.5, -0.2, 0.1, 0.0, 1.0])])
    def test_rows(self, rule, h):
        rows = self.points[[0, 5, 17, 30]]
        rv = Unnormalized.dist(self.log_f, h, 0.4, rule=rule, shape=(4, 5))
        found = pm.logp(rv, rows).eval(mode=PYTHON)
        np.testing.assert_allclose(found, self.exact(rows, h, 0.4), rtol=1e-9)
        outside = pm.logp(rv, np.array([[1, 1, 1, 1, 0]])).eval(mode=PYTHON)
        assert (outside == -np.inf).all()

    def test_one_parameter_set_for_each_row(self, rule):
        rows = self.points[[0, 5, 17]]
        h, j = np.arange(15).reshape(3, 5) / 10, np.array([0.1, 0.2, -0.3])
        rv = Unnormalized.dist(self.log_f, h, j, rule=rule, ndims_params=[1, 0])
        found = pm.logp(rv, rows).eval(mode=PYTHON)
        wanted = [self.exact(row, *theta) for row, *theta in zip(rows, h, j, strict=True)]
        np.testing.assert_allclose(found, wanted, rtol=1e-9)

    def test_draws(self, rule):
        rv = Unnormalized.dist(self.log_f, 0.2, 0.4, rule=rule, size=3000)
        draws = pm.draw(rv, random_seed=4, mode=PYTHON)
        assert draws.shape == (3000, 5)
        mean = self.points.T @ np.exp(self.exact(self.points, 0.2, 0.4))
        np.testing.assert_allclose(draws.mean(axis=0), mean, atol=5 / np.sqrt(3000))

    def test_sampler_of_the_user(self):
        def random(h, j, rng=None, size=None):
            return rng.choice([-1, 1], size=(*(size or ()), 5))

        rule = bayes_sum(kernels.ExpHamming(0.4), measures.UniformSpins(5), self.points[:20])
        rv = Unnormalized.dist(self.log_f, 0.0, 0.0, rule=rule, random=random, size=7)
        assert pm.draw(rv, random_seed=4, mode=PYTHON).shape == (7, 5)
        refused = Unnormalized.dist(self.log_f, 0.0, 0.0, rule=rule)
        with pytest.raises(NotImplementedError, match="pass random="):
            pm.draw(refused, mode=PYTHON)


class TestGuard:
    @pytest.fixture(scope="class")
    @classmethod
    def model(cls):
        """Weights whose sum 1 + e^t - e^(2t)/2 turns negative at t = log(1 + sqrt(3))."""
        rule = bayes_sum(kernels.Brownian(), measures.Counting(2), np.arange(3))
        rule = replace(rule, weights=np.array([1.0, 1.0, -0.5]), log_abs_weights=None)
        with pm.Model() as model:
            slope = pm.Normal("slope", 0.0, 1.0)
            Unnormalized("y", log_geometric, slope, rule=rule, observed=[0])
        return rule, model

    def test_log_probability_is_minus_infinity(self, model):
        rule, model = model
        logp, dlogp = model.compile_logp(mode=PYTHON), model.compile_dlogp(mode=PYTHON)
        signs = []
        for slope in np.linspace(-6.0, 6.0, 49):
            total = rule.weights @ np.exp(slope * rule.nodes)
            found = logp({"slope": slope})
            assert np.isfinite(found) if total > 0 else found == -np.inf
            assert np.isfinite(dlogp({"slope": slope})).all()
            signs.append(total > 0)
        assert any(signs)
        assert not all(signs)

    def test_sampler_turns_back(self, model):
        rule, model = model
        idata = pm.sample(
            100,
            tune=100,
            chains=1,
            cores=1,
            nuts_sampler="pymc",
            init="adapt_diag",
            model=model,
            **QUIET,
        )
        slopes = idata.posterior["slope"].values.ravel()
        assert (np.exp(np.multiply.outer(slopes, rule.nodes)) @ rule.weights > 0).all()
        assert len(np.unique(slopes)) > 10


class TestBuilding:
    def test_missing_values_are_imputed(self, finite_rule):
        data = np.ma.masked_values([0, 1, -9, 2], -9)
        with pm.Model() as model:
            slope = pm.Normal("slope")
            with pytest.warns(Warning, match="missing values"):
                Unnormalized("y", log_geometric, slope, rule=finite_rule, observed=data)
        point = {"slope": -1.0, "y_unobserved": np.array([3])}
        log_z = np.log(np.exp(-np.arange(10.0)).sum())
        exact = -6.0 - 4 * log_z - 0.5 - np.log(2 * np.pi) / 2
        np.testing.assert_allclose(model.compile_logp(mode=PYTHON)(point), exact)

    def test_latent_variable_starts_at_the_best_node(self, finite_rule):
        with pm.Model() as model:
            Unnormalized("x", log_geometric, np.array([-1.0, 1.0]), rule=finite_rule, shape=(3, 2))
        np.testing.assert_array_equal(model.initial_point()["x"], [[0, 9]] * 3)

    def test_data_beyond_the_nodes(self):
        rule = poisson_rule(3.0, n=12)
        with (
            pm.Model(),
            pytest.warns(UserWarning, match="from 1 to 40, but the nodes .* from 0 to 11"),
        ):
            Unnormalized("y", log_geometric, -1.0, rule=rule, observed=[1, 40])

    @pytest.mark.parametrize(
        ("changes", "error", "match"),
        [
            ({"log_f": 3.0}, TypeError, "log_f must be a function"),
            ({"rule": None}, TypeError, "rule must be a Rule"),
            ({"random": 1}, TypeError, "random must be a function"),
            ({"ndims_params": [1]}, ValueError, "ndims_params must hold one number for each"),
            ({"ndims_params": [0, 0]}, ValueError, "ndims_params must hold one number for each"),
        ],
    )
    def test_bad_arguments(self, finite_rule, changes, error, match):
        arguments = {"log_f": log_geometric, "rule": finite_rule} | changes
        log_f = arguments.pop("log_f")
        with pytest.raises(error, match=match):
            Unnormalized.dist(log_f, 0.5, **arguments)

    def test_continuous_support(self):
        rule = bayes_sum(
            kernels.Brownian(), measures.UniformInterval(0.0, 1.0), np.linspace(0, 1, 5)
        )
        with pytest.raises(TypeError, match="integer nodes"):
            Unnormalized.dist(log_geometric, 0.5, rule=rule)


# Without a rule


@pytest.mark.parametrize("name", LAWS)
def test_found_nodes_sum_every_law(name):
    law = LAWS[name]
    masses = listed(law)
    variable = pbs.Unnormalized.dist(law.log_f, *law.theta, support=law.support)
    picked = np.unique(np.append(np.argmax(masses), [0, 17, len(masses) // 2]))
    value = pm.logp(variable, law.low + picked).eval(mode="FAST_COMPILE")
    assert np.allclose(value, masses[picked], rtol=1e-12, atol=1e-8)


@pytest.mark.parametrize("name", MISSED)
def test_laws_that_are_missed_are_seen_by_the_reference(name):
    law = MORE_LAWS[name]
    masses = listed(law)
    best = int(np.argmax(masses))
    variable = pbs.Unnormalized.dist(law.log_f, *law.theta, support=law.support)
    log_mass = pm.logp(variable, law.low + best)
    [found] = find_normalizers(log_mass)
    log_z, value, *theta = pytensor.function(
        [], [found.log_z, log_mass, *found.theta], mode="FAST_COMPILE"
    )()
    asked = Asked(found.theta, [], [], {"mode": "FAST_COMPILE"}, np.random.default_rng(0))
    seen = found.normalizer.reference(asked)([], theta).log_z
    missing = value - masses[best]
    assert abs(missing) > 1e-8
    assert np.isclose(seen - log_z, missing, rtol=1e-3)


@pytest.mark.parametrize("name", ["two far humps", "discrete Laplace"])
def test_found_nodes_draw(name):
    law = LAWS[name]
    masses = np.exp(listed(law))
    x = np.arange(law.low, law.high + 1)
    variable = pbs.Unnormalized.dist(law.log_f, *law.theta, support=law.support, shape=(500,))
    draws = pm.draw(variable, random_seed=1, mode=PYTHON)
    ranks = masses.cumsum()[draws - law.low] - masses[draws - law.low] / 2
    assert abs(ranks.mean() - 0.5) < 4 * np.sqrt(1 / 12 / 500)
    assert draws.min() >= x[0]


@pytest.mark.parametrize(
    ("support", "rate", "power"),
    [
        ("naturals", 0.0, 1.0),
        ("naturals", 1.0, 0.0),
        ("integers", -1.0, 0.0),
        ("naturals", 0.0, 0.0),
    ],
    ids=["harmonic", "growing", "growing to the left", "constant"],
)
def test_sums_that_never_end_are_not_answered(support, rate, power):
    def log_f(x, rate, power):
        return rate * x - power * pt.log(pt.abs(x) + 1.0)

    law = pbs.Unnormalized.dist(log_f, rate, power, support=support)
    assert pm.logp(law, 3).eval(mode="FAST_COMPILE") == -np.inf


@pytest.mark.parametrize(
    ("support", "observed", "message"),
    [
        (range(5), [1, 7], "whole numbers from .*high=4.*got 7"),
        ("naturals", [1.5], "got 1.5"),
        ("naturals", [2, -1], "got -1"),
    ],
)
def test_observations_that_the_support_does_not_have(support, observed, message):
    with pm.Model(), pytest.raises(ValueError, match=message):
        pbs.Unnormalized("y", log_geometric, 0.5, support=support, observed=observed)


def test_a_law_that_forgets_the_shape_of_x():
    with pytest.raises(ValueError, match="one number for each x"):
        pbs.Unnormalized.dist(lambda x, a: pt.sum(a * x), -1.0, support="naturals")


def test_found_nodes_take_rows_of_parameters():
    rates = np.array([0.5, 20.0, 3000.0])
    law = pbs.Unnormalized.dist(
        lambda x, rate: x * pt.log(rate) - pt.gammaln(x + 1.0), rates, support="naturals"
    )
    y = np.array([1, 17, 3010])
    expected = pm.logp(pm.Poisson.dist(rates), y).eval()
    assert np.allclose(pm.logp(law, y).eval(mode="FAST_COMPILE"), expected, atol=1e-10)
    assert (pm.logp(law, [-1, -1, -1]).eval(mode="FAST_COMPILE") == -np.inf).all()
    assert pm.draw(law, 4, random_seed=1, mode=PYTHON).shape == (4, 3)


def test_found_nodes_are_checked():
    with pm.Model() as model:
        rate = pm.HalfNormal("rate", 10.0)
        pbs.Unnormalized(
            "y",
            lambda x, rate: x * pt.log(rate) - pt.gammaln(x + 1.0),
            rate,
            support="naturals",
            observed=[3, 5, 4],
        )
    draws = xr.Dataset(
        {"rate": (("chain", "draw"), np.linspace(3.0, 5.0, 30)[None])},
        {"chain": [0], "draw": np.arange(30)},
    )
    quick = {"mode": "FAST_COMPILE"}
    checked = pbs.check_normalizer(draws, model, progressbar=False, compile_kwargs=quick)
    assert checked["normalizer"].attrs["verdict"] == "good"


def test_check_tells_when_found_nodes_miss_a_hump():
    def log_f(x, wide):
        narrow = -0.5 * ((x + 10_000.0) / 3.0) ** 2 - pt.log(3.0)
        return pt.logaddexp(narrow, -0.5 * ((x - 50_000.0) / wide) ** 2 - pt.log(wide))

    with pm.Model() as model:
        wide = pm.HalfNormal("wide", 3000.0)
        pbs.Unnormalized("y", log_f, wide, support="integers", observed=[50_100])
    draws = xr.Dataset(
        {"wide": (("chain", "draw"), np.linspace(1500.0, 2500.0, 30)[None])},
        {"chain": [0], "draw": np.arange(30)},
    )
    quick = {"mode": "FAST_COMPILE"}
    checked = pbs.check_normalizer(draws, model, progressbar=False, compile_kwargs=quick)
    assert checked["normalizer"].attrs["verdict"] == "not to be trusted"


@pytest.mark.parametrize("support", ["reals", range(0, 10, 2), range(0), 7])
def test_bad_support(support):
    with pytest.raises(ValueError, match="support must be 'naturals', 'integers' or a range"):
        pbs.Unnormalized.dist(lambda x: -x, support=support)


def test_rule_and_support_exclude_one_another():
    rule = pbs.bayes_sum(pbs.kernels.Brownian(), pbs.measures.Counting(9), np.arange(10))
    with pytest.raises(ValueError, match="either rule or support"):
        pbs.Unnormalized.dist(lambda x: -x, rule=rule, support="naturals")
    with pytest.raises(TypeError, match="rule must be a Rule"):
        pbs.Unnormalized.dist(lambda x: -x)


@pytest.mark.parametrize("container", [np.array, list, xr.DataArray])
def test_numbers_of_more_than_32_bits(container, plain):
    values = [1, 10**10]
    with pm.Model() as model:
        Unnormalized(
            "y",
            lambda x, rate: x * pt.log(rate) - pt.gammaln(x + 1.0),
            3.0,
            support="naturals",
            observed=container(values),
        )
    expected = stats.poisson.logpmf(values, 3.0).sum()
    np.testing.assert_allclose(model.compile_logp()({}), expected, rtol=1e-14)
