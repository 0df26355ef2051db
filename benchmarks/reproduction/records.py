"""One tidy table of results: a row for each number, with the seed that made it."""

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd

from pymc_bayessum import Estimate


@dataclass(frozen=True)
class Record:
    """One number.

    Attributes
    ----------
    part : str
        Study it belongs to, such as "errors".
    case : str
        What is estimated, such as "b".
    method : str
    n : int
        Evaluations, or nodes.
    seed : int
    value : float
        The estimate.
    sd : float
        Its stated standard deviation.
    exact : float
        What it should be.
    quantity : str
        "mean", or the name of a parameter.
    setting : str
        What is varied within a study, such as the number of sites.
    seconds : float
        Time it took.
    """

    part: str
    case: str
    method: str
    n: int
    seed: int
    value: float
    sd: float = float("nan")
    exact: float = float("nan")
    quantity: str = "mean"
    setting: str = ""
    seconds: float = float("nan")


def timed(run: Callable[[], Estimate], **known: Any) -> Record:
    """Run an estimate and record it."""
    begin = time.perf_counter()
    estimate = run()
    seconds = time.perf_counter() - begin
    return Record(value=estimate.mean, sd=estimate.sd, seconds=seconds, **known)


def table(records: Iterable[Record]) -> pd.DataFrame:
    """Return records as a frame, one row each."""
    names = [item.name for item in fields(Record)]
    frame = pd.DataFrame([asdict(record) for record in records], columns=names)
    return frame.assign(setting=frame["setting"].astype(str))


def load(path: Path) -> pd.DataFrame:
    """Read a saved table, or an empty one."""
    if not path.exists():
        return table([])
    return pd.read_csv(path, dtype={"setting": str, "case": str}, keep_default_na=True).fillna(
        {"setting": ""}
    )


def save(frame: pd.DataFrame, path: Path) -> None:
    """Write a table; nine digits tell all errors apart, twelve the estimates."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rounded = frame.assign(
        sd=frame["sd"].map("{:.4g}".format).replace("nan", ""),
        seconds=frame["seconds"].map("{:.3g}".format).replace("nan", ""),
    )
    rounded.to_csv(path, index=False, float_format="%.15g")
