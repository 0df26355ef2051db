"""The line that says when counts are more spread than their distribution can be."""

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytest
import xarray as xr
from pymc.exceptions import ImputationWarning
from scipy.special import gammaln

import pymc_bayessum as pbs
from pymc_bayessum.diagnostics.fit import misfit
from pymc_bayessum.dims import CMP
from pymc_bayessum.normalizers import interpreted
from pymc_bayessum.normalizers.predicted import predicted

PLAIN = {"mode": interpreted.PLAIN}
LINE = "more spread than CMP can be: try negative binomial, zero-inflated or hurdle"


def posterior_around(**centres):
    """A hundred draws near given values."""
    rng = np.random.default_rng(1)
    return xr.Dataset(
        {
            name: (("chain", "draw"), centre * np.exp(0.02 * rng.normal(size=(2, 50))))
            for name, centre in centres.items()
        }
    )


def model_of(counts, distribution=pbs.CMP):
    with pm.Model() as model:
        mu, nu = pm.Gamma("mu", 2, 1), pm.LogNormal("nu", 0, 1)
        share = {} if distribution is pbs.CMP else {"psi": pm.Uniform("psi")}
        distribution("y", **share, mu=mu, nu=nu, observed=counts)
    return model


@pytest.fixture(scope="module")
def spread():
    """Most are zero and the variance is ten times the mean: no CMP is like that."""
    counts = np.random.default_rng(2).negative_binomial(0.33, 0.1, size=300)
    assert (counts == 0).mean() > 0.4
    return counts


def test_more_spread_than_a_geometric(spread):
    posterior = posterior_around(mu=spread.mean(), nu=0.004)
    checked = pbs.check_normalizer(posterior, model_of(spread), draws=60, progressbar=False)
    attrs = checked["normalizer"].attrs
    assert attrs["verdict"] == "good"
    assert LINE in attrs["fit"]
    assert "the dispersion is at its limit" in attrs["fit"]
    report = attrs["report"].splitlines()
    assert sum(LINE in line for line in report) == 1
    assert report[-1] == "  GOOD speaks of log Z, not of fit"


def test_named_dimensions(spread):
    """Of a mean that has them in another order than the data."""
    table = spread.reshape(3, 100)
    with pm.Model(coords={"place": range(3), "day": range(100)}) as model:
        mu, nu = pmd.Gamma("mu", alpha=2, beta=1), pmd.LogNormal("nu", mu=0, sigma=1)
        by_day = pmd.Data("by_day", np.ones((100, 3)), dims=("day", "place"))
        counts = pmd.Data("counts", table, dims=("place", "day"))
        CMP("y", mu=mu * by_day, nu=nu, observed=counts)
    posterior = posterior_around(mu=spread.mean(), nu=0.004)
    said = misfit(model, posterior, PLAIN)
    assert said == misfit(model_of(spread), posterior, PLAIN)
    assert LINE in said


def test_missing_observations_are_left_out(spread):
    """And the variable keeps the name it was given."""
    observed = np.ma.masked_array(spread, np.arange(len(spread)) == 3)
    with pytest.warns(ImputationWarning):
        model = model_of(observed)
    posterior = posterior_around(mu=spread.mean(), nu=0.004)
    posterior["y_unobserved"] = (("chain", "draw", "gone"), np.ones((2, 50, 1), dtype=int))
    assert misfit(model, posterior, PLAIN).startswith(f"y: {LINE}")


def test_too_many_zeros():
    rng = np.random.default_rng(3)
    counts = np.where(rng.random(400) < 0.4, 0, rng.poisson(6.0, 400))
    said = misfit(model_of(counts), posterior_around(mu=6.0, nu=1.0), PLAIN)
    assert LINE in said
    zeros = (counts == 0).mean()
    assert f"zeros {zeros:.0%} observed, 0% predicted" in said


@pytest.mark.parametrize("nu", [0.001, 0.3, 1.0, 5.0])
@pytest.mark.parametrize("mu", [0.05, 2.0, 40.0])
def test_nothing_is_said_of_counts_that_fit(mu, nu):
    """Geometric ones too, which are as spread as CMP can be."""
    for seed in range(3):
        counts = pm.draw(pbs.CMP.dist(mu=mu, nu=nu), 200, random_seed=seed)
        assert misfit(model_of(counts), posterior_around(mu=mu, nu=nu), PLAIN) == ""


@pytest.mark.parametrize(
    ("distribution", "said"),
    [
        (pbs.ZeroInflatedCMP, "more spread than a zero-inflated CMP can be"),
        (pbs.HurdleCMP, "more spread than a CMP hurdle can be"),
    ],
)
def test_with_zeros_of_their_own(distribution, said, spread):
    model = model_of(spread, distribution)
    assert said in misfit(model, posterior_around(mu=2.0, nu=1.0, psi=0.5), PLAIN)
    counts = pm.draw(distribution.dist(psi=0.5, mu=2.0, nu=1.0), 300, random_seed=1)
    model = model_of(counts, distribution)
    assert misfit(model, posterior_around(mu=2.0, nu=1.0, psi=0.5), PLAIN) == ""


@pytest.mark.parametrize("distribution", [pbs.CMP, pbs.ZeroInflatedCMP, pbs.HurdleCMP])
def test_predicted_moments_by_brute_force(distribution):
    x = np.arange(300.0)
    part = np.exp(x * np.log(1.3) - 0.6 * gammaln(x + 1))
    if distribution is pbs.HurdleCMP:
        part[0] = 0.0
    psi = 1.0 if distribution is pbs.CMP else 0.7
    masses = psi * part / part.sum() + (1 - psi) * (x == 0)
    share = {} if distribution is pbs.CMP else {"psi": psi}
    rv = distribution.dist(**share, lam=1.3, nu=0.6)
    moments = predicted(rv.owner.op, *rv.owner.inputs)
    mean = masses @ x
    expected = [mean, masses @ (x - mean) ** 2, masses[0]]
    found = [float(moment.eval(**PLAIN)) for moment in moments[:3]]
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_other_distributions_are_left_alone():
    with pm.Model() as model:
        pm.Poisson("y", mu=pm.Gamma("mu", 2, 1), observed=[0, 50, 0, 0])
    assert misfit(model, posterior_around(mu=1.0), PLAIN) == ""
