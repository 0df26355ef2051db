"""Potts and Ising models on any graph, with their normalising constant."""

import warnings
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.distribution import Discrete, SymbolicRandomVariable, _support_point
from pymc.distributions.shape_utils import rv_size_is_none
from pymc.logprob.abstract import _logprob
from pymc.pytensorf import constant_fold, floatX
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import walk
from pytensor.graph.utils import MissingInputError
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_bayessum.arguments import integer
from pymc_bayessum.graphs.anchors import AnchoredRule
from pymc_bayessum.graphs.default_anchors import PottsAnchors, prior_parameters
from pymc_bayessum.graphs.elimination import Budget, least_cost, plan_within
from pymc_bayessum.graphs.energies import row_logp
from pymc_bayessum.graphs.exact import ExactNormalizer
from pymc_bayessum.graphs.mixing import warn_of_memory
from pymc_bayessum.graphs.plain_rules import RuleNormalizer
from pymc_bayessum.graphs.samplers import SWEEPS, sample_states
from pymc_bayessum.graphs.statistics import GraphNormalizer, PottsLayout, potts_layout
from pymc_bayessum.normalizers.anchored.anchorage import Anchorage, known_data, resolved
from pymc_bayessum.normalizers.drawn import StatesRV, apply_rv, one_set
from pymc_bayessum.normalizers.interpreted import evaluated
from pymc_bayessum.rules.rule import Rule

__all__ = ["GraphDistribution", "Ising", "Potts", "PottsRV", "as_parameter"]


class PottsRV(StatesRV):
    """Random rows of a Potts model; the graph, normaliser and sampler are part of the Op."""

    name = "potts"
    __props__: Any = ("name", "signature", "dtype", "inplace", "layout", "normalizer", "sweeps")
    _print_name = ("Potts", "\\operatorname{Potts}")

    def __init__(
        self,
        layout: PottsLayout,
        normalizer: GraphNormalizer | Anchorage | None,
        sweeps: int = SWEEPS,
        **kwargs: Any,
    ):
        self.layout = layout
        self.normalizer = normalizer
        self.sweeps = sweeps
        self.state_shape = (layout.n_sites,)
        field = ",".join(str(length) for length in layout.field_shape)
        coupling = ",".join(str(length) for length in layout.coupling_shape)
        kwargs.setdefault("signature", f"({field}),({coupling})->({layout.n_sites})")
        super().__init__(**kwargs)

    def draw_states(self, rng: np.random.Generator, n: int, *parameters: np.ndarray) -> np.ndarray:
        """Draw rows, with a warning where chains do not forget where they began."""
        layout, (h, J) = self.layout, parameters
        warn_of_memory(layout, h, J, self.sweeps)
        return layout.decode(sample_states(layout, h, J, n, rng, self.sweeps).astype(np.int64))

    def anchors(self, h: Any, J: Any, random_seed: Any, progressbar: bool) -> PottsAnchors | None:
        """Return how to anchor it with this prior; None where it has no use for anchors."""
        renewable = self.normalizer is None or isinstance(self.normalizer, Anchorage | AnchoredRule)
        if not renewable or _forbids(h, J):
            return None
        draws = prior_parameters(self.layout, h, J)
        return PottsAnchors(self.layout, draws, random_seed, progressbar)

    def __str__(self) -> str:
        layout = self.layout
        return f"{self.name}_rv{{{layout.n_sites} sites, {layout.n_states} states}}"


class IsingRV(PottsRV):
    """Random rows of an Ising model."""

    name = "ising"
    _print_name = ("Ising", "\\operatorname{Ising}")


@_logprob.register(PottsRV)
def potts_logp(op: PottsRV, values: Any, rng: Any, size: Any, h: Any, J: Any, **kwargs: Any) -> Any:
    """Return the energy of each row less log Z, which is computed once a set of parameters."""
    (value,) = values
    layout = op.layout
    normalizer, value = resolved(op.normalizer, value)
    if normalizer is None:
        raise ValueError(_no_normalizer(layout))
    h, J = one_set(h, len(layout.field_shape)), one_set(J, len(layout.coupling_shape))
    parameters = (h, J) if normalizer.layout == layout else layout.expand(h, J)
    log_z = normalizer.log_z(*parameters)
    return row_logp(layout, value, h, J, log_z, normalizer.is_absolute)


