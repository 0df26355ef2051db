"""Measures against their definitions: masses, tails, draws with and without replacement."""

import copy
import itertools
import math
import pickle

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pymc_bayessum import measures as ms
from pymc_bayessum.measures import mass

few = settings(deadline=None, max_examples=25)
rates = st.floats(0.01, 200.0)
chances = st.floats(0.02, 0.98)


def exact_log_mass(measure, x):
    """Log mass in fifty digits, straight from the definition."""
    with mpmath.workdps(50):
        x = mpmath.mpf(int(x))
        match measure:
            case ms.Poisson():
                mu = mpmath.mpf(measure.mu)
                value = -mu + x * mpmath.log(mu) - mpmath.loggamma(x + 1)
            case ms.NegativeBinomial():
                n, p = mpmath.mpf(measure.n), mpmath.mpf(measure.p)
                choose = mpmath.loggamma(x + n) - mpmath.loggamma(n) - mpmath.loggamma(x + 1)
                value = choose + n * mpmath.log(p) + x * mpmath.log(1 - p)
            case ms.Geometric():
                p = mpmath.mpf(measure.p)
                value = mpmath.log(p) + x * mpmath.log(1 - p)
            case ms.Logarithmic():
                p = mpmath.mpf(measure.p)
                value = x * mpmath.log(p) - mpmath.log(x) - mpmath.log(-mpmath.log(1 - p))
            case ms.Skellam():
                a, b = mpmath.mpf(measure.mu1), mpmath.mpf(measure.mu2)
                bessel = mpmath.besseli(abs(x), 2 * mpmath.sqrt(a * b))
                value = -a - b + x / 2 * mpmath.log(a / b) + mpmath.log(bessel)
        return float(value)


class TestMasses:
    @few
    @given(rates, st.integers(0, 1000))
    def test_poisson(self, mu, x):
        measure = ms.Poisson(mu)
        exact = exact_log_mass(measure, x)
        assert measure.log_prob([x])[0] == pytest.approx(exact, rel=1e-13, abs=1e-13)

    @few
    @given(st.floats(0.01, 100.0), chances, st.integers(0, 1000))
    def test_negative_binomial(self, n, p, x):
        measure = ms.NegativeBinomial(n, p)
        exact = exact_log_mass(measure, x)
        assert measure.log_prob([x])[0] == pytest.approx(exact, rel=1e-12, abs=1e-12)

    @few
    @given(chances, st.integers(1, 1000))
    def test_geometric_and_logarithmic(self, p, x):
        for measure in (ms.Geometric(p), ms.Logarithmic(p)):
            exact = exact_log_mass(measure, x)
            assert measure.log_prob([x])[0] == pytest.approx(exact, rel=1e-13, abs=1e-13)

    @few
    @given(rates, rates, st.integers(-300, 300))
    def test_skellam(self, mu1, mu2, x):
        measure = ms.Skellam(mu1, mu2)
        exact = exact_log_mass(measure, x)
        assert measure.log_prob([x])[0] == pytest.approx(exact, rel=1e-11, abs=1e-11)

    def test_skellam_beyond_the_smallest_float(self):
        measure = ms.Skellam(2.0, 3.0)
        for x in (-900, -200, 200, 900):
            assert measure.log_prob([x])[0] == pytest.approx(exact_log_mass(measure, x), rel=1e-13)

    @pytest.mark.parametrize(
        ("measure", "x"),
        [
            (ms.Poisson(1e4), 10_123),
            (ms.Poisson(1e8), 100_012_345),
            (ms.NegativeBinomial(5.0, 1e-6), 5_000_000),
            (ms.NegativeBinomial(5.0, 1e-6), 40_000_000),
            (ms.NegativeBinomial(1e6, 1e-3), 999_123_456),
        ],
    )
    def test_large_arguments_keep_their_digits(self, measure, x):
        # An error in the log is a relative error in the mass.
        assert measure.log_prob([x])[0] == pytest.approx(exact_log_mass(measure, x), abs=2e-12)

    def test_series_and_direct_form_of_stirling_meet(self):
        x = np.array([14.999999, 15.0])
        with mpmath.workdps(40):
            for value, z in zip(mass.stirling_remainder(x), map(mpmath.mpf, x), strict=True):
                exact = mpmath.loggamma(z + 1) - (z + 0.5) * mpmath.log(z) + z
                exact -= mpmath.log(2 * mpmath.pi) / 2
                assert value == pytest.approx(float(exact), rel=1e-11)

    def test_geometric_counts_failures_from_zero(self):
        x = np.arange(6)
        expected = np.log(0.3 * 0.7**x)
        np.testing.assert_allclose(ms.Geometric(0.3).log_prob(x), expected, rtol=1e-14)
        np.testing.assert_allclose(ms.NegativeBinomial(1.0, 0.3).log_prob(x), expected, rtol=1e-13)

    def test_outside_the_support(self):
        assert np.isneginf(ms.Poisson(2.0).log_prob([-1])).all()
        assert np.isneginf(ms.Logarithmic(0.5).log_prob([0])).all()
        assert np.isneginf(ms.Counting(5).log_prob([6, -1])).all()
        assert np.isneginf(ms.UniformCategorical(2, 3).log_prob([[0, 3]])).all()
        assert np.isneginf(ms.UniformSpins(2).log_prob([[0, 1]])).all()
        assert np.isneginf(ms.UniformInterval(0, 1).log_prob([1.5])).all()

    def test_counting_has_mass_one_at_each_point(self):
        counting = ms.Counting(9)
        assert counting.log_prob(np.arange(10)).tolist() == [0.0] * 10
        assert counting.log_mass == pytest.approx(math.log(10))


