"""The line that says when counts are more spread than their distribution can be."""

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytensor.tensor as pt
import pytest
import xarray as xr
from pymc.exceptions import ImputationWarning
from scipy.special import gammaln

import pymc_bayessum as pbs
from pymc_bayessum.diagnostics import listed
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


def test_a_rare_zero_is_no_surprise():
    """One in thirty data sets like this has a zero, which is more than three sds from none."""
    counts = pm.draw(pbs.CMP.dist(mu=9.0, nu=1.0), 270, random_seed=1, **PLAIN)
    counts = np.append(counts[counts > 0], 0)
    assert misfit(model_of(counts), posterior_around(mu=9.0, nu=1.0), PLAIN) == ""


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


# Mixed, truncated and censored


def cmp(mu, nu, **kwargs):
    return pbs.CMP.dist(mu=mu, nu=nu, **kwargs)


def mixed(weights, *parts):
    return {"w": weights, "comp_dists": list(parts)}


SAID = {
    pm.Mixture: "more spread than this mixture: try one more component, or a negative binomial one",
    pm.Truncated: "more spread than a truncated CMP can be: try a truncated negative binomial",
    pm.Censored: "more spread than a censored CMP can be: try a censored negative binomial",
}
N = 300
HALVES = [0.5, 0.5]
SLOPE = np.linspace(0.2, 0.8, N)
#: Each by what it is given: from 5 counts on average to 10, in 300 rows.
WRAPPED = {
    "two": (pm.Mixture, lambda mu, nu: mixed(HALVES, cmp(mu, nu), cmp(3 * mu, nu))),
    "two, stacked": (
        pm.Mixture,
        lambda mu, nu: {"w": HALVES, "comp_dists": cmp(pt.stack([mu, 3 * mu]), nu, shape=2)},
    ),
    "two by row": (
        pm.Mixture,
        lambda mu, nu: mixed(
            np.stack([SLOPE, 1 - SLOPE], axis=-1), cmp(mu + SLOPE, nu), cmp(3 * mu, nu)
        ),
    ),
    "with Poisson": (
        pm.Mixture,
        lambda mu, nu: mixed([0.3, 0.7], pm.Poisson.dist(0.5), cmp(mu, nu)),
    ),
    "with zeros": (
        pm.Mixture,
        lambda mu, nu: mixed([0.1, 0.9], pm.DiracDelta.dist(0), cmp(mu, nu)),
    ),
    "two, truncated": (
        pm.Mixture,
        lambda mu, nu: mixed(
            HALVES,
            pm.Truncated.dist(cmp(mu, nu), lower=1),
            pm.Truncated.dist(cmp(3 * mu, nu), upper=60),
        ),
    ),
    "from one on": (pm.Truncated, lambda mu, nu: {"dist": cmp(mu, nu), "lower": 1}),
    "up to 60": (pm.Truncated, lambda mu, nu: {"dist": cmp(mu, nu), "upper": 60}),
    "bounds by row": (
        pm.Truncated,
        lambda mu, nu: {"dist": cmp(mu + SLOPE, nu), "lower": np.arange(N) % 2, "upper": 70},
    ),
    "inflated from one on": (
        pm.Truncated,
        lambda mu, nu: {"dist": pbs.ZeroInflatedCMP.dist(psi=0.9, mu=mu, nu=nu), "lower": 1},
    ),
    "clipped at 50": (pm.Censored, lambda mu, nu: {"dist": cmp(mu, nu), "upper": 50}),
    "clipped at both": (
        pm.Censored,
        lambda mu, nu: {"dist": cmp(mu + SLOPE, nu), "lower": 1, "upper": np.full(N, 50)},
    ),
    "clipped mixture": (
        pm.Censored,
        lambda mu, nu: {
            "dist": pm.Mixture.dist(**mixed(HALVES, cmp(mu, nu), cmp(3 * mu, nu))),
            "upper": 50,
        },
    ),
}


def wrapped_model(name, counts):
    wrap, arguments = WRAPPED[name]
    with pm.Model() as model:
        mu, nu = pm.Gamma("mu", 2, 1), pm.LogNormal("nu", 0, 1)
        wrap("y", **arguments(mu, nu), observed=counts)
    return model


