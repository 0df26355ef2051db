"""PyTensor Ops for the Conway-Maxwell-Poisson normaliser, with derivatives of every order needed.

Each Op returns values together with their first derivatives, which come out of the same sums, so
that a log-probability and its gradient cost one pass. Derivatives of derivatives are asked of an
Op of one order more.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, grad_not_implemented
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.replace import _vectorize_node, _vectorize_not_needed
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key
from pytensor.tensor.type import tensor
from pytensor.tensor.variable import TensorVariable

from pymc_bayessum.compiled_cache import version_of
from pymc_bayessum.counts.cmp_sums import sums as kernels
from pymc_bayessum.counts.cmp_sums.sums import derivative_orders
from pymc_bayessum.normalizers.logsum import sum_to


class _RowwiseOp(Op):
    """An Op of float64 tensors that returns several tensors of the shape they broadcast to.

    Inputs of the node have one dimension or more, all the same number, and each has either the
    shape of the outputs or a single element that all rows share.
    """

    n_outputs: int
    what: int

    def make_node(self, *inputs: Any) -> Apply:
        """Broadcast what is neither whole nor single, and give scalars an axis."""
        tensors = [pt.cast(pt.as_tensor_variable(x), "float64") for x in inputs]
        ndim = max(1, *(x.type.ndim for x in tensors))
        tensors = [pt.shape_padleft(x, ndim - x.type.ndim) for x in tensors]
        shapes = [x.type.shape for x in tensors]
        shape = tuple(_common_length(lengths) for lengths in zip(*shapes, strict=True))
        pattern = tuple(length == 1 for length in shape)
        if any(x.type.broadcastable != pattern and not _is_single(x) for x in tensors) or all(
            _is_single(x) != all(pattern) for x in tensors
        ):
            tensors = list(pt.broadcast_arrays(*tensors))
        outputs = [tensor(dtype="float64", shape=shape) for _ in range(self.n_outputs)]
        return Apply(self, tensors, outputs)

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Return the shape of an input that is not shared, or of the first."""
        whole = [shape for x, shape in zip(node.inputs, shapes, strict=True) if not _is_single(x)]
        return [whole[0] if whole else shapes[0]] * self.n_outputs

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        """Run the compiled sums."""
        for storage, values in zip(output_storage, self.evaluate(*inputs), strict=True):
            storage[0] = values

    def evaluate(self, *arrays: Any) -> tuple[Any, ...]:
        """Return the outputs for arrays that broadcast; a number that all rows share stays one."""
        shape = np.broadcast_shapes(*map(np.shape, arrays))
        whole = [x if np.size(x) == 1 else np.broadcast_to(x, shape) for x in arrays]
        return tuple(x.reshape(shape) for x in kernels.evaluate(self.what, self.n_outputs, *whole))

    def on(self, xp: Any, *inputs: Any) -> Sequence[Any]:
        """Return the outputs for arrays (``xp`` is numpy) or tensors, of any number of axes."""
        if xp is np:
            return self.evaluate(*inputs)
        tensors = [pt.as_tensor_variable(x) for x in inputs]
        outputs: Any = self.make_node(*tensors).outputs
        # The node gave scalars an axis.
        return [pt.squeeze(x, 0) for x in outputs] if all(x.ndim == 0 for x in tensors) else outputs


_vectorize_node.register(_RowwiseOp, _vectorize_not_needed)


