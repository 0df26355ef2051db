r"""Coordinates in which an exponential family has no redundant parameters.

Statistics may be tied by linear identities (in a Potts model the indicators of a site sum to one,
an edge summed over one end is the other end); then they are an affine image of fewer independent
ones, :math:`\phi(x) = A \psi(x) + b`, and

.. math:: \theta \cdot \phi(x) = c \cdot \psi(x) + b \cdot \theta, \qquad c = A^\top \theta .

A model may use still fewer: fields that are one number times a covariate keep theta in an affine
subspace :math:`a + B c`. Both kinds of reduction are a :class:`Coordinates`.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import qr, solve_triangular

__all__ = ["Coordinates", "independent", "plain", "subset", "within"]

#: Combinations of what lies outside of a subspace that are looked at.
CHECKS = 8
#: Size of singular values that count as zero, relative to the largest and to the coordinates.
NOTHING = 1e-8


@dataclass(frozen=True, eq=False)
class Coordinates:
    r"""Affine reduction of parameters and statistics with unchanged energies.

    With ``c = read @ theta + read_origin`` and ``psi = select @ phi``, shape (r,) for (d,), the
    energy is ``theta . phi = c . psi + row_origin . phi + tilt . theta``, and
    ``theta = lift @ c + lift_origin`` is one parameter vector with the coordinates c. Where there
    is something outside, ``outside @ theta + outside_origin`` (k,) is zero for the parameters that
    can be represented.
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
        return self.read.shape[0]

    def of(self, theta: np.ndarray) -> np.ndarray:
        """Coordinates of parameter vectors, shape (..., r)."""
        return theta @ self.read.T + self.read_origin

    def parameters(self, coordinates: np.ndarray) -> np.ndarray:
        """One parameter vector with these coordinates, shape (..., d)."""
        return coordinates @ self.lift.T + self.lift_origin

    def rows(self, statistics: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Reduced statistics (N, r), and the part of the energy that no parameter changes (N,)."""
        kept = self._kept
        rows = statistics @ self.select.T if kept is None else np.take(statistics, kept, axis=1)
        return rows, statistics @ self.row_origin

    @cached_property
    def _kept(self) -> np.ndarray | None:
        """Places of the statistics that are kept as they are, where no others are."""
        if sparse.issparse(self.select):
            return None
        kept = self.select.argmax(axis=1) if self.size else np.zeros(0, dtype=np.int64)
        alone = np.zeros_like(self.select)
        alone[np.arange(self.size), kept] = 1.0
        return kept if np.array_equal(self.select, alone) else None


def plain(n_parameters: int, long: bool = False) -> Coordinates:
    """Coordinates that change nothing.

    Long vectors, of many thousands, get sparse maps, to be reduced by :func:`within`.

    Examples
    --------
    >>> plain(3).size
    3
    """
    zero = np.zeros(n_parameters)
    one: Any = sparse.eye_array(n_parameters, format="csr") if long else np.eye(n_parameters)
    return Coordinates(one, zero, one, zero, zero, one, zero)


def independent(statistics: np.ndarray) -> Coordinates:
    """Coordinates that keep a subset of linearly independent statistics.

    A pivoted QR factorisation of the statistics (N, d) of many states, N well above d and varied
    enough to show every direction, chooses them; every other one is an affine function of those
    kept.

    Examples
    --------
    The indicators of two states sum to one:

    >>> first = np.random.default_rng(0).integers(0, 2, 20)
    >>> independent(np.column_stack([first, 1 - first])).size
    1
    """
    d = statistics.shape[1]
    centre = statistics.mean(axis=0)
    _, triangle, order = qr(statistics - centre, mode="economic", pivoting=True)
    size = np.abs(np.diag(triangle))
    rank = int((size > 1e-9 * max(size.max(initial=0.0), 1e-300)).sum())
    affine = np.zeros((d, rank))
    affine[order[:rank]] = np.eye(rank)
    if 0 < rank < d:
        rest = solve_triangular(triangle[:rank, :rank], triangle[:rank, rank:])
        affine[order[rank:]] = rest.T
    kept = order[:rank]
    return subset(kept, affine, centre - affine @ centre[kept])


def subset(kept: np.ndarray, affine: np.ndarray, constant: np.ndarray) -> Coordinates:
    """Coordinates that keep some statistics: ``phi = affine @ phi[kept] + constant``.

    With a sparse array all maps are sparse.

    Examples
    --------
    >>> subset(np.array([1]), np.array([[-1.0], [1.0]]), np.array([1.0, 0.0])).size
    1
    """
    size, d = len(kept), len(constant)
    select: Any = sparse.csr_array((np.ones(size), (np.arange(size), kept)), shape=(size, d))
    if not sparse.issparse(affine):
        select = select.toarray()
    zero = np.zeros(d)
    return Coordinates(affine.T, np.zeros(size), select, zero, constant, select.T.copy(), zero)


def within(coordinates: Coordinates, parameters: np.ndarray) -> Coordinates:
    """Reduce coordinates to the affine subspace that contains the given parameter vectors.

    These are draws (K, d) from the prior of a model, many more than its free parameters; if they
    span all coordinates, or as much as K vectors can, the coordinates come back as they are.

    Examples
    --------
    Fields that are a multiple of one covariate:

    >>> draws = np.random.default_rng(0).normal(size=(20, 1)) * np.array([0.0, 1.0, 2.0, 3.0])
    >>> within(plain(4), draws).size
    1
    """
    found = coordinates.of(np.asarray(parameters, dtype=float))
    origin = found.mean(axis=0)
    _, size, directions = np.linalg.svd(found - origin, full_matrices=False)
    largest = max(size.max(initial=0.0), np.abs(found).max(initial=0.0), 1e-300)
    rank = int((size > NOTHING * largest).sum())
    if rank >= coordinates.size or rank >= len(found) - 1:
        return coordinates
    basis = directions[:rank]
    # A few combinations of what lies outside show whether there is something.
    checks = np.eye(coordinates.size)
    if coordinates.size > CHECKS:
        checks = np.random.default_rng(0).normal(size=(CHECKS, coordinates.size))
    checks = checks - (checks @ basis.T) @ basis
    return Coordinates(
        read=basis @ coordinates.read,
        read_origin=basis @ (coordinates.read_origin - origin),
        select=basis @ coordinates.select,
        row_origin=coordinates.row_origin + origin @ coordinates.select,
        tilt=coordinates.tilt,
        lift=coordinates.lift @ basis.T,
        lift_origin=coordinates.lift @ origin + coordinates.lift_origin,
        outside=checks @ coordinates.read,
        outside_origin=checks @ (coordinates.read_origin - origin),
    )
