"""The recipes of the how-to, each against a list of all states or a closed form."""

import itertools
import re
from pathlib import Path

import numpy as np
import pymc as pm
import pytest
from scipy.special import logsumexp, softmax

import pymc_bayessum as pbs

PAGE = (Path(__file__).parents[1] / "docs" / "howto" / "any_family.md").read_text()


def recipe(title):
    """Run the code under a heading of the page, and return what it defines."""
    section = PAGE.split(f"## {title}")[1]
    (code,) = re.findall(
        r"^```python\n(.*?)^```", section.split("\n## ")[0], re.DOTALL | re.MULTILINE
    )
    names = {}
    exec(code, names)
    return names


def test_mallows_footrule_is_anchored_well():
    names = recipe("Rankings (Mallows)")
    footrule, swap = names["footrule"], names["swap"]
    every = np.array(list(itertools.permutations(range(7))))
    small = pbs.Family(footrule, propose=swap, start=np.arange(7), support=every)
    small.verify(theta=[0.4])
    data = small.sample([0.4], 3, np.random.default_rng(0))
    # Without the list the same family has to be anchored.
    family = pbs.Family(footrule, propose=swap, names=["footrule"])
    with pm.Model() as model:
        theta = pm.HalfNormal("theta", 1.0, shape=1)
        pbs.ExponentialFamily("x", theta, family=family, observed=data)
    logp = model.compile_logp(vars=model.observed_RVs)
    grid = np.linspace(0.02, 1.2, 40)
    table = footrule(every)[:, 0]
    exact = [g * footrule(data).sum() - 3 * logsumexp(g * table) for g in grid]
    found = [logp({"theta_log__": np.log([g])}) for g in grid]
    assert np.abs(softmax(found) - softmax(exact)).sum() / 2 < 0.01


def test_lattice_gas_is_an_ising_model():
    names = recipe("A lattice gas")
    gas, edges = names["gas"], names["edges"]
    assert names["lattice_gas"].listing is None
    small_edges = pbs.graphs.grid(3, 3)
    names["edges"] = small_edges
    family = pbs.Family(gas, sites=9, n_states=2)
    theta = np.array([-0.8, 0.5])
    coupling = np.zeros((2, 2))
    coupling[1, 1] = theta[1]
    potts = pbs.Potts.dist(h=np.array([0.0, theta[0]]), J=coupling, edges=small_edges)
    empty = np.zeros(9, int)
    assert np.isclose(-family.exact.log_z(np, theta), pm.logp(potts, empty).eval())
    assert len(edges) == 60


def test_autologistic_regression_sums_over_all_maps():
    names = recipe("Autologistic regression on a map")
    statistics = names["map_statistics"]
    every = np.array(list(itertools.product([0, 1], repeat=7)))
    theta = np.array([0.2, -0.5, 0.4])
    exact = names["regions"].exact.log_z(np, theta)
    assert np.isclose(exact, logsumexp(statistics(every) @ theta))
    names["regions"].verify()


@pytest.mark.parametrize("title", ["Rankings (Mallows)", "A lattice gas"])
def test_recipes_are_a_screen(title):
    assert len(PAGE.split(f"## {title}")[1].split("\n## ")[0].splitlines()) <= 40
