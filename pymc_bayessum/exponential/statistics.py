"""Statistics of a family as a node of a graph: data that may change, and draws of a predictive."""

from typing import Any

import numba
import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.link.jax.ops import JAXOp
from pytensor.link.numba.dispatch.basic import numba_funcify, numba_njit

__all__ = ["Statistics", "numeric_statistics"]


def numeric_statistics(family: Any, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Statistics of values (..., *state) as (..., d), and which of them are states at all (...).

    Statistics are zero for what is no state.

    Examples
    --------
    >>> import pymc_bayessum as pbs
    >>> family = pbs.Family(lambda x: x.sum(axis=1, keepdims=True), sites=2, n_states=2)
    >>> numeric_statistics(family, np.array([[1, 1], [0, 2]]))[1].tolist()
    [True, False]
    """
    n_core = len(family.state_shape)
    batch = values.shape[: values.ndim - n_core]
    rows = values.reshape(-1, *family.state_shape)
    valid = family.valid(rows)
    found = np.zeros((len(rows), family.n_statistics))
    if valid.any():
        found[valid] = family.statistics(family.encode(rows[valid]))
    return found.reshape(*batch, -1), valid.reshape(batch)


class Statistics(JAXOp):
    """Statistics of values (..., *state) and whether they are states: (..., d) and (...).

    The family has ``state_shape``, ``n_statistics``, ``valid``, ``encode`` and ``statistics``.
    """

    __props__: Any = ("family",)
    name = None

    def __init__(self, family: Any) -> None:
        # Not JAXOp's own, which imports JAX to compile the function it is given.
        self.family = family

    def make_node(self, *inputs: Any) -> Apply:
        """Types of both outputs follow from the value's."""
        value = pt.as_tensor_variable(inputs[0])
        batch = value.type.shape[: value.type.ndim - len(self.family.state_shape)]
        found = pt.tensor(dtype="float64", shape=(*batch, self.family.n_statistics))
        return Apply(self, [value], [found, pt.tensor(dtype="bool", shape=batch)])

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Evaluate the family's function."""
        found, valid = numeric_statistics(self.family, np.asarray(inputs[0]))
        outputs[0][0], outputs[1][0] = found, np.asarray(valid)

    def perform_jax(self, value: Any) -> Any:
        """Have the function evaluated on the host."""
        import jax

        batch = value.shape[: value.ndim - len(self.family.state_shape)]
        found = jax.ShapeDtypeStruct((*batch, self.family.n_statistics), "float64")
        valid = jax.ShapeDtypeStruct(batch, "bool")

        def on_host(values: Any) -> tuple[np.ndarray, np.ndarray]:
            return numeric_statistics(self.family, np.asarray(values))

        return jax.pure_callback(on_host, (found, valid), value, vmap_method="sequential")

    def infer_shape(self, node: Apply, shapes: Any) -> list[Any]:
        """Shapes without an evaluation."""
        batch = shapes[0][: len(shapes[0]) - len(self.family.state_shape)]
        return [(*batch, self.family.n_statistics), tuple(batch)]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """States are discrete: nothing is differentiated through them."""
        return [[False, False]]


@numba_funcify.register(Statistics)
def _numba_statistics(op: Statistics, node: Apply, **kwargs: Any) -> Any:
    found_type, valid_type = (
        numba.types.Array(dtype, variable.type.ndim, "C")
        for dtype, variable in zip((numba.float64, numba.boolean), node.outputs, strict=True)
    )
    family = op.family

    def evaluate(value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found, valid = numeric_statistics(family, value)
        return np.ascontiguousarray(found), np.array(valid)

    @numba_njit
    def statistics(value):
        with numba.objmode(found=found_type, valid=valid_type):
            found, valid = evaluate(value)
        return found, valid

    return statistics
