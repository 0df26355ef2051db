r"""Climbing to the mode of a posterior with anchored estimates of log Z.

The log-posterior :math:`n (\theta \cdot \bar t - \log Z(\theta)) + \log p(\theta)` is climbed with
an anchored estimate of log Z. Newton steps are taken while the variance V of the log ratio to the
anchor, on draws held out, stays below a half; there a new anchor is set. The last anchor stands so
close to the mode that what its draws add to the error of the mode is small beside the posterior sd.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from pymc_bayessum.interrupts import Interrupted
from pymc_bayessum.normalizers.anchored.errors import V_LIMIT
from pymc_bayessum.normalizers.anchored.rule import Anchored, anchored
from pymc_bayessum.normalizers.coordinates import Coordinates
from pymc_bayessum.normalizers.family import Family

__all__ = ["Climb", "Data", "NormalPrior", "climb"]

#: Error of the mode, in posterior sds, that draws at the last anchor may add.
MODE_TOLERANCE = 0.03
#: Statistics that vary by less than so many occurrences among the draws are not well seen,
RARE_COUNT = 20.0
#: and their parameters may move by so much from an anchor.
RARE_STEP = 2.0
#: Most draws for the mean of the statistics at an anchor.
MOST_MOMENTS = 400_000


class Data(NamedTuple):
    """What a likelihood needs to know of the data.

    The mean of the statistics over rows (d,), and the sum of their weights.
    """

    mean: np.ndarray
    n_rows: float


@dataclass(frozen=True, eq=False)
class NormalPrior:
    """Normal prior on coordinates: its mean (r,) and its precision (r, r)."""

    mean: np.ndarray
    precision: np.ndarray

    def log_density(self, point: np.ndarray) -> float:
        """Log density at coordinates, up to a constant."""
        away = point - self.mean
        return -0.5 * float(away @ self.precision @ away)


@dataclass(frozen=True, eq=False)
class Climb[A: Anchored]:
    """Where a climb ended.

    The curvature is minus the Hessian of the log-posterior, its noise corrected; the error of the
    mode the one predicted from draws, in posterior sds, root mean square over directions. The
    history tells of each anchor where it stood, how far it reached and the time it took.
    """

    point: np.ndarray
    curvature: np.ndarray
    rule: A
    history: list[dict[str, Any]]
    converged: bool
    mode_error: float


def climb[A: Anchored](
    family: Family,
    data: Data,
    coordinates: Coordinates,
    prior: NormalPrior,
    start: np.ndarray,
    *,
    n: int,
    rng: np.random.Generator,
    moments: str | None = None,
    n_moments: int | None = None,
    max_anchors: int = 20,
    tolerance: float = MODE_TOLERANCE,
    reach: float = V_LIMIT,
    chains: np.ndarray | None = None,
    n_chains: int | None = None,
    report: Callable[[str], None] | None = None,
    kind: type[A] = Anchored,  # type: ignore[assignment]  # the default binds A
) -> Climb[A]:
    """Climb to the mode of the posterior that data and prior make, setting anchors on the way.

    The first stands at coordinates ``start`` (r,), and its chains begin at states ``chains``
    (C, ...). Each is built as :func:`~pymc_bayessum.normalizers.anchored.rule.anchored` does it,
    with as many draws for the mean as its error asks for unless their number is given. Draws at the
    last may add ``tolerance`` posterior sds to the error of the mode; ``reach`` is the largest V of
    a step, and ``report`` is told what goes on.
    """
    target = coordinates.select @ data.mean
    point = np.array(start, dtype=float)
    history: list[dict[str, Any]] = []
    adaptive = n_moments is None and moments in (None, "rao-blackwell")
    if n_moments is None:
        n_moments = int(np.clip(50 * data.n_rows, 20_000, MOST_MOMENTS))
    found: Climb[A] | None = None
    while True:
        began = time.perf_counter()
        try:
            rule = anchored(
                family,
                coordinates.parameters(point)[None],
                n=n,
                rng=rng,
                moments=moments,
                n_moments=n_moments,
                constant=False,
                coordinates=coordinates,
                start=chains,
                n_chains=n_chains,
                kind=kind,
            )
        except KeyboardInterrupt:
            if found is None:
                raise
            told = f"the climb has come to anchor {len(history)}, which is .partial"
            raise Interrupted(told, replace(found, converged=False)) from None
        chains = rule.states
        point, curvature, inside = _newton(rule, target, data.n_rows, prior, reach)
        v = float(rule.variances(coordinates.parameters(point))[0])
        walked = float(np.sqrt(rule.inflation * v * data.n_rows / rule.n_nodes))
        noise = _mean_noise(rule, data.n_rows, curvature)
        error = float(np.hypot(walked, noise))
        history.append(
            {
                "anchor": rule.centre,
                "V": v,
                "inside": inside,
                "mode_error": error,
                "settled": rule.settled,
                "seconds": time.perf_counter() - began,
            }
        )
        if report is not None:
            report(f"anchor {len(history)}: V = {v:.2g}, mode within {error:.2g} sd")
        # A walk no longer than what the noise of the mean makes cannot be shortened further.
        near = inside and walked <= max(tolerance, noise)
        more = n_moments * int(np.ceil((noise / tolerance) ** 2))
        if near and noise > tolerance and adaptive and n_moments < MOST_MOMENTS:
            near = False
            n_moments = min(MOST_MOMENTS, more)
        found = Climb(point, curvature, rule, history, bool(near), error)
        if near or len(history) >= max_anchors:
            return found


def _newton(
    rule: Anchored, target: np.ndarray, n_rows: float, prior: NormalPrior, reach: float
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Maximise the log-posterior within reach of the rule; whether the mode lies inside."""
    anchor = rule.coordinates.of(rule.centre)
    # Directions chosen from the draws of the rule are judged by those held out, and by the rule's
    # own where those held out are too few to see them.
    covariances = rule.held_out.covariances[0], rule.mean_and_covariance(anchor)[1]
    size = len(anchor)
    # What hardly any draw shows has no curvature to stop a step: e^d times a tiny probability.
    rare = np.diag(covariances[1]) < RARE_COUNT / rule.n_nodes
    brake = _brake(covariances[1], rule.n_nodes, n_rows)

    def objective(point: np.ndarray) -> float:
        away = point - anchor
        log_z = rule.relative_log_z(point)
        likelihood = n_rows * (float(point @ target) - log_z) - 0.5 * float(away @ brake @ away)
        return likelihood + prior.log_density(point)

    point, inside = anchor.copy(), True
    now = objective(point)
    for _ in range(100):
        mean, spread = rule.mean_and_covariance(point)
        slope = n_rows * (target - mean) - brake @ (point - anchor)
        slope -= prior.precision @ (point - prior.mean)
        factor = cho_factor(n_rows * spread + brake + prior.precision)
        step = cho_solve(factor, slope)
        gain = float(slope @ step)
        if gain < 1e-10 * max(1, size):
            break
        length = min(_longest(point - anchor, step, each, reach) for each in covariances)
        if rare.any():
            length = min(length, _longest_rare((point - anchor)[rare], step[rare]))
        inside = length >= 1.0
        length = min(1.0, length)
        while length > 1e-8 and objective(point + length * step) < now + 1e-4 * length * gain:
            length *= 0.5
            inside = True
        point = point + length * step
        now = objective(point)
        if not inside or length <= 1e-8:
            break
    _, spread = rule.mean_and_covariance(point)
    # Merged rows stand for as many draws as were equal.
    effective = 1.0 / np.sum(rule.nodes.share(point) ** 2 / rule.nodes.counts)
    return point, _correction(effective, size) * n_rows * spread + prior.precision, inside


