"""Any discrete model that is known up to its normalising constant."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.shape_utils import rv_size_is_none
from pymc.pytensorf import floatX
from pytensor.graph.basic import Variable
from pytensor.tensor.utils import safe_signature
from pytensor.tensor.variable import TensorVariable

from pymc_bayessum.arguments import at_full_length
from pymc_bayessum.measures.supports import (
    Image,
    Integers,
    Line,
    Naturals,
    Range,
    Sites,
    Spins,
    Support,
)
from pymc_bayessum.normalizers.adaptive import AdaptiveSum
from pymc_bayessum.normalizers.drawn import one_set
from pymc_bayessum.normalizers.located import N_CANDIDATES
from pymc_bayessum.normalizers.node import log_z as log_z_of
from pymc_bayessum.normalizers.node import normalized
from pymc_bayessum.normalizers.summed import log_normalizer
from pymc_bayessum.rules.rule import Rule

__all__ = ["Unnormalized"]


class Unnormalized:
    r"""Discrete distribution given by its unnormalised log-probability.

    .. math:: p(x \mid \theta) = \frac{f(x; \theta)}{Z(\theta)}, \qquad
              \log Z(\theta) = \log \sum_i w_i \exp(\log f(x_i; \theta) - b_i),

    where nodes :math:`x_i`, weights :math:`w_i` and log base mass :math:`b_i` come from a rule.

    ========  ==========================================================================
    Support   the support of the rule's measure; -inf log-probability outside
    logp      :math:`\log f(x; \theta) - \log Z(\theta)`, and -inf where the signed sum is
              not positive (the rule cannot answer for such a θ)
    Draws     exact where the rule's nodes are the whole support, otherwise by ``random``
    ========  ==========================================================================

    Without a rule, and with ``support``, panels of nodes are refined where the summand needs it
    (:class:`~pymc_bayessum.normalizers.adaptive.AdaptiveSum`): humps, cusps and long tails are
    summed to some ten digits, or `check_normalizer` tells that they were not.

    Parameters
    ----------
    name : str
        Name of the variable in the model (not in ``dist``).
    log_f : callable
        ``log_f(x, *params)``, the symbolic log of the unnormalised probability, written so that
        ``x`` and the parameters broadcast.  On sites ``x`` has shape (..., L) and the result
        loses that last axis.
    *params : tensor_like
        Parameters of the model.
    rule : Rule, optional
        How to sum over the support.
    support : {"naturals", "integers"} or range, optional
        In place of a rule: what to sum over. The sum then finds its own nodes, wherever the
        summand may be.
    random : callable, optional
        ``random(*params, rng=, size=)`` returns NumPy draws; needed for prior and posterior
        predictive draws where the nodes do not enumerate the support.
    ndims_params : sequence of int, optional
        How many trailing dimensions of each parameter belong to one draw; further ones to the
        left are batch dimensions.  By default none on numbers, where parameters broadcast with
        the data, and all on sites, where they are shared by the rows.
    **kwargs
        ``observed``, ``dims``, ``shape``, ... as in any PyMC distribution.

    Notes
    -----
    Observations beyond the nodes of the rule raise a warning, since the rule extrapolates there;
    `check_normalizer` tells afterwards whether log Z was good enough where the posterior lies.
    PyMC 6.3 accepts a `pm.Minibatch` of integers only if they have 32 bits.

    Examples
    --------
    A power law with an exponential cut-off on 0, ..., 200:

    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_bayessum as pbs
    >>> rule = pbs.bayes_sum(pbs.kernels.Brownian(), pbs.measures.Counting(200), np.arange(201))
    >>> def log_f(x, power, rate):
    ...     return -power * pm.math.log1p(x) - rate * x
    >>> with pm.Model() as model:
    ...     power = pm.Normal("power")
    ...     rate = pm.HalfNormal("rate")
    ...     _ = pbs.Unnormalized("y", log_f, power, rate, rule=rule, observed=[0, 3, 1])
    >>> float(pm.logp(pbs.Unnormalized.dist(log_f, 0.0, 1.0, rule=rule), 2).eval().round(3))
    -2.459

    The same law on all naturals, with nodes that are found:

    >>> law = pbs.Unnormalized.dist(log_f, 1.5, 0.01, support="naturals")
    >>> float(pm.logp(law, 2).eval().round(4))
    -2.4988
    """

    def __new__(
        cls,
        name: str,
        log_f: Callable[..., Any],
        *params: Any,
        rule: Rule | None = None,
        support: str | range | None = None,
        random: Callable[..., Any] | None = None,
        ndims_params: Sequence[int] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Add the distribution to the current model."""
        arguments, settings = _arguments(log_f, params, rule, support, random, ndims_params, name)
        known = _numbers(kwargs.get("observed"))
        if known is not None:
            _check_observed(name, _support(support) if rule is None else rule.reach.support, known)
            if rule is not None:
                _warn_beyond_reach(name, rule, known)
            kwargs["observed"] = at_full_length(kwargs["observed"], known)
        return pm.CustomDist(name, *arguments, **settings, **kwargs)

    @classmethod
    def dist(
        cls,
        log_f: Callable[..., Any],
        *params: Any,
        rule: Rule | None = None,
        support: str | range | None = None,
        random: Callable[..., Any] | None = None,
        ndims_params: Sequence[int] | None = None,
        **kwargs: Any,
    ) -> TensorVariable:
        """Create the distribution outside of a model."""
        name = "Unnormalized"
        arguments, settings = _arguments(log_f, params, rule, support, random, ndims_params, name)
        return pm.CustomDist.dist(*arguments, **settings, **kwargs)


