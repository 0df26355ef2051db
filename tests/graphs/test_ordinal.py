"""Ordinal networks against lists of all their states."""

from itertools import product

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from graph_models import default_rule
from scipy.special import logsumexp

import pymc_bayessum as pbs
from pymc_bayessum.graphs.anchors import AnchoredRule
from pymc_bayessum.graphs.coordinates import identifiable
from pymc_bayessum.graphs.exact import ExactNormalizer
from pymc_bayessum.graphs.moments import statistics_of_marginals
from pymc_bayessum.graphs.samplers import sample_gibbs

COUNTS = np.array([2, 4, 3, 2])
L, C = len(COUNTS), COUNTS.max()
FIRST, SECOND = np.triu_indices(L, 1)
RNG = np.random.default_rng(0)
THRESHOLDS = RNG.normal(size=(L, C))
INTERACTIONS = RNG.normal(size=len(FIRST)) / 2
STATES = np.array(list(product(*(range(count) for count in COUNTS))))


def energies(thresholds, interactions, states, scores=None):
    values = states if scores is None else scores[np.arange(L), states]
    pairs = (interactions * values[:, FIRST] * values[:, SECOND]).sum(axis=1)
    return thresholds[np.arange(L), states].sum(axis=1) + pairs


def evaluate(variable, given=None):
    return variable.eval(given or {}, mode="FAST_COMPILE")


ENERGY = energies(THRESHOLDS, INTERACTIONS, STATES)
LOGP = ENERGY - logsumexp(ENERGY)
MATRIX = np.zeros((L, L))
MATRIX[FIRST, SECOND] = MATRIX[SECOND, FIRST] = INTERACTIONS
RAGGED = [row[:count] for row, count in zip(THRESHOLDS, COUNTS, strict=True)]
ENDS = np.where(np.arange(C) < COUNTS[:, None], THRESHOLDS, -np.inf)


@pytest.mark.parametrize(
    ("thresholds", "interactions", "options"),
    [
        (THRESHOLDS, INTERACTIONS, {"n_categories": COUNTS}),
        (RAGGED, INTERACTIONS, {}),
        (ENDS, MATRIX, {}),
        ([pt.as_tensor(row) for row in RAGGED], pt.as_tensor(MATRIX), {}),
        (pt.as_tensor(THRESHOLDS), pt.as_tensor(INTERACTIONS), {"n_categories": COUNTS.tolist()}),
        (RAGGED, INTERACTIONS[::-1], {"edges": np.stack([FIRST, SECOND], axis=1)[::-1]}),
    ],
    ids=["counts", "ragged", "-inf", "symbolic ragged", "symbolic", "edges"],
)
def test_logp_of_every_state(thresholds, interactions, options):
    rv = pbs.OrdinalMRF.dist(thresholds, interactions, **options)
    np.testing.assert_allclose(evaluate(pm.logp(rv, STATES)), LOGP, atol=1e-10)
    x = pt.lmatrix("x")
    np.testing.assert_allclose(evaluate(pm.logp(rv, x), {x: STATES}), LOGP, atol=1e-10)


def test_equal_numbers_of_categories_and_one_interaction():
    states = np.array(list(product(range(3), repeat=L)))
    energy = energies(THRESHOLDS[:, :3], np.full(len(FIRST), 0.3), states)
    rv = pbs.OrdinalMRF.dist(THRESHOLDS[:, :3], 0.3)
    expected = energy - logsumexp(energy)
    np.testing.assert_allclose(evaluate(pm.logp(rv, states)), expected, atol=1e-10)


def test_binary_items_are_a_potts_model():
    """Products of 0 and 1 are tables with one entry."""
    pair = np.zeros((len(FIRST), 2, 2))
    pair[:, 1, 1] = INTERACTIONS
    x = np.array(list(product(range(2), repeat=L)))
    potts = pbs.Potts.dist(THRESHOLDS[:, :2], pair, pbs.graphs.complete(L))
    ordinal = pbs.OrdinalMRF.dist(THRESHOLDS[:, :2], INTERACTIONS)
    expected = evaluate(pm.logp(potts, x))
    np.testing.assert_allclose(evaluate(pm.logp(ordinal, x)), expected, atol=1e-10)


def test_blume_capel():
    """Scores around the middle, thresholds linear and quadratic in them."""
    scores = np.arange(3) - 1.0
    linear, quadratic = RNG.normal(size=(2, L, 1))
    thresholds = linear * scores + quadratic * scores**2
    states = np.array(list(product(range(3), repeat=L)))
    energy = energies(thresholds, INTERACTIONS, states, np.tile(scores, (L, 1)))
    rv = pbs.OrdinalMRF.dist(thresholds, INTERACTIONS, scores=scores)
    expected = energy - logsumexp(energy)
    np.testing.assert_allclose(evaluate(pm.logp(rv, states)), expected, atol=1e-10)
    x = pt.lmatrix("x")
    np.testing.assert_allclose(evaluate(pm.logp(rv, x), {x: states}), expected, atol=1e-10)


