"""Anchored normalisers of Potts and Ising models, by their fields and couplings."""

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pymc_bayessum.arguments import as_generator, integer
from pymc_bayessum.executors import as_executor
from pymc_bayessum.graphs.estimates import GraphEstimate, model_layout, numeric_parameters
from pymc_bayessum.graphs.family import PottsFamily
from pymc_bayessum.graphs.samplers import SamplerName
from pymc_bayessum.graphs.statistics import PottsLayout
from pymc_bayessum.normalizers.anchored.rule import Anchored, anchored

__all__ = ["AnchoredRule", "MomentMethod", "anchored_rule"]

MomentMethod = Literal["exact", "rao-blackwell", "stein", "difference", "plain"]


@dataclass(frozen=True, eq=False)
class AnchoredRule(GraphEstimate, Anchored):
    """Normaliser of a Potts or Ising model from draws at anchors; see :func:`anchored_rule`.

    Log Z is a convex function of the parameters, finite for all that it can read; a rule for an
    affine family of parameters raises outside of that family.

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

    family: PottsFamily

    @property
    def layout(self) -> PottsLayout:
        """The model it normalises."""
        return self.family.layout

    @property
    def remedy(self) -> str:
        """What to do where it was not good enough."""
        return (
            "another anchor: pbs.anchored_rule where pbs.fit_potts finds the mode, or at several "
            "points around it"
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
            See :meth:`~pymc_bayessum.normalizers.anchored.rule.Anchored.report_at`.
        """
        theta = None if h is None and J is None else numeric_parameters(self.layout, h, J)
        return self.report_at(theta, n_rows)


def anchored_rule(
    h: Any,
    J: Any,
    edges: Any,
    *,
    others: Sequence[tuple[Any, Any]] = (),
    n: int = 10_000,
    moments: MomentMethod | None = None,
    n_moments: int | None = None,
    sampler: SamplerName | None = None,
    constant: bool = True,
    ising: bool = False,
    n_sites: int | None = None,
    n_states: int | None = None,
    rng: Any = None,
    executor: Executor | None = None,
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
    executor : concurrent.futures.Executor, optional
        For the draws at further anchors, which are the same ones without.

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
    return anchored(
        PottsFamily(layout, sampler),
        np.stack(anchors),
        n=integer("n", n, 20 * len(anchors)),
        moments=moments,
        n_moments=n_moments,
        constant=constant,
        rng=as_generator(rng),
        executor=as_executor(executor),
        kind=AnchoredRule,
    )
