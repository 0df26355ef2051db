r"""Statistics of networks that a random-graph model counts: ``pbs.ergm``.

Every term is one of five kinds, and each kind tells how the term changes when one tie is added:

- ``dyads``: a weight for each tie, :math:`\sum_{ij} w_{ij} y_{ij}`;
- ``degrees``: a function of each degree, :math:`\sum_i g(d_i)`;
- ``partners``: a function of the shared partners of each tie, :math:`\sum_{ij} y_{ij} g(s_{ij})`;
- ``triangles`` and ``mutual``.

Names and definitions are those of the R package ergm (Hunter, Handcock, Butts, Goodreau and Morris,
"ergm: a package to fit, simulate and diagnose exponential-family models for networks", 2008).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from scipy.special import comb

from pymc_bayessum.arguments import integer, positive, reals

__all__ = [
    "Term",
    "degree",
    "edgecov",
    "edges",
    "gwdegree",
    "gwesp",
    "mutual",
    "nodecov",
    "nodematch",
    "stars",
    "triangles",
]

Kind = Literal["dyads", "degrees", "partners", "triangles", "mutual"]
Direction = Literal["out", "in"]


@dataclass(frozen=True, eq=False)
class Term:
    """One statistic of a network.

    Attributes
    ----------
    name : str
    kind : {"dyads", "degrees", "partners", "triangles", "mutual"}
    weights : callable, optional
        Of kind ``dyads``: gives the matrix of weights (n, n) for a number of nodes.
    function : callable, optional
        Of kinds ``degrees`` and ``partners``: g of an array of counts.
    direction : {"out", "in"}
        Which degree of a directed network is meant.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum.networks.terms import triangles
    >>> triangles().count(np.ones((3, 3)) - np.eye(3))
    1.0
    """

    name: str
    kind: Kind
    weights: Callable[[int], np.ndarray] | None = field(default=None, repr=False)
    function: Callable[[np.ndarray], np.ndarray] | None = field(default=None, repr=False)
    direction: Direction = field(default="out", repr=False)

    @property
    def is_dyadic(self) -> bool:
        """Whether ties do not influence one another through this term."""
        return self.kind == "dyads"

    def matrix(self, n_nodes: int, directed: bool) -> np.ndarray:
        """Weights of the ties (n, n), checked for the number of nodes."""
        assert self.weights is not None
        found = self.weights(n_nodes)
        if found.shape != (n_nodes, n_nodes):
            raise ValueError(
                f"{self.name} was given for {len(found)} nodes, the network has {n_nodes}"
            )
        if not directed and not np.array_equal(found, found.T):
            raise ValueError(f"{self.name}: matrix must be symmetric for an undirected network")
        return found

    def table(self, n_nodes: int) -> np.ndarray:
        """Return the function g of 0, ..., n_nodes."""
        assert self.function is not None
        return np.asarray(self.function(np.arange(n_nodes + 1)), dtype=float)

    def count(self, network: np.ndarray, directed: bool = False) -> float:
        """Count the statistic by its definition in a network of zeros and ones, (n, n).

        It has no loops, and is symmetric unless directed.
        """
        ties = np.asarray(network, dtype=float)
        if self.kind == "mutual":
            total = (ties * ties.T).sum() / 2.0
        elif self.kind == "triangles":
            paths = ties @ ties
            closed = (paths * ties).sum()
            total = closed + (paths * ties.T).sum() / 3.0 if directed else closed / 6.0
        elif self.kind == "degrees":
            degrees = ties.sum(axis=1 if self.direction == "out" else 0).astype(np.int64)
            total = self.table(len(ties))[degrees].sum()
        else:
            values = (
                self.matrix(len(ties), directed)
                if self.kind == "dyads"
                else self.table(len(ties))[(ties @ ties).astype(np.int64)]
            )
            total = (ties * values).sum() / (1.0 if directed else 2.0)
        return float(total)


def edges() -> Term:
    r"""Count the ties, :math:`\sum y_{ij}`.

    Examples
    --------
    >>> import pymc_bayessum as pbs
    >>> pbs.ergm.edges().name
    'edges'
    """
    return Term("edges", "dyads", weights=lambda n: np.ones((n, n)))


def mutual() -> Term:
    r"""Count pairs of nodes with ties both ways, of a directed network."""
    return Term("mutual", "mutual")


def triangles() -> Term:
    """Count the triangles; of a directed network the transitive and the cyclic ones.

    A model with a free number of triangles is degenerate on most sparse networks: nearly all of
    its mass lies on empty and full graphs. Use :func:`gwesp` there.
    """
    return Term("triangles", "triangles")


def stars(k: int, direction: Direction = "out") -> Term:
    r"""Count the k-stars, :math:`\sum_i \binom{d_i}{k}`.

    Parameters
    ----------
    k : int
        At least two (a one-star is half an edge).
    direction : {"out", "in"}
        Ends that leave or reach the centre, in a directed network.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_bayessum as pbs
    >>> path = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    >>> pbs.ergm.stars(2).count(path)
    1.0
    """
    k = integer("k", k, 2)
    return _by_degree(f"stars({k})", direction, lambda d: comb(d, k))


def degree(k: int, direction: Direction = "out") -> Term:
    """Count the nodes with exactly k ties.

    Parameters
    ----------
    k : int
    direction : {"out", "in"}
        Ties that leave or reach the node, in a directed network.
    """
    k = integer("k", k, 0)
    return _by_degree(f"degree({k})", direction, lambda d: d == k)


def gwdegree(decay: float, direction: Direction = "out") -> Term:
    r"""Geometrically weighted degrees, :math:`\sum_i e^\tau (1 - (1 - e^{-\tau})^{d_i})`.

    Parameters
    ----------
    decay : float
        :math:`\tau > 0`, known.
    direction : {"out", "in"}

    Notes
    -----
    Hunter and Handcock, "Inference in curved exponential family models for networks", 2006.
    """
    decay = positive("decay", decay)
    return _by_degree(f"gwdegree({decay:g})", direction, _geometric(decay))


def gwesp(decay: float) -> Term:
    r"""Geometrically weighted shared partners of ties.

    .. math:: \sum_{ij} y_{ij} e^\tau (1 - (1 - e^{-\tau})^{s_{ij}}),

    where :math:`s_{ij}` counts the nodes tied to both ends (in a directed network, the two-paths
    from i to j). Every further partner adds less than the one before, which keeps models with
    clustering from collapsing.

    Parameters
    ----------
    decay : float
        :math:`\tau > 0`, known.

    Notes
    -----
    Hunter and Handcock, "Inference in curved exponential family models for networks", 2006.

    Examples
    --------
    With one shared partner a tie counts one, whatever the decay:

    >>> import numpy as np
    >>> import pymc_bayessum as pbs
    >>> round(pbs.ergm.gwesp(0.5).count(np.ones((3, 3)) - np.eye(3)), 12)
    3.0
    """
    decay = positive("decay", decay)
    return Term(f"gwesp({decay:g})", "partners", function=_geometric(decay))


def nodematch(values: Any) -> Term:
    """Count the ties between nodes with equal values (homophily).

    Parameters
    ----------
    values : array_like, shape (n,)
        Of any type, one for each node, in the order of the network's nodes.
    """
    kinds = np.asarray(values)
    if kinds.ndim != 1:
        raise ValueError(f"values must have one entry for each node, got shape {kinds.shape}")
    if kinds.dtype.kind in "fO":
        # Nothing else differs from itself.
        known = np.array([value is not None and value == value for value in kinds], dtype=bool)
        if not known.all():
            raise ValueError(_unknown(known))
    return Term("nodematch", "dyads", weights=lambda n: np.equal.outer(kinds, kinds).astype(float))


def nodecov(values: Any) -> Term:
    r"""Weigh ties by a covariate of both nodes, :math:`\sum_{ij} y_{ij} (v_i + v_j)`.

    Parameters
    ----------
    values : array_like, shape (n,)
        A number for each node, in the order of the network's nodes.
    """
    try:
        found = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise TypeError(f"values must be numbers, one for each node, got {values!r}") from None
    if found.ndim == 1 and np.isnan(found).any():
        raise ValueError(_unknown(~np.isnan(found)))
    found = reals("values", found, 1)
    return Term("nodecov", "dyads", weights=lambda n: np.add.outer(found, found))


def edgecov(matrix: Any) -> Term:
    r"""Weigh ties by a covariate of the pair, :math:`\sum_{ij} y_{ij} w_{ij}`.

    Parameters
    ----------
    matrix : array_like, shape (n, n)
        Symmetric for an undirected network.
    """
    found = reals("matrix", matrix, 2)
    return Term("edgecov", "dyads", weights=lambda n: found)


def _unknown(known: np.ndarray) -> str:
    missing = np.flatnonzero(~known).tolist()
    return (
        f"values must be known for every node, nodes {missing} have none: model the network of "
        "the other nodes, or put the mean in their place"
    )


def _geometric(decay: float) -> Callable[[np.ndarray], np.ndarray]:
    # expm1 keeps the digits of 1 - e^-decay where decay is small.
    return lambda count: np.exp(decay) * (1.0 - (-np.expm1(-decay)) ** count)


def _by_degree(name: str, direction: Any, function: Callable[[np.ndarray], np.ndarray]) -> Term:
    if direction not in get_args(Direction):
        raise ValueError(f"direction must be one of {get_args(Direction)}, got {direction!r}")
    return Term(name, "degrees", function=function, direction=direction)
