"""Weighted rows, pseudo-likelihoods without matrices, and modes found by chains: against lists."""

import pickle

import numpy as np
import pytest
from graph_models import listed
from scipy.optimize import minimize

import pymc_bayessum as pbs
from pymc_bayessum import graphs
from pymc_bayessum.graphs.annealing import annealed_importance
from pymc_bayessum.graphs.centring import centring
from pymc_bayessum.graphs.conditional_sums import conditional_sums, counts
from pymc_bayessum.graphs.coordinates import identifiable
from pymc_bayessum.graphs.moments import conditionals
from pymc_bayessum.graphs.pseudo import PseudoTarget, normal_prior, parameter_prior, pseudo_mode
from pymc_bayessum.graphs.samplers import sample_exact
from pymc_bayessum.graphs.statistics import PottsLayout

KINDS = [
    ("full", "full", False),
    ("full", "edge", False),
    ("full", "shared", False),
    ("shared", "scalar", False),
    ("full", "edge", True),
    ("scalar", "edge", True),
]


def simulated(field_kind, coupling_kind, ising, n=300):
    layout = PottsLayout(
        5, 2 if ising else 3, graphs.complete(5), field_kind, coupling_kind, spins=ising
    )
    rng = np.random.default_rng(0)
    truth = 0.4 * rng.normal(size=layout.n_parameters)
    return layout, sample_exact(layout, *layout.unflatten(truth), n, rng)


def exact_mode(layout, x, weights, prior_sd):
    """Mode over listed states by a general search."""
    statistics = layout.statistics(listed(layout, np.zeros(layout.n_parameters)).states)
    total = weights.sum()
    target = layout.mean_statistics(x, weights / total)

    def value(theta):
        energy = statistics @ theta
        top = energy.max()
        probs = np.exp(energy - top)
        log_z = top + np.log(probs.sum())
        probs /= probs.sum()
        found = total * (log_z - target @ theta) + 0.5 * theta @ theta / prior_sd**2
        slope = total * (probs @ statistics - target) + theta / prior_sd**2
        return found, slope

    options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-15, "gtol": 1e-8}
    start = np.zeros(layout.n_parameters)
    return minimize(value, start, jac=True, method="L-BFGS-B", options=options).x


def test_conditional_sums_are_those_of_the_conditionals():
    layout = PottsLayout(5, 3, graphs.grid(1, 5), "full", "full")
    rng = np.random.default_rng(1)
    x, weights = rng.integers(0, 3, (11, 5)), rng.random(11)
    h, J = layout.unflatten(rng.normal(size=layout.n_parameters))
    sums = conditional_sums(x, weights, h, J, layout.edges)
    probs = conditionals(x, h, J, layout.edges)
    own = np.take_along_axis(probs, x[..., None], axis=2)[..., 0]
    assert sums.log_prob == pytest.approx(weights @ np.log(own).sum(axis=1), abs=1e-10)
    np.testing.assert_allclose(sums.sites, np.einsum("n,nia->ia", weights, probs), atol=1e-12)
    here = np.eye(3)[x]
    for e, (i, j) in enumerate(layout.edges):
        wanted = np.einsum("n,na,nb->ab", weights, probs[:, i], here[:, j])
        wanted += np.einsum("n,na,nb->ab", weights, here[:, i], probs[:, j])
        np.testing.assert_allclose(sums.pairs[e], wanted, atol=1e-12)
    sites, pairs = counts(x, weights, layout.edges, 3)
    mean = np.concatenate([sites.ravel(), pairs.ravel()])
    np.testing.assert_allclose(mean, layout.mean_statistics(x, weights), atol=1e-12)


@pytest.mark.parametrize(("field_kind", "coupling_kind", "ising"), KINDS)
def test_centring_and_its_transpose(field_kind, coupling_kind, ising):
    layout, x = simulated(field_kind, coupling_kind, ising, n=40)
    sites, pairs = counts(x, np.full(40, 1.0 / 40), layout.edges, layout.n_states)
    precision = np.linspace(0.5, 2.0, layout.n_parameters)
    scaled = centring(layout, sites, pairs, 40.0, precision)
    rng = np.random.default_rng(2)
    u, slope = rng.normal(size=scaled.size), rng.normal(size=layout.n_parameters)
    assert scaled.lift(u) @ slope == pytest.approx(u @ scaled.drop(slope), abs=1e-10)


