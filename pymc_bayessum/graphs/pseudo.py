r"""The pseudo-likelihood of Potts and Ising models: a fast start, and a baseline."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from pymc_bayessum.arguments import reals
from pymc_bayessum.graphs.centring import centring
from pymc_bayessum.graphs.conditional_sums import conditional_sums, counts
from pymc_bayessum.graphs.estimates import data_rows, numeric_parameters
from pymc_bayessum.graphs.fitted import FittedPotts
from pymc_bayessum.graphs.layouts import as_edges
from pymc_bayessum.graphs.moments import statistics_of_marginals
from pymc_bayessum.graphs.statistics import CouplingKind, FieldKind, PottsLayout
from pymc_bayessum.normalizers.anchored.climbing import NormalPrior
from pymc_bayessum.normalizers.coordinates import Coordinates

__all__ = [
    "PseudoLikelihoodFit",
    "PseudoTarget",
    "data_layout",
    "mode_of_parameters",
    "normal_prior",
    "parameter_prior",
    "pseudo_likelihood",
    "pseudo_mode",
    "row_weights",
]


@dataclass(frozen=True, eq=False)
class PseudoLikelihoodFit(FittedPotts):
    """Mode of the pseudo-likelihood times the prior; see :func:`pseudo_likelihood`.

    Attributes
    ----------
    layout : PottsLayout
    h, J : ndarray
        In the layout's shapes (0.0 where absent).
    theta : ndarray, shape (d,)
    log_pseudo_likelihood : float
        Weighted sum over rows and sites of the log conditional probability, without the prior.
    converged : bool

    Examples
    --------
    >>> import pymc_bayessum as pbs
    >>> fit = pbs.pseudo_likelihood([[0, 1], [1, 1]], pbs.graphs.chain(2))
    >>> fit.converged, fit.J.shape
    (True, (1, 2, 2))
    """

    log_pseudo_likelihood: float
    converged: bool


class PseudoTarget:
    """Minus the log pseudo-likelihood of weighted rows, an average over them, with its slope."""

    def __init__(self, layout: PottsLayout, states: np.ndarray, weights: np.ndarray):
        self.layout, self.weights, self.n_rows = layout, weights, float(weights.sum())
        small = np.int16 if layout.n_states <= np.iinfo(np.int16).max else np.int64
        self.states = np.ascontiguousarray(states, dtype=small)
        self.sites, self.pairs = counts(self.states, weights, layout.edges, layout.n_states)

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the value and the slope by theta."""
        layout = self.layout
        fields, couplings = layout.expand(*layout.unflatten(theta))
        sums = conditional_sums(self.states, self.weights, fields, couplings, layout.edges)
        sites, pairs = self.sites - sums.sites, 2.0 * self.pairs - sums.pairs
        slope = statistics_of_marginals(layout, sites, pairs)
        return -sums.log_prob / self.n_rows, -slope / self.n_rows


def _search(
    function: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    ftol: float,
    gtol: float,
    most: int = 1000,
) -> Any:
    """Minimise by L-BFGS; the search may end at the limit of rounding and call that abnormal."""
    return minimize(
        function,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": most, "ftol": ftol, "gtol": gtol},
    )


def _is_flat(slope: Any, limit: float) -> bool:
    return bool(np.abs(np.asarray(slope, dtype=float)).max(initial=0.0) < limit)


