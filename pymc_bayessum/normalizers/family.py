r"""What an exponential family is: the one interface behind anchored normalisers, ours or a user's.

A family is :math:`p(x \mid \theta) \propto e^{\theta \cdot \phi(x)}` on some set of states: two
methods, its statistics :math:`\phi` and its draws. Whatever else it can do is an offer, a method
that is used where it exists:

=====================  ============================================================================
offer                  what it is for
=====================  ============================================================================
``chain``              Markov chains whose burn-in and spacing are watched, in place of ``sample``
``moves``              the same even where ``sample`` is exact, for many parameter vectors at a time
``exact_mean``         the gradient of log Z at an anchor without noise
``conditional_means``  Rao-Blackwellised means: most of the noise of that gradient taken away
``other_means``        further estimates of it, by name
``coordinates``        the identifiable directions (found from draws otherwise)
``exact_log_z``        something to hold an estimate against
``log_constant``       log Z at an anchor, on which no posterior depends
``joined``             anchors at which draws mix, where a posterior reaches others
``n_sites``            how large a state is, where its array does not tell
=====================  ============================================================================
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from pymc_bayessum.normalizers.coordinates import Coordinates

__all__ = [
    "Chain",
    "Family",
    "LogConstant",
    "OffersChain",
    "OffersConditionalMeans",
    "OffersConstant",
    "OffersCoordinates",
    "OffersEnergy",
    "OffersExactLogZ",
    "OffersExactMean",
    "OffersJoins",
    "OffersMoves",
    "OffersOtherMeans",
    "OffersSites",
]


@runtime_checkable
class Family(Protocol):
    """An exponential family of discrete states.

    States are arrays with one state along the first axis; what they hold is the family's affair.

    Examples
    --------
    Independent bits with one common parameter:

    >>> import numpy as np
    >>> class Bits:
    ...     def statistics(self, states):
    ...         return states.sum(axis=1, keepdims=True).astype(float)
    ...     def sample(self, theta, n, rng, start=None):
    ...         return rng.random((n, 10)) < 1 / (1 + np.exp(-theta[0]))
    >>> isinstance(Bits(), Family)
    True
    """

    def statistics(self, states: Any) -> np.ndarray:
        """Return the sufficient statistics of states, shape (N, d)."""

    def sample(
        self, theta: np.ndarray, n: int, rng: np.random.Generator, start: Any = None
    ) -> np.ndarray:
        """Return n draws at a parameter vector (d,); ``start`` holds states near such draws."""


class Chain(Protocol):
    """Parallel Markov chains that leave one member of a family unchanged."""

    name: str

    def start(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return first states of n chains."""

    def advance(self, states: np.ndarray, sweeps: int, rng: np.random.Generator) -> np.ndarray:
        """Return the states some sweeps later."""


@runtime_checkable
class OffersEnergy(Protocol):
    """Chains that know energies without the statistics, of which there may be very many."""

    def energy(self, states: np.ndarray) -> np.ndarray:
        """Return ``theta . phi`` of states, shape (N,)."""


@runtime_checkable
class OffersChain(Protocol):
    """A family with Markov chains."""

    def chain(self, theta: np.ndarray) -> Chain | None:
        """Return chains at a parameter vector; None where ``sample`` draws independently."""


@runtime_checkable
class OffersMoves(Protocol):
    """A family whose states can be moved on at any parameter vector, at no cost before."""

    def moves(self, theta: np.ndarray) -> Chain:
        """Return chains at a parameter vector."""


@runtime_checkable
class OffersExactMean(Protocol):
    """A family whose mean statistics can be computed, at least of some members."""

    def exact_mean(self, theta: np.ndarray) -> np.ndarray | None:
        """Return the mean of the statistics (d,); None where that costs too much."""


@runtime_checkable
class OffersConditionalMeans(Protocol):
    """A family that can average its statistics over a part of the state given the rest."""

    def conditional_means(
        self, theta: np.ndarray, states: np.ndarray, group: np.ndarray
    ) -> np.ndarray:
        """Return averages over the draws of each group 0 .. G-1, shape (G, d)."""


@runtime_checkable
class OffersOtherMeans(Protocol):
    """A family with estimates of its mean statistics that have names."""

    @property
    def other_means(
        self,
    ) -> Mapping[str, Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]]:
        """Functions of theta and draws that return the mean (d,) and those of batches (B, d)."""


@runtime_checkable
class OffersCoordinates(Protocol):
    """A family that knows its identifiable directions."""

    def coordinates(self) -> Coordinates:
        """Return coordinates without redundant parameters."""


@runtime_checkable
class OffersExactLogZ(Protocol):
    """A family whose log Z can be computed, at least of some members."""

    def exact_log_z(self, often: bool = False) -> Callable[[np.ndarray], float] | None:
        """Return log Z as a function of a parameter vector; None where it costs too much.

        ``often``: where it is asked for at thousands of vectors.
        """


@dataclass(frozen=True)
class LogConstant:
    """An estimate of log Z at one parameter value.

    Attributes
    ----------
    value : float
        Estimated log Z.
    sd : float
        Its standard error (delta method).
    method : {"tree", "annealed", "exact", "none"}
        "none": not estimated, taken as zero.
    base_variance : float
        Variance of the log ratio of model and base under the base.
    n_evals : int
        Energies evaluated: draws, or draws times annealing steps.
    """

    value: float
    sd: float
    method: Literal["tree", "annealed", "exact", "none"]
    base_variance: float
    n_evals: int


@runtime_checkable
class OffersConstant(Protocol):
    """A family that can estimate log Z itself at one parameter value."""

    def log_constant(self, theta: np.ndarray, rng: np.random.Generator) -> LogConstant:
        """Estimate log Z at a parameter vector."""


@runtime_checkable
class OffersJoins(Protocol):
    """A family whose states may be of several kinds that draws at one anchor do not all visit."""

    def joined(self, anchors: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
        """Return anchors at which draws mix, the first of those given first, and joins.

        None where they do not and cannot be joined.
        """


@runtime_checkable
class OffersSites(Protocol):
    """A family whose states are packed: their arrays are shorter than what they stand for."""

    @property
    def n_sites(self) -> int:
        """Sites of a state, each of which a sweep looks at."""
