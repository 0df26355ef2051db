"""The reference names every public name, and every public name explains itself."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

import pymc_bayessum as pbs

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
MODULES = ["dims", *(name for name in pbs.__all__ if inspect.ismodule(getattr(pbs, name)))]
NAMES = [name for name in pbs.__all__ if name not in MODULES]


def public(module):
    return getattr(pbs, module, None) or importlib.import_module(f"pymc_bayessum.{module}")


def reference_entries():
    text = (ROOT / "docs" / "api.md").read_text()
    return set(re.findall(r"^   ([A-Za-z_.]+)$", text, flags=re.MULTILINE))


def test_reference_lists_every_public_name():
    entries = reference_entries()
    wanted = set(NAMES)
    for module in MODULES:
        room = public(module)
        own = [n for n in room.__all__ if getattr(pbs, n, None) is not getattr(room, n)]
        wanted |= {f"{module}.{name}" for name in own}
    assert wanted == entries


@pytest.mark.parametrize("name", NAMES)
def test_public_name_explains_itself(name):
    thing = getattr(pbs, name)
    text = inspect.getdoc(thing)
    assert text, "no docstring"
    assert "Examples\n--------" in text
    assert ">>> " in text
    parameters = [p for p in inspect.signature(thing).parameters if p not in ("args", "kwargs")]
    if parameters:
        assert "Parameters\n----------" in text or "Attributes\n----------" in text


@pytest.mark.parametrize("module", MODULES)
def test_public_module_says_what_it_is_for(module):
    assert inspect.getdoc(public(module))


def test_every_page_is_in_a_table_of_contents():
    listed = set()
    for page in PAGES:
        for block in re.findall(r"```\{toctree\}(.*?)```", page.read_text(), flags=re.DOTALL):
            lines = [line.strip() for line in block.splitlines()]
            listed |= {page.parent / line for line in lines if line and not line.startswith(":")}
    stems = {path.with_suffix("") for path in PAGES} - {ROOT / "docs" / "index"}
    notebooks = {
        ROOT / "docs" / "notebooks" / path.stem for path in (ROOT / "notebooks").glob("*.py")
    }
    assert listed == stems | notebooks


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_of_a_page_is_python(page):
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        ast.parse(block)
        for name in re.findall(r"pbs\.(\w+)", block):
            assert hasattr(pbs, name), f"pbs.{name} does not exist"


#: What stands below a measured table: the command, the day and the commit.
STAMP = re.compile(
    r"\*(?:Printed by `[^`]+`|Measured once, [^*]+), \d{4}-\d{2}-\d{2}, [0-9a-f]{7,}[.;,]"
)
TABLE = re.compile(r"^```text\n.*?^```\n|(?:^\|[^\n]*\n)+", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.parent.name == "accuracy"], ids=lambda page: page.stem
)
def test_measured_table_says_what_printed_it_and_when(page):
    text = page.read_text()
    if page.stem == "index":  # A summary of the other pages.
        return
    for table in TABLE.finditer(text):
        below = text[table.end() :].lstrip()
        assert STAMP.match(below), f"no line of origin below:\n{table.group()[:200]}"