@_support_point.register(PottsRV)
def potts_support_point(op: PottsRV, rv: Any, rng: Any, size: Any, h: Any, J: Any) -> Any:
    """Return the best state of each site by its field alone."""
    layout = op.layout
    point = layout.decode(pt.argmax(layout.expand_field(h), axis=-1))
    if rv_size_is_none(size):
        return point + pt.zeros_like(rv)
    return pt.broadcast_to(point, (*tuple(size), layout.n_sites))


def _fit_normalizer(normalizer: Any, layout: PottsLayout) -> GraphNormalizer | None:
    """Turn the argument into a normaliser of this layout, or None where there is no exact one."""
    if normalizer is None:
        return ExactNormalizer(layout) if plan_within(layout, Budget.EVERY_STEP) else None
    if isinstance(normalizer, str):
        if normalizer != "exact":
            raise ValueError(f"normalizer must be None, 'exact' or a rule, got {normalizer!r}")
        return ExactNormalizer(layout)
    if isinstance(normalizer, Rule):
        return RuleNormalizer(layout, normalizer)
    if not isinstance(normalizer, GraphNormalizer):
        raise TypeError(f"normalizer must be None, 'exact' or a rule, got {normalizer!r}")
    other = normalizer.layout
    same_graph = (
        other.n_sites == layout.n_sites
        and other.n_states == layout.n_states
        and np.array_equal(other.edges, layout.edges)
    )
    if not same_graph:
        raise ValueError(
            f"normalizer was built for another graph: {other.n_sites} sites, {other.n_states} "
            f"states, {other.n_edges} edges; the model has {layout.n_sites} sites, "
            f"{layout.n_states} states, {layout.n_edges} edges (the same edges in the same order "
            "are needed)"
        )
    full = other.field_kind == "full" and other.coupling_kind == "full"
    if other != layout and not full:
        raise ValueError(
            f"normalizer was built for h of kind {other.field_kind!r} and J of kind "
            f"{other.coupling_kind!r}; the model has {layout.field_kind!r} and "
            f"{layout.coupling_kind!r}"
        )
    return normalizer


def _cost_of(layout: PottsLayout) -> str:
    width, entries = least_cost(layout)
    return (
        f"this graph has elimination width {width}, {entries:.2g} table entries with "
        f"{layout.n_states} states, the limit is {Budget.EVERY_STEP:.2g}"
    )


def _no_normalizer(layout: PottsLayout) -> str:
    possible = plan_within(layout, Budget.ON_REQUEST) is not None
    exact = ", normalizer='exact' (slow but possible here)" if possible else ""
    return (
        f"normalizer=None is exact only while it is affordable: {_cost_of(layout)}. In a model it "
        "is anchored at the data (observed=, pm.observe or pbs.anchor); outside of one pass "
        f"normalizer=pbs.anchored_rule(...) or pbs.potts_rule(...){exact}"
    )


def _with_known_shape(value: Any) -> Any:
    """Write the lengths that named dimensions have now into the type of a symbolic parameter."""
    if not isinstance(value, TensorVariable) or None not in value.type.shape:
        return value
    lengths = constant_fold(tuple(value.shape), raise_not_constant=False)
    return pt.specify_shape(value, tuple(_length(length) for length in lengths))


def _length(length: Any) -> int | None:
    try:
        return int(evaluated(length) if isinstance(length, Variable) else length)
    except MissingInputError:  # the graph may know
        return None


def _numbers(observed: Any) -> np.ndarray | None:
    """Observed data as an array, where they are known; of minibatches any one."""
    if observed is None or np.ma.isMaskedArray(observed):
        return observed
    data = known_data(observed)
    return evaluated(observed) if data is None else data


def as_parameter(name: str, value: Any, may_forbid: bool = False) -> Any:
    """Check a parameter given as numbers, and resolve the shape of a symbolic one."""
    if value is None or isinstance(value, Variable):
        return _with_known_shape(value)
    numbers = np.asarray(value, dtype=float)
    wrong = ~(np.isfinite(numbers) | (may_forbid & np.isneginf(numbers)))
    if wrong.any():
        besides = " (-inf is allowed and forbids)" if may_forbid else ""
        raise ValueError(f"{name} must be finite, got {numbers[wrong][0]}{besides}")
    if numbers.ndim and np.isneginf(numbers).all(axis=-1).any() and name == "h":
        raise ValueError("h must leave every site a state, got -inf for all states of one")
    return numbers


