"""Log Z over a range of couplings, for labels that are not observed."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from torus import torus_log_z

import pymc_bayessum as pbs
from pymc_bayessum import graphs
from pymc_bayessum.graphs import family, potts
from pymc_bayessum.graphs.curves import CurveRule, FixedNormalizer, curve_rule
from pymc_bayessum.graphs.elimination import elimination_plan
from pymc_bayessum.graphs.statistics import PottsLayout
from pymc_bayessum.normalizers.anchored.anchorage import resolved
from pymc_bayessum.normalizers.anchored.curve import curve_between
from pymc_bayessum.normalizers.coordinates import plain

SIDE = 20


def torus_edges(side):
    site = np.arange(side * side).reshape(side, side)
    pairs = [np.stack([site, np.roll(site, -1, axis)], -1).reshape(-1, 2) for axis in (0, 1)]
    return np.concatenate(pairs)


@pytest.fixture(scope="module")
def torus():
    return curve_rule((0.0, 0.8), torus_edges(SIDE), ising=True, progressbar=False)


def test_slopes_on_a_torus_are_those_of_the_closed_form(torus):
    at, step = np.linspace(0.02, 0.78, 77), 1e-3
    exact = np.array([[torus_log_z(SIDE, SIDE, J + k * step) for k in (-1, 0, 1)] for J in at])
    slope, sd = (exact[:, 2] - exact[:, 0]) / 2, np.sqrt(exact @ [1.0, -2.0, 1.0])
    found = np.array([torus.value(None, J + step) - torus.value(None, J - step) for J in at]) / 2
    # In sds of the posterior that one observed image would leave.
    error = (found - slope) / step / (sd / step)
    assert np.sqrt(np.mean(error**2)) < 0.15
    assert np.abs(error).max() < 0.5


def test_a_mean_is_as_far_from_the_truth_as_its_error_says(torus):
    step = 1e-4
    inside = [knot for knot in torus.knots if knot.at > step]
    exact = [
        (torus_log_z(SIDE, SIDE, k.at + step) - torus_log_z(SIDE, SIDE, k.at - step)) / (2 * step)
        for k in inside
    ]
    score = [(k.mean - e) / k.error for k, e in zip(inside, exact, strict=True)]
    assert 0.5 < np.sqrt(np.mean(np.square(score))) < 2.0


def test_the_symbolic_curve_is_the_numeric_one_with_its_slope(torus):
    J = pt.dscalar()
    value = torus.log_z(0.0, J)
    function = pytensor.function([J], [value, pytensor.grad(value, J)])
    for at in (-0.3, 0.0, 0.123, torus.knots[3].at, 0.7999, 1.5):
        numeric, slope = function(at)
        assert numeric == pytest.approx(torus.value(None, at), abs=1e-9)
        around = [torus.value(None, at + k * 1e-5) for k in (-1, 1)]
        assert slope == pytest.approx((around[1] - around[0]) / 2e-5, rel=1e-4, abs=1e-2)
    # Beyond the range: along the tangent.
    assert function(1.5)[1] == torus.knots[-1].mean
    several = torus.log_z(0.0, pt.as_tensor([0.1, 0.2])).eval()
    np.testing.assert_allclose(several, [torus.value(None, J) for J in (0.1, 0.2)])


def test_log_z_is_convex(torus):
    at = np.linspace(-0.2, 1.0, 601)
    values = np.array([torus.value(None, J) for J in at])
    assert np.diff(values, 2).min() > -1e-9


@pytest.mark.parametrize("chains", [True, False])
@pytest.mark.parametrize("h", [None, np.array([0.0, 0.4, -0.3])])
def test_fields_that_are_fixed_and_negative_couplings(chains, h, monkeypatch):
    if chains:  # as if the graph were too wide for even one elimination
        monkeypatch.setattr(family, "plan_within", lambda *_: None)
        monkeypatch.setattr("pymc_bayessum.graphs.samplers.plan_within", lambda *_: None)
    edges = graphs.grid(4, 4)
    rule = curve_rule((-0.8, 1.2), edges, h=h, n_states=3, progressbar=False)
    plan = elimination_plan(edges, 16, 3)
    layout = PottsLayout(16, 3, edges, "full", "scalar")
    fields = np.zeros((16, 3)) + (0.0 if h is None else h)
    exact = [plan.log_partition(*layout.expand(fields, J)) for J in (-0.7, 0.0, 0.6, 1.1)]
    found = [rule.value(h, J) for J in (-0.7, 0.0, 0.6, 1.1)]
    np.testing.assert_allclose(np.diff(found), np.diff(exact), atol=0.5 if chains else 0.01)
    if h is not None:  # another field is another curve
        assert rule.value(h + np.array([0.1, 0.0, 0.0]), 0.5) == np.inf


def hidden(monkeypatch, **parameters):
    """Labels on a small lattice, as if elimination were too dear."""
    monkeypatch.setattr(potts, "plan_within", lambda *_: None)
    return pbs.Potts("z", edges=graphs.grid(3, 3), n_states=2, **parameters)


def test_hidden_labels_get_a_curve_over_the_prior_of_their_coupling(monkeypatch):
    with pm.Model() as model:
        J = pm.HalfNormal("J", 0.5)
        z = hidden(monkeypatch, J=J)
    rule, _ = resolved(z.owner.op.normalizer, z)
    assert isinstance(rule, CurveRule)
    assert rule.limits[0] == 0.0
    assert 1.0 < rule.limits[1] < 2.5
    assert np.isfinite(model.compile_logp()({"J_log__": np.log(0.4), "z": np.zeros(9, int)}))


def test_fixed_parameters_need_no_curve(monkeypatch):
    with pm.Model() as model:
        z = hidden(monkeypatch, J=0.7)
    assert isinstance(resolved(z.owner.op.normalizer, z)[0], FixedNormalizer)
    logp = model.compile_logp()
    assert logp({"z": np.zeros(9, int)}) - logp({"z": np.eye(9, dtype=int)[4]}) == pytest.approx(
        2.8
    )


def test_what_no_curve_covers_says_what_to_pass(monkeypatch):
    message = r"no data yet .* stay hidden.* one coupling.*pass normalizer=pbs\.anchored_rule"
    for parameters in (
        lambda J: {"J": pm.Flat("flat")},
        lambda J: {"h": pm.Normal("h", shape=2), "J": J},
        lambda J: {"h": J * np.ones((9, 2)), "J": 0.5},
        lambda J: {"J": J * np.eye(2)},
    ):
        with pm.Model() as model:
            hidden(monkeypatch, **parameters(pm.HalfNormal("J", 0.5)))
        with pytest.raises(ValueError, match=message):
            model.logp()


def test_bad_ranges_are_refused():
    with pytest.raises(ValueError, match="between must hold the smaller coupling first"):
        curve_rule((1.0, 0.0), graphs.grid(3, 3), n_states=2)
    with pytest.raises(ValueError, match="between must be finite"):
        curve_rule((0.0, np.inf), graphs.grid(3, 3), n_states=2)
    with pytest.raises(ValueError, match="h must be one field of all sites"):
        curve_rule((0.0, 1.0), graphs.grid(3, 3), h=np.zeros((9, 2)))


def test_a_transition_that_chains_do_not_cross_is_told():
    # Thirty states: a first-order transition at log(1 + sqrt(30)) = 1.87.
    with pytest.warns(UserWarning, match="chains do not settle everywhere between 1.8 and 1.95"):
        curve_rule((1.8, 1.95), torus_edges(20), n_states=30, progressbar=False)


class Blocks:
    """A hundred blocks of sixty sites, each all on or all off: a steep rise at 7/16."""

    def statistics(self, states):
        return 60.0 * states.sum(axis=1, keepdims=True)

    def sample(self, theta, n, rng, start=None):
        return rng.random((n, 100)) < 1.0 / (1.0 + np.exp(-60.0 * (theta[0] - 0.4375)))


@pytest.mark.parametrize("seed", range(4))
def test_a_rise_half_way_between_two_knots_is_seen(seed):
    """There the mean is what both sides foretell; its slope, the variance, is not."""
    found = curve_between(
        Blocks(), plain(1), 0.0, 1.0, start=np.zeros((1, 100), dtype=bool),
        rng=np.random.default_rng(seed), progressbar=False,
    )  # fmt: skip
    at = np.linspace(0.38, 0.495, 47)
    share = 1.0 / (1.0 + np.exp(-60.0 * (at - 0.4375)))
    values = [found.log_z_at(np, at[:, None] + step) for step in (-1e-5, 1e-5)]
    error = (np.subtract(*values[::-1]) / 2e-5 - 6000.0 * share) / (
        600.0 * np.sqrt(share - share**2)
    )
    assert np.sqrt(np.mean(error**2)) < 0.15
    assert np.abs(error).max() < 0.5
