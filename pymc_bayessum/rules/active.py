r"""Sequential design: each evaluation goes where it teaches most about the sum.

Given the values at the nodes so far, the mutual information between the sum and the value at a
new point x is

.. math:: \alpha(x) = -\tfrac12 \log\Bigl(1 -
          \frac{\mathrm{E}[\tilde k(X, x)]^2}{\sigma^2\, \tilde k(x, x)}\Bigr)

with the posterior covariance :math:`\tilde k` and the posterior variance :math:`\sigma^2` of the
sum (Gessner, Gonzalez and Mahsereci, 2020; for sums Kang, Briol, Karvonen and Chen). A Cholesky
factor that grows by one row a step gives all of it in O(N^2), or O(N) for each point of a fixed
list of candidates.
"""

import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Literal

import numpy as np
from scipy.linalg import solve_triangular

from pymc_bayessum.arguments import as_generator, function, integer, positive, real
from pymc_bayessum.embeddings import embed
from pymc_bayessum.executors import as_executor, in_order
from pymc_bayessum.interrupts import Interrupted
from pymc_bayessum.kernels import Kernel
from pymc_bayessum.measures import IntegerMeasure, Measure
from pymc_bayessum.measures.base import concatenate
from pymc_bayessum.measures.supports import (
    Image,
    Interval,
    Pair,
    Points,
    Sites,
    Spins,
    Support,
    batch_size,
    point_keys,
    take,
)
from pymc_bayessum.progress import progress
from pymc_bayessum.rules.hyper import select_kernel
from pymc_bayessum.rules.rule import Estimate, Rule, bayes_sum, distinct_points

__all__ = ["ActiveResult", "EvaluationError", "Step", "active_bayes_sum"]

#: Supports with at most this many points are searched exhaustively by default.
EXHAUSTIVE_LIMIT = 4096

#: Points whose posterior variance is below this fraction of the prior one are known already.
KNOWN = 1e-12

#: Scores this close (relatively) are ties, broken by order: rounding must not decide.
TIE = 1e-9

#: Rounds of a climb through single-site changes.
CLIMB_ROUNDS = 20

Strategy = Literal["auto", "exhaustive", "random", "local"]


@dataclass(frozen=True)
class Step:
    """What was known after one evaluation.

    Attributes
    ----------
    n_evals : int
        Evaluations so far, this one included.
    mean, sd : float
        The estimate and its posterior sd, with the empirical-Bayes amplitude.
    gain : float
        Mutual information, in nats, that chose the point; NaN for points of the initial design.
    kernel : Kernel
        The kernel in use.
    """

    n_evals: int
    mean: float
    sd: float
    gain: float
    kernel: Kernel


@dataclass(frozen=True, eq=False)
class ActiveResult:
    """Outcome of a sequential design.

    Attributes
    ----------
    rule : Rule
        The rule on the chosen nodes, with the last kernel.
    estimate : Estimate
        Mean and sd of the sum.
    values : ndarray of shape (N,)
        The summand at ``rule.nodes``.
    history : tuple of Step
        One entry for each evaluation made so far.
    reason : {"budget", "target", "exhausted", "stopped"}
        Why it ended: the budget was spent, the target sd was met, no candidate had anything left
        to teach, or an evaluation failed.
    pending : batch of points or None
        Points of the initial design that were still to be evaluated when a run stopped early.
    generator_state : dict
        State of the random generator, from which a resumed run goes on.
    """

    rule: Rule
    estimate: Estimate
    values: np.ndarray
    history: tuple[Step, ...] = field(repr=False)
    reason: str
    pending: Points | None = field(repr=False)
    generator_state: dict[str, Any] = field(repr=False)

    @property
    def nodes(self) -> Points:
        """The points evaluated, in order."""
        return self.rule.nodes


