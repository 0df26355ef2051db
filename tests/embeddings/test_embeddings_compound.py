"""Embeddings of compound kernels and measures, exact summation, and the registry."""

import math
from unittest.mock import patch

import mpmath
import numpy as np
import pytest
from embedding_checks import RTOL, Y, assert_sums, counts, few, listed, pmf
from hypothesis import given
from scipy import stats

from pymc_bayessum import embeddings as es
from pymc_bayessum import kernels as ks
from pymc_bayessum import measures as ms
from pymc_bayessum.embeddings.algebra import expand
from pymc_bayessum.embeddings.brownian import survival
from pymc_bayessum.embeddings.long_sums import long_sum
from pymc_bayessum.embeddings.registry import ROWS


class TestSumsAndProductsOfKernels:
    def test_sums_and_scales(self):
        measure = ms.Poisson(6.0)
        x, p = listed(measure)
        kernel = 0.5 * (2 * ks.Brownian() + ks.Polynomial(2)) + 3 * ks.Matern(1.5, 4.0)
        assert_sums(kernel, measure, x, p, Y)

    def test_products_that_merge(self):
        decay = (ks.ExpHamming(0.25) * ks.ExpHamming(0.5)) * (2 * ks.ExpHamming(0.25))
        assert expand(decay) == [(2.0, ks.ExpHamming(1.0))]
        assert expand(ks.Polynomial(1) * ks.Polynomial(3)) == [(1.0, ks.Polynomial(4))]
        [(_, merged)] = expand(ks.SquaredExponential(3.0) * ks.SquaredExponential(4.0))
        assert merged.lengthscale == pytest.approx(2.4)
        [(_, merged)] = expand(ks.Matern(0.5, 3.0) * ks.Matern(0.5, 6.0))
        assert merged.lengthscale == pytest.approx(2.0)
        assert len(expand((ks.Brownian() + ks.Polynomial(1)) * (ks.Brownian() + 2 * decay))) == 4

    def test_merged_product_on_many_sites(self):
        kernel = ks.ExpHamming(0.1) * (ks.ExpHamming(0.2) + ks.ExpHamming(0.3))
        measure = ms.UniformCategorical(100, 3)
        expected = sum(((1 + 2 * math.exp(-v)) / 3) ** 100 for v in (0.3, 0.4))
        assert es.embed(kernel, measure).initial_error == pytest.approx(expected, rel=1e-12)

    @pytest.mark.parametrize(
        "kernel",
        [
            ks.Brownian() * ks.Polynomial(2),
            ks.Brownian() * ks.Brownian(0.0),
            ks.Matern(1.5, 2.0) * ks.Matern(2.5, 3.0),
            ks.SquaredExponential(2.0) * ks.Matern(0.5, 5.0),
        ],
        ids=str,
    )
    def test_products_without_a_form_of_their_own(self, kernel):
        for measure in (ms.Poisson(7.0), ms.Geometric(0.3), ms.Counting(12)):
            x, p = listed(measure)
            y = np.array([0, 1, 5, 20])
            np.testing.assert_allclose(
                es.embed(kernel, measure).mean(y), p @ kernel(x, y), rtol=RTOL
            )
            assert_sums(kernel, measure, x, p, y)

    def test_pullbacks_merge(self):
        twice = ks.Pullback(ks.ExpHamming(0.5), np.flip) * ks.Pullback(ks.ExpHamming(0.1), np.flip)
        assert expand(twice) == [(1.0, ks.Pullback(ks.ExpHamming(0.6), np.flip))]


