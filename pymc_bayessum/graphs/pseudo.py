r"""The pseudo-likelihood of Potts and Ising models: a fast start, and a baseline."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba import njit
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from pymc_bayessum.graphs.coordinates import identifiable
from pymc_bayessum.graphs.estimates import data_rows, numeric_parameters
from pymc_bayessum.graphs.layouts import as_edges
from pymc_bayessum.graphs.moments import statistics_of_marginals
from pymc_bayessum.graphs.neighbours import local_fields, neighbours
from pymc_bayessum.graphs.statistics import CouplingKind, FieldKind, PottsLayout
from pymc_bayessum.normalizers.anchored.climbing import NormalPrior
from pymc_bayessum.normalizers.coordinates import Coordinates

__all__ = [
    "PseudoLikelihoodFit",
    "data_layout",
    "lifted",
    "normal_prior",
    "pseudo_likelihood",
    "pseudo_mode",
]


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


@njit(cache=True)
def _pseudo_sums(states, fields, start, site, table, edges, sites, pairs):
    """Log pseudo-likelihood, and its derivatives by fields and couplings, summed over rows."""
    n_sites, n_states = fields.shape
    value = 0.0
    rest = np.empty((n_sites, n_states))
    for row in range(len(states)):
        state = states[row]
        local_fields(state, fields, start, site, table, rest)
        for i in range(n_sites):
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
    # As many as fit, and enough of them to see every direction.
    n_draws = max(3 * coordinates.size + 20, min(1000, 4_000_000 // layout.n_sites))
    cumulative = probs.cumsum(axis=1)[:, :-1]
    uniform = rng.random((n_draws, layout.n_sites))
    draws = (uniform[..., None] > cumulative).sum(axis=-1)
    rows, _ = coordinates.rows(layout.statistics(draws))
    spread = np.cov(rows, rowvar=False).reshape(2 * (coordinates.size,))
    return len(states) * spread + prior.precision


def data_layout(
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


def normal_prior(
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


def lifted(
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
    layout, states = data_layout(observed, edges, field_kind, coupling_kind, ising, n_states)
    coordinates = identifiable(layout)
    prior, mean, variance = normal_prior(layout, coordinates, prior_mean, prior_sd)
    point, value, converged = pseudo_mode(layout, states, coordinates, prior)
    theta, _ = lifted(coordinates, point, mean, variance)
    h, J = layout.unflatten(theta)
    return PseudoLikelihoodFit(layout, h, J, theta, value, converged)
