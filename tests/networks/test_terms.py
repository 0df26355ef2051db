"""Terms by definition, against networkx and against hand counts."""

import networkx as nx
import numpy as np
import pytest
from scipy.special import comb

from pymc_bayessum.networks import terms


@pytest.fixture(scope="module")
def graph():
    return nx.gnp_random_graph(12, 0.4, seed=3)


@pytest.fixture(scope="module")
def matrix(graph):
    return nx.to_numpy_array(graph)


def test_triangles_are_those_of_networkx(graph, matrix):
    assert terms.triangles().count(matrix) == sum(nx.triangles(graph).values()) / 3


@pytest.mark.parametrize("k", [2, 3])
def test_stars_count_choices_of_neighbours(graph, matrix, k):
    assert terms.stars(k).count(matrix) == sum(comb(d, k) for _, d in graph.degree)


def test_degree_counts_nodes(graph, matrix):
    degrees = [d for _, d in graph.degree]
    for k in range(8):
        assert terms.degree(k).count(matrix) == degrees.count(k)


def test_gwesp_sums_over_shared_partners(graph, matrix):
    decay, total = 0.7, 0.0
    for i, j in graph.edges:
        shared = len(list(nx.common_neighbors(graph, i, j)))
        total += np.exp(decay) * (1 - (1 - np.exp(-decay)) ** shared)
    assert terms.gwesp(decay).count(matrix) == pytest.approx(total, rel=1e-12)


def test_gwdegree_sums_over_degrees(graph, matrix):
    decay = 0.3
    total = sum(np.exp(decay) * (1 - (1 - np.exp(-decay)) ** d) for _, d in graph.degree)
    assert terms.gwdegree(decay).count(matrix) == pytest.approx(total, rel=1e-12)


def test_covariates_sum_over_ties(graph, matrix):
    rng = np.random.default_rng(0)
    values, group = rng.normal(size=12), np.array(list("aabbccddaabb"))
    pair = rng.normal(size=(12, 12))
    pair = pair + pair.T
    assert terms.nodecov(values).count(matrix) == pytest.approx(
        sum(values[i] + values[j] for i, j in graph.edges)
    )
    assert terms.nodematch(group).count(matrix) == sum(group[i] == group[j] for i, j in graph.edges)
    assert terms.edgecov(pair).count(matrix) == pytest.approx(
        sum(pair[i, j] for i, j in graph.edges)
    )


def test_directed_triangles_are_transitive_and_cyclic_ones():
    transitive = np.zeros((3, 3))
    transitive[[0, 1, 0], [1, 2, 2]] = 1
    cycle = np.zeros((3, 3))
    cycle[[0, 1, 2], [1, 2, 0]] = 1
    assert terms.triangles().count(transitive, directed=True) == 1
    assert terms.triangles().count(cycle, directed=True) == 1
    # All six ties: six transitive triples and two cycles.
    assert terms.triangles().count(np.ones((3, 3)) - np.eye(3), directed=True) == 8


def test_directed_degrees_have_a_direction():
    ties = np.zeros((4, 4))
    ties[0, 1:] = 1
    assert terms.stars(3, "out").count(ties, directed=True) == 1
    assert terms.stars(3, "in").count(ties, directed=True) == 0
    assert terms.degree(1, "in").count(ties, directed=True) == 3
    assert terms.mutual().count(ties + ties.T, directed=True) == 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: terms.stars(1), "k must be at least 2"),
        (lambda: terms.degree(1.5), "k must be an integer"),
        (lambda: terms.gwesp(0.0), "decay must be positive"),
        (lambda: terms.gwdegree("x"), "decay must be a real number"),
        (lambda: terms.stars(2, "up"), "direction must be one of"),
        (lambda: terms.nodecov([1.0, np.nan, 2.0]), r"nodes \[1\] have none"),
        (lambda: terms.nodematch([1.0, 2.0, np.nan]), r"nodes \[2\] have none"),
        (lambda: terms.nodematch(["a", None, "b"]), r"nodes \[1\] have none"),
        (lambda: terms.nodecov(["rich", "poor"]), "values must be numbers"),
        (lambda: terms.nodematch([["a"]]), "one entry for each node"),
        (lambda: terms.edgecov([1.0]), "2 dimensions"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()
