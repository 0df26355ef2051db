r"""Exact normalisers of exponential families on few states: sums over what the statistics can be.

States with equal statistics count together,

.. math:: \log Z(\theta) = \log \sum_m n_m e^{\theta \cdot \phi_m} ,

so the sum is as long as there are distinct statistics, however many states there are.
"""

import numpy as np

__all__ = ["LARGEST_SUPPORT", "distinct"]

#: States up to which a support is listed.
LARGEST_SUPPORT = 1_000_000


def distinct(statistics: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Merge equal rows of statistics.

    Parameters
    ----------
    statistics : ndarray, shape (N, d)

    Returns
    -------
    rows : ndarray, shape (M, d)
        In lexical order.
    times : ndarray of float, shape (M,)
        How often each occurs.

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
