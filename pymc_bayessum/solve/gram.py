"""Gram matrices of kernels, factorised once: what rules and marginal likelihoods need."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import override

import numpy as np

__all__ = ["Gram", "InvertibleGram", "KrigingGram", "MeanSpaceGram", "ScaledGram"]


class Gram(ABC):
    """A factorised Gram matrix K + jitter * I on N nodes, in the caller's node order."""

    jitter: float

    @property
    @abstractmethod
    def n_informative(self) -> int:
        """Directions of the data that carry information: N less the free functions."""

    @property
    @abstractmethod
    def log_det(self) -> float:
        """Logarithm of the determinant (on the informative directions)."""

    @abstractmethod
    def whiten(self, values: np.ndarray) -> np.ndarray:
        """Return a linear map of the last axis whose squares sum to the quadratic form."""

    def quadratic_form(self, values: np.ndarray) -> np.ndarray:
        """Return y' K^-1 y over the last axis of ``values``."""
        return np.square(self.whiten(values)).sum(axis=-1)


class InvertibleGram(Gram):
    """A Gram matrix that also answers for K^-1 v."""

    @abstractmethod
    def solve(self, vector: np.ndarray) -> np.ndarray:
        """Return (K + jitter * I)^-1 v for v of shape (N,) or (N, M)."""


@dataclass(frozen=True, eq=False)
class ScaledGram(Gram):
    """The Gram matrix of ``scale`` times a kernel whose own is known.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum.solve.dense import factorize_dense
    >>> gram = ScaledGram(4.0, factorize_dense(np.eye(2)))
    >>> float(gram.quadratic_form(np.array([2.0, 0.0])))
    1.0
    """

    scale: float
    base: Gram = field(repr=False)
    jitter: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "jitter", self.scale * self.base.jitter)

    @property
    @override
    def n_informative(self) -> int:
        return self.base.n_informative

    @property
    @override
    def log_det(self) -> float:
        return self.base.log_det + self.n_informative * float(np.log(self.scale))

    @override
    def whiten(self, values: np.ndarray) -> np.ndarray:
        return self.base.whiten(values) / np.sqrt(self.scale)


@dataclass(frozen=True, eq=False)
class MeanSpaceGram(Gram):
    r"""A Gram matrix seen after unknown functions were removed from the data.

    With the functions in the mean of the process at the nodes as columns H (ones for an unknown
    constant), shape (N, P), and a flat prior on their coefficients, the data enter through

    .. math:: y'(K^{-1} - K^{-1} H (H'K^{-1}H)^{-1} H'K^{-1}) y, \qquad
              \log\det K + \log\det(H'K^{-1}H),

    the exponent and the normaliser of the restricted likelihood, on N less as many directions as
    there are columns (A. O'Hagan, 1978).

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum.solve.dense import factorize_dense
    >>> gram = MeanSpaceGram(factorize_dense(np.eye(3)), np.ones((3, 1)))
    >>> round(float(gram.quadratic_form(np.array([1.0, 2.0, 3.0]))), 12), gram.n_informative
    (2.0, 2)
    """

    base: Gram = field(repr=False)
    columns: np.ndarray = field(repr=False)
    jitter: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "jitter", self.base.jitter)

    @property
    @override
    def n_informative(self) -> int:
        return self.base.n_informative - self.columns.shape[1]

    @property
    @override
    def log_det(self) -> float:
        return self.base.log_det + 2.0 * float(np.log(np.abs(np.diagonal(self._white[1]))).sum())

    @override
    def whiten(self, values: np.ndarray) -> np.ndarray:
        orthonormal = self._white[0]
        white = self.base.whiten(values)
        return white - (white @ orthonormal) @ orthonormal.T

    @cached_property
    def _white(self) -> tuple[np.ndarray, np.ndarray]:
        """Orthonormal and triangular factor of the whitened columns."""
        orthonormal, triangle = np.linalg.qr(self.base.whiten(self.columns.T).T)
        return orthonormal, triangle


@dataclass(frozen=True, eq=False)
class KrigingGram(MeanSpaceGram, InvertibleGram):
    """The same, for sums: its weights are those of universal kriging."""

    base: InvertibleGram = field(repr=False)

    @override
    def solve(self, vector: np.ndarray) -> np.ndarray:
        """Return what is left of K^-1 v once the columns are removed: orthogonal to all of them."""
        solved = self.base.solve(vector)
        return solved - self._solved @ np.linalg.solve(self._normal, self.columns.T @ solved)

    def weights(
        self, expected: np.ndarray, mean: np.ndarray, initial_error: float
    ) -> tuple[np.ndarray, float]:
        r"""Weights of least variance among those that are exact for the columns.

        .. math:: w = K^{-1} (\mu + H a), \qquad H'w = e, \qquad
                  V = V_0 - \mu'K^{-1}\mu + (e - H'K^{-1}\mu)' a

        with the columns' own expectations e, shape (P,), and the kernel's embedding: its mean mu at
        the nodes, shape (N,), and its initial error. Returns w and V.

        Examples
        --------
        >>> import numpy as np
        >>> from pymc_bayessum.solve.dense import factorize_dense
        >>> gram = KrigingGram(factorize_dense(np.eye(2)), np.ones((2, 1)))
        >>> gram.weights(np.ones(1), np.zeros(2), 0.0)
        (array([0.5, 0.5]), 0.5)
        """
        plain = self.base.solve(mean)
        short = expected - self.columns.T @ plain
        step = np.linalg.solve(self._normal, short)
        variance = float(initial_error - mean @ plain + short @ step)
        return plain + self._solved @ step, variance

    @cached_property
    def _solved(self) -> np.ndarray:
        return self.base.solve(self.columns)

    @cached_property
    def _normal(self) -> np.ndarray:
        return self.columns.T @ self._solved
