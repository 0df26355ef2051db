import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from graph_models import listed
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

import pymc_bayessum as pbs
from pymc_bayessum import graphs
from pymc_bayessum.graphs.anchors import AnchoredRule
from pymc_bayessum.graphs.coordinates import identifiable
from pymc_bayessum.graphs.elimination import elimination_plan
from pymc_bayessum.graphs.family import PottsFamily
from pymc_bayessum.graphs.potts import Potts
from pymc_bayessum.graphs.statistics import GraphNormalizer, PottsLayout
from pymc_bayessum.normalizers import Asked
from pymc_bayessum.normalizers.anchored.draws import Walk
from pymc_bayessum.normalizers.anchored.mixture import mbar
from pymc_bayessum.normalizers.anchored.moments import anchor_moments
from pymc_bayessum.normalizers.anchored.rule import anchored
from pymc_bayessum.normalizers.coordinates import plain, within


def exact_log_z(layout, theta):
    plan = elimination_plan(layout.edges, layout.n_sites, layout.n_states)
    return plan.log_partition(*layout.expand(*layout.unflatten(np.asarray(theta, float))))


def anchored_rule_at(layout, anchors, sampler=None, **options):
    return anchored(PottsFamily(layout, sampler), anchors, kind=AnchoredRule, **options)


def change_sd(rule, theta):
    return float(np.sqrt(rule.change_variance(np, np.asarray(theta, float))))


@pytest.fixture(scope="module")
def lattice():
    return PottsLayout(36, 3, graphs.grid(6, 6), "shared", "scalar"), np.array([0.0, 0.1, 0.2, 0.6])


@pytest.fixture(scope="module")
def dense():
    layout = PottsLayout(6, 3, graphs.complete(6), "full", "full")
    return layout, 0.3 * np.random.default_rng(0).normal(size=layout.n_parameters)


def moved(rule, theta, variance, rng):
    """A random parameter at a given V from the centre."""
    step = rng.normal(size=len(theta))
    return theta + step * np.sqrt(variance / rule.variances(theta + step)[0])


def test_mbar_on_listed_states():
    """With draws in exact proportion the constants, and log Z anywhere, are exact."""
    layout = PottsLayout(4, 2, graphs.ring(4), "shared", "scalar")
    rng = np.random.default_rng(0)
    anchors = rng.normal(size=(3, 3))
    models = [listed(layout, anchor) for anchor in anchors]
    rows = layout.statistics(models[0].states)
    sizes = np.array([100.0, 300.0, 200.0])
    counts = sizes @ np.stack([model.probs for model in models])
    log_weights, log_z = mbar(rows, counts, anchors, sizes)
    relative = np.array([model.log_z for model in models]) - models[0].log_z
    np.testing.assert_allclose(log_z, relative, atol=1e-9)
    elsewhere = rng.normal(size=3)
    found = logsumexp(rows @ elsewhere + log_weights)
    assert found == pytest.approx(listed(layout, elsewhere).log_z - models[0].log_z, abs=1e-8)


@pytest.mark.parametrize("sampler", ["gibbs", "swendsen-wang", "exact"])
def test_draws_have_the_right_mean(lattice, sampler):
    layout, theta = lattice
    family = PottsFamily(layout, sampler)
    exact = family.exact_mean(theta)
    for method in ("plain", "rao-blackwell"):
        walk = Walk(family, theta, plain(4), np.random.default_rng(1), n_chains=400, means=method)
        walk.draw(10)
        assert walk.settled
        assert walk.is_steady
        found = anchor_moments(walk)
        se = found.batches.std(axis=0, ddof=1) / np.sqrt(len(found.batches))
        assert (np.abs(found.mean - exact) < 5.0 * se).all()


