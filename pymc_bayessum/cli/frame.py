"""Read a table of counts from a file; what is wrong with it is said in one line."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

__all__ = ["InputError", "layout_of", "read_frame"]

_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "spaces"}
_DECIMAL_COMMA = re.compile(r"(?:^|[^\d,.])-?\d+,\d+(?:$|[^\d,.])", re.MULTILINE)


class InputError(ValueError):
    """Something the user can put right; shown as one line, without a traceback."""


def layout_of(text: str) -> tuple[str, str]:
    r"""Guess what separates columns, and the decimal sign, from the first lines of a file.

    Columns are separated by the sign that the header holds most often, by a comma in doubt and by
    spaces only where there is nothing else.

    Examples
    --------
    >>> layout_of("bids;size\n2;1,5\n")
    (';', ',')
    >>> layout_of("number of bids,size\n2,1.5\n")
    (',', '.')
    """
    header = text.split("\n", 1)[0]
    separator = max(",;\t|", key=header.count)
    if header.count(separator) == 0:
        separator = " " if " " in header.strip() else ","
    comma = separator != "," and _DECIMAL_COMMA.search(text) and not re.search(r"\d\.\d", text)
    return separator, "," if comma else "."


def read_frame(
    path: Path, response: str, columns: Sequence[str], categorical: Sequence[str] = ()
) -> pd.DataFrame:
    """Read the named columns of a table with a header, of which the response must hold counts.

    A separator other than a comma is guessed, and said. Columns of text are categories, and so are
    those whose numbers are names.
    """
    if path.is_dir():
        raise InputError(f"{path} is a directory, not a CSV file")
    if not path.is_file():
        raise InputError(f"no such file: {path}")
    wanted = list(dict.fromkeys([response, *columns, *categorical]))
    if response in columns:
        raise InputError(f"column {response!r} is the response and cannot explain itself")
    frame = _table(path)
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
    _check_counts(frame[response])
    for name in frame.select_dtypes("number"):
        if np.isinf(frame[name]).any():
            raise InputError(
                f"column {name!r} must be finite; line {_line(np.isinf(frame[name]))} is not"
            )
    names = [name for name in frame if not pd.api.types.is_numeric_dtype(frame[name])]
    return frame.astype(dict.fromkeys([*names, *categorical], "category"))


def _table(path: Path) -> pd.DataFrame:
    try:
        with path.open(encoding="utf-8-sig") as file:
            separator, decimal = layout_of(file.read(20_000))
        # Columns are never taken for an index, as trailing commas would make pandas do.
        frame = pd.read_csv(
            path, index_col=False, sep=separator, decimal=decimal, skipinitialspace=True
        )
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as CSV: {error}") from None
    if separator != ",":
        also = " and decimal commas" if decimal == "," else ""
        print(f"{path.name}: columns separated by {_NAMES[separator]}{also}, as it seems")
    return frame


def _check_counts(counts: pd.Series) -> None:
    name = counts.name
    if not pd.api.types.is_numeric_dtype(counts):
        raise InputError(f"column {name!r} must hold counts, it holds text")
    bad = (counts < 0) | (counts != np.floor(counts)) | np.isinf(counts)
    if bad.any():
        raise InputError(
            f"column {name!r} must hold counts 0, 1, 2, ...; line {_line(bad)} of the file "
            f"holds {counts[bad].iloc[0]}"
        )


def _line(bad: pd.Series) -> int:
    """Line of the file with the first bad row; the header is line 1."""
    return int(np.flatnonzero(bad)[0]) + 2
