"""Mean embeddings and initial errors in closed form, one row for each (kernel, measure) pair."""

from pymc_bayessum.embeddings import brownian, interval, splines  # noqa: F401  they register rows
from pymc_bayessum.embeddings.compound import cross, embed
from pymc_bayessum.embeddings.registry import Embedding, register

__all__ = ["Embedding", "cross", "embed", "register"]
