"""Measures on vectors of categorical sites."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, override

import numpy as np

from pymc_bayessum.arguments import count, integer, reals
from pymc_bayessum.measures.base import Measure
from pymc_bayessum.measures.supports import Sites, Spins, Support

__all__ = [
    "MarkovCategorical",
    "ProductCategorical",
    "SiteMeasure",
    "TreeCategorical",
    "UniformCategorical",
    "UniformSpins",
]


def _distributions(name: str, value: Any, ndim: int | tuple[int, ...]) -> np.ndarray:
    """Array whose last axis holds probabilities."""
    probs = reals(name, value, ndim)
    if probs.size == 0 and probs.shape[-1] == 0:
        raise ValueError(f"{name} must not be empty, got shape {probs.shape}")
    if (probs < 0).any():
        raise ValueError(f"{name} must be non-negative, got {probs.min()}")
    total = probs.sum(axis=-1)
    if not np.allclose(total, 1.0, rtol=0.0, atol=1e-8):
        worst = total.ravel()[np.abs(total - 1.0).argmax()]
        raise ValueError(f"{name} must sum to one over the last axis, got a sum of {worst}")
    probs = probs / total[..., None]
    probs.setflags(write=False)
    return probs


class SiteMeasure(Measure):
    """A measure on sites whose mass factorises site after site, in some order.

    The order and the conditionals let distinct points be drawn without listing the support.
    """

    n_sites: int
    n_states: int

    @property
    @override
    def support(self) -> Support:
        return Sites(self.n_sites, self.n_states)

    @cached_property
    def site_order(self) -> np.ndarray:
        """Order in which the sites are drawn, 0, 1, ... unless a subclass says otherwise."""
        return np.arange(self.n_sites)

    @abstractmethod
    def log_conditional(self, x: np.ndarray, step: int) -> np.ndarray:
        """Log probabilities (B, S) of the site drawn at ``step``, given the earlier ones.

        Of the points x (B, L) the sites ``site_order[:step]`` are filled in.
        """

    def _log_prob(self, x: np.ndarray) -> np.ndarray:
        out = np.zeros(len(x))
        for step, site in enumerate(self.site_order):
            log_p = self.log_conditional(x, step)
            out += np.take_along_axis(log_p, x[:, [site]], axis=1)[:, 0]
        return out

    def _sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        x = np.zeros((n, self.n_sites), dtype=np.int64)
        self.fill(x, 0, rng)
        return x

    def fill(self, x: np.ndarray, first: int, rng: np.random.Generator) -> None:
        """Draw, in place, the sites of step ``first`` and after it, given the earlier ones."""
        for step, site in enumerate(self.site_order[first:], start=first):
            cdf = np.exp(self.log_conditional(x, step)).cumsum(axis=1)
            u = rng.random(len(x)) * cdf[:, -1]
            x[:, site] = (u[:, None] >= cdf).sum(axis=1).clip(max=self.n_states - 1)

    def _sample_distinct(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return stochastic_beam([self], np.zeros(1), n, rng)


def stochastic_beam(
    parts: Sequence[SiteMeasure], log_weights: np.ndarray, n: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw distinct points of a mixture of site measures, exactly and without listing.

    Gumbel top-n over all S^L points, found from the top of the tree of prefixes: the largest
    perturbed log mass below a prefix is itself Gumbel distributed, and its children are drawn
    given that maximum, so only the n best prefixes need be kept at each site (Kool, van Hoof and
    Welling, "Stochastic beams and where to find them", 2019).

    All parts share sites, states and order. The cost is O(n L S) for each part.
    """
    order = parts[0].site_order
    n_sites, n_states = parts[0].n_sites, parts[0].n_states
    x = np.zeros((1, n_sites), dtype=np.int64)
    log_mass = np.asarray(log_weights, dtype=float)[None, :]
    score = np.zeros(1)
    if n == 0:
        return x[:0]
    for step, site in enumerate(order):
        steps = np.stack([part.log_conditional(x, step) for part in parts], axis=2)
        children = log_mass[:, None, :] + steps
        total = np.logaddexp.reduce(children, axis=2)
        noise = total + rng.gumbel(size=total.shape)
        highest = noise.max(axis=1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            gap = noise - highest
            # -log(exp(-score) - exp(-highest) + exp(-noise)), rearranged so as not to overflow.
            v = score[:, None] - noise + np.log(-np.expm1(gap))
            perturbed = score[:, None] - np.maximum(v, 0.0) - np.log1p(np.exp(-np.abs(v)))
        # At the child with the maximum the rearranged form is 0 - inf: its score is the parent's.
        perturbed = np.where(gap == 0.0, score[:, None], perturbed).ravel()
        perturbed[~np.isfinite(total.ravel())] = -np.inf
        alive = int(np.isfinite(perturbed).sum())
        best = np.argsort(-perturbed, kind="stable")[: min(n, alive)]
        parent, state = np.divmod(best, n_states)
        x = x[parent]
        x[:, site] = state
        score = perturbed[best]
        log_mass = children.reshape(-1, len(parts))[best]
    if len(x) < n:
        raise ValueError(f"n must be at most the {len(x)} points with mass, got {n}")
    return x


@dataclass(frozen=True)
class UniformCategorical(SiteMeasure):
    """Uniform distribution on all vectors of states 0, ..., n_states - 1.

    Parameters
    ----------
    n_sites : int
    n_states : int
        Two for binary vectors.

    Examples
    --------
    >>> from pymc_bayessum.measures import UniformCategorical
    >>> UniformCategorical(15, 3).sample_distinct(100, rng=0).shape
    (100, 15)
    """

    n_sites: int = field(metadata={"check": count})
    n_states: int = field(metadata={"check": count})

    @property
    def probs(self) -> np.ndarray:
        """The same probability for every state, shape (L, S)."""
        return np.full((self.n_sites, self.n_states), 1.0 / self.n_states)

    @override
    def log_conditional(self, x: np.ndarray, step: int) -> np.ndarray:
        return np.full((len(x), self.n_states), -math.log(self.n_states))

    def _log_prob(self, x: np.ndarray) -> np.ndarray:
        return np.full(len(x), -self.n_sites * math.log(self.n_states))

    def _sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.integers(0, self.n_states, (n, self.n_sites))

    def _sample_distinct(self, n: int, rng: np.random.Generator) -> np.ndarray:
        size = self.n_states**self.n_sites
        if size < 2**63:
            return Sites(self.n_sites, self.n_states).decode(rng.choice(size, n, replace=False))
        # Repeats are next to impossible here, and dropping them is exact.
        return super(SiteMeasure, self)._sample_distinct(n, rng)


@dataclass(frozen=True)
class UniformSpins(Measure):
    """Uniform distribution on all vectors of spins -1 and +1.

    Examples
    --------
    >>> from pymc_bayessum.measures import UniformSpins
    >>> sorted(set(UniformSpins(4).sample(50, rng=0).ravel().tolist()))
    [-1, 1]
    """

    n_sites: int = field(metadata={"check": count})

    n_states = 2

    @property
    @override
    def support(self) -> Support:
        return Spins(self.n_sites)

    def _log_prob(self, x: np.ndarray) -> np.ndarray:
        return np.full(len(x), -self.n_sites * math.log(2.0))

    def _sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return 2 * rng.integers(0, 2, (n, self.n_sites)) - 1

    def _sample_distinct(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return 2 * UniformCategorical(self.n_sites, 2)._sample_distinct(n, rng) - 1


@dataclass(frozen=True, eq=False)
class ProductCategorical(SiteMeasure):
    """Independent sites, each with its own distribution.

    Parameters
    ----------
    probs : array_like of shape (L, S)
        Row j holds the probabilities of the states of site j.

    Examples
    --------
    >>> from pymc_bayessum.measures import ProductCategorical
    >>> q = ProductCategorical([[0.5, 0.5], [0.1, 0.9]])
    >>> q.sample_distinct(4, rng=0).shape
    (4, 2)
    """

    probs: np.ndarray
    n_sites: int = field(init=False, repr=False)
    n_states: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        probs = _distributions("probs", self.probs, 2)
        if len(probs) == 0:
            raise ValueError("probs must have at least one site")
        object.__setattr__(self, "probs", probs)
        object.__setattr__(self, "n_sites", probs.shape[0])
        object.__setattr__(self, "n_states", probs.shape[1])

    @override
    def log_conditional(self, x: np.ndarray, step: int) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.broadcast_to(np.log(self.probs[step]), (len(x), self.n_states))


@dataclass(frozen=True, eq=False)
class TreeCategorical(SiteMeasure):
    r"""Sites on a tree (or forest): roots by themselves, every other site given its parent.

    .. math:: p(x) = \prod_{r} \mathrm{root}_r(x_r)
              \prod_{(i, j) \in \mathrm{edges}} \mathrm{tables}_{ij}(x_i, x_j)

    Parameters
    ----------
    root : array_like of shape (S,) or (R, S)
        Marginal of the root, or of the R roots of a forest in increasing order of their sites.
    edges : array_like of int, shape (E, 2)
        Rows (parent, child). Every site but the roots is the child in exactly one edge; there are
        L = E + R sites.
    tables : array_like of shape (S, S) or (E, S, S)
        ``tables[e, a, b]`` is the probability of state b at the child given state a at the
        parent; one table may serve all edges.

    Attributes
    ----------
    parent : ndarray of int, shape (L,)
        Parent of each site, -1 at a root.

    Examples
    --------
    >>> from pymc_bayessum.measures import TreeCategorical
    >>> star = TreeCategorical([0.5, 0.5], [(0, 1), (0, 2)], [[0.9, 0.1], [0.2, 0.8]])
    >>> star.n_sites
    3
    """

    root: np.ndarray
    edges: np.ndarray
    tables: np.ndarray
    n_sites: int = field(init=False, repr=False)
    n_states: int = field(init=False, repr=False)
    parent: np.ndarray = field(init=False, repr=False)
    site_order: np.ndarray = field(init=False, repr=False)
    _edge_of: np.ndarray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        root = _distributions("root", self.root, (1, 2))
        root = root[None] if root.ndim == 1 else root
        edges = reals("edges", np.reshape(self.edges, (-1, 2)), 2)
        if (edges != np.floor(edges)).any() or (edges < 0).any():
            raise ValueError("edges must hold site numbers 0, 1, 2, ...")
        edges = edges.astype(np.int64)
        n_sites = len(edges) + len(root)
        n_states = root.shape[1]
        if len(edges) and edges.max() >= n_sites:
            raise ValueError(
                f"edges must hold sites below {n_sites} ({len(edges)} edges and {len(root)} "
                f"roots), got {edges.max()}"
            )
        children, count = np.unique(edges[:, 1], return_counts=True)
        if (count > 1).any():
            raise ValueError(f"site {children[count > 1][0]} is the child of more than one edge")
        if len(edges):
            tables = _distributions("tables", self.tables, (2, 3))
        else:
            tables = np.zeros((0, n_states, n_states))
        if tables.ndim == 2:
            tables = np.broadcast_to(tables, (len(edges), *tables.shape))
        if tables.shape != (len(edges), n_states, n_states):
            raise ValueError(
                f"tables must have shape {(len(edges), n_states, n_states)}, got {tables.shape}"
            )
        parent = np.full(n_sites, -1)
        parent[edges[:, 1]] = edges[:, 0]
        edge_of = np.full(n_sites, -1)
        edge_of[edges[:, 1]] = np.arange(len(edges))
        order = [int(site) for site in np.flatnonzero(parent < 0)]
        offspring: list[list[int]] = [[] for _ in range(n_sites)]
        for i, j in edges:
            offspring[i].append(int(j))
        for site in order:
            order.extend(offspring[site])
        if len(order) != n_sites:
            raise ValueError("edges must form a forest of (parent, child) pairs, got a cycle")
        arrays = {
            "root": root,
            "edges": edges,
            "tables": tables,
            "parent": parent,
            "site_order": np.array(order, dtype=np.int64),
            "_edge_of": edge_of,
        }
        for name, value in arrays.items():
            value.setflags(write=False)
            object.__setattr__(self, name, value)
        object.__setattr__(self, "n_sites", n_sites)
        object.__setattr__(self, "n_states", n_states)

    @property
    def roots(self) -> np.ndarray:
        """Sites without a parent, in increasing order."""
        return np.flatnonzero(self.parent < 0)

    def table(self, site: int) -> np.ndarray:
        """Table (S, S) of a site given its parent."""
        return self.tables[self._edge_of[site]]

    def marginals(self) -> np.ndarray:
        """Marginal distribution of every site, shape (L, S)."""
        out = np.empty((self.n_sites, self.n_states))
        out[self.roots] = self.root
        for site in self.site_order:
            if self.parent[site] >= 0:
                out[site] = out[self.parent[site]] @ self.table(site)
        return out

    @override
    def log_conditional(self, x: np.ndarray, step: int) -> np.ndarray:
        site = self.site_order[step]
        parent = self.parent[site]
        with np.errstate(divide="ignore"):
            if parent >= 0:
                return np.log(self.table(site))[x[:, parent]]
            row = np.log(self.root[np.searchsorted(self.roots, site)])
        return np.broadcast_to(row, (len(x), self.n_states))


class MarkovCategorical(TreeCategorical):
    r"""Markov chain of sites, :math:`p(x) = \pi(x_0) \prod_j T_j(x_{j-1}, x_j)`.

    Parameters
    ----------
    initial : array_like of shape (S,)
        Distribution of the first site.
    transitions : array_like of shape (S, S) or (L - 1, S, S)
        Row a of a table is the distribution of the next state after state a.
    n_sites : int, optional
        Length of the chain; needed when one (S, S) table serves all steps.

    Examples
    --------
    >>> from pymc_bayessum.measures import MarkovCategorical
    >>> MarkovCategorical([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], n_sites=6).n_sites
    6
    """

    def __init__(self, initial: Any, transitions: Any, n_sites: int | None = None) -> None:
        tables = reals("transitions", transitions, (2, 3))
        if n_sites is None and tables.ndim == 2:
            raise ValueError("n_sites must be given when one table serves all steps")
        length = tables.shape[0] + 1 if n_sites is None else integer("n_sites", n_sites, 1)
        if tables.ndim == 3 and tables.shape[0] != length - 1:
            raise ValueError(
                f"transitions must hold n_sites - 1 = {length - 1} tables, got {tables.shape[0]}"
            )
        sites = np.arange(length)
        super().__init__(
            root=reals("initial", initial, 1),
            edges=np.stack([sites[:-1], sites[1:]], axis=1),
            tables=tables,
        )