class _Derivatives(_RowwiseOp):
    """An Op whose outputs are a value and its derivatives in its last two inputs, eta and nu.

    They are in the order of :func:`derivative_orders`, up to ``order``, ``highest`` at most.
    """

    __props__: tuple[str, ...]
    highest: int

    def __init__(self, order: int) -> None:
        if order not in range(1, self.highest + 1):
            raise ValueError(f"order must be from 1 to {self.highest}, got {order!r}")
        self.order = order
        self.n_outputs = len(derivative_orders(order))
        super().__init__()

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        """Chain every cotangent with the derivatives of one order more."""
        *others, eta, nu = inputs
        zeros = [x.zeros_like() for x in others]
        orders = derivative_orders(self.order)
        values = dict(zip(orders, outputs, strict=True))
        connected = _connected(orders, cotangents)
        if any((a + 1, b) not in values for a, b in connected):
            if self.order == self.highest:
                message = f"derivatives above order {self.order} are not computed"
                return zeros + [grad_not_implemented(self, i, inputs[i], message) for i in (-2, -1)]
            props = {name: getattr(self, name) for name in self.__props__}
            higher = type(self)(**(props | {"order": self.order + 1}))
            more = higher.make_node(*inputs).outputs
            values = dict(zip(derivative_orders(higher.order), more, strict=True)) | values
        by_eta: Any = sum(g * values[a + 1, b] for (a, b), g in connected.items())
        by_nu: Any = sum(g * values[a, b + 1] for (a, b), g in connected.items())
        return [*zeros, sum_to(by_eta, eta), sum_to(by_nu, nu)]


class CMPCumulants(_Derivatives):
    r"""Derivatives of :math:`\log Z(\eta, \nu) = \log\sum_x e^{\eta x} (x!)^{-\nu}` up to an order.

    The outputs are :math:`\partial_\eta^a \partial_\nu^b \log Z` for a + b up to ``order``: log Z,
    E[X], -E[log X!] and so on, the joint cumulants of X and -log X!. Where there is no distribution
    log Z is +inf and its derivatives are zero.
    """

    __props__ = ("order",)
    highest = 3

    def __init__(self, order: int = 1) -> None:
        super().__init__(order)
        self.what = order


class CMPFromMean(_RowwiseOp):
    r"""The log rate and the log-normaliser of the distribution with a given mean.

    Outputs are :math:`\eta`, :math:`\log Z(\eta, \nu)`, :math:`\partial\eta/\partial\log\mu
    = \mu/\mathrm{Var}(X)`, :math:`\partial\eta/\partial\nu = \mathrm{Cov}(X, \log X!) /
    \mathrm{Var}(X)` and :math:`E[\log X!]`, as functions of :math:`\log\mu` and :math:`\nu`
    (implicit differentiation of :math:`E[X] = \mu`). Where there is no distribution log Z is
    +inf and the rest zero.
    """

    __props__ = ()
    n_outputs = 5
    what = kernels.FROM_MEAN

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        """First derivatives from the outputs, second ones from third cumulants."""
        log_mu, nu = inputs
        eta, _, eta_by_mu, eta_by_nu, mean_l = outputs
        g = _connected(["eta", "log_z", "eta_by_mu", "eta_by_nu", "mean_l"], cotangents)
        mu = pt.exp(log_mu)
        by_eta = g.get("eta", 0) + mu * g.get("log_z", 0)
        by_mu = 0
        by_nu = -mean_l * g.get("log_z", 0)
        if g.keys() - {"eta", "log_z"}:
            third = CMPCumulants(3).make_node(eta, nu).outputs
            k: dict[Any, Any] = dict(zip(derivative_orders(3), third, strict=True))
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
            sum_to(by_mu + by_eta * eta_by_mu, log_mu),
            sum_to(by_nu + by_eta * eta_by_nu, nu),
        ]


class CMPTail(_Derivatives):
    r"""Log of :math:`P(X \le x)`, or of :math:`P(X > x)`, and its derivatives in eta and nu.

    The smaller of the two tails is summed term by term, the other is its complement. Inputs are
    whole numbers x, eta and nu. Where no answer is given the value is -inf and its derivatives are
    zero.
    """

    __props__ = ("upper", "order")
    highest = 2

    def __init__(self, upper: bool = False, order: int = 1) -> None:
        super().__init__(order)
        self.upper = upper
        self.what = kernels.LOG_SF if upper else kernels.LOG_CDF


