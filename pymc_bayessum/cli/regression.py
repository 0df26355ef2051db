"""CMP regression from a table: by columns with PyMC, or by a formula with Bambi."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm

from pymc_bayessum import CMP, ZeroInflatedCMP, bambi_family
from pymc_bayessum.cli.frame import InputError

__all__ = ["Recipe", "build_model", "formula_columns", "formula_model"]


@dataclass(frozen=True)
class Recipe:
    """What it takes to build the model of a table again."""

    response: str
    covariates: Sequence[str] = ()
    nu_covariates: Sequence[str] = ()
    offset: str | None = None
    zero_inflated: bool = False
    formula: str | None = None

    @property
    def columns(self) -> list[str]:
        """Columns besides the response."""
        offset = [] if self.offset is None else [self.offset]
        of_formula = [] if self.formula is None else formula_columns(self.formula)[1]
        return [*self.covariates, *of_formula, *self.nu_covariates, *offset]

    def model(self, frame: pd.DataFrame) -> Any:
        """Return the model of PyMC, or of Bambi where there is a formula."""
        how = (self.nu_covariates, self.offset, self.zero_inflated)
        if self.formula is not None:
            return formula_model(frame, self.formula, *how)
        return build_model(frame, self.response, self.covariates, *how)


def design_matrix(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Covariates as numbers; a category becomes indicators against its first level."""
    if not columns:
        return pd.DataFrame(index=frame.index)
    design = pd.get_dummies(frame[list(columns)], drop_first=True, dtype=float).astype(float)
    empty = [name for name in columns if frame[name].nunique() == 1]
    if empty:
        raise InputError(f"covariate {empty[0]!r} is the same in every row")
    return design


def exposures(frame: pd.DataFrame, offset: str | None) -> Any:
    """Return the column of exposures, one where there is none."""
    if offset is None:
        return np.float64(1.0)
    if not pd.api.types.is_numeric_dtype(frame[offset]) or not np.all(frame[offset] > 0):
        raise InputError(f"offset column {offset!r} must hold positive numbers")
    return frame[offset].to_numpy(dtype=float)


def build_model(
    frame: pd.DataFrame,
    response: str,
    covariates: Sequence[str] = (),
    nu_covariates: Sequence[str] = (),
    offset: str | None = None,
    zero_inflated: bool = False,
) -> pm.Model:
    """CMP regression in mean form: log mu and log nu linear, weakly informative priors.

    A response that has the name of a parameter is called ``<name>_count`` in the model. Without
    ``nu_covariates`` nu is shared; the log of the ``offset``, a column of exposures, is added to
    log mu; with ``zero_inflated`` a share 1 - psi of the rows is zero whatever their covariates.

    Examples
    --------
    >>> from pymc_bayessum import datasets
    >>> from pymc_bayessum.cli.regression import build_model
    >>> model = build_model(datasets.freight(), "broken", ["transfers"])
    >>> sorted(rv.name for rv in model.free_RVs)
    ['centre', 'nu', 'slope']
    """
    counts = frame[response].to_numpy(dtype=np.int64)
    design = design_matrix(frame, covariates)
    nu_design = design_matrix(frame, nu_covariates)
    exposure = exposures(frame, offset)
    with pm.Model(coords={"row": frame.index.to_list()}) as model:
        centre = pm.Normal("centre", np.log((counts.mean() + 0.01) / exposure.mean()), 2.5)
        log_mu = centre + np.log(exposure)
        if len(design.columns):
            log_mu = log_mu + _effect("", design, centre, 2.5)
        if len(nu_design.columns):
            nu_centre = pm.Normal("nu_centre", 0, 1.5)
            nu = pm.math.exp(nu_centre + _effect("nu_", nu_design, nu_centre, 1.5))
        else:
            nu = pm.LogNormal("nu", 0, 1.5)
        mu = pm.math.exp(log_mu)
        taken = {*model.named_vars, *model.coords, "psi"}
        name = f"{response}_count" if response in taken else response
        if zero_inflated:
            psi = pm.Beta("psi", 2.0, 2.0)
            ZeroInflatedCMP(name, psi=psi, mu=mu, nu=nu, observed=counts, dims="row")
        else:
            CMP(name, mu=mu, nu=nu, observed=counts, dims="row")
    return model


def _effect(prefix: str, design: pd.DataFrame, centre: Any, sigma: float) -> Any:
    """Return what columns add to a centre, and keep the intercept that belongs to them.

    Centred columns decorrelate intercept and slopes; priors follow each column's scale.
    """
    x, dim = design.to_numpy(), f"{prefix}covariate"
    pm.modelcontext(None).add_coord(dim, list(design.columns))
    slope = pm.Normal(f"{prefix}slope", 0, sigma / x.std(axis=0), dims=dim)
    pm.Deterministic(f"{prefix}intercept", centre - _linear(x.mean(axis=0), slope))
    return _linear(x - x.mean(axis=0), slope)


def _linear(columns: np.ndarray, slopes: Any) -> Any:
    # A matrix product is as fast, and takes half a minute more to compile for the first time.
    return (columns * slopes).sum(axis=-1)


def formula_columns(formula: str) -> tuple[str, list[str]]:
    """Return the response of a formula, and the other columns that it names.

    Examples
    --------
    >>> formula_columns("y ~ x + (1|g)")
    ('y', ['g', 'x'])
    """
    try:
        from formulae import model_description
    except ImportError:
        raise InputError(
            '--formula needs Bambi: pip install "pymc-bayessum[bambi]"; --covariates does not'
        ) from None
    try:
        described = model_description(formula)
        response = described.response.term.components[0].name
    # formulae raises an Exception of a new kind in each of its parts, for what a user wrote.
    except Exception as error:
        raise InputError(f"--formula {formula!r} cannot be read: {error}") from None
    return response, sorted(described.var_names - {response, ""})


def formula_model(
    frame: pd.DataFrame,
    formula: str,
    nu_covariates: Sequence[str] = (),
    offset: str | None = None,
    zero_inflated: bool = False,
) -> Any:
    """CMP regression by a formula, with Bambi; the other arguments are `build_model`'s."""
    import bambi as bmb

    if offset is not None:
        exposures(frame, offset)
        formula = f"{formula} + offset(log(`{offset}`))"
    formulas = [formula]
    if nu_covariates:
        formulas.append("nu ~ " + " + ".join(f"`{name}`" for name in nu_covariates))
    family = bambi_family("zero_inflated" if zero_inflated else "cmp")
    try:
        model = bmb.Model(bmb.Formula(*formulas), frame, family=family)
        model.build()
    # Bambi's words for a formula that does not suit the data come as several kinds of error.
    except (ValueError, KeyError, TypeError, NotImplementedError) as error:
        raise InputError(f"--formula {formula!r}: {error}") from None
    return model