COUNTS = [
    ms.Poisson(0.2),
    ms.Poisson(47.0),
    ms.NegativeBinomial(0.4, 0.05),
    ms.NegativeBinomial(6.0, 0.3),
    ms.Geometric(0.07),
    ms.Logarithmic(0.97),
    ms.Logarithmic(0.2),
    ms.Skellam(3.0, 40.0),
    ms.Skellam(0.3, 0.2),
    ms.Mixture([0.25, 0.75], [ms.Poisson(2.0), ms.NegativeBinomial(3.0, 0.1)]),
    ms.Mixture([0.5, 0.5], [ms.Logarithmic(0.5), ms.Skellam(4.0, 1.0)]),
]


@pytest.mark.parametrize("measure", COUNTS, ids=str)
class TestTails:
    def test_mass_in_the_effective_range_is_one(self, measure):
        x = measure.integers(-40.0)
        assert math.fsum(np.exp(measure.log_prob(x))) == pytest.approx(1.0, abs=1e-13)

    def test_mean_and_sd(self, measure):
        x = measure.integers()
        p = np.exp(measure.log_prob(x))
        assert measure.mean == pytest.approx(p @ x, rel=1e-11)
        assert measure.sd == pytest.approx(np.sqrt(p @ (x - p @ x) ** 2), rel=1e-11)

    @pytest.mark.parametrize("side", [1, -1])
    def test_tail_ratio_bounds_all_ratios_further_out(self, measure, side):
        low, high = measure.effective_range(-60.0)
        for z in np.linspace(low, high, 15).astype(int):
            far = z + side * np.arange(80)
            log_p = measure.log_prob(far)
            inside = np.isfinite(log_p[:-1])
            ratios = np.exp(log_p[1:][inside] - log_p[:-1][inside])
            assert ratios.max(initial=0.0) <= measure.tail_ratio(int(z), side) * (1 + 1e-9)

    @pytest.mark.parametrize("growth", [0.0, 3.0])
    def test_log_tail_bounds_the_tail(self, measure, growth):
        _, high = measure.effective_range(-20.0)
        far = np.arange(high + 1, high + 4000)
        weight = (np.abs(far) / max(abs(high), 1)) ** growth
        tail = (np.exp(measure.log_prob(far)) * weight).sum()
        assert 0.0 < tail <= math.exp(measure.log_tail(high, 1, growth)) * (1 + 1e-9)


