"""Directions of theta that change the probabilities of a Potts model."""

import numpy as np

from pymc_bayessum.graphs.statistics import PottsLayout
from pymc_bayessum.normalizers.coordinates import Coordinates, independent, plain, subset

__all__ = ["identifiable"]

#: Longest parameter vector whose redundancies are found numerically.
NUMERIC_LIMIT = 800


def identifiable(layout: PottsLayout) -> Coordinates:
    """Coordinates without the directions of theta that leave all probabilities unchanged.

    The statistics that stay are a subset of all: for fields and couplings in full, those of
    states other than 0. Parameter vectors that are too long to search keep all coordinates.

    Parameters
    ----------
    layout : PottsLayout

    Returns
    -------
    Coordinates

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
            return plain(d)
        return subset(*_without_first_state(layout))
    if d > NUMERIC_LIMIT:
        return plain(d)
    states = np.random.default_rng(0).integers(0, layout.n_states, (4 * d + 40, layout.n_sites))
    # Aligned neighbours are rare among random states of many sites; constant rows add them.
    states[: layout.n_states] = np.arange(layout.n_states)[:, None]
    return independent(layout.statistics(states))


def _without_first_state(layout: PottsLayout) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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
    affine = np.zeros((d, len(order)))
    constant = np.zeros(d)
    affine[order, np.arange(len(order))] = 1.0
    constant[site[:, 0]] = 1.0
    for a in range(1, n_states):
        affine[site[has[:, a], 0], column[site[has[:, a], a]]] = -1.0
    if full:
        first, second = layout.edges[:, 0], layout.edges[:, 1]
        for a in range(1, n_states):
            affine[pair[:, a, 0], column[site[first, a]]] = 1.0
            affine[pair[:, 0, a], column[site[second, a]]] = 1.0
            affine[pair[:, 0, 0], column[site[first, a]]] = -1.0
            affine[pair[:, 0, 0], column[site[second, a]]] = -1.0
            for b in range(1, n_states):
                affine[pair[:, a, 0], column[pair[:, a, b]]] = -1.0
                affine[pair[:, 0, b], column[pair[:, a, b]]] = -1.0
                affine[pair[:, 0, 0], column[pair[:, a, b]]] = 1.0
        constant[pair[:, 0, 0]] = 1.0
    return order, affine, constant
