"""One anchor for many parameters, put right by averages over the posterior, against listing."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import eigh
from scipy.special import softmax

from pymc_bayessum import graphs
from pymc_bayessum.graphs.anchors import AnchoredRule
from pymc_bayessum.graphs.coordinates import identifiable
from pymc_bayessum.graphs.family import PottsFamily
from pymc_bayessum.graphs.samplers import sample_exact
from pymc_bayessum.graphs.statistics import PottsLayout
from pymc_bayessum.normalizers.anchored.averages import Averages, curvature_of, gradients
from pymc_bayessum.normalizers.anchored.climbing import Data, NormalPrior
from pymc_bayessum.normalizers.anchored.defaults import default_anchored
from pymc_bayessum.normalizers.anchored.posterior import laplace_mean, posterior_sets
from pymc_bayessum.normalizers.anchored.reference import AveragedReference
from pymc_bayessum.normalizers.anchored.rule import Slope
from pymc_bayessum.normalizers.protocol import Asked

ITEMS, ROWS = 12, 500
LAYOUT = PottsLayout(ITEMS, 2, graphs.complete(ITEMS), "full", "edge", spins=True)
FAMILY = PottsFamily(LAYOUT)
COORDINATES = identifiable(LAYOUT)
STATES = np.array(list(itertools.product([0, 1], repeat=ITEMS)))
PRIOR = NormalPrior(np.zeros(COORDINATES.size), np.eye(COORDINATES.size))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    J = rng.normal(0.0, 0.3, LAYOUT.n_edges) * (rng.random(LAYOUT.n_edges) < 0.4)
    states = sample_exact(LAYOUT, rng.normal(0.0, 0.3, ITEMS), J, ROWS, rng)
    return states, Data(LAYOUT.mean_statistics(states), ROWS)


@pytest.fixture(scope="module")
def rule(data):
    states, facts = data
    return default_anchored(
        FAMILY,
        facts,
        COORDINATES,
        PRIOR,
        rng=np.random.default_rng(2),
        chains=states,
        progressbar=False,
        kind=AnchoredRule,
    )


@pytest.fixture(scope="module")
def posterior(rule):
    """Points of the posterior's normal approximation, its covariance, and exact gradients there."""
    precision = ROWS * rule.mean_and_covariance(COORDINATES.of(rule.centre))[1] + PRIOR.precision
    covariance = np.linalg.inv(precision)
    rng = np.random.default_rng(3)
    points = rng.multivariate_normal(COORDINATES.of(rule.centre), covariance, size=200)
    exact = [COORDINATES.select @ FAMILY.exact_mean(COORDINATES.parameters(p)) for p in points]
    return points, covariance, np.array(exact)


def moved(gradient, posterior):
    """Shifts of posterior means, in sds, that an error of the gradient of log Z makes."""
    _, covariance, exact = posterior
    return (ROWS * (gradient - exact) @ covariance) / np.sqrt(np.diag(covariance))


def test_the_posterior_mean_is_right(rule, posterior):
    shift = moved(gradients(rule, posterior[0]), posterior).mean(axis=0)
    # Predicted below .018, root mean square; that of 78 parameters has four times it at most.
    assert rule.precision.mean <= 0.018
    assert np.sqrt(np.mean(shift**2)) < 0.03
    assert np.abs(shift).max() < 0.1


def test_the_posterior_sds_are_right(rule, posterior):
    """First-order change of a variance: covariance of the parameter and the error's slope."""
    points, covariance, _ = posterior
    away = (points - points.mean(axis=0)) / np.sqrt(np.diag(covariance))
    stretch = 0.5 * np.mean(away * moved(gradients(rule, points), posterior), axis=0)
    assert abs(stretch.mean()) < 0.02
    assert np.abs(stretch).max() < 0.05


def test_the_curvature_of_all_points_together_is_the_mean_of_each(rule, posterior):
    points = posterior[0]
    found = curvature_of(rule, Averages(points, points, np.eye(COORDINATES.size), 0, 0))
    each = [rule.mean_and_covariance(point)[1] for point in points]
    np.testing.assert_allclose(found, np.mean(each, axis=0), atol=1e-12)


def test_the_curvature_on_average_is_the_model_s(rule, posterior):
    """In units of the model's own: noise of draws leaves a few per cent along any direction."""
    points = posterior[0][:40]
    found = np.mean([rule.mean_and_covariance(point)[1] for point in points], axis=0)
    rows = COORDINATES.rows(LAYOUT.statistics(STATES))[0]
    shares = softmax(points @ rows.T, axis=1)
    means = shares @ rows
    exact = (rows.T * shares.mean(axis=0)) @ rows - means.T @ means / len(points)
    ratio = eigh(found, exact, eigvals_only=True)
    assert np.sqrt(np.mean((ratio - 1.0) ** 2)) < 0.06
    assert 0.8 < ratio[0] < ratio[-1] < 1.2


def test_report_and_error_agree(rule):
    report = rule.report(n_rows=ROWS)
    assert not report["flagged"]
    assert report["mean_error"] == rule.precision.mean
    assert "posterior" in report["method"]


def test_points_follow_the_rule(rule, data):
    """Stein: the mean slope of the log density is zero, and its covariance the precision."""
    about = laplace_mean(rule, data[1], PRIOR)
    sets = posterior_sets(rule, data[1], PRIOR, about, np.random.default_rng(5))
    points = np.concatenate(list(itertools.islice(sets, 5)))
    slope = ROWS * (COORDINATES.select @ data[1].mean - gradients(rule, points))
    slope -= (points - PRIOR.mean) @ PRIOR.precision
    standard = slope @ np.linalg.cholesky(np.linalg.inv(about.precision))
    assert np.sqrt(np.mean(standard.mean(axis=0) ** 2)) < 0.08
    assert abs(np.mean(standard**2) - 1.0) < 0.1


def test_an_item_that_never_varies_is_flagged(data):
    """Nothing tells of its couplings: the posterior is as wide as the prior, and not normal."""
    states = data[0].copy()
    states[:, 0] = 1
    with pytest.warns(UserWarning, match="may be poor: draws may leave"):
        rule = default_anchored(
            FAMILY, Data(LAYOUT.mean_statistics(states), ROWS), COORDINATES, PRIOR,
            rng=np.random.default_rng(2), chains=states, progressbar=False, kind=AnchoredRule,
        )  # fmt: skip
    assert rule.report()["flagged"]
    # Where its other state is drawn too.
    assert len(rule.anchors) == 2
    assert rule.anchors[1, 0] < rule.anchors[0, 0]


def asked(points):
    values = [[COORDINATES.parameters(point)] for point in points[:100]]
    return Asked([], values, [], {}, np.random.default_rng(4))


def test_the_reference_sees_a_slope_that_is_off(rule, posterior):
    """Half an sd, put into the slope of one parameter, is found again."""
    points, covariance, _ = posterior
    off = np.zeros(COORDINATES.size)
    off[3] = 0.5 / (ROWS * np.sqrt(covariance[3, 3]))
    spoiled = replace(rule, slope=Slope(rule.slope.shift + off, 1.0))
    reference = AveragedReference(spoiled, asked(points))
    centre, step = reference.centre, covariance[:, 3] / np.sqrt(covariance[3, 3])

    def error(point):
        theta = COORDINATES.parameters(point)
        return float(spoiled.log_z_at(np, theta) - reference([], [theta]).log_z)

    shift = ROWS * (error(centre + step) - error(centre - step)) / 2.0
    assert abs(shift - 0.5) < 0.1
    assert reference.doubt is None
    assert np.isfinite(reference([], [COORDINATES.parameters(centre)]).sd)
