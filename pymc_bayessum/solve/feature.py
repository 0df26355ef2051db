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
from functools import cached_property
from typing import override

import numpy as np
from scipy.linalg import lstsq, qr, solve_triangular

from pymc_bayessum.kernels import Polynomial
from pymc_bayessum.measures import IntegerMeasure
from pymc_bayessum.measures.supports import Points
from pymc_bayessum.solve.gram import Gram
from pymc_bayessum.solve.panels import lanczos
from pymc_bayessum.solve.registry import Solution, register

__all__ = ["PolynomialGram"]

#: Jitter of a singular Gram matrix, as a fraction of its mean diagonal.
RELATIVE_JITTER = 1e-14


@dataclass(frozen=True, eq=False)
class PolynomialGram(Gram):
    """The Gram matrix K = Q U'U Q' of (x y + 1)^degree on N distinct nodes.

    Q, the ``basis`` (N, P), holds the polynomials orthonormal on the nodes, P the smaller of N and
    degree + 1: q_(k+1) = ((s - alpha_k) q_k - beta_k q_(k-1)) / beta_(k+1) in
    s = (x - centre) / scale, begun with q_0 = 1 / sqrt(N). The jitter is zero unless N exceeds P.

    Examples
    --------
    >>> import numpy as np
    >>> gram = PolynomialGram.of_nodes(np.array([0, 1]), 1)     # K = [[1, 1], [1, 2]]
    >>> round(float(gram.quadratic_form(np.array([1.0, 3.0]))), 12)
    5.0
    """

    degree: int
    centre: float
    scale: float
    alpha: np.ndarray = field(repr=False)
    beta: np.ndarray = field(repr=False)
    basis: np.ndarray = field(repr=False)
    jitter: float

    @classmethod
    def of_nodes(cls, nodes: np.ndarray, degree: int) -> "PolynomialGram":
        """Factorise on distinct numbers, by the Lanczos process with them on the diagonal."""
        x = np.asarray(nodes, float)
        centre, scale = 0.5 * (x.min() + x.max()), max(0.5 * float(np.ptp(x)), 1.0)
        start = np.full(len(x), 1.0 / math.sqrt(len(x)))
        recurrence = lanczos((x - centre) / scale, start, min(len(x), degree + 1))
        diagonal = np.mean((np.square(x) + 1.0) ** degree)
        jitter = RELATIVE_JITTER * float(diagonal) if len(x) > degree + 1 else 0.0
        return cls(degree, float(centre), scale, *recurrence, jitter)

    @cached_property
    def features(self) -> np.ndarray:
        """R: the features sqrt(C(degree, l)) x^l in the basis, shape (P, degree + 1)."""
        off = self.scale * self.beta[1:]
        times_x = (
            np.diag(self.centre + self.scale * self.alpha) + np.diag(off, 1) + np.diag(off, -1)
        )
        power = np.zeros(len(self.alpha))
        power[0] = 1.0 / self.basis[0, 0]
        columns = []
        for exponent in range(self.degree + 1):
            columns.append(math.sqrt(math.comb(self.degree, exponent)) * power)
            power = times_x @ power
        return np.stack(columns, axis=1)

    @cached_property
    def factor(self) -> np.ndarray:
        """U, upper triangular with U'U = R R', shape (P, P)."""
        return qr(self.features.T, mode="economic")[1]

    @property
    @override
    def n_informative(self) -> int:
        return len(self.basis)

    @property
    @override
    def log_det(self) -> float:
        known = 2.0 * float(np.log(np.abs(np.diagonal(self.factor))).sum())
        free = len(self.basis) - len(self.factor)
        return known + (free * math.log(self.jitter) if free else 0.0)

    @override
    def whiten(self, values: np.ndarray) -> np.ndarray:
        y = np.asarray(values, float)
        fitted = y @ self.basis
        flat = fitted.reshape(-1, fitted.shape[-1]).T
        inner = solve_triangular(self.factor, flat, trans="T").T.reshape(fitted.shape)
        if not self.jitter:
            return inner
        rest = y - fitted @ self.basis.T
        return np.concatenate([inner, rest / math.sqrt(self.jitter)], axis=-1)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        """Return the orthonormal polynomials at other points, shape (M, P)."""
        s = (np.asarray(x, float) - self.centre) / self.scale
        out = np.zeros((len(s), len(self.alpha)))
        out[:, 0] = self.basis[0, 0]
        for k in range(len(self.alpha) - 1):
            below = out[:, k - 1] if k else 0.0
            step = (s - self.alpha[k]) * out[:, k] - self.beta[k] * below
            out[:, k + 1] = step / self.beta[k + 1]
        return out


@register(Polynomial, IntegerMeasure)
def solve_polynomial(
    kernel: Polynomial, measure: IntegerMeasure | None, points: Points, jitter: float | None
) -> Solution | None:
    """Solve in the orthonormal polynomials; ``None`` when the measure cannot be listed."""
    nodes = np.asarray(points)
    if jitter is not None or nodes.ndim != 1:
        return None
    degree = kernel.degree
    gram = PolynomialGram.of_nodes(nodes, degree)
    if measure is None:
        return Solution(gram)
    listed = measure.listed(int(nodes.max()), growth=2.0 * degree)
    if listed is None:
        return None
    x, mass = listed[0].astype(float), np.exp(listed[1])
    if len(nodes) > degree:
        weights = gram.basis @ (mass @ gram.evaluate(x))
        return Solution(gram, weights, gram.jitter * float(weights @ weights))
    moments = [math.sqrt(math.comb(degree, k)) * float(mass @ x**k) for k in range(degree + 1)]
    solution = lstsq(gram.features.T, np.array(moments), lapack_driver="gelsy")[0]
    left = np.array(moments) - gram.features.T @ solution
    return Solution(gram, gram.basis @ solution, float(left @ left))
