"""The CMP normaliser against 40-digit sums: limits, seams, derivatives, backends."""

import functools

import mpmath as mp
import near_zero_rules
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.graph.replace import vectorize_graph
from scipy.special import gammaln

from pymc_bayessum.counts.cmp_sums import near_zero
from pymc_bayessum.counts.cmp_sums.ops import (
    CMPCumulants,
    CMPFromMean,
    CMPQuantile,
    CMPTail,
    log_tail,
    log_z_of_rate,
    quantile,
    rate_and_log_z_of_mean,
)

DIGITS = 40


@functools.cache
def log_factorials(last):
    """log x! for x = 0, ..., last in 40 digits."""
    with mp.workdps(DIGITS):
        values = [mp.mpf(0)]
        for x in range(1, last + 1):
            values.append(values[-1] + mp.log(x))
        return values


def exact(eta, nu):
    """log Z, E[X], -E[L], Var(X), -Cov(X, L), Var(L) by summing in 40 digits."""
    with mp.workdps(DIGITS):
        eta, nu = mp.mpf(float(eta)), mp.mpf(float(nu))
        centre = int(mp.floor(mp.exp(eta / nu))) if nu > 0 else 0
        table = log_factorials(1 << (centre + 1000).bit_length())
        peak = eta * centre - nu * table[centre]
        sums = [mp.mpf(0)] * 6
        for direction in (1, -1):
            x = centre if direction == 1 else centre - 1
            while x >= 0:
                if x >= len(table):
                    table = log_factorials(2 * len(table))
                exponent = eta * x - nu * table[x] - peak
                if exponent < -95:
                    break
                p = mp.exp(exponent)
                a, b = x - centre, table[centre] - table[x]
                for i, value in enumerate((p, p * a, p * b, p * a * a, p * a * b, p * b * b)):
                    sums[i] += value
                x += direction
        total, d, g, dd, dg, gg = sums
        d, g, dd, dg, gg = (s / total for s in (d, g, dd, dg, gg))
        return [
            peak + mp.log(total),
            centre + d,
            g - table[centre],
            dd - d * d,
            dg - d * g,
            gg - g * g,
        ], max(abs(eta * centre), abs(nu * table[centre]), 1)


def rate_of(mu, nu):
    """A log rate of about the mean mu, to place test points with."""
    return float(CMPFromMean().evaluate(np.log(mu), nu)[0])


def assert_exact(eta, nu):
    expected, largest = exact(eta, nu)
    ours = [float(x) for x in CMPCumulants(2).evaluate(eta, nu)]
    error = abs(mp.mpf(ours[0]) - expected[0])
    assert error <= 1e-12 + 1e-15 * float(largest)
    for value, truth in zip(ours[1:], expected[1:], strict=True):
        assert abs(value - float(truth)) <= 1e-9 * abs(float(truth))
    for value, truth in zip(ours[1:3], expected[1:3], strict=True):
        assert abs(value - float(truth)) <= 1e-11 * abs(float(truth))


@pytest.mark.parametrize("nu", [0.01, 0.06, 0.3, 0.8, 1.7, 6.0, 20.0])
@pytest.mark.parametrize("mu", [0.01, 0.3, 2.0, 7.5, 31.0, 220.0, 3e3, 1e5])
def test_against_forty_digits_over_the_plane(mu, nu):
    assert_exact(rate_of(mu, nu), nu)


@settings(max_examples=40, deadline=None)
@given(
    st.floats(-5.0, 6.0),
    st.floats(np.log(0.01), np.log(25.0)),
)
def test_against_forty_digits_at_random(log_mu, log_nu):
    nu = float(np.exp(log_nu))
    assert_exact(rate_of(np.exp(log_mu), nu), nu)


def test_poisson():
    mu = np.geomspace(1e-3, 1e5, 600)
    log_z, mean, _, variance, *_ = CMPCumulants(2).evaluate(np.log(mu), np.ones(600))
    # The largest exponent of the sum is mu log(mu): no double sum can do better than its rounding.
    rounding = 1e-15 * mu * np.maximum(np.log(mu), 1)
    assert np.all(np.abs(log_z - mu) <= 1e-12 * np.minimum(mu, 1) + rounding)
    np.testing.assert_allclose(mean, mu, rtol=1e-12)
    np.testing.assert_allclose(variance, mu, rtol=1e-12)


