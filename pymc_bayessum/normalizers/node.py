"""The one node by which a log Z enters a graph, and by which it is found again.

:class:`LogZ` marks a value as the log Z of a :class:`~.protocol.Normalizer` at some parameters.
It is a `SymbolicOp` that hands its first input on: a named node until compilation, nothing at all
after it. So how the value comes about (a log-sum written out, a compiled Op that computes other
things besides) is of no concern to whoever looks for it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.replace import _vectorize_node
from pytensor.graph.traversal import ancestors, explicit_graph_inputs
from pytensor.tensor.symbolic import TensorSymbolicOp
from pytensor.tensor.variable import TensorVariable

from pymc_bayessum.normalizers.protocol import Normalizer

__all__ = ["Found", "LogZ", "find", "log_z", "normalized"]


class LogZ(TensorSymbolicOp):
    """The first input, marked as the log Z of a normaliser; the others are its parameters."""

    __props__ = ("normalizer",)
    inline = True

    def __init__(self, *, normalizer: Normalizer, input_types: Any = None, **kwargs: Any):
        self.normalizer = normalizer
        super().__init__(input_types=input_types, **kwargs)

    def build_inner_graph(self, value, *theta):
        """Hand the value on."""
        return [value.copy()]

    def pullback(self, inputs, outputs, cotangents):
        """Hand the cotangent back: the parameters act through the value."""
        return [cotangents[0], *(disconnected_type() for _ in inputs[1:])]

    def __str__(self) -> str:
        """Name the normaliser without its arrays."""
        return f"LogZ{{{type(self.normalizer).__name__}}}"


@_vectorize_node.register(LogZ)
def _vectorize_log_z(op: LogZ, node: Apply, *batched: Any) -> Any:
    return op(*batched).owner


def log_z(normalizer: Normalizer, *theta: Any, value: Any = None) -> TensorVariable:
    """Return the symbolic log Z of a normaliser at parameters, as a node that diagnostics find.

    Parameters
    ----------
    normalizer : Normalizer
        Anything that meets the protocol.
    *theta : tensor_like
        Its parameters, in the order of ``normalizer.log_z``.
    value : TensorVariable, optional
        What ``normalizer.log_z`` would return, where it is at hand already.

    Examples
    --------
    >>> import numpy as np
    >>> class Geometric:
    ...     is_absolute = True
    ...     def log_z(self, xp, eta):
    ...         return -xp.log1p(-xp.exp(eta))
    ...     def sd(self, xp, eta):
    ...         return None
    ...     def reference(self, asked):
    ...         return None
    ...     def remedy(self, facts):
    ...         return "a prior that keeps eta below zero"
    >>> float(log_z(Geometric(), np.log(0.75)).eval().round(4))
    1.3863
    """
    if not isinstance(normalizer, Normalizer):
        missing = [
            name
            for name in ("is_absolute", "log_z", "sd", "reference", "remedy")
            if not hasattr(normalizer, name)
        ]
        raise TypeError(
            f"normalizer must meet the Normalizer protocol, but {type(normalizer).__name__} has "
            f"no {', '.join(missing)}"
        )
    symbolic = [pt.as_tensor_variable(part) for part in theta]
    value = normalizer.log_z(pt, *symbolic) if value is None else value
    return LogZ(normalizer=normalizer)(value, *symbolic)


def normalized(log_f: Any, log_z: Any) -> TensorVariable:
    r"""Return :math:`\log f(x) - \log Z` where it exists and -inf elsewhere.

    The guard of every distribution: a log Z that is NaN (the signed sum is not positive) or
    infinite, and a log f that is NaN or +inf, give a log-probability of -inf, never NaN or +inf,
    and a zero gradient with respect to ``log_z``.

    Parameters
    ----------
    log_f : tensor
        The unnormalised log-probability of the data.
    log_z : tensor
        The log-normaliser, broadcasting against it.

    Examples
    --------
    >>> import numpy as np
    >>> float(normalized(np.float64(1.0), np.float64(3.0)).eval())
    -2.0
    >>> float(normalized(np.float64(1.0), np.float64(np.nan)).eval())
    -inf
    """
    log_f, log_z = pt.as_tensor_variable(log_f), pt.as_tensor_variable(log_z)
    exists = pt.and_(pt.isfinite(log_z), pt.lt(log_f, np.inf))
    return pt.switch(exists, log_f - log_z, -np.inf)


@dataclass(frozen=True)
class Found:
    """A log-normaliser found in a graph.

    Attributes
    ----------
    normalizer : Normalizer
        What computes it.
    log_z : TensorVariable
        The log-normaliser itself.
    theta : tuple of Variable
        The parameters it was given.
    parameters : tuple of Variable
        The free variables ``log_z`` depends on: the random variables of a model, or the inputs
        of a plain graph. ``pytensor.function(parameters, log_z)`` compiles.
    term : TensorVariable
        The elementwise log-probability, potential or output in which it was found.
    """

    normalizer: Normalizer
    log_z: Variable
    theta: tuple[Variable, ...]
    parameters: tuple[Variable, ...]
    term: Variable

    @property
    def name(self) -> str | None:
        """The name of the term."""
        return self.term.name

    @property
    def rule(self) -> Any:
        """The rule it sums by, if it is one rule."""
        return getattr(self.normalizer, "rule", None)


def find(terms: Iterable[Variable], free: Sequence[Variable] = ()) -> list[Found]:
    """Return the log-normalisers in the graphs of some variables, the last applied first.

    Beyond random variables that are ``free`` parameters are not followed.

    Examples
    --------
    >>> find([pt.exp(pt.scalar())])
    []
    """
    records = []
    for term in terms:
        nodes = dict.fromkeys(v.owner for v in ancestors([term]) if v.owner is not None)
        for node in nodes:
            if isinstance(node.op, LogZ):
                value = node.outputs[0]
                parameters = _free_variables(value, free)
                theta = tuple(node.inputs[1:])
                records.append(Found(node.op.normalizer, value, theta, parameters, term))
    return records


def _free_variables(variable: Variable, free: Sequence[Variable]) -> tuple[Variable, ...]:
    """Return the model's variables it depends on, in their order, or else the graph's inputs."""
    reached = set(ancestors([variable], blockers=free))
    return tuple(v for v in free if v in reached) or tuple(explicit_graph_inputs([variable]))
