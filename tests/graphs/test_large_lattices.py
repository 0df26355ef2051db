"""Default normalisers of lattices too wide for elimination, against a closed form at any size."""

import numpy as np
import pymc as pm
import pytest
from graph_models import default_rule, listed
from scipy.special import softmax
from torus import torus_log_z

import pymc_bayessum as pbs
from pymc_bayessum import graphs
from pymc_bayessum.graphs.elimination import Budget, plan_within
from pymc_bayessum.graphs.samplers import sample_states
from pymc_bayessum.graphs.statistics import PottsLayout
from pymc_bayessum.normalizers.anchored import defaults


def torus(side):
    edges = graphs.grid(side, side, periodic=True)
    return PottsLayout(side * side, 2, edges, "none", "scalar", spins=True)


def image(layout, coupling, seed):
    rng = np.random.default_rng(seed)
    return layout.decode(sample_states(layout, None, coupling, 1, rng, 300, "swendsen-wang"))


@pytest.mark.parametrize("coupling", [0.2, 0.44, 0.7])
def test_closed_form_of_the_torus(coupling):
    edges = graphs.grid(3, 4, periodic=True)
    layout = PottsLayout(12, 2, edges, "none", "scalar", spins=True)
    wanted = listed(layout, np.array([coupling])).log_z
    assert torus_log_z(3, 4, coupling) == pytest.approx(wanted, abs=1e-10)
    assert torus_log_z(4, 3, coupling) == pytest.approx(wanted, abs=1e-10)


@pytest.mark.parametrize(("side", "coupling"), [(24, 0.3), (24, 0.44), (32, 0.5)])
def test_posterior_of_one_image_on_a_torus(side, coupling):
    layout = torus(side)
    assert plan_within(layout, Budget.ON_REQUEST) is None
    x = image(layout, coupling, side)
    with pm.Model():
        rule = default_rule(layout, x, None, pm.HalfNormal("J"), progressbar=False)
    outer = np.ptp(rule.anchors)
    js = np.linspace(rule.anchors.min() - outer, rule.anchors.max() + outer, 201)
    js = js[js > 0.01]
    energy = js * layout.statistics(layout.encode(x))[0, 0] - 0.5 * js**2
    exact = softmax(energy - [torus_log_z(side, side, j) for j in js])
    found = softmax(energy - [rule.log_z_at(np, np.array([j])) for j in js])
    assert 0.5 * np.abs(found - exact).sum() < 0.03
    mean = exact @ js
    sd = np.sqrt(exact @ (js - mean) ** 2)
    # What draws left out predict is the size of the error that there is.
    assert abs(found @ js - mean) / sd < 4.0 * rule.precision.mean
    assert rule.precision.excess(defaults.TARGET) <= 1.0
    assert not rule.report()["flagged"]
    # Statistics are kept, not states; and no constant that no posterior needs.
    assert len(rule.states) <= 100
    assert not rule.is_absolute


def test_a_target_that_is_missed_is_told(monkeypatch):
    monkeypatch.setattr(defaults, "MOST_DRAWS", 300)
    monkeypatch.setattr(defaults, "FIRST_DRAWS", 100)
    monkeypatch.setattr(defaults, "SMALL_SITES", 0)
    layout = torus(24)
    with pytest.warns(UserWarning, match="sds of error in the posterior's mean"):
        rule = default_rule(layout, image(layout, 0.4, 1), progressbar=False)
    assert rule.report()["flagged"]
    assert rule.report()["mean_error"] > 0.03


def test_several_images_ask_for_more():
    layout = torus(24)
    rng = np.random.default_rng(2)
    x = layout.decode(sample_states(layout, None, 0.35, 8, rng, 300, "swendsen-wang"))
    rule = default_rule(layout, x, progressbar=False)
    assert not rule.report()["flagged"]
    js = np.linspace(0.3, 0.4, 401)
    total = layout.statistics(layout.encode(x)).sum()
    exact = softmax(js * total - 8 * np.array([torus_log_z(24, 24, j) for j in js]))
    found = softmax(js * total - 8 * np.array([rule.log_z_at(np, np.array([j])) for j in js]))
    assert 0.5 * np.abs(found - exact).sum() < 0.03


def test_three_states_with_a_field_of_a_wide_image():
    """A model of 20 x 20 sites builds its rule by itself and keeps its promises."""
    layout = PottsLayout(400, 3, graphs.grid(20, 20), "shared", "scalar")
    truth = np.array([0.0, 0.1, 0.2])
    x = sample_states(layout, truth, 0.7, 1, np.random.default_rng(3), 300, "swendsen-wang")
    with pm.Model() as model:
        h, J = pm.ZeroSumNormal("h", shape=3), pm.HalfNormal("J")
        pbs.Potts("x", h, J, layout.edges, observed=x.astype(int))
    (found,) = pbs.find_normalizers(model)
    report = found.rule.report()
    assert report["n_parameters"] == 3
    assert report["mean_error"] <= 0.03
    assert report["sd_error"] <= 0.03
    assert not report["flagged"]


def test_chains_that_stay_apart_are_told():
    """Couplings given as a table leave Gibbs sweeps alone, which do not turn an ordered lattice."""
    layout = PottsLayout(400, 2, graphs.grid(20, 20), "shared", "shared")
    scalar = PottsLayout(400, 2, layout.edges, "none", "scalar")
    x = sample_states(scalar, None, 1.4, 1, np.random.default_rng(4), 300, "swendsen-wang")
    with pm.Model():
        h, J = pm.Normal("h") * np.array([0.0, 1.0]), pm.HalfNormal("J") * np.eye(2)
    with pytest.warns(UserWarning, match="do not agree"):
        # Whether all of them turn in the end is chance: some do not with this seed.
        rule = default_rule(layout, x, h, J, rng=1, progressbar=False)
    assert not rule.settled
    assert rule.report()["flagged"]
