"""Mixed domains (an interval beside sites) and changes of variables, from outside."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special

from pymc_bayessum.embeddings import embed
from pymc_bayessum.kernels import (
    Brownian,
    ExpHamming,
    First,
    Matern,
    Pullback,
    Second,
    SquaredExponential,
    Tensor,
)
from pymc_bayessum.measures import (
    Geometric,
    Poisson,
    Product,
    ProductCategorical,
    Pushforward,
    UniformCategorical,
    UniformInterval,
)
from pymc_bayessum.rules.hyper import select_kernel
from pymc_bayessum.rules.nodes import spread
from pymc_bayessum.rules.rule import bayes_sum

N_GRID = 17
MIXED = Product(UniformInterval(-1.0, 1.0), UniformCategorical(2, N_GRID))


def to_grid(index):
    return -1.0 + 0.125 * np.asarray(index)


def from_grid(y):
    return np.rint((np.asarray(y) + 1.0) / 0.125).astype(np.int64)


def ackley(point):
    """The literature's mixed summand, on an interval and a grid of 17 x 17 points."""
    x, y = point
    slope = 1.0 + 0.1 * y.sum(axis=1)
    period = 1.0 + 0.05 * np.square(y).sum(axis=1)
    wells = np.exp(np.cos(2.0 * np.pi * x * period))
    return -20.0 * np.exp(-0.2 * np.abs(slope * x)) - wells + 20.0 + math.e


def indexed_ackley(point):
    return ackley((point[0], to_grid(point[1])))


def ackley_mean():
    """Closed form in x (modified Bessel functions), summed over the grid."""
    grid = to_grid(np.arange(N_GRID))
    order = np.arange(1, 40)
    total = 0.0
    for a in grid:
        for b in grid:
            slope = 0.2 * (1.0 + 0.1 * (a + b))
            turn = 2.0 * np.pi * (1.0 + 0.05 * (a * a + b * b))
            wells = special.iv(0, 1.0) + 2.0 / turn * np.sum(
                special.iv(order, 1.0) / order * np.sin(order * turn)
            )
            total += 20.0 * math.expm1(-slope) / slope - wells + 20.0 + math.e
    return total / N_GRID**2


def paper_kernel(lengthscale, decay):
    kx, ky = SquaredExponential(lengthscale), ExpHamming(decay)
    return First(kx) + Second(ky) + Tensor(kx, ky)


def matern_kernel(lengthscale, decay):
    kx, ky = Matern(2.5, lengthscale), ExpHamming(decay)
    return First(kx) + Second(ky) + Tensor(kx, ky)


