from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from graph_models import default_rule
from scipy.special import softmax

import pymc_bayessum as pbs
from pymc_bayessum import graphs
from pymc_bayessum.graphs.elimination import elimination_plan
from pymc_bayessum.graphs.potts import Ising, Potts
from pymc_bayessum.graphs.samplers import sample_exact, sample_states
from pymc_bayessum.graphs.statistics import PottsLayout
from pymc_bayessum.normalizers.anchored import defaults


def posterior_error(rule, layout, x, h_of, grids, log_prior):
    """Total variation between the posteriors with the rule and with elimination, on a grid."""
    plan = elimination_plan(layout.edges, layout.n_sites, layout.n_states)
    points = np.stack(np.meshgrid(*grids, indexing="ij"), axis=-1).reshape(-1, 2)
    target = layout.statistics(x).sum(axis=0)
    theta = [layout.flatten(h_of(b), j) for b, j in points]
    energy = np.array([target @ each for each in theta]) + log_prior(points)
    exact = [plan.log_partition(*layout.expand(*layout.unflatten(each))) for each in theta]
    estimate = [float(rule.log_z_at(np, each)) for each in theta]
    first, second = (softmax(energy - len(x) * np.array(log_z)) for log_z in (exact, estimate))
    assert first.reshape([len(grid) for grid in grids])[[0, -1]].sum() < 0.02
    return 0.5 * np.abs(first - second).sum()


@pytest.mark.parametrize("wide", [False, True], ids=["elimination", "chains"])
@pytest.mark.parametrize("coupling", [0.6, 0.95])
def test_posterior_of_one_image_with_two_parameters(coupling, wide, monkeypatch):
    if wide:  # as if the graph were too wide for even one elimination
        for module in ("family", "samplers"):
            monkeypatch.setattr(f"pymc_bayessum.graphs.{module}.plan_within", lambda *_: None)
    layout = PottsLayout(36, 3, graphs.grid(6, 6), "shared", "scalar")
    states = np.arange(3.0)
    x = sample_exact(layout, 0.1 * states, coupling, 1, np.random.default_rng(0))
    with pm.Model():
        b, J = pm.Normal("b"), pm.HalfNormal("J")
        rule = default_rule(layout, x, b * states, J, progressbar=False)
    assert rule.n_parameters == 2
    assert len(rule.anchors) == 5
    assert rule.settled
    centre = rule.centre[2] / 2.0, rule.centre[3]
    reach = [
        np.abs(rule.anchors[:, k] * f - c).max() * 2.0
        for k, f, c in ((2, 0.5, centre[0]), (3, 1.0, centre[1]))
    ]
    grids = [np.linspace(c - r, c + r, 13) for c, r in zip(centre, reach, strict=True)]
    grids[1] = grids[1][grids[1] > 0.0]
    error = posterior_error(
        rule, layout, x, lambda b: b * states, grids, lambda p: -0.5 * (p**2).sum(axis=1)
    )
    assert error < 0.02


def test_many_parameters_get_one_anchor_at_the_mode():
    layout = PottsLayout(9, 2, graphs.grid(3, 3), "full", "edge", spins=True)
    rng = np.random.default_rng(1)
    truth = 0.3 * rng.normal(size=layout.n_parameters)
    x = layout.decode(sample_exact(layout, *layout.unflatten(truth), 300, rng))
    with pm.Model():
        h, J = pm.Normal("h", shape=9), pm.Normal("J", shape=12)
        rule = default_rule(layout, x, h, J, progressbar=False)
    assert len(rule.anchors) == 1
    assert rule.n_parameters == 21
    fit = pbs.fit_potts(x, layout.edges, ising=True, rng=2, progressbar=False)
    sd = np.sqrt(np.diag(fit.covariance))
    assert np.abs((rule.centre - fit.theta) / sd).max() < 0.3


def test_flat_priors_and_numbers_are_answered():
    layout = PottsLayout(16, 2, graphs.grid(4, 4), "scalar", "scalar", spins=True)
    x = layout.decode(sample_exact(layout, 0.1, 0.2, 20, np.random.default_rng(3)))
    with pm.Model():
        flat = default_rule(layout, x, pm.Flat("h"), pm.HalfFlat("J"), progressbar=False)
    assert flat.n_parameters == 2
    with pm.Model():
        known = default_rule(layout, x, 0.1, pm.Normal("J"), progressbar=False)
    assert known.n_parameters == 1
    assert len(known.anchors) == 3
    fixed = default_rule(layout, x, 0.1, 0.2, progressbar=False)
    assert fixed.n_parameters == 0
    exact = elimination_plan(layout.edges, 16, 2).log_partition(*layout.expand(0.1, 0.2))
    assert fixed.value(0.1, 0.2) == pytest.approx(exact, abs=1e-6)


def test_the_same_rule_every_time():
    layout = PottsLayout(16, 2, graphs.grid(4, 4), "none", "scalar", spins=True)
    x = layout.decode(sample_exact(layout, None, 0.3, 5, np.random.default_rng(4)))
    first, second = (default_rule(layout, x, progressbar=False) for _ in range(2))
    assert first.value(None, 0.4) == second.value(None, 0.4)


def test_without_rows_the_error_says_what_to_pass():
    layout = PottsLayout(4, 2, graphs.ring(4), "none", "scalar")
    with pytest.raises(ValueError, match=r"anchored_rule"):
        default_rule(layout, np.zeros((0, 4), dtype=int))


def test_trouble_is_told(monkeypatch):
    layout = PottsLayout(16, 2, graphs.grid(4, 4), "none", "scalar", spins=True)
    x = layout.decode(sample_exact(layout, None, 0.3, 5, np.random.default_rng(5)))
    original = defaults.combined

    def unsettled(*arguments, **options):
        return replace(original(*arguments, **options), settled=False)

    monkeypatch.setattr(defaults, "combined", unsettled)
    with pytest.warns(UserWarning, match="chains had not settled"):
        default_rule(layout, x, progressbar=False)


@pytest.mark.slow
def test_sampling_a_wide_lattice_recovers_the_parameters():
    """Sixteen by sixteen spins with the default normaliser, sampled by NUTS."""
    edges = graphs.grid(16, 16)
    layout = PottsLayout(256, 2, edges, "scalar", "scalar", spins=True)
    rng = np.random.default_rng(6)
    x = layout.decode(sample_states(layout, 0.05, 0.3, 3, rng, 300, "swendsen-wang"))
    with pm.Model():
        h, J = pm.Normal("h"), pm.HalfNormal("J")
        Ising("x", h, J, edges, observed=x)
        drawn = pm.sample(
            300,
            tune=300,
            chains=2,
            cores=1,
            random_seed=7,
            progressbar=False,
            compute_convergence_checks=False,
        )
    posterior = drawn.posterior
    for name, truth in (("h", 0.05), ("J", 0.3)):
        values = posterior[name].values
        assert abs(values.mean() - truth) < 3.5 * values.std()
    assert int(drawn.sample_stats["diverging"].sum()) == 0


def test_a_model_in_pymc_gets_the_default():
    """Beyond the exact limit a model with data builds its own anchored rule."""
    edges = graphs.grid(11, 11)
    x = np.random.default_rng(8).integers(0, 3, (1, 121))
    with pm.Model() as model:
        J = pm.HalfNormal("J")
        Potts("x", None, J, edges, n_states=3, observed=x)
    (found,) = pbs.find_normalizers(model)
    assert isinstance(found.rule, pbs.AnchoredRule)
    assert np.isfinite(model.compile_logp()({"J_log__": -1.0}))
