"""Functions by kernel and measure type: how closed forms and solvers are found."""

from collections.abc import Callable, Iterator
from typing import Any

from pymc_bayessum.kernels.base import Kernel
from pymc_bayessum.measures import Measure

__all__ = ["Registry"]


class Registry[F: Callable[..., Any]]:
    """Functions, by the kernel type and measure type they are entered for; subclasses are covered.

    Examples
    --------
    >>> from pymc_bayessum.kernels import Brownian, Kernel
    >>> from pymc_bayessum.measures import Measure, Poisson
    >>> registry = Registry()
    >>> anything = registry.register(Kernel, Measure)(lambda kernel, measure: "any pair")
    >>> counts = registry.register(Brownian, Poisson)(lambda kernel, measure: "this pair")
    >>> pair = Brownian(), Poisson(2.0)
    >>> [function(*pair) for function in registry.find(*pair)]
    ['this pair', 'any pair']
    """

    def __init__(self) -> None:
        self.entries: dict[tuple[type, type], F] = {}

    def register(self, kernel_type: type, measure_type: type) -> Callable[[F], F]:
        """Decorate a function to enter it for a kernel class and a measure class."""
        if not (isinstance(kernel_type, type) and issubclass(kernel_type, Kernel)):
            raise TypeError(f"kernel_type must be a kernel class, got {kernel_type!r}")
        if not (isinstance(measure_type, type) and issubclass(measure_type, Measure)):
            raise TypeError(f"measure_type must be a measure class, got {measure_type!r}")

        def enter(function: F) -> F:
            self.entries[kernel_type, measure_type] = function
            return function

        return enter

    def find(self, kernel: Kernel, measure: Measure | None) -> Iterator[F]:
        """Functions for a pair, the most specific first; without a measure all of the kernel."""
        kinds = dict.fromkeys(kind for _, kind in self.entries)
        for kernel_type in type(kernel).__mro__:
            for measure_type in kinds if measure is None else type(measure).__mro__:
                if (kernel_type, measure_type) in self.entries:
                    yield self.entries[kernel_type, measure_type]
