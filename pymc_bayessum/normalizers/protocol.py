"""What a normaliser is: the one interface behind every log Z, ours or a user's.

A normaliser answers for log Z as a function of parameters. `log_z` puts it into a graph as a node
that the diagnostics find; they ask it there for a reference, something better to hold it against,
and for a remedy. A class of some twenty lines that meets :class:`Normalizer` takes part in all
of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

__all__ = ["Asked", "Exact", "Facts", "Given", "Normalizer", "Reference", "ReferenceValue"]


class ReferenceValue(NamedTuple):
    """A reference at one draw.

    Attributes
    ----------
    log_z : ndarray
        In the shape of the normaliser.
    sd : float
        How uncertain it is itself: 0 if it is exact, infinite if it could not be computed.
    noise : float
        Half the difference of two independent halves of it, signed: how much of the variation
        over the draws is its own. 0 if it is exact.
    beyond : float
        Largest share of the sum that lies outside the range of the normaliser's nodes.
    needed : float
        Number up to which nodes are needed to see all but a billionth of the sum.
    cut : float
        Largest share, of the sum, of what the summand has beyond an end of its support at which
        it does not end.
    """

    log_z: np.ndarray
    sd: float = 0.0
    noise: float = 0.0
    beyond: float = 0.0
    needed: float = np.nan
    cut: float = 0.0


class Reference(Protocol):
    """Something better than the normaliser, evaluated draw by draw.

    A reference that has a reason why the draws cannot be trusted whatever it says gives it as an
    attribute ``doubt``, in words.
    """

    @property
    def description(self) -> str:
        """What it is, in a few words for the report."""

    def __call__(self, draw: Sequence[np.ndarray], theta: Sequence[np.ndarray]) -> ReferenceValue:
        """Evaluate it, given the values of the model's variables and of the node's parameters."""


@dataclass(frozen=True)
class Given:
    """A reference that is a plain function of the parameters, such as a closed form.

    Examples
    --------
    >>> import numpy as np
    >>> geometric = Given(lambda eta: -np.log1p(-np.exp(eta)), "the closed form")
    >>> geometric([], [np.log(0.5)]).log_z.round(4)
    np.float64(0.6931)
    """

    function: Callable[..., Any]
    description: str

    def __call__(self, draw: Sequence[np.ndarray], theta: Sequence[np.ndarray]) -> ReferenceValue:
        """Evaluate the function; it is taken to be exact."""
        return ReferenceValue(np.asarray(self.function(*theta), dtype=float))


class Asked(NamedTuple):
    """What is known when a normaliser is asked for its reference.

    Attributes
    ----------
    theta : sequence of Variable
        The symbolic parameters of the node.
    values : sequence of sequences of ndarray
        The numbers they have on some of the posterior's draws.
    variables : sequence of Variable
        The variables of the model, whose values make up a draw.
    compile_kwargs : dict
        For ``pytensor.function``, where something has to be compiled.
    rng : Generator
        For references that sample.
    """

    theta: Sequence[Any]
    values: Sequence[Sequence[np.ndarray]]
    variables: Sequence[Any]
    compile_kwargs: dict[str, Any]
    rng: np.random.Generator


class Facts(NamedTuple):
    """What a check found out about a normaliser that was not good enough.

    Attributes
    ----------
    compared : bool
        Whether there was a reference.
    beyond, needed : float
        The largest of :class:`ReferenceValue` over the draws.
    typical : float
        The median of ``needed`` over the draws.
    """

    compared: bool
    beyond: float = 0.0
    needed: float = np.nan
    typical: float = np.nan


@runtime_checkable
class Normalizer(Protocol):
    """What gives log Z of parameters.

    One object may serve many graphs: it holds no symbolic variable, compares equal where it
    computes the same, and can be hashed.
    """

    @property
    def is_absolute(self) -> bool:
        """Whether log Z is known, and not up to a constant only."""

    def log_z(self, xp: Any, *theta: Any) -> Any:
        """Return log Z of parameters; ``xp`` is ``numpy`` or ``pytensor.tensor``."""

    def sd(self, xp: Any, *theta: Any) -> Any:
        """Return the standard deviation it states for log Z, or None where it is exact."""

    def reference(self, asked: Asked) -> Reference | None:
        """Return something better to hold it against, or None if there is nothing."""

    def remedy(self, facts: Facts) -> str:
        """Say what a user should do where it was not good enough."""


class Exact:
    """What normalisers have in common that leave nothing out, or next to nothing.

    A kind of them says what it is.
    """

    is_absolute = True
    #: In a few words, for the report.
    description: str
    #: What a user should do where log Z is none.
    advice: str

    def log_z(self, xp: Any, *theta: Any) -> Any:
        """Return log Z of parameters."""
        raise NotImplementedError

    def sd(self, xp: Any, *theta: Any) -> None:
        """None: it is exact."""

    def reference(self, asked: Asked) -> Reference:
        """Itself: there is nothing better."""
        return Given(partial(self.log_z, np), self.description)

    def remedy(self, facts: Facts) -> str:
        """Say what can be wrong with a sum that leaves nothing out."""
        return self.advice
