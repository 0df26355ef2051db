"""One registry of solvers: which is chosen, that they agree, and how a new one joins."""

import math
from unittest.mock import patch

import mpmath as mp
import numpy as np
import pytest
from problems import having

from pymc_bayessum import kernels as ks
from pymc_bayessum import measures as ms
from pymc_bayessum import solve
from pymc_bayessum.embeddings import embed
from pymc_bayessum.rules.hyper import best_of
from pymc_bayessum.rules.rule import bayes_sum
from pymc_bayessum.solve.banded import MarkovGram
from pymc_bayessum.solve.closed import BrownianGram
from pymc_bayessum.solve.feature import PolynomialGram
from pymc_bayessum.solve.gram import ScaledGram

NODES = np.array([3, 0, 7, 12, 5])


@pytest.mark.parametrize(
    ("kernel", "measure", "gram"),
    [
        (ks.Brownian(), ms.Poisson(4.0), BrownianGram),
        (ks.Brownian(), ms.Mixture([0.5, 0.5], [ms.Poisson(4.0), ms.Geometric(0.3)]), BrownianGram),
        (ks.Brownian(), None, BrownianGram),
        (ks.Brownian(0.0), ms.Poisson(4.0), solve.DenseGram),  # a node at zero is known already
        (ks.Brownian(), ms.Geometric(1e-8), solve.DenseGram),  # too many integers to list
        (ks.Brownian(), ms.UniformInterval(0.0, 20.0), solve.DenseGram),
        (ks.Matern(1.5, 4.0), ms.Skellam(4.0, 2.0), MarkovGram),
        (ks.Matern(1.5, 4.0), None, MarkovGram),
        (ks.Matern(1.5, 4.0), ms.UniformInterval(0.0, 20.0), solve.DenseGram),
        (ks.Matern(1.5, 4.0, lambda x: np.abs(x - 5.5)), None, solve.DenseGram),  # does not rise
        (ks.IntegratedBrownian(1), ms.Counting(20), MarkovGram),
        (ks.Polynomial(2), ms.Geometric(0.3), PolynomialGram),
        (ks.Polynomial(2), None, PolynomialGram),
        (ks.SquaredExponential(2.0), ms.Counting(20), solve.DenseGram),
        (2.0 * ks.Brownian(), ms.Poisson(4.0), ScaledGram),
        (ks.Brownian() + ks.Brownian(), ms.Poisson(4.0), solve.DenseGram),
    ],
)
def test_the_solver_is_that_of_the_kernel_and_the_measure(kernel, measure, gram):
    nodes = NODES + 1 if kernel == ks.Brownian(0.0) and measure is None else NODES
    solution = solve.solve(kernel, measure, nodes)
    assert type(solution.gram) is gram
    assert (solution.weights is None) == (measure is None)


CHOICES = {
    "naturals": [ks.Brownian(), ks.Matern(2.5, 6.0), ks.Polynomial(3), 3.0 * ks.Brownian(0.5)],
    "integers": [ks.Matern(1.5, 6.0), ks.Polynomial(3)],
}


@pytest.mark.parametrize(
    ("problem", "tag"),
    [(problem, tag) for tag in CHOICES for problem in having(tag)],
    ids=lambda value: getattr(value, "name", value),
)
def test_every_solver_agrees_with_the_definition(problem, tag):
    """Weights K^-1 mu and the variance, and the Gram matrix, from plain linear algebra."""
    start = 1 if isinstance(problem.measure, ms.Logarithmic) else 0
    nodes = start + np.array([6, 1, 14, 3])
    y = np.cos(nodes)
    for kernel in CHOICES[tag]:
        gram = kernel(nodes, nodes)
        embedding = embed(kernel, problem.measure)
        mean = embedding.mean(nodes)
        weights = np.linalg.solve(gram, mean)
        solution = solve.solve(kernel, problem.measure, nodes)
        assert not isinstance(solution.gram, solve.DenseGram)
        scale = np.abs(weights).max()
        np.testing.assert_allclose(solution.weights, weights, rtol=1e-7, atol=1e-9 * scale)
        # What is left is a difference of numbers of the size of the initial error.
        variance = embedding.initial_error - weights @ mean
        error = 1e-9 * embedding.initial_error
        assert solution.variance == pytest.approx(variance, rel=1e-6, abs=error)
        for answer in (solution.gram, solve.factorize(kernel, nodes)):
            form = y @ np.linalg.solve(gram, y)
            assert answer.quadratic_form(y) == pytest.approx(form, rel=1e-8)
            assert answer.log_det == pytest.approx(np.linalg.slogdet(gram)[1], rel=1e-8, abs=1e-8)


class Diagonal(ks.Kernel):
    """White noise of variance two."""

    def __call__(self, x, y):
        return 2.0 * np.equal.outer(x, y)

    def diagonal(self, x):
        return np.full(len(x), 2.0)


