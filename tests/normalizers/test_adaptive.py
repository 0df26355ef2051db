"""Sums that refine themselves, against listing."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_bayessum.measures.supports import Integers, Naturals, Range
from pymc_bayessum.normalizers.adaptive import AdaptiveSum, RefinePanels, layout, panel_tables
from pymc_bayessum.normalizers.panels import dyadic_panels


@pytest.mark.parametrize("size", [1, 15, 16, 17, 100, 4097, 1_000_003])
def test_panels_cover_a_range_once(size):
    starts, levels = layout(Range(5, 4 + size))
    order = np.argsort(starts)
    lengths = dyadic_panels().lengths[levels[order]]
    assert starts.min() == 5
    assert np.array_equal(starts[order][1:], (starts[order] + lengths)[:-1])
    assert 0 <= starts.max() + lengths[-1] - (5 + size) < 16


@pytest.mark.parametrize("support", [Naturals(3), Integers()])
def test_panels_cover_half_lines_and_lines_once(support):
    starts, levels = layout(support)
    order = np.argsort(starts)
    ends = (starts + dyadic_panels().lengths[levels])[order]
    assert np.array_equal(starts[order][1:], ends[:-1])


def test_panels_sum_polynomials():
    nodes, weights, lengths = panel_tables()
    for level in (1, 2, 5):
        x = np.arange(lengths[level])
        for degree in range(8):
            exact = (x / lengths[level]) ** degree
            found = weights[level] @ (nodes[level] / lengths[level]) ** degree
            assert np.isclose(found, exact.sum(), rtol=1e-12)


@pytest.mark.filterwarnings("ignore:Skipping")
def test_backends_agree_and_differentiate():
    mean = pt.dvector("mean")
    poisson = AdaptiveSum(
        lambda x, mean: x * pt.log(mean[:, None]) - pt.gammaln(x + 1.0), Naturals(0)
    )
    value = poisson.log_z(pt, mean)
    gradient = pytensor.grad(value.sum(), mean)
    means = np.array([0.1, 3.0, 700.0, 1e5])
    for mode in ("FAST_COMPILE", "JAX"):
        log_z, by_mean = pytensor.function([mean], [value, gradient], mode=mode)(means)
        assert np.allclose(log_z, means, rtol=1e-14, atol=1e-9)
        assert np.allclose(by_mean, 1.0, rtol=1e-10)


def test_steep_panels_are_cut_first():
    starts, levels = layout(Naturals(0))
    nodes, _, _ = panel_tables()
    x = (starts[:, None] + nodes[levels]).ravel()
    hump = -0.5 * ((x - 5000.0) / 20.0) ** 2
    op = RefinePanels(1)
    inputs = [starts[None], levels[None].astype("int64"), hump[None]]
    outputs = op.make_node(*map(pt.constant, inputs)).outputs
    _, after = pytensor.function([], outputs, mode="FAST_COMPILE")()
    [cut] = np.flatnonzero(after[0, : len(starts)] != levels)
    assert starts[cut] <= 5000 < starts[cut] + dyadic_panels().lengths[levels[cut]]
