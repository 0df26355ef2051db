r"""Products with constant matrices, and log-sums over many nodes with their gradient.

.. math:: \log \sum_n e^{c \cdot \psi_n + w_n}

With hundreds of parameters the rows :math:`\psi_n` are tens of megabytes, and reading them is what
a value costs. One pass reads each once: the terms so far are kept relative to the largest, and with
them the sum of the rows that is the gradient.
"""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from numba import njit
from pytensor.gradient import DisconnectedType, disconnected_grad, disconnected_type
from pytensor.graph.basic import Apply, Variable
from pytensor.link.jax.ops import JAXOp
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key

__all__ = ["NodeSum", "log_sum", "product"]

#: Length up to which sums of products are written out term by term.
UNROLLED = 8
#: Numbers of statistics from which on memory is what counts.
LARGE = 200_000
#: Changes with the compiled pass, which is kept on disk.
VERSION = 1


def product(xp: Any, left: Any, right: np.ndarray) -> Any:
    """Product over the last axis of ``left`` and the first of a constant vector or matrix.

    Symbolic ones are written as sums of products, which fuse with what follows: as fast as a call
    of BLAS for one vector, and compiled in a tenth of the time.

    Examples
    --------
    >>> product(np, np.array([1.0, 2.0]), np.eye(2)).tolist()
    [1.0, 2.0]
    """
    if xp is np:
        return np.dot(left, right)
    if 0 < len(right) <= UNROLLED:
        columns = [
            left[..., k] if right.ndim == 1 else left[..., k, None] for k in range(len(right))
        ]
        terms = [column * row for column, row in zip(columns, right, strict=True)]
        return sum(terms[1:], start=terms[0])
    if right.ndim == 1:
        return pt.sum(left * right, axis=-1)
    return pt.sum(left[..., None, :] * np.ascontiguousarray(right.T), axis=-1)


def log_sum(xp: Any, point: Any, rows: np.ndarray, log_weights: np.ndarray) -> Any:
    """Log-sum (...) over nodes (N, r) at coordinates (..., r); ``xp`` is NumPy or PyTensor.

    Examples
    --------
    >>> float(log_sum(pt, pt.zeros(2), np.eye(2), np.log([1.0, 2.0])).exp().eval().round(12))
    3.0
    """
    if xp is np or rows.size < LARGE:
        terms = product(xp, point, rows.T) + log_weights
        peak = xp.max(terms, axis=-1, keepdims=True)
        peak = disconnected_grad(peak) if xp is pt else peak
        return xp.log(xp.sum(xp.exp(terms - peak), axis=-1)) + peak[..., 0]
    short = rows.astype(np.float32, order="C")
    nodes = short if (short == rows).all() else np.ascontiguousarray(rows)
    return pt.vectorize(
        lambda one: NodeSum().make_node(one, nodes, log_weights).outputs[0], "(r)->()"
    )(point)


class NodeSum(JAXOp):
    """Log-sum over nodes, and the mean of their rows by their shares in it: its gradient.

    Inputs are coordinates (r,), rows (N, r) and the logarithms of weights (N,).

    Examples
    --------
    >>> value, mean = NodeSum()(np.zeros(2), np.eye(2), np.log([1.0, 3.0]))
    >>> mean.eval().round(12).tolist()
    [0.25, 0.75]
    """

    __props__: tuple[str, ...] = ()  # type: ignore[assignment]  # PyTensor's () is taken for the type
    name = None
    gufunc_signature = "(r),(n,r),(n)->(),(r)"

    def __init__(self) -> None:
        # Not JAXOp's own, which imports JAX to compile the function it is given.
        super(JAXOp, self).__init__()

    def make_node(self, *inputs: Any) -> Apply:
        """Take coordinates, rows and weights."""
        point, rows, weights = (pt.as_tensor_variable(value) for value in inputs)
        point = pt.cast(point, "float64")
        return Apply(self, [point, rows, weights], [pt.dscalar(), point.type()])

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Run the pass."""
        point, rows, weights = inputs
        mean = np.empty(len(point))
        output_storage[0][0] = np.asarray(_one_pass(point, rows, weights, mean))
        output_storage[1][0] = mean

    def perform_jax(self, point: Any, rows: Any, weights: Any) -> Any:
        """Write it for JAX, which differentiates it."""
        import jax.numpy as jnp
        from jax.nn import logsumexp, softmax

        terms = jnp.asarray(rows, point.dtype) @ point + weights
        return logsumexp(terms), softmax(terms) @ jnp.asarray(rows, point.dtype)

    def infer_shape(self, node: Apply, shapes: Any) -> list[tuple[Any, ...]]:
        """Return the shapes of a number and of the coordinates."""
        return [(), shapes[0]]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Rows and weights are constants."""
        return [[True, True], [False, False], [False, False]]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        """Return the mean times the first cotangent, and the covariance times the second."""
        point, rows, weights = inputs
        value, mean = self.make_node(*inputs).outputs
        to_value, to_mean = cotangents
        back = point.zeros_like()
        if not isinstance(to_value.type, DisconnectedType):
            back = back + to_value * mean
        if not isinstance(to_mean.type, DisconnectedType):
            shares = pt.exp(rows @ point + weights - value)
            back = back + (shares * (rows @ to_mean - mean @ to_mean)) @ rows
        return [back, disconnected_type(), disconnected_type()]


@register_funcify_default_op_cache_key(NodeSum)
def _numba_node_sum(op: NodeSum, **kwargs: Any) -> Any:
    @numba_njit
    def node_sum(point, rows, weights):
        mean = np.empty(len(point))
        value = _one_pass(np.ascontiguousarray(point), rows, weights, mean)
        return np.asarray(value), mean

    return node_sum, VERSION


# Sums may be taken in any order; infinities and NaN are as they are.
@njit(cache=True, error_model="numpy", nogil=True, fastmath={"reassoc", "contract"})
def _one_pass(point, rows, log_weights, mean):
    """Write the mean and return the log-sum."""
    n, size = rows.shape
    peak, total = -np.inf, 0.0
    mean[:] = 0.0
    for k in range(n):
        term = log_weights[k]
        for j in range(size):
            term += rows[k, j] * point[j]
        if term > peak:
            shrink = np.exp(peak - term)
            total *= shrink
            for j in range(size):
                mean[j] *= shrink
            peak = term
        share = np.exp(term - peak)
        total += share
        for j in range(size):
            mean[j] += share * rows[k, j]
    for j in range(size):
        mean[j] /= total
    return peak + np.log(total)
