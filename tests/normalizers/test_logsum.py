"""The signed log-sum: values, derivatives, edges."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pytensor.compile.mode import Mode
from pytensor.gradient import DisconnectedInputError
from pytensor.graph.replace import vectorize_graph
from scipy.special import gammaln

from pymc_bayessum import kernels, measures
from pymc_bayessum.normalizers import log_normalizer, normalized
from pymc_bayessum.normalizers.logsum import SignedLogSum
from pymc_bayessum.rules.rule import bayes_sum, poisson_rule

# No compiler in the way: these tests are about the graph.
PYTHON = Mode(linker="py", optimizer="fast_compile")


def signed_log_sum(a, weights, shift=None):
    weights = pt.as_tensor_variable(weights)
    inputs = [a, pt.log(pt.abs(weights)), pt.sign(weights)]
    if shift is None:
        return SignedLogSum()(*inputs)
    return SignedLogSum(shifted=True)(*inputs, shift)


def compiled(inputs, outputs):
    return pytensor.function(inputs, outputs, mode=PYTHON, on_unused_input="ignore")


@pytest.fixture(scope="module")
def op():
    """Value, gradient and Hessian-vector product of sum(g * log-sum) for matrices a, w, v."""
    a, w, v = pt.matrices("a", "w", "v")
    g = pt.vector("g")
    value = signed_log_sum(a, w)
    grad = pytensor.grad(pt.sum(g * value), a)
    return compiled([a, w, g, v], [value, grad, pytensor.grad(pt.sum(grad * v), a)])


@pytest.fixture(scope="module")
def counting_rule():
    return bayes_sum(kernels.Brownian(), measures.Counting(40), np.arange(41))


@pytest.fixture(scope="module")
def signed_rule(counting_rule):
    """A rule whose sum 1 + e^t - e^(2t)/2 turns negative at t = log(1 + sqrt(3))."""
    rule = bayes_sum(kernels.Brownian(), measures.Counting(2), np.arange(3))
    return replace(rule, weights=np.array([1.0, 1.0, -0.5]), log_abs_weights=None)


finite = st.floats(-30, 30)


def make_positive(a, w):
    """Raise the first weight until the sum is positive and does not lose digits."""
    others = np.abs(w[:, 1:] * np.exp(a[:, 1:] - a[:, :1])).sum(axis=1)
    return np.column_stack([1.0 + 2.0 * others, w[:, 1:]])


class TestValue:
    @settings(deadline=None, max_examples=60)
    @given(a=arrays(float, (2, 5), elements=finite), w=arrays(float, (2, 5), elements=finite))
    def test_matches_plain_sum(self, op, a, w):
        w = make_positive(a, w)
        value, _, _ = op(a, w, np.ones(2), np.zeros((2, 5)))
        np.testing.assert_allclose(
            value, np.log((w * np.exp(a)).sum(axis=1)), rtol=1e-12, atol=1e-12
        )

    @pytest.mark.parametrize("offset", [-1e5, 1e5, 1e8])
    def test_does_not_overflow(self, op, offset):
        a = np.log([[1.0, 2.0, 3.0]])
        w = np.array([[2.0, -0.5, 1.0]])
        plain, _, _ = op(a, w, np.ones(1), np.zeros((1, 3)))
        moved, _, _ = op(a + offset, w, np.ones(1), np.zeros((1, 3)))
        np.testing.assert_allclose(moved - offset, plain, atol=1e-15 * abs(offset) * 4)

    def test_terms_without_weight_or_mass_add_nothing(self, op):
        a = np.array([[0.0, 1e6, -np.inf, 1.0]])
        w = np.array([[1.0, 0.0, 3.0, -0.1]])
        value, grad, _ = op(a, w, np.ones(1), np.zeros((1, 4)))
        z = 1.0 - 0.1 * np.e
        np.testing.assert_allclose(value, np.log(z))
        np.testing.assert_allclose(grad, [[1.0 / z, 0.0, 0.0, -0.1 * np.e / z]])

    def test_empty_sum(self, op):
        a = np.array([[-np.inf, -np.inf], [0.0, 1.0]])
        w = np.array([[1.0, 2.0], [0.0, 0.0]])
        value, grad, product = op(a, w, np.ones(2), np.ones((2, 2)))
        assert (value == -np.inf).all()
        assert (grad == 0.0).all()
        assert (product == 0.0).all()

    @pytest.mark.parametrize("w", [[1.0, -2.0], [1.0, -1.0], [-1.0, -1.0]])
    def test_sum_that_is_not_positive(self, op, w):
        value, grad, product = op(np.zeros((1, 2)), np.array([w]), np.ones(1), np.ones((1, 2)))
        assert np.isnan(value).all()
        assert (grad == 0.0).all()
        assert (product == 0.0).all()

    def test_infinite_and_missing_terms(self, op):
        a = np.array([[np.inf, 0.0], [np.nan, 0.0]])
        value, _, _ = op(a, np.ones((2, 2)), np.ones(2), np.zeros((2, 2)))
        assert value[0] == np.inf
        assert np.isnan(value[1])

    @pytest.mark.parametrize(
        ("a_shape", "w_shape"),
        [((3, 1, 4), (2, 4)), ((4,), (3, 4)), ((2, 4), (4,)), ((2, 1), (4,)), ((2, 4), (1,))],
    )
    def test_broadcasting(self, a_shape, w_shape):
        rng = np.random.default_rng(0)
        a_value, w_value = rng.normal(size=a_shape), rng.uniform(1, 2, size=w_shape)
        a, w = pt.tensor("a", shape=a_shape), pt.tensor("w", shape=w_shape)
        value = signed_log_sum(a, w)
        grads = pytensor.grad(pt.sum(value), [a, w])
        z, da, dw = compiled([a, w], [value, *grads])(a_value, w_value)
        np.testing.assert_allclose(z, np.log((w_value * np.exp(a_value)).sum(axis=-1)))
        assert da.shape == a_shape
        assert dw.shape == w_shape
        step = 1e-6
        for grad, point in [(da, a_value), (dw, w_value)]:
            index = tuple(0 for _ in point.shape)
            original = point[index]
            totals = []
            for sign in (1, -1):
                point[index] = original + sign * step
                totals.append(np.log((w_value * np.exp(a_value)).sum(axis=-1)).sum())
            point[index] = original
            np.testing.assert_allclose(grad[index], (totals[0] - totals[1]) / (2 * step), rtol=1e-7)

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    @pytest.mark.parametrize("shifted", [False, True])
    def test_dtype_is_that_of_the_terms(self, dtype, shifted):
        a = pt.matrix("a", dtype=dtype)
        w = np.array([1.0, 0.0, -0.25])
        value = signed_log_sum(a, w, np.array([1.0, 2.0]) if shifted else None)
        grad = pytensor.grad(pt.sum(value), a)
        assert value.dtype == grad.dtype == dtype
        a_value = np.array([[0.0, 1.0, 1.0], [-np.inf, 0.0, -np.inf]], dtype=dtype)
        z, g = compiled([a], [value, grad])(a_value)
        assert z.dtype == g.dtype == dtype
        np.testing.assert_allclose(z, [np.log(1 - np.e / 4), -np.inf], rtol=4 * np.finfo(dtype).eps)

    def test_whole_numbers_become_floats(self):
        value = signed_log_sum(np.array([0, 1]), np.array([1, 1]))
        assert value.dtype == pytensor.config.floatX
        np.testing.assert_allclose(value.eval(mode=PYTHON), np.log1p(np.e))


class TestDerivatives:
    @settings(deadline=None, max_examples=30)
    @given(seed=st.integers(0, 2**31))
    def test_gradient_and_hessian_product(self, op, seed):
        """The gradient is the shares p, the Hessian diag(p) - p p'."""
        rng = np.random.default_rng(seed)
        a, w, v = rng.normal(size=(3, 2, 6))
        w = make_positive(a, w)
        g = rng.normal(size=2)
        terms = w * np.exp(a)
        p = terms / terms.sum(axis=1, keepdims=True)
        _, grad, product = op(a, w, g, v)
        np.testing.assert_allclose(grad, g[:, None] * p, rtol=1e-10, atol=1e-13)
        expected = g[:, None] * (p * v - p * (p * v).sum(axis=1, keepdims=True))
        np.testing.assert_allclose(product, expected, rtol=1e-9, atol=1e-12)

    @pytest.fixture(scope="class")
    @classmethod
    def poisson_like(cls, counting_rule):
        """Log Z of lam^x / x!^nu on 0..40 with gradient, Hessian and Hessian-vector product."""
        theta, v = pt.vector("theta", shape=(2,)), pt.vector("v", shape=(2,))

        def log_f(x):
            return x * theta[0] - theta[1] * pt.gammaln(x + 1)

        value = log_normalizer(log_f, counting_rule)
        grad = pytensor.grad(value, theta)
        product = pytensor.grad(pt.sum(grad * v), theta)
        pushed = pytensor.gradient.pushforward(grad, theta, v)
        return compiled(
            [theta, v],
            [
                value,
                grad,
                pt.stack([pytensor.grad(grad[k], theta) for k in range(2)]),
                product,
                pushed,
            ],
        )

    @pytest.mark.parametrize("theta", [(0.5, 1.0), (2.0, 1.3), (-1.0, 0.2)])
    def test_moments_of_the_distribution(self, poisson_like, theta):
        """Derivatives of log Z are the mean and covariance of (x, -log x!)."""
        x = np.arange(41)
        stats = np.stack([x, -gammaln(x + 1)])
        log_terms = theta @ stats
        p = np.exp(log_terms)
        log_z = np.log(p.sum())
        p /= p.sum()
        v = np.array([0.3, -0.7])
        value, grad, hessian, product, pushed = poisson_like(np.array(theta), v)
        np.testing.assert_allclose(value, log_z, rtol=1e-13)
        np.testing.assert_allclose(grad, stats @ p, rtol=1e-11, atol=1e-13)
        covariance = np.cov(stats, aweights=p, ddof=0)
        np.testing.assert_allclose(hessian, covariance, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(product, covariance @ v, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(pushed, covariance @ v, rtol=1e-9, atol=1e-12)

    def test_finite_differences_with_negative_weights(self, signed_rule):
        t = pt.scalar("t")
        value = log_normalizer(lambda x: t * x, signed_rule)
        first = pytensor.grad(value, t)
        f = compiled([t], [value, first, pytensor.grad(first, t)])
        step = 1e-4
        for point in (-2.0, 0.2, 0.5):
            below, middle, above = (f(point + k * step) for k in (-1, 0, 1))
            np.testing.assert_allclose(middle[1], (above[0] - below[0]) / (2 * step), rtol=1e-6)
            np.testing.assert_allclose(middle[2], (above[1] - below[1]) / (2 * step), rtol=1e-6)


class TestShift:
    @pytest.mark.parametrize("off_by", [0.0, -300.0, 300.0])
    def test_changes_nothing(self, off_by):
        rng = np.random.default_rng(1)
        a, v = pt.matrices("a", "v")
        w = np.array([1.0, 0.5, -0.01, 2.0])
        shift = pt.vector("shift")
        outputs = []
        for value in (signed_log_sum(a, w), signed_log_sum(a, w, shift)):
            grad = pytensor.grad(pt.sum(value), a)
            outputs += [value, grad, pytensor.grad(pt.sum(grad * v), a)]
        a_value, v_value = rng.normal(size=(2, 3, 4))
        peak = (a_value + np.log(np.abs(w))).max(axis=1)
        found = compiled([a, v, shift], outputs)(a_value, v_value, peak + off_by)
        for plain, shifted in zip(found[:3], found[3:], strict=True):
            np.testing.assert_allclose(shifted, plain, rtol=1e-12, atol=1e-12)

    def test_sums_without_a_logarithm(self):
        a = np.array([[-np.inf, -np.inf], [0.0, 0.0]])
        value = signed_log_sum(a, np.array([1.0, -2.0]), np.zeros(2)).eval(mode=PYTHON)
        assert value[0] == -np.inf
        assert np.isnan(value[1])

    def test_no_gradient_flows_through_it(self):
        shift = pt.scalar("shift")
        value = signed_log_sum(np.zeros(3), np.ones(3), shift)
        with pytest.raises(DisconnectedInputError):
            pytensor.grad(value, shift)

    def test_no_array_over_rows_and_nodes(self, counting_rule):
        """The compiled value and gradient hold vectors over rows or nodes, no matrix."""
        log_lam, nu = pt.vectors("log_lam", "nu")

        def log_f(x):
            return x * log_lam[:, None] - nu[:, None] * pt.gammaln(x + 1)

        value = log_normalizer(log_f, counting_rule, shift=nu * pt.exp(log_lam / nu))
        grads = pytensor.grad(pt.sum(value), [log_lam, nu])
        f = pytensor.function([log_lam, nu], [value, *grads], mode="NUMBA")
        held = [out for node in f.maker.fgraph.apply_nodes for out in node.outputs]
        assert held
        assert all(out.type.ndim < 2 or 1 in out.type.shape for out in held)

    def test_too_many_dimensions(self, counting_rule):
        with pytest.raises(ValueError, match="shift must have the batch shape"):
            log_normalizer(pt.zeros(41), counting_rule, shift=np.zeros(41))


class TestLogNormalizer:
    def test_base_is_taken_into_account(self):
        """A Poisson rule sums t^x / x! to e^t, though it holds f over the Poisson mass."""
        rule = poisson_rule(3.0, n=60)
        t = np.array([0.5, 2.0, 5.0])

        def log_f(x):
            return x * pt.log(t)[:, None] - pt.gammaln(x + 1)

        by_function = log_normalizer(log_f, rule).eval(mode=PYTHON)
        by_tensor = log_normalizer(log_f(pt.constant(rule.nodes)), rule).eval(mode=PYTHON)
        np.testing.assert_allclose(by_function, t, rtol=1e-9)
        np.testing.assert_array_equal(by_function, by_tensor)

    def test_weights_that_underflow(self):
        """At x = 400 the Poisson(3) mass is below the smallest double; the summand is not."""
        rule = poisson_rule(3.0, n=500)
        assert (rule.weights == 0.0).any()
        value = log_normalizer(lambda x: x * np.log(0.99), rule).eval(mode=PYTHON)
        np.testing.assert_allclose(value, np.log((1 - 0.99**499) / 0.01), rtol=1e-2)

    def test_pairs_of_nodes(self):
        """On a product the function is given both parts."""
        x, s = np.arange(8), np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
        nodes = np.repeat(x, 4), np.tile(s, (8, 1))
        kernel = kernels.Tensor(kernels.Brownian(), kernels.ExpHamming(0.5))
        base = measures.Product(measures.Poisson(1.0), measures.UniformCategorical(2, 2))
        rule = bayes_sum(kernel, base, nodes)

        def log_f(nodes):
            count, spins = nodes
            return -3.0 * count + pt.sum(spins, axis=-1)

        exact = np.log((1 + np.e) ** 2 / (1 - np.exp(-3.0)))
        value = log_normalizer(log_f, rule)
        np.testing.assert_allclose(value.eval(mode=PYTHON), exact, rtol=1e-6)

    @pytest.mark.parametrize(
        "rule",
        [
            poisson_rule(4.0, nodes=[0, 1, 2, 3, 5, 8, 12, 17, 25]),
            bayes_sum(kernels.Matern(2.5, 4.0), measures.Counting(30), np.arange(0, 31, 3)),
            bayes_sum(kernels.IntegratedBrownian(1), measures.Counting(30), np.arange(0, 31, 3)),
        ],
        ids=["brownian", "matern", "spline"],
    )
    def test_standard_deviation(self, rule):
        """The symbolic sd is that of the rule: sqrt(V y'K^-1 y / N) over Z."""
        log_lam = np.array([0.3, 1.2, 1.5])
        log_values = log_lam[:, None] * rule.nodes - gammaln(rule.nodes + 1)
        expected = rule.log_sum(log_values, return_sd=True)
        t = pt.vector("t")
        pair = log_normalizer(lambda x: t[:, None] * x - pt.gammaln(x + 1), rule, return_sd=True)
        for found, wanted in zip(compiled([t], pair)(log_lam), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-9)

    def test_standard_deviation_where_there_is_no_sum(self, signed_rule):
        _, sd = log_normalizer(lambda x: 3.0 * x, signed_rule, return_sd=True)
        assert np.isnan(sd.eval(mode=PYTHON))

    @pytest.mark.parametrize(
        "log_f", [pt.scalar(), np.zeros(5), np.zeros((41, 1)), lambda x: x[1:]]
    )
    def test_wrong_shape(self, counting_rule, log_f):
        with pytest.raises(ValueError, match="the 41 nodes of the rule along its last axis"):
            log_normalizer(log_f, counting_rule)


class TestGuard:
    @pytest.mark.parametrize(
        ("log_f", "log_z", "expected"),
        [
            (1.0, 3.0, -2.0),
            (-np.inf, 3.0, -np.inf),
            (1.0, np.nan, -np.inf),
            (1.0, -np.inf, -np.inf),
            (1.0, np.inf, -np.inf),
            (np.nan, 1.0, -np.inf),
            (np.inf, 1.0, -np.inf),
        ],
    )
    def test_never_nan_nor_plus_infinity(self, log_f, log_z, expected):
        assert normalized(np.float64(log_f), np.float64(log_z)).eval(mode=PYTHON) == expected

    @pytest.fixture(scope="class")
    @classmethod
    def model(cls, signed_rule):
        with pm.Model() as model:
            t = pm.Normal("t")
            log_z = log_normalizer(lambda x: t * x, signed_rule)
            pm.Potential("y", normalized(2.0 * t, log_z))
        return model

    def test_model_is_minus_infinity_where_the_sum_is_not_positive(self, model):
        logp, dlogp = model.compile_logp(mode=PYTHON), model.compile_dlogp(mode=PYTHON)
        edge = np.log(1 + np.sqrt(3))
        for t in (edge + 1e-9, 1.5, 40.0):
            assert logp({"t": t}) == -np.inf
            assert np.isfinite(dlogp({"t": t})).all()
        for t in (edge - 1e-9, 0.0, -3.0):
            z = 1 + np.exp(t) - np.exp(2 * t) / 2
            exact = 2 * t - np.log(z) - t**2 / 2 - np.log(2 * np.pi) / 2
            np.testing.assert_allclose(logp({"t": t}), exact, rtol=1e-6)
            assert np.isfinite(dlogp({"t": t})).all()


class TestVectorize:
    def test_stays_one_node(self):
        a, batch = pt.matrix("a"), pt.tensor3("batch")
        value = vectorize_graph(signed_log_sum(a, np.ones(4)), {a: batch})
        assert isinstance(value.owner.op, SignedLogSum)

    def test_core_dimensions_line_up(self):
        rng = np.random.default_rng(2)
        a, weights, many, shift = (
            pt.vector("a"),
            pt.matrix("w"),
            pt.matrix("many"),
            pt.scalar("shift"),
        )
        for value in (signed_log_sum(a, weights), signed_log_sum(a, weights, shift)):
            f = compiled([many, weights, shift], vectorize_graph(value, {a: many}))
            a_value, w_value = rng.normal(size=(5, 4)), rng.uniform(size=(3, 4))
            expected = np.log((w_value * np.exp(a_value)[:, None]).sum(axis=-1))
            np.testing.assert_allclose(f(a_value, w_value, 1.0), expected)
