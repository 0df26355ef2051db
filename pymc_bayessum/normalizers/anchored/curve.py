r"""Log Z along a line of parameters, where nobody knows yet which part of it will be needed.

Labels that are not observed leave no place to anchor at. With one free parameter u there is no
need for one: the slope of log Z is the mean statistic,

.. math:: \log Z(u) - \log Z(u_0) = \int_{u_0}^{u} \mathrm E_t[\psi(x)]\, dt,

(thermodynamic integration; Ogata and Tanemura, 1984; Gelman and Meng, 1998), estimated by chains at
knots that are set closer until the mean half-way between two of them is what their interpolation
says. A mean is known well enough when its error is small beside the sd of the statistic itself:
that is the sd of the posterior that a seen x would leave, in units of the slope, and labels
that are not seen leave a wider one.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.interpolate import CubicHermiteSpline, CubicSpline, PPoly

from pymc_bayessum.normalizers.anchored.draws import Walk
from pymc_bayessum.normalizers.anchored.guards import while_inside
from pymc_bayessum.normalizers.anchored.moments import anchor_moments, moment_method
from pymc_bayessum.normalizers.anchored.node_sum import product
from pymc_bayessum.normalizers.coordinates import Coordinates
from pymc_bayessum.normalizers.family import Family
from pymc_bayessum.progress import progress

__all__ = ["Curve", "Knot", "curve_between"]

#: Chains at each knot, and draws of each.
CHAINS = 20
ROUNDS = 20
#: Times that chains which do not agree yet are given to do so.
PATIENCE = 4
#: Knots on either side before any is set between others.
FIRST_KNOTS = 8
#: Sds of the statistic by which a mean half-way may miss the interpolation: with the knot that
#: was set to find out, what is left is an eighth of it or less.
MISS = 0.15
#: Part of a wrong slope at a knot, times the distance to the next, by which means between are off.
SLOPE_COUNTS = 4.0 / 27.0
#: Ratio of variances at two knots from which on one is set between them in any case.
UNEVEN = 1.5
#: Sds of the statistic between knots below which none is set between.
CLOSEST = 1.0
#: Knots after which refinement is given up.
MOST_KNOTS = 200


class Knot(NamedTuple):
    """What chains found at one parameter value.

    Mean of the statistic, the error of that, and its variance; whether chains had stopped moving,
    and agree; and their last states.
    """

    at: float
    mean: float
    error: float
    variance: float
    settled: bool
    states: np.ndarray


@dataclass(frozen=True, eq=False)
class Curve:
    """Normaliser of a family with one free parameter, along an interval of it.

    Log Z is known up to a constant. It is convex, and goes on along its tangents outside of the
    interval. Coordinates are of one parameter, knots in ascending order.
    """

    family: Family
    coordinates: Coordinates
    knots: tuple[Knot, ...]

    is_absolute = False

    @property
    def settled(self) -> bool:
        """Whether chains had settled at all knots."""
        return all(knot.settled for knot in self.knots)

    @property
    def limits(self) -> tuple[float, float]:
        """The interval that it answers for."""
        return self.knots[0].at, self.knots[-1].at

    @property
    def states(self) -> np.ndarray:
        """States of the middle knot, (C, ...)."""
        return self.knots[len(self.knots) // 2].states

    @property
    def remedy(self) -> str:
        """What to do where it was not good enough."""
        low, high = self.limits
        return f"a prior that keeps to what the curve covers, {low:.3g} to {high:.3g}, or a new one"

    @cached_property
    def integral(self) -> PPoly:
        """Log Z as a piecewise polynomial of the coordinate, zero at the lower end."""
        return interpolated(self.knots).antiderivative()

    def _coordinate(self, xp: Any, theta: Any) -> Any:
        return product(xp, theta, self.coordinates.read[0]) + self.coordinates.read_origin[0]

    def log_z_at(self, xp: Any, theta: Any) -> Any:
        """Log Z of parameter vectors (..., d), up to a constant; +inf outside of the line."""
        coordinates, integral = self.coordinates, self.integral
        u = self._coordinate(xp, theta)
        low, high = self.limits
        inside = xp.clip(u, low, high)
        # What is piecewise constant has no gradient.
        place = xp.searchsorted(integral.x[1:-1], inside)
        away = inside - xp.take(integral.x, place)
        value = xp.zeros_like(u)
        for coefficients in integral.c:
            value = value * away + xp.take(coefficients, place)
        ends = xp.where(u < low, self.knots[0].mean, self.knots[-1].mean)
        value = value + ends * (u - inside) + product(xp, theta, coordinates.tilt)
        return while_inside(xp, value, theta, coordinates)

    def sd_at(self, xp: Any, theta: Any) -> Any:
        """Return the standard error of the change of log Z from the nearest knot."""
        at, error = (np.array([getattr(k, name) for k in self.knots]) for name in ("at", "error"))
        distance = xp.abs(self._coordinate(xp, theta)[..., None] - at)
        nearest = xp.argmin(distance, axis=-1)
        return xp.min(distance, axis=-1) * xp.take(error, nearest)

    def v(self, theta: np.ndarray) -> float:
        """Variance of the log ratio between a parameter vector and the interval; 0 inside."""
        u = float(self.coordinates.of(theta)[0])
        low, high = self.limits
        nearest = self.knots[0] if u < low else self.knots[-1]
        return float((u - np.clip(u, low, high)) ** 2 * nearest.variance)


def interpolated(knots: tuple[Knot, ...] | list[Knot]) -> PPoly:
    """Interpolate the means: cubic, and monotone where they are, so that log Z is convex.

    Slopes are those of a spline, within the bounds of Fritsch and Carlson (1980).
    """
    at, mean = np.array([k.at for k in knots]), np.array([k.mean for k in knots])
    secant = np.diff(mean) / np.diff(at)
    least = np.minimum(np.append(secant, np.inf), np.append(np.inf, secant))
    slope = np.clip(CubicSpline(at, mean)(at, 1), 0.0, 3.0 * np.maximum(least, 0.0))
    return CubicHermiteSpline(at, mean, slope)


def curve_between[C: Curve](
    family: Family,
    coordinates: Coordinates,
    low: float,
    high: float,
    *,
    start: np.ndarray,
    rng: np.random.Generator,
    progressbar: bool = True,
    kind: type[C] = Curve,  # type: ignore[assignment]  # the default binds C
) -> C:
    """Find log Z of a family with one free parameter between two values of its coordinate.

    Where chains do not settle the curve ends before, with a warning. They begin at ``start``,
    states (C, ...) that are good ones at zero; knots are set from there outwards. What is built is
    a wing's own kind of :class:`Curve`.
    """
    with progress("Following log Z", progressbar) as report:

        def knot(at: float, states: np.ndarray) -> Knot:
            found = _knot(family, coordinates, at, states, rng)
            report(f"{at:.3g}: {found.mean:.5g} +- {found.error:.2g}")
            return found

        middle = knot(float(np.clip(0.0, low, high)), start)
        knots = [*_outwards(knot, middle, low)[::-1], middle, *_outwards(knot, middle, high)]
        reached = knots[0].at, knots[-1].at
        if len(knots) > 1:
            knots = _refined(knot, knots)
    found = kind(family, coordinates, tuple(knots))
    trouble = []
    if reached != (min(low, middle.at), max(high, middle.at)):
        trouble.append(f"it is known from {reached[0]:.3g} to {reached[1]:.3g} only, where they do")
    if not found.settled:
        doubtful = [f"{k.at:.3g}" for k in knots if not k.settled]
        trouble.append(f"it is doubtful at {', '.join(doubtful)}")
    if trouble:
        warnings.warn(
            f"chains do not settle everywhere between {low:.3g} and {high:.3g}, so of log Z "
            f"{' and '.join(trouble)}: give the parameter a prior that keeps to where it is known, "
            "and run pbs.check_normalizer on the result",
            UserWarning,
            stacklevel=3,
        )
    return found


def _knot(
    family: Family, coordinates: Coordinates, at: float, start: np.ndarray, rng: np.random.Generator
) -> Knot:
    theta = coordinates.parameters(np.array([at]))
    means = moment_method(family, theta)
    for _ in range(PATIENCE):
        walk = Walk(family, theta, coordinates, rng, start=start, n_chains=CHAINS, means=means)
        walk.draw(ROUNDS)
        if walk.is_steady:
            break
        start = walk.states
    moments = anchor_moments(walk)
    spread = moments.spread(coordinates)
    return Knot(
        at=at,
        mean=float(coordinates.select[0] @ moments.mean),
        error=0.0 if spread is None else float(np.linalg.norm(spread)),
        variance=float(walk.rows.var()),
        settled=walk.settled and walk.is_steady,
        states=walk.states,
    )


def _uneven(left: Knot, right: Knot) -> bool:
    """Whether the slope of the mean changes so much that a knot between may fit by chance."""
    smaller, larger = sorted([left.variance, right.variance])
    return larger > UNEVEN * smaller


def _outwards(knot: Callable[[float, np.ndarray], Knot], first: Knot, end: float) -> list[Knot]:
    """Knots from the first to an end, each started from the one before; up to where they settle."""
    found = [first]
    for at in np.linspace(first.at, end, FIRST_KNOTS + 1)[1:] if end != first.at else []:
        new = knot(float(at), found[-1].states)
        if not new.settled:
            break
        found.append(new)
    return found[1:]


def _refined(knot: Callable[[float, np.ndarray], Knot], knots: list[Knot]) -> list[Knot]:
    """Set knots half-way between others until these foretell what is found there."""
    open_ = list(pairwise(knots))[::-1]
    while open_ and len(knots) < MOST_KNOTS:
        left, right = open_.pop()
        sd = np.sqrt(max(left.variance, right.variance))
        if (right.at - left.at) * sd < CLOSEST:
            continue
        at = 0.5 * (left.at + right.at)
        means = interpolated(knots)
        # From both sides: a transition at which chains stay what they were shows as two opinions.
        both = np.stack([left.states, right.states], axis=1).reshape(-1, *left.states.shape[1:])
        new = knot(at, both)
        knots = sorted([*knots, new], key=lambda k: k.at)
        allowed = max(MISS * np.sqrt(new.variance), 3.0 * new.error)
        # The variance is the slope of the mean: at a transition halfway the mean alone would fit.
        bend = SLOPE_COUNTS * (at - left.at) * abs(new.variance - float(means(at, 1)))
        missed = max(abs(new.mean - float(means(at))), bend) > allowed
        open_ += [pair for pair in ((new, right), (left, new)) if missed or _uneven(*pair)]
    return knots
