"""Potts and Ising models as an exponential family that offers all there is to offer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from pymc_bayessum.graphs.annealing import log_constant
from pymc_bayessum.graphs.bases import fitted_tree
from pymc_bayessum.graphs.coordinates import identifiable
from pymc_bayessum.graphs.elimination import Budget, plan_within
from pymc_bayessum.graphs.moments import (
    block_moments,
    conditionals,
    consistent,
    statistics_of_marginals,
    stein_gibbs_moments,
)
from pymc_bayessum.graphs.samplers import (
    SWEEPS,
    GraphChain,
    SamplerName,
    choose_sampler,
    sample_exact,
    site_tables,
)
from pymc_bayessum.graphs.statistics import PottsLayout
from pymc_bayessum.graphs.sweeps import Sites, conditional_counts
from pymc_bayessum.kernels import ExpHamming
from pymc_bayessum.normalizers.anchored.draws import some_of
from pymc_bayessum.normalizers.anchored.errors import group_means
from pymc_bayessum.normalizers.coordinates import Coordinates
from pymc_bayessum.normalizers.family import LogConstant
from pymc_bayessum.rules.stein import stein_rule
from pymc_bayessum.threads import in_parts

__all__ = ["PottsFamily"]

#: Draws used by the two Stein methods, whose cost grows with their cube.
STEIN_DRAWS = 2000
#: Batches whose spread tells the error of the first.
STEIN_BATCHES = 10
#: Factor of couplings down to which products are used instead of logarithms.
SMALLEST_FACTOR = 1e-130
#: Decay of the kernel under the difference operator.
DIFFERENCE_DECAY = 0.01


class _TreeStartedChain(GraphChain):
    """Chains that start from a tree fitted to the model: nearer to it than independent sites."""

    def start(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return draws of the tree."""
        full = self.layout.expand(self.h, self.J)
        return fitted_tree(*full, self.layout.edges, max_sweeps=100).sample(n, rng)


