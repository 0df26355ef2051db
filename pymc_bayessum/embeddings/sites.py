"""Closed embeddings on vectors of sites."""

import math

import networkx as nx
import numpy as np
from scipy import special

from pymc_bayessum.embeddings.registry import Embedding, register
from pymc_bayessum.kernels import ExpHamming, Tanimoto
from pymc_bayessum.measures import (
    Measure,
    ProductCategorical,
    SiteMeasure,
    TreeCategorical,
    UniformCategorical,
    UniformSpins,
)

__all__ = ["exp_hamming_cross"]


def _states(y: np.ndarray, measure: Measure) -> np.ndarray:
    inside = measure.support.contains(y)
    if not inside.all():
        raise ValueError(
            f"points must lie in {measure.support}, got {y[~inside][0]} at row "
            f"{int(np.flatnonzero(~inside)[0])}"
        )
    return y


@register(ExpHamming, UniformSpins)
@register(ExpHamming, UniformCategorical)
def exp_hamming_uniform(
    kernel: ExpHamming, measure: UniformCategorical | UniformSpins
) -> Embedding:
    r"""Exponential Hamming kernel under the uniform distribution, the same at every point.

    .. math:: \mu(y) = E[k(X, X')] = \left(\frac{1 + (S - 1) e^{-\lambda}}{S}\right)^L

    which for spins is :math:`e^{-\lambda L / 2} \cosh(\lambda / 2)^L`.
    """
    miss = -math.expm1(-kernel.decay) * (measure.n_states - 1) / measure.n_states
    value = math.exp(measure.n_sites * math.log1p(-miss))
    return Embedding(lambda y: np.full(len(_states(y, measure)), value), value)


@register(ExpHamming, ProductCategorical)
def exp_hamming_product(kernel: ExpHamming, measure: ProductCategorical) -> Embedding:
    r"""Exponential Hamming kernel under independent sites.

    .. math:: \mu(y) = \prod_j \left(e^{-\lambda} + (1 - e^{-\lambda}) q_j(y_j)\right), \qquad
              E[k(X, X')] = \prod_j \left(e^{-\lambda}
              + (1 - e^{-\lambda}) \sum_s q_j(s)^2\right)
    """
    drop = -math.expm1(-kernel.decay)
    sites = np.arange(measure.n_sites)

    def mean(y: np.ndarray) -> np.ndarray:
        q = measure.probs[sites, _states(y, measure)]
        return np.exp(np.log1p(-drop * (1.0 - q)).sum(axis=1))

    return Embedding(mean, lambda: _with_itself(kernel, measure))


@register(ExpHamming, TreeCategorical)
def exp_hamming_tree(kernel: ExpHamming, measure: TreeCategorical) -> Embedding:
    r"""Exponential Hamming kernel under a Markov chain, tree or forest, by message passing.

    The kernel is a product over sites of :math:`\phi_y(x) = e^{-\lambda [x \ne y]}`, so from the
    leaves up

    .. math:: m_j(a) = \sum_b T_j(a, b)\, \phi_{y_j}(b) \prod_{c \text{ child of } j} m_c(b)

    and :math:`\mu(y)` is the product over the roots. For the initial error the same is done for
    pairs of states, where a table acts as :math:`T M T^\top`. Cost O(N L S^2) and O(L S^3).
    """
    apart = math.exp(-kernel.decay)

    def mean(y: np.ndarray) -> np.ndarray:
        y = _states(y, measure)
        n = len(y)
        rows = np.arange(n)
        inbox: dict[int, np.ndarray] = {}
        total = np.ones(n)
        for site in measure.site_order[::-1]:
            belief = np.full((n, measure.n_states), apart)
            belief[rows, y[:, site]] = 1.0
            if site in inbox:
                belief *= inbox.pop(site)
            parent = int(measure.parent[site])
            if parent < 0:
                total *= belief @ measure.root[np.searchsorted(measure.roots, site)]
                continue
            message = belief @ measure.table(site).T
            inbox[parent] = inbox[parent] * message if parent in inbox else message
        return total

    return Embedding(mean, lambda: _with_itself(kernel, measure))


def _with_itself(kernel: ExpHamming, measure: SiteMeasure) -> float:
    value = exp_hamming_cross(kernel, measure, measure)
    assert value is not None, "the edges of one forest make a forest"
    return value


def _as_forest(measure: SiteMeasure) -> TreeCategorical:
    """Write a site measure as a forest."""
    match measure:
        case TreeCategorical():
            return measure
        case ProductCategorical() | UniformCategorical():
            return TreeCategorical(measure.probs, np.zeros((0, 2)), np.zeros((0, 1, 1)))
    name = type(measure).__name__
    raise NotImplementedError(f"{name} is not a product, chain, tree or forest")


