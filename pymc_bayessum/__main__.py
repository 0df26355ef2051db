"""Command line: a demonstration fit, and CMP regression on a CSV file."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

__all__ = ["build_model", "main"]


class InputError(ValueError):
    """Something the user can put right; shown as one line, without a traceback."""


def read_frame(path: Path, response: str, columns: Sequence[str]) -> pd.DataFrame:
    """Read the named columns of a CSV file and check that the response holds counts."""
    if path.is_dir():
        raise InputError(f"{path} is a directory, not a CSV file")
    if not path.is_file():
        raise InputError(f"no such file: {path}")
    if response in columns:
        raise InputError(f"column {response!r} is the response and cannot explain itself")
    try:
        # Columns are never taken for an index, as trailing commas would make pandas do.
        frame = pd.read_csv(path, index_col=False)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as CSV: {error}") from None
    wanted = list(dict.fromkeys([response, *columns]))
    missing = [name for name in wanted if name not in frame.columns]
    if missing:
        raise InputError(
            f"{path} has no column {', '.join(map(repr, missing))}; "
            f"it has {', '.join(map(repr, frame.columns))}"
        )
    frame = frame[wanted]
    incomplete = frame.isna().any(axis=1)
    if incomplete.any():
        raise InputError(
            f"{int(incomplete.sum())} rows have empty cells, the first is line "
            f"{_line(incomplete)} of the file"
        )
    if len(frame) == 0:
        raise InputError(f"{path} has no rows")
    counts = frame[response]
    if not pd.api.types.is_numeric_dtype(counts):
        raise InputError(f"column {response!r} must hold counts, it holds text")
    bad = (counts < 0) | (counts != np.floor(counts)) | np.isinf(counts)
    if bad.any():
        raise InputError(
            f"column {response!r} must hold counts 0, 1, 2, ...; line {_line(bad)} of the file "
            f"holds {counts[bad].iloc[0]}"
        )
    for name in frame.select_dtypes("number"):
        if np.isinf(frame[name]).any():
            raise InputError(
                f"column {name!r} must be finite; line {_line(np.isinf(frame[name]))} is not"
            )
    return frame


def _line(bad: pd.Series) -> int:
    """Line of the file with the first bad row; the header is line 1."""
    return int(np.flatnonzero(bad)[0]) + 2


def design_matrix(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Covariates as numbers; a column of text becomes indicators against its first level."""
    if not columns:
        return pd.DataFrame(index=frame.index)
    design = pd.get_dummies(frame[list(columns)], drop_first=True, dtype=float).astype(float)
    constant = [name for name in design if design[name].nunique() == 1]
    if constant:
        raise InputError(f"covariate {constant[0]!r} is the same in every row")
    return design


def build_model(
    frame: pd.DataFrame,
    response: str,
    covariates: Sequence[str] = (),
    nu_covariates: Sequence[str] = (),
    offset: str | None = None,
):
    """CMP regression in mean form: log mu and log nu linear, weakly informative priors.

    A response that has the name of a parameter is called ``<name>_count`` in the model.

    Parameters
    ----------
    frame : DataFrame
        One row an observation.
    response : str
        Column of counts.
    covariates, nu_covariates : sequence of str
        Columns that move the mean, and the dispersion. Without the latter nu is shared.
    offset : str, optional
        Column of exposures (positive); its logarithm is added to log mu.

    Returns
    -------
    pymc.Model

    Examples
    --------
    >>> from pymc_bayessum import datasets
    >>> from pymc_bayessum.__main__ import build_model
    >>> model = build_model(datasets.freight(), "broken", ["transfers"])
    >>> sorted(rv.name for rv in model.free_RVs)
    ['centre', 'nu', 'slope']
    """
    import pymc as pm

    from pymc_bayessum import CMP

    counts = frame[response].to_numpy(dtype=np.int64)
    design = design_matrix(frame, covariates)
    nu_design = design_matrix(frame, nu_covariates)
    if offset is not None and not (
        pd.api.types.is_numeric_dtype(frame[offset]) and np.all(frame[offset] > 0)
    ):
        raise InputError(f"offset column {offset!r} must hold positive numbers")
    exposure = np.float64(1.0) if offset is None else frame[offset].to_numpy(dtype=float)
    coords: dict[str, Sequence] = {"row": frame.index.to_list()}
    if len(design.columns):
        coords["covariate"] = list(design.columns)
    if len(nu_design.columns):
        coords["nu_covariate"] = list(nu_design.columns)
    with pm.Model(coords=coords) as model:
        # Centred covariates decorrelate intercept and slopes; priors follow each column's scale.
        centre = pm.Normal("centre", np.log((counts.mean() + 0.01) / exposure.mean()), 2.5)
        log_mu = centre + np.log(exposure)
        if len(design.columns):
            x = design.to_numpy()
            slope = pm.Normal("slope", 0, 2.5 / x.std(axis=0), dims="covariate")
            log_mu = log_mu + (x - x.mean(axis=0)) @ slope
            pm.Deterministic("intercept", centre - x.mean(axis=0) @ slope)
        if len(nu_design.columns):
            z = nu_design.to_numpy()
            nu_centre = pm.Normal("nu_centre", 0, 1.5)
            nu_slope = pm.Normal("nu_slope", 0, 1.5 / z.std(axis=0), dims="nu_covariate")
            nu = pm.math.exp(nu_centre + (z - z.mean(axis=0)) @ nu_slope)
            pm.Deterministic("nu_intercept", nu_centre - z.mean(axis=0) @ nu_slope)
        else:
            nu = pm.LogNormal("nu", 0, 1.5)
        taken = response in model.named_vars or response in coords
        name = f"{response}_count" if taken else response
        CMP(name, mu=pm.math.exp(log_mu), nu=nu, observed=counts, dims="row")
    return model


