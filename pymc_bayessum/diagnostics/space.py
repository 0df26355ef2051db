"""The unconstrained space of a model: where steps of a posterior sd stay inside the support."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
import pytensor
from pymc.blocking import DictToArrayBijection, RaveledVars

from pymc_bayessum.normalizers.interpreted import PLAIN

__all__ = ["Space"]


class Space:
    """Maps values of a model's free variables to vectors and back.

    Discrete variables have no place in the vector; they keep the values of ``point``.

    Parameters
    ----------
    model : pm.Model
    point : mapping of str to value
        Values of the free variables: shapes are read from it.

    Attributes
    ----------
    start : ndarray
        The point as a vector.

    Examples
    --------
    >>> import pymc as pm
    >>> with pm.Model() as model:
    ...     scale = pm.HalfNormal("scale")
    >>> space = Space(model, {"scale": 2.0})
    >>> round(float(space.start[0]), 4), round(float(space.point(space.start)["scale"]), 4)
    (0.6931, 2.0)
    """

    def __init__(self, model: pm.Model, point: Mapping[str, Any]):
        self.model = model
        self.names = [rv.name for rv in model.free_RVs]
        moved = [model.rvs_to_transforms[rv] for rv in model.free_RVs]
        forward = [
            rv if transform is None else transform.forward(rv, *rv.owner.inputs)
            for rv, transform in zip(model.free_RVs, moved, strict=True)
        ]
        options: dict[str, Any] = {"on_unused_input": "ignore", "mode": PLAIN}
        self._forward = pytensor.function(model.free_RVs, forward, **options)
        self._backward = pytensor.function(
            model.value_vars, model.replace_rvs_by_values(model.free_RVs), **options
        )
        self._moving = {v.name for v in model.continuous_value_vars}
        values = self._values(point)
        self.fixed = {name: value for name, value in values.items() if name not in self._moving}
        raveled = DictToArrayBijection.map({n: v for n, v in values.items() if n in self._moving})
        self.start, self._info = raveled.data, raveled.point_map_info

    def _values(self, point: Mapping[str, Any]) -> dict[str, np.ndarray]:
        rvs = self.model.free_RVs
        given = [np.asarray(point[rv.name], dtype=rv.type.dtype) for rv in rvs]
        values = self._forward(*given)
        return {
            self.model.rvs_to_values[rv].name: np.asarray(value)
            for rv, value in zip(rvs, values, strict=True)
        }

    def vector(self, point: Mapping[str, Any]) -> np.ndarray:
        """Return the vector of a point."""
        values = self._values(point)
        return DictToArrayBijection.map({n: v for n, v in values.items() if n in self._moving}).data

    def value_vars(self, vector: np.ndarray) -> dict[str, np.ndarray]:
        """Return the values of the model's value variables at a vector."""
        return DictToArrayBijection.rmap(RaveledVars(vector, self._info)) | self.fixed

    def point(self, vector: np.ndarray) -> dict[str, np.ndarray]:
        """Return the values of the free variables at a vector."""
        values = self.value_vars(vector)
        outputs = self._backward(*[values[v.name] for v in self.model.value_vars])
        return dict(zip(self.names, outputs, strict=True))
