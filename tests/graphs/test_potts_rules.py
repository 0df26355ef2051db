import warnings

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from graph_models import listed
from hypothesis import given, settings
from hypothesis import strategies as st

import pymc_bayessum as pbs
from pymc_bayessum import graphs
from pymc_bayessum.graphs.base_rules import _best_decay
from pymc_bayessum.graphs.bases import edge_marginals, mean_log_base
from pymc_bayessum.graphs.elimination import elimination_plan
from pymc_bayessum.graphs.potts import Potts
from pymc_bayessum.graphs.statistics import GraphNormalizer, PottsLayout
from pymc_bayessum.kernels import ExpHamming
from pymc_bayessum.measures import TreeCategorical, UniformCategorical

BASES = ["uniform", "mean-field", "tree", "chow-liu", "conditionals"]


@pytest.fixture(scope="module")
def lattice():
    edges = graphs.grid(4, 4)
    h = 0.3 * np.random.default_rng(0).normal(size=(16, 3))
    exact = elimination_plan(edges, 16, 3).log_partition(
        h, np.broadcast_to(0.3 * np.eye(3), (len(edges), 3, 3)).copy()
    )
    return h, 0.3, edges, exact


def build(base, h, J, edges, **options):
    rows = np.random.default_rng(1).integers(0, 2, (10, len(h))) if base == "conditionals" else None
    return pbs.potts_rule(h, J, edges, base=base, rows=rows, rng=2, **options)


@pytest.mark.parametrize("base", BASES)
def test_all_states_as_nodes_are_exact_everywhere(base):
    layout = PottsLayout(5, 2, graphs.ring(5), "full", "edge")
    rng = np.random.default_rng(3)
    theta = 0.5 * rng.normal(size=layout.n_parameters)
    h, J = layout.unflatten(theta)
    rule = build(base, h, J, layout.edges, n=1000, decay=0.2, n_test=50)
    assert rule.n_nodes == 32
    for _ in range(3):
        elsewhere = rng.normal(size=layout.n_parameters)
        assert rule.value(*layout.unflatten(elsewhere)) == pytest.approx(
            listed(layout, elsewhere).log_z, abs=1e-7
        )


def test_weights_are_those_of_universal_kriging():
    layout = PottsLayout(6, 3, graphs.grid(2, 3), "full", "scalar")
    rng = np.random.default_rng(4)
    theta = 0.4 * rng.normal(size=layout.n_parameters)
    rule = pbs.potts_rule(*layout.unflatten(theta), layout.edges, n=60, decay=0.3, rng=5)
    moved = theta + 0.2 * rng.normal(size=layout.n_parameters)
    assert isinstance(rule.base, TreeCategorical)
    log_q = rule.base.log_prob(rule.nodes)
    g = layout.statistics(rule.nodes) @ moved - log_q
    space = np.stack([np.ones(60), g], axis=1)
    fields, couplings = layout.expand(*layout.unflatten(moved))
    sites, pairs = edge_marginals(rule.base, layout.edges)
    mean_g = (sites * fields).sum() + (pairs * couplings).sum() - mean_log_base(rule.base)
    gram = ExpHamming(0.3)(rule.nodes, rule.nodes)
    embedded = pbs.embed(ExpHamming(0.3), rule.base).mean(rule.nodes)
    # Least variance subject to the two means being exact, with Lagrange multipliers.
    system = np.block([[gram, space], [space.T, np.zeros((2, 2))]])
    weights = np.linalg.solve(system, np.concatenate([embedded, [1.0, mean_g]]))[:60]
    assert weights.sum() == pytest.approx(1.0)
    assert rule.value(*layout.unflatten(moved)) == pytest.approx(
        np.log(weights @ np.exp(g)), abs=1e-8
    )
    assert rule.weights.sum() == pytest.approx(1.0, abs=1e-10)


@pytest.mark.parametrize("base", BASES)
def test_errors_are_of_the_predicted_size(lattice, base):
    *parts, exact = lattice
    rule = build(base, *parts, n=600)
    error, predicted = rule.value(*parts[:2]) - exact, rule.predicted_error
    assert abs(error) < 4.0 * predicted
    assert predicted < {"uniform": 0.3, "conditionals": 0.3}.get(base, 0.05)


def test_the_ratio_in_the_mean_space_pays(lattice):
    *parts, exact = lattice
    errors = {space: [] for space in ("ratio", "constant")}
    for seed in range(6):
        for space, found in errors.items():
            rule = pbs.potts_rule(*parts, n=150, mean_space=space, decay=0.5, rng=seed)
            found.append(rule.value(*parts[:2]) - exact)
    assert np.sqrt(np.mean(np.square(errors["ratio"]))) < 0.6 * np.sqrt(
        np.mean(np.square(errors["constant"]))
    )


