import math

import numpy as np
import pytest
from problems import PROBLEMS, having
from scipy import stats

from pymc_bayessum import measures
from pymc_bayessum.rules.baselines import (
    importance_sampling,
    monte_carlo,
    russian_roulette,
    stratified,
)
from pymc_bayessum.rules.rule import Estimate

POISSON = measures.Poisson(4.0)


def estimates(method, problem, n, repeats):
    rng = np.random.default_rng(12345)
    return [method(problem.f, problem.measure, n, rng) for _ in range(repeats)]


def z_score(means, exact):
    """Standardised distance of an average of independent estimates from the truth."""
    means = np.asarray(means)
    rounding = 1e-12 * max(abs(exact), 1.0)
    return (means.mean() - exact) / (means.std(ddof=1) / math.sqrt(len(means)) + rounding)


@pytest.mark.parametrize("method", [monte_carlo, stratified], ids=lambda m: m.__name__)
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_every_problem_without_bias(method, problem):
    found = estimates(method, problem, 48, 150)
    assert abs(z_score([e.mean for e in found], problem.exact)) < 4.0
    assert all(isinstance(e, Estimate) and e.n_evals == 48 and e.sd >= 0.0 for e in found)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_roulette_on_every_problem_without_bias(problem):
    found = estimates(russian_roulette, problem, 40, 400)
    assert abs(z_score([e.mean for e in found], problem.exact)) < 4.0
    # The number of evaluations is random, with the mean that was asked for.
    size = min(40.0, problem.measure.support.size)
    counts = [e.n_evals for e in found]
    if size == 40.0 and problem.measure.support.size > 1000:
        assert abs(z_score(counts, 40.0)) < 4.0


class Stops(np.random.Generator):
    """A generator whose geometric draws are given."""

    def __init__(self, draw):
        super().__init__(np.random.PCG64(0))
        self.draw = draw

    def geometric(self, p, size=None):
        return self.draw


@pytest.mark.parametrize("n", [2, 4, 11])
@pytest.mark.parametrize(
    ("measure", "f", "exact"),
    [
        (measures.Geometric(0.6), lambda x: 1.0 / (1.0 + x), -0.6 * math.log(0.6) / 0.4),
        (measures.Poisson(1.5), lambda x: 0.5**x, math.exp(-0.75)),
        (measures.Counting(12), lambda x: 1.0 + x, 91.0),
    ],
)
def test_roulette_averages_to_the_sum_over_all_its_stops(measure, f, exact, n):
    """Where it stops is the only thing left to chance, so its mean and variance can be summed."""
    survival = (n // 2) / (1.0 + n // 2)
    chance = lambda k: (1.0 - survival) * survival**k  # noqa: E731
    found = [russian_roulette(f, measure, n, Stops(k + 1)) for k in range(120)]
    mean = math.fsum(chance(k) * e.mean for k, e in enumerate(found))
    square = math.fsum(chance(k) * (e.mean - exact) ** 2 for k, e in enumerate(found))
    claimed = math.fsum(chance(k) * e.sd**2 for k, e in enumerate(found))
    assert mean == pytest.approx(exact, rel=1e-7)
    assert claimed == pytest.approx(square, rel=1e-4)


def test_sds_are_those_of_the_sampling_distribution():
    for method in (monte_carlo, stratified, russian_roulette):
        for problem in having("sites"):
            found = estimates(method, problem, 60, 200)
            spread = np.std([e.mean for e in found], ddof=1)
            claimed = math.sqrt(np.mean([e.sd**2 for e in found]))
            assert claimed == pytest.approx(spread, rel=0.35)


def test_importance_sampling_with_the_literature_proposals():
    problem = PROBLEMS[0]
    proposal = measures.NegativeBinomial(5.0, 5.0 / 35.0)
    rng = np.random.default_rng(5)
    found = [
        importance_sampling(problem.f, problem.measure, proposal, 100, rng) for _ in range(200)
    ]
    assert abs(z_score([e.mean for e in found], problem.exact)) < 4.0
    plain = estimates(monte_carlo, problem, 100, 200)
    assert np.std([e.mean for e in found]) < 0.6 * np.std([e.mean for e in plain])


def test_importance_sampling_from_the_summand_itself_has_no_error():
    """f proportional to q / p: exp(a x) under Poisson(4) is a Poisson(4 e^a) up to a constant."""
    f = lambda x: np.exp(0.3 * np.asarray(x))  # noqa: E731
    proposal = measures.Poisson(4.0 * math.exp(0.3))
    estimate = importance_sampling(f, POISSON, proposal, 10, rng=0)
    assert estimate.mean == pytest.approx(math.exp(4.0 * math.expm1(0.3)), rel=1e-12)
    assert estimate.sd < 1e-12


def test_importance_sampling_for_counting_measure_sums():
    estimate = importance_sampling(
        lambda x: np.full(len(x), 2.0), measures.Counting(9), measures.Counting(9), 20, rng=0
    )
    assert estimate.mean == pytest.approx(20.0)


def test_strata_follow_the_quantiles():
    estimate = stratified(lambda x: x, POISSON, 4000, rng=0)
    assert estimate.mean == pytest.approx(4.0, abs=5e-3)
    assert estimate.sd < 0.1 * monte_carlo(lambda x: x, POISSON, 4000, rng=0).sd
    seen = []
    stratified(lambda x: seen.append(x) or np.ones(len(x)), POISSON, 2000, rng=1)
    counts = np.bincount(seen[0], minlength=12)[:12]
    expected = 2000 * stats.poisson.pmf(np.arange(12), 4.0)
    assert np.abs(counts - expected).max() <= 4


def test_strata_on_sites_are_in_proportion():
    measure = measures.ProductCategorical([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4]])
    seen = []
    stratified(lambda x: seen.append(x) or np.ones(len(x)), measure, 100, rng=1)
    np.testing.assert_array_equal(np.bincount(seen[0][:, 0]), [70, 20, 10])


