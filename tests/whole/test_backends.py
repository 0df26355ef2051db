"""The same numbers from every backend, and every way to fit a model with a normaliser."""

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from scipy.optimize import minimize
from scipy.special import gammaln

from pymc_bayessum import kernels, measures
from pymc_bayessum.normalizers import log_normalizer, normalized
from pymc_bayessum.rules.rule import bayes_sum
from pymc_bayessum.unnormalized import Unnormalized

needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed")
needs_numpyro = pytest.mark.skipif(find_spec("numpyro") is None, reason="NumPyro is not installed")
needs_nutpie = pytest.mark.skipif(find_spec("nutpie") is None, reason="nutpie is not installed")

PYTHON = Mode(linker="py", optimizer="fast_compile")
MODES = [
    "NUMBA",
    pytest.param("JAX", marks=needs_jax),
    pytest.param("CVM", marks=pytest.mark.c_backend),
    pytest.param(PYTHON, id="python"),
]
RATES = np.array([[0.3, 1.5, -0.4], [2.5, 0.0, -8.0]])


@pytest.fixture(scope="module")
def graph():
    """Log Z by signed weights with and without a shift, gradient, Hessian product and sd."""
    rule = bayes_sum(kernels.Matern(2.5, 3.0), measures.Counting(12), [0, 1, 2, 4, 7, 11])
    rule = replace(rule, weights=rule.weights * [1, 1, 1, 1, -0.1, 1], log_abs_weights=None)
    t = pt.matrix("t")

    def log_f(x):
        return t[..., None] * x - pt.gammaln(x + 1)

    plain, sd = log_normalizer(log_f, rule, return_sd=True)
    shifted = log_normalizer(log_f, rule, shift=pt.exp(t))
    grad = pytensor.grad(pt.sum(plain), t)
    outputs = [plain, shifted, grad, sd, pytensor.grad(pt.sum(grad * t), t)]
    log_values = np.multiply.outer(RATES, rule.nodes) - gammaln(rule.nodes + 1)
    return t, outputs, rule.log_sum(log_values, return_sd=True)


@pytest.fixture(scope="module")
def edges():
    """Log Z, the guarded log-probability and its gradient, for rows of log summands."""
    rule = bayes_sum(kernels.Brownian(), measures.Counting(2), [0, 1, 2])
    rule = replace(rule, weights=np.array([1.0, -1.0, 0.0]), log_abs_weights=None)
    a = pt.matrix("a", shape=(3, 3))
    log_z = log_normalizer(a, rule)
    logp = normalized(pt.zeros(3), log_z)
    return a, [log_z, logp, pytensor.grad(pt.sum(logp), a)]


