"""Every notebook runs from its paired text, top to bottom."""

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


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_notebook_runs(script, tmp_path):
    jupytext = pytest.importorskip("jupytext")
    nbclient = pytest.importorskip("nbclient")
    notebook = jupytext.read(script)
    client = nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
