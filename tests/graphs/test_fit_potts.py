import numpy as np
import pytest
from graph_models import listed
from scipy.optimize import approx_fprime

import pymc_bayessum as pbs
from pymc_bayessum import graphs
from pymc_bayessum.graphs.coordinates import identifiable
from pymc_bayessum.graphs.family import PottsFamily
from pymc_bayessum.graphs.moments import conditionals
from pymc_bayessum.graphs.pseudo import PseudoTarget, pseudo_mode
from pymc_bayessum.graphs.samplers import sample_exact
from pymc_bayessum.graphs.statistics import PottsLayout
from pymc_bayessum.normalizers.anchored import NormalPrior


def exact_mode(layout, x, prior_sd=1.0):
    """Mode and Laplace covariance by Newton steps on listed states, normal prior on theta."""
    states = listed(layout, np.zeros(layout.n_parameters)).states
    statistics = layout.statistics(states)
    target, n = layout.mean_statistics(x), len(x)
    theta = np.zeros(layout.n_parameters)
    for _ in range(50):
        energy = statistics @ theta
        probs = np.exp(energy - energy.max())
        probs /= probs.sum()
        mean = probs @ statistics
        spread = (statistics * probs[:, None]).T @ statistics - np.outer(mean, mean)
        curvature = n * spread + np.eye(len(theta)) / prior_sd**2
        step = np.linalg.solve(curvature, n * (target - mean) - theta / prior_sd**2)
        theta = theta + step * min(1.0, 0.5 / np.abs(step).max())
    assert np.abs(step).max() < 1e-10
    return theta, np.linalg.inv(curvature)


@pytest.fixture(scope="module")
def dense():
    layout = PottsLayout(6, 3, graphs.complete(6), "full", "full")
    rng = np.random.default_rng(0)
    truth = np.concatenate([0.5 * rng.normal(size=18), 0.3 * rng.normal(size=135)])
    x = sample_exact(layout, *layout.unflatten(truth), 800, rng)
    return layout, x, *exact_mode(layout, x)


def test_pseudo_likelihood_and_its_slope():
    layout = PottsLayout(5, 3, graphs.ring(5), "full", "full")
    rng = np.random.default_rng(1)
    x, theta = rng.integers(0, 3, (7, 5)), rng.normal(size=layout.n_parameters)

    weights = rng.random(7)
    target = PseudoTarget(layout, x, weights)
    value, slope = target(theta)
    probs = conditionals(x, *layout.unflatten(theta), layout.edges)
    logs = np.log(np.take_along_axis(probs, x[..., None], axis=2))[..., 0]
    assert value == pytest.approx(-weights @ logs.sum(axis=1) / weights.sum(), abs=1e-10)
    numeric = approx_fprime(theta, lambda theta: target(theta)[0], 1e-7)
    np.testing.assert_allclose(slope, numeric, atol=1e-5)


@pytest.mark.parametrize(
    ("field_kind", "coupling_kind", "ising"),
    [
        ("shared", "scalar", False),
        ("full", "edge", False),
        ("full", "shared", False),
        ("scalar", "scalar", True),
        ("full", "edge", True),
    ],
)
def test_pseudo_likelihood_finds_the_parameters(field_kind, coupling_kind, ising):
    layout = PottsLayout(
        6, 2 if ising else 3, graphs.grid(2, 3), field_kind, coupling_kind, spins=ising
    )
    rng = np.random.default_rng(2)
    truth = 0.4 * rng.normal(size=layout.n_parameters)
    x = layout.decode(sample_exact(layout, *layout.unflatten(truth), 20_000, rng))
    fit = pbs.pseudo_likelihood(
        x, layout.edges, field_kind=field_kind, coupling_kind=coupling_kind, ising=ising
    )
    assert fit.converged
    away = identifiable(layout).of(fit.theta) - identifiable(layout).of(truth)
    assert np.abs(away).max() < 0.2
    assert fit.h.shape == layout.field_shape
    assert np.shape(fit.J) == layout.coupling_shape


