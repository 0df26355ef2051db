"""The registry of closed forms: one function for each (kernel, measure) pair."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from pymc_bayessum.kernels import Kernel
from pymc_bayessum.kernels.registry import Registry
from pymc_bayessum.measures import Measure
from pymc_bayessum.measures.supports import Points

__all__ = ["ROWS", "Embedding", "find_row", "register"]


class Embedding:
    r"""Mean embedding and initial error of a kernel under a measure.

    Parameters
    ----------
    mean : callable
        :math:`\mu(y) = \int k(x, y) P(dx)` on a batch of N points, shape (N,).
    initial_error : float or callable
        :math:`\iint k(x, x') P(dx) P(dx')`, or a function without arguments that computes it when
        first asked for.

    Examples
    --------
    >>> from pymc_bayessum import embeddings, kernels, measures
    >>> e = embeddings.embed(kernels.Brownian(shift=0.0), measures.Poisson(30.0))
    >>> round(e.initial_error, 3)
    26.916
    """

    def __init__(
        self,
        mean: Callable[[Points], np.ndarray],
        initial_error: float | Callable[[], float],
    ) -> None:
        self._mean = mean
        self._initial = initial_error

    def mean(self, y: Points) -> np.ndarray:
        """Mean embedding at each point of a batch, shape (N,)."""
        return np.asarray(self._mean(y), dtype=float)

    @cached_property
    def initial_error(self) -> float:
        """Variance of the integral before anything is known, at unit amplitude."""
        return float(self._initial() if callable(self._initial) else self._initial)


Row = Callable[[Any, Any], Embedding | None]

#: From (kernel type, measure type) to the function that embeds such a pair.
ROWS: Registry[Row] = Registry()


def register(kernel_type: type, measure_type: type) -> Callable[[Row], Row]:
    """Decorate a function ``(kernel, measure) -> Embedding`` to enter it in the registry.

    Subclasses are covered; the most specific row wins. A row may return ``None`` for parameters
    it has no closed form for.

    Examples
    --------
    The block takes the row back at its end; without it the row stays.

    >>> from unittest.mock import patch
    >>> import numpy as np
    >>> from pymc_bayessum import embeddings, kernels, measures
    >>> class Constant(kernels.Kernel):
    ...     def __call__(self, x, y):
    ...         return np.ones((len(x), len(y)))
    ...
    ...     def diagonal(self, x):
    ...         return np.ones(len(x))
    >>> with patch.dict(embeddings.registry.ROWS.entries):
    ...     @embeddings.register(Constant, measures.Poisson)
    ...     def constant_poisson(kernel, measure):
    ...         return embeddings.Embedding(lambda y: np.ones(len(y)), 1.0)
    ...
    ...     embeddings.embed(Constant(), measures.Poisson(2.0)).initial_error
    1.0
    """
    return ROWS.register(kernel_type, measure_type)


def find_row(kernel: Kernel, measure: Measure) -> Embedding | None:
    """Embedding by the most specific row for a pair, or ``None`` when there is none."""
    row = next(ROWS.find(kernel, measure), None)
    return None if row is None else row(kernel, measure)
