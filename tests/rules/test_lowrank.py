import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import chain_log_f, chain_mean

from pymc_bayessum.kernels import (
    ExpHamming,
    First,
    IntegratedBrownian,
    Kernel,
    Matern,
    Polynomial,
    Second,
    SquaredExponential,
    Stein,
)
from pymc_bayessum.measures import Counting, Poisson, Product, UniformCategorical, UniformInterval
from pymc_bayessum.rules.lowrank import nystroem_rule, pivot_rule
from pymc_bayessum.rules.rule import bayes_sum
from pymc_bayessum.rules.stein import stein_rule
from pymc_bayessum.solve.pivoted import LowRankGram, pivoted_cholesky

CHAIN = UniformCategorical(15, 3)


def chain(x):
    return np.exp(chain_log_f(x))


class Table(Kernel):
    """A kernel given by its Gram matrix on the points 0, ..., N - 1."""

    def __init__(self, matrix):
        self.matrix = np.asarray(matrix, dtype=float)

    def __call__(self, x, y):
        return self.matrix[np.ix_(x, y)]

    def diagonal(self, x):
        return np.diagonal(self.matrix)[x]


class TestFactor:
    @given(seed=st.integers(0, 1000), rank=st.integers(1, 40))
    @settings(max_examples=20, deadline=None)
    def test_exact_at_the_pivots_and_below_elsewhere(self, seed, rank):
        rng = np.random.default_rng(seed)
        points = UniformCategorical(6, 3).sample_distinct(40, rng)
        gram = ExpHamming(0.3)(points, points)
        partial = pivoted_cholesky(ExpHamming(0.3), points, rank, rng)
        product = partial.factor @ partial.factor.T
        np.testing.assert_allclose(product[partial.pivots], gram[partial.pivots], atol=1e-9)
        assert len(set(partial.pivots.tolist())) == partial.rank == rank
        left = gram - product
        np.testing.assert_allclose(partial.residual, np.diagonal(left), atol=1e-9)
        assert np.linalg.eigvalsh(left)[0] > -1e-9
        lower = partial.factor[partial.pivots]
        np.testing.assert_allclose(lower, np.tril(lower), atol=1e-9)

    def test_pivots_follow_the_residual_diagonal(self):
        """The chance of each pair of first pivots, by elimination on paper."""
        rng = np.random.default_rng(0)
        root = rng.normal(size=(4, 4))
        matrix = root @ root.T + np.diag([0.1, 1.0, 2.0, 4.0])
        expected = np.zeros((4, 4))
        for i in range(4):
            left = matrix - np.outer(matrix[i], matrix[i]) / matrix[i, i]
            left = np.where(np.arange(4) == i, 0.0, np.diagonal(left))
            expected[i] = matrix[i, i] / np.trace(matrix) * left / left.sum()
        n = 2000
        counts = np.zeros((4, 4))
        for _ in range(n):
            i, j = pivoted_cholesky(Table(matrix), np.arange(4), 2, rng).pivots
            counts[i, j] += 1
        sd = np.sqrt(n * expected * (1.0 - expected)) + 1e-9
        assert (np.abs(counts - n * expected) < 4.5 * sd).all()

    def test_a_matrix_of_low_rank_ends_early(self):
        partial = pivoted_cholesky(Polynomial(2), np.arange(30), 20, rng=0)
        assert partial.rank == 3
        assert partial.residual.max() < 1e-6 * 900.0**2

    def test_bad_input(self):
        with pytest.raises(ValueError, match="rank must be at most"):
            pivoted_cholesky(Matern(0.5, 1.0), np.arange(3), 4)
        with pytest.raises(ValueError, match="rank must be at least 1"):
            pivoted_cholesky(Matern(0.5, 1.0), np.arange(3), 0)


class TestGram:
    @given(seed=st.integers(0, 1000), noise=st.floats(1e-6, 10.0))
    @settings(max_examples=20, deadline=None)
    def test_agrees_with_the_dense_matrix(self, seed, noise):
        rng = np.random.default_rng(seed)
        factor = rng.normal(size=(12, 4))
        dense = factor @ factor.T + noise * np.eye(12)
        gram = LowRankGram(factor, noise)
        y = rng.normal(size=(3, 12))
        solved = np.linalg.solve(dense, y.T).T
        np.testing.assert_allclose(gram.quadratic_form(y), (y * solved).sum(axis=1), rtol=1e-6)
        np.testing.assert_allclose(gram.solve(y[0]), solved[0], rtol=1e-6, atol=1e-8 / noise)
        assert gram.log_det == pytest.approx(np.linalg.slogdet(dense)[1], rel=1e-8)
        np.testing.assert_allclose(np.square(gram.whiten(y)).sum(axis=1), gram.quadratic_form(y))


