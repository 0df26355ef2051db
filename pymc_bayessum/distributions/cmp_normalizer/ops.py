"""PyTensor Ops for the Conway-Maxwell-Poisson normaliser, with derivatives of every order needed.

Each Op returns values together with their first derivatives, which come out of the same sums, so
that a log-probability and its gradient cost one pass. Derivatives of derivatives are asked of an
Op of one order more.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytensor.tensor as pt
from numba import njit
from pytensor.gradient import DisconnectedType, grad_not_implemented
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.replace import _vectorize_node, _vectorize_not_needed
from pytensor.link.numba.dispatch.basic import register_funcify_default_op_cache_key
from pytensor.tensor.type import tensor
from pytensor.tensor.variable import TensorVariable

from pymc_bayessum.distributions.cmp_normalizer import kernels
from pymc_bayessum.distributions.cmp_normalizer.kernels import derivative_orders


class _BroadcastOp(Op):
    """An Op of float64 tensors that broadcasts and returns several tensors of the common shape."""

    n_outputs: int

    def make_node(self, *inputs: Any) -> Apply:
        """Give all inputs the same number of dimensions, as Elemwise does."""
        tensors = [pt.cast(pt.as_tensor_variable(x), "float64") for x in inputs]
        ndim = max(x.type.ndim for x in tensors)
        tensors = [pt.shape_padleft(x, ndim - x.type.ndim) for x in tensors]
        shapes = [x.type.shape for x in tensors]
        shape = [_common_length(lengths) for lengths in zip(*shapes, strict=True)]
        outputs = [tensor(dtype="float64", shape=shape) for _ in self._outputs()]
        return Apply(self, tensors, outputs)

    def _outputs(self) -> range:
        return range(self.n_outputs)

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Return the broadcast shape for every output."""
        patterns = [x.type.broadcastable for x in node.inputs]
        shape = tuple(
            next((s[i] for s, p in zip(shapes, patterns, strict=True) if not p[i]), shapes[0][i])
            for i in range(node.outputs[0].type.ndim)
        )
        return [shape for _ in self._outputs()]

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        """Run the compiled function."""
        for storage, values in zip(output_storage, self.compiled()(*inputs), strict=True):
            storage[0] = np.asarray(values)

    def compiled(self) -> Any:
        """Return the compiled function of broadcasting arrays."""
        raise NotImplementedError


_vectorize_node.register(_BroadcastOp, _vectorize_not_needed)


class CMPCumulants(_BroadcastOp):
    r"""Derivatives of :math:`\log Z(\eta, \nu) = \log\sum_x e^{\eta x} (x!)^{-\nu}` up to an order.

    The outputs are :math:`\partial_\eta^a \partial_\nu^b \log Z` for a + b up to ``order``, in the
    order of :func:`derivative_orders`: log Z, E[X], -E[log X!] and so on, the joint cumulants of
    X and -log X!. Where no answer is given log Z is +inf and its derivatives are zero.

    Parameters
    ----------
    order : int
        1, 2 or 3.
    """

    __props__ = ("order",)

    def __init__(self, order: int = 1) -> None:
        if order not in {1, 2, 3}:
            raise ValueError(f"order must be 1, 2 or 3, got {order!r}")
        self.order = order
        self.n_outputs = len(derivative_orders(order))
        super().__init__()

    def compiled(self) -> Any:
        """Return the compiled function (eta, nu) -> derivatives."""
        return (_first_derivatives, _second_derivatives, _third_derivatives)[self.order - 1]

    def pullback(
        self, inputs: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any]
    ) -> list[Any]:
        """Chain every cotangent with the derivatives of one order more."""
        orders = derivative_orders(self.order)
        values = dict(zip(orders, outputs, strict=True))
        connected = _connected(orders, cotangents)
        if any(order not in values for a, b in connected for order in ((a + 1, b), (a, b + 1))):
            if self.order == 3:
                return [
                    grad_not_implemented(self, i, x, "fourth cumulants are not computed")
                    for i, x in enumerate(inputs)
                ]
            higher = CMPCumulants(self.order + 1)
            values = (
                dict(
                    zip(
                        derivative_orders(higher.order),
                        higher.make_node(*inputs).outputs,
                        strict=True,
                    )
                )
                | values
            )
        by_eta = sum(g * values[a + 1, b] for (a, b), g in connected.items())
        by_nu = sum(g * values[a, b + 1] for (a, b), g in connected.items())
        return [_sum_to(by_eta, inputs[0]), _sum_to(by_nu, inputs[1])]


