"""Means of the statistics of an exponential family at an anchor: the gradient of log Z there."""

from dataclasses import dataclass, field

import numpy as np

from pymc_bayessum.normalizers.anchored.draws import Draws, mean_statistics
from pymc_bayessum.normalizers.coordinates import Coordinates
from pymc_bayessum.normalizers.family import (
    Family,
    OffersConditionalMeans,
    OffersExactMean,
    OffersOtherMeans,
)

__all__ = ["Moments", "anchor_moments"]

#: Sets of chains whose separate estimates tell the error.
N_BATCHES = 10


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean of the sufficient statistics at a parameter value.

    Attributes
    ----------
    mean : ndarray, shape (d,)
    batches : ndarray, shape (B, d)
        Estimates from disjoint sets of chains, whose spread tells the error of the mean; a single
        row when the mean is exact.
    method : str
    """

    mean: np.ndarray
    batches: np.ndarray = field(repr=False)
    method: str

    def spread(self, coordinates: Coordinates) -> np.ndarray | None:
        """Square root of the covariance of the reduced mean, (B, r); None where it is exact.

        The sum over rows of their outer products is the covariance.
        """
        n = len(self.batches)
        if n < 2:
            return None
        batches = self.batches @ coordinates.select.T
        return (batches - batches.mean(axis=0)) / np.sqrt(n * (n - 1.0))


def anchor_moments(
    family: Family, theta: np.ndarray, draws: Draws, method: str | None = None
) -> Moments:
    """Estimate the mean of the statistics at the parameters the draws were made at.

    Parameters
    ----------
    family : Family
    theta : ndarray, shape (d,)
    draws : Draws
    method : str, optional
        "exact" and "rao-blackwell" where the family offers them, "plain" averages, or the name of
        one of the family's other means. By default the first of the three there is.

    Returns
    -------
    Moments

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum.normalizers.anchored.draws import draw_at
    >>> class Bits:
    ...     def statistics(self, states):
    ...         return states.sum(axis=1, keepdims=True).astype(float)
    ...     def sample(self, theta, n, rng, start=None):
    ...         return rng.random((n, 10)) < 1 / (1 + np.exp(-theta[0]))
    >>> theta = np.zeros(1)
    >>> draws = draw_at(Bits(), theta, 400, np.random.default_rng(0))
    >>> found = anchor_moments(Bits(), theta, draws)
    >>> found.method, bool(abs(found.mean[0] - 5.0) < 0.5)
    ('plain', True)
    """
    others = family.other_means if isinstance(family, OffersOtherMeans) else {}
    names = ["exact"] * isinstance(family, OffersExactMean)
    names += ["rao-blackwell"] * isinstance(family, OffersConditionalMeans)
    names += [*others, "plain"]
    if method is not None and method not in names:
        raise ValueError(f"moments must be one of {tuple(names)}, got {method!r}")
    if method in (None, "exact") and isinstance(family, OffersExactMean):
        mean = family.exact_mean(theta)
        if mean is not None:
            return Moments(mean, mean[None], "exact")
        if method == "exact":
            raise ValueError("moments='exact': exact means cost too much here")
    if method is not None and method in others:
        return Moments(*others[method](theta, draws.states), method)
    group = draws.chain % min(N_BATCHES, int(draws.chain.max()) + 1)
    share = np.bincount(group) / len(group)
    if method != "plain" and isinstance(family, OffersConditionalMeans):
        batches = family.conditional_means(theta, draws.states, group)
        return Moments(share @ batches, batches, "rao-blackwell")
    batches = np.stack(
        [
            mean_statistics(family, draws.states[group == number], len(theta))
            for number in range(len(share))
        ]
    )
    return Moments(share @ batches, batches, "plain")
