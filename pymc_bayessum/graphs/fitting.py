r"""Fitting Potts and Ising models: pseudo-likelihood, and the mode of the full posterior.

The log-posterior :math:`n (\theta \cdot \bar t - \log Z(\theta)) + \log p(\theta)` is climbed with
an anchored estimate of log Z. Newton steps are taken while the variance V of the log ratio to the
anchor, on draws held out, stays below a half; there a new anchor is set. The last anchor stands so
close to the mode that what its draws add to the error of the mode is small beside the posterior sd.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba import njit
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize

from pymc_bayessum.arguments import as_generator, integer
from pymc_bayessum.graphs.anchor_draws import MomentMethod, SamplerChoice
from pymc_bayessum.graphs.anchors import AnchoredRule, anchored_rule_at
from pymc_bayessum.graphs.coordinates import Coordinates, identifiable
from pymc_bayessum.graphs.estimates import V_LIMIT, data_rows, numeric_parameters
from pymc_bayessum.graphs.layouts import as_edges
from pymc_bayessum.graphs.moments import neighbours, statistics_of_marginals
from pymc_bayessum.graphs.statistics import CouplingKind, FieldKind, PottsLayout

__all__ = [
    "NormalPrior",
    "PottsFit",
    "PseudoLikelihoodFit",
    "climb",
    "fit_potts",
    "progress",
    "pseudo_likelihood",
    "pseudo_mode",
]

#: Error of the mode, in posterior sds, that draws at the last anchor may add.
MODE_TOLERANCE = 0.03
#: Statistics that vary by less than so many occurrences among the draws are not well seen,
RARE_COUNT = 20.0
#: and their parameters may move by so much from an anchor.
RARE_STEP = 2.0
#: Most draws for the mean of the statistics at an anchor.
MOST_MOMENTS = 400_000

Reporter = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class NormalPrior:
    """Independent normal prior on the coordinates' parameters, or any normal on coordinates.

    Attributes
    ----------
    mean : ndarray, shape (r,)
    precision : ndarray, shape (r, r)
    """

    mean: np.ndarray
    precision: np.ndarray

    def log_density(self, point: np.ndarray) -> float:
        """Log density at coordinates, up to a constant."""
        away = point - self.mean
        return -0.5 * float(away @ self.precision @ away)


@dataclass(frozen=True, eq=False)
class PseudoLikelihoodFit:
    """Mode of the pseudo-likelihood times the prior; see :func:`pseudo_likelihood`.

    Attributes
    ----------
    layout : PottsLayout
    h, J : ndarray
        In the layout's shapes (0.0 where absent).
    theta : ndarray, shape (d,)
    log_pseudo_likelihood : float
        Sum over rows and sites of the log conditional probability, without the prior.
    converged : bool
    """

    layout: PottsLayout
    h: Any
    J: Any
    theta: np.ndarray = field(repr=False)
    log_pseudo_likelihood: float
    converged: bool


@dataclass(frozen=True, eq=False)
class PottsFit:
    """Mode of the posterior with the full likelihood; see :func:`fit_potts`.

    Attributes
    ----------
    layout : PottsLayout
    h, J : ndarray
        The mode, in the layout's shapes (0.0 where absent).
    theta : ndarray, shape (d,)
    covariance : ndarray, shape (d, d)
        Of the Laplace approximation at the mode, corrected for the noise of a curvature that is
        itself estimated from draws. Directions that do not change the model keep their prior
        variance.
    rule : AnchoredRule
        The last one, anchored at (or next to) the mode.
    history : list of dict
        One entry for each anchor: where it stood, how far it reached, and the time it took.
    converged : bool
    mode_error : float
        Predicted error of the mode in posterior sds (root mean square over directions) that is due
        to draws.
    n_rows : int

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_bayessum as pbs
    >>> x = np.random.default_rng(0).choice([-1, 1], size=(200, 4))
    >>> fit = pbs.fit_potts(x, pbs.graphs.chain(4), field_kind="scalar", coupling_kind="scalar",
    ...                     ising=True, rng=0, progressbar=False)
    >>> h_sd, J_sd = fit.sd
    >>> bool(abs(fit.J) < 4.0 * J_sd)
    True
    """

    layout: PottsLayout
    h: Any
    J: Any
    theta: np.ndarray = field(repr=False)
    covariance: np.ndarray = field(repr=False)
    rule: AnchoredRule = field(repr=False)
    history: list[dict[str, Any]] = field(repr=False)
    converged: bool
    mode_error: float
    n_rows: int

    @property
    def sd(self) -> tuple[Any, Any]:
        """Posterior standard deviations of h and J, in their shapes."""
        return self.layout.unflatten(np.sqrt(np.diag(self.covariance)))

    @property
    def normalizer(self) -> AnchoredRule:
        """The last rule, ready to be passed to ``pbs.Potts(..., normalizer=)`` and sampled.

        Raises
        ------
        ValueError
            With fewer draws than five times the parameters: NUTS needs the curvature.
        """
        self.rule.require_curvature()
        return self.rule

    @property
    def advice(self) -> str:
        """How many draws the curvature needs, beside how many there are."""
        n_nodes, size = self.rule.n_nodes, self.rule.n_parameters
        ratio = n_nodes / max(1, size)
        # The inverse of a covariance estimated from N draws in r dimensions is N / (N - r) too big.
        excess = np.sqrt(ratio / (ratio - 1.0)) - 1.0 if ratio > 1.0 else np.inf
        needed = f"NUTS needs {5 * size} at least: fit with n={10 * size}"
        verdict = "enough for NUTS" if ratio >= 5.0 else needed
        return (
            f"{n_nodes} draws for {size} identifiable parameters ({verdict}). Posterior sds with "
            f"this rule come out some {100 * excess:.0f}% too wide, more where states are rare; "
            f"{10 * size} draws keep that within 7%"
        )


@njit(cache=True)
def _pseudo_sums(states, fields, start, site, table, edges, sites, pairs):
    """Log pseudo-likelihood, and its derivatives by fields and couplings, summed over rows."""
    n_sites, n_states = fields.shape
    value = 0.0
    rest = np.empty((n_sites, n_states))
    for row in range(len(states)):
        state = states[row]
        for i in range(n_sites):
            for a in range(n_states):
                rest[i, a] = fields[i, a]
            for k in range(start[i], start[i + 1]):
                b = state[site[k]]
                for a in range(n_states):
                    rest[i, a] += table[k, b, a]
            peak = rest[i].max()
            total = 0.0
            for a in range(n_states):
                total += np.exp(rest[i, a] - peak)
            level = peak + np.log(total)
            value += rest[i, state[i]] - level
            for a in range(n_states):
                rest[i, a] = -np.exp(rest[i, a] - level)
            rest[i, state[i]] += 1.0
            for a in range(n_states):
                sites[i, a] += rest[i, a]
        for e in range(len(edges)):
            i, j = edges[e, 0], edges[e, 1]
            for a in range(n_states):
                pairs[e, a, state[j]] += rest[i, a]
                pairs[e, state[i], a] += rest[j, a]
    return value


def pseudo_mode(
    layout: PottsLayout,
    states: np.ndarray,
    coordinates: Coordinates,
    prior: NormalPrior,
    start: np.ndarray | None = None,
) -> tuple[np.ndarray, float, bool]:
    """Maximise the pseudo-likelihood times a normal prior over coordinates.

    Parameters
    ----------
    layout : PottsLayout
    states : ndarray of int, shape (n, L)
        Rows with states 0 .. S-1.
    coordinates : Coordinates
    prior : NormalPrior
    start : ndarray, shape (r,), optional

    Returns
    -------
    point : ndarray, shape (r,)
    log_pseudo_likelihood : float
    converged : bool
    """
    states = np.ascontiguousarray(states, dtype=np.int64)

    def value_and_slope(point: np.ndarray) -> tuple[float, np.ndarray]:
        fields, couplings = layout.expand(*layout.unflatten(coordinates.parameters(point)))
        fields = np.ascontiguousarray(fields)
        around = neighbours(np.ascontiguousarray(couplings), layout.edges, layout.n_sites)
        sites, pairs = np.zeros(fields.shape), np.zeros(couplings.shape)
        value = _pseudo_sums(
            states, fields, around.start, around.site, around.table, layout.edges, sites, pairs
        )
        slope = coordinates.lift.T @ statistics_of_marginals(layout, sites, pairs)
        slope -= prior.precision @ (point - prior.mean)
        return -(value + prior.log_density(point)) / len(states), -slope / len(states)

    # In coordinates in which the curvature is near one everywhere few steps are needed.
    scale = np.linalg.cholesky(_rough_curvature(layout, states, coordinates, prior) / len(states))
    first = prior.mean if start is None else start

    def scaled(point: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = value_and_slope(solve_triangular(scale, point, lower=True, trans="T"))
        return value, solve_triangular(scale, slope, lower=True)

    found = minimize(
        scaled,
        scale.T @ first,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 1000, "ftol": 1e-14, "gtol": 1e-8},
    )
    point = solve_triangular(scale, found.x, lower=True, trans="T")
    value = -float(found.fun) * len(states) - prior.log_density(point)
    # The search may end at the limit of rounding and call that abnormal: judge by the slope.
    return point, value, bool(np.abs(np.asarray(found.jac, dtype=float)).max() < 1e-4)


def _rough_curvature(
    layout: PottsLayout, states: np.ndarray, coordinates: Coordinates, prior: NormalPrior
) -> np.ndarray:
    """Curvature as if sites were independent, each with its frequencies in the data."""
    rng = np.random.default_rng(0)
    counts = np.stack([(states == a).sum(axis=0) for a in range(layout.n_states)], axis=1)
    pooled = counts.sum(axis=0) / counts.sum()
    probs = (counts + 2.0 * pooled + 0.5) / (len(states) + 2.0 + 0.5 * layout.n_states)
    n_draws = max(1000, 3 * coordinates.size)
    cumulative = probs.cumsum(axis=1)[:, :-1]
    uniform = rng.random((n_draws, layout.n_sites))
    draws = (uniform[..., None] > cumulative).sum(axis=-1)
    rows, _ = coordinates.rows(layout.statistics(layout.decode(draws)))
    spread = np.cov(rows, rowvar=False).reshape(2 * (coordinates.size,))
    return len(states) * spread + prior.precision


def _layout_of(
    observed: Any,
    edges: Any,
    field_kind: FieldKind | None,
    coupling_kind: CouplingKind | None,
    ising: bool,
    n_states: int | None,
) -> tuple[PottsLayout, np.ndarray]:
    """Layout of a model to be fitted, and its data with states 0 .. S-1."""
    rows = np.asarray(observed)
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"observed must have shape (n, L), got {rows.shape}")
    if n_states is None:
        n_states = 2 if ising else max(2, int(rows.max()) + 1)
    pairs = as_edges(edges, rows.shape[1])
    fields = field_kind or "full"
    couplings = coupling_kind or ("edge" if ising else "full")
    if not len(pairs):
        couplings = "none"
    layout = PottsLayout(rows.shape[1], n_states, pairs, fields, couplings, spins=ising)
    return layout, layout.encode(data_rows(layout, rows))


def _normal_prior(
    layout: PottsLayout, coordinates: Coordinates, prior_mean: Any, prior_sd: Any
) -> tuple[NormalPrior, np.ndarray, np.ndarray]:
    """Prior on coordinates from independent normals on h and J; their mean and variances too."""
    spread = []
    for name, pair in (("prior_mean", prior_mean), ("prior_sd", prior_sd)):
        h, J = pair if isinstance(pair, tuple) else (pair, pair)
        try:
            h = np.broadcast_to(np.asarray(h, dtype=float), layout.field_shape)
            J = np.broadcast_to(np.asarray(J, dtype=float), layout.coupling_shape)
        except ValueError:
            raise ValueError(
                f"{name} must be a number, or a pair for h and J that broadcasts to "
                f"{layout.field_shape} and {layout.coupling_shape}"
            ) from None
        spread.append(numeric_parameters(layout, h, J))
    mean, sd = spread
    if not (np.isfinite(sd).all() and (sd > 0.0).all() and np.isfinite(mean).all()):
        raise ValueError("prior_sd must be positive and finite, and prior_mean finite")
    variance = sd**2
    covariance = (coordinates.read * variance) @ coordinates.read.T
    return NormalPrior(coordinates.of(mean), np.linalg.inv(covariance)), mean, variance


def _lifted(
    coordinates: Coordinates, point: np.ndarray, mean: np.ndarray, variance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Most probable parameters with given coordinates under the prior, and the map to them."""
    covariance = (coordinates.read * variance) @ coordinates.read.T
    gain = np.linalg.solve(covariance, coordinates.read * variance).T
    return mean + gain @ (point - coordinates.of(mean)), gain