def fit(model, draws: int, tune: int, chains: int, seed: int):
    """Sample the posterior and its predictions, then check the normaliser over the draws."""
    import pymc as pm

    from pymc_bayessum import check_normalizer

    with model:
        idata = pm.sample(draws=draws, tune=tune, chains=chains, random_seed=seed)
        pm.sample_posterior_predictive(
            idata, random_seed=seed, extend_inferencedata=True, progressbar=False
        )
        return check_normalizer(idata, model=model)


def show(title: str, idata, var_names: Sequence[str]) -> None:
    """Print the posterior summary as a table, and the verdict on the normaliser."""
    import arviz as az
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    summary = az.summary(idata, var_names=list(var_names))
    shown = [name for name in summary.columns if not name.startswith(("ess_tail", "mcse"))]
    table = Table(title=escape(title))
    table.add_column("", justify="left", no_wrap=True)
    for column in shown:
        table.add_column(column, justify="right", no_wrap=True)
    for name, row in summary[shown].iterrows():
        table.add_row(escape(str(name)), *(f"{value:.4g}" for value in row))
    console = Console()
    console.print(table)
    console.print(idata["normalizer"].attrs["report"], highlight=False, markup=False)


def save(idata, stem: Path, response: str) -> list[Path]:
    """Write the rootogram as PNG and all but the predictions, which are large, as netCDF."""
    import matplotlib as mpl

    mpl.use("Agg")
    from pymc_bayessum import plot_rootogram

    result, picture = (stem.with_name(stem.name + end) for end in (".nc", ".png"))
    plot_rootogram(idata, var_names=[response], backend="matplotlib").savefig(picture)
    idata.filter(lambda node: node.name != "posterior_predictive").to_netcdf(result)
    return [result, picture]


def run_demo(options: argparse.Namespace) -> None:
    """Fit the sales data."""
    from pymc_bayessum import datasets

    frame = datasets.sales()
    model = build_model(frame, "sales")
    idata = fit(model, options.draws, options.tune, options.chains, options.seed)
    show("Quarterly sales of one article: CMP, mean exp(centre)", idata, ["centre", "nu"])
    print("Written:", *save(idata, options.out, "sales"))


def run_fit_cmp(options: argparse.Namespace) -> None:
    """Fit a user's file."""
    stem = (
        options.out
        if options.out is not None
        else options.file.with_name(f"{options.file.stem}_cmp")
    )
    if not stem.absolute().parent.is_dir():
        raise InputError(f"--out: no such directory: {stem.absolute().parent}")
    columns = [*options.covariates, *options.nu_covariates]
    if options.offset is not None:
        columns.append(options.offset)
    frame = read_frame(options.file, options.response, columns)
    model = build_model(
        frame, options.response, options.covariates, options.nu_covariates, options.offset
    )
    names = {rv.name for rv in model.free_RVs} | {rv.name for rv in model.deterministics}
    order = ["intercept", "slope", "centre", "nu", "nu_intercept", "nu_slope"]
    hidden = {"centre"} if "intercept" in names else set()
    shown = [name for name in order if name in names - hidden]
    idata = fit(model, options.draws, options.tune, options.chains, options.seed)
    show(f"{options.response}: CMP regression, {len(frame)} rows", idata, shown)
    print("Written:", *save(idata, stem, model.observed_RVs[0].name))


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, got {text!r}")
    return int(text)


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    top = argparse.ArgumentParser(
        prog="python -m pymc_bayessum",
        description="Conway-Maxwell-Poisson fits by NUTS. Without a command: demo.",
    )
    commands = top.add_subparsers(dest="command", title="commands")
    sampling = argparse.ArgumentParser(add_help=False)
    group = sampling.add_argument_group("sampling")
    group.add_argument("--draws", type=_positive, default=1000, help="draws a chain (default 1000)")
    group.add_argument("--tune", type=_positive, default=1000, help="warm-up draws (default 1000)")
    group.add_argument("--chains", type=_positive, default=4, help="chains (default 4)")
    group.add_argument("--seed", type=int, default=1, help="random seed (default 1)")

    demo = commands.add_parser(
        "demo", parents=[sampling], help="fit the embedded sales data; a table and a picture"
    )
    demo.add_argument(
        "--out", type=Path, default=Path("demo"), help="stem of the files written (default demo)"
    )
    demo.set_defaults(run=run_demo)

    fit_cmp = commands.add_parser(
        "fit-cmp",
        parents=[sampling],
        help="CMP regression on a CSV file",
        description="Fit log mu = intercept + covariates (+ log offset) and log nu shared or with "
        "covariates of its own. Columns of text become indicators against their first level. "
        "Writes STEM.nc (the posterior) and STEM.png (a rootogram), prints a summary table.",
    )
    fit_cmp.add_argument("file", type=Path, help="CSV file with a header")
    fit_cmp.add_argument("--response", required=True, help="column of counts")
    fit_cmp.add_argument(
        "--covariates", nargs="+", default=[], metavar="COLUMN", help="columns that move the mean"
    )
    fit_cmp.add_argument(
        "--nu-covariates",
        nargs="+",
        default=[],
        metavar="COLUMN",
        help="columns that move the dispersion (default: one nu shared by all rows)",
    )
    fit_cmp.add_argument("--offset", metavar="COLUMN", help="column of exposures (positive)")
    fit_cmp.add_argument(
        "--out", type=Path, help="stem of the files written (default: FILE's name with _cmp)"
    )
    fit_cmp.set_defaults(run=run_fit_cmp)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; without a command, the demonstration."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = parser().parse_args(words or ["demo"])
    if options.command is None:
        parser().print_help()
        return 2
    try:
        options.run(options)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
