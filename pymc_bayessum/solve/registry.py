"""One way to solve: a registry of solvers by kernel and measure.

A solver factorises the Gram matrix of one kind of kernel and, under a measure it is entered for,
finds the weights K^-1 mu and the variance that go with it. Rules ask for both, marginal likelihoods
for the Gram matrix alone; the same function answers.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pymc_bayessum.kernels import Kernel
from pymc_bayessum.kernels.registry import Registry
from pymc_bayessum.measures import Measure
from pymc_bayessum.measures.supports import Points
from pymc_bayessum.solve.gram import Gram

__all__ = ["SOLVERS", "Solution", "factorize", "register", "solve"]


class Solution(NamedTuple):
    """What a solver found: the attributes of a `Rule` of these names.

    Without a measure to sum under there are no weights; their logarithm is there where it is known
    more accurately than from them.
    """

    gram: Gram
    weights: np.ndarray | None = None
    variance: float = 0.0
    log_abs_weights: np.ndarray | None = None
    clipped: float = 0.0


Solver = Callable[[Any, Any, Points, float | None], Solution | None]

#: From (kernel type, measure type) to the function that solves such a pair.
SOLVERS: Registry[Solver] = Registry()


#: Decorates a function ``(kernel, measure, points, jitter) -> Solution`` to enter a solver for two
#: classes and what is derived from them. The most specific is asked first; where it returns
#: ``None`` (for parameters or points it does not suit) the next is, at last the dense one, which
#: suits all. With ``None`` for a measure the Gram matrix alone is asked for.
register = SOLVERS.register


def solve(
    kernel: Kernel, measure: Measure | None, points: Points, jitter: float | None = None
) -> Solution:
    """Solve K w = mu on distinct points, by the most specific solver of the kernel and measure.

    Without a measure the Gram matrix alone is found (a `Stein` kernel, whose measure is in it, has
    weights all the same). The jitter added to its diagonal is by default the smallest that works.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum.kernels import Brownian
    >>> from pymc_bayessum.measures import Counting
    >>> solve(Brownian(), Counting(4), np.array([0, 2, 4])).weights
    array([1.5, 2. , 1.5])
    """
    for solver in SOLVERS.find(kernel, measure):
        solution = solver(kernel, measure, points, jitter)
        if solution is not None:
            return solution
    raise TypeError(f"no solver for {kernel!r} under {measure!r}")


def factorize(kernel: Kernel, points: Points, jitter: float | None = None) -> Gram:
    """Factorise the Gram matrix of a kernel on distinct points: `solve` without a measure.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum.kernels import Brownian, SquaredExponential
    >>> round(factorize(Brownian(), np.array([3, 8])).log_det, 6)     # det [[4, 4], [4, 9]] = 20
    2.995732
    >>> factorize(SquaredExponential(1.0), np.arange(4.0)).jitter
    0.0
    """
    return solve(kernel, None, points, jitter).gram