def ordered_pair_counts(draw, points, n_draws):
    """How often each ordered pair came first and second."""
    index = {tuple(np.atleast_1d(p)): i for i, p in enumerate(points)}
    counts = np.zeros((len(points), len(points)))
    for seed in range(n_draws):
        a, b = draw(seed)
        counts[index[tuple(np.atleast_1d(a))], index[tuple(np.atleast_1d(b))]] += 1
    return counts


def assert_successive_sampling(counts, probs):
    """Compare with drawing one after the other in proportion to the mass, by chi-square."""
    expected = counts.sum() * probs[:, None] * probs[None, :] / (1.0 - probs[:, None])
    np.fill_diagonal(expected, 0.0)
    assert np.diag(counts).sum() == 0
    common = expected > 5
    chi2 = ((counts - expected)[common] ** 2 / expected[common]).sum()
    assert stats.chi2.sf(chi2, common.sum() - 1) > 1e-4


SMALL_SITES = {
    "product": ms.ProductCategorical([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2]]),
    "chain": ms.MarkovCategorical([0.6, 0.4], [[0.9, 0.1], [0.3, 0.7]], n_sites=3),
    "tree": ms.TreeCategorical(
        [0.6, 0.4], [(2, 0), (2, 1)], [[[0.9, 0.1], [0.3, 0.7]], [[0.5, 0.5], [0.2, 0.8]]]
    ),
    "uniform": ms.UniformCategorical(3, 2),
    "mixture": ms.Mixture(
        [0.3, 0.7],
        [ms.UniformCategorical(2, 3), ms.ProductCategorical([[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]])],
    ),
    "mixture of two orders": ms.Mixture(
        [0.5, 0.5],
        [
            ms.TreeCategorical([0.6, 0.4], [(1, 0)], [[0.9, 0.1], [0.3, 0.7]]),
            ms.UniformCategorical(2, 2),
        ],
    ),
}


