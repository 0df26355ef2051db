r"""Log Z of an exponential family from draws at anchors: parameter values near the posterior.

With draws :math:`x_n` of the model at an anchor :math:`\theta_0` and :math:`d = \theta -
\theta_0`,

.. math:: \log \hat Z(\theta) = \log \hat Z(\theta_0) + d \cdot m +
          \log \frac1N \sum_n e^{d \cdot (\phi(x_n) - \bar\phi)} .

Weights are equal inside the logarithm, so the estimate is convex in theta whatever m is; m is a
better estimate of :math:`E_{\theta_0}[\phi]` than the average :math:`\bar\phi` (exact,
Rao-Blackwellised or by Stein's method). The error depends on the number of draws and on
:math:`V = \mathrm{Var}_{\theta_0}(d \cdot \phi)` alone: about
:math:`\sqrt{(e^V - 1 - V) / N}`.

Draws at several anchors are combined as if from one mixture whose constants are found from the
draws themselves (Shirts and Chodera, "Statistically optimal analysis of samples from multiple
equilibrium states", 2008), which is again a log-sum with positive weights.
"""

from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp, softmax

from pymc_bayessum.normalizers.anchored.draws import CHAINS, Draws, Walk, chains_for, draw_all
from pymc_bayessum.normalizers.anchored.errors import (
    TARGET,
    TOLERANCE,
    V_LIMIT,
    HeldOut,
    Precision,
    correlation_factor,
    held_out,
    slope_trust,
)
from pymc_bayessum.normalizers.anchored.guards import while_inside
from pymc_bayessum.normalizers.anchored.mixture import Nodes, pooled, stretched
from pymc_bayessum.normalizers.anchored.moments import Moments, anchor_moments, moment_method
from pymc_bayessum.normalizers.anchored.node_sum import log_sum, product
from pymc_bayessum.normalizers.coordinates import Coordinates, independent
from pymc_bayessum.normalizers.family import Family, LogConstant

__all__ = ["MOMENT_DRAWS", "Anchored", "Part", "Slope", "anchored", "combined", "split"]

#: Share of the chains that is kept out of the rule and tells how good it is.
HELD_OUT = 0.2
#: Draws for the mean of the statistics, unless told otherwise.
MOMENT_DRAWS = 20_000
#: Stands for a constant that was not asked for.
NO_CONSTANT = LogConstant(0.0, 0.0, "none", 0.0, 0)


class Slope(NamedTuple):
    """What the mean of the statistics at the centre adds to the slope that the nodes have there.

    The shift (r,) and the weight of that mean, from zero to one.
    """

    shift: np.ndarray
    trust: float


