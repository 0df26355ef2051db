"""No walls: CMP is finite and right wherever Poisson is, and far beyond."""

import mpmath as mp
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.logprob.utils import ParameterValueError
from scipy import stats
from scipy.special import expit, gammaln, log_expit, logsumexp

import pymc_bayessum as pbs
from pymc_bayessum.counts.cmp_sums.ops import CMPCumulants, CMPFromMean, CMPQuantile, CMPTail
from pymc_bayessum.counts.masses import Masses
from pymc_bayessum.counts.parametrization import chosen


def log_z_and_mean(eta, nu):
    """In 40 digits, by Euler and Maclaurin: integrals about the mode, or from a first count on."""
    with mp.workdps(40):
        eta, nu = mp.mpf(float(eta)), mp.mpf(float(nu))
        mode = mp.exp(eta / nu)
        width = mp.sqrt(mode / nu)
        top = eta * mode - nu * mp.loggamma(mode + 1)

        def f(x):
            return mp.exp(eta * x - nu * mp.loggamma(x + 1) - top)

        total = moment = mp.mpf(0)
        if width < 100:
            for x in range(max(int(mode - 14 * width - 3), 0), int(mode + 14 * width + 40)):
                total += f(x)
                moment += x * f(x)
        else:
            first, ends = 0, [mode + k * width for k in range(-15, 16)]
            if mode < 15 * width:
                first = 150
                ends = [mp.mpf(first) * 8**k for k in range(40) if first * 8**k < width / 4]
                ends += [k * width / 2 for k in range(1, 60)] + [40 * width, 60 * width]
            for x in range(first):
                total += f(x)
                moment += x * f(x)
            total += mp.quad(f, ends)
            moment += mp.quad(lambda x: x * f(x), ends)
            if first:
                total += f(first) / 2 - mp.diff(f, first) / 12 + mp.diff(f, first, 3) / 720
                g = lambda x: x * f(x)  # noqa: E731
                moment += g(first) / 2 - mp.diff(g, first) / 12 + mp.diff(g, first, 3) / 720
        return top + mp.log(total), moment / total


@pytest.mark.parametrize(
    ("mu", "nu"),
    [
        (12.3, 1e6),
        (3e5, 1e-5),
        (4e6, 1e6),
        (1e9, 2e-9),
        (1e9, 30.0),
        (1e15, 1e-3),
        (1e15, 1e6),
    ],
)
def test_outside_of_the_sums_against_forty_digits(mu, nu):
    eta, *of_mean = (float(x) for x in CMPFromMean().evaluate(np.log(mu), nu))
    truth, mean = log_z_and_mean(eta, nu)
    k = [float(x) for x in CMPCumulants(2).evaluate(eta, nu)]
    assert abs(k[0] / truth - 1) < 1e-12
    assert abs(of_mean[0] / truth - 1) < 1e-12
    # What the rounding of nu log(mode), and of the rate, does to the mean.
    felt = 1e-12 + 4e-16 * abs(eta) * k[3] / mu
    assert abs(k[1] / mean - 1) < felt
    assert abs(mean / mp.mpf(mu) - 1) < felt
    # The second derivatives are those of the first.
    h = 1e-5 * max(abs(eta), 1e-12)
    above, below = (CMPCumulants(1).evaluate(eta + s * h, nu)[1] for s in (1, -1))
    if mu / nu > 1e4:
        assert float((above - below) / (2 * h)) == pytest.approx(k[3], rel=1e-4)
    assert of_mean[1] == pytest.approx(mu / k[3], rel=1e-9)
    assert of_mean[2] == pytest.approx(-k[4] / k[3], rel=1e-9)


