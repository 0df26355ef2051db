r"""Exact normalisers of exponential families on few states: sums over what the statistics can be.

States with equal statistics count together,

.. math:: \log Z(\theta) = \log \sum_m n_m e^{\theta \cdot \phi_m} ,

so the sum is as long as there are distinct statistics, however many states there are.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pymc_bayessum.normalizers.anchored.node_sum import log_sum
from pymc_bayessum.normalizers.protocol import Exact

__all__ = ["LARGEST_SUPPORT", "ListedSum", "distinct"]

#: States up to which a support is listed.
LARGEST_SUPPORT = 1_000_000


def distinct(statistics: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Merge equal rows of statistics; return them in lexical order, and how often each occurs.

    Examples
    --------
    >>> rows, times = distinct(np.array([[1.0, 0.0], [0.0, 0.0], [1.0, 1e-15]]))
    >>> rows.tolist(), times.tolist()
    ([[0.0, 0.0], [1.0, 0.0]], [1.0, 2.0])
    """
    # Sums in another order differ in their last digits.
    scale = np.maximum(np.abs(statistics).max(axis=0, initial=0.0), 1.0)
    rounded = np.round(statistics / scale, 12)
    # One number for a row sorts a hundred times faster than the row.
    key = rounded @ np.random.default_rng(0).normal(size=rounded.shape[1])
    _, first, times = np.unique(np.round(key, 11), return_index=True, return_counts=True)
    order = np.lexsort(statistics[first].T[::-1])
    return statistics[first][order], times[order].astype(float)


@dataclass(frozen=True, eq=False)
class ListedSum(Exact):
    """The normaliser of a family whose states can be listed.

    Distinct statistics (M, d), and the number of states with each.

    Examples
    --------
    Two coins:

    >>> coins = ListedSum(np.array([[0.0], [1.0], [2.0]]), np.array([1.0, 2.0, 1.0]))
    >>> bool(np.isclose(coins.log_z(np, np.array([0.5])), 2 * np.log1p(np.exp(0.5))))
    True
    """

    rows: np.ndarray = field(repr=False)
    times: np.ndarray = field(repr=False)

    description = "the list of all states"
    advice = "a prior that keeps theta finite: the sum over all states is exact wherever it is"

    def log_z(self, xp: Any, *theta: Any) -> Any:
        """Log Z of parameter vectors (..., d)."""
        (vector,) = theta
        return log_sum(xp, vector, self.rows, np.log(self.times))