class TestProductMeasures:
    def test_mixed_domain(self):
        first, second = ms.UniformInterval(0.0, 1.5), ms.UniformCategorical(2, 3)
        kx, kc = ks.SquaredExponential(0.4), ks.ExpHamming(0.3)
        kernel = ks.First(kx) + ks.Second(kc) + ks.Tensor(kx, kc)
        embedding = es.embed(kernel, ms.Product(first, second))
        nodes, weights = np.polynomial.legendre.leggauss(40)
        grid, states = 0.75 * (nodes + 1), second.support.enumerate()
        n, m = len(grid), len(states)
        x = (np.repeat(grid, m), np.tile(states, (n, 1)))
        p = np.repeat(0.5 * weights, m) / m
        y = (np.array([0.1, 1.2, 1.5]), np.array([[0, 0], [1, 2], [2, 2]]))
        np.testing.assert_allclose(embedding.mean(y), p @ kernel(x, y), rtol=RTOL)
        assert embedding.initial_error == pytest.approx(p @ kernel(x, x) @ p, rel=RTOL)
        same = ks.First(kx) + ks.Second(kc) + ks.Second(kc) * ks.First(kx)
        again = es.embed(same, ms.Product(first, second))
        np.testing.assert_allclose(again.mean(y), embedding.mean(y), rtol=1e-14)

    def test_mass_of_the_other_part(self):
        measure = ms.Product(ms.Counting(4), ms.Poisson(2.0))
        x = (np.repeat(np.arange(5), 60), np.tile(np.arange(60), 5))
        p = stats.poisson.pmf(x[1], 2.0)
        y = (np.array([0, 3]), np.array([1, 4]))
        for kernel in (
            ks.First(ks.Brownian()),
            ks.Second(ks.Brownian()),
            ks.Tensor(ks.Brownian(), ks.Polynomial(2)),
            ks.Tensor(ks.Brownian(), ks.Matern(0.5, 2.0)) * ks.First(ks.Polynomial(1)),
            ks.Second(ks.Polynomial(1)) * ks.Tensor(ks.Brownian(), ks.Polynomial(1)),
            ks.First(ks.Polynomial(1)) * ks.Tensor(ks.Brownian(), ks.Polynomial(1)),
            ks.Tensor(ks.Brownian(), ks.Brownian()) * ks.Tensor(ks.Brownian(), ks.Brownian()),
            ks.First(ks.Brownian()) * ks.First(ks.Polynomial(1)),
            ks.Second(ks.Brownian()) * ks.Second(ks.Polynomial(1)),
            ks.Tensor(ks.Brownian(), ks.Brownian()) * ks.Second(ks.Polynomial(1)),
        ):
            assert_sums(kernel, measure, x, p, y)

    def test_nested_pairs(self):
        inner = ms.Product(ms.Counting(2), ms.Counting(3))
        kernel = ks.Tensor(ks.First(ks.Brownian()), ks.Brownian())
        value = es.embed(kernel, ms.Product(inner, ms.Counting(1)))
        y = ((np.array([1, 2]), np.array([0, 3])), np.array([0, 1]))
        b = ks.Brownian()
        expected = 4 * b(np.arange(3), y[0][0]).sum(0) * b(np.arange(2), y[1]).sum(0)
        np.testing.assert_allclose(value.mean(y), expected, rtol=1e-14)

    def test_mixture_of_products(self):
        parts = [
            ms.Product(ms.Poisson(2.0), ms.Poisson(3.0)),
            ms.Product(ms.Poisson(4.0), ms.Geometric(0.7)),
        ]
        kernel = ks.Tensor(ks.Brownian(), ks.Polynomial(1)) + ks.First(ks.Matern(1.5, 2.0))
        grid = np.arange(45)
        x = (np.repeat(grid, 45), np.tile(grid, 45))
        p = 0.4 * np.outer(stats.poisson.pmf(grid, 2), stats.poisson.pmf(grid, 3))
        p = (p + 0.6 * np.outer(stats.poisson.pmf(grid, 4), 0.7 * 0.3**grid)).ravel()
        y = (np.array([0, 3]), np.array([1, 4]))
        measure = ms.Mixture([0.4, 0.6], parts)
        assert_sums(kernel, measure, x, p, y)

    def test_kernel_that_looks_at_both_parts(self):
        class Joint(ks.Kernel):
            growth = 0.0

            def __call__(self, x, y):
                return np.exp(-np.abs(np.subtract.outer(x[0] + x[1], y[0] + y[1])))

            def diagonal(self, x):
                return np.ones(len(x[0]))

        measure = ms.Product(ms.Counting(3), ms.Poisson(1.0))
        x = (np.repeat(np.arange(4), 40), np.tile(np.arange(40), 4))
        p = stats.poisson.pmf(x[1], 1.0)
        assert_sums(Joint(), measure, x, p, (np.array([1, 2]), np.array([0, 5])))


