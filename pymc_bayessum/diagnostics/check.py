r"""Whether a normaliser holds over the posterior.

A model that uses an estimated :math:`\log \hat Z(\theta)` is sampled from an approximate
posterior.  On its draws :math:`\theta_s` the error is known wherever a better log Z can be had, and
with it the log ratio of the two posteriors,

.. math:: r_s = \log p(y \mid \theta_s) - \log \hat p(y \mid \theta_s),

in which every row counts: an error of log Z enters once for each observation.  A constant error
does no harm; what varies moves the posterior.  The draws, weighted by
:math:`w_s \propto \exp(r_s)` and smoothed by Pareto smoothed importance sampling (Vehtari,
Simpson, Gelman, Yao and Gabry, 2024, JMLR 25(72)), are draws of the reference posterior as long
as the tail index :math:`\hat k` of the weights is small.

With the coefficient of variation c of the weights no posterior mean moves by more than c of its
own posterior standard deviation (Cauchy-Schwarz); effective sample size and c are tied by
ESS = S / (1 + c²).
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_bayessum.diagnostics.evaluation import PLAIN, Evaluator, Part, Seen
from pymc_bayessum.diagnostics.importance import (
    MINIMUM_DRAWS,
    khat_threshold,
    resample,
    smooth_weights,
)
from pymc_bayessum.diagnostics.laplace import mode_shift
from pymc_bayessum.normalizers.protocol import Facts

__all__ = ["CheckedTree", "check_normalizer", "correct"]

#: No posterior mean may move by more than this many posterior sds.
HARMLESS_SHIFT = 0.1
GOOD_KHAT = 0.5
#: Weights below this many times their mean are much the same, whatever their tail.
EQUAL_WEIGHTS = 2.0
#: No time budget goes below this many draws.
LEAST_DRAWS = 50
MINIMUM_ESS = 50
#: Groups that the approximate normaliser or the sampler's path entered.
STALE_GROUPS = {"normalizer", "log_likelihood", "log_prior", "sample_stats", "warmup_posterior"}
UNTRUSTED = "not to be trusted"


class CheckedTree(xr.DataTree):
    """The DataTree that `check_normalizer` returns: it prints as the verdict."""

    def __repr__(self) -> str:  # type: ignore[override]
        """Return the verdict; a child prints as any DataTree does."""
        if self.parent is not None or "normalizer" not in self.children:
            return super().__repr__()
        return f"{self['normalizer'].attrs['report']}\nGroups: {', '.join(self.children)}"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        if self.parent is not None or "normalizer" not in self.children:
            return super()._repr_html_()
        report = escape(str(self["normalizer"].attrs["report"]))
        return f"<pre>{report}</pre>{super()._repr_html_()}"


def check_normalizer(
    idata: Any,
    model: pm.Model | None = None,
    *,
    draws: int | None = None,
    time_budget: float | None = None,
    group: str = "posterior",
    progressbar: bool = True,
    compile_kwargs: dict[str, Any] | None = None,
    random_seed: Any = None,
) -> CheckedTree:
    r"""Check every log-normaliser of a model on its posterior draws.

    Every normaliser in the log-probability of the model is found, evaluated on the draws, and
    compared with a reference: an exact sum, a long series, elimination on a graph or a finer
    rule, whichever applies (see the description in the result).  The differences add up to the
    error of the log-likelihood at each draw and to importance weights that lead from the
    approximate to the reference posterior.

    Parameters
    ----------
    idata : DataTree, Dataset or dict
        Posterior draws from any sampler, from ADVI (``approx.sample()``) or from a file; or the
        point that ``pm.find_MAP`` returns.  A DataTree also receives the new group itself.
    model : pm.Model, optional
        The model; by default the one on the context stack.
    draws : int, optional
        Check about this many draws, evenly spaced.  By default all of them, or as many as the
        time budget allows.
    time_budget : float, optional
        Seconds the evaluation may take when ``draws`` is not given.  By default half as long as
        the sampling took, between 3 and 60, where that is known, else 60.
    group : str
        Where the draws are.
    progressbar : bool
        Whether to show one.
    compile_kwargs : dict, optional
        Passed to ``pytensor.function``, for example ``{"mode": "NUMBA"}``.  By default nothing
        is compiled, which for a few thousand draws is faster than waiting for a compiler.
    random_seed : seed or Generator, optional
        For references that sample.

    Returns
    -------
    CheckedTree
        A DataTree with the groups of ``idata`` and the group ``normalizer``, which holds, with
        dimensions chain, draw and normalizer:

        * ``log_z``, ``log_z_sd``, ``log_z_reference``, ``log_z_error``: the log-normaliser, the
          sd its rule states, the reference and the difference, each the mean over the rows of
          the normaliser; ``log_z_error_max``, the largest difference in a row, and
          ``worst_row``, where it is; ``reference_sd``, how uncertain the reference is itself;
        * ``log_likelihood_error``: the approximate minus the reference log-likelihood of the
          whole model, and ``log_likelihood_error_alone``, with one normaliser replaced;
        * ``log_weight``: normalised, Pareto-smoothed log weights;
        * ``pareto_k`` and ``ess`` of the weights, ``pareto_k_alone`` for one normaliser.

        Its attributes hold the ``verdict`` ("good", "corrected" or "not to be trusted"), the
        ``reason``, the ``advice`` and the ``report``, which is what the tree prints as.

    Notes
    -----
    After ``pm.find_MAP`` there is one draw and no weights.  The gradient of the error in the
    directions of one posterior sd (of the Laplace approximation) tells by how many sds the mode
    has moved.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import xarray as xr
    >>> import pymc_bayessum as pbs
    >>> def log_f(x, rate):
    ...     return -rate * x
    >>> with pm.Model() as model:
    ...     rate = pm.HalfNormal("rate")
    ...     rule = pbs.geometric_rule(0.5, n=4)
    ...     y = pbs.Unnormalized("y", log_f, rate, rule=rule, observed=[0, 3, 2, 1] * 3)
    >>> rates = np.random.default_rng(1).gamma(4.0, 0.06, size=(1, 100))
    >>> posterior = xr.Dataset({"rate": (("chain", "draw"), rates)})
    >>> checked = pbs.check_normalizer(posterior, model, progressbar=False)
    >>> checked["normalizer"].attrs["verdict"]
    'not to be trusted'
    """
    model = pm.modelcontext(model)
    tree, point = _as_tree(idata, model, group)
    posterior = _free_variables(tree[group].to_dataset(), group, model)
    evaluator = Evaluator(model, posterior, compile_kwargs or {"mode": PLAIN}, random_seed)
    if draws is None:
        budget = _budget(tree[group].attrs) if time_budget is None else time_budget
        draws = max(LEAST_DRAWS, evaluator.affordable(posterior, budget))
    thinned = _thin(posterior, draws)
    values = evaluator.as_draws(thinned)
    log_ratio, seen = evaluator.at_all(values, progressbar)
    check = _as_dataset(log_ratio, seen, evaluator, values[0], thinned)
    if point is None:
        judgement = _judge_draws(check)
    else:
        judgement = _judge_point(check, mode_shift(model, point, evaluator.log_ratio_at))
    check.attrs |= {"verdict": judgement[0], "reason": judgement[1]}
    check.attrs["advice"] = "" if judgement[0] == "good" else _advice(check, evaluator.parts)
    check.attrs["draws_available"] = _n_draws(posterior)
    check.attrs["report"] = _report(check)
    tree["normalizer"] = check
    nodes = {node.path: node.dataset for node in tree.subtree}
    return CheckedTree.from_dict(nodes, name=tree.name)


def correct(
    idata: Any,
    model: pm.Model | None = None,
    *,
    random_seed: Any = None,
    **check_kwargs: Any,
) -> xr.DataTree:
    r"""Return draws of the reference posterior: those of the approximate one, resampled.

    The draws are resampled systematically in proportion to the weights of
    :func:`check_normalizer`, so that a draw of weight w among S appears floor(Sw) or ceil(Sw)
    times, and come out in random order.  What was computed from the draws goes with them, except
    for ``log_likelihood`` and ``log_prior``, which the approximate normaliser entered, and
    ``sample_stats``.

    Parameters
    ----------
    idata : DataTree
        Checked by :func:`check_normalizer`; it is run first if it was not.
    model : pm.Model, optional
        Only needed if it has to be run.
    random_seed : seed or Generator, optional
        For the resampling.
    **check_kwargs
        Passed to :func:`check_normalizer` if it has to be run.

    Returns
    -------
    DataTree
        With as many draws as were checked.

    Raises
    ------
    ValueError
        Where the weights cannot be trusted, with the reason and what to do.

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> import pymc_bayessum as pbs
    >>> draws = {"chain": [0], "draw": [0, 1, 2, 3]}
    >>> dims = ("chain", "draw")
    >>> weights = np.array([[0.5, 0.0, 0.25, 0.25]])
    >>> with np.errstate(divide="ignore"):
    ...     group = xr.Dataset(
    ...         {"log_weight": (dims, np.log(weights))}, draws, {"verdict": "corrected"}
    ...     )
    >>> posterior = xr.Dataset({"lam": (dims, [[1.0, 2.0, 3.0, 4.0]])}, draws)
    >>> dt = xr.DataTree.from_dict({"posterior": posterior, "normalizer": group})
    >>> np.sort(pbs.correct(dt).posterior["lam"].values).tolist()
    [[1.0, 1.0, 3.0, 4.0]]
    """
    if not isinstance(idata, xr.DataTree) or "normalizer" not in idata.children:
        try:
            model = pm.modelcontext(model)
        except TypeError:
            raise ValueError(
                "idata has no group 'normalizer': run check_normalizer first, or pass model="
            ) from None
        idata = check_normalizer(idata, model, **check_kwargs)
    check = idata["normalizer"].to_dataset()
    if check.attrs["verdict"] == "not to be trusted":
        raise ValueError(
            f"the posterior cannot be corrected: {check.attrs['reason']}. "
            f"What to do: {check.attrs['advice']}"
        )
    log_weight = check["log_weight"].transpose("chain", "draw")
    chosen = resample(np.exp(log_weight.values.ravel()), np.random.default_rng(random_seed))
    chosen = chosen.reshape(log_weight.shape)
    groups = {}
    for name, node in idata.children.items():
        ds = node.to_dataset()
        if name not in STALE_GROUPS and {"chain", "draw"} <= set(ds.dims) and name != "prior":
            groups[name] = _take_draws(ds, log_weight, chosen)
        elif name not in STALE_GROUPS:
            groups[name] = ds
    corrected = xr.DataTree.from_dict(groups, name=idata.name)
    corrected.attrs |= {**idata.attrs, "correction": "resampled by the weights of the normaliser"}
    return corrected


def _take_draws(ds: xr.Dataset, checked: xr.DataArray, chosen: np.ndarray) -> xr.Dataset:
    """Return the chosen ones among the draws that were checked, numbered afresh."""
    ds = ds.sel(chain=checked["chain"], draw=checked["draw"])
    ds = ds.drop_vars(["chain", "draw"], errors="ignore")
    fresh = {dim: np.arange(size) for dim, size in checked.sizes.items()}
    index = xr.DataArray(chosen, dims=("chain", "draw"), coords=fresh)
    lined_up = ds.stack(sample=("chain", "draw"), create_index=False)
    return lined_up.isel(sample=index).transpose("chain", "draw", ...)


# The draws


def _as_tree(idata: Any, model: pm.Model, group: str) -> tuple[xr.DataTree, dict[str, Any] | None]:
    """Return the draws as a tree; and the point itself, where that is all there is."""
    if isinstance(idata, xr.DataTree):
        if group not in idata.children:
            raise ValueError(f"idata must have a group {group!r}, got {list(idata.children)}")
        return idata, None
    if isinstance(idata, xr.Dataset):
        return xr.DataTree.from_dict({group: idata}), None
    if not isinstance(idata, Mapping):
        raise TypeError(
            f"idata must be a DataTree or Dataset of draws or a point as pm.find_MAP returns it, "
            f"got {type(idata).__name__}"
        )
    values = {rv.name: np.asarray(idata[rv.name]) for rv in model.free_RVs if rv.name in idata}
    variables = {
        name: (("chain", "draw", *_dims(model, name, value.ndim)), value[None, None])
        for name, value in values.items()
    }
    ds = xr.Dataset(variables, coords={"chain": [0], "draw": [0]})
    named = {dim: model.coords[dim] for dim in ds.dims if model.coords.get(dim) is not None}
    ds = ds.assign_coords({dim: list(labels) for dim, labels in named.items()})
    return xr.DataTree.from_dict({group: ds}), dict(idata)


def _dims(model: pm.Model, name: str, ndim: int) -> Iterable[str]:
    return model.named_vars_to_dims.get(name) or [f"{name}_dim_{i}" for i in range(ndim)]


def _free_variables(posterior: xr.Dataset, group: str, model: pm.Model) -> xr.Dataset:
    names = [rv.name for rv in model.free_RVs]
    missing = [name for name in names if name not in posterior]
    if missing:
        raise ValueError(
            f"the draws must hold every free variable of the model, but {missing} are not in the "
            f"group {group!r}"
        )
    if not {"chain", "draw"} <= set(posterior.dims):
        raise ValueError(
            f"the draws must have the dimensions chain and draw, got {dict(posterior.sizes)}"
        )
    return posterior[names].transpose("chain", "draw", ...)


def _budget(attrs: Mapping[Any, Any]) -> float:
    """Return the seconds that a check may take: half of what the sampling did."""
    return float(np.clip(attrs.get("sampling_time", np.inf) / 2.0, 3.0, 60.0))


def _n_draws(posterior: xr.Dataset) -> int:
    return posterior.sizes["chain"] * posterior.sizes["draw"]


def _thin(posterior: xr.Dataset, draws: int) -> xr.Dataset:
    """Leave out draws, evenly, until about so many are left, of each chain as many."""
    if draws < 1:
        raise ValueError(f"draws must be at least 1, got {draws}")
    available = posterior.sizes["draw"]
    each = min(available, -(-draws // posterior.sizes["chain"]))
    return posterior.isel(draw=np.linspace(0, available - 1, each).round().astype(int))


# The group


def _as_dataset(
    log_ratio: np.ndarray,
    seen: list[list[Seen]],
    evaluator: Evaluator,
    first: list[np.ndarray],
    posterior: xr.Dataset,
) -> xr.Dataset:
    """Gather what was seen on the draws, and the weights that follow from it."""
    shape = posterior.sizes["chain"], posterior.sizes["draw"]
    table = {name: np.array([[getattr(s, name) for s in row] for row in seen]) for name in _KEPT}
    dims = ("chain", "draw", "normalizer")
    variables: dict[str, Any] = {
        name: (dims, values.reshape(*shape, -1)) for name, values in table.items()
    }
    alone = np.array([[s.log_ratio_alone for s in row] for row in seen])
    weights = smooth_weights(log_ratio)
    parts = evaluator.parts
    variables |= {
        "log_likelihood_error": (dims[:2], -log_ratio.reshape(shape)),
        "log_likelihood_error_alone": (dims, -alone.reshape(*shape, -1)),
        "log_weight": (dims[:2], weights.log_weights.reshape(shape)),
        "pareto_k": weights.khat,
        "pareto_k_alone": ("normalizer", [smooth_weights(column).khat for column in alone.T]),
        "ess": weights.ess,
        "times": ("normalizer", evaluator.counts(first)),
        "reference": ("normalizer", [part.description for part in parts]),
    }
    coords = {dim: posterior[dim].values for dim in dims[:2]}
    coords["normalizer"] = np.array([part.name for part in parts])
    attrs = {
        "khat": weights.khat,
        "khat_threshold": khat_threshold(log_ratio.size),
        "ess": weights.ess,
        "shift": weights.shift,
        "draws": log_ratio.size,
    }
    return xr.Dataset(variables, coords, attrs)


_KEPT = [name for name in Seen._fields if name != "log_ratio_alone"]


# The verdict


def _judge_draws(check: xr.Dataset) -> tuple[str, str]:
    """Return the verdict on the draws and the reason for it."""
    khat, ess, n_draws = check.attrs["khat"], check.attrs["ess"], check.attrs["draws"]
    threshold, shift = check.attrs["khat_threshold"], check.attrs["shift"]
    trouble = _trouble(check)
    if trouble:
        return UNTRUSTED, trouble
    if np.isinf(khat) and n_draws < MINIMUM_DRAWS:
        return UNTRUSTED, f"{n_draws} draws are too few to tell how far the posterior has moved"
    # A heavy tail of weights that are all alike has nothing to be heavy with.
    largest = n_draws * float(np.exp(check["log_weight"].values.max()))
    harmless = shift <= HARMLESS_SHIFT and (khat < GOOD_KHAT or largest < EQUAL_WEIGHTS)
    if khat >= threshold and not harmless:
        return UNTRUSTED, (
            f"the posterior has moved further than its draws reach: Pareto k {khat:.2f} is above "
            f"{threshold:.2f}"
        )
    noise = _reference_noise(check)
    if noise > HARMLESS_SHIFT:
        return UNTRUSTED, (
            f"the reference is not accurate enough to tell: its own error moves the "
            f"log-likelihood by {noise:.2g} from draw to draw"
        )
    if harmless:
        return "good", f"no posterior mean moves by more than {max(shift, 1e-3):.2g} of its sd"
    if ess < MINIMUM_ESS:
        return UNTRUSTED, f"the weights leave only {ess:.1f} effective draws of {n_draws}"
    return "corrected", (
        f"posterior means may be off by up to {shift:.2g} of their sd; the weights correct that "
        f"and leave {ess:.0f} effective draws of {n_draws}"
    )


def _judge_point(check: xr.Dataset, shift: float | None) -> tuple[str, str]:
    """Return the verdict on a single point and the reason for it."""
    trouble = _trouble(check)
    if trouble:
        return UNTRUSTED, trouble
    if shift is None:
        error = float(abs(check["log_likelihood_error"]).max())
        verdict = "good" if error <= HARMLESS_SHIFT else UNTRUSTED
        return verdict, (
            f"the log-likelihood is off by {error:.2g}, and the point is no mode from whose "
            "curvature more could be told"
        )
    check.attrs["shift"] = shift
    verdict = "good" if shift <= HARMLESS_SHIFT else UNTRUSTED
    return verdict, f"the mode is {max(shift, 1e-3):.2g} posterior sds from that of the reference"


def _trouble(check: xr.Dataset) -> str | None:
    """Return what makes any weights meaningless, if there is something."""
    n_draws = check.attrs["draws"]
    absent = int((~np.isfinite(check["log_z"].values)).any(axis=-1).sum())
    if absent:
        return (
            f"log Z does not exist at {absent} of {n_draws} draws: the sum over the nodes is not "
            "positive there, or not answered for"
        )
    unchecked = check["reference"].values == "none"
    if unchecked.any():
        stated = check["log_z_sd"].values.max(axis=(0, 1)) * check["times"].values
        off = float(stated[unchecked].sum())
        # Without a reference the rule's own word is all there is.
        if not off <= HARMLESS_SHIFT:
            names = ", ".join(check["normalizer"].values[unchecked])
            return (
                f"{names} cannot be checked, for its log summand is known at the nodes only, and "
                f"by its stated sd the log-likelihood may be off by {off:.2g}"
            )
    unsure = np.isinf(check["reference_sd"].values[..., ~unchecked]).any(axis=-1)
    if np.exp(check["log_weight"].values)[unsure].sum() > 0.01:
        return f"the reference does not converge at {int(unsure.sum())} of {n_draws} draws"
    return None


def _reference_noise(check: xr.Dataset) -> float:
    """Return how much of the variation of the log-likelihood error the references make up."""
    noise = (check["reference_noise"] * check["times"]).sum("normalizer")
    return float(noise.std())


def _advice(check: xr.Dataset, parts: Sequence[Part]) -> str:
    """Say what to do, for the normaliser that does the most harm."""
    with np.errstate(invalid="ignore"):  # of infinite errors
        spread = check["log_likelihood_error_alone"].values.std(axis=(0, 1))
    absent = (~np.isfinite(check["log_z"].values)).any(axis=(0, 1))
    harm = np.where(absent | (check["reference"].values == "none"), np.inf, spread)
    worst = int(np.argmax(np.nan_to_num(harm, nan=np.inf, posinf=np.inf)))
    part, seen = parts[worst], check.isel(normalizer=worst)
    facts = Facts(
        compared=part.reference is not None,
        beyond=float(seen["beyond"].max()),
        needed=float(seen["needed"].max()),
    )
    return f"{part.name}: {part.found.normalizer.remedy(facts)}"


def _report(check: xr.Dataset) -> str:
    """Write the verdict as a person would want to read it."""
    attrs = check.attrs
    lines = [f"Normaliser check: {str(attrs['verdict']).upper()}", f"  {attrs['reason']}"]
    for name in check["normalizer"].values:
        part = check.sel(normalizer=name)
        mean = float(part["log_z_error"].mean())
        largest = float(abs(part["log_z_error_max"]).max())
        sd = float(part["log_z_sd"].mean())
        stated = "" if np.isnan(sd) else f", stated sd {sd:.2g}"
        lines.append(
            f"  {name}: log Z is off by {mean:.2g} on average, {largest:.2g} at most{stated} "
            f"(reference: {part['reference'].values!s})"
        )
    error = check["log_likelihood_error"].values
    with np.errstate(invalid="ignore"):  # of infinite errors
        mean, spread = error.mean(), error.std()
    n_draws, available = attrs["draws"], attrs["draws_available"]
    off = f"  log-likelihood: off by {mean:.2g}"
    if n_draws == 1:
        lines.append(off)
    else:
        thinned = f" of {available}" if n_draws < available else ""
        lines.append(f"{off}, sd {spread:.2g} over {n_draws} draws{thinned}")
        lines.append(
            f"  weights: Pareto k {attrs['khat']:.2f} (threshold {attrs['khat_threshold']:.2f}), "
            f"{attrs['ess']:.0f} effective draws"
        )
    if attrs["verdict"] == "corrected":
        lines.append("  what to do: go on with pbs.correct(idata), or better")
        lines.append(f"    {attrs['advice']}")
    elif attrs["advice"]:
        lines.append(f"  what to do: {attrs['advice']}")
    return "\n".join(lines)
