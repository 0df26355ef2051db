"""The integers of a measure one by one, as far as they count."""

import math

import numpy as np

from pymc_bayessum.measures import IntegerMeasure

__all__ = ["listed_masses"]

#: Longest stretch of integers that is summed one by one.
STRETCH_LIMIT = 2**22

#: The tail left out weighs less than exp of this, relative to the mass at the last node.
LOG_NEGLIGIBLE = -42.0


def listed_masses(
    measure: IntegerMeasure, last: int, growth: float = 0.0
) -> tuple[np.ndarray, np.ndarray] | None:
    """List the integers of a measure up to a tail that is negligible beside the mass at ``last``.

    Parameters
    ----------
    measure : IntegerMeasure
    last : int
        The last node.
    growth : float
        The tail is weighted with z**growth.

    Returns
    -------
    tuple of ndarray or None
        The integers and their log masses; ``None`` when there are too many.

    Examples
    --------
    >>> from pymc_bayessum.measures import Counting
    >>> listed_masses(Counting(2), 1)[0]
    array([0, 1, 2])
    """
    low, high = measure.effective_range(growth=growth)
    if math.isfinite(measure.ends[0]):
        low = int(measure.ends[0])
    high = max(last, high)
    while True:
        if high - low > STRETCH_LIMIT:
            return None
        x = np.arange(low, high + 1)
        log_prob = measure.log_prob(x)
        beyond = log_prob[x >= last]
        peak = beyond.max()
        log_beyond = peak + math.log(np.exp(beyond - peak).sum())
        if measure.log_tail(high, growth=growth) <= log_beyond + LOG_NEGLIGIBLE:
            return x, log_prob
        high += max(high - low, 64)