def test_better_means_at_the_anchor(dense):
    layout, theta = dense
    model = listed(layout, theta)
    family = PottsFamily(layout, "gibbs")
    rows, _ = identifiable(layout).rows(layout.statistics(model.states))
    covariance = (rows * model.probs[:, None]).T @ rows - np.outer(*2 * [model.probs @ rows])
    unit = np.linalg.inv(np.linalg.cholesky(covariance))
    errors = {}
    for method in ("plain", "rao-blackwell", "stein", "difference"):
        rng = np.random.default_rng(2)
        walk = Walk(family, theta, plain(len(theta)), rng, n_chains=150, means=method)
        walk.draw(10)
        found = anchor_moments(walk)
        away = identifiable(layout).select @ (found.mean - model.mean_statistics)
        errors[method] = np.sqrt(np.mean((unit @ away) ** 2))
    assert errors["stein"] < 0.5 * errors["rao-blackwell"] < 0.25 * errors["plain"]
    assert errors["plain"] == pytest.approx(1.0 / np.sqrt(1500), rel=0.3)
    assert np.isfinite(errors["difference"])


@pytest.mark.parametrize("moments", ["exact", "rao-blackwell", "plain"])
def test_gradient_at_the_centre_is_the_mean_that_was_asked_for(dense, moments):
    layout, theta = dense
    rule = anchored_rule_at(
        layout, theta[None], n=500, rng=np.random.default_rng(3), moments=moments, n_moments=600
    )
    mean, _ = rule.mean_and_covariance(rule.coordinates.of(theta))
    np.testing.assert_allclose(mean, rule.coordinates.select @ rule.moments.mean, atol=1e-12)
    assert rule.value(*layout.unflatten(theta)) == pytest.approx(rule.constant.value, abs=1e-10)
    # Directions that do not change the model change log Z exactly as they must.
    h, J = layout.unflatten(theta.copy())
    h = h.copy()
    h[2] += 0.7
    assert rule.value(h, J) == pytest.approx(rule.constant.value + 0.7, abs=1e-9)


@pytest.mark.parametrize("sampler", ["exact", "gibbs"])
def test_errors_are_of_the_predicted_size(lattice, dense, sampler):
    for layout, theta in (lattice, dense):
        scores, sizes = [], {0.25: [], 1.0: []}
        for seed in range(4):
            rng = np.random.default_rng(seed)
            rule = anchored_rule_at(
                layout,
                theta[None],
                n=1000,
                rng=rng,
                sampler=sampler,
                moments="rao-blackwell",
                n_moments=4000,
                constant=False,
            )
            for variance, found in sizes.items():
                there = moved(rule, theta, variance, rng)
                error = float(rule.log_z_at(np, there)) - (
                    exact_log_z(layout, there) - exact_log_z(layout, theta)
                )
                predicted = change_sd(rule, there)
                scores.append(error / predicted)
                found.append(error)
        assert np.abs(scores).max() < 4.5
        assert np.sqrt(np.mean(np.square(scores))) < 2.0
        # Theory for an accurate linear term: sqrt((e^V - 1 - V) / N), .006 and .027.
        assert np.sqrt(np.mean(np.square(sizes[0.25]))) < 0.02
        assert np.sqrt(np.mean(np.square(sizes[1.0]))) < 0.08


@pytest.mark.parametrize("coupling", [0.6, 0.95])
def test_several_anchors_reach_further_also_near_critical(coupling):
    """Six by six at .6 and next to the critical 1.005: errors at V of 4 to 7 from the centre."""
    layout = PottsLayout(36, 3, graphs.grid(6, 6), "none", "scalar")
    anchors = coupling + 0.2 * np.array([[0.0], [1.0], [-1.0], [2.0], [-2.0]])
    tests = coupling + 0.2 * np.array([-2.2, -1.5, -0.5, 0.5, 1.5, 2.2])
    exact = np.array([exact_log_z(layout, [j]) for j in tests]) - exact_log_z(layout, [coupling])
    errors = []
    for seed in range(3):
        rule = anchored_rule_at(
            layout,
            anchors,
            n=10_000,
            rng=np.random.default_rng(seed),
            sampler="swendsen-wang",
            moments="rao-blackwell",
            n_moments=10_000,
            constant=False,
        )
        errors.append(np.array([rule.log_z_at(np, np.array([j])) for j in tests]) - exact)
    predicted = np.array([change_sd(rule, [j]) for j in tests])
    assert predicted.max() < 0.04
    assert np.abs(errors / predicted).max() < 4.0
    one = anchored_rule_at(layout, anchors[:1], n=10_000, rng=np.random.default_rng(9))
    assert change_sd(one, tests[-1:]) > 1.5 * predicted[-1]
    assert one.report(None, tests[-1])["flagged"]
    assert not rule.report(None, tests[3])["flagged"]
    assert rule.report(None, 3.0)["flagged"]
    assert rule.v(np.array([tests[4]])) <= rule.variances(np.array([tests[4]])).min()