class TestMixed:
    def test_the_exact_value(self):
        grid = to_grid(np.arange(N_GRID))

        def inner(a, b):
            f = lambda x: ackley((np.array([x]), np.array([[a, b]])))[0]  # noqa: E731
            return integrate.quad(f, -1.0, 1.0, points=[0.0], epsabs=1e-10)[0] / 2.0

        by_quadrature = np.mean([[inner(a, b) for b in grid] for a in grid])
        assert ackley_mean() == pytest.approx(by_quadrature, rel=1e-9)
        assert ackley_mean() == pytest.approx(3.2746067, abs=5e-8)

    @given(
        lengthscale=st.floats(0.1, 3.0),
        decay=st.floats(0.01, 3.0),
        scale=st.floats(0.1, 5.0),
    )
    @settings(max_examples=15, deadline=None)
    def test_embeddings_of_sums_and_products_over_both_parts(self, lengthscale, decay, scale):
        """Against quadrature on the interval times enumeration of the sites."""
        measure = Product(
            UniformInterval(-1.0, 2.0), ProductCategorical([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
        )
        kernel = (
            First(Matern(1.5, lengthscale))
            + scale * Second(ExpHamming(decay))
            + Tensor(SquaredExponential(lengthscale), ExpHamming(decay))
            + First(SquaredExponential(lengthscale)) * Second(ExpHamming(decay))
        )
        sites = measure.second.support.enumerate()
        p = np.exp(measure.second.log_prob(sites))
        t, w = np.polynomial.legendre.leggauss(60)
        # Panels end at the points asked about, where the Matern kernel has a kink.
        asked = np.array([-1.0, -0.3, 0.9, 2.0])
        edges = np.unique(np.concatenate([asked, np.linspace(-1.0, 2.0, 31)]))
        half = np.diff(edges)[:, None] / 2.0
        x = (edges[:-1, None] + half * (1.0 + t)).ravel()
        wx = (half * w).ravel() / 3.0
        many = (np.repeat(x, len(p)), np.tile(sites, (len(x), 1)))
        mass = np.outer(wx, p).ravel()
        y = (asked, sites[[0, 3, 5, 7]])
        embedding = embed(kernel, measure)
        np.testing.assert_allclose(embedding.mean(y), mass @ kernel(many, y), rtol=1e-9)
        assert embedding.initial_error == pytest.approx(mass @ embedding.mean(many), rel=1e-6)

    def test_the_paper_case_on_draws(self):
        """Fixed hyperparameters as printed, and far better than Monte Carlo."""
        exact = ackley_mean()
        errors = {"rule": [], "monte carlo": []}
        for seed in range(20):
            nodes = MIXED.sample_distinct(100, seed)
            y = indexed_ackley(nodes)
            rule = bayes_sum(paper_kernel(0.32, 0.1), MIXED, nodes)
            errors["rule"].append(abs(rule.expectation(y).mean - exact))
            errors["monte carlo"].append(abs(y.mean() - exact))
        assert np.mean(errors["rule"]) < 0.25 * np.mean(errors["monte carlo"])

    def test_the_paper_case_with_empirical_bayes(self):
        exact = ackley_mean()
        errors, covered = [], 0
        for seed in range(8):
            nodes = spread(MIXED, 100, seed)
            y = indexed_ackley(nodes)
            kernel = select_kernel(matern_kernel, nodes, y, bounds=[(0.05, 5.0), (1e-4, 3.0)])
            estimate = bayes_sum(kernel.kernel, MIXED, nodes).expectation(y)
            errors.append(abs(estimate.mean - exact))
            covered += errors[-1] < 3.0 * estimate.sd
        assert np.mean(errors) < 0.012
        assert covered >= 7

    def test_bounded_but_dependent_parts_are_not_a_product(self):
        with pytest.raises((TypeError, ValueError)):
            bayes_sum(paper_kernel(0.3, 0.1), UniformInterval(-1.0, 1.0), np.array([0.1, 0.2]))


def odd(x):
    return 2 * np.asarray(x) + 1


def half(y):
    return (np.asarray(y) - 1) // 2


class TestChangeOfVariables:
    @given(mu=st.floats(0.3, 30.0))
    @settings(max_examples=10, deadline=None)
    def test_counts(self, mu):
        base, image = Poisson(mu), Pushforward(Poisson(mu), odd, half)
        kernel = Pullback(Brownian(), half)
        x = np.arange(25)
        before, after = bayes_sum(Brownian(), base, x), bayes_sum(kernel, image, odd(x))
        np.testing.assert_allclose(after.weights, before.weights, rtol=1e-7, atol=1e-10)
        assert after.variance == pytest.approx(before.variance, rel=1e-5, abs=1e-10)
        np.testing.assert_allclose(after.log_base, before.log_base, rtol=1e-12)
        a, b = embed(kernel, image), embed(Brownian(), base)
        np.testing.assert_array_equal(a.mean(odd(x)), b.mean(x))
        assert a.initial_error == b.initial_error
        # E[r^(2 X + 1)] = r exp(mu (r^2 - 1)); the nodes hold all the mass that matters here.
        r = 0.9
        if mu < 6.0:
            estimate = after.expectation(r ** odd(x).astype(float)).mean
            assert estimate == pytest.approx(r * math.exp(mu * (r * r - 1.0)), rel=1e-4)

    def test_an_interval(self):
        """Log-uniform on [1, e^2]: E[Y] = (e^2 - 1) / 2."""
        measure = Pushforward(UniformInterval(0.0, 2.0), np.exp, np.log, lambda y: -np.log(y))
        kernel = Pullback(SquaredExponential(1.0), np.log)
        nodes = np.exp(np.linspace(0.0, 2.0, 12))
        rule = bayes_sum(kernel, measure, nodes)
        assert rule.expectation(nodes).mean == pytest.approx((math.e**2 - 1.0) / 2.0, rel=1e-6)
        mean = [
            integrate.quad(lambda y, z=z: kernel([y], [z])[0, 0] / (2.0 * y), 1.0, math.e**2)[0]
            for z in nodes
        ]
        np.testing.assert_allclose(embed(kernel, measure).mean(nodes), mean, rtol=1e-8)
        np.testing.assert_allclose(rule.log_base, -np.log(2.0 * nodes), rtol=1e-9)
        # The integral of a function against dy, through the density of the base.
        assert rule.log_sum(np.log(nodes)) == pytest.approx(
            math.log((math.e**4 - 1.0) / 2.0), rel=1e-3
        )

    def test_relabelled_sites(self):
        order = np.array([2, 0, 1])
        back = np.argsort(order)
        base = ProductCategorical([[0.2, 0.3, 0.5]] * 3)
        image = Pushforward(base, lambda x: order[x], lambda y: back[y])
        kernel = Pullback(ExpHamming(0.4), image.inverse)
        points = base.support.enumerate()
        y = image.forward(points)
        p = np.exp(base.log_prob(points))
        embedding = embed(kernel, image)
        np.testing.assert_allclose(embedding.mean(y), p @ kernel(y, y), rtol=1e-12)
        assert embedding.initial_error == pytest.approx(p @ kernel(y, y) @ p, rel=1e-12)
        # Equality of states does not feel their names, so the kernel itself works too.
        plain = embed(ExpHamming(0.4), image)
        np.testing.assert_allclose(plain.mean(y), embedding.mean(y), rtol=1e-10)

    def test_a_grid_of_real_points_inside_a_product(self):
        """The mixed case written on its own grid, not on indices."""
        sites = Pushforward(UniformCategorical(2, N_GRID), to_grid, from_grid)
        measure = Product(UniformInterval(-1.0, 1.0), sites)
        kx, ky = SquaredExponential(0.32), Pullback(ExpHamming(0.1), from_grid)
        kernel = First(kx) + Second(ky) + Tensor(kx, ky)
        x, index = MIXED.sample_distinct(60, 0)
        on_grid = bayes_sum(kernel, measure, (x, to_grid(index)))
        on_index = bayes_sum(paper_kernel(0.32, 0.1), MIXED, (x, index))
        np.testing.assert_allclose(on_grid.weights, on_index.weights, rtol=1e-9, atol=1e-12)
        assert on_grid.variance == pytest.approx(on_index.variance, rel=1e-9)
        values = ackley((x, to_grid(index)))
        assert on_grid.expectation(values).mean == pytest.approx(
            on_index.expectation(indexed_ackley((x, index))).mean, rel=1e-12
        )

    def test_draws_and_support_of_an_image(self):
        image = Pushforward(Geometric(0.3), odd, half)
        draws = image.sample_distinct(20, 0)
        assert len(set(draws.tolist())) == 20
        assert image.support.contains(draws).all()
        assert image.support.contains(np.array([1, 2, 3])).tolist() == [True, False, True]
        with pytest.raises(ValueError, match="nodes must lie in"):
            bayes_sum(Pullback(Brownian(), half), image, np.array([1, 2]))

    def test_twice_changed(self):
        once = Pushforward(Poisson(4.0), odd, half)
        negate = lambda x: -np.asarray(x)  # noqa: E731
        twice = Pushforward(once, negate, negate)
        kernel = Pullback(Pullback(Brownian(), half), negate)
        x = np.arange(30)
        rule = bayes_sum(kernel, twice, -odd(x))
        assert rule.expectation(-odd(x)).mean == pytest.approx(-9.0, rel=1e-8)
