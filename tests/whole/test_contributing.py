"""What the contributing guide adds works, and takes the number of lines that it says."""

import re
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pymc as pm
import pytest

import pymc_bayessum as pbs
from pymc_bayessum.embeddings.registry import ROWS
from pymc_bayessum.normalizers import log_z

GUIDE = Path(__file__).parents[2] / "CONTRIBUTING.md"
TEXT = GUIDE.read_text()
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PARTS = dict(re.findall(r"^## An? (\w+), in (\d+) lines\n(?=.*?```python)", TEXT, re.M | re.S))


@pytest.fixture(scope="module")
def guide():
    """The names that the guide defines, as long as the tests of this file need them."""
    names: dict = {"__name__": "guide"}
    with patch.dict(ROWS.entries):
        for block in BLOCK.findall(TEXT):
            exec(compile(block, str(GUIDE), "exec"), names)
        yield names


def test_the_five_are_told():
    assert list(PARTS) == ["kernel", "measure", "embedding", "normaliser", "family"]


@pytest.mark.parametrize("part", PARTS)
def test_lines_are_as_many_as_it_says(part):
    block = BLOCK.search(TEXT, TEXT.index(f" {part}, in ")).group(1)
    assert sum(bool(line.strip()) for line in block.splitlines()) == int(PARTS[part])


def test_kernel_under_a_measure(guide):
    kernel, measure = guide["Decay"](0.3), guide["Ramp"](9)
    x = np.arange(10)
    mass = np.exp(measure.log_prob(x))
    np.testing.assert_allclose(mass, (x + 1) / 55)
    embedding = pbs.embed(kernel, measure)
    np.testing.assert_allclose(embedding.mean([0, 4]), (mass @ kernel(x, x))[[0, 4]])
    rule = pbs.bayes_sum(kernel, measure, measure.sample_distinct(10, 1))
    assert rule.expectation(rule.nodes**2.0).mean == pytest.approx(mass @ x**2)


def test_embedding_is_the_sum(guide):
    kernel, x = guide["Decay"](0.3), np.arange(21)
    embedding = pbs.embed(kernel, pbs.measures.Counting(20))
    np.testing.assert_allclose(embedding.mean(x), kernel(x, x).sum(axis=0))
    assert embedding.initial_error == pytest.approx(kernel(x, x).sum())


def test_normaliser_is_found_in_a_model(guide):
    series = guide["LogarithmicSeries"]()
    x = np.arange(1, 400)
    assert series.log_z(np, -0.3) == pytest.approx(np.log(np.sum(np.exp(-0.3 * x) / x)))
    with pm.Model() as model:
        eta = pm.Normal("eta", -0.3, 0.1)
        pm.Potential("y", eta * 3.0 - log_z(series, eta))
    [found] = pbs.find_normalizers(model)
    assert found.normalizer is series


def test_family_knows_its_statistics(guide):
    family = guide["family"]
    assert family.statistics(np.array([[0, 0, 1, 1, 1, 0, 1, 0]])).tolist() == [[4, 3]]
    assert list(family.names) == ["ones", "agree"]