def test_log_z_is_convex_and_finite_everywhere(dense):
    layout, theta = dense
    rule = anchored_rule_at(
        layout, theta[None], n=300, rng=np.random.default_rng(5), moments="difference"
    )
    rng = np.random.default_rng(6)
    for scale in (0.1, 1.0, 30.0):
        point = rule.coordinates.of(theta) + scale * rng.normal(size=rule.n_parameters)
        _, covariance = rule.mean_and_covariance(point)
        assert np.linalg.eigvalsh(covariance).min() > -1e-10


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.floats(0.0, 300.0))
def test_never_nan_or_infinite(small_rule, seed, scale):
    theta = scale * np.random.default_rng(seed).normal(size=2)
    assert np.isfinite(small_rule.value(*theta))
    assert not np.isnan(change_sd(small_rule, theta))
    report = small_rule.report(*theta)
    assert report["flagged"] == (report["V"] > 0.5)
    assert report["ess"] >= 0.0


@pytest.fixture(scope="module")
def small_rule():
    others = [(0.1, 0.35), (-0.1, 0.25)]
    return pbs.anchored_rule(
        0.0, 0.3, graphs.grid(4, 4), others=others, ising=True, n=3000, rng=0, sampler="gibbs"
    )


@pytest.mark.usefixtures("plain")
def test_symbolic_values_and_derivatives(small_rule):
    assert isinstance(small_rule, GraphNormalizer)
    h, J = pt.dscalar("h"), pt.dscalar("J")
    log_z = small_rule.log_z(h, J)
    slopes = pytensor.grad(log_z, [h, J])
    bend = pytensor.grad(slopes[1], J)
    function = pytensor.function(
        [h, J], [log_z, *slopes, bend, small_rule.sd_at(pt, pt.stack([h, J]))]
    )
    value, by_h, by_J, second, sd = function(0.05, 0.33)
    assert value == pytest.approx(small_rule.value(0.05, 0.33), abs=1e-10)
    step = 1e-4
    around = [small_rule.value(0.05, 0.33 + k * step) for k in (-1, 0, 1)]
    assert by_J == pytest.approx((around[2] - around[0]) / (2 * step), rel=1e-6)
    assert second == pytest.approx((around[2] - 2 * around[1] + around[0]) / step**2, rel=1e-3)
    sides = [small_rule.value(0.05 + k * step, 0.33) for k in (-1, 1)]
    assert by_h == pytest.approx((sides[1] - sides[0]) / (2 * step), rel=1e-5)
    assert sd == pytest.approx(
        np.hypot(change_sd(small_rule, [0.05, 0.33]), small_rule.constant.sd), rel=1e-8
    )
    batch = small_rule.log_z(np.array([0.0, 0.05]), np.array([0.3, 0.33])).eval()
    assert batch == pytest.approx([small_rule.value(0.0, 0.3), float(value)], abs=1e-10)


def test_equal_rows_are_merged_without_a_trace(monkeypatch):
    layout, theta = PottsLayout(36, 3, graphs.grid(6, 6), "none", "scalar"), np.array([0.6])
    rules = []
    for limit in (16, 0):
        monkeypatch.setattr("pymc_bayessum.normalizers.anchored.mixture.MERGE_LIMIT", limit)
        rules.append(anchored_rule_at(layout, theta[None], n=2000, rng=np.random.default_rng(7)))
    assert rules[0].n_distinct < 61 < rules[1].n_distinct == 2000
    there = layout.unflatten(theta + 0.05)
    assert rules[0].value(*there) == pytest.approx(rules[1].value(*there), abs=1e-9)