class EvaluationError(RuntimeError):
    """An evaluation of the summand failed.

    Attributes
    ----------
    point : batch of one point
        Where it failed.
    partial : ActiveResult or None
        What was learnt before; pass it as ``resume=``. ``None`` when it was the first evaluation.

    Examples
    --------
    >>> import pymc_bayessum as pbs
    >>> def fails_at_zero(x):
    ...     return 1.0 / x if x[0] else float("nan")
    >>> kernel, measure = pbs.kernels.Brownian(), pbs.measures.Geometric(0.5)
    >>> try:
    ...     pbs.active_bayes_sum(fails_at_zero, kernel, measure, 5, initial=[1, 2, 0])
    ... except EvaluationError as error:
    ...     print(error.point, error.partial.estimate.n_evals)
    [0] 2
    """

    def __init__(self, message: str, point: Points, partial: ActiveResult | None) -> None:
        super().__init__(message)
        self.point = point
        self.partial = partial


def active_bayes_sum(
    f: Callable[[Points], Any],
    kernel: Kernel | Sequence[Kernel] | Callable[..., Kernel],
    measure: Measure,
    n: int,
    *,
    bounds: Any = None,
    initial: int | Points | None = None,
    candidates: Strategy | Points = "auto",
    n_candidates: int = 200,
    refresh: float | Sequence[int] = 1.5,
    target_sd: float | None = None,
    batch: int = 1,
    executor: Executor | None = None,
    progressbar: bool | None = None,
    rng: Any = None,
    resume: ActiveResult | None = None,
) -> ActiveResult:
    r"""Estimate a sum (or expectation) with nodes chosen one after the other.

    Each step evaluates f where the mutual information with the sum is largest, that is where
    :math:`\mathrm{E}[\tilde k(X, x)]^2 / \tilde k(x, x)` is.

    Parameters
    ----------
    f : callable
        The summand, given a batch of a single point: shape (1,) on numbers, (1, L) on sites, a
        pair of such on a product. It may be expensive and it may fail.
    kernel : Kernel, sequence of Kernel, or callable
        The prior. From several kernels the one of highest marginal likelihood is taken, again at
        each refresh; likewise from those that a function makes of parameters within ``bounds``
        (see `select_kernel`).
    measure : Measure
    n : int
        Number of evaluations in all, those of the initial design and of a resumed result
        included.
    bounds : pair of float, or sequence of pairs, optional
        Lower and upper bound of each parameter of a function that makes kernels.
    initial : int or batch of points, optional
        Number of distinct draws from the measure to begin with, or the points themselves. By
        default ten, or a tenth of n where that is more: draws keep a greedy design from lining
        up with the summand, and they are what the first kernel is chosen by.
    candidates : {"auto", "exhaustive", "random", "local"} or batch of points
        Where the next point is looked for. ``"exhaustive"``: among all points of the support
        (on the naturals and integers, all of appreciable mass). ``"random"``: among
        ``n_candidates`` fresh draws. ``"local"``: the same, after which the best draw is improved
        by changing one site (one step on the integers, one part of a pair) at a time.
        ``"auto"``: exhaustive up to 4096 points, local beyond. A batch of points is searched
        exhaustively.
    n_candidates : int
        Draws a step for ``"random"`` and ``"local"``.
    refresh : float or sequence of int
        When to choose the kernel again, if there is a choice: at these numbers of evaluations, or
        whenever the number has grown by this factor.
    target_sd : float, optional
        Stop, after the initial design, once the posterior sd is at most this.
    batch : int
        Points chosen at a time. The information in a point does not depend on values, so that the
        next points are known before the last values are; only the kernel, where there is a choice,
        and the target wait for the end of a batch.
    executor : concurrent.futures.Executor, optional
        Evaluates the points of the initial design, and of a batch, side by side: threads,
        processes, or a Dask cluster (``client.get_executor()``). f must be picklable for processes.
        Results are the same as without.
    progressbar : bool, optional
        Show a progress bar; by default when standard error is a terminal.
    rng : None, int or numpy.random.Generator
        Not used when resuming: the result carries its own generator.
    resume : ActiveResult, optional
        Go on from an earlier result, or from the ``partial`` of an `EvaluationError`.

    Raises
    ------
    EvaluationError
        When f raises, or returns anything but one finite number. Its ``partial`` holds what was
        learnt before. An interrupt from the keyboard (`Interrupted`) carries the same attribute.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum.kernels import Brownian
    >>> from pymc_bayessum.measures import Poisson
    >>> result = active_bayes_sum(lambda x: np.exp(-x / 10.0), Brownian(), Poisson(5.0), 25, rng=0)
    >>> exact = np.exp(5.0 * (np.exp(-0.1) - 1.0))
    >>> bool(abs(result.estimate.mean - exact) < 1e-4)
    True
    >>> more = active_bayes_sum(
    ...     lambda x: np.exp(-x / 10.0), Brownian(), Poisson(5.0), 30, resume=result)
    >>> more.estimate.n_evals
    30
    """
    prior = _Prior(kernel, bounds)
    if not isinstance(measure, Measure):
        raise TypeError(f"measure must be a Measure, got {measure!r}")
    function("f", f)
    budget = integer("n", n, 1)
    count = integer("n_candidates", n_candidates, 1)
    target = None if target_sd is None else positive("target_sd", target_sd)
    schedule = _schedule(refresh)
    size = integer("batch", batch, 1)
    attempts = partial(in_order, partial(_attempt, f), executor=as_executor(executor))
    if resume is not None and not isinstance(resume, ActiveResult):
        raise TypeError(f"resume must be an ActiveResult, got {resume!r}")
    if resume is None:
        rng = as_generator(rng)
        run = _Run(attempts, prior, measure, rng, schedule)
        run.pending = _initial_points(initial, measure, budget, rng)
    else:
        run = _Run(attempts, prior, measure, _restored(resume.generator_state), schedule)
        run.recall(resume)
    search = _search(candidates, measure, count)
    designs = run.initial_design(), run.sequential_design(search, budget, size, target)
    try:
        with progress("Active design", progressbar, budget) as report:
            for _ in chain(*designs):
                report(f"estimate {run.history[-1].mean:.6g} ± {run.history[-1].sd:.2g}")
    except KeyboardInterrupt:
        told = f"{len(run.history)} evaluations are on this exception as .partial, for resume="
        raise Interrupted(told, run.partial()) from None
    return run.result(run.reason)


