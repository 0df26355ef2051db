"""Processes on the line that solve a linear differential equation driven by white noise."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from pymc_bayessum.kernels import IntegratedBrownian, Matern

__all__ = ["MarkovProcess"]


@dataclass(frozen=True)
class MarkovProcess:
    """The process f with (D + rate)^n f = sqrt(intensity) * white noise in t = warp(x).

    The rate is zero for integrated Brownian motion. ``unwarp`` is the inverse of the increasing map
    ``warp``, ``None`` when unknown.
    """

    n: int
    rate: float
    intensity: float
    warp: Callable[[np.ndarray], np.ndarray] = field(repr=False)
    unwarp: Callable[[np.ndarray], np.ndarray] | None = field(repr=False)
    is_linear: bool = True

    @classmethod
    def of_spline(cls, kernel: IntegratedBrownian) -> "MarkovProcess":
        """Integrated Brownian motion, with a free polynomial."""
        scale = kernel.scale
        return cls(
            kernel.order + 1, 0.0, 1.0, lambda x: np.asarray(x, float) / scale, lambda t: t * scale
        )

    @classmethod
    def of_matern(cls, kernel: Matern) -> "MarkovProcess":
        """Take the stationary process of a Matérn kernel."""
        n = round(kernel.nu + 0.5)
        intensity = (2.0 * kernel.rate) ** (2 * n - 1) / math.comb(2 * n - 2, n - 1)
        linear = kernel.transform is None
        unwarp: Callable[[np.ndarray], np.ndarray] | None = np.asarray if linear else None
        if kernel.transform == "sqrt":
            unwarp = lambda t: np.square(0.5 * np.asarray(t))  # noqa: E731
        return cls(n, kernel.rate, intensity, kernel.warp, unwarp, linear)

    @property
    def is_free(self) -> bool:
        """Whether polynomials of degree n - 1 are left free (the process has no start)."""
        return self.rate == 0.0

    @property
    def state_covariance(self) -> np.ndarray:
        """Stationary covariance of (D + rate)^j f, j < n: a scaled Pascal matrix, shape (n, n)."""
        m = self.n - 1
        j = np.arange(self.n)
        up = 2 * m - j[:, None] - j
        binomial = np.array([[math.comb(2 * m - a - b, m - a) for b in j] for a in j], dtype=float)
        return self.intensity * binomial / (2.0 * self.rate) ** (up + 1)
