"""The log of the gamma function where it is mostly asked about whole numbers."""

import math
from typing import Any

import numpy as np
from numba import njit
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.link.numba.dispatch.scalar import register_scalar_funcify, scalar_op_cache_key
from pytensor.scalar.basic import upgrade_to_float
from pytensor.scalar.math import GammaLn
from pytensor.tensor.elemwise import Elemwise

__all__ = ["log_factorial", "log_gamma", "look_up_factorials"]

_TABLE = np.array([math.inf, *(math.lgamma(x) for x in range(1, 8192))])
_HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)


class _LookedUp(GammaLn):
    """The same function, for numba: from a table at whole numbers, by Stirling beyond it."""


@njit
def _stirling(x):
    inverse = 1.0 / x
    tail = inverse * (1.0 / 12.0 - inverse * inverse / 360.0)
    return (x - 0.5) * math.log(x) - x + _HALF_LOG_TAU + tail


@njit
def log_factorial(n):
    """Return log n! of a whole number from zero on, held as a float."""
    return _TABLE[int(n) + 1] if n < len(_TABLE) - 1 else _stirling(n + 1.0)


@njit
def log_gamma(x):
    """Return the log of the gamma function: looked up at whole numbers, by Stirling far out."""
    if x >= len(_TABLE):
        return _stirling(x)
    if x >= 1.0 and int(x) == x:
        return _TABLE[int(x)]
    return math.lgamma(x)


@register_scalar_funcify(_LookedUp)
def _numba_log_gamma(op, node, **kwargs):
    return log_gamma, scalar_op_cache_key(op, version=2)


_looked_up = Elemwise(_LookedUp(upgrade_to_float, name="gammaln"))


def look_up_factorials(output: Any) -> Any:
    """Return a graph in which the log of the gamma function is looked up at whole numbers.

    A sum over counts spends most of its time on log-factorials. The result is the same to
    rounding, and so are the derivatives.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x = pt.vector("x")
    >>> values = np.array([1.0, 5.0, 5.5, 3000.0])
    >>> plain = 2.0 * pt.gammaln(x)
    >>> fast = look_up_factorials(plain).eval({x: values})
    >>> bool(np.allclose(fast, plain.eval({x: values}), rtol=1e-14))
    True
    """
    found = [
        v
        for v in ancestors([output])
        if v.owner is not None
        and isinstance(v.owner.op, Elemwise)
        and type(v.owner.op.scalar_op) is GammaLn
    ]
    # The last first: what was replaced is an input of nothing that comes after.
    for v in found:
        swap: Any = {v: _looked_up(*v.owner.inputs)}
        output = graph_replace([output], swap, strict=False)[0]
    return output
