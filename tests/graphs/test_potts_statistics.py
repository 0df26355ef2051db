import numpy as np
import pytensor.tensor as pt
import pytest

from pymc_bayessum import graphs
from pymc_bayessum.graphs.statistics import PottsLayout, potts_layout

EDGES = graphs.grid(2, 3)[::-1, ::-1]
L, S, E = 6, 3, len(EDGES)

FIELDS = {"none": None, "shared": (S,), "full": (L, S)}
COUPLINGS = {"scalar": (), "edge": (E,), "shared": (S, S), "full": (E, S, S)}


def numbers(shape, seed=0):
    return None if shape is None else np.random.default_rng(seed).normal(size=shape)


def energy_by_definition(x, h, J):
    """Loops over sites and edges, straight from the formula."""
    energies = []
    for row in x:
        total = 0.0
        for site, state in enumerate(row):
            total += 0.0 if h is None else h[state] if h.ndim == 1 else h[site, state]
        for number, (i, j) in enumerate(EDGES):
            if J.ndim <= 1:
                total += (J if J.ndim == 0 else J[number]) * (row[i] == row[j])
            else:
                total += (J if J.ndim == 2 else J[number])[row[i], row[j]]
        energies.append(total)
    return np.array(energies)


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("field", FIELDS)
def test_energies_statistics_and_full_parameters(field, coupling):
    h, J = numbers(FIELDS[field]), numbers(COUPLINGS[coupling], seed=1)
    x = np.random.default_rng(2).integers(0, S, size=(9, L))
    layout, given_h, given_J = potts_layout(h, J, EDGES, n_sites=L, n_states=S)
    assert (layout.field_kind, layout.coupling_kind) == (field, coupling)
    expected = energy_by_definition(x, h, np.asarray(J))
    theta = layout.flatten(given_h, given_J)
    assert theta.shape == (layout.n_parameters,)
    np.testing.assert_allclose(layout.statistics(x) @ theta, expected)
    np.testing.assert_allclose(layout.energy(x, given_h, given_J), expected)
    fields, couplings = layout.expand(given_h, given_J)
    assert fields.shape == (L, S)
    assert couplings.shape == (E, S, S)
    np.testing.assert_allclose(energy_by_definition(x, fields, couplings), expected)
    np.testing.assert_allclose(layout.flatten(*layout.unflatten(theta)), theta)


@pytest.mark.parametrize("h", [None, 0.3, numbers((L,))], ids=["none", "scalar", "full"])
@pytest.mark.parametrize("J", [0.4, numbers((E,))], ids=["scalar", "edge"])
def test_spins(h, J):
    layout, given_h, given_J = potts_layout(h, J, EDGES, n_sites=L, ising=True)
    x = 2 * np.random.default_rng(2).integers(0, 2, size=(9, L)) - 1
    pairs = x[:, EDGES[:, 0]] * x[:, EDGES[:, 1]]
    expected = (x * (0.0 if h is None else h)).sum(axis=1) + (pairs * J).sum(axis=1)
    np.testing.assert_allclose(layout.energy(layout.encode(x), given_h, given_J), expected)
    states = layout.encode(x)
    found = layout.statistics(states) @ layout.flatten(given_h, given_J)
    np.testing.assert_allclose(found, expected)
    fields, couplings = layout.expand(given_h, given_J)
    assert states.min() == 0
    np.testing.assert_array_equal(layout.decode(states), x)
    full = PottsLayout(L, 2, EDGES, "full", "full")
    np.testing.assert_allclose(full.energy(states, fields, couplings), expected)


def test_few_parameters_on_a_large_lattice():
    layout = PottsLayout(400, 3, graphs.grid(20, 20), "shared", "scalar")
    assert layout.n_parameters == 4
    x = np.zeros((1, 400), dtype=int)
    assert layout.statistics(x).tolist() == [[400.0, 0.0, 0.0, 760.0]]


def test_mean_statistics():
    layout = PottsLayout(L, S, EDGES, "full", "shared")
    x = np.random.default_rng(0).integers(0, S, size=(11, L))
    weights = np.random.default_rng(1).random(11)
    np.testing.assert_allclose(layout.mean_statistics(x), layout.statistics(x).mean(axis=0))
    np.testing.assert_allclose(layout.mean_statistics(x, weights), weights @ layout.statistics(x))


