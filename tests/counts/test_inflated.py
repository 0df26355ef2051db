"""Zero-inflated and hurdle CMP against PyMC's Poisson ones at nu = 1, and by brute force."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.special import gammaln, logsumexp

import pymc_bayessum as pbs

COUNTS = np.arange(60)


def cmp_log_mass(lam, nu):
    terms = np.arange(400) * np.log(lam) - nu * gammaln(np.arange(400) + 1)
    return terms - logsumexp(terms)


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
    values = pytensor.function([psi, mu], logps)
    for arguments in [(0.3, 0.5), (0.9, 7.0)]:
        np.testing.assert_allclose(*values(*arguments), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("form", ["lam", "mode"])
def test_masses_are_those_of_the_formula(form):
    psi, nu, lam = 0.6, 0.5, 1.7
    first = {"lam": lam, "mode": lam ** (1 / nu)}[form]
    log_mass = cmp_log_mass(lam, nu)
    inflated = psi * np.exp(log_mass[: len(COUNTS)]) + (1 - psi) * (COUNTS == 0)
    hurdle = psi * np.exp(log_mass[: len(COUNTS)]) / -np.expm1(log_mass[0])
    hurdle[0] = 1 - psi
    for distribution, expected in [(pbs.ZeroInflatedCMP, inflated), (pbs.HurdleCMP, hurdle)]:
        logp = pm.logp(distribution.dist(psi=psi, nu=nu, **{form: first}), COUNTS).eval()
        np.testing.assert_allclose(logp, np.log(expected), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("distribution", [pbs.ZeroInflatedCMP, pbs.HurdleCMP])
def test_draws_follow_the_masses(distribution):
    counts = distribution.dist(psi=0.6, mu=4.0, nu=2.0)
    draws = pm.draw(counts, 20_000, random_seed=1)
    expected = np.exp(pm.logp(counts, np.arange(draws.max() + 1)).eval())
    observed = np.bincount(draws) / len(draws)
    tolerance = 4.5 * np.sqrt(expected * (1 - expected) / len(draws)) + 1e-4
    assert np.all(np.abs(observed - expected) < tolerance)


@pytest.mark.parametrize("distribution", [pbs.ZeroInflatedCMP, pbs.HurdleCMP])
def test_in_a_model_with_dims(distribution):
    observed = np.array([0, 0, 3, 1, 0, 5, 2])
    with pm.Model(coords={"row": np.arange(len(observed))}) as model:
        psi = pm.Beta("psi", 2, 2)
        mu = pm.Gamma("mu", 2, 1)
        nu = pm.LogNormal("nu", 0, 0.5)
        distribution("y", psi=psi, mu=mu, nu=nu, observed=observed, dims="row")
    point = model.initial_point()
    assert np.isfinite(model.compile_logp()(point))
    assert np.all(np.isfinite(model.compile_dlogp()(point)))
    with model:
        prior = pm.sample_prior_predictive(draws=5, random_seed=2)
    assert prior["prior_predictive"]["y"].sizes["row"] == len(observed)


def test_exactly_one_parametrisation():
    with pytest.raises(ValueError, match="mu"):
        pbs.ZeroInflatedCMP.dist(psi=0.5, mu=1.0, lam=1.0, nu=1.0)
