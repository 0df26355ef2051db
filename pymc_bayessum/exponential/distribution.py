"""Any discrete exponential family as a PyMC distribution."""

from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.distribution import Discrete, _support_point
from pymc.distributions.shape_utils import rv_size_is_none
from pymc.logprob.abstract import _logprob
from pymc.pytensorf import constant_fold, floatX
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.tensor.variable import TensorVariable

from pymc_bayessum.arguments import as_generator
from pymc_bayessum.exponential.anchoring import Anchors, anchor_family, prior_of
from pymc_bayessum.exponential.family import Family
from pymc_bayessum.exponential.listing import LARGEST_SUPPORT
from pymc_bayessum.exponential.statistics import Statistics, numeric_statistics
from pymc_bayessum.normalizers.anchored.anchorage import Anchorage, known_data, resolved
from pymc_bayessum.normalizers.anchored.estimated import Estimated
from pymc_bayessum.normalizers.anchored.rule import Anchored
from pymc_bayessum.normalizers.drawn import StatesRV, apply_rv, one_set
from pymc_bayessum.normalizers.interpreted import evaluated
from pymc_bayessum.normalizers.node import log_z, normalized
from pymc_bayessum.normalizers.protocol import Normalizer

__all__ = [
    "ExponentialFamily",
    "ExponentialFamilyRV",
    "FamilyAnchors",
    "FamilyDistribution",
    "as_theta",
    "choose_normalizer",
    "require_rows",
]

#: What to do where there is no normaliser.
NO_NORMALIZER = (
    f"the states cannot be listed (there are more than {LARGEST_SUPPORT}, or they are not known), "
    "so that the normaliser has to be anchored near the posterior: at the data of a model "
    "(observed=, pm.observe or pbs.anchor), or by a normalizer= that is given"
)


class FamilyAnchors(Anchors[Family]):
    """How a family's model is anchored at data that are not known before it is asked."""

    def __call__(self, data: np.ndarray, executor: Executor | None = None) -> Normalizer:
        """Anchor at states, from which chains start as well."""
        family = with_data(self.family, data)
        rng = as_generator(self.random_seed)
        family.require_reaction(rng)
        statistics, _ = numeric_statistics(family, data)
        how: Any = {"rng": rng, "progressbar": self.progressbar, "executor": executor}
        return Estimated(anchor_family(family, statistics, self.prior, **how))


class ExponentialFamilyRV(StatesRV):
    """Random states of an exponential family; family and normaliser are part of the Op.

    ``known`` is the normaliser of all states that agree with data of which a part is missing; its
    log Z stands in place of the data's energy.
    """

    name = "exponential_family"
    __props__: Any = ("name", "signature", "dtype", "inplace", "family", "normalizer", "known")
    _print_name = ("ExponentialFamily", "\\operatorname{ExponentialFamily}")
    #: How such models are anchored.
    builder: type[Anchors] = FamilyAnchors

    def __init__(
        self,
        family: Any,
        normalizer: Normalizer | Anchorage | None,
        known: Normalizer | Anchorage | None = None,
        **kwargs: Any,
    ) -> None:
        self.family, self.normalizer, self.known = family, normalizer, known
        self.state_shape = family.state_shape
        state = ",".join(map(str, family.state_shape))
        kwargs.setdefault("signature", f"({family.n_statistics})->({state})")
        super().__init__(**kwargs)

    def anchors(self, theta: Any, random_seed: Any, progressbar: bool) -> Any:
        """Return how to anchor it with this prior; None where it has no use for anchors."""
        found = self.normalizer
        rule = getattr(found, "rule", None)
        unused = not (found is None or isinstance(found, Anchorage) or isinstance(rule, Anchored))
        if unused or self.known is not None:
            return None
        return self.builder(self.family, prior_of(theta), random_seed, progressbar)

    def draw_states(self, rng: np.random.Generator, n: int, *parameters: np.ndarray) -> np.ndarray:
        """Draw by the family's sampler."""
        (theta,) = parameters
        return self.family.decode(self.family.sample(theta, n, rng))


@_logprob.register(ExponentialFamilyRV)
def exponential_family_logp(
    op: ExponentialFamilyRV, values: Any, rng: Any, size: Any, theta: Any, **kwargs: Any
) -> Any:
    """Return theta . phi(x) - log Z(theta), -inf for what is no state."""
    (value,) = values
    normalizer, value = resolved(op.normalizer, value)
    if normalizer is None:
        raise ValueError(NO_NORMALIZER)
    theta = one_set(theta, 1)
    level = _once_a_group(normalizer, theta)
    if op.known is not None:
        energy, valid = log_z(resolved(op.known, value)[0], theta), pt.constant(True)
    else:
        value = pt.as_tensor_variable(value)
        if isinstance(value, Constant):
            known: Any = numeric_statistics(op.family, value.data)
        else:
            known = Statistics(op.family)(value)
        found, valid = known
        energy = pt.sum(found * theta, axis=-1)
    return pt.switch(valid, normalized(energy, level), -np.inf)


