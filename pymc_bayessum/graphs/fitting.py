r"""Fitting Potts and Ising models: the mode of the full posterior, and a Laplace approximation.

Where a matrix over all parameters is affordable the mode is found with anchors, which tell the
curvature too. Beyond, chains that go on while parameters move find the mode alone.
"""

import copy
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from pymc_bayessum.arguments import as_generator, integer, real
from pymc_bayessum.graphs.anchors import AnchoredRule, MomentMethod
from pymc_bayessum.graphs.chain_climbing import ChainClimb, Posterior, climb_by_chains, look
from pymc_bayessum.graphs.coordinates import identifiable
from pymc_bayessum.graphs.estimates import numeric_parameters
from pymc_bayessum.graphs.family import PottsFamily
from pymc_bayessum.graphs.fitted import FittedPotts
from pymc_bayessum.graphs.pseudo import (
    PseudoTarget,
    data_layout,
    mode_of_parameters,
    normal_prior,
    parameter_prior,
    pseudo_mode,
    row_weights,
)
from pymc_bayessum.graphs.samplers import GraphChain, SamplerName
from pymc_bayessum.graphs.statistics import CouplingKind, FieldKind, PottsLayout
from pymc_bayessum.interrupts import Interrupted
from pymc_bayessum.normalizers.anchored.climbing import Data, climb
from pymc_bayessum.progress import progress

__all__ = ["PottsFit", "StochasticPottsFit", "fit_potts"]

#: Most parameters whose covariance is found, unless asked for.
LARGEST_ANCHORED = 4000
#: Size of the first stochastic steps; one is that of Newton's method where sites are independent.
FIRST_STEP = 0.1
#: Steps up the pseudo-likelihood before those up the likelihood.
START_STEPS = 50
#: Sweeps of new chains before the first step.
BURN_IN = 100
#: What an interrupt says.
SO_FAR = "the fit so far is on this exception as .partial, for resume="

FitMethod = Literal["anchored", "stochastic"]


@dataclass(frozen=True, eq=False)
class PottsFit(FittedPotts):
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
    n_rows : float
        Their number, or the sum of their weights.

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

    covariance: np.ndarray = field(repr=False)
    rule: AnchoredRule = field(repr=False)
    history: list[dict[str, Any]] = field(repr=False)
    converged: bool
    mode_error: float
    n_rows: float

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


