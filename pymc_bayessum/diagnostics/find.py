"""Which sums a model relies on."""

from collections.abc import Sequence
from typing import Any

import pymc as pm
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace

from pymc_bayessum.normalizers.node import Found, find

__all__ = ["find_normalizers"]


def find_normalizers(graph: Any) -> list[Found]:
    """Return the log-normalisers of a model or a graph, with their parameters.

    Parameters
    ----------
    graph : pm.Model, Variable or sequence of Variable
        In a model the log-probabilities of all random variables and the potentials are searched;
        the variables of what is found are the model's random variables, so that it can be
        evaluated on posterior draws.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> import pymc_bayessum as pbs
    >>> rule = pbs.bayes_sum(pbs.kernels.Brownian(), pbs.measures.Counting(9), np.arange(10))
    >>> theta = pt.scalar("theta")
    >>> (found,) = find_normalizers(-pbs.log_normalizer(lambda x: theta * x, rule))
    >>> found.rule is rule, found.parameters
    (True, (theta,))
    """
    if isinstance(graph, Variable):
        return find([graph])
    if isinstance(graph, Sequence):
        return find(graph)
    if not isinstance(graph, pm.Model):
        raise TypeError(
            f"graph must be a PyMC model, a variable or a sequence of variables, got {graph!r}"
        )
    return find(_terms(graph), graph.free_RVs)


def _terms(model: pm.Model) -> list[Variable]:
    """Return the log-probability of each variable given its parents, and the potentials."""
    terms = []
    for rv in model.basic_RVs:
        value = model.rvs_to_values[rv] if rv in model.observed_RVs else rv.type()
        # Of a censored variable PyMC derives the log-probability from a copy, with new parents.
        held = {parent: parent.type() for parent in model.free_RVs if parent is not rv}
        [copy] = graph_replace([rv], held, strict=False)
        try:
            log_p = pm.logp(copy, value, warn_rvs=False)
        except NotImplementedError:  # a simulator has no log-probability to search
            continue
        parents = {copied: parent for parent, copied in held.items()}
        [term] = graph_replace([log_p], parents, strict=False)
        term.name = rv.name
        terms.append(term)
    return [*terms, *model.potentials]
