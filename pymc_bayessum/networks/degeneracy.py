"""Whether a random-graph model is degenerate: whether its chains remember where they began.

Where a model with strong clustering has one mode of nearly empty and one of nearly full networks,
and the data lie between, no theta makes networks like the data probable (Handcock, "Assessing
degeneracy in statistical models of social networks", 2003). Chains from the empty and from the full
network then end in different places, or all far from the data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_bayessum.exponential.listing import distinct
from pymc_bayessum.networks.dyads import DyadSum
from pymc_bayessum.networks.family import NetworkFamily
from pymc_bayessum.networks.sampler import run_chains
from pymc_bayessum.normalizers.protocol import Asked, Facts, Reference, ReferenceValue

__all__ = ["Degenerate", "degenerate", "is_degenerate"]

#: Chains from each start.
CHAINS = 12
#: Proposals of a chain, for each free dyad: it takes two to empty a full network;
PASSES, FEWEST_PASSES = 30, 4
#: and how many there are at most beyond the fewest.
MOST_PROPOSALS = 100_000
#: Standard deviations between the ends of chains that count as different places.
APART = 4.0


def is_degenerate(family: NetworkFamily, theta: np.ndarray, rng: np.random.Generator) -> bool:
    """Tell whether chains from empty, full and observed networks end in different places.

    Parameters
    ----------
    family : NetworkFamily
        With observed networks.
    theta : ndarray, shape (d,)
        Near the posterior.
    rng : numpy.random.Generator

    Returns
    -------
    bool

    Examples
    --------
    >>> import networkx as nx
    >>> import numpy as np
    >>> from pymc_bayessum.networks.family import network_family
    >>> from pymc_bayessum.networks.terms import edges, triangles
    >>> ties = nx.to_numpy_array(nx.karate_club_graph(), weight=None)[None]
    >>> family = network_family([edges(), triangles()], 34, networks=ties)
    >>> is_degenerate(family, np.array([-2.5, 0.67]), np.random.default_rng(0))
    True
    """
    size = len(family.dyads)
    full = np.packbits(np.ones((1, size), bool), axis=1, bitorder="little")
    steps = max(FEWEST_PASSES * size, min(PASSES * size, MOST_PROPOSALS))
    ends = []
    for start in (np.zeros_like(full), full, family.typical):
        chains = start[np.arange(CHAINS) % len(start)]
        arguments = family.program, theta, family.fixed, family.dyads
        ends.append(family.statistics(run_chains(*arguments, chains, steps, rng)))
    centres = np.array([np.median(part, axis=0) for part in ends])
    # The narrowest of the three: where some chains have jumped, the spread is that of the jump.
    within = np.min([part.std(axis=0, ddof=1) for part in ends], axis=0)
    scale = np.maximum(within, 1e-6 * (1.0 + np.abs(centres).max(axis=0)))
    apart = (centres.max(axis=0) - centres.min(axis=0)) / scale
    return bool(apart.max() > APART)


@dataclass(frozen=True, eq=False)
class Degenerate:
    r"""What stands in for the normaliser of a degenerate model: its fit is flagged.

    No draws could estimate log Z. The stand-in makes the likelihood the pseudo-likelihood,
    :math:`\sum_d \log p(y_d \mid y_{-d}; \theta)`, which is at least defined.

    Parameters
    ----------
    names : tuple of str
        Of the terms.
    stand_in : DyadSum
    """

    names: tuple[str, ...]
    stand_in: DyadSum

    @property
    def is_absolute(self) -> bool:
        """Never."""
        return False

    def log_z(self, xp: Any, *theta: Any) -> Any:
        """Return the stand-in's value."""
        return self.stand_in.log_z(xp, *theta)

    def sd(self, xp: Any, *theta: Any) -> None:
        """None: nothing is known of its error."""

    def reference(self, asked: Asked) -> Reference:
        """Nothing that could be computed."""
        return _Unknown(self)

    def remedy(self, facts: Facts) -> str:
        """Say which terms to use instead."""
        culprits = [name for name in self.names if name.startswith(("triangles", "stars"))]
        return (
            f"another model: {' + '.join(self.names)} is degenerate on this network. Chains from "
            "empty and from full networks end in different places, so that its mass lies on "
            "networks unlike the data; what was fitted is the pseudo-likelihood. Replace "
            f"{', '.join(culprits) or 'terms that feed on themselves'} by terms with diminishing "
            "returns: pbs.ergm.gwesp(0.5) for triangles, pbs.ergm.gwdegree(0.5) for stars"
        )


def degenerate(family: NetworkFamily) -> Degenerate:
    """Build the stand-in for a family with one observed network or several."""
    design = np.concatenate([family.changes(state) for state in family.typical])
    ties = family.ties(family.typical).ravel()
    n = len(family.typical)
    base = family.statistics(family.typical).sum(axis=0) - ties @ design
    rows, times = distinct(design)
    return Degenerate(family.names, DyadSum(base / n, rows, times / n))


@dataclass(frozen=True, eq=False)
class _Unknown:
    """A reference that cannot be had: nothing better is known, and nothing of its error."""

    normalizer: Degenerate
    description: str = "nothing: the model is degenerate, its networks cannot be drawn"

    def __call__(self, draw: Sequence[np.ndarray], theta: Sequence[np.ndarray]) -> ReferenceValue:
        return ReferenceValue(np.asarray(self.normalizer.log_z(np, *theta)), sd=np.inf)
