r"""Normalisers of Potts models from draws at anchors: parameter values near the posterior.

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

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Variable
from scipy.special import logsumexp, softmax

from pymc_bayessum.arguments import as_generator, integer
from pymc_bayessum.graphs.anchor_draws import (
    CHAINS,
    Draws,
    MomentMethod,
    Moments,
    SamplerChoice,
    anchor_moments,
    draw_at,
)
from pymc_bayessum.graphs.annealing import LogConstant, log_constant
from pymc_bayessum.graphs.coordinates import Coordinates, identifiable
from pymc_bayessum.graphs.estimates import (
    V_LIMIT,
    Estimated,
    exact_plan,
    model_layout,
    numeric_parameters,
    product,
    symbolic_parameters,
)
from pymc_bayessum.graphs.statistics import PottsLayout
from pymc_bayessum.normalizers.node import log_z

__all__ = ["AnchoredRule", "anchored_rule", "anchored_rule_at", "mbar"]

#: Share of the chains that is kept out of the rule and tells how good it is.
HELD_OUT = 0.2
#: Coordinates up to which equal rows of statistics are merged (they hardly occur beyond).
MERGE_LIMIT = 16
#: Stands for a constant that was not asked for.
NO_CONSTANT = LogConstant(0.0, 0.0, "none", 0.0, 0)


def mbar(
    rows: np.ndarray, counts: np.ndarray, anchors: np.ndarray, sizes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    r"""Combine draws at several parameter values self-consistently.

    The constants :math:`f_k = \log Z_k` solve :math:`f_k = \log \sum_n e^{c_k \cdot \psi_n} /
    \sum_l N_l e^{c_l \cdot \psi_n - f_l}`; they maximise a concave function, found by Newton steps.

    Parameters
    ----------
    rows : ndarray, shape (M, r)
        Statistics of the pooled draws.
    counts : ndarray, shape (M,)
        How often each row occurs.
    anchors : ndarray, shape (K, r)
    sizes : ndarray, shape (K,)
        Number of draws at each anchor.

    Returns
    -------
    log_weights : ndarray, shape (M,)
        ``log Z(c) = logsumexp(rows @ c + log_weights)`` relative to the first anchor.
    log_z : ndarray, shape (K,)
        At the anchors, relative to the first.

    Examples
    --------
    One site with energies c x, x = 0 or 1, drawn in exact proportion at two anchors:

    >>> import numpy as np
    >>> rows, counts = np.array([[0.0], [1.0]]), np.array([60.0, 90.0])
    >>> anchors, sizes = np.log([[1.0], [7.0 / 3.0]]), np.array([75.0, 75.0])
    >>> _, log_z = mbar(rows, counts, anchors, sizes)
    >>> bool(np.isclose(log_z[1], np.log((1 + 7 / 3) / 2)))
    True
    """
    energies = rows @ anchors.T
    log_sizes = np.log(sizes)
    log_counts = np.log(counts)
    log_z = np.zeros(len(anchors))
    # Start from the first anchor's draws reweighted stepwise: a few fixed-point steps.
    for _ in range(20):
        mixture = logsumexp(energies + (log_sizes - log_z), axis=1)
        log_z = logsumexp(energies + (log_counts - mixture)[:, None], axis=0)
        log_z -= log_z[0]
    for _ in range(50):
        share = softmax(energies + (log_sizes - log_z), axis=1)
        slope = counts @ share - sizes
        if np.abs(slope).max() < 1e-9 * sizes.sum():
            break
        bend = np.diag(counts @ share) - (share * counts[:, None]).T @ share
        step = np.zeros(len(anchors))
        step[1:] = np.linalg.solve(bend[1:, 1:], slope[1:])
        # log f_k enters with a minus sign; long steps are cut, the problem is convex.
        log_z += step * min(1.0, 1.0 / max(1e-300, np.abs(step).max()))
        log_z -= log_z[0]
    mixture = logsumexp(energies + (log_sizes - log_z), axis=1)
    return log_counts - mixture, log_z


@dataclass(frozen=True, eq=False)
class AnchoredRule:
    """Normaliser of a Potts or Ising model from draws at anchors; see :func:`anchored_rule`.

    Attributes
    ----------
    layout : PottsLayout
    anchors : ndarray, shape (K, d)
        Parameter vectors at which draws were made; the first is the centre.
    moments : Moments
        Mean of the statistics at the centre.
    constant : LogConstant
        Log Z at the centre, and its error, which a posterior does not depend on.
    n_nodes : int
        Draws inside the rule (equal ones are merged).
    coordinates : Coordinates
        The identifiable directions, ``coordinates.size`` in number.
    inflation : float
        Variance of the estimate relative to independent draws and known constants of the anchors.
    sampler : {"exact", "swendsen-wang", "gibbs"}
    settled : bool
        Whether the means over chains had stopped moving when burn-in ended.
    states : ndarray of int, shape (C, L)
        Some of the draws at the centre (0 .. S-1), to start further chains from.

    Examples
    --------
    >>> import pymc_bayessum as pbs
    >>> rule = pbs.anchored_rule(0.0, 0.3, pbs.graphs.ring(5), ising=True, n=200, rng=0)
    >>> rule.n_parameters, rule.report(0.0, 0.31)["flagged"]
    (2, False)
    """

    layout: PottsLayout
    anchors: np.ndarray = field(repr=False)
    moments: Moments = field(repr=False)
    constant: LogConstant
    n_nodes: int
    coordinates: Coordinates = field(repr=False)
    inflation: float
    sampler: SamplerChoice
    settled: bool
    states: np.ndarray = field(repr=False)
    _rows: np.ndarray = field(repr=False)
    _log_weights: np.ndarray = field(repr=False)
    _shift: np.ndarray = field(repr=False)
    _trust: float = field(repr=False)
    _level: float = field(repr=False)
    _test_rows: np.ndarray = field(repr=False)
    _test_log_weights: np.ndarray = field(repr=False)
    _test_covariances: np.ndarray = field(repr=False)

    @property
    def remedy(self) -> str:
        """What to do where it was not good enough."""
        return (
            "another anchor: pbs.anchored_rule where pbs.fit_potts finds the mode, or at several "
            "points around it"
        )

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
    def n_distinct(self) -> int:
        """Rows of statistics that a value of log Z is summed over."""
        return len(self._rows)

    def _coordinates(self, xp: Any, theta: Any) -> tuple[Any, Any]:
        """Coordinates of theta, and their distance from the centre."""
        now = product(xp, theta, self.coordinates.read.T) + self.coordinates.read_origin
        return now, now - self.coordinates.of(self.centre)

    def log_z_at(self, xp: Any, theta: Any) -> Any:
        """Log Z of parameter vectors (..., d)."""
        now, step = self._coordinates(xp, theta)
        terms = product(xp, now, self._rows.T) + self._log_weights
        peak = xp.max(terms, axis=-1, keepdims=True)
        peak = disconnected_grad(peak) if xp is pt else peak
        total = xp.log(xp.sum(xp.exp(terms - peak), axis=-1)) + peak[..., 0]
        tilt = product(xp, theta, self.coordinates.tilt) + product(xp, step, self._shift)
        value = total + tilt + self._level
        outside = self.coordinates.outside
        if outside is None:
            return value
        missed = product(xp, theta, outside.T) + self.coordinates.outside_origin
        scale = 1.0 + xp.max(xp.abs(theta), axis=-1)
        return xp.where(xp.max(xp.abs(missed), axis=-1) <= 1e-6 * scale, value, np.inf)

    def change_variance(self, xp: Any, theta: Any) -> Any:
        """Variance of log Z(theta) - log Z(centre), from influences on draws held out."""
        now, step = self._coordinates(xp, theta)
        here = _normalised(xp, product(xp, now, self._test_rows.T) + self._test_log_weights)
        centre = self._test_rows @ self.coordinates.of(self.centre) + self._test_log_weights
        there = softmax(centre)
        away = self._test_rows - there @ self._test_rows
        influence = here - there - self._trust * product(xp, step, away.T) * there
        share = len(self._test_rows) / self.n_nodes
        sampling = self.inflation * share * xp.sum(influence**2, axis=-1)
        batches = self.moments.batches @ self.coordinates.select.T
        if len(batches) < 2:
            return sampling
        spread = (batches - batches.mean(axis=0)) / np.sqrt(len(batches) * (len(batches) - 1.0))
        return sampling + self._trust**2 * xp.sum(product(xp, step, spread.T) ** 2, axis=-1)

    def sd_at(self, xp: Any, theta: Any) -> Any:
        """Predicted error of log Z, that of the constant included."""
        return xp.sqrt(self.change_variance(xp, theta) + self.constant.sd**2)

    def log_z(self, h: Any, J: Any) -> Variable:
        """Symbolic log Z: a convex function of the parameters, finite for all that it can read.

        Parameters
        ----------
        h, J : TensorVariable or array_like
            In the shapes of ``layout``, with optional leading batch dimensions. A rule for an
            affine family of parameters gives +inf outside of that family.
        """
        return log_z(Estimated(self), symbolic_parameters(self.layout, h, J))

    def log_z_sd(self, h: Any, J: Any) -> Variable:
        """Symbolic predicted standard error of log Z, that of the constant included."""
        return self.sd_at(pt, symbolic_parameters(self.layout, h, J))

    def value(self, h: Any, J: Any) -> float:
        """Log Z at numeric parameters."""
        return float(self.log_z_at(np, numeric_parameters(self.layout, h, J)))

    def change_sd(self, h: Any, J: Any) -> float:
        """Predicted error of log Z less log Z at the centre: what a posterior depends on."""
        theta = numeric_parameters(self.layout, h, J)
        return float(np.sqrt(self.change_variance(np, theta)))

    def relative_log_z(self, point: np.ndarray) -> float:
        """Log Z at coordinates, without the constant and the tilt: for optimisers."""
        terms = self._rows @ point + self._log_weights
        step = point - self.coordinates.of(self.centre)
        return float(logsumexp(terms)) + float(step @ self._shift)

    def node_weights(self, point: np.ndarray) -> np.ndarray:
        """Share of each distinct row of statistics in the sum at coordinates, shape (M,)."""
        return softmax(self._rows @ point + self._log_weights)

    def mean_and_covariance(self, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First and second derivatives of log Z at coordinates: (r,) and (r, r)."""
        weights = self.node_weights(point)
        mean = weights @ self._rows
        half = (self._rows - mean) * np.sqrt(weights)[:, None]
        return mean + self._shift, half.T @ half

    def variances(self, theta: np.ndarray) -> np.ndarray:
        """Variance of (theta - anchor) . phi on held-out draws of each anchor, shape (K,)."""
        steps = self.coordinates.of(theta) - self.coordinates.of(self.anchors)
        return np.einsum("ki,kij,kj->k", steps, self._test_covariances, steps)

    def v(self, theta: np.ndarray) -> float:
        r"""Variance V of the log ratio at a parameter vector, on held-out draws.

        To the nearest anchor; or, where several anchors surround the parameters, the V at which a
        single anchor would be left with the same effective sample size, :math:`\log(N / (K\,
        \mathrm{ESS}))`, if that is less.
        """
        nearest = float(self.variances(theta).min())
        if len(self.anchors) == 1:
            return nearest
        ratio = self._test_rows @ self.coordinates.of(theta) + self._test_log_weights
        effective = 1.0 / np.square(softmax(ratio)).sum()
        pooled = np.log(len(ratio) / len(self.anchors) / effective)
        return float(min(nearest, max(0.0, pooled)))

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

    def report(self, h: Any = None, J: Any = None, n_rows: int = 1) -> dict[str, Any]:
        """Tell what there is to know before trusting it, from draws that are not in the rule.

        Parameters
        ----------
        h, J : array_like, optional
            Numeric parameters; by default the anchor farthest from the centre (or the centre).
        n_rows : int
            Rows of the likelihood: it multiplies the error of log Z by their number.

        Returns
        -------
        dict
            ``V`` (variance of the log ratio, see :meth:`v`), ``var_g`` (variance, over
            held-out draws of all anchors, of the log ratio to their mixture; equal to V where there
            is one anchor), ``ess`` (absolute),
            ``log_z``, ``predicted_error`` (of the change from the centre, which is what a
            posterior depends on), ``constant_error``, ``rows_times_error``, ``flagged`` (V above
            0.5, or chains that had not settled) and how the draws were made.
        """
        if h is None and J is None:
            theta = self.anchors[int(np.argmax([self.variances(a)[0] for a in self.anchors]))]
        else:
            theta = numeric_parameters(self.layout, h, J)
        now = self.coordinates.of(theta)
        ratio = self._test_rows @ now + self._test_log_weights
        weights = softmax(ratio)
        v = self.v(theta)
        error = float(np.sqrt(self.change_variance(np, theta)))
        scale = self.n_nodes / len(self._test_rows) / self.inflation
        return {
            "method": f"anchored, {len(self.anchors)} anchor(s), {self.moments.method} mean",
            "sampler": self.sampler,
            "settled": self.settled,
            "n_nodes": self.n_nodes,
            "n_distinct": self.n_distinct,
            "n_parameters": self.n_parameters,
            "V": v,
            "var_g": float(ratio.var(ddof=1)),
            "ess": float(scale / np.square(weights).sum()),
            "log_z": float(self.log_z_at(np, theta)),
            "predicted_error": error,
            "constant_error": self.constant.sd,
            "rows_times_error": n_rows * error,
            "flagged": v > V_LIMIT or not self.settled,
        }

    def require_curvature(self) -> None:
        """Raise unless there are draws enough to trust second derivatives of log Z.

        Raises
        ------
        ValueError
            With fewer draws than five times the identifiable parameters.
        """
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


