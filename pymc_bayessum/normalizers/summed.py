r"""A rule with its log summand: log Z(θ) as a signed log-sum over nodes.

A rule fixes nodes :math:`x_i`, weights :math:`w_i` and the log base mass :math:`b_i` before θ is
known.  What is left is

.. math:: \log Z(\theta) = \log \sum_{i=1}^N w_i \exp(\log f(x_i; \theta) - b_i).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.tensor.variable import TensorVariable

from pymc_bayessum.normalizers import node
from pymc_bayessum.normalizers.interpreted import evaluated
from pymc_bayessum.normalizers.logsum import SignedLogSum
from pymc_bayessum.normalizers.protocol import Asked, Facts, Reference
from pymc_bayessum.normalizers.references import rule_reference
from pymc_bayessum.rules.rule import Rule

__all__ = ["RuleSum", "log_normalizer", "sum_by"]


@dataclass(frozen=True)
class RuleSum:
    """The normaliser of a rule; its parameters are the log summand at the nodes, and the nodes.

    The nodes are there for the diagnostics, which evaluate the summand at others; without them
    there is no reference.
    """

    rule: Rule

    is_absolute = True

    def log_z(self, xp: Any, log_f: Any, *nodes: Any) -> Any:
        """Return the signed log-sum: symbolic, for the terms decide how it is differentiated."""
        value = self.signed_sum(log_f)
        return value if xp is pt else evaluated(value)

    def signed_sum(self, log_f: Any, shift: Any = None) -> TensorVariable:
        """Return the symbolic log-sum over the last axis, with the weights as constants."""
        inputs = [log_f, self.rule.log_abs_weights - self.rule.log_base, self.rule.signs]
        return SignedLogSum(shifted=shift is not None)(*inputs, *([] if shift is None else [shift]))

    def sd(self, xp: Any, log_f: Any, *nodes: Any) -> Any:
        r"""Return :math:`\sqrt{V A(\theta)} / Z(\theta)`, see `log_normalizer`.

        Written with * and sum: a matrix product takes numba ten times as long to compile.
        """
        rule, dtype = self.rule, log_f.dtype
        exponents = log_f - np.asarray(rule.log_base, dtype=dtype)
        peak = xp.max(exponents, axis=-1, keepdims=True)
        peak = disconnected_grad(peak) if xp is pt else peak
        y = xp.exp(exponents - xp.where(xp.isinf(peak), 0, peak))
        total = xp.sum(np.asarray(rule.weights, dtype=dtype) * y, axis=-1)
        # A sum of squares, unlike y'K^-1 y with the inverse written out, cannot be negative.
        whitener = np.asarray(rule.gram.whiten(np.eye(len(rule))).T, dtype=dtype)
        form = xp.sum(xp.sum(whitener * y[..., None, :], axis=-1) ** 2, axis=-1)
        variance = rule.variance / rule.gram.n_informative if rule.variance else 0.0
        positive = xp.greater(total, 0) if xp is np else xp.gt(total, 0)
        sd = xp.sqrt(variance * form) / xp.where(positive, total, 1)
        return xp.where(positive, sd, np.nan).astype(dtype)

    def reference(self, asked: Asked) -> Reference | None:
        """Return the series, all points, quadrature or fresh nodes, by the support of the rule."""
        return rule_reference(self.rule, asked)

    def remedy(self, facts: Facts) -> str:
        """Say whether nodes are missing beyond the last, or the base is wrong."""
        if not facts.compared:
            return "give log_f to pbs.log_normalizer as a callable, so that it can be checked"
        if facts.beyond > 1e-4:
            return (
                f"more nodes: up to {facts.beyond:.2g} of the sum lies beyond the last node "
                f"({self.rule.reach.highest:g}); they should reach {facts.needed:g}"
            )
        return (
            "more nodes, or another base: one whose mass lies where the summand's does, with no "
            "lighter tails"
        )


def log_normalizer(
    log_f: Any,
    rule: Rule,
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
    normalizer = RuleSum(rule)
    log_z = sum_by(normalizer, log_f, shift=shift)
    return (log_z, normalizer.sd(pt, log_z.owner.inputs[1])) if return_sd else log_z


def sum_by(normalizer: RuleSum, log_f: Any, *beside: Any, shift: Any = None) -> TensorVariable:
    """Return the symbolic log Z of a rule's normaliser, with ``log_f`` as for `log_normalizer`.

    ``beside`` is what else its reference asks for, after the log summand and the nodes.
    """
    rule = normalizer.rule
    nodes: tuple[Any, ...] = ()
    if callable(log_f):
        parts = rule.nodes if isinstance(rule.nodes, tuple) else (rule.nodes,)
        nodes = tuple(pt.constant(np.asarray(part), name="nodes") for part in parts)
        log_f = log_f(nodes if isinstance(rule.nodes, tuple) else nodes[0])
    log_f = pt.as_tensor_variable(log_f)
    n_nodes = len(rule)
    if log_f.type.ndim == 0 or log_f.type.shape[-1] not in {n_nodes, None}:
        raise ValueError(
            f"log_f must have the {n_nodes} nodes of the rule along its last axis, "
            f"got a tensor of shape {log_f.type.shape}"
        )
    if shift is not None:
        shift = pt.as_tensor_variable(shift)
        if shift.type.ndim >= log_f.type.ndim:
            raise ValueError(
                f"shift must have the batch shape of log_f, without the axis of the nodes: at most "
                f"{log_f.type.ndim - 1} dimensions, got {shift.type.ndim}"
            )
    value = normalizer.signed_sum(log_f, shift)
    return node.log_z(normalizer, log_f, *nodes, *beside, value=value)