def _attempt(f: Callable[[Points], Any], point: Points) -> Any:
    """Return the value of the summand, or its exception."""
    try:
        return f(point)
    except Exception as error:  # a summand may fail in any way; who asked decides
        return error


@dataclass(eq=False)
class _Run:
    """The state of a design: the posterior, its history, and what is still to be done."""

    attempts: Callable[[Sequence[Points]], Iterator[Any]]
    prior: "_Prior"
    measure: Measure
    rng: np.random.Generator
    schedule: Callable[[int], int]
    history: list[Step] = field(default_factory=list)
    due: int = 0
    pending: Points | None = None
    reason: str = "budget"

    def __post_init__(self) -> None:
        self.posterior = _Posterior(self.prior.first, self.measure)

    def recall(self, result: ActiveResult) -> None:
        """Take over the nodes and values of an earlier result."""
        points = result.rule.nodes
        # Measures that hold arrays are not equal after a trip through a file, but their mass is.
        if not np.allclose(self.measure.log_prob(points), result.rule.log_base):
            raise ValueError(
                f"resume belongs to another measure: {result.rule.measure}, not {self.measure}"
            )
        self.history = list(result.history)
        self.pending = result.pending
        last, values = result.history[-1].kernel, result.values.tolist()
        # A kernel that is still allowed goes on; otherwise it is chosen anew.
        kernel = last if self.prior.allows(last) else self.prior.select(points, values)
        self.posterior = _Posterior(kernel, self.measure, points, values)

    def evaluate(self, points: Sequence[Points], gains: Sequence[float]) -> Iterator[None]:
        """Evaluate the summand at points that the posterior has, and condition on the values."""
        for point, gain, raw in zip(points, gains, self.attempts(points), strict=True):
            self.posterior.observe(self._number(point, raw))
            self._record(gain)
            yield

    def initial_design(self) -> Iterator[None]:
        """Evaluate what is pending, then choose the first kernel."""
        pending = self.pending
        if pending is not None and batch_size(pending):
            points = [take(pending, np.array([i])) for i in range(batch_size(pending))]
            for point in points:
                self.posterior.append(point)
            done = self.evaluate(points, [np.nan] * len(points))
            for first, _ in enumerate(done, start=1):
                self.pending = take(pending, np.arange(first, len(points)))
                yield
        self.pending = None
        if len(self.history) and np.isnan(self.history[-1].gain):
            self._refresh()
        self.due = self._next_due()

    def sequential_design(
        self, search: "Search", budget: int, batch: int, target: float | None
    ) -> Iterator[None]:
        """Evaluate where it teaches most, until there is a reason to stop."""
        while target is None or self.history[-1].sd > target:
            room = min(batch, budget - len(self.history))
            if room <= 0:
                return
            points: list[Points] = []
            gains: list[float] = []
            while len(points) < room and (found := search(self)) is not None:
                points.append(found[0])
                gains.append(self.posterior.gain(found[1]))
                self.posterior.append(found[0])
            if not points:
                self.reason = "exhausted"
                return
            for _ in self.evaluate(points, gains):
                if len(self.history) >= self.due and self.posterior.is_observed:
                    self._refresh()
                    self.due = self._next_due()
                yield
        self.reason = "target"

    def result(self, reason: str) -> ActiveResult:
        """Freeze what is known."""
        n = len(self.history)
        nodes = take(self.posterior.nodes, np.arange(n))
        rule = bayes_sum(self.posterior.kernel, self.measure, nodes)
        values = np.array(self.posterior.values[:n])
        values.setflags(write=False)
        return ActiveResult(
            rule=rule,
            estimate=rule.expectation(values),
            values=values,
            history=tuple(self.history),
            reason=reason,
            pending=self.pending,
            generator_state=dict(self.rng.bit_generator.state),
        )

    def _next_due(self) -> int:
        # From the start of the present kernel, so that a resumed run keeps the schedule.
        due = 0
        while due <= len(self.history):
            due = self.schedule(due)
        return due

    def _refresh(self) -> None:
        """Choose the kernel again, once all points have their values."""
        nodes, values = self.posterior.nodes, self.posterior.values
        chosen = self.prior.select(nodes, values)
        if chosen != self.posterior.kernel:
            self.posterior = _Posterior(chosen, self.measure, nodes, values)
            gain = self.history.pop().gain
            self._record(gain)

    def _record(self, gain: float) -> None:
        mean, sd = self.posterior.estimate()
        count, kernel = len(self.posterior.values), self.posterior.kernel
        self.history.append(Step(count, mean, sd, gain, kernel))

    def _number(self, point: Points, raw: Any) -> float:
        """Return a raw value as a number, or raise with what was learnt before."""
        array = np.asarray(raw)
        if array.size == 1 and array.dtype.kind in "iufb" and np.isfinite(array).all():
            return float(array.reshape(()))
        cause = raw if isinstance(raw, Exception) else None
        if cause is None:
            wanted = "one finite number for a single point"
            message = f"the summand must give {wanted}, got {raw!r} at {point}"
        else:
            message = f"the summand failed at {point}: {type(raw).__name__}: {raw}"
        partial = self.partial()
        kept = "what was learnt before is on this exception as .partial"
        told = kept if partial else "nothing was learnt before"
        raise EvaluationError(f"{message}; {told}", point, partial) from cause

    def partial(self) -> ActiveResult | None:
        """Return what was learnt before a run stopped."""
        return self.result("stopped") if self.history else None


