"""The normalisers of a model on posterior draws: values, references, and what they change.

Everything is compiled once and evaluated draw by draw, in the space of the model's own variables
(no transforms), as a posterior group holds them.
"""

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import xarray as xr
from pymc.model.transform.conditioning import remove_value_transforms
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.rewriting import inline_ofg_node
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.basic import MergeOptimizer
from pytensor.graph.traversal import ancestors

from pymc_bayessum.arguments import as_generator
from pymc_bayessum.diagnostics.draws import values_of
from pymc_bayessum.interrupts import Interrupted
from pymc_bayessum.normalizers.node import Found, LogZ, find
from pymc_bayessum.normalizers.protocol import Asked, Reference, ReferenceValue
from pymc_bayessum.progress import progress

__all__ = ["Evaluator", "Part", "Seen", "as_written"]

PREPARED_DRAWS = 100
#: Draws below which an interrupted check says nothing.
FEWEST_DRAWS = 20


class Part(NamedTuple):
    """A normaliser of the model, its name and what it is held against."""

    name: str
    found: Found
    reference: Reference | None

    @property
    def description(self) -> str:
        """What it is held against, in words."""
        return "none" if self.reference is None else self.reference.description

    @property
    def doubt(self) -> str:
        """Why nothing it says can be believed, where the reference knows of a reason."""
        return getattr(self.reference, "doubt", None) or ""


class Seen(NamedTuple):
    """One normaliser at one draw, in numbers: means over its rows, unless said otherwise.

    Names that `check_normalizer` explains mean the same. ``reference_noise`` is half the difference
    of two halves of the reference, ``beyond`` the share of the sum outside the range of the rule's
    nodes, ``needed`` up to where nodes are needed, ``cut`` the share of what the summand has beyond
    an end of its support at which it does not end, and ``log_ratio_alone`` the change of the
    model's logp when this log Z is replaced by its reference.
    """

    log_z: float
    log_z_sd: float
    log_z_reference: float
    log_z_error: float
    log_z_error_max: float
    worst_row: int
    reference_sd: float
    reference_noise: float
    beyond: float
    needed: float
    cut: float
    log_ratio_alone: float


@contextmanager
def _without_initial_values(model: pm.Model) -> Iterator[None]:
    """Forget the initial values of a model for a while: PyMC does not copy a model that has any."""
    kept = dict(model.rvs_to_initial_values)
    try:
        model.rvs_to_initial_values.update(dict.fromkeys(kept))
        yield
    finally:
        model.rvs_to_initial_values.update(kept)


