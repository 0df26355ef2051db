"""Mean embeddings and initial errors in closed form, one row for each (kernel, measure) pair."""

from . import brownian, interval, splines  # noqa: F401  (entering their rows)
from .compound import cross, embed
from .registry import Embedding, register

__all__ = ["Embedding", "cross", "embed", "register"]