class _Prior:
    """The kernels to choose from."""

    def __init__(self, kernel: Any, bounds: Any) -> None:
        self.make = kernel if callable(kernel) and not isinstance(kernel, Kernel) else None
        self.bounds = bounds
        if self.make is not None:
            if bounds is None:
                raise ValueError("bounds must be given with a function that makes kernels")
            middle = np.sqrt(np.prod(np.atleast_2d(np.asarray(bounds, dtype=float)), axis=1))
            self.kernels = (self.make(*(float(value) for value in middle)),)
        else:
            if bounds is not None:
                raise ValueError("bounds go with a function that makes kernels")
            self.kernels = (kernel,) if isinstance(kernel, Kernel) else tuple(kernel)
        if not self.kernels:
            raise ValueError("kernel must be a kernel or several kernels, got an empty sequence")
        for each in self.kernels:
            if not isinstance(each, Kernel):
                raise TypeError(f"kernel must be a kernel or several kernels, got {each!r}")
            if getattr(each, "free_degree", None) is not None:
                raise ValueError(
                    f"{type(each).__name__} leaves polynomials free, so the information in a "
                    "single value is not defined; use Brownian or Matern"
                )

    @property
    def first(self) -> Kernel:
        """The kernel before anything is known."""
        return self.kernels[len(self.kernels) // 2]

    def allows(self, kernel: Kernel) -> bool:
        """Whether a kernel of an earlier run may go on."""
        return self.make is not None or kernel in self.kernels

    def select(self, nodes: Points, values: Sequence[float]) -> Kernel:
        """Return the kernel of highest marginal likelihood."""
        if (self.make is None and len(self.kernels) == 1) or len(values) < 2 or not any(values):
            return self.first
        with warnings.catch_warnings():
            # Few values often speak for an end of the range; more to come will decide.
            warnings.simplefilter("ignore", UserWarning)
            choice = self.kernels if self.make is None else self.make
            return select_kernel(choice, nodes, values, bounds=self.bounds).kernel


class _Posterior:
    """Gaussian-process posterior over a growing list of nodes: one new row of the factor a step."""

    def __init__(
        self,
        kernel: Kernel,
        measure: Measure,
        nodes: Points | None = None,
        values: Sequence[float] = (),
    ) -> None:
        self.kernel = kernel
        self.embedding = embed(kernel, measure)
        self.initial_error = self.embedding.initial_error
        self.nodes: Points | None = None
        self.seen: set = set()
        self.size = 0
        self.values: list[float] = []
        self.factor = np.zeros((16, 16))
        self.white_mean = np.zeros(16)  # L^-1 mu
        self.white_values = np.zeros(16)  # L^-1 y
        self.tracked: _Candidates | None = None
        for i, value in enumerate(values):
            self.append(take(nodes, np.array([i])))
            self.observe(value)

    def append(self, point: Points) -> None:
        """Condition on one more point, whatever its value will be, in O(N^2)."""
        n = self.size
        if n == len(self.factor):
            self._grow()
        row = self.whitened(point)[:, 0]
        prior = float(self.kernel.diagonal(point)[0])
        # A point that is known already (up to rounding) gets the least pivot that is above it.
        pivot = np.sqrt(max(prior - float(row @ row), KNOWN * prior))
        mean = float(self.embedding.mean(point)[0])
        self.factor[n, :n] = row
        self.factor[n, n] = pivot
        self.white_mean[n] = (mean - row @ self.white_mean[:n]) / pivot
        if self.tracked is not None:
            self.tracked.condition(self, point, row, pivot, self.white_mean[n])
        self.nodes = point if self.nodes is None else concatenate([self.nodes, point])
        self.seen.update(point_keys(point))
        self.size = n + 1

    def observe(self, value: float) -> None:
        """Take the value at the first point that has none yet."""
        n = len(self.values)
        row, pivot = self.factor[n, :n], self.factor[n, n]
        self.white_values[n] = (value - row @ self.white_values[:n]) / pivot
        self.values.append(value)

    @property
    def is_observed(self) -> bool:
        """Whether all points have their values."""
        return len(self.values) == self.size

    def variance(self, n: int) -> float:
        """Posterior variance of the sum at unit amplitude, given the first n points."""
        explained = float(np.square(self.white_mean[:n]).sum())
        return max(self.initial_error - explained, 0.0)

    def estimate(self) -> tuple[float, float]:
        """Mean and sd of the sum, with the empirical-Bayes amplitude."""
        n = len(self.values)
        values = self.white_values[:n]
        mean = float(self.white_mean[:n] @ values)
        return mean, float(np.sqrt(values @ values / n * self.variance(n)))

    def track(self, points: Points) -> "_Candidates":
        """Follow a fixed list of candidates, each at O(N) a step."""
        if self.tracked is None:
            # Row by row in memory: each step adds a row.
            self.tracked = _Candidates(self, points, np.ascontiguousarray(self.whitened(points)))
        return self.tracked

    def gain(self, score: float) -> float:
        """Mutual information of a point with the given score, in nats."""
        variance = self.variance(self.size)
        # Where rounding has eaten the variance, a point still tells all there is to know.
        return float(-0.5 * np.log1p(-score / variance)) if score < variance else np.inf

    def whitened(self, points: Points) -> np.ndarray:
        """Return L^-1 k(nodes, points), O(N^2) a point."""
        if self.size == 0:
            return np.zeros((0, batch_size(points)))
        return solve_triangular(
            self.factor[: self.size, : self.size],
            self.kernel(self.nodes, points),
            lower=True,
            check_finite=False,
        )

    def _grow(self) -> None:
        extra = len(self.factor)
        self.factor = np.pad(self.factor, ((0, extra), (0, extra)))
        self.white_mean = np.pad(self.white_mean, (0, extra))
        self.white_values = np.pad(self.white_values, (0, extra))


class _Candidates:
    """Posterior quantities of some points, from their whitened covariances with the nodes."""

    def __init__(self, posterior: _Posterior, points: Points, white: np.ndarray) -> None:
        self.points = points
        self.keys = point_keys(points)
        self.prior = posterior.kernel.diagonal(points)
        self.white = white
        known = posterior.white_mean[: posterior.size]
        self.covariance = posterior.embedding.mean(points) - known @ white
        self.variance = self.prior - np.square(white).sum(axis=0)

    def condition(
        self,
        posterior: _Posterior,
        point: Points,
        row: np.ndarray,
        pivot: float,
        white_mean: float,
    ) -> None:
        """Update every candidate for one more node."""
        n = len(row)
        if n == len(self.white):
            self.white = np.pad(self.white, ((0, max(n, 16)), (0, 0)))
        new = (posterior.kernel(point, self.points)[0] - row @ self.white[:n]) / pivot
        self.white[n] = new
        self.covariance -= white_mean * new
        self.variance -= np.square(new)

    def best(self, seen: set) -> tuple[Points, float] | None:
        """Point of highest score, E[k~(X, x)]^2 / k~(x, x), and that score.

        ``None`` when nothing is left to learn. Points that are seen or known teach nothing.
        """
        fresh = self.variance > KNOWN * self.prior
        fresh[[i for i, key in enumerate(self.keys) if key in seen]] = False
        score = np.where(fresh, np.square(self.covariance) / np.where(fresh, self.variance, 1.0), 0)
        top = score.max()
        if top <= 0.0:
            return None
        first = int(np.argmax(score >= top * (1.0 - TIE)))
        return take(self.points, np.array([first])), float(score[first])


Search = Callable[[_Run], tuple[Points, float] | None]


def _search(candidates: Any, measure: Measure, count: int) -> Search:
    """Turn the ``candidates`` argument into a function that proposes the next point."""
    points = None
    if not isinstance(candidates, str):
        points = distinct_points(measure.support, candidates)
    elif candidates not in ("auto", "exhaustive", "random", "local"):
        raise ValueError(
            "candidates must be 'auto', 'exhaustive', 'random', 'local' or a batch of points, got "
            f"{candidates!r}"
        )
    elif candidates in ("auto", "exhaustive"):
        points = _listing(measure, None if candidates == "exhaustive" else EXHAUSTIVE_LIMIT)
        if points is None and candidates == "exhaustive":
            raise ValueError(
                f"candidates='exhaustive' needs a support that can be listed, not {measure.support}"
            )
    if points is None:
        return lambda run: _improved(run, count, climb=candidates != "random")
    return lambda run: run.posterior.track(points).best(run.posterior.seen)


def _listing(measure: Measure, limit: int | None) -> Points | None:
    """All points of (appreciable) mass, or ``None`` when there are too many."""
    if isinstance(measure, IntegerMeasure):
        low, high = measure.effective_range()
        return None if limit is not None and high - low >= limit else measure.integers()
    size = measure.support.size
    if size == math.inf or (limit is not None and size > limit):
        return None
    return measure.support.enumerate()


def _improved(run: _Run, count: int, climb: bool) -> tuple[Points, float] | None:
    """Best of fresh draws, then uphill through single changes as long as they help."""
    best = _best_fresh(run, run.measure.sample(count, run.rng))
    if best is None or not climb:
        return best
    for _ in range(CLIMB_ROUNDS):
        around = _neighbours(run.measure.support, best[0], run.rng)
        better = _best_fresh(run, around)
        if better is None or better[1] <= best[1] * (1.0 + TIE):
            break
        best = better
    return best


def _best_fresh(run: _Run, points: Points) -> tuple[Points, float] | None:
    inside = run.measure.support.contains(points)
    if not inside.any():
        return None
    points, posterior = take(points, inside), run.posterior
    return _Candidates(posterior, points, posterior.whitened(points)).best(posterior.seen)


def _neighbours(support: Support, point: Points, rng: np.random.Generator) -> Points:
    """Points that differ from one point in a single site, step or part."""
    if isinstance(support, Image):
        return support.forward(_neighbours(support.base, support.inverse(point), rng))
    if isinstance(support, Pair):
        first = _neighbours(support.first, point[0], rng)
        second = _neighbours(support.second, point[1], rng)
        stay = np.zeros(max(batch_size(first), batch_size(second)), dtype=int)
        return (
            concatenate([first, take(point[0], stay[: batch_size(second)])]),
            concatenate([take(point[1], stay[: batch_size(first)]), second]),
        )
    if isinstance(support, Interval):
        width = (support.high - support.low) * 10.0 ** rng.uniform(-3.0, -0.5, 20)
        return np.clip(point + width * rng.choice([-1.0, 1.0], 20), support.low, support.high)
    if isinstance(support, Spins):
        return point * (1 - 2 * np.eye(support.n_sites, dtype=np.int64))
    if isinstance(support, Sites):
        turns = np.arange(1, support.n_states)
        change = turns[:, None, None] * np.eye(support.n_sites, dtype=np.int64)
        return ((point + change) % support.n_states).reshape(-1, support.n_sites)
    steps = np.unique(np.round(2.0 ** np.arange(0.0, 10.0))).astype(np.int64)
    return point + np.concatenate([-steps, steps])


def _schedule(refresh: Any) -> Callable[[int], int]:
    """From one number of evaluations to the next at which the kernel is chosen again."""
    if np.ndim(refresh) == 0:
        factor = real("refresh", refresh)
        if factor <= 1.0:
            raise ValueError(
                f"refresh must be a factor above 1 or a sequence of ints, got {factor}"
            )
        return lambda due: max(int(np.ceil(due * factor)), due + 1, 8)
    sizes = sorted(integer("refresh", size, 1) for size in refresh)
    return lambda due: next((size for size in sizes if size > due), sys.maxsize)


def _initial_points(
    initial: Any, measure: Measure, budget: int, rng: np.random.Generator
) -> Points:
    if initial is None:
        initial = min(max(10, budget // 10), budget)
    if isinstance(initial, tuple) or np.ndim(initial) > 0:
        points = distinct_points(measure.support, initial)
        if batch_size(points) > budget:
            raise ValueError(
                f"initial holds {batch_size(points)} points, more than the budget n={budget}"
            )
        return points
    size = min(integer("initial", initial, 1), budget)
    return measure.sample_distinct(int(min(size, measure.support.size)), rng)


def _restored(state: dict[str, Any]) -> np.random.Generator:
    bit_generator = getattr(np.random, state["bit_generator"])()
    bit_generator.state = state
    return np.random.Generator(bit_generator)
