"""Symbolic energies of Potts and Ising models, row by row.

Data that are known when the graph is built enter by their sufficient statistics, a matrix of
constants: then the energy of all rows is one product, its gradient a constant, and where only the
sum over rows is asked for a rewrite replaces the matrix by the sum of its rows. Data that may
change (``pm.Data``) are looked up in the parameters.
"""

from itertools import batched
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.math import Sum
from pytensor.tensor.rewriting.basic import register_canonicalize
from pytensor.tensor.symbolic import TensorSymbolicOp

from pymc_bayessum.graphs.statistics import PottsLayout, one_hot, times
from pymc_bayessum.normalizers.node import normalized

__all__ = ["RowLogp", "row_logp", "symbolic_energy"]

#: Largest matrix of statistics that is written into a graph, in numbers.
_LARGEST_STATISTICS = 5_000_000


class RowLogp(TensorSymbolicOp):
    """Log-probabilities ``sum of phi_k @ theta_k - log_z`` of rows of data, (n,).

    Inputs are the scalar ``log_z`` and any number of pairs of statistics ``phi_k`` (n, d_k) and
    parameters ``theta_k`` (d_k,). The sum of the result is rewritten to use the sums of the
    statistics only.

    Products are written as sums: what BLAS saves here in microseconds, compiling a call to it
    costs in seconds.

    Examples
    --------
    >>> RowLogp()(np.float64(0.5), np.eye(2), np.array([1.0, 2.0])).eval().tolist()
    [0.5, 1.5]
    """

    inline = True

    def build_inner_graph(self, log_z, *pairs):
        """Write out the products."""
        energies = (pt.sum(times(phi, theta), axis=-1) for phi, theta in batched(pairs, 2))
        return [sum(energies) - log_z]

    def pullback(self, inputs, outputs, cotangents):
        """Return the derivatives of the products; for a sum of rows they fold into constants."""
        _, *pairs = inputs
        rows = cotangents[0][:, None]
        back = [-pt.sum(rows)]
        for phi, theta in batched(pairs, 2):
            back += [rows * theta, pt.sum(rows * phi, axis=0)]
        return back

    def __str__(self) -> str:
        return type(self).__name__


@register_canonicalize
@node_rewriter([Sum])
def sum_statistics(fgraph: Any, node: Apply) -> list[Variable] | None:
    """Sum the statistics instead of the rows: ``sum(phi @ theta - z)`` needs only ``sum(phi)``."""
    rows = node.inputs[0].owner
    if rows is None or not isinstance(rows.op, RowLogp) or node.op.axis not in (None, (0,)):
        return None
    log_z, *pairs = rows.inputs
    if not all(isinstance(phi, Constant) for phi, _ in batched(pairs, 2)):
        return None
    total = -len(pairs[0].data) * log_z
    for phi, theta in batched(pairs, 2):
        total += pt.sum(times(phi.data.sum(axis=0), theta))
    return [total.astype(node.outputs[0].type.dtype)]


def row_logp(layout: PottsLayout, x: Any, h: Any, J: Any, log_z: Any, absolute: bool = True) -> Any:
    """Log-probability of each row, -inf where a state is out of range or log Z is not finite.

    Leading dimensions of ``h`` and ``J``, which are those of ``log_z``, broadcast with those of the
    rows. What is forbidden (-inf in ``h`` or ``J``) has -inf too, and no part in the gradient
    otherwise.

    No row can be more probable than one. Where an estimated log Z says so, by more than its error
    could, the parameters are far outside of what it answers for: -inf as well. A log Z that is
    known up to a constant only is not ``absolute``, and tells nothing of the kind.
    """
    x = pt.as_tensor_variable(x)
    single = _n_batch(h, layout.field_shape) == 0 and _n_batch(J, layout.coupling_shape) == 0
    if isinstance(x, Constant) and single and x.type.ndim >= 1:
        data = np.asarray(x.data)
        n_rows = data.size // layout.n_sites
        if 0 < n_rows * layout.n_parameters <= _LARGEST_STATISTICS:
            return _constant_row_logp(layout, data, h, J, log_z, absolute)
    # PyMC joins what was observed with what is missing as floats.
    rows = x if x.type.dtype.startswith(("int", "uint")) else pt.cast(x, "int64")
    valid = pt.and_(layout.valid(rows), pt.all(pt.eq(rows, x), axis=-1))
    states = pt.clip(layout.encode(rows), 0, layout.n_states - 1)
    logp = normalized(symbolic_energy(layout, states, h, J), log_z)
    if absolute:
        valid = pt.and_(valid, pt.le(logp, _slack(log_z)))
    return pt.switch(valid, logp, -np.inf)


