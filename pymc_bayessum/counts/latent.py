"""A latent count, summed out: what was seen of it is known, the count itself is not."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import xarray as xr
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.distributions.shape_utils import change_dist_size, rv_size_is_none
from pymc.logprob.basic import logp as log_probability
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace, graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random.basic import BetaBinomialRV, BinomialRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Shape
from pytensor.tensor.variable import TensorVariable

from pymc_bayessum.arguments import at_full_length
from pymc_bayessum.counts.n_mixture import NMixtureSum, counts_of
from pymc_bayessum.normalizers import interpreted
from pymc_bayessum.normalizers.located import LocatedSum, draw_by_nodes, outside_variables, place
from pymc_bayessum.normalizers.log_factorial import look_up_factorials
from pymc_bayessum.normalizers.node import find, log_z
from pymc_bayessum.normalizers.protocol import Facts

__all__ = ["LatentCount"]

#: A latent count that reaches that many times further in the tail of a posterior than in its
#: middle is not bounded by the data.
RUNAWAY = 8.0


class LatentCount:
    r"""Data that depend on a count nobody saw, with that count summed out.

    .. math:: p(y_s) = \sum_{N = 0}^\infty p(N) \prod_t p(y_{st} \mid N)

    for each site s, over all counts: there is no cut-off to choose, and at most 128 evaluations a
    site, wherever the counts may be.  The N-mixture model (Royle 2004, *Biometrics* 60, 108-115)
    is ``latent=pm.Poisson.dist(mu)`` and ``given=lambda n: pm.Binomial.dist(n, p)``; the model of
    Royle and Nichols (2003, *Ecology* 84, 777-790) for detections of at least one of N animals is
    ``given=lambda n: pm.Bernoulli.dist(1 - (1 - r) ** n)``.

    ========  ==========================================================================
    Support   that of the data, of shape (sites, visits)
    logp      one number a site
    Draws     a count from ``latent`` for each site, then data from ``given``
    ========  ==========================================================================

    Parameters
    ----------
    name : str
        Name of the variable in the model (not in ``dist``).
    latent : distribution
        Of the count: ``pm.Poisson.dist(...)``, ``pm.NegativeBinomial.dist(...)``,
        ``pbs.CMP.dist(...)`` or any other of counts, a number or one for each site.
    given : callable
        ``given(n)`` returns the distribution of the data at N = n, such as
        ``pm.Binomial.dist(n, p)``. Counts ``n`` come with an axis of length one for the visits,
        so parameters of shape (visits,), (sites, 1) or (sites, visits) fit.
    observed : array of shape (sites, visits)
        NaN, or a masked entry, where there was no visit.
    **kwargs
        ``dims``, ``shape``, ... as in any PyMC distribution.

    Notes
    -----
    The summand is taken to be a bell, or to fall from its left end, apart from a point mass at
    the smallest counts (zero inflation); how far the sum may be trusted, and whether the counts
    run away because detection is hardly identified, is what `check_normalizer` tells.
    :meth:`draw_latent` brings the counts back.

    Examples
    --------
    Thinning: of Poisson counts with mean 6 that are each seen with probability 0.5, as many are
    seen as Poisson counts with mean 3.

    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_bayessum as pbs
    >>> seen = pbs.LatentCount.dist(
    ...     latent=pm.Poisson.dist(6.0), given=lambda n: pm.Binomial.dist(n, 0.5), shape=(1, 1)
    ... )
    >>> exact = pm.logp(pm.Poisson.dist(3.0), 2).eval()
    >>> bool(np.isclose(pm.logp(seen, [[2]]).eval()[0], exact))
    True

    >>> with pm.Model() as model:
    ...     abundance = pm.Exponential("abundance", 0.1)
    ...     detection = pm.Beta("detection", 2, 2)
    ...     _ = pbs.LatentCount(
    ...         "y",
    ...         latent=pm.Poisson.dist(abundance),
    ...         given=lambda n: pm.Binomial.dist(n, detection),
    ...         observed=[[3, 2, np.nan], [0, 1, 1]],
    ...     )
    """

    def __new__(
        cls, name: str, *, latent: Any, given: Any, observed: Any = None, **kwargs: Any
    ) -> Any:
        """Add the distribution to the current model."""
        parts = _parts(latent, given)
        missing = None
        if observed is not None:
            observed, missing = _mark_missing(observed, parts)
            n_visits = pt.as_tensor(observed).shape[-1]
        else:
            n_visits = _n_visits(kwargs.get("shape"), kwargs.get("dims"))
        arguments, settings = _custom(parts, n_visits, missing)
        return pm.CustomDist(name, *arguments, **settings, observed=observed, **kwargs)

    @classmethod
    def dist(cls, *, latent: Any, given: Any, **kwargs: Any) -> TensorVariable:
        """Create the distribution outside of a model."""
        arguments, settings = _custom(
            _parts(latent, given), _n_visits(kwargs.get("shape"), None), None
        )
        return pm.CustomDist.dist(*arguments, **settings, **kwargs)

    @staticmethod
    def draw_latent(
        idata: Any, model: pm.Model | None = None, *, random_seed: Any = None
    ) -> xr.Dataset:
        """Draw the latent counts of a model, given its data and a posterior.

        Parameters
        ----------
        idata : DataTree or Dataset
            Draws of the model's free variables.
        model : pm.Model, optional
            The model on the context stack by default.
        random_seed : seed or Generator, optional

        Returns
        -------
        Dataset
            One variable ``<name>_latent`` of dimensions (chain, draw, sites) for each observed
            `LatentCount`, one count for each draw of the posterior.

        Notes
        -----
        A node of the sum is drawn by its share, a count uniformly from those it stands for, and
        of 16 such counts one by what its probability is over that of being proposed
        (sampling-importance-resampling). Where all counts are nodes this is exact.
        """
        model = pm.modelcontext(model)
        posterior = idata["posterior"].to_dataset() if isinstance(idata, xr.DataTree) else idata
        observed = [rv for rv in model.observed_RVs if type(rv.owner.op).__name__ == "LatentCount"]
        if not observed:
            raise ValueError("the model must have an observed LatentCount, got none")
        missing = [rv.name for rv in model.free_RVs if rv.name not in posterior]
        if missing:
            raise ValueError(f"idata must hold every free variable of the model, not {missing}")
        rng = np.random.default_rng(random_seed)
        return xr.Dataset(
            {f"{rv.name}_latent": _draws(rv, model, posterior, rng) for rv in observed}
        )


def _draws(rv: Any, model: pm.Model, posterior: xr.Dataset, rng: np.random.Generator) -> Any:
    """Draw the counts behind one variable."""
    [found] = find([log_probability(rv, model.rvs_to_values[rv])], model.free_RVs)
    theta = [x.type() for x in found.theta]
    log_f, low = found.normalizer.at(theta), found.normalizer.low(*theta)  # type: ignore[attr-defined]  # only our own is found here
    nodes = place(log_f, low)
    candidates = pt.tensor("candidates", dtype="float64", shape=(None, *low.type.shape))
    shape = posterior.sizes["chain"], posterior.sizes["draw"]
    # Numba takes 20 s the first time and 7 ms less for each draw of a survey of 150 sites.
    mode = interpreted.PLAIN if prod(shape) < 1000 else None
    # An input of the graph that a value of the model does not feed is what it is given as.
    with interpreted.interpreted():
        parameters = pytensor.function(model.free_RVs, found.theta, mode, on_unused_input="ignore")
        proposal = pytensor.function(theta, [nodes.x, nodes.weight, log_f(nodes.x)], mode)
        target = pytensor.function([candidates, *theta], log_f(candidates), mode)
    values = [
        posterior[free.name].transpose("chain", "draw", ...).to_numpy().astype(free.type.dtype)
        for free in model.free_RVs
    ]

    def draw(index: tuple[int, ...]) -> np.ndarray:
        at = parameters(*(np.asarray(v[index]) for v in values))
        x, weight, log_terms = proposal(*at)
        return draw_by_nodes(x, weight, log_terms, lambda n: target(n, *at), rng)

    counts = np.stack([draw(index) for index in np.ndindex(shape)]).astype(np.int64)
    dims = (model.named_vars_to_dims.get(rv.name) or ())[:-1] or [
        f"{rv.name}_latent_dim_{i}" for i in range(counts.ndim - 1)
    ]
    coords: dict[Any, Any] = {
        dim: list(model.coords[dim]) for dim in dims if model.coords.get(dim) is not None
    }
    coords |= {dim: posterior[dim].values for dim in ("chain", "draw")}
    return xr.DataArray(
        counts.reshape(*shape, *counts.shape[1:]), dims=("chain", "draw", *dims), coords=coords
    )


@dataclass(frozen=True)
class _Parts:
    """A latent count and what is seen of it, as functions of the parameters of both.

    Data are ``whole`` numbers or not, and ``bounded`` where none can be larger than the count;
    ``detection`` is the probability of being seen where they depend on nothing else.
    """

    latent: TensorVariable
    given: Callable[[Any], Any]
    of_latent: tuple[Variable, ...]
    of_given: tuple[Variable, ...]
    whole: bool
    bounded: bool
    detection: Any

    @property
    def parameters(self) -> tuple[Variable, ...]:
        return self.of_latent + self.of_given

    def with_parameters(self, output: Any, parameters: Sequence[Any]) -> Any:
        """Put other parameters into what was written with the user's."""
        swaps = {
            old: new for old, new in zip(self.parameters, parameters, strict=True) if old is not new
        }
        return graph_replace([output], swaps, strict=False)[0] if swaps else output