def pseudo_likelihood(
    observed: Any,
    edges: Any,
    *,
    field_kind: FieldKind | None = None,
    coupling_kind: CouplingKind | None = None,
    ising: bool = False,
    n_states: int | None = None,
    prior_mean: Any = 0.0,
    prior_sd: Any = 1.0,
) -> PseudoLikelihoodFit:
    r"""Fit a Potts or Ising model by pseudo-likelihood: a fast start, and a baseline.

    .. math:: \sum_{\text{rows}} \sum_i \log p(x_i \mid x_{-i}; h, J) + \log p(h, J)

    needs no normalising constant (Besag, 1975). The mode is consistent; sds read off its curvature
    are too small, as the conditionals of neighbours share data.

    Parameters
    ----------
    observed : array_like of int, shape (n, L)
        Rows of states 0 .. S-1, or spins.
    edges : array_like of int, shape (E, 2), or networkx.Graph
    field_kind : {"full", "shared", "scalar", "none"}, optional
        ``h`` of shape (L, S) (or (L,) spins), (S,), one number (spins only) or absent; full by
        default.
    coupling_kind : {"full", "shared", "edge", "scalar"}, optional
        ``J`` of shape (E, S, S), (S, S), (E,) or one number; full by default, edge for spins.
    ising : bool
        Spins -1/+1.
    n_states : int, optional
        By default one more than the largest state seen.
    prior_mean, prior_sd : float, or pair for h and J
        Independent normal priors; numbers or arrays that broadcast to the shapes of h and J.

    Returns
    -------
    PseudoLikelihoodFit

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_bayessum as pbs
    >>> x = np.random.default_rng(0).choice(2, p=[0.3, 0.7], size=(2000, 3))
    >>> fit = pbs.pseudo_likelihood(x, pbs.graphs.chain(3), field_kind="shared",
    ...                             coupling_kind="scalar")
    >>> bool(abs(fit.h[1] - fit.h[0] - np.log(7 / 3)) < 0.2), bool(abs(fit.J) < 0.2)
    (True, True)
    """
    layout, states = _layout_of(observed, edges, field_kind, coupling_kind, ising, n_states)
    coordinates = identifiable(layout)
    prior, mean, variance = _normal_prior(layout, coordinates, prior_mean, prior_sd)
    point, value, converged = pseudo_mode(layout, states, coordinates, prior)
    theta, _ = _lifted(coordinates, point, mean, variance)
    h, J = layout.unflatten(theta)
    return PseudoLikelihoodFit(layout, h, J, theta, value, converged)


