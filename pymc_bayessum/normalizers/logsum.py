r"""The symbolic log-normaliser: log Z(θ) as a signed log-sum over the nodes of a rule.

A rule fixes nodes :math:`x_i`, weights :math:`w_i` and the log base mass :math:`b_i` before θ is
known.  What is left is

.. math:: \log Z(\theta) = \log \sum_{i=1}^N w_i \exp(\log f(x_i; \theta) - b_i),

with weights of either sign (Bayesian quadrature gives some negative ones), which
:class:`SignedLogSum` evaluates and differentiates on every PyTensor backend.

**Where the sum is not positive** the estimate does not exist: the Op yields NaN, with a zero
gradient.  :func:`normalized` is the guard that every distribution puts around it, so that a
model's log-probability is -inf there and samplers turn back.

**Finding normalisers again.**  Diagnostics ask a model which sums it relies on, by
:func:`find_normalizers`.  It walks a graph and hands every node to :func:`describe_normalizer`,
a ``functools.singledispatch`` function of the node's Op that returns a :class:`Normalizer`, or
``None`` for an Op that is no normaliser.  :func:`log_normalizer` needs nothing further.  An Op
that computes a log Z in its own way joins with one function::

    @describe_normalizer.register(MyLogZ)
    def _(op, node):
        return Normalizer(log_z=node.outputs[0], inputs=tuple(node.inputs), reference=exact)

where ``reference`` is a NumPy function that takes the values of ``inputs`` and returns a finer
or exact log Z.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad, disconnected_type
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.replace import _vectorize_node
from pytensor.graph.traversal import ancestors, explicit_graph_inputs, toposort
from pytensor.tensor.symbolic import TensorSymbolicOp
from pytensor.tensor.variable import TensorVariable

if TYPE_CHECKING:
    from pymc_bayessum.rules.rule import Rule

__all__ = [
    "Normalizer",
    "SignedLogSum",
    "describe_normalizer",
    "find_normalizers",
    "log_normalizer",
    "normalized",
    "signed_log_sum",
]


class SignedLogSum(TensorSymbolicOp):
    r"""Signed log-sum over the last axis, :math:`\log \sum_i s_i e^{a_i + c_i}`.

    Inputs are the terms ``a`` of shape (..., N), the logarithms ``c`` of the weights' absolute
    values and their signs ``s`` (each of a shape that broadcasts against ``a``), and with
    ``shifted`` a fourth of the batch shape.  The result has the dtype of ``a``.
    :func:`signed_log_sum` takes plain weights.

    The largest term :math:`m = \max_i (a_i + c_i)` is taken out of the sum for stability.  A
    shift close to it, known in closed form, spares the pass over the terms that finds it, and
    then no array over rows and nodes has to be held.  The result does not depend on the shift,
    so no gradient flows through it.

    Terms with :math:`c_i = -\infty` (a zero weight) or :math:`a_i = -\infty` add nothing.  If all
    do the value is -inf with a zero gradient; if the sum is negative (or cancels to zero) the
    value is NaN with a zero gradient.  Derivatives of any order are those of the sum.

    It is a `SymbolicOp`: a named node until compilation, when it is inlined, so that every
    backend fuses it with what surrounds it.

    Parameters
    ----------
    rule : Rule, optional
        The rule the weights belong to.  Any further inputs are its nodes; they do not enter the
        sum and are kept for :func:`find_normalizers`.
    shifted : bool
        Whether a fourth input holds the shift.

    Examples
    --------
    >>> import numpy as np
    >>> value = SignedLogSum()(np.zeros(3), np.log([1.0, 4.0, 2.0]), np.array([1.0, 1.0, -1.0]))
    >>> bool(np.isclose(value.eval(), np.log(3.0)))
    True
    """

    __props__ = ("rule", "shifted")
    inline = True

    def __init__(
        self, *, rule: "Rule | None" = None, shifted: bool = False, input_types=None, **kwargs
    ):
        self.rule = rule
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
            _sum_to(shares, a),
            _sum_to(shares, log_weights),
            _sum_to(factor * scaled, signs),
            *(disconnected_type() for _ in rest),
        ]

    def __str__(self) -> str:
        """Name the Op; the rule would print all of its arrays."""
        return type(self).__name__


@_vectorize_node.register(SignedLogSum)
def _vectorize_signed_log_sum(op, node, *batched):
    """Batch dimensions broadcast already: only line up the core dimensions on the right."""
    core_ndim = max(x.type.ndim for x in node.inputs[:3])
    wanted = [core_ndim] * 3 + ([core_ndim - 1] if op.shifted else [])
    aligned = [
        _pad_core(new, old.type.ndim, ndim)
        for new, old, ndim in zip(batched, node.inputs, wanted, strict=False)
    ]
    return op(*aligned, *node.inputs[len(wanted) :]).owner


def _pad_core(batched: Any, core_ndim: int, wanted: int) -> Any:
    """Insert axes of length one between the batch and the core dimensions."""
    n_batch = batched.type.ndim - core_ndim
    if n_batch == 0 or wanted <= core_ndim:
        return batched
    return pt.expand_dims(batched, tuple(range(n_batch, n_batch + wanted - core_ndim)))


def _sum_to(gradient: Any, like: Any) -> Any:
    """Sum over the dimensions along which ``like`` was broadcast."""
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


def signed_log_sum(a: Any, weights: Any, shift: Any = None) -> TensorVariable:
    r"""Return :math:`\log \sum_i w_i e^{a_i}` over the last axis, for weights of either sign.

    Parameters
    ----------
    a : tensor of shape (..., N)
        Logarithms of the terms, -inf allowed.
    weights : tensor of a shape that broadcasts against ``a``
        Zero and negative weights allowed.
    shift : tensor of the batch shape (...), optional
        A value near the largest :math:`a_i + \log|w_i|`, in place of the search for it.

    Returns
    -------
    TensorVariable of the batch shape
        NaN where the sum is not positive, -inf where it has no terms.

    Examples
    --------
    >>> import numpy as np
    >>> value = signed_log_sum(np.array([0.0, 1.0]), np.array([2.0, -0.5]))
    >>> bool(np.isclose(value.eval(), np.log(2.0 - 0.5 * np.e)))
    True
    """
    weights = pt.as_tensor_variable(weights)
    inputs = [a, pt.log(pt.abs(weights)), pt.sign(weights)]
    if shift is None:
        return SignedLogSum()(*inputs)
    return SignedLogSum(shifted=True)(*inputs, shift)


def log_normalizer(
    log_f: Any,
    rule: "Rule",
    return_sd: bool = False,
    shift: Any = None,
) -> Any:
    r"""Return the symbolic log Z(θ), the logarithm of a sum over the support of a rule.

    .. math:: \log Z(\theta) = \log \sum_i w_i \exp(\log f(x_i; \theta) - b_i)

    with the nodes :math:`x_i`, weights :math:`w_i` and log base mass :math:`b_i` of the rule.
    ``log_f`` is the raw log summand: the base mass is taken into account here.

    Parameters
    ----------
    log_f : tensor of shape (..., N), or callable
        The log summand at the nodes, along the last axis; or a function that is given the nodes
        as a constant (of shape (N,) on the integers, (N, L) on sites, a pair of constants on a
        product) and returns that tensor.  A callable lets the diagnostics evaluate the summand
        at other nodes too.
    rule : Rule
        Nodes and weights, from `bayes_sum` and its relatives.
    return_sd : bool
        Whether to return the posterior standard deviation of log Z(θ) as well:
        :math:`\sqrt{V A(\theta)} / Z(\theta)`, with V the variance of the rule at unit amplitude
        and :math:`A = y^\top K^{-1} y / N`, :math:`y_i = f(x_i; \theta) e^{-b_i}`, the
        empirical-Bayes amplitude (delta method).
    shift : tensor of the batch shape (...), optional
        A closed form near the largest :math:`\log f(x_i) - b_i + \log|w_i|`, within a few
        hundred: it replaces the search for that maximum.  It does not change the result.  On
        numba no array over rows and nodes is then held if every parameter has one entry for
        each row; a parameter shared by all rows costs one such array in the gradient.

    Returns
    -------
    TensorVariable of shape (...), or a pair of them
        log Z(θ): NaN where the signed sum is not positive (see :func:`normalized`), -inf where
        all summands vanish.  With ``return_sd`` also its standard deviation.

    Examples
    --------
    The geometric series, on nodes that enumerate its first sixty terms:

    >>> import numpy as np
    >>> import pymc_bayessum as pbs
    >>> rule = pbs.bayes_sum(pbs.kernels.Brownian(), pbs.measures.Counting(59), np.arange(60))
    >>> log_z = pbs.log_normalizer(lambda x: x * np.log(0.5), rule)
    >>> bool(np.isclose(log_z.eval(), np.log(2.0)))
    True
    """
    nodes: tuple[TensorVariable, ...] = ()
    if callable(log_f):
        nodes = _as_constants(rule.nodes)
        log_f = log_f(nodes if isinstance(rule.nodes, tuple) else nodes[0])
    log_f = pt.as_tensor_variable(log_f)
    n_nodes = len(rule)
    if log_f.type.ndim == 0 or log_f.type.shape[-1] not in {n_nodes, None}:
        raise ValueError(
            f"log_f must have the {n_nodes} nodes of the rule along its last axis, "
            f"got a tensor of shape {log_f.type.shape}"
        )
    inputs = [log_f, rule.log_abs_weights - rule.log_base, rule.signs]
    if shift is not None:
        shift = pt.as_tensor_variable(shift)
        if shift.type.ndim >= log_f.type.ndim:
            raise ValueError(
                f"shift must have the batch shape of log_f, without the axis of the nodes: at most "
                f"{log_f.type.ndim - 1} dimensions, got {shift.type.ndim}"
            )
        inputs.append(shift)
    log_z = SignedLogSum(rule=rule, shifted=shift is not None)(*inputs, *nodes)
    return (log_z, _log_z_sd(log_f, rule)) if return_sd else log_z


def _log_z_sd(log_f: TensorVariable, rule: "Rule") -> TensorVariable:
    """Return the delta-method sd of log Z: sqrt(V y'K^-1 y / N) / w'y, for y scaled by its peak."""
    exponents = log_f - np.asarray(rule.log_base, dtype=log_f.dtype)
    peak = disconnected_grad(pt.max(exponents, axis=-1, keepdims=True))
    y = pt.exp(exponents - pt.switch(pt.isinf(peak), 0, peak))
    total = pt.sum(np.asarray(rule.weights, dtype=log_f.dtype) * y, axis=-1)
    # A sum of squares, unlike y'K^-1 y with the inverse written out, cannot come out negative.
    # Written with * and sum: a matrix product takes numba ten times as long to compile.
    whitener = np.asarray(rule.gram.whiten(np.eye(len(rule))).T, dtype=log_f.dtype)
    form = pt.sum(pt.sum(whitener * y[..., None, :], axis=-1) ** 2, axis=-1)
    variance = rule.variance / rule.gram.n_informative if rule.variance else 0.0
    positive = pt.gt(total, 0)
    sd = pt.sqrt(variance * form) / pt.switch(positive, total, 1)
    return pt.switch(positive, sd, np.nan).astype(log_f.dtype)


def _as_constants(nodes: Any) -> tuple[Any, ...]:
    parts = nodes if isinstance(nodes, tuple) else (nodes,)
    return tuple(
        part if isinstance(part, Variable) else pt.constant(np.asarray(part), name="nodes")
        for part in parts
    )


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

    Returns
    -------
    TensorVariable

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
class Normalizer:
    """A log-normaliser found in a graph.

    Attributes
    ----------
    log_z : TensorVariable
        The log-normaliser itself.
    inputs : tuple of Variable
        What the node was given, in order.
    rule : Rule or None
        The rule it sums by, if it is one rule.
    log_f : TensorVariable or None
        The log summand at the nodes of the rule (last axis).
    nodes : tuple of TensorVariable
        The constants that ``log_f`` was built on, empty where it was given as a tensor.
    reference : callable or None
        A NumPy function that takes the values of ``inputs`` and returns a finer or exact log Z.
    sd : TensorVariable or None
        Standard deviation of log Z that the normaliser itself states; that of the rule for None.
    parameters : tuple of Variable
        The free variables ``log_z`` depends on: the random variables of a model, or the inputs
        of a plain graph.  ``pytensor.function(parameters, log_z)`` compiles.
    term : TensorVariable or None
        The elementwise log-probability, potential or output in which it was found.
    name : str or None
        The name of that term.
    """

    log_z: Variable
    inputs: tuple[Variable, ...]
    rule: "Rule | None" = None
    log_f: Variable | None = None
    nodes: tuple[Variable, ...] = ()
    reference: Callable[..., np.ndarray] | None = None
    sd: Variable | None = None
    parameters: tuple[Variable, ...] = ()
    term: Variable | None = None
    name: str | None = None

    def log_f_at(self, nodes: Any) -> Variable:
        """Return the log summand at other nodes, of shape (..., number of those nodes).

        Parameters
        ----------
        nodes : array or tensor, or a pair of them
            Points in the form of ``rule.nodes``.
        """
        if self.log_f is None or not self.nodes:
            raise ValueError(
                "the log summand was given to log_normalizer as a tensor over the nodes of the "
                "rule; only a callable log_f can be evaluated at other nodes"
            )
        swaps = dict(zip(self.nodes, _as_constants(nodes), strict=True))
        return _rebuilt(self.log_f, swaps)

    def count(self) -> Variable:
        """Return how often each log Z is subtracted in ``term``, of the shape of ``log_z``.

        An error of log Z counts this many times in the log-likelihood.
        """
        if self.term is None:
            raise ValueError("this normaliser was found outside of a log-probability")
        return pytensor.grad(-pt.sum(self.term), self.log_z)  # type: ignore[return-value]


def _rebuilt(output: Variable, swaps: Mapping[Variable, Variable]) -> Variable:
    """Apply the operations below the swapped variables anew; what lies above stays the same.

    The ready-made replacements of PyTensor clone what lies above (a model's random variables
    among it), or keep to the old lengths.
    """
    new = dict(swaps)
    for node in toposort([output]):
        if any(x in new for x in node.inputs):
            outputs = node.op(*(new.get(x, x) for x in node.inputs), return_list=True)
            new.update(zip(node.outputs, outputs, strict=True))
    return new.get(output, output)


@singledispatch
def describe_normalizer(op: Any, node: Apply) -> Normalizer | None:
    """Describe the log-normaliser that a node computes, or return None if it is none.

    Parameters
    ----------
    op : Op
        The Op of the node, on whose type this dispatches.
    node : Apply
        The node itself.

    Returns
    -------
    Normalizer or None

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> describe_normalizer(pt.exp, pt.exp(pt.scalar()).owner) is None
    True
    """
    return None


@describe_normalizer.register(SignedLogSum)
def _describe_signed_log_sum(op: SignedLogSum, node: Apply) -> Normalizer | None:
    if op.rule is None:
        return None
    first_node = 4 if op.shifted else 3
    return Normalizer(
        log_z=node.outputs[0],
        inputs=(node.inputs[0],),
        rule=op.rule,
        log_f=node.inputs[0],
        nodes=tuple(node.inputs[first_node:]),
    )


def find_normalizers(graph: Any) -> list[Normalizer]:
    """Return the log-normalisers of a model or a graph, with their rules and summands.

    Parameters
    ----------
    graph : pm.Model, Variable or sequence of Variable
        In a model the log-probabilities of all random variables and the potentials are searched;
        the variables of what is found are the model's random variables, so that it can be
        evaluated on posterior draws.

    Returns
    -------
    list of Normalizer

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> import pymc_bayessum as pbs
    >>> rule = pbs.bayes_sum(pbs.kernels.Brownian(), pbs.measures.Counting(9), np.arange(10))
    >>> theta = pt.scalar("theta")
    >>> (found,) = find_normalizers(-pbs.log_normalizer(lambda x: theta * x, rule))
    >>> found.rule is rule, found.parameters
    (True, (theta,))
    """
    if isinstance(graph, Variable):
        return _search([graph])
    if isinstance(graph, Sequence):
        return _search(graph)
    if not hasattr(graph, "basic_RVs"):
        raise TypeError(
            f"graph must be a PyMC model, a variable or a sequence of variables, got {graph!r}"
        )
    return [found for term in _terms(graph) for found in _search([term], graph.free_RVs)]


def _search(terms: Iterable[Variable], free: Sequence[Variable] = ()) -> list[Normalizer]:
    records = []
    for term in terms:
        seen: set[Apply] = set()
        for variable in ancestors([term]):
            node = variable.owner
            if node is None or node in seen:
                continue
            seen.add(node)
            found = describe_normalizer(node.op, node)
            if found is not None:
                parameters = _free_variables(found.log_z, free)
                records.append(replace(found, parameters=parameters, term=term, name=term.name))
    return records


def _free_variables(variable: Variable, free: Sequence[Variable]) -> tuple[Variable, ...]:
    """Return the model's variables it depends on, in their order, or else the graph's inputs."""
    reached = set(ancestors([variable], blockers=free))
    return tuple(v for v in free if v in reached) or tuple(explicit_graph_inputs([variable]))


def _terms(model: Any) -> list[TensorVariable]:
    """Return the log-probability of each variable given its parents, and the potentials."""
    # PyMC belongs to the layer above; only a caller who holds a model gets here.
    import pymc as pm

    terms = []
    for rv in model.basic_RVs:
        value = model.rvs_to_values[rv] if rv in model.observed_RVs else rv.type()
        try:
            term = pm.logp(rv, value, warn_rvs=False)
        except NotImplementedError:  # a simulator has no log-probability to search
            continue
        term.name = rv.name
        terms.append(term)
    return [*terms, *model.potentials]
