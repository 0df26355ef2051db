import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pymc_bayessum import graphs
from pymc_bayessum.graphs.layouts import least_width


def edge_set(edges):
    return {tuple(sorted(edge)) for edge in np.asarray(edges).tolist()}


@st.composite
def random_graphs(draw, max_sites=9):
    n_sites = draw(st.integers(1, max_sites))
    pairs = graphs.complete(n_sites)
    keep = draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs)))
    return pairs[np.array(keep, dtype=bool)], n_sites


@pytest.mark.parametrize("periodic", [False, True, (True, False)])
@pytest.mark.parametrize("shape", [(4, 5), (3, 4, 3), (2, 5)])
def test_grid_is_that_of_networkx(shape, periodic):
    if not isinstance(periodic, bool):
        periodic = (*periodic, False)[: len(shape)]
    wraps = (periodic,) * len(shape) if isinstance(periodic, bool) else periodic
    # networkx counts axes from the last; a periodic side of two would double its edges there.
    reference = nx.grid_graph(
        dim=shape[::-1],
        periodic=tuple(wrap and side > 2 for wrap, side in zip(wraps, shape, strict=True))[::-1],
    )
    number = {node: int(np.ravel_multi_index(node, shape)) for node in reference.nodes}
    expected = {tuple(sorted((number[a], number[b]))) for a, b in reference.edges}
    edges = graphs.grid(*shape, periodic=periodic)
    assert edge_set(edges) == expected
    assert len(edges) == len(expected)
    graphs.as_edges(edges, int(np.prod(shape)))


def test_grid_takes_a_tuple():
    np.testing.assert_array_equal(graphs.grid((3, 2)), graphs.grid(3, 2))


def test_small_builders():
    assert edge_set(graphs.ring(5)) == {(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)}
    assert graphs.chain(1).shape == (0, 2)
    assert graphs.complete(1).shape == (0, 2)
    assert len(graphs.complete(6)) == 15
    adjacency = nx.to_numpy_array(nx.petersen_graph())
    assert edge_set(graphs.from_adjacency(adjacency)) == edge_set(nx.petersen_graph().edges)


def test_networkx_nodes_keep_their_numbers():
    graph = nx.Graph([(2, 0), (0, 1)])
    assert edge_set(graphs.from_networkx(graph)) == {(0, 2), (0, 1)}
    named = nx.grid_2d_graph(3, 4)
    assert edge_set(graphs.as_edges(named)) == edge_set(graphs.grid(3, 4))


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([(0, 4)], r"edge 0 is \(0, 4\), allowed: 0 \.\. 3"),
        ([(0, 1), (-1, 2)], r"edge 1 is \(-1, 2\)"),
        ([(0, 1), (2, 2)], "self-loop at site 2"),
        ([(0, 1), (1, 2), (0, 1)], r"\(0, 1\) is given 2 times"),
        ([(0, 1), (1, 0)], r"\(0, 1\) is given 2 times"),
        ([0, 1], r"shape \(E, 2\), got \(2,\)"),
        ([(0, 1, 2)], r"shape \(E, 2\), got \(1, 3\)"),
    ],
)
def test_bad_edges(edges, message):
    with pytest.raises(ValueError, match=message):
        graphs.as_edges(edges, 4)


def test_edges_must_be_integers():
    with pytest.raises(TypeError, match="edges must be integers"):
        graphs.as_edges([(0.0, 1.0)], 2)