def _once_a_group(normalizer: Normalizer, theta: Any) -> Any:
    """Log Z of parameters; of those looked up by group (``theta[group]``) once for each group."""
    node = theta.owner
    if node is not None and isinstance(node.op, AdvancedSubtensor):
        table, *index = node.inputs
        simple = len(index) == 1 and isinstance(index[0], Variable)
        if table.type.ndim == 2 and simple and getattr(index[0].type, "ndim", 0) == 1:
            return log_z(normalizer, table)[index[0]]
    return log_z(normalizer, theta)


@_support_point.register(ExponentialFamilyRV)
def exponential_family_support_point(
    op: ExponentialFamilyRV, rv: Any, rng: Any, size: Any, theta: Any
) -> Any:
    """Return a state: the first of those to start from, or one of zeros."""
    family = op.family
    typical = family.typical
    if typical is None or not len(typical):
        typical = family.sample(np.zeros(family.n_statistics), 1, as_generator(0))
    point = family.decode(typical[:1])[0]
    batch = theta.shape[:-1] if rv_size_is_none(size) else tuple(size)
    return pt.broadcast_to(pt.constant(point), (*tuple(batch), *family.state_shape))


def as_theta(theta: Any, family: Any) -> TensorVariable:
    """Check parameters, (..., d) or d scalars, against the family's statistics; make them a tensor.

    Examples
    --------
    >>> import pymc_bayessum as pbs
    >>> family = pbs.Family(lambda x: x.sum(axis=1, keepdims=True), sites=3, n_states=2)
    >>> as_theta([0.1, 0.2], family)
    Traceback (most recent call last):
        ...
    ValueError: theta must have 1 entry (statistic 0) along its last axis, got 2
    """
    if not isinstance(theta, Variable):
        if isinstance(theta, Sequence) and any(isinstance(part, Variable) for part in theta):
            theta = pt.stack([pt.as_tensor_variable(part) for part in theta], axis=-1)
        else:
            theta = np.asarray(theta, dtype=float)
            if not np.isfinite(theta).all():
                raise ValueError(f"theta must be finite, got {theta[~np.isfinite(theta)][0]}")
    theta = pt.as_tensor_variable(floatX(theta))
    size = family.n_statistics
    if theta.type.ndim == 0 and size == 1:
        theta = theta[None]
    length = theta.type.shape[-1] if theta.type.ndim else 0
    if length is None:
        (folded,) = constant_fold((theta.shape[-1],), raise_not_constant=False)
        length = None if isinstance(folded, Variable) else int(folded)
    if length is not None and length != size:
        entries = f"{size} entr{'y' if size == 1 else 'ies'} ({', '.join(family.names)})"
        raise ValueError(f"theta must have {entries} along its last axis, got {length}")
    return pt.specify_shape(theta, (*theta.type.shape[:-1], size))


def require_rows(name: str, theta: TensorVariable, batch: tuple[int, ...]) -> None:
    """Raise where parameters (..., d) are neither one vector nor one for each observed state.

    Examples
    --------
    >>> require_rows("x", pt.zeros((3, 2)), (4,))
    Traceback (most recent call last):
        ...
    ValueError: x: theta has leading dimensions (3,), the observed states have (4,): give one ...
    """
    given = theta.type.shape[:-1]
    pairs = zip(reversed(given), reversed(batch), strict=False)
    if len(given) > len(batch) or any(one not in (None, 1, rows) for one, rows in pairs):
        raise ValueError(
            f"{name}: theta has leading dimensions {given}, the observed states have {batch}: give "
            "one vector of parameters, or one for each state (theta[group])"
        )


def _numbers(observed: Any) -> np.ndarray | None:
    """Observed data as an array, where they are known; of minibatches any one."""
    if observed is None:
        return None
    if np.ma.isMaskedArray(observed) and np.ma.getmaskarray(observed).any():
        raise ValueError(
            "observed states must be known as a whole: leave rows with missing parts out"
        )
    data = known_data(observed)
    return evaluated(observed) if data is None else data


def choose_normalizer(family: Any, normalizer: Any) -> Any:
    """Find the normaliser of a model where that needs no data: the one given, or the exact one.

    None where it has to be anchored.
    """
    if isinstance(normalizer, Normalizer | Anchorage):
        return normalizer
    wanted = f"must be None, 'exact', 'anchored' or a normaliser, got {normalizer!r}"
    if isinstance(normalizer, str) and normalizer not in ("exact", "anchored"):
        raise ValueError(f"normalizer {wanted}")
    if not isinstance(normalizer, str | None):
        raise TypeError(f"normalizer {wanted}")
    if isinstance(family, Family) and family.listing is not None:
        family.require_independent()
    if normalizer == "anchored":
        return None
    if normalizer == "exact" and family.exact is None:
        raise ValueError(f"normalizer='exact': {NO_NORMALIZER}")
    return family.exact


