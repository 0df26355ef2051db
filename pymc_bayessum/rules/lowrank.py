r"""Rules for many nodes: low-rank Gram matrices by randomly pivoted Cholesky.

A rule on N nodes costs O(N^3) time and N^2 numbers. With r pivots drawn among the nodes in
proportion to what is left on the diagonal, :math:`K \approx F F'` with F of shape (N, r) (Chen,
Epperly, Tropp and Webber, "Randomly pivoted Cholesky", 2022), and rules follow in O(N r^2) time and
N r numbers:

- `nystroem_rule` uses the values at all nodes: the best function in the span of the r kernels at
  the pivots is fitted to them and summed exactly. Steps of a conjugate-gradient method,
  preconditioned by F, then lead towards the full rule.
- `pivot_rule` uses the values at the pivots only, for summands that are dear.

Both report an exact posterior variance, the first by sums over blocks of the Gram matrix.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular

from pymc_bayessum.arguments import as_generator, integer
from pymc_bayessum.embeddings import embed
from pymc_bayessum.kernels import Kernel, Stein
from pymc_bayessum.measures import Measure
from pymc_bayessum.measures.supports import Points, Sites, batch_size, take
from pymc_bayessum.rules.rule import Rule, bayes_sum, distinct_points, reach_of
from pymc_bayessum.solve.gram import FlatMeanGram

__all__ = [
    "LowRankGram",
    "LowRankRule",
    "PivotedCholesky",
    "nystroem_rule",
    "pivot_rule",
    "pivoted_cholesky",
]

#: Candidates for pivots examined at a time; products of matrices beat those of vectors.
PIVOT_BLOCK = 64

#: Relative size of the residual trace at which a factorisation is complete.
COMPLETE = 1e-14

#: Least noise, relative to the mean diagonal, so that the low-rank part does not cancel.
LEAST_NOISE = 1e-9

#: Side of the blocks in which the Gram matrix is passed over: 4 MB of doubles.
BLOCK = 724

Block = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class PivotedCholesky:
    """A partial Cholesky factorisation, K approximately F F'.

    Attributes
    ----------
    factor : ndarray of shape (N, r)
        F; its rows at the pivots are lower triangular.
    pivots : ndarray of int, shape (r,)
        Positions of the pivots, in order.
    residual : ndarray of shape (N,)
        Diagonal of K - F F', never below zero.
    """

    factor: np.ndarray = field(repr=False)
    pivots: np.ndarray = field(repr=False)
    residual: np.ndarray = field(repr=False)

    @property
    def rank(self) -> int:
        """Number of pivots."""
        return len(self.pivots)


def pivoted_cholesky(kernel: Kernel, points: Points, rank: int, rng: Any = None) -> PivotedCholesky:
    """Factorise a Gram matrix to a chosen rank, with pivots drawn at random.

    Each pivot is drawn in proportion to the diagonal of what is left. They are found in blocks:
    candidates are drawn from the diagonal as it was and kept with the probability that corrects
    for what the earlier ones of the block took away, which leaves their distribution the same
    (Epperly, Tropp and Webber, "Embrace rejection", 2024).

    Parameters
    ----------
    kernel : Kernel
    points : batch of N points
    rank : int
        Number of pivots, at most N. Fewer are returned when the matrix has a lower rank.
    rng : None, int or numpy.random.Generator

    Returns
    -------
    PivotedCholesky

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum.kernels import SquaredExponential
    >>> x = np.linspace(0.0, 1.0, 200)
    >>> partial = pivoted_cholesky(SquaredExponential(0.5), x, 10, rng=0)
    >>> partial.factor.shape, bool(partial.residual.max() < 1e-6)
    ((200, 10), True)
    """
    n = batch_size(points)
    size = integer("rank", rank, 1)
    if size > n:
        raise ValueError(f"rank must be at most the {n} points, got {size}")
    return _factorize(_block_of(kernel, points), kernel.diagonal(points), size, as_generator(rng))


def _factorize(
    block: Block, diagonal: np.ndarray, size: int, rng: np.random.Generator
) -> PivotedCholesky:
    n = len(diagonal)
    everything = np.arange(n)
    factor = np.zeros((n, size))
    residual = diagonal.astype(float)
    pivots: list[int] = []
    total = residual.sum()
    while len(pivots) < size and residual.sum() > COMPLETE * total:
        done = len(pivots)
        drawn = rng.choice(n, size=PIVOT_BLOCK, p=residual / residual.sum())
        left = block(drawn, drawn) - factor[drawn, :done] @ factor[drawn, :done].T
        kept = _accepted(left, residual[drawn], rng)[: size - done]
        if not kept:
            # Only rounding is left of what was drawn; drop it, or the loop would not end.
            residual[drawn] = 0.0
            continue
        chosen, corner = drawn[kept], left[np.ix_(kept, kept)]
        rows = block(everything, chosen) - factor[:, :done] @ factor[chosen, :done].T
        stop = done + len(kept)
        # Accepted pivots were checked one by one, so the corner has a Cholesky factor.
        lower = cholesky(corner, lower=True)
        factor[:, done:stop] = solve_triangular(lower, rows.T, lower=True).T
        factor[chosen, done:stop] = lower
        residual = np.maximum(residual - np.square(factor[:, done:stop]).sum(axis=1), 0.0)
        residual[chosen] = 0.0
        pivots.extend(int(i) for i in chosen)
    rank = len(pivots)
    return PivotedCholesky(factor[:, :rank], np.array(pivots, dtype=int), residual)


def _accepted(left: np.ndarray, bound: np.ndarray, rng: np.random.Generator) -> list[int]:
    """Positions kept by rejection: each with probability (what is left now) / (what was left)."""
    left = left.copy()
    kept = []
    coins = rng.random(len(bound))
    floor = 1e-13 * np.abs(np.diagonal(left)).max()
    for i, coin in enumerate(coins):
        now = left[i, i]
        if now > floor and coin * bound[i] < now:
            kept.append(i)
            left -= np.outer(left[:, i], left[i]) / now
    return kept


@dataclass(frozen=True, eq=False)
class LowRankGram:
    """The matrix F F' + noise * I in place of a Gram matrix.

    The noise is the mean of the residual diagonal: what the low rank leaves out is taken for
    white.

    Parameters
    ----------
    factor : ndarray of shape (N, r)
    noise : float
        Positive.

    Examples
    --------
    >>> import numpy as np
    >>> gram = LowRankGram(np.array([[1.0], [0.0]]), noise=1.0)     # diag(2, 1)
    >>> round(float(gram.quadratic_form(np.array([2.0, 1.0]))), 12)
    3.0
    """

    factor: np.ndarray = field(repr=False)
    noise: float

    @property
    def jitter(self) -> float:
        """The noise on the diagonal."""
        return self.noise

    @property
    def n_informative(self) -> int:
        """Number of nodes."""
        return len(self.factor)

    @cached_property
    def _spectrum(self) -> tuple[np.ndarray, np.ndarray]:
        values, vectors = np.linalg.eigh(self.factor.T @ self.factor)
        return np.maximum(values, 0.0), vectors

    @property
    def log_det(self) -> float:
        """Log determinant of F F' + noise * I."""
        values = self._spectrum[0]
        return float(
            np.log(values + self.noise).sum()
            + (len(self.factor) - len(values)) * np.log(self.noise)
        )

    def solve(self, vector: np.ndarray) -> np.ndarray:
        """Return (F F' + noise * I)^-1 v for v of shape (N,)."""
        values, _ = self._spectrum
        return self._apply(vector, 1.0 / self.noise, -1.0 / (self.noise * (values + self.noise)))

    def quadratic_form(self, values: np.ndarray) -> np.ndarray:
        """Return y' (F F' + noise * I)^-1 y over the last axis of ``values``."""
        return np.square(self.whiten(values)).sum(axis=-1)

    def whiten(self, values: np.ndarray) -> np.ndarray:
        """Return (F F' + noise * I)^(-1/2) y over the last axis of ``values``."""
        spectrum, _ = self._spectrum
        a, b = np.sqrt(self.noise), np.sqrt(spectrum + self.noise)
        # (1/b - 1/a) / (b^2 - a^2), rearranged so that small eigenvalues do not cancel.
        return self._apply(np.asarray(values, dtype=float), 1.0 / a, -1.0 / (a * b * (a + b)))

    def _apply(self, values: np.ndarray, identity: float, inner: np.ndarray) -> np.ndarray:
        vectors = self._spectrum[1]
        projected = (values @ self.factor) @ vectors
        return identity * values + ((projected * inner) @ vectors.T) @ self.factor.T


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
    pivots: np.ndarray = field(default=None, repr=False)  # type: ignore[arg-type]
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

    Returns
    -------
    LowRankRule

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
    if measure is None:
        if not isinstance(kernel, Stein):
            raise ValueError("measure may be None for a Stein kernel only")
        x = np.asarray(nodes)
        if x.ndim != 2 or 0 in x.shape:
            raise ValueError(f"nodes must have shape (N, L) with N, L of at least 1, got {x.shape}")
        support: Any = Sites(x.shape[1], kernel.n_states)
    elif isinstance(measure, Measure):
        support = measure.support
    else:
        raise TypeError(f"measure must be a Measure, got {measure!r}")
    points = distinct_points(support, nodes)
    n = batch_size(points)
    size = integer("rank", rank, 1)
    if size > n:
        raise ValueError(f"rank must be at most the {n} nodes, got {size}")
    block, diagonal = _block_of(kernel, points), kernel.diagonal(points)
    partial = _factorize(block, diagonal, size, as_generator(rng))
    noise = max(float(partial.residual.mean()), LEAST_NOISE * float(diagonal.mean()))
    gram = LowRankGram(partial.factor, noise)

    if measure is None:
        target, initial_error = np.ones(n), 0.0
        start = gram.solve(target)
    else:
        embedding = embed(kernel, measure)
        target, initial_error = embedding.mean(points), embedding.initial_error
        start = _projected_weights(partial, target, noise)

    def finished(solution: np.ndarray, product: np.ndarray) -> tuple[np.ndarray, float]:
        """Weights and exact variance from a solution a and K a."""
        if measure is None:
            total = float(solution.sum())
            return solution / total, float(solution @ product) / total**2
        return solution, float(initial_error - 2.0 * solution @ target + solution @ product)

    solution, product = start, _product(block, start)
    unrefined = finished(solution, product)[1]
    solution, product = _refined(block, gram, target, solution, product, steps)
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
        gram=FlatMeanGram(gram) if measure is None else gram,
        reach=reach_of(support, points),
        clipped=clipped,
        rank=partial.rank,
        pivots=partial.pivots,
        trace_residual=float(partial.residual.sum() / diagonal.sum()),
        unrefined_variance=max(unrefined, 0.0),
        loss=min(max(loss, 0.0), variance),
    )


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