def anchored_rule(
    h: Any,
    J: Any,
    edges: Any,
    *,
    others: Sequence[tuple[Any, Any]] = (),
    n: int = 10_000,
    moments: MomentMethod | None = None,
    n_moments: int | None = None,
    sampler: SamplerChoice | None = None,
    constant: bool = True,
    ising: bool = False,
    n_sites: int | None = None,
    n_states: int | None = None,
    rng: Any = None,
) -> AnchoredRule:
    r"""Normaliser of a Potts or Ising model from draws at one anchor or several.

    .. math:: \log \hat Z(\theta) = \log \hat Z(\theta_0) + d \cdot m +
              \log \frac1N \sum_n e^{d \cdot (\phi(x_n) - \bar\phi)}, \quad d = \theta - \theta_0

    and with several anchors the self-consistent mixture of all draws in place of the average.

    Parameters
    ----------
    h, J : array_like
        Numeric parameters of the first anchor, the centre, in the shapes the model has: near the
        posterior mode, for example those of :func:`~pymc_bayessum.fit_potts`.
    edges : array_like of int, shape (E, 2), or networkx.Graph
    others : sequence of pairs (h, J)
        Further anchors.
    n : int
        Draws in the rule, over all anchors. A fifth more is held out for its report.
    moments : {"exact", "rao-blackwell", "stein", "difference", "plain"}, optional
        How m is estimated. By default exact where one elimination of the graph is affordable, else
        Rao-Blackwellised: both ends of each edge summed out given all other sites, and projected
        to the identifiable directions. ``"stein"``: control functionals of the Gibbs operator,
        cross-fitted, for when draws are dear. ``"difference"``: Stein BayesSum with the difference
        operator, for comparison. ``"plain"``: the average of the draws.
    n_moments : int, optional
        Draws at the centre for m; by default those of the rule and at least 20 000.
    sampler : {"exact", "swendsen-wang", "gibbs"}, optional
        By default exact where one elimination of the graph is affordable, else Swendsen-Wang where
        it applies, else Gibbs.
    constant : bool
        Whether to estimate log Z at the centre (from a tree, by annealing where that is far). A
        posterior does not depend on it; without, log Z is zero at the centre.
    ising : bool
        Spins -1/+1 (``h`` a number or (L,), ``J`` a number or (E,)) instead of states.
    n_sites, n_states : int, optional
        Where the shapes do not tell.
    rng : None, int or numpy.random.Generator

    Returns
    -------
    AnchoredRule

    Examples
    --------
    >>> import pymc_bayessum as pbs
    >>> rule = pbs.anchored_rule(0.0, 0.3, pbs.graphs.grid(4, 4), ising=True, n=2000, rng=0)
    >>> bool(abs(rule.value(0.0, 0.3) - rule.constant.value) < 1e-9)
    True
    >>> rule.report(0.02, 0.31)["flagged"]
    False
    """
    layout, theta = model_layout(h, J, edges, ising=ising, n_sites=n_sites, n_states=n_states)
    anchors = [theta, *(numeric_parameters(layout, *other) for other in others)]
    return anchored_rule_at(
        layout,
        np.stack(anchors),
        n=integer("n", n, 20 * len(anchors)),
        moments=moments,
        n_moments=n_moments,
        sampler=sampler,
        constant=constant,
        rng=as_generator(rng),
    )