def test_rare_counts():
    """Zero, one and what two adds, in closed form."""
    for nu in (0.0, 0.7, 40.0, 1e6):
        for mu in (1e-300, 1e-100, 1e-18, 3e-17):
            eta, log_z, by_mu, by_nu, mean_l = CMPFromMean().evaluate(np.log(mu), nu)
            assert float(eta) == pytest.approx(np.log(mu), rel=1e-15)
            np.testing.assert_allclose([log_z, by_mu], [mu, 1.0], rtol=1e-13)
            two = np.exp(2 * np.log(mu) - nu * np.log(2)) * np.log(2)
            np.testing.assert_allclose(
                [by_nu * mu, mean_l], [2 * two, two], rtol=1e-12, atol=1e-300
            )


@pytest.mark.parametrize("mu", [0.3, 1e3, 1e9, 1e15])
def test_geometric_whatever_the_mean(mu):
    eta, log_z, by_mu, *_ = CMPFromMean().evaluate(np.log(mu), 0.0)
    np.testing.assert_allclose(eta, -np.log1p(1 / mu), rtol=1e-12)
    np.testing.assert_allclose(log_z, np.log1p(mu), rtol=1e-12)
    np.testing.assert_allclose(by_mu, 1 / (1 + mu), rtol=1e-11)


def everywhere(rng, n):
    """Parameters over the plane and on its inner and outer borders, as log mean and nu."""
    log_mu = rng.uniform(np.log(1e-300), np.log(1e15), n)
    nu = np.exp(rng.uniform(np.log(1e-20), np.log(1e6), n))
    third = n // 3
    log_mu[:third] = rng.uniform(np.log(1e-3), np.log(1e7), third)
    nu[: 2 * third] = np.exp(rng.uniform(np.log(1e-6), np.log(100), 2 * third))
    nu[rng.random(n) < 0.02] = 0.0
    mode = np.exp(np.clip(log_mu, -40, 40))
    # Borders: peaks of 1, 48 and 1e4, means of 1024 and 1e4, widths of 2, the end of the table.
    border = rng.integers(0, 12, n)
    near = 1 + rng.normal(0, 1, n) * 10.0 ** rng.uniform(-16, -1, n)
    for i, peak in enumerate((1.0, 48.0, 1e4)):
        nu = np.where(border == i, peak / mode * near, nu)
    for i, edge in enumerate((1.0, 16.0, 1024.0, 1e4)):
        log_mu = np.where(border == 3 + i, np.log(edge * np.abs(near)), log_mu)
    nu = np.where(border == 7, mode / 4.0 * near, nu)
    nu = np.where(border == 8, mode / 8.0 * near, nu)
    log_mu = np.where(border == 9, np.log(np.maximum(np.round(mode), 1.0)), log_mu)
    return log_mu, np.clip(np.abs(nu), 0.0, 1e6)


def test_a_million_points_without_a_hole():
    log_mu, nu = everywhere(np.random.default_rng(12), 1_000_000)
    by_mean = np.array(CMPFromMean().evaluate(log_mu, nu))
    assert np.all(np.isfinite(by_mean))
    k = np.array(CMPCumulants(3).evaluate(by_mean[0], nu))
    assert np.all(np.isfinite(k))
    # A rate is known to its rounding: a variance that is larger than the mean feels it.
    felt = 1e-10 + 4e-16 * np.abs(by_mean[0]) * k[3] / np.exp(log_mu)
    assert np.all(np.abs(k[1] / np.exp(log_mu) - 1) < felt)
    assert np.all(k[3] >= 0)
    log_mode = log_mu  # the same plane, read as log mode
    k = np.array(CMPCumulants(1).evaluate(nu * log_mode, nu))
    assert not np.any(np.isnan(k))
    assert np.all(np.isfinite(k[0]) | ((nu == 0.0) & (log_mode >= 0.0)) | (nu * log_mode == 0.0))


def test_the_known_holes_are_closed():
    mode, nu = 384.3548071328624, 0.16127286579217218
    log_z, mean, _ = CMPCumulants(1).evaluate(nu * np.log(mode), nu)
    x = np.arange(6000.0)
    assert float(log_z) == pytest.approx(logsumexp(x * nu * np.log(mode) - nu * gammaln(x + 1)))
    assert 384 < float(mean) < 390


