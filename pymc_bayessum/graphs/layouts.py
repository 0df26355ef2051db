"""Graphs as edge lists: builders, validation, trees, colourings and elimination orders.

A graph on the sites ``0 .. n_sites - 1`` is an ``(E, 2)`` integer array, one undirected edge a
row. The orientation of a row is kept as given: a coupling matrix ``J`` on the edge ``(i, j)`` is
read as ``J[x_i, x_j]``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any

import networkx as nx
import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import laplacian, reverse_cuthill_mckee
from scipy.sparse.linalg import eigsh

__all__ = [
    "EliminationOrder",
    "as_edges",
    "chain",
    "coloring",
    "complete",
    "elimination_order",
    "from_adjacency",
    "from_networkx",
    "grid",
    "ring",
    "rooted_forest",
    "spanning_tree",
]


#: Sites up to which the Fiedler vector is computed.
SPECTRAL_LIMIT = 20_000


def _site_count(n_sites: Any, name: str = "n_sites", least: int = 1) -> int:
    if isinstance(n_sites, bool) or not isinstance(n_sites, int | np.integer):
        raise TypeError(f"{name} must be an integer, got {n_sites!r}")
    if n_sites < least:
        raise ValueError(f"{name} must be at least {least}, got {n_sites}")
    return int(n_sites)


def chain(n_sites: int) -> np.ndarray:
    """Open chain 0 - 1 - ... - (n_sites - 1).

    Parameters
    ----------
    n_sites : int
        Number of sites, at least one.

    Returns
    -------
    ndarray of int, shape (n_sites - 1, 2)

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> graphs.chain(4).tolist()
    [[0, 1], [1, 2], [2, 3]]
    """
    sites = np.arange(_site_count(n_sites))
    return np.stack([sites[:-1], sites[1:]], axis=1)


def ring(n_sites: int) -> np.ndarray:
    """Close a chain: the open one and the edge between its two ends.

    Parameters
    ----------
    n_sites : int
        Number of sites, at least three (two sites have only one edge between them).

    Returns
    -------
    ndarray of int, shape (n_sites, 2)

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> graphs.ring(3).tolist()
    [[0, 1], [1, 2], [0, 2]]
    """
    _site_count(n_sites, least=3)
    return np.concatenate([chain(n_sites), [[0, n_sites - 1]]])


def grid(*shape: int, periodic: bool | Sequence[bool] = False) -> np.ndarray:
    """Rectangular lattice of any dimension, sites numbered row by row (C order).

    Parameters
    ----------
    *shape : int
        Sides, for example ``grid(8, 8)`` or ``grid(4, 4, 4)``; one tuple is accepted as well.
    periodic : bool or sequence of bool
        Join the last layer to the first, along every axis or axis by axis. An axis shorter than
        three is left open: its periodic edge is the one it has already (or a self-loop).

    Returns
    -------
    ndarray of int, shape (E, 2)

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> graphs.grid(2, 2).tolist()
    [[0, 2], [1, 3], [0, 1], [2, 3]]
    >>> len(graphs.grid(4, 4, periodic=True)), len(graphs.grid(3, 3, 3))
    (32, 54)
    """
    if len(shape) == 1 and isinstance(shape[0], Sequence):
        shape = tuple(shape[0])
    if not shape:
        raise ValueError("grid needs at least one side, got none")
    sides = tuple(_site_count(side, "each side of the grid") for side in shape)
    wraps = (periodic,) * len(sides) if isinstance(periodic, bool | np.bool_) else tuple(periodic)
    if len(wraps) != len(sides):
        raise ValueError(
            f"periodic must be one bool or one for each of the {len(sides)} axes, got {periodic!r}"
        )
    sites = np.arange(np.prod(sides)).reshape(sides)
    edges = []
    for axis, (side, wrap) in enumerate(zip(sides, wraps, strict=True)):
        first = np.take(sites, range(side - 1), axis=axis)
        second = np.take(sites, range(1, side), axis=axis)
        edges.append(np.stack([first.ravel(), second.ravel()], axis=1))
        if wrap and side > 2:
            ends = np.take(sites, 0, axis=axis), np.take(sites, side - 1, axis=axis)
            edges.append(np.stack([end.ravel() for end in ends], axis=1))
    return np.concatenate(edges)


def complete(n_sites: int) -> np.ndarray:
    """Every pair of sites, in lexicographic order.

    Parameters
    ----------
    n_sites : int
        Number of sites, at least one.

    Returns
    -------
    ndarray of int, shape (n_sites * (n_sites - 1) / 2, 2)

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> graphs.complete(3).tolist()
    [[0, 1], [0, 2], [1, 2]]
    """
    return np.stack(np.triu_indices(_site_count(n_sites), k=1), axis=1)


def from_adjacency(adjacency: Any) -> np.ndarray:
    """Edges of a symmetric adjacency matrix: one for each non-zero entry above the diagonal.

    Parameters
    ----------
    adjacency : array_like, shape (L, L)
        Symmetric pattern of non-zeros (the values are not used), zero diagonal.

    Returns
    -------
    ndarray of int, shape (E, 2)

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> graphs.from_adjacency([[0, 1, 0], [1, 0, 1], [0, 1, 0]]).tolist()
    [[0, 1], [1, 2]]
    """
    dense = adjacency.toarray() if hasattr(adjacency, "toarray") else np.asarray(adjacency)
    if dense.ndim != 2 or dense.shape[0] != dense.shape[1]:
        raise ValueError(f"adjacency must be a square matrix, got shape {dense.shape}")
    pattern = dense != 0
    if pattern.diagonal().any():
        loops = np.flatnonzero(pattern.diagonal()).tolist()
        raise ValueError(f"adjacency must have a zero diagonal, got self-loops at sites {loops}")
    if (pattern != pattern.T).any():
        raise ValueError("adjacency must have a symmetric pattern of non-zero entries")
    return np.argwhere(np.triu(pattern))


def from_networkx(graph: nx.Graph) -> np.ndarray:
    """Edges of an undirected networkx graph.

    Nodes that are exactly the integers ``0 .. L - 1`` keep their numbers; any other nodes (for
    example the pairs of ``networkx.grid_2d_graph``) are numbered in the order of ``graph.nodes``.

    Parameters
    ----------
    graph : networkx.Graph

    Returns
    -------
    ndarray of int, shape (E, 2)

    Examples
    --------
    >>> import networkx as nx
    >>> from pymc_bayessum import graphs
    >>> graphs.from_networkx(nx.path_graph(["a", "b", "c"])).tolist()
    [[0, 1], [1, 2]]
    """
    if not isinstance(graph, nx.Graph):
        raise TypeError(f"graph must be a networkx graph, got {type(graph).__name__}")
    if graph.is_directed():
        raise ValueError("graph must be undirected, got a directed one; use graph.to_undirected()")
    nodes = list(graph.nodes)
    keeps = all(isinstance(node, int | np.integer) for node in nodes)
    if keeps and set(nodes) == set(range(len(nodes))):
        nodes.sort()
    number = {node: index for index, node in enumerate(nodes)}
    pairs = [(number[first], number[second]) for first, second, *_ in graph.edges]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def as_edges(edges: Any, n_sites: int | None = None) -> np.ndarray:
    """Validate a graph and return it as an ``(E, 2)`` array, orientation of edges kept.

    Parameters
    ----------
    edges : array_like of int, shape (E, 2), or networkx.Graph
        May be empty.
    n_sites : int, optional
        Number of sites; sites must lie in ``0 .. n_sites - 1``.

    Returns
    -------
    ndarray of int64, shape (E, 2)

    Raises
    ------
    ValueError
        For sites out of range, self-loops and edges given twice (also reversed).

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> graphs.as_edges([(0, 1), (2, 1)], n_sites=3).tolist()
    [[0, 1], [2, 1]]
    """
    pairs = from_networkx(edges) if isinstance(edges, nx.Graph) else np.asarray(edges)
    if pairs.size == 0:
        return np.zeros((0, 2), dtype=np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise ValueError(f"edges must have shape (E, 2), got {pairs.shape}")
    if pairs.dtype.kind not in "iu":
        raise TypeError(f"edges must be integers, got an array of {pairs.dtype}")
    pairs = pairs.astype(np.int64)
    outside = (pairs < 0) | (pairs >= (np.inf if n_sites is None else n_sites))
    if outside.any():
        allowed = "0 and above" if n_sites is None else f"0 .. {n_sites - 1}"
        row = int(np.argmax(outside.any(axis=1)))
        raise ValueError(f"edges: edge {row} is {tuple(pairs[row].tolist())}, allowed: {allowed}")
    loops = pairs[:, 0] == pairs[:, 1]
    if loops.any():
        row = int(np.argmax(loops))
        raise ValueError(f"edges: edge {row} is a self-loop at site {pairs[row, 0]}")
    keys, counts = np.unique(_edge_keys(pairs), return_counts=True)
    if (counts > 1).any():
        pair = divmod(int(keys[np.argmax(counts > 1)]), int(pairs.max()) + 1)
        raise ValueError(f"edges: the edge {pair} is given {counts.max()} times; give it once")
    return pairs


def _edge_keys(pairs: np.ndarray) -> np.ndarray:
    """One number for each edge, whatever its orientation: lower site times L plus upper site."""
    return pairs.min(axis=1) * (pairs.max() + 1) + pairs.max(axis=1)


def _graph(edges: np.ndarray, n_sites: int) -> nx.Graph:
    graph = nx.Graph()
    graph.add_nodes_from(range(n_sites))
    graph.add_edges_from(edges.tolist())
    return graph


def spanning_tree(edges: Any, n_sites: int, weights: np.ndarray | None = None) -> np.ndarray:
    """Maximum-weight spanning forest.

    Parameters
    ----------
    edges : array_like of int, shape (E, 2), or networkx.Graph
    n_sites : int
    weights : array_like, shape (E,), optional
        Equal by default. With the mutual information of each edge the forest is Chow-Liu's.

    Returns
    -------
    ndarray of int
        Sorted row numbers of ``edges`` that make up the forest: one fewer than the sites for a
        connected graph.

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> graphs.spanning_tree(graphs.ring(4), 4, weights=[1.0, 0.2, 1.0, 1.0]).tolist()
    [0, 2, 3]
    """
    pairs = as_edges(edges, n_sites)
    values = np.ones(len(pairs)) if weights is None else np.asarray(weights, dtype=float)
    if values.shape != (len(pairs),):
        raise ValueError(f"weights must have shape ({len(pairs)},), got {values.shape}")
    graph = _graph(np.zeros((0, 2), dtype=np.int64), n_sites)
    for row, (first, second) in enumerate(pairs.tolist()):
        graph.add_edge(first, second, weight=values[row], row=row)
    kept = nx.maximum_spanning_edges(graph, data=True)
    return np.array(sorted(data["row"] for *_, data in kept), dtype=np.int64)


def rooted_forest(edges: Any, n_sites: int) -> tuple[np.ndarray, np.ndarray]:
    """Order a forest from its roots outwards.

    Parameters
    ----------
    edges : array_like of int, shape (E, 2)
        A graph without cycles.
    n_sites : int

    Returns
    -------
    order : ndarray of int, shape (n_sites,)
        Sites, each one after its parent (breadth first).
    parent : ndarray of int, shape (n_sites,)
        Parent of each site, -1 for roots.

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> order, parent = graphs.rooted_forest([(0, 1), (0, 2), (2, 3)], 4)
    >>> order.tolist(), parent.tolist()
    ([0, 1, 2, 3], [-1, 0, 0, 2])
    """
    pairs = as_edges(edges, n_sites)
    graph = _graph(pairs, n_sites)
    if n_sites and not nx.is_forest(graph):
        raise ValueError("edges must be a forest (no cycles)")
    parent = np.full(n_sites, -1, dtype=np.int64)
    order: list[int] = []
    for part in nx.connected_components(graph):
        order.append(min(part))
        for above, site in nx.bfs_edges(graph, min(part), sort_neighbors=sorted):
            parent[site] = above
            order.append(site)
    return np.array(order, dtype=np.int64), parent


def coloring(edges: Any, n_sites: int) -> np.ndarray:
    """Greedy colouring: neighbours differ, so that sites of one colour update together.

    Parameters
    ----------
    edges : array_like of int, shape (E, 2), or networkx.Graph
    n_sites : int

    Returns
    -------
    ndarray of int, shape (n_sites,)
        Colours 0, 1, ...; two on bipartite graphs.

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> graphs.coloring(graphs.grid(2, 3), 6).tolist()
    [0, 1, 0, 1, 0, 1]
    """
    graph = _graph(as_edges(edges, n_sites), n_sites)
    if nx.is_bipartite(graph):
        colors = nx.bipartite.color(graph)
        for part in nx.connected_components(graph):
            if colors[min(part)]:
                colors |= {site: 1 - colors[site] for site in part}
    else:
        colors = nx.greedy_color(graph, strategy="largest_first")
    return np.array([colors[site] for site in range(n_sites)], dtype=np.int64)


@dataclass(frozen=True)
class EliminationOrder:
    """An order in which the sites of a graph are summed out.

    Attributes
    ----------
    order : tuple of int
        All sites, first to be eliminated first.
    cliques : tuple of tuple of int
        For each step, the sites that are still present and tied to the one eliminated: its
        separator, in order of elimination. The table of a step has ``S ** (1 + len(clique))``
        entries.
    """

    order: tuple[int, ...]
    cliques: tuple[tuple[int, ...], ...]

    @property
    def width(self) -> int:
        """Size of the largest separator: an upper bound of the treewidth."""
        return max((len(clique) for clique in self.cliques), default=0)

    def cost(self, n_states: int) -> float:
        """Total number of table entries, ``sum over steps of S ** (1 + separator)``."""
        return float(sum(float(n_states) ** (1 + len(clique)) for clique in self.cliques))


def _follow(
    order: Sequence[int], neighbours: list[set[int]], width: float
) -> EliminationOrder | None:
    """Separators met when eliminating in the given order; None once one is wider than allowed."""
    position = {site: step for step, site in enumerate(order)}
    later = [set(others) for others in neighbours]
    cliques = []
    for site in order:
        separator = {other for other in later[site] if position[other] > position[site]}
        if len(separator) > width:
            return None
        cliques.append(tuple(sorted(separator, key=position.__getitem__)))
        if separator:
            # Only the next site of the separator needs the rest: the fill-in passes on through it.
            heir = cliques[-1][0]
            later[heir] |= separator - {heir}
    return EliminationOrder(tuple(order), tuple(cliques))


def _greedy_order(neighbours: list[set[int]], by_fill: bool, width: float) -> list[int] | None:
    """Eliminate the site with least fill-in (ties: least degree), or with least degree.

    None once a separator is wider than allowed.
    """
    present = {site: set(others) for site, others in enumerate(neighbours)}

    def score(site: int) -> tuple[int, int, int]:
        around = present[site]
        degree = len(around)
        if not by_fill:
            return degree, 0, site
        joined = sum(len(present[other] & around) for other in around) // 2
        return degree * (degree - 1) // 2 - joined, degree, site

    scores = {site: score(site) for site in present}
    queue = list(scores.values())
    heapify(queue)
    order = []
    while present:
        best = heappop(queue)
        site = best[2]
        if scores.get(site) != best:
            continue  # its neighbourhood has changed since
        around = present.pop(site)
        if len(around) > width:
            return None
        del scores[site]
        order.append(site)
        for other in around:
            present[other] |= around - {other}
            present[other].discard(site)
        touched = set(around)
        if by_fill:
            for other in around:
                touched |= present[other]
        for other in touched:
            scores[other] = score(other)
            heappush(queue, scores[other])
    return order


def least_width(edges: np.ndarray, n_sites: int) -> int:
    """Lower bound of the width of any order of elimination, found at a glance.

    A graph of treewidth w has at most ``w n - w (w + 1) / 2`` edges, and a graph that contains an
    open lattice of a x b sites, numbered row by row, has treewidth min(a, b) at least. That of a
    lattice is known; one that is not plainly wide gets a small number.

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> least_width(graphs.complete(12), 12), least_width(graphs.grid(40, 70), 2800)
    (11, 40)
    """
    if not len(edges):
        return 0
    # The smaller root of w n - w (w + 1) / 2 = E.
    inner = (n_sites - 0.5) ** 2 - 2.0 * len(edges)
    dense = math.ceil(n_sites - 0.5 - math.sqrt(max(inner, 0.0)) - 1e-9)
    keys = _edge_keys(edges)
    steps, counts = np.unique(np.abs(edges[:, 1] - edges[:, 0]), return_counts=True)
    for columns in steps[np.argsort(-counts)][:4].tolist():
        if columns > 1 and n_sites % columns == 0:
            wanted = grid(n_sites // columns, columns)
            if np.isin(_edge_keys(wanted), keys).all():
                return max(dense, min(columns, n_sites // columns))
    return dense


def _fiedler_order(pattern: Any) -> list[int]:
    """Sites by their value in the second eigenvector of the graph's Laplacian."""
    n_sites = pattern.shape[0]
    start = 1.0 + np.arange(n_sites) / n_sites  # fixed, so that plans are the same in every run
    # A shift just below the eigenvalue zero: the slow vibrations converge first.
    values, vectors = eigsh(laplacian(pattern).tocsc(), k=2, sigma=-0.01, v0=start)
    # Rounding keeps the sites of one column of a lattice together.
    height = np.round(vectors[:, np.argmax(values)], 9)
    return np.lexsort((np.arange(n_sites), height)).tolist()


