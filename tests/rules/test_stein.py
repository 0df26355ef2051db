import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pymc_bayessum.kernels import ExpHamming, Kernel, Stein, Tanimoto, hamming
from pymc_bayessum.kernels.stein import score, turn
from pymc_bayessum.measures import Sites, UniformCategorical
from pymc_bayessum.rules.stein import ksd, ksd_test, stein_rule
from pymc_bayessum.solve import MeanSpaceGram


class Inverse(Kernel):
    """A base kernel without a closed form: products over sites, different at each."""

    def __call__(self, x, y):
        x, y = np.asarray(x), np.asarray(y)
        site = np.arange(x.shape[1])
        return (1.0 / (1.0 + 0.2 * (1 + site) * np.abs(x[:, None, :] - y[None, :, :]))).prod(-1)

    def diagonal(self, x):
        return np.ones(len(x))


def table(n_sites, n_states, seed, spread=1.0):
    """Points of the whole space, a random positive p on them and its log up to a constant."""
    points = Sites(n_sites, n_states).enumerate()
    log_p = spread * np.random.default_rng(seed).normal(size=len(points))
    place = n_states ** np.arange(n_sites - 1, -1, -1)
    p = np.exp(log_p)
    return points, p / p.sum(), lambda x: log_p[np.asarray(x) @ place] + 3.0


def difference(f, x, n_states, step=1):
    """Differences of a function under a turn of each site, shape (N, L)."""
    there = [f(turn(x, site, n_states, step)) for site in range(x.shape[1])]
    return f(x)[:, None] - np.stack(there, axis=1)


def turned(x, site, n_states, step):
    y = x.copy()
    y[site] = (y[site] + step) % n_states
    return y


def stein_by_definition(base, x, y, p_of, n_states):
    """One entry of the Stein kernel, L x L blocks and all, from probabilities."""
    n_sites = len(x)

    def k(a, b):
        return base(a[None], b[None])[0, 0]

    def s(z):
        return np.array(
            [(p_of(z) - p_of(turned(z, i, n_states, 1))) / p_of(z) for i in range(n_sites)]
        )

    def back(z, i):
        return turned(z, i, n_states, -1)

    d_y = np.array([k(x, y) - k(x, back(y, i)) for i in range(n_sites)])
    d_x = np.array([k(x, y) - k(back(x, i), y) for i in range(n_sites)])
    both = np.array(
        [
            [
                k(x, y) - k(back(x, i), y) - k(x, back(y, j)) + k(back(x, i), back(y, j))
                for j in range(n_sites)
            ]
            for i in range(n_sites)
        ]
    )
    return s(x) @ s(y) * k(x, y) - s(x) @ d_y - d_x @ s(y) + np.trace(both)


spaces = st.sampled_from([(1, 2), (3, 2), (3, 3), (2, 5), (2, 11), (5, 2)])


