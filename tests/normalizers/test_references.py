"""References against sums that are known exactly."""

import numpy as np
import pytensor.tensor as pt
import pytest

import pymc_bayessum as pbs
from pymc_bayessum import kernels, measures
from pymc_bayessum.normalizers import Asked
from pymc_bayessum.normalizers.interpreted import PLAIN

THETA = pt.dvector("theta")


def reference_of(log_f, rule):
    (found,) = pbs.find_normalizers(pbs.log_normalizer(log_f, rule))
    asked = Asked(found.theta, [], [THETA], {"mode": PLAIN}, np.random.default_rng(1))
    return found.normalizer.reference(asked)


def at(reference, *theta):
    return reference([np.array(theta)], [])


def test_series_on_the_naturals_and_what_the_nodes_miss():
    reference = reference_of(lambda x: -THETA[0] * x, pbs.geometric_rule(0.5, n=10))
    for rate in (2.0, 0.1, 0.003):
        value = at(reference, rate)
        assert value.log_z == pytest.approx(-np.log1p(-np.exp(-rate)), rel=1e-11)
        assert value.beyond == pytest.approx(np.exp(-10 * rate), rel=1e-9)
        assert value.sd == 0.0
        # exp(-rate x) of the mass is at x and beyond.
        assert value.needed == pytest.approx(np.log(1e9) / rate, abs=1.0)


def test_series_by_rows_and_with_gaps():
    rows = pt.stack([THETA[0], 2 * THETA[0]])[:, None]
    reference = reference_of(
        lambda x: pt.switch(pt.eq(x % 3, 0), -rows * x, -np.inf), pbs.geometric_rule(0.5, n=10)
    )
    expected = -np.log1p(-np.exp(-3 * 0.05 * np.array([1.0, 2.0])))
    np.testing.assert_allclose(at(reference, 0.05).log_z, expected, rtol=1e-11)


def test_series_on_the_integers():
    rule = pbs.bayes_sum(kernels.Polynomial(2), measures.Skellam(3.0, 3.0), [-2, 0, 1])
    reference = reference_of(lambda x: -THETA[0] * abs(x - 5), rule)
    rate = 0.02
    expected = np.log((1 + np.exp(-rate)) / (1 - np.exp(-rate)))
    assert at(reference, rate).log_z == pytest.approx(expected, rel=1e-11)


def test_a_series_that_does_not_converge_says_so():
    reference = reference_of(lambda x: 0.0 * x * THETA[0], pbs.geometric_rule(0.5, n=4))
    assert at(reference, 1.0).sd == np.inf


def test_all_points_of_a_small_support():
    measure = measures.UniformCategorical(5, 3)
    rule = pbs.bayes_sum(kernels.ExpHamming(0.3), measure, measure.sample_distinct(20, 1))
    reference = reference_of(lambda x: THETA[0] * pt.sum(x, axis=-1), rule)
    expected = 5 * np.log(np.exp(0.7 * np.arange(3)).sum())
    assert at(reference, 0.7).log_z == pytest.approx(expected, rel=1e-12)


def test_interval_and_pair():
    pair = measures.Product(measures.UniformInterval(0.0, 2.0), measures.UniformCategorical(2, 2))
    kernel = kernels.Tensor(kernels.SquaredExponential(1.0), kernels.ExpHamming(0.5))
    rule = pbs.bayes_sum(kernel, pair, pair.sample_distinct(15, 1))
    reference = reference_of(lambda xy: THETA[0] * (xy[0] + pt.sum(xy[1], axis=-1)), rule)
    expected = np.log(np.expm1(2 * 0.9) / 0.9) + 2 * np.log1p(np.exp(0.9))
    assert at(reference, 0.9).log_z == pytest.approx(expected, rel=1e-12)


def test_fresh_nodes_know_their_error():
    measure = measures.UniformCategorical(30, 2)
    rule = pbs.bayes_sum(kernels.ExpHamming(0.05), measure, measure.sample_distinct(50, 1))
    reference = reference_of(lambda x: THETA[0] * pt.sum(x, axis=-1), rule)
    value = at(reference, 0.3)
    expected = 30 * np.log1p(np.exp(0.3))
    assert 0.0 < value.sd < 0.03
    assert abs(value.log_z - expected) < 4 * value.sd
    assert abs(value.noise) < 4 * value.sd


def test_a_tensor_cannot_be_evaluated_elsewhere():
    rule = pbs.geometric_rule(0.5, n=10)
    assert reference_of(-THETA[0] * rule.nodes, rule) is None


def test_a_summand_of_many_operations():
    """Indexing, reductions and symbolic Ops are applied anew at the other nodes."""

    def log_f(x):
        table = pt.stack([-THETA[0] * x, -2.0 * THETA[0] * x - pt.gammaln(x + 1.0)])
        return pt.logsumexp(table, axis=0) + pt.special.log_softmax(THETA)[pt.minimum(x, 1)]

    reference = reference_of(log_f, pbs.geometric_rule(0.5, n=4))
    x = np.arange(400)
    terms = np.exp(-0.1 * x) + np.cumprod(np.concatenate([[1.0], np.exp(-0.2) / x[1:]]))
    shares = np.exp([0.1, 0.4]) / np.exp([0.1, 0.4]).sum()
    exact = np.log((terms * shares[np.minimum(x, 1)]).sum())
    assert at(reference, 0.1, 0.4).log_z == pytest.approx(exact, rel=1e-11)


def test_with_a_shift():
    rule = pbs.geometric_rule(0.5, n=4)
    value = pbs.log_normalizer(lambda x: -THETA[0] * x, rule, shift=0.0 * THETA[0])
    (found,) = pbs.find_normalizers(value)
    asked = Asked(found.theta, [], [THETA], {"mode": PLAIN}, np.random.default_rng(1))
    value = found.normalizer.reference(asked)([np.array([0.5])], [])
    assert value.log_z == pytest.approx(-np.log1p(-np.exp(-0.5)), rel=1e-11)
