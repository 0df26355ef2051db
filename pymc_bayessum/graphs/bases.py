r"""Base measures for sums over a graph, fitted to a Potts model, and what is known of them exactly.

A base q turns log Z into :math:`\log E_q[\exp g]` with :math:`g = \log \tilde p - \log q`. How well
that goes is decided by :math:`\mathrm{Var}_q(g)` far more than by the weights of the nodes. On
product and tree bases the mean of g is known in closed form: it needs the marginals of q on the
edges of the graph, and the mean of log q.

States are 0 .. S-1 and parameters are written out in full: fields (L, S), couplings (E, S, S).
"""

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp, softmax, xlogy

from pymc_bayessum.graphs.layouts import rooted_forest, spanning_tree
from pymc_bayessum.graphs.moments import conditionals
from pymc_bayessum.measures import (
    Mixture,
    ProductCategorical,
    SiteMeasure,
    TreeCategorical,
    UniformCategorical,
)

__all__ = [
    "Beliefs",
    "belief_propagation",
    "conditional_mixture",
    "edge_marginals",
    "fitted_tree",
    "mean_field",
    "mean_log_base",
    "tree_base",
    "tree_parameters",
]

#: Mass mixed in from the uniform distribution, so that no state is out of a base's reach.
FLOOR = 1e-6
#: Largest change of a log message at which belief propagation has settled.
TOLERANCE = 1e-10


class Beliefs(NamedTuple):
    """Approximate marginals of sites (L, S) and edges (E, S, S), and whether they have settled."""

    sites: np.ndarray
    pairs: np.ndarray
    converged: bool


def belief_propagation(
    fields: np.ndarray, couplings: np.ndarray, edges: np.ndarray, *, max_sweeps: int = 1000
) -> Beliefs:
    """Sum-product belief propagation, all messages at once; exact on trees.

    On a graph with loops messages are damped by a half after the first tenth of the sweeps, and the
    last ones are used where they do not settle.
    """
    n_edges = len(edges)
    source, target = np.concatenate([edges, edges[:, ::-1]]).T
    back = np.roll(np.arange(2 * n_edges), n_edges)
    toward = np.concatenate([couplings, couplings.transpose(0, 2, 1)])
    messages = np.zeros((2 * n_edges, fields.shape[1]))
    converged = n_edges == 0
    for sweep in range(max_sweeps):
        if converged:
            break
        gathered = fields.copy()
        np.add.at(gathered, target, messages)
        outgoing = gathered[source] - messages[back]
        fresh = logsumexp(outgoing[:, :, None] + toward, axis=1)
        fresh -= fresh.mean(axis=1, keepdims=True)
        converged = bool(np.abs(fresh - messages).max() < TOLERANCE)
        damping = 0.5 if sweep > max_sweeps // 10 and not converged else 0.0
        messages = damping * messages + (1.0 - damping) * fresh
    gathered = fields.copy()
    np.add.at(gathered, target, messages)
    sites = softmax(gathered, axis=1)
    outgoing = gathered[source] - messages[back]
    joint = couplings + outgoing[:n_edges, :, None] + outgoing[n_edges:, None, :]
    flat = softmax(joint.reshape(n_edges, fields.shape[1] ** 2), axis=1)
    return Beliefs(sites, flat.reshape(couplings.shape), converged)


def mean_field(fields: np.ndarray, couplings: np.ndarray, edges: np.ndarray) -> np.ndarray:
    r"""Site probabilities (L, S) of the naive mean-field approximation.

    Sites are visited in turn, :math:`q_i(a) \propto \exp(h_i(a) + \sum_j \sum_b J_{ij}(a, b)
    q_j(b))`, each step raising the bound :math:`E_q[\log \tilde p - \log q] \le \log Z`.

    Examples
    --------
    >>> probs = mean_field(np.log([[3.0, 1.0]]), np.zeros((0, 2, 2)), np.zeros((0, 2), int))
    >>> probs.round(2).tolist()
    [[0.75, 0.25]]
    """
    probs = softmax(fields, axis=1)
    around: list[list[tuple[int, np.ndarray]]] = [[] for _ in fields]
    for (i, j), table in zip(edges.tolist(), couplings, strict=True):
        around[i].append((j, table))
        around[j].append((i, table.T))
    for _ in range(500):
        before = probs.copy()
        for i, others in enumerate(around):
            local = fields[i] + sum(table @ probs[j] for j, table in others)
            probs[i] = softmax(local)
        if np.abs(probs - before).max() < 1e-9:
            break
    return probs


def conditional_mixture(
    fields: np.ndarray, couplings: np.ndarray, edges: np.ndarray, rows: np.ndarray
) -> Mixture:
    r"""Equal mixture of products of single-site conditionals, one for each row of states (M, L).

    Row :math:`x'` gives the product :math:`\prod_j p(x_j | x'_{-j})`, the base that Kang, Briol,
    Karvonen and Chen use for sequences (after the pseudo-likelihood).
    """
    probs = (1.0 - FLOOR) * conditionals(rows, fields, couplings, edges) + FLOOR / fields.shape[1]
    return Mixture(np.full(len(rows), 1.0 / len(rows)), tuple(ProductCategorical(p) for p in probs))


