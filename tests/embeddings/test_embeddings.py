"""Every embedding row against brute force: plain sums, quadrature, or many digits."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from embedding_checks import (
    RTOL,
    Y,
    assert_sums,
    counts,
    few,
    listed,
    rates,
    seeds,
    shifts,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from pymc_bayessum import embeddings as es
from pymc_bayessum import kernels as ks
from pymc_bayessum import measures as ms
from pymc_bayessum.embeddings.matern import matern_sums


class TestBrownian:
    @settings(deadline=None, max_examples=60)
    @given(counts, shifts)
    def test_counts(self, measure, shift):
        x, p = listed(measure)
        assert_sums(ks.Brownian(shift), measure, x, p, Y)

    @few
    @given(rates, st.floats(0.15, 0.9), st.floats(0.1, 0.9))
    def test_mixture(self, mu, p, weight):
        measure = ms.Mixture([weight, 1 - weight], [ms.Poisson(mu), ms.Logarithmic(p)])
        x = np.arange(700)
        masses = weight * stats.poisson.pmf(x, mu) + (1 - weight) * stats.logser.pmf(x, p)
        assert_sums(ks.Brownian(0.5), measure, x, masses, Y)

    def test_known_initial_error(self):
        value = es.embed(ks.Brownian(shift=0.0), ms.Poisson(30.0)).initial_error
        x = np.arange(400)
        p = stats.poisson.pmf(x, 30.0)
        assert value == pytest.approx(p @ np.minimum.outer(x, x) @ p, rel=1e-13)
        assert value == pytest.approx(26.916, abs=5e-4)

    @pytest.mark.parametrize("measure", [ms.Poisson(3.0), ms.NegativeBinomial(2, 0.3)], ids=str)
    def test_row_at_zero(self, measure):
        assert es.embed(ks.Brownian(0.0), measure).mean([0]).tolist() == [0.0]
        assert es.embed(ks.Brownian(1.0), measure).mean([0]).tolist() == [1.0]

    @few
    @given(st.floats(1e-12, 1e-3))
    def test_small_means_keep_their_digits(self, mu):
        with mpmath.workdps(50):
            tail, exact = 1 - mpmath.exp(-mpmath.mpf(mu)), mpmath.mpf(0)
            for r in range(1, 12):
                exact += tail**2
                tail -= mpmath.exp(-mpmath.mpf(mu)) * mpmath.mpf(mu) ** r / mpmath.factorial(r)
        value = es.embed(ks.Brownian(0.0), ms.Poisson(mu)).initial_error
        assert value == pytest.approx(float(exact), rel=1e-13)

    @pytest.mark.parametrize("mu", [9.99, 10.01, 1e4, 1e8])
    def test_poisson_of_any_size(self, mu):
        value = es.embed(ks.Brownian(0.0), ms.Poisson(mu)).initial_error
        with mpmath.workdps(40):
            z = 2 * mpmath.mpf(mu)
            near = mpmath.exp(-z) * (mpmath.besseli(0, z) + mpmath.besseli(1, z))
            assert value == pytest.approx(float(mu * (1 - near)), rel=1e-13)
        r = np.arange(max(mu - 40 * mu**0.5, 0) // 1, mu + 40 * mu**0.5 + 40)
        if len(r) < 1e5:
            brute = r[0] + math.fsum(special.gammainc(r + 1, mu) ** 2)
            assert value == pytest.approx(brute, rel=1e-12)

    def test_poisson_mean_at_ten_thousand(self):
        mu = 1e4
        x = np.arange(6000, 14_000)
        with mpmath.workdps(30):
            m = mpmath.mpf(mu)
            logs = [-m + int(v) * mpmath.log(m) - mpmath.loggamma(int(v) + 1) for v in x[::50]]
        check = np.array([float(mpmath.exp(v)) for v in logs])
        p = np.exp(ms.Poisson(mu).log_prob(x))
        np.testing.assert_allclose(p[::50], check, rtol=1e-11)
        y = np.array([5000, 9000, 10_000, 10_500, 30_000])
        values = es.embed(ks.Brownian(), ms.Poisson(mu)).mean(y)
        np.testing.assert_allclose(values, p @ ks.Brownian()(x, y), rtol=1e-11)

    @pytest.mark.parametrize(
        ("n", "p"), [(5.0, 1e-6), (0.3, 1e-8), (1e6, 1e-3), (0.01, 1e-3), (2.5, 0.5)]
    )
    def test_negative_binomial_initial_error_with_tiny_p(self, n, p):
        # Half the mean difference below the mean, with the mean difference of I. Ramasubban (1958).
        with mpmath.workdps(60):
            n_, p_ = mpmath.mpf(n), mpmath.mpf(p)
            odds = (1 - p_) / p_**2
            difference = 2 * n_ * odds * mpmath.hyp2f1(n_ + 1, 0.5, 2, -4 * odds)
            exact = float(n_ * (1 - p_) / p_ - difference / 2)
        value = es.embed(ks.Brownian(0.0), ms.NegativeBinomial(n, p)).initial_error
        assert value == pytest.approx(exact, rel=1e-12)

    def test_negative_binomial_mean_with_tiny_p(self):
        n, p = 3.0, 1e-6
        y = np.array([1, 1000, 10**6, 10**7, 10**8])
        with mpmath.workdps(40):
            q = 1 - mpmath.mpf(p)

            # Three successes: P(X > r) = q^(r+1) (1 + (r+1) p + (r+1) (r+2) p^2 / 2), summed by
            # hand over r < y through the derivatives of a geometric series.
            def total(top):
                s0 = q * (1 - q**top) / (1 - q)
                k = mpmath.mpf(top)
                s1 = q * (1 - (k + 1) * q**k + k * q ** (k + 1)) / (1 - q) ** 2
                s2 = (
                    q
                    * (
                        1
                        + q
                        - (k + 1) ** 2 * q**k
                        + (2 * k**2 + 2 * k - 1) * q ** (k + 1)
                        - k**2 * q ** (k + 2)
                    )
                    / (1 - q) ** 3
                )
                pp = mpmath.mpf(p)
                return s0 + pp * s1 + pp**2 * (s2 + s1) / 2

            exact = [float(total(int(v))) for v in y]
        values = es.embed(ks.Brownian(0.0), ms.NegativeBinomial(n, p)).mean(y)
        np.testing.assert_allclose(values, exact, rtol=RTOL)

    def test_paper_form_of_the_negative_binomial(self):
        n, p = 4.0, 0.3
        y = np.arange(1, 30)
        series = [v - sum(special.betainc(n, r + 1, p) for r in range(v)) for v in y]
        values = es.embed(ks.Brownian(0.0), ms.NegativeBinomial(n, p)).mean(y)
        np.testing.assert_allclose(values, series, rtol=1e-12)

    @pytest.mark.parametrize("p", [1e-6, 0.36, 0.37, 0.9, 1 - 1e-4, 1 - 1e-10])
    def test_logarithmic_anywhere(self, p):
        y = [1, 3, 23, 24, 25, 1000, 10**6, 10**11]
        values = es.embed(ks.Brownian(0.0), ms.Logarithmic(p)).mean(y)
        with mpmath.workdps(30):
            q = mpmath.mpf(p)
            s = -mpmath.log(q)
            for value, top in zip(values, y, strict=True):
                # sum_{x > y} q^x / x = int_s^inf e^(-u (y + 1)) / (1 - e^-u) du
                cuts = [s + mpmath.mpf(c) / (top + 1) for c in (0, 1, 5, 25, 100)]
                tail = mpmath.quad(
                    lambda u, k=top + 1: mpmath.exp(-u * k) / -mpmath.expm1(-u), cuts
                )
                exact = (q * (1 - q**top) / (1 - q) + top * tail) / -mpmath.log(1 - q)
                assert value == pytest.approx(float(exact), rel=1e-12)

    def test_logarithmic_initial_error_near_one(self):
        p = 1 - 1e-5
        measure = ms.Logarithmic(p)
        x = np.arange(1, 6_000_000)
        mass = p**x / x / -math.log1p(-p)
        tail = np.concatenate([mass[::-1].cumsum()[::-1], [0.0]])
        value = es.embed(ks.Brownian(0.0), measure).initial_error
        assert value == pytest.approx(math.fsum(tail**2), rel=1e-10)

    @few
    @given(st.floats(0.0, 5.0), st.floats(0.1, 5.0))
    def test_interval(self, low, width):
        high = low + width
        nodes, weights = np.polynomial.legendre.leggauss(60)
        # The kink of the third y is at the joint of two panels.
        y = np.array([0.0, low, low + 0.3 * width, high, high + 1.0])
        unit = np.concatenate([0.15 * (nodes + 1), 0.3 + 0.35 * (nodes + 1)])
        x, p = low + width * unit, np.concatenate([0.15 * weights, 0.35 * weights])
        embedding = es.embed(ks.Brownian(0.2), ms.UniformInterval(low, high))
        np.testing.assert_allclose(embedding.mean(y), p @ ks.Brownian(0.2)(x, y), rtol=RTOL)
        # The mean of mu over the interval, exactly integrated.
        grid = low + 0.5 * width * (nodes + 1)
        expected = 0.5 * weights @ embedding.mean(grid)
        assert embedding.initial_error == pytest.approx(expected, rel=RTOL)


class TestPolynomial:
    @settings(deadline=None, max_examples=60)
    @given(counts, st.integers(1, 6))
    def test_counts(self, measure, degree):
        x, p = listed(measure)
        assert_sums(ks.Polynomial(degree), measure, x, p, Y)

    @few
    @given(st.floats(0.1, 30.0), st.floats(0.1, 30.0), st.integers(1, 6))
    def test_skellam_on_all_integers(self, mu1, mu2, degree):
        x = np.arange(-350, 351)
        p = np.exp(ms.Skellam(mu1, mu2).log_prob(x))
        y = np.array([-40, -3, -1, 0, 1, 2, 35])
        kernel = ks.Polynomial(degree)
        embedding = es.embed(kernel, ms.Skellam(mu1, mu2))
        # Terms of both signs: compare with the size of what is added.
        size = p @ np.abs(kernel(x, y))
        np.testing.assert_array_less(
            np.abs(embedding.mean(y) - p @ kernel(x, y)), RTOL * size + 1e-300
        )
        m = np.array([p @ x.astype(float) ** n for n in range(degree + 1)])
        expected = math.fsum(math.comb(degree, n) * m[n] ** 2 for n in range(degree + 1))
        assert embedding.initial_error == pytest.approx(expected, rel=RTOL)

    def test_skellam_masses_agree_with_scipy(self):
        x = np.arange(-20, 21)
        np.testing.assert_allclose(
            np.exp(ms.Skellam(2.0, 3.5).log_prob(x)), stats.skellam.pmf(x, 2.0, 3.5), rtol=1e-9
        )

    def test_negative_binomial_moments(self):
        # Two successes at p = 1/2: mean 2, variance 4, third central moment 12.
        embedding = es.embed(ks.Polynomial(3), ms.NegativeBinomial(2.0, 0.5))
        second, third = 4 + 2**2, 12 + 3 * 2 * 4 + 2**3
        assert embedding.mean([1])[0] == pytest.approx(1 + 3 * 2 + 3 * second + third, rel=1e-14)

    def test_large_poisson(self):
        embedding = es.embed(ks.Polynomial(4), ms.Poisson(1e4))
        mu = mpmath.mpf(10) ** 4
        touchard = [1, mu, mu + mu**2, mu + 3 * mu**2 + mu**3, mu + 7 * mu**2 + 6 * mu**3 + mu**4]
        exact = sum(math.comb(4, n) * t**2 for n, t in enumerate(touchard))
        assert embedding.initial_error == pytest.approx(float(exact), rel=1e-14)

    @few
    @given(st.floats(-3.0, 3.0), st.floats(0.1, 4.0), st.integers(1, 6))
    def test_interval(self, low, width, degree):
        nodes, weights = np.polynomial.legendre.leggauss(20)
        x, p = low + 0.5 * width * (nodes + 1), 0.5 * weights
        y = np.array([-1.5, 0.0, low, 2.0])
        kernel = ks.Polynomial(degree)
        embedding = es.embed(kernel, ms.UniformInterval(low, low + width))
        size = p @ np.abs(kernel(x, y))
        assert (np.abs(embedding.mean(y) - p @ kernel(x, y)) <= RTOL * size).all()
        assert embedding.initial_error == pytest.approx(p @ kernel(x, x) @ p, rel=RTOL, abs=1e-10)


class TestCountingSplines:
    @settings(deadline=None, max_examples=40)
    @given(st.integers(0, 6), st.integers(0, 70), st.floats(0.5, 20.0))
    def test_integrated_brownian(self, order, maximum, scale):
        kernel = ks.IntegratedBrownian(order, scale)
        x = np.arange(maximum + 1)
        assert_sums(kernel, ms.Counting(maximum), x, np.ones(len(x)), Y)

    def test_a_million_points(self):
        kernel, measure = ks.IntegratedBrownian(4), ms.Counting(10**6)
        x, y = np.arange(10**6 + 1), np.array([1, 1000, 654_321, 10**6])
        exact = [math.fsum(kernel(x, [v])[:, 0]) for v in y]
        np.testing.assert_allclose(es.embed(kernel, measure).mean(y), exact, rtol=1e-12)


materns = st.builds(
    ks.Matern,
    st.sampled_from([0.5, 1.5, 2.5, 4.5, 6.5, 8.5]),
    st.floats(0.1, 50.0),
    st.sampled_from([None, "sqrt", np.log1p]),
)


class TestMatern:
    @settings(deadline=None, max_examples=40)
    @given(materns, st.integers(0, 200))
    def test_counting(self, kernel, maximum):
        x = np.arange(maximum + 1)
        assert_sums(kernel, ms.Counting(maximum), x, np.ones(len(x)), Y)

    @few
    @given(materns, counts)
    def test_other_counts(self, kernel, measure):
        x, p = listed(measure)
        y = np.array([0, 1, 5, 20, 60])
        embedding = es.embed(kernel, measure)
        # SciPy's masses far in the tail are good to 1e-9 at times; what they add is not seen here.
        np.testing.assert_allclose(embedding.mean(y), p @ kernel(x, y), rtol=1e-9, atol=1e-20)
        assert embedding.initial_error == pytest.approx(p @ kernel(x, x) @ p, rel=RTOL)

    @few
    @given(materns, st.integers(1, 500), seeds)
    def test_linear_time_sums(self, kernel, n, seed):
        rng = np.random.default_rng(seed)
        t, w = rng.normal(0, 20, n), rng.exponential(size=n)
        s = rng.normal(0, 30, 40)
        expected = kernel.profile(np.abs(s[:, None] - t)) @ w
        np.testing.assert_allclose(matern_sums(kernel, t, w, s), expected, rtol=1e-12)

    def test_beside_the_range(self):
        kernel = ks.Matern(2.5, 4.0)
        y = np.array([-7, -1, 0, 10, 11, 30])
        expected = kernel(np.arange(11), y).sum(axis=0)
        np.testing.assert_allclose(es.embed(kernel, ms.Counting(10)).mean(y), expected, rtol=1e-13)

    @pytest.mark.parametrize(
        "kernel",
        [ks.Matern(6.5, 8.0, "sqrt"), ks.Matern(6.5, 1e5), ks.Matern(2.5, 30.0)],
        ids=str,
    )
    def test_a_hundred_thousand_points(self, kernel):
        x, y = np.arange(10**5 + 1), np.array([0, 333, 54_321, 10**5])
        exact = [math.fsum(kernel(x, [v])[:, 0]) for v in y]
        embedding = es.embed(kernel, ms.Counting(10**5))
        np.testing.assert_allclose(embedding.mean(y), exact, rtol=1e-13)
        assert 0 < embedding.initial_error < (10**5 + 1) ** 2

    @few
    @given(
        st.sampled_from([0.5, 1.5, 2.5, 3.5, 5.5]),
        st.floats(0.05, 20.0),
        st.floats(-2.0, 2.0),
        st.floats(0.05, 4.0),
    )
    def test_interval(self, nu, lengthscale, low, width):
        assert_interval(ks.Matern(nu, lengthscale), low, width)


@few
@given(st.floats(0.05, 20.0), st.floats(-2.0, 2.0), st.floats(0.05, 4.0))
def test_squared_exponential_on_an_interval(lengthscale, low, width):
    assert_interval(ks.SquaredExponential(lengthscale), low, width)


def assert_interval(kernel, low, width):
    """Gauss quadrature in panels that end at y, where a Matern kernel has its kink."""
    nodes, weights = np.polynomial.legendre.leggauss(24)
    embedding = es.embed(kernel, ms.UniformInterval(low, low + width))

    def integral(f, a, b):
        cuts = np.linspace(a, b, 41)
        half = 0.5 * np.diff(cuts)[:, None]
        x = cuts[:-1, None] + half * (nodes + 1)
        return float((half * weights * f(x.ravel()).reshape(x.shape)).sum())

    y = np.array([low - 0.4, low, low + 0.37 * width, low + width, low + width + 0.2])
    for point, value in zip(y, embedding.mean(y), strict=True):
        inside = min(max(point, low), low + width)
        pieces = [(low, inside), (inside, low + width)]
        expected = sum(
            integral(lambda x, y=point: kernel(x, [y])[:, 0], a, b) for a, b in pieces if b > a
        )
        assert value == pytest.approx(expected / width, rel=RTOL)
    # E k = 2 / D^2 int_0^D (D - r) g(r) dr, a smooth integral.
    profile = integral(lambda r: (width - r) * kernel(r, [0.0])[:, 0], 0.0, width)
    assert embedding.initial_error == pytest.approx(2.0 * profile / width**2, rel=RTOL)


def site_measures(seed):
    """A few measures on four sites with three states, with masses from their definitions."""
    rng = np.random.default_rng(seed)
    states = np.array(list(itertools.product(range(3), repeat=4)))

    def product(probs):
        return np.prod(probs[np.arange(4), states], axis=1)

    probs = rng.dirichlet(np.ones(3), (2, 4))
    root, tables = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(3), (3, 3))
    tree_edges = [(2, 0), (2, 3), (0, 1)]
    tree = root[states[:, 2]].copy()
    for (i, j), table in zip(tree_edges, tables, strict=True):
        tree *= table[states[:, i], states[:, j]]
    chain = root[states[:, 0]].copy()
    for j in range(3):
        chain *= tables[j][states[:, j], states[:, j + 1]]
    forest = root[states[:, 0]] * probs[0, 0][states[:, 3]]
    forest = forest * tables[0][states[:, 3], states[:, 1]] * tables[1][states[:, 0], states[:, 2]]
    uniform = np.full(81, 1 / 81)
    products = [ms.ProductCategorical(q) for q in probs]
    trees = ms.TreeCategorical(root, tree_edges, tables)
    forests = ms.TreeCategorical(
        np.stack([root, probs[0, 0]]), [(3, 1), (0, 2)], [tables[0], tables[1]]
    )
    chains = ms.MarkovCategorical(root, tables)
    return states, [
        (ms.UniformCategorical(4, 3), uniform),
        (products[0], product(probs[0])),
        (trees, tree),
        (forests, forest),
        (chains, chain),
        (
            ms.Mixture([0.3, 0.7], products),
            0.3 * product(probs[0]) + 0.7 * product(probs[1]),
        ),
        (
            ms.Mixture([0.2, 0.3, 0.5], [trees, ms.UniformCategorical(4, 3), products[0]]),
            0.2 * tree + 0.3 * uniform + 0.5 * product(probs[0]),
        ),
        # The edges of these two together close a cycle: summed over all points.
        (ms.Mixture([0.5, 0.5], [trees, chains]), 0.5 * tree + 0.5 * chain),
        (
            ms.Mixture([0.5, 0.5], [trees, ms.Mixture([0.5, 0.5], [trees, forests])]),
            0.75 * tree + 0.25 * forest,
        ),
    ]


class TestExpHamming:
    @settings(deadline=None, max_examples=12)
    @given(seeds, st.floats(0.001, 4.0))
    def test_every_site_measure(self, seed, decay):
        states, cases = site_measures(seed)
        y = states[[0, 7, 40, 80]]
        for measure, p in cases:
            np.testing.assert_allclose(np.exp(measure.log_prob(states)), p, rtol=1e-12)
            assert_sums(ks.ExpHamming(decay), measure, states, p, y)

    @few
    @given(st.integers(1, 8), st.floats(0.001, 4.0))
    def test_spins(self, n_sites, decay):
        x = np.array(list(itertools.product((-1, 1), repeat=n_sites)))
        p = np.full(len(x), 0.5**n_sites)
        assert_sums(ks.ExpHamming(decay), ms.UniformSpins(n_sites), x, p, x[:3])

    def test_tables_with_zeros(self):
        table = np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.3, 0.7, 0.0]])
        tree = ms.TreeCategorical([0.0, 0.4, 0.6], [(1, 0), (1, 2)], table)
        other = ms.TreeCategorical([1.0, 0.0, 0.0], [(0, 1), (1, 2)], table)
        states = tree.support.enumerate()
        p, q = np.exp(tree.log_prob(states)), np.exp(other.log_prob(states))
        kernel = ks.ExpHamming(0.6)
        assert_sums(kernel, tree, states, p, states[:5])
        # The same edges the other way round: tables are turned by Bayes, zeros included.
        assert es.cross(kernel, tree, other) == pytest.approx(
            p @ kernel(states, states) @ q, rel=1e-13
        )

    @pytest.mark.parametrize("decay", [0.01, 1.0])
    def test_two_hundred_sites(self, decay):
        kernel = ks.ExpHamming(decay)
        y = ms.UniformCategorical(200, 3).sample(50, 0)
        exact = float(((1 + 2 * mpmath.exp(-mpmath.mpf(decay))) / 3) ** 200)
        third = np.full((3, 3), 1 / 3)
        for measure in (
            ms.UniformCategorical(200, 3),
            ms.ProductCategorical(np.full((200, 3), 1 / 3)),
            ms.MarkovCategorical(third[0], third, n_sites=200),
        ):
            embedding = es.embed(kernel, measure)
            np.testing.assert_allclose(embedding.mean(y), exact, rtol=1e-12)
            assert embedding.initial_error == pytest.approx(exact, rel=1e-12)

    def test_two_hundred_sites_of_a_sticky_chain(self):
        # A chain that never moves: all sites equal the first, so mu depends on the counts alone.
        chain = ms.MarkovCategorical([0.2, 0.8], np.eye(2), n_sites=200)
        embedding = es.embed(ks.ExpHamming(0.05), chain)
        y = ms.UniformCategorical(200, 2).sample(9, 0)
        ones = y.sum(axis=1)
        expected = 0.2 * np.exp(-0.05 * ones) + 0.8 * np.exp(-0.05 * (200 - ones))
        np.testing.assert_allclose(embedding.mean(y), expected, rtol=1e-12)
        expected = 0.04 + 0.64 + 0.32 * math.exp(-10.0)
        assert embedding.initial_error == pytest.approx(expected, rel=1e-13)

    def test_points_outside(self):
        for measure in (ms.UniformCategorical(2, 3), ms.ProductCategorical(np.full((2, 3), 1 / 3))):
            embedding = es.embed(ks.ExpHamming(1.0), measure)
            with pytest.raises(ValueError, match="points must lie in Sites"):
                embedding.mean([[0, 3]])
            with pytest.raises(ValueError, match="must have 2 sites"):
                embedding.mean([[0, 1, 1]])


class TestTanimoto:
    @pytest.mark.parametrize("n_sites", [1, 2, 5, 8])
    def test_uniform(self, n_sites):
        x = np.array(list(itertools.product((0, 1), repeat=n_sites)))
        p = np.full(len(x), 0.5**n_sites)
        assert_sums(ks.Tanimoto(), ms.UniformCategorical(n_sites, 2), x, p, x)

    @few
    @given(st.integers(1, 7), seeds)
    def test_product(self, n_sites, seed):
        q = np.random.default_rng(seed).random(n_sites)
        x = np.array(list(itertools.product((0, 1), repeat=n_sites)))
        p = np.prod(np.where(x == 1, q, 1 - q), axis=1)
        measure = ms.ProductCategorical(np.column_stack([1 - q, q]))
        assert_sums(ks.Tanimoto(), measure, x, p, x)

    def test_zero_vector_is_like_itself(self):
        embedding = es.embed(ks.Tanimoto(), ms.UniformCategorical(3, 2))
        assert embedding.mean([[0, 0, 0]])[0] == pytest.approx(2.0**-3)

    def test_two_hundred_sites(self):
        # The double sum over |x| = s and overlap a in exact integers.
        d = 200
        embedding = es.embed(ks.Tanimoto(), ms.UniformCategorical(d, 2))

        def exact(t):
            with mpmath.workdps(40):
                total = mpmath.mpf(1 if t == 0 else 0)
                for s in range(d + 1):
                    for a in range(max(1, s - d + t), min(s, t) + 1):
                        ways = math.comb(t, a) * math.comb(d - t, s - a)
                        total += mpmath.mpf(a * ways) / (s + t - a)
                return total / mpmath.mpf(2) ** d

        t = [0, 1, 60, 100, 200]
        y = (np.arange(d) < np.array(t)[:, None]).astype(int)
        expected = [float(exact(v)) for v in t]
        np.testing.assert_allclose(embedding.mean(y), expected, rtol=1e-11)
        half = es.embed(ks.Tanimoto(), ms.ProductCategorical(np.full((d, 2), 0.5)))
        np.testing.assert_allclose(half.mean(y), expected, rtol=1e-11)
        assert half.initial_error == pytest.approx(embedding.initial_error, rel=1e-11)
