"""The directive ``embedding-dictionary``: the registry of closed forms as a list.

One entry for each registered pair of kernel and measure. Text and formulas are the docstring of the
function that computes the pair, so that the page always says what the code does.
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


def _list() -> list[str]:
    lines = []
    for kernel, measure, text in _entries():
        lines += [
            ".. container:: entry",
            "",
            f"   :class:`~pymc_bayessum.kernels.{kernel}` under "
            f":class:`~pymc_bayessum.measures.{measure}`",
            "",
            *indent(text, "   ").splitlines(),
            "",
        ]
    return lines


class EmbeddingDictionary(SphinxDirective):
    """List every closed form of the registry."""

    def run(self):
        """Parse the list as reStructuredText."""
        container = nodes.Element()
        content = StringList(_list(), source="embedding registry")
        self.state.nested_parse(content, self.content_offset, container)
        return container.children


def setup(app):
    """Register the directive."""
    app.add_directive("embedding-dictionary", EmbeddingDictionary)
    return {"version": "1", "parallel_read_safe": True}
