import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import CubicSpline
from scipy.special import gammaln

from pymc_bayessum import measures
from pymc_bayessum.kernels import IntegratedBrownian, Matern
from pymc_bayessum.rules.rule import bayes_sum
from pymc_bayessum.solve import factorize
from pymc_bayessum.solve.banded import MarkovGram, solve_process
from pymc_bayessum.solve.panels import discrete_gauss
from pymc_bayessum.solve.process import MarkovProcess

DIGITS = 50


def graded(last: int, consecutive: int = 24, growth: float = 1.15, dt: float = 0.3) -> np.ndarray:
    """Consecutive integers, then steps that grow up to dt * sqrt(x)."""
    x, step = [float(i) for i in range(consecutive + 1)], 1.0
    while x[-1] < last:
        step = min(step * growth, max(dt * math.sqrt(x[-1]), 1.0))
        x.append(x[-1] + step)
    return np.unique(np.round(x).astype(int))


# --- the same sums in many digits -----------------------------------------------------------


def exact_kernel(kernel):
    """Kernel of two integers in many digits."""
    if isinstance(kernel, IntegratedBrownian):
        m = kernel.order

        def spline(x, y):
            a, d = mp.mpf(min(x, y)), mp.mpf(abs(x - y))
            terms = (
                mp.binomial(m, j) / (m + j + 1) * d ** (m - j) * a ** (m + j + 1)
                for j in range(m + 1)
            )
            return sum(terms) / mp.factorial(m) ** 2

        return spline
    p, rate = round(kernel.nu - 0.5), mp.mpf(kernel.rate)

    def matern(x, y):
        tx, ty = (2 * mp.sqrt(v) if kernel.transform == "sqrt" else mp.mpf(v) for v in (x, y))
        r = rate * abs(tx - ty)
        terms = (
            mp.factorial(p + i) / (mp.factorial(i) * mp.factorial(p - i)) * (2 * r) ** (p - i)
            for i in range(p + 1)
        )
        return mp.exp(-r) * mp.factorial(p) / mp.factorial(2 * p) * sum(terms)

    return matern


def exact_rule(kernel, nodes, mass):
    """Weights, variance and y'K^-1 y (y = cos) by dense solves in many digits.

    The sum runs over 0, 1, ... with the given masses, the nodes among them.
    """
    k = exact_kernel(kernel)
    nodes, size = [int(v) for v in nodes], len(mass)
    free = kernel.order + 1 if isinstance(kernel, IntegratedBrownian) else 0
    count = len(nodes)
    table = mp.matrix(size, size)
    for a in range(size):
        for b in range(a, size):
            table[a, b] = table[b, a] = k(a, b)
    mean_at = table * mp.matrix(mass)
    bordered = mp.matrix(count + free, count + free)
    mean = mp.matrix([mean_at[a] for a in nodes] + [0] * free)
    for i, a in enumerate(nodes):
        for j, b in enumerate(nodes):
            bordered[i, j] = table[a, b]
        for j in range(free):
            bordered[i, count + j] = bordered[count + j, i] = mp.mpf(a) ** j
    for j in range(free):
        mean[count + j] = mp.fdot((p, mp.mpf(v) ** j) for v, p in enumerate(mass))
    weights = mp.lu_solve(bordered, mean)[:count]
    signed = mp.matrix(mass)
    for i, a in enumerate(nodes):
        signed[a] -= weights[i]
    variance = (signed.T * table * signed)[0]
    y = mp.matrix([mp.mpf(math.cos(a)) for a in nodes] + [0] * free)
    form = (y.T * mp.lu_solve(bordered, y))[0]
    return [float(w) for w in weights], float(variance), float(form)


