r"""BayesSum for the normaliser of a Potts model, on a fixed base measure.

With a base q on the states and :math:`g(x; \theta) = \theta \cdot \phi(x) - \log q(x)`,

.. math:: Z(\theta) = E_q[e^{g}] \approx \sum_n w_n(\theta) e^{g(x_n; \theta)} .

The Gaussian process on :math:`e^g` has an exponential Hamming kernel and an unknown constant mean,
so the weights sum to one: a zero mean shrinks Z. Where the mean of g under the base is known
(uniform, product and tree bases), g joins the mean space and the weights integrate it exactly; they
then depend on theta, through one coefficient.
"""

import warnings
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad

from pymc_bayessum.arguments import as_generator, integer, positive
from pymc_bayessum.embeddings import embed
from pymc_bayessum.graphs.bases import (
    conditional_mixture,
    edge_marginals,
    fitted_tree,
    mean_field,
    mean_log_base,
    tree_base,
)
from pymc_bayessum.graphs.estimates import (
    GraphEstimate,
    data_rows,
    model_layout,
    numeric_parameters,
)
from pymc_bayessum.graphs.family import PottsFamily
from pymc_bayessum.graphs.moments import block_moments, statistics_of_marginals
from pymc_bayessum.graphs.samplers import sample_gibbs
from pymc_bayessum.graphs.statistics import PottsLayout
from pymc_bayessum.kernels import ExpHamming
from pymc_bayessum.measures import Measure, ProductCategorical, TreeCategorical, UniformCategorical
from pymc_bayessum.normalizers.anchored.errors import V_LIMIT
from pymc_bayessum.normalizers.anchored.node_sum import product
from pymc_bayessum.rules.hyper import best_of
from pymc_bayessum.solve import KrigingGram, factorize_dense

__all__ = ["DECAY_GRID", "PottsRule", "potts_rule"]

#: Decays among which the marginal likelihood chooses.
DECAY_GRID = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
#: Nodes on which the decay is chosen.
DECAY_NODES = 800

BaseName = Literal["tree", "chow-liu", "mean-field", "conditionals", "uniform"]
MeanSpace = Literal["ratio", "constant"]


class _LogRatio(NamedTuple):
    """Log ratio g of model and base at some states: their statistics (N, d), and log q (N,)."""

    statistics: np.ndarray
    log_base: np.ndarray

    def __call__(self, xp: Any, theta: Any) -> Any:
        return product(xp, theta, self.statistics.T) - self.log_base