@pytest.mark.parametrize("nu", [1e-12, 1e-4, 0.3, 1.0, 5.0])
def test_no_seam_out_to_the_largest_means(nu):
    """Values step as their derivatives say, to 1e-9 and less."""
    log_mu = np.linspace(np.log(1e3), np.log(1e15), 30_001)
    eta = CMPFromMean().evaluate(log_mu, np.full_like(log_mu, nu))[0]
    k = np.array(CMPCumulants(3).evaluate(eta, np.full_like(eta, nu)))
    h = np.diff(eta)
    step = h * (k[1][1:] + k[1][:-1]) / 2 - h**2 * np.diff(k[3]) / 12
    assert np.all(np.abs(np.diff(k[0]) - step) <= 1e-9 * np.abs(k[0][1:]))


@pytest.mark.parametrize("mu", [3e3, 1e6, 1e10, 1e15])
def test_tails_and_quantiles_of_poisson(mu):
    sd = np.sqrt(mu)
    x = np.floor(mu + sd * np.array([-6.0, -2.0, -0.3, 0.0, 0.5, 3.0]))
    eta = np.log(mu)
    # SciPy's own error at these counts is some 1e-16 of them, in units of an sd.
    rtol = 1e-9 + 3e-15 * sd
    lower = np.exp(CMPTail(False, 1).evaluate(x, eta, 1.0)[0])
    upper = np.exp(CMPTail(True, 1).evaluate(x, eta, 1.0)[0])
    np.testing.assert_allclose(lower, stats.poisson.cdf(x, mu), rtol=20 * rtol)
    np.testing.assert_allclose(upper, stats.poisson.sf(x, mu), rtol=20 * rtol)
    q = np.array([1e-8, 0.01, 0.5, 0.9, 1 - 1e-8])
    at = CMPQuantile().evaluate(q, eta, 1.0)[0]
    # Cornish and Fisher's expansion, to the next term.
    z = stats.norm.ppf(q)
    bell = mu + sd * z + (z**2 - 1) / 6 + (z - z**3) / (72 * sd)
    np.testing.assert_allclose(at, bell, rtol=0, atol=1.5 + 1e-7 * sd)


@pytest.mark.parametrize("mu", [40.0, 3e3, 1e6, 1e12])
def test_tails_and_quantiles_of_geometric(mu):
    eta = -np.log1p(1 / mu)
    x = np.floor(mu * np.array([0.0, 1e-3, 0.2, 1.0, 5.0, 60.0]))
    np.testing.assert_allclose(CMPTail(True, 1).evaluate(x, eta, 0.0)[0], eta * (x + 1), rtol=1e-9)
    lower = CMPTail(False, 1).evaluate(x, eta, 0.0)[0]
    np.testing.assert_allclose(lower, np.log(-np.expm1(eta * (x + 1))), rtol=1e-9, atol=1e-25)
    q = np.array([1e-3, 0.3, 0.9])
    expected = np.ceil(np.log1p(-q) / eta) - 1
    np.testing.assert_allclose(CMPQuantile().evaluate(q, eta, 0.0)[0], expected, rtol=1e-9, atol=1)


@pytest.mark.parametrize("form", ["mu", "lam"])
@pytest.mark.usefixtures("plain")
def test_prior_predictive_never_crashes(form):
    """Under the wide priors with which pm.Poisson draws on."""
    x = np.random.default_rng(1).normal(size=(50, 6))
    with pm.Model():
        beta = pm.Normal("beta", 0.0, 1.5, shape=6)
        first = pm.math.exp(pm.math.sum(x * beta, axis=1))
        pbs.CMP("y", **{form: first}, nu=pm.HalfNormal("nu", 2.0), shape=50)
        draws = pm.sample_prior_predictive(300, random_seed=3)["prior"]["y"]
    assert int(draws.min()) >= 0


LAST = 50 * np.log(2.0)  # log of the mean at which sums end