def _arguments(
    log_f: Any,
    params: Sequence[Any],
    rule: Any,
    support: Any,
    random: Any,
    ndims_params: Any,
    name: str,
) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and keyword arguments for `pm.CustomDist`, with a rule or without."""
    if not callable(log_f):
        raise TypeError(f"log_f must be a function log_f(x, *params), got {log_f!r}")
    if random is not None and not callable(random):
        raise TypeError(f"random must be a function random(*params, rng=, size=), got {random!r}")
    if rule is not None and support is not None:
        raise ValueError("either rule or support must be given, got both")
    if rule is None and support is not None:
        return _found_nodes(log_f, params, _support(support), random, ndims_params)
    return _parts(log_f, params, rule, random, ndims_params, name)


def _support(support: Any) -> Support:
    if isinstance(support, range) and support.step == 1 and len(support):
        return Range(support.start, support.stop - 1)
    if isinstance(support, str) and support in {"naturals", "integers"}:
        return Naturals(0) if support == "naturals" else Integers()
    raise ValueError(
        "support must be 'naturals', 'integers' or a range of consecutive whole numbers such as "
        f"range(1, 1001), got {support!r}"
    )


def _found_nodes(
    log_f: Any, params: Sequence[Any], support: Support, random: Any, ndims_params: Any
) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments for a sum that finds its own nodes."""
    tensors, core_ndims, log_f_at_nodes = _broadcasting(log_f, params, ndims_params, 0)
    if log_f_at_nodes(pt.lvector("x"), *tensors).type.ndim == 0:
        raise ValueError(
            "log_f must return one number for each x, got a single one for all of them"
        )
    normalizer = AdaptiveSum(log_f_at_nodes, support)
    some = support.low if isinstance(support, Range) else 0
    settings: dict[str, Any] = {
        "logp": _log_mass(log_f, tensors, support, some, partial(log_z_of, normalizer)),
        "signature": safe_signature(core_ndims, [0]),
        "class_name": "Unnormalized",
    }
    if random is not None:
        sampler = _sampler(random, "", len(tensors))
        return tensors, {**settings, "random": sampler, "dtype": "int64"}

    def draw(*args):
        *values, size = args
        nodes = normalizer.nodes(*values)
        return _draw_by_nodes(*nodes, lambda x: log_f_at_nodes(pt.cast(x, "int64"), *values), size)

    def support_point(rv, size, *values):
        x, _ = normalizer.nodes(*values[: len(tensors)])
        log_mass = log_f_at_nodes(pt.cast(x, "int64"), *values[: len(tensors)])
        best = pt.argmax(pt.where(pt.isnan(log_mass), -np.inf, log_mass), axis=-1, keepdims=True)
        point = pt.take_along_axis(x, best, axis=-1)[..., 0]
        return pt.cast(point if rv_size_is_none(size) else pt.broadcast_to(point, size), "int64")

    return tensors, {**settings, "dist": draw, "support_point": support_point}