class TestDistinctDraws:
    @pytest.mark.parametrize("name", SMALL_SITES)
    def test_sites_by_successive_sampling(self, name):
        measure = SMALL_SITES[name]
        points = measure.support.enumerate()
        counts = ordered_pair_counts(lambda s: measure.sample_distinct(2, s), points, 1500)
        assert_successive_sampling(counts, np.exp(measure.log_prob(points)))

    @pytest.mark.parametrize(
        "measure",
        [
            ms.Poisson(1.5),
            ms.Geometric(0.4),
            ms.Skellam(1.0, 0.5),
            ms.Counting(4),
            ms.Mixture([0.5, 0.5], [ms.Poisson(0.5), ms.Logarithmic(0.5)]),
        ],
        ids=str,
    )
    def test_integers_by_successive_sampling(self, measure):
        points = measure.integers()
        counts = ordered_pair_counts(lambda s: measure.sample_distinct(2, s), points, 1500)
        probs = np.exp(measure.log_prob(points) - measure.log_mass)
        assert_successive_sampling(counts, probs)

    def test_product_measure_by_successive_sampling(self):
        measure = ms.Product(ms.Counting(1), ms.ProductCategorical([[0.8, 0.2]]))
        first, second = measure.support.enumerate()
        joined = np.column_stack([first, second])

        def draw(seed):
            return np.column_stack(measure.sample_distinct(2, seed))

        counts = ordered_pair_counts(draw, joined, 1500)
        probs = np.exp(measure.log_prob((first, second)) - measure.log_mass)
        assert_successive_sampling(counts, probs)

    @pytest.mark.parametrize("name", SMALL_SITES)
    def test_whole_support(self, name):
        measure = SMALL_SITES[name]
        size = int(measure.support.size)
        drawn = measure.sample_distinct(size, 3)
        assert len(np.unique(drawn, axis=0)) == size
        with pytest.raises(ValueError, match="n must be at most"):
            measure.sample_distinct(size + 1, 3)

    @pytest.mark.parametrize("measure", COUNTS, ids=str)
    def test_far_into_the_tail(self, measure):
        drawn = measure.sample_distinct(400, 0)
        assert len(set(drawn.tolist())) == 400
        assert measure.support.contains(drawn).all()

    def test_poisson_takes_all_likely_points(self):
        # Points with mass above a third each are all but certain among the first sixty.
        drawn = ms.Poisson(30.0).sample_distinct(60, 1)
        assert set(range(20, 41)) <= set(drawn.tolist())

    def test_points_without_mass_are_never_drawn(self):
        measure = ms.ProductCategorical([[1.0, 0.0], [0.5, 0.5]])
        assert sorted(measure.sample_distinct(2, 0).tolist()) == [[0, 0], [0, 1]]
        with pytest.raises(ValueError, match="2 points with mass"):
            measure.sample_distinct(3, 0)

    def test_concentrated_sites_need_no_luck(self):
        measure = ms.ProductCategorical(np.tile([0.999, 0.001], (40, 1)))
        drawn = measure.sample_distinct(700, 0)
        assert len(np.unique(drawn, axis=0)) == 700
        # The zero vector and the forty neighbours carry all but 8e-4 of the mass.
        assert {tuple(row) for row in drawn if row.sum() <= 1}.__len__() == 41

    @pytest.mark.parametrize("n_sites", [15, 39, 200, 1500])
    def test_many_sites_are_not_listed(self, n_sites):
        drawn = ms.UniformCategorical(n_sites, 3).sample_distinct(2000, 0)
        assert len(np.unique(drawn, axis=0)) == 2000
        spins = ms.UniformSpins(n_sites).sample_distinct(500, 0)
        assert len(np.unique(spins, axis=0)) == 500
        assert set(np.unique(spins)) == {-1, 1}

    def test_very_wide_measures(self):
        for measure in (ms.NegativeBinomial(3.0, 1e-9), ms.Counting(10**12), ms.Geometric(1e-8)):
            assert len(set(measure.sample_distinct(50, 0).tolist())) == 50

    def test_infinite_product_that_repeats_itself(self):
        measure = ms.Product(ms.Poisson(1e-6), ms.Poisson(1e-6))
        with pytest.raises(ValueError, match=r"draws gave .* too large to list; ask for fewer"):
            measure.sample_distinct(30, 0)

    def test_seeds(self):
        a = ms.Poisson(9.0).sample_distinct(5, 7)
        b = ms.Poisson(9.0).sample_distinct(5, np.random.default_rng(7))
        assert a.tolist() == b.tolist()
        assert ms.Poisson(9.0).sample_distinct(0, 7).shape == (0,)
        assert ms.ProductCategorical([[0.5, 0.5]]).sample_distinct(0, 7).shape == (0, 1)
        assert ms.UniformInterval(0.0, 1.0).sample_distinct(0, 7).shape == (0,)
        assert ms.UniformSpins(70).sample_distinct(0, 7).shape == (0, 70)


class TestDraws:
    @pytest.mark.parametrize("measure", COUNTS, ids=str)
    def test_counts_have_their_mean(self, measure):
        x = measure.sample(4000, 5)
        assert abs(x.mean() - measure.mean) < 5 * measure.sd / math.sqrt(4000)

    @pytest.mark.parametrize("name", SMALL_SITES)
    def test_sites_have_their_frequencies(self, name):
        measure = SMALL_SITES[name]
        points = measure.support.enumerate()
        p = np.exp(measure.log_prob(points))
        assert p.sum() == pytest.approx(1.0, abs=1e-13)
        draws = measure.sample(4000, 5)
        counts = (draws[:, None, :] == points[None]).all(axis=2).sum(axis=0)
        chi2 = ((counts - 4000 * p) ** 2 / (4000 * p)).sum()
        assert stats.chi2.sf(chi2, len(p) - 1) > 1e-4

    def test_shapes(self):
        pair = ms.Product(ms.UniformInterval(0, 1), ms.UniformSpins(3)).sample(7, 0)
        assert [part.shape for part in pair] == [(7,), (7, 3)]


