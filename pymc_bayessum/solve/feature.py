"""The polynomial kernel solved in its own basis.

k(x, y) = (x y + 1)^r has r + 1 features sqrt(C(r, l)) x^l, so its Gram matrix has that rank at
most, and entries that span tens of orders of magnitude. In the polynomials q_k that are
orthonormal on the nodes, K = Q R R' Q' with R upper triangular: column l of R holds x^l in that
basis, found by multiplying with x again and again, which adds positive terms only.

With more nodes than features K is singular, and a jitter j stands in for it: as j falls to zero
the weights tend to the smallest that are exact for polynomials of degree r, and the variance
behaves like j |w|^2 while y'K^-1 y grows like 1 / j, so that their product, which is what an sd
is made of, has a limit: the residual of the polynomial fit.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.linalg import lstsq, qr, solve_triangular

from pymc_bayessum.measures import IntegerMeasure
from pymc_bayessum.solve.closed import listed_masses

__all__ = ["PolynomialGram", "polynomial_weights"]

#: Jitter of a singular Gram matrix, as a fraction of its mean diagonal.
RELATIVE_JITTER = 1e-14


@dataclass(frozen=True, eq=False)
class PolynomialGram:
    """The Gram matrix of (x y + 1)^degree on N distinct nodes.

    Parameters
    ----------
    basis : ndarray of shape (N, P)
        Polynomials orthonormal on the nodes, P the smaller of N and degree + 1.
    factor : ndarray of shape (P, P)
        Upper triangular U with K = basis U'U basis'.
    jitter : float
        Added to the diagonal where N exceeds P, else zero.

    Examples
    --------
    >>> import numpy as np
    >>> gram = PolynomialGram.of_nodes(np.array([0, 1]), 1)     # K = [[1, 1], [1, 2]]
    >>> round(float(gram.quadratic_form(np.array([1.0, 3.0]))), 12)
    5.0
    """

    basis: np.ndarray = field(repr=False)
    factor: np.ndarray = field(repr=False)
    jitter: float

    @classmethod
    def of_nodes(cls, nodes: np.ndarray, degree: int) -> "PolynomialGram":
        """Factorise on distinct numbers."""
        x = np.asarray(nodes, float)
        recurrence = Recurrence.of_nodes(x, min(len(x), degree + 1))
        factor = qr(recurrence.features(degree).T, mode="economic")[1]
        diagonal = np.mean((np.square(x) + 1.0) ** degree)
        jitter = RELATIVE_JITTER * float(diagonal) if len(x) > degree + 1 else 0.0
        return cls(recurrence.basis, factor, jitter)

    @property
    def n_informative(self) -> int:
        """Number of nodes."""
        return len(self.basis)

    @property
    def log_det(self) -> float:
        """Logarithm of det(K + jitter * I)."""
        known = 2.0 * float(np.log(np.abs(np.diagonal(self.factor))).sum())
        free = len(self.basis) - len(self.factor)
        return known + (free * math.log(self.jitter) if free else 0.0)

    def quadratic_form(self, values: np.ndarray) -> np.ndarray:
        """Return y' (K + jitter * I)^-1 y over the last axis of ``values``."""
        return np.square(self.whiten(values)).sum(axis=-1)

    def whiten(self, values: np.ndarray) -> np.ndarray:
        """Return a linear map of the last axis whose squares sum to the quadratic form."""
        y = np.asarray(values, float)
        fitted = y @ self.basis
        flat = fitted.reshape(-1, fitted.shape[-1]).T
        inner = solve_triangular(self.factor, flat, trans="T").T.reshape(fitted.shape)
        if not self.jitter:
            return inner
        rest = y - fitted @ self.basis.T
        return np.concatenate([inner, rest / math.sqrt(self.jitter)], axis=-1)