def test_categories_an_item_does_not_have():
    rv = pbs.OrdinalMRF.dist(RAGGED, INTERACTIONS)
    x = np.array([[0, 3, 2, 1], [2, 0, 0, 0], [0, 0, 3, 0], [0, 0, 0, -1]])
    value = pt.lmatrix("x")
    for logp in (evaluate(pm.logp(rv, x)), evaluate(pm.logp(rv, value), {value: x})):
        assert np.isfinite(logp[0])
        assert (logp[1:] == -np.inf).all()


def test_gradient_of_the_likelihood():
    """Observed less expected statistics; nothing for what an item does not have."""
    thresholds, interactions = pt.dmatrix("t", shape=(L, C)), pt.dvector("w")
    data = STATES[RNG.integers(0, len(STATES), size=15)]
    rv = pbs.OrdinalMRF.dist(thresholds, interactions, n_categories=COUNTS)
    total = pm.logp(rv, data).sum()
    slopes = [
        evaluate(part, {thresholds: THRESHOLDS, interactions: INTERACTIONS})
        for part in pytensor.grad(total, [thresholds, interactions])
    ]
    probs = np.exp(LOGP)

    def statistics(states):
        at = (states[:, :, None] == np.arange(C)).astype(float)
        return at, (states[:, FIRST] * states[:, SECOND]).astype(float)

    for slope, seen, listed in zip(slopes, statistics(data), statistics(STATES), strict=True):
        expected = seen.sum(axis=0) - len(data) * np.tensordot(probs, listed, axes=1)
        np.testing.assert_allclose(slope, expected, atol=1e-9)


def test_draws_exact_and_by_chains():
    rv = pbs.OrdinalMRF.dist(RAGGED, INTERACTIONS, shape=(4000, L))
    mean = np.exp(LOGP) @ STATES
    x = pm.draw(rv, random_seed=1, mode="FAST_COMPILE")
    np.testing.assert_allclose(x.mean(axis=0), mean, atol=0.06)
    assert (x.max(axis=0) == COUNTS - 1).all()
    layout, h = rv.owner.op.layout, np.where(np.isinf(ENDS), 0.0, ENDS)
    y = sample_gibbs(layout, h, INTERACTIONS, 4000, 30, np.random.default_rng(2))
    np.testing.assert_allclose(y.mean(axis=0), mean, atol=0.06)
    assert (y < COUNTS).all()


def test_coordinates_leave_out_what_is_no_parameter():
    layout = pbs.OrdinalMRF.dist(RAGGED, INTERACTIONS).owner.op.layout
    coordinates = identifiable(layout)
    assert coordinates.size == (COUNTS - 1).sum() + len(FIRST)
    phi = layout.statistics(STATES)
    theta = RNG.normal(size=layout.n_parameters)
    reduced, rest = coordinates.rows(phi)
    # Up to a constant, which no probability knows of.
    difference = phi @ theta - (reduced @ coordinates.of(theta) + rest)
    np.testing.assert_allclose(difference, difference[0], atol=1e-10)


def test_statistics_of_marginals():
    rv = pbs.OrdinalMRF.dist(RAGGED, INTERACTIONS)
    layout, h = rv.owner.op.layout, np.where(np.isinf(ENDS), 0.0, ENDS)
    _, *marginals = rv.owner.op.normalizer.plan.marginals(*layout.expand(h, INTERACTIONS))
    found = statistics_of_marginals(layout, *marginals)
    np.testing.assert_allclose(found, np.exp(LOGP) @ layout.statistics(STATES), atol=1e-10)


@pytest.fixture(scope="module")
def rows():
    probs = np.exp(LOGP)
    return STATES[np.random.default_rng(5).choice(len(STATES), p=probs, size=400)]


def test_anchored_from_the_data(rows):
    """Differences of log Z near the posterior, against the list."""
    layout = pbs.OrdinalMRF.dist(RAGGED, INTERACTIONS).owner.op.layout
    rule = default_rule(layout, rows, progressbar=False)
    assert isinstance(rule, AnchoredRule)
    anchor = rule.anchors[0]
    step = 0.05 * np.random.default_rng(1).normal(size=(5, layout.n_parameters))

    def exact(theta):
        return logsumexp(layout.statistics(STATES) @ theta)

    def found(theta):
        return evaluate(rule.log_z(*layout.unflatten(theta)))

    expected = [exact(anchor + part) - exact(anchor) for part in step]
    seen = [found(anchor + part) - found(anchor) for part in step]
    np.testing.assert_allclose(seen, expected, atol=2e-3)


