"""Parameters and sufficient statistics of Potts and Ising models, shared by every normaliser.

The model is ``p(x) ~ exp(E(x))`` with the plus sign throughout,

    ``E(x) = sum_i h[i, x_i] + sum_(i, j) J_ij[x_i, x_j]``,

and an edge ``(i, j)`` is read in the orientation given: ``J_ij[x_i, x_j]``; nothing is
symmetrised. It is an exponential family, ``E(x) = theta . phi(x)``, and how long ``theta`` is
depends on how ``h`` and ``J`` were given: a shared field and one coupling on a lattice of any size
have ``S + 1`` parameters. A :class:`PottsLayout` remembers the kinds and translates.

Minus infinity forbids: a state of a site (in ``h``) or a pair of states of an edge (in ``J``).
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol, runtime_checkable

import networkx as nx
import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_bayessum.graphs.layouts import as_edges
from pymc_bayessum.graphs.sweeps import agreements
from pymc_bayessum.threads import in_parts

__all__ = [
    "GraphNormalizer",
    "PottsLayout",
    "one_hot",
    "potts_layout",
    "static_shape",
    "times",
]

FieldKind = Literal["none", "scalar", "shared", "full"]
CouplingKind = Literal["none", "scalar", "edge", "shared", "full"]

_SPIN_SIGNS = np.array([-1.0, 1.0])
_SPIN_PRODUCTS = np.array([[1.0, -1.0], [-1.0, 1.0]])


@runtime_checkable
class GraphNormalizer(Protocol):
    """What every normaliser of a graph model offers, exact or not."""

    @property
    def layout(self) -> "PottsLayout":
        """The model it normalises."""

    @property
    def is_absolute(self) -> bool:
        """Whether log Z is known, and not up to a constant only."""

    def log_z(self, h: Any, J: Any) -> Variable:
        """Symbolic log Z, one for each leading batch index of the parameters."""


def _namespace(*arrays: Any) -> Any:
    return pt if any(isinstance(array, Variable) for array in arrays) else np


def _as_array(value: Any) -> Any:
    return value if isinstance(value, Variable) else np.asarray(value, dtype=float)


def _coupling_shapes(n_edges: int, n_states: int) -> dict[CouplingKind, tuple[int, ...]]:
    """Shapes of ``J`` by its kind."""
    pair = (n_states, n_states)
    return {"scalar": (), "edge": (n_edges,), "shared": pair, "full": (n_edges, *pair)}


@dataclass(frozen=True, eq=False)
class PottsLayout:
    """Shapes of a Potts or Ising model and the map from parameters to energies.

    Parameters
    ----------
    n_sites : int
        Number of sites, ``L``.
    n_states : int
        Number of states, ``S`` (two for spins).
    edges : ndarray of int, shape (E, 2)
    field_kind : {"none", "scalar", "shared", "full"}
        ``h`` is absent, ``()`` (spins only), ``(S,)``, or ``(L, S)`` (``(L,)`` for spins).
    coupling_kind : {"none", "scalar", "edge", "shared", "full"}
        ``J`` is absent, ``()``: ``J * [x_i = x_j]`` (``J * x_i * x_j`` for spins), ``(E,)``: one
        such number an edge, ``(S, S)`` or ``(E, S, S)`` (the last two not for spins).
    spins : bool
        States are written -1 and +1 instead of 0 and 1, and ``E(x) = sum h_i x_i + sum J_ij x_i
        x_j``.
    scores : ndarray, shape (L, S), optional
        States have scores, and couplings (one number, or one an edge) multiply these: ``J_ij *
        scores[i, x_i] * scores[j, x_j]``. NaN is a state that the site does not have; such states
        come last.

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> layout = PottsLayout(4, 3, graphs.grid(2, 2), "shared", "scalar")
    >>> layout.statistics(np.array([[0, 0, 1, 2]])).tolist()
    [[2.0, 1.0, 1.0, 1.0]]
    >>> layout.energy(np.array([[0, 0, 1, 2]]), np.array([0.0, 0.5, 1.0]), 0.3).tolist()
    [1.8]
    """

    n_sites: int
    n_states: int
    edges: np.ndarray = field(repr=False)
    field_kind: FieldKind
    coupling_kind: CouplingKind
    spins: bool = False
    scores: np.ndarray | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        edges = as_edges(self.edges, self.n_sites)
        edges.setflags(write=False)
        object.__setattr__(self, "edges", edges)
        fields = ("none", "scalar", "full") if self.spins else ("none", "shared", "full")
        numbers = self.spins or self.scores is not None
        couplings = ("none", "scalar", "edge") + (() if numbers else ("shared", "full"))
        if self.field_kind not in fields:
            raise ValueError(f"field_kind must be one of {fields}, got {self.field_kind!r}")
        if self.coupling_kind not in couplings:
            raise ValueError(
                f"coupling_kind must be one of {couplings}, got {self.coupling_kind!r}"
            )
        if self.spins and self.n_states != 2:
            raise ValueError(f"n_states must be 2 for spins, got {self.n_states}")
        if self.n_sites < 1 or self.n_states < 1:
            raise ValueError(
                f"n_sites and n_states must be positive, got {self.n_sites}, {self.n_states}"
            )
        if self.scores is not None:
            scores = np.array(self.scores, dtype=float)
            scores.setflags(write=False)
            object.__setattr__(self, "scores", scores)

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        kinds = self.field_kind, self.coupling_kind, self.spins
        scores = None if self.scores is None else self.scores.tobytes()
        return self.n_sites, self.n_states, *kinds, scores, self.edges.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PottsLayout) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def n_edges(self) -> int:
        """Number of edges, ``E``."""
        return len(self.edges)

    @property
    def field_shape(self) -> tuple[int, ...]:
        """Shape of one ``h`` of this kind."""
        full = (self.n_sites,) if self.spins else (self.n_sites, self.n_states)
        return {"none": (), "scalar": (), "shared": (self.n_states,), "full": full}[self.field_kind]

    @property
    def coupling_shape(self) -> tuple[int, ...]:
        """Shape of one ``J`` of this kind."""
        return _coupling_shapes(self.n_edges, self.n_states).get(self.coupling_kind, ())

    @property
    def n_field(self) -> int:
        """Length of the field part of ``theta``."""
        return 0 if self.field_kind == "none" else int(np.prod(self.field_shape))

    @property
    def n_coupling(self) -> int:
        """Length of the coupling part of ``theta``."""
        return 0 if self.coupling_kind == "none" else int(np.prod(self.coupling_shape))

    @property
    def n_parameters(self) -> int:
        """Length of ``theta`` and of ``phi(x)``."""
        return self.n_field + self.n_coupling

    @cached_property
    def has_state(self) -> np.ndarray:
        """Which site has which states, (L, S): all of them, unless scores say otherwise."""
        if self.scores is None:
            return np.ones((self.n_sites, self.n_states), dtype=bool)
        return ~np.isnan(self.scores)

    @cached_property
    def unit_couplings(self) -> np.ndarray:
        """What a coupling of one is worth in each pair of states, (E, S, S)."""
        if self.scores is not None:
            scores = np.where(self.has_state, self.scores, 0.0)
            return scores[self.edges[:, 0], :, None] * scores[self.edges[:, 1], None, :]
        pair = _SPIN_PRODUCTS if self.spins else np.eye(self.n_states)
        return np.broadcast_to(pair, (self.n_edges, *pair.shape))

    def encode(self, x: Any) -> Any:
        """Observed values to states 0 .. S-1 (spins -1, +1 to 0, 1); no range check."""
        return (x + 1) // 2 if self.spins else x

    def decode(self, states: Any) -> Any:
        """States 0 .. S-1 to observed values (spins: 0, 1 to -1, +1)."""
        return 2 * states - 1 if self.spins else states

    def valid(self, x: Any) -> Any:
        """Whether each row holds allowed values only, shape ``x.shape[:-1]``; NumPy or symbolic."""
        xp = _namespace(x)
        if self.spins:
            return xp.all(xp.eq(abs(x), 1) if xp is pt else np.abs(x) == 1, axis=-1)
        n_states = self.n_states if self.scores is None else self.has_state.sum(axis=1)
        return xp.all((x >= 0) & (x < n_states), axis=-1)

    def _checked(self, states: Any) -> np.ndarray:
        values = np.asarray(states)
        if values.ndim != 2 or values.shape[1] != self.n_sites:
            raise ValueError(f"states must have shape (N, {self.n_sites}), got {values.shape}")
        if values.dtype.kind not in "iu":
            raise TypeError(f"states must be integers, got an array of {values.dtype}")
        if values.size and not (values.min() >= 0 and values.max() < self.n_states):
            raise ValueError(f"states are out of range, allowed: 0 .. {self.n_states - 1}")
        return values

    def statistics(self, states: Any) -> np.ndarray:
        """Sufficient statistics (N, d) of rows of states 0 .. S-1, for spins too.

        The energy is ``phi(x) @ theta``: first what multiplies ``h`` (raveled), then ``J``.
        """
        states = self._checked(states)
        return np.concatenate(
            [self._field_statistics(states), self._coupling_statistics(states)], axis=1
        )

    def mean_statistics(self, states: Any, weights: Any = None) -> np.ndarray:
        """Average of :meth:`statistics` over rows, (d,), without holding all of them at once.

        Weights of the rows are used as given; ``1/N`` each by default.
        """
        states = self._checked(states)
        n_rows = len(states)
        share = np.full(n_rows, 1.0 / n_rows) if weights is None else np.asarray(weights, float)
        block = max(1, 4_000_000 // max(1, self.n_parameters, self.n_sites, self.n_edges))
        total = np.zeros(self.n_parameters)
        for start in range(0, n_rows, block):
            rows = slice(start, start + block)
            total += share[rows] @ self.statistics(states[rows])
        return total

    def _field_statistics(self, states: np.ndarray) -> np.ndarray:
        n_rows = len(states)
        if self.field_kind == "none":
            return np.zeros((n_rows, 0))
        if self.field_kind == "scalar":
            return 2.0 * states.sum(axis=1, keepdims=True, dtype=float) - self.n_sites
        if self.field_kind == "shared":
            counts = [(states == state).sum(axis=1) for state in range(self.n_states)]
            return np.stack(counts, axis=1).astype(float)
        if self.spins:
            return self.decode(states).astype(float)
        return one_hot(states, self.n_states).reshape(n_rows, -1).astype(float)

    def _coupling_statistics(self, states: np.ndarray) -> np.ndarray:
        if self.coupling_kind == "none":
            return np.zeros((len(states), 0))
        if self.scores is not None:
            scores = np.where(self.has_state, self.scores, 0.0)[np.arange(self.n_sites), states]
            products = scores[:, self.edges[:, 0]] * scores[:, self.edges[:, 1]]
            scalar = self.coupling_kind == "scalar"
            return products.sum(axis=1, keepdims=True) if scalar else products
        if self.coupling_kind == "scalar":
            agree = np.empty((len(states), 1))
            in_parts(agreements, len(states), states, self.edges, agree[:, 0])
            return 2.0 * agree - self.n_edges if self.spins else agree
        first, second = states[:, self.edges[:, 0]], states[:, self.edges[:, 1]]
        if self.coupling_kind == "edge":
            return self.decode((first == second).astype(float))
        pair = first.astype(np.int64) * self.n_states + second
        if self.coupling_kind == "full":
            return one_hot(pair, self.n_states**2).reshape(len(states), -1).astype(float)
        counts = [(pair == state).sum(axis=1) for state in range(self.n_states**2)]
        return np.stack(counts, axis=1).astype(float)

    def flatten(self, h: Any, J: Any) -> Any:
        """Stack ``h`` and ``J``, or batches of them, into ``theta``, (..., d); NumPy or symbolic.

        Absent ones (kind "none") are ignored.
        """
        xp = _namespace(h, J)
        parts = []
        for value, shape, size in (
            (h, self.field_shape, self.n_field),
            (J, self.coupling_shape, self.n_coupling),
        ):
            if size:
                array = _as_array(value)
                batch = [array.shape[axis] for axis in range(array.ndim - len(shape))]
                parts.append(xp.reshape(array, (*batch, size)))
        if not parts:
            return xp.zeros((0,))
        if any(part.ndim > 1 for part in parts):
            parts = _match_batch(xp, parts)
        return xp.concatenate(parts, axis=-1)

    def unflatten(self, theta: Any) -> tuple[Any, Any]:
        """Split ``theta`` (shape ``(..., d)``) into ``h`` and ``J``; absent ones come back as 0."""
        batch = [theta.shape[axis] for axis in range(theta.ndim - 1)]
        h: Any = 0.0
        J: Any = 0.0
        if self.field_kind != "none":
            h = theta[..., : self.n_field].reshape((*batch, *self.field_shape))
        if self.coupling_kind != "none":
            J = theta[..., self.n_field :].reshape((*batch, *self.coupling_shape))
        return h, J

    def expand(self, h: Any, J: Any) -> tuple[Any, Any]:
        """Write parameters out in full: ``(..., L, S)`` and ``(..., E, S, S)``.

        For spins the states 0, 1 stand for -1, +1, so any method for Potts models applies.
        """
        return self.expand_field(h), self.expand_coupling(J)

    def expand_field(self, h: Any) -> Any:
        """``h`` in full, ``(..., L, S)``; NumPy or symbolic."""
        if self.field_kind == "none":
            return np.where(self.has_state, 0.0, -np.inf)
        xp = _namespace(h)
        values = _as_array(h)
        if self.spins:
            if self.field_kind == "scalar":
                values = values[..., None] * np.ones(self.n_sites)
            return values[..., None] * _SPIN_SIGNS
        if self.field_kind == "shared":
            values = values[..., None, :] * xp.ones((self.n_sites, 1))
        if self.has_state.all():
            return values
        return (pt.switch if xp is pt else np.where)(self.has_state, values, -np.inf)

    def expand_coupling(self, J: Any) -> Any:
        """``J`` in full, ``(..., E, S, S)``; NumPy or symbolic."""
        if self.coupling_kind == "none":
            return np.zeros((self.n_edges, self.n_states, self.n_states))
        values = _as_array(J)
        if self.coupling_kind == "full":
            return values
        if self.coupling_kind == "shared":
            return values[..., None, :, :] * np.ones((self.n_edges, 1, 1))
        if self.coupling_kind == "scalar":
            values = values[..., None]
        return times(self.unit_couplings, values[..., None, None])

    def energy(self, states: Any, h: Any, J: Any) -> np.ndarray:
        """Energies ``E(x)``, (N,), of rows of states 0 .. S-1 at numeric ``h`` and ``J``."""
        states = self._checked(states)
        if self.n_parameters <= 64 and self.has_state.all():
            phi, theta = self.statistics(states), self.flatten(h, J)
            return times(phi, theta).sum(axis=1) if np.isneginf(theta).any() else phi @ theta
        fields, couplings = self.expand(h, J)
        site = fields[np.arange(self.n_sites), states].sum(axis=1)
        first, second = states[:, self.edges[:, 0]], states[:, self.edges[:, 1]]
        return site + couplings[np.arange(self.n_edges), first, second].sum(axis=1)


def one_hot(index: Any, size: int) -> Any:
    """Return indicators of 0 .. size-1 along a new last axis; NumPy or symbolic."""
    equal = pt.eq if isinstance(index, Variable) else np.equal
    return equal(index[..., None], np.arange(size))


def times(factor: Any, value: Any) -> Any:
    """Return a product in which zero times minus infinity is zero; NumPy or symbolic.

    The factor is finite; -inf in the value, a parameter, forbids what the factor counts.

    Examples
    --------
    >>> times(np.array([0.0, 2.0]), np.array([-np.inf, 3.0])).tolist()
    [0.0, 6.0]
    """
    if not isinstance(factor, Variable) and np.all(factor):
        return factor * value
    if _namespace(factor, value) is pt:
        return factor * pt.switch(pt.eq(factor, 0), 0.0, value)
    return factor * np.where(np.equal(factor, 0), 0.0, value)


def _match_batch(xp: Any, parts: list[Any]) -> list[Any]:
    """Broadcast the leading dimensions of the parts against each other."""
    if xp is pt:
        batch = pt.broadcast_shape(*[part[..., 0] for part in parts])
    else:
        batch = np.broadcast_shapes(*[part.shape[:-1] for part in parts])
    return [xp.broadcast_to(part, (*batch, part.shape[-1])) for part in parts]


def static_shape(value: Any) -> tuple[Any, ...]:
    """Shape of an array, or of the type of a symbolic one, None for lengths it does not know."""
    return tuple(value.type.shape) if isinstance(value, Variable) else np.shape(value)


def _fits(shape: tuple[int | None, ...], core: tuple[int, ...]) -> bool:
    """Whether the trailing dimensions agree with ``core``, unknown ones with anything."""
    pairs = zip(shape[::-1], core[::-1], strict=False)
    return len(shape) >= len(core) and all(got in (None, want) for got, want in pairs)


def _with_core(value: Any, core: tuple[int, ...]) -> Any:
    """Write the lengths that the graph tells into the type of a symbolic parameter."""
    if not isinstance(value, Variable):
        return value
    return pt.specify_shape(value, (*[None] * (value.type.ndim - len(core)), *core))


def _agreed(name: str, candidates: dict[str, int | None]) -> int | None:
    """Return the one number all sources give; raise where two of them disagree."""
    known = {source: count for source, count in candidates.items() if count is not None}
    if len(set(known.values())) > 1:
        said = ", ".join(f"{count} from {source}" for source, count in known.items())
        raise ValueError(f"{name} is not consistent: {said}")
    return next(iter(known.values()), None)


def _count_sites(
    edges: Any, n_sites: int | None, rows: int | None, observed: Any, single_row: bool = False
) -> int:
    """Tell the number of sites from all there is, the rows of ``h`` among it."""
    candidates = {"n_sites": n_sites, "h": rows}
    if observed is not None:
        shape = static_shape(observed)
        if len(shape) < 1:
            raise ValueError("observed must have the sites on its last axis, got a scalar")
        candidates["observed"] = shape[-1]
    if isinstance(edges, nx.Graph):
        candidates["edges (a networkx graph)"] = len(edges)
    sites = _agreed("n_sites", candidates)
    named = int(as_edges(edges).max(initial=-1)) + 1
    if sites is None:
        if not named and not single_row:
            raise ValueError("n_sites cannot be told from an empty graph: pass n_sites=")
        return max(named, 1)
    if named > sites == candidates.get("observed"):
        raise ValueError(
            f"observed must have the sites on its last axis, got {sites} of them where edges "
            f"name {named}: give images row by row, observed.reshape(-1, {named})"
        )
    return sites


def _coupling_of(
    J: Any,
    cores: dict[CouplingKind, tuple[int, ...]],
    batch: tuple[int | None, ...],
    kind: CouplingKind | None,
) -> tuple[Any, CouplingKind]:
    """Tell the kind of ``J`` from its shape, or check the one asked for; ``J`` with that shape."""
    n_edges = cores["edge"][0]
    if J is None:
        if n_edges:
            raise ValueError(f"J must be given for a graph with {n_edges} edges, got None")
        return np.zeros(()), "none"
    if kind is None:
        # An axis of one edge stands for all of them.
        shape = static_shape(J)
        one = shape == (1,) or ("shared" in cores and len(shape) == 3 and shape[0] == 1)
        J = J[0] if one and n_edges != 1 else J
        kind = _told_kind(static_shape(J), cores, batch)
    elif kind not in cores:
        raise ValueError(f"coupling must be one of {tuple(cores)}, got {kind!r}")
    elif not _fits(static_shape(J), cores[kind]):
        raise ValueError(
            f"J of kind {kind!r} must end in shape {cores[kind]}, got {static_shape(J)}"
        )
    return _with_core(J, cores[kind]), kind


def _told_kind(
    shape: tuple[int | None, ...],
    cores: dict[CouplingKind, tuple[int, ...]],
    batch: tuple[int | None, ...],
) -> CouplingKind:
    fitting = [name for name, core in cores.items() if _fits(shape, core)]
    found = [name for name in fitting if len(shape) == len(cores[name])]
    # A batch is recognised when the leading dimensions are those of h.
    found += [name for name in fitting if _broadcast(shape[: len(shape) - len(cores[name])], batch)]
    # More dimensions than any kind has can only be a batch of the largest.
    largest = list(cores)[-1]
    if largest in fitting and len(shape) > len(cores[largest]):
        found.append(largest)
    if found:
        return found[0]
    allowed = ", ".join(str(core) for core in cores.values())
    raise ValueError(
        f"J must have one of the shapes {allowed} (with {cores['edge'][0]} edges), got {shape}; "
        "for a batch of parameters say which with coupling='scalar', 'edge', 'shared' or 'full'"
    )


def _broadcast(lead: tuple[int | None, ...], batch: tuple[int | None, ...]) -> bool:
    if not batch or len(lead) > len(batch):
        return False
    pairs = zip(lead[::-1], batch[::-1], strict=False)
    return all(got in (None, 1, want) or want in (None, 1) for got, want in pairs)


def potts_layout(
    h: Any,
    J: Any,
    edges: Any,
    *,
    ising: bool = False,
    n_sites: int | None = None,
    n_states: int | None = None,
    observed: Any = None,
    coupling: CouplingKind | None = None,
) -> tuple[PottsLayout, Any, Any]:
    """Work out the layout of a model from the parameters as a user gives them.

    ``h`` is anything that broadcasts to ``(L, S)``, or None: one row or ``(S,)`` is one field for
    all sites, ``(L, 1)`` or a number has no effect on probabilities. ``J`` is ``()``, ``(E,)``,
    ``(S, S)`` or ``(E, S, S)``; where two of them fit, the one with as many dimensions as given.
    More leading dimensions are a batch, in ``J`` recognised when they are those of ``h``, otherwise
    ``coupling`` names the kind. ``n_sites`` and ``n_states`` are needed only where shapes do not
    tell; of ``observed``, (..., L), only the shape is used. Of an Ising model ``h`` is a number
    (one field), ``(L,)`` or None, and ``J`` a number or ``(E,)``.

    Returns the layout, and ``h`` and ``J`` in its shapes (0.0 where absent).

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> layout, h, J = potts_layout(np.zeros((1, 3)), 0.4, graphs.grid(4, 4))
    >>> layout.n_sites, layout.field_kind, layout.coupling_kind, layout.n_parameters
    (16, 'shared', 'scalar', 4)
    >>> layout, h, J = potts_layout(0.1, 0.4, graphs.ring(5), ising=True)
    >>> layout.n_parameters, layout.statistics([[1, 1, 0, 0, 1]]).tolist()
    (2, [[1.0, 1.0]])
    """
    if ising and n_states not in (None, 2):
        raise ValueError(f"n_states of an Ising model is 2, got {n_states!r}")
    h, J = (None if value is None else _as_array(value) for value in (h, J))
    h_shape, J_shape = static_shape(h), static_shape(J)
    n_axes = 1 if ising else 2
    # A field of one row is that of all sites, or of the only one where nothing says otherwise.
    single_row = len(h_shape) >= n_axes and h_shape[-n_axes] == 1
    full = len(h_shape) >= n_axes and not single_row
    rows = h_shape[-n_axes] if full else None
    sites = _count_sites(edges, n_sites, rows, observed, single_row and not ising)
    pairs = as_edges(edges, sites)
    states = 2 if ising else _count_states(n_states, h_shape, J_shape, coupling)

    field_kind: FieldKind = "none"
    if h is not None:
        field_kind = "full" if full else "scalar" if ising else "shared"
        h = (h[..., 0] if ising else h[..., 0, :]) if single_row else h
        if not ising and (not h_shape or (h_shape[-1] == 1 and states != 1)):
            h = h * np.ones(states)
    cores = _coupling_shapes(len(pairs), states)
    if ising:
        del cores["shared"], cores["full"]
    J, coupling_kind = _coupling_of(J, cores, h_shape[:-n_axes], coupling)
    layout = PottsLayout(sites, states, pairs, field_kind, coupling_kind, spins=ising)
    return layout, np.zeros(()) if h is None else _with_core(h, layout.field_shape), J


def _count_states(
    n_states: int | None,
    h_shape: tuple[Any, ...],
    J_shape: tuple[Any, ...],
    coupling: CouplingKind | None,
) -> int:
    columns = h_shape[-1] if h_shape and h_shape[-1] != 1 else None
    states = _agreed("n_states", {"n_states": n_states, "h": columns})
    square = len(J_shape) >= 2 and J_shape[-1] == J_shape[-2]
    if states is None and square and coupling in (None, "shared", "full"):
        states = J_shape[-1]
    if states is None:
        raise ValueError("n_states cannot be told from the shapes of h and J: pass n_states=")
    return states
