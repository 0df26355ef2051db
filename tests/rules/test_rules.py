import dataclasses
import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import Problem, having
from scipy import stats
from scipy.special import gammaln, logsumexp

from pymc_bayessum import measures
from pymc_bayessum.kernels import (
    Brownian,
    ExpHamming,
    First,
    IntegratedBrownian,
    Matern,
    Polynomial,
    Second,
    SquaredExponential,
    Tanimoto,
    Tensor,
)
from pymc_bayessum.rules.rule import (
    Estimate,
    bayes_sum,
    geometric_rule,
    negative_binomial_rule,
    poisson_rule,
)

NATURALS = {
    "poisson": (measures.Poisson(7.0), lambda x: stats.poisson.pmf(x, 7.0)),
    "negative binomial": (
        measures.NegativeBinomial(2.5, 0.3),
        lambda x: stats.nbinom.pmf(x, 2.5, 0.3),
    ),
    "geometric": (measures.Geometric(0.2), lambda x: stats.geom.pmf(x + 1, 0.2)),
    "logarithmic": (measures.Logarithmic(0.7), lambda x: stats.logser.pmf(x, 0.7)),
    "counting": (measures.Counting(40), lambda x: (x <= 40).astype(float)),
    "mixture": (
        measures.Mixture([0.3, 0.7], [measures.Poisson(2.0), measures.Poisson(15.0)]),
        lambda x: 0.3 * stats.poisson.pmf(x, 2.0) + 0.7 * stats.poisson.pmf(x, 15.0),
    ),
}


def brute_force(kernel, nodes, x, mass):
    """Weights and variance from long sums and a plain solve."""
    gram, cross, whole = kernel(nodes, nodes), kernel(nodes, x), kernel(x, x)
    mean = cross @ mass
    weights = np.linalg.solve(gram, mean)
    return weights, mass @ whole @ mass - weights @ mean


# --- weights and variance against brute force -----------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(sorted(NATURALS)),
    shift=st.floats(0.05, 50.0),
    nodes=st.lists(st.integers(1, 40), min_size=1, max_size=12, unique=True),
)
def test_brownian_weights_are_those_of_long_sums(name, shift, nodes):
    measure, pmf = NATURALS[name]
    x = np.arange(400)
    weights, variance = brute_force(Brownian(shift), np.array(nodes), x, pmf(x))
    rule = bayes_sum(Brownian(shift), measure, nodes)
    np.testing.assert_allclose(rule.weights, weights, rtol=0, atol=1e-12 * weights.sum())
    assert rule.variance == pytest.approx(variance, rel=1e-8, abs=1e-11)
    assert rule.jitter == 0.0


@settings(max_examples=25, deadline=None)
@given(mu=st.floats(0.1, 200.0), last=st.integers(0, 300))
def test_consecutive_brownian_nodes_carry_the_mass_function(mu, last):
    rule = poisson_rule(mu, n=last + 1)
    expected = stats.poisson.logpmf(np.arange(last + 1), mu)
    expected[-1] = stats.poisson.logsf(last - 1, mu)
    seen = expected > -600
    np.testing.assert_allclose(rule.log_abs_weights[seen], expected[seen], rtol=1e-12, atol=1e-11)


def test_far_brownian_weights_keep_their_relative_accuracy():
    nodes = np.array([0, 3, 10, 40, 90, 150])
    rule = poisson_rule(5.0, nodes=nodes)
    with mp.workdps(60):
        mass = [mp.exp(-5) * mp.mpf(5) ** x / mp.factorial(x) for x in range(400)]
        for i in range(1, len(nodes) - 1):
            left, node, right = (int(v) for v in nodes[i - 1 : i + 2])
            exact = sum(mass[x] * (x - left) / (node - left) for x in range(left, node))
            exact += sum(mass[x] * mp.mpf(right - x) / (right - node) for x in range(node, right))
            assert rule.weights[i] == pytest.approx(float(exact), rel=1e-12)