def _draw_by_nodes(x: Any, weight: Any, log_f: Callable[[Any], Any], size: Any) -> Any:
    """Return symbolic draws by the nodes of a sum, as :func:`.located.draw_by_nodes` does it."""
    used = pt.gt(weight, 0.0)
    order = pt.argsort(pt.where(used, x, np.inf), axis=-1)
    x = pt.take_along_axis(pt.where(used, x, np.inf), order, axis=-1)
    weight = pt.take_along_axis(weight, order, axis=-1)
    kept = pt.isfinite(x)
    share = pt.log(weight) + log_f(pt.where(kept, x, x[..., :1]))
    share = pt.where(pt.and_(kept, pt.invert(pt.isnan(share))), share, -np.inf)
    middle = pt.floor((x[..., 1:] + x[..., :-1]) / 2.0)
    lower = pt.join(-1, x[..., :1], middle + 1.0)
    upper = pt.join(-1, pt.where(pt.isfinite(middle), middle, x[..., :-1]), x[..., -1:])
    batch = [x.shape[i] for i in range(x.type.ndim - 1)] if rv_size_is_none(size) else list(size)
    times = (*batch, N_CANDIDATES)
    chosen = pm.Categorical.dist(logit_p=pt.expand_dims(share, -2), size=times)

    def at(values: Any) -> Any:
        whole = pt.broadcast_to(values, (*batch, values.shape[-1]))
        return pt.take_along_axis(whole, chosen, axis=-1)

    first, count = at(lower), at(upper) - at(lower) + 1.0
    candidates = first + pt.floor(count * pm.Uniform.dist(size=times))
    log_ratio = log_f(candidates) - at(share) + pt.log(count)
    best = pm.Categorical.dist(logit_p=pt.where(pt.isnan(log_ratio), -np.inf, log_ratio))
    taken = pt.take_along_axis(candidates, pt.expand_dims(best, -1), axis=-1)[..., 0]
    return pt.cast(taken, "int64")


