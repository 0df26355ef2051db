"""Networks as users hold them."""

import networkx as nx
import numpy as np
import pytest

from pymc_bayessum.networks.data import as_matrices, is_directed


def test_graphs_matrices_and_lists_of_them():
    graph = nx.florentine_families_graph()
    ties, missing = as_matrices(graph, directed=False)
    assert ties.shape == (15, 15)
    assert ties.sum() == 40
    assert not missing.any()
    assert as_matrices([graph, graph], directed=False)[0].shape == (2, 15, 15)
    assert not is_directed(graph, None)
    assert is_directed(nx.DiGraph([(0, 1)]), None)
    assert not is_directed(ties, None)
    assert is_directed(np.triu(ties), None)


def test_unknown_dyads_are_nan_or_masked():
    ties = np.array([[0.0, 1.0, np.nan], [1.0, 0.0, 0.0], [np.nan, 0.0, 0.0]])
    known, missing = as_matrices(ties, directed=False)
    assert missing.sum() == 2
    assert known[0, 2] == 0
    masked = np.ma.masked_array(np.nan_to_num(ties), np.isnan(ties))
    assert (as_matrices(masked, directed=False)[1] == missing).all()
    # A diagonal that nobody looked at is not missing: there are no loops.
    np.fill_diagonal(ties, np.nan)
    assert as_matrices(ties, directed=False)[1].sum() == 2


@pytest.mark.parametrize(
    ("observed", "message"),
    [
        (np.eye(3), "loop at node 0"),
        (2 * (np.ones((3, 3)) - np.eye(3)), "zeros and ones.*got 2"),
        (np.array([[0, 1], [0, 0]]), "symmetric"),
        (np.zeros((2, 3)), "square"),
        (np.zeros((1, 1)), "at least two nodes"),
        ("network", "networkx graph or a matrix"),
        (nx.MultiGraph([(0, 1), (0, 1)]), "multigraph"),
        (nx.Graph([(0, 1, {"weight": 0.5})]), r"weights on its edges \(0.5"),
        (nx.Graph([(0, 1, {"weight": 0}), (1, 2)]), r"weights on its edges \(0,"),
        (nx.Graph([(0, 1, {"weight": "strong"}), (1, 2)]), "weights on its edges"),
        (nx.Graph([(0, 1, {"weight": None}), (1, 2)]), "weights on its edges"),
        (np.full((3, 3), np.nan), "a dyad that is known"),
        ([nx.path_graph(3), nx.path_graph(4)], "same nodes"),
        (nx.Graph([(0, 0), (0, 1)]), "loop"),
    ],
)
def test_what_is_no_network_is_refused(observed, message):
    with pytest.raises((TypeError, ValueError), match=message):
        as_matrices(observed, directed=False)


def test_a_direction_that_is_not_there():
    with pytest.raises(ValueError, match="undirected kind"):
        is_directed(nx.path_graph(3), True)
    with pytest.raises(TypeError, match="directed must be"):
        is_directed(np.zeros((3, 3)), "yes")