@dataclass(frozen=True)
class PottsFamily:
    r"""The family :math:`p(x) \propto e^{\theta \cdot \phi(x)}` of a Potts or Ising layout.

    States are rows of 0 .. S-1, for spins too. The sampler is by default exact where one
    elimination of the graph is affordable, else Swendsen-Wang where it applies, else Gibbs.

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> from pymc_bayessum.normalizers.family import Family
    >>> ring = PottsFamily(PottsLayout(4, 2, graphs.ring(4), "none", "scalar", spins=True))
    >>> isinstance(ring, Family), ring.statistics(np.array([[0, 0, 1, 1]])).tolist()
    (True, [[0.0]])
    >>> bool(np.isclose(ring.exact_log_z()(np.array([0.2])), np.log(2**4 * (np.cosh(0.2) ** 4
    ...                                                          + np.sinh(0.2) ** 4))))
    True
    """

    layout: PottsLayout
    sampler: SamplerName | None = None

    def _full(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.layout.expand(*self.layout.unflatten(theta))

    def statistics(self, states: np.ndarray) -> np.ndarray:
        """Sufficient statistics, shape (N, d)."""
        return self.layout.statistics(states)

    def sample(
        self,
        theta: np.ndarray,
        n: int,
        rng: np.random.Generator,
        start: np.ndarray | None = None,
    ) -> np.ndarray:
        """Draws, (n, L): exact ones, or the ends of chains."""
        chain = self.chain(theta)
        if chain is None:
            h, J = self.layout.unflatten(theta)
            return sample_exact(self.layout, h, J, n, rng).astype(np.int16)
        first = chain.start(n, rng) if start is None else start[np.arange(n) % len(start)]
        return chain.advance(first, SWEEPS, rng)

    def chain(self, theta: np.ndarray) -> GraphChain | None:
        """Chains at a parameter vector; None where draws are exact."""
        h, J = self.layout.unflatten(theta)
        name = choose_sampler(self.layout, J, self.sampler, Budget.ONCE)
        return None if name == "exact" else _TreeStartedChain(self.layout, h, J, name)

    def moves(self, theta: np.ndarray) -> GraphChain:
        """Chains at a parameter vector, even where draws are exact."""
        h, J = self.layout.unflatten(theta)
        return GraphChain(self.layout, h, J, choose_sampler(self.layout, J, None, 0.0))

    def coordinates(self) -> Coordinates:
        """Return the identifiable directions."""
        return identifiable(self.layout)

    def exact_log_z(self, often: bool = False) -> Callable[[np.ndarray], float] | None:
        """Log Z by elimination, where that is affordable."""
        plan = plan_within(self.layout, Budget.EVERY_STEP if often else Budget.ONCE)
        return None if plan is None else lambda theta: plan.log_partition(*self._full(theta))

    def exact_mean(self, theta: np.ndarray) -> np.ndarray | None:
        """Mean of the statistics by elimination, where that is affordable."""
        plan = plan_within(self.layout, Budget.ONCE)
        if plan is None:
            return None
        _, sites, pairs = plan.marginals(*self._full(theta))
        return statistics_of_marginals(self.layout, sites, pairs)

    def conditional_means(
        self, theta: np.ndarray, states: np.ndarray, group: np.ndarray
    ) -> np.ndarray:
        """Means with both ends of each edge summed out given all other sites, (G, d)."""
        layout, edges = self.layout, self.layout.edges
        if layout.coupling_kind == "scalar" and layout.field_kind != "full":
            tables = site_tables(layout, *layout.unflatten(theta))
            # Products of the weights of two sites must not vanish.
            if tables.powers.min(initial=np.inf) > SMALLEST_FACTOR and len(tables.powers):
                return group_means(self._conditional_statistics(tables, states), group)
        sites, pairs = block_moments(states, *self._full(theta), edges, group)
        return statistics_of_marginals(self.layout, *consistent(sites, pairs, edges))

    def _conditional_statistics(self, sites: Sites, states: np.ndarray) -> np.ndarray:
        """Conditional means for each of the states, (N, d): one coupling, one field or none."""
        layout = self.layout
        counts = np.empty((len(states), layout.n_states + 1))
        in_parts(conditional_counts, len(states), states, sites, layout.edges, counts)
        agree = counts[:, -1:]
        if layout.spins:
            agree = 2.0 * agree - layout.n_edges
        fields = {
            "none": counts[:, :0],
            "scalar": counts[:, 1:2] - counts[:, :1],
            "shared": counts[:, :-1],
        }
        return np.hstack([fields[layout.field_kind], agree])

    @property
    def other_means(
        self,
    ) -> Mapping[str, Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]]:
        """``"stein"`` and ``"difference"``: for when draws are dear, and for comparison."""
        return {"stein": self._stein_mean, "difference": self._difference_mean}

    def _stein_mean(self, theta: np.ndarray, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Control functionals of the Gibbs operator on top of conditional means, cross-fitted."""
        some = some_of(states, STEIN_DRAWS)
        values = self.conditional_means(theta, some, np.arange(len(some)))
        probs = conditionals(some, *self._full(theta), self.layout.edges)
        rest = stein_gibbs_moments(some, values, probs)
        batches = [part.mean(axis=0) for part in np.array_split(rest, STEIN_BATCHES)]
        return rest.mean(axis=0), np.stack(batches)

    def _difference_mean(
        self, theta: np.ndarray, states: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Weights of Stein BayesSum with the difference operator."""
        h, J = self.layout.unflatten(theta)

        def mean(part: np.ndarray) -> np.ndarray:
            nodes = np.unique(part, axis=0)
            rule = stein_rule(
                ExpHamming(DIFFERENCE_DECAY),
                lambda x: self.layout.energy(x, h, J),
                nodes,
                self.layout.n_states,
            )
            return rule.weights @ self.layout.statistics(nodes)

        # Half of the draws each: the spread of the two tells the error, if with little certainty.
        halves = np.array_split(some_of(states, STEIN_DRAWS), 2)
        return mean(np.concatenate(halves)), np.stack([mean(half) for half in halves])

    def log_constant(
        self, theta: np.ndarray, rng: np.random.Generator, n_evals: int = 100_000
    ) -> LogConstant:
        """Log Z by elimination where affordable, else from a tree, annealed where that is far."""
        exact = self.exact_log_z()
        if exact is not None:
            return LogConstant(exact(theta), 0.0, "exact", 0.0, 1)
        return log_constant(*self._full(theta), self.layout.edges, rng, n_evals=n_evals)
