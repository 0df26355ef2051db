"""Tables printed from the tidy results, beside the figures of the literature."""

import numpy as np
import pandas as pd

from pymc_bayessum import Estimate, coverage

from . import cases

#: What the mean error (or discrepancy) has to reach: (case, method, n) -> value.
TARGETS = {
    ("a", "BayesSum", 60): 1e-11,
    ("b", "BayesSum", 1000): 1.5e-4,
    ("b", "BayesSum, Sobol", 1000): 1.5e-4,
    ("b", "active", 220): 3e-4,
    ("c", "BayesSum", 1000): 2e-5,
    ("d", "BayesSum", 100): 0.012,
}

#: Discrepancies measured when the literature's training is run again: n -> (MC, BayesSum).
KNOWN_KSD = {50: (1.29e-2, 7.2e-3), 100: (8.4e-3, 4.8e-3), 200: (7.2e-3, 4.1e-3)}

#: Coverage at nominal .5 and .9 measured before: amplitude one, then empirical Bayes.
KNOWN_COVERAGE = {
    ("b", "amplitude 1"): ".57 / .96",
    ("b", "empirical Bayes"): ".41 / .81",
    ("c", "amplitude 1"): "1 / 1",
    ("c", "empirical Bayes"): ".70 / 1.0",
    ("d", "amplitude 1"): ".73 / 1.0",
    ("d", "empirical Bayes"): ".58 / .95",
}