@dataclass(frozen=True, eq=False)
class Recurrence:
    """Three-term recurrence of the polynomials orthonormal on some nodes.

    Attributes
    ----------
    centre, scale : float
        The recurrence is in (x - centre) / scale.
    alpha, beta : ndarray of shape (P,)
        q_(k+1) = ((s - alpha_k) q_k - beta_k q_(k-1)) / beta_(k+1), q_0 = 1 / sqrt(N).
    basis : ndarray of shape (N, P)
        The polynomials at the nodes.
    """

    centre: float
    scale: float
    alpha: np.ndarray = field(repr=False)
    beta: np.ndarray = field(repr=False)
    basis: np.ndarray = field(repr=False)

    @classmethod
    def of_nodes(cls, x: np.ndarray, count: int) -> "Recurrence":
        """Lanczos process with the nodes on the diagonal."""
        centre, scale = 0.5 * (x.min() + x.max()), max(0.5 * float(np.ptp(x)), 1.0)
        s = (x - centre) / scale
        basis = np.zeros((len(x), count))
        basis[:, 0] = 1.0 / math.sqrt(len(x))
        alpha, beta = np.zeros(count), np.zeros(count)
        for k in range(count):
            rest = s * basis[:, k]
            alpha[k] = rest @ basis[:, k]
            if k + 1 == count:
                break
            for _ in range(2):  # twice is enough to stay orthogonal
                rest = rest - basis[:, : k + 1] @ (rest @ basis[:, : k + 1])
            beta[k + 1] = np.linalg.norm(rest)
            basis[:, k + 1] = rest / beta[k + 1]
        return cls(float(centre), scale, alpha, beta, basis)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        """Return the polynomials at other points, shape (M, P)."""
        s = (np.asarray(x, float) - self.centre) / self.scale
        out = np.zeros((len(s), len(self.alpha)))
        out[:, 0] = self.basis[0, 0]
        for k in range(len(self.alpha) - 1):
            below = out[:, k - 1] if k else 0.0
            step = (s - self.alpha[k]) * out[:, k] - self.beta[k] * below
            out[:, k + 1] = step / self.beta[k + 1]
        return out

    def features(self, degree: int) -> np.ndarray:
        """Return R: the features sqrt(C(degree, l)) x^l in this basis, shape (P, degree + 1)."""
        count = len(self.alpha)
        off = self.scale * self.beta[1:]
        times_x = (
            np.diag(self.centre + self.scale * self.alpha) + np.diag(off, 1) + np.diag(off, -1)
        )
        power = np.zeros(count)
        power[0] = 1.0 / self.basis[0, 0]
        columns = []
        for exponent in range(degree + 1):
            columns.append(math.sqrt(math.comb(degree, exponent)) * power)
            power = times_x @ power
        return np.stack(columns, axis=1)


def polynomial_weights(
    nodes: np.ndarray, measure: IntegerMeasure, degree: int
) -> dict[str, Any] | None:
    """Weights, posterior variance and Gram matrix of the polynomial kernel.

    Parameters
    ----------
    nodes : ndarray of shape (N,)
        Distinct integers.
    measure : IntegerMeasure
    degree : int

    Returns
    -------
    dict or None
        ``weights``, ``variance`` and ``gram``; ``None`` when the measure cannot be listed.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum.measures import Poisson
    >>> rule = polynomial_weights(np.arange(0, 30, 3), Poisson(9.0), 2)
    >>> bool(abs(rule["weights"] @ np.arange(0, 30, 3) ** 2 - 90.0) < 1e-10)
    True
    """
    listed = listed_masses(measure, int(nodes.max()), growth=2.0 * degree)
    if listed is None:
        return None
    x, mass = listed[0].astype(float), np.exp(listed[1])
    gram = PolynomialGram.of_nodes(nodes, degree)
    recurrence = Recurrence.of_nodes(nodes.astype(float), min(len(nodes), degree + 1))
    if len(nodes) > degree:
        weights = gram.basis @ (mass @ recurrence.evaluate(x))
        return {
            "weights": weights,
            "variance": gram.jitter * float(weights @ weights),
            "gram": gram,
        }
    moments = [math.sqrt(math.comb(degree, k)) * float(mass @ x**k) for k in range(degree + 1)]
    features = recurrence.features(degree)
    solution = lstsq(features.T, np.array(moments), lapack_driver="gelsy")[0]
    left = np.array(moments) - features.T @ solution
    return {"weights": gram.basis @ solution, "variance": float(left @ left), "gram": gram}