class TestOperators:
    @given(space=spaces, seed=st.integers(0, 1000))
    @settings(max_examples=15, deadline=None)
    def test_differences_are_adjoint_under_plain_summation(self, space, seed):
        points, _, f = table(*space, seed)
        _, _, g = table(*space, seed + 1)
        left = (difference(f, points, space[1]) * g(points)[:, None]).sum(axis=0)
        right = (f(points)[:, None] * difference(g, points, space[1], -1)).sum(axis=0)
        np.testing.assert_allclose(left, right, atol=1e-11)

    @given(space=spaces, seed=st.integers(0, 1000))
    @settings(max_examples=15, deadline=None)
    def test_score_is_the_relative_difference_of_p(self, space, seed):
        points, p, log_prob = table(*space, seed)
        lookup = {row.tobytes(): q for row, q in zip(points, p, strict=True)}

        def p_of(x):
            return np.array([lookup[row.tobytes()] for row in x])

        expected = difference(p_of, points, space[1]) / p[:, None]
        np.testing.assert_allclose(score(log_prob, points, space[1]), expected, rtol=1e-10)

    def test_score_needs_no_constant_and_does_not_overflow(self):
        x = np.array([[0, 1, 2]])
        a = score(lambda x: 0.5 * x.sum(axis=1), x, 3)
        b = score(lambda x: 0.5 * x.sum(axis=1) - 5000.0, x, 3)
        np.testing.assert_allclose(a, b, rtol=1e-9)

    def test_score_takes_compiled_functions(self):
        import pytensor
        import pytensor.tensor as pt

        batch, point = pt.imatrix("x"), pt.dvector("x")
        whole = pytensor.function([batch], [0.3 * batch.sum(axis=1)], mode="FAST_COMPILE")
        single = pytensor.function([point], 0.3 * point.sum(), mode="FAST_COMPILE")
        x = np.random.default_rng(0).integers(0, 3, (6, 4))
        expected = score(lambda x: 0.3 * x.sum(axis=1), x, 3)
        np.testing.assert_allclose(score(whole, x, 3), expected, rtol=1e-12)
        np.testing.assert_allclose(score(single, x, 3), expected, rtol=1e-12)

    @pytest.mark.parametrize(
        ("x", "n_states", "log_prob", "message"),
        [
            ([[0, 3]], 3, lambda x: np.zeros(len(x)), "states 0, ..., 2"),
            ([[-1, 1]], 2, lambda x: np.zeros(len(x)), "spins"),
            ([0, 1], 3, lambda x: np.zeros(len(x)), "shape"),
            ([[0, 1]], 1, lambda x: np.zeros(len(x)), "n_states must be at least 2"),
            ([[0, 1]], 2.5, lambda x: np.zeros(len(x)), "n_states must be an integer"),
            ([[0, 1]], 3, lambda x: np.zeros((len(x), 2)), "log_prob must map"),
            ([[0, 1]], 3, lambda x: np.full(len(x), np.nan), "finite"),
            ([[0, 1]], 3, lambda x: np.full(len(x), -np.inf), "finite"),
            ([[0, 1]], 3, lambda x: 1e4 * x.sum(axis=1), "overflows"),
        ],
    )
    def test_bad_input(self, x, n_states, log_prob, message):
        with pytest.raises(ValueError, match=message):
            score(log_prob, x, n_states)


class TestKernel:
    @given(space=spaces, seed=st.integers(0, 1000), decay=st.floats(0.01, 3.0))
    @settings(max_examples=20, deadline=None)
    def test_mean_under_p_is_zero(self, space, seed, decay):
        points, p, log_prob = table(*space, seed)
        for base in (ExpHamming(decay), Inverse(), 2.0 * ExpHamming(decay) + Inverse()):
            gram = Stein(base, log_prob, space[1])(points, points)
            scale = max(1.0, np.abs(gram).max())
            np.testing.assert_allclose(p @ gram, 0.0, atol=1e-13 * scale)

    def test_mean_under_a_weakly_coupled_p_is_zero_in_absolute_terms(self):
        points, p, log_prob = table(5, 3, 0, spread=0.2)
        gram = Stein(ExpHamming(0.1), log_prob, 3)(points, points)
        assert np.abs(p @ gram).max() < 1e-13

    @given(space=spaces, seed=st.integers(0, 1000), decay=st.floats(0.01, 3.0))
    @settings(max_examples=15, deadline=None)
    def test_entries_follow_the_definition(self, space, seed, decay):
        points, p, log_prob = table(*space, seed)
        lookup = {row.tobytes(): q for row, q in zip(points, p, strict=True)}
        some = np.random.default_rng(seed).choice(len(points), min(5, len(points)), replace=False)
        x = points[some]
        for base in (ExpHamming(decay), Inverse()):
            kernel = Stein(base, log_prob, space[1])
            expected = [
                [
                    stein_by_definition(base, a, b, lambda z: lookup[z.tobytes()], space[1])
                    for b in x
                ]
                for a in x
            ]
            np.testing.assert_allclose(kernel(x, x), expected, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(kernel.diagonal(x), np.diagonal(expected), rtol=1e-9)

    def test_closed_form_equals_the_general_one_and_splits_up(self):
        class Plain(Kernel):
            def __call__(self, x, y):
                return np.exp(-0.3 * hamming(x, y))

            def diagonal(self, x):
                return np.ones(len(x))

        rng = np.random.default_rng(3)
        x, y = rng.integers(0, 4, (7, 6)), rng.integers(0, 4, (9, 6))

        def log_prob(x):
            return 0.2 * x.sum(axis=1) + 0.5 * (x[:, 1:] == x[:, :-1]).sum(axis=1)

        closed, general = (Stein(b, log_prob, 4) for b in (ExpHamming(0.3), Plain()))
        np.testing.assert_allclose(closed(x, y), general(x, y), rtol=1e-10, atol=1e-12)
        mixed = Stein(2.0 * ExpHamming(0.3) + Plain(), log_prob, 4)
        np.testing.assert_allclose(mixed(x, y), 3.0 * closed(x, y), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(mixed.diagonal(x), 3.0 * closed.diagonal(x), rtol=1e-10)

    def test_positive_semidefinite_with_p_in_the_null_space_only(self):
        points, p, log_prob = table(3, 3, 7)
        values, vectors = np.linalg.eigh(Stein(ExpHamming(0.5), log_prob, 3)(points, points))
        assert values[0] == pytest.approx(0.0, abs=1e-12 * values[-1])
        assert values[1] > 1e-6
        np.testing.assert_allclose(vectors[:, 0] / vectors[:, 0].sum(), p, atol=1e-9)

    def test_other_bases_and_supports(self):
        points, p, log_prob = table(4, 2, 1)
        kernel = Stein(Tanimoto(), log_prob, 2)
        np.testing.assert_allclose(p @ kernel(points, points), 0.0, atol=1e-12)
        assert kernel.accepts(Sites(4, 2))
        assert not kernel.accepts(Sites(4, 3))

    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ((0.1, len, 3), TypeError, "base must be a kernel"),
            ((ExpHamming(0.1), None, 3), TypeError, "log_prob must be callable"),
            ((ExpHamming(0.1), len, 1), ValueError, "n_states"),
        ],
    )
    def test_bad_input(self, arguments, error, message):
        with pytest.raises(error, match=message):
            Stein(*arguments)

    def test_points_must_have_equal_numbers_of_sites(self):
        kernel = Stein(ExpHamming(0.1), lambda x: np.zeros(len(x)), 3)
        with pytest.raises(ValueError, match="equal numbers of sites"):
            kernel([[0, 1]], [[0, 1, 2]])