def test_geometric_and_the_way_there():
    lam = np.array([1e-8, 0.1, 0.5, 0.9, 0.99, 0.9999, 1 - 1e-5])
    for nu, rtol in ((0.0, 1e-12), (1e-300, 1e-12), (1e-13, 1e-5)):
        log_z, mean, _, variance, *_ = CMPCumulants(2).evaluate(np.log(lam), nu)
        np.testing.assert_allclose(log_z, -np.log1p(-lam), rtol=rtol)
        np.testing.assert_allclose(mean, lam / (1 - lam), rtol=rtol)
        np.testing.assert_allclose(variance, lam / (1 - lam) ** 2, rtol=rtol)
    by_mean = CMPFromMean().evaluate(np.log([0.02, 3.0, 5e4]), 0.0)
    np.testing.assert_allclose(by_mean[0], -np.log1p(1 / np.array([0.02, 3.0, 5e4])), rtol=1e-11)


def test_bernoulli():
    lam = np.array([1e-6, 0.3, 1.0, 7.0])
    log_z, mean, *_ = CMPCumulants(1).evaluate(np.log(lam), 200.0)
    np.testing.assert_allclose(log_z, np.log1p(lam), rtol=1e-13)
    np.testing.assert_allclose(mean, lam / (1 + lam), rtol=1e-13)
    # By mean: 0 and 1 alone below one, k and k + 1 between two whole numbers.
    eta, *_ = CMPFromMean().evaluate(np.log([0.3, 4.25]), 500.0)
    np.testing.assert_allclose(eta[0], np.log(0.3 / 0.7), rtol=1e-12)
    np.testing.assert_allclose(eta[1], 500 * np.log(5) + np.log(0.25 / 0.75), rtol=1e-12)


@pytest.mark.parametrize(
    ("eta", "nu"),
    [
        (0.0, 0.0),
        (0.4, 0.0),
        (1.0, 1e-9),  # the mode exp(1e9) is no double, nor is log Z
        (np.nan, 1.0),
        (1.0, np.nan),
        (1.0, -0.5),
        (np.inf, 1.0),
        (1.0, np.inf),
    ],
)
def test_no_distribution(eta, nu):
    log_z, *derivatives = CMPCumulants(3).evaluate(eta, nu)
    assert log_z == np.inf
    assert np.all(np.array(derivatives) == 0)


@pytest.mark.parametrize("log_mu", [600.0, np.nan, np.inf])
def test_no_distribution_of_a_mean(log_mu):
    eta, log_z, *derivatives = CMPFromMean().evaluate(log_mu, 0.7)
    assert log_z == np.inf
    assert np.all(np.array([eta, *derivatives]) == 0)


@pytest.mark.parametrize("nu", [0.004, 0.05, 0.4, 1.0, 2.3, 9.0])
def test_no_seam_between_methods(nu):
    """Values step as their derivatives say, to 1e-9 and less, along all of the range."""
    log_mu = np.linspace(np.log(0.02), np.log(2e5), 40_001)
    eta = CMPFromMean().evaluate(log_mu, nu)[0]
    # In pieces too short to be interpolated: these are the sums themselves.
    pieces = [CMPCumulants(3).evaluate(part, nu) for part in np.array_split(eta, 200)]
    k = np.concatenate(pieces, axis=1)
    h = np.diff(eta)
    scale = 1 + np.abs(eta * k[1])[1:]

    def step_error(value, slope, curvature):
        trapezoid = h * (slope[1:] + slope[:-1]) / 2 - h**2 * np.diff(curvature) / 12
        return np.abs(np.diff(value) - trapezoid)

    # The rule that is used here is exact to h^5: about (5e-4 sd)^5 of the next derivatives.
    assert np.max(step_error(k[0], k[1], k[3]) / scale) < 2e-13
    assert np.max(step_error(k[1], k[3], k[6]) / (1 + np.sqrt(k[3][1:]))) < 1e-9
    assert np.max(step_error(k[2], k[4], k[7]) / (1 + np.sqrt(k[5][1:]))) < 1e-9


