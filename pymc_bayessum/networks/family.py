"""Random networks as an exponential family: what anchors, draws and exact sums need of them."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from pymc_bayessum.arguments import integer
from pymc_bayessum.exponential.collinear import require_independent
from pymc_bayessum.exponential.listing import ListedSum, distinct
from pymc_bayessum.networks.changes import MOST_NODES, Program, changes, counts, program
from pymc_bayessum.networks.dyads import Degenerate, DyadSum
from pymc_bayessum.networks.listing import LISTABLE, listed
from pymc_bayessum.networks.phases import APART, ELSEWHERE, MOST_DYADS, apart, joined
from pymc_bayessum.networks.sampler import run_chains
from pymc_bayessum.networks.terms import Term
from pymc_bayessum.normalizers.coordinates import Coordinates, plain
from pymc_bayessum.normalizers.protocol import Normalizer

__all__ = ["NetworkFamily", "TieChain", "completions", "network_family"]

#: Sweeps from a start to a draw.
SWEEPS = 100
#: Chains from each of the places that they are asked whether they remember.
CHAINS = 12
#: Proposals of such a chain, for each free dyad: it takes two to empty a full network;
PASSES, FEWEST_PASSES = 30, 4
#: and how many there are at most beyond the fewest.
MOST_PROPOSALS = 100_000


@dataclass(frozen=True, eq=False)
class NetworkFamily:
    """All networks on n nodes that agree on the fixed dyads, with their statistics.

    States are packed networks, (N, bytes): see :mod:`pymc_bayessum.networks.changes`. Every network
    has the fixed ties (F, 2), and may have those of the dyads (D, 2). Chains start from what is
    typical (C, bytes): none of them where nothing was observed.

    Examples
    --------
    >>> import pymc_bayessum as pbs
    >>> family = network_family([pbs.ergm.edges(), pbs.ergm.triangles()], 4)
    >>> family.statistics(family.encode(np.ones((1, 4, 4)) - np.eye(4))).tolist()
    [[6.0, 4.0]]
    """

    terms: tuple[Term, ...]
    n_nodes: int
    directed: bool
    fixed: np.ndarray = field(repr=False)
    dyads: np.ndarray = field(repr=False)
    typical: np.ndarray = field(repr=False)

    @cached_property
    def program(self) -> Program:
        """The terms as compiled code reads them."""
        return program(self.terms, self.n_nodes, self.directed)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the statistics."""
        return tuple(term.name for term in self.terms)

    @property
    def n_statistics(self) -> int:
        """Number of statistics, d."""
        return len(self.terms)

    @property
    def n_sites(self) -> int:
        """Number of dyads that may change."""
        return len(self.dyads)

    @property
    def state_shape(self) -> tuple[int, int]:
        """Shape of one network."""
        return self.n_nodes, self.n_nodes

    def starting_at(self, networks: np.ndarray) -> "NetworkFamily":
        """Return the same family, with chains that start at observed networks (m, n, n)."""
        if not self.valid(networks).all():
            raise ValueError("observed networks must be those of the model, with its fixed dyads")
        return replace(self, typical=self.encode(networks))

    def encode(self, networks: np.ndarray) -> np.ndarray:
        """Pack matrices (N, n, n) into states."""
        ties = np.asarray(networks)[:, self.dyads[:, 0], self.dyads[:, 1]]
        return _packed(ties.astype(bool))

    def ties(self, states: np.ndarray) -> np.ndarray:
        """Which free dyads are tied, zeros and ones (N, D)."""
        return np.unpackbits(states, axis=1, count=len(self.dyads), bitorder="little")

    def decode(self, states: np.ndarray) -> np.ndarray:
        """Unpack states into matrices of zeros and ones, (N, n, n)."""
        networks = np.zeros((len(states), *self.state_shape), np.int64)
        networks[:, self.dyads[:, 0], self.dyads[:, 1]] = self.ties(states)
        networks[:, self.fixed[:, 0], self.fixed[:, 1]] = 1
        if not self.directed:
            networks |= np.swapaxes(networks, 1, 2)
        return networks

    def valid(self, networks: np.ndarray) -> np.ndarray:
        """Which matrices (N, n, n) are networks of the family."""
        networks = np.asarray(networks)
        binary = np.isin(networks, (0, 1)).all(axis=(1, 2))
        same = self.decode(self.encode(np.where(binary[:, None, None], networks, 0))) == networks
        return binary & same.all(axis=(1, 2))

    def statistics(self, states: np.ndarray) -> np.ndarray:
        """Statistics of packed states, (N, d)."""
        return counts(self.program, self.fixed, self.dyads, states)

    def changes(self, state: np.ndarray) -> np.ndarray:
        """Return what the tie of each free dyad adds to the statistics given the others, (D, d)."""
        return changes(self.program, self.fixed, self.dyads, state)

    def chain(self, theta: np.ndarray) -> "TieChain":
        """Return Markov chains at a parameter vector."""
        return TieChain(self, np.ascontiguousarray(theta, dtype=float))

    def sample(
        self, theta: np.ndarray, n: int, rng: np.random.Generator, start: Any = None
    ) -> np.ndarray:
        """Draw n packed networks, each the end of a chain of its own."""
        chain = self.chain(theta)
        first = chain.start(n, rng) if start is None else start[np.arange(n) % len(start)]
        return chain.advance(first, SWEEPS, rng)

    def coordinates(self) -> Coordinates:
        """All of them: terms that cannot be told apart are refused."""
        return plain(self.n_statistics)

    def remembers_start(self, theta: np.ndarray, rng: np.random.Generator) -> bool:
        """Whether chains from empty, full and observed networks end in different places.

        Examples
        --------
        >>> import networkx as nx
        >>> from pymc_bayessum.networks.terms import edges, triangles
        >>> ties = nx.to_numpy_array(nx.karate_club_graph(), weight=None)[None]
        >>> family = network_family([edges(), triangles()], 34, networks=ties)
        >>> family.remembers_start(np.array([-2.5, 0.67]), np.random.default_rng(0))
        True
        """
        return apart(self._ends(theta, rng)) > APART

    def _ends(self, theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Statistics (3, chains, d) where chains from empty, full and observed networks end."""
        size = len(self.dyads)
        full = _packed(np.ones((1, size), bool))
        steps = max(FEWEST_PASSES * size, min(PASSES * size, MOST_PROPOSALS))
        found = []
        for start in (np.zeros_like(full), full, self.typical):
            chains = start[np.arange(CHAINS) % len(start)]
            reached = run_chains(self.program, theta, self.fixed, self.dyads, chains, steps, rng)
            found.append(self.statistics(reached))
        return np.stack(found)

    def joined(self, anchors: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
        """Return anchors at which chains mix, and others that join sparse and dense networks."""
        if self.is_dyadic or len(self.dyads) > MOST_DYADS or not len(self.typical):
            return anchors
        place = self.names.index("edges") if "edges" in self.names else None
        here = self._ends(anchors[0], rng)

        def strays(theta: np.ndarray) -> bool:
            there = self._ends(theta, rng)
            return apart(there) > APART or apart(np.concatenate([here, there])) > ELSEWHERE

        return joined(anchors, strays, place, len(self.dyads))

    @property
    def is_dyadic(self) -> bool:
        """Whether ties are independent of one another."""
        return all(term.is_dyadic for term in self.terms)

    @cached_property
    def listing(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Distinct statistics and their numbers of networks; None where there are too many."""
        if len(self.dyads) > LISTABLE:
            return None
        return listed(self.program, self.fixed, self.dyads)

    @cached_property
    def exact(self) -> Normalizer | None:
        """The exact normaliser: of independent ties, or a list; None where there is none."""
        if self.is_dyadic:
            none = _packed(np.zeros((1, len(self.dyads)), bool))
            return DyadSum(self.statistics(none)[0], *distinct(self.changes(none[0])))
        return None if self.listing is None else ListedSum(*self.listing)

    def degenerate(self) -> Degenerate:
        """Return what stands in for log Z near the typical networks, the observed ones."""
        design = np.concatenate([self.changes(state) for state in self.typical])
        n, ties = len(self.typical), self.ties(self.typical).ravel()
        base = self.statistics(self.typical).sum(axis=0) - ties @ design
        rows, times = distinct(design)
        return Degenerate(base / n, rows, times / n, self.names)

    def exact_log_z(self, often: bool = False) -> Callable[[np.ndarray], float] | None:
        """Exact log Z as a function of a parameter vector; None where there is none."""
        exact = self.exact
        return None if exact is None else lambda theta: float(exact.log_z(np, theta))

    def pseudo_mode(
        self, states: np.ndarray, sd: float = 3.0, known: np.ndarray | None = None
    ) -> np.ndarray:
        r"""Parameters that predict each tie best from all others, as if they were independent.

        .. math:: \mathrm{logit}\, p(y_{ij} = 1 \mid y_{-ij}) = \theta \cdot \delta_{ij}(y)

        (Strauss and Ikeda, "Pseudolikelihood estimation for social networks", 1990), with a weak
        normal prior in units of the changes, since the best may lie at infinity. Dyads to predict
        are those known, (n, n), or all that are free.
        """
        design = np.concatenate([self.changes(state) for state in states])
        ties = self.ties(states).ravel()
        if known is not None:
            told = np.tile(known[self.dyads[:, 0], self.dyads[:, 1]], len(states))
            design, ties = design[told], ties[told]
        scale = np.sqrt((design**2).mean(axis=0))
        scale[scale == 0.0] = 1.0
        design = design / scale

        def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
            energy = design @ theta
            value = (
                np.logaddexp(0.0, energy).sum() - ties @ energy + 0.5 * (theta / sd) @ (theta / sd)
            )
            return float(value), design.T @ (expit(energy) - ties) + theta / sd**2

        return minimize(loss, np.zeros(len(scale)), jac=True, method="BFGS").x / scale


@dataclass(frozen=True, eq=False)
class TieChain:
    """Parallel Metropolis chains on ties at one parameter vector."""

    family: NetworkFamily
    theta: np.ndarray
    name: str = "tie-no-tie"

    def start(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """First states: observed networks, or ties as likely as they are in an empty network."""
        family = self.family
        if len(family.typical):
            return family.typical[np.arange(n) % len(family.typical)]
        return _packed(rng.random((n, len(family.dyads))) < self._chances)

    def advance(self, states: np.ndarray, sweeps: int, rng: np.random.Generator) -> np.ndarray:
        """Return the states some sweeps later; a sweep proposes about every tie once."""
        family = self.family
        arguments = family.program, self.theta, family.fixed, family.dyads
        return run_chains(*arguments, states, sweeps * self._proposals, rng)

    @cached_property
    def _chances(self) -> np.ndarray:
        """Chance of each tie in a network without others, (D,)."""
        (none,) = _packed(np.zeros((1, len(self.family.dyads)), bool))
        return expit(self.family.changes(none) @ self.theta)

    @cached_property
    def _proposals(self) -> int:
        """Half of the proposals are ties: twice their number, but not fewer than nodes."""
        typical = self.family.typical
        n_ties = (
            np.bitwise_count(typical).sum(axis=1).mean() if len(typical) else self._chances.sum()
        )
        return int(max(2.0 * n_ties, self.family.n_nodes, 16))


def _packed(ties: np.ndarray) -> np.ndarray:
    """States, (N, bytes), of which free dyads are tied, (N, D)."""
    # Row by row in memory: compiled code is compiled again for every other order.
    return np.packbits(np.ascontiguousarray(ties), axis=1, bitorder="little")


def network_family(
    terms: Any,
    n_nodes: int,
    directed: bool = False,
    *,
    networks: np.ndarray | None = None,
    free: np.ndarray | None = None,
) -> NetworkFamily:
    """Build the family of networks with given terms; those that cannot be told apart are named.

    Chains start at the observed networks (m, n, n). Dyads that are not free, (n, n), have the value
    they have in the first of these, or no tie.
    """
    n_nodes = integer("n_nodes", n_nodes, 2)
    if n_nodes > MOST_NODES:
        raise ValueError(f"networks may have {MOST_NODES} nodes at most, got {n_nodes}")
    parts = tuple(terms) if isinstance(terms, list | tuple) else (terms,)
    wrong = [part for part in parts if not isinstance(part, Term)]
    if wrong or not parts:
        raise TypeError(
            f"terms must be a list of terms such as pbs.ergm.edges(), got {wrong[0]!r}"
            if wrong
            else "terms must hold at least one term, such as pbs.ergm.edges()"
        )
    if not directed and any(part.kind == "mutual" for part in parts):
        raise ValueError("mutual() counts ties both ways: it needs a directed network")
    some = np.zeros((0, n_nodes, n_nodes), np.int64) if networks is None else networks
    family = _free_in(parts, some, directed, free)
    density = np.linspace(0.0, 1.0, 20 + 4 * len(parts))
    ties = np.random.default_rng(0).random((len(density), len(family.dyads))) < density[:, None]
    require_independent(family.statistics(_packed(ties)), family.names, "network of the model")
    return family


def completions(family: NetworkFamily, network: np.ndarray, unknown: np.ndarray) -> NetworkFamily:
    """Build the family of the networks that agree with one, (n, n), where it is known.

    A few of them may not tell terms apart that all networks do.
    """
    return _free_in(family.terms, network[None], family.directed, unknown)


def _free_in(
    parts: tuple[Term, ...], some: np.ndarray, directed: bool, free: np.ndarray | None
) -> NetworkFamily:
    n_nodes = some.shape[-1]
    may_change = ~np.eye(n_nodes, dtype=bool)
    if free is not None:
        may_change &= free if directed else free | free.T
    ties = some[0].astype(bool) if len(some) else np.zeros((n_nodes, n_nodes), bool)
    fixed = np.argwhere(ties & ~may_change)
    dyads = np.argwhere(may_change)
    if not directed:
        fixed, dyads = fixed[fixed[:, 0] < fixed[:, 1]], dyads[dyads[:, 0] < dyads[:, 1]]
    # As packed states: by rows.
    fixed, dyads = np.ascontiguousarray(fixed), np.ascontiguousarray(dyads)
    if not len(dyads):
        raise ValueError("fixed leaves no dyad that may change")
    family = NetworkFamily(parts, n_nodes, directed, fixed, dyads, np.zeros((0, 0), np.uint8))
    return replace(family, typical=family.encode(some))
