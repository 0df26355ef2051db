r"""Directions in which the log-likelihood of a Potts model bends about equally.

The statistics of an edge repeat those of its sites: an edge summed over one end is the other end.
So steps along the gradient of :math:`(h, J)` overshoot by the number of neighbours. Statistics with
the frequencies :math:`f` of the data taken off,

.. math:: ([x_i = a] - f_i(a)) ([x_j = b] - f_j(b)) ,

are uncorrelated with those of sites if sites are independent (Montavon and Müller, "Deep Boltzmann
machines and the centering trick", 2012). In their parameters
:math:`J, \tilde h_i = h_i + \sum_j J_{ij} f_j` a diagonal says most about the curvature, and no
matrix over parameters is needed, of which there may be millions. What is left over are directions
that the likelihood does not see, a column or a row of :math:`J_{ij}` moved up; only the prior bends
along these, so they get steps of their own.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pymc_bayessum.graphs.moments import statistics_of_marginals
from pymc_bayessum.graphs.statistics import PottsLayout

__all__ = ["Centring", "centring"]


@dataclass(frozen=True, eq=False)
class Centring:
    r"""A map :math:`\theta = B u` after which the log-posterior bends by about one in all of u.

    Frequencies (L, S) are those of the states of each site, none zero; scales (d,) those of the
    centred parameters, about their posterior sd; and the scales ``unseen`` (2, E, S) those of what
    is added to all columns, and to all rows, of a full coupling, else empty.

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> layout = PottsLayout(2, 2, graphs.chain(2), "full", "edge", spins=True)
    >>> found = Centring(layout, np.array([[0.5, 0.5], [0.25, 0.75]]), np.ones(3), np.empty(0))
    >>> found.lift(np.array([0.0, 0.0, 1.0])).tolist()
    [-0.5, 0.0, 1.0]
    """

    layout: PottsLayout
    frequencies: np.ndarray
    scale: np.ndarray
    unseen: np.ndarray

    @property
    def size(self) -> int:
        """Length of u."""
        return self.scale.size + self.unseen.size

    @cached_property
    def _is_plain(self) -> bool:
        return self.layout.field_kind != "full" or self.layout.coupling_kind == "none"

    def lift(self, u: np.ndarray) -> np.ndarray:
        """Return the change of theta, shape (d,), of a step u."""
        layout, (first, second) = self.layout, self.layout.edges.T
        centred = self.scale * u[: self.scale.size]
        if self._is_plain:
            return centred
        h, J = layout.unflatten(centred)
        if self.unseen.size:
            rows, columns = self.unseen * u[self.scale.size :].reshape(self.unseen.shape)
            J = J + rows[:, :, None] + columns[:, None, :]
        tables = layout.expand_coupling(J)
        shift = np.zeros(self.frequencies.shape)
        np.add.at(shift, first, np.einsum("eab,eb->ea", tables, self.frequencies[second]))
        np.add.at(shift, second, np.einsum("eab,ea->eb", tables, self.frequencies[first]))
        return layout.flatten(h - (shift[:, 1] if layout.spins else shift), J)

    def drop(self, slope: np.ndarray) -> np.ndarray:
        """Return the slope by u, given that by theta: the transpose of :meth:`lift`."""
        layout, (first, second) = self.layout, self.layout.edges.T
        if self._is_plain:
            return self.scale * slope
        h, _ = layout.unflatten(slope)
        sites = np.stack([np.zeros_like(h), h], axis=1) if layout.spins else h
        pairs = sites[first, :, None] * self.frequencies[second, None, :]
        pairs += self.frequencies[first, :, None] * sites[second, None, :]
        centred = slope - statistics_of_marginals(layout, np.zeros(sites.shape), pairs)
        if not self.unseen.size:
            return self.scale * centred
        _, J = layout.unflatten(centred)
        unseen = self.unseen * np.stack([J.sum(axis=2), J.sum(axis=1)])
        return np.concatenate([self.scale * centred, unseen.ravel()])


def centring(
    layout: PottsLayout, sites: np.ndarray, pairs: np.ndarray, n_rows: float, precision: np.ndarray
) -> Centring:
    """Centre at the frequencies of data, and scale by how the log-posterior bends there.

    Frequencies are those of sites (L, S) and pairs (E, S, S) in so many rows, or such a sum of
    their weights; the precision (d,) is that of the prior.
    """
    # States that were not seen are rare, not impossible.
    pooled = sites.mean(axis=0)
    seen = (n_rows * sites + 2.0 * pooled + 0.5) / (n_rows + 2.0 + 0.5 * layout.n_states)
    spread = seen * (1.0 - seen)
    first, second = layout.edges.T
    # Pairs that come together more often than by chance vary more, too.
    joint = np.maximum(spread[first, :, None] * spread[second, None, :], pairs * (1.0 - pairs))
    # What multiplies a parameter enters its variance by the square, so here it is given once more.
    if layout.spins:
        spread = spread * [-2.0, 2.0]
    if layout.coupling_kind in ("scalar", "edge"):
        joint = joint * layout.unit_couplings
    bend = n_rows * statistics_of_marginals(layout, spread, joint) + precision
    scale = 1.0 / np.sqrt(bend)
    unseen = np.empty(0)
    if layout.field_kind == layout.coupling_kind == "full":
        h, J = layout.unflatten(precision)
        bends = np.stack([J.sum(axis=2) + h[first], J.sum(axis=1) + h[second]])
        unseen = 1.0 / np.sqrt(bends)
    return Centring(layout, seen, scale, unseen)
