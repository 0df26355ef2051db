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

__all__ = ["GraphNormalizer", "PottsLayout", "ising_layout", "one_hot", "potts_layout", "times"]

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
    >>> import numpy as np
    >>> from pymc_bayessum import graphs
    >>> from pymc_bayessum.graphs.statistics import PottsLayout
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
        """Check the kinds and freeze the edges."""
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
            if self.spins or scores.shape != (self.n_sites, self.n_states):
                raise ValueError(
                    f"scores must have shape {(self.n_sites, self.n_states)} and are not for "
                    f"spins, got {scores.shape}"
                )
            scores.setflags(write=False)
            object.__setattr__(self, "scores", scores)

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        kinds = self.field_kind, self.coupling_kind, self.spins
        scores = None if self.scores is None else self.scores.tobytes()
        return self.n_sites, self.n_states, *kinds, scores, self.edges.tobytes()

    def __eq__(self, other: object) -> bool:
        """Compare sizes, kinds and edges."""
        return isinstance(other, PottsLayout) and self._key == other._key

    def __hash__(self) -> int:
        """Hash of sizes, kinds and edges."""
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
        pair = (self.n_states, self.n_states)
        shapes: dict[str, tuple[int, ...]] = {
            "none": (),
            "scalar": (),
            "edge": (self.n_edges,),
            "shared": pair,
            "full": (self.n_edges, *pair),
        }
        return shapes[self.coupling_kind]

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
        """Sufficient statistics, so that the energy is ``phi(x) @ theta``.

        Parameters
        ----------
        states : array_like of int, shape (N, L)
            Rows of states 0 .. S-1, for spins too.

        Returns
        -------
        ndarray, shape (N, d)
            First what multiplies ``h`` (raveled), then what multiplies ``J`` (raveled).
        """
        states = self._checked(states)
        return np.concatenate(
            [self._field_statistics(states), self._coupling_statistics(states)], axis=1
        )

    def mean_statistics(self, states: Any, weights: Any = None) -> np.ndarray:
        """Average of :meth:`statistics` over rows, without holding all of them at once.

        Parameters
        ----------
        states : array_like of int, shape (N, L)
            States 0 .. S-1.
        weights : array_like, shape (N,), optional
            Weights of the rows, used as given; ``1/N`` each by default.

        Returns
        -------
        ndarray, shape (d,)
        """
        states = self._checked(states)
        n_rows = len(states)
        share = np.full(n_rows, 1.0 / n_rows) if weights is None else np.asarray(weights, float)
        block = max(1, 4_000_000 // max(1, self.n_parameters, self.n_sites, self.n_edges))
        total = np.zeros(self.n_parameters)
        for start in range(0, n_rows, block):
            rows = slice(start, start + block)
            total[: self.n_field] += share[rows] @ self._field_statistics(states[rows])
            total[self.n_field :] += share[rows] @ self._coupling_statistics(states[rows])
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
        """Stack ``h`` and ``J`` into ``theta``, shape ``(..., d)``; NumPy or symbolic.

        Parameters
        ----------
        h, J : array_like or TensorVariable
            Of this layout's shapes, with optional leading batch dimensions. Absent ones (kind
            "none") are ignored.
        """
        xp = _namespace(h, J)
        parts = []
        for value, shape, size in (
            (h, self.field_shape, self.n_field),
            (J, self.coupling_shape, self.n_coupling),
        ):
            if size:
                array = _as_array(value)
                parts.append(_ravel(xp, array, len(shape), size))
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
        """Energies ``E(x)`` of rows of states for numeric parameters.

        Parameters
        ----------
        states : array_like of int, shape (N, L)
            States 0 .. S-1.
        h, J : array_like
            Of this layout's shapes, no batch dimensions.

        Returns
        -------
        ndarray, shape (N,)
        """
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

    Parameters
    ----------
    factor : array_like or TensorVariable
        Finite.
    value : array_like or TensorVariable
        A parameter, of which -inf forbids what the factor counts.

    Returns
    -------
    ndarray or TensorVariable

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


def _ravel(xp: Any, array: Any, n_core: int, size: int) -> Any:
    batch = [array.shape[axis] for axis in range(array.ndim - n_core)]
    return xp.reshape(array, (*batch, size))


def _match_batch(xp: Any, parts: list[Any]) -> list[Any]:
    """Broadcast the leading dimensions of the parts against each other."""
    if xp is pt:
        batch = pt.broadcast_shape(*[part[..., 0] for part in parts])
    else:
        batch = np.broadcast_shapes(*[part.shape[:-1] for part in parts])
    return [xp.broadcast_to(part, (*batch, part.shape[-1])) for part in parts]


def _static_shape(value: Any) -> tuple[int | None, ...]:
    return tuple(value.type.shape) if isinstance(value, Variable) else np.shape(value)


def _fits(shape: tuple[int | None, ...], core: tuple[int, ...]) -> bool:
    """Whether the trailing dimensions agree with ``core``, unknown ones with anything."""
    if len(shape) < len(core):
        return False
    tail = shape[len(shape) - len(core) :]
    return all(got is None or got == want for got, want in zip(tail, core, strict=True))


def _with_core(value: Any, core: tuple[int, ...]) -> Any:
    """Write the lengths that the graph tells into the type of a symbolic parameter."""
    if (
        not isinstance(value, Variable)
        or _static_shape(value)[value.type.ndim - len(core) :] == core
    ):
        return value
    return pt.specify_shape(value, (*[None] * (value.type.ndim - len(core)), *core))


def _agreed(name: str, candidates: dict[str, int | None]) -> int | None:
    """Return the one number all sources give; raise where two of them disagree."""
    known = {source: count for source, count in candidates.items() if count is not None}
    if len(set(known.values())) > 1:
        said = ", ".join(f"{count} from {source}" for source, count in known.items())
        raise ValueError(f"{name} is not consistent: {said}")
    return next(iter(known.values()), None)


def _count_sites(edges: Any, candidates: dict[str, int | None], single_row: bool = False) -> int:
    if isinstance(edges, nx.Graph):
        candidates = candidates | {"edges (a networkx graph)": len(edges)}
    n_sites = _agreed("n_sites", candidates)
    pairs = None if isinstance(edges, nx.Graph) else as_edges(edges)
    if n_sites is not None:
        named = 0 if pairs is None else int(pairs.max(initial=-1)) + 1
        if named > n_sites == candidates.get("observed"):
            raise ValueError(
                f"observed must have the sites on its last axis, got {n_sites} of them where edges "
                f"name {named}: give images row by row, observed.reshape(-1, {named})"
            )
        return n_sites
    assert pairs is not None
    if not len(pairs) and single_row:
        return 1
    if not len(pairs):
        raise ValueError("n_sites cannot be told from an empty graph: pass n_sites=")
    return int(pairs.max()) + 1


def _row_length(observed: Any) -> int | None:
    if observed is None:
        return None
    shape = _static_shape(observed)
    if len(shape) < 1:
        raise ValueError("observed must have the sites on its last axis, got a scalar")
    return shape[-1]


def _coupling_of(
    J: Any,
    cores: dict[CouplingKind, tuple[int, ...]],
    batch: tuple[int | None, ...],
    kind: CouplingKind | None,
) -> CouplingKind:
    """Tell the kind of ``J`` from its shape, or check the one asked for."""
    shape = _static_shape(J)
    if kind is not None:
        if kind not in cores:
            raise ValueError(f"coupling must be one of {tuple(cores)}, got {kind!r}")
        if not _fits(shape, cores[kind]):
            raise ValueError(f"J of kind {kind!r} must end in shape {cores[kind]}, got {shape}")
        return kind
    for name, core in cores.items():
        if len(shape) == len(core) and _fits(shape, core):
            return name
    # A batch is recognised when the leading dimensions are those of h.
    for name, core in cores.items():
        lead = shape[: len(shape) - len(core)]
        if len(shape) > len(core) and _fits(shape, core) and _broadcast(lead, batch):
            return name
    if len(shape) > max(len(core) for core in cores.values()):
        name = list(cores)[-1]
        if _fits(shape, cores[name]):
            return name
    allowed = ", ".join(str(core) for core in cores.values())
    raise ValueError(
        f"J must have one of the shapes {allowed} (with {cores['edge'][0]} edges), got {shape}; "
        "for a batch of parameters say which with coupling='scalar', 'edge', 'shared' or 'full'"
    )


def _broadcast(lead: tuple[int | None, ...], batch: tuple[int | None, ...]) -> bool:
    if not batch or len(lead) > len(batch):
        return False
    tail = batch[len(batch) - len(lead) :]
    return all(
        got in (None, 1) or want in (None, 1) or got == want
        for got, want in zip(lead, tail, strict=True)
    )


def potts_layout(
    h: Any,
    J: Any,
    edges: Any,
    *,
    n_sites: int | None = None,
    n_states: int | None = None,
    observed: Any = None,
    coupling: CouplingKind | None = None,
) -> tuple[PottsLayout, Any, Any]:
    """Work out the layout of a Potts model from the parameters as a user gives them.

    Parameters
    ----------
    h : array_like, TensorVariable or None
        Anything that broadcasts to ``(L, S)``: ``(L, S)``, ``(1, S)`` or ``(S,)`` (one field for
        all sites), ``(L, 1)`` or a number (no effect on probabilities), or None (no field). More
        leading dimensions are a batch.
    J : array_like, TensorVariable or None
        ``()``, ``(E,)``, ``(S, S)`` or ``(E, S, S)``; where two of them fit, the one with as many
        dimensions as given. Leading batch dimensions are recognised when they are those of ``h``,
        otherwise name the kind with ``coupling``.
    edges : array_like of int, shape (E, 2), or networkx.Graph
    n_sites, n_states : int, optional
        Needed only where the shapes of ``h``, ``J``, ``observed`` and ``edges`` do not tell.
        Lengths of symbolic parameters that are not known are taken from these.
    observed : array_like, shape (..., L), optional
        Data, only its shape is used.
    coupling : {"scalar", "edge", "shared", "full"}, optional
        Kind of ``J``.

    Returns
    -------
    layout : PottsLayout
    h, J : ndarray or TensorVariable
        The parameters in the layout's shapes (0.0 where absent).

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum import graphs
    >>> from pymc_bayessum.graphs.statistics import potts_layout
    >>> layout, h, J = potts_layout(np.zeros((1, 3)), 0.4, graphs.grid(4, 4))
    >>> layout.n_sites, layout.field_kind, layout.coupling_kind, layout.n_parameters
    (16, 'shared', 'scalar', 4)
    """
    h = None if h is None else _as_array(h)
    J = None if J is None else _as_array(J)
    h_shape = () if h is None else _static_shape(h)
    J_shape = () if J is None else _static_shape(J)
    # A field of one row is that of all sites, or of the only one where nothing says otherwise.
    single_row = len(h_shape) >= 2 and h_shape[-2] == 1
    rows = h_shape[-2] if len(h_shape) >= 2 and not single_row else None
    length = _row_length(observed)
    known = {"n_sites": n_sites, "h": rows, "observed": length}
    sites = _count_sites(edges, known, single_row)
    pairs = as_edges(edges, sites)

    columns = h_shape[-1] if len(h_shape) >= 1 and h_shape[-1] != 1 else None
    matrix = coupling in ("shared", "full") or (coupling is None and len(J_shape) >= 2)
    by_coupling = None
    if matrix and len(J_shape) >= 2 and J_shape[-1] == J_shape[-2]:
        by_coupling = J_shape[-1]
    states = _agreed("n_states", {"n_states": n_states, "h": columns})
    states = by_coupling if states is None else states
    if states is None:
        raise ValueError("n_states cannot be told from the shapes of h and J: pass n_states=")

    if h is None:
        field_kind: FieldKind = "none"
        h = np.zeros(())
    elif len(h_shape) >= 2 and h_shape[-2] != 1:
        field_kind = "full"
        h = h * np.ones(states) if h_shape[-1] == 1 and states != 1 else h
        h = _with_core(h, (sites, states))
    else:
        field_kind = "shared"
        h = h[..., 0, :] if len(h_shape) >= 2 else h
        h = h * np.ones(states) if not h_shape or (h_shape[-1] == 1 and states != 1) else h
        h = _with_core(h, (states,))
    batch = _static_shape(h)[: -{"none": 1, "shared": 1, "full": 2}[field_kind]]
    batch = () if field_kind == "none" else batch

    pair = (states, states)
    cores: dict[CouplingKind, tuple[int, ...]] = {
        "scalar": (),
        "edge": (len(pairs),),
        "shared": pair,
        "full": (len(pairs), *pair),
    }
    J, coupling_kind = _canonical_coupling(J, cores, batch, coupling)
    return PottsLayout(sites, states, pairs, field_kind, coupling_kind), h, J


def _canonical_coupling(
    J: Any,
    cores: dict[CouplingKind, tuple[int, ...]],
    batch: tuple[int | None, ...],
    kind: CouplingKind | None,
) -> tuple[Any, CouplingKind]:
    n_edges = cores["edge"][0]
    if J is None:
        if n_edges:
            raise ValueError(f"J must be given for a graph with {n_edges} edges, got None")
        return np.zeros(()), "none"
    shape = _static_shape(J)
    if kind is None and shape == (1,) and n_edges != 1:
        J = J[0]
    if kind is None and len(shape) == 3 and shape[0] == 1 and n_edges != 1 and "shared" in cores:
        J = J[0]
    kind = _coupling_of(J, cores, batch, kind)
    return _with_core(J, cores[kind]), kind


def ising_layout(
    h: Any,
    J: Any,
    edges: Any,
    *,
    n_sites: int | None = None,
    observed: Any = None,
    coupling: CouplingKind | None = None,
) -> tuple[PottsLayout, Any, Any]:
    """Work out the layout of an Ising model: spins -1/+1, ``E = sum h_i x_i + sum J_ij x_i x_j``.

    Parameters
    ----------
    h : array_like, TensorVariable or None
        A number (one field), ``(L,)`` or None; more leading dimensions are a batch.
    J : array_like, TensorVariable or None
        A number or ``(E,)``; a batch as for :func:`potts_layout`.
    edges, n_sites, observed, coupling
        As for :func:`potts_layout`.

    Returns
    -------
    layout : PottsLayout
    h, J : ndarray or TensorVariable

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> from pymc_bayessum.graphs.statistics import ising_layout
    >>> layout, h, J = ising_layout(0.1, 0.4, graphs.ring(5))
    >>> layout.n_parameters, layout.statistics([[1, 1, 0, 0, 1]]).tolist()
    (2, [[1.0, 1.0]])
    """
    h = None if h is None else _as_array(h)
    J = None if J is None else _as_array(J)
    h_shape = () if h is None else _static_shape(h)
    rows = h_shape[-1] if h_shape and h_shape[-1] != 1 else None
    length = _row_length(observed)
    sites = _count_sites(edges, {"n_sites": n_sites, "h": rows, "observed": length})
    pairs = as_edges(edges, sites)
    batch: tuple[int | None, ...] = ()
    if h is None:
        field_kind: FieldKind = "none"
        h = np.zeros(())
    elif not h_shape or (h_shape[-1] == 1 and sites != 1):
        field_kind = "scalar"
        h = h[..., 0] if h_shape else h
        batch = h_shape[:-1]
    else:
        field_kind = "full"
        batch = h_shape[:-1]
        h = _with_core(h, (sites,))
    cores: dict[CouplingKind, tuple[int, ...]] = {"scalar": (), "edge": (len(pairs),)}
    J, coupling_kind = _canonical_coupling(J, cores, batch, coupling)
    return PottsLayout(sites, 2, pairs, field_kind, coupling_kind, spins=True), h, J