@pytest.mark.parametrize(("field_kind", "coupling_kind", "ising"), KINDS)
def test_pseudo_likelihood_without_a_matrix_is_that_with_one(field_kind, coupling_kind, ising):
    layout, x = simulated(field_kind, coupling_kind, ising)
    mean, variance = parameter_prior(layout, (0.1, 0.0), (2.0, 0.7))
    coordinates = identifiable(layout)
    prior, gain = normal_prior(coordinates, mean, variance)
    target = PseudoTarget(layout, x, np.ones(len(x)))
    point, value, _ = pseudo_mode(target, coordinates, prior)
    fit = pbs.pseudo_likelihood(
        layout.decode(x),
        layout.edges,
        field_kind=field_kind,
        coupling_kind=coupling_kind,
        ising=ising,
        prior_mean=(0.1, 0.0),
        prior_sd=(2.0, 0.7),
    )
    assert fit.converged
    np.testing.assert_allclose(fit.theta, mean + gain @ (point - prior.mean), atol=2e-4)
    assert fit.log_pseudo_likelihood == pytest.approx(value, abs=1e-3)


def test_weights_are_rows_repeated():
    layout, x = simulated("full", "full", False, n=100)
    times = np.random.default_rng(3).integers(0, 4, 100)
    repeated = np.repeat(x, times, axis=0)
    one = pbs.pseudo_likelihood(x, layout.edges, n_states=3, weights=times)
    two = pbs.pseudo_likelihood(repeated, layout.edges, n_states=3)
    np.testing.assert_allclose(one.theta, two.theta, atol=1e-5)
    assert one.log_pseudo_likelihood == pytest.approx(two.log_pseudo_likelihood, abs=1e-3)
    options = {"n_states": 3, "rng": 0, "n": 1000, "sampler": "exact", "progressbar": False}
    one = pbs.fit_potts(x, layout.edges, weights=times, **options)
    two = pbs.fit_potts(repeated, layout.edges, **options)
    assert one.n_rows == two.n_rows
    wanted = exact_mode(layout, x, times.astype(float), 1.0)
    sd = np.sqrt(np.diag(two.covariance))
    for fit in (one, two):
        assert np.sqrt(np.mean(((fit.theta - wanted) / sd) ** 2)) < 0.06
    np.testing.assert_allclose(one.theta, two.theta, atol=0.1 * sd.max())


@pytest.fixture(scope="module")
def weighted():
    layout, x = simulated("full", "full", False)
    weights = np.random.default_rng(4).choice([0.5, 1.0, 1.5], 300)
    return layout, x, weights


@pytest.fixture(scope="module")
def stochastic(weighted):
    layout, x, weights = weighted
    return pbs.fit_potts(
        x, layout.edges, weights=weights, method="stochastic", rng=5, progressbar=False
    )


def test_chains_find_the_mode_of_weighted_rows(weighted, stochastic):
    layout, x, weights = weighted
    wanted = exact_mode(layout, x, weights, 1.0)
    assert stochastic.converged
    assert stochastic.mode_error < 0.1
    assert stochastic.n_rows == pytest.approx(weights.sum())
    assert stochastic.pearson > 0.95
    # Posterior sds are some .2 here.
    assert np.sqrt(np.mean((stochastic.theta - wanted) ** 2)) < 0.03
    assert stochastic.chains.shape == (1000, 5)
    kept = pickle.loads(pickle.dumps(stochastic))
    np.testing.assert_array_equal(kept.theta, stochastic.theta)


def test_a_resumed_fit_is_one_that_never_stopped(weighted):
    layout, x, weights = weighted
    options = {"weights": weights, "method": "stochastic", "n_chains": 50, "progressbar": False}
    options |= {"start": (np.zeros((5, 3)), np.full((10, 3, 3), 2.0) * np.eye(3))}
    whole = pbs.fit_potts(x, layout.edges, max_rounds=2, rng=6, **options)
    first = pbs.fit_potts(x, layout.edges, max_rounds=1, rng=6, **options)
    second = pbs.fit_potts(
        x, layout.edges, weights=weights, max_rounds=1, resume=first, progressbar=False
    )
    assert len(whole.history) == len(second.history) == 2
    assert second.history[0] == first.history[0]
    np.testing.assert_array_equal(second.theta, whole.theta)
    np.testing.assert_array_equal(second.chains, whole.chains)


def test_group_priors_make_whole_tables_zero(weighted):
    """At the mode the slope of a table is at most the rate, and along it where it is not zero."""
    layout, x, weights = weighted
    rate = 15.0
    fit = pbs.fit_potts(x, layout.edges, weights=weights, group_rate=rate, rng=7, progressbar=False)
    assert fit.converged
    total = weights.sum()
    away = layout.mean_statistics(x, weights / total) - listed(layout, fit.theta).mean_statistics
    h, J = layout.unflatten(total * away - fit.theta)
    norm = np.linalg.norm(fit.J, axis=(1, 2))
    assert (norm == 0.0).any()
    assert (norm > 0.3).any()
    assert np.linalg.norm(J[norm == 0.0], axis=(1, 2)).max() < rate + 2.5
    seen = norm > 0.1
    along = rate * fit.J[seen] / norm[seen, None, None]
    assert np.linalg.norm(J[seen] - along, axis=(1, 2)).max() < 2.5
    assert np.abs(h).max() < 2.5