def pseudo_mode(
    target: PseudoTarget, coordinates: Coordinates, prior: NormalPrior
) -> tuple[np.ndarray, float, bool]:
    """Maximise the pseudo-likelihood times a normal prior over coordinates.

    Returns the mode (r,), its log pseudo-likelihood, and whether the search converged.
    """
    n_rows = target.n_rows

    def value_and_slope(point: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = target(coordinates.parameters(point))
        pull = prior.precision @ (point - prior.mean)
        return value - prior.log_density(point) / n_rows, coordinates.lift.T @ slope + pull / n_rows

    # In coordinates in which the curvature is near one everywhere few steps are needed.
    scale = np.linalg.cholesky(_rough_curvature(target, coordinates, prior) / n_rows)

    def scaled(point: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = value_and_slope(solve_triangular(scale, point, lower=True, trans="T"))
        return value, solve_triangular(scale, slope, lower=True)

    found = _search(scaled, scale.T @ prior.mean, ftol=1e-14, gtol=1e-8)
    point = solve_triangular(scale, found.x, lower=True, trans="T")
    value = -float(found.fun) * n_rows - prior.log_density(point)
    return point, value, _is_flat(found.jac, 1e-4)


def mode_of_parameters(
    target: PseudoTarget, mean: np.ndarray, variance: np.ndarray, most: int = 1000
) -> tuple[np.ndarray, float, bool]:
    """Maximise the pseudo-likelihood times independent normals without a matrix of parameters.

    Returns the mode (d,) after ``most`` steps at most, its log pseudo-likelihood, and whether the
    search converged.
    """
    n_rows = target.n_rows
    frequencies = target.sites / n_rows, target.pairs / n_rows
    scaled = centring(target.layout, *frequencies, n_rows, 1.0 / variance)

    def value_and_slope(u: np.ndarray) -> tuple[float, np.ndarray]:
        away = scaled.lift(u)
        value, slope = target(mean + away)
        pull = away / variance
        return n_rows * value + 0.5 * float(away @ pull), scaled.drop(n_rows * slope + pull)

    # In u a slope of one is a posterior sd away from the mode, and the value a sum over parameters.
    ftol = 1e-14 * max(1.0, len(mean) / 100.0)
    found = _search(value_and_slope, np.zeros(scaled.size), ftol, gtol=1e-6, most=most)
    theta = mean + scaled.lift(found.x)
    return theta, -n_rows * target(theta)[0], _is_flat(found.jac, 0.1)


def _rough_curvature(
    target: PseudoTarget, coordinates: Coordinates, prior: NormalPrior
) -> np.ndarray:
    """Curvature as if sites were independent, each with its frequencies in the data."""
    layout, rng = target.layout, np.random.default_rng(0)
    pooled = target.sites.sum(axis=0) / target.sites.sum()
    probs = (target.sites + 2.0 * pooled + 0.5) / (target.n_rows + 2.0 + 0.5 * layout.n_states)
    # As many as fit, and enough of them to see every direction.
    n_draws = max(3 * coordinates.size + 20, min(1000, 4_000_000 // layout.n_sites))
    cumulative = probs.cumsum(axis=1)[:, :-1]
    uniform = rng.random((n_draws, layout.n_sites))
    draws = (uniform[..., None] > cumulative).sum(axis=-1)
    rows, _ = coordinates.rows(layout.statistics(draws))
    spread = np.cov(rows, rowvar=False).reshape(2 * (coordinates.size,))
    return target.n_rows * spread + prior.precision


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


def row_weights(weights: Any, n_rows: int) -> np.ndarray:
    """Check the weights of rows, one each by default; shape (n,)."""
    if weights is None:
        return np.ones(n_rows)
    values = reals("weights", weights, 1)
    if len(values) != n_rows:
        raise ValueError(
            f"weights must have one number for each of {n_rows} rows, got {len(values)}"
        )
    if (values < 0.0).any() or not values.any():
        raise ValueError("weights must not be negative, nor all of them zero")
    return values


def parameter_prior(
    layout: PottsLayout, prior_mean: Any, prior_sd: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances, (d,) each, of independent normals on h and J."""
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
    return mean, sd**2


def normal_prior(
    coordinates: Coordinates, mean: np.ndarray, variance: np.ndarray
) -> tuple[NormalPrior, np.ndarray]:
    """Prior on coordinates from independent normals on parameters, and the gain (d, r).

    The most probable parameters with given coordinates are ``mean + gain @ (c - prior.mean)``.
    """
    covariance = (coordinates.read * variance) @ coordinates.read.T
    gain = np.linalg.solve(covariance, coordinates.read * variance).T
    return NormalPrior(coordinates.of(mean), np.linalg.inv(covariance)), gain


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
    weights: Any = None,
) -> PseudoLikelihoodFit:
    r"""Fit a Potts or Ising model by pseudo-likelihood: a fast start, and a baseline.

    .. math:: \sum_{\text{rows}} \sum_i \log p(x_i \mid x_{-i}; h, J) + \log p(h, J)

    needs no normalising constant (Besag, 1975). The mode is consistent; sds read off its curvature
    are too small, as the conditionals of neighbours share data.

    Sites are taken one after the other, and no matrix is longer than the couplings: a hundred sites
    of 21 states (two million couplings) are a matter of minutes.

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
    weights : array_like, shape (n,), optional
        How often each row counts, as those of :func:`~pymc_bayessum.sequence_weights`; once by
        default.

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
    mean, variance = parameter_prior(layout, prior_mean, prior_sd)
    target = PseudoTarget(layout, states, row_weights(weights, len(states)))
    theta, value, converged = mode_of_parameters(target, mean, variance)
    return PseudoLikelihoodFit(layout, *layout.unflatten(theta), theta, value, converged)