def _oriented_tables(measure: TreeCategorical, order: list[tuple[int, int]]) -> list[np.ndarray]:
    """Tables of each child given its parent, along another orientation of a larger forest.

    ``order`` holds (parent, child) pairs. An edge that the measure lacks joins independent parts,
    so its table repeats the marginal of the child.
    """
    marginals = measure.marginals()
    tables = []
    for parent, child in order:
        if measure.parent[child] == parent:
            tables.append(measure.table(child))
        elif measure.parent[parent] == child:
            joint = marginals[child][:, None] * measure.table(parent)
            mass = joint.sum(axis=0)
            # A state without mass never occurs; any row does there.
            safe = np.where(mass > 0, mass, 1.0)
            tables.append(np.where(mass > 0, joint / safe, 1.0 / len(mass)).T)
        else:
            tables.append(np.broadcast_to(marginals[child], (measure.n_states,) * 2))
    return tables


def exp_hamming_cross(kernel: ExpHamming, first: SiteMeasure, second: SiteMeasure) -> float | None:
    r"""Integral of the exponential Hamming kernel under two site measures.

    For products it is :math:`\prod_j (e^{-\lambda} + (1 - e^{-\lambda}) \sum_s q_j(s) q'_j(s))`.
    Two trees are passed over together when the edges of both make a forest (the same tree, or a
    tree and a product, say); otherwise there is no closed form and the answer is ``None``.
    """
    drop = -math.expm1(-kernel.decay)
    if isinstance(first, ProductCategorical) and isinstance(second, ProductCategorical):
        overlap = (first.probs * second.probs).sum(axis=1)
        return math.exp(np.log1p(drop * (overlap - 1.0)).sum())
    p, q = _as_forest(first), _as_forest(second)
    joined = _join(p.n_sites, np.concatenate([p.edges, q.edges]))
    if joined is None:
        return None
    roots, order = joined
    belief = np.full((p.n_sites, p.n_states, p.n_states), math.exp(-kernel.decay))
    belief[:, np.arange(p.n_states), np.arange(p.n_states)] = 1.0
    tables = zip(order, _oriented_tables(p, order), _oriented_tables(q, order), strict=True)
    for (parent, child), left, right in reversed(list(tables)):
        belief[parent] *= left @ belief[child] @ right.T
    ends = np.einsum("ra,rab,rb->r", p.marginals()[roots], belief[roots], q.marginals()[roots])
    return float(np.prod(ends))


def _join(n_sites: int, edges: np.ndarray) -> tuple[list[int], list[tuple[int, int]]] | None:
    """Roots and (parent, child) pairs, parents first, of the forest that edges make.

    ``None`` when they close a cycle; an edge given twice counts once.
    """
    graph = nx.empty_graph(n_sites)
    graph.add_edges_from(edges.tolist())
    if not nx.is_forest(graph):
        return None
    roots = [min(sites) for sites in nx.connected_components(graph)]
    return roots, [edge for root in roots for edge in nx.bfs_edges(graph, root)]


@register(Tanimoto, UniformCategorical)
@register(Tanimoto, ProductCategorical)
def tanimoto_product(
    kernel: Tanimoto, measure: ProductCategorical | UniformCategorical
) -> Embedding | None:
    r"""Tanimoto kernel under independent binary sites with probabilities q of a one.

    Of y with ones at the sites A, x shares a ones and has b elsewhere, :math:`k = a / (|A| + b)`,
    and a fraction is an integral, :math:`1 / n = \int_0^1 s^{n-1} ds`; hence

    .. math:: \mu(y) = \sum_{j \in A} q_j
              \int_0^1 s^{|A| - 1} \prod_{j \notin A} (1 - q_j + q_j s)\, ds, \qquad
              \mu(0) = \prod_j (1 - q_j)

    the last because k(0, 0) = 1. With :math:`r_j = q_j (2 - q_j)`, the probability that either of
    two vectors has a one,

    .. math:: E[k(X, X')] = \sum_j q_j^2 \int_0^1 \prod_{i \ne j} (1 - r_i + r_i s)\, ds
              + \prod_j (1 - q_j)^2 .

    The integrands are polynomials of degree L - 1 and positive: a Gauss rule of L / 2 points is
    exact, without cancellation.
    """
    if measure.n_states != 2:
        return None
    q = measure.probs[:, 1]
    none = float(np.prod(1.0 - q))
    s, ds = special.roots_sh_legendre((len(q) + 1) // 2)

    def mean(y: np.ndarray) -> np.ndarray:
        y = _states(y, measure)
        ones = y.sum(axis=1)
        log_elsewhere = (1.0 - y) @ np.log1p(-np.multiply.outer(q, 1.0 - s))
        integral = np.exp(log_elsewhere + np.multiply.outer(ones - 1.0, np.log(s))) @ ds
        return np.where(ones > 0, (y @ q) * integral, none)

    def initial_error() -> float:
        factors = 1.0 - np.multiply.outer(q * (2.0 - q), 1.0 - s)
        others = np.exp(np.log(factors).sum(axis=0)) / factors
        return float(q**2 @ others @ ds) + none**2

    return Embedding(mean, initial_error)
