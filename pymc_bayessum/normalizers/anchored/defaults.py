r"""The anchored normaliser that a model gets by itself, from its data and what is known a priori.

It is anchored before sampling starts and fixed from then on. A few parameters (up to five) get
anchors on the principal axes of a Laplace approximation of the posterior, combined by their draws;
many get one, at the mode.
"""

import warnings
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pymc_bayessum.interrupts import Interrupted
from pymc_bayessum.normalizers.anchored.averages import CURVATURE_EACH, averages_until, balanced
from pymc_bayessum.normalizers.anchored.climbing import Climb, Data, NormalPrior, climb
from pymc_bayessum.normalizers.anchored.draws import Draws, Walk, chains_for, draw_all
from pymc_bayessum.normalizers.anchored.errors import TARGET, V_LIMIT, Precision
from pymc_bayessum.normalizers.anchored.moments import moment_method
from pymc_bayessum.normalizers.anchored.posterior import laplace_mean, posterior_sets, rare_point
from pymc_bayessum.normalizers.anchored.precision import posterior_precision
from pymc_bayessum.normalizers.anchored.rule import (
    MOMENT_DRAWS,
    Anchored,
    anchored,
    combined,
    split,
)
from pymc_bayessum.normalizers.coordinates import Coordinates
from pymc_bayessum.normalizers.family import Family
from pymc_bayessum.progress import progress

__all__ = ["FEW_PARAMETERS", "axis_points", "default_anchored", "matched_prior"]

#: Number of parameters up to which several anchors are set.
FEW_PARAMETERS = 5
#: Draws where nothing is free.
PILOT_NODES = 4000
#: Chains, at most.
MOST_CHAINS = 100
#: Draws of every chain at an anchor on the way to the mode, with few parameters;
PILOT_ROUNDS = 8
#: the error of the mode, in sds, that will do for anchors to stand around it;
PILOT_TOLERANCE = 0.3
#: and how far a step may go.
PILOT_REACH = 2.0
#: Draws at each anchor before the error is asked for; with small states they cost next to nothing.
FIRST_DRAWS = 500
SMALL_SITES = 1_000_000
#: Anchors up to which each has as many; joins make more.
MOST_AXIS_POINTS = 9
#: Part of the target at which to stop: the error is known to a quarter, and what stops tends low.
MARGIN = 0.6
#: The same with many parameters: the worst of hundreds is off by three times the root mean square.
MARGIN_OF_MANY = 0.4
#: Times the target for a first look around the posterior.
COARSE = 3.0
#: Draws at all anchors after which the target is given up.
MOST_DRAWS = 400_000
#: Draws that a rule with few parameters sums over at most: some tenth of a millisecond.
MOST_NODES = 20_000
#: Number of parameters from which on averages over the posterior put the one anchor right.
MANY_PARAMETERS = 64
#: Draws in the rule, with more than a few, for each of them at least;
NODES_EACH = 10
#: and numbers in it, at least: a third of a millisecond for a value with gradient.
LEAST_NUMBERS = 1_200_000
#: at most, a millisecond;
MOST_NUMBERS = 4_000_000
#: and between them as many as leave this error, squared, in the slope at points of the posterior;
CUBIC_NOISE = 2.0
#: and draws for each that tell the curvature at the anchor.
BENDS_EACH = 50
#: V from the anchor to the posterior mean beyond which the anchor moves there; and how often.
NEAR, MOST_PASSES = 0.05, 3
#: Posterior sds at which the outer anchors stand.
SPREAD = 2.0
#: Prior sd where the prior cannot be drawn from, or has no finite scale.
VAGUE = 10.0


