"""Parameters and data of a graph model: checked, stacked into a vector, and asked for log Z."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_bayessum.graphs.statistics import PottsLayout, potts_layout
from pymc_bayessum.normalizers.anchored.estimated import Estimated
from pymc_bayessum.normalizers.node import log_z

__all__ = [
    "GraphEstimate",
    "data_rows",
    "model_layout",
    "numeric_parameters",
    "symbolic_parameters",
]


class GraphEstimate:
    """An estimate of log Z, a function of parameter vectors, asked by fields and couplings."""

    def log_z(self: Any, h: Any, J: Any) -> Variable:
        """Symbolic log Z.

        Parameters
        ----------
        h, J : TensorVariable or array_like
            In the shapes of ``layout``, with optional leading batch dimensions.
        """
        return log_z(Estimated(self), symbolic_parameters(self.layout, h, J))

    def value(self: Any, h: Any, J: Any) -> float:
        """Log Z at numeric parameters."""
        return float(self.log_z_at(np, numeric_parameters(self.layout, h, J)))


def symbolic_parameters(layout: PottsLayout, h: Any, J: Any) -> Variable:
    """Stack parameters, symbolic or not, into a tensor (..., d)."""
    return pt.as_tensor_variable(layout.flatten(h, J))


def numeric_parameters(layout: PottsLayout, h: Any, J: Any) -> np.ndarray:
    """Check numeric parameters of one model against its layout and stack them, shape (d,)."""
    h = np.zeros(()) if h is None else np.asarray(h, dtype=float)
    J = np.zeros(()) if J is None else np.asarray(J, dtype=float)
    for name, value, shape, kind in (
        ("h", h, layout.field_shape, layout.field_kind),
        ("J", J, layout.coupling_shape, layout.coupling_kind),
    ):
        if kind != "none" and value.shape != shape:
            raise ValueError(f"{name} must have shape {shape}, got {value.shape}")
    return layout.flatten(h, J)


def model_layout(h: Any, J: Any, edges: Any, **about: Any) -> tuple[PottsLayout, np.ndarray]:
    """Layout and parameter vector (d,) of a model given by numbers, as for `potts_layout`."""
    layout, h, J = potts_layout(h, J, edges, **about)
    theta = numeric_parameters(layout, h, J)
    if not np.isfinite(theta).all():
        raise ValueError("h and J must hold finite numbers only")
    return layout, theta


def data_rows(layout: PottsLayout, rows: Any) -> np.ndarray:
    """Check data rows, in the alphabet of the model, and return them as integers (n, L)."""
    array = np.asarray(rows)
    if array.ndim != 2 or array.shape[1] != layout.n_sites or len(array) == 0:
        raise ValueError(f"observed rows must have shape (n, {layout.n_sites}), got {array.shape}")
    if not np.array_equal(array, np.floor(array)) or not layout.valid(array).all():
        allowed = "-1 and +1" if layout.spins else f"0 .. {layout.n_states - 1}"
        raise ValueError(f"observed rows hold states out of range, allowed: {allowed}")
    return array.astype(np.int64)
