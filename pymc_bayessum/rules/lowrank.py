r"""Rules for many nodes: low-rank Gram matrices by randomly pivoted Cholesky.

A rule on N nodes costs O(N^3) time and N^2 numbers. With a factor of r columns,
:math:`K \approx F F'` (`pymc_bayessum.solve.pivoted`), it takes O(N r^2) time and N r numbers.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular

from pymc_bayessum.arguments import integer
from pymc_bayessum.embeddings import embed
from pymc_bayessum.kernels import Kernel, Stein
from pymc_bayessum.kernels.base import Blocks, upper_blocks
from pymc_bayessum.measures import Measure
from pymc_bayessum.measures.supports import Points, Support, take
from pymc_bayessum.rules.rule import Rule, bayes_sum, distinct_points, reach_of
from pymc_bayessum.rules.stein import stein_points
from pymc_bayessum.solve.gram import MeanSpaceGram
from pymc_bayessum.solve.pivoted import LowRankGram, PivotedCholesky, pivoted_cholesky

__all__ = ["LowRankRule", "nystroem_rule", "pivot_rule"]


@dataclass(frozen=True, eq=False)
class LowRankRule(Rule):
    """A rule on many nodes, with an account of what the low rank cost.

    Attributes
    ----------
    variance : float
        Exact posterior variance of this rule at unit amplitude: its mean squared error under the
        prior with the full kernel.
    rank : int
        Rank of the approximation.
    pivots : ndarray of int, shape (r,)
        Positions of the pivots among the nodes.
    trace_residual : float
        Share of the trace of the Gram matrix that the low rank leaves out.
    unrefined_variance : float
        The variance before the conjugate-gradient steps.
    loss : float
        Estimate of how far ``variance`` lies above that of the full rule on the same nodes; in
        small cases within a factor of a few.
    """

    rank: int = 0
    pivots: np.ndarray = field(default_factory=lambda: np.empty(0, int), repr=False)
    trace_residual: float = 0.0
    unrefined_variance: float = 0.0
    loss: float = 0.0


def nystroem_rule(
    kernel: Kernel,
    measure: Measure | None,
    nodes: Points,
    rank: int,
    refine: int = 1,
    rng: Any = None,
) -> LowRankRule:
    r"""Build a rule on many nodes from a low-rank approximation of their Gram matrix.

    With the factor F of `pivoted_cholesky`, its rows L at the pivots S and the noise
    :math:`\lambda` (the mean residual diagonal), the weights are

    .. math:: w = F (F'F + \lambda I)^{-1} L^{-1} \mu_S,

    the sum of the regularised least-squares fit in the span of the kernels at the pivots. For a
    `Stein` kernel they are proportional to :math:`(F F' + \lambda I)^{-1} 1` and sum to one. Each
    of the ``refine`` steps lowers the variance towards that of the full rule.

    The factor takes N r numbers; the Gram matrix is passed over ``1 + refine`` times in blocks
    to refine and to compute the exact variance.

    Parameters
    ----------
    kernel : Kernel
        A `Stein` kernel goes without a measure.
    measure : Measure or None
    nodes : batch of N points
        Distinct; up to some 20 000.
    rank : int
        At most N.
    refine : int
        Steps of the preconditioned conjugate-gradient method, each O(N^2) time.
    rng : None, int or numpy.random.Generator
        Draws the pivots.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum.kernels import ExpHamming
    >>> from pymc_bayessum.measures import UniformCategorical
    >>> measure = UniformCategorical(8, 3)
    >>> nodes = measure.sample_distinct(1000, 0)
    >>> rule = nystroem_rule(ExpHamming(0.1), measure, nodes, rank=100, rng=0)
    >>> estimate = rule.expectation(np.exp(-0.1 * nodes.sum(axis=1)))
    >>> exact = np.mean(np.exp(-0.1 * np.arange(3))) ** 8
    >>> bool(abs(estimate.mean - exact) < 1e-3), rule.rank
    (True, 100)
    """
    if not isinstance(kernel, Kernel):
        raise TypeError(f"kernel must be a Kernel, got {kernel!r}")
    if getattr(kernel, "free_degree", None) is not None:
        raise ValueError(
            f"{type(kernel).__name__} leaves polynomials free, which a low rank cannot hold; "
            "bayes_sum takes it on thousands of nodes as it is"
        )
    steps = integer("refine", refine)
    points, support = _checked_nodes(kernel, measure, nodes)
    partial = pivoted_cholesky(kernel, points, rank, rng)
    gram, n = partial.gram, len(partial.diagonal)
    if measure is None:
        target, initial_error = np.ones(n), 0.0
        start = gram.solve(target)
    else:
        embedding = embed(kernel, measure)
        target, initial_error = embedding.mean(points), embedding.initial_error
        start = _projected_weights(partial, target, gram.jitter)

    def finished(solution: np.ndarray, product: np.ndarray) -> tuple[np.ndarray, float]:
        """Weights and exact variance from a solution a and K a."""
        if measure is None:
            total = float(solution.sum())
            return solution / total, float(solution @ product) / total**2
        return solution, float(initial_error - 2.0 * solution @ target + solution @ product)

    product = _product(partial.blocks, start)
    unrefined = finished(start, product)[1]
    solution, product = _refined(partial.blocks, gram, target, start, product, steps)
    weights, variance = finished(solution, product)
    left = target - product
    loss = float(left @ gram.solve(left))
    if measure is None:
        # In the space of weights that sum to one: the variance is 1 / (1'a) at the solution.
        loss *= variance**2
    variance, clipped = max(variance, 0.0), max(-variance, 0.0)
    return LowRankRule(
        nodes=points,
        weights=weights,
        variance=variance,
        log_base=np.zeros(n) if measure is None else measure.log_prob(points),
        kernel=kernel,
        measure=measure,
        gram=MeanSpaceGram(gram, np.ones((n, 1))) if measure is None else gram,
        reach=reach_of(support, points),
        clipped=clipped,
        rank=partial.rank,
        pivots=partial.pivots,
        trace_residual=float(partial.residual.sum() / partial.diagonal.sum()),
        unrefined_variance=max(unrefined, 0.0),
        loss=min(max(loss, 0.0), variance),
    )


def _checked_nodes(
    kernel: Kernel, measure: Measure | None, nodes: Points
) -> tuple[Points, Support]:
    if isinstance(measure, Measure):
        return distinct_points(measure.support, nodes), measure.support
    if measure is not None:
        raise TypeError(f"measure must be a Measure, got {measure!r}")
    if not isinstance(kernel, Stein):
        raise ValueError("measure may be None for a Stein kernel only")
    return stein_points(kernel, nodes)


def pivot_rule(
    kernel: Kernel, measure: Measure, candidates: Points, rank: int, rng: Any = None
) -> Rule:
    """Build a rule on the pivots of a list of candidates, for summands that are dear.

    Pivots of the randomly pivoted Cholesky factorisation repel each other, so they do better than
    as many independent draws (Epperly and Moreno, "Kernel quadrature with randomly pivoted
    Cholesky", 2023).

    Parameters
    ----------
    kernel : Kernel
    measure : Measure
    candidates : batch of N points
        Distinct points of the support, such as draws from the measure.
    rank : int
        Number of nodes to pick.
    rng : None, int or numpy.random.Generator

    Returns
    -------
    Rule
        Its ``variance`` is exact, as for `bayes_sum`.

    Examples
    --------
    >>> from pymc_bayessum.kernels import ExpHamming
    >>> from pymc_bayessum.measures import UniformCategorical
    >>> measure = UniformCategorical(8, 3)
    >>> candidates = measure.sample_distinct(2000, 0)
    >>> rule = pivot_rule(ExpHamming(0.1), measure, candidates, rank=50, rng=0)
    >>> rule.nodes.shape
    (50, 8)
    """
    if not isinstance(measure, Measure):
        raise TypeError(f"measure must be a Measure, got {measure!r}")
    points = distinct_points(measure.support, candidates)
    partial = pivoted_cholesky(kernel, points, rank, rng)
    return bayes_sum(kernel, measure, take(points, partial.pivots))


def _projected_weights(partial: PivotedCholesky, mean: np.ndarray, noise: float) -> np.ndarray:
    factor = partial.factor
    reduced = solve_triangular(factor[partial.pivots], mean[partial.pivots], lower=True)
    normal = factor.T @ factor
    normal[np.diag_indices_from(normal)] += noise
    return factor @ cho_solve((cholesky(normal, lower=True), True), reduced)


def _product(blocks: Blocks, vector: np.ndarray) -> np.ndarray:
    """K v from blocks on and above the diagonal."""
    out = np.zeros(len(vector))
    for rows, columns, block in upper_blocks(blocks, len(vector)):
        out[rows] += block @ vector[columns]
        if rows != columns:
            out[columns] += vector[rows] @ block
    return out


def _refined(
    blocks: Blocks,
    gram: LowRankGram,
    target: np.ndarray,
    solution: np.ndarray,
    product: np.ndarray,
    steps: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Take conjugate-gradient steps for K a = target; return a and K a."""
    left = target - product
    ahead = gram.solve(left)
    direction, energy = ahead, float(left @ ahead)
    for step in range(steps):
        image = _product(blocks, direction)
        curvature = float(direction @ image)
        if curvature <= 0.0 or energy <= 0.0:
            break
        length = energy / curvature
        solution = solution + length * direction
        product = product + length * image
        if step == steps - 1:
            break
        left = target - product
        ahead = gram.solve(left)
        energy, before = float(left @ ahead), energy
        direction = ahead + (energy / before) * direction
    return solution, product
