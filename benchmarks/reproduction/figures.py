"""Figures drawn from the tidy results alone."""

from collections.abc import Iterable, Iterator
from itertools import cycle
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatterSciNotation

from . import cases, report

#: Colours in order of lightness, and markers, so that curves stay apart in grey print.
STYLES = {
    "MC": ("#bbbbbb", "o"),
    "RR": ("#e0a458", "v"),
    "IS": ("#8fb339", "^"),
    "SS": ("#5aa9c9", "s"),
    "BayesSum, fixed": ("#b07aa1", "P"),
    "BayesSum, draws of p": ("#b07aa1", "P"),
    "BayesSum, Sobol": ("#7b52ab", "X"),
    "BayesSum": ("#1f4e9c", "D"),
    "active": ("#111111", "*"),
}
OTHERS = ("#bbbbbb", "#e0a458", "#5aa9c9", "#7b52ab", "#1f4e9c", "#111111")
MARKERS = "ov^sD*"


def plain_ticks(axis: Axes, values: Iterable[float]) -> None:
    """Mark these values of a logarithmic axis, as far apart as their labels need, and no others."""
    ticks: list[float] = []
    for value in sorted(set(values)):
        if not ticks or value >= 1.3 * ticks[-1]:
            ticks.append(value)
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)


def legend_below(axis: Axes) -> None:
    """Put the legend where it hides no curve."""
    axis.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=4, frameon=False)


def curves(axis: Axes, frame: pd.DataFrame, rows: str = "n") -> None:
    """Mean absolute error against n, with the quartiles over the seeds."""
    spare = cycle(zip(OTHERS, MARKERS, strict=True))
    errors = report.with_errors(frame)
    for method, part in errors.groupby("method", sort=False):
        colour, marker = STYLES.get(method) or next(spare)
        grouped = part.assign(x=pd.to_numeric(part[rows])).groupby("x")["error"]
        mean = grouped.mean()
        axis.plot(mean.index, mean, color=colour, marker=marker, label=method, markersize=5)
        low, high = grouped.quantile(0.25), grouped.quantile(0.75)
        axis.fill_between(mean.index, np.maximum(low, 1e-17), high, color=colour, alpha=0.15)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.grid(alpha=0.25)
    plain_ticks(axis, pd.to_numeric(errors[rows]))


def panels(n: int, width: float = 4.6) -> tuple[Figure, np.ndarray]:
    columns = min(n, 2)
    height = (n + 1) // 2
    figure, axes = plt.subplots(
        height, columns, figsize=(width * columns, 3.6 * height), layout="constrained"
    )
    return figure, np.atleast_1d(axes).ravel()


def errors(frame: pd.DataFrame) -> Figure:
    shown = [case for case in cases.all_cases() if (frame["case"] == case.name).any()]
    figure, axes = panels(len(shown))
    for axis, case in zip(axes, shown, strict=False):
        curves(axis, frame[frame["case"] == case.name])
        axis.set(title=f"({case.name}) {case.title.split(', ')[0]}", xlabel="evaluations N")
        axis.set_ylabel("mean absolute error")
        legend_below(axis)
    return figure


def studies(frame: pd.DataFrame) -> Figure:
    repeats, ablations = (frame[frame["part"] == name] for name in ("repeats", "ablations"))
    dimension = frame[frame["part"] == "dimension"]
    figure, axes = panels(4)
    relative = dimension.assign(value=dimension["value"] / dimension["exact"], exact=1.0)
    curves(axes[0], relative, "setting")
    axes[0].set(title="more sites, same N", xlabel="sites", ylabel="relative error")
    for name, style in (("a", "-"), ("b", "--"), ("d", ":")):
        part = report.mean_errors(repeats[repeats["case"] == name])
        for method, colour in (("repeated", "#e0a458"), ("distinct", "#1f4e9c")):
            axes[1].loglog(
                part.index, part[method], style, color=colour, label=f"({name}) {method}"
            )
    axes[1].set(title="repeated and distinct nodes", xlabel="evaluations N")
    curves(axes[2], ablations[ablations["case"] == "a"])
    axes[2].set(title="kernels in (a)", xlabel="evaluations N", ylabel="mean absolute error")
    curves(axes[3], ablations[ablations["case"] == "b"])
    axes[3].set(title="decays in (b)", xlabel="evaluations N")
    plain_ticks(axes[1], repeats["n"])
    axes[1].set_ylabel("mean absolute error")
    for axis in axes:
        legend_below(axis)
        axis.grid(alpha=0.25)
    return figure