def _parts(latent: Any, given: Any) -> _Parts:
    if not _is_distribution(latent) or latent.type.dtype.startswith("float"):
        raise TypeError(
            "latent must be the distribution of a count, such as pm.Poisson.dist(mu) or "
            f"pbs.CMP.dist(mu=mu, nu=nu), got {latent!r}"
        )
    if latent.owner.op.ndim_supp:
        raise ValueError(
            f"latent must be the distribution of single counts, got {latent.owner.op} of vectors"
        )
    model = pm.Model.get_context(error_if_none=False)
    if model is not None and latent in model.basic_RVs:
        raise ValueError(
            f"latent must not be a variable of the model, got {latent.name}: pass it as "
            "pm.Poisson.dist(...), so that it is summed out"
        )
    if not callable(given):
        raise TypeError(
            "given must be a function of the count that returns the distribution of the data, "
            f"such as lambda n: pm.Binomial.dist(n, p), got {given!r}"
        )
    latent = _without_draws(latent)
    counts = pt.tensor("n", dtype="int64", shape=(None,) * latent.type.ndim + (1,))
    data = given(counts)
    if not _is_distribution(data):
        raise TypeError(
            "given must return a distribution, such as pm.Binomial.dist(n, p), got "
            f"{type(data).__name__}"
        )
    if data.owner.op.ndim_supp:
        raise ValueError(
            f"given must return a distribution of single numbers, one for each visit, got "
            f"{data.owner.op} of vectors"
        )
    if counts not in set(ancestors([data])):
        raise ValueError("given must use the count n that it is given")
    of_latent = tuple(dict.fromkeys(_parameters_of(latent)))
    of_given = (v for v in outside_variables(given, counts) if _is_parameter(v))
    return _Parts(
        latent,
        given,
        of_latent,
        tuple(v for v in of_given if v not in set(of_latent)),
        whole=not data.type.dtype.startswith("float"),
        bounded=_is_bounded(data, counts),
        detection=_detection(data, counts),
    )


