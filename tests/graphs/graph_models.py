"""Small graph models with everything known by listing all states, and anchors as a model has."""

from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.special import logsumexp

from pymc_bayessum.graphs.default_anchors import PottsAnchors, prior_parameters
from pymc_bayessum.graphs.statistics import PottsLayout


@dataclass(frozen=True)
class Listed:
    """A model small enough to list: all states (0 .. S-1), log Z, probabilities."""

    layout: PottsLayout
    theta: np.ndarray
    states: np.ndarray
    log_z: float
    probs: np.ndarray

    @property
    def full(self):
        return self.layout.expand(*self.layout.unflatten(self.theta))

    @property
    def marginals(self):
        indicator = self.states[:, :, None] == np.arange(self.layout.n_states)
        sites = np.einsum("n,nia->ia", self.probs, indicator)
        first, second = indicator[:, self.layout.edges[:, 0]], indicator[:, self.layout.edges[:, 1]]
        return sites, np.einsum("n,nea,neb->eab", self.probs, first, second)

    @property
    def mean_statistics(self):
        return self.probs @ self.layout.statistics(self.states)

    def draw(self, n, rng):
        return self.states[rng.choice(len(self.states), size=n, p=self.probs)]


def all_states(n_sites, n_states):
    return np.array(list(product(range(n_states), repeat=n_sites)))


def listed(layout, theta):
    states = all_states(layout.n_sites, layout.n_states)
    energy = layout.statistics(states) @ theta
    log_z = float(logsumexp(energy))
    return Listed(layout, np.asarray(theta, float), states, log_z, np.exp(energy - log_z))


def default_rule(layout, observed, h=None, J=None, *, rng=0, progressbar=True):
    """Anchor a model with this prior of h and J at observed rows, as pbs.Potts does."""
    return PottsAnchors(layout, prior_parameters(layout, h, J), rng, progressbar)(observed)