class TestMixtures:
    @pytest.mark.parametrize(
        "kernel", [ks.Matern(2.5, 3.0), ks.SquaredExponential(2.0), ks.Polynomial(3)], ids=str
    )
    def test_counts(self, kernel):
        measure = ms.Mixture([0.3, 0.7], [ms.Poisson(4.0), ms.NegativeBinomial(3.0, 0.4)])
        x = np.arange(300)
        assert_sums(kernel, measure, x, pmf(measure, x), np.array([0, 1, 5, 20]))

    @pytest.mark.parametrize(
        "kernel",
        [ks.Matern(0.5, 0.2), ks.Matern(2.5, 1.0), ks.SquaredExponential(0.3), ks.Brownian()],
        ids=str,
    )
    def test_intervals(self, kernel):
        parts = [ms.UniformInterval(0.0, 1.0), ms.UniformInterval(0.5, 3.0)]
        embedding = es.embed(kernel, ms.Mixture([0.25, 0.75], parts))
        y = np.array([0.0, 0.7, 2.9])
        expected = 0.25 * es.embed(kernel, parts[0]).mean(y)
        expected = expected + 0.75 * es.embed(kernel, parts[1]).mean(y)
        np.testing.assert_allclose(embedding.mean(y), expected, rtol=1e-13)
        # The mean of mu under the mixture, in panels that end where mu has kinks.
        nodes, weights = np.polynomial.legendre.leggauss(64)
        total = 0.0
        for a, b, density in ((0, 0.5, 0.25), (0.5, 1, 0.55), (1, 3, 0.3)):
            for left in np.linspace(a, b, 9)[:-1]:
                half = (b - a) / 16
                points = left + half * (nodes + 1)
                total += density * half * weights @ embedding.mean(points)
        assert embedding.initial_error == pytest.approx(total, rel=RTOL)

    def test_cross_of_far_apart_counts(self):
        p, q = ms.Poisson(3.0), ms.NegativeBinomial(2.0, 1e-7)
        x = np.arange(200)
        kernel = ks.Brownian(0.0)
        mean = es.embed(kernel, q).mean(x)
        expected = stats.poisson.pmf(x, 3.0) @ mean
        assert es.cross(kernel, p, q) == pytest.approx(expected, rel=1e-12)
        assert es.cross(kernel, q, p) == pytest.approx(expected, rel=1e-12)