def test_pseudo_likelihood_of_a_constant_image_is_finite():
    fit = pbs.pseudo_likelihood(
        np.ones((1, 25), dtype=int),
        graphs.grid(5, 5),
        field_kind="shared",
        coupling_kind="scalar",
        n_states=3,
    )
    assert np.isfinite(fit.theta).all()
    assert fit.J > 0.5


def test_the_prior_of_the_mode_is_the_one_given():
    """Without couplings the pseudo-likelihood is the likelihood, and its mode is known."""
    layout = PottsLayout(2, 2, np.zeros((0, 2), dtype=int), "full", "none", spins=True)
    x = np.array([[1, 1], [1, -1], [1, 1]])
    prior = NormalPrior(np.zeros(2), np.diag([4.0, 0.25]))
    target = PseudoTarget(layout, layout.encode(x), np.ones(len(x)))
    point, value, converged = pseudo_mode(target, identifiable(layout), prior)
    assert converged
    # d/dh: sum x - n tanh(h) - h / sd^2 = 0
    sums = x.sum(axis=0)
    np.testing.assert_allclose(sums - 3 * np.tanh(point) - [4.0, 0.25] * point, 0.0, atol=1e-5)
    wanted = (sums * point).sum() - 3 * np.log(2 * np.cosh(point)).sum()
    assert value == pytest.approx(wanted, abs=1e-8)


@pytest.mark.parametrize("sampler", ["exact", "gibbs"])
def test_the_mode_and_its_sds_are_exact_enough(dense, sampler):
    layout, x, mode, covariance = dense
    fit = pbs.fit_potts(
        x, layout.edges, sampler=sampler, moments="rao-blackwell", rng=3, progressbar=False
    )
    assert fit.converged
    assert fit.rule.n_nodes >= 10 * 72
    # Directions that change the model, scaled to unit posterior sd.
    basis = identifiable(layout).read
    unit = np.linalg.inv(np.linalg.cholesky(basis @ covariance @ basis.T))
    distance = np.sqrt(np.mean((unit @ basis @ (fit.theta - mode)) ** 2))
    assert distance < 0.06
    assert fit.mode_error < 0.06
    found = unit @ basis @ fit.covariance @ basis.T @ unit.T
    assert np.sqrt(np.mean(np.diag(found))) == pytest.approx(1.0, abs=0.04)
    np.testing.assert_allclose(
        np.sqrt(np.diag(fit.covariance)), np.sqrt(np.diag(covariance)), rtol=0.08
    )
    # The mode in all of theta, redundant directions included: those are the prior's to decide.
    np.testing.assert_allclose(fit.theta, mode, atol=0.1 * np.sqrt(np.diag(covariance)).max())
    h_sd, J_sd = fit.sd
    assert h_sd.shape == (6, 3)
    assert J_sd.shape == (15, 3, 3)


def test_far_starts_take_several_anchors_none_of_them_too_far(dense):
    layout, x, mode, covariance = dense
    far = layout.unflatten(-mode)
    fit = pbs.fit_potts(x, layout.edges, start=far, n=1500, rng=4, progressbar=False)
    assert fit.converged
    assert len(fit.history) > 2
    assert max(step["V"] for step in fit.history) <= 0.5 + 1e-9
    assert [step["inside"] for step in fit.history[:2]] == [False, False]
    np.testing.assert_allclose(fit.theta, mode, atol=0.15 * np.sqrt(np.diag(covariance)).max())


def test_fits_can_be_resumed(dense):
    layout, x, mode, _ = dense
    options = {"start": layout.unflatten(-mode), "n": 1500, "progressbar": False}
    first = pbs.fit_potts(x, layout.edges, max_anchors=1, rng=5, **options)
    assert not first.converged
    second = pbs.fit_potts(x, layout.edges, resume=first, n=1500, rng=6, progressbar=False)
    assert second.converged
    assert second.history[0] is first.history[0]
    assert len(second.history) > len(first.history)
    with pytest.raises(ValueError, match="another model"):
        pbs.fit_potts(x, graphs.ring(6), resume=first, progressbar=False)


