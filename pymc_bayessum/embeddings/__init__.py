"""Mean embeddings and initial errors in closed form, one row for each (kernel, measure) pair."""

from ..kernels import Kernel
from ..measures import Measure
from . import naturals, sites  # noqa: F401  (entering their rows)
from .registry import Embedding, find_row, register

__all__ = ["Embedding", "embed", "register"]


def embed(kernel: Kernel, measure: Measure) -> Embedding:
    """Embedding of a kernel under a measure."""
    row = find_row(kernel, measure)
    if row is None:
        raise ValueError(f"no closed form for {type(kernel).__name__} and {type(measure).__name__}")
    inner = row(kernel, measure)
    as_points = measure.support.as_points
    return Embedding(lambda y: inner.mean(as_points(y)), lambda: inner.initial_error)
