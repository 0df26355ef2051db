r"""Sums of a smooth function over the counts as integrals, corrected at their ends.

Where a summand changes little from one count to the next,

.. math:: \sum_{j \ge 0} f(j) = \int_0^\infty f(x) \, dx + \sum_{k=0}^{q} g_k f(k)

with Gregory's weights g: Euler and Maclaurin's formula, its derivatives taken as differences.
The integral is a trapezoidal sum in u after a double-exponential change of variable (Takahasi and
Mori, 1974), :math:`x = \exp(u - e^{-u})` on the half-line and :math:`x = 1/(1 + e^{-\pi\sinh u})`
on the unit interval. Neither minds that :math:`\log x!` looks like :math:`x \log x` from afar,
which no polynomial follows at zero.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def half_line() -> tuple[Array, Array]:
    r"""Nodes and weights of the integral over :math:`x > 0` of a function of unit width.

    Exact to 1e-13 for a bell seven of its widths from zero, and better for what is closer.

    Examples
    --------
    >>> x, w = half_line()
    >>> float(np.sum(w * np.exp(-x)).round(12)), float(np.sum(w * x * np.exp(-x)).round(12))
    (1.0, 1.0)
    """
    step = 0.08
    u = np.arange(-3.8, 4.4, step)
    nodes = np.exp(u - np.exp(-u))
    return nodes, step * nodes * (1.0 + np.exp(-u))


def unit_interval() -> tuple[Array, Array]:
    """Nodes and weights of the integral over 0 < x < 1.

    Examples
    --------
    >>> x, w = unit_interval()
    >>> float(np.sum(w * x * np.log(x)).round(12))
    -0.25
    """
    step = 0.075
    u = np.arange(-3.15, 3.15 + step / 2, step)
    nodes = 1.0 / (1.0 + np.exp(-np.pi * np.sinh(u)))
    return nodes, step * np.pi * np.cosh(u) * nodes / (1.0 + np.exp(np.pi * np.sinh(u)))


# Gregory's weights from six differences, the coefficients of 1 / log(1 + t) - 1 / t in powers of a
# difference t, written as weights of values.
END_WEIGHTS = np.array([84161.0, -55688.0, 66109.0, -57024.0, 31523.0, -9976.0, 1375.0]) / 120960.0