@dataclass(frozen=True, eq=False)
class StochasticPottsFit(FittedPotts):
    """Mode of the posterior with the full likelihood, found by chains; see :func:`fit_potts`.

    Attributes
    ----------
    layout : PottsLayout
    h, J : ndarray
        The mode, in the layout's shapes (0.0 where absent).
    theta : ndarray, shape (d,)
    chains : ndarray of int, shape (M, L)
        Where the chains are: draws of the fitted model, states 0 .. S-1.
    pearson : float
        Correlation between data and model of the connected statistics of all edges.
    mode_error : float
        The slope left at the mode, in posterior sds (root mean square over parameters).
    converged : bool
        Whether that is below 0.1, and chains that started from the data agree with others.
    history : list of dict
        One entry for each round of steps: their size, what is left of the slope, the correlation,
        by how many errors chains from data and others disagree, seconds.
    n_rows : float
        The sum of the weights.
    step : float
        Size of the steps with which a resumed fit goes on.
    rng : numpy.random.Generator
        As the fit left it: a resumed fit goes on as if it had never stopped.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_bayessum as pbs
    >>> x = np.random.default_rng(0).integers(0, 3, size=(200, 4))
    >>> x[:, 1] = x[:, 0]
    >>> fit = pbs.fit_potts(x, pbs.graphs.complete(4), method="stochastic", n_chains=200, rng=0,
    ...                     progressbar=False)
    >>> fit.layout.edges[np.argmax(fit.contact_scores())].tolist()
    [0, 1]
    """

    chains: np.ndarray = field(repr=False)
    pearson: float
    mode_error: float
    converged: bool
    history: list[dict[str, Any]] = field(repr=False)
    n_rows: float
    step: float = field(repr=False)
    rng: np.random.Generator = field(repr=False)


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
    group_rate: float = 0.0,
    weights: Any = None,
    start: tuple[Any, Any] | None = None,
    method: FitMethod | None = None,
    n: int | None = None,
    moments: MomentMethod | None = None,
    n_moments: int | None = None,
    sampler: SamplerName | None = None,
    max_anchors: int = 20,
    n_chains: int = 1000,
    max_rounds: int = 10,
    resume: Any = None,
    rng: Any = None,
    progressbar: bool = True,
) -> Any:
    r"""Posterior mode of a Potts or Ising model, full likelihood, with a Laplace approximation.

    Up to 4000 parameters the log-posterior :math:`n (\theta \cdot \bar t - \log \hat Z(\theta)) +
    \log p(\theta)` is climbed with anchored estimates of log Z (see
    :func:`~pymc_bayessum.anchored_rule`), a new anchor whenever V on held-out draws passes 0.5, the
    last one next to the mode. Beyond (fifty sites of 21 states have half a million couplings) no
    matrix over parameters fits anywhere: stochastic gradients with chains that go on while the
    parameters move find the mode, without its covariance.

    Parameters
    ----------
    observed : array_like of int, shape (n, L)
        Rows of states 0 .. S-1, or spins.
    edges : array_like of int, shape (E, 2), or networkx.Graph
    field_kind, coupling_kind, ising, n_states, prior_mean, prior_sd
        The model, as for :func:`pseudo_likelihood`.
    group_rate : float
        The prior of each table of couplings has a factor :math:`e^{-r \|J_{ij}\|}` besides, with
        the Frobenius norm: whole tables are zero at the mode. For full couplings, and stochastic.
    weights : array_like, shape (n,), optional
        How often each row counts, as those of :func:`~pymc_bayessum.sequence_weights`; once by
        default.
    start : pair (h, J), optional
        Where to begin; at the mode of the pseudo-likelihood by default, or, stochastic, without
        couplings, whichever is nearer.
    method : {"anchored", "stochastic"}, optional
        Anchored up to 4000 parameters without a group prior, else stochastic.
    n : int, optional
        Anchored: draws at each anchor; by default ten times the identifiable parameters (posterior
        sds then come out within 7%) and at least 5000.
    moments, n_moments, sampler
        Anchored: how the mean of the statistics at an anchor is estimated and draws are made, as
        for :func:`~pymc_bayessum.anchored_rule`. ``n_moments`` is fifty times the rows by default,
        between 20 000 and 400 000.
    max_anchors : int
        Stop after so many; ``fit.converged`` is then False and the fit can be resumed.
    n_chains : int
        Stochastic: half of them start from the data, the others from the fields alone.
    max_rounds : int
        Stochastic: stop after so many rounds of forty steps, or more and smaller ones; the fit can
        be resumed.
    resume : PottsFit or StochasticPottsFit, optional
        Go on where this fit ended, with its chains and history.
    rng : None, int or numpy.random.Generator
    progressbar : bool
        An interrupt from the keyboard (`Interrupted`) carries the fit so far as ``.partial``.

    Returns
    -------
    PottsFit or StochasticPottsFit
        Of a PottsFit ``fit.normalizer`` is the last rule, ready for ``pm.sample``; ``fit.advice``
        says whether it has draws enough. Both tell ``log_constant``, ``log_likelihood`` of held-out
        rows, and ``contact_scores``.

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
    mean, variance = parameter_prior(layout, prior_mean, prior_sd)
    counted = row_weights(weights, len(states))
    rate = real("group_rate", group_rate)
    data = PseudoTarget(layout, states, counted)
    if _is_stochastic(layout, method, rate, resume):
        sizes = integer("n_chains", n_chains, 20), integer("max_rounds", max_rounds, 1)
        return _stochastic_fit(data, mean, variance, rate, start, *sizes, resume, rng, progressbar)
    coordinates = identifiable(layout)
    prior, gain = normal_prior(coordinates, mean, variance)
    total = float(counted.sum())
    chains = None
    if resume is not None:
        point, chains = coordinates.of(resume.theta), resume.rule.states
    elif start is not None:
        point = coordinates.of(numeric_parameters(layout, *start))
    else:
        point, _, _ = pseudo_mode(data, coordinates, prior)
    n = max(5000, 10 * coordinates.size) if n is None else integer("n", n, 40)
    stopped = False
    try:
        with progress("Fitting", progressbar) as report:
            found = climb(
                PottsFamily(layout, sampler),
                Data(layout.mean_statistics(states, counted / total), total),
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
    except Interrupted as stop:
        found, stopped = stop.partial, True
    theta = mean + gain @ (found.point - prior.mean)
    inner = np.linalg.inv(found.curvature)
    free = np.diag(variance) - gain @ (coordinates.read * variance)
    fit = PottsFit(
        layout,
        *layout.unflatten(theta),
        theta,
        covariance=gain @ inner @ gain.T + free,
        rule=found.rule,
        history=[*(resume.history if resume is not None else []), *found.history],
        converged=found.converged,
        mode_error=found.mode_error,
        n_rows=len(states) if weights is None else total,
    )
    if stopped:
        raise Interrupted(SO_FAR, fit)
    return fit


def _is_stochastic(
    layout: PottsLayout, method: FitMethod | None, group_rate: float, resume: Any
) -> bool:
    """Whether chains that go on find the mode; the arguments that decide it are checked."""
    if method is not None and method not in get_args(FitMethod):
        raise ValueError(f"method must be one of {get_args(FitMethod)}, got {method!r}")
    if group_rate < 0.0 or (group_rate and layout.coupling_kind != "full"):
        raise ValueError(
            "group_rate must not be negative, and is for coupling_kind='full' alone, got "
            f"{group_rate} with {layout.coupling_kind!r}"
        )
    if group_rate and method == "anchored":
        raise ValueError("group_rate needs method='stochastic': anchors take normal priors")
    large = layout.n_parameters > LARGEST_ANCHORED or group_rate > 0.0
    if resume is None:
        return method == "stochastic" or (method is None and large)
    if not isinstance(resume, PottsFit | StochasticPottsFit):
        raise TypeError(f"resume must be a fit, as fit_potts returns, got {resume!r}")
    if resume.layout != layout:
        raise ValueError("resume was fitted to another model or graph")
    stochastic = isinstance(resume, StochasticPottsFit)
    if method not in (None, "stochastic" if stochastic else "anchored"):
        raise ValueError(f"resume was not fitted with method={method!r}")
    return stochastic


def _stochastic_fit(
    data: PseudoTarget,
    mean: np.ndarray,
    variance: np.ndarray,
    group_rate: float,
    start: tuple[Any, Any] | None,
    n_chains: int,
    max_rounds: int,
    resume: Any,
    rng: Any,
    progressbar: bool,
) -> StochasticPottsFit:
    layout, n_rows = data.layout, data.n_rows
    target = Posterior(
        layout, data.sites / n_rows, data.pairs / n_rows, n_rows, mean, variance, group_rate
    )
    with progress("Fitting", progressbar) as report:
        if resume is not None:
            generator = copy.deepcopy(resume.rng) if rng is None else as_generator(rng)
            first = ChainClimb(
                resume.theta,
                resume.chains,
                resume.step,
                resume.mode_error,
                tuple(resume.history),
            )
        else:
            generator = as_generator(rng)
            report("pseudo-likelihood")
            places = _starts(data, mean, variance) if start is None else [start]
            looks = []
            for place in places:
                theta = numeric_parameters(layout, *place)
                chains = _new_chains(data, theta, n_chains, generator)
                begun = ChainClimb(theta, chains, FIRST_STEP)
                looks.append(look(target, begun, generator)[0])
            first = min(looks, key=lambda seen: seen.error)
        stopped = False
        try:
            found = climb_by_chains(target, first, generator, max_rounds=max_rounds, report=report)
        except Interrupted as stop:
            found, stopped = stop.partial, True
    fit = StochasticPottsFit(
        layout,
        *layout.unflatten(found.theta),
        found.theta,
        chains=found.states,
        pearson=found.pearson,
        mode_error=found.error,
        converged=found.converged,
        history=list(found.history),
        n_rows=n_rows,
        step=found.step,
        rng=generator,
    )
    if stopped:
        raise Interrupted(SO_FAR, fit)
    return fit


def _starts(data: PseudoTarget, mean: np.ndarray, variance: np.ndarray) -> list[tuple[Any, Any]]:
    """Where to begin: near the mode of the pseudo-likelihood, and without couplings.

    The first is next to the mode, unless data are few: then it is far beyond it.
    """
    layout = data.layout
    near, _, _ = mode_of_parameters(data, mean, variance, most=START_STEPS)
    alone = np.log((data.sites + 0.5) / data.n_rows)
    alone -= alone.mean(axis=1, keepdims=True)
    h = {
        "none": lambda: 0.0,
        "scalar": lambda: 0.5 * np.diff(alone.mean(axis=0))[0],
        "shared": lambda: alone.mean(axis=0),
        "full": lambda: alone[:, 1] if layout.spins else alone,
    }[layout.field_kind]()
    return [layout.unflatten(near), (h, np.zeros(layout.coupling_shape))]


def _new_chains(
    data: PseudoTarget, theta: np.ndarray, n_chains: int, rng: np.random.Generator
) -> np.ndarray:
    """Chains at even places start from the data, the others from the fields alone."""
    chain = GraphChain(data.layout, *data.layout.unflatten(theta), "gibbs")
    states = chain.start(n_chains, rng)
    picked = rng.choice(len(data.states), len(states[::2]), p=data.weights / data.n_rows)
    states[::2] = data.states[picked]
    return chain.advance(states, BURN_IN, rng)