class TestTrees:
    def test_joint_mass_from_the_tables(self):
        rng = np.random.default_rng(0)
        root = rng.dirichlet(np.ones(3), 2)
        edges = [(3, 0), (0, 2), (3, 4)]
        tables = rng.dirichlet(np.ones(3), (3, 3))
        forest = ms.TreeCategorical(root, edges, tables)
        assert forest.n_sites == 5
        assert forest.roots.tolist() == [1, 3]
        for x in itertools.product(range(3), repeat=5):
            p = root[0, x[1]] * root[1, x[3]]
            for (i, j), table in zip(edges, tables, strict=True):
                p *= table[x[i], x[j]]
            assert np.exp(forest.log_prob([x])[0]) == pytest.approx(p, rel=1e-13)

    def test_marginals(self):
        rng = np.random.default_rng(1)
        tree = ms.TreeCategorical(
            rng.dirichlet(np.ones(2)), [(1, 0), (1, 2), (2, 3)], rng.dirichlet(np.ones(2), (3, 2))
        )
        x = tree.support.enumerate()
        p = np.exp(tree.log_prob(x))
        brute = np.array([[p[x[:, j] == s].sum() for s in range(2)] for j in range(4)])
        np.testing.assert_allclose(tree.marginals(), brute, rtol=1e-13)

    def test_chain_is_a_tree(self):
        tables = [[[0.9, 0.1], [0.3, 0.7]], [[0.2, 0.8], [0.6, 0.4]]]
        chain = ms.MarkovCategorical([0.6, 0.4], tables)
        assert np.exp(chain.log_prob([[0, 1, 0]])[0]) == pytest.approx(0.6 * 0.1 * 0.6)


