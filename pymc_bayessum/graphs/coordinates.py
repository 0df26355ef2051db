"""Directions of theta that change the probabilities of a Potts model."""

from typing import Any

import numpy as np
from scipy import sparse

from pymc_bayessum.graphs.statistics import PottsLayout
from pymc_bayessum.normalizers.coordinates import Coordinates, independent, plain, subset, within

__all__ = ["identifiable", "spanned"]

#: Longest parameter vector whose redundancies are found numerically.
NUMERIC_LIMIT = 800
#: Longest parameter vector for which square matrices are made before it is reduced.
DENSE_LIMIT = 2000


def spanned(layout: PottsLayout, draws: np.ndarray) -> Coordinates:
    """Coordinates of the affine subspace that draws of a prior, (K, d), span.

    Fields of a large image may depend on a few numbers only.

    Examples
    --------
    Fields of 3600 sites that are a multiple of one covariate, and one coupling:

    >>> from pymc_bayessum import graphs
    >>> layout = PottsLayout(3600, 2, graphs.grid(60, 60), "full", "scalar", spins=True)
    >>> rng = np.random.default_rng(0)
    >>> fields = rng.normal(size=(20, 1)) * rng.normal(size=3600)
    >>> spanned(layout, np.hstack([fields, rng.normal(size=(20, 1))])).size
    2
    """
    if layout.n_parameters <= DENSE_LIMIT or layout.coupling_kind == "full":
        return within(identifiable(layout), draws)
    all_of_them = identifiable(layout, long=True)
    found = within(all_of_them, draws)
    return identifiable(layout) if found is all_of_them else found


def identifiable(layout: PottsLayout, long: bool = False) -> Coordinates:
    """Coordinates without the directions of theta that leave all probabilities unchanged.

    The statistics that stay are a subset of all: for fields and couplings in full, those of
    states other than 0. Parameter vectors that are too long to search keep all coordinates; maps of
    ``long`` ones stay sparse, see :func:`spanned`.

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> identifiable(PottsLayout(4, 3, graphs.ring(4), "full", "full")).size
    24
    >>> identifiable(PottsLayout(4, 3, graphs.ring(4), "shared", "scalar")).size
    3
    """
    d = layout.n_parameters
    if layout.field_kind == "full" and layout.coupling_kind in ("full", "none", "edge", "scalar"):
        if layout.spins:
            return plain(d, long)
        return subset(*_without_first_state(layout, long))
    if d > NUMERIC_LIMIT:
        return plain(d, long)
    states = np.random.default_rng(0).integers(0, layout.n_states, (4 * d + 40, layout.n_sites))
    # Aligned neighbours are rare among random states of many sites; constant rows add them.
    states[: layout.n_states] = np.arange(layout.n_states)[:, None]
    return independent(layout.statistics(states))


def _without_first_state(layout: PottsLayout, long: bool) -> tuple[np.ndarray, Any, np.ndarray]:
    """Write every statistic as an affine function of those that do not mention state 0."""
    n_sites, n_states, n_edges = layout.n_sites, layout.n_states, layout.n_edges
    d = layout.n_parameters
    site = np.arange(n_sites * n_states).reshape(n_sites, n_states)
    has = layout.has_state
    kept = [site[:, 1:][has[:, 1:]]]
    full = layout.coupling_kind == "full"
    if full:
        pair = layout.n_field + np.arange(n_edges * n_states**2).reshape(-1, n_states, n_states)
        kept.append(pair[:, 1:, 1:].ravel())
    else:
        kept.append(np.arange(layout.n_field, d))
    order = np.concatenate(kept)
    column = np.full(d, -1)
    column[order] = np.arange(len(order))
    affine: Any = sparse.lil_array((d, len(order))) if long else np.zeros((d, len(order)))
    constant = np.zeros(d)
    affine[order, np.arange(len(order))] = 1.0
    constant[site[:, 0]] = 1.0
    for a in range(1, n_states):
        affine[site[has[:, a], 0], column[site[has[:, a], a]]] = -1.0
    if full:
        # All indicators of a site are M psi + e of those kept; of an edge, products of two such.
        M = np.vstack([-np.ones(n_states - 1), np.eye(n_states - 1)])
        e = np.eye(n_states, 1)
        rows = pair.reshape(n_edges, n_states**2, 1)
        both = pair[:, 1:, 1:].reshape(n_edges, 1, (n_states - 1) ** 2)
        first, second = site[layout.edges.T, None, 1:]
        affine[rows, column[both]] = np.kron(M, M)
        affine[rows, column[first]] = np.kron(M, e)
        affine[rows, column[second]] = np.kron(e, M)
        constant[pair[:, 0, 0]] = 1.0
    return order, affine.tocsr() if long else affine, constant