@dataclass(frozen=True, eq=False)
class PottsRule(GraphEstimate):
    """Normaliser of a Potts or Ising model by BayesSum on a fixed base; see :func:`potts_rule`.

    Log Z is +inf where the signed sum is not positive.

    Attributes
    ----------
    layout : PottsLayout
    base : Measure
        On states 0 .. S-1.
    nodes : ndarray of int, shape (N, L)
        States 0 .. S-1, distinct.
    weights : ndarray, shape (N,)
        Weights with a constant mean; they sum to one.
    kernel : ExpHamming
    point : ndarray, shape (d,)
        The parameters the base was fitted to.
    mean_space : {"ratio", "constant"}
        Whether the log ratio g is integrated exactly too.

    Examples
    --------
    >>> import pymc_bayessum as pbs
    >>> rule = pbs.potts_rule(0.0, 0.2, pbs.graphs.chain(4), n=8, decay=0.1, ising=True, rng=0)
    >>> rule.n_nodes, round(float(rule.weights.sum()), 9)
    (8, 1.0)
    """

    layout: PottsLayout
    base: Measure = field(repr=False)
    nodes: np.ndarray = field(repr=False)
    weights: np.ndarray = field(repr=False)
    kernel: ExpHamming
    point: np.ndarray = field(repr=False)
    mean_space: MeanSpace
    _gram: KrigingGram = field(repr=False)
    _variance: float = field(repr=False)
    _at_nodes: _LogRatio = field(repr=False)
    _at_tests: _LogRatio = field(repr=False)

    #: The base is normalised.
    is_absolute = True

    @property
    def family(self) -> PottsFamily:
        """The model as an exponential family."""
        return PottsFamily(self.layout)

    @property
    def states(self) -> np.ndarray:
        """The nodes, from which chains may start."""
        return self.nodes

    @property
    def remedy(self) -> str:
        """What to do where it was not good enough."""
        return (
            "another base (pbs.potts_rule with base='tree'), or an anchor: pbs.anchored_rule where "
            "pbs.fit_potts finds the mode"
        )

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.nodes)

    def _terms(self, xp: Any, theta: Any) -> tuple[Any, Any, Any]:
        """Peak of the log ratios, the summands relative to it (..., N) and the weights at theta."""
        ratio = self._at_nodes(xp, theta)
        peak = xp.max(ratio, axis=-1, keepdims=True)
        peak = disconnected_grad(peak) if xp is pt else peak
        weights = self.weights
        if self.mean_space == "ratio":
            step, bend = self._slope(xp, theta)
            weights = weights + (step / bend)[..., None] * self._direction(xp, theta)
        return peak, xp.exp(ratio - peak), weights

    @cached_property
    def _columns(self) -> np.ndarray:
        """What g is made of at the nodes, the statistics and log q, (N, d + 1)."""
        return np.column_stack(self._at_nodes)

    @cached_property
    def _solved(self) -> np.ndarray:
        return self._gram.solve(self._columns)

    @cached_property
    def _quadratic(self) -> np.ndarray:
        return self._columns.T @ self._solved

    @cached_property
    def _missing(self) -> np.ndarray:
        """What constant-mean weights miss of the exact means of the columns, (d + 1,)."""
        base: Any = self.base
        statistics = statistics_of_marginals(self.layout, *edge_marginals(base, self.layout.edges))
        return np.append(statistics, mean_log_base(base)) - self.weights @ self._columns

    def _slope(self, xp: Any, theta: Any) -> tuple[Any, Any]:
        """Return what constant-mean weights miss of E[g], and g'K^-1 g less its constant part."""
        d = self.layout.n_parameters
        missing, quadratic = self._missing, self._quadratic
        step = product(xp, theta, missing[:d]) - missing[d]
        bent = product(xp, theta, quadratic[:d, :d])
        cross = product(xp, theta, quadratic[:d, d])
        bend = xp.sum(bent * theta, axis=-1) - 2.0 * cross + quadratic[d, d]
        # g may be constant (the base is the model); then nothing is missed and 0 / tiny is right.
        return step, xp.maximum(bend, 1e-12)

    def _direction(self, xp: Any, theta: Any) -> Any:
        d = self.layout.n_parameters
        return product(xp, theta, self._solved[:, :d].T) - self._solved[:, d]

    def log_z_at(self, xp: Any, theta: Any) -> Any:
        """Log Z of parameter vectors, +inf where the signed sum is not positive."""
        peak, terms, weights = self._terms(xp, theta)
        total = xp.sum(weights * terms, axis=-1)
        sound = total > 0.0
        # The inner choice keeps gradients finite where the signed sum has no logarithm.
        value = xp.log(xp.where(sound, total, 1.0)) + peak[..., 0]
        return xp.where(sound, value, np.inf)

    def sd_at(self, xp: Any, theta: Any) -> Any:
        """Larger of the process's own sd and the error of a control variate on other draws."""
        _, terms, weights = self._terms(xp, theta)
        total = xp.sum(weights * terms, axis=-1)
        sound = xp.where(total > 0.0, total, 1.0)
        white = product(xp, terms, self._gram.whiten(np.eye(self.n_nodes)))
        left = xp.sum(white**2, axis=-1)
        variance = self._variance
        n_free = 1
        if self.mean_space == "ratio":
            step, bend = self._slope(xp, theta)
            along = xp.sum(self._direction(xp, theta) * terms, axis=-1)
            left = left - along**2 / bend
            variance = variance + step**2 / bend
            n_free = 2
        left = xp.maximum(left, 0.0)
        process = xp.sqrt(variance * left / max(1, self.n_nodes - n_free)) / sound
        ratio = self._at_tests(xp, theta)
        draws = xp.exp(ratio - xp.max(ratio, axis=-1, keepdims=True))
        centred = ratio - xp.mean(ratio, axis=-1, keepdims=True)
        spread = xp.sum(centred**2, axis=-1)
        noise = xp.var(draws, axis=-1)
        if self.mean_space == "ratio":
            slope = xp.sum(draws * centred, axis=-1)
            noise = noise - slope**2 / xp.maximum(spread, 1e-12) / len(self._at_tests.log_base)
        plain = xp.sqrt(xp.maximum(noise, 0.0) / self.n_nodes) / xp.mean(draws, axis=-1)
        return xp.where(total > 0.0, xp.maximum(process, plain), np.inf)

    def sd(self, h: Any, J: Any) -> float:
        """Predicted standard error of log Z at numeric parameters."""
        return float(self.sd_at(np, numeric_parameters(self.layout, h, J)))

    @property
    def predicted_error(self) -> float:
        """Predicted standard error of log Z at the parameters the base was fitted to."""
        return float(self.sd_at(np, self.point))

    @property
    def reach(self) -> str:
        """One line: for which parameters it answers, and up to where."""
        v = self.v(self.point)
        return (
            f"near the parameters its base was fitted to (V = {v:.3g} there), while the variance V "
            f"of the log ratio stays below {V_LIMIT}"
        )

    def v(self, theta: np.ndarray) -> float:
        """Variance V of the log ratio of model and base, on draws that are not among the nodes."""
        return float(self._at_tests(np, theta).var(ddof=1))

    def report(self, h: Any = None, J: Any = None, n_rows: int = 1) -> dict[str, Any]:
        """Tell what there is to know before trusting it, from draws that are not among the nodes.

        Parameters
        ----------
        h, J : array_like, optional
            Numeric parameters; by default those the base was fitted to.
        n_rows : int
            Rows of the likelihood: it multiplies the error of log Z by their number.

        Returns
        -------
        dict
            ``V`` and ``var_g`` (for a fixed base both are the variance of the log ratio of model
            and base under the base), ``ess`` (absolute), ``log_z``, ``predicted_error``,
            ``rows_times_error`` and ``flagged`` (V above 0.5).
        """
        theta = self.point if h is None and J is None else numeric_parameters(self.layout, h, J)
        ratio = self._at_tests(np, theta)
        terms = np.exp(ratio - ratio.max())
        variance = self.v(theta)
        error = float(self.sd_at(np, theta))
        return {
            "method": f"BayesSum, {type(self.base).__name__} base",
            "n_nodes": self.n_nodes,
            "decay": self.kernel.decay,
            "V": variance,
            "var_g": variance,
            "ess": float(terms.sum() ** 2 / np.square(terms).sum()),
            "log_z": float(self.log_z_at(np, theta)),
            "predicted_error": error,
            "rows_times_error": n_rows * error,
            "flagged": variance > V_LIMIT,
        }


