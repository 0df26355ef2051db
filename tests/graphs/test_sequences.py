import numpy as np
import pytest

import pymc_bayessum as pbs
from pymc_bayessum import graphs


def test_letters_are_places_in_the_alphabet_and_strange_ones_gaps():
    states = pbs.sequence_states(["-ACY", "bXyc"])
    assert states.tolist() == [[0, 1, 2, 20], [0, 0, 20, 2]]
    assert pbs.sequence_states(["01"], alphabet="-01").tolist() == [[1, 2]]


def test_weights_are_one_over_the_number_alike():
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 4, (60, 10))
    rows[30:] = np.where(rng.random((30, 10)) < 0.8, rows[:30], rows[30:])
    for identity in (0.5, 0.8, 1.0):
        share = (rows[:, None, :] == rows[None, :, :]).sum(axis=-1)
        wanted = 1.0 / (share >= identity * 10).sum(axis=1)
        np.testing.assert_array_equal(pbs.sequence_weights(rows, identity), wanted)


def test_zero_sum_keeps_what_a_gauge_does_not_touch():
    rng = np.random.default_rng(1)
    J = rng.normal(size=(5, 4, 4))
    moved = J + rng.normal(size=(5, 4, 1)) + rng.normal(size=(5, 1, 4))
    tables = graphs.zero_sum(J)
    np.testing.assert_allclose(tables, graphs.zero_sum(moved), atol=1e-12)
    np.testing.assert_allclose(tables.sum(axis=1), 0.0, atol=1e-12)
    np.testing.assert_allclose(tables.sum(axis=2), 0.0, atol=1e-12)


def test_contact_scores_are_norms_less_the_average_product():
    rng = np.random.default_rng(2)
    L, edges = 6, graphs.complete(6)
    J = rng.normal(size=(len(edges), 3, 3))
    norms = np.zeros((L, L))
    for (i, j), table in zip(edges, J, strict=True):
        centred = table - table.mean(axis=0) - table.mean(axis=1)[:, None] + table.mean()
        norms[i, j] = norms[j, i] = np.linalg.norm(centred[1:, 1:])
    mean = norms.sum(axis=1) / (L - 1)
    wanted = norms - np.outer(mean, mean) / (norms.sum() / (L * (L - 1)))
    found = pbs.contact_scores(J, edges, L, gap=0)
    np.testing.assert_allclose(found, wanted[edges[:, 0], edges[:, 1]], atol=1e-12)
    assert not pbs.contact_scores(np.zeros_like(J), edges, L).any()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: pbs.sequence_states("ACD"), TypeError, "list of strings"),
        (lambda: pbs.sequence_states(["AC", "ACD"]), ValueError, "lengths"),
        (lambda: pbs.sequence_states([]), ValueError, "aligned"),
        (lambda: pbs.sequence_states(["AC"], alphabet="AA"), ValueError, "alphabet"),
        (lambda: pbs.sequence_weights(np.zeros(3, int)), ValueError, "shape"),
        (lambda: pbs.sequence_weights(np.zeros((3, 2))), TypeError, "integers"),
        (lambda: pbs.sequence_weights(np.zeros((3, 2), int), 0.0), ValueError, "identity"),
        (lambda: pbs.contact_scores(np.zeros((2, 3, 3)), graphs.ring(3), 3), ValueError, "J must"),
        (
            lambda: pbs.contact_scores(np.zeros((3, 3, 3)), graphs.ring(3), 3, gap=3),
            ValueError,
            "gap",
        ),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
