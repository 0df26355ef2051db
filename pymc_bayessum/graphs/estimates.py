"""What estimated normalisers of graph models share: their Op, their arguments, their arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_bayessum.graphs.elimination import ELIMINATION, EliminationPlan, elimination_plan
from pymc_bayessum.graphs.statistics import PottsLayout, ising_layout, potts_layout
from pymc_bayessum.normalizers.protocol import Asked, Facts, Given, Reference

__all__ = [
    "V_LIMIT",
    "Estimated",
    "data_rows",
    "exact_plan",
    "model_layout",
    "numeric_parameters",
    "product",
    "symbolic_parameters",
]

#: Variance of the log ratio above which an estimate is flagged.
V_LIMIT = 0.5
#: Length up to which sums of products are written out term by term.
UNROLLED = 8
#: Table entries up to which an elimination is done now and then (about a second), if not always.
ONE_OFF_ENTRIES = 1e8


@dataclass(frozen=True, eq=False)
class Estimated:
    """The normaliser of a rule on a graph, `PottsRule` or `AnchoredRule`, as a function of theta.

    Parameters
    ----------
    rule : PottsRule or AnchoredRule
    """

    rule: Any

    @property
    def is_absolute(self) -> bool:
        """Whether the rule knows the constant at its anchor."""
        return self.rule.is_absolute

    def log_z(self, xp: Any, theta: Any) -> Any:
        """Log Z of parameter vectors (..., d)."""
        return self.rule.log_z_at(xp, theta)

    def sd(self, xp: Any, theta: Any) -> Any:
        """Predicted standard error of log Z."""
        return self.rule.sd_at(xp, theta)

    def reference(self, asked: Asked) -> Reference:
        """Elimination where a few passes are cheap, else draws around the posterior."""
        layout = self.rule.layout
        plan = exact_plan(layout)
        if plan is None:
            # Anchors are estimates themselves.
            from pymc_bayessum.graphs.anchor_reference import AnchoredReference

            return AnchoredReference(self.rule, asked)

        def exact(theta: np.ndarray) -> np.ndarray:
            return plan.log_partitions(*layout.expand(*layout.unflatten(theta)))

        return Given(exact, ELIMINATION)

    def remedy(self, facts: Facts) -> str:
        """Say what the rule says."""
        return self.rule.remedy


def exact_plan(layout: PottsLayout) -> EliminationPlan | None:
    """Elimination plan of the graph if a few passes of it are cheap, else None.

    Parameters
    ----------
    layout : PottsLayout

    Returns
    -------
    EliminationPlan or None

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> exact_plan(PottsLayout(100, 3, graphs.grid(10, 10), "shared", "scalar")) is None
    False
    >>> exact_plan(PottsLayout(400, 3, graphs.grid(20, 20), "shared", "scalar")) is None
    True
    """
    plan = elimination_plan(layout.edges, layout.n_sites, layout.n_states)
    return plan if plan.cost <= ONE_OFF_ENTRIES else None


def symbolic_parameters(layout: PottsLayout, h: Any, J: Any) -> Variable:
    """Stack parameters, symbolic or not, into a tensor (..., d)."""
    return pt.as_tensor_variable(layout.flatten(h, J))


def product(xp: Any, left: Any, right: np.ndarray) -> Any:
    """Product over the last axis of ``left`` and the first of a constant vector or matrix.

    Symbolic ones are written as sums of products, which fuse with what follows: as fast as a call
    of BLAS for one vector, and compiled in a tenth of the time.
    """
    if xp is np:
        return np.dot(left, right)
    if len(right) <= UNROLLED:
        columns = [
            left[..., k] if right.ndim == 1 else left[..., k, None] for k in range(len(right))
        ]
        terms = [column * row for column, row in zip(columns, right, strict=True)]
        return sum(terms[1:], start=terms[0])
    if right.ndim == 1:
        return pt.sum(left * right, axis=-1)
    return pt.sum(left[..., None, :] * np.ascontiguousarray(right.T), axis=-1)


def numeric_parameters(layout: PottsLayout, h: Any, J: Any) -> np.ndarray:
    """Check numeric parameters of one model against its layout and stack them, shape (d,)."""
    h = np.zeros(()) if h is None else np.asarray(h, dtype=float)
    J = np.zeros(()) if J is None else np.asarray(J, dtype=float)
    for name, value, shape, kind in (
        ("h", h, layout.field_shape, layout.field_kind),
        ("J", J, layout.coupling_shape, layout.coupling_kind),
    ):
        if kind != "none" and value.shape != shape:
            raise ValueError(f"{name} must have shape {shape}, got {value.shape}")
    return layout.flatten(h, J)


def model_layout(
    h: Any,
    J: Any,
    edges: Any,
    *,
    ising: bool = False,
    n_sites: int | None = None,
    n_states: int | None = None,
    observed: Any = None,
) -> tuple[PottsLayout, np.ndarray]:
    """Layout and parameter vector of a model given by numbers.

    Parameters
    ----------
    h, J : array_like or None
        As for ``Potts`` (or ``Ising``), no batch dimensions.
    edges : array_like of int, shape (E, 2), or networkx.Graph
    ising : bool
        Spins -1/+1 instead of states 0 .. S-1.
    n_sites, n_states : int, optional
        Where the shapes do not tell.
    observed : array_like, shape (n, L), optional
        Data, only its shape is used.

    Returns
    -------
    layout : PottsLayout
    theta : ndarray, shape (d,)
    """
    if ising:
        layout, h, J = ising_layout(h, J, edges, n_sites=n_sites, observed=observed)
    else:
        layout, h, J = potts_layout(
            h, J, edges, n_sites=n_sites, n_states=n_states, observed=observed
        )
    theta = numeric_parameters(layout, h, J)
    if not np.isfinite(theta).all():
        raise ValueError("h and J must hold finite numbers only")
    return layout, theta


def data_rows(layout: PottsLayout, rows: Any) -> np.ndarray:
    """Check data rows, in the alphabet of the model, and return them as integers (n, L)."""
    array = np.asarray(rows)
    if array.ndim != 2 or array.shape[1] != layout.n_sites or len(array) == 0:
        raise ValueError(f"observed rows must have shape (n, {layout.n_sites}), got {array.shape}")
    if not np.array_equal(array, np.floor(array)) or not layout.valid(array).all():
        allowed = "-1 and +1" if layout.spins else f"0 .. {layout.n_states - 1}"
        raise ValueError(f"observed rows hold states out of range, allowed: {allowed}")
    return array.astype(np.int64)
