r"""How a Potts or Ising model is anchored where no exact normaliser is affordable.

Draws from the model's own prior tell which parameters there are: fields that depend on two numbers
count as two parameters however many sites they are spread over. The climb to the posterior starts
from the mode of the pseudo-likelihood.
"""

from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from pymc_bayessum.anchoring.files import as_fields
from pymc_bayessum.anchoring.prior import prior_draws
from pymc_bayessum.arguments import as_generator
from pymc_bayessum.graphs.anchors import AnchoredRule
from pymc_bayessum.graphs.coordinates import identifiable, spanned
from pymc_bayessum.graphs.curves import hidden_rule
from pymc_bayessum.graphs.estimates import data_rows
from pymc_bayessum.graphs.family import PottsFamily
from pymc_bayessum.graphs.pseudo import PseudoTarget, pseudo_mode
from pymc_bayessum.graphs.statistics import GraphNormalizer, PottsLayout
from pymc_bayessum.normalizers.anchored.climbing import Data
from pymc_bayessum.normalizers.anchored.defaults import default_anchored, matched_prior

__all__ = ["PottsAnchors", "prior_parameters"]

#: Rows from which on data are varied enough to start all chains from.
MANY_ROWS = 50


@dataclass(frozen=True, eq=False)
class PottsAnchors:
    """Anchors of a model by its data, and a curve over its coupling where labels are hidden.

    Draws (K, d) of the prior say which parameters are free, and about where they are; without them
    all are, with vague priors.

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
        """Anchor at the rows (n, L) that have no missing entry, in the alphabet of the layout."""
        layout, draws = self.layout, self.draws
        rows = np.ma.asarray(data).reshape(-1, layout.n_sites)
        complete = np.asarray(rows[~np.ma.getmaskarray(rows).any(axis=1)]).astype(np.int64)
        if not len(complete):
            raise ValueError(
                "there are no complete observed rows to anchor a normaliser at: pass "
                "normalizer=pbs.anchored_rule(h, J, edges) at parameters near those you expect, or "
                "normalizer='exact' where the graph allows it"
            )
        states = layout.encode(data_rows(layout, complete))
        coordinates = identifiable(layout) if draws is None else spanned(layout, draws)
        prior = matched_prior(coordinates, draws)
        target = PseudoTarget(layout, states, np.ones(len(states)))
        start = pseudo_mode(target, coordinates, prior)[0] if coordinates.size else None
        return default_anchored(
            PottsFamily(layout),
            Data(layout.mean_statistics(states), len(states)),
            coordinates,
            prior,
            start,
            rng=as_generator(self.random_seed),
            chains=_first_states(layout, states),
            progressbar=self.progressbar,
            executor=executor,
            kind=AnchoredRule,
        )

    def without_data(self) -> GraphNormalizer:
        """Follow log Z over the prior of one coupling, for labels that nobody observes."""
        return hidden_rule(self.layout, self.draws, self.random_seed, self.progressbar)

    def restored(self, dataset: xr.Dataset) -> AnchoredRule:
        """Return the anchors that a dataset holds."""
        family = PottsFamily(self.layout)
        return AnchoredRule(family=family, **as_fields(dataset, family))


def _first_states(layout: PottsLayout, states: np.ndarray) -> np.ndarray:
    """States to start chains from: the data, and of few rows ordered and random ones beside them.

    Chains that start alike would agree even where they do not mix, as at a first-order transition.
    """
    if len(states) >= MANY_ROWS:
        return states
    ordered = np.repeat(np.arange(layout.n_states)[:, None], layout.n_sites, axis=1)
    random = np.random.default_rng(0).integers(0, layout.n_states, ordered.shape)
    n = max(len(states), layout.n_states)
    rows = [part[np.arange(n) % len(part)] for part in (states, ordered, states, random)]
    return np.stack(rows, axis=1).reshape(-1, layout.n_sites)


def prior_parameters(layout: PottsLayout, h: Any, J: Any) -> np.ndarray | None:
    """Draw theta from the model's prior, shape (K, d); None where that is not possible.

    Examples
    --------
    >>> import pymc as pm
    >>> layout = PottsLayout(2, 2, [(0, 1)], "none", "scalar", spins=True)
    >>> prior_parameters(layout, None, pm.Normal.dist()).shape
    (200, 1)
    """
    drawn = None if h is None and J is None else prior_draws([h, J])
    if drawn is None:
        return None
    theta = layout.flatten(*(0.0 if part is None else part for part in drawn))
    if not np.isfinite(theta).all():
        return None
    if theta.ndim == 1:
        # Numbers have no draws: a few copies of them span the one point there is.
        return np.tile(theta, (3, 1))
    # Rows of a variable that has several may have parameters of their own.
    return theta.reshape(-1, theta.shape[-1])
