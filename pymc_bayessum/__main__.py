"""Command line: a demonstration, CMP regression on a table, the verdict on a saved fit."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pymc_bayessum import __version__, datasets
from pymc_bayessum.cli.fit import checked_file, fit, shown_variables
from pymc_bayessum.cli.frame import InputError, read_frame
from pymc_bayessum.cli.regression import Recipe, build_model, formula_columns
from pymc_bayessum.cli.show import draw_rootogram, show
from pymc_bayessum.interrupts import as_usual

__all__ = ["build_model", "main", "read_frame"]


def run_demo(options: argparse.Namespace) -> int:
    """Fit the sales data."""
    title = "Quarterly sales of one article: CMP, mean exp(centre)"
    return _fit_and_show(Recipe("sales"), datasets.sales(), options.out, options, title)


def run_fit_cmp(options: argparse.Namespace) -> int:
    """Fit a user's file."""
    stem = options.out or options.file.with_name(f"{options.file.stem}_cmp")
    response = options.response
    if options.formula is not None:
        if options.covariates:
            raise InputError("--covariates and --formula exclude each other")
        named = formula_columns(options.formula)[0]
        if response not in (None, named):
            raise InputError(f"--response {response!r} is not the response of --formula, {named!r}")
        response = named
    if response is None:
        raise InputError("--response or --formula must say which column holds the counts")
    recipe = Recipe(
        response,
        options.covariates,
        options.nu_covariates,
        options.offset,
        options.zero_inflated,
        options.formula,
    )
    frame = read_frame(options.file, response, recipe.columns, options.categorical)
    title = f"{response}: CMP regression, {len(frame)} rows"
    return _fit_and_show(recipe, frame, stem, options, title)


def _fit_and_show(
    recipe: Recipe, frame: Any, stem: Path, options: argparse.Namespace, title: str
) -> int:
    if not stem.absolute().parent.is_dir():
        raise InputError(f"--out: no such directory: {stem.absolute().parent}")
    result, picture = (stem.with_name(stem.name + end) for end in (".nc", ".png"))
    model = recipe.model(frame)
    how = {name: getattr(options, name) for name in ("draws", "tune", "chains", "seed")}
    idata = fit(model, recipe, frame, result, **how)
    show(title, idata, shown_variables(idata))
    [observed] = idata["observed_data"].data_vars
    draw_rootogram(idata, str(observed), picture)
    print("Written:", result, picture)
    return 0


def run_check(options: argparse.Namespace) -> int:
    """Print the verdict on a saved fit; answer 1 where it is not to be trusted."""
    check = checked_file(options.file)["normalizer"]
    print(check.attrs["report"])
    return int(check.attrs["verdict"] == "not to be trusted")


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
    top.add_argument("--version", action="version", version=f"pymc_bayessum {__version__}")
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
        description="Fit log mu = intercept + covariates (+ log offset), or a formula, and log nu "
        "shared or with covariates of its own. Columns of text become indicators against their "
        "first level. Writes STEM.nc (the posterior) and STEM.png (a rootogram), prints a summary "
        "table and the verdict on the normaliser.",
    )
    fit_cmp.add_argument("file", type=Path, help="CSV file with a header; separator is guessed")
    fit_cmp.add_argument("--response", metavar="COLUMN", help="column of counts")
    columns: dict[str, Any] = {"nargs": "+", "default": [], "metavar": "COLUMN"}
    fit_cmp.add_argument("--covariates", **columns, help="columns that move the mean")
    fit_cmp.add_argument(
        "--formula", help='in place of the two above, through Bambi: "y ~ x + (1|g)"'
    )
    fit_cmp.add_argument(
        "--nu-covariates",
        **columns,
        help="columns that move the dispersion (default: one nu shared by all rows)",
    )
    fit_cmp.add_argument("--categorical", **columns, help="columns whose numbers are names")
    fit_cmp.add_argument("--offset", metavar="COLUMN", help="column of exposures (positive)")
    fit_cmp.add_argument(
        "--zero-inflated", action="store_true", help="a share 1 - psi of the rows is always zero"
    )
    fit_cmp.add_argument(
        "--out", type=Path, help="stem of the files written (default: FILE's name with _cmp)"
    )
    fit_cmp.set_defaults(run=run_fit_cmp)

    check = commands.add_parser(
        "check",
        help="the verdict on the normaliser of a saved fit",
        description="Print what is known of the normaliser over a saved posterior. Draws of an "
        "interrupted fit are checked now. Answers 1 where they are not to be trusted.",
    )
    check.add_argument("file", type=Path, help="netCDF file that fit-cmp or demo wrote")
    check.set_defaults(run=run_check)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; without a command, the demonstration."""
    as_usual()
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = parser().parse_args(words or ["demo"])
    if options.command is None:
        parser().print_help()
        return 2
    try:
        return options.run(options)
    except InputError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        print("interrupted" + (f": {stop}" if str(stop) else ""), file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
