"""Sample, save what there is, then predict and check."""

import json
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import arviz as az
import pandas as pd
import pymc as pm
import xarray as xr

from pymc_bayessum import check_normalizer
from pymc_bayessum.cli.frame import InputError
from pymc_bayessum.cli.regression import Recipe

__all__ = ["checked_file", "fit", "save", "shown_variables"]

#: Where a file keeps the recipe of its model, and the table that the model was built from.
RECIPE, TABLE = "pymc_bayessum_recipe", "table"


def _is_bambi(model: Any) -> bool:
    return not isinstance(model, pm.Model)


class _Stop(BaseException):
    """Ctrl-C by a name that PyMC's predictions do not take for the end of their loop."""


@contextmanager
def _ctrl_c(raised: type[BaseException]) -> Iterator[list[int]]:
    """Raise this on Ctrl-C, and remember it: not everybody who catches it passes it on."""
    heard: list[int] = []

    def stop(number: int, _: Any) -> None:
        heard.append(number)
        raise raised

    if threading.current_thread() is not threading.main_thread():
        yield heard
        return
    before = signal.signal(signal.SIGINT, stop)
    try:
        yield heard
    finally:
        signal.signal(signal.SIGINT, before)


def fit(
    model: Any,
    recipe: Recipe,
    frame: pd.DataFrame,
    path: Path,
    *,
    draws: int,
    seed: int,
    **more: int,
) -> xr.DataTree:
    """Sample the posterior, write it, predict, check the normaliser, and write that too.

    Draws are on disk before anything is done with them. A sampler that is interrupted hands over
    what it has: that is written, and the interruption passed on with a word about it.
    """
    try:
        bar = sys.stdout.isatty()
        options: dict = {"draws": draws, "random_seed": seed, "progressbar": bar, **more}
        with _ctrl_c(KeyboardInterrupt) as heard:
            idata = model.fit(**options) if _is_bambi(model) else pm.sample(model=model, **options)
    except ValueError as error:
        # What PyMC's own sampler says when it is interrupted before the first draw.
        if "Not enough samples" in str(error):
            raise KeyboardInterrupt("before the first draw, nothing was written") from None
        raise
    posterior = idata["posterior"].to_dataset().dropna("draw")
    n_draws = posterior.sizes["draw"]
    if n_draws == 0:
        raise KeyboardInterrupt("before the first draw, nothing was written")
    if n_draws < draws:
        idata = idata.map_over_datasets(
            lambda ds: ds.isel(draw=slice(n_draws)) if "draw" in ds.dims else ds
        )
    idata.attrs[RECIPE] = json.dumps(asdict(recipe))
    text = frame.select_dtypes("category").columns
    idata[TABLE] = xr.DataTree(
        xr.Dataset.from_dataframe(frame.astype(dict.fromkeys(text, str)).rename_axis("row"))
    )
    save(idata, path)
    if heard or n_draws < draws:
        raise KeyboardInterrupt(f"{path} holds the first {n_draws} of {draws} draws a chain")
    try:
        with _ctrl_c(_Stop):
            idata = _looked_back(model, idata, seed)
    except (_Stop, KeyboardInterrupt):
        raise KeyboardInterrupt(f"{path} holds all draws, unchecked") from None
    save(idata, path)
    return idata


def _looked_back(model: Any, idata: xr.DataTree, seed: int) -> xr.DataTree:
    if _is_bambi(model):
        model.predict(idata, kind="response", random_seed=seed)
    else:
        pm.sample_posterior_predictive(
            idata, model=model, random_seed=seed, extend_inferencedata=True, progressbar=False
        )
    return check_normalizer(idata, model=model, progressbar=sys.stdout.isatty())


def save(idata: xr.DataTree, path: Path) -> None:
    """Write all but the predictions, which are large, as netCDF; the file is never half written."""
    half = path.with_name(path.name + ".part")
    idata.filter(lambda node: node.name != "posterior_predictive").to_netcdf(half)
    half.replace(path)


def checked_file(path: Path) -> xr.DataTree:
    """Return a saved fit with the verdict on its normaliser, which is found now if it has none."""
    try:
        with az.from_netcdf(path) as tree:
            idata = tree.load()
    except FileNotFoundError:
        raise InputError(f"no such file: {path}") from None
    except (OSError, ValueError):
        raise InputError(f"{path} is not a netCDF file that can be read") from None
    if "normalizer" in idata.children:
        return idata
    if RECIPE not in idata.attrs:
        raise InputError(
            f"{path} holds neither a verdict nor the recipe of its model; in Python, "
            "check_normalizer(idata, model) finds the verdict and returns what to save"
        )
    recipe = Recipe(**json.loads(idata.attrs[RECIPE]))
    frame = idata[TABLE].to_dataset().to_dataframe()
    text = frame.columns.difference(frame.select_dtypes("number").columns)
    return check_normalizer(idata, recipe.model(frame.astype(dict.fromkeys(text, "category"))))


def shown_variables(idata: xr.DataTree) -> list[str]:
    """Return the variables worth a table, in order: no effects of single groups or rows."""
    posterior = idata["posterior"]
    names = [
        str(name)
        for name, values in posterior.data_vars.items()
        if not any("__obs__" in str(dim) or "factor_dim" in str(dim) for dim in values.dims)
    ]
    # A centre is where the sampler stands; the intercept is what a reader asks for.
    hidden = {name.replace("intercept", "centre") for name in names if "intercept" in name}
    names = [name for name in names if name not in hidden]
    first, last = ["intercept", "slope"], ["nu", "nu_intercept", "nu_slope", "psi"]
    middle = [name for name in names if name not in (*first, *last)]
    return [name for name in (*first, *middle, *last) if name in names]