class FamilyDistribution(Discrete):
    """What distributions of families share: their statistics as a variable of the model."""

    @staticmethod
    def statistics(x: Any) -> TensorVariable:
        """Statistics of what the distribution returned, for ``pm.Deterministic``."""
        op = getattr(getattr(x, "owner", None), "op", None)
        if not isinstance(op, ExponentialFamilyRV):
            raise TypeError(f"x must be a variable of an exponential family, got {x!r}")
        found: Any = Statistics(op.family)(x)
        return found[0]


class ExponentialFamily(FamilyDistribution):
    r"""Any discrete exponential family, with its normalising constant.

    .. math:: p(x \mid \theta) = \frac{e^{\theta \cdot \phi(x)}}{Z(\theta)}, \qquad
              Z(\theta) = \sum_x e^{\theta \cdot \phi(x)} .

    ========  ==========================================================================
    Support   the states of the family
    logp      exact where the states can be listed (up to a million), otherwise from draws at
              anchors near the posterior, up to a constant
    Draws     by the family's sampler; exact where the states can be listed
    ========  ==========================================================================

    Parameters
    ----------
    name : str
        Name of the variable in the model (not in ``dist``).
    theta : tensor_like, shape (d,) or (..., d)
        One parameter for each statistic, from any prior and any regression. Leading dimensions are
        groups: a parameter vector for each observed state, or ``theta[group]``.
    family : Family
        Statistics and a way to draw.
    normalizer : {"exact", "anchored"} or Normalizer, optional
        By default exact where the states can be listed, else anchored at the data.
    random_seed : int or numpy.random.Generator
        For the anchors; the same ones are built every time by default.
    **kwargs
        ``observed`` (one state or several along the first axis), ``dims``, ``shape``, ... as in any
        PyMC distribution.

    Examples
    --------
    Rows of bits that like to agree with their neighbours:

    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_bayessum as pbs
    >>> def statistics(x):
    ...     return np.stack([x.sum(axis=1), (x[:, 1:] == x[:, :-1]).sum(axis=1)], axis=1)
    >>> family = pbs.Family(statistics, sites=6, n_states=2)
    >>> with pm.Model() as model:
    ...     theta = pm.Normal("theta", 0.0, 1.0, shape=2)
    ...     _ = pbs.ExponentialFamily("x", theta, family=family, observed=[[0, 0, 1, 1, 1, 0]])
    >>> alike = pbs.ExponentialFamily.dist([0.0, 0.0], family=family)
    >>> bool(np.isclose(pm.logp(alike, np.zeros(6, int)).eval(), -6 * np.log(2)))
    True
    """

    rv_type = ExponentialFamilyRV
    rv_op = staticmethod(apply_rv)

    def __new__(
        cls,
        name: str,
        theta: Any,
        family: Any = None,
        *,
        normalizer: Any = None,
        random_seed: Any = 0,
        **kwargs: Any,
    ) -> Any:
        """Add the distribution to the current model."""
        data = _numbers(kwargs.get("observed"))
        family = _require_family(family)
        if data is not None:
            try:
                family = with_data(family, data)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        theta = as_theta(theta, _require_states(family))
        if data is not None:
            require_rows(name, theta, data.shape[: data.ndim - len(family.state_shape)])
            if not isinstance(normalizer, Normalizer):
                family.require_independent()
        found = choose_normalizer(family, normalizer)
        if found is None:
            build = FamilyAnchors(family, prior_of(theta), random_seed)
            found = Anchorage(build) if data is None else Anchorage.at(build, data)
        return super().__new__(cls, name, theta, family=family, normalizer=found, **kwargs)

    @classmethod
    def dist(cls, theta: Any, family: Any = None, *, normalizer: Any = None, **kwargs: Any) -> Any:
        """Create the distribution outside of a model; arguments as above without the name."""
        family = _require_states(_require_family(family))
        theta = as_theta(theta, family)
        op = cls.rv_type(family, choose_normalizer(family, normalizer))
        return super().dist([theta], op=op, **kwargs)


def _require_family(family: Any) -> Any:
    if not isinstance(family, Family):
        raise TypeError(f"family must be a pbs.Family, got {family!r}")
    return family


def _require_states(family: Family) -> Family:
    if family.state_shape is None:
        raise ValueError("family has seen no state yet: give it start=, or observe data")
    return family


def with_data(family: Family, data: np.ndarray) -> Family:
    """Check observed states, and return the family with chains that start there."""
    shape = family.state_shape
    if shape is None:
        shape = data.shape[-1:]
    if data.ndim < len(shape) or data.shape[data.ndim - len(shape) :] != shape or not data.size:
        raise ValueError(f"observed states must have shape {shape}, got {data.shape}")
    rows = data.reshape(-1, *shape)
    inside = family.valid(rows)
    if not inside.all():
        raise ValueError(
            f"observed state {rows[~inside][0].tolist()} is not in the family's support"
        )
    return family.starting_at(rows[:: max(1, len(rows) // 500)])