def chain_log_prob(x):
    """Potts chain: field 0.1 * state, coupling 0.1 * [equal neighbours], at beta = 1 / 2.269."""
    return (0.1 * x.sum(axis=1) + 0.1 * (x[:, 1:] == x[:, :-1]).sum(axis=1)) / 2.269


def logistic_of_mean(x):
    return 1.0 / (1.0 + np.exp(-x.mean(axis=1)))


def chain_truth(n_sites, n_states=3, beta=1 / 2.269):
    """E_p[logistic(mean state)] by passing (last state, sum of states) along the chain."""
    state = np.arange(n_states)
    joint = np.zeros((n_states, n_sites * (n_states - 1) + 1))
    joint[state, state] = np.exp(0.1 * beta * state)
    for _ in range(n_sites - 1):
        step = np.zeros_like(joint)
        for s in state:
            weight = np.exp(0.1 * beta * (s + (state == s)))
            step[s, s:] = (weight @ joint)[: joint.shape[1] - s]
        joint = step
    mass = joint.sum(axis=0) / joint.sum()
    return mass @ (1.0 / (1.0 + np.exp(-np.arange(joint.shape[1]) / n_sites)))


class TestRule:
    def test_the_chain_agrees_with_enumeration(self):
        points = Sites(6, 3).enumerate()
        p = np.exp(chain_log_prob(points))
        assert chain_truth(6) == pytest.approx(p @ logistic_of_mean(points) / p.sum(), rel=1e-13)
        assert chain_truth(15) == pytest.approx(0.7348879, abs=5e-8)

    @pytest.mark.parametrize("n_nodes", [1, 10, 60])
    def test_weights_and_variance_follow_the_formula(self, n_nodes):
        nodes = UniformCategorical(5, 3).sample_distinct(n_nodes, 0)
        rule = stein_rule(ExpHamming(0.4), chain_log_prob, nodes, 3)
        inverse = np.linalg.inv(Stein(ExpHamming(0.4), chain_log_prob, 3)(nodes, nodes))
        ones = np.ones(n_nodes)
        np.testing.assert_allclose(rule.weights, inverse @ ones / inverse.sum(), rtol=1e-6)
        assert rule.variance == pytest.approx(1.0 / inverse.sum(), rel=1e-6)
        assert rule.weights.sum() == pytest.approx(1.0, abs=1e-12)
        np.testing.assert_array_equal(rule.log_base, 0.0)
        y = np.random.default_rng(1).normal(size=n_nodes)
        centred = y - rule.weights @ y
        form = centred @ inverse @ centred
        assert rule.quadratic_form(y) == pytest.approx(form, rel=1e-6, abs=1e-12)
        if n_nodes > 1:
            sd = rule.expectation(y).sd
            assert sd == pytest.approx(np.sqrt(form / (n_nodes - 1) * rule.variance), rel=1e-6)

    def test_constants_are_exact_and_shifts_leave_the_sd_alone(self):
        nodes = UniformCategorical(8, 3).sample_distinct(40, 2)
        rule = stein_rule(ExpHamming(0.1), chain_log_prob, nodes, 3)
        y = logistic_of_mean(nodes)
        assert rule.expectation(np.full(40, 7.0)).mean == pytest.approx(7.0, rel=1e-12)
        shifted = rule.expectation(y + 100.0)
        assert shifted.mean == pytest.approx(rule.expectation(y).mean + 100.0, rel=1e-12)
        assert shifted.sd == pytest.approx(rule.expectation(y).sd, rel=1e-6)

    @given(space=st.sampled_from([(3, 2), (3, 3), (2, 9)]), seed=st.integers(0, 1000))
    @settings(max_examples=10, deadline=None)
    def test_all_points_as_nodes_give_back_p(self, space, seed):
        points, p, log_prob = table(*space, seed)
        rule = stein_rule(ExpHamming(0.7), log_prob, points, space[1])
        np.testing.assert_allclose(rule.weights, p, atol=1e-9)
        assert rule.variance < 1e-9

    def test_restricted_likelihood_is_that_of_contrasts(self):
        rng = np.random.default_rng(4)
        nodes = UniformCategorical(4, 3).sample_distinct(12, rng)
        rule = stein_rule(ExpHamming(0.5), chain_log_prob, nodes, 3)
        gram = Stein(ExpHamming(0.5), chain_log_prob, 3)(nodes, nodes)
        # Contrasts: an orthonormal basis of the vectors that sum to zero.
        contrasts = np.linalg.svd(np.ones((1, 12)))[2][1:]
        reduced = contrasts @ gram @ contrasts.T
        y = rng.normal(size=12)
        z = contrasts @ y
        form = z @ np.linalg.solve(reduced, z)
        assert isinstance(rule.gram, MeanSpaceGram)
        assert rule.quadratic_form(y) == pytest.approx(form, rel=1e-8)
        log_det = np.linalg.slogdet(reduced)[1] + np.log(12)
        assert rule.gram.log_det == pytest.approx(log_det, rel=1e-10)

    def test_the_paper_chain_of_fifteen_sites(self):
        truth = chain_truth(15)
        errors = {100: [], 316: []}
        for n, found in errors.items():
            for seed in range(8):
                nodes = UniformCategorical(15, 3).sample_distinct(n, seed)
                rule = stein_rule(ExpHamming(0.01), chain_log_prob, nodes, 3)
                found.append(abs(rule.expectation(logistic_of_mean(nodes)).mean - truth))
        assert np.mean(errors[100]) < 1.05e-3
        assert np.mean(errors[316]) < 1.5e-4

    def test_a_thousand_nodes_reach_five_digits(self):
        nodes = UniformCategorical(15, 3).sample_distinct(1000, 0)
        rule = stein_rule(ExpHamming(0.003), chain_log_prob, nodes, 3)
        estimate = rule.expectation(logistic_of_mean(nodes))
        assert estimate.mean == pytest.approx(chain_truth(15), abs=4.0 * estimate.sd)
        assert estimate.sd < 4e-5

    def test_log_sum_is_a_ratio_of_normalising_constants(self):
        points, p, log_prob = table(4, 3, 5, spread=0.3)
        rule = stein_rule(ExpHamming(0.1), log_prob, points[::2], 3)
        tilt = 0.05 * points.sum(axis=1)
        assert rule.log_sum(tilt[::2]) == pytest.approx(np.log(p @ np.exp(tilt)), abs=1e-2)

    @pytest.mark.parametrize(
        ("nodes", "kernel", "error", "message"),
        [
            ([[0, 1], [0, 1]], ExpHamming(0.1), ValueError, "distinct"),
            ([[0, 1], [0, 3]], ExpHamming(0.1), ValueError, "outside"),
            (np.empty((0, 2)), ExpHamming(0.1), ValueError, "nodes must have shape"),
            ([0, 1], ExpHamming(0.1), ValueError, "nodes must have shape"),
            ([[0, 1]], "hamming", TypeError, "kernel must be a Kernel"),
            (
                [[0, 1]],
                Stein(ExpHamming(0.1), lambda x: np.ones(len(x)), 3),
                ValueError,
                "another log_prob",
            ),
        ],
    )
    def test_bad_input(self, nodes, kernel, error, message):
        with pytest.raises(error, match=message):
            stein_rule(kernel, chain_log_prob, nodes, 3)

    def test_a_stein_kernel_of_the_same_p_is_taken_as_it_is(self):
        kernel = Stein(ExpHamming(0.1), chain_log_prob, 3)
        nodes = UniformCategorical(5, 3).sample_distinct(20, 0)
        rule = stein_rule(kernel, chain_log_prob, nodes, 3)
        assert rule.kernel is kernel
        expected = stein_rule(ExpHamming(0.1), chain_log_prob, nodes, 3)
        np.testing.assert_array_equal(rule.weights, expected.weights)


