"""Kernels on vectors of categorical sites."""

from dataclasses import dataclass, field
from typing import override

import numpy as np

from pymc_bayessum.arguments import positive
from pymc_bayessum.kernels.base import Kernel
from pymc_bayessum.measures.supports import Image, Points, Sites, Spins, Support, numbers

__all__ = ["ExpHamming", "Tanimoto", "hamming", "same_sites"]


def same_sites(x: Points, y: Points) -> tuple[np.ndarray, np.ndarray]:
    """Return two batches of points on sites, or raise unless they have as many sites."""
    a, b = numbers(x, 2), numbers(y, 2)
    if a.shape[1] != b.shape[1]:
        raise ValueError(f"points must have equal numbers of sites, got {a.shape} and {b.shape}")
    return a, b


def hamming(x: Points, y: Points) -> np.ndarray:
    """Count the sites at which points (N, L) and (M, L) differ, shape (N, M).

    Examples
    --------
    >>> from pymc_bayessum.kernels import hamming
    >>> hamming([[0, 1, 2]], [[0, 2, 1]]).tolist()
    [[2.0]]
    """
    a, b = same_sites(x, y)
    n_sites = a.shape[1]
    states = np.intersect1d(a, b)
    agree = np.zeros((len(a), len(b)))
    if len(states) <= n_sites:
        # With few states a matrix product of indicators counts agreements at BLAS speed.
        for state in states:
            agree += (a == state).astype(float) @ (b == state).astype(float).T
    else:
        for site in range(n_sites):
            agree += a[:, site, None] == b[None, :, site]
    return n_sites - agree


@dataclass(frozen=True)
class ExpHamming(Kernel):
    r"""Exponential Hamming kernel, :math:`k(x, y) = e^{-\lambda d_H(x, y)}`.

    :math:`d_H` counts the sites at which x and y differ; it works on states and on spins.

    Parameters
    ----------
    decay : float
        Positive.

    Examples
    --------
    >>> from pymc_bayessum.kernels import ExpHamming
    >>> ExpHamming(0.5)([[0, 1]], [[0, 2], [0, 1]]).round(4).tolist()
    [[0.6065, 1.0]]
    """

    decay: float = field(metadata={"check": positive})

    growth = 0.0

    @override
    def __call__(self, x: Points, y: Points) -> np.ndarray:
        return np.exp(-self.decay * hamming(x, y))

    @override
    def diagonal(self, x: Points) -> np.ndarray:
        return np.ones(len(numbers(x, 2)))

    @override
    def accepts(self, support: Support) -> bool:
        return isinstance(support, (Sites, Spins, Image))


@dataclass(frozen=True)
class Tanimoto(Kernel):
    r"""Tanimoto (Jaccard) kernel on binary vectors.

    .. math:: k(x, y) = \frac{x^\top y}{\|x\|^2 + \|y\|^2 - x^\top y}, \qquad k(0, 0) = 1

    Examples
    --------
    >>> from pymc_bayessum.kernels import Tanimoto
    >>> Tanimoto()([[1, 1, 0]], [[1, 0, 1], [0, 0, 0]]).round(4).tolist()
    [[0.3333, 0.0]]
    """

    growth = 0.0

    @override
    def __call__(self, x: Points, y: Points) -> np.ndarray:
        a, b = (_binary(v) for v in same_sites(x, y))
        both = a @ b.T
        either = a.sum(axis=1)[:, None] + b.sum(axis=1)[None, :] - both
        return np.where(either > 0, both / np.maximum(either, 1.0), 1.0)

    @override
    def diagonal(self, x: Points) -> np.ndarray:
        return np.ones(len(_binary(numbers(x, 2))))

    @override
    def accepts(self, support: Support) -> bool:
        return isinstance(support, Image) or (isinstance(support, Sites) and support.n_states <= 2)


def _binary(x: np.ndarray) -> np.ndarray:
    if not np.isin(x, (0, 1)).all():
        raise ValueError("the Tanimoto kernel takes binary vectors of zeros and ones")
    return x.astype(float)
