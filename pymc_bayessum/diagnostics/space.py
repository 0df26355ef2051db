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

    Shapes are read from a ``point``, which is ``start`` as a vector. Discrete variables have no
    place in it; they keep the values of the point, in ``fixed``.

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
        self.fixed, raveled = self._split(point)
        self.start, self._info = raveled.data, raveled.point_map_info

    def _split(self, point: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], RaveledVars]:
        """Return the values of discrete variables, and those of the others as a vector."""
        rvs = self.model.free_RVs
        given = [np.asarray(point[rv.name], dtype=rv.type.dtype) for rv in rvs]
        pairs = zip(self.model.value_vars, self._forward(*given), strict=True)
        values = {variable.name: np.asarray(value) for variable, value in pairs}
        moving = {v.name: values.pop(v.name) for v in self.model.continuous_value_vars}
        return values, DictToArrayBijection.map(moving)

    def vector(self, point: Mapping[str, Any]) -> np.ndarray:
        """Return the vector of a point."""
        return self._split(point)[1].data

    def value_vars(self, vector: np.ndarray) -> dict[str, np.ndarray]:
        """Return the values of the model's value variables at a vector."""
        return DictToArrayBijection.rmap(RaveledVars(vector, self._info)) | self.fixed

    def point(self, vector: np.ndarray) -> dict[str, np.ndarray]:
        """Return the values of the free variables at a vector."""
        values = self.value_vars(vector)
        outputs = self._backward(*[values[v.name] for v in self.model.value_vars])
        pairs = zip(self.model.free_RVs, outputs, strict=True)
        return {rv.name: value for rv, value in pairs}
