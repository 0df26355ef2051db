"""Every notebook runs from its paired text, top to bottom."""

import os
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
SCRIPTS = sorted(NOTEBOOKS.glob("*.py"))


def test_each_text_has_its_executed_notebook():
    assert [path.stem for path in SCRIPTS] == [p.stem for p in sorted(NOTEBOOKS.glob("*.ipynb"))]
    import nbformat

    for script in SCRIPTS:
        notebook = nbformat.read(script.with_suffix(".ipynb"), as_version=4)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert all(cell.execution_count for cell in code), script.stem
        pictures = [
            output
            for cell in code
            for output in cell.outputs
            if "image/png" in output.get("data", {})
        ]
        assert pictures, f"{script.stem} shows no picture"


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """One process for all notebooks: what several import and compile is there after the first."""
    nbclient = pytest.importorskip("nbclient")
    import nbformat

    flags = [os.environ.get("PYTENSOR_FLAGS", ""), "cxx="]
    client = nbclient.NotebookClient(
        nbformat.v4.new_notebook(),
        timeout=600,
        kernel_name="python3",
        resources={"metadata": {"path": tmp_path_factory.mktemp("notebooks")}},
    )
    with client.setup_kernel(env=os.environ | {"PYTENSOR_FLAGS": ",".join(filter(None, flags))}):
        yield client


FORGET = """
import matplotlib.pyplot, warnings
matplotlib.pyplot.close("all")
matplotlib.pyplot.rcdefaults()
warnings.resetwarnings()
%reset -f
"""


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_notebook_runs(script, client):
    jupytext = pytest.importorskip("jupytext")
    notebook = jupytext.read(script)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.execution_count for cell in code)
    client.nb = notebook
    client.reset_execution_trackers()
    client.kc.execute(FORGET)
    for index, cell in enumerate(notebook.cells):
        client.execute_cell(cell, index)
    assert all(cell.execution_count for cell in code)
