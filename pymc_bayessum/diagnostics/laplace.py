r"""How far a mode moves when the log-probability is replaced by a better one.

At a mode :math:`\hat x` of log p with negative Hessian H, the mode of :math:`\log p + r` lies about
one Newton step away, :math:`(H - \nabla^2 r)^{-1} \nabla r`.  In coordinates in which the Laplace
approximation is standard normal its length counts posterior standard deviations; there the
derivatives of r are taken from steps of one sd to either side, axis by axis.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pymc as pm

from pymc_bayessum.diagnostics.evaluation import PLAIN
from pymc_bayessum.diagnostics.space import Space

__all__ = ["mode_shift"]

#: Directions in which the gradient is taken; where there are more, these stand for all.
MOST_DIRECTIONS = 50


def mode_shift(
    model: pm.Model,
    point: Mapping[str, Any],
    log_ratio: Callable[[Mapping[str, np.ndarray]], float],
) -> float | None:
    """Return by how many posterior sds the mode of a model moves.

    Parameters
    ----------
    model : pm.Model
    point : mapping of str to value
        A mode, as ``pm.find_MAP`` returns it: values of the free variables.
    log_ratio : callable
        What is added to the log-probability, a function of the values of the free variables.

    Returns
    -------
    float or None
        None where the curvature at the point is not that of a mode.

    Examples
    --------
    >>> import pymc as pm
    >>> with pm.Model() as model:
    ...     x = pm.Normal("x", sigma=2.0)
    >>> round(mode_shift(model, {"x": 0.0}, lambda at: 0.25 * float(at["x"])), 6)
    0.5
    """
    space = Space(model, point)
    directions = _posterior_axes(space)
    if directions is None:
        return None

    def at(position: np.ndarray) -> float:
        return log_ratio(space.point(position))

    here = at(space.start)
    above = np.array([at(space.start + step) for step in directions])
    below = np.array([at(space.start - step) for step in directions])
    with np.errstate(invalid="ignore"):
        # What r adds may leave no curvature; the step is then long, not infinite.
        curvature = np.maximum(1.0 - (above + below - 2.0 * here), 0.05)
        steps = (above - below) / 2.0 / curvature
    shift = np.sqrt(len(space.start) / len(directions)) * np.linalg.norm(steps)
    return float(shift) if np.isfinite(shift) else np.inf


def _posterior_axes(space: Space) -> np.ndarray | None:
    """Return steps of one posterior sd along the axes of the Laplace approximation, as rows."""
    gradient = space.model.compile_dlogp(jacobian=False, mode=PLAIN)

    def at(position: np.ndarray) -> np.ndarray:
        return gradient(space.value_vars(position))

    x = space.start
    steps = 1e-5 * (1.0 + np.abs(x))
    hessian = np.empty((len(x), len(x)))
    for i, step in enumerate(np.diag(steps)):
        hessian[i] = (at(x + step) - at(x - step)) / (2.0 * steps[i])
    if not np.isfinite(hessian).all():
        return None
    values, vectors = np.linalg.eigh(-(hessian + hessian.T) / 2.0)
    if values[0] <= 1e-12 * values[-1]:
        return None
    axes = (vectors / np.sqrt(values)).T
    if len(axes) <= MOST_DIRECTIONS:
        return axes
    return np.random.default_rng(0).permutation(axes)[:MOST_DIRECTIONS]
