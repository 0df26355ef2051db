r"""Fitting Potts and Ising models: the mode of the full posterior, and a Laplace approximation."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pymc_bayessum.arguments import as_generator, integer
from pymc_bayessum.graphs.anchors import AnchoredRule, MomentMethod
from pymc_bayessum.graphs.coordinates import identifiable
from pymc_bayessum.graphs.estimates import numeric_parameters
from pymc_bayessum.graphs.family import PottsFamily
from pymc_bayessum.graphs.pseudo import data_layout, lifted, normal_prior, pseudo_mode
from pymc_bayessum.graphs.samplers import SamplerName
from pymc_bayessum.graphs.statistics import CouplingKind, FieldKind, PottsLayout
from pymc_bayessum.normalizers.anchored.climbing import Data, climb
from pymc_bayessum.progress import progress

__all__ = ["PottsFit", "fit_potts"]


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
    sampler: SamplerName | None = None,
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
    layout, states = data_layout(observed, edges, field_kind, coupling_kind, ising, n_states)
    max_anchors = integer("max_anchors", max_anchors, 1)
    coordinates = identifiable(layout)
    prior, mean, variance = normal_prior(layout, coordinates, prior_mean, prior_sd)
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
    with progress("Fitting", progressbar) as report:
        found = climb(
            PottsFamily(layout, sampler),
            Data(layout.mean_statistics(states), len(states)),
            coordinates,
            prior,
            point,
            n=n,
            rng=as_generator(rng),
            moments=moments,
            n_moments=n_moments,
            max_anchors=max_anchors,
            chains=chains,
            report=report,
            kind=AnchoredRule,
        )
    theta, gain = lifted(coordinates, found.point, mean, variance)
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
