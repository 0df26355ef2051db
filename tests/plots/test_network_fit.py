"""Shares of degrees, partners and distances, and the picture of them."""

import networkx as nx
import numpy as np
import pytest
import xarray as xr

import pymc_bayessum as pbs
from pymc_bayessum.plots import network_fit


def tree_of(observed, predicted):
    return xr.DataTree.from_dict(
        {
            "posterior_predictive": xr.Dataset({"y": (("chain", "draw", "i", "j"), predicted)}),
            "observed_data": xr.Dataset({"y": (("i", "j"), observed)}),
        }
    )


def test_shares_are_those_of_networkx():
    graph = nx.disjoint_union(nx.karate_club_graph(), nx.path_graph(3))
    network = nx.to_numpy_array(graph, weight=None).astype(int)
    n = len(network)
    np.testing.assert_allclose(
        network_fit._degrees(network), np.array(nx.degree_histogram(graph)) / n
    )
    partners = [len(list(nx.common_neighbors(graph, *edge))) for edge in graph.edges]
    np.testing.assert_allclose(
        network_fit._partners(network), np.bincount(partners) / graph.number_of_edges()
    )
    shares = network_fit._distances(network)
    assert np.isclose(shares.sum(), 1.0)
    assert np.isclose(shares[1], 2 * graph.number_of_edges() / n / (n - 1))
    assert np.isclose(shares[n], 2 * 34 * 3 / n / (n - 1))


def test_picture_has_three_plots():
    ties = np.stack([nx.to_numpy_array(nx.gnp_random_graph(8, 0.4, seed=k)) for k in range(6)])
    ties = ties.astype(int)
    pc = pbs.plot_network_fit(tree_of(ties[0], ties[None, 1:]), backend="none")
    assert set(pc.viz["observed_line"].data_vars) == {"degree", "shared partners", "distance"}


def test_at_most_that_many_networks():
    ties = np.zeros((1, 7, 4, 4), int)
    for most, used in ((1, 1), (4, 4), (6, 4), (7, 7), (200, 7)):
        predicted = network_fit._networks(
            tree_of(ties[0, 0], ties), "y", "posterior_predictive", most
        )[1]
        assert len(predicted) == used
    with pytest.raises(ValueError, match="num_samples must be at least 1, got 0"):
        pbs.plot_network_fit(tree_of(ties[0, 0], ties), num_samples=0, backend="none")


def test_what_is_not_there_is_named():
    ties = np.zeros((1, 2, 4, 4), int)
    with pytest.raises(ValueError, match="no group 'prior_predictive'"):
        pbs.plot_network_fit(tree_of(ties[0, 0], ties), group="prior_predictive", backend="none")