@pytest.mark.usefixtures("plain")
def test_in_a_model(rows):
    coords = {"item": list("abcd"), "row": range(len(rows))}
    with pm.Model(coords=coords) as model:
        free = [
            pm.Normal(f"t{item}", shape=count - 1) for item, count in enumerate(COUNTS.tolist())
        ]
        thresholds = [pt.concatenate([[0.0], part]) for part in free]
        w = pm.Normal("w", 0.0, 0.5, shape=len(FIRST))
        pbs.OrdinalMRF("x", thresholds, w, observed=rows, dims=("row", "item"))
        prior = pm.sample_prior_predictive(3, random_seed=0)
        trace = xr.DataTree.from_dict({"posterior": prior.prior.to_dataset()})
        pm.compute_log_likelihood(trace, progressbar=False)
    draws = prior.prior_predictive["x"]
    assert draws.shape == (1, 3, len(rows), L)
    assert (draws < COUNTS).all()
    pointwise = trace.log_likelihood["x"]
    table = np.zeros((L, C))
    for item, count in enumerate(COUNTS):
        table[item, 1:count] = prior.prior[f"t{item}"].values[0, 2]
    energy = energies(table, prior.prior["w"].values[0, 2], STATES)
    expected = energies(table, prior.prior["w"].values[0, 2], rows) - logsumexp(energy)
    np.testing.assert_allclose(pointwise[0, 2], expected, atol=1e-9)
    assert isinstance(model["x"].owner.op.normalizer, ExactNormalizer)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pbs.OrdinalMRF.dist(None, 0.1), "thresholds must be given, got None"),
        (lambda: pbs.OrdinalMRF.dist(THRESHOLDS), "interactions must be given, got None"),
        (lambda: pbs.OrdinalMRF.dist(np.zeros(3), 0.1), r"a table \(L, C\).* got shape \(3,\)"),
        (lambda: pbs.OrdinalMRF.dist(pt.dmatrix("t"), 0.1), "of known shape"),
        (lambda: pbs.OrdinalMRF.dist([0.0, 1.0], 0.1), "a sequence of vectors, one an item"),
        (lambda: pbs.OrdinalMRF.dist([[0.0, np.nan]] * 2, 0.1), "thresholds must be finite"),
        (lambda: pbs.OrdinalMRF.dist(THRESHOLDS, -np.inf), "interactions must be finite"),
        (lambda: pbs.OrdinalMRF.dist(THRESHOLDS, np.zeros(5)), r"6 numbers .*got shape \(5,\)"),
        (
            lambda: pbs.OrdinalMRF.dist(THRESHOLDS, np.triu(MATRIX)),
            "interactions must be symmetric",
        ),
        (lambda: pbs.OrdinalMRF.dist([[0.0], [0.0, 1.0]], 0.1), "item 0 must have at least two"),
        (
            lambda: pbs.OrdinalMRF.dist(THRESHOLDS, 0.1, n_categories=5),
            "n_categories must be at most what thresholds have",
        ),
        (
            lambda: pbs.OrdinalMRF.dist(THRESHOLDS, 0.1, n_categories=[2, 3]),
            "n_categories must be an integer or 4 integers",
        ),
        (lambda: pbs.OrdinalMRF.dist(THRESHOLDS, 0.1, scores=[0, 1]), r"scores must have shape"),
        (lambda: pbs.OrdinalMRF.dist(THRESHOLDS, 0.1, scores=[1, 1, 1, 1]), "must differ between"),
        (lambda: pbs.OrdinalMRF.dist(THRESHOLDS, 0.1, edges=[(0, 4)]), r"allowed: 0 \.\. 3"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_bad_data():
    with pm.Model():
        with pytest.raises(ValueError, match=r"observed holds 2 for item 0, allowed: 0 \.\. 1"):
            pbs.OrdinalMRF("x", RAGGED, INTERACTIONS, observed=[[2, 0, 0, 0]])
        with pytest.raises(ValueError, match="observed must have the 4 items on its last axis"):
            pbs.OrdinalMRF("x", RAGGED, INTERACTIONS, observed=[[1, 0, 0]])


def test_missing_answers():
    """A model with answers missing has the log-probability of its joined rows."""
    missing = np.zeros((3, L), dtype=bool)
    missing[0, 1] = True
    observed = np.ma.masked_array(STATES[:3], missing)
    with pm.Model() as model, pytest.warns(pm.exceptions.ImputationWarning):
        pbs.OrdinalMRF("x", ENDS, INTERACTIONS, observed=observed)
    logp = model.compile_logp(mode="FAST_COMPILE")
    for answer in range(COUNTS[1]):
        whole = STATES[:3].copy()
        whole[0, 1] = answer
        expected = energies(THRESHOLDS, INTERACTIONS, whole) - logsumexp(ENERGY)
        assert logp({"x_unobserved": np.array([answer])}) == pytest.approx(expected.sum())
    assert logp({"x_unobserved": np.array([C])}) == -np.inf


def test_answers_that_are_no_numbers():
    with pm.Model(), pytest.raises(ValueError, match=r"observed must hold numbers .*cat\.codes"):
        pbs.OrdinalMRF("x", THRESHOLDS, 0.1, observed=STATES[:3].astype(str))
