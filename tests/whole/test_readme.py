"""The README's Python blocks run in order, and print what the README says they print."""

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

import matplotlib as mpl
import pytest

README = Path(__file__).parents[2] / "README.md"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"^[-+]?\d+(\.\d+)?(e[-+]?\d+)?$")


def same_word(printed: str, expected: str) -> bool:
    """Equal words, or numbers within Monte Carlo distance of each other."""
    if NUMBER.match(printed) and NUMBER.match(expected):
        return float(printed) == pytest.approx(float(expected), rel=0.1, abs=0.05)
    return printed == expected


def words(text: str) -> list[str]:
    return re.split(r"[\s,()\[\]=:]+", text.strip())


@pytest.mark.slow
def test_blocks_run_and_print_what_is_shown(tmp_path, monkeypatch):
    mpl.use("Agg")
    monkeypatch.chdir(tmp_path)
    namespace: dict = {}
    printed = ""
    compared = 0
    for language, body in BLOCK.findall(README.read_text()):
        if language == "python":
            output = io.StringIO()
            with redirect_stdout(output):
                exec(compile(body, str(README), "exec"), namespace)
            printed = output.getvalue()
        else:
            got, wanted = words(printed), words(body)
            assert len(got) == len(wanted), f"printed:\n{printed}\nREADME:\n{body}"
            wrong = [pair for pair in zip(got, wanted, strict=True) if not same_word(*pair)]
            assert not wrong, f"printed:\n{printed}\nREADME:\n{body}\nfirst difference: {wrong[0]}"
            compared += 1
    assert compared >= 3