def far_out(form, counts, log_mean, nu):
    """Log-probabilities of a CMP given by the log of its large mean, and their sum's gradient."""
    first, dispersion = pt.vector("first"), pt.vector("dispersion")
    rv = pbs.CMP.dist(**{form: pt.exp(first)}, nu=dispersion)
    logp = pm.logp(rv, counts)
    outputs = [logp, *pt.grad(logp.sum(), [first, dispersion])]
    log_mean, nu = np.broadcast_arrays(np.asarray(log_mean, float), np.asarray(nu, float))
    log_first = nu * log_mean if form == "lam" else log_mean
    return pytensor.function([first, dispersion], outputs)(log_first, nu)


def asymptotic(count, log_mean, nu):
    """Log-probability in 40 digits by the expansion of log Z at a large mode, of the mode's log."""
    with mp.workdps(40):
        count, nu = mp.mpf(int(count)), mp.mpf(float(nu))
        log_mode = mp.mpf(float(log_mean))
        log_z = nu * mp.exp(log_mode) - (nu - 1) / 2 * (log_mode + mp.log(2 * mp.pi))
        log_z -= mp.log(nu) / 2
        return float(count * nu * log_mode - nu * mp.loggamma(count + 1) - log_z)


def bent(first, distance):
    """What log Z has beyond its line at a distance from where sums end, and both derivatives."""
    r, power = np.minimum(distance, 1.0), 2.0**50 * 1e-2 * first**4
    risen = r**2 * (3 - 2 * r)
    return power * first * risen, 5 * power * risen, power * first * 6 * r * (1 - r)


@pytest.mark.parametrize("form", ["mu", "lam", "mode"])
@pytest.mark.usefixtures("plain")
def test_beyond_all_counts_log_z_is_a_power(form):
    """It touches log Z at a mean of 2**50; derivatives are its own, at any distance."""
    counts, nu = np.array([0, 7, 3_000_000]), np.array([0.05, 1.0, 30.0])
    at, first_slope, nu_slope = far_out(form, counts, np.full(3, LAST), nu)
    edge = [asymptotic(*each) for each in zip(counts, np.full(3, LAST), nu, strict=True)]
    np.testing.assert_allclose(at, edge, rtol=1e-12)
    for distance in (1e-4, 1.0, 400.0, 1e4):
        value, *slopes = far_out(form, counts, np.full(3, LAST + distance), nu)
        # The powers are of the log of what is given, the rate or the mean.
        scale = nu if form == "lam" else np.ones(3)
        first = scale * (LAST + distance)
        line = (counts - 2.0**50) * nu * distance
        bend, by_first, by_distance = bent(first, first - scale * LAST)
        np.testing.assert_allclose(value, edge + line - bend, rtol=1e-12)
        np.testing.assert_allclose(slopes[0], first_slope - by_first - by_distance, rtol=1e-9)
        # At a rate held a larger nu ends the sums later.
        by_nu = LAST * by_distance if form == "lam" else line / nu
        np.testing.assert_allclose(slopes[1], nu_slope + by_nu, rtol=1e-9)


@pytest.mark.parametrize("form", ["mu", "lam", "mode"])
@pytest.mark.parametrize("nu", [0.0, 1e-300, 1e-100, 1e-50, 1e-8])
@pytest.mark.usefixtures("plain")
def test_gradients_at_a_vanishing_nu(form, nu):
    """By the rate below one, geometric; no mean is too large for a gradient."""
    log_mean = np.array([-800.0, -3.0, -1e-3, 2.0, 33.0, 100.0, 200.0, 800.0])
    first, dispersion = pt.vector("first"), pt.scalar("dispersion")
    logp = pm.logp(pbs.CMP.dist(**{form: pt.exp(first)}, nu=dispersion), np.full(8, 3))
    gradients = pt.grad(logp.sum(), [first, dispersion])
    value, *slopes = pytensor.function([first, dispersion], [logp, *gradients])(log_mean, nu)
    assert not any(np.isnan(each).any() for each in (value, *slopes))
    if form == "mu":
        assert all(np.isfinite(each).all() for each in (value, *slopes))
        mean = np.exp(log_mean[:4])
        geometric = 3 * (log_mean[:4] - np.log1p(mean)) - np.log1p(mean)
        np.testing.assert_allclose(value[:4], geometric, rtol=1e-6)
        np.testing.assert_allclose(slopes[0][:4], (3 - mean) / (1 + mean), rtol=1e-6, atol=1e-6)


