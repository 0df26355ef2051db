"""The README's Python blocks run in order, and print what the README says they print."""

import io
import re
import shlex
from contextlib import redirect_stdout
from pathlib import Path

import matplotlib as mpl
import pytest

from pymc_bayessum.__main__ import parser

README = Path(__file__).parents[2] / "README.md"
MAKEFILE = README.with_name("Makefile")
COMMANDS = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
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


def test_commands_exist():
    targets = re.findall(r"^([a-z]+):", MAKEFILE.read_text(), re.MULTILINE)
    for line in "".join(COMMANDS.findall(README.read_text())).splitlines():
        words = shlex.split(line, comments=True)
        if words[0] == "make":
            assert words[1] in targets
        else:
            assert words[:3] == ["python", "-m", "pymc_bayessum"]
            parser().parse_args(words[3:])