def anchored_rule_at(
    layout: PottsLayout,
    anchors: np.ndarray,
    *,
    n: int,
    rng: np.random.Generator,
    moments: MomentMethod | None = None,
    n_moments: int | None = None,
    sampler: SamplerChoice | None = None,
    constant: bool = True,
    coordinates: Coordinates | None = None,
    start: np.ndarray | None = None,
) -> AnchoredRule:
    """Build the rule of :func:`anchored_rule` from parameter vectors.

    Parameters
    ----------
    layout : PottsLayout
    anchors : ndarray, shape (K, d)
    n, rng, moments, n_moments, sampler, constant
        As there.
    coordinates : Coordinates, optional
        By default the identifiable ones of the layout.
    start : ndarray of int, shape (C, L), optional
        First states 0 .. S-1 of chains.

    Returns
    -------
    AnchoredRule
    """
    coordinates = identifiable(layout) if coordinates is None else coordinates
    anchors = np.atleast_2d(np.asarray(anchors, dtype=float))
    each = -(-n // len(anchors))
    # Fewer than the coordinates would leave directions that nothing was held out for.
    held_out = max(20, round(HELD_OUT * each), min(each, 2 * coordinates.size))
    if n_moments is None:
        n_moments = max(each, 20_000)
    exact = moments == "exact" or (moments is None and exact_plan(layout) is not None)
    first = each + held_out if exact else max(each + held_out, n_moments)
    draws = [draw_at(layout, anchors[0], first, rng, sampler=sampler, start=start)]
    for anchor in anchors[1:]:
        before = draws[0].states[:: max(1, len(draws[0].states) // 500)] if start is None else start
        draws.append(draw_at(layout, anchor, each + held_out, rng, sampler=sampler, start=before))
    mean = anchor_moments(layout, anchors[0], draws[0], method=moments)
    nodes, tests, chains = [], [], []
    for part in draws:
        inside, outside = _split(part, each, held_out)
        nodes.append(_reduced(layout, coordinates, part.states[inside]))
        tests.append(_reduced(layout, coordinates, part.states[outside]))
        chains.append(part.chain[inside])
    points = coordinates.of(anchors)
    sizes = np.array([len(part) for part in nodes], dtype=float)
    rows, counts = _merged(np.concatenate(nodes))
    log_weights, log_z = mbar(rows, counts, points, sizes)
    test_rows = np.concatenate(tests)
    covariances = np.stack(
        [np.cov(part, rowvar=False).reshape(2 * part.shape[1:]) for part in tests]
    )
    known = _constant(layout, anchors[0], rng) if constant else NO_CONSTANT
    weights = softmax(rows @ points[0] + log_weights)
    trust = _trust(mean, coordinates, counts, weights, covariances[0]) if len(points) > 1 else 1.0
    return AnchoredRule(
        layout=layout,
        anchors=anchors,
        moments=mean,
        constant=known,
        n_nodes=int(sizes.sum()),
        coordinates=coordinates,
        inflation=_inflation(nodes, chains, points, log_z, covariances[0], rng),
        sampler=draws[0].sampler,
        settled=all(part.settled for part in draws),
        states=draws[0].states[:: max(1, len(draws[0].states) // CHAINS)],
        _rows=rows,
        _log_weights=log_weights,
        _shift=trust * (coordinates.select @ mean.mean - weights @ rows),
        _trust=trust,
        _level=known.value - float(coordinates.tilt @ anchors[0]),
        _test_rows=test_rows,
        _test_log_weights=-logsumexp(test_rows @ points.T + np.log(sizes) - log_z, axis=1),
        _test_covariances=covariances,
    )


def _trust(
    moments: Moments,
    coordinates: Coordinates,
    counts: np.ndarray,
    weights: np.ndarray,
    covariance: np.ndarray,
) -> float:
    """Weight of the mean at the centre against the slope that all anchors give there together.

    Draws at other anchors tell of the slope at the centre too. Each estimate is weighted by the
    inverse of its variance, in directions of unit variance of the statistics.
    """
    if len(moments.batches) < 2:
        return 1.0
    batches = moments.batches @ coordinates.select.T
    spread = (batches - batches.mean(axis=0)) / np.sqrt(len(batches) * (len(batches) - 1.0))
    own = np.sum(spread * np.linalg.lstsq(covariance, spread.T)[0].T) / len(covariance)
    pooled = np.sum(weights**2 / counts)
    return float(pooled / (pooled + own))


def _constant(layout: PottsLayout, theta: np.ndarray, rng: np.random.Generator) -> LogConstant:
    fields, couplings = layout.expand(*layout.unflatten(theta))
    plan = exact_plan(layout)
    if plan is not None:
        return LogConstant(plan.log_partition(fields, couplings), 0.0, "exact", 0.0, 1)
    return log_constant(fields, couplings, layout.edges, rng)


def _split(draws: Draws, n_nodes: int, n_tests: int) -> tuple[np.ndarray, np.ndarray]:
    """Choose nodes and tests from different chains, spread evenly over the draws of each."""
    n_chains = int(draws.chain[-1]) + 1
    last = n_chains - max(1, round(n_chains * n_tests / (n_nodes + n_tests)))
    border = int(np.searchsorted(draws.chain, last))
    inside = np.linspace(0, border - 1, min(n_nodes, border)).round().astype(int)
    left = len(draws.chain) - border
    outside = border + np.linspace(0, left - 1, min(n_tests, left)).round().astype(int)
    return inside, outside


def _reduced(layout: PottsLayout, coordinates: Coordinates, states: np.ndarray) -> np.ndarray:
    """Reduced statistics of draws, in blocks: all statistics at once may not fit in memory."""
    block = max(1, 8_000_000 // max(1, layout.n_parameters))
    return np.concatenate(
        [
            coordinates.rows(layout.statistics(layout.decode(states[first : first + block])))[0]
            for first in range(0, len(states), block)
        ]
    )


def _merged(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Merge equal rows; lattices with few parameters have few distinct ones."""
    if rows.shape[1] > MERGE_LIMIT:
        return rows, np.ones(len(rows))
    distinct, counts = np.unique(rows, axis=0, return_counts=True)
    return distinct, counts.astype(float)


def _inflation(
    nodes: list[np.ndarray],
    chains: list[np.ndarray],
    points: np.ndarray,
    log_z: np.ndarray,
    covariance: np.ndarray,
    rng: np.random.Generator,
) -> float:
    """Variance of changes of log Z, relative to independent draws and known constants.

    Influences of single draws, those through the constants of the anchors included, are summed
    over each chain before they are squared. Checked between the anchors, or where V is a half.
    """
    rows = np.concatenate(nodes)
    anchor = np.repeat(np.arange(len(nodes)), [len(part) for part in nodes])
    group = np.unique(
        anchor * (1 + max(int(part.max()) for part in chains)) + np.concatenate(chains),
        return_inverse=True,
    )[1]
    sizes = np.bincount(anchor).astype(float)
    energies = rows @ points.T
    log_mixture = logsumexp(energies + np.log(sizes) - log_z, axis=1)
    share = np.exp(energies + np.log(sizes) - log_z - log_mixture[:, None])
    bend = np.diag(share.sum(axis=0)) - share.T @ share
    constants = np.zeros_like(share)
    if len(points) > 1:
        centred = share[:, 1:] - (_group_means(share[:, 1:], anchor))[anchor]
        constants[:, 1:] = np.linalg.solve(bend[1:, 1:], centred.T).T
        targets = np.concatenate([points[1:], (points[1:] + points[0]) / 2.0])
    else:
        scale = np.sqrt(np.maximum(np.diag(covariance), 1e-12))
        directions = rng.normal(size=(6, len(scale))) / scale
        lengths = np.einsum("ki,ij,kj->k", directions, covariance, directions)
        targets = points[0] + directions * np.sqrt(V_LIMIT / np.maximum(lengths, 1e-12))[:, None]
    centre = softmax(energies[:, 0] - log_mixture)
    away = rows - centre @ rows
    ratios = []
    for target in targets:
        now = softmax(rows @ target - log_mixture)
        slope = (away @ (target - points[0])) * centre
        simple = now - centre - slope
        # Constants of the anchors move log Z, its value at the centre and the slope there.
        by_constants = now @ share - centre @ share - slope @ share
        full = simple - _group_means(simple[:, None], anchor)[anchor, 0] + constants @ by_constants
        total = np.bincount(group, weights=full)
        ratios.append((total @ total) / max(float(simple @ simple), 1e-300))
    return max(0.5, float(np.mean(ratios)))


def _group_means(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    counts = np.bincount(group)
    sums = np.stack([np.bincount(group, weights=column) for column in values.T], axis=1)
    return sums / counts[:, None]
