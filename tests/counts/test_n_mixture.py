"""Counts seen by chance, summed in one compiled pass: against listing."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.special import digamma, gammaln, logsumexp

import pymc_bayessum as pbs
from pymc_bayessum.counts.latent import SeenByChance
from pymc_bayessum.counts.n_mixture import NMixtureSum, counts_of
from pymc_bayessum.counts.n_mixture_rows import (
    CMP,
    MOST_EVALUATIONS,
    NEGATIVE_BINOMIAL,
    POISSON,
    sum_rows,
)
from pymc_bayessum.normalizers.located import panel_tables
from pymc_bayessum.normalizers.node import find

QUICK = {"mode": "FAST_COMPILE"}
N = np.arange(30_000.0)
LOG_FACTORIAL = gammaln(N + 1.0)
DATA = [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 80.0], [5.0, 9.0, 2.0], [700.0, 900.0, 800.0]]


def listed(kind, c, s, y):
    """Return the log-sum over what it is at the left end, and the derivatives, term by term."""
    low = int(max(y))
    by_shape = {
        POISSON: np.zeros_like(N),
        CMP: -LOG_FACTORIAL,
        NEGATIVE_BINOMIAL: digamma(N + s),
    }[kind]
    own = {
        POISSON: -LOG_FACTORIAL,
        CMP: -s * LOG_FACTORIAL,
        NEGATIVE_BINOMIAL: gammaln(N + s) - LOG_FACTORIAL,
    }[kind]
    g = (c * N + own)[low:]
    for t in map(int, y):
        g = g + LOG_FACTORIAL[low:] - LOG_FACTORIAL[low - t : len(N) - t]
    share = np.exp(g - logsumexp(g))
    away = (N - low)[low:], (by_shape - by_shape[low])[low:]
    return np.array([logsumexp(g - g[0]), *(share @ x for x in away)])


@pytest.mark.parametrize("mean", [0.02, 1.0, 12.0, 40.0, 77.8, 300.0, 5000.0])
@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        (POISSON, 1.0),
        *[(CMP, nu) for nu in (0.2, 1.5, 10.0)],
        *[(NEGATIVE_BINOMIAL, size) for size in (0.05, 1.0, 6.0, 400.0)],
    ],
)
def test_sum_and_derivatives_equal_listing(kind, shape, mean):
    c = {
        POISSON: np.log(mean),
        CMP: shape * np.log(mean),
        NEGATIVE_BINOMIAL: np.log(mean / (mean + shape)),
    }[kind] + 3.0 * np.log(0.5)
    n_rows = len(DATA)
    rows = sum_rows(
        kind, np.full(n_rows, c), np.full(n_rows, shape), np.array(DATA), *panel_tables()
    )
    expected = np.stack([listed(kind, c, shape, y) for y in DATA], axis=-1)
    assert np.allclose(rows[0], expected[0], rtol=1e-12, atol=2e-9)
    assert np.allclose(rows[1:], expected[1:], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    ("mean", "size", "p", "y"),
    [
        (8.9e5, 6.48, 1.9e-5, [16.0, 12.0]),
        (1.2e5, 3.6, 2.4e-5, [3.0, 3.0]),
        (4e4, 0.7, 1e-3, [2.0, 5.0]),
        (6e4, 8.0, 0.3, [11_000.0, 11_200.0]),
    ],
)
def test_negative_binomials_far_out(mean, size, p, y):
    """Gamma-like sums over millions of numbers."""
    low, c = max(y), np.log(mean / (mean + size)) + len(y) * np.log1p(-p)
    n = np.arange(low, low + 4e6)
    g = c * n + gammaln(n + size) + (len(y) - 1.0) * gammaln(n + 1.0)
    for seen in y:
        g -= gammaln(n - seen + 1.0)
    rows = sum_rows(
        NEGATIVE_BINOMIAL, np.array([c]), np.array([size]), np.array([y]), *panel_tables()
    )
    assert rows[0, 0] == pytest.approx(logsumexp(g) - g[0], rel=1e-12, abs=2e-8)


def test_number_of_evaluations_is_bounded():
    assert MOST_EVALUATIONS <= 128


@pytest.mark.parametrize("kind", [POISSON, CMP, NEGATIVE_BINOMIAL])
def test_second_derivatives(kind):
    c, s = pt.dvector("c"), pt.dvector("s")
    [_, by_c, by_s] = NMixtureSum(kind).make_node(c, s, pt.constant(np.array(DATA))).outputs
    outputs = [
        by_c,
        by_s,
        *pytensor.grad(by_c.sum(), [c, s], disconnected_inputs="ignore"),
        *pytensor.grad(by_s.sum(), [c, s], disconnected_inputs="ignore"),
    ]
    f = pytensor.function([c, s], outputs, on_unused_input="ignore", **QUICK)
    at = np.array([-0.3, -0.1, -0.4, -0.6, -0.9]), np.array([0.8, 1.7, 0.4, 3.0, 2.5])
    step = 1e-4
    by_steps = [
        (f(at[0] + step * i, at[1] + step * j)[k] - f(at[0] - step * i, at[1] - step * j)[k])
        / (2.0 * step)
        for k in (0, 1)
        for i, j in ((1, 0), (0, 1))
    ]
    assert np.allclose(f(*at)[2:], by_steps, rtol=1e-4, atol=1e-6)


def test_size_of_a_negative_binomial_that_is_poisson():
    y = np.array([[3, 5]])
    values = [
        pm.logp(
            pbs.LatentCount.dist(
                latent=latent, given=lambda n: pm.Binomial.dist(n, 0.3), shape=y.shape
            ),
            y,
        ).eval(**QUICK)
        for latent in (pm.Poisson.dist(12.0), pm.NegativeBinomial.dist(mu=12.0, alpha=1e14))
    ]
    assert np.allclose(*values, rtol=1e-3)


def model_of(observed, p):
    with pm.Model() as model:
        rate = pm.Exponential("rate", 1.0)
        pbs.LatentCount(
            "y",
            latent=pm.NegativeBinomial.dist(mu=rate, alpha=2.0),
            given=lambda n: pm.Binomial.dist(n, p),
            observed=observed,
        )
    return model


def test_both_ways_agree_with_missing_visits_and_detection_by_visit():
    y = np.array([[2.0, np.nan, 1.0], [np.nan, np.nan, np.nan], [0.0, 30.0, 25.0]])
    p = np.array([[0.2, 0.5, 0.9], [0.1, 0.2, 0.3], [0.4, 0.6, 0.5]])
    model = model_of(y, p)
    [found] = find(model.logp(sum=False), model.free_RVs)
    assert isinstance(found.normalizer, SeenByChance)
    by_rows = found.normalizer.log_z(pt, *found.theta)
    generic = super(SeenByChance, found.normalizer).log_z(pt, *found.theta)
    inputs = model.value_vars
    values = pytensor.function(inputs, [by_rows, generic], **QUICK)(np.log(9.0))
    assert np.allclose(*values, atol=1e-9)
    assert np.isclose(values[0][1], 0.0, atol=1e-12)


@pytest.mark.parametrize(
    ("mean", "p", "y", "expected"),
    [
        (3.0, 1.0, [[2, 2]], pm.logp(pm.Poisson.dist(3.0), 2)),
        (3.0, 1.0, [[2, 1]], -np.inf),
        (3.0, 0.0, [[0, 0]], 0.0),
        (3.0, 0.0, [[0, 1]], -np.inf),
        (0.0, 0.5, [[0, 0]], 0.0),
        (0.0, 0.5, [[1, 0]], -np.inf),
        (3.0, 0.5, [[-1, 0]], -np.inf),
    ],
)
def test_ends_of_the_parameters(mean, p, y, expected):
    variable = pbs.LatentCount.dist(
        latent=pm.Poisson.dist(mean), given=lambda n: pm.Binomial.dist(n, p), shape=(1, 2)
    )
    value = pm.logp(variable, np.array(y)).eval(**QUICK)
    expected = expected if isinstance(expected, float) else expected.eval(**QUICK)
    assert np.isclose(value[0], expected)


def test_other_counts_are_left_to_the_general_sum():
    assert counts_of(pm.ZeroInflatedPoisson.dist(0.5, 3.0)) is None
    assert counts_of(pbs.CMP.dist(mu=3.0, nu=1.0, normalizer=pbs.poisson_rule(3.0, n=10))) is None