class Evaluator:
    """The normalisers of a model and what they do to its logp, compiled once for all draws.

    Its ``parts`` are the normalisers, and ``free`` the variables in the order a draw holds their
    values. Some of the posterior's draws are shown to the references, which may need to sample.
    """

    def __init__(
        self,
        model: pm.Model,
        posterior: xr.Dataset,
        compile_kwargs: dict[str, Any],
        random_seed: Any,
    ):
        with _without_initial_values(model):
            flat = remove_value_transforms(model)
        self.free = flat.free_RVs
        self.variables = [flat.rvs_to_values[rv] for rv in self.free]
        terms = [*flat.free_RVs, *flat.observed_RVs, *flat.potentials]
        names = [str(term.name) for term in terms]
        # Those of `pymc.dims` are tensors with names.
        plain: list[Variable] = [
            pt.as_tensor(x, allow_xtensor_conversion=True) for x in flat.logp(sum=False)
        ]
        factors = dict(zip(names, _simplify(plain), strict=True))
        # The copy without transforms has forgotten the order of the variables.
        order = [v.name for v in [*model.free_RVs, *model.observed_RVs, *model.potentials]]
        found = _find([(as_written(name, model), factors[name]) for name in order])
        options = {"on_unused_input": "ignore", **compile_kwargs}
        self._compiled = [
            _compile(self.variables, [each.log_z, _stated_sd(each), *each.theta], options)
            for each in found.values()
        ]
        self._log_ratio = _compile_log_ratio(
            list(factors.values()), list(found.values()), self.variables, options
        )
        draws = self.as_draws(posterior)
        some = draws[:: max(1, len(draws) // PREPARED_DRAWS)]
        rng = as_generator(random_seed)
        self.parts = []
        for (name, each), function in zip(found.items(), self._compiled, strict=True):
            values = [[np.asarray(v) for v in function(*draw)[2:]] for draw in some]
            asked = Asked(each.theta, values, self.variables, compile_kwargs, rng)
            self.parts.append(Part(name, each, each.normalizer.reference(asked)))

    def as_draws(self, posterior: xr.Dataset) -> list[list[np.ndarray]]:
        """Return for each draw the values of the free variables, in the order of the names."""
        return values_of(posterior, self.free)

    def at(self, draw: Sequence[np.ndarray]) -> tuple[float, list[Seen]]:
        """Return the change of the logp to its reference at one draw, and all normalisers."""
        now = self._arrays(draw)
        better = [
            np.broadcast_to(value.log_z, z.shape).astype(z.dtype)
            for value, z in zip(now.reference, now.log_z, strict=True)
        ]
        log_ratio = self._change(draw, now, better)
        alone = [log_ratio]
        if len(self.parts) > 1:
            alone = [self._change(draw, now, now.with_one(j, z)) for j, z in enumerate(better)]
        return log_ratio, list(map(_in_numbers, now.log_z, now.sd, now.reference, alone))

    def _arrays(self, draw: Sequence[np.ndarray]) -> "_Arrays":
        now = _Arrays([], [], [], [])
        for part, function in zip(self.parts, self._compiled, strict=True):
            log_z, sd, *theta = map(np.asarray, function(*draw))
            now.log_z.append(log_z)
            now.sd.append(sd)
            now.theta.extend(theta)
            # Without a reference the normaliser stands for itself, infinitely uncertain.
            itself = ReferenceValue(log_z, sd=np.inf)
            now.reference.append(itself if part.reference is None else part.reference(draw, theta))
        return now

    def _change(
        self, draw: Sequence[np.ndarray], now: "_Arrays", log_zs: Sequence[np.ndarray]
    ) -> float:
        """Return by how much the logp rises when each log Z takes another value."""
        return float(self._log_ratio(*draw, *now.theta, *now.log_z, *log_zs))

    def at_point(self, point: Mapping[str, Any]) -> tuple[float, list[Seen]]:
        """Return the same at a point, given by names."""
        return self.at([np.asarray(point[rv.name], dtype=rv.dtype) for rv in self.free])

    def at_all(
        self, draws: list[list[np.ndarray]], progressbar: bool = False
    ) -> tuple[np.ndarray, list[list[Seen]]]:
        """Return the same for all draws."""
        ratios, seen = [], []
        with progress("Checking normalisers", progressbar, len(draws)) as report:
            try:
                for draw in draws:
                    ratio, row = self.at(draw)
                    ratios.append(ratio)
                    seen.append(row)
                    report()
            except KeyboardInterrupt:
                if len(seen) < FEWEST_DRAWS:
                    raise
                raise Interrupted("", (np.array(ratios[: len(seen)]), seen)) from None
        return np.array(ratios), seen

    def affordable(self, posterior: xr.Dataset, time_budget: float) -> int:
        """Return how many draws can be evaluated within so many seconds, at least one."""
        draws = self.as_draws(posterior)
        few = draws[:: max(1, len(draws) // 4)][:4]
        self.at(few[0])  # what is compiled at the first call is not paid again
        start = time.perf_counter()
        for draw in few:
            self.at(draw)
        seconds = max((time.perf_counter() - start) / len(few), 1e-9)
        return int(max(1, time_budget / seconds))

    def counts(self, draw: Sequence[np.ndarray]) -> list[float]:
        """Return how often each normaliser is subtracted in the logp, summed over its rows."""
        step = 1e-4
        now = self._arrays(draw)
        moved = [now.with_one(j, (z + step).astype(z.dtype)) for j, z in enumerate(now.log_z)]
        return [-self._change(draw, now, log_zs) / step for log_zs in moved]


class _Arrays(NamedTuple):
    """All normalisers at one draw, row by row."""

    log_z: list[np.ndarray]
    sd: list[np.ndarray]
    theta: list[np.ndarray]
    reference: list[ReferenceValue]

    def with_one(self, j: int, log_z: np.ndarray) -> list[np.ndarray]:
        """Return the log Zs with another value for one of them."""
        return [*self.log_z[:j], log_z, *self.log_z[j + 1 :]]


def _in_numbers(
    log_z: np.ndarray, sd: np.ndarray, value: ReferenceValue, log_ratio_alone: float
) -> Seen:
    error = log_z - value.log_z
    # A log Z that does not exist is the worst of all errors.
    worst = int(np.argmax(np.nan_to_num(np.abs(error), nan=np.inf)))
    return Seen(
        log_z=float(log_z.mean()),
        log_z_sd=float(sd.mean()),
        log_z_reference=float(np.mean(value.log_z)),
        log_z_error=float(error.mean()),
        log_z_error_max=float(error.flat[worst]),
        worst_row=worst,
        reference_sd=value.sd,
        reference_noise=value.noise,
        beyond=value.beyond,
        needed=value.needed,
        cut=value.cut,
        log_ratio_alone=log_ratio_alone,
    )


def _simplify(factors: list[Variable]) -> list[Variable]:
    """Lay open what hides normalisers, and let equal nodes be one.

    A truncated term, for example, asks for the same log Z three times.
    """
    graph = FunctionGraph(outputs=factors, clone=False)
    for node in graph.toposort():
        if not isinstance(node.op, HasInnerGraph) or isinstance(node.op, LogZ):
            continue
        if not find(node.op.inner_outputs):
            continue
        if isinstance(node.op, OpFromGraph):
            graph.replace_all(list(zip(node.outputs, inline_ofg_node(node), strict=True)))
        else:
            warnings.warn(f"a log-normaliser inside of {node.op} cannot be checked", stacklevel=4)
    MergeOptimizer().rewrite(graph)
    return list(graph.outputs)


def as_written(name: str, model: pm.Model) -> str:
    """Return the name a user gave: PyMC splits a variable with missing observations in two."""
    whole = name.removesuffix("_unobserved").removesuffix("_observed")
    return whole if whole in model.named_vars else name


def _find(factors: Sequence[tuple[str, Variable]]) -> dict[str, Found]:
    """Return the normalisers in the terms of a logp, each by the name of its term."""
    named: dict[Variable, tuple[str, Found]] = {}
    for name, factor in factors:
        for each in find([factor]):
            named.setdefault(each.log_z, (name, each))
    if not named:
        raise ValueError(
            "the model has no log-normaliser to check: nothing in it was built by "
            "pbs.log_normalizer or is a distribution of pymc_bayessum"
        )
    names = [name for name, _ in named.values()]
    found: dict[str, Found] = {}
    for name, each in named.values():
        number = sum(key.split("[")[0] == name for key in found)
        found[name if names.count(name) == 1 else f"{name}[{number}]"] = each
    return found


def _stated_sd(found: Found) -> Variable:
    """Return the standard deviation that the normaliser itself states for log Z, 0 if exact."""
    sd = found.normalizer.sd(pt, *found.theta)
    return pt.constant(0.0) if sd is None else sd


def _compile(inputs: Sequence[Variable], outputs: Any, options: dict[str, Any]) -> Any:
    function = pytensor.function(inputs, outputs, **options)
    function.trust_input = True
    return function


def _compile_log_ratio(
    factors: Sequence[Variable],
    normalizers: Sequence[Found],
    variables: Sequence[Variable],
    options: dict[str, Any],
) -> Any:
    """Compile the change of the logp as a function of a draw, old log Zs and new log Zs.

    The normalisers and their parameters are inputs here, so none is evaluated; and whatever a term
    does with its log Z (mixtures, truncation, weights) is done exactly.
    """
    log_zs = [each.log_z for each in normalizers]
    others = [part for each in normalizers for part in each.theta]
    affected = [factor for factor in factors if set(log_zs) & set(ancestors([factor]))]
    shared, old, new = ([v.type() for v in vs] for vs in (others, log_zs, log_zs))
    before, after = (
        clone_replace(
            affected,
            dict(zip([*others, *log_zs], [*shared, *mine], strict=True)),
            rebuild_strict=False,
        )
        for mine in (old, new)
    )
    # Where both are -inf nothing has changed.
    changes = [
        pt.sum(pt.switch(pt.eq(b, a), 0.0, pt.sub(a, b)))
        for b, a in zip(before, after, strict=True)
    ]
    total = pt.add(*changes, 0.0)
    return _compile([*variables, *shared, *old, *new], total, options)
