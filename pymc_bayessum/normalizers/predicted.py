"""What a distribution of counts predicts, for whoever asks whether it can be right.

A log Z may be exact while the distribution it belongs to is wrong for the data. A distribution of
counts that registers its moments here is held against the observed ones.
"""

from functools import singledispatch
from typing import Any, NamedTuple

__all__ = ["Predicted", "predicted"]


class Predicted(NamedTuple):
    """Moments and the probability of zero of each row, and what it means if data are more spread.

    ``slack`` is zero where the distribution is as spread as it can be; ``more_spread`` says what to
    try where the data are more spread than that.
    """

    mean: Any
    variance: Any
    zero: Any
    slack: Any
    more_spread: str


@singledispatch
def predicted(op: Any, *inputs: Any) -> Predicted | None:
    """Return the moments of an Op's random variable of inputs, or None where it has not said.

    Examples
    --------
    >>> predicted(object()) is None
    True
    """
    return None