def _block_of(kernel: Kernel, points: Points) -> Block:
    """Return blocks of the Gram matrix by positions."""
    if isinstance(kernel, Stein):
        # The score is dear and shared by all blocks.
        scored = kernel.scored(points)
        return lambda i, j: kernel.gram(scored[i], scored[j])
    return lambda i, j: kernel(take(points, i), take(points, j))


def _projected_weights(partial: PivotedCholesky, mean: np.ndarray, noise: float) -> np.ndarray:
    factor = partial.factor
    reduced = solve_triangular(factor[partial.pivots], mean[partial.pivots], lower=True)
    normal = factor.T @ factor
    normal[np.diag_indices_from(normal)] += noise
    return factor @ cho_solve((cholesky(normal, lower=True), True), reduced)


def _product(block: Block, vector: np.ndarray) -> np.ndarray:
    """K v from square blocks on and above the diagonal, one at a time."""
    n = len(vector)
    parts = [np.arange(begin, min(begin + BLOCK, n)) for begin in range(0, n, BLOCK)]
    out = np.zeros(n)
    for position, rows in enumerate(parts):
        out[rows] += block(rows, rows) @ vector[rows]
        for columns in parts[position + 1 :]:
            part = block(rows, columns)
            out[rows] += part @ vector[columns]
            out[columns] += vector[rows] @ part
    return out


def _refined(
    block: Block,
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
        image = _product(block, direction)
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
