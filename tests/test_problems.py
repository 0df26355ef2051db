"""The catalogue itself: its exact values are those of plain summation, its tags are right."""

import numpy as np
import pytest
from problems import PROBLEMS, having
from scipy.integrate import quad

from pymc_bayessum import measures as ms


def summed(measure, f):
    """Sum or integral of f under a measure, point by point."""
    if isinstance(measure, ms.UniformInterval):
        return quad(lambda x: float(f(np.array([x]))[0]), measure.low, measure.high)[0] / (
            measure.high - measure.low
        )
    if isinstance(measure, ms.Product):
        states = measure.second.support.enumerate()
        mass = np.exp(measure.second.log_prob(states))

        def inner(x):
            return mass @ f((np.repeat(x, len(states)), states))

        return summed(measure.first, lambda x: np.array([inner(x)]))
    listed = isinstance(measure, ms.IntegerMeasure)
    points = measure.integers() if listed else measure.support.enumerate()
    points = points[measure.support.contains(points)]
    return np.exp(measure.log_prob(points)) @ f(points)


@pytest.mark.parametrize(
    "problem",
    [p for p in PROBLEMS if p.measure.support.size < 1e5 or "sites" not in p.tags],
    ids=lambda problem: problem.name,
)
def test_exact_values_are_those_of_plain_sums(problem):
    assert summed(problem.measure, problem.f) == pytest.approx(problem.exact, rel=1e-10)


SPACES = {
    "naturals": lambda s: isinstance(s, (ms.Naturals, ms.Range)) and s.ends[0] >= 0,
    "integers": lambda s: isinstance(s, ms.Integers),
    "sites": lambda s: isinstance(s, (ms.Sites, ms.Spins)),
    "interval": lambda s: isinstance(s, ms.Interval),
    "pair": lambda s: isinstance(s, ms.Pair),
}


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_tags_are_right(problem):
    support = problem.measure.support
    assert [tag for tag in SPACES if tag in problem.tags] == [
        tag for tag, holds in SPACES.items() if holds(support)
    ]
    assert ("counting" in problem.tags) == (problem.measure.log_mass > 0.0)
    if "small" in problem.tags:
        assert support.size <= 1000


def test_names_are_unique_and_tags_select():
    assert len({problem.name for problem in PROBLEMS}) == len(PROBLEMS)
    assert {problem.name for problem in having("sites", "small")} < {p.name for p in PROBLEMS}
