"""The exact normaliser of a graph model as PyTensor Ops: log Z, its gradient and its Hessian.

``LogPartition(h, J)`` is log Z of full parameters, its pullback is :class:`Marginals` and the
pullback of that :class:`MarginalsTangent`, each one run of the compiled passes of
:mod:`pymc_bayessum.graphs.elimination`. Derivatives end there: the third order is not offered.

JAX calls the same compiled passes on the host: unrolled into XLA, a lattice of 8 x 8 took 16
seconds to compile and ran no faster, a chain of 300 sites over a minute. The Ops derive from
PyTensor's ``JAXOp``, which the JAX backend asks for a function, so that JAX is imported only when
that backend is used.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, grad_not_implemented
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.link.jax.ops import JAXOp
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.rewriting.basic import register_specialize
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from pymc_bayessum.graphs.elimination import (
    LARGEST_MEMORY,
    Budget,
    EliminationPlan,
    elimination_plan,
    least_cost,
    plan_within,
)
from pymc_bayessum.graphs.elimination_passes import NATIVE_VERSION, native_symbol
from pymc_bayessum.graphs.statistics import PottsLayout
from pymc_bayessum.normalizers.node import log_z
from pymc_bayessum.normalizers.protocol import Exact

__all__ = ["ExactNormalizer", "LogPartition", "Marginals", "MarginalsTangent"]


class _EliminationOp(JAXOp):
    """One pass of a plan: full parameters, and steps of them, to what its signature says."""

    __props__: tuple[str, ...] = ("plan",)  # type: ignore[assignment]  # PyTensor's () is taken for the type
    gufunc_signature: str
    #: The method of the plan that it calls.
    method: str

    def __init__(self, plan: EliminationPlan):
        # Not JAXOp's own, which imports JAX to compile the function it is given.
        super(JAXOp, self).__init__()
        self.plan = plan
        n_edges, n_states = len(plan.edges), plan.n_states
        kinds = {
            "()": TensorType("float64", shape=()),
            "(l,s)": TensorType("float64", shape=(plan.n_sites, n_states)),
            "(e,s,s)": TensorType("float64", shape=(n_edges, n_states, n_states)),
        }
        self.input_types, self.output_types = (
            tuple(kinds[core] for core in re.findall(r"\(.*?\)", side))
            for side in self.gufunc_signature.split("->")
        )

    def make_node(self, *inputs: Any) -> Apply:
        """Check the shapes of the inputs."""
        variables = []
        for place, (kind, value) in enumerate(zip(self.input_types, inputs, strict=True)):
            variable = pt.cast(pt.as_tensor_variable(value), "float64")
            shape = variable.type.shape
            if len(shape) != kind.ndim or any(
                length not in (None, wanted)
                for length, wanted in zip(shape, kind.shape, strict=True)
            ):
                name = ("h", "J", "h_step", "J_step")[place]
                raise ValueError(f"{name} must have shape {kind.shape}, got {shape}")
            variables.append(kind.filter_variable(variable))
        return Apply(self, variables, [kind() for kind in self.output_types])

    def run(self, *inputs: Any) -> tuple[np.ndarray, ...]:
        """Run the pass on numbers, or on a batch of them, in their precision."""
        method, types = getattr(self.plan, self.method), [inputs[0].dtype] * len(self.output_types)
        found = np.vectorize(method, types, signature=self.gufunc_signature)(*inputs)
        return found if isinstance(found, tuple) else (found,)

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Keep what the pass returns."""
        for storage, value in zip(output_storage, self.run(*inputs), strict=True):
            storage[0] = value

    def perform_jax(self, *inputs: Any) -> Any:
        """Run under JAX."""
        return _jax_functions(self.plan)[self.method](*inputs)

    def __repr__(self) -> str:
        """Name with the size of the graph; the plan would print its arrays."""
        plan = self.plan
        return f"{type(self).__name__}{{{plan.n_sites} sites, {plan.n_states} states}}"

    __str__ = __repr__


def _connected(outputs: Any, cotangents: Any) -> list[Variable]:
    """Write zeros for the cotangents of outputs that nothing depends on."""
    return [
        output.zeros_like() if isinstance(cotangent.type, DisconnectedType) else cotangent
        for output, cotangent in zip(outputs, cotangents, strict=True)
    ]


