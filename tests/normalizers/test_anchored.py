"""Anchored normalisers of a family that has nothing to do with graphs: dice, by listing."""

import numpy as np
import pytest
from scipy.special import logsumexp, softmax

from pymc_bayessum.normalizers.anchored import (
    Data,
    NormalPrior,
    anchored,
    climb,
    default_anchored,
)
from pymc_bayessum.normalizers.anchored.averages import model_averages
from pymc_bayessum.normalizers.anchored.curve import curve_between
from pymc_bayessum.normalizers.anchored.draws import Walk
from pymc_bayessum.normalizers.anchored.estimated import Estimated
from pymc_bayessum.normalizers.anchored.moments import anchor_moments, moment_method
from pymc_bayessum.normalizers.coordinates import plain
from pymc_bayessum.normalizers.family import Family, LogConstant
from pymc_bayessum.normalizers.protocol import Normalizer

FACES = np.arange(12)
#: A location, a curvature, and a statistic that is a combination of both.
PHI = np.column_stack([FACES, (FACES - 6.0) ** 2, 2.0 * FACES + (FACES - 6.0) ** 2 - 3.0])
THETA = np.array([0.1, -0.05, 0.0])


class Die:
    """One die with twelve faces: statistics and draws, nothing else."""

    def statistics(self, states):
        return PHI[states[:, 0]]

    def sample(self, theta, n, rng, start=None):
        return rng.choice(FACES, size=(n, 1), p=softmax(PHI @ theta))


class GenerousDie(Die):
    """The same with all offers."""

    def __init__(self):
        self.asked = []

    def exact_mean(self, theta):
        self.asked.append("exact_mean")
        return softmax(PHI @ theta) @ PHI

    def conditional_means(self, theta, states, group):
        self.asked.append("conditional_means")
        return np.tile(self.exact_mean(theta), (group.max() + 1, 1))

    def coordinates(self):
        self.asked.append("coordinates")
        return plain(3)

    def log_constant(self, theta, rng):
        self.asked.append("log_constant")
        return LogConstant(float(logsumexp(PHI @ theta)), 0.0, "exact", 0.0, 12)

    @property
    def other_means(self):
        return {"twice": lambda theta, states: (2 * self.exact_mean(theta), np.ones((2, 3)))}


class WalkingDie(Die):
    """Draws by a Metropolis walk over the faces."""

    def chain(self, theta):
        return Steps(theta)


class Steps:
    name = "walk"

    def __init__(self, theta):
        self.energies = PHI @ theta

    def start(self, n, rng):
        return np.zeros((n, 1), dtype=int)

    def advance(self, states, sweeps, rng):
        states = states.copy()
        for _ in range(3 * sweeps):
            to = (states[:, 0] + rng.choice([-1, 1], len(states))) % 12
            rise = self.energies[to] - self.energies[states[:, 0]]
            moved = np.log(rng.random(len(states))) < rise
            states[moved, 0] = to[moved]
        return states

    def energy(self, states):
        return self.energies[states[:, 0]]


def exact_change(theta):
    return logsumexp(PHI @ theta) - logsumexp(PHI @ THETA)


def test_a_family_of_two_methods_is_enough():
    assert isinstance(Die(), Family)
    others = THETA + np.array([[0.1, 0.0, 0.0], [-0.1, 0.02, 0.0]])
    scores = []
    for seed in range(6):
        rule = anchored(
            Die(),
            np.stack([THETA, *others]),
            n=3000,
            n_moments=3000,
            rng=np.random.default_rng(seed),
        )
        assert rule.n_parameters == 2
        assert not rule.is_absolute
        assert rule.sampler == "own"
        for step in ([0.05, 0.01, 0.0], [-0.08, 0.0, 0.01], [0.0, 0.0, 0.01]):
            theta = THETA + step
            error = float(rule.log_z_at(np, theta)) - exact_change(theta)
            scores.append(error / np.sqrt(rule.change_variance(np, theta)))
            assert not rule.report_at(theta)["flagged"]
    assert isinstance(Estimated(rule), Normalizer)
    assert np.sqrt(np.mean(np.square(scores))) < 2.0
    assert rule.report_at(THETA + np.array([3.0, 0.0, 0.0]))["flagged"]


def test_chains_of_any_family_are_watched():
    walk = Walk(
        WalkingDie(), THETA, plain(3), np.random.default_rng(0), n_chains=200, means="plain"
    )
    walk.draw(20)
    assert walk.rows.shape == (20, 200, 3)
    assert walk.sampler == "walk"
    assert walk.settled
    assert walk.is_steady
    assert walk.burn_in > 0
    exact = softmax(PHI @ THETA) @ PHI
    found = anchor_moments(walk)
    error = found.batches.std(axis=0, ddof=1) / np.sqrt(len(found.batches))
    assert (np.abs(found.mean - exact) < 5.0 * error).all()


def test_averages_at_points_are_those_of_the_model():
    found = model_averages(
        Die(),
        np.stack([THETA, THETA]),
        plain(3),
        rounds=10,
        thin=1,
        start=np.zeros((1, 1), dtype=int),
        rng=np.random.default_rng(0),
    )
    chance = softmax(PHI @ THETA)
    sd = np.sqrt(chance @ (PHI - chance @ PHI) ** 2)
    assert found.n_draws == 1000
    assert (np.abs(found.means - chance @ PHI) < 4.0 * sd / np.sqrt(500)).all()