@pytest.mark.usefixtures("plain")
def test_symbolic_values_and_derivatives(lattice):
    h0, J0, edges, _ = lattice
    rule = pbs.potts_rule(h0, J0, edges, n=200, decay=0.3, rng=0)
    assert isinstance(rule, GraphNormalizer)
    h, J = pt.dmatrix("h"), pt.dscalar("J")
    log_z, sd = rule.log_z(h, J), rule.sd_at(pt, rule.layout.flatten(h, J))
    slope = pytensor.grad(log_z, J)
    bend = pytensor.grad(slope, J)
    function = pytensor.function([h, J], [log_z, sd, slope, bend])
    value, error, first, second = function(h0, 0.35)
    assert value == pytest.approx(rule.value(h0, 0.35), abs=1e-10)
    assert error == pytest.approx(rule.sd(h0, 0.35), rel=1e-6)
    around = [rule.value(h0, 0.35 + step) for step in (-1e-3, 0.0, 1e-3)]
    assert first == pytest.approx((around[2] - around[0]) / 2e-3, rel=1e-5)
    assert second == pytest.approx((around[2] - 2 * around[1] + around[0]) / 1e-6, rel=1e-3)
    assert rule.log_z(np.stack([h0, h0]), np.array([0.3, 0.35])).eval() == pytest.approx(
        [rule.value(h0, 0.3), rule.value(h0, 0.35)], abs=1e-10
    )


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.floats(0.0, 300.0))
def test_never_nan_and_never_minus_infinity(wild_rule, seed, scale):
    rng = np.random.default_rng(seed)
    h, J = scale * rng.normal(size=3), scale * rng.normal()
    value = wild_rule.value(h, J)
    assert np.isfinite(value) or value == np.inf
    assert not np.isnan(wild_rule.sd(h, J))


@pytest.fixture(scope="module")
def wild_rule():
    return pbs.potts_rule(np.zeros(3), 0.5, graphs.grid(3, 3), n=40, decay=0.1, rng=0)


def test_no_logarithm_means_no_probability():
    """Where the signed sum is negative log Z is +inf, symbolically too, and logp is -inf."""
    edges, J = graphs.grid(3, 3), np.zeros((12, 3, 3))
    rule = pbs.potts_rule(
        np.zeros((9, 3)), J, edges, n=30, base="uniform", decay=0.001, mean_space="constant", rng=1
    )
    lowest = rule.nodes[np.argmin(rule.weights)]
    h = 30.0 * (lowest[:, None] == np.arange(3))
    assert rule.value(h, J) == np.inf
    assert rule.log_z(h, J).eval() == np.inf
    assert pm.logp(Potts.dist(h, J, edges, normalizer=rule), lowest).eval() == -np.inf


def test_reports_flag_a_poor_base(lattice):
    h, J, edges, _ = lattice
    good = pbs.potts_rule(h, J, edges, n=100, decay=0.3, rng=0).report(n_rows=50)
    assert good["V"] < 0.5
    assert not good["flagged"]
    assert good["rows_times_error"] == pytest.approx(50 * good["predicted_error"])
    assert 0.0 < good["ess"] <= 1000.0
    poor = pbs.potts_rule(h, J, edges, n=100, decay=0.3, base="uniform", rng=0)
    assert poor.report()["flagged"]
    far = pbs.potts_rule(h, J, edges, n=100, decay=0.3, rng=0).report(h, 1.5)
    assert far["flagged"]
    assert far["V"] > 2.0
    assert "V" in poor.reach


def test_decay_warns_at_the_end_of_its_grid():
    rng = np.random.default_rng(0)
    nodes = UniformCategorical(6, 2).sample_distinct(64, rng)
    with pytest.warns(UserWarning, match="end of the grid"):
        # The parity of a point changes with every step: there is no smoothness to use.
        assert _best_decay(nodes, (-1.0) ** nodes.sum(axis=1), "constant") == 5.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = _best_decay(nodes, nodes @ rng.normal(size=6), "constant")
    assert 0.0005 < found < 5.0


def test_a_base_that_is_the_model_leaves_nothing_to_do():
    h = np.random.default_rng(0).normal(size=(8, 3))
    rule = pbs.potts_rule(h, 0.7, graphs.chain(8), n=50, rng=0)
    layout = rule.layout
    exact = listed(layout, layout.flatten(h, 0.7)).log_z
    assert rule.value(h, 0.7) == pytest.approx(exact, abs=1e-4)
    assert rule.predicted_error < 1e-4


def test_ising_is_potts_with_other_letters():
    edges = graphs.grid(3, 3)
    rule = pbs.potts_rule(0.1, 0.3, edges, ising=True, n=512, decay=0.2, rng=0)
    exact = listed(rule.layout, np.array([0.2, 0.25])).log_z
    assert rule.value(0.2, 0.25) == pytest.approx(exact, abs=1e-7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base": "forest"}, "base must be"),
        ({"base": "conditionals"}, "rows"),
        ({"base": "conditionals", "rows": [[0, 1, 9, 0]]}, "out of range"),
        ({"base": UniformCategorical(3, 2)}, "base must live on"),
        ({"mean_space": "cubic"}, "mean_space"),
        ({"base": "conditionals", "rows": [[0, 1, 1, 0]], "mean_space": "ratio"}, "mean_space"),
        ({"n": 1}, "n must be"),
        ({"decay": -1.0}, "decay"),
        ({"h": np.array([0.0, np.nan])}, "finite"),
    ],
)
def test_bad_arguments(options, message):
    arguments = {"h": np.zeros(2), "J": 0.3, "edges": graphs.ring(4)} | options
    with pytest.raises((ValueError, TypeError), match=message):
        pbs.potts_rule(**arguments)