@pytest.mark.usefixtures("plain")
def test_no_step_of_a_search_ends_at_a_nu_of_zero_or_infinity():
    """Above 1e12 a polynomial goes on for exp, whose derivatives it has there; 1e-30 is least."""
    counts = np.array([0, 1, 4])
    log_rate, log_nu = pt.scalar("log_rate"), pt.scalar("log_nu")
    logp = pm.logp(pbs.CMP.dist(lam=pt.exp(log_rate), nu=pt.exp(log_nu)), counts)
    gradient = pt.grad(logp.sum(), [log_rate, log_nu])
    at = pytensor.function([log_rate, log_nu], [logp, *gradient])

    # Above: the two terms that are left make Z, and log 4! is all that nu acts on.
    for t in (np.log(1e12), 40.0, 700.0, 5e4):
        value, by_rate, by_t = at(0.5, t)
        d = t - np.log(1e12)
        nu = 1e12 * (1 + d + d**2 / 2 + d**3 / 6 + d**4 / 24)
        expected = counts * 0.5 - nu * gammaln(counts + 1) - np.logaddexp(0.0, 0.5)
        np.testing.assert_allclose(value, expected, rtol=1e-12)
        np.testing.assert_allclose(by_rate, 5 - 3 * expit(0.5), rtol=1e-9)
        slope = 1e12 * (1 + d + d**2 / 2 + d**3 / 6)
        np.testing.assert_allclose(by_t, -slope * gammaln(5.0), rtol=1e-9)
    # Below: geometric where there is one, and else finite, with a way back.
    for t in (-60.0, -80.0, -800.0, -5e4):
        value, by_rate, by_t = at(-0.5, t)
        np.testing.assert_allclose(value, counts * -0.5 + np.log(-np.expm1(-0.5)), rtol=1e-12)
        np.testing.assert_allclose(by_t, 0.0, atol=1e-12)
        value, by_rate, by_t = at(0.5, t)
        assert np.all(np.isfinite(value))
        assert -np.inf < by_rate < 0 <= by_t < np.inf
    with pytest.raises(ParameterValueError):
        at(0.5, np.nan)


@pytest.mark.parametrize("nu", [1e11, 1.1e12, 1e20, 1e150])
@pytest.mark.usefixtures("plain")
def test_by_rate_an_immense_nu_leaves_zero_and_one(nu):
    """A Bernoulli count, whatever the rate below 2**nu."""
    eta = np.array([-1e6, -60.0, -39.0, -1.0, 0.0, 1e-3, 30.0, 1e6])
    for count in (0, 1):
        value, by_eta, by_nu = far_out("lam", np.full(8, count), eta / nu, nu)
        np.testing.assert_allclose(value, log_expit(eta if count else -eta), rtol=1e-9, atol=1e-14)
        np.testing.assert_allclose(by_eta, count - expit(eta), rtol=1e-9, atol=1e-14)
        np.testing.assert_allclose(by_nu, 0.0, atol=1e-300)
    variance = pbs.cmp_variance(lam=np.exp(eta[3:7]), nu=nu)
    np.testing.assert_allclose(variance, expit(eta[3:7]) * expit(-eta[3:7]), rtol=1e-9)


