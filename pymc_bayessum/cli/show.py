"""What is shown of a fit: a table, whether the chains agree, the verdict, a picture."""

from collections.abc import Sequence
from pathlib import Path

import arviz as az
import pandas as pd
import xarray as xr
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pymc_bayessum import plot_rootogram

__all__ = ["convergence", "draw_rootogram", "show"]

#: Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021): r_hat below, draws a chain above.
R_HAT, DRAWS_A_CHAIN = 1.01, 100


def convergence(summary: pd.DataFrame, n_chains: int, n_divergent: int = 0) -> str:
    """Say in a line what speaks against the chains, nothing where nothing does.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"r_hat": [1.0, 1.2], "ess_bulk": [900.0, 30.0]}, ["a", "b"])
    >>> convergence(table, n_chains=4)
    'Not converged: r_hat is 1.2 for b (1.01 at most), ess_bulk is 30 for b (400 at least): ...'
    """
    said = []
    if (summary["r_hat"] > R_HAT).any():
        worst = summary["r_hat"].idxmax()
        said.append(f"r_hat is {summary['r_hat'].max():.3g} for {worst} ({R_HAT} at most)")
    wanted = DRAWS_A_CHAIN * n_chains
    for name in ("ess_bulk", "ess_tail"):
        if name in summary and (summary[name] < wanted).any():
            worst = summary[name].idxmin()
            said.append(f"{name} is {summary[name].min():.0f} for {worst} ({wanted} at least)")
    if n_divergent:
        said.append(f"{n_divergent} draws diverged")
    if not said:
        return ""
    return f"Not converged: {', '.join(said)}: raise --tune and --draws"


def show(title: str, idata: xr.DataTree, var_names: Sequence[str]) -> None:
    """Print the posterior summary, whether the chains agree, and the verdict."""
    summary = az.summary(idata, var_names=list(var_names), round_to="none")
    shown = [name for name in summary.columns if not name.startswith(("ess_tail", "mcse"))]
    table = Table(title=escape(title))
    table.add_column("", justify="left", no_wrap=True)
    for column in shown:
        table.add_column(column, justify="right", no_wrap=True)
    for name, row in summary[shown].iterrows():
        table.add_row(escape(str(name)), *(f"{value:.4g}" for value in row))
    # As wide as the table is, on a terminal or off it: a number cut in two is none.
    Console(width=10_000).print(table)
    stats = idata["sample_stats"]
    diverging = int(stats["diverging"].sum()) if "diverging" in stats else 0
    said = convergence(summary, idata["posterior"].sizes["chain"], diverging)
    if said:
        print(said)
    print(idata["normalizer"].attrs["report"])


def draw_rootogram(idata: xr.DataTree, response: str, path: Path) -> None:
    """Write the rootogram of a response as PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    plot_rootogram(idata, var_names=[response], backend="matplotlib").savefig(path)