GRID = np.array([0, 1, 2, 3, 4, 5, 6, 8, 10, 13, 17, 22, 28])
KERNELS = [
    IntegratedBrownian(0),
    IntegratedBrownian(1),
    IntegratedBrownian(2),
    IntegratedBrownian(4),
    Matern(0.5, 3.0),
    Matern(1.5, 3.0),
    Matern(2.5, 8.0),
    Matern(4.5, 8.0),
    Matern(8.5, 8.0),
    Matern(8.5, 0.7),
    Matern(2.5, 0.2),
    Matern(1.5, 4.0, "sqrt"),
    Matern(6.5, 8.0, "sqrt"),
    Matern(8.5, 3.0, "sqrt"),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_counting_rules_match_many_digits(kernel):
    with mp.workdps(DIGITS):
        weights, variance, form = exact_rule(kernel, GRID, [mp.mpf(1)] * 29)
    rule = bayes_sum(kernel, measures.Counting(28), GRID)
    assert isinstance(rule.gram, MarkovGram)
    scale = np.abs(weights).max()
    np.testing.assert_allclose(rule.weights, weights, rtol=0, atol=2e-11 * scale)
    if kernel.__class__ is IntegratedBrownian or kernel.nu < 3:
        np.testing.assert_allclose(rule.weights, weights, rtol=1e-13 * max(scale, 10), atol=0)
    assert rule.variance == pytest.approx(variance, rel=1e-4)
    assert rule.quadratic_form(np.cos(GRID)) == pytest.approx(form, rel=1e-8)
    assert rule.jitter == 0.0


@pytest.mark.parametrize(
    ("kernel", "nodes"),
    [
        (IntegratedBrownian(2), [3, 7, 12, 20]),
        (IntegratedBrownian(4), [12, 3, 20, 7, 30]),
        (Matern(2.5, 8.0), [5, 9, 20]),
        (Matern(6.5, 8.0), [20, 5]),
        (Matern(4.5, 6.0), list(range(8, 20))),
        (Matern(2.5, 8.0, "sqrt"), [0, 35]),
    ],
    ids=str,
)
def test_sums_beyond_the_nodes_and_few_nodes(kernel, nodes):
    with mp.workdps(DIGITS):
        weights, variance, _ = exact_rule(kernel, nodes, [mp.mpf(1)] * 36)
    rule = bayes_sum(kernel, measures.Counting(35), nodes)
    np.testing.assert_allclose(rule.weights, weights, rtol=1e-9)
    assert rule.variance == pytest.approx(variance, rel=1e-4)


@pytest.mark.parametrize(
    "kernel",
    [IntegratedBrownian(3), Matern(1.5, 6.0), Matern(5.5, 9.0), Matern(3.5, 4.0, "sqrt")],
    ids=str,
)
def test_poisson_rules_match_many_digits(kernel):
    nodes, mu = [0, 2, 5, 9, 14, 20, 28], 5
    with mp.workdps(DIGITS):
        mass = [mp.exp(-mu) * mp.mpf(mu) ** v / mp.factorial(v) for v in range(48)]
        weights, variance, _ = exact_rule(kernel, nodes, mass)
    rule = bayes_sum(kernel, measures.Poisson(mu), nodes)
    np.testing.assert_allclose(rule.weights, weights, rtol=1e-9, atol=1e-14)
    assert rule.variance == pytest.approx(variance, rel=1e-4)


# --- what weights of splines must do --------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(
    order=st.integers(0, 5),
    nodes=st.lists(st.integers(0, 300), min_size=6, max_size=30, unique=True),
    scale=st.sampled_from([1.0, 7.5]),
)
def test_splines_are_exact_for_their_free_polynomials(order, nodes, scale):
    last = max(nodes)
    rule = bayes_sum(IntegratedBrownian(order, scale), measures.Counting(last), nodes)
    x = np.array(nodes, dtype=float)
    for power in range(order + 1):
        exact = sum(v**power for v in range(last + 1))
        rounding = float(np.abs(rule.weights * x**power).sum())
        assert abs(rule.weights @ x**power - exact) < 1e-11 * max(rounding, 1.0)