@dataclass(frozen=True, eq=False)
class _Setting[A: Anchored]:
    """What a default normaliser is made for and with: see :func:`default_anchored`."""

    family: Family
    data: Data
    coordinates: Coordinates
    prior: NormalPrior
    start: np.ndarray
    rng: np.random.Generator
    chains: np.ndarray | None
    executor: Executor | None
    kind: type[A]
    report: Callable[[str], None]

    def climb(self, n: int, **options: Any) -> Climb[A]:
        """Climb to the mode with n draws at an anchor."""
        return climb(
            self.family, self.data, self.coordinates, self.prior, self.start, n=n, rng=self.rng,
            chains=self.chains, report=self.report, kind=self.kind, **options,
        )  # fmt: skip

    def walks(self, anchors: np.ndarray, curvature: int = 0, **options: Any) -> list[Walk]:
        """Begin a walk at each anchor; the first tells of the mean and the curvature, too."""

        def at(anchor: np.ndarray, stream: np.random.Generator, **how: Any) -> Walk:
            return Walk(self.family, anchor, self.coordinates, stream, **options, **how)

        means, streams = moment_method(self.family, anchors[0]), self.rng.spawn(len(anchors))
        centre = at(anchors[0], streams[0], means=means, curvature=curvature)
        return [centre, *map(at, anchors[1:], streams[1:])]

    def combined(self, walks: list[Walk], each: int) -> A:
        """Build the rule of so many draws of each walk; a quarter as many are held out."""
        constant = _is_exact(self.family)
        return combined(walks, each, each // 4, rng=self.rng, constant=constant, kind=self.kind)


def default_anchored[A: Anchored](
    family: Family,
    data: Data,
    coordinates: Coordinates,
    prior: NormalPrior,
    start: np.ndarray | None = None,
    *,
    rng: np.random.Generator,
    chains: np.ndarray | None = None,
    progressbar: bool = True,
    executor: Executor | None = None,
    kind: type[A] = Anchored,  # type: ignore[assignment]  # the default binds A
) -> A:
    """Build an anchored normaliser for the posterior that data and prior make.

    Coordinates are those of the parameters that are free. The climb to the mode begins at ``start``
    (r,), for example the mode of a pseudo-likelihood, or at the prior mean; its chains at states
    ``chains`` (C, ...), for which observed ones are as good as any. Else arguments are those of
    :func:`~pymc_bayessum.normalizers.anchored.rule.anchored`; the executor takes draws at points of
    a posterior of many parameters, too.
    """
    if coordinates.size == 0:
        # Nothing is free: one anchor where the parameters are.
        theta = coordinates.parameters(np.zeros(0))
        return anchored(
            family, theta[None], n=PILOT_NODES, rng=rng, coordinates=coordinates, kind=kind
        )
    first = prior.mean if start is None else start
    with progress("Anchoring the normaliser", progressbar) as report:
        setting = _Setting(
            family, data, coordinates, prior, first, rng, chains, executor, kind, report
        )
        few = coordinates.size <= FEW_PARAMETERS
        rule, converged = (_around_the_mode if few else _at_the_mode)(setting)
    trouble = None
    if not converged:
        trouble = "the posterior mode was not reached"
    elif not rule.settled:
        trouble = "chains had not settled, or do not agree"
    elif rule.misses_target and rule.precision is not None:
        trouble = (
            f"draws may leave {rule.precision.mean:.2g} sds of error in the posterior's mean and "
            f"{100 * rule.precision.sd:.0f}% in its sd"
        )
    if trouble is not None:
        warnings.warn(
            f"the default normaliser may be poor: {trouble}. Run pbs.check_normalizer on the "
            "result, or pass a normaliser anchored near the posterior with more draws",
            UserWarning,
            stacklevel=3,
        )
    return rule


def _at_the_mode[A: Anchored](setting: _Setting[A]) -> tuple[A, bool]:
    """One anchor for many parameters."""
    family, coordinates, n_rows = setting.family, setting.coordinates, setting.data.n_rows
    n = max(NODES_EACH * coordinates.size, min(MOST_NODES, LEAST_NUMBERS // coordinates.size))
    if coordinates.size >= MANY_PARAMETERS:
        # Averages around the posterior mean will put right what is near the mode.
        mode = setting.climb(n, tolerance=PILOT_TOLERANCE, n_moments=MOMENT_DRAWS)
        quiet = _learned(mode.curvature, setting.prior) ** 3 / (n_rows * CUBIC_NOISE)
        n = int(max(n, min(MOST_NUMBERS / coordinates.size, quiet)))
        rule, near = _balanced_at_the_mean(setting, mode, n)
        return rule, mode.converged and near
    mode = setting.climb(n)
    rule = anchored(
        family,
        coordinates.parameters(mode.point)[None],
        n=n,
        rng=setting.rng,
        n_moments=int(np.clip(50 * n_rows, 20_000, 200_000)),
        constant=_is_exact(family),
        coordinates=coordinates,
        start=mode.rule.states,
        kind=setting.kind,
    )
    setting.report(f"one anchor, {rule.n_nodes} draws")
    return rule, mode.converged


def _learned(curvature: np.ndarray, prior: NormalPrior) -> float:
    """Count the parameters that data, not the prior, tell of.

    Third cumulants of N draws are noisy: with n rows and r such parameters the gradient of n log Z
    is off at points of the posterior by r^3 / (n N), its square in posterior sds over all
    directions, and sds by about half of r^2 / (n N) of themselves.
    """
    return len(curvature) - float(np.trace(np.linalg.solve(curvature, prior.precision)))


def _balanced_at_the_mean[A: Anchored](
    setting: _Setting[A], mode: Climb[A], n: int
) -> tuple[A, bool]:
    """One anchor at the posterior mean, put right by averages around it; whether it is near."""
    coordinates, data, prior = setting.coordinates, setting.data, setting.prior
    rng, executor = setting.rng, setting.executor
    n_bends = BENDS_EACH * coordinates.size
    posterior, rule = laplace_mean(mode.rule, data, prior), mode.rule
    for _ in range(MOST_PASSES):
        raised = rare_point(rule, posterior, data, prior)
        points = [posterior.mean] if raised is None else [posterior.mean, raised]
        anchors = coordinates.parameters(np.stack(points))
        walks = setting.walks(anchors, n_bends, start=rule.states)
        each = n // len(walks)
        kept = -(-5 * each // (4 * walks[0].n_chains))
        walks = draw_all([Draws(walk, kept) for walk in walks], executor)
        walks[0].draw(-(-n_bends // walks[0].n_chains) - kept, every=n_bends)
        rule = setting.combined(walks, each)
        posterior = laplace_mean(rule, data, prior)
        v = rule.v(coordinates.parameters(posterior.mean))
        setting.report(f"{len(walks)} anchors, {rule.n_nodes} draws: V = {v:.2g} to the mean")
        if v <= NEAR:
            break
    n_bends = CURVATURE_EACH * coordinates.size
    # Points of the posterior that the first averages lead to are those to average over.
    for part in (COARSE, 1.0):
        averages, error = averages_until(
            rule, posterior_sets(rule, data, prior, posterior, rng), posterior.precision,
            data.n_rows, part * MARGIN_OF_MANY * TARGET.mean, thin=walks[0].thin,
            start=rule.states, rng=rng, n_bends=int(n_bends / part), executor=executor,
        )  # fmt: skip
        rule = balanced(rule, averages)
        setting.report(f"{averages.n_draws} draws around the anchor: within {error:.2g} sd")
    # The inverse of a covariance is too large by that much; third cumulants add their noise.
    cubic = 0.5 * _learned(posterior.precision, prior) ** 2 / (data.n_rows * rule.n_nodes)
    found = Precision(error, 0.5 * coordinates.size / averages.n_bends + cubic)
    return replace(rule, precision=found), v <= V_LIMIT


def _around_the_mode[A: Anchored](setting: _Setting[A]) -> tuple[A, bool]:
    """Several anchors for few parameters, with draws until the target is reached."""
    family, coordinates, chains = setting.family, setting.coordinates, setting.chains
    n_sites = 1 if chains is None else int(np.prod(chains.shape[1:]))
    n_sites = getattr(family, "n_sites", n_sites)
    n_chains = MOST_CHAINS if chains is None else min(MOST_CHAINS, chains_for(chains))
    pilot = PILOT_ROUNDS * n_chains
    mode = setting.climb(
        pilot,
        n_moments=pilot,
        tolerance=PILOT_TOLERANCE,
        reach=PILOT_REACH,
        n_chains=n_chains,
    )
    anchors = coordinates.parameters(axis_points(mode.point, mode.curvature))
    joined = family.joined(anchors, setting.rng) if hasattr(family, "joined") else anchors
    anchors = anchors if joined is None else joined
    walks = setting.walks(anchors, start=mode.rule.states, n_chains=n_chains)
    most = MOST_DRAWS // (len(walks) * n_chains)
    small = SMALL_SITES * MOST_AXIS_POINTS // (n_sites * max(MOST_AXIS_POINTS, len(walks)))
    rounds = min(most, -(-max(FIRST_DRAWS, small) // n_chains))
    each = MOST_NODES // len(walks)
    rule: A | None = None
    found: Precision | None = None
    while True:
        try:
            wanted = [Draws(walk, rounds - walk.n_rounds) for walk in walks]
            walks = draw_all(wanted, setting.executor)
        except KeyboardInterrupt:
            if rule is None:
                raise
            told = f"a normaliser from {rule.n_nodes} draws, fewer than asked for, is .partial"
            raise Interrupted(told, replace(rule, precision=found, settled=False)) from None
        rule = setting.combined(walks, each)
        parts = [split(walk, each, each // 4)[0] for walk in walks]
        found = posterior_precision(rule, parts, setting.data, setting.prior, mode)
        excess = found.excess(TARGET)
        setting.report(f"{len(walks)} anchors, {rule.n_nodes} draws: within {found.mean:.2g} sd")
        steady = all(walk.is_steady for walk in walks)
        if excess <= MARGIN or rounds >= most or not steady:
            break
        rounds = min(most, int(np.ceil(rounds * np.clip((excess / MARGIN) ** 2, 1.3, 4.0))))
    settled = rule.settled and joined is not None
    return replace(rule, precision=found, settled=settled), mode.converged


def _is_exact(family: Family) -> bool:
    """Whether log Z at an anchor costs one exact sum: else no posterior needs it."""
    return hasattr(family, "exact_log_z") and family.exact_log_z() is not None


def axis_points(mode: np.ndarray, curvature: np.ndarray) -> np.ndarray:
    """Place anchors at the mode and on the principal axes of a normal approximation.

    The mode of one to five coordinates and two points on each axis, two sds away: three to nine
    points (K, r). Of five axes the narrowest has none. The curvature is the inverse covariance.

    Examples
    --------
    >>> [len(axis_points(np.zeros(r), np.eye(r))) for r in (1, 2, 3, 4, 5)]
    [3, 5, 7, 9, 9]
    """
    precision, axes = np.linalg.eigh(curvature)
    steps = (axes / np.sqrt(precision)).T[: FEW_PARAMETERS - 1]
    return np.stack([mode, *(mode + k * step for step in steps for k in (SPREAD, -SPREAD))])


def matched_prior(coordinates: Coordinates, draws: np.ndarray | None) -> NormalPrior:
    """Match a normal prior on coordinates to the quartiles of draws (K, d); vague without them.

    Examples
    --------
    >>> from pymc_bayessum.normalizers.coordinates import plain
    >>> matched_prior(plain(1), None).precision.tolist()
    [[0.01]]
    """
    if draws is None or len(draws) < 2:
        centre = coordinates.of(np.zeros(coordinates.read.shape[1]))
        return NormalPrior(centre, np.eye(coordinates.size) / VAGUE**2)
    low, middle, high = np.quantile(coordinates.of(draws), [0.25, 0.5, 0.75], axis=0)
    sd = np.maximum((high - low) / 1.349, 1e-6)
    return NormalPrior(middle, np.diag(1.0 / np.minimum(sd, 1e3) ** 2))