def potts_rule(
    h: Any,
    J: Any,
    edges: Any,
    *,
    n: int = 1000,
    base: BaseName | Measure = "tree",
    rows: Any = None,
    mean_space: MeanSpace | None = None,
    decay: float | None = None,
    ising: bool = False,
    n_sites: int | None = None,
    n_states: int | None = None,
    n_test: int = 1000,
    rng: Any = None,
) -> PottsRule:
    r"""Normaliser of a Potts or Ising model by BayesSum on a fixed base.

    .. math:: \log Z(\theta) \approx \log \sum_n w_n(\theta) \exp(\theta \cdot \phi(x_n) -
              \log q(x_n))

    It is sound near the parameters it is built at; where they move far (sampling, fitting from
    a poor start) use :func:`~pymc_bayessum.anchored_rule`.

    Parameters
    ----------
    h, J : array_like
        Numeric parameters near those of interest, in the shapes the model has; the base is fitted
        to them.
    edges : array_like of int, shape (E, 2), or networkx.Graph
    n : int
        Number of nodes (drawn without replacement from the base).
    base : {"tree", "chow-liu", "mean-field", "conditionals", "uniform"} or Measure
        ``"tree"``: a spanning tree with the marginals of belief propagation. ``"chow-liu"``: one
        with marginals from Gibbs draws. ``"mean-field"``: a product. ``"conditionals"``: an equal
        mixture of products of single-site conditionals around ``rows`` (Kang, Briol, Karvonen and
        Chen). Or any measure on states 0 .. S-1 of which the exponential Hamming kernel has an
        embedding.
    rows : array_like of int, shape (M, L), optional
        Data rows for ``"conditionals"``; ten is usual.
    mean_space : {"ratio", "constant"}, optional
        ``"ratio"`` integrates the log ratio g exactly as well as constants; the default where the
        mean of g is known (uniform, product and tree bases), otherwise ``"constant"``.
    decay : float, optional
        Of the exponential Hamming kernel; by default by marginal likelihood at ``h``, ``J``, on a
        grid from 0.0005 to 5, with a warning when an end of it is chosen.
    ising : bool
        Spins -1/+1 (``h`` a number or (L,), ``J`` a number or (E,)) instead of states.
    n_sites, n_states : int, optional
        Where the shapes do not tell.
    n_test : int
        Further draws of the base, kept out of the rule, that its report is made from.
    rng : None, int or numpy.random.Generator

    Returns
    -------
    PottsRule

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_bayessum as pbs
    >>> rule = pbs.potts_rule(np.zeros(3), 0.3, pbs.graphs.grid(3, 3), n=100, decay=0.05, rng=0)
    >>> round(rule.value(np.zeros(3), 0.3), 1), rule.report()["flagged"]
    (11.2, False)
    """
    layout, theta = model_layout(
        h, J, edges, ising=ising, n_sites=n_sites, n_states=n_states, observed=rows
    )
    n = integer("n", n, 2)
    n_test = integer("n_test", n_test, 2)
    generator = as_generator(rng)
    measure = _fitted_base(base, layout, theta, rows, generator)
    known = isinstance(measure, UniformCategorical | ProductCategorical | TreeCategorical)
    if mean_space is None:
        mean_space = "ratio" if known else "constant"
    if mean_space not in ("ratio", "constant"):
        raise ValueError(f"mean_space must be 'ratio' or 'constant', got {mean_space!r}")
    if mean_space == "ratio" and not known:
        raise ValueError(
            "mean_space='ratio' needs the mean of log q under the base, which is known for "
            f"uniform, product and tree bases only; the base is a {type(measure).__name__}"
        )
    if n > measure.support.size:
        n = int(measure.support.size)
    nodes = measure.sample_distinct(n, generator)
    at_nodes = _LogRatio(layout.statistics(nodes), measure.log_prob(nodes))
    if decay is None:
        kernel = ExpHamming(_best_decay(nodes, at_nodes(np, theta), mean_space))
    else:
        kernel = ExpHamming(positive("decay", decay))
    tests = measure.sample(n_test, generator)
    gram = KrigingGram(factorize_dense(kernel(nodes, nodes)), np.ones((len(nodes), 1)))
    embedding = embed(kernel, measure)
    weights, variance = gram.weights(np.ones(1), embedding.mean(nodes), embedding.initial_error)
    return PottsRule(
        layout=layout,
        base=measure,
        nodes=nodes,
        weights=weights,
        kernel=kernel,
        point=theta,
        mean_space=mean_space,
        _gram=gram,
        _variance=max(variance, 0.0),
        _at_nodes=at_nodes,
        _at_tests=_LogRatio(layout.statistics(tests), measure.log_prob(tests)),
    )


