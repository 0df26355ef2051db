r"""The absolute constant of a Potts model: importance sampling from a tree, annealed where need be.

Both start from a spanning tree q of the graph, which can be drawn from exactly. With
:math:`g = \log \tilde p - \log q`, plain importance sampling averages :math:`e^g` and takes g,
whose mean under the tree is known, as a control variate. Where :math:`\mathrm{Var}_q(g)` is above
one the average rests on few draws; then every draw is carried from the tree to the model through
:math:`q^{1-b} \tilde p^b`, b from 0 to 1 (Neal, "Annealed importance sampling", 2001). All members
of that path are Potts models on the same graph.
"""

from itertools import pairwise
from typing import Any

import numpy as np

from pymc_bayessum.graphs.bases import edge_marginals, fitted_tree, tree_parameters
from pymc_bayessum.graphs.samplers import GraphChain
from pymc_bayessum.graphs.statistics import PottsLayout
from pymc_bayessum.measures import TreeCategorical
from pymc_bayessum.normalizers.family import LogConstant

__all__ = ["annealed_importance", "log_constant", "tree_importance"]


def tree_importance(
    fields: np.ndarray,
    couplings: np.ndarray,
    edges: np.ndarray,
    n: int,
    rng: np.random.Generator,
    tree: TreeCategorical | None = None,
) -> LogConstant:
    r"""Sample by importance from a tree with the log ratio as a control variate.

    .. math:: \hat Z = \overline{e^g} - \beta (\bar g - E_q[g]), \quad
              \beta = \mathrm{Cov}(e^g, g) / \mathrm{Var}(g)

    The tree is the one that belief propagation fits, unless it is known already.

    Examples
    --------
    On a tree the base is the model and nothing is left to estimate.

    >>> from pymc_bayessum import graphs
    >>> found = tree_importance(np.zeros((4, 3)), 0.5 * np.eye(3)[None].repeat(3, 0),
    ...                         graphs.chain(4), 100, np.random.default_rng(0))
    >>> bool(np.isclose(found.value, np.log(3 * (2 + np.exp(0.5)) ** 3), atol=1e-5))
    True
    """
    path = _Path(fields, couplings, edges, tree)
    ratio = path.layout.energy(path.tree.sample(n, rng), *path.step)
    sites, pairs = edge_marginals(path.tree, edges)
    mean = (sites * path.step[0]).sum() + (pairs * path.step[1]).sum()
    level = ratio.max()
    terms = np.exp(ratio - level)
    centred = ratio - ratio.mean()
    spread = float(centred @ centred)
    slope = float(terms @ centred) / spread if spread > 0.0 else 0.0
    corrected = terms - slope * (ratio - mean)
    if corrected.mean() <= 0.0:
        corrected = terms
    total = corrected.mean()
    sd = float(corrected.std(ddof=2) / total / np.sqrt(n))
    variance = spread / (n - 1)
    return LogConstant(float(level + np.log(total)), sd, "tree", variance, n)


class _Path:
    """The members of a path from a tree to a model, both on one graph."""

    def __init__(
        self, fields: np.ndarray, couplings: np.ndarray, edges: np.ndarray, tree: Any = None
    ):
        self.tree = fitted_tree(fields, couplings, edges) if tree is None else tree
        self.layout = PottsLayout(len(fields), fields.shape[1], edges, "full", "full")
        self.start = tree_parameters(self.tree, edges)
        self.step = fields - self.start[0], couplings - self.start[1]

    def carry(
        self, ladder: np.ndarray, n_chains: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Carry chains along a ladder; return log weights and the variance of g on every rung."""
        states = self.tree.sample(n_chains, rng)
        log_weights = np.zeros(n_chains)
        variances = np.empty(len(ladder) - 1)
        for rung, (here, there) in enumerate(pairwise(ladder)):
            if rung:
                h, J = (a + here * b for a, b in zip(self.start, self.step, strict=True))
                states = GraphChain(self.layout, h, J, "gibbs").advance(states, 1, rng)
            ratio = self.layout.energy(states, *self.step)
            log_weights += (there - here) * ratio
            variances[rung] = ratio.var()
        return log_weights, variances

    def enough_steps(self, n_evals: int, rng: np.random.Generator) -> int:
        """Double the steps of a short run until its log weights vary by less than one."""
        steps = 40
        while 4 * steps <= n_evals // 50:
            log_weights, _ = self.carry(np.linspace(0.0, 1.0, steps + 1), 30, rng)
            if log_weights.var() < 0.5:
                break
            steps *= 2
        return steps


def annealed_importance(
    fields: np.ndarray,
    couplings: np.ndarray,
    edges: np.ndarray,
    n_chains: int,
    n_steps: int,
    rng: np.random.Generator,
    tree: TreeCategorical | None = None,
) -> LogConstant:
    """Carry draws from a tree to the model by annealing, one Gibbs sweep a step.

    The ladder is spaced by a short pilot run so that every step adds about the same standard
    deviation to the log weights.

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> found = annealed_importance(np.zeros((4, 3)), 0.5 * np.eye(3)[None].repeat(4, 0),
    ...                             graphs.ring(4), 200, 20, np.random.default_rng(0))
    >>> exact = np.log((2 + np.exp(0.5)) ** 4 + 2 * (np.exp(0.5) - 1) ** 4)
    >>> bool(abs(found.value - exact) < 0.05)
    True
    """
    pilot = np.linspace(0.0, 1.0, max(3, n_steps // 4) + 1)
    few = max(20, n_chains // 10)
    path = _Path(fields, couplings, edges, tree)
    _, variances = path.carry(pilot, few, rng)
    speed = np.sqrt(variances)
    length = np.concatenate([[0.0], np.cumsum(speed + 0.05 * speed.mean() + 1e-12)])
    ladder = np.interp(np.linspace(0.0, length[-1], n_steps + 1), length, pilot)
    ladder[0], ladder[-1] = 0.0, 1.0
    log_weights, variances = path.carry(ladder, n_chains, rng)
    level = log_weights.max()
    weights = np.exp(log_weights - level)
    sd = float(weights.std(ddof=1) / weights.mean() / np.sqrt(n_chains))
    value = float(level + np.log(weights.mean()))
    n_evals = n_chains * n_steps + few * (len(pilot) - 1)
    return LogConstant(value, sd, "annealed", float(variances[0]), n_evals)


def log_constant(
    fields: np.ndarray,
    couplings: np.ndarray,
    edges: np.ndarray,
    rng: np.random.Generator,
    *,
    n_evals: int = 100_000,
) -> LogConstant:
    """Log Z at one parameter value, by a tree, annealed where the tree is far from the model.

    The path has as many steps as keep the variance of the log weights below one, up to a fiftieth
    of the energies to evaluate.

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> found = log_constant(np.zeros((9, 2)), 0.1 * np.eye(2)[None].repeat(12, 0),
    ...                      graphs.grid(3, 3), np.random.default_rng(0), n_evals=1000)
    >>> found.method
    'tree'
    """
    path = _Path(fields, couplings, edges)
    given = fields, couplings, edges
    plain = tree_importance(*given, max(200, n_evals // 10), rng, path.tree)
    if plain.base_variance <= 1.0:
        return tree_importance(*given, n_evals, rng, path.tree)
    n_steps = path.enough_steps(n_evals, rng)
    n_chains = max(20, n_evals // n_steps)
    return annealed_importance(*given, n_chains, n_steps, rng, path.tree)