def _is_distribution(x: Any) -> bool:
    return (
        isinstance(x, TensorVariable)
        and x.owner is not None
        and isinstance(x.owner.op, RandomVariable | SymbolicRandomVariable)
    )


def _without_draws(rv: Any) -> Any:
    """Return a distribution with sizes that follow from parameters.

    PyMC takes the size of a mixture's parts from the shape of a draw, whose generator would be
    looked for by JAX.
    """
    drawn = {
        v: v.owner.inputs[0].owner
        for v in ancestors([rv])
        if v.owner is not None
        and isinstance(v.owner.op, Shape)
        and isinstance(getattr(v.owner.inputs[0].owner, "op", None), RandomVariable)
    }
    shapes: dict[Variable, Variable] = {
        v: pt.as_tensor(
            node.op.infer_shape(node, [None, None, *(x.shape for x in node.inputs[2:])])[1],
            dtype="int64",
        )
        for v, node in drawn.items()
    }
    return graph_replace([rv], shapes, strict=False)[0] if shapes else rv


def _is_parameter(variable: Variable) -> bool:
    """Whether it can change; what was computed from numbers alone cannot."""
    return isinstance(variable, TensorVariable) and any(
        v.owner is None and not isinstance(v, Constant) for v in ancestors([variable])
    )


