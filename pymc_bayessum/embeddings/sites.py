"""Closed embeddings on vectors of sites."""

import math

import numpy as np

from ..kernels import ExpHamming
from ..measures import UniformCategorical, UniformSpins
from .registry import Embedding, register


@register(ExpHamming, UniformCategorical)
def exp_hamming_uniform(kernel: ExpHamming, measure: UniformCategorical) -> Embedding:
    r"""Exponential Hamming kernel under the uniform distribution, the same at every point.

    .. math:: \mu(y) = \left(\frac{1 + (S - 1) e^{-\lambda}}{S}\right)^L
    """
    miss = -math.expm1(-kernel.decay) * (measure.n_states - 1) / measure.n_states
    value = math.exp(measure.n_sites * math.log1p(-miss))
    return Embedding(lambda y: np.full(len(y), value), value)


@register(ExpHamming, UniformSpins)
def exp_hamming_spins(kernel: ExpHamming, measure: UniformSpins) -> Embedding:
    r"""Exponential Hamming kernel under uniform spins.

    .. math:: \mu(y) = e^{-\lambda L / 2} \cosh(\lambda / 2)^L
    """
    return exp_hamming_uniform(kernel, UniformCategorical(measure.n_sites, 2))