def elimination_order(
    edges: Any, n_sites: int, n_states: int = 2, *, most_entries: float = math.inf
) -> EliminationOrder:
    """Choose an order for summing out the sites of a graph one by one.

    Five orders are tried and the cheapest kept: least fill-in, least degree, the sites as
    numbered, the reverse Cuthill-McKee order and that of the slowest vibration of the graph (the
    Fiedler vector), which sweeps long strips along their length. Cost is the total number of table
    entries, see :meth:`EliminationOrder.cost`.

    Parameters
    ----------
    edges : array_like of int, shape (E, 2), or networkx.Graph
    n_sites : int
    n_states : int
        Number of states a site has; weighs wide steps against many steps.
    most_entries : float
        Orders with a larger table than this are given up on the way.

    Returns
    -------
    EliminationOrder

    Raises
    ------
    ValueError
        When all orders were given up.

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> graphs.elimination_order(graphs.grid(8, 8), 64, n_states=3).width
    8
    >>> graphs.elimination_order(graphs.grid(8, 64), 512, n_states=3).width
    8
    >>> graphs.elimination_order(graphs.chain(100), 100).width
    1
    """
    pairs = as_edges(edges, n_sites)
    width = math.log(most_entries, n_states) - 1.0 if n_states > 1 else math.inf
    graph = _graph(pairs, n_sites)
    neighbours = [set(graph[site]) for site in range(n_sites)]
    orders = [_greedy_order(neighbours, by_fill, width) for by_fill in (True, False)]
    orders.append(list(range(n_sites)))
    if len(pairs):
        both = np.concatenate([pairs, pairs[:, ::-1]])
        pattern = coo_array((np.ones(len(both)), both.T), shape=(n_sites, n_sites)).tocsr()
        orders.append(reverse_cuthill_mckee(pattern, symmetric_mode=True).tolist())
        if 2 < n_sites <= SPECTRAL_LIMIT:
            orders.append(_fiedler_order(pattern))
    followed = [_follow(order, neighbours, width) for order in orders if order is not None]
    candidates = [order for order in followed if order is not None]
    if not candidates:
        raise ValueError(f"every order tried has a table of more than {most_entries:.2g} entries")
    return min(candidates, key=lambda candidate: candidate.cost(n_states))