def _parameters_of(rv: Any) -> list[Variable]:
    """Return what a distribution was made of; parts of mixtures are looked into."""
    found: list[Variable] = []
    nested = isinstance(rv.owner.op, SymbolicRandomVariable)
    for x in rv.owner.inputs:
        if nested and _is_distribution(x):
            found += _parameters_of(x)
        elif _is_parameter(x):
            found.append(x)
    return found


def _is_bounded(data: Any, n: Any) -> bool:
    """Whether data are at most n for certain."""
    op, inputs = data.owner.op, data.owner.inputs
    if isinstance(op, BinomialRV | BetaBinomialRV):
        return _origin(op.dist_params(data.owner)[0]) is n
    parts = [x for x in inputs if _is_distribution(x)]
    zero = [x for x in parts if isinstance(x.owner.op, pm.DiracDelta.rv_type)]
    rest = [x for x in parts if x not in zero]
    at_zero = all(
        isinstance(c := _origin(x.owner.op.dist_params(x.owner)[0]), Constant) and not c.data.any()
        for x in zero
    )
    return bool(rest) and at_zero and all(_is_bounded(x, n) for x in rest)


def _detection(data: Any, n: Any) -> Any:
    """Return the probability of being seen, if that is all that data depend on beside the count."""
    if not (isinstance(data.owner.op, BinomialRV) and _is_bounded(data, n)):
        return None
    p = data.owner.op.dist_params(data.owner)[1]
    return None if n in set(ancestors([p])) else p


def _origin(x: Any) -> Any:
    """Return what a variable was before axes were added or its type was changed."""
    while x.owner is not None and (
        isinstance(x.owner.op, DimShuffle)
        or (isinstance(x.owner.op, Elemwise) and "Cast" in str(x.owner.op))
    ):
        x = x.owner.inputs[0]
    return x


def _mark_missing(observed: Any, parts: _Parts) -> tuple[Any, float | None]:
    """Return the data with a number that is none of them where there was no visit, and that."""
    shape = observed.type.shape if isinstance(observed, Variable) else np.shape(observed)
    if len(shape) < max(parts.latent.type.ndim, 1) + 1 or shape[-1] == 0:
        raise ValueError(
            "observed must have the shape (sites, visits), one latent count a site, got "
            f"{tuple(shape)}; one visit a site is observed[:, None]"
        )
    if isinstance(observed, Variable):
        return observed, None
    _check_fit(parts, shape)
    data = np.ma.masked_where(np.isnan(observed := np.ma.asarray(observed, dtype=float)), observed)
    known = data.compressed()
    if not np.isfinite(known).all() or (parts.bounded and (known < 0.0).any()):
        bad = known[~np.isfinite(known) | (known < 0.0)][0]
        allowed = "counts 0, 1, 2, ..." if parts.bounded else "finite numbers"
        raise ValueError(f"observed must hold {allowed}, or NaN for no visit, got {bad:g}")
    if parts.whole and (known != np.floor(known)).any():
        bad = known[known != np.floor(known)][0]
        raise ValueError(f"observed must hold whole numbers, got {bad}")
    dtype = "int64" if parts.whole else "float64"
    if known.size == data.size:
        return at_full_length(data.data.astype(dtype), known), None
    code = min(known.min(initial=0.0), 0.0) - 1.0
    return at_full_length(data.filled(code).astype(dtype), known), float(code)


