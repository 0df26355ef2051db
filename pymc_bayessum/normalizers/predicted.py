"""What a distribution of counts predicts, for whoever asks whether it can be right.

A log Z may be exact while the distribution it belongs to is wrong for the data. A distribution of
counts that registers its moments here is held against the observed ones.
"""

from functools import singledispatch
from typing import Any, NamedTuple

__all__ = ["Predicted", "predicted"]


class Predicted(NamedTuple):
    """Moments of each row, symbolically, and what it means if data are more spread.

    Attributes
    ----------
    mean, variance, zero : TensorVariable
        Mean, variance and probability of zero.
    slack : TensorVariable
        A number that is zero where the distribution is as spread as it can be.
    more_spread : str
        What to say, and to try, where the data are more spread than that.
    """

    mean: Any
    variance: Any
    zero: Any
    slack: Any
    more_spread: str


@singledispatch
def predicted(op: Any, *inputs: Any) -> Predicted | None:
    """Return the moments of a random variable, or None where its Op has not said.

    Parameters
    ----------
    op : Op
        Of the random variable; dispatched on.
    *inputs : Variable
        What the Op was applied to.

    Examples
    --------
    >>> predicted(object()) is None
    True
    """
    return None
