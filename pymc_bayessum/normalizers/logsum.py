r"""A signed log-sum on every backend: weights of either sign inside a logarithm.

.. math:: \log \sum_{i=1}^N s_i \exp(a_i + c_i)

Bayesian quadrature gives some negative weights. **Where the sum is not positive** the estimate does
not exist: the Op yields NaN, with a zero gradient, and :func:`~.node.normalized` turns that into a
log-probability of -inf, so that samplers turn back.
"""

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad, disconnected_type
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.null_type import NullType
from pytensor.graph.replace import _vectorize_node
from pytensor.tensor.symbolic import TensorSymbolicOp

__all__ = ["SignedLogSum", "sum_to"]


class SignedLogSum(TensorSymbolicOp):
    r"""Signed log-sum over the last axis, :math:`\log \sum_i s_i e^{a_i + c_i}`.

    Inputs are the terms ``a`` of shape (..., N), the logarithms ``c`` of the weights' absolute
    values and their signs ``s`` (each of a shape that broadcasts against ``a``), and with
    ``shifted`` a fourth of the batch shape.  The result has the dtype of ``a``.

    The largest term :math:`m = \max_i (a_i + c_i)` is taken out of the sum for stability.  A
    shift close to it, known in closed form, spares the pass over the terms that finds it, and
    then no array over rows and nodes has to be held.  The result does not depend on the shift,
    so no gradient flows through it.

    Terms with :math:`c_i = -\infty` (a zero weight) or :math:`a_i = -\infty` add nothing.  If all
    do the value is -inf with a zero gradient; if the sum is negative (or cancels to zero) the
    value is NaN with a zero gradient.  Derivatives of any order are those of the sum.

    It is a `SymbolicOp`: a named node until compilation, when it is inlined, so that every
    backend fuses it with what surrounds it.

    Examples
    --------
    >>> value = SignedLogSum()(np.zeros(3), np.log([1.0, 4.0, 2.0]), np.array([1.0, 1.0, -1.0]))
    >>> bool(np.isclose(value.eval(), np.log(3.0)))
    True
    """

    __props__ = ("shifted",)
    inline = True

    def __init__(self, *, shifted: bool = False, input_types=None, **kwargs):
        self.shifted = shifted
        super().__init__(input_types=input_types, **kwargs)

    @staticmethod
    def filter_inputs(a, log_weights, signs, *rest):
        """Cast the terms to a float type and the weights to the same."""
        a = pt.as_tensor_variable(a)
        if a.dtype not in {"float16", "float32", "float64"}:
            a = pt.cast(a, pytensor.config.floatX)
        weights = (_as_dtype(log_weights, a.dtype), _as_dtype(signs, a.dtype))
        return a, *weights, *(pt.as_tensor_variable(x) for x in rest)

    def build_inner_graph(self, a, log_weights, signs, *rest):
        """Write the sum in elementwise operations and reductions, which every backend has."""
        _, _, total, level, empty = self._scaled(a, log_weights, signs, *rest)
        positive = pt.gt(total, 0)
        value = pt.log(pt.switch(positive, total, 1)) + level
        return [pt.switch(positive, value, pt.switch(empty, -np.inf, np.nan)).astype(a.dtype)]

    def _scaled(self, a, log_weights, signs, *rest):
        """Return exp(a + c - level), with signs, its sum, the level, and if there are no terms."""
        terms = a + log_weights
        if self.shifted:
            level = disconnected_grad(pt.cast(rest[0], a.dtype))
        else:
            peak = disconnected_grad(pt.max(terms, axis=-1))
            # An infinite level would turn exp(-inf - level) into NaN.
            level = pt.switch(pt.isinf(peak), 0, peak)
        scaled = pt.exp(terms - level[..., None])
        signed = signs * scaled
        total = pt.sum(signed, axis=-1)
        empty = pt.eq(total, 0) if self.shifted else pt.eq(peak, -np.inf)
        return scaled, signed, total, level, empty

    def pullback(self, inputs, outputs, cotangents):
        """Return the softmax-like terms s_i exp(a_i + c_i) / Z times the cotangent.

        Written by hand for its form, a row factor times the exponentials of the forward pass:
        sums over the nodes that follow then take the factor out and join the forward loop.  A
        switch, as automatic differentiation leaves, would be in the way; dividing by infinity
        gives the same zero where there is no logarithm.
        """
        a, log_weights, signs, *rest = inputs
        scaled, signed, total, _, _ = self._scaled(a, log_weights, signs, *rest)
        factor = (cotangents[0] / pt.switch(pt.gt(total, 0), total, np.inf))[..., None]
        shares = factor * signed
        return [
            sum_to(shares, a),
            sum_to(shares, log_weights),
            sum_to(factor * scaled, signs),
            *(disconnected_type() for _ in rest),
        ]


@_vectorize_node.register(SignedLogSum)
def _vectorize_signed_log_sum(op, node, *batched):
    """Batch dimensions broadcast already: only line up the core dimensions on the right."""
    core_ndim = max(x.type.ndim for x in node.inputs[:3])
    wanted = [core_ndim] * 3 + ([core_ndim - 1] if op.shifted else [])
    aligned = [
        _pad_core(new, old.type.ndim, ndim)
        for new, old, ndim in zip(batched, node.inputs, wanted, strict=True)
    ]
    return op(*aligned).owner


def _pad_core(batched: Any, core_ndim: int, wanted: int) -> Any:
    """Insert axes of length one between the batch and the core dimensions."""
    n_batch = batched.type.ndim - core_ndim
    if n_batch == 0 or wanted <= core_ndim:
        return batched
    return pt.expand_dims(batched, tuple(range(n_batch, n_batch + wanted - core_ndim)))


def sum_to(gradient: Any, like: Any) -> Any:
    """Sum a gradient over the dimensions along which ``like`` was broadcast."""
    if isinstance(gradient.type, NullType):
        return gradient
    extra = gradient.type.ndim - like.type.ndim
    gradient = pt.sum(gradient, axis=tuple(range(extra))) if extra else gradient
    spread = tuple(
        axis
        for axis, (one, length) in enumerate(
            zip(like.type.broadcastable, gradient.type.shape, strict=True)
        )
        if one and length != 1
    )
    return pt.sum(gradient, axis=spread, keepdims=True) if spread else gradient


def _as_dtype(value: Any, dtype: str) -> Any:
    """Cast to ``dtype``, at once if it is data, so that the graph holds a plain constant."""
    if isinstance(value, Constant):
        value = value.data
    if isinstance(value, Variable):
        return pt.cast(value, dtype)
    return pt.as_tensor_variable(np.asarray(value, dtype=dtype))
