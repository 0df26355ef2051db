"""The directive ``embedding-dictionary``: the registry of closed forms as a table.

One row for each registered pair of kernel and measure. The text and the formulas are the docstring
of the function that computes the pair, so that the page always says what the code does.
"""

import inspect
from textwrap import indent

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

import pymc_bayessum.embeddings  # noqa: F401  (entering its rows)
from pymc_bayessum.embeddings.registry import ROWS


def _entries() -> list[tuple[str, str, str]]:
    rows = [
        (kernel.__name__, measure.__name__, inspect.getdoc(row) or "")
        for (kernel, measure), row in ROWS.entries.items()
    ]
    return sorted(rows)


def _table() -> list[str]:
    lines = [
        ".. list-table::",
        "   :header-rows: 1",
        "   :widths: 14 16 70",
        "",
        "   * - kernel",
        "     - measure",
        "     - mean embedding and initial error",
    ]
    for kernel, measure, text in _entries():
        body = indent(text, "       ").lstrip().splitlines()
        lines += [
            f"   * - :class:`~pymc_bayessum.kernels.{kernel}`",
            f"     - :class:`~pymc_bayessum.measures.{measure}`",
            f"     - {body[0]}",
            *body[1:],
        ]
    return lines


class EmbeddingDictionary(SphinxDirective):
    """List every closed form of the registry."""

    def run(self):
        """Parse the table as reStructuredText."""
        container = nodes.Element()
        content = StringList(_table(), source="embedding registry")
        self.state.nested_parse(content, self.content_offset, container)
        return container.children


def setup(app):
    """Register the directive."""
    app.add_directive("embedding-dictionary", EmbeddingDictionary)
    return {"version": "1", "parallel_read_safe": True}