class TestNystroem:
    def setup_method(self):
        self.nodes = CHAIN.sample_distinct(500, 1)
        self.kernel = ExpHamming(0.03)
        self.full = bayes_sum(self.kernel, CHAIN, self.nodes)

    def test_full_rank_is_the_full_rule(self):
        rule = nystroem_rule(self.kernel, CHAIN, self.nodes, 500, rng=0)
        np.testing.assert_allclose(rule.weights, self.full.weights, atol=1e-7)
        assert rule.variance == pytest.approx(self.full.variance, rel=1e-5)
        assert rule.loss < 1e-6 * self.full.variance
        assert rule.trace_residual < 1e-12
        y = chain(self.nodes)
        assert rule.expectation(y).sd == pytest.approx(self.full.expectation(y).sd, rel=1e-3)

    @pytest.mark.parametrize("refine", [0, 1, 3])
    def test_the_variance_is_that_of_the_weights(self, refine):
        rule = nystroem_rule(self.kernel, CHAIN, self.nodes, 60, refine=refine, rng=0)
        gram = self.kernel(self.nodes, self.nodes)
        r = np.exp(-0.03)
        mean = np.full(500, (r + (1.0 - r) / 3.0) ** 15)
        w = rule.weights
        assert rule.variance == pytest.approx(mean[0] - 2.0 * w @ mean + w @ gram @ w, rel=1e-6)
        assert rule.variance >= self.full.variance * (1.0 - 1e-9)

    def test_more_rank_and_more_steps_lose_less(self):
        by_rank = [
            nystroem_rule(self.kernel, CHAIN, self.nodes, rank, 0, rng=0).variance
            for rank in (20, 100, 400)
        ]
        assert by_rank == sorted(by_rank, reverse=True)
        rules = [nystroem_rule(self.kernel, CHAIN, self.nodes, 100, k, rng=0) for k in range(5)]
        by_step = [rule.variance for rule in rules]
        assert by_step == sorted(by_step, reverse=True)
        assert {rule.unrefined_variance for rule in rules} == {by_step[0]}
        many = nystroem_rule(self.kernel, CHAIN, self.nodes, 100, 80, rng=0)
        assert many.variance == pytest.approx(self.full.variance, rel=1e-4)

    @pytest.mark.parametrize("rank", [30, 100, 300])
    @pytest.mark.parametrize("refine", [0, 2])
    def test_the_reported_loss_tells_the_size_of_the_true_one(self, rank, refine):
        rule = nystroem_rule(self.kernel, CHAIN, self.nodes, rank, refine, rng=3)
        true = rule.variance - self.full.variance
        assert true / 8.0 < rule.loss < 8.0 * true

    def test_all_values_beat_the_pivots_alone(self):
        rule = nystroem_rule(self.kernel, CHAIN, self.nodes, 60, refine=0, rng=0)
        few = pivot_rule(self.kernel, CHAIN, self.nodes, 60, rng=0)
        assert rule.variance < 0.5 * few.variance

    def test_the_estimate_and_its_sd(self):
        nodes = CHAIN.sample_distinct(3000, 4)
        rule = nystroem_rule(ExpHamming(0.02), CHAIN, nodes, 150, rng=0)
        estimate = rule.expectation(chain(nodes))
        assert abs(estimate.mean - chain_mean()) < 4.0 * estimate.sd
        assert estimate.sd < 3e-4
        assert estimate.n_evals == 3000

    @pytest.mark.parametrize(
        ("kernel", "measure", "f", "exact"),
        [
            (Matern(2.5, 10.0), Counting(900), lambda x: np.exp(-x / 50.0), None),
            (Matern(1.5, 5.0), Poisson(200.0), lambda x: x / 200.0, 1.0),
            (
                First(SquaredExponential(0.5)) + Second(ExpHamming(0.2)),
                Product(UniformInterval(0.0, 1.0), UniformCategorical(5, 3)),
                lambda z: z[0] ** 2 + z[1].sum(axis=1),
                1.0 / 3.0 + 5.0,
            ),
        ],
        ids=["counting", "poisson", "pairs"],
    )
    def test_other_domains(self, kernel, measure, f, exact):
        nodes = measure.sample_distinct(400, 0)
        rule = nystroem_rule(kernel, measure, nodes, 60, refine=3, rng=0)
        if exact is None:
            exact = float(np.exp(-np.arange(901) / 50.0).sum())
        estimate = rule.expectation(f(nodes))
        assert abs(estimate.mean - exact) < 5.0 * estimate.sd + 2e-3 * exact

    def test_memory_stays_within_rank_times_nodes(self):
        n, rank = 6000, 60
        nodes = CHAIN.sample_distinct(n, 0)
        tracemalloc.start()
        nystroem_rule(self.kernel, CHAIN, nodes, rank, refine=0, rng=0)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        # The factor takes 2.9 MB, blocks of the Gram matrix 4.2 MB each; the matrix 288 MB.
        assert peak < 60e6

    @pytest.mark.parametrize(
        ("change", "error", "message"),
        [
            ({"rank": 0}, ValueError, "rank must be at least 1"),
            ({"rank": 501}, ValueError, "rank must be at most"),
            ({"refine": -1}, ValueError, "refine"),
            ({"measure": None}, ValueError, "Stein kernel only"),
            ({"measure": "uniform"}, TypeError, "measure must be a Measure"),
            ({"kernel": None}, TypeError, "kernel must be a Kernel"),
            (
                {"kernel": IntegratedBrownian(1), "measure": Counting(9), "nodes": [1, 2]},
                ValueError,
                "polynomials free",
            ),
            ({"nodes": np.zeros((2, 15), dtype=int)}, ValueError, "distinct"),
        ],
    )
    def test_bad_input(self, change, error, message):
        arguments = {"kernel": self.kernel, "measure": CHAIN, "nodes": self.nodes, "rank": 2}
        with pytest.raises(error, match=message):
            nystroem_rule(**(arguments | change))


