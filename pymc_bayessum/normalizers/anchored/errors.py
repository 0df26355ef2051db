"""How good an anchored estimate is, told by draws that are not in it."""

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp, softmax

from pymc_bayessum.normalizers.anchored.mixture import Nodes

__all__ = [
    "TARGET",
    "TOLERANCE",
    "V_LIMIT",
    "HeldOut",
    "Precision",
    "correlation_factor",
    "group_means",
    "held_out",
    "slope_trust",
]

#: Variance of the log ratio above which an estimate is flagged.
V_LIMIT = 0.5


class Precision(NamedTuple):
    """Errors that draws leave in a posterior, along the axes where they are largest.

    Of its mean, in sds, and of its sd, relative.
    """

    mean: float
    sd: float

    def excess(self, target: "Precision") -> float:
        """How many times the target the worse of the two is."""
        return max(self.mean / target.mean, self.sd / target.sd)


#: What draws are made for.
TARGET = Precision(mean=0.03, sd=0.03)
#: Times the target at which an error counts as missed: it is itself known to a quarter only.
TOLERANCE = 1.5


class HeldOut(NamedTuple):
    """Draws that were kept out of a rule.

    Reduced statistics of draws at all anchors (T, r), minus the log density of the mixture of
    anchors there (T,), and the covariance of the statistics at each anchor (K, r, r).
    """

    rows: np.ndarray
    log_weights: np.ndarray
    covariances: np.ndarray


def held_out(
    parts: list[np.ndarray], points: np.ndarray, sizes: np.ndarray, log_z: np.ndarray
) -> HeldOut:
    """Gather rows (T_k, r) held out at each anchor, of points (K, r).

    ``sizes`` and ``log_z`` are the numbers of draws in the rule at each, and their constants.
    """
    rows = np.concatenate(parts)
    spread = [np.cov(part, rowvar=False).reshape(2 * part.shape[1:]) for part in parts]
    weights = -logsumexp(rows @ points.T + np.log(sizes) - log_z, axis=1)
    return HeldOut(rows, weights, np.stack(spread))


def slope_trust(
    spread: np.ndarray | None, nodes: Nodes, centre: np.ndarray, covariance: np.ndarray
) -> float:
    """Weight of the mean at the centre against the slope that all anchors give there together.

    Draws at other anchors tell of the slope at the centre too. Each estimate is weighted by the
    inverse of its variance, in directions of unit variance of the statistics. ``spread`` is the
    square root of the covariance of the mean, :meth:`.Moments.spread`.
    """
    if spread is None:
        return 1.0
    own = np.sum(spread * np.linalg.lstsq(covariance, spread.T)[0].T) / len(covariance)
    pooled = np.sum(nodes.share(centre) ** 2 / nodes.counts)
    return float(pooled / (pooled + own))


def correlation_factor(
    parts: list[np.ndarray],
    chains: list[np.ndarray],
    points: np.ndarray,
    log_z: np.ndarray,
    covariance: np.ndarray,
    rng: np.random.Generator,
) -> float:
    """Variance of changes of log Z, relative to independent draws and known constants.

    Influences of single draws, those through the constants of the anchors included, are summed
    over each chain before they are squared. Checked between the anchors, or where V is a half,
    with the covariance at the centre. At least a half.
    """
    rows = np.concatenate(parts)
    anchor = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    group = np.unique(
        anchor * (1 + max(int(part.max()) for part in chains)) + np.concatenate(chains),
        return_inverse=True,
    )[1]
    sizes = np.bincount(anchor).astype(float)
    energies = rows @ points.T
    log_mixture = logsumexp(energies + np.log(sizes) - log_z, axis=1)
    share = np.exp(energies + np.log(sizes) - log_z - log_mixture[:, None])
    constants = np.zeros_like(share)
    if len(points) > 1:
        bend = np.diag(share.sum(axis=0)) - share.T @ share
        centred = share[:, 1:] - group_means(share[:, 1:], anchor)[anchor]
        constants[:, 1:] = np.linalg.solve(bend[1:, 1:], centred.T).T
        targets = np.concatenate([points[1:], (points[1:] + points[0]) / 2.0])
    else:
        targets = points[0] + _steps_of_half(covariance, rng)
    centre = softmax(energies[:, 0] - log_mixture)
    away = rows - centre @ rows
    ratios = []
    for target in targets:
        now = softmax(rows @ target - log_mixture)
        slope = (away @ (target - points[0])) * centre
        simple = now - centre - slope
        # Constants of the anchors move log Z, its value at the centre and the slope there.
        by_constants = now @ share - centre @ share - slope @ share
        full = simple - group_means(simple[:, None], anchor)[anchor, 0] + constants @ by_constants
        total = np.bincount(group, weights=full)
        ratios.append((total @ total) / max(float(simple @ simple), 1e-300))
    return max(0.5, float(np.mean(ratios)))


def _steps_of_half(covariance: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Random steps from an anchor along which V is at its limit, (6, r)."""
    scale = np.sqrt(np.maximum(np.diag(covariance), 1e-12))
    directions = rng.normal(size=(6, len(scale))) / scale
    lengths = np.einsum("ki,ij,kj->k", directions, covariance, directions)
    return directions * np.sqrt(V_LIMIT / np.maximum(lengths, 1e-12))[:, None]


def group_means(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Return the means of rows (N, d) over the groups 0 .. G-1 that they belong to, (G, d)."""
    counts = np.bincount(group)
    sums = np.stack([np.bincount(group, weights=column) for column in values.T], axis=1)
    return sums / counts[:, None]
