r"""Sparse and dense networks of one model: told apart, and joined.

Terms that feed on themselves, such as triangles, give a model two kinds of networks, sparse ones
and nearly full ones, between which chains hardly ever go. Where all of a posterior is of that sort
the model is degenerate (Handcock, "Assessing degeneracy in statistical models of social networks",
2003). A posterior may also just reach there: on its far side full networks outweigh all others,
log Z rises steeply and the posterior ends. Draws at anchors on this side know nothing of that. But
networks of independent ties do, whose chains mix at any density: anchors at densities from empty to
full, each a step from the next, tell how much both kinds weigh.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import logit

__all__ = ["APART", "ELSEWHERE", "MOST_DYADS", "apart", "joined"]

#: Standard deviations between the ends of chains that count as different places.
APART = 4.0
#: The same between two anchors of one posterior, where some difference is as it should be.
ELSEWHERE = 8.0
#: Dyads up to which densities are joined: the number of anchors grows with their root.
MOST_DYADS = 400
#: Standard deviations of the number of ties from one density to the next.
STEP = 1.5
#: How often an anchor is moved half of the way to the centre.
HALVINGS = 3


def apart(places: np.ndarray) -> float:
    """Return by how many sds sets of networks, (K, chains, d), differ in a statistic.

    Examples
    --------
    >>> near = np.random.default_rng(0).normal(size=(3, 12, 2))
    >>> bool(apart(near) < APART), bool(apart(np.concatenate([near, near + 20.0])) > ELSEWHERE)
    (True, True)
    """
    centres = np.median(places, axis=1)
    # The narrowest: where some chains have jumped, the spread is that of the jump.
    within = places.std(axis=1, ddof=1).min(axis=0)
    scale = np.maximum(within, 1e-6 * (1.0 + np.abs(centres).max(axis=0)))
    return float(((centres.max(axis=0) - centres.min(axis=0)) / scale).max())


def joined(
    anchors: np.ndarray, strays: Callable[[np.ndarray], bool], edges: int | None, n_dyads: int
) -> np.ndarray | None:
    """Put anchors (K, d) where chains mix, and add those of independent ties where some strayed.

    The first, the centre, stays. Chains stray where they remember their beginning, or end far from
    where those of the centre do; if they stray at no anchor, these come back as they are. None
    where they do and no parameter (``edges`` is its place) moves the density alone.

    Examples
    --------
    >>> found = joined(np.array([[-1.0, 0.0], [-1.0, 0.8]]), lambda theta: theta[1] > 0.5, 0, 45)
    >>> found[:2].tolist(), len(found)
    ([[-1.0, 0.0], [-1.0, 0.4]], 16)
    """
    centre, kept = anchors[0], [anchors[0]]
    for theta in anchors[1:]:
        steps = (centre + 0.5**k * (theta - centre) for k in range(HALVINGS + 1))
        kept += [step for step in steps if not strays(step)][:1]
    if np.array_equal(kept, anchors):
        return anchors
    if edges is None:
        return None
    # In these angles the number of ties has the same sd at every density.
    least = np.arcsin(np.sqrt(0.5 / n_dyads))
    n_rungs = int(np.ceil((np.pi - 4.0 * least) * np.sqrt(n_dyads) / STEP)) + 1
    density = np.sin(np.linspace(least, 0.5 * np.pi - least, n_rungs)) ** 2
    rungs = np.zeros((n_rungs, len(centre)))
    rungs[:, edges] = logit(density)
    return np.concatenate([kept, rungs])
