r"""How far a mode moves when the log-probability is replaced by a better one.

At a mode :math:`\hat x` of log p with negative Hessian H, the mode of :math:`\log p + r` lies about
one Newton step away, :math:`(H - \nabla^2 r)^{-1} \nabla r`.  In coordinates in which the Laplace
approximation is standard normal its length counts posterior standard deviations; there the
derivatives of r are taken from steps of one sd to either side, axis by axis.

A search may stop short of a mode without saying so. The Newton step of log p itself tells: its
length is how many posterior standard deviations are left.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm

from pymc_bayessum.diagnostics.space import Space
from pymc_bayessum.normalizers.interpreted import PLAIN

__all__ = ["Laplace"]

#: Directions in which the gradient is taken; where there are more, these stand for all.
MOST_DIRECTIONS = 50


@dataclass(frozen=True)
class Laplace:
    """The Laplace approximation of a posterior about a point, as ``pm.find_MAP`` returns it.

    Rows of ``axes`` are steps of one posterior sd in the unconstrained space, and ``gradient`` is
    that of the log-probability without the Jacobian of transforms, which ``pm.find_MAP`` climbs.

    Examples
    --------
    >>> import pymc as pm
    >>> with pm.Model() as model:
    ...     x = pm.Normal("x", sigma=2.0)
    >>> round(Laplace.at({"x": 3.0}, model).distance, 6)
    1.5
    >>> round(Laplace.at({"x": 0.0}, model).shift(lambda at: 0.25 * float(at["x"])), 6)
    0.5
    """

    space: Space
    axes: np.ndarray
    gradient: np.ndarray

    @classmethod
    def at(cls, point: Mapping[str, Any], model: pm.Model) -> "Laplace | None":
        """Return the approximation, or None where the curvature is not that of a mode."""
        space = Space(model, point)
        compiled = model.compile_dlogp(jacobian=False, mode=PLAIN)

        def gradient(position: np.ndarray) -> np.ndarray:
            return compiled(space.value_vars(position))

        x = space.start
        steps = 1e-5 * (1.0 + np.abs(x))
        hessian = np.empty((len(x), len(x)))
        for i, step in enumerate(np.diag(steps)):
            hessian[i] = (gradient(x + step) - gradient(x - step)) / (2.0 * steps[i])
        if not np.isfinite(hessian).all():
            return None
        values, vectors = np.linalg.eigh(-(hessian + hessian.T) / 2.0)
        if values[0] <= 1e-12 * values[-1]:
            return None
        return cls(space, (vectors / np.sqrt(values)).T, gradient(x))

    @property
    def distance(self) -> float:
        """How many posterior sds the mode is away from the point."""
        return float(np.linalg.norm(self.axes @ self.gradient))

    def shift(self, log_ratio: Callable[[Mapping[str, np.ndarray]], float]) -> float:
        """Return by how many sds the mode moves when a log ratio is added to the logp."""
        axes, start = self.axes, self.space.start
        if len(axes) > MOST_DIRECTIONS:
            axes = np.random.default_rng(0).permutation(axes)[:MOST_DIRECTIONS]

        def at(position: np.ndarray) -> float:
            return log_ratio(self.space.point(position))

        here = at(start)
        above = np.array([at(start + step) for step in axes])
        below = np.array([at(start - step) for step in axes])
        with np.errstate(invalid="ignore"):
            # What r adds may leave no curvature; the step is then long, not infinite.
            curvature = np.maximum(1.0 - (above + below - 2.0 * here), 0.05)
            steps = (above - below) / 2.0 / curvature
        shift = np.sqrt(len(start) / len(axes)) * np.linalg.norm(steps)
        return float(shift) if np.isfinite(shift) else np.inf