def _forbids(*parameters: Any) -> bool:
    """Whether -inf is written into parameters, or into what symbolic ones are computed from."""

    def inputs(variable: Any) -> Any:
        # Beyond random variables -inf is a bound of theirs, not a parameter of ours.
        drawn = RandomVariable | SymbolicRandomVariable
        node = variable.owner
        return [] if node is None or isinstance(node.op, drawn) else node.inputs

    reached = walk([pt.as_tensor_variable(part) for part in parameters], inputs)
    return any(
        bool(np.equal(part.data, -np.inf).any())
        for part in reached
        if isinstance(part, TensorConstant)
    )


class GraphDistribution(Discrete):
    """What models on graphs share: resolving the graph and the normaliser."""

    rv_type: Any = None
    #: Arguments that only :meth:`layout` reads.
    about: tuple[str, ...] = ("n_sites", "n_states", "coupling")

    def __new__(
        cls, name: str, h: Any = None, J: Any = None, edges: Any = None, **kwargs: Any
    ) -> Any:
        """Add the distribution to the current model."""
        observed = kwargs.get("observed")
        data = _numbers(observed)
        about = {key: kwargs.pop(key, None) for key in cls.about}
        layout, h, J = cls.layout(h, J, edges, observed=data, **about)
        normalizer: Any = _fit_normalizer(kwargs.pop("normalizer", None), layout)
        if isinstance(normalizer, AnchoredRule) and data is not None:
            try:
                normalizer.require_curvature()
            except ValueError as reason:
                # No more than a warning: a mode needs fewer draws, and what is run is not known.
                warnings.warn(f"{name}: good for a mode, not for NUTS: {reason}", stacklevel=3)
        if normalizer is None and _forbids(h, J):
            if data is not None:
                raise ValueError(
                    f"{name}: h or J hold -inf, and what is forbidden needs an exact sum: "
                    f"{_cost_of(layout)}. Anchors take finite numbers: -15 in place of -inf makes "
                    "a state one in millions"
                )
        elif normalizer is None:
            build = PottsAnchors(layout, prior_parameters(layout, h, J))
            normalizer = Anchorage(build) if data is None else Anchorage.at(build, data)
        op = cls.rv_type(layout, normalizer, integer("sweeps", kwargs.pop("sweeps", SWEEPS), 1))
        return super().__new__(cls, name, h, J, op, **kwargs)

    @classmethod
    def dist(
        cls,
        h: Any = None,
        J: Any = None,
        edges: Any = None,
        *,
        normalizer: Any = None,
        sweeps: int = SWEEPS,
        **kwargs: Any,
    ) -> Any:
        """Create the distribution outside of a model; arguments as above without the name."""
        if isinstance(edges, PottsRV):
            # Graph and normaliser were resolved when the name was given.
            op = edges
        else:
            about = {key: kwargs.pop(key, None) for key in cls.about}
            layout, h, J = cls.layout(h, J, edges, observed=None, **about)
            sweeps = integer("sweeps", sweeps, 1)
            op = cls.rv_type(layout, _fit_normalizer(normalizer, layout), sweeps)
        h, J = (pt.as_tensor_variable(floatX(part)) for part in (h, J))
        return super().dist([h, J], op=op, **kwargs)

    @classmethod
    def layout(cls, h: Any, J: Any, edges: Any, **about: Any) -> tuple[PottsLayout, Any, Any]:
        """Work out the model from the arguments, and bring the parameters into its shapes."""
        if edges is None:
            raise ValueError(
                "edges must be given: (E, 2) integers, a networkx graph, or [] if none"
            )
        ising = cls.rv_type is IsingRV
        h, J = as_parameter("h", h, not ising), as_parameter("J", J, not ising)
        if about.get("coupling") == "none":
            about["coupling"] = None
        return potts_layout(h, J, edges, ising=ising, **about)


