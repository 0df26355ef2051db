"""Models and draws of Bambi, as PyMC would have them.

Bambi samples with centred covariates and, for groups, offsets in units of their scale; it reports
the intercept of the covariates as they are, and the groups without their offsets. Both are undone
here, so that the free variables of the PyMC model have their draws again.
"""

from typing import Any

import pymc as pm
import xarray as xr

__all__ = ["as_pymc_draws", "as_pymc_model"]


def _is_bambi(model: Any) -> bool:
    return type(model).__module__.split(".")[0] == "bambi"


def as_pymc_model(model: Any) -> pm.Model:
    """Return the model that PyMC samples; None stands for the one on the context stack."""
    if not _is_bambi(model):
        return pm.modelcontext(model)
    if not model.built:
        model.build()
    return model.backend.model


def as_pymc_draws(posterior: xr.Dataset, model: Any) -> xr.Dataset:
    """Return draws with all free variables of the model; unchanged for a model of PyMC."""
    if not _is_bambi(model):
        return posterior
    rebuilt = {}
    for part in model.backend.distributional_components.values():
        component = part.component
        if component.intercept_term and component.common_terms and model.center_predictors:
            name = _name(component.intercept_term)
            means = iter(part.design_matrix_without_intercept.mean(0))
            shift: Any = sum(
                _columns(posterior[_name(term)], means) for term in component.common_terms.values()
            )
            rebuilt[name] = posterior[name] + shift
    for rv in model.backend.model.free_RVs:
        group = rv.name.removesuffix("_offset")
        if rv.name not in posterior and f"{group}_sigma" in posterior:
            dims = ("chain", "draw", *model.backend.model.named_vars_to_dims[rv.name])
            offset = posterior[group] / posterior[f"{group}_sigma"]
            rebuilt[rv.name] = offset.transpose(*dims)
    return posterior.assign(rebuilt)


def _name(term: Any) -> str:
    return term.alias or term.name


def _columns(slopes: xr.DataArray, means: Any) -> xr.DataArray:
    """Multiply a term's slopes, one or several, by the means of its columns of the design."""
    dims = [dim for dim in slopes.dims if dim not in ("chain", "draw")]
    if not dims:
        return slopes * next(means)
    weights = [next(means) for _ in range(slopes.sizes[dims[0]])]
    return (slopes * xr.DataArray(weights, dims=dims)).sum(dims)
