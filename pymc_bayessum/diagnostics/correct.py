"""Draws of the reference posterior, from the weights of a check."""

from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_bayessum.diagnostics.check import check_normalizer
from pymc_bayessum.diagnostics.importance import resample
from pymc_bayessum.diagnostics.verdict import UNTRUSTED

__all__ = ["correct"]

#: Groups that the approximate normaliser or the sampler's path entered.
STALE_GROUPS = {"normalizer", "log_likelihood", "log_prior", "sample_stats", "warmup_posterior"}


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
    if check.attrs["verdict"] == UNTRUSTED:
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
