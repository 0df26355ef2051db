"""Draws at several anchors as one: the self-consistent mixture (MBAR), a log-sum over its rows."""

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree
from scipy.special import logsumexp, softmax

__all__ = ["Nodes", "mbar", "pooled", "stepwise", "stretched"]

#: Coordinates up to which equal rows of statistics are merged (they hardly occur beyond).
MERGE_LIMIT = 16
#: Share of its variance below which a direction is not seen by the draws, and not stretched more.
LEAST_SEEN = 0.05


class Nodes(NamedTuple):
    """Distinct rows (M, r) of reduced statistics over which a log Z is summed.

    ``log Z(c) = logsumexp(rows @ c + log_weights)`` relative to the first anchor; ``counts`` are
    the draws behind each row.
    """

    rows: np.ndarray
    log_weights: np.ndarray
    counts: np.ndarray

    @property
    def n_draws(self) -> int:
        """Number of draws."""
        return int(self.counts.sum())

    def share(self, point: np.ndarray) -> np.ndarray:
        """Share of each row in the sum at coordinates, shape (M,)."""
        return softmax(self.rows @ point + self.log_weights)


def mbar(
    rows: np.ndarray,
    counts: np.ndarray,
    anchors: np.ndarray,
    sizes: np.ndarray,
    start: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    r"""Combine draws at several parameter values self-consistently.

    The constants :math:`f_k = \log Z_k` solve :math:`f_k = \log \sum_n e^{c_k \cdot \psi_n} /
    \sum_l N_l e^{c_l \cdot \psi_n - f_l}`; they maximise a concave function, found by Newton steps
    from where :func:`stepwise` begins. Rows (M, r) are the statistics of the pooled draws, counts
    (M,) how often each occurs, sizes (K,) the numbers of draws at each anchor (K, r). Returned are
    the logarithms of the weights of :class:`Nodes` (M,), and the constants (K,) relative to the
    first.

    Examples
    --------
    One site with energies c x, x = 0 or 1, drawn in exact proportion at two anchors:

    >>> rows, counts = np.array([[0.0], [1.0]]), np.array([60.0, 90.0])
    >>> anchors, sizes = np.log([[1.0], [7.0 / 3.0]]), np.array([75.0, 75.0])
    >>> _, log_z = mbar(rows, counts, anchors, sizes)
    >>> bool(np.isclose(log_z[1], np.log((1 + 7 / 3) / 2)))
    True
    """
    energies = rows @ anchors.T
    log_sizes = np.log(sizes)
    log_counts = np.log(counts)
    log_z = np.zeros(len(anchors)) if start is None else start
    # Start from the first anchor's draws reweighted stepwise: a few fixed-point steps.
    for _ in range(20):
        mixture = logsumexp(energies + (log_sizes - log_z), axis=1)
        log_z = logsumexp(energies + (log_counts - mixture)[:, None], axis=0)
        log_z -= log_z[0]
    for _ in range(50):
        share = softmax(energies + (log_sizes - log_z), axis=1)
        slope = counts @ share - sizes
        if np.abs(slope).max() < 1e-9 * sizes.sum():
            break
        bend = np.diag(counts @ share) - (share * counts[:, None]).T @ share
        step = np.zeros(len(anchors))
        step[1:] = np.linalg.solve(bend[1:, 1:], slope[1:])
        # log f_k enters with a minus sign; long steps are cut, the problem is convex.
        log_z += step * min(1.0, 1.0 / max(1e-300, np.abs(step).max()))
        log_z -= log_z[0]
    mixture = logsumexp(energies + (log_sizes - log_z), axis=1)
    return log_counts - mixture, log_z


def stepwise(means: np.ndarray, anchors: np.ndarray) -> np.ndarray:
    r"""Constants of anchors relative to the first, from one to the next by the trapezoidal rule.

    .. math:: \log Z_k - \log Z_j \approx \tfrac12 (c_k - c_j) \cdot (m_j + m_k)

    along the tree whose steps are shortest, :math:`(c_k - c_j) \cdot (m_k - m_j)` being twice the
    mean divergence between neighbours; mean statistics and coordinates are both (K, r).

    Examples
    --------
    >>> anchors = np.linspace(-4.0, 4.0, 9)[:, None]
    >>> exact = np.log1p(np.exp(anchors[:, 0]))
    >>> found = stepwise(1 / (1 + np.exp(-anchors)), anchors)
    >>> bool(np.allclose(found, exact - exact[0], atol=0.1))
    True
    """
    length = np.einsum("kjr,kjr->kj", *(x[:, None] - x for x in (anchors, means)))
    tree = minimum_spanning_tree(np.maximum(length, 1e-12) * ~np.eye(len(means), dtype=bool))
    order, before = breadth_first_order(tree, 0, directed=False)
    log_z = np.zeros(len(means))
    for k in order[1:]:
        j = before[k]
        log_z[k] = log_z[j] + 0.5 * (anchors[k] - anchors[j]) @ (means[j] + means[k])
    return log_z


def pooled(parts: list[np.ndarray], anchors: np.ndarray) -> tuple[Nodes, np.ndarray]:
    """Nodes of draws (N_k, r) at several anchors (K, r), and log Z there relative to the first.

    Examples
    --------
    >>> nodes, _ = pooled([np.array([[0.0], [1.0], [1.0]])], np.zeros((1, 1)))
    >>> nodes.counts.tolist(), nodes.n_draws
    ([1.0, 2.0], 3)
    """
    rows = np.concatenate(parts)
    counts = np.ones(len(rows))
    if rows.shape[1] <= MERGE_LIMIT:
        rows, times = np.unique(rows, axis=0, return_counts=True)
        counts = times.astype(float)
    sizes = np.array([len(part) for part in parts], dtype=float)
    means = np.stack([part.mean(axis=0) for part in parts])
    log_weights, log_z = mbar(rows, counts, anchors, sizes, stepwise(means, anchors))
    return Nodes(rows, log_weights, counts), log_z


def stretched(nodes: Nodes, point: np.ndarray, covariance: np.ndarray, wanted: np.ndarray) -> Nodes:
    r"""Move nodes linearly about their mean at an anchor, so that one covariance becomes another.

    The inverse of a covariance of N draws in r dimensions is too large by N / (N - r), and so would
    be the variances of a posterior. The second derivative of log Z is taken from draws that need
    not be kept; the nodes, moved, tell of what is beyond. A log-sum stays one, and convex. The map
    is the one that is symmetric in the metric of the covariance that is wanted.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(50, 3))
    >>> nodes, _ = pooled([rows], np.zeros((1, 3)))
    >>> own = np.cov(rows, rowvar=False, bias=True)
    >>> now = stretched(nodes, np.zeros(3), own, np.eye(3))
    >>> bool(np.allclose(np.cov(now.rows, rowvar=False, bias=True), np.eye(3)))
    True
    """
    mean = nodes.share(point) @ nodes.rows
    away = nodes.rows - mean
    ridge = 1e-9 * np.trace(wanted) / len(wanted) * np.eye(len(wanted))
    root = np.linalg.cholesky(wanted + ridge)
    half = solve_triangular(root, covariance, lower=True)
    size, axes = np.linalg.eigh(solve_triangular(root, half.T, lower=True))
    stretch = (axes / np.sqrt(np.maximum(size, LEAST_SEEN))) @ axes.T
    moved = mean + (root @ stretch @ solve_triangular(root, away.T, lower=True)).T
    # Seven digits of what is drawn are plenty, and read in half the time.
    rows = moved.astype(np.float32, order="C").astype(float)
    # Weights belong to energies at the anchor, which move with the rows.
    return Nodes(rows, nodes.log_weights - (rows - nodes.rows) @ point, nodes.counts)