@pytest.mark.parametrize("form", ["lam", "mode"])
@pytest.mark.usefixtures("plain")
def test_counts_that_large_keep_their_log_z(form):
    """Given as numbers or as data; of a value not known beforehand there is no probability."""
    log_mean, nu = np.array([36.0, 40.0, 43.0]), np.array([0.3, 1.0, 4.0])
    counts = np.exp(log_mean + 0.01).astype(np.int64)
    expected = [asymptotic(*each) for each in zip(counts, log_mean, nu, strict=True)]
    largest = counts * nu * log_mean
    rv = pbs.CMP.dist(**{form: np.exp(nu * log_mean if form == "lam" else log_mean)}, nu=nu)
    data = pm.logp(rv, pytensor.shared(counts)).eval()
    for ours in (far_out(form, counts, log_mean, nu)[0], data):
        assert np.all(np.abs(ours - expected) < 4e-15 * largest)
    value = pt.lvector("value")
    assert np.all(pm.logp(rv, value).eval({value: counts}) == -np.inf)


@pytest.mark.usefixtures("plain")
def test_below_a_small_nu_sums_go_further():
    """Where 1 / nu is felt beside the mean: at nu = 1e-9 a mean of 2**50 is nothing special."""
    log_mean = LAST + np.array([0.0, 1.0, 5.0])
    value = far_out("mode", np.zeros(3, int), log_mean, 1e-9)[0]
    np.testing.assert_allclose(value, [asymptotic(0, m, 1e-9) for m in log_mean], rtol=1e-7)
    assert far_out("lam", np.zeros(1, int), [1.0], 0.0)[0] == -np.inf  # lam = 1 and nu = 0
    assert np.isfinite(far_out("mu", np.zeros(1, int), [40.0], 0.0)[0])


@pytest.mark.usefixtures("plain")
def test_truncated_far_beyond_its_bounds():
    """A count below 10 is 9 as the mean goes to infinity, but for rounding."""
    log_mean = pt.scalar("log_mean")
    rv = pm.Truncated.dist(pbs.CMP.dist(mode=pt.exp(log_mean), nu=1.3), upper=9)
    logp = pytensor.function([log_mean], pm.logp(rv, np.array([9, 4])))
    for far in (LAST - 1, LAST + 1, 60.0, 300.0):
        x = max(far - LAST, 0.0)
        rounding = (2.0**50 * 1.3 * (1 + x) + bent(far, x)[0]) * 4e-16
        expected = [0.0, 1.3 * (gammaln(10) - gammaln(5) - 5 * far)]
        np.testing.assert_allclose(logp(far), expected, rtol=0, atol=rounding)


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("form", ["mu", "lam", "mode"])
def test_tails_beyond_all_counts(form):
    """Of counts about such a mean they are a bell's; below all counts, and at no count, none."""
    log_mean, nu, value = 36.0, 0.7, pt.dvector("value")
    first = np.exp(nu * log_mean if form == "lam" else log_mean)
    rv = pbs.CMP.dist(**{form: first}, nu=nu)
    sds = np.array([-3.0, 0.0, 2.0])
    x = np.exp(log_mean) + sds * np.sqrt(np.exp(log_mean) / nu)
    lower = pm.logcdf(rv, value).eval({value: np.append(x, [-1.0, -np.inf, 12.0])})
    np.testing.assert_allclose(np.exp(lower[:3]), stats.norm.cdf(sds), atol=1e-6)
    assert np.all(lower[3:5] == -np.inf)
    assert lower[5] < -1e15
    masses = Masses.within_reach(chosen(**{form: first})[0], pt.log(first), pt.constant(nu))
    assert masses.log_tail(12.0, upper=True).eval() == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(("slope", "nu"), [(0.623, 0.1107), (-3.928, 0.087)])
@pytest.mark.usefixtures("plain")
def test_find_map_by_rate_from_means_beyond_all_counts(slope, nu):
    """Log Z itself would be 1e22 and more there, and a step in nu lose a search for good."""
    freight = pbs.datasets.freight()
    with pm.Model() as model:
        beta = pm.Normal("beta", 0.0, 10.0, shape=2)
        log_rate = beta[0] + beta[1] * freight["transfers"].to_numpy()
        nu_ = pm.math.exp(pm.Normal("log_nu", 0.0, 2.0))
        pbs.CMP("y", lam=pm.math.exp(log_rate), nu=nu_, observed=freight["broken"])
        starts = [([4.5, slope], np.log(nu)), ([10.0, 1.0], np.log(5.0))]
        ends = [
            pm.find_MAP({"beta": np.array(b), "log_nu": log_nu}, progressbar=False)
            for b, log_nu in starts
        ]
    logp = model.compile_logp()
    found, best = (logp({name: end[name] for name in ("beta", "log_nu")}) for end in ends)
    assert found == pytest.approx(best, abs=0.1)