def test_constant_by_chains_alone(monkeypatch, lattice):
    """On wide graphs the constant comes from a tree or from annealing."""
    layout, theta = lattice
    for module in ("family", "samplers"):
        monkeypatch.setattr(f"pymc_bayessum.graphs.{module}.plan_within", lambda *_: None)
    rule = anchored_rule_at(layout, theta[None], n=500, rng=np.random.default_rng(8))
    assert rule.sampler == "swendsen-wang"
    assert rule.moments.method == "rao-blackwell"
    assert rule.constant.method == "annealed"
    error = rule.value(*layout.unflatten(theta)) - exact_log_z(layout, theta)
    assert abs(error) < 4.0 * rule.constant.sd
    without = anchored_rule_at(
        layout, theta[None], n=500, rng=np.random.default_rng(8), constant=False
    )
    assert without.value(*layout.unflatten(theta)) == pytest.approx(0.0, abs=1e-9)


def test_a_rule_for_a_family_of_parameters_says_what_is_outside(lattice):
    layout, theta = lattice
    states = np.arange(3.0)
    draws = np.array([[*(b * states), j] for b, j in np.random.default_rng(9).normal(size=(20, 2))])
    family = within(identifiable(layout), draws)
    rule = anchored_rule_at(
        layout, theta[None], n=1000, rng=np.random.default_rng(10), coordinates=family
    )
    whole = anchored_rule_at(layout, theta[None], n=1000, rng=np.random.default_rng(10))
    assert rule.n_parameters == 2
    assert rule.value(0.12 * states, 0.62) == pytest.approx(
        whole.value(0.12 * states, 0.62), abs=0.02
    )
    assert rule.value(np.array([0.0, 0.5, 0.0]), 0.6) == np.inf
    with pytest.raises(
        ValueError, match=r"none of those that the normaliser was anchored for.*pbs"
    ):
        rule.log_z(np.array([0.0, 0.5, 0.0]), 0.6).eval()
    assert not np.isfinite(rule.log_z(np.array([0.0, np.inf, 0.0]), 0.6).eval())


def test_too_few_draws_for_the_curvature(dense):
    layout, theta = dense
    h, J = layout.unflatten(theta)
    few = pbs.anchored_rule(h, J, layout.edges, n=200, rng=0)
    assert few.n_parameters == 72
    with pytest.raises(ValueError, match=r"five draws a parameter.*n=720"):
        few.require_curvature()
    pbs.anchored_rule(h, J, layout.edges, n=400, rng=0).require_curvature()


def test_reports(lattice):
    layout, theta = lattice
    rule = anchored_rule_at(layout, theta[None], n=2000, rng=np.random.default_rng(11))
    near, far = rule.report(n_rows=10), rule.report(np.zeros(3), 1.2, n_rows=10)
    assert near["V"] == 0.0
    assert near["predicted_error"] == pytest.approx(0.0, abs=1e-9)
    assert near["ess"] == pytest.approx(2000.0, rel=0.3)
    assert far["flagged"]
    assert far["ess"] < 100.0
    assert far["rows_times_error"] == pytest.approx(10 * far["predicted_error"])
    assert rule.predicted_error == pytest.approx(np.sqrt(0.149 * rule.inflation / 2000), rel=0.01)
    assert "V" in rule.reach


