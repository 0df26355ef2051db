"""What JAX needs to know of our Ops is imported once a graph is compiled for JAX, not before."""

from importlib import import_module
from typing import Any

from pytensor.graph.rewriting.basic import GraphRewriter

__all__ = ["LoadForJax"]


class LoadForJax(GraphRewriter):
    """Rewrite nothing, but import a module once a graph is compiled for JAX.

    The module registers what JAX needs to know. Importing it, and JAX, with the package would slow
    that down for everybody.
    """

    def __init__(self, module: str) -> None:
        self.module = module

    def apply(self, fgraph: Any) -> None:
        """Import the module."""
        import_module(self.module)
