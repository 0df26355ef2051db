"""How embeddings are checked: brute-force sums over points with known masses."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from scipy import stats

from pymc_bayessum import embeddings as es
from pymc_bayessum import measures as ms

RTOL = 1e-10
few = settings(deadline=None, max_examples=20)
rates = st.floats(0.01, 60.0)
shifts = st.one_of(st.just(0.0), st.floats(1e-6, 3.0))
seeds = st.integers(0, 2**31)


def assert_sums(kernel, measure, x, p, y, rtol=RTOL):
    """Compare an embedding with sums over points x of masses p."""
    embedding = es.embed(kernel, measure)
    np.testing.assert_allclose(embedding.mean(y), p @ kernel(x, y), rtol=rtol)
    expected = p @ kernel(x, x) @ p
    np.testing.assert_allclose(embedding.initial_error, expected, rtol=rtol)


def pmf(measure, x):
    """Masses from SciPy, or from the definition."""
    match measure:
        case ms.Poisson():
            return stats.poisson.pmf(x, measure.mu)
        case ms.NegativeBinomial():
            return stats.nbinom.pmf(x, measure.n, measure.p)
        case ms.Geometric():
            return measure.p * (1.0 - measure.p) ** x
        case ms.Logarithmic():
            return stats.logser.pmf(x, measure.p)
        case ms.Skellam():
            return stats.skellam.pmf(x, measure.mu1, measure.mu2)
        case ms.Counting():
            return np.ones(len(x))
        case ms.Mixture():
            parts = zip(measure.weights, measure.measures, strict=True)
            return sum(w * pmf(m, x) for w, m in parts)
    raise AssertionError(measure)


counts = st.one_of(
    st.builds(ms.Poisson, rates),
    st.builds(ms.NegativeBinomial, st.floats(0.1, 12.0), st.floats(0.15, 0.95)),
    st.builds(ms.Geometric, st.floats(0.1, 0.95)),
    st.builds(ms.Logarithmic, st.floats(0.05, 0.9)),
    st.builds(ms.Counting, st.integers(0, 60)),
)


def listed(measure):
    """Points far into the tail, and masses."""
    low = 1 if isinstance(measure, ms.Logarithmic) else 0
    x = np.arange(low, measure.maximum + 1 if isinstance(measure, ms.Counting) else 700)
    return x, pmf(measure, x)


Y = np.array([0, 1, 2, 3, 7, 20, 61, 150])