def test_diagnostics_find_the_normaliser(small_rule):
    edges = graphs.grid(4, 4)
    x = np.where(np.indices((4, 4)).sum(axis=0) > 2, 1, -1).reshape(1, 16)
    with pm.Model() as model:
        J = pm.HalfNormal("J", 1.0)
        pbs.Ising("x", 0.0, J, edges, normalizer=small_rule, observed=x)
    (found,) = pbs.find_normalizers(model)
    theta = np.array([0.0, 0.3])
    assert found.normalizer.sd(np, theta + 0.1) > 0.0
    reference = found.normalizer.reference(Asked(found.theta, [], [], {}, np.random.default_rng(0)))
    exact = exact_log_z(small_rule.layout, theta)
    assert reference([], [theta]).log_z == pytest.approx(exact, abs=1e-9)
    value = model.compile_logp()({"J_log__": np.log(0.3)})
    energy = small_rule.layout.statistics((x + 1) // 2)[0] @ theta
    prior = pm.logp(pm.HalfNormal.dist(1.0), 0.3).eval() + np.log(0.3)
    assert value == pytest.approx(energy - small_rule.value(0.0, 0.3) + prior, abs=1e-8)


def test_a_rule_in_full_serves_a_model_with_fewer_parameters(dense):
    layout, theta = dense
    rule = anchored_rule_at(layout, theta[None], n=500, rng=np.random.default_rng(12))
    row = Potts.dist(np.zeros((6, 3)), 0.1, layout.edges, normalizer=rule)
    full = np.broadcast_to(0.1 * np.eye(3), layout.coupling_shape)
    wanted = 15 * 0.1 - rule.value(np.zeros((6, 3)), full)
    assert pm.logp(row, np.zeros(6, dtype=int)).eval() == pytest.approx(wanted, abs=1e-8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler": "hmc"}, "sampler must be"),
        ({"sampler": "swendsen-wang", "J": -0.3}, "at least zero"),
        ({"moments": "magic"}, "moments must be"),
        ({"n": 5}, "n must be"),
        ({"others": [(np.zeros(3), 0.1)]}, "h must have shape"),
        ({"J": np.zeros((3, 2))}, "J"),
        ({"h": 0.1, "ising": True, "n_states": 3}, "n_states of an Ising model is 2, got 3"),
    ],
)
def test_bad_arguments(options, message):
    arguments = {"h": np.zeros(2), "J": 0.3, "edges": graphs.ring(4), "n": 100} | options
    with pytest.raises(ValueError, match=message):
        pbs.anchored_rule(**arguments)


@pytest.mark.usefixtures("plain")
def test_far_beyond_its_reach_a_model_has_no_probability():
    """Rows outside of all that the anchor drew would get probabilities above one."""
    edges = pbs.graphs.grid(3, 3)
    rows = np.ones((5, 9), dtype=int)
    rows[:, ::2] = -1
    rule = pbs.anchored_rule(0.0, 0.1, edges, ising=True, n=500, rng=0)
    with pm.Model() as model:
        h, J = pm.Flat("h"), pm.Flat("J")
        pbs.Ising("x", h, J, edges=edges, normalizer=rule, observed=rows)
    both = model.compile_fn([model.logp(), model.dlogp()])
    for far in ({"h": 0.0, "J": -5.0}, {"h": 0.0, "J": -1e4}, {"h": 1e10, "J": -1e10}):
        logp, slope = both(far)
        assert logp == -np.inf
        assert np.isfinite(slope).all()
    assert np.isfinite(both({"h": 0.0, "J": 0.1})[0])
    free = pm.logp(
        pbs.Ising.dist(0.0, pt.constant(-5.0), edges, normalizer=rule), pt.as_tensor(rows)
    )
    assert np.all(free.eval(mode="FAST_COMPILE") == -np.inf)


def test_a_model_warns_where_nuts_would_be_misled():
    edges = pbs.graphs.complete(6)
    rng = np.random.default_rng(0)
    h, J = 0.1 * rng.normal(size=(6, 3)), 0.1 * rng.normal(size=(15, 3, 3))
    rule = pbs.anchored_rule(h, J, edges, n=100, rng=0)
    rows = rng.integers(0, 3, (20, 6))
    with pm.Model(), pytest.warns(UserWarning, match="not for NUTS.*100 draws for 72"):
        pbs.Potts("x", pm.Normal("h", shape=(6, 3)), J, edges, normalizer=rule, observed=rows)
