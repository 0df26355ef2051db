"""Zero-inflated and hurdle CMP against PyMC's Poisson ones at nu = 1, and by brute force."""

import functools

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.stats as sp
from pymc.distributions.moments.means import mean
from scipy.special import gammaln, logsumexp

import pymc_bayessum as pbs
from pymc_bayessum.normalizers.interpreted import PLAIN

COUNTS = np.arange(25)
# Nothing is compiled: the backends have tests of their own.
BOTH = [pbs.ZeroInflatedCMP, pbs.HurdleCMP]


def masses(distribution, psi, log_lam, nu, last=400):
    """Probabilities by the formula, with the sum taken term by term."""
    terms = np.arange(last) * log_lam - nu * gammaln(np.arange(last) + 1.0)
    part = np.exp(terms - logsumexp(terms))
    if distribution is pbs.HurdleCMP:
        part = np.exp(terms - logsumexp(terms[1:]))
        part[0] = 0.0
    return psi * part + (1 - psi) * (np.arange(last) == 0)


@functools.cache
def compiled(distribution, form="lam"):
    """Log mass of counts that are inputs, its gradient, tails, quantiles and mean."""
    psi, first, nu = pt.scalars("psi", "first", "nu")
    counts, q = pt.vector("counts"), pt.vector("q")
    rv = distribution.dist(psi, **{form: first}, nu=nu)
    logp = pm.logp(rv, counts)
    outputs = [logp, *pt.grad(logp.sum(), [psi, first, nu])]
    outputs += [pm.logcdf(rv, counts), pm.logccdf(rv, counts), pm.icdf(rv, q), mean(rv)]
    return pytensor.function([psi, first, nu, counts, q], outputs, mode=PLAIN)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(pbs.ZeroInflatedCMP, pm.ZeroInflatedPoisson), (pbs.HurdleCMP, pm.HurdlePoisson)],
)
def test_poisson_limit(ours, theirs):
    psi, mu = pt.scalar("psi"), pt.scalar("mu")
    logps = [
        pm.logp(ours.dist(psi=psi, mu=mu, nu=1.0), COUNTS),
        pm.logp(theirs.dist(psi=psi, mu=mu), COUNTS),
    ]
    values = pytensor.function([psi, mu], logps, mode=PLAIN)
    for arguments in [(0.3, 0.5), (0.9, 7.0)]:
        np.testing.assert_allclose(*values(*arguments), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("distribution", BOTH)
@pytest.mark.parametrize(
    ("psi", "lam", "nu"), [(0.6, 1.7, 0.5), (1.0, 0.3, 2.0), (0.2, 0.9, 0.0), (0.7, 1e-5, 0.4)]
)
def test_masses_tails_quantiles_and_mean(distribution, psi, lam, nu):
    q = np.array([0.0, 0.05, 0.3, 0.81, 0.95, 0.999])
    logp, _, _, _, logcdf, logccdf, icdf, average = compiled(distribution)(psi, lam, nu, COUNTS, q)
    expected = masses(distribution, psi, np.log(lam), nu)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(logp, np.log(expected[:25]), rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(logcdf, np.log(np.cumsum(expected)[:25]), rtol=1e-9, atol=1e-13)
        # From above, so that small tails are exact.
        upper = np.append(np.cumsum(expected[::-1])[::-1], 0.0)[1:26]
        np.testing.assert_allclose(logccdf, np.log(upper), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(icdf, np.searchsorted(np.cumsum(expected), q * (1 - 1e-13)))
    np.testing.assert_allclose(average, expected @ np.arange(400), rtol=1e-10)


@pytest.mark.parametrize("distribution", BOTH)
def test_gradients(distribution):
    function = compiled(distribution)
    at, step = np.array([0.6, 1.3, 0.7]), 1e-6
    counts = np.array([0.0, 1.0, 2.0, 9.0])
    gradient = function(*at, counts, [0.5])[1:4]
    for i in range(3):
        move = step * np.eye(3)[i]
        up, down = (function(*(at + sign * move), counts, [0.5])[0].sum() for sign in (1, -1))
        assert gradient[i] == pytest.approx((up - down) / (2 * step), rel=1e-7)


@pytest.mark.parametrize("distribution", BOTH)
@pytest.mark.parametrize("shape", [(12,), (3, 4)])
def test_constant_counts_take_a_shorter_way_to_the_same(distribution, shape):
    """Known zeros are sorted out beforehand; log mass, gradient and curvature stay the same."""
    rng = np.random.default_rng(1)
    counts = rng.poisson(1.0, shape)
    psi, nu = pt.scalars("psi", "nu")
    mu = pt.tensor("mu", shape=(*shape[:-1], 1) if len(shape) > 1 else (None,))
    symbolic = pt.tensor("counts", shape=(None,) * len(shape), dtype="int64")
    rv = distribution.dist(psi, mu=mu, nu=nu, shape=shape)
    outputs = []
    for value in (pt.constant(counts), symbolic):
        logp = pm.logp(rv, value)
        slopes = pt.grad(logp.sum(), [psi, mu, nu])
        curvature = pt.grad(slopes[2] + slopes[1].sum(), [mu, nu])
        outputs.append([logp, *slopes, *curvature])
    function = pytensor.function([psi, mu, nu, symbolic], [*outputs[0], *outputs[1]], mode=PLAIN)
    rows = (*shape[:-1], 1) if len(shape) > 1 else shape
    found = function(0.7, rng.uniform(0.5, 3, rows), 0.8, counts)
    for known, asked in zip(found[:6], found[6:], strict=True):
        np.testing.assert_allclose(known, asked, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("distribution", BOTH)
def test_values_that_are_no_counts(distribution):
    logp = compiled(distribution)(0.6, 1.7, 0.5, [-1.0, 0.5, np.nan, np.inf, 2.0], [0.5])[0]
    assert np.all(logp[:4] == -np.inf)
    assert np.isfinite(logp[4])


@pytest.mark.parametrize("mode", ["NUMBA", pytest.param("CVM", marks=pytest.mark.c_backend), "JAX"])
@pytest.mark.parametrize("distribution", BOTH)
def test_draws_follow_the_masses(distribution, mode):
    if mode == "JAX":
        pytest.importorskip("jax")
    lam, nu = np.array([2.0, 0.4, 1e-5]), np.array([0.8, 0.2, 1.3])
    rng = pytensor.shared(np.random.default_rng(2))
    rv = distribution.dist(psi=0.6, lam=lam, nu=nu, shape=(8000, 3), rng=rng)
    if mode == "JAX":
        with pytest.warns(UserWarning, match="SharedVariables"):
            draws = pytensor.function([], rv, mode=mode)()
    else:
        draws = pytensor.function([], rv, mode=mode)()
    for i in range(3):
        expected = masses(distribution, 0.6, np.log(lam[i]), nu[i]) * 8000
        seen = np.bincount(draws[:, i], minlength=400)
        kept = expected > 5
        # What is rare is one cell.
        expected, seen = (np.append(x[kept], x[~kept].sum()) for x in (expected, seen))
        assert np.all(seen[expected == 0] == 0)
        statistic = np.sum((seen - expected) ** 2 / np.maximum(expected, 1.0))
        assert sp.chi2.sf(statistic, kept.sum()) > 1e-4


def test_hurdle_draws_at_small_means():
    """Where nearly all draws of CMP itself would be zero."""
    draws = pm.draw(pbs.HurdleCMP.dist(psi=0.5, mu=1e-5, nu=1.0), 2000, random_seed=1)
    assert set(np.unique(draws)) == {0, 1}
    assert abs(np.mean(draws) - 0.5) < 5 * 0.5 / np.sqrt(2000)


@pytest.mark.parametrize("distribution", BOTH)
@pytest.mark.usefixtures("plain")
def test_in_a_model_with_dims(distribution):
    observed = np.array([0, 0, 3, 1, 0, 5, 2])
    with pm.Model(coords={"row": np.arange(len(observed))}) as model:
        psi = pm.Beta("psi", 2, 2)
        mu = pm.Gamma("mu", 2, 1)
        nu = pm.LogNormal("nu", 0, 0.5)
        distribution("y", psi=psi, mu=mu, nu=nu, observed=observed, dims="row")
    point = model.initial_point()
    logp, dlogp = model.compile_fn([model.logp(), model.dlogp()])(point)
    assert np.isfinite(logp)
    assert np.all(np.isfinite(dlogp))
    assert distribution.__name__ in model.str_repr()
    with model:
        prior = pm.sample_prior_predictive(draws=5, random_seed=2)
    assert prior["prior_predictive"]["y"].sizes["row"] == len(observed)


@pytest.mark.parametrize("distribution", BOTH)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"psi": 0.5, "mu": 1.0, "lam": 1.0, "nu": 1.0}, "got mu and lam"),
        ({"psi": 0.5, "mu": 1.0}, "nu must be given"),
        ({"psi": 1.5, "mu": 1.0, "nu": 1.0}, "psi must be finite and between 0 and 1, got 1.5"),
        ({"psi": 0.5, "mu": -1.0, "nu": 1.0}, "mu must be finite and >= 0, got -1.0"),
        ({"psi": 0.5, "mu": 1.0, "nu": -1.0}, "nu must be finite and >= 0, got -1.0"),
    ],
)
def test_bad_arguments(distribution, arguments, message):
    with pytest.raises(ValueError, match=message):
        distribution.dist(**arguments)


@pytest.mark.usefixtures("plain")
def test_a_share_that_turns_bad():
    psi = pt.scalar("psi")
    for distribution in BOTH:
        rv = distribution.dist(psi, mu=1.0, nu=1.0)
        with pytest.raises(pm.logprob.utils.ParameterValueError, match="0 <= psi <= 1"):
            pm.logp(rv, 2).eval({psi: 1.5})
        with pytest.raises(ValueError, match="between 0 and 1"):
            rv.eval({psi: 1.5})