def test_counting_brownian_matches_long_sums_beyond_and_below_the_nodes():
    nodes = np.array([3, 4, 9, 20])
    x = np.arange(31)
    weights, variance = brute_force(Brownian(0.7), nodes, x, np.ones(31))
    rule = bayes_sum(Brownian(0.7), measures.Counting(30), nodes)
    np.testing.assert_allclose(rule.weights, weights, rtol=1e-12)
    assert rule.variance == pytest.approx(variance, rel=1e-11)


def test_brownian_on_a_measure_too_wide_to_list():
    measure = measures.Geometric(1e-6)
    nodes = np.array([0, 10**5, 10**6, 3 * 10**6, 10**7])
    rule = bayes_sum(Brownian(), measure, nodes)
    # Mean slopes of E[min(X, y)] between nodes: sums of the survival function, a geometric series.
    survival = (1.0 - 1e-6) ** (nodes + 1.0)
    slopes = -np.diff(survival) / 1e-6 / np.diff(nodes)
    exact = -np.diff(np.concatenate([[1.0], slopes, [0.0]]))
    np.testing.assert_allclose(rule.weights, exact, atol=1e-9)


@pytest.mark.parametrize(
    ("kernel", "measure"),
    [
        (ExpHamming(0.3), measures.UniformCategorical(4, 3)),
        (Tanimoto(), measures.UniformCategorical(6, 2)),
        (ExpHamming(0.7), measures.ProductCategorical([[0.2, 0.8], [0.5, 0.5], [0.9, 0.1]])),
        (2.5 * ExpHamming(0.3), measures.UniformSpins(5)),
        (ExpHamming(0.3) + ExpHamming(1.5), measures.UniformCategorical(4, 3)),
    ],
)
def test_dense_rules_on_finite_sets(kernel, measure):
    points = measure.support.enumerate()
    mass = np.exp(measure.log_prob(points))
    nodes = points[:: max(len(points) // 7, 1)]
    rule = bayes_sum(kernel, measure, nodes)
    weights, variance = brute_force(kernel, nodes, points, mass)
    np.testing.assert_allclose(rule.weights, weights, rtol=1e-9, atol=1e-12)
    assert rule.variance == pytest.approx(variance, rel=1e-9)


def test_all_points_of_a_finite_set_leave_no_doubt():
    measure = measures.UniformCategorical(3, 2)
    rule = bayes_sum(ExpHamming(0.4), measure, measure.support.enumerate())
    np.testing.assert_allclose(rule.weights, 1 / 8, rtol=1e-12)
    assert 0.0 <= rule.variance < 1e-14
    assert 0.0 <= rule.clipped < 1e-14


def test_mixed_domain_of_an_interval_and_sites():
    measure = measures.Product(
        measures.UniformInterval(0.0, 1.0), measures.UniformCategorical(3, 2)
    )
    kx, kc = SquaredExponential(0.4), ExpHamming(0.5)
    kernel = First(kx) + Second(kc) + Tensor(kx, kc)
    grid, shares = np.polynomial.legendre.leggauss(30)
    states = measures.UniformCategorical(3, 2).support.enumerate()
    everywhere = (np.repeat((grid + 1.0) / 2.0, 8), np.tile(states, (30, 1)))
    nodes = measure.sample_distinct(20, rng=3)
    rule = bayes_sum(kernel, measure, nodes)
    weights, variance = brute_force(kernel, nodes, everywhere, np.repeat(shares, 8) / 16.0)
    np.testing.assert_allclose(rule.weights, weights, rtol=1e-6, atol=1e-8)
    assert rule.variance == pytest.approx(variance, rel=1e-6)
    problem = having("pair")[0]
    estimate = rule.expectation(problem.f(nodes))
    assert abs(estimate.mean - problem.exact) < 4.0 * estimate.sd


@pytest.mark.parametrize("degree", [1, 2, 5, 8])
@pytest.mark.parametrize(("mu", "step"), [(30.0, 5), (1e4, 60)])
def test_polynomial_rules_are_exact_for_polynomials(degree, mu, step):
    centre = int(mu)
    nodes = np.arange(max(centre - 6 * step, 0), centre + 6 * step, step)
    rule = bayes_sum(Polynomial(degree), measures.Poisson(mu), nodes)
    assert rule.weights.sum() == pytest.approx(1.0, rel=1e-12)
    central = [1.0, 0.0, mu, mu, 3 * mu**2 + mu]
    for power in range(min(degree, 4) + 1):
        estimate = rule.weights @ (nodes - mu) ** power
        assert estimate == pytest.approx(central[power], rel=1e-9, abs=1e-7 * mu ** (power / 2))
    assert rule.jitter > 0.0
    assert rule.variance > 0.0


def test_few_polynomial_nodes_match_many_digits():
    nodes, mu, degree = [5, 20, 31, 40], 30, 6
    rule = bayes_sum(Polynomial(degree), measures.Poisson(mu), nodes)
    with mp.workdps(60):
        mass = [mp.exp(-mu) * mp.mpf(mu) ** x / mp.factorial(x) for x in range(300)]
        moments = [sum(p * mp.mpf(x) ** k for x, p in enumerate(mass)) for k in range(degree + 1)]
        gram = mp.matrix([[(mp.mpf(a) * b + 1) ** degree for b in nodes] for a in nodes])
        mean = mp.matrix(
            [
                sum(mp.binomial(degree, k) * moments[k] * mp.mpf(b) ** k for k in range(degree + 1))
                for b in nodes
            ]
        )
        weights = mp.lu_solve(gram, mean)
        error = sum(mp.binomial(degree, k) * moments[k] ** 2 for k in range(degree + 1))
        variance = error - (weights.T * mean)[0]
        y = mp.matrix([1, -2, 0.5, 3])
        form = (y.T * mp.lu_solve(gram, y))[0]
        log_det = mp.log(mp.det(gram))
    np.testing.assert_allclose(rule.weights, [float(w) for w in weights], rtol=1e-9)
    assert rule.variance == pytest.approx(float(variance), rel=1e-8)
    assert rule.quadratic_form([1.0, -2.0, 0.5, 3.0]) == pytest.approx(float(form), rel=1e-9)
    assert rule.gram.log_det == pytest.approx(float(log_det), rel=1e-9)


def test_scaling_a_kernel_moves_the_variance_alone():
    nodes = [0, 2, 5, 11]
    for kernel in (Brownian(), Matern(2.5, 4.0), SquaredExponential(3.0), Polynomial(2)):
        plain = bayes_sum(kernel, measures.Poisson(4.0), nodes)
        scaled = bayes_sum(9.0 * kernel, measures.Poisson(4.0), nodes)
        np.testing.assert_allclose(scaled.weights, plain.weights, rtol=1e-12)
        assert scaled.variance == pytest.approx(9.0 * plain.variance)
        y = np.array([1.0, 3.0, -1.0, 0.5])
        assert scaled.quadratic_form(y) == pytest.approx(plain.quadratic_form(y) / 9.0)
        assert scaled.expectation(y).sd == pytest.approx(plain.expectation(y).sd)
        log_det = plain.gram.log_det + 4 * math.log(9.0)
        assert scaled.gram.log_det == pytest.approx(log_det)


# --- jitter ---------------------------------------------------------------------------------


def test_jitter_is_zero_where_none_is_needed_and_recorded_where_it_is():
    sites = measures.UniformCategorical(6, 3)
    assert bayes_sum(ExpHamming(0.1), sites, sites.sample_distinct(50, rng=0)).jitter == 0.0
    rule = bayes_sum(SquaredExponential(15.0), measures.Poisson(30.0), np.arange(60))
    assert 0.0 < rule.jitter <= 1e-12
    assert rule.expectation(np.ones(60)).mean == pytest.approx(1.0, abs=1e-8)


@pytest.mark.parametrize("kernel", [ExpHamming(0.3), 3.0 * ExpHamming(0.3)])
def test_given_jitter_is_added_to_the_diagonal(kernel):
    sites = measures.UniformCategorical(4, 2)
    points = sites.support.enumerate()
    nodes = points[[0, 3, 7, 9]]
    rule = bayes_sum(kernel, sites, nodes, jitter=0.05)
    gram = kernel(nodes, nodes) + 0.05 * np.eye(4)
    mean = kernel(nodes, points).mean(axis=1)
    weights = np.linalg.solve(gram, mean)
    np.testing.assert_allclose(rule.weights, weights, rtol=1e-12)
    assert rule.jitter == pytest.approx(0.05)
    assert rule.variance == pytest.approx(kernel(points, points).mean() - weights @ mean)


@pytest.mark.parametrize("kernel", [Brownian(0.5), Matern(1.5, 6.0), Matern(2.5, 3.0, "sqrt")])
def test_given_jitter_reaches_the_structured_kernels_too(kernel):
    nodes, x = np.array([0, 1, 4, 9, 14, 20]), np.arange(26)
    gram = kernel(nodes, nodes) + 0.1 * np.eye(6)
    mean = kernel(nodes, x).sum(axis=1)
    weights = np.linalg.solve(gram, mean)
    rule = bayes_sum(kernel, measures.Counting(25), nodes, jitter=0.1)
    np.testing.assert_allclose(rule.weights, weights, rtol=1e-9)
    assert rule.variance == pytest.approx(kernel(x, x).sum() - weights @ mean, rel=1e-6)
    y = np.cos(nodes)
    assert rule.quadratic_form(y) == pytest.approx(y @ np.linalg.solve(gram, y), rel=1e-9)


def test_jitter_too_small_raises():
    nodes = np.arange(60)
    with pytest.raises(ValueError, match="jitter=1e-30 is too small"):
        bayes_sum(SquaredExponential(30.0), measures.Counting(59), nodes, jitter=1e-30)


def test_brownian_without_shift_loses_the_node_at_zero_and_says_so_in_the_jitter():
    rule = bayes_sum(Brownian(0.0), measures.Poisson(3.0), np.arange(10))
    assert rule.weights[0] == 0.0
    assert rule.jitter > 0.0
    without = bayes_sum(Brownian(0.0), measures.Poisson(3.0), np.arange(1, 10))
    np.testing.assert_allclose(rule.weights[1:], without.weights, rtol=1e-9)
    assert without.jitter == 0.0


# --- expectation ----------------------------------------------------------------------------


def kernel_for(problem: Problem):
    if "interval" in problem.tags:
        return SquaredExponential(1.0)
    if "integers" in problem.tags:
        return Matern(3.5, 10.0)
    if "smooth" in problem.tags:
        return IntegratedBrownian(3)
    return Brownian()


@pytest.mark.parametrize("problem", having("naturals"), ids=lambda p: p.name)
def test_dense_enough_nodes_give_the_exact_sum_on_the_naturals(problem):
    low, high = problem.measure.ends
    nodes = np.arange(low, min(high, 150) + 1)
    for kernel in (Brownian(), kernel_for(problem)):
        estimate = bayes_sum(kernel, problem.measure, nodes).expectation(problem.f(nodes))
        assert estimate.mean == pytest.approx(problem.exact, rel=1e-10)
        assert estimate.n_evals == len(nodes)


@pytest.mark.parametrize(
    "problem", having("smooth", "naturals") + having("smooth", "integers"), ids=lambda p: p.name
)
def test_a_smooth_kernel_needs_fewer_nodes(problem):
    """Every integer up to twelve, where 1 / (x + 1) still bends, then every third."""
    low, high = (max(problem.measure.ends[0], -12), min(problem.measure.ends[1], 90))
    nodes = np.unique(np.concatenate([np.arange(low, 13), np.arange(12, high, 3), [high]]))
    rule = bayes_sum(kernel_for(problem), problem.measure, nodes)
    estimate = rule.expectation(problem.f(nodes))
    assert estimate.mean == pytest.approx(problem.exact, rel=1e-4)
    assert abs(estimate.mean - problem.exact) < 4.0 * estimate.sd + 1e-12 * abs(problem.exact)


def test_sixty_draws_settle_the_poisson_bell():
    """The literature's first case; its own run with a jitter of 1e-10 stopped at 6e-13."""
    problem = next(p for p in having("naturals") if p.name == "poisson bell")
    assert problem.exact == pytest.approx(0.00934586, abs=5e-9)
    errors = []
    for seed in range(50):
        x = problem.measure.sample_distinct(60, rng=seed)
        estimate = bayes_sum(Brownian(), problem.measure, x).expectation(problem.f(x))
        errors.append(abs(estimate.mean - problem.exact))
    assert np.mean(errors) < 1e-11


@pytest.mark.parametrize("problem", having("sites"), ids=lambda p: p.name)
def test_errors_on_sites_are_of_the_size_the_rule_predicts(problem):
    n = min(60, int(problem.measure.support.size) // 2)
    scores = []
    for seed in range(20):
        x = problem.measure.sample_distinct(n, rng=seed)
        estimate = bayes_sum(ExpHamming(0.05), problem.measure, x).expectation(problem.f(x))
        assert estimate.mean == pytest.approx(problem.exact, rel=0.15)
        scores.append((estimate.mean - problem.exact) / estimate.sd)
    assert np.sqrt(np.mean(np.square(scores))) < 3.0


def test_interval_problem():
    problem = having("interval")[0]
    nodes = np.linspace(-1.0, 2.0, 16)
    rule = bayes_sum(kernel_for(problem), problem.measure, nodes)
    assert rule.expectation(problem.f(nodes)).mean == pytest.approx(problem.exact, rel=1e-6)
    assert rule.reach.lowest == -1.0


@pytest.mark.parametrize(
    "rule",
    [
        poisson_rule(4.0, nodes=[0, 1, 3, 8]),
        bayes_sum(Matern(1.5, 3.0), measures.Poisson(4.0), [8, 0, 3, 1]),
        bayes_sum(SquaredExponential(2.0), measures.Poisson(4.0), [0, 1, 3, 8]),
        bayes_sum(IntegratedBrownian(1), measures.Poisson(4.0), [0, 8, 3, 1]),
    ],
    ids=["brownian", "matern", "dense", "spline"],
)
def test_amplitude_is_empirical_bayes_unless_given(rule):
    y = np.array([1.0, 2.0, -0.5, 0.3])
    free = 2 if isinstance(rule.kernel, IntegratedBrownian) else 0
    form = rule.quadratic_form(y)
    if not free:
        gram = rule.kernel(rule.nodes, rule.nodes)
        assert form == pytest.approx(y @ np.linalg.solve(gram, y), rel=1e-10)
    estimate = rule.expectation(y)
    assert isinstance(estimate, Estimate)
    assert estimate.mean == pytest.approx(rule.weights @ y)
    assert estimate.sd == pytest.approx(math.sqrt(form / (4 - free) * rule.variance))
    assert rule.expectation(y, amplitude=4.0).sd == pytest.approx(2 * math.sqrt(rule.variance))
    assert rule.expectation(y, amplitude=0.0).sd == 0.0


def test_many_functions_at_once():
    rule = poisson_rule(4.0, n=12)
    y = np.random.default_rng(0).normal(size=(2, 3, 12))
    many = rule.expectation(y)
    assert many.mean.shape == many.sd.shape == (2, 3)
    one = rule.expectation(y[1, 2])
    assert isinstance(one.mean, float)
    assert isinstance(one.sd, float)
    assert many.mean[1, 2] == pytest.approx(one.mean)
    assert many.sd[1, 2] == pytest.approx(one.sd)


def test_a_spline_with_as_many_free_polynomials_as_nodes_knows_no_amplitude():
    rule = bayes_sum(IntegratedBrownian(1), measures.Counting(9), [0, 9])
    assert rule.expectation([0.0, 9.0]).mean == pytest.approx(45.0)
    assert rule.expectation([0.0, 9.0]).sd == math.inf


# --- log sums -------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(mu=st.floats(0.5, 40.0), lam=st.floats(0.2, 20.0), nu=st.floats(0.8, 2.5))
def test_log_sums_of_conway_maxwell_poisson(mu, lam, nu):
    x = np.arange(400)
    log_f = x * math.log(lam) - nu * gammaln(x + 1.0)
    assert poisson_rule(mu, n=400).log_sum(log_f) == pytest.approx(logsumexp(log_f), abs=1e-10)
    assert geometric_rule(0.1, n=400).log_sum(log_f) == pytest.approx(logsumexp(log_f), abs=1e-10)
    rule = negative_binomial_rule(3.0, 0.2, n=400)
    assert rule.log_sum(log_f) == pytest.approx(logsumexp(log_f), abs=1e-10)


def test_nodes_whose_mass_underflows_still_count():
    rule = poisson_rule(5.0, n=900)
    assert (rule.weights == 0.0).any()
    log_f = -0.01 * rule.nodes
    exact = math.log(-math.expm1(-0.01 * 899)) - math.log(-math.expm1(-0.01))
    last = rule.log_abs_weights[-1] - rule.log_base[-1] - 0.01 * 899
    assert rule.log_sum(log_f) == pytest.approx(np.logaddexp(exact, last), abs=1e-10)


def test_log_sum_agrees_with_the_expectation_and_survives_any_scale():
    rule = bayes_sum(Matern(2.5, 5.0), measures.Poisson(6.0), np.arange(0, 30, 2))
    assert (rule.weights < 0).any()
    log_f = rule.log_base - 0.02 * np.square(rule.nodes - 7.0)
    direct = rule.expectation(np.exp(log_f - rule.log_base))
    assert rule.log_sum(log_f) == pytest.approx(math.log(direct.mean), rel=1e-12)
    for shift in (-3000.0, 2500.0):
        assert rule.log_sum(log_f + shift) == pytest.approx(math.log(direct.mean) + shift)
    value, sd = rule.log_sum(log_f + 900.0, return_sd=True)
    assert value == pytest.approx(math.log(direct.mean) + 900.0)
    assert sd == pytest.approx(direct.sd / direct.mean, rel=1e-9)


def test_the_sd_of_a_log_sum_is_infinite_where_the_ratio_to_the_base_is():
    rule = poisson_rule(5.0, n=900)
    value, sd = rule.log_sum(-0.01 * rule.nodes, return_sd=True)
    assert math.isfinite(value)
    assert sd == math.inf


def test_log_sum_broadcasts_and_takes_zero_terms():
    rule = poisson_rule(3.0, n=30)
    log_f = np.stack([rule.nodes * math.log(r) for r in (0.3, 0.5)])
    np.testing.assert_allclose(rule.log_sum(log_f), -np.log1p([-0.3, -0.5]), atol=1e-7)
    only = np.full(30, -np.inf)
    only[4] = 1.5
    assert rule.log_sum(only) == pytest.approx(1.5)
    assert isinstance(rule.log_sum(only), float)


def test_log_sum_raises_where_the_signed_sum_is_not_positive():
    rule = bayes_sum(Matern(2.5, 5.0), measures.Poisson(6.0), np.arange(0, 30, 2))
    worst = int(np.argmin(rule.weights))
    spike = np.full(len(rule), -np.inf)
    spike[worst] = 0.0
    with pytest.raises(ValueError, match="signed sum is not positive"):
        rule.log_sum(spike)
    with pytest.raises(ValueError, match="1 of 2 sums"):
        rule.log_sum(np.stack([rule.log_base, spike]))
    with pytest.raises(ValueError, match="signed sum is not positive"):
        rule.log_sum(np.full(len(rule), -np.inf))


def test_log_sum_on_sites_sums_over_all_states():
    measure = measures.UniformCategorical(4, 3)
    rule = bayes_sum(ExpHamming(0.2), measure, measure.support.enumerate())
    assert rule.log_sum(np.zeros(81)) == pytest.approx(4 * math.log(3.0))


def test_log_sum_needs_base_mass_at_every_node():
    measure = measures.ProductCategorical([[0.5, 0.5], [1.0, 0.0]])
    rule = bayes_sum(ExpHamming(0.3), measure, [[0, 0], [1, 1]])
    assert rule.expectation([1.0, 1.0]).mean > 0.9
    with pytest.raises(ValueError, match=r"base mass, which is zero at node \[1 1\]"):
        rule.log_sum([0.0, 0.0])


# --- what a rule is -------------------------------------------------------------------------


def test_rules_are_frozen_and_read_only():
    rule = poisson_rule(3.0, n=5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        rule.variance = 0.0
    for array in (rule.weights, rule.log_base, rule.log_abs_weights):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0
    assert len(rule) == 5
    assert "5 nodes" in repr(rule)
    np.testing.assert_array_equal(rule.signs, 1.0)


def test_log_base_and_reach():
    rule = poisson_rule(3.0, nodes=[7, 2, 4])
    np.testing.assert_allclose(rule.log_base, stats.poisson.logpmf([7, 2, 4], 3.0))
    assert (rule.reach.lowest, rule.reach.highest) == (2, 7)
    assert rule.reach.support == measures.Naturals()
    counting = bayes_sum(Brownian(), measures.Counting(9), [0, 9])
    np.testing.assert_array_equal(counting.log_base, 0.0)
    sites = measures.UniformCategorical(2, 2)
    assert bayes_sum(ExpHamming(1.0), sites, [[0, 1]]).reach.highest is None


def test_node_order_does_not_matter():
    for kernel in (Brownian(), Matern(2.5, 4.0), IntegratedBrownian(2), SquaredExponential(2.0)):
        nodes = np.array([9, 0, 4, 2, 6, 15])
        order = np.argsort(nodes)
        mixed = bayes_sum(kernel, measures.Poisson(5.0), nodes)
        rising = bayes_sum(kernel, measures.Poisson(5.0), nodes[order])
        np.testing.assert_allclose(mixed.weights[order], rising.weights, rtol=1e-9, atol=1e-14)
        y = np.sin(nodes)
        assert mixed.quadratic_form(y) == pytest.approx(rising.quadratic_form(y[order]), rel=1e-9)


# --- bad input ------------------------------------------------------------------------------

POISSON, SITES = measures.Poisson(3.0), measures.UniformCategorical(3, 2)


@pytest.mark.parametrize(
    ("kernel", "measure", "nodes", "message"),
    [
        (Brownian(), POISSON, [], "at least one point"),
        (ExpHamming(0.1), SITES, np.zeros((0, 3)), "at least one point"),
        (Brownian(), POISSON, [4, 2, 4, 9, 9], "distinct, got 4, 9 more than once"),
        (ExpHamming(0.1), SITES, [[0, 1, 1], [0, 1, 1]], r"distinct, got \[0 1 1\]"),
        (Brownian(), POISSON, [1, -2], "got -2 outside"),
        (Brownian(), measures.Counting(9), [1, 10], "got 10 outside"),
        (ExpHamming(0.1), SITES, [[0, 1, 2]], r"got \[0 1 2\] outside"),
        (ExpHamming(0.1), measures.UniformSpins(2), [[0, 1]], r"got \[0 1\] outside"),
        (SquaredExponential(1.0), measures.UniformInterval(0, 1), [0.5, 1.5], "got 1.5 outside"),
        (Brownian(), POISSON, [1.5], "nodes: points must be integers, got 1.5"),
        (Brownian(), POISSON, [1.0, np.nan], "nodes: points must be finite"),
        (Brownian(), POISSON, [[1, 2]], r"nodes: points must have shape \(N,\)"),
        (ExpHamming(0.1), SITES, [0, 1, 1], r"nodes: points must have shape \(N, L\)"),
        (ExpHamming(0.1), SITES, [[0, 1]], "nodes: points must have 3 sites"),
        (Brownian(), POISSON, 4, "single value 4"),
        (ExpHamming(0.1), POISSON, [1], "no embedding of ExpHamming under Poisson"),
        (Brownian(), measures.Skellam(1.0, 2.0), [1], "no embedding of Brownian under Skellam"),
        (Matern(1.5, 1.0, "sqrt"), measures.Skellam(1.0, 2.0), [1], "no embedding of Matern"),
        (IntegratedBrownian(2), POISSON, [0, 1], "needs at least 3 nodes, got 2"),
        (IntegratedBrownian(0), measures.UniformInterval(0, 1), [0.5], "leaves polynomials free"),
    ],
)
def test_bad_nodes_are_named(kernel, measure, nodes, message):
    with pytest.raises(ValueError, match=message):
        bayes_sum(kernel, measure, nodes)


def test_wrong_kinds_of_arguments():
    with pytest.raises(TypeError, match="kernel must be a Kernel"):
        bayes_sum(Brownian, POISSON, [1])
    with pytest.raises(TypeError, match="measure must be a Measure"):
        bayes_sum(Brownian(), 3.0, [1])
    with pytest.raises(TypeError, match="nodes: points must be numbers"):
        bayes_sum(Brownian(), POISSON, ["a"])
    for jitter in (-1.0, math.nan):
        with pytest.raises(ValueError, match="jitter must"):
            bayes_sum(Brownian(), POISSON, [1], jitter=jitter)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ([1.0, np.nan, 0.0], ValueError, "values must be finite"),
        ([1.0, np.inf, 0.0], ValueError, "values must be finite"),
        ([1.0, 2.0], ValueError, r"each of the 3 nodes along its last axis, got shape \(2,\)"),
        (1.0, ValueError, r"got shape \(\)"),
        (["a", "b", "c"], TypeError, "values must be real numbers"),
        (np.ones(3) * 1j, TypeError, "values must be real numbers"),
    ],
)
def test_bad_values_are_named(values, error, message):
    with pytest.raises(error, match=message):
        poisson_rule(3.0, n=3).expectation(values)


def test_bad_log_values_and_amplitudes():
    rule = poisson_rule(3.0, n=3)
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="log_values must be finite or -inf"):
            rule.log_sum([0.0, bad, 0.0])
    with pytest.raises(ValueError, match="got shape"):
        rule.log_sum(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="amplitude must not be negative"):
        rule.expectation([1.0, 1.0, 1.0], amplitude=-1.0)


def test_rules_on_the_naturals_want_nodes_or_a_number():
    for arguments in ({}, {"nodes": [1, 2], "n": 2}):
        with pytest.raises(ValueError, match="either nodes"):
            poisson_rule(3.0, **arguments)
    with pytest.raises(ValueError, match="n must be at least 1"):
        geometric_rule(0.2, n=0)
    with pytest.raises(ValueError, match="mu must be positive"):
        poisson_rule(-1.0, n=3)
    with pytest.raises(ValueError, match="p must lie strictly between"):
        negative_binomial_rule(2.0, 1.5, n=3)
    rule = poisson_rule(3.0, nodes=[0, 2, 9], kernel=Matern(1.5, 2.0))
    assert rule.kernel == Matern(1.5, 2.0)