def test_batches_in_numbers_and_symbols():
    h, J = numbers((4, L, S)), numbers((4, E), seed=1)
    layout, h, J = potts_layout(h, J, EDGES)
    assert layout.coupling_kind == "edge"
    theta = layout.flatten(h, J)
    assert theta.shape == (4, layout.n_parameters)
    single = np.stack([layout.flatten(*pair) for pair in zip(h, J, strict=True)])
    np.testing.assert_array_equal(theta, single)
    symbolic = layout.flatten(pt.constant(h), pt.constant(J[0]))
    expected = layout.flatten(h, J[0])
    np.testing.assert_allclose(symbolic.eval(mode="FAST_COMPILE"), expected)
    for part, numeric in zip(
        layout.expand(pt.constant(h), pt.constant(J)), layout.expand(h, J), strict=True
    ):
        np.testing.assert_allclose(part.eval(mode="FAST_COMPILE"), numeric)


@pytest.mark.parametrize(
    ("h_shape", "J_shape", "kinds"),
    [
        ((1, S), (1,), ("shared", "scalar")),
        ((L, 1), (1, S, S), ("full", "shared")),
        ((), (), ("shared", "scalar")),
        ((4, 1, S), (4,), ("shared", "scalar")),
        ((4, L, S), (4, E, S, S), ("full", "full")),
        ((4, L, S), (4, S, S), ("full", "shared")),
        ((4, L, S), (S, S), ("full", "shared")),
        ((L, S), (4, E, S, S), ("full", "full")),
    ],
)
def test_kinds_from_shapes(h_shape, J_shape, kinds):
    layout, h, J = potts_layout(np.zeros(h_shape), np.zeros(J_shape), EDGES, n_sites=L, n_states=S)
    assert (layout.field_kind, layout.coupling_kind) == kinds
    assert h.shape[h.ndim - len(layout.field_shape) :] == layout.field_shape
    assert J.shape[J.ndim - len(layout.coupling_shape) :] == layout.coupling_shape


def test_named_kind_of_a_batch_of_couplings():
    layout, _, _ = potts_layout(np.zeros((L, S)), np.zeros(5), EDGES, coupling="scalar")
    assert layout.coupling_kind == "scalar"
    with pytest.raises(ValueError, match=r"J of kind 'edge' must end in shape \(7,\), got \(5,\)"):
        potts_layout(np.zeros((L, S)), np.zeros(5), EDGES, coupling="edge")
    with pytest.raises(ValueError, match="coupling must be one of"):
        potts_layout(np.zeros((L, S)), np.zeros(5), EDGES, coupling="matrix")


@pytest.mark.parametrize("shape", [(5,), (S, 2), (E - 1, S, S), (E, 2, 2), (E, S)])
def test_couplings_of_a_wrong_shape(shape):
    with pytest.raises(ValueError, match=r"J must have one of the shapes \(\), \(7,\), \(3, 3\)"):
        potts_layout(np.zeros((L, S)), np.zeros(shape), EDGES)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: potts_layout(None, 0.1, EDGES), "n_states cannot be told"),
        (lambda: potts_layout(None, 0.1, [], n_states=2), "n_sites cannot be told"),
        (lambda: potts_layout(np.zeros((5, S)), 0.1, EDGES), r"allowed: 0 \.\. 4"),
        (lambda: potts_layout(np.zeros((L, S)), None, EDGES), "J must be given"),
        (lambda: potts_layout(np.zeros((L, S)), 0.1, EDGES, n_states=2), "n_states is not"),
        (
            lambda: potts_layout(np.zeros((L, S)), 0.1, EDGES, observed=np.zeros((9, 7))),
            "n_sites is not consistent: 6 from h, 7 from observed",
        ),
        (lambda: potts_layout(np.zeros(5), 0.1, EDGES, ising=True), r"allowed: 0 \.\. 4"),
        (
            lambda: potts_layout(0.1, np.zeros((2, 2)), EDGES, ising=True),
            "J must have one of the shapes",
        ),
        (lambda: PottsLayout(L, S, EDGES, "full", "full", spins=True), "field_kind|coupling_kind"),
        (lambda: PottsLayout(L, S, EDGES, "full", "edge", spins=True), "n_states must be 2"),
        (lambda: PottsLayout(L, S, EDGES, "half", "edge"), "field_kind must be one of"),
        (lambda: PottsLayout(L, 0, EDGES, "full", "edge"), "must be positive"),
        (
            lambda: PottsLayout(L, S, EDGES, "full", "edge").statistics(np.full((1, L), S)),
            "states are out of range",
        ),
        (
            lambda: PottsLayout(L, S, EDGES, "full", "edge").statistics(np.zeros((1, 5), int)),
            r"shape \(N, 6\)",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_states_must_be_integers():
    with pytest.raises(TypeError, match="states must be integers"):
        PottsLayout(L, S, EDGES, "full", "edge").statistics(np.zeros((1, L)))


def test_layouts_compare_by_content():
    first, second = (PottsLayout(L, S, EDGES.copy(), "full", "edge") for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    assert first != PottsLayout(L, S, EDGES[::-1], "full", "edge")
    with pytest.raises(ValueError, match="read-only"):
        first.edges[0] = 1