class Bits:
    """Ten bits with one common parameter."""

    def statistics(self, states):
        return states.sum(axis=1, keepdims=True).astype(float)

    def sample(self, theta, n, rng, start=None):
        return rng.random((n, 10)) < 1 / (1 + np.exp(-theta[0]))


def test_a_curve_of_a_family_of_one_parameter():
    how = {"start": np.zeros((1, 10)), "rng": np.random.default_rng(0), "progressbar": False}
    found = curve_between(Bits(), plain(1), -2.0, 3.0, **how)
    low, high = found.log_z_at(np, np.array([[0.0], [2.0]]))
    assert high - low == pytest.approx(10 * np.log((1 + np.exp(2.0)) / 2), abs=0.3)


def test_bits_of_which_seven_in_ten_were_set():
    data, mode = Data(np.array([7.0]), 100), np.log(7 / 3)
    vague, close = (NormalPrior(np.zeros(1), np.eye(1) * part) for part in (0.01, 1.0))
    where = np.zeros(1)
    found = climb(Bits(), data, plain(1), vague, where, n=2000, rng=np.random.default_rng(0))
    assert found.converged
    assert found.point == pytest.approx(mode, abs=0.01)
    how = {"progressbar": False, "rng": np.random.default_rng(0)}
    rule = default_anchored(Bits(), data, plain(1), close, **how)
    assert len(rule.anchors) == 3
    assert rule.centre == pytest.approx(mode, abs=0.05)


class OneSlowBit:
    """Twelve bits of which the first turns over in one sweep of ten, and the others in each."""

    def statistics(self, states):
        return states.astype(float)

    def sample(self, theta, n, rng, start=None):
        return rng.random((n, 12)) < 0.5

    def chain(self, theta):
        return self

    name = "slow"

    def start(self, n, rng):
        return self.sample(None, n, rng)

    def advance(self, states, sweeps, rng):
        new = self.sample(None, len(states), rng)
        new[:, 0] = np.where(rng.random(len(states)) < 1.0 - 0.9**sweeps, new[:, 0], states[:, 0])
        return new


def test_draws_are_spaced_by_the_slowest_of_many_statistics():
    walk = Walk(OneSlowBit(), np.eye(12)[1], plain(12), np.random.default_rng(0), n_chains=500)
    walk.draw(20)
    # Its correlation falls to one half in seven sweeps; the energy's is zero after one.
    assert 5 <= walk.thin <= 9
    assert walk.is_steady


def test_offers_are_taken():
    family = GenerousDie()
    rule = anchored(family, THETA, n=100, rng=np.random.default_rng(1))
    assert {"exact_mean", "coordinates", "log_constant"} <= set(family.asked)
    assert rule.moments.method == "exact"
    assert rule.n_parameters == 3
    assert float(rule.log_z_at(np, THETA)) == pytest.approx(logsumexp(PHI @ THETA))
    better = anchored(family, THETA, n=100, rng=np.random.default_rng(2), moments="rao-blackwell")
    np.testing.assert_allclose(better.moments.mean, family.exact_mean(THETA))
    twice = anchored(family, THETA, n=100, rng=np.random.default_rng(2), moments="twice")
    np.testing.assert_allclose(twice.moments.mean, 2 * family.exact_mean(THETA))
    with pytest.raises(ValueError, match=r"'rao-blackwell', 'twice', 'plain'.*got 'magic'"):
        moment_method(family, THETA, "magic")
    assert moment_method(Die(), THETA) == "plain"
    with pytest.raises(ValueError, match=r"one of \('plain',\), got 'exact'"):
        moment_method(Die(), THETA, "exact")


def test_climbing_and_defaults_need_the_data_s_statistics_alone():
    """Posterior of location and curvature from 40 throws, on a grid."""

    class Two(Die):
        def statistics(self, states):
            return PHI[states[:, 0], :2]

        def sample(self, theta, n, rng, start=None):
            return super().sample(np.append(theta, 0.0), n, rng)

    throws = Die().sample(np.array([0.3, -0.1, 0.0]), 40, np.random.default_rng(3))
    data = Data(Two().statistics(throws).mean(axis=0), 40)
    prior = NormalPrior(np.zeros(2), np.eye(2))
    mode = climb(Two(), data, plain(2), prior, np.zeros(2), n=2000, rng=np.random.default_rng(4))
    rule = default_anchored(
        Two(), data, plain(2), prior, rng=np.random.default_rng(5), progressbar=False
    )
    sd = np.sqrt(np.diag(np.linalg.inv(mode.curvature)))
    grids = [np.linspace(-4, 4, 25) * s + c for s, c in zip(sd, mode.point, strict=True)]
    points = np.stack(np.meshgrid(*grids, indexing="ij"), axis=-1).reshape(-1, 2)
    phi = PHI[:, :2]
    log_z = logsumexp(points @ phi.T, axis=1)
    log_prior = np.array([prior.log_density(point) for point in points])
    exact = softmax(40 * (points @ data.mean - log_z) + log_prior)
    mean = exact @ points
    assert mode.converged
    assert np.abs((mode.point - points[np.argmax(exact)]) / sd).max() < 0.4
    np.testing.assert_allclose(sd, np.sqrt(exact @ (points - mean) ** 2), rtol=0.15)
    found = softmax(40 * (points @ data.mean - rule.log_z_at(np, points)) + log_prior)
    assert 0.5 * np.abs(found - exact).sum() < 0.02