def test_too_few_draws_are_told_and_refused(dense):
    layout, x, _, _ = dense
    few = pbs.fit_potts(x, layout.edges, n=200, rng=7, progressbar=False)
    assert "NUTS needs 360 at least" in few.advice
    with pytest.raises(ValueError, match="five draws a parameter"):
        _ = few.normalizer
    enough = pbs.fit_potts(x, layout.edges, n=720, rng=8, progressbar=False)
    assert "enough for NUTS" in enough.advice
    assert enough.normalizer is enough.rule


def test_few_draws_make_sds_too_wide_unless_corrected(dense):
    layout, x, _, covariance = dense
    fit = pbs.fit_potts(x, layout.edges, n=400, rng=9, sampler="exact", progressbar=False)
    point = fit.rule.coordinates.of(fit.theta)
    _, spread = fit.rule.mean_and_covariance(point)
    basis = identifiable(layout).read
    exact = basis @ covariance @ basis.T
    prior = np.linalg.inv(basis @ basis.T)
    raw = np.linalg.inv(len(x) * spread + prior)
    corrected = basis @ fit.covariance @ basis.T
    ratios = [np.sqrt(np.mean(np.diag(np.linalg.solve(exact, each)))) for each in (raw, corrected)]
    assert ratios[0] > 1.08
    # Gaussian theory would take off all of it; statistics that are rare leave some.
    assert abs(ratios[1] - 1.0) < 0.65 * (ratios[0] - 1.0)


def test_ising_fit_with_one_field_and_one_coupling():
    layout = PottsLayout(16, 2, graphs.grid(4, 4), "scalar", "scalar", spins=True)
    x = layout.decode(sample_exact(layout, 0.1, 0.3, 100, np.random.default_rng(10)))
    fit = pbs.fit_potts(
        x,
        layout.edges,
        field_kind="scalar",
        coupling_kind="scalar",
        ising=True,
        rng=11,
        progressbar=False,
    )
    # Exact mode by elimination.
    plan_theta, covariance = exact_mode_by_elimination(layout, x)
    sd = np.sqrt(np.diag(covariance))
    assert np.abs((fit.theta - plan_theta) / sd).max() < 0.06
    np.testing.assert_allclose(np.sqrt(np.diag(fit.covariance)), sd, rtol=0.05)


def exact_mode_by_elimination(layout, x):
    target, n = layout.mean_statistics(layout.encode(x)), len(x)
    draws = sample_exact(layout, 0.1, 0.3, 20_000, np.random.default_rng(0))
    spread = np.cov(layout.statistics(draws), rowvar=False)
    theta = np.array([0.1, 0.3])
    curvature = n * spread + np.eye(2)
    for _ in range(60):
        mean = PottsFamily(layout).exact_mean(theta)
        slope = n * (target - mean) - theta
        theta = theta + np.linalg.solve(curvature, slope)
    assert np.abs(slope).max() < 1e-6
    return theta, np.linalg.inv(curvature)


@pytest.mark.parametrize(
    ("observed", "options", "message"),
    [
        (np.zeros(4, dtype=int), {}, "observed must have shape"),
        (np.full((3, 4), -1), {}, "out of range"),
        (np.full((3, 4), 5), {"n_states": 3}, "out of range"),
        (np.zeros((3, 4), dtype=int), {"prior_sd": 0.0}, "prior_sd"),
        (np.zeros((3, 4), dtype=int), {"prior_sd": (np.ones(7), 1.0)}, "prior_sd"),
        (np.zeros((3, 4), dtype=int), {"field_kind": "wide"}, "field_kind"),
    ],
)
def test_bad_arguments(observed, options, message):
    for fit in (pbs.pseudo_likelihood, pbs.fit_potts):
        with pytest.raises(ValueError, match=message):
            fit(observed, graphs.ring(4), **options)