def _fitted_base(
    base: Any, layout: PottsLayout, theta: np.ndarray, rows: Any, rng: np.random.Generator
) -> Measure:
    fields, couplings = layout.expand(*layout.unflatten(theta))
    edges = layout.edges
    if isinstance(base, Measure):
        wanted = UniformCategorical(layout.n_sites, layout.n_states).support
        if base.support != wanted:
            raise ValueError(f"base must live on {wanted}, got one on {base.support}")
        return base
    if base == "uniform":
        return UniformCategorical(layout.n_sites, layout.n_states)
    if base == "mean-field":
        return ProductCategorical(mean_field(fields, couplings, edges))
    if base == "tree":
        return fitted_tree(fields, couplings, edges)
    if base == "chow-liu":
        full = PottsLayout(layout.n_sites, layout.n_states, edges, "full", "full")
        draws = sample_gibbs(full, fields, couplings, 1000, 50, rng)
        sites, pairs = block_moments(draws, fields, couplings, edges)
        return tree_base(sites[0], pairs[0], edges)
    if base == "conditionals":
        if rows is None:
            raise ValueError("base='conditionals' needs rows: data rows to centre the products on")
        return conditional_mixture(fields, couplings, edges, layout.encode(data_rows(layout, rows)))
    raise ValueError(
        "base must be 'tree', 'chow-liu', 'mean-field', 'conditionals', 'uniform' or a measure, "
        f"got {base!r}"
    )


def _best_decay(nodes: np.ndarray, ratio: np.ndarray, mean_space: MeanSpace) -> float:
    """Maximise the restricted likelihood of exp(g) over the grid, amplitude in closed form."""
    nodes, ratio = nodes[:DECAY_NODES], ratio[:DECAY_NODES]
    values = np.exp(ratio - ratio.max())
    columns = [np.ones(len(nodes))]
    if mean_space == "ratio" and ratio.std() > 1e-9:
        columns.append(ratio - ratio.mean())
    space = np.stack(columns, axis=1)
    fitted = space @ np.linalg.lstsq(space, values, rcond=None)[0]
    if np.abs(values - fitted).max() <= 1e-9 * np.abs(values).max():
        # Nothing is left for the process to explain, so every decay gives the same sum.
        return 0.1
    selection = best_of([ExpHamming(decay) for decay in DECAY_GRID], nodes, values, space)
    decay = DECAY_GRID[int(np.argmax(selection.log_marginals))]
    if selection.at_edge:
        warnings.warn(
            f"the marginal likelihood chose decay={decay}, an end of the grid "
            f"{DECAY_GRID[0]} .. {DECAY_GRID[-1]}: the kernel may not suit this base; compare "
            "rule.report() with another base",
            UserWarning,
            stacklevel=3,
        )
    return decay