class Potts(GraphDistribution):
    r"""Potts model on any graph, with its normalising constant.

    .. math::

       p(x) = \frac{1}{Z} \exp\Big(\sum_i h_i(x_i) + \sum_{(i,j)} J_{ij}(x_i, x_j)\Big), \qquad
       Z = \sum_{x} \exp\Big(\sum_i h_i(x_i) + \sum_{(i,j)} J_{ij}(x_i, x_j)\Big)

    ========  ==========================================================================
    Support   :math:`x \in \{0, \ldots, S-1\}^L`, one row an observation
    logp      one number a row; log Z is computed once for each set of parameters
    Draws     exact by elimination up to 10 million table entries; else Swendsen-Wang (with
              Gibbs sweeps between) for couplings that reward agreement, else Gibbs
    ========  ==========================================================================

    Signs are plus throughout: a larger ``h[i, s]`` makes state ``s`` at site ``i`` more probable,
    a positive coupling makes neighbours agree. An edge ``(i, j)`` is read as ``J[x_i, x_j]`` in
    the orientation given; nothing is symmetrised. Adding a constant to a row of ``h``, or moving
    a field between ``h`` and ``J``, does not change the model: fix it by the prior (or
    ``pm.ZeroSumNormal``). Minus infinity forbids a state of a site (in ``h``) or a pair of states
    (in ``J``), wherever the sum is exact.

    Parameters
    ----------
    name : str
        Name of the variable in the model (not in ``dist``).
    h : tensor_like of float, optional
        Fields, (L, S) or anything that broadcasts to it; ``(S,)`` is one field for all sites.
        None is no field. Leading dimensions are a batch of models.
    J : tensor_like of float
        Couplings: a number (:math:`J [x_i = x_j]`), ``(E,)`` (one such number an edge), ``(S, S)``
        or ``(E, S, S)``.
    edges : array_like of int, shape (E, 2), or networkx.Graph
        See :mod:`pymc_bayessum.graphs`; ``[]`` for independent sites.
    n_sites, n_states : int, optional
        Where the shapes of ``h``, ``J`` and ``observed`` do not tell. Symbolic parameters whose
        lengths are unknown (``X @ beta``) get those of the graph.
    coupling : {"scalar", "edge", "shared", "full"}, optional
        Which of the four forms ``J`` has, for a batch of couplings whose shape leaves it open.
    normalizer : None, "exact", or a rule
        None: exact by elimination up to 2 million table entries (square lattices of width 9 with
        3 states, 14 with 2), beyond that an anchored rule built from the observed data. "exact":
        elimination up to 500 million entries. Or a `Rule` over rows of states, or what
        `anchored_rule` and `potts_rule` return.
    sweeps : int
        Sweeps of each chain where draws are not exact; every draw is the end of its own chain.
    **kwargs
        ``observed`` (shape (n, L)), ``dims``, ``shape``, ... as in any PyMC distribution.

    Examples
    --------
    Field and coupling of a lattice, from images:

    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_bayessum as pbs
    >>> images = np.random.default_rng(0).integers(0, 3, size=(5, 16))
    >>> with pm.Model() as model:
    ...     h = pm.ZeroSumNormal("h", shape=3)
    ...     J = pm.Normal("J")
    ...     x = pbs.Potts("x", h, J, edges=pbs.graphs.grid(4, 4), observed=images)
    >>> independent = pbs.Potts.dist(np.log([[0.2, 0.8], [0.5, 0.5]]), edges=[])
    >>> float(np.exp(pm.logp(independent, [1, 0]).eval()).round(3))
    0.4
    """

    rv_type = PottsRV
    rv_op = staticmethod(apply_rv)


class Ising(GraphDistribution):
    r"""Ising model on any graph, with its normalising constant.

    .. math::

       p(x) = \frac{1}{Z} \exp\Big(\sum_i h_i x_i + \sum_{(i,j)} J_{ij} x_i x_j\Big), \qquad
       x \in \{-1, +1\}^L

    It is the Potts model of two states with :math:`h_i(\pm 1) = \pm h_i` and coupling
    :math:`2 J_{ij} [x_i = x_j]`, up to a constant; all that is said of `Potts` holds.

    Parameters
    ----------
    name : str
        Name of the variable in the model (not in ``dist``).
    h : tensor_like of float, optional
        Fields: a number or ``(L,)``; None is no field. Leading dimensions are a batch of models.
    J : tensor_like of float
        Couplings: a number or ``(E,)``.
    edges : array_like of int, shape (E, 2), or networkx.Graph
        See :mod:`pymc_bayessum.graphs`; ``[]`` for independent sites.
    n_sites : int, optional
        Where the shapes of ``h`` and ``observed`` do not tell.
    coupling : {"scalar", "edge"}, optional
        Which form ``J`` has, for a batch of couplings whose shape leaves it open.
    normalizer, sweeps, **kwargs
        As for `Potts`.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_bayessum as pbs
    >>> pair = pbs.Ising.dist(h=0.0, J=0.5, edges=[(0, 1)])
    >>> float(pm.logp(pair, [1, 1]).exp().eval().round(3))
    0.366
    """

    rv_type = IsingRV
    rv_op = staticmethod(apply_rv)