def tree_base(sites: np.ndarray, pairs: np.ndarray, edges: np.ndarray) -> TreeCategorical:
    """Spanning tree with the given marginals: Chow and Liu's for the marginals of the edges.

    The tree has the largest total mutual information (Chow and Liu, 1968), which makes it the
    closest one to the model, in Kullback-Leibler divergence, when the marginals are the model's.
    """
    n_sites, n_states = sites.shape
    pairs = np.maximum(pairs, 0.0)
    pairs = (1.0 - FLOOR) * pairs / pairs.sum(axis=(1, 2), keepdims=True) + FLOOR / n_states**2
    first, second = pairs.sum(axis=2, keepdims=True), pairs.sum(axis=1, keepdims=True)
    information = (pairs * np.log(pairs / (first * second))).sum(axis=(1, 2))
    kept = spanning_tree(edges, n_sites, information)
    row_of = {tuple(edges[row].tolist()): row for row in kept}
    order, parent = rooted_forest(edges[kept], n_sites)
    root_probs, directed, tables = [], [], []
    for site in np.sort(order[parent[order] < 0]):
        probs = np.maximum(sites[site], 0.0)
        root_probs.append((1.0 - FLOOR) * probs / probs.sum() + FLOOR / n_states)
    for site in order[parent[order] >= 0].tolist():
        above = int(parent[site])
        row = row_of.get((above, site))
        joint = pairs[row] if row is not None else pairs[row_of[site, above]].T
        directed.append((above, site))
        tables.append(joint / joint.sum(axis=1, keepdims=True))
    return TreeCategorical(
        np.array(root_probs),
        np.array(directed, dtype=np.int64).reshape(-1, 2),
        np.array(tables).reshape(-1, n_states, n_states),
    )


def fitted_tree(
    fields: np.ndarray, couplings: np.ndarray, edges: np.ndarray, max_sweeps: int = 1000
) -> TreeCategorical:
    """Spanning tree with the marginals that belief propagation finds."""
    beliefs = belief_propagation(fields, couplings, edges, max_sweeps=max_sweeps)
    return tree_base(beliefs.sites, beliefs.pairs, edges)


def tree_parameters(tree: TreeCategorical, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fields and couplings, on the edges of a graph, of which a tree inside it is the Potts model.

    ``log q(x) = sum_i fields[i, x_i] + sum_e couplings[e, x_i, x_j]``: log Z is zero. Edges of the
    tree are among those of the graph in either orientation.

    Examples
    --------
    >>> tree = TreeCategorical([0.5, 0.5], [(1, 0)], [[[0.9, 0.1], [0.2, 0.8]]])
    >>> fields, couplings = tree_parameters(tree, np.array([[0, 1]]))
    >>> np.exp(couplings[0]).round(1).tolist()
    [[0.9, 0.2], [0.1, 0.8]]
    """
    fields = np.zeros((tree.n_sites, tree.n_states))
    fields[tree.roots] = np.log(tree.root)
    couplings = np.zeros((len(edges), tree.n_states, tree.n_states))
    row_of = {tuple(edge): row for row, edge in enumerate(edges.tolist())}
    for (above, site), table in zip(tree.edges.tolist(), tree.tables, strict=True):
        if (above, site) in row_of:
            couplings[row_of[above, site]] = np.log(table)
        else:
            couplings[row_of[site, above]] = np.log(table).T
    return fields, couplings


def edge_marginals(base: SiteMeasure, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Exact marginals of a uniform, product or tree base on sites (L, S) and any pairs (E, S, S).

    Examples
    --------
    >>> tree = TreeCategorical([0.5, 0.5], [(0, 1), (1, 2)], [[0.9, 0.1], [0.1, 0.9]])
    >>> edge_marginals(tree, np.array([[0, 2]]))[1].round(3).tolist()
    [[[0.41, 0.09], [0.09, 0.41]]]
    """
    first, second = edges[:, 0], edges[:, 1]
    if isinstance(base, TreeCategorical):
        sites = base.marginals()
        joint = np.empty((base.n_sites, base.n_sites, base.n_states, base.n_states))
        done: list[int] = []
        for site in base.site_order.tolist():
            above = int(base.parent[site])
            if done:
                if above < 0:
                    joint[done, site] = sites[done][:, :, None] * sites[site]
                else:
                    joint[done, site] = joint[done, above] @ base.table(site)
                joint[site, done] = joint[done, site].transpose(0, 2, 1)
            joint[site, site] = np.diag(sites[site])
            done.append(site)
        return sites, joint[first, second]
    if isinstance(base, UniformCategorical):
        sites = np.full((base.n_sites, base.n_states), 1.0 / base.n_states)
    elif isinstance(base, ProductCategorical):
        sites = base.probs
    else:
        raise TypeError(f"base must be uniform, a product or a tree, got {type(base).__name__}")
    return sites, sites[first, :, None] * sites[second, None, :]


def mean_log_base(base: SiteMeasure) -> float:
    r"""Exact :math:`E_q[\log q]` of a uniform, product or tree base: minus its entropy.

    Examples
    --------
    >>> bool(np.isclose(mean_log_base(UniformCategorical(4, 3)), -4 * np.log(3)))
    True
    """
    if isinstance(base, TreeCategorical):
        marginals = base.marginals()
        above = marginals[base.edges[:, 0]]
        steps = xlogy(base.tables, base.tables).sum(axis=2)
        return float(xlogy(base.root, base.root).sum() + (above * steps).sum())
    sites, _ = edge_marginals(base, np.zeros((0, 2), dtype=np.int64))
    return float(xlogy(sites, sites).sum())
