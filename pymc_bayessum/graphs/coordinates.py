r"""Coordinates in which a Potts model has no redundant parameters.

Statistics of a Potts model are tied by linear identities (the indicators of a site sum to one, an
edge summed over one end is the other end), so they are an affine image of fewer independent ones,
:math:`\phi(x) = A \psi(x) + b`, and

.. math:: \theta \cdot \phi(x) = c \cdot \psi(x) + b \cdot \theta, \qquad c = A^\top \theta .

A model may use still fewer: fields that are one number times a covariate keep theta in an affine
subspace :math:`a + B c`. Both kinds of reduction are a :class:`Coordinates`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.linalg import qr, solve_triangular

from pymc_bayessum.graphs.statistics import PottsLayout

__all__ = ["Coordinates", "identifiable", "plain", "within"]

#: Longest parameter vector whose redundancies are found numerically.
NUMERIC_LIMIT = 800


@dataclass(frozen=True, eq=False)
class Coordinates:
    r"""Affine reduction of parameters and statistics with unchanged energies.

    With ``c = read @ theta + read_origin`` and ``psi = select @ phi`` the energy is
    ``theta . phi = c . psi + row_origin . phi + tilt . theta``.

    Attributes
    ----------
    read : ndarray, shape (r, d)
    read_origin : ndarray, shape (r,)
    select : ndarray, shape (r, d)
    row_origin : ndarray, shape (d,)
    tilt : ndarray, shape (d,)
    lift : ndarray, shape (d, r)
        ``theta = lift @ c + lift_origin`` is one parameter vector with the coordinates c.
    lift_origin : ndarray, shape (d,)
    outside : ndarray, shape (k, d), optional
        ``outside @ theta + outside_origin`` is zero for the parameters that can be represented.
    outside_origin : ndarray, shape (k,), optional
    """

    read: np.ndarray = field(repr=False)
    read_origin: np.ndarray = field(repr=False)
    select: np.ndarray = field(repr=False)
    row_origin: np.ndarray = field(repr=False)
    tilt: np.ndarray = field(repr=False)
    lift: np.ndarray = field(repr=False)
    lift_origin: np.ndarray = field(repr=False)
    outside: np.ndarray | None = field(default=None, repr=False)
    outside_origin: np.ndarray | None = field(default=None, repr=False)

    @property
    def size(self) -> int:
        """Number of coordinates, r."""
        return len(self.read)

    def of(self, theta: np.ndarray) -> np.ndarray:
        """Coordinates of parameter vectors, shape (..., r)."""
        return theta @ self.read.T + self.read_origin

    def parameters(self, coordinates: np.ndarray) -> np.ndarray:
        """One parameter vector with these coordinates, shape (..., d)."""
        return coordinates @ self.lift.T + self.lift_origin

    def rows(self, statistics: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Reduced statistics (N, r), and the part of the energy that no parameter changes (N,)."""
        return statistics @ self.select.T, statistics @ self.row_origin


def plain(n_parameters: int) -> Coordinates:
    """Coordinates that change nothing.

    Parameters
    ----------
    n_parameters : int

    Returns
    -------
    Coordinates

    Examples
    --------
    >>> plain(3).size
    3
    """
    zero, one = np.zeros(n_parameters), np.eye(n_parameters)
    return Coordinates(one, zero, one, zero, zero, one, zero)


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
        kept, affine, constant = _without_first_state(layout)
    elif d <= NUMERIC_LIMIT:
        kept, affine, constant = _independent_columns(layout)
    else:
        return plain(d)
    select = np.zeros((len(kept), d))
    select[np.arange(len(kept)), kept] = 1.0
    zero = np.zeros(d)
    return Coordinates(affine.T, np.zeros(len(kept)), select, zero, constant, select.T.copy(), zero)


def _without_first_state(layout: PottsLayout) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Write every statistic as an affine function of those that do not mention state 0."""
    n_sites, n_states, n_edges = layout.n_sites, layout.n_states, layout.n_edges
    d = layout.n_parameters
    site = np.arange(n_sites * n_states).reshape(n_sites, n_states)
    kept = [site[:, 1:].ravel()]
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
        affine[site[:, 0], column[site[:, a]]] = -1.0
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


def _independent_columns(layout: PottsLayout) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find independent statistics on random states by a pivoted QR factorisation."""
    d = layout.n_parameters
    rng = np.random.default_rng(0)
    states = rng.integers(0, layout.n_states, (4 * d + 40, layout.n_sites))
    # Aligned neighbours are rare among random states of many sites; constant rows add them.
    states[: layout.n_states] = np.arange(layout.n_states)[:, None]
    statistics = layout.statistics(layout.decode(states))
    centre = statistics.mean(axis=0)
    _, triangle, order = qr(statistics - centre, mode="economic", pivoting=True)
    size = np.abs(np.diag(triangle))
    rank = int((size > 1e-9 * max(size.max(initial=0.0), 1e-300)).sum())
    affine = np.zeros((d, rank))
    affine[order[:rank]] = np.eye(rank)
    if rank < d and rank > 0:
        rest = solve_triangular(triangle[:rank, :rank], triangle[:rank, rank:])
        affine[order[rank:]] = rest.T
    kept = order[:rank]
    return kept, affine, centre - affine @ centre[kept]


def within(coordinates: Coordinates, parameters: np.ndarray, tol: float = 1e-8) -> Coordinates:
    """Reduce coordinates to the affine subspace that contains the given parameter vectors.

    Parameters
    ----------
    coordinates : Coordinates
    parameters : ndarray, shape (K, d)
        Draws from the prior of a model, many more than its free parameters; if they span all
        coordinates, or as much as K vectors can, ``coordinates`` come back as they are.
    tol : float
        Size of singular values that count as zero, relative to the largest and to the coordinates.

    Returns
    -------
    Coordinates

    Examples
    --------
    Fields that are a multiple of one covariate:

    >>> import numpy as np
    >>> draws = np.random.default_rng(0).normal(size=(20, 1)) * np.array([0.0, 1.0, 2.0, 3.0])
    >>> within(plain(4), draws).size
    1
    """
    found = coordinates.of(np.asarray(parameters, dtype=float))
    origin = found.mean(axis=0)
    _, size, directions = np.linalg.svd(found - origin, full_matrices=False)
    largest = max(size.max(initial=0.0), np.abs(found).max(initial=0.0), 1e-300)
    rank = int((size > tol * largest).sum())
    if rank >= coordinates.size or rank >= len(found) - 1:
        return coordinates
    basis = directions[:rank]
    return Coordinates(
        read=basis @ coordinates.read,
        read_origin=basis @ (coordinates.read_origin - origin),
        select=basis @ coordinates.select,
        row_origin=coordinates.row_origin + origin @ coordinates.select,
        tilt=coordinates.tilt,
        lift=coordinates.lift @ basis.T,
        lift_origin=coordinates.lift @ origin + coordinates.lift_origin,
        outside=_outside(basis, coordinates.read),
        outside_origin=_outside(basis, coordinates.read_origin - origin),
    )


def _outside(basis: np.ndarray, vectors: Any) -> np.ndarray:
    """Take off the part of vectors (along their first axis) that lies in the subspace."""
    return vectors - basis.T @ (basis @ vectors)
