"""The notebooks on the site: copies where Sphinx reads, and a gallery with a picture of each.

Sphinx reads only what lies below its source folder; the notebooks live beside it, executed. The
directive ``notebook-gallery`` shows each that the page's table of contents names by its first
picture, its title and the first paragraph of its text.
"""

import base64
import json
import re
import shutil
from pathlib import Path

from sphinx.util.docutils import SphinxDirective

DOCS = Path(__file__).parents[1]
SOURCES = DOCS.parent / "notebooks"
COPIES = DOCS / "notebooks"
LISTED = re.compile(r"^```\{toctree\}\n(?::[^\n]*\n)*(.*?)^```", re.DOTALL | re.MULTILINE)


def _cells(notebook: Path) -> list[dict]:
    return json.loads(notebook.read_text())["cells"]


def _first_picture(notebook: Path) -> bytes:
    pictures = (
        output["data"]["image/png"]
        for cell in _cells(notebook)
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    )
    return base64.b64decode(next(pictures))


def _opening(notebook: Path) -> tuple[str, str]:
    """Return the title, and the first paragraph as far as its first full stop or question mark."""
    text = "".join(_cells(notebook)[0]["source"])
    title, paragraph = text.split("\n\n")[:2]
    sentence = re.match(r".*?[.?](?=\s|$)", paragraph.replace("\n", " "))
    return title.removeprefix("# "), sentence.group() if sentence else paragraph


def copy_notebooks() -> None:
    """Copy every notebook to where Sphinx finds it, and its first picture beside it."""
    pictures = COPIES / "thumbnails"
    pictures.mkdir(exist_ok=True)
    for notebook in sorted(SOURCES.glob("*.ipynb")):
        shutil.copy(notebook, COPIES / notebook.name)
        (pictures / f"{notebook.stem}.png").write_bytes(_first_picture(notebook))


class NotebookGallery(SphinxDirective):
    """A card for each notebook in the table of contents of the page."""

    def run(self):
        """Write the cards as MyST."""
        page = Path(self.env.doc2path(self.env.docname)).read_text()
        listed = LISTED.search(page)
        lines = ["::::{container} cards"]
        for name in listed.group(1).split():
            title, sentence = _opening(SOURCES / f"{name}.ipynb")
            lines += [
                ":::{container} card",
                f"[![{title}](thumbnails/{name}.png)]({name}.ipynb)",
                "",
                f"**[{title}]({name}.ipynb)**",
                "",
                sentence,
                ":::",
            ]
        lines.append("::::")
        return self.parse_text_to_nodes("\n".join(lines))


def setup(app):
    """Copy the notebooks and register the directive."""
    copy_notebooks()
    app.add_directive("notebook-gallery", NotebookGallery)
    return {"version": "1", "parallel_read_safe": True}
