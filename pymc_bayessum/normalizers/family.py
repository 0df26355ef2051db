r"""What an exponential family is: the one interface behind anchored normalisers, ours or a user's.

A family is :math:`p(x \mid \theta) \propto e^{\theta \cdot \phi(x)}` on some set of states: two
methods, its statistics :math:`\phi` and its draws. Whatever else it can do is an offer, an
attribute that is used where it exists:

``chain(theta)``
    Markov chains whose burn-in and spacing are watched, in place of ``sample``; None where that
    draws independently. Chains have a ``name``, first states of n of them, ``start(n, rng)``, and
    the states some sweeps later, ``advance(states, sweeps, rng)``; those that know energies
    ``theta . phi`` (N,) without the statistics, which may be very many, ``energy(states)``.
``moves(theta)``
    Chains even where ``sample`` is exact, for many parameter vectors at a time.
``exact_mean(theta)``
    The mean statistics (d,), the gradient of log Z without noise; None where they cost too much.
``conditional_means(theta, states, group)``
    Rao-Blackwellised means over the draws of each group 0 .. G-1, (G, d), averaged over a part of
    the state given the rest: most of the noise of that gradient taken away.
``other_means``
    Further estimates of it by name: functions of theta and draws that return the mean (d,) and
    those of batches (B, d).
``coordinates()``
    The identifiable directions, :class:`.Coordinates` (found from draws otherwise).
``exact_log_z(often=False)``
    Log Z as a function of a parameter vector, to hold an estimate against; None where it costs too
    much (``often``: for thousands of vectors).
``log_constant(theta, rng)``
    Log Z at an anchor, on which no posterior depends: a :class:`LogConstant`.
``joined(anchors, rng)``
    Anchors at which draws mix, the first of those given first, and joins between kinds of states
    that draws at one anchor do not all visit; None where there are such and nothing joins them.
``n_sites``
    Sites of a state, each of which a sweep looks at, where its array is packed.
"""

from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

__all__ = ["Family", "LogConstant"]


@runtime_checkable
class Family(Protocol):
    """An exponential family of discrete states.

    States are arrays with one state along the first axis; what they hold is the family's affair.

    Examples
    --------
    Independent bits with one common parameter:

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


@dataclass(frozen=True)
class LogConstant:
    """An estimate of log Z at one parameter value.

    Its standard error is by the delta method; by the method "none" it is not estimated and taken as
    zero. The base variance is that of the log ratio of model and base, under the base; energies
    evaluated are draws, or draws times annealing steps.
    """

    value: float
    sd: float
    method: Literal["tree", "annealed", "exact", "none"]
    base_variance: float
    n_evals: int