def calibration(frame: pd.DataFrame) -> Figure:
    figure, axes = panels(2)
    levels = np.linspace(0.05, 0.99, 60)
    for axis, method in zip(axes, ("amplitude 1", "empirical Bayes"), strict=True):
        for name, colour, style in zip("abcd", OTHERS[1:], ("-", "--", "-.", ":"), strict=False):
            part = frame[(frame["case"] == name) & (frame["method"] == method)]
            if part.empty:
                continue
            found = report.coverage(
                [report.Estimate(r.value, r.sd, r.n) for r in part.itertuples()],
                part["exact"].to_numpy(),
                levels,
            )
            axis.plot(levels, found.observed, style, color=colour, lw=2, label=f"({name})")
        axis.plot([0, 1], [0, 1], color="#999999", lw=1)
        axis.set(title=method, xlabel="nominal level", ylabel="share of seeds covered")
        axis.legend(fontsize=8)
        axis.grid(alpha=0.25)
    return figure


def training(frame: pd.DataFrame) -> Figure:
    figure, axes = panels(4)
    potts = frame[(frame["part"] == "potts") & (frame["setting"] != "")]
    lines = {"MC": ("#e0a458", "o"), "BayesSum": ("#1f4e9c", "D")}
    for (setting, method), part in potts.groupby(["setting", "method"], sort=False):
        colour, marker = lines[method]
        grouped = part.groupby("n")
        mean, noise = grouped["value"].mean(), grouped["value"].sem()
        style = "-" if setting == "refresh 20" else "--"
        label = f"{method}, new nodes every {setting.split()[1]} steps"
        options = {"color": colour, "marker": marker, "ls": style, "capsize": 2, "label": label}
        axes[0].errorbar(mean.index, mean, noise, **options)
        axes[1].errorbar(grouped["seconds"].median(), mean, noise, **options)
    best = frame[(frame["part"] == "potts") & (frame["method"] == "exact constant")]
    for axis, label in zip(axes[:2], ("nodes N", "seconds of training"), strict=True):
        for value in best["value"]:
            axis.axhline(value, color="#999999", lw=1, label="exact constant")
        axis.set(yscale="log", xlabel=label, ylabel="KSD$^2$ to fresh data")
        axis.yaxis.set_minor_formatter(LogFormatterSciNotation(minor_thresholds=(1.0, 0.4)))
        axis.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.16), frameon=False)
    axes[0].set_xscale("log")
    plain_ticks(axes[0], potts["n"])
    axes[1].set_xlim(0.0, 1.1 * axes[1].get_xlim()[1])
    axes[0].set_title("sequences: equal N")
    axes[1].set_title("sequences: equal time")
    sales = frame[(frame["part"] == "cmp") & frame["quantity"].isin(["lam", "nu"])]
    names: list[str] = []
    for (method, setting), part in sales.groupby(["method", "setting"], sort=False):
        names.append(f"{method} {setting}".strip())
        for axis, quantity in zip(axes[2:], ("lam", "nu"), strict=True):
            found = part[part["quantity"] == quantity]
            offset = ((found["value"] - found["exact"]) / found["sd"]).abs()
            place = np.full(len(offset), len(names) - 1)
            axis.plot(np.maximum(offset, 1e-6), place, "o", color="#1f4e9c", alpha=0.5)
    for axis, quantity in zip(axes[2:], ("lam", "nu"), strict=True):
        axis.axvline(1.0, color="#999999", lw=1)
        axis.set(xscale="log", title=f"sales: {quantity}", xlabel="error in standard errors")
        axis.set_yticks(range(len(names)), names, fontsize=7)
        axis.invert_yaxis()
        axis.grid(alpha=0.25)
    return figure


def draw_all(frame: pd.DataFrame, folder: Path) -> Iterator[Path]:
    """Draw every figure whose data are there; yield the files."""
    folder.mkdir(parents=True, exist_ok=True)
    present = set(frame["part"])
    wanted = {
        "errors": (errors, {"errors"}),
        "studies": (studies, {"dimension", "repeats", "ablations"}),
        "calibration": (calibration, {"calibration"}),
        "training": (training, {"cmp", "potts"}),
    }
    for name, (draw, needed) in wanted.items():
        if not needed <= present:
            continue
        part = frame[frame["part"].isin(needed)]
        path = folder / f"paper_{name}.png"
        figure = draw(part)
        figure.savefig(path, dpi=110)
        plt.close(figure)
        yield path