@pytest.fixture(scope="module")
def two_heaps():
    """Ones and fifties: nothing of a single heap is like that, nor two that are not far apart."""
    return np.random.default_rng(4).choice([1, 50], size=N, p=[0.85, 0.15])


@pytest.mark.parametrize("name", WRAPPED)
def test_wrapped_counts_that_are_more_spread(name, two_heaps):
    """Though the dispersion is at its limit and the mean is right."""
    scale = 0.5 if "two" in name or "mixture" in name else 1.0
    posterior = posterior_around(mu=scale * two_heaps.mean(), nu=0.004)
    said = misfit(wrapped_model(name, two_heaps), posterior, PLAIN)
    assert said.startswith(f"y: {SAID[WRAPPED[name][0]]} (variance ")


@pytest.mark.parametrize("nu", [0.01, 2.0])
@pytest.mark.parametrize("name", WRAPPED)
def test_nothing_is_said_of_wrapped_counts_that_fit(name, nu):
    wrap, arguments = WRAPPED[name]
    posterior = posterior_around(mu=5.0, nu=nu)
    for counts in pm.draw(wrap.dist(**arguments(5.0, nu), shape=N), 2, random_seed=1, **PLAIN):
        assert misfit(wrapped_model(name, counts), posterior, PLAIN) == ""


@pytest.mark.parametrize("name", WRAPPED)
def test_masses_are_listed_as_the_log_probability_has_them(name):
    wrap, arguments = WRAPPED[name]
    rv = wrap.dist(**arguments(5.0, 0.6), shape=N)
    masses = listed.listed(rv, 3, [], [[]], PLAIN)
    np.testing.assert_allclose(masses.sum(axis=0), 1.0, atol=listed.MISSING)
    for x in (0, 1, 2, 7, 50, 60, 61):
        direct = np.exp(pm.logp(rv, np.full(N, x)).eval(**PLAIN))
        np.testing.assert_allclose(masses[x] + np.zeros(N), direct, rtol=1e-9, atol=1e-12)


def test_a_mixture_in_the_report(two_heaps):
    posterior = posterior_around(mu=4.0, nu=0.3)
    model = wrapped_model("two", two_heaps)
    checked = pbs.check_normalizer(posterior, model, draws=60, progressbar=False)
    assert f"  y: {SAID[pm.Mixture]} (" in checked["normalizer"].attrs["report"]


def test_nothing_is_said_where_masses_are_too_many_or_do_not_add_up(monkeypatch, two_heaps):
    posterior = posterior_around(mu=1e7, nu=1.0)
    assert misfit(wrapped_model("from one on", two_heaps), posterior, PLAIN) == ""
    with pm.Model() as model:
        mu, nu = pm.Gamma("mu", 2, 1), pm.LogNormal("nu", 0, 1)
        rough = cmp(mu, nu, normalizer=pbs.poisson_rule(3.0, n=3))
        pm.Truncated("y", rough, lower=1, observed=two_heaps)
    monkeypatch.setattr(listed, "MOST_MASSES", 100_000)
    assert misfit(model, posterior_around(mu=8.0, nu=1.0), PLAIN) == ""


def test_mixtures_of_others_are_left_alone(two_heaps):
    with pm.Model() as model:
        mu = pm.Gamma("mu", 2, 1)
        parts = [pm.Poisson.dist(mu), pm.Poisson.dist(2 * mu)]
        pm.Mixture("y", HALVES, parts, observed=two_heaps)
        pm.Censored("z", pm.Poisson.dist(mu), upper=60, observed=two_heaps)
        pm.Truncated("t", pm.Poisson.dist(mu), upper=60, observed=two_heaps)
    assert misfit(model, posterior_around(mu=6.0), PLAIN) == ""


@pytest.mark.parametrize("name", ["two", "from one on", "clipped at 50"])
def test_wrapped_counts_with_missing_ones(name, two_heaps):
    """Nothing is said: PyMC hides them in a variable of its own."""
    observed = np.ma.masked_array(two_heaps, np.arange(N) == 3)
    with pytest.warns(ImputationWarning):
        model = wrapped_model(name, observed)
    posterior = posterior_around(mu=4.0, nu=0.3)
    posterior["y_unobserved"] = (("chain", "draw", "gone"), np.ones((2, 50, 1), dtype=int))
    assert misfit(model, posterior, PLAIN) == ""