def _check_fit(parts: _Parts, shape: tuple[int, ...]) -> None:
    """Raise where the parameters of either distribution do not go with the data."""
    counts = pt.tensor("n", dtype="int64", shape=(*shape[:-1], 1))
    for name, of, given in (
        ("latent", shape[:-1], parts.latent.type.shape),
        ("given", shape, parts.given(counts).type.shape),
    ):
        lengths = zip(reversed(of), reversed(given), strict=False)
        if any(there not in (None, 1, here) for here, there in lengths):
            raise ValueError(
                f"{name} must fit observed of shape (sites, visits) = {shape}, got {tuple(given)}: "
                "in given, parameters of sites are (sites, 1) and those of visits (visits,)"
            )


def _n_visits(shape: Any, dims: Any) -> Any:
    """Return how many visits there are, if shape or dims tell."""
    if shape is not None:
        return shape[-1] if isinstance(shape, TensorVariable) else np.atleast_1d(shape)[-1]
    if dims is not None:
        last = dims if isinstance(dims, str) else tuple(dims)[-1]
        return pm.modelcontext(None).dim_lengths[last]
    return None


def _custom(
    parts: _Parts, n_visits: Any, missing: float | None
) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and keyword arguments for `pm.CustomDist`."""
    n_parameters = len(parts.parameters)
    normalizer = _latent_sum(parts, missing)

    def draw(*args: Any) -> Any:
        *values, size = args
        parameters, visits = values[:n_parameters], values[n_parameters:]
        counts = parts.with_parameters(parts.latent, parameters)
        if rv_size_is_none(size):
            size = parts.with_parameters(parts.given(parts.latent[..., None]), parameters).shape[
                :-1
            ]
        counts = change_dist_size(counts, size)
        n = counts.type()
        data = parts.given(n[..., None])
        length = visits[0] if visits else data.shape[-1]
        data = change_dist_size(data, (*(n.shape[i] for i in range(n.type.ndim)), length))
        data = parts.with_parameters(data, parameters)
        return graph_replace([data], {n: counts}, strict=False)[0]

    def log_likelihood(value: Any, *values: Any) -> Any:
        return log_z(normalizer, value, *values[:n_parameters])

    arguments = list(parts.parameters)
    core = ["()"] * len(parts.of_latent)
    core += ["()" if x.type.ndim == 0 else f"(v{i})" for i, x in enumerate(parts.of_given)]
    if n_visits is not None:
        arguments.append(pt.as_tensor_variable(n_visits))
        core.append("()")
    settings = {
        "dist": draw,
        "logp": log_likelihood,
        "signature": ",".join(core) + "->(visits)",
        "class_name": "LatentCount",
    }
    return arguments, settings


def _in_double(output: Any) -> Any:
    """Return the graph with its constants in double precision.

    Left to itself PyTensor makes 20.0, but not 0.1, a number of single precision, and takes its
    log in that.
    """
    single = [
        v
        for v in ancestors([output])
        if isinstance(v, Constant) and getattr(v.type, "dtype", None) == "float32"
    ]
    if not single or pytensor.config.floatX != "float64":
        return output
    swaps: Any = {v: pt.constant(v.data.astype("float64")) for v in single}
    return clone_replace(output, swaps, rebuild_strict=False)


@dataclass(frozen=True)
class LatentSum(LocatedSum):
    """The sum over a latent count."""

    def note(self, facts: Facts) -> str | None:
        """Say when the count runs away: the data do not tell many, seldom seen, from few."""
        if not facts.needed > RUNAWAY * facts.typical:
            return None
        return (
            f"the latent count runs away: where the posterior mostly is it reaches "
            f"{facts.typical:.3g}, but up to {facts.needed:.3g} in its tail. Detection is weakly "
            "identified: more visits, or a prior that knows something about detection"
        )

    def remedy(self, facts: Facts) -> str:
        """Say why, where the counts run away."""
        return self.note(facts) or super().remedy(facts)


@dataclass(frozen=True)
class SeenByChance(LatentSum):
    """The same for counts of which every visit sees a binomial part, in one compiled pass.

    ``kind`` is what the count's distribution is (:mod:`.n_mixture`), and ``reduced(*theta)`` c and
    s a row, and the data with zeros where there was no visit.
    """

    kind: int
    reduced: Callable[..., Any]

    def log_z(self, xp: Any, *theta: Any) -> Any:
        """Return the log summand at the smallest count, and the sum over what it is there."""
        symbolic = [pt.as_tensor_variable(part) for part in theta]
        low = self.low(*symbolic)
        c, s, y = self.reduced(*symbolic)
        if low.type.ndim == 1:
            more: Any = NMixtureSum(self.kind).make_node(c, s, y).outputs[0]
        else:
            flat = pt.reshape(c, (-1,)), pt.reshape(s, (-1,)), pt.reshape(y, (-1, y.shape[-1]))
            rows: Any = NMixtureSum(self.kind).make_node(*flat).outputs[0]
            more = pt.reshape(rows, low.shape, ndim=low.type.ndim)
        value = self.log_f(low[None], *symbolic)[0] + more
        value = pt.where(pt.isnan(value), -np.inf, value)
        return value if xp is pt else interpreted.evaluated(value)


def _latent_sum(parts: _Parts, missing: float | None) -> LatentSum:
    """Return the sum over the count, as a normaliser of the data and the parameters."""

    def seen_at(value: Any) -> Any:
        """Whether there was a visit."""
        value = pt.as_tensor_variable(value)
        return pt.constant(True) if missing is None else pt.neq(value, missing)

    def log_f(n: Any, value: Any, *parameters: Any) -> Any:
        """Log-probability of the counts, of shape (nodes, sites), and of the data."""
        counts, datum = n.type.clone(dtype="int64")(), value.type()
        inner = [x.type() for x in parts.parameters]
        seen = seen_at(datum)
        log_data = log_probability(parts.given(counts[..., None]), pt.switch(seen, datum, 0))
        log_data = pt.switch(seen, log_data, 0.0)
        total = log_probability(parts.latent, counts) + pt.sum(log_data, axis=-1)
        # Between the user's parameters and the total: what lies before them stays as it is.
        total = look_up_factorials(_in_double(parts.with_parameters(total, inner)))
        swaps = dict(zip(inner, parameters, strict=True))
        swaps |= {counts: pt.cast(n, "int64"), datum: value}
        return graph_replace([total], swaps, strict=False)[0]

    def low(value: Any, *parameters: Any) -> Any:
        """Smallest count the data allow."""
        value = pt.as_tensor_variable(value)
        if not parts.bounded:
            return pt.zeros_like(value[..., 0], dtype="float64")
        return (
            pt.max(pt.switch(seen_at(value), value, 0), axis=-1).astype("float64").clip(0, np.inf)
        )

    counts = counts_of(parts.latent)
    if counts is None or parts.detection is None:
        return LatentSum(log_f, low)

    def reduced(value: Any, *parameters: Any) -> tuple[Any, Any, Any]:
        """Return c and s of the sites, and the data."""
        log_rate, shape, log_unseen = (
            _in_double(parts.with_parameters(x, parameters))
            for x in (counts.log_rate, counts.shape, pt.log1p(-parts.detection))
        )
        seen = seen_at(value)
        y = pt.switch(seen, value, 0).astype("float64").clip(0, np.inf)
        unseen = pt.sum(pt.switch(seen, log_unseen + pt.zeros_like(y), 0.0), axis=-1)
        return log_rate + unseen, shape + pt.zeros_like(unseen), y

    return SeenByChance(log_f, low, counts.kind, reduced)