def test_strata_with_tiny_shares_still_get_two_draws():
    measure = measures.ProductCategorical([[0.98, 0.01, 0.01]])
    seen = []
    stratified(lambda x: seen.append(x) or np.ones(len(x)), measure, 10, rng=1)
    np.testing.assert_array_equal(np.bincount(seen[0][:, 0]), [6, 2, 2])


def test_seeds_repeat():
    for method in (monte_carlo, stratified, russian_roulette):
        first, second = (method(lambda x: x, POISSON, 20, rng=8) for _ in range(2))
        assert (first.mean, first.sd, first.n_evals) == (second.mean, second.sd, second.n_evals)


@pytest.mark.parametrize("method", [monte_carlo, stratified, russian_roulette])
def test_bad_input_is_named(method):
    with pytest.raises(TypeError, match="f must be a function"):
        method(3.0, POISSON, 10)
    with pytest.raises(TypeError, match="measure must be a measure"):
        method(np.sin, 4.0, 10)
    with pytest.raises(ValueError, match="n must be at least 2"):
        method(np.sin, POISSON, 1)
    with pytest.raises(ValueError, match="n must be an integer"):
        method(np.sin, POISSON, 10.5)
    with pytest.raises(ValueError, match="one value for each of"):
        method(lambda x: 1.0, POISSON, 10, rng=0)
    with pytest.raises(ValueError, match="finite values"):
        method(lambda x: np.full(len(x), np.nan), POISSON, 10, rng=0)


def test_bad_proposals_and_strata_are_named():
    with pytest.raises(TypeError, match="proposal must be a measure"):
        importance_sampling(np.sin, POISSON, 3.0, 10)
    with pytest.raises(ValueError, match="two for each of 3 strata, got 5"):
        stratified(lambda x: x[:, 0], measures.UniformCategorical(4, 3), 5)
    mixture = measures.Mixture(
        [0.5, 0.5], [measures.UniformCategorical(2, 2), measures.UniformCategorical(2, 2)]
    )
    with pytest.raises(ValueError, match="no strata here"):
        stratified(lambda x: x[:, 0], mixture, 10)