POOR_STARTS = [
    ([0.5, 0.0, 0.0, 0.0], 0.0),  # a good one
    ([-3.6, -2.6, 3.0, 0.8], -2.5),
    ([-4.5, 4.7, -2.0, -1.9], 1.7),
    ([-1.7, 0.6, -1.0, 1.1], -2.0),
]


@pytest.mark.usefixtures("plain")
def test_find_map_by_mean_with_covariates_of_all_scales():
    """A step of one along the square of a firm's size takes the mean to exp(1000) and back."""
    bids = pbs.datasets.takeoverbids()
    design = np.column_stack([np.ones(len(bids)), bids[["bidprem", "size", "sizesq"]]])
    with pm.Model():
        beta = pm.Normal("beta", 0.0, 10.0, shape=4)
        nu = pm.math.exp(pm.Normal("log_nu", 0.0, 2.0))
        mean = pm.math.exp(pm.math.sum(design * beta, axis=1))
        pbs.CMP("y", mu=mean, nu=nu, observed=bids["numbids"])
        ends = []
        for at, log_nu in POOR_STARTS:
            start = {"beta": np.array(at), "log_nu": log_nu}
            ends.append(pm.find_MAP(start, progressbar=False, return_raw=True)[1].fun)
    np.testing.assert_allclose(ends, min(ends), atol=0.1)


@pytest.fixture(scope="module")
def wide_counts():
    """Counts over three orders of magnitude, on which an optimiser's first step is a long one."""
    rng = np.random.default_rng(5)
    x = rng.uniform(0.0, 3.0, 60)
    y = rng.poisson(np.exp(1.0 + 1.5 * x))
    with pm.Model() as model:
        intercept, slope = pm.Normal("intercept", 0, 10), pm.Normal("slope", 0, 10)
        nu = pm.HalfNormal("nu", 3.0)
        pbs.CMP("y", mu=pm.math.exp(intercept + slope * x), nu=nu, observed=y)
    return model


@pytest.mark.parametrize("start", [(2.0, 0.1, 1.0), (-4.0, -3.0, 10.0), (5.0, 3.0, 0.3)])
@pytest.mark.usefixtures("plain")
def test_find_map_from_poor_starts(wide_counts, start):
    """From where the first step lands at means of many millions: to what good starts find."""
    logp = wide_counts.compile_logp()
    names = ("intercept", "slope", "nu")
    with wide_counts:
        good, found = (
            pm.find_MAP(
                start=dict(zip(names, map(np.array, values), strict=True)), progressbar=False
            )
            for values in ((1.0, 1.5, 1.0), start)
        )
    heights = [logp({name: at[name] for name in at if name != "nu"}) for at in (good, found)]
    assert heights[1] == pytest.approx(heights[0], abs=0.1)


def test_jax_far_in_the_tail():
    jax = pytest.importorskip("jax")
    from pymc_bayessum.counts.cmp_sums import jax_ops

    eta = CMPFromMean().evaluate(np.log(0.02), 19.0)[0]
    counts = np.arange(60.0)
    terms = counts * eta - 19.0 * gammaln(counts + 1)
    x = np.array([0.0, 1.0, 2.0, 5.0])
    with jax.enable_x64(True):
        ours = jax_ops.log_tail(True, 1, x, np.full(4, eta), np.full(4, 19.0))[0]
    expected = [logsumexp(terms[int(k) + 1 :]) - logsumexp(terms) for k in x]
    np.testing.assert_allclose(ours, expected, rtol=1e-12)