class TestDiscrepancy:
    def test_statistics_equal_sums_over_the_whole_matrix(self, monkeypatch):
        monkeypatch.setattr("pymc_bayessum.kernels.base.BLOCK", 13)
        x = np.random.default_rng(0).integers(0, 3, (50, 4))  # with repeats, in uneven blocks
        gram = Stein(ExpHamming(0.2), chain_log_prob, 3)(x, x)
        u = (gram.sum() - np.trace(gram)) / (50 * 49)
        assert ksd(x, chain_log_prob, ExpHamming(0.2), 3) == pytest.approx(u, rel=1e-10)
        v = ksd(x, chain_log_prob, ExpHamming(0.2), 3, statistic="v")
        assert v == pytest.approx(gram.mean(), rel=1e-10)
        for statistic, expected in (("u", u), ("v", gram.mean())):
            test = ksd_test(x, chain_log_prob, ExpHamming(0.2), 3, statistic=statistic, rng=0)
            assert test.statistic == pytest.approx(expected, rel=1e-10)

    def test_bootstrap_values_follow_the_formula(self, monkeypatch):
        monkeypatch.setattr("pymc_bayessum.kernels.base.BLOCK", 7)
        n = 20
        x = np.random.default_rng(1).integers(0, 3, (n, 4))
        gram = Stein(ExpHamming(0.2), chain_log_prob, 3)(x, x)
        test = ksd_test(x, chain_log_prob, ExpHamming(0.2), 3, n_bootstrap=5, rng=8)
        draws = np.random.default_rng(8).multinomial(n, np.full(n, 1 / n), size=5) / n - 1 / n
        off = gram - np.diag(np.diagonal(gram))
        expected = np.einsum("bi,ij,bj->b", draws, off, draws) * n / (n - 1)
        np.testing.assert_allclose(test.bootstrap, expected, rtol=1e-9)

    def test_u_is_unbiased_for_the_population_value(self):
        points, _, log_prob = table(3, 3, 2, spread=0.4)
        _, q, _ = table(3, 3, 9, spread=0.4)
        gram = Stein(ExpHamming(0.5), log_prob, 3)(points, points)
        population = q @ gram @ q
        rng = np.random.default_rng(0)
        values = [
            ksd(points[rng.choice(27, 30, p=q)], log_prob, ExpHamming(0.5), 3) for _ in range(300)
        ]
        assert population > 0.01
        assert abs(np.mean(values) - population) < 4.0 * np.std(values) / np.sqrt(300)

    def test_level_and_power(self):
        points, p, log_prob = table(3, 3, 2, spread=0.5)
        rng = np.random.default_rng(1)
        level = [
            ksd_test(
                points[rng.choice(27, 80, p=p)], log_prob, ExpHamming(0.5), 3, 200, rng=rng
            ).p_value
            for _ in range(150)
        ]
        # The bootstrap is valid as n grows: at n = 80 it must not reject far too often.
        assert np.mean(np.array(level) <= 0.1) < 0.1 + 4.0 * np.sqrt(0.09 / 150)
        assert np.mean(level) == pytest.approx(0.5, abs=0.12)
        wrong = ksd_test(points[rng.choice(27, 300)], log_prob, ExpHamming(0.5), 3, rng=rng)
        assert wrong.p_value < 0.01

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"samples": [[0, 1]]}, "at least two"),
            ({"samples": [[0, 5], [1, 1]]}, "samples must hold states"),
            ({"statistic": "w"}, "statistic must be 'u' or 'v'"),
            ({"n_states": 0}, "n_states"),
        ],
    )
    def test_bad_input(self, change, message):
        arguments = {
            "samples": [[0, 1], [1, 1]],
            "log_prob": chain_log_prob,
            "kernel": ExpHamming(0.1),
            "n_states": 3,
        } | change
        with pytest.raises(ValueError, match=message):
            ksd(**arguments)
        with pytest.raises(ValueError, match=message):
            ksd_test(**arguments)