def with_errors(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(error=(frame["value"] - frame["exact"]).abs())


def mean_errors(frame: pd.DataFrame, rows: str = "n") -> pd.DataFrame:
    """Mean absolute error, one row for each n (or setting), one column a method."""
    found = with_errors(frame).groupby([rows, "method"], sort=False)["error"].mean().unstack()
    order = [m for m in frame["method"].unique() if m in found]
    found = found[order]
    return found.sort_index(key=lambda index: pd.to_numeric(index))


def rate(errors: pd.Series) -> float:
    """Exponent alpha of error ~ n^-alpha, by least squares on logs."""
    kept = errors.dropna()
    if len(kept) < 2:
        return np.nan
    log_n = np.log(kept.index.to_numpy(dtype=float))
    return -float(np.polyfit(log_n, np.log(np.maximum(kept, 1e-16)), 1)[0])


def _print(frame: pd.DataFrame, style: str = "{:.1e}") -> None:
    text = frame.map(lambda value: "" if pd.isna(value) else style.format(value))
    print(text.to_string())


def print_errors(frame: pd.DataFrame) -> None:
    for case in cases.all_cases():
        part = frame[frame["case"] == case.name]
        if part.empty:
            continue
        seeds = part.groupby("method")["seed"].nunique()
        print(f"\n({case.name}) {case.title}; exact {case.exact:.9g}")
        print(f"mean absolute error over {seeds.max()} seeds")
        errors = mean_errors(part)
        known = pd.DataFrame(case.known).add_prefix("known ")
        _print(errors.join(known))
        rates = {name: rate(errors[name]) for name in errors}
        print("rates: " + ", ".join(f"{k} {v:.2f}" for k, v in rates.items()))
        print("known: " + ", ".join(f"{k} {v}" for k, v in case.known_rates.items()))
        print_targets(part)


def print_targets(frame: pd.DataFrame) -> None:
    for (case, method, n), goal in TARGETS.items():
        rows = with_errors(frame)
        rows = rows[(rows["case"] == case) & (rows["method"] == method) & (rows["n"] == n)]
        if rows.empty:
            continue
        mean, noise = rows["error"].mean(), rows["error"].sem()
        verdict = "met" if mean <= goal else "NOT met"
        print(f"  goal: {method}, N = {n}: {mean:.2e} +- {noise:.0e}, at most {goal:g}: {verdict}")


def print_dimension(frame: pd.DataFrame) -> None:
    n = frame["n"].iloc[0]
    print(f"\ncase (b) with more sites, N = {n}: mean absolute error relative to the exact value")
    relative = frame.assign(value=frame["value"] / frame["exact"], exact=1.0)
    _print(mean_errors(relative, "setting").rename_axis("sites"))


def print_repeats(frame: pd.DataFrame) -> None:
    print("\nindependent draws (repeats cost an evaluation) against distinct ones")
    for name, part in frame.groupby("case"):
        print(f"({name})")
        _print(mean_errors(part))


def print_ablations(frame: pd.DataFrame) -> None:
    print("\nkernels in case (a), decays in case (b): mean absolute error")
    for name, part in frame.groupby("case"):
        print(f"({name})")
        _print(mean_errors(part))


def coverages(frame: pd.DataFrame) -> pd.DataFrame:
    """Observed coverage, one row for each case and method."""
    rows = []
    for (case, method), part in frame.groupby(["case", "method"], sort=False):
        estimates = [Estimate(r.value, r.sd, r.n) for r in part.itertuples()]
        found = coverage(estimates, part["exact"].to_numpy())
        row = {"case": case, "method": method, "N": part["n"].iloc[0], "seeds": len(part)}
        row |= {
            f"{level:g}": seen for level, seen in zip(found.levels, found.observed, strict=True)
        }
        rows.append(row)
    return pd.DataFrame(rows)


def print_calibration(frame: pd.DataFrame) -> None:
    print("\nshare of seeds whose interval holds the exact value, by nominal level")
    found = coverages(frame)
    keys = zip(found["case"], found["method"], strict=True)
    found["known .5 / .9"] = [KNOWN_COVERAGE.get(key, "") for key in keys]
    print(found.to_string(index=False, float_format="{:.2f}".format))


def print_low_rank(frame: pd.DataFrame) -> None:
    n = frame["n"].iloc[0]
    print(f"\ncase (b) with N = {n} nodes: full rule, low rank, and pivots alone")
    rows = with_errors(frame).groupby("method", sort=False)[["error", "sd", "seconds"]].mean()
    _print(rows.rename(columns={"error": "mean error", "sd": "mean sd"}), "{:.2g}")


def print_cmp(frame: pd.DataFrame) -> None:
    print("\nCMP on the sales data: parameters, and their errors in standard errors")
    parameters = frame[frame["quantity"].isin(["lam", "nu"])]
    rows = []
    for (method, setting), part in parameters.groupby(["method", "setting"], sort=False):
        row: dict = {"method": f"{method} {setting}".strip(), "seeds": part["seed"].nunique()}
        for name in ("lam", "nu"):
            found = part[part["quantity"] == name]
            row[name] = found["value"].mean()
            offset = (found["value"] - found["exact"]) / found["sd"]
            row[f"{name}: error / se"] = np.sqrt(np.square(offset).mean())
        row["seconds"] = part["seconds"].mean()
        rows.append(row)
    print(pd.DataFrame(rows).to_string(index=False, float_format="{:.6g}".format))
    for row in frame[frame["quantity"] == "log Z"].itertuples():
        print(f"  log Z at the optimum, {row.method}: error {row.value - row.exact:+.2e}")


def print_potts(frame: pd.DataFrame) -> None:
    print("\nPotts model trained on 2000 sequences of 15 sites: squared discrepancy to fresh data")
    single = frame[~frame["method"].isin(["MC", "BayesSum"])]
    for row in single.itertuples():
        print(f"  {row.method}: {row.value:.2e}")
    for setting, part in frame[frame["setting"] != ""].groupby("setting", sort=False):
        grouped = part.groupby(["n", "method"], sort=False)[["value", "seconds"]].mean().unstack()
        grouped.columns = [f"{method} {name}" for name, method in grouped.columns]
        known = pd.DataFrame(KNOWN_KSD, index=["known MC", "known BayesSum"]).T
        print(f"nodes drawn again every {setting.split()[1]} steps")
        _print(grouped.join(known), "{:.2e}")


PRINTERS = {
    "errors": print_errors,
    "dimension": print_dimension,
    "repeats": print_repeats,
    "ablations": print_ablations,
    "calibration": print_calibration,
    "low rank": print_low_rank,
    "cmp": print_cmp,
    "potts": print_potts,
}


def print_all(frame: pd.DataFrame) -> None:
    for name, printer in PRINTERS.items():
        part = frame[frame["part"] == name]
        if not part.empty:
            printer(part)