@pytest.mark.parametrize("nu", [0.02, 0.5, 1.0, 3.0, 20.0])
def test_interpolation_is_as_exact_as_sums(nu):
    rng = np.random.default_rng(3)
    log_mu = rng.uniform(np.log(0.02), np.log(3e4), 6000)
    log_mu[:4] = [-50.0, 13.2, 20.0, np.nan]  # rows that no table holds
    many = np.array(CMPFromMean().evaluate(log_mu, nu))
    few = np.concatenate([CMPFromMean().evaluate(part, nu) for part in np.split(log_mu, 120)], 1)
    mu = np.exp(np.where(np.isfinite(few[1]), log_mu, 0))
    finite = np.isfinite(few[1])
    assert np.all(np.isfinite(many[1]) == finite)
    many, few, mu = many[:, finite], few[:, finite], mu[finite]
    largest = 1 + np.abs(few[0] * mu) + nu * gammaln(mu + 1)
    # What a count one sd above the mean sees of both.
    count = mu + np.sqrt(mu / few[2])
    seen = (many[0] - few[0]) * count - (many[1] - few[1])
    assert np.all(np.abs(seen) <= 1e-11 + 1e-15 * largest)
    np.testing.assert_allclose(many[2:], few[2:], rtol=2e-9)
    many = np.array(CMPCumulants(1).evaluate(few[0], nu))
    few = np.concatenate([CMPCumulants(1).evaluate(x, nu) for x in np.array_split(few[0], 120)], 1)
    assert np.all(np.abs(many[0] - few[0]) <= 1e-11 + 1e-15 * largest)
    np.testing.assert_allclose(many[1:], few[1:], rtol=1e-10)


