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
"""

from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_bayessum.anchoring import anchored_at_other_data
from pymc_bayessum.diagnostics.bambi_models import as_pymc_draws, as_pymc_model
from pymc_bayessum.diagnostics.checked_tree import CheckedTree
from pymc_bayessum.diagnostics.data import require_same_data
from pymc_bayessum.diagnostics.draws import (
    as_tree,
    first,
    free_variables,
    thin,
    time_budget_of,
)
from pymc_bayessum.diagnostics.evaluation import Evaluator, Seen
from pymc_bayessum.diagnostics.fit import misfit
from pymc_bayessum.diagnostics.importance import khat_threshold, smooth_weights
from pymc_bayessum.diagnostics.laplace import Laplace
from pymc_bayessum.diagnostics.marginals import (
    GRIDS,
    MOST_PARAMETERS,
    Moved,
    moved_marginals,
    summed_marginals,
    weighted_marginals,
)
from pymc_bayessum.diagnostics.space import Space
from pymc_bayessum.diagnostics.verdict import (
    advice_on,
    judge_draws,
    judge_point,
    notes_on,
    report_on,
    stopped_short,
)
from pymc_bayessum.interrupts import Interrupted
from pymc_bayessum.normalizers.interpreted import PLAIN, interpreted

__all__ = ["check_normalizer"]

#: No time budget goes below this many draws.
LEAST_DRAWS = 50
#: With fewer parameters than this, weights that fail tell that the posterior has moved.
FEWEST_PARAMETERS = 8
#: Range of log ratios beyond which derivatives at the posterior mean do not speak for all draws.
WILD = 40.0


def check_normalizer(
    idata: Any,
    model: Any = None,
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
        point or tree that ``pm.find_MAP`` returns.  A DataTree also receives the new group itself.
    model : pm.Model or bmb.Model, optional
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
        ``reason``, the ``advice``, the ``fit`` (a line where the data are more spread than their
        distribution can be, else empty) and the ``report``, which is what the tree prints as.

    Notes
    -----
    The verdict speaks of log Z. A model with an exact log Z may still be the wrong one for its
    data; the line about the fit says where that is plain to see. It is said of CMP counts, also
    zero-inflated or behind a hurdle, and of those in ``pm.Mixture``, ``pm.Truncated`` and
    ``pm.Censored``. In these three moments are sums over all counts there are: nothing is said
    where that would take more than two million masses a draw (rows times counts), or where the
    masses do not add up to one, as with a rough ``normalizer``. Nor is anything said of
    ``pymc.dims.Censored``, of a mixed, truncated or censored variable with missing observations,
    and of other distributions.

    An interrupt from the keyboard (`Interrupted`) carries the check of the draws it had come to as
    ``partial``.

    After ``pm.find_MAP`` there is one draw and no weights.  The gradient of the error in the
    directions of one posterior sd (of the Laplace approximation) tells by how many sds the mode
    has moved.  Where the point is no mode because the search stopped short, a note says so.

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
    if not compile_kwargs:
        options: dict[str, Any] = {"draws": draws, "time_budget": time_budget, "group": group}
        options |= {"progressbar": progressbar, "random_seed": random_seed}
        with interpreted():
            return check_normalizer(idata, model, compile_kwargs={"mode": PLAIN}, **options)
    given, model = model, as_pymc_model(model)
    tree, point = as_tree(idata, model, group)
    require_same_data(tree, model)
    posterior = free_variables(as_pymc_draws(tree[group].to_dataset(), given), group, model)
    evaluator = Evaluator(model, posterior, compile_kwargs, random_seed)
    if draws is None:
        budget = time_budget_of(tree[group].attrs) if time_budget is None else time_budget
        draws = max(LEAST_DRAWS, evaluator.affordable(posterior, budget))
    thinned = thin(posterior, draws)
    values = evaluator.as_draws(thinned)
    interrupted = False
    try:
        log_ratio, seen = evaluator.at_all(values, progressbar)
    except Interrupted as stop:
        interrupted, (log_ratio, seen) = True, stop.partial
        thinned = first(thinned, len(seen))
    check = _as_dataset(log_ratio, seen, evaluator, values[0], thinned)
    doubt, note = anchored_at_other_data(tree, model)
    check.attrs["doubt"] = doubt or check.attrs["doubt"]
    weights = np.exp(check["log_weight"].values.ravel())
    moved = weighted_marginals(np.array([_flat(draw) for draw in values[: len(seen)]]), weights)
    check.attrs |= {"moved_mean": moved.shift, "moved_sd": moved.stretch}
    short = ""
    if point is None:
        judgement = judge_draws(check, lambda: _moved(model, posterior, evaluator, check))
    else:
        mode = Laplace.at(point, model)
        moved_by = None if mode is None else mode.shift(lambda at: evaluator.at_point(at)[0])
        judgement = judge_point(check, moved_by)
        short = stopped_short(None if mode is None else mode.distance)
    check.attrs |= {"verdict": judgement[0], "reason": judgement[1]}
    check.attrs["advice"] = "" if judgement[0] == "good" else advice_on(check, evaluator.parts)
    # Away from the mode nothing fits.
    check.attrs["fit"] = "" if short else misfit(model, posterior, compile_kwargs)
    check.attrs["note"] = "; ".join(filter(None, [notes_on(check, evaluator.parts), note, short]))
    check.attrs["draws_available"] = posterior.sizes["chain"] * posterior.sizes["draw"]
    check.attrs["report"] = report_on(check)
    tree["normalizer"] = check
    nodes = {node.path: node.dataset for node in tree.subtree}
    checked = CheckedTree.from_dict(nodes, name=tree.name)
    if interrupted:
        told = f"the check of {len(seen)} of {len(values)} draws is on this exception as .partial"
        raise Interrupted(told, checked)
    return checked


def _flat(draw: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.ravel(value).astype(float) for value in draw])


def _moved(
    model: pm.Model, posterior: xr.Dataset, evaluator: Evaluator, check: xr.Dataset
) -> Moved | None:
    """Return how far the marginals have moved, if they are one, two, or many but not too many.

    Of all draws: few have a covariance too noisy to tell directions by.
    """
    error = check["log_likelihood_error"].values
    if not np.isfinite(error).all():
        return None
    names = [rv.name for rv in evaluator.free]
    points = [dict(zip(names, draw, strict=True)) for draw in evaluator.as_draws(posterior)]
    space = Space(model, points[0])
    size = len(space.start)
    # A grid costs no more than the draws that were looked at.
    on_a_grid = size in GRIDS and len(GRIDS[size]) ** size <= error.size
    if space.fixed or not (on_a_grid or FEWEST_PARAMETERS <= size <= MOST_PARAMETERS):
        return None
    times = check["times"].values

    def change(vector: np.ndarray) -> tuple[float, float]:
        log_ratio, seen = evaluator.at_point(space.point(vector))
        return log_ratio, float(
            sum(n * s.reference_noise for n, s in zip(times, seen, strict=True))
        )

    draws = np.array([space.vector(point) for point in points])
    if on_a_grid:
        log_density = model.compile_logp(mode=PLAIN)
        return summed_marginals(
            draws,
            lambda vector: float(log_density(space.value_vars(vector))),
            lambda vector: _flat(list(space.point(vector).values())),
            change,
        )
    return None if np.ptp(error) > WILD else moved_marginals(draws, change)


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
        "doubt": next((part.doubt for part in parts if part.doubt), ""),
    }
    return xr.Dataset(variables, coords, attrs)


_KEPT = [name for name in Seen._fields if name != "log_ratio_alone"]
