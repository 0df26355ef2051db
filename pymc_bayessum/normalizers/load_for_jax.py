"""What JAX needs to know of our Ops is imported once a graph is compiled for JAX, not before."""

from importlib import import_module
from typing import Any

from pytensor.compile.mode import optdb
from pytensor.graph.rewriting.basic import GraphRewriter

__all__ = ["load_for_jax"]


class _Load(GraphRewriter):
    """Rewrite nothing, but import a module."""

    def __init__(self, module: str) -> None:
        self.module = module

    def apply(self, fgraph: Any) -> None:
        import_module(self.module)


def load_for_jax(module: str) -> None:
    """Have a module imported once a graph is compiled for JAX.

    It registers what JAX needs to know. Importing it, and JAX, with the package would slow that
    down for everybody.
    """
    optdb.register(f"load_{module}", _Load(module), "jax", position=0)