def test_means_are_met_over_the_plane():
    rng = np.random.default_rng(0)
    log_mu = rng.uniform(np.log(1e-4), np.log(3e5), 20_000)
    nu = np.exp(rng.uniform(np.log(5e-4), np.log(300), log_mu.size))
    # In pieces too short to be interpolated.
    pieces = zip(np.split(log_mu, 400), np.split(nu, 400), strict=True)
    eta, log_z, by_mu, by_nu, mean_l = np.concatenate(
        [CMPFromMean().evaluate(*piece) for piece in pieces], axis=1
    )
    k = CMPCumulants(2).evaluate(eta, nu)
    assert np.all(np.isfinite(log_z))
    np.testing.assert_allclose(k[1], np.exp(log_mu), rtol=1e-12)
    np.testing.assert_allclose(log_z, k[0], rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(by_mu * k[3], np.exp(log_mu), rtol=1e-9)
    np.testing.assert_allclose(by_nu * k[3], -k[4], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(mean_l, -k[2], rtol=1e-12)


def test_mean_at_whole_numbers_with_large_nu():
    """Nearly all mass at one count: the rate lies between those that split it with a neighbour."""
    nu = np.array([20.0, 100.0, 1000.0])
    eta, log_z, *_ = CMPFromMean().evaluate(np.log(3.0), nu)
    assert np.all(np.isfinite(log_z))
    assert np.all((nu * np.log(3) < eta) & (eta < nu * np.log(4)))
    np.testing.assert_allclose(CMPCumulants(1).evaluate(eta, nu)[1], 3.0, rtol=1e-12)


@pytest.mark.parametrize("scale", [2.0, 8.0, 32.0])
def test_stored_rules_near_zero_can_be_recomputed(scale):
    stored = near_zero.load_rules()
    k = round(2 * np.log2(scale / near_zero.FIRST_SCALE))
    old = stored.nodes[k], stored.weights[k]
    new = near_zero_rules.build_rule(scale)
    assert np.all(new[1] > 0)
    assert np.all(stored.weights[k] >= 0)
    rng = np.random.default_rng(2)
    for width in np.append(rng.uniform(scale, scale * near_zero_rules.STEP, 4), scale):
        eta, nu = near_zero_rules.summands_of_width(width)
        peaks, sums = near_zero_rules.exact_sums(eta, nu, int(70 * scale))
        for nodes, weights in (old, new):
            terms = np.exp(np.outer(eta, nodes) - np.outer(nu, gammaln(nodes + 1)))
            exact_sum = sums[0] * np.exp(peaks)
            np.testing.assert_allclose(terms @ weights, exact_sum, rtol=1e-12)
            np.testing.assert_allclose(
                terms @ (weights * nodes), sums[1] * np.exp(peaks), rtol=1e-12
            )


def test_width_is_close_to_the_standard_deviation():
    rng = np.random.default_rng(4)
    nu = np.exp(rng.uniform(np.log(1e-3), np.log(0.05), 500))
    eta = CMPFromMean().evaluate(rng.uniform(np.log(50.0), np.log(1e4), 500), nu)[0]
    sd = np.sqrt(CMPCumulants(2).evaluate(eta, nu)[3])
    np.testing.assert_allclose(near_zero.width(eta, nu), sd, rtol=0.25)


@functools.cache
def derivatives(form):
    """Value, gradient and Hessian on a direction of a likelihood of three rows, compiled."""
    theta = pt.vector("theta")
    first = theta[0] * np.array([1.0, 0.4, -0.3]) + theta[1]
    nu = pt.exp(theta[2] + theta[3] * np.array([0.1, 0.2, 0.5]))
    counts = np.array([0.0, 3.0, 8.0])
    if form == "mean":
        eta, log_z = rate_and_log_z_of_mean(first, nu)
    else:
        eta, log_z = first, log_z_of_rate(first, nu)
    total = (counts * eta - nu * gammaln(counts + 1) - log_z).sum()
    if form == "tails":
        total = (log_tail(counts, first, nu) + log_tail(counts, first, nu, upper=True)).sum()
    gradient, direction = pt.grad(total, theta), pt.vector("direction")
    curvature = pt.grad((gradient * direction).sum(), theta)
    outputs = [total, gradient, curvature]
    return pytensor.function([theta, direction], outputs, mode="FAST_COMPILE")


@pytest.mark.parametrize("form", ["rate", "mean", "tails"])
@pytest.mark.parametrize(
    "theta", [[0.5, 0.3, -0.4, 0.2], [1.5, 1.0, 0.6, -0.4], [0.2, -1.0, -2.0, 1.0]]
)
def test_first_and_second_derivatives(form, theta):
    function = derivatives(form)
    theta = np.array(theta)
    gradient = function(theta, np.zeros(4))[1]
    hessian = np.array([function(theta, unit)[2] for unit in np.eye(4)])
    step = 1e-5
    for i, unit in enumerate(np.eye(4)):
        above, below = (function(theta + s * unit, unit) for s in (step, -step))
        np.testing.assert_allclose(gradient[i], (above[0] - below[0]) / (2 * step), atol=1e-7)
        np.testing.assert_allclose(hessian[i], (above[1] - below[1]) / (2 * step), atol=1e-6)
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-9, atol=1e-12)


@functools.cache
def all_outputs(mode):
    x, eta, nu = pt.vectors("x", "eta", "nu")
    outputs = [
        *CMPCumulants(3)(eta, nu),
        *CMPFromMean()(eta, nu),
        *CMPTail(False, 2)(x, eta, nu),
        *CMPTail(True, 2)(x, eta, nu),
        quantile(1 / (1 + pt.exp(-eta)), eta, nu),
    ]
    return pytensor.function([x, eta, nu], outputs, mode=mode)


@pytest.mark.parametrize("mode", ["JAX", "FAST_COMPILE"])
def test_backends_agree(mode):
    if mode == "JAX":
        pytest.importorskip("jax")
    rng = np.random.default_rng(5)
    log_mu = np.append(rng.uniform(np.log(0.01), np.log(3e3), 60), [2.0, 1.0, -1.0, 300.0])
    nu = np.append(np.exp(rng.uniform(np.log(0.003), np.log(30), 60)), [0.0, -1.0, np.nan, 1.0])
    eta = CMPFromMean().evaluate(log_mu, nu)[0]
    x = np.floor(np.exp(np.minimum(log_mu, 10)) * rng.uniform(0, 2, log_mu.size))
    x[:3] = [-1.0, 1e18, np.inf]
    ours, theirs = all_outputs("NUMBA")(x, eta, nu), all_outputs(mode)(x, eta, nu)
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        # Second derivatives of tails are differences of nearly equal numbers.
        atol = 1e-8 if 18 <= i < 27 else 1e-12
        np.testing.assert_allclose(np.asarray(b), a, rtol=1e-10, atol=atol, err_msg=str(i))


def test_jax_derivatives_agree():
    jax = pytest.importorskip("jax")
    from pymc_bayessum.counts.cmp_sums import jax_ops

    eta, nu, x = np.array([0.3, 2.0]), np.array([0.4, 1.3]), np.array([1.0, 6.0])

    def by_jax(z):
        value = jax_ops.cumulants(1, z[:2], z[2:])[0] - 2.0 * jax_ops.from_mean(z[:2], z[2:])[0]
        return (value + jax_ops.log_tail(False, 1, x, z[:2], z[2:])[0]).sum()

    z = pt.vector("z")
    value = log_z_of_rate(z[:2], z[2:]) - 2.0 * rate_and_log_z_of_mean(z[:2], z[2:])[0]
    value = (value + log_tail(x, z[:2], z[2:])).sum()
    gradient = pt.grad(value, z)
    hessian = pt.stack([pt.grad(gradient[i], z) for i in range(4)])
    at = np.concatenate([eta, nu])
    expected = pytensor.function([z], [gradient, hessian], mode="FAST_COMPILE")(at)
    np.testing.assert_allclose(jax.jit(jax.grad(by_jax))(at), expected[0], rtol=1e-10)
    np.testing.assert_allclose(jax.jit(jax.hessian(by_jax))(at), expected[1], rtol=1e-9)
    batched = jax.vmap(lambda e: jax_ops.cumulants(1, e, nu)[0])(np.stack([eta, 2 * eta]))
    np.testing.assert_allclose(batched[1], CMPCumulants(1).evaluate(2 * eta, nu)[0], rtol=1e-12)


def test_shapes():
    eta, nu = pt.scalar("eta"), pt.scalar("nu")
    row, matrix = np.array([0.1, 0.2, 0.3]), np.linspace(0.1, 2.0, 6).reshape(2, 3)
    expected = CMPCumulants(1).evaluate(matrix, row)[0]
    cases = {
        "scalar": (log_z_of_rate(eta, nu), (0.1, 0.2), ()),
        "rows": (log_z_of_rate(pt.constant(matrix), pt.constant(row)), None, (2, 3)),
        "columns": (log_z_of_rate(matrix[:, :1], row[None, :]), None, (2, 3)),
        "one": (log_z_of_rate(matrix, row[:1]), None, (2, 3)),
        "one rate": (log_z_of_rate(0.3, matrix), None, (2, 3)),
    }
    for name, (value, inputs, shape) in cases.items():
        result = value.eval({} if inputs is None else {eta: inputs[0], nu: inputs[1]})
        assert result.shape == shape, name
    np.testing.assert_allclose(cases["rows"][0].eval(), expected)
    np.testing.assert_allclose(
        cases["one rate"][0].eval(), CMPCumulants(1).evaluate(np.full((2, 3), 0.3), matrix)[0]
    )
    with pytest.raises(ValueError, match="do not broadcast"):
        log_z_of_rate(np.zeros(3), np.ones(2))
    vectorized = vectorize_graph(log_z_of_rate(eta, nu), {eta: pt.constant(matrix)})
    np.testing.assert_allclose(
        vectorized.eval({nu: 0.7}), CMPCumulants(1).evaluate(matrix, 0.7)[0], rtol=1e-13
    )


def test_quantiles_invert_the_distribution_function():
    rng = np.random.default_rng(6)
    for mu, nu in ((0.3, 0.1), (4.0, 0.3), (12.0, 1.0), (40.0, 6.0), (900.0, 0.5)):
        eta = rate_of(mu, nu)
        q = np.concatenate([rng.uniform(size=300), 10.0 ** -np.arange(1, 12)])
        x = CMPQuantile().evaluate(q, eta, nu)[0]
        below, at = (np.exp(CMPTail(False, 1).evaluate(y, eta, nu)[0]) for y in (x - 1, x))
        assert np.all((at >= q * (1 - 1e-11)) & (below < q * (1 + 1e-11)))
        counts = np.arange(int(mu + 4 * np.sqrt(mu / nu) + 5))
        back = np.exp(CMPTail(False, 1).evaluate(counts, eta, nu)[0])
        told_apart = np.diff(back, prepend=0.0) > 1e-15
        inverse = CMPQuantile().evaluate(back[told_apart], eta, nu)[0]
        np.testing.assert_array_equal(inverse, counts[told_apart])


@pytest.mark.parametrize("op", [CMPCumulants, CMPTail])
def test_orders_that_do_not_exist(op):
    with pytest.raises(ValueError, match="order must be"):
        op(order=4)