class LogPartition(_EliminationOp):
    """Log Z of a graph: inputs ``h`` (L, S) and ``J`` (E, S, S), output a scalar.

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> log_z = LogPartition(elimination_plan(graphs.chain(3), 3, 2))
    >>> bool(np.isclose(log_z(np.zeros((3, 2)), np.zeros((2, 2, 2))).eval(), 3 * np.log(2)))
    True
    """

    gufunc_signature = "(l,s),(e,s,s)->()"
    method = "log_partition"

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        """Return the marginals times the cotangent."""
        _, sites, pairs = Marginals(self.plan).make_node(*inputs).outputs
        return [cotangents[0] * sites, cotangents[0] * pairs]


class Marginals(_EliminationOp):
    """Log Z, site marginals (L, S) and edge marginals (E, S, S): log Z with its gradient."""

    gufunc_signature = "(l,s),(e,s,s)->(),(l,s),(e,s,s)"
    method = "marginals"

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        """Return the Hessian, which is symmetric, times the cotangents."""
        value, *steps = _connected(outputs, cotangents)
        sites, pairs = MarginalsTangent(self.plan).make_node(*inputs, *steps).outputs
        return [sites + value * outputs[1], pairs + value * outputs[2]]


class MarginalsTangent(_EliminationOp):
    """Directional derivative of the marginals: the Hessian of log Z times a step.

    Inputs are ``h``, ``J`` and a step for each; outputs have the shapes of ``h`` and ``J``.
    """

    gufunc_signature = "(l,s),(e,s,s),(l,s),(e,s,s)->(l,s),(e,s,s)"
    method = "tangent"

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        """Return the Hessian times the cotangents for the steps; nothing for the parameters."""
        h, J, *_ = inputs
        back = self.make_node(h, J, *_connected(outputs, cotangents)).outputs
        why = "log Z of a graph has derivatives up to the second order only"
        missing = [grad_not_implemented(self, place, inputs[place], why) for place in (0, 1)]
        return [*missing, *back]


@register_specialize
@node_rewriter([LogPartition])
def take_log_z_from_marginals(fgraph: Any, node: Apply) -> list[Variable] | None:
    """Where the gradient is computed too, its forward pass has log Z already."""
    for client, _ in fgraph.clients[node.inputs[0]]:
        if client.op == Marginals(node.op.plan) and client.inputs == node.inputs:
            return [client.outputs[0]]
    return None


@register_funcify_default_op_cache_key(LogPartition)
def _numba_log_partition(op: LogPartition, **kwargs: Any) -> Any:
    plan = op.plan.packed
    run = native_symbol("log_partition")

    @numba_njit
    def log_partition(h, J):
        value = np.full(1, np.nan)
        fields, couplings = np.ascontiguousarray(h), np.ascontiguousarray(J)
        run(fields.ctypes, couplings.ctypes, plan.ctypes, value.ctypes)
        return np.asarray(value[0])

    return log_partition, NATIVE_VERSION


@register_funcify_default_op_cache_key(Marginals)
def _numba_marginals(op: Marginals, **kwargs: Any) -> Any:
    plan = op.plan.packed
    run = native_symbol("marginals")

    @numba_njit
    def marginals(h, J):
        value = np.full(1, np.nan)
        fields, couplings = np.ascontiguousarray(h), np.ascontiguousarray(J)
        sites, pairs = np.empty_like(fields), np.empty_like(couplings)
        run(
            fields.ctypes, couplings.ctypes, plan.ctypes, value.ctypes, sites.ctypes, pairs.ctypes
        )  # fmt: skip
        return np.asarray(value[0]), sites, pairs

    return marginals, NATIVE_VERSION


@register_funcify_default_op_cache_key(MarginalsTangent)
def _numba_tangent(op: MarginalsTangent, **kwargs: Any) -> Any:
    plan = op.plan.packed
    run = native_symbol("tangent")

    @numba_njit
    def tangent(h, J, h_step, J_step):
        fields, couplings = np.ascontiguousarray(h), np.ascontiguousarray(J)
        field_step, coupling_step = np.ascontiguousarray(h_step), np.ascontiguousarray(J_step)
        sites, pairs = np.empty_like(fields), np.empty_like(couplings)
        run(
            fields.ctypes, couplings.ctypes, field_step.ctypes, coupling_step.ctypes, plan.ctypes,
            sites.ctypes, pairs.ctypes,
        )  # fmt: skip
        return sites, pairs

    return tangent, NATIVE_VERSION


