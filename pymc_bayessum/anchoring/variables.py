"""The variables of a model that have a normaliser to anchor."""

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.graph.basic import Apply

from pymc_bayessum.normalizers.anchored.anchorage import Anchorage, Held, fingerprint, known_data

__all__ = ["Anchorable", "anchorable"]


@dataclass(frozen=True, eq=False)
class Anchorable:
    """A variable with a normaliser to anchor: where its Op is applied, and its data, if known."""

    name: str
    node: Apply
    data: np.ndarray | None

    @property
    def held(self) -> Held | None:
        """The normaliser that its log-probability has now, if it is anchored."""
        anchorage = self.node.op.normalizer
        if not isinstance(anchorage, Anchorage):
            return None
        if self.data is None:
            return anchorage.unknown
        return anchorage.held.get(fingerprint(self.data))

    def builder(self, **options: Any) -> Callable[..., Any] | None:
        """Return how to anchor it with the prior that it has now; None where it is exact."""
        op: Any = self.node.op
        return op.anchors(*op.dist_params(self.node), **options)

    def set(self, anchorage: Anchorage) -> None:
        """Give the variable other anchors, in this model and in none that it was made from."""
        op: Any = copy(self.node.op)
        op.normalizer = anchorage
        # Models made from one another share Ops, but never the nodes that apply them.
        self.node.op = op


def anchorable(model: pm.Model) -> Iterator[Anchorable]:
    """Yield the variables of a model that have a normaliser to anchor.

    Examples
    --------
    >>> import pymc_bayessum as pbs
    >>> with pm.Model() as model:
    ...     _ = pbs.Ising("x", 0.0, pm.Normal("J"), pbs.graphs.grid(16, 16))
    >>> [part.name for part in anchorable(model)]
    ['x']
    """
    for rv in model.basic_RVs:
        node = rv.owner
        if isinstance(node.op, MinibatchRandomVariable):
            node = node.inputs[0].owner
        if hasattr(node.op, "anchors"):
            data = known_data(model.rvs_to_values[rv]) if rv in model.observed_RVs else None
            yield Anchorable(str(rv.name), node, data)
