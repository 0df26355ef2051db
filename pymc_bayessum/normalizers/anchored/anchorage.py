"""Anchors that belong to their data: a log-probability never uses those of other data.

An :class:`Anchorage` stands where a model has to be anchored. Whenever the log-probability of known
data is asked for it hands out the normaliser anchored at just these data, and builds it where there
is none yet. Data that a graph can change later (``pm.Data``) are compared with those of the anchors
at every evaluation. Where there are no data at all it raises, and says what to do.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, explicit_graph_inputs
from pytensor.tensor.random.type import RandomType

from pymc_bayessum.normalizers.anchored.guards import while_same
from pymc_bayessum.normalizers.interpreted import evaluated

__all__ = ["Anchorage", "Held", "fingerprint", "known_data", "resolved"]

#: Data sets whose anchors are remembered.
MOST_HELD = 4
#: What to do where a log-probability is asked for before there are data.
NO_DATA = (
    "there are no data yet to anchor the normaliser at. Observe some with pm.observe(model, ...), "
    "or say with pbs.anchor(model, data=rows) near which rows it has to hold"
)
#: In place of a fingerprint, where a value is not known.
HIDDEN = "hidden"


class Held(NamedTuple):
    """A normaliser, and the :func:`fingerprint` of the rows that it was anchored at."""

    normalizer: Any
    rows: str


def fingerprint(data: Any) -> str:
    """Return a short text that two sets of data share only where they are equal.

    Shapes are not looked at: one row is itself.

    Examples
    --------
    >>> fingerprint([0, 1]) == fingerprint([[0.0, 1.0]]), fingerprint([0, 1]) == fingerprint([1, 0])
    (True, False)
    """
    return blake2b(np.asarray(data, dtype=float).tobytes(), digest_size=16).hexdigest()


def known_data(value: Any) -> np.ndarray | None:
    """Return the numbers of a variable that no draw and no input of a graph decides, else None.

    Examples
    --------
    >>> import pytensor
    >>> known_data(pytensor.shared(np.arange(2)) + 1).tolist(), known_data(pt.scalar())
    ([1, 2], None)
    """
    if not isinstance(value, Variable):
        return np.asarray(value)
    if isinstance(value, Constant):
        return np.asarray(value.data)
    random = any(isinstance(part.type, RandomType) for part in ancestors([value]))
    if random or list(explicit_graph_inputs([value])):
        return None
    return evaluated(value)


@dataclass(frozen=True, eq=False)
class Anchorage:
    """Normalisers by the fingerprint of the data that they are for.

    ``build`` returns the normaliser anchored at data; ``unknown`` is for values that are not known:
    minibatches, rows with missing entries, latent variables. Where there is none, and ``build`` has
    a method ``without_data``, that returns one for latent variables from the prior alone.

    Examples
    --------
    >>> anchorage = Anchorage(lambda data: f"anchored at {data.tolist()}")
    >>> anchorage.of(pt.constant([1, 2]))[0]
    'anchored at [1, 2]'
    >>> anchorage.of(pt.lvector())
    Traceback (most recent call last):
        ...
    ValueError: there are no data yet to anchor the normaliser at. ...
    """

    build: Callable[[np.ndarray], Any] = field(repr=False)
    held: dict[str, Held] = field(default_factory=dict, repr=False)
    unknown: Held | None = field(default=None, repr=False)

    @classmethod
    def at(cls, build: Callable[[np.ndarray], Any], rows: np.ndarray) -> "Anchorage":
        """Anchor at rows right away."""
        return cls.holding(build, Held(build(rows), fingerprint(rows)))

    @classmethod
    def holding(
        cls, build: Callable[[np.ndarray], Any], held: Held, data: np.ndarray | None = None
    ) -> "Anchorage":
        """Start with a normaliser that is there already, for data (those it was anchored at)."""
        return cls(build, {held.rows if data is None else fingerprint(data): held}, held)

    def find(self, data: np.ndarray) -> Held:
        """Return the normaliser of data; it is built where there is none."""
        key = fingerprint(data)
        if key not in self.held:
            self.held[key] = Held(self.build(data), key)
            for oldest in list(self.held)[:-MOST_HELD]:
                del self.held[oldest]
        return self.held[key]

    def _without_data(self) -> Held:
        """Return what was chosen for values that are not known, or what needs no data."""
        if self.unknown is not None:
            return self.unknown
        if not hasattr(self.build, "without_data"):
            raise ValueError(NO_DATA)
        if HIDDEN not in self.held:
            try:
                self.held[HIDDEN] = Held(self.build.without_data(), HIDDEN)
            except ValueError as reason:
                raise ValueError(f"{NO_DATA}. {reason}") from None
        return self.held[HIDDEN]

    def of(self, value: Any) -> tuple[Any, Any]:
        """Return the normaliser for a value, and the value, guarded where it may change."""
        data = known_data(value)
        if data is None:
            return self._without_data().normalizer, value
        found = self.find(data).normalizer
        return found, value if isinstance(value, Constant) else while_same(value, data)


def resolved(normalizer: Any, value: Any) -> tuple[Any, Any]:
    """Return the normaliser for a value, from an anchorage where it is one, and the value."""
    if isinstance(normalizer, Anchorage):
        return normalizer.of(pt.as_tensor_variable(value))
    return normalizer, value
