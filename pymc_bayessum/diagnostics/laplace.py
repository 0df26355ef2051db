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
import pytensor
from pymc.blocking import DictToArrayBijection, RaveledVars

from pymc_bayessum.diagnostics.evaluation import PLAIN

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
    start = _unconstrained(model, point)
    moving = {v.name for v in model.continuous_value_vars}
    fixed = {name: value for name, value in start.items() if name not in moving}
    center = DictToArrayBijection.map({n: v for n, v in start.items() if n in moving})
    directions = _posterior_axes(model, center, fixed)
    if directions is None:
        return None
    constrained = pytensor.function(
        model.value_vars,
        model.replace_rvs_by_values(model.free_RVs),
        on_unused_input="ignore",
        mode=PLAIN,
    )
    names = [rv.name for rv in model.free_RVs]

    def at(position: np.ndarray) -> float:
        values = DictToArrayBijection.rmap(RaveledVars(position, center.point_map_info)) | fixed
        outputs = constrained(*[values[v.name] for v in model.value_vars])
        return log_ratio(dict(zip(names, outputs, strict=True)))

    here = at(center.data)
    above = np.array([at(center.data + step) for step in directions])
    below = np.array([at(center.data - step) for step in directions])
    with np.errstate(invalid="ignore"):
        # What r adds may leave no curvature; the step is then long, not infinite.
        curvature = np.maximum(1.0 - (above + below - 2.0 * here), 0.05)
        steps = (above - below) / 2.0 / curvature
    shift = np.sqrt(len(center.data) / len(directions)) * np.linalg.norm(steps)
    return float(shift) if np.isfinite(shift) else np.inf


def _unconstrained(model: pm.Model, point: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the values of the model's value variables at a point."""
    forward = []
    for rv in model.free_RVs:
        transform = model.rvs_to_transforms[rv]
        forward.append(rv if transform is None else transform.forward(rv, *rv.owner.inputs))
    function = pytensor.function(model.free_RVs, forward, on_unused_input="ignore", mode=PLAIN)
    given = [np.asarray(point[rv.name], dtype=rv.type.dtype) for rv in model.free_RVs]
    return {
        model.rvs_to_values[rv].name: np.asarray(value)
        for rv, value in zip(model.free_RVs, function(*given), strict=True)
    }


def _posterior_axes(
    model: pm.Model, center: RaveledVars, fixed: Mapping[str, np.ndarray]
) -> np.ndarray | None:
    """Return steps of one posterior sd along the axes of the Laplace approximation, as rows."""
    gradient = model.compile_dlogp(jacobian=False, mode=PLAIN)

    def at(position: np.ndarray) -> np.ndarray:
        raveled = RaveledVars(position, center.point_map_info)
        return gradient(DictToArrayBijection.rmap(raveled) | dict(fixed))

    x = center.data
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