@dataclass(frozen=True, eq=False)
class Anchored:
    """Normaliser of an exponential family from draws at anchors; see :func:`anchored`.

    The first of the ``anchors`` (K, d) is the centre: ``moments`` are the mean of the statistics
    there, ``constant`` tells of log Z, and ``states`` (C, ...) are some of the draws, to start
    further chains from. ``coordinates`` are the identifiable directions, ``nodes`` what a value of
    log Z is summed over, and ``held_out`` are draws not among them. ``inflation`` is the
    variance of the estimate relative to independent draws and known constants of the anchors,
    ``sampler`` how draws were made, ``settled`` whether the means over chains had stopped moving
    when burn-in ended, and ``precision`` the errors predicted for the posterior it was built for.
    """

    family: Family = field(repr=False)
    anchors: np.ndarray = field(repr=False)
    coordinates: Coordinates = field(repr=False)
    nodes: Nodes = field(repr=False)
    moments: Moments = field(repr=False)
    slope: Slope = field(repr=False)
    held_out: HeldOut = field(repr=False)
    constant: LogConstant
    inflation: float
    sampler: str
    settled: bool
    states: np.ndarray = field(repr=False)
    precision: Precision | None = None

    @property
    def remedy(self) -> str:
        """What to do where it was not good enough."""
        return "another anchor, next to the mode of the posterior, or several around it"

    @property
    def centre(self) -> np.ndarray:
        """Parameter vector of the first anchor, shape (d,)."""
        return self.anchors[0]

    @property
    def is_absolute(self) -> bool:
        """Whether log Z is known, and not up to a constant only."""
        return self.constant.method != "none"

    @property
    def n_parameters(self) -> int:
        """Number of identifiable parameters."""
        return self.coordinates.size

    @property
    def n_nodes(self) -> int:
        """Draws inside the rule (equal ones are merged)."""
        return self.nodes.n_draws

    @property
    def n_distinct(self) -> int:
        """Rows of statistics that a value of log Z is summed over."""
        return len(self.nodes.rows)

    def _coordinates(self, xp: Any, theta: Any) -> tuple[Any, Any]:
        """Coordinates of theta, and their distance from the centre."""
        now = product(xp, theta, self.coordinates.read.T) + self.coordinates.read_origin
        return now, now - self.coordinates.of(self.centre)

    def log_z_at(self, xp: Any, theta: Any) -> Any:
        """Log Z of parameter vectors (..., d): convex, and finite for all that it can read.

        A rule for an affine family of parameters gives +inf outside of that family in ``numpy``; in
        ``pytensor.tensor`` it raises there and says what to do.
        """
        now, step = self._coordinates(xp, theta)
        total = log_sum(xp, now, self.nodes.rows, self.nodes.log_weights)
        tilt = product(xp, theta, self.coordinates.tilt) + product(xp, step, self.slope.shift)
        level = self.constant.value - float(self.coordinates.tilt @ self.centre)
        return while_inside(xp, total + tilt + level, theta, self.coordinates)

    def change_variance(self, xp: Any, theta: Any) -> Any:
        """Variance of log Z(theta) - log Z(centre), from influences on draws held out."""
        rows, log_weights, _ = self.held_out
        now, step = self._coordinates(xp, theta)
        here = _normalised(xp, product(xp, now, rows.T) + log_weights)
        there = softmax(rows @ self.coordinates.of(self.centre) + log_weights)
        away = rows - there @ rows
        trust = self.slope.trust
        influence = here - there - trust * product(xp, step, away.T) * there
        share = len(rows) / self.n_nodes
        sampling = self.inflation * share * xp.sum(influence**2, axis=-1)
        spread = self.moments.spread(self.coordinates)
        if spread is None:
            return sampling
        return sampling + trust**2 * xp.sum(product(xp, step, spread.T) ** 2, axis=-1)

    def sd_at(self, xp: Any, theta: Any) -> Any:
        """Predicted standard error of log Z, that of the constant included."""
        return xp.sqrt(self.change_variance(xp, theta) + self.constant.sd**2)

    def relative_log_z(self, point: np.ndarray) -> float:
        """Log Z at coordinates, without the constant and the tilt: for optimisers."""
        terms = self.nodes.rows @ point + self.nodes.log_weights
        step = point - self.coordinates.of(self.centre)
        return float(logsumexp(terms)) + float(step @ self.slope.shift)

    def mean_and_covariance(self, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First and second derivatives of log Z at coordinates: (r,) and (r, r)."""
        weights = self.nodes.share(point)
        mean = weights @ self.nodes.rows
        half = (self.nodes.rows - mean) * np.sqrt(weights)[:, None]
        return mean + self.slope.shift, half.T @ half

    def variances(self, theta: np.ndarray) -> np.ndarray:
        """Variance of (theta - anchor) . phi on held-out draws of each anchor, shape (K,)."""
        steps = self.coordinates.of(theta) - self.coordinates.of(self.anchors)
        return np.einsum("ki,kij,kj->k", steps, self.held_out.covariances, steps)

    def v(self, theta: np.ndarray) -> float:
        r"""Variance V of the log ratio at a parameter vector, on held-out draws.

        To the nearest anchor; or, where several anchors surround the parameters, the V at which a
        single anchor would be left with the same effective sample size, :math:`\log(N / (K\,
        \mathrm{ESS}))`, if that is less.
        """
        nearest = float(self.variances(theta).min())
        if len(self.anchors) == 1:
            return nearest
        ratio = self.held_out.rows @ self.coordinates.of(theta) + self.held_out.log_weights
        effective = 1.0 / np.square(softmax(ratio)).sum()
        pooled = np.log(len(ratio) / len(self.anchors) / effective)
        return float(min(nearest, max(0.0, pooled)))

    @property
    def misses_target(self) -> bool:
        """Whether draws leave more error in the posterior than its mean and sd should have."""
        return self.precision is not None and self.precision.excess(TARGET) > TOLERANCE

    @property
    def predicted_error(self) -> float:
        """Predicted error of a change of log Z at the edge of reach, where V = 0.5."""
        noise = np.exp(V_LIMIT) - 1.0 - V_LIMIT
        return float(np.sqrt(self.inflation * noise / self.n_nodes))

    @property
    def reach(self) -> str:
        """One line: for which parameters it answers, and up to where."""
        return (
            f"parameters for which V, the variance of the log ratio to {len(self.anchors)} "
            f"anchor(s) on draws held out, is at most {V_LIMIT}"
        )

    def report_at(self, theta: np.ndarray | None = None, n_rows: int = 1) -> dict[str, Any]:
        """Tell what there is to know before trusting it, from draws that are not in the rule.

        At parameters (d,), by default the anchor farthest from the centre (or the centre); so many
        rows of a likelihood multiply the error of log Z.

        There are ``V`` (variance of the log ratio, see :meth:`v`), ``var_g`` (variance, over
        held-out draws of all anchors, of the log ratio to their mixture; equal to V where there is
        one anchor), ``ess`` (absolute), ``log_z``, ``predicted_error`` (of the change from the
        centre, which is what a posterior depends on), ``constant_error``, ``rows_times_error``,
        ``flagged`` (V above 0.5, chains that had not settled, or a target error missed) and how the
        draws were made. A rule that was built for a posterior adds ``mean_error`` and
        ``sd_error``, see :class:`Precision`.
        """
        if theta is None:
            theta = self.anchors[int(np.argmax([self.variances(a)[0] for a in self.anchors]))]
        ratio = self.held_out.rows @ self.coordinates.of(theta) + self.held_out.log_weights
        v = self.v(theta)
        error = float(np.sqrt(self.change_variance(np, theta)))
        scale = self.n_nodes / len(ratio) / self.inflation
        facts = {
            "method": f"anchored, {len(self.anchors)} anchor(s), {self.moments.method} mean",
            "sampler": self.sampler,
            "settled": self.settled,
            "n_nodes": self.n_nodes,
            "n_distinct": self.n_distinct,
            "n_parameters": self.n_parameters,
            "V": v,
            "var_g": float(ratio.var(ddof=1)),
            "ess": float(scale / np.square(softmax(ratio)).sum()),
            "log_z": float(self.log_z_at(np, theta)),
            "predicted_error": error,
            "constant_error": self.constant.sd,
            "rows_times_error": n_rows * error,
            "flagged": v > V_LIMIT or not self.settled or self.misses_target,
        }
        if self.precision is not None:
            facts |= {"mean_error": self.precision.mean, "sd_error": self.precision.sd}
        return facts

    def require_curvature(self) -> None:
        """Raise unless there are draws enough to trust second derivatives of log Z."""
        if self.n_nodes < 5 * self.n_parameters:
            raise ValueError(
                f"the rule has {self.n_nodes} draws for {self.n_parameters} identifiable "
                "parameters. Below five draws a parameter the curvature of log Z is so noisy that "
                "posterior sds come out tens of per cent too wide and NUTS adapts to the wrong "
                f"scales; build it with n={5 * self.n_parameters} at least, and with "
                f"n={10 * self.n_parameters} for sds within 7%"
            )


def _normalised(xp: Any, terms: Any) -> Any:
    weights = xp.exp(terms - xp.max(terms, axis=-1, keepdims=True))
    return weights / xp.sum(weights, axis=-1, keepdims=True)


def anchored[A: Anchored](
    family: Family,
    anchors: np.ndarray,
    *,
    n: int,
    rng: np.random.Generator,
    moments: str | None = None,
    n_moments: int | None = None,
    constant: bool = True,
    coordinates: Coordinates | None = None,
    start: np.ndarray | None = None,
    n_chains: int | None = None,
    executor: Executor | None = None,
    kind: type[A] = Anchored,  # type: ignore[assignment]  # the default binds A
) -> A:
    """Build a normaliser from draws at parameter vectors (K, d), the first of them near the mode.

    ``n`` draws, over all anchors, are in the rule; a fifth more is held out for its report.
    ``moments`` says how the mean of the statistics at the first, the centre, is estimated
    (:func:`.moment_method`), from ``n_moments`` draws: by default those of the rule and at least
    20 000. ``constant`` asks for log Z at the centre, where the family offers that; a posterior
    does not depend on it, and without it log Z is zero there. Coordinates are by default those the
    family offers, or independent statistics found from its draws. Chains begin at ``start``
    (C, ...), ``n_chains`` of them: by default 500, or fewer where there are few draws to make. An
    executor makes draws at several anchors; ``kind`` is a wing's own kind of :class:`Anchored`.

    Examples
    --------
    >>> class Bits:
    ...     def statistics(self, states):
    ...         return states.sum(axis=1, keepdims=True).astype(float)
    ...     def sample(self, theta, n, rng, start=None):
    ...         return rng.random((n, 10)) < 1 / (1 + np.exp(-theta[0]))
    >>> rule = anchored(Bits(), np.zeros((1, 1)), n=2000, rng=np.random.default_rng(0))
    >>> change = float(rule.log_z_at(np, np.array([0.1])))
    >>> bool(abs(change - 10 * np.log((1 + np.exp(0.1)) / 2)) < 0.01)
    True
    """
    anchors = np.atleast_2d(np.asarray(anchors, dtype=float))
    if coordinates is None and hasattr(family, "coordinates"):
        coordinates = family.coordinates()
    elif coordinates is None:
        some = family.sample(anchors[0], 4 * anchors.shape[1] + 40, rng)
        coordinates = independent(family.statistics(some))
    method = moment_method(family, anchors[0], moments)
    each = -(-n // len(anchors))
    # Fewer than the coordinates would leave directions that nothing was held out for.
    n_tests = max(20, round(HELD_OUT * each), min(each, 2 * coordinates.size))
    wanted = each + n_tests
    total = wanted
    if method != "exact":
        total = max(wanted, max(each, MOMENT_DRAWS) if n_moments is None else n_moments)
    streams = rng.spawn(len(anchors))

    def draws(place: int, start: np.ndarray | None) -> Draws:
        of_centre = place == 0
        chains = min(CHAINS, max(50, (total if of_centre else wanted) // 10))
        if start is not None:
            chains = min(chains, chains_for(start))
        walk = Walk(
            family,
            anchors[place],
            coordinates,
            streams[place],
            start=start,
            n_chains=chains if n_chains is None else n_chains,
            means=method if of_centre else None,
        )
        rounds = -(-wanted // walk.n_chains)
        every = max(1, -(-total // walk.n_chains) // rounds) if of_centre else 1
        return Draws(walk, rounds * every, every)

    others = range(1, len(anchors))
    if start is None:
        # Nobody knows what draws look like before those at the centre are made.
        walks = draw_all([draws(0, None)])
        walks += draw_all([draws(place, walks[0].states) for place in others], executor)
    else:
        walks = draw_all([draws(place, start) for place in (0, *others)], executor)
    return combined(walks, each, n_tests, rng=rng, constant=constant, kind=kind)


class Part(NamedTuple):
    """Draws at one anchor: reduced statistics (N, r), and the chain each came from (N,)."""

    rows: np.ndarray
    chain: np.ndarray


def split(walk: Walk, n_nodes: int, n_tests: int) -> tuple[Part, Part]:
    """Choose nodes and tests from different chains, spread evenly over the draws of each.

    At most so many, and in that proportion.
    """
    rows = walk.rows.transpose(1, 0, 2)
    n_chains, n_rounds, size = rows.shape
    border = n_chains - max(1, round(n_chains * n_tests / (n_nodes + n_tests)))
    flat = rows.reshape(n_chains * n_rounds, size)
    chain = np.repeat(np.arange(n_chains), n_rounds)
    parts = []
    for first, last, n in ((0, border, n_nodes), (border, n_chains, n_tests)):
        places = np.arange(first * n_rounds, last * n_rounds)
        chosen = places[np.linspace(0, len(places) - 1, min(n, len(places))).round().astype(int)]
        parts.append(Part(flat[chosen], chain[chosen]))
    return parts[0], parts[1]


def combined[A: Anchored](
    walks: list[Walk],
    n_nodes: int,
    n_tests: int,
    *,
    rng: np.random.Generator,
    constant: bool,
    kind: type[A],
) -> A:
    """Build a normaliser from walks at its anchors, that of the centre first.

    So many draws of each, at most, are in the rule and held out; the other arguments are those of
    :func:`anchored`.
    """
    family, coordinates = walks[0].family, walks[0].coordinates
    anchors, moments = np.stack([walk.theta for walk in walks]), anchor_moments(walks[0])
    parts, left = zip(*(split(walk, n_nodes, n_tests) for walk in walks), strict=True)
    points = coordinates.of(anchors)
    inside = [part.rows for part in parts]
    nodes, log_z = pooled(inside, points)
    sizes = np.array([len(rows) for rows in inside], dtype=float)
    tests = held_out([part.rows for part in left], points, sizes, log_z)
    curvature = walks[0].covariance
    if curvature is not None:
        own = np.cov(nodes.rows, rowvar=False, aweights=nodes.share(points[0]), ddof=0)
        nodes = stretched(nodes, points[0], own, curvature)
        tests = tests._replace(covariances=np.stack([curvature, *tests.covariances[1:]]))
    known = NO_CONSTANT
    if constant and hasattr(family, "log_constant"):
        known = family.log_constant(anchors[0], rng)
    trust = 1.0
    if len(points) > 1:
        trust = slope_trust(moments.spread(coordinates), nodes, points[0], tests.covariances[0])
    shift = trust * (coordinates.select @ moments.mean - nodes.share(points[0]) @ nodes.rows)
    return kind(
        family=family,
        anchors=anchors,
        coordinates=coordinates,
        nodes=nodes,
        moments=moments,
        slope=Slope(shift, trust),
        held_out=tests,
        constant=known,
        inflation=correlation_factor(
            inside, [part.chain for part in parts], points, log_z, tests.covariances[0], rng
        ),
        sampler=walks[0].sampler,
        settled=all(walk.settled and walk.is_steady for walk in walks),
        states=walks[0].states,
    )
