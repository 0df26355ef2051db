"""How a Potts or Ising model is anchored, at data that are not known before it is asked."""

from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from pymc_bayessum.anchoring.files import as_fields
from pymc_bayessum.graphs.anchors import AnchoredRule
from pymc_bayessum.graphs.curves import hidden_rule
from pymc_bayessum.graphs.default_anchors import rule_at
from pymc_bayessum.graphs.family import PottsFamily
from pymc_bayessum.graphs.statistics import GraphNormalizer, PottsLayout

__all__ = ["PottsAnchors"]


@dataclass(frozen=True, eq=False)
class PottsAnchors:
    """Anchors of a model by its data, and a curve over its coupling where labels are hidden.

    Draws (K, d) of the prior say which parameters are free; without them all are.

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> layout = PottsLayout(16, 2, graphs.grid(4, 4), "none", "scalar", spins=True)
    >>> len(PottsAnchors(layout, progressbar=False)(np.ones(16, int)).anchors)
    3
    """

    layout: PottsLayout
    draws: np.ndarray | None = field(default=None, repr=False)
    random_seed: Any = 0
    progressbar: bool = True

    def __call__(self, data: np.ndarray, executor: Executor | None = None) -> AnchoredRule:
        """Anchor at the rows that have no missing entry."""
        rows = np.ma.asarray(data).reshape(-1, self.layout.n_sites)
        complete = np.asarray(rows[~np.ma.getmaskarray(rows).any(axis=1)]).astype(np.int64)
        how = self.random_seed, self.progressbar, executor
        return rule_at(self.layout, complete, self.draws, *how)

    def without_data(self) -> GraphNormalizer:
        """Follow log Z over the prior of one coupling, for labels that nobody observes."""
        how = {"rng": self.random_seed, "progressbar": self.progressbar}
        return hidden_rule(self.layout, self.draws, **how)

    def restored(self, dataset: xr.Dataset) -> AnchoredRule:
        """Return the anchors that a dataset holds."""
        family = PottsFamily(self.layout)
        return AnchoredRule(family=family, **as_fields(dataset, family))