@pytest.mark.parametrize("last", [10**4, 10**6])
def test_long_graded_grids_are_exact_for_polynomials(last):
    nodes = graded(last)
    rule = bayes_sum(IntegratedBrownian(4), measures.Counting(int(nodes[-1])), nodes)
    for power in range(5):
        exact = sum(v**power for v in range(int(nodes[-1]) + 1)) if last < 10**5 else None
        m = int(nodes[-1])
        faulhaber = [
            m + 1,
            m * (m + 1) // 2,
            m * (m + 1) * (2 * m + 1) // 6,
            (m * (m + 1) // 2) ** 2,
            m * (m + 1) * (2 * m + 1) * (3 * m * m + 3 * m - 1) // 30,
        ][power]
        assert exact is None or exact == faulhaber
        estimate = math.fsum(rule.weights * nodes.astype(float) ** power)
        assert estimate == pytest.approx(faulhaber, rel=1e-12)


@pytest.mark.parametrize("kernel", [IntegratedBrownian(4), Matern(6.5, 300.0)], ids=str)
def test_weights_far_inside_an_even_grid_are_its_spacing(kernel):
    nodes = np.arange(0, 7 * 400 + 1, 7)
    rule = bayes_sum(kernel, measures.Counting(2800), nodes)
    np.testing.assert_allclose(rule.weights[150:250], 7.0, rtol=1e-12)


def test_consecutive_nodes_need_no_interpolation():
    for kernel in (IntegratedBrownian(3), Matern(8.5, 30.0)):
        rule = bayes_sum(kernel, measures.Counting(99), np.arange(100))
        np.testing.assert_allclose(rule.weights, 1.0, rtol=1e-12)
        assert rule.variance == 0.0


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 60), min_size=3, max_size=15, unique=True), st.integers(0, 2**32))
def test_order_one_is_the_natural_cubic_spline(nodes, seed):
    x = np.sort(nodes)
    y = np.random.default_rng(seed).normal(size=len(x))
    spline = CubicSpline(x, y, bc_type="natural")
    inside = np.arange(x[0], x[-1] + 1)
    below, above = np.arange(x[0]), np.arange(x[-1] + 1, 61)
    total = spline(inside).sum()
    total += (spline(x[0]) + spline(x[0], 1) * (below - x[0])).sum()
    total += (spline(x[-1]) + spline(x[-1], 1) * (above - x[-1])).sum()
    rule = bayes_sum(IntegratedBrownian(1), measures.Counting(60), x)
    assert rule.weights @ y == pytest.approx(total, rel=1e-9, abs=1e-9 * np.abs(rule.weights).sum())


def test_conway_maxwell_poisson_normalisers():
    """Worst errors of log Z on one grid of 421 nodes, beside sums in double precision."""
    nodes = graded(4090, consecutive=32)
    rules = {
        5e-8: bayes_sum(IntegratedBrownian(4), measures.Counting(int(nodes[-1])), nodes),
        2e-9: bayes_sum(Matern(8.5, 8.0, "sqrt"), measures.Counting(int(nodes[-1])), nodes),
    }
    for bound, rule in rules.items():
        for nu in (0.1, 0.3, 0.6, 1.0, 1.5):
            for mode in (0.5, 3.0, 20.0, 70.0, 300.0, 1000.0):
                x = np.arange(int(mode + 12 * math.sqrt(mode / nu) + 60 / nu))
                log_f = nu * (x * math.log(mode) - gammaln(x + 1.0))
                exact = log_f.max() + math.log(math.fsum(np.exp(log_f - log_f.max())))
                at_nodes = nu * (nodes * math.log(mode) - gammaln(nodes + 1.0))
                assert rule.log_sum(at_nodes) == pytest.approx(exact, abs=bound)


# --- other ways in --------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(
    nu=st.sampled_from([0.5, 1.5, 2.5]),
    lengthscale=st.floats(0.05, 20.0),
    nodes=st.lists(st.integers(0, 80), min_size=1, max_size=12, unique=True),
)
def test_any_lengthscale_agrees_with_a_dense_solve(nu, lengthscale, nodes):
    kernel, nodes, x = Matern(nu, lengthscale), np.array(nodes), np.arange(81)
    gram = kernel(nodes, nodes)
    weights = np.linalg.solve(gram, kernel(nodes, x).sum(axis=1))
    rule = bayes_sum(kernel, measures.Counting(80), nodes)
    scale = np.abs(weights).max()
    np.testing.assert_allclose(rule.weights, weights, rtol=0, atol=1e-7 * scale)
    variance = kernel(x, x).sum() - weights @ kernel(nodes, x).sum(axis=1)
    assert rule.variance == pytest.approx(variance, rel=2e-3, abs=1e-8)
    _, log_det = np.linalg.slogdet(gram)
    assert rule.gram.log_det == pytest.approx(log_det, rel=1e-7, abs=1e-7)