@dataclass(frozen=True, eq=False)
class Climb:
    """Where a climb ended.

    Attributes
    ----------
    point : ndarray, shape (r,)
    curvature : ndarray, shape (r, r)
        Minus the Hessian of the log-posterior, its noise corrected.
    rule : AnchoredRule
    history : list of dict
    converged : bool
    mode_error : float
    """

    point: np.ndarray
    curvature: np.ndarray
    rule: AnchoredRule
    history: list[dict[str, Any]]
    converged: bool
    mode_error: float


def climb(
    layout: PottsLayout,
    states: np.ndarray,
    coordinates: Coordinates,
    prior: NormalPrior,
    start: np.ndarray,
    *,
    n: int,
    rng: np.random.Generator,
    moments: MomentMethod | None = None,
    n_moments: int | None = None,
    sampler: SamplerChoice | None = None,
    max_anchors: int = 20,
    chains: np.ndarray | None = None,
    report: Reporter | None = None,
) -> Climb:
    """Climb to the mode of the posterior, setting anchors on the way.

    Parameters
    ----------
    layout : PottsLayout
    states : ndarray of int, shape (n_rows, L)
        Data with states 0 .. S-1.
    coordinates : Coordinates
    prior : NormalPrior
    start : ndarray, shape (r,)
        Coordinates of the first anchor.
    n : int
        Draws at each anchor.
    rng : numpy.random.Generator
    moments, n_moments, sampler
        As for :func:`~pymc_bayessum.anchored_rule`.
    max_anchors : int
    chains : ndarray of int, shape (C, L), optional
        First states of the chains of the first anchor.
    report : callable, optional
        Told what goes on.

    Returns
    -------
    Climb
    """
    n_rows = len(states)
    target = coordinates.select @ layout.mean_statistics(layout.decode(states))
    point = np.array(start, dtype=float)
    history: list[dict[str, Any]] = []
    adaptive = n_moments is None and moments in (None, "rao-blackwell")
    most = min(MOST_MOMENTS, 50_000_000 // layout.n_sites)
    if n_moments is None:
        n_moments = int(np.clip(50 * n_rows, 20_000, most))
    while True:
        began = time.perf_counter()
        rule = anchored_rule_at(
            layout,
            coordinates.parameters(point)[None],
            n=n,
            rng=rng,
            moments=moments,
            n_moments=n_moments,
            sampler=sampler,
            constant=False,
            coordinates=coordinates,
            start=chains,
        )
        chains = rule.states
        point, curvature, inside = _newton(rule, target, n_rows, prior)
        v = float(rule.variances(coordinates.parameters(point))[0])
        walked = float(np.sqrt(rule.inflation * v * n_rows / rule.n_nodes))
        noise = _mean_noise(rule, n_rows, curvature)
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
        near = inside and walked <= max(MODE_TOLERANCE, noise)
        more = n_moments * int(np.ceil((noise / MODE_TOLERANCE) ** 2))
        if near and noise > MODE_TOLERANCE and adaptive and n_moments < most:
            near = False
            n_moments = min(most, more)
        if near or len(history) >= max_anchors:
            break
    return Climb(point, curvature, rule, history, bool(near), error)


def _newton(
    rule: AnchoredRule, target: np.ndarray, n_rows: int, prior: NormalPrior
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Maximise the log-posterior within reach of the rule; whether the mode lies inside."""
    coordinates = rule.coordinates
    anchor = coordinates.of(rule.centre)
    # Directions chosen from the draws of the rule are judged by those held out, and by the rule's
    # own where those held out are too few to see them.
    covariances = rule._test_covariances[0], rule.mean_and_covariance(anchor)[1]
    size = len(anchor)
    # What hardly any draw shows has no curvature to stop a step: e^d times a tiny probability.
    rare = np.diag(covariances[1]) < RARE_COUNT / rule.n_nodes
    # The mean of an inverse covariance of N draws in r dimensions is (N - 1) / (N - r - 2) of the
    # inverse (Hartlap, Simon and Schneider, 2007); the curvature reported is corrected by it, and
    # so are the steps: without, few draws overshoot. At the anchor itself the term vanishes.
    brake = (_correction(rule.n_nodes, size) - 1.0) * n_rows * covariances[1]
    # Below three draws a direction some directions have next to no curvature by chance alone.
    scarce = max(0.0, 1.0 - rule.n_nodes / (3.0 * size))
    brake[np.diag_indices(size)] += scarce * n_rows * np.diag(covariances[1])

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
        length = min(_longest(point - anchor, step, covariance) for covariance in covariances)
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
    effective = 1.0 / np.square(rule.node_weights(point)).sum()
    return point, _correction(effective, size) * n_rows * spread + prior.precision, inside


def _correction(n_draws: float, size: int) -> float:
    return (n_draws - 1.0) / max(1.0, n_draws - size - 2.0)


def _longest(away: np.ndarray, step: np.ndarray, covariance: np.ndarray) -> float:
    """Largest multiple of a step that keeps V, a quadratic form, within its limit."""
    a = float(step @ covariance @ step)
    b = float(away @ covariance @ step)
    c = float(away @ covariance @ away) - V_LIMIT
    if a <= 0.0:
        return np.inf
    return (-b + np.sqrt(max(0.0, b * b - a * c))) / a


def _longest_rare(away: np.ndarray, step: np.ndarray) -> float:
    """Largest multiple of a step that keeps every coordinate within its limit for rare events."""
    room = np.where(step > 0.0, RARE_STEP - away, RARE_STEP + away)
    with np.errstate(divide="ignore"):
        return float(np.max([0.0, np.min(room / np.abs(step))]))


def _mean_noise(rule: AnchoredRule, n_rows: int, curvature: np.ndarray) -> float:
    """Error of the mode due to the mean at the anchor, in posterior sds, rms over directions."""
    batches = rule.moments.batches @ rule.coordinates.select.T
    if len(batches) < 2:
        return 0.0
    spread = (batches - batches.mean(axis=0)) / np.sqrt(len(batches) * (len(batches) - 1.0))
    # A shift s of the mean moves the mode by n C^-1 s: in posterior sds, squared, n^2 s'C^-1 s.
    moved = n_rows**2 * np.sum(spread * np.linalg.solve(curvature, spread.T).T)
    return float(np.sqrt(moved / max(1, spread.shape[1])))


def fit_potts(
    observed: Any,
    edges: Any,
    *,
    field_kind: FieldKind | None = None,
    coupling_kind: CouplingKind | None = None,
    ising: bool = False,
    n_states: int | None = None,
    prior_mean: Any = 0.0,
    prior_sd: Any = 1.0,
    start: tuple[Any, Any] | None = None,
    n: int | None = None,
    moments: MomentMethod | None = None,
    n_moments: int | None = None,
    sampler: SamplerChoice | None = None,
    max_anchors: int = 20,
    resume: PottsFit | None = None,
    rng: Any = None,
    progressbar: bool = True,
) -> PottsFit:
    r"""Posterior mode and Laplace approximation of a Potts or Ising model, full likelihood.

    Maximises :math:`n (\theta \cdot \bar t - \log \hat Z(\theta)) + \log p(\theta)` with anchored
    estimates of log Z (see :func:`~pymc_bayessum.anchored_rule`), a new anchor whenever V on
    held-out draws passes 0.5, the last one next to the mode.

    Parameters
    ----------
    observed : array_like of int, shape (n, L)
        Rows of states 0 .. S-1, or spins.
    edges : array_like of int, shape (E, 2), or networkx.Graph
    field_kind, coupling_kind, ising, n_states, prior_mean, prior_sd
        The model, as for :func:`pseudo_likelihood`.
    start : pair (h, J), optional
        First anchor; the mode of the pseudo-likelihood by default.
    n : int, optional
        Draws at each anchor; by default ten times the identifiable parameters (posterior sds then
        come out within 7%) and at least 5000.
    moments, n_moments, sampler
        How the mean of the statistics at an anchor is estimated and draws are made, as for
        :func:`~pymc_bayessum.anchored_rule`. ``n_moments`` is fifty times the rows by default,
        between 20 000 and 400 000.
    max_anchors : int
        Stop after so many; ``fit.converged`` is then False and the fit can be resumed.
    resume : PottsFit, optional
        Go on where this fit ended, with its history.
    rng : None, int or numpy.random.Generator
    progressbar : bool

    Returns
    -------
    PottsFit
        ``fit.normalizer`` is the last rule, ready for ``pm.sample``; ``fit.advice`` says whether it
        has draws enough.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_bayessum as pbs
    >>> x = np.random.default_rng(0).choice(2, p=[0.3, 0.7], size=(500, 4))
    >>> fit = pbs.fit_potts(x, pbs.graphs.ring(4), field_kind="shared", coupling_kind="scalar",
    ...                     rng=0, progressbar=False)
    >>> fit.converged, fit.covariance.shape, bool(abs(fit.J) < 0.3)
    (True, (3, 3), True)
    """
    layout, states = _layout_of(observed, edges, field_kind, coupling_kind, ising, n_states)
    max_anchors = integer("max_anchors", max_anchors, 1)
    coordinates = identifiable(layout)
    prior, mean, variance = _normal_prior(layout, coordinates, prior_mean, prior_sd)
    chains = None
    if resume is not None:
        if not isinstance(resume, PottsFit):
            raise TypeError(f"resume must be a PottsFit, as fit_potts returns, got {resume!r}")
        if resume.layout != layout:
            raise ValueError("resume was fitted to another model or graph")
        point, chains = coordinates.of(resume.theta), resume.rule.states
    elif start is not None:
        point = coordinates.of(numeric_parameters(layout, *start))
    else:
        point, _, _ = pseudo_mode(layout, states, coordinates, prior)
    n = max(5000, 10 * coordinates.size) if n is None else integer("n", n, 40)
    with progress("Fitting", max_anchors, progressbar) as report:
        found = climb(
            layout,
            states,
            coordinates,
            prior,
            point,
            n=n,
            rng=as_generator(rng),
            moments=moments,
            n_moments=n_moments,
            sampler=sampler,
            max_anchors=max_anchors,
            chains=chains,
            report=report,
        )
    theta, gain = _lifted(coordinates, found.point, mean, variance)
    inner = np.linalg.inv(found.curvature)
    free = np.diag(variance) - gain @ (coordinates.read * variance)
    h, J = layout.unflatten(theta)
    return PottsFit(
        layout=layout,
        h=h,
        J=J,
        theta=theta,
        covariance=gain @ inner @ gain.T + free,
        rule=found.rule,
        history=[*(resume.history if resume is not None else []), *found.history],
        converged=found.converged,
        mode_error=found.mode_error,
        n_rows=len(states),
    )


@contextmanager
def progress(title: str, total: int, shown: bool) -> Iterator[Reporter]:
    """Show a progress bar while anchors are built; yields a function to be told what goes on."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[news]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, disable=not shown, transient=False) as bar:
        task = bar.add_task(title, total=total, news="")

        def report(news: str) -> None:
            bar.update(task, advance=1, news=news)

        yield report
        bar.update(task, completed=total)
