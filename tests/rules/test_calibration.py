"""Coverage of posterior intervals: exact on the prior's own functions, fair on the paper's."""

import numpy as np
import pytest
from problems import chain_log_f, chain_mean
from scipy import stats

from pymc_bayessum.kernels import Brownian, ExpHamming, Stein
from pymc_bayessum.measures import Counting, ProductCategorical, UniformCategorical
from pymc_bayessum.rules.active import active_bayes_sum
from pymc_bayessum.rules.calibration import coverage
from pymc_bayessum.rules.hyper import select_kernel
from pymc_bayessum.rules.lowrank import nystroem_rule
from pymc_bayessum.rules.rule import Estimate, bayes_sum
from pymc_bayessum.rules.stein import stein_rule

LEVELS = np.array([0.5, 0.8, 0.9, 0.95])


def prior_draws(gram, n, rng):
    """Functions from a zero-mean Gaussian process, one a row."""
    values, vectors = np.linalg.eigh(gram)
    return rng.normal(size=(n, len(gram))) @ (vectors * np.sqrt(np.maximum(values, 0.0))).T


def within(found, n, margin=4.0):
    """Whether shares of n repetitions agree with the nominal levels up to sampling."""
    return (np.abs(found - LEVELS) < margin * np.sqrt(LEVELS * (1.0 - LEVELS) / n)).all()


class TestOnThePriorItself:
    """With the empirical-Bayes amplitude the standardised error has a t distribution, exactly."""

    @pytest.mark.parametrize("kind", ["sites", "counts"])
    def test_rules(self, kind):
        rng = np.random.default_rng(0)
        if kind == "sites":
            measure = ProductCategorical([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6], [0.1, 0.8, 0.1]])
            kernel, n_nodes = ExpHamming(0.6), 8
        else:
            measure, kernel, n_nodes = Counting(30), Brownian(), 6
        points = measure.support.enumerate()
        picked = rng.choice(len(points), n_nodes, replace=False)
        rule = bayes_sum(kernel, measure, points[picked])
        f = 7.0 * prior_draws(kernel(points, points), 4000, rng)
        estimate = rule.expectation(f[:, picked])
        exact = f @ np.exp(measure.log_prob(points))
        scores = (estimate.mean - exact) / estimate.sd
        assert stats.kstest(scores, stats.t(n_nodes).cdf).pvalue > 1e-3
        each = [Estimate(m, s, n_nodes) for m, s in zip(estimate.mean, estimate.sd, strict=True)]
        assert within(coverage(each, exact, degrees_of_freedom=n_nodes).observed, 4000)
        # A given amplitude leaves the normal distribution.
        fixed = rule.expectation(f[:, picked], amplitude=49.0)
        assert stats.kstest((fixed.mean - exact) / fixed.sd, stats.norm.cdf).pvalue > 1e-3

    def test_stein_rules(self):
        rng = np.random.default_rng(1)
        points = UniformCategorical(3, 3).support.enumerate()
        log_p = 0.5 * rng.normal(size=27)
        p = np.exp(log_p) / np.exp(log_p).sum()
        log_prob = lambda x: log_p[x @ np.array([9, 3, 1])]  # noqa: E731
        picked = rng.choice(27, 9, replace=False)
        rule = stein_rule(ExpHamming(0.5), log_prob, points[picked], 3)
        gram = Stein(ExpHamming(0.5), log_prob, 3)(points, points)
        f = 0.2 * prior_draws(gram, 4000, rng) + rng.normal(scale=100.0, size=(4000, 1))
        estimate = rule.expectation(f[:, picked])
        scores = (estimate.mean - f @ p) / estimate.sd
        assert stats.kstest(scores, stats.t(8).cdf).pvalue > 1e-3

    def test_low_rank_rules_with_a_given_amplitude(self):
        rng = np.random.default_rng(2)
        measure, kernel = UniformCategorical(4, 3), ExpHamming(0.4)
        points = measure.support.enumerate()
        picked = rng.choice(81, 50, replace=False)
        rule = nystroem_rule(kernel, measure, points[picked], rank=12, rng=0)
        f = prior_draws(kernel(points, points), 4000, rng)
        estimate = rule.expectation(f[:, picked], amplitude=1.0)
        scores = (estimate.mean - f.mean(axis=1)) / estimate.sd
        assert stats.kstest(scores, stats.norm.cdf).pvalue > 1e-3


class TestOnThePaper:
    def test_the_uniform_case(self):
        """The amplitude repairs most of it; intervals stay a little short."""
        measure = UniformCategorical(15, 3)
        kernels = [ExpHamming(decay) for decay in (0.003, 0.01, 0.03, 0.1)]
        estimates = []
        for seed in range(40):
            nodes = measure.sample_distinct(60, seed)
            y = np.exp(chain_log_f(nodes))
            kernel = select_kernel(kernels, nodes, y).kernel
            estimates.append(bayes_sum(kernel, measure, nodes).expectation(y))
        table = coverage(estimates, chain_mean())
        assert table.observed[0] > 0.25
        assert table.observed[-1] > 0.75
        assert (np.diff(table.observed) >= 0.0).all()

    def test_the_stein_case(self):
        estimates = []
        for seed in range(30):
            nodes = UniformCategorical(15, 3).sample_distinct(60, seed)
            rule = stein_rule(ExpHamming(0.01), lambda x: -chain_log_f(x), nodes, 3)
            estimates.append(rule.expectation(1.0 / (1.0 + np.exp(-nodes.mean(axis=1)))))
        observed = coverage(estimates, 0.7348879).observed
        assert observed[0] > 0.4
        assert observed[-1] > 0.85

    def test_active_designs_keep_their_error_bars(self):
        measure = UniformCategorical(6, 3)
        exact = chain_mean(6)
        estimates = [
            active_bayes_sum(
                lambda x: np.exp(chain_log_f(x)), ExpHamming(0.05), measure, 40, rng=seed
            ).estimate
            for seed in range(12)
        ]
        assert coverage(estimates, exact).observed[-1] > 0.7


class TestCoverage:
    def test_counts_by_hand(self):
        estimates = [Estimate(m, s, 5) for m, s in ((0.5, 1.0), (1.5, 1.0), (3.0, 1.0), (0.0, 0.0))]
        table = coverage(estimates, 0.0, levels=(0.5, 0.95))
        np.testing.assert_allclose(table.observed, [0.5, 0.75])
        np.testing.assert_allclose(table.scores, [0.5, 1.5, 3.0, 0.0])
        np.testing.assert_allclose(table.standard_error, np.sqrt([0.0625, 0.011875]))

    def test_an_error_without_an_sd_is_not_covered(self):
        assert coverage([Estimate(1.0, 0.0, 5)], 0.0).observed.tolist() == [0.0] * 4

    @pytest.mark.parametrize(
        ("estimates", "levels", "message"),
        [
            ([], (0.5,), "at least one"),
            ([Estimate(0.0, 1.0, 2)], (0.0,), "levels"),
            ([Estimate(0.0, 1.0, 2)], (1.5,), "levels"),
        ],
    )
    def test_bad_input(self, estimates, levels, message):
        with pytest.raises(ValueError, match=message):
            coverage(estimates, 0.0, levels)
