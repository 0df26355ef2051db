"""The registry of closed forms: one function for each (kernel, measure) pair."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from pymc_bayessum.kernels import Kernel
from pymc_bayessum.measures import Measure
from pymc_bayessum.measures.supports import Points

__all__ = ["Embedding", "find_row", "register", "registered_kernels"]


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


Row = Callable[[Any, Any], "Embedding | None"]
F = TypeVar("F", bound=Row)

_ROWS: dict[tuple[type, type], Row] = {}


def register(kernel_type: type, measure_type: type) -> Callable[[F], F]:
    """Decorate a function ``(kernel, measure) -> Embedding`` to enter it in the registry.

    Subclasses are covered; the most specific row wins. A row may return ``None`` for parameters
    it has no closed form for.

    Parameters
    ----------
    kernel_type : type of Kernel
    measure_type : type of Measure

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum import embeddings, kernels, measures
    >>> class Constant(kernels.Kernel):
    ...     def __call__(self, x, y):
    ...         return np.ones((len(x), len(y)))
    ...
    ...     def diagonal(self, x):
    ...         return np.ones(len(x))
    >>> @embeddings.register(Constant, measures.Poisson)
    ... def constant_poisson(kernel, measure):
    ...     return embeddings.Embedding(lambda y: np.ones(len(y)), 1.0)
    >>> embeddings.embed(Constant(), measures.Poisson(2.0)).initial_error
    1.0
    """
    if not (isinstance(kernel_type, type) and issubclass(kernel_type, Kernel)):
        raise TypeError(f"kernel_type must be a kernel class, got {kernel_type!r}")
    if not (isinstance(measure_type, type) and issubclass(measure_type, Measure)):
        raise TypeError(f"measure_type must be a measure class, got {measure_type!r}")

    def enter(row: F) -> F:
        _ROWS[kernel_type, measure_type] = row
        return row

    return enter


def find_row(kernel: Kernel, measure: Measure) -> Embedding | None:
    """Embedding by the most specific row for a pair, or ``None`` when there is none."""
    for kernel_type in type(kernel).__mro__:
        for measure_type in type(measure).__mro__:
            row = _ROWS.get((kernel_type, measure_type))
            if row is not None:
                return row(kernel, measure)
    return None


def registered_kernels(measure: Measure) -> list[type]:
    """Kernel types with a row for a measure."""
    return [kernel for kernel, kind in _ROWS if isinstance(measure, kind)]
