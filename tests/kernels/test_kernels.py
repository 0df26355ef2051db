"""Kernels against their definitions, and as positive-definite functions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special

from pymc_bayessum import kernels as ks
from pymc_bayessum import measures as ms

few = settings(deadline=None, max_examples=25)
scales = st.floats(0.05, 20.0)
naturals = st.lists(st.integers(0, 60), min_size=1, max_size=6)

ON_NATURALS = [
    ks.Brownian(),
    ks.Brownian(0.0),
    ks.IntegratedBrownian(0),
    ks.IntegratedBrownian(1),
    ks.IntegratedBrownian(3, scale=10.0),
    ks.Matern(0.5, 2.0),
    ks.Matern(3.5, 4.0),
    ks.Matern(6.5, 8.0, "sqrt"),
    ks.Matern(1.5, 1.0, np.log1p),
    ks.Polynomial(3),
    ks.SquaredExponential(3.0),
    2.5 * ks.Brownian() + ks.Polynomial(1) * ks.Matern(0.5, 3.0),
    ks.Pullback(ks.Brownian(), lambda x: np.asarray(x) // 2),
]


# The address of a mapping is left out: parallel workers must agree on the names.
@pytest.mark.parametrize("kernel", ON_NATURALS, ids=lambda kernel: str(kernel).split(" at 0x")[0])
class TestEveryKernelOnNaturals:
    def test_symmetric_and_positive_definite(self, kernel):
        x = np.array([0, 1, 2, 5, 6, 11, 20])
        gram = kernel(x, x)
        assert gram.shape == (7, 7)
        np.testing.assert_allclose(gram, gram.T, rtol=1e-14)
        assert np.linalg.eigvalsh(gram).min() >= -1e-10 * np.trace(gram)

    def test_diagonal(self, kernel):
        x = np.array([0, 3, 7])
        np.testing.assert_allclose(kernel.diagonal(x), np.diag(kernel(x, x)), rtol=1e-14)

    def test_rectangular(self, kernel):
        x, y = np.array([0, 4]), np.array([1, 2, 9])
        joint = kernel(np.concatenate([x, y]), np.concatenate([x, y]))
        np.testing.assert_allclose(kernel(x, y), joint[:2, 2:], rtol=1e-14)

    def test_growth_bounds_the_diagonal(self, kernel):
        if kernel.growth is not None:
            root = np.sqrt(kernel.diagonal([1000, 10_000, 100_000]))
            assert (root[1:] / root[:-1] <= 10**kernel.growth * (1 + 1e-9)).all()


class TestFormulas:
    @few
    @given(naturals, naturals, st.floats(0.0, 5.0))
    def test_brownian(self, x, y, shift):
        expected = [[min(a, b) + shift for b in y] for a in x]
        np.testing.assert_allclose(ks.Brownian(shift)(x, y), expected)

    @few
    @given(st.integers(0, 5), st.floats(0.0, 20.0), st.floats(0.0, 20.0), st.floats(0.5, 5.0))
    def test_integrated_brownian_is_its_integral(self, order, x, y, scale):
        a, b = x / scale, y / scale
        # Gauss with ten nodes is exact for the polynomial under the integral.
        nodes, weights = np.polynomial.legendre.leggauss(10)
        u = 0.5 * min(a, b) * (nodes + 1.0)
        value = 0.5 * min(a, b) * weights @ ((a - u) ** order * (b - u) ** order)
        value /= math.factorial(order) ** 2
        kernel = ks.IntegratedBrownian(order, scale)
        assert kernel([x], [y])[0, 0] == pytest.approx(value, rel=1e-11, abs=1e-300)

    def test_order_zero_is_brownian_without_shift(self):
        x = np.arange(9)
        np.testing.assert_array_equal(ks.IntegratedBrownian(0)(x, x), ks.Brownian(0.0)(x, x))

    @few
    @given(st.integers(0, 8), scales, st.floats(0.01, 30.0))
    def test_matern_is_the_bessel_form(self, p, lengthscale, distance):
        nu = p + 0.5
        r = math.sqrt(2 * nu) * distance / lengthscale
        expected = 2 ** (1 - nu) / special.gamma(nu) * r**nu * special.kv(nu, r)
        value = ks.Matern(nu, lengthscale)([0.0], [distance])[0, 0]
        assert value == pytest.approx(expected, rel=1e-10, abs=1e-280)

    def test_matern_transforms(self):
        x, y = np.array([0, 4, 9]), np.array([1, 16])
        plain = ks.Matern(2.5, 1.5)
        np.testing.assert_allclose(
            ks.Matern(2.5, 1.5, "sqrt")(x, y), plain(2 * np.sqrt(x), 2 * np.sqrt(y)), rtol=1e-14
        )
        np.testing.assert_allclose(
            ks.Matern(2.5, 1.5, np.log1p)(x, y), plain(np.log1p(x), np.log1p(y)), rtol=1e-14
        )

    @few
    @given(st.integers(1, 6), st.integers(-20, 20), st.integers(-20, 20))
    def test_polynomial(self, degree, x, y):
        assert ks.Polynomial(degree)([x], [y])[0, 0] == pytest.approx(float((x * y + 1) ** degree))

    @few
    @given(scales, st.floats(-5, 5), st.floats(-5, 5))
    def test_squared_exponential(self, lengthscale, x, y):
        value = ks.SquaredExponential(lengthscale)([x], [y])[0, 0]
        assert value == pytest.approx(math.exp(-0.5 * ((x - y) / lengthscale) ** 2), rel=1e-12)


class TestSites:
    @few
    @given(st.integers(1, 6), st.integers(2, 9), st.floats(0.01, 3.0), st.integers(0, 2**31))
    def test_exp_hamming(self, n_sites, n_states, decay, seed):
        rng = np.random.default_rng(seed)
        x, y = rng.integers(0, n_states, (2, 5, n_sites))
        distance = np.array([[(a != b).sum() for b in y] for a in x])
        np.testing.assert_array_equal(ks.hamming(x, y), distance)
        np.testing.assert_allclose(ks.ExpHamming(decay)(x, y), np.exp(-decay * distance))

    def test_exp_hamming_on_spins_and_many_sites(self):
        spins = ms.UniformSpins(200).sample(30, 0)
        np.testing.assert_allclose(
            ks.ExpHamming(0.3)(spins, spins), np.exp(-0.15 * (200 - spins @ spins.T)), rtol=1e-12
        )

    def test_exp_hamming_is_positive_definite(self):
        x = ms.Sites(4, 3).enumerate()
        assert np.linalg.eigvalsh(ks.ExpHamming(0.2)(x, x)).min() > 0

    def test_tanimoto(self):
        x = ms.Sites(5, 2).enumerate()
        gram = ks.Tanimoto()(x, x)
        for i, a in enumerate(x):
            for j, b in enumerate(x):
                union = (a | b).sum()
                assert gram[i, j] == ((a & b).sum() / union if union else 1.0)
        assert gram[0, 0] == 1.0
        assert np.linalg.eigvalsh(gram).min() > 0
        np.testing.assert_array_equal(ks.Tanimoto().diagonal(x), np.ones(32))


class TestAlgebra:
    def test_operators(self):
        x, y = [0, 2, 5], [1, 3]
        a, b = ks.Brownian(), ks.Polynomial(2)
        np.testing.assert_allclose((a + b)(x, y), a(x, y) + b(x, y))
        np.testing.assert_allclose((a * b)(x, y), a(x, y) * b(x, y))
        for scaled in (3 * a, a * 3, np.float64(3.0) * a):
            np.testing.assert_allclose(scaled(x, y), 3 * a(x, y))
        assert isinstance(a + b, ks.Sum)
        assert isinstance(a * b, ks.Product)
        assert (a * b).growth == a.growth + b.growth

    def test_pairs(self):
        x = (np.array([0.1, 0.7]), np.array([[0, 1], [1, 1]]))
        y = (np.array([0.4]), np.array([[1, 1]]))
        kx, ky = ks.SquaredExponential(0.3), ks.ExpHamming(0.5)
        np.testing.assert_allclose(ks.First(kx)(x, y), kx(x[0], y[0]))
        np.testing.assert_allclose(ks.Second(ky)(x, y), ky(x[1], y[1]))
        expected = kx(x[0], y[0]) * ky(x[1], y[1])
        np.testing.assert_allclose(ks.Tensor(kx, ky)(x, y), expected)
        np.testing.assert_allclose((ks.First(kx) * ks.Second(ky))(x, y), expected)
        for kernel in (ks.First(kx), ks.Second(ky), ks.Tensor(kx, ky)):
            np.testing.assert_allclose(kernel.diagonal(x), np.diag(kernel(x, x)))
            assert kernel.accepts(ms.Pair(ms.Interval(0, 1), ms.Sites(2, 2)))
            assert not kernel.accepts(ms.Naturals())
            assert kernel.growth == 0.0

    def test_unknown_growth_spreads(self):
        unknown = ks.Pullback(ks.Brownian(), np.exp)
        assert unknown.growth is None
        assert ks.Pullback(ks.Matern(0.5, 1.0), np.exp).growth == 0.0
        for kernel in (unknown + ks.Brownian(), unknown * ks.Brownian(), 2.0 * unknown):
            assert kernel.growth is None
        assert ks.Tensor(unknown, ks.Brownian()).growth is None

    def test_kernels_know_their_domain(self):
        assert not ks.Brownian().accepts(ms.Integers())
        assert not ks.Brownian().accepts(ms.Interval(-1, 1))
        assert ks.Polynomial(1).accepts(ms.Integers())
        assert not ks.Tanimoto().accepts(ms.Sites(4, 3))
        assert not ks.ExpHamming(1.0).accepts(ms.Naturals())
        assert not ks.Matern(0.5, 1.0, "sqrt").accepts(ms.Integers())
        assert not (ks.Brownian() + ks.Polynomial(1)).accepts(ms.Integers())

    def test_hashable_and_equal(self):
        assert ks.Matern(2.5, 1.0) == ks.Matern(2.5, 1.0)
        assert len({ks.Brownian(), ks.Brownian(1.0), 2 * ks.Brownian()}) == 2


class TestBadInput:
    @pytest.mark.parametrize(
        ("build", "message"),
        [
            (lambda: ks.Brownian(-1.0), "shift must be at least zero, got -1.0"),
            (lambda: ks.IntegratedBrownian(-1), "order must be at least 0"),
            (lambda: ks.IntegratedBrownian(1.5), "order must be an integer"),
            (lambda: ks.IntegratedBrownian(1, 0.0), "scale must be positive"),
            (lambda: ks.Matern(2.0, 1.0), r"nu must be one of 0.5, 1.5, 2.5, ..., got 2.0"),
            (lambda: ks.Matern(0.5, -1.0), "lengthscale must be positive"),
            (lambda: ks.Matern(0.5, 1.0, "log"), "transform must be None"),
            (lambda: ks.Polynomial(0), "degree must be at least 1"),
            (lambda: ks.ExpHamming(0.0), "decay must be positive"),
            (lambda: ks.ExpHamming(float("nan")), "decay must be finite"),
            (lambda: ks.SquaredExponential(-2.0), "lengthscale must be positive"),
            (lambda: -1.0 * ks.Brownian(), "scale must be positive"),
            (lambda: ks.Brownian()([-1], [2]), "at least zero, got -1"),
            (lambda: ks.Brownian()([[1]], [2]), r"shape \(N,\), got shape \(1, 1\)"),
            (lambda: ks.Brownian()([np.nan], [2]), "must be finite"),
            (lambda: ks.ExpHamming(1.0)([1, 2], [[1, 2]]), r"shape \(N, L\)"),
            (lambda: ks.ExpHamming(1.0)([[1, 2, 3]], [[1, 2]]), "equal numbers of sites"),
            (lambda: ks.ExpHamming(1.0)([[np.nan]], [[1]]), "must be finite"),
            (lambda: ks.Tanimoto()([[0, 2]], [[0, 1]]), "zeros and ones"),
        ],
    )
    def test_value_errors(self, build, message):
        with pytest.raises(ValueError, match=message):
            build()

    @pytest.mark.parametrize(
        ("build", "message"),
        [
            (lambda: ks.Brownian("a"), "shift must be a real number"),
            (lambda: ks.Sum(ks.Brownian(), 3), "second must be a kernel"),
            (lambda: ks.First(3), "base must be a kernel"),
            (lambda: ks.Pullback(ks.Brownian(), 3), "mapping must be callable"),
            (lambda: ks.First(ks.Brownian())([1], [2]), "takes pairs"),
            (lambda: ks.Brownian() + 3, "unsupported operand"),
            (lambda: ks.Brownian() * "a", "can't multiply|unsupported operand"),
        ],
    )
    def test_type_errors(self, build, message):
        with pytest.raises(TypeError, match=message):
            build()


def test_integral_of_integrated_brownian_by_quadrature():
    value, _ = integrate.quad(lambda u: ((3.0 - u) * (5.0 - u)) ** 2 / 4.0, 0.0, 3.0)
    assert ks.IntegratedBrownian(2)([3], [5])[0, 0] == pytest.approx(value, rel=1e-12)