class CMPQuantile(_RowwiseOp):
    r"""Smallest count x with :math:`P(X \le x) \ge q`, as a function of q, eta and nu."""

    __props__ = ()
    n_outputs = 1
    what = kernels.QUANTILE

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        """Return zeros: a step function."""
        return [x.zeros_like() for x in inputs]


def log_z_of_rate(eta: Any, nu: Any) -> TensorVariable:
    r"""Return the symbolic :math:`\log Z(\eta, \nu)`, with all derivatives up to the third."""
    return CMPCumulants(1).on(pt, eta, nu)[0]


def rate_and_log_z_of_mean(log_mu: Any, nu: Any) -> tuple[TensorVariable, TensorVariable]:
    r"""Return the symbolic log rate and :math:`\log Z` of the distribution of mean :math:`\mu`."""
    eta, log_z, *_ = CMPFromMean().on(pt, log_mu, nu)
    return eta, log_z


def log_tail(x: Any, eta: Any, nu: Any, upper: bool = False) -> TensorVariable:
    r"""Return the symbolic log of :math:`P(X \le x)`, or, if upper, of :math:`P(X > x)`."""
    return CMPTail(upper).on(pt, x, eta, nu)[0]


def quantile(q: Any, eta: Any, nu: Any) -> TensorVariable:
    r"""Return the symbolic smallest count x with :math:`P(X \le x) \ge q`."""
    return CMPQuantile().on(pt, q, eta, nu)[0]


def _is_single(x: Any) -> bool:
    return all(x.type.broadcastable)


def _common_length(lengths: Sequence[int | None]) -> int | None:
    known = {n for n in lengths if n is not None and n != 1}
    if len(known) > 1:
        raise ValueError(f"inputs do not broadcast: lengths {sorted(known)} of one axis")
    if known:
        return known.pop()
    return None if None in lengths else 1


def _connected(names: Sequence[Any], cotangents: Sequence[Variable]) -> dict[Any, Any]:
    return {
        name: g
        for name, g in zip(names, cotangents, strict=True)
        if not isinstance(g.type, DisconnectedType)
    }


# PyTensor keeps compiled graphs on disk under the properties of their Ops and this number.
VERSION = version_of(Path(__file__).parent.glob("*.*"))


def _contiguous(x: Any) -> Any:
    return np.ascontiguousarray(x)


def _as_it_is(x: Any) -> Any:
    return x


_UNPACK: dict[int, Any] = {
    1: lambda out: out[0],
    3: lambda out: (out[0], out[1], out[2]),
    5: lambda out: (out[0], out[1], out[2], out[3], out[4]),
    6: lambda out: (out[0], out[1], out[2], out[3], out[4], out[5]),
    10: lambda out: (
        *(out[0], out[1], out[2], out[3], out[4]),
        *(out[5], out[6], out[7], out[8], out[9]),
    ),
}


@register_funcify_default_op_cache_key(_RowwiseOp)
def _numba_funcify(op, node, **kwargs):
    what, n_outputs = op.what, op.n_outputs
    example = next((i for i, x in enumerate(node.inputs) if not _is_single(x)), 0)
    unpack = numba_njit(_UNPACK[n_outputs])
    # A single element is contiguous, whatever its type says.
    flat = [numba_njit(_as_it_is if _is_single(x) else _contiguous) for x in node.inputs]
    if len(node.inputs) == 3:
        flat_x, flat_eta, flat_nu = flat

        def tails(x, eta, nu):
            out = np.empty((n_outputs, *(x, eta, nu)[example].shape))
            kernels.tails(what, flat_x(x), flat_eta(eta), flat_nu(nu), out)
            return unpack(out)

        return numba_njit(tails), VERSION
    flat_first, flat_nu = flat

    def rows(first, nu):
        out = np.empty((n_outputs, *(first, nu)[example].shape))
        kernels.rows(what, flat_first(first), flat_nu(nu), out)
        return unpack(out)

    return numba_njit(rows), VERSION