@lru_cache(maxsize=64)
def _jax_functions(plan: EliminationPlan) -> dict[str, Callable[..., Any]]:
    """Log Z, marginals and their tangent as JAX functions, differentiable like the Ops."""
    import jax
    import jax.numpy as jnp

    def on_host(op: _EliminationOp) -> Callable[..., Any]:
        shapes = [kind.shape for kind in op.output_types]

        def call(*inputs: Any) -> tuple[Any, ...]:
            dtype = jnp.result_type(float)
            outputs = tuple(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes)
            values = [jnp.asarray(value, dtype) for value in inputs]
            return jax.pure_callback(op.run, outputs, *values, vmap_method="broadcast_all")

        return call

    value_on_host = on_host(LogPartition(plan))
    log_z = jax.custom_jvp(lambda h, J: value_on_host(h, J)[0])
    marginals = jax.custom_jvp(on_host(Marginals(plan)))
    tangent = on_host(MarginalsTangent(plan))

    @log_z.defjvp
    def _(primals: Any, steps: Any) -> Any:
        value, sites, pairs = marginals(*primals)
        return value, jnp.sum(sites * steps[0]) + jnp.sum(pairs * steps[1])

    @marginals.defjvp
    def _(primals: Any, steps: Any) -> Any:
        value, sites, pairs = marginals(*primals)
        value_step = jnp.sum(sites * steps[0]) + jnp.sum(pairs * steps[1])
        return (value, sites, pairs), (value_step, *tangent(*primals, *steps))

    return {"log_partition": log_z, "marginals": marginals, "tangent": tangent}


@dataclass(frozen=True)
class Elimination(Exact):
    """The normaliser of full parameters, fields (..., L, S) and couplings (..., E, S, S)."""

    plan: EliminationPlan

    description = "elimination on the graph"
    advice = "a prior that keeps h and J finite: elimination is exact wherever they are"

    def log_z(self, xp: Any, *theta: Any) -> Any:
        """Log Z by the compiled passes, or by the Op around them."""
        fields, couplings = theta
        if xp is np:
            return LogPartition(self.plan).run(fields, couplings)[0]
        op: Any = LogPartition(self.plan)
        batched = fields.type.ndim > 2 or couplings.type.ndim > 3
        return (Blockwise(op) if batched else op)(fields, couplings)


@dataclass(frozen=True)
class ExactNormalizer:
    r"""Exact log Z of a Potts or Ising model by variable elimination.

    .. math:: \log Z = \log \sum_{x} \exp\Big(\sum_i h_i(x_i) + \sum_{(i,j)} J_{ij}(x_i, x_j)\Big)

    Cost is the number of table entries, :math:`\sum_v S^{1 + w_v}` with the separators
    :math:`w_v` of the order of elimination; :class:`~pymc_bayessum.graphs.elimination.Budget` has
    what is chosen by default and what is possible.

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> layout = PottsLayout(16, 2, graphs.grid(4, 4), "scalar", "scalar", spins=True)
    >>> exact = ExactNormalizer(layout)
    >>> bool(np.isclose(exact.log_z(0.0, 0.0).eval(), 16 * np.log(2)))
    True
    >>> exact.plan.width
    4
    """

    layout: PottsLayout

    is_absolute = True

    def __post_init__(self) -> None:
        layout = self.layout
        if plan_within(layout, Budget.ON_REQUEST) is None:
            width, entries = least_cost(layout)
            room = math.log(Budget.ON_REQUEST / layout.n_sites, max(2, layout.n_states))
            raise ValueError(
                f"normalizer='exact': the graph is too wide. Elimination has width {width}, "
                f"which with {layout.n_states} states needs {entries:.2g} table entries; the limit "
                f"is {Budget.ON_REQUEST:.2g} entries and {LARGEST_MEMORY / 1e9:.2g} GB, "
                f"about width {max(0, math.floor(room) - 1)} for {layout.n_sites} sites. "
                "Use a rule instead: normalizer=pbs.anchored_rule(...) or pbs.potts_rule(...), or "
                "normalizer=None with observed data, which builds an anchored rule"
            )

    @property
    def plan(self) -> EliminationPlan:
        """The elimination it runs."""
        layout = self.layout
        return elimination_plan(layout.edges, layout.n_sites, layout.n_states)

    def log_z(self, h: Any, J: Any) -> TensorVariable:
        """Return the symbolic log Z of parameters in the layout's shapes, or of a batch of them."""
        return log_z(Elimination(self.plan), *self.layout.expand(h, J))

    def value(self, h: Any, J: Any) -> float:
        """Log Z of numbers in the layout's shapes."""
        return self.plan.log_partition(*self.layout.expand(h, J))