def test_spins_by_chains():
    layout, x = simulated("full", "edge", True)
    fit = pbs.fit_potts(
        layout.decode(x), layout.edges, ising=True, method="stochastic", rng=8, progressbar=False
    )
    wanted = exact_mode(layout, x, np.ones(300), 1.0)
    assert np.abs(fit.theta - wanted).max() < 0.03


def test_the_constant_and_held_out_rows(weighted, stochastic):
    layout, x, _ = weighted
    model = listed(layout, stochastic.theta)
    constant = stochastic.log_constant()
    assert constant.value == pytest.approx(model.log_z, abs=1e-8)
    logp = stochastic.log_likelihood(model.states, constant)
    assert np.exp(logp).sum() == pytest.approx(1.0, abs=1e-8)
    np.testing.assert_allclose(stochastic.log_likelihood(x), stochastic.log_likelihood(x, constant))
    scores = stochastic.contact_scores(gap=0)
    np.testing.assert_allclose(scores, pbs.contact_scores(stochastic.J, layout.edges, 5, gap=0))


def test_the_error_of_an_annealed_constant_covers_the_exact_one():
    layout = PottsLayout(6, 5, graphs.complete(6), "full", "full")
    rng = np.random.default_rng(10)
    h, J = 0.5 * rng.normal(size=(6, 5)), rng.normal(size=(15, 5, 5))
    exact = listed(layout, layout.flatten(h, J)).log_z
    found = [
        annealed_importance(h, J, layout.edges, 50, 40, np.random.default_rng(seed))
        for seed in range(10)
    ]
    away = np.array([(each.value - exact) / each.sd for each in found])
    assert found[0].base_variance > 1.0
    assert np.abs(away).max() < 4.0
    assert 0.3 < np.sqrt(np.mean(away**2)) < 1.8


def test_many_parameters_are_fitted_by_chains():
    """Twelve sites of eight states: more parameters than anchors take."""
    x = np.random.default_rng(9).integers(0, 8, (60, 12))
    x[:, 1] = x[:, 0]
    edges = graphs.complete(12)
    fit = pbs.fit_potts(x, edges, max_rounds=1, n_chains=40, rng=0, progressbar=False)
    assert isinstance(fit, pbs.StochasticPottsFit)
    assert fit.layout.n_parameters > 4000
    assert edges[np.argmax(fit.contact_scores())].tolist() == [0, 1]


ROWS = np.zeros((3, 4), dtype=int)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": np.ones(2)}, "weights must have one number for each of 3 rows, got 2"),
        ({"weights": [1.0, -1.0, 1.0]}, "weights must not be negative"),
        ({"weights": np.zeros(3)}, "weights must not be negative, nor all of them zero"),
        ({"weights": [1.0, np.nan, 1.0]}, "weights must hold finite numbers"),
        ({"weights": np.ones((3, 1))}, "weights must have 1 dimensions"),
    ],
)
def test_bad_weights_are_named(options, message):
    for fit in (pbs.pseudo_likelihood, pbs.fit_potts):
        with pytest.raises(ValueError, match=message):
            fit(ROWS, graphs.ring(4), **options)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"method": "slow"}, ValueError, "method must be one of"),
        ({"group_rate": -1.0}, ValueError, "group_rate"),
        ({"group_rate": 1.0, "coupling_kind": "scalar"}, ValueError, "coupling_kind='full'"),
        ({"group_rate": 1.0, "method": "anchored"}, ValueError, "stochastic"),
        ({"n_chains": 3, "method": "stochastic"}, ValueError, "n_chains"),
        ({"max_rounds": 0, "method": "stochastic"}, ValueError, "max_rounds"),
        ({"resume": "last"}, TypeError, "resume must be a fit"),
    ],
)
def test_bad_options_are_named(options, error, message):
    with pytest.raises(error, match=message):
        pbs.fit_potts(ROWS, graphs.ring(4), **options)


def test_a_fit_is_resumed_by_its_own_method(weighted, stochastic):
    layout, x, _ = weighted
    with pytest.raises(ValueError, match="not fitted with method='anchored'"):
        pbs.fit_potts(x, layout.edges, resume=stochastic, method="anchored")
    with pytest.raises(ValueError, match="another model"):
        pbs.fit_potts(x, graphs.ring(5), resume=stochastic)
    with pytest.raises(ValueError, match="out of range"):
        stochastic.log_likelihood(np.full((1, 5), 7))
