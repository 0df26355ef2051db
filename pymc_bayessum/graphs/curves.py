"""Log Z of labels that nobody has observed: a curve over the range of their coupling."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_bayessum.arguments import as_generator, real
from pymc_bayessum.graphs.estimates import GraphEstimate, model_layout, symbolic_parameters
from pymc_bayessum.graphs.family import PottsFamily
from pymc_bayessum.graphs.statistics import GraphNormalizer, PottsLayout
from pymc_bayessum.normalizers.anchored.curve import CHAINS, Curve, curve_between
from pymc_bayessum.normalizers.coordinates import Coordinates

__all__ = ["CurveRule", "FixedNormalizer", "curve_rule", "hidden_rule"]

#: How far a curve goes beyond the draws of a prior, relative to their range.
MARGIN = 0.1


@dataclass(frozen=True, eq=False)
class CurveRule(GraphEstimate, Curve):
    """Normaliser of a Potts or Ising model along a range of its coupling; see `curve_rule`.

    Log Z is known up to a constant: convex, with tangents beyond the range, and +inf for other
    fields than those of the curve.

    Attributes
    ----------
    layout : PottsLayout
    knots : tuple of Knot
        What chains found, in ascending order of the coupling.
    limits : tuple of float
        The range of the coupling.
    settled : bool
        Whether chains had settled, and agree, at all knots.

    Examples
    --------
    >>> import pymc_bayessum as pbs
    >>> rule = pbs.graphs.curve_rule((0.0, 1.0), pbs.graphs.grid(3, 3), n_states=2,
    ...                              progressbar=False)
    >>> rule.limits, rule.settled
    ((0.0, 1.0), True)
    """

    family: PottsFamily

    @property
    def layout(self) -> PottsLayout:
        """The model it normalises."""
        return self.family.layout


@dataclass(frozen=True)
class FixedNormalizer:
    """Normaliser of labels whose fields and couplings are numbers: a constant, taken as zero."""

    layout: PottsLayout

    is_absolute = False

    def log_z(self, h: Any, J: Any) -> Variable:
        """Return zero for each set of parameters."""
        return pt.zeros_like(pt.sum(symbolic_parameters(self.layout, h, J), axis=-1))


def curve_rule(
    between: tuple[float, float],
    edges: Any,
    *,
    h: Any = None,
    ising: bool = False,
    n_sites: int | None = None,
    n_states: int | None = None,
    rng: Any = 0,
    progressbar: bool = True,
) -> CurveRule:
    """Normaliser of a Potts or Ising model with one coupling, for a range of it.

    It is what hidden labels get by themselves, for the range of the prior of their coupling. Build
    it to use it in several models, or for a range that is narrower than the prior.

    Parameters
    ----------
    between : pair of float
        Smallest and largest coupling.
    edges : array_like of int, shape (E, 2), or networkx.Graph
    h : array_like, optional
        Fixed field of all sites, (S,), or a number for spins.
    ising : bool
        Spins -1/+1 instead of states.
    n_sites, n_states : int, optional
        Where the shapes do not tell.
    rng : None, int or numpy.random.Generator
    progressbar : bool

    Returns
    -------
    CurveRule

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_bayessum as pbs
    >>> ring = pbs.graphs.ring(6)
    >>> rule = pbs.graphs.curve_rule((0.0, 1.0), ring, ising=True, progressbar=False)
    >>> exact = [6 * np.log(np.cosh(J)) + np.log1p(np.tanh(J) ** 6) for J in (0.2, 0.8)]
    >>> change = rule.value(None, 0.8) - rule.value(None, 0.2)
    >>> bool(abs(change - (exact[1] - exact[0])) < 0.1)
    True
    """
    low, high = (real("between", value) for value in between)
    if not low < high:
        raise ValueError(f"between must hold the smaller coupling first, got {between}")
    layout, theta = model_layout(h, low, edges, ising=ising, n_sites=n_sites, n_states=n_states)
    if layout.field_kind == "full":
        raise ValueError(f"h must be one field of all sites, got shape {np.shape(h)}")
    return _between(layout, theta, low, high, rng, progressbar)


def hidden_rule(
    layout: PottsLayout, draws: np.ndarray | None, rng: Any, progressbar: bool
) -> GraphNormalizer:
    """Build the normaliser of labels that are not observed, from the prior of their coupling.

    Draws of the prior of theta, (K, d), say which it is; it is refused where more is free than one
    coupling, or where its prior cannot be drawn from (None).
    """
    if draws is not None and not np.ptp(draws, axis=0).any():
        return FixedNormalizer(layout)
    simple = layout.field_kind != "full" and layout.coupling_kind == "scalar"
    if not simple or draws is None or np.ptp(draws[:, :-1], axis=0).any():
        raise ValueError(
            "Of labels that stay hidden, on a graph too wide for exact sums, log Z is "
            "followed over the prior of one coupling, such as J = pm.HalfNormal('J'), with a "
            "field that is fixed and the same everywhere, or none. For all else pass "
            "normalizer=pbs.anchored_rule(...) at parameters you expect, or 'exact' where the "
            "graph allows it"
        )
    coupling = draws[:, -1]
    low, high = float(coupling.min()), float(coupling.max())
    margin = MARGIN * (high - low)
    # A prior that ends at independent sites is not left there.
    low = low - margin if low < 0.0 else max(0.0, low - margin)
    high = high + margin if high > 0.0 else min(0.0, high + margin)
    return _between(layout, draws[0], low, high, rng, progressbar)


def _between(
    layout: PottsLayout, theta: np.ndarray, low: float, high: float, rng: Any, progressbar: bool
) -> CurveRule:
    """Follow log Z along the coupling, the last parameter, with the others as given."""
    rng = as_generator(rng)
    last, others = np.eye(len(theta))[-1:], np.eye(len(theta))[:-1]
    fixed = np.append(theta[:-1], 0.0)
    coordinates = Coordinates(
        read=last,
        read_origin=np.zeros(1),
        select=last,
        row_origin=fixed,
        tilt=np.zeros(len(theta)),
        lift=last.T,
        lift_origin=fixed,
        outside=others if len(others) else None,
        outside_origin=-theta[:-1] if len(others) else None,
    )
    return curve_between(
        PottsFamily(layout),
        coordinates,
        low,
        high,
        start=rng.integers(0, layout.n_states, (CHAINS, layout.n_sites)).astype(np.int8),
        rng=rng,
        progressbar=progressbar,
        kind=CurveRule,
    )
