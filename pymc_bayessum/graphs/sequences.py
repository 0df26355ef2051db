r"""Aligned sequences as rows of a Potts model: letters, weights, and contacts.

A residue is a state; a gap is a state like any other. Couplings are compared in the zero-sum gauge,
where rows and columns of every table sum to zero, as what can be moved between fields and couplings
says nothing about contacts.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit

from pymc_bayessum.arguments import integer, real
from pymc_bayessum.graphs.layouts import as_edges
from pymc_bayessum.threads import in_parts

__all__ = ["ALPHABET", "contact_scores", "sequence_states", "sequence_weights", "zero_sum"]

#: The gap and the twenty amino acids, in the order of their states.
ALPHABET = "-ACDEFGHIKLMNPQRSTVWY"


def sequence_states(sequences: Sequence[str], alphabet: str = ALPHABET) -> np.ndarray:
    """Write aligned sequences as states.

    Parameters
    ----------
    sequences : sequence of str
        All of one length; capitals or not.
    alphabet : str
        Its first letter is the gap, and stands for every letter that is not in it, too.

    Returns
    -------
    ndarray of int, shape (n, L)
        The place of each letter in the alphabet.

    Examples
    --------
    >>> sequence_states(["AC-", "ACX", "CCA"]).tolist()
    [[1, 2, 0], [1, 2, 0], [2, 2, 1]]
    """
    if isinstance(sequences, str) or not all(isinstance(each, str) for each in sequences):
        raise TypeError("sequences must be a list of strings")
    if len(alphabet) < 2 or len(set(alphabet)) != len(alphabet):
        raise ValueError(f"alphabet must hold two letters at least, none twice, got {alphabet!r}")
    lengths = sorted({len(each) for each in sequences})
    if len(lengths) != 1 or lengths[0] == 0:
        raise ValueError(f"sequences must be aligned, all of one length; got lengths {lengths}")
    state = {letter: place for place, letter in enumerate(alphabet.upper())}
    return np.array([[state.get(letter, 0) for letter in each.upper()] for each in sequences])


@njit(cache=True, nogil=True, error_model="numpy")
def _count_alike(low, high, states, needed, out):
    n_sites = states.shape[1]
    for row in range(low, high):
        for other in range(len(states)):
            same = 0
            for i in range(n_sites):
                same += states[row, i] == states[other, i]
            out[row] += same >= needed


def sequence_weights(states: Any, identity: float = 0.8) -> np.ndarray:
    """Weights of aligned sequences: one over the number of those that are alike.

    Databases hold some families of sequences many times. A sequence that shares at least 80% of its
    sites with m - 1 others counts 1 / m; the sum of the weights is the effective number of rows.

    Parameters
    ----------
    states : array_like of int, shape (n, L)
    identity : float
        Share of sites, gaps among them, from which on two sequences are alike; above zero, at most
        one.

    Returns
    -------
    ndarray, shape (n,)
        To be passed as ``weights=`` to :func:`~pymc_bayessum.fit_potts` and
        :func:`~pymc_bayessum.pseudo_likelihood`.

    Examples
    --------
    >>> sequence_weights([[0, 1, 2, 3, 4], [0, 1, 2, 3, 3], [4, 4, 4, 4, 4]]).tolist()
    [0.5, 0.5, 1.0]
    """
    rows = np.asarray(states)
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"states must have shape (n, L), got {rows.shape}")
    if rows.dtype.kind not in "iu":
        raise TypeError(f"states must be integers, got an array of {rows.dtype}")
    identity = real("identity", identity)
    if not 0.0 < identity <= 1.0:
        raise ValueError(f"identity must be above 0 and at most 1, got {identity}")
    # 0.8 * 50 is a little above 40 in floating point.
    needed = int(np.ceil(identity * rows.shape[1] - 1e-9))
    _, compact = np.unique(rows, return_inverse=True)
    compact = np.ascontiguousarray(compact.reshape(rows.shape), dtype=np.int16)
    alike = np.zeros(len(rows))
    in_parts(_count_alike, len(rows), compact, needed, alike)
    return 1.0 / alike


def zero_sum(J: Any) -> np.ndarray:
    """Return couplings with the means of rows and columns of every table taken off.

    Parameters
    ----------
    J : array_like, shape (..., S, S)

    Returns
    -------
    ndarray, shape (..., S, S)

    Examples
    --------
    >>> zero_sum([[1.0, 2.0], [3.0, 8.0]]).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    tables = np.asarray(J, dtype=float)
    means = tables.mean(axis=-1, keepdims=True), tables.mean(axis=-2, keepdims=True)
    return tables - means[0] - means[1] + tables.mean(axis=(-1, -2), keepdims=True)


def contact_scores(
    J: Any, edges: Any, n_sites: int, *, gap: int | None = None, correct: bool = True
) -> np.ndarray:
    r"""How strongly pairs of sites are coupled: Frobenius norms, corrected for busy sites.

    .. math:: F_{ij} - \bar F_i \bar F_j / \bar F , \quad F_{ij} = \|J_{ij}\|

    with couplings in the zero-sum gauge and means over the edges of a site, and over all (the
    average product correction of Dunn, Wahl and Gloor, 2008).

    Parameters
    ----------
    J : array_like, shape (E, S, S)
    edges : array_like of int, shape (E, 2), or networkx.Graph
    n_sites : int
    gap : int, optional
        A state that is left out of the norms: gaps come in runs, which says little about contacts.
    correct : bool
        Whether to take off the average product.

    Returns
    -------
    ndarray, shape (E,)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum import graphs
    >>> J = np.zeros((3, 2, 2))
    >>> J[0] = [[1.0, -1.0], [-1.0, 1.0]]
    >>> contact_scores(J, graphs.ring(3), 3, correct=False).tolist()
    [2.0, 0.0, 0.0]
    """
    n_sites = integer("n_sites", n_sites, 1)
    pairs, tables = as_edges(edges, n_sites), np.asarray(J, dtype=float)
    if tables.ndim != 3 or len(tables) != len(pairs) or tables.shape[1] != tables.shape[2]:
        raise ValueError(f"J must have shape ({len(pairs)}, S, S), got {tables.shape}")
    tables = zero_sum(tables)
    if gap is not None:
        gap = integer("gap", gap, 0)
        if gap >= tables.shape[1]:
            raise ValueError(f"gap must be a state 0 .. {tables.shape[1] - 1}, got {gap}")
        tables = np.delete(np.delete(tables, gap, axis=1), gap, axis=2)
    norm = np.sqrt((tables**2).sum(axis=(1, 2)))
    if not correct or not norm.any():
        return norm
    total = np.bincount(pairs.ravel(), np.repeat(norm, 2), n_sites)
    busy = total / np.maximum(np.bincount(pairs.ravel(), minlength=n_sites), 1)
    return norm - busy[pairs[:, 0]] * busy[pairs[:, 1]] / norm.mean()
