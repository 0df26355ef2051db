"""First labels of hidden sites: by the rank of what was observed there."""

import numpy as np
from scipy.stats import rankdata

from pymc_bayessum.graphs.neighbours import adjacency
from pymc_bayessum.graphs.statistics import PottsLayout

__all__ = ["ranked_labels"]


def ranked_labels(layout: PottsLayout, data: np.ndarray) -> np.ndarray:
    """Divide sites into as many groups of equal size as there are labels, by their data.

    Several columns are ranked along their first principal direction, turned so that the first
    column increases. Each site counts together with its neighbours: their mean has less noise,
    and labels that agree with their neighbours are what hidden labels are about. Data (L, C) are
    NaN where nothing was observed; labels are states 0 .. S-1.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum import graphs
    >>> layout = PottsLayout(6, 2, graphs.chain(6), "none", "scalar")
    >>> ranked_labels(layout, np.array([[1.0], [0.0], [1.0], [5.0], [6.0], [5.0]])).tolist()
    [0, 0, 0, 1, 1, 1]
    """
    score = _smooth(layout, _first_direction(data))
    states = ((rankdata(score, method="ordinal") - 1) * layout.n_states) // layout.n_sites
    return np.minimum(states, layout.has_state.sum(axis=1) - 1).astype(np.int64)


def _first_direction(data: np.ndarray) -> np.ndarray:
    """Scores of rows on their first principal direction; zero where nothing was observed."""
    centred = data - np.nanmean(data, axis=0)
    scale = np.nanstd(data, axis=0)
    centred = np.where(np.isnan(centred), 0.0, centred) / np.where(scale > 0.0, scale, 1.0)
    direction = np.linalg.eigh(centred.T @ centred)[1][:, -1]
    return centred @ direction * (1.0 if direction[0] >= 0.0 else -1.0)


def _smooth(layout: PottsLayout, score: np.ndarray) -> np.ndarray:
    """Mean over a site and its neighbours."""
    start, site, _ = adjacency(layout.edges, layout.n_sites)
    degree = np.diff(start)
    owner = np.repeat(np.arange(layout.n_sites), degree)
    return (score + np.bincount(owner, score[site], layout.n_sites)) / (1 + degree)