def _parts(
    log_f: Any, params: Sequence[Any], rule: Any, random: Any, ndims_params: Any, name: str
) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and keyword arguments for `pm.CustomDist`."""
    if not isinstance(rule, Rule):
        raise TypeError(
            "rule must be a Rule, as made by bayes_sum, or support= must say what to sum over, "
            f"got {rule!r}"
        )
    support = rule.reach.support
    if isinstance(rule.nodes, tuple) or rule.nodes.dtype.kind not in "iu":
        raise TypeError(f"rule must have integer nodes or rows of them, got the support {support}")
    ndim_supp = rule.nodes.ndim - 1
    tensors, core_ndims, log_f_at_nodes = _broadcasting(log_f, params, ndims_params, ndim_supp)

    def log_z(*values):
        return log_normalizer(lambda nodes: log_f_at_nodes(nodes, *values), rule)

    def support_point(rv, size, *values):
        """Return the node with the most mass, for each set of parameters."""
        nodes = pt.constant(rule.nodes)
        log_mass = log_f_at_nodes(nodes, *values[: len(tensors)])
        point = nodes[pt.argmax(log_mass, axis=-1)]
        if rv_size_is_none(size):
            return point
        return pt.broadcast_to(point, (*tuple(size), *rule.nodes.shape[1:]))

    settings: dict[str, Any] = {
        "logp": _log_mass(log_f, tensors, support, rule.nodes[0], log_z),
        "support_point": support_point,
        "class_name": "Unnormalized",
    }
    if random is None and support is not None and support.size == len(rule):

        def draw(*args):
            *values, size = args
            logits = log_f_at_nodes(pt.constant(rule.nodes), *values)
            return pt.constant(rule.nodes)[pm.Categorical.dist(logit_p=logits, size=size)]

        settings["dist"] = draw
        settings["signature"] = safe_signature(core_ndims, [ndim_supp])
        return tensors, settings

    message = (
        f"cannot draw from {name}: the {len(rule)} nodes of its rule do not enumerate the support "
        f"{support}; pass random=, a function random(*params, rng=, size=) that returns draws"
    )
    settings["random"] = _sampler(random, message, len(tensors))
    settings["dtype"] = "int64"
    # A row of nodes rides along, since the length of a draw must show in some parameter.
    settings["signature"] = _signature_with_row(core_ndims) if ndim_supp else None
    return [*tensors, pt.constant(rule.nodes[0])] if ndim_supp else tensors, settings


def _broadcasting(
    log_f: Any, params: Sequence[Any], ndims_params: Any, ndim_supp: int
) -> tuple[list[Any], list[int], Callable[..., Any]]:
    """Return the parameters, their core dimensions, and log_f with room for an axis of nodes."""
    # Left to itself PyTensor makes 4.0, but not 0.1, a number of single precision.
    given = [floatX(param) if isinstance(param, float) else param for param in params]
    tensors = [pt.as_tensor_variable(param) for param in given]
    core_ndims = _core_ndims(tensors, ndims_params, ndim_supp)

    def make_room(value, core_ndim):
        # Between batch and core dimensions, if there is any batch.
        return pt.expand_dims(value, -1 - core_ndim) if value.type.ndim > core_ndim else value

    def log_f_at_nodes(nodes, *values):
        return log_f(nodes, *map(make_room, values, core_ndims))

    return tensors, core_ndims, log_f_at_nodes


def _log_mass(
    log_f: Any, tensors: Sequence[Any], support: Support | None, some: Any, log_z: Any
) -> Callable[..., Any]:
    """Return the log-probability of values, given log Z and some point of the support."""

    def logp(value, *inputs):
        values = [one_set(v, tensor.type.ndim) for v, tensor in zip(inputs, tensors, strict=False)]
        value = pt.as_tensor_variable(value)
        inside = True if support is None else _inside(support, value)
        if value.dtype.startswith("float"):
            whole = pt.eq(value, pt.floor(value))
            inside = pt.and_(inside, pt.all(whole, axis=-1) if np.ndim(some) else whole)
        # log_f is never asked about a point outside of its domain: its gradient may be NaN there.
        safe = pt.switch(pt.expand_dims(inside, -1) if np.ndim(some) else inside, value, some)
        return pt.switch(inside, normalized(log_f(safe, *values), log_z(*values)), -np.inf)

    return logp


def _core_ndims(tensors: Sequence[Any], ndims_params: Any, ndim_supp: int) -> list[int]:
    if ndims_params is None:
        return [tensor.type.ndim if ndim_supp else 0 for tensor in tensors]
    core_ndims = [int(ndim) for ndim in ndims_params]
    ndims = [tensor.type.ndim for tensor in tensors]
    if len(core_ndims) != len(ndims) or any(
        not 0 <= core <= ndim for core, ndim in zip(core_ndims, ndims, strict=True)
    ):
        raise ValueError(
            f"ndims_params must hold one number for each parameter, between 0 and its number of "
            f"dimensions {ndims}, got {list(ndims_params)}"
        )
    return core_ndims


def _signature_with_row(core_ndims: Sequence[int]) -> str:
    parts = ["(" + ",".join(f"i{k}{d}" for d in range(n)) + ")" for k, n in enumerate(core_ndims)]
    return ",".join([*parts, "(sites)"]) + "->(sites)"


def _sampler(random: Callable[..., Any] | None, message: str, n_params: int) -> Callable[..., Any]:
    def draw(*args, rng=None, size=None):
        if random is None:
            raise NotImplementedError(message)
        return np.asarray(random(*args[:n_params], rng=rng, size=size), dtype=np.int64)

    return draw


def _inside(support: Support, value: Any) -> Any:
    """Return symbolically which values, or rows of values, lie in a support."""
    if isinstance(support, Line):
        low, high = support.ends
        above = pt.ones_like(value, dtype=bool) if np.isinf(low) else pt.ge(value, low)
        return above if np.isinf(high) else pt.and_(above, pt.le(value, high))
    if isinstance(support, Sites):
        return pt.all(pt.and_(pt.ge(value, 0), pt.lt(value, support.n_states)), axis=-1)
    if isinstance(support, Spins):
        return pt.all(pt.eq(pt.abs(value), 1), axis=-1)
    if isinstance(support, Image):
        origin = support.inverse(value)
        back = pt.eq(support.forward(origin), value)
        if isinstance(support.base, Sites | Spins):
            back = pt.all(back, axis=-1)
        return pt.and_(_inside(support.base, origin), back)
    raise TypeError(f"rule must sum over integers or rows of them, got the support {support}")


def _numbers(observed: Any) -> np.ndarray | None:
    """Return the data that are known beforehand, missing ones left out."""
    data = observed.get_value() if hasattr(observed, "get_value") else observed
    if data is None or isinstance(data, Variable):
        return None
    return np.ma.masked_invalid(np.ma.asarray(data, dtype=float)).compressed()


def _check_observed(name: str, support: Support | None, data: np.ndarray) -> None:
    """Raise for data that PyMC would truncate, or that the support does not have."""
    bad = data != np.floor(data)
    if isinstance(support, Line):
        bad |= (data < support.ends[0]) | (data > support.ends[1])
    if bad.any():
        where = f" from {support}" if isinstance(support, Line) else ""
        raise ValueError(f"observed of {name} must hold whole numbers{where}, got {data[bad][0]:g}")


def _warn_beyond_reach(name: str, rule: Rule, data: np.ndarray) -> None:
    """Warn when data lie where the rule has no node to see the summand."""
    lowest, highest = rule.reach.lowest, rule.reach.highest
    if not data.size or lowest is None or highest is None:
        return
    if data.min() < lowest or data.max() > highest:
        warnings.warn(
            f"{name} has observations from {data.min():g} to {data.max():g}, but the nodes of its "
            f"rule reach from {lowest:g} to {highest:g}: beyond them the summand is extrapolated",
            stacklevel=3,
        )