class TestPushforward:
    def test_pullback_keeps_the_closed_form(self):
        def inverse(y):
            return (y - 5) // 2

        base = ms.NegativeBinomial(2.0, 1e-7)
        pushed = ms.Pushforward(base, lambda x: 2 * x + 5, inverse)
        embedding = es.embed(3 * ks.Pullback(ks.Brownian(), inverse), pushed)
        closed = es.embed(ks.Brownian(), base)
        x = np.array([0, 10, 10**6])
        np.testing.assert_allclose(embedding.mean(2 * x + 5), 3 * closed.mean(x), rtol=1e-14)
        assert embedding.initial_error == pytest.approx(3 * closed.initial_error, rel=1e-14)

    def test_normal_from_the_uniform(self):
        normal = ms.Pushforward(ms.UniformInterval(0, 1), stats.norm.ppf, stats.norm.cdf)
        kernel = ks.Pullback(ks.SquaredExponential(0.3), stats.norm.cdf)
        y = np.array([-1.0, 0.0, 2.0])
        nodes, weights = np.polynomial.legendre.leggauss(60)
        x = stats.norm.ppf(0.5 * (nodes + 1))
        expected = 0.5 * weights @ kernel(x, y)
        np.testing.assert_allclose(es.embed(kernel, normal).mean(y), expected, rtol=1e-10)

    def test_sites_relabelled(self):
        base = ms.ProductCategorical(np.random.default_rng(0).dirichlet(np.ones(3), 4))
        measure = ms.Pushforward(base, np.fliplr, np.fliplr)
        kernel = ks.Pullback(ks.ExpHamming(0.4), np.fliplr)
        x = base.support.enumerate()
        p = np.exp(base.log_prob(x))
        assert_sums(kernel, measure, np.fliplr(x), p, x[:5])

    @pytest.mark.parametrize(
        "kernel",
        [ks.Brownian(), ks.Matern(1.5, 3.0), ks.Polynomial(2), ks.IntegratedBrownian(1)],
        ids=str,
    )
    def test_kernels_on_the_image_are_summed(self, kernel):
        pushed = ms.Pushforward(ms.Poisson(4.0), lambda x: 3 * x + 1, lambda y: (y - 1) // 3)
        x = np.arange(150)
        assert_sums(kernel, pushed, 3 * x + 1, stats.poisson.pmf(x, 4.0), np.array([1, 7, 22]))

    def test_maps_that_outgrow_the_mass(self):
        pushed = ms.Pushforward(
            ms.Geometric(0.5), lambda x: 4.0**x, lambda y: np.round(np.log(y) / np.log(4.0))
        )
        with pytest.raises(ValueError, match="its terms do not die out"):
            es.embed(ks.Brownian(), pushed)


class TestFallback:
    @few
    @given(counts)
    def test_summed_kernels(self, measure):
        x, p = listed(measure)
        for kernel in (ks.SquaredExponential(4.0), ks.IntegratedBrownian(2)):
            assert_sums(kernel, measure, x, p, np.array([0, 1, 5, 20])[-3:])

    def test_all_integers(self):
        measure = ms.Skellam(3.0, 5.0)
        x = np.arange(-80, 81)
        p = np.exp(measure.log_prob(x))
        for kernel in (ks.SquaredExponential(2.0), ks.Matern(2.5, 2.0)):
            assert_sums(kernel, measure, x, p, np.array([-9, 0, 4]))

    def test_heavy_tail_is_followed(self):
        measure = ms.NegativeBinomial(0.5, 0.001)
        x = np.arange(60_000)
        p = np.exp(measure.log_prob(x))
        kernel = ks.IntegratedBrownian(1)
        expected = p @ kernel(x, [900, 9000])
        np.testing.assert_allclose(es.embed(kernel, measure).mean([900, 9000]), expected, rtol=1e-9)

    def test_small_sites(self):
        chain = ms.MarkovCategorical([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], n_sites=6)
        x = chain.support.enumerate()
        p = np.exp(chain.log_prob(x))
        assert_sums(ks.Tanimoto(), chain, x, p, x[:4])

    def test_kernel_of_unknown_growth(self):
        class Square(ks.Kernel):
            def __call__(self, x, y):
                return np.multiply.outer(np.square(x, dtype=float), np.square(y, dtype=float))

            def diagonal(self, x):
                return np.asarray(x, float) ** 4

        assert Square().growth is None
        embedding = es.embed(Square(), ms.Poisson(3.0))
        np.testing.assert_allclose(embedding.mean([2]), [4 * 12.0], rtol=1e-12)
        assert embedding.initial_error == pytest.approx(144.0, rel=1e-12)
        with pytest.raises(ValueError, match="nothing is known of the growth"):
            es.embed(
                ks.Pullback(ks.Brownian(), lambda x: x[0] + x[1]),
                ms.Product(ms.Poisson(1.0), ms.Counting(3)),
            )

    @pytest.mark.parametrize(
        ("kernel", "measure", "message"),
        [
            (
                ks.Tanimoto(),
                ms.Poisson(3.0),
                "no embedding of Tanimoto under Poisson.*Brownian, IntegratedBrownian, Matern, "
                "Polynomial, SquaredExponential$",
            ),
            (
                ks.Brownian(),
                ms.Skellam(3.0, 2.0),
                "no embedding of Brownian under Skellam: the kernel does not live on Integers.*"
                "Matern, Polynomial, SquaredExponential$",
            ),
            (
                ks.Tanimoto(),
                ms.UniformCategorical(4, 3),
                "Tanimoto under UniformCategorical.*measure: ExpHamming$",
            ),
            (
                ks.Tanimoto(),
                ms.MarkovCategorical([0.5, 0.5], np.full((2, 2), 0.5), n_sites=40),
                "Tanimoto under MarkovCategorical.*too many to sum.*measure: ExpHamming$",
            ),
            (
                ks.IntegratedBrownian(1),
                ms.UniformInterval(0, 1),
                "infinitely many points.*Brownian, Matern, Polynomial, SquaredExponential$",
            ),
            (
                ks.SquaredExponential(1.0),
                ms.NegativeBinomial(2.0, 1e-9),
                "spreads over .* integers, too many.*measure: Brownian, Polynomial$",
            ),
            (
                ks.Brownian(),
                ms.Product(ms.Poisson(1.0), ms.UniformSpins(2)),
                "under Product.*First of Brownian, .*; Second of ExpHamming; Tensor",
            ),
            (
                ks.First(ks.Tanimoto()),
                ms.Product(ms.Poisson(1.0), ms.UniformSpins(2)),
                "no embedding of First under Product",
            ),
            (
                ks.Tanimoto() * ks.ExpHamming(1.0),
                ms.Mixture([0.5, 0.5], [ms.UniformCategorical(30, 2)] * 2),
                "no embedding of Product under UniformCategorical",
            ),
            (
                ks.SquaredExponential(1.0),
                ms.Pushforward(ms.UniformInterval(0, 1), np.exp, np.log),
                "under Pushforward.*Pullback by its inverse of Brownian",
            ),
        ],
    )
    def test_no_embedding(self, kernel, measure, message):
        with pytest.raises(ValueError, match=message):
            es.embed(kernel, measure)

    def test_too_many_pairs(self):
        embedding = es.embed(ks.SquaredExponential(5.0), ms.Counting(100_000))
        assert embedding.mean([50_000])[0] == pytest.approx(5 * math.sqrt(2 * math.pi), rel=1e-12)
        with pytest.raises(ValueError, match="SquaredExponential under Counting"):
            _ = embedding.initial_error

    def test_bad_arguments(self):
        with pytest.raises(TypeError, match="kernel must be a kernel"):
            es.embed("Brownian", ms.Poisson(1.0))
        with pytest.raises(TypeError, match="measure must be a measure"):
            es.embed(ks.Brownian(), 3)
        embedding = es.embed(ks.Brownian(), ms.Poisson(1.0))
        for points, message in (
            ([-1], "at least zero"),
            ([0.5], "must be integers"),
            ([np.nan], "must be finite"),
            ([[1, 2]], r"shape \(N,\)"),
        ):
            with pytest.raises(ValueError, match=message):
                embedding.mean(points)
        with pytest.raises(ValueError, match="at least zero"):
            es.embed(ks.IntegratedBrownian(1), ms.Counting(3)).mean([-1])
        with pytest.raises(ValueError, match="at least zero"):
            es.embed(ks.Brownian(), ms.UniformInterval(0, 1)).mean([-0.5])


class TestRegistry:
    def test_new_row(self):
        class Constant(ks.Kernel):
            def __call__(self, x, y):
                return np.ones((len(x), len(y)))

            def diagonal(self, x):
                return np.ones(len(x))

        measure = ms.UniformCategorical(50, 4)
        with patch.dict(ROWS.entries):

            @es.register(Constant, ms.UniformCategorical)
            def constant(kernel, measure):
                return es.Embedding(lambda y: np.ones(len(y)), 1.0)

            embedding = es.embed(2 * Constant(), measure)
            assert embedding.mean(np.zeros((3, 50), int)).tolist() == [2.0] * 3
            assert embedding.initial_error == 2.0
            with pytest.raises(ValueError, match="Constant, ExpHamming"):
                es.embed(ks.Tanimoto(), measure)
        with pytest.raises(ValueError, match="no embedding of Constant"):
            es.embed(Constant(), measure)

    def test_wrong_types(self):
        with pytest.raises(TypeError, match="kernel_type must be a kernel class"):
            es.register(ks.Brownian(), ms.Poisson)
        with pytest.raises(TypeError, match="measure_type must be a measure class"):
            es.register(ks.Brownian, 3)


class TestLongSums:
    @pytest.mark.parametrize("scale", [3e5, 1e7])
    def test_against_a_geometric_series(self, scale):
        high = int(60 * scale)
        value = long_sum(lambda r: np.exp(-r / scale), 0, high, lambda r: scale)
        assert value == pytest.approx(-1.0 / math.expm1(-1.0 / scale), rel=1e-14)

    def test_singular_start(self):
        # sum_{r=1}^n r^(-1/2) = zeta(1/2) - zeta(1/2, n + 1).
        n = 10**9
        with mpmath.workdps(30):
            exact = mpmath.zeta(0.5) - mpmath.zeta(0.5, n + 1)
        value = long_sum(lambda r: r**-0.5, 1, n, lambda r: math.inf)
        assert value == pytest.approx(float(exact), rel=1e-14)

    def test_survival_needs_a_row(self):
        with pytest.raises(NotImplementedError, match="Skellam"):
            survival(ms.Skellam(1.0, 1.0), np.array([1.0]))