def test_a_new_solver_is_one_registration():
    asked = []
    measure = ms.Poisson(3.0)
    by_default = bayes_sum(Diagonal(), measure, NODES)
    with patch.dict(solve.SOLVERS.entries):

        @solve.register(Diagonal, ms.IntegerMeasure)
        def solve_diagonal(kernel, measure, points, jitter):
            asked.append(jitter)
            gram = solve.DenseGram(math.sqrt(2.0) * np.eye(len(points)))
            if measure is None:
                return solve.Solution(gram)
            weights = np.exp(measure.log_prob(points))
            everything = measure.integers()
            total = 2.0 * np.square(np.exp(measure.log_prob(everything))).sum()
            return solve.Solution(gram, weights, float(total - 2.0 * weights @ weights))

        rule = bayes_sum(Diagonal(), measure, NODES)
        np.testing.assert_allclose(rule.weights, by_default.weights, rtol=1e-12)
        assert rule.variance == pytest.approx(by_default.variance, rel=1e-12)
        # The marginal likelihood asks the same registry, and so does a multiple of the kernel.
        alone = best_of([Diagonal()], NODES, np.arange(1.0, 6.0))
        assert alone.amplitude == pytest.approx(55.0 / 2.0 / 5.0)
        assert alone.log_marginal == pytest.approx(-2.5 * (1.0 + math.log(2.0 * math.pi * 11.0)))
        bayes_sum(3.0 * Diagonal(), measure, NODES, jitter=0.6)
        assert asked == [None, None, pytest.approx(0.2)]
    bayes_sum(Diagonal(), measure, NODES)
    assert len(asked) == 3


def test_a_solver_may_leave_a_case_to_the_next():
    with patch.dict(solve.SOLVERS.entries):
        solve.register(Diagonal, ms.Poisson)(lambda *case: None)
        assert isinstance(solve.factorize(Diagonal(), NODES), solve.DenseGram)


def test_registration_wants_classes():
    with pytest.raises(TypeError, match="kernel_type must be a kernel class"):
        solve.register(ks.Brownian(), ms.Poisson)
    with pytest.raises(TypeError, match="measure_type must be a measure class"):
        solve.register(ks.Brownian, 3)


@pytest.mark.parametrize("n_columns", [1, 2, 3])
def test_functions_in_the_mean_are_removed_as_contrasts_remove_them(n_columns):
    rng = np.random.default_rng(n_columns)
    points = ms.UniformCategorical(5, 3).sample_distinct(12, rng)
    kernel = ks.ExpHamming(0.4)
    matrix = kernel(points, points)
    columns = np.column_stack([np.ones(12), points])[:, :n_columns]
    gram = solve.KrigingGram(solve.factorize_dense(matrix), columns)
    # An orthonormal basis of the vectors that no column reaches.
    contrasts = np.linalg.svd(columns.T)[2][n_columns:]
    reduced = contrasts @ matrix @ contrasts.T
    y = rng.normal(size=(4, 12))
    z = y @ contrasts.T
    expected = np.einsum("ri,ri->r", z, np.linalg.solve(reduced, z.T).T)
    np.testing.assert_allclose(gram.quadratic_form(y), expected, rtol=1e-9)
    np.testing.assert_allclose(gram.quadratic_form(y + columns.sum(axis=1)), expected, rtol=1e-9)
    assert gram.n_informative == 12 - n_columns
    log_det = np.linalg.slogdet(reduced)[1] + np.linalg.slogdet(columns.T @ columns)[1]
    assert gram.log_det == pytest.approx(log_det, rel=1e-10)
    projected = contrasts.T @ np.linalg.solve(reduced, contrasts)
    np.testing.assert_allclose(gram.solve(y.T), projected @ y.T, atol=1e-9)
    # Least variance subject to exact columns, with Lagrange multipliers.
    measure = ms.UniformCategorical(5, 3)
    embedding = embed(kernel, measure)
    mean = embedding.mean(points)
    means = np.array([1.0, 1.0, 1.0])[:n_columns]
    system = np.block([[matrix, columns], [columns.T, np.zeros((n_columns, n_columns))]])
    weights = np.linalg.solve(system, np.concatenate([mean, means]))[:12]
    found, variance = gram.weights(means, mean, embedding.initial_error)
    np.testing.assert_allclose(found, weights, atol=1e-9)
    exact = embedding.initial_error - 2.0 * weights @ mean + weights @ matrix @ weights
    assert variance == pytest.approx(exact, rel=1e-8)


def test_restricted_likelihood_with_sixty_digits():
    x = np.arange(0, 24, 2)
    y = 50.0 + np.sin(x / 5.0)
    scales = (1.0, 10.0, 100.0)
    found = best_of([ks.Matern(2.5, s) for s in scales], x, y, np.ones((12, 1)))
    with mp.workdps(60):
        ones, values = mp.ones(12, 1), mp.matrix(y.tolist())
        for scale, score in zip(scales, found.log_marginals, strict=True):
            distance = np.abs(np.subtract.outer(x, x)).tolist()
            r = mp.sqrt(5) / scale * mp.matrix(distance)
            gram = r.apply(lambda d: (1 + d + d * d / 3) * mp.exp(-d))
            inverse = gram**-1
            total = (ones.T * inverse * ones)[0]
            form = (values.T * inverse * values)[0] - (ones.T * inverse * values)[0] ** 2 / total
            expected = -mp.mpf(11) / 2 * (1 + mp.log(2 * mp.pi * form / 11))
            expected -= (mp.log(mp.det(gram)) + mp.log(total)) / 2
            assert score == pytest.approx(float(expected), rel=1e-8)