class TestStein:
    def test_agrees_with_the_full_rule(self):
        log_prob = lambda x: -chain_log_f(x)  # noqa: E731
        nodes = CHAIN.sample_distinct(500, 0)
        kernel = Stein(ExpHamming(0.01), log_prob, 3)
        full = stein_rule(ExpHamming(0.01), log_prob, nodes, 3)
        gram = kernel(nodes, nodes)
        y = 1.0 / (1.0 + np.exp(-nodes.mean(axis=1)))
        variances = []
        for rank, refine in ((50, 0), (50, 3), (500, 1)):
            rule = nystroem_rule(kernel, None, nodes, rank, refine, rng=0)
            assert rule.weights.sum() == pytest.approx(1.0, abs=1e-10)
            w = rule.weights
            assert rule.variance == pytest.approx(w @ gram @ w, rel=1e-6)
            assert rule.expectation(y).mean == pytest.approx(0.7348879, abs=1e-3)
            variances.append(rule.variance)
        assert variances == sorted(variances, reverse=True)
        assert variances[-1] == pytest.approx(full.variance, rel=1e-4)
        assert rule.expectation(y).mean == pytest.approx(full.expectation(y).mean, abs=1e-7)

    def test_nodes_need_two_dimensions(self):
        kernel = Stein(ExpHamming(0.1), lambda x: np.zeros(len(x)), 3)
        with pytest.raises(ValueError, match="shape"):
            nystroem_rule(kernel, None, [0, 1, 2], 2)


class TestPivots:
    def test_pivots_spread_better_than_draws(self):
        candidates = CHAIN.sample_distinct(1000, 0)
        pivots = [
            pivot_rule(ExpHamming(0.1), CHAIN, candidates, 80, rng=s).variance for s in range(5)
        ]
        draws = [
            bayes_sum(ExpHamming(0.1), CHAIN, candidates[80 * s : 80 * s + 80]).variance
            for s in range(5)
        ]
        assert np.mean(pivots) < np.mean(draws)

    def test_measure_is_checked(self):
        with pytest.raises(TypeError, match="measure must be a Measure"):
            pivot_rule(ExpHamming(0.1), None, [[0, 1]], 1)
