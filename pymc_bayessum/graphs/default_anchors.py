r"""The normaliser that a Potts or Ising model gets by itself where no exact one is affordable.

It is anchored before sampling starts and fixed from then on. A few parameters (up to five) get
anchors on the principal axes of a Laplace approximation of the posterior, combined by their draws;
many get one, at the mode. Draws from the model's own prior tell which parameters there are: fields
that depend on two numbers count as two parameters however many sites they are spread over.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable

from pymc_bayessum.arguments import as_generator
from pymc_bayessum.graphs.anchors import AnchoredRule, anchored_rule_at
from pymc_bayessum.graphs.coordinates import Coordinates, identifiable, within
from pymc_bayessum.graphs.estimates import data_rows
from pymc_bayessum.graphs.fitting import Climb, NormalPrior, Reporter, climb, progress, pseudo_mode
from pymc_bayessum.graphs.statistics import PottsLayout

__all__ = ["FEW_PARAMETERS", "default_rule"]

#: Number of parameters up to which several anchors are set.
FEW_PARAMETERS = 5
#: Draws in a rule with few parameters.
FEW_NODES = 50_000
#: Draws at each anchor on the way to the mode, with few parameters.
PILOT_NODES = 4000
#: Prior draws that tell which parameters a model has.
PRIOR_DRAWS = 200
#: Posterior sds at which the outer anchors stand.
SPREAD = 2.0
#: Prior sd where the prior cannot be drawn from, or has no finite scale.
VAGUE = 10.0


def default_rule(
    layout: PottsLayout,
    observed: Any,
    h: Any = None,
    J: Any = None,
    *,
    rng: Any = 0,
    progressbar: bool = True,
) -> AnchoredRule:
    """Build an anchored normaliser from observed data.

    Parameters
    ----------
    layout : PottsLayout
    observed : array_like of int, shape (n, L)
        Rows in the alphabet of the layout.
    h, J : TensorVariable or array_like, optional
        The model's parameters, of the layout's shapes. Their prior is drawn from to find out how
        many free parameters there are and about where; without them all parameters of the layout
        are free, with vague priors.
    rng : None, int or numpy.random.Generator
        The same anchors are built every time by default.
    progressbar : bool

    Returns
    -------
    AnchoredRule

    Raises
    ------
    ValueError
        When there is no observed row to anchor at.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum import graphs
    >>> from pymc_bayessum.graphs.default_anchors import default_rule
    >>> layout = PottsLayout(16, 2, graphs.grid(4, 4), "none", "scalar", spins=True)
    >>> x = np.where(np.indices((4, 4)).sum(axis=0) > 3, 1, -1).reshape(1, 16)
    >>> len(default_rule(layout, x, progressbar=False).anchors)
    5
    """
    rows = np.asarray(observed)
    if rows.size == 0:
        raise ValueError(
            "there are no complete observed rows to anchor a normaliser at: pass "
            "normalizer=pbs.anchored_rule(h, J, edges) at parameters near those you expect, or "
            "normalizer='exact' where the graph allows it"
        )
    generator = as_generator(rng)
    states = layout.encode(data_rows(layout, rows))
    draws = _prior_draws(layout, h, J)
    coordinates = identifiable(layout)
    if draws is not None:
        coordinates = within(coordinates, draws)
    if coordinates.size == 0:
        # Nothing is free: one anchor where the parameters are.
        theta = coordinates.parameters(np.zeros(0))
        return anchored_rule_at(
            layout, theta[None], n=PILOT_NODES, rng=generator, coordinates=coordinates
        )
    prior = _prior(coordinates, draws)
    few = coordinates.size <= FEW_PARAMETERS
    with progress("Anchoring the normaliser", 8, progressbar) as report:
        start, _, _ = pseudo_mode(layout, states, coordinates, prior)
        report("pseudo-likelihood")
        mode = climb(
            layout,
            states,
            coordinates,
            prior,
            start,
            n=PILOT_NODES if few else max(5000, 10 * coordinates.size),
            rng=generator,
            n_moments=PILOT_NODES if few else None,
            report=report,
        )
        rule = _final(layout, coordinates, mode, len(states), few, generator, report)
    trouble = None
    if not mode.converged:
        trouble = "the posterior mode was not reached"
    elif not rule.settled:
        trouble = "chains had not settled when draws began"
    if trouble is not None:
        warnings.warn(
            f"the default normaliser may be poor: {trouble}. Run pbs.check_normalizer on the "
            "result, or pass normalizer=pbs.anchored_rule(...) with more draws near the posterior",
            UserWarning,
            stacklevel=2,
        )
    return rule


def _final(
    layout: PottsLayout,
    coordinates: Coordinates,
    mode: Climb,
    n_rows: int,
    few: bool,
    rng: np.random.Generator,
    report: Reporter,
) -> AnchoredRule:
    """Build the rule that is kept: on the axes of the Laplace approximation, or at the mode."""
    points = axis_points(mode.point, mode.curvature) if few else mode.point[None]
    rule = anchored_rule_at(
        layout,
        coordinates.parameters(points),
        n=FEW_NODES if few else max(5000, 10 * coordinates.size),
        rng=rng,
        n_moments=int(np.clip(50 * n_rows, 20_000, 200_000)),
        coordinates=coordinates,
        start=mode.rule.states,
    )
    report(f"{len(points)} anchor(s), {rule.n_nodes} draws")
    return rule


def axis_points(mode: np.ndarray, curvature: np.ndarray) -> np.ndarray:
    """Place anchors at the mode and on the principal axes of a normal approximation.

    Parameters
    ----------
    mode : ndarray, shape (r,)
        Of one to five coordinates.
    curvature : ndarray, shape (r, r)
        Inverse covariance.

    Returns
    -------
    ndarray, shape (K, r)
        The mode, and two points on each axis, two sds away: five to nine points. A single axis has
        two more at half the distance; of five axes the narrowest has none.

    Examples
    --------
    >>> import numpy as np
    >>> [len(axis_points(np.zeros(r), np.eye(r))) for r in (1, 2, 3, 4, 5)]
    [5, 5, 7, 9, 9]
    """
    precision, axes = np.linalg.eigh(curvature)
    steps = (axes / np.sqrt(precision)).T[: FEW_PARAMETERS - 1]
    multiples = (
        (SPREAD, -SPREAD, 0.5 * SPREAD, -0.5 * SPREAD)
        if len(mode) == 1
        else (
            SPREAD,
            -SPREAD,
        )
    )
    return np.stack([mode, *(mode + k * step for step in steps for k in multiples)])


def _prior_draws(layout: PottsLayout, h: Any, J: Any) -> np.ndarray | None:
    """Draw theta from the model's prior, shape (K, d); None where that is not possible."""
    given = [part for part in (h, J) if isinstance(part, Variable)]
    if h is None and J is None:
        return None
    try:
        # Not worth compiling for a few hundred draws.
        options: Any = {"draws": PRIOR_DRAWS, "random_seed": 0, "mode": "FAST_COMPILE"}
        drawn = pm.draw(given, **options) if given else []
    except NotImplementedError:  # flat priors have no draws
        return None
    values = iter(drawn if len(given) != 1 or isinstance(drawn, list) else [drawn])
    h, J = (next(values) if isinstance(part, Variable) else part for part in (h, J))
    theta = layout.flatten(0.0 if h is None else h, 0.0 if J is None else J)
    if not np.isfinite(theta).all():
        return None
    # Numbers have no draws: a few copies of them span the one point there is.
    return theta if theta.ndim == 2 else np.tile(theta, (3, 1))


def _prior(coordinates: Coordinates, draws: np.ndarray | None) -> NormalPrior:
    """Match a normal prior on coordinates to the quartiles of the draws; vague without them."""
    if draws is None or len(draws) < 2:
        centre = coordinates.of(np.zeros(coordinates.read.shape[1]))
        return NormalPrior(centre, np.eye(coordinates.size) / VAGUE**2)
    found = coordinates.of(draws)
    low, middle, high = np.quantile(found, [0.25, 0.5, 0.75], axis=0)
    sd = np.maximum((high - low) / 1.349, 1e-6)
    return NormalPrior(middle, np.diag(1.0 / np.minimum(sd, 1e3) ** 2))