@pytest.mark.parametrize("mode", MODES)
def test_same_numbers(graph, edges, mode):
    t, outputs, (log_z, sd) = graph
    a, more = edges
    # Row by row: a positive sum, an empty one, and one that is negative.
    a_value = np.array([[1.0, 0.0, 9.0], [-np.inf, -np.inf, 0.0], [0.0, 1.0, 9.0]])
    if mode == "CVM":  # where each further operation costs a second of the C++ compiler
        outputs = outputs[:3]
    found = pytensor.function([t, a], [*more, *outputs], mode=mode)(RATES, a_value)
    wanted = pytensor.function([t], outputs, mode=PYTHON)(RATES)
    np.testing.assert_allclose(wanted[0], log_z, rtol=0, atol=1e-12)
    if len(wanted) > 3:
        np.testing.assert_allclose(wanted[3], sd, rtol=1e-8)
    for one, other in zip(found[3:], wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(found[4], log_z, rtol=0, atol=1e-10)
    log_z, logp, grad = found[:3]
    np.testing.assert_allclose(log_z, [np.log(np.e - 1.0), -np.inf, np.nan])
    np.testing.assert_allclose(logp, [-np.log(np.e - 1.0), -np.inf, -np.inf])
    share = np.e / (np.e - 1.0)
    np.testing.assert_allclose(grad, [[-share, share - 1.0, 0.0], [0.0] * 3, [0.0] * 3])


def log_f(x, power, rate):
    """Power law with an exponential cut-off, on 0, 1, 2, ..."""
    return -power * pt.log1p(x) - rate * x


Y = np.array([0, 0, 1, 0, 3, 2, 0, 1, 5, 0, 0, 9])


@pytest.fixture(scope="module")
def model():
    rule = bayes_sum(kernels.Brownian(), measures.Counting(30), np.arange(31))
    with pm.Model() as model:
        power = pm.Normal("power", 1.0, 1.0)
        rate = pm.HalfNormal("rate", 1.0)
        Unnormalized("y", log_f, power, rate, rule=rule, observed=Y)
    return model


@pytest.fixture(scope="module")
def posterior_mean():
    """Posterior means of power and rate, by summation over a fine grid."""
    power, rate = np.meshgrid(np.linspace(-4, 6, 400), np.linspace(0.001, 4, 400), indexing="ij")
    x = np.arange(31)
    log_z = np.log(np.exp(-power[..., None] * np.log1p(x) - rate[..., None] * x).sum(axis=-1))
    logp = -power * np.log1p(Y).sum() - rate * Y.sum() - len(Y) * log_z
    mass = np.exp(logp - (power - 1) ** 2 / 2 - rate**2 / 2)
    mass /= mass.sum()
    return (power * mass).sum(), (rate * mass).sum()


def check(idata, posterior_mean, tolerance):
    for name, mean in zip(("power", "rate"), posterior_mean, strict=True):
        draws = idata.posterior[name].values
        assert np.isfinite(draws).all()
        assert abs(draws.mean() - mean) < tolerance * draws.std()


QUIET = {"progressbar": False, "random_seed": 1, "compute_convergence_checks": False}


@pytest.mark.parametrize(
    "sampler",
    [
        pytest.param("nutpie", marks=needs_nutpie),
        "pymc",
        pytest.param("numpyro", marks=[needs_jax, needs_numpyro]),
    ],
)
def test_nuts(model, posterior_mean, sampler):
    idata = pm.sample(200, tune=200, chains=1, cores=1, nuts_sampler=sampler, model=model, **QUIET)
    check(idata, posterior_mean, tolerance=0.5)


def test_sequential_monte_carlo(model, posterior_mean):
    idata = pm.sample_smc(200, chains=1, cores=1, model=model, **QUIET)
    check(idata, posterior_mean, tolerance=0.5)


def test_map(model):
    point = pm.find_MAP(model=model, progressbar=False, include_transformed=False)
    x = np.arange(31)

    def negative(theta):
        power, rate = theta
        log_z = np.log(np.exp(-power * np.log1p(x) - rate * x).sum())
        fit = -power * np.log1p(Y).sum() - rate * Y.sum() - len(Y) * log_z
        return -(fit - (power - 1) ** 2 / 2 - rate**2 / 2)

    exact = minimize(
        negative, [1.0, 0.5], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-12}
    )
    np.testing.assert_allclose([point["power"], point["rate"]], exact.x, rtol=1e-3, atol=1e-4)


def test_variational_with_minibatches(posterior_mean):
    """ADVI on batches of four rows sees a log Z that is counted for all twelve."""
    rule = bayes_sum(kernels.Brownian(), measures.Counting(30), np.arange(31))
    # PyMC 6.3 casts 64-bit integers to 32 bits and then does not see the minibatch any more.
    batch = pm.Minibatch(Y.astype("int32"), batch_size=4)
    with pm.Model():
        power = pm.Normal("power", 1.0, 1.0)
        rate = pm.HalfNormal("rate", 1.0)
        Unnormalized("y", log_f, power, rate, rule=rule, observed=batch, total_size=len(Y))
        fit = pm.fit(
            1500, method="advi", progressbar=False, random_seed=1, compile_kwargs={"mode": PYTHON}
        )
        idata = fit.sample(500, random_seed=1)
    check(idata, posterior_mean, tolerance=1.0)