class TestCompound:
    def test_mixture_of_mixtures(self):
        inner = ms.Mixture([0.5, 0.5], [ms.Poisson(1.0), ms.Poisson(4.0)])
        outer = ms.Mixture([0.2, 0.8], [inner, ms.Geometric(0.5)])
        x = np.arange(5)
        expected = 0.1 * (stats.poisson.pmf(x, 1) + stats.poisson.pmf(x, 4)) + 0.8 * 0.5 ** (x + 1)
        np.testing.assert_allclose(np.exp(outer.log_prob(x)), expected, rtol=1e-12)

    def test_mixture_on_intervals(self):
        mixture = ms.Mixture([0.5, 0.5], [ms.UniformInterval(0, 1), ms.UniformInterval(0.5, 2.5)])
        density = np.exp(mixture.log_prob([0.2, 0.7, 2.0, 3.0]))
        np.testing.assert_allclose(density, [0.5, 0.75, 0.25, 0.0])
        assert mixture.support == ms.Interval(0, 2.5)

    def test_pushforward_on_counts(self):
        odd = ms.Pushforward(ms.Poisson(3.0), lambda x: 2 * x + 1, lambda y: (y - 1) // 2)
        expected = [0.0, stats.poisson.pmf(0, 3), 0.0, stats.poisson.pmf(1, 3)]
        np.testing.assert_allclose(np.exp(odd.log_prob([0, 1, 2, 3])), expected, rtol=1e-12)
        assert odd.log_prob([-3, -5]).tolist() == [-np.inf, -np.inf]
        drawn = odd.sample_distinct(20, 0)
        assert (drawn % 2 == 1).all()
        assert len(set(drawn.tolist())) == 20

    def test_pushforward_of_an_interval_has_a_density(self):
        y = np.linspace(-2.0, 2.0, 9)
        normal = ms.Pushforward(ms.UniformInterval(0, 1), stats.norm.ppf, stats.norm.cdf)
        np.testing.assert_allclose(normal.log_prob(y), stats.norm.logpdf(y), atol=1e-9)
        exact = ms.Pushforward(
            ms.UniformInterval(0, 1), stats.norm.ppf, stats.norm.cdf, stats.norm.logpdf
        )
        np.testing.assert_allclose(exact.log_prob(y), stats.norm.logpdf(y), rtol=1e-14)

    def test_product_of_counting_measures(self):
        product = ms.Product(ms.Counting(3), ms.Counting(4))
        assert product.log_mass == pytest.approx(math.log(20))
        assert product.support.size == 20
        assert len(product.support.enumerate()[0]) == 20


@pytest.mark.parametrize("measure", [*COUNTS, *SMALL_SITES.values()], ids=str)
def test_measures_travel_between_processes(measure):
    again = pickle.loads(pickle.dumps(measure))
    assert type(again) is type(measure)
    x = measure.sample(20, 0)
    np.testing.assert_array_equal(again.log_prob(x), measure.log_prob(x))
    np.testing.assert_array_equal(
        copy.deepcopy(measure).sample_distinct(3, 1), measure.sample_distinct(3, 1)
    )


class TestSupports:
    def test_contains(self):
        assert ms.Naturals().contains([0, 3, -1]).tolist() == [True, True, False]
        assert ms.Naturals(1).contains([0.0, 1.0, 1.5, np.nan, np.inf]).tolist() == [
            False,
            True,
            False,
            False,
            False,
        ]
        assert ms.Integers().contains([-4, 2]).all()
        assert ms.Range(-1, 2).contains([-2, -1, 2, 3]).tolist() == [False, True, True, False]
        assert ms.Sites(2, 3).contains([[0, 2], [0, 3]]).tolist() == [True, False]
        assert ms.Spins(2).contains([[-1, 1], [0, 1]]).tolist() == [True, False]
        assert ms.Interval(0, 1).contains([0.0, 1.0, 1.1]).tolist() == [True, True, False]
        pair = ms.Pair(ms.Range(0, 1), ms.Interval(0, 1))
        assert pair.contains(([0, 2], [0.5, 0.5])).tolist() == [True, False]

    def test_sizes_and_listings(self):
        assert math.isinf(ms.Naturals().size)
        assert ms.Range(2, 5).enumerate().tolist() == [2, 3, 4, 5]
        listed = ms.Sites(3, 3).enumerate()
        assert ms.Sites(3, 3).size == 27 == len(np.unique(listed, axis=0))
        assert len(np.unique(ms.Spins(4).enumerate(), axis=0)) == 16
        for n_sites in (40, 5000):
            with pytest.raises(ValueError, match="more than"):
                ms.Sites(n_sites, 3).enumerate()
        assert math.isinf(ms.Pair(ms.Sites(5000, 3), ms.Naturals()).size)


class TestBadInput:
    @pytest.mark.parametrize(
        ("build", "message"),
        [
            (lambda: ms.Poisson(-1.0), "mu must be positive, got -1.0"),
            (lambda: ms.Poisson(float("nan")), "mu must be finite"),
            (lambda: ms.Poisson(0.0), "mu must be positive"),
            (lambda: ms.NegativeBinomial(0.0, 0.5), "n must be positive"),
            (lambda: ms.NegativeBinomial(1.0, 1.5), "p must lie strictly between 0 and 1"),
            (lambda: ms.Geometric(0.0), "p must lie strictly"),
            (lambda: ms.Logarithmic(1.0), "p must lie strictly"),
            (lambda: ms.Skellam(1.0, -2.0), "mu2 must be positive"),
            (lambda: ms.Counting(-1), "maximum must be at least 0"),
            (lambda: ms.Counting(2.5), "maximum must be an integer"),
            (lambda: ms.UniformCategorical(0, 3), "n_sites must be at least 1"),
            (lambda: ms.UniformCategorical(3, 0), "n_states must be at least 1"),
            (lambda: ms.UniformSpins(True), "n_sites must be an integer"),
            (lambda: ms.ProductCategorical([0.5, 0.5]), "probs must have 2 dimensions"),
            (lambda: ms.ProductCategorical([[0.5, 0.6]]), "probs must sum to one"),
            (lambda: ms.ProductCategorical([[1.5, -0.5]]), "probs must be non-negative"),
            (lambda: ms.ProductCategorical([[np.nan, 1.0]]), "probs must hold finite"),
            (lambda: ms.ProductCategorical(np.zeros((0, 2))), "at least one site"),
            (lambda: ms.ProductCategorical(np.zeros((2, 0))), "must not be empty"),
            (lambda: ms.TreeCategorical([0.5, 0.5], [(0, 5)], np.eye(2)), "sites below 2"),
            (lambda: ms.TreeCategorical([0.5, 0.5], [(0, -1)], np.eye(2)), "site numbers"),
            (
                lambda: ms.TreeCategorical([0.5, 0.5], [(0, 2), (1, 2)], np.eye(2)),
                "site 2 is the child of more than one edge",
            ),
            (
                lambda: ms.TreeCategorical([0.5, 0.5], [(1, 2), (2, 1)], np.eye(2)),
                "got a cycle",
            ),
            (lambda: ms.TreeCategorical([0.5, 0.5], [(0, 1)], np.eye(3)), "tables must have shape"),
            (lambda: ms.MarkovCategorical([0.5, 0.5], np.eye(2)), "n_sites must be given"),
            (lambda: ms.MarkovCategorical([0.5, 0.5], [np.eye(2)], 5), "n_sites - 1 = 4 tables"),
            (lambda: ms.UniformInterval(1.0, 1.0), "low must be below high"),
            (lambda: ms.Mixture([0.5], [ms.Poisson(1), ms.Poisson(2)]), "one length"),
            (lambda: ms.Mixture([], []), "one length"),
            (lambda: ms.Mixture([0.5, 0.6], [ms.Poisson(1), ms.Poisson(2)]), "sum to one"),
            (lambda: ms.Mixture([1.0], [ms.Counting(3)]), "must be probabilities"),
            (
                lambda: ms.Mixture([0.5, 0.5], [ms.Poisson(1), ms.UniformSpins(2)]),
                "one kind of space",
            ),
            (lambda: ms.Poisson(2.0).sample(-1), "n must be at least 0"),
            (lambda: ms.Poisson(2.0).log_prob([[1, 2]]), r"shape \(N,\)"),
            (lambda: ms.Poisson(2.0).log_prob([1.5]), "must be integers, got 1.5"),
            (lambda: ms.Poisson(2.0).log_prob([np.nan]), "must be finite"),
            (lambda: ms.UniformCategorical(3, 2).log_prob([[0, 1]]), "must have 3 sites"),
            (
                lambda: ms.Product(ms.Poisson(1), ms.Poisson(2)).log_prob(([1], [1, 2])),
                "equal length",
            ),
        ],
    )
    def test_value_errors(self, build, message):
        with pytest.raises(ValueError, match=message):
            build()

    @pytest.mark.parametrize(
        ("build", "message"),
        [
            (lambda: ms.Poisson("many"), "mu must be a real number, got 'many'"),
            (lambda: ms.ProductCategorical("ab"), "probs must be an array"),
            (lambda: ms.Mixture([1.0], [3]), "measures must hold measures only"),
            (lambda: ms.Product(ms.Poisson(1), 2), "second must be a measure"),
            (lambda: ms.Pushforward(ms.Poisson(1), 2, 3), "forward must be callable"),
            (lambda: ms.Pushforward(1, abs, abs), "measure must be a measure"),
            (lambda: ms.Poisson(1.0).log_prob(["a"]), "points must be numbers"),
            (
                lambda: ms.Product(ms.Poisson(1), ms.Poisson(2)).log_prob([1, 2, 3]),
                "must be a pair",
            ),
        ],
    )
    def test_type_errors(self, build, message):
        with pytest.raises(TypeError, match=message):
            build()

    def test_measures_cannot_be_changed(self):
        measure = ms.ProductCategorical([[0.5, 0.5]])
        with pytest.raises(ValueError, match="read-only"):
            measure.probs[0, 0] = 1.0
        with pytest.raises(AttributeError):
            ms.Poisson(1.0).mu = 3.0