def _slack(log_z: Any) -> Any:
    """How far a log-probability may be above zero by the error of log Z and by rounding."""
    return 1.0 + 1e-9 * pt.abs(log_z)


def _constant_row_logp(
    layout: PottsLayout, data: np.ndarray, h: Any, J: Any, log_z: Any, absolute: bool
) -> Any:
    batch = data.shape[:-1]
    rows = data.reshape(-1, layout.n_sites).astype(np.int64)
    valid = layout.valid(rows) & (rows == data.reshape(rows.shape)).all(axis=-1)
    phi = np.zeros((len(rows), layout.n_parameters))
    phi[valid] = layout.statistics(layout.encode(rows[valid]))
    # Guards sit on the parameters and log Z, not on the rows, so that sums over rows stay products.
    parts = [
        (part, pt.as_tensor_variable(theta).ravel())
        for part, theta in ((phi[:, : layout.n_field], h), (phi[:, layout.n_field :], J))
        if part.shape[1]
    ]
    exists = pt.isfinite(log_z)
    if absolute and valid.any():
        energy: Any = sum(times(part[valid].mean(axis=0), theta).sum() for part, theta in parts)
        exists = pt.and_(exists, pt.le(energy - log_z, _slack(log_z)))
    pairs: list[Any] = []
    for part, theta in parts:
        pairs += [part, pt.switch(exists, theta, 0.0)]
    logp = RowLogp()(pt.switch(exists, log_z, np.inf), *pairs)
    if not valid.all():
        logp = pt.switch(valid, logp, -np.inf)
    return logp if len(batch) == 1 else logp.reshape(batch)


def symbolic_energy(layout: PottsLayout, states: Any, h: Any, J: Any) -> Any:
    """Energies (...) of rows of states 0 .. S-1 (also for spins), (..., L), all in range.

    Leading dimensions of ``h`` and ``J`` broadcast with those of the states.
    """
    return _field_energy(layout, states, h) + _coupling_energy(layout, states, J)


def _n_batch(value: Any, core: tuple[int, ...]) -> int:
    return pt.as_tensor_variable(value).type.ndim - len(core)


def _field_energy(layout: PottsLayout, states: Any, h: Any) -> Any:
    if layout.field_kind == "none":
        return np.float64(0.0)
    h = pt.as_tensor_variable(h)
    values = layout.decode(states)
    if layout.field_kind == "scalar":
        return h * pt.sum(values, axis=-1)
    if layout.spins:
        return pt.sum(h * values, axis=-1)
    if _n_batch(h, layout.field_shape):
        shared = h[..., None, :] if layout.field_kind == "shared" else h
        return pt.sum(times(one_hot(states, layout.n_states), shared), axis=(-2, -1))
    if layout.field_kind == "shared":
        return pt.sum(h[states], axis=-1)
    return pt.sum(h[np.arange(layout.n_sites), states], axis=-1)


def _coupling_energy(layout: PottsLayout, states: Any, J: Any) -> Any:
    if layout.coupling_kind == "none" or not layout.n_edges:
        return np.float64(0.0)
    J = pt.as_tensor_variable(J)
    if layout.scores is not None:
        scores = pt.as_tensor_variable(np.where(layout.has_state, layout.scores, 0.0))
        states = scores[np.arange(layout.n_sites), states]
    first, second = states[..., layout.edges[:, 0]], states[..., layout.edges[:, 1]]
    if layout.coupling_kind in ("scalar", "edge"):
        scored = layout.scores is not None
        unit = first * second if scored else layout.decode(pt.eq(first, second).astype("int64"))
        if layout.coupling_kind == "scalar":
            return times(pt.sum(unit, axis=-1), J)
        return pt.sum(times(unit, J), axis=-1)
    if _n_batch(J, layout.coupling_shape):
        pairs = one_hot(first * layout.n_states + second, layout.n_states**2)
        flat = J.reshape((*[J.shape[axis] for axis in range(J.type.ndim - 2)], -1))
        flat = flat[..., None, :] if layout.coupling_kind == "shared" else flat
        return pt.sum(times(pairs, flat), axis=(-2, -1))
    if layout.coupling_kind == "shared":
        return pt.sum(J[first, second], axis=-1)
    return pt.sum(J[np.arange(layout.n_edges), first, second], axis=-1)