def _brake(covariance: np.ndarray, n_draws: int, n_rows: float) -> np.ndarray:
    """Curvature added to steps, because that of few draws is too small somewhere."""
    # The mean of an inverse covariance of N draws in r dimensions is (N - 1) / (N - r - 2) of the
    # inverse (Hartlap, Simon and Schneider, 2007); the curvature reported is corrected by it, and
    # so are the steps: without, few draws overshoot. At the anchor itself the term vanishes.
    size = len(covariance)
    brake = (_correction(n_draws, size) - 1.0) * n_rows * covariance
    # Below three draws a direction some directions have next to no curvature by chance alone.
    scarce = max(0.0, 1.0 - n_draws / (3.0 * size))
    brake[np.diag_indices(size)] += scarce * n_rows * np.diag(covariance)
    return brake


def _correction(n_draws: float, size: int) -> float:
    return (n_draws - 1.0) / max(1.0, n_draws - size - 2.0)


def _longest(away: np.ndarray, step: np.ndarray, covariance: np.ndarray, reach: float) -> float:
    """Largest multiple of a step that keeps V, a quadratic form, within its limit."""
    a = float(step @ covariance @ step)
    b = float(away @ covariance @ step)
    c = float(away @ covariance @ away) - reach
    if a <= 0.0:
        return np.inf
    return (-b + np.sqrt(max(0.0, b * b - a * c))) / a


def _longest_rare(away: np.ndarray, step: np.ndarray) -> float:
    """Largest multiple of a step that keeps every coordinate within its limit for rare events."""
    room = np.where(step > 0.0, RARE_STEP - away, RARE_STEP + away)
    with np.errstate(divide="ignore"):
        return float(np.max([0.0, np.min(room / np.abs(step))]))


def _mean_noise(rule: Anchored, n_rows: float, curvature: np.ndarray) -> float:
    """Error of the mode due to the mean at the anchor, in posterior sds, rms over directions."""
    spread = rule.moments.spread(rule.coordinates)
    if spread is None:
        return 0.0
    # A shift s of the mean moves the mode by n C^-1 s: in posterior sds, squared, n^2 s'C^-1 s.
    moved = n_rows**2 * np.sum(spread * np.linalg.solve(curvature, spread.T).T)
    return float(np.sqrt(moved / max(1, spread.shape[1])))