def test_empty_graph():
    assert graphs.as_edges([], 3).shape == (0, 2)
    assert graphs.elimination_order([], 3).width == 0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: graphs.chain(0), "n_sites must be at least 1"),
        (lambda: graphs.ring(2), "n_sites must be at least 3"),
        (lambda: graphs.grid(), "at least one side"),
        (lambda: graphs.grid(3, 0), "at least 1"),
        (lambda: graphs.grid(3, 3, periodic=(True,)), "one for each of the 2 axes"),
        (lambda: graphs.from_adjacency([[1, 0], [0, 0]]), r"self-loops at sites \[0\]"),
        (lambda: graphs.from_adjacency([[0, 1], [0, 0]]), "symmetric"),
        (lambda: graphs.from_adjacency([[0, 1, 0]]), "square"),
        (lambda: graphs.from_networkx(nx.DiGraph([(0, 1)])), "undirected"),
        (lambda: graphs.spanning_tree(graphs.ring(3), 3, [1.0]), r"shape \(3,\)"),
        (lambda: graphs.rooted_forest(graphs.ring(3), 3), "forest"),
    ],
)
def test_bad_arguments(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize("value", [2.5, True, "4"])
def test_counts_are_integers(value):
    with pytest.raises(TypeError, match="must be an integer"):
        graphs.chain(value)


@given(random_graphs(), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=30)
def test_spanning_tree_is_the_heaviest_forest(graph, random):
    edges, n_sites = graph
    weights = np.array([random.random() for _ in edges])
    rows = graphs.spanning_tree(edges, n_sites, weights)
    reference = nx.Graph()
    reference.add_nodes_from(range(n_sites))
    for (a, b), weight in zip(edges.tolist(), weights, strict=True):
        reference.add_edge(a, b, weight=weight)
    expected = nx.maximum_spanning_tree(reference, algorithm="prim").size(weight="weight")
    assert weights[rows].sum() == pytest.approx(expected)
    order, parent = graphs.rooted_forest(edges[rows], n_sites)
    assert sorted(order.tolist()) == list(range(n_sites))
    place = np.argsort(order)
    child = np.flatnonzero(parent >= 0)
    assert (place[parent[child]] < place[child]).all()
    assert edge_set(np.stack([parent[child], child], axis=1)) == edge_set(edges[rows])


@given(random_graphs())
@settings(deadline=None, max_examples=30)
def test_neighbours_differ_in_colour(graph):
    edges, n_sites = graph
    colors = graphs.coloring(edges, n_sites)
    assert (colors[edges[:, 0]] != colors[edges[:, 1]]).all()


def test_lattices_have_two_colours():
    assert graphs.coloring(graphs.grid(5, 4), 20).max() == 1


@given(random_graphs())
@settings(deadline=None, max_examples=50)
def test_separators_are_those_of_plain_elimination(graph):
    edges, n_sites = graph
    order = graphs.elimination_order(edges, n_sites, n_states=3)
    assert sorted(order.order) == list(range(n_sites))
    left = nx.Graph()
    left.add_nodes_from(range(n_sites))
    left.add_edges_from(edges.tolist())
    for site, clique in zip(order.order, order.cliques, strict=True):
        around = set(left[site])
        assert set(clique) == around
        assert list(clique) == sorted(clique, key=order.order.index)
        left.add_edges_from((a, b) for a in around for b in around if a != b)
        left.remove_node(site)
    assert order.width == max(len(clique) for clique in order.cliques)
    assert order.cost(3) == sum(3.0 ** (1 + len(clique)) for clique in order.cliques)


@pytest.mark.parametrize(
    ("edges", "n_sites", "width"),
    [
        (graphs.chain(40), 40, 1),
        (graphs.ring(12), 12, 2),
        (graphs.grid(8, 8), 64, 8),
        (graphs.grid(3, 30), 90, 3),
        (graphs.complete(7), 7, 6),
        (graphs.from_networkx(nx.balanced_tree(3, 3)), 40, 1),
    ],
)
def test_known_widths(edges, n_sites, width):
    assert graphs.elimination_order(edges, n_sites, n_states=3).width == width


@pytest.mark.parametrize(
    ("edges", "n_sites", "width"),
    [
        (graphs.complete(7), 7, 6),
        (graphs.grid(4, 6), 24, 4),
        (graphs.grid(6, 4), 24, 4),
        (graphs.grid(5, 5, periodic=True), 25, 5),
        (graphs.grid(5, 5)[:, ::-1], 25, 5),
    ],
)
def test_width_at_a_glance(edges, n_sites, width):
    """A lower bound: never above the width of an order that was found."""
    assert least_width(edges, n_sites) == width
    assert graphs.elimination_order(edges, n_sites).width >= width


def test_the_bound_on_the_width_is_one():
    rng = np.random.default_rng(0)
    for _ in range(30):
        graph = nx.gnm_random_graph(12, int(rng.integers(5, 60)), seed=int(rng.integers(1000)))
        edges = graphs.from_networkx(graph)
        assert least_width(edges, 12) <= graphs.elimination_order(edges, 12).width


def test_orders_that_are_too_wide_are_given_up():
    with pytest.raises(ValueError, match="more than 1e"):
        graphs.elimination_order(graphs.grid(12, 12, 12), 1728, most_entries=1e6)
    found = graphs.elimination_order(graphs.grid(6, 6), 36, most_entries=1e6)
    assert found == graphs.elimination_order(graphs.grid(6, 6), 36)