class CMPFromMean(_BroadcastOp):
    r"""The log rate and the log-normaliser of the distribution with a given mean.

    Outputs are :math:`\eta`, :math:`\log Z(\eta, \nu)`, :math:`\partial\eta/\partial\log\mu
    = \mu/\mathrm{Var}(X)`, :math:`\partial\eta/\partial\nu = \mathrm{Cov}(X, \log X!) /
    \mathrm{Var}(X)` and :math:`E[\log X!]`, as functions of :math:`\log\mu` and :math:`\nu`
    (implicit differentiation of :math:`E[X] = \mu`). Where no answer is given log Z is +inf and
    the rest zero.
    """

    __props__ = ()
    n_outputs = 5

    def compiled(self) -> Any:
        """Return the compiled function (log_mu, nu) -> eta, log Z, derivatives, E[log X!]."""
        return _from_mean

    def pullback(
        self, inputs: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any]
    ) -> list[Any]:
        """First derivatives from the outputs, second ones from third cumulants."""
        log_mu, nu = inputs
        eta, _, eta_by_mu, eta_by_nu, mean_l = outputs
        g = _connected(["eta", "log_z", "eta_by_mu", "eta_by_nu", "mean_l"], cotangents)
        mu = pt.exp(log_mu)
        by_eta = g.get("eta", 0) + mu * g.get("log_z", 0)
        by_mu = 0
        by_nu = -mean_l * g.get("log_z", 0)
        if g.keys() - {"eta", "log_z"}:
            k = dict(zip(derivative_orders(3), CMPCumulants(3)(eta, nu), strict=True))
            variance = pt.switch(k[2, 0] > 0, k[2, 0], 1.0)
            g_mu, g_nu, g_l = (g.get(name, 0) for name in ("eta_by_mu", "eta_by_nu", "mean_l"))
            # d/d eta and d/d nu of mu / k20, -k11 / k20 and -k01, at a fixed mean in the first.
            by_eta = (
                by_eta
                - g_mu * eta_by_mu * k[3, 0] / variance
                - g_nu * (k[2, 1] + eta_by_nu * k[3, 0]) / variance
                - g_l * k[1, 1]
            )
            by_nu = (
                by_nu
                - g_mu * eta_by_mu * k[2, 1] / variance
                - g_nu * (k[1, 2] + eta_by_nu * k[2, 1]) / variance
                - g_l * k[0, 2]
            )
            by_mu = g_mu * eta_by_mu
        return [
            _sum_to(by_mu + by_eta * eta_by_mu, log_mu),
            _sum_to(by_nu + by_eta * eta_by_nu, nu),
        ]


def log_z_of_rate(eta: Any, nu: Any) -> TensorVariable:
    r"""Return the symbolic :math:`\log Z(\eta, \nu)`, with all derivatives up to the third.

    Parameters
    ----------
    eta, nu : tensor_like
        Log rate and dispersion.
    """
    return CMPCumulants(1)(eta, nu)[0]


def rate_and_log_z_of_mean(log_mu: Any, nu: Any) -> tuple[TensorVariable, TensorVariable]:
    r"""Return the symbolic log rate and :math:`\log Z` of the distribution of mean :math:`\mu`.

    Parameters
    ----------
    log_mu, nu : tensor_like
        Log of the mean, and dispersion.
    """
    eta, log_z, *_ = CMPFromMean()(log_mu, nu)
    return eta, log_z


def _common_length(lengths: Sequence[int | None]) -> int | None:
    wide = {n for n in lengths if n != 1}
    if len(wide - {None}) > 1:
        raise ValueError(f"inputs do not broadcast: lengths {sorted(wide - {None})} of one axis")
    return 1 if not wide else next(iter(wide - {None}), None)


def _connected(names: Sequence[Any], cotangents: Sequence[Variable]) -> dict[Any, Any]:
    return {
        name: g
        for name, g in zip(names, cotangents, strict=True)
        if not isinstance(g.type, DisconnectedType)
    }


def _sum_to(gradient: Any, like: Any) -> Any:
    """Sum over the axes along which ``like`` was broadcast."""
    axes = tuple(
        i
        for i, (one, wide) in enumerate(
            zip(like.type.broadcastable, gradient.type.broadcastable, strict=True)
        )
        if one and not wide
    )
    return pt.sum(gradient, axis=axes, keepdims=True) if axes else gradient


@njit(cache=True)
def _flat(x, shape):
    """Return x as contiguous rows; a single number stays one row, to be shared by all."""
    if x.size == 1:
        return np.full(1, x.flat[0])
    full = np.broadcast_to(x, shape)
    rows = np.empty(full.size)
    for i, value in enumerate(full.flat):
        rows[i] = value
    return rows


@njit(cache=True)
def _three(out, first, shape):
    return (
        out[first].reshape(shape),
        out[first + 1].reshape(shape),
        out[first + 2].reshape(shape),
    )


@njit(cache=True)
def _cumulants(order, n_outputs, eta, nu, shape):
    out = np.empty((n_outputs, np.broadcast_to(eta, shape).size))
    kernels.cumulants_of_rows(order, _flat(eta, shape), _flat(nu, shape), out)
    return out


@njit(cache=True)
def _first_derivatives(eta, nu):
    shape = np.broadcast_shapes(eta.shape, nu.shape)
    return _three(_cumulants(1, 3, eta, nu, shape), 0, shape)


@njit(cache=True)
def _second_derivatives(eta, nu):
    shape = np.broadcast_shapes(eta.shape, nu.shape)
    out = _cumulants(2, 6, eta, nu, shape)
    return _three(out, 0, shape) + _three(out, 3, shape)


@njit(cache=True)
def _third_derivatives(eta, nu):
    shape = np.broadcast_shapes(eta.shape, nu.shape)
    out = _cumulants(3, 10, eta, nu, shape)
    return (
        _three(out, 0, shape)
        + _three(out, 3, shape)
        + _three(out, 6, shape)
        + (out[9].reshape(shape),)
    )


@njit(cache=True)
def _from_mean(log_mu, nu):
    shape = np.broadcast_shapes(log_mu.shape, nu.shape)
    out = np.empty((5, np.broadcast_to(log_mu, shape).size))
    kernels.from_mean_of_rows(_flat(log_mu, shape), _flat(nu, shape), out)
    return (*_three(out, 0, shape), out[3].reshape(shape), out[4].reshape(shape))


# PyTensor keeps compiled graphs on disk under the properties of their Ops and this number.
VERSION = crc32(b"".join(p.read_bytes() for p in sorted(Path(__file__).parent.glob("*.*"))))


@register_funcify_default_op_cache_key(_BroadcastOp)
def _numba_funcify(op, node, **kwargs):
    return op.compiled(), VERSION