def test_a_transform_given_as_a_function_is_the_same_as_by_name():
    named = bayes_sum(Matern(4.5, 6.0, "sqrt"), measures.Counting(60), GRID)
    kernel = Matern(4.5, 6.0, lambda x: 2.0 * np.sqrt(x))
    given_ = bayes_sum(kernel, measures.Counting(60), GRID)
    np.testing.assert_allclose(given_.weights, named.weights, rtol=1e-9)


def test_a_transform_that_does_not_increase_is_solved_densely():
    kernel = Matern(2.5, 3.0, lambda x: np.sin(0.02 * x))
    rule = bayes_sum(kernel, measures.Counting(100), [0, 30, 60, 99])
    assert not isinstance(rule.gram, MarkovGram)
    x = np.arange(101)
    gram, mean = kernel(rule.nodes, rule.nodes), kernel(rule.nodes, x).sum(axis=1)
    np.testing.assert_allclose((gram + rule.jitter * np.eye(4)) @ rule.weights, mean, rtol=1e-9)


def test_a_process_that_forgets_within_a_step_is_solved_densely():
    kernel = Matern(1.5, 1e-4)
    rule = bayes_sum(kernel, measures.Counting(10**5), [0, 10, 10**5])
    np.testing.assert_allclose(rule.weights, 1.0, rtol=1e-12)


def test_gram_of_unsorted_numbers_matches_a_dense_solve():
    nodes = np.array([0.3, 7.1, 2.2, 4.0, 9.5, 5.5])
    y = np.cos(nodes)
    for kernel in (Matern(1.5, 2.0), Matern(2.5, 3.0), 2.0 * Matern(3.5, 2.0)):
        dense = kernel(nodes, nodes)
        gram = factorize(kernel, nodes)
        assert gram.quadratic_form(y) == pytest.approx(y @ np.linalg.solve(dense, y), rel=1e-9)
        assert gram.log_det == pytest.approx(np.linalg.slogdet(dense)[1], rel=1e-9)
        noisy = factorize(kernel, nodes, jitter=0.2)
        dense = dense + 0.2 * np.eye(6)
        assert noisy.quadratic_form(y) == pytest.approx(y @ np.linalg.solve(dense, y), rel=1e-9)
        assert noisy.log_det == pytest.approx(np.linalg.slogdet(dense)[1], rel=1e-9)
        white = noisy.whiten(np.eye(6))
        np.testing.assert_allclose(white @ white.T, np.linalg.inv(dense), rtol=1e-8, atol=1e-10)


def test_scale_of_a_spline_kernel_is_a_unit_of_length():
    plain = bayes_sum(IntegratedBrownian(2), measures.Counting(28), GRID)
    scaled = bayes_sum(IntegratedBrownian(2, 10.0), measures.Counting(28), GRID)
    np.testing.assert_allclose(scaled.weights, plain.weights, rtol=1e-11)
    assert scaled.variance == pytest.approx(plain.variance / 10.0**5, rel=1e-9)


def test_discrete_gauss_rules_sum_polynomials():
    rng = np.random.default_rng(0)
    x = np.sort(rng.choice(500, 80, replace=False)).astype(float)
    mass = rng.exponential(size=80) * np.exp(-x / 30.0)
    points, masses = discrete_gauss(x, mass, 7)
    z, s = (points - 250.0) / 250.0, (x - 250.0) / 250.0
    for power in range(14):
        assert masses @ z**power == pytest.approx(mass @ s**power, abs=1e-12 * mass.sum())
    few, share = discrete_gauss(np.arange(9.0), np.array([1.0, 2.0] + [0.0] * 7), 4)
    assert share.sum() == pytest.approx(3.0)
    assert share @ few == pytest.approx(2.0)


def test_too_wide_a_measure_is_refused_for_free_polynomials():
    process = MarkovProcess.of_spline(IntegratedBrownian(1))
    assert solve_process(process, measures.Geometric(1e-9), np.array([0, 5])) is None
    with pytest.raises(ValueError, match="leaves polynomials free"):
        bayes_sum(IntegratedBrownian(1), measures.Geometric(1e-9), [0, 5])
