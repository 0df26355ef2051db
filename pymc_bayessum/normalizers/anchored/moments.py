"""Means of the statistics of an exponential family at an anchor: the gradient of log Z there."""

from dataclasses import dataclass, field

import numpy as np

from pymc_bayessum.normalizers.anchored.draws import Walk
from pymc_bayessum.normalizers.coordinates import Coordinates
from pymc_bayessum.normalizers.family import Family

__all__ = ["Moments", "anchor_moments", "moment_method"]


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean (d,) of the sufficient statistics at a parameter value.

    ``batches`` (B, d) are estimates from disjoint sets of chains, whose spread tells the error of
    the mean; a single row when the mean is exact.
    """

    mean: np.ndarray
    batches: np.ndarray = field(repr=False)
    method: str

    def without(self, batch: int) -> np.ndarray:
        """Mean without one of the batches; as it is where it is exact."""
        n = len(self.batches)
        return self.mean if n < 2 else np.delete(self.batches, batch % n, axis=0).mean(axis=0)

    def spread(self, coordinates: Coordinates) -> np.ndarray | None:
        """Square root of the covariance of the reduced mean, (B, r); None where it is exact.

        The sum over rows of their outer products is the covariance.
        """
        n = len(self.batches)
        if n < 2:
            return None
        batches = self.batches @ coordinates.select.T
        return (batches - batches.mean(axis=0)) / np.sqrt(n * (n - 1.0))


def moment_method(family: Family, theta: np.ndarray, method: str | None = None) -> str:
    """Check the name of a way to estimate the mean of the statistics, or choose the best.

    There are "exact" and "rao-blackwell" where the family offers them, "plain" averages, of these
    by default the first there is, and the family's other means by their names.
    """
    names = ["exact"] * hasattr(family, "exact_mean")
    names += ["rao-blackwell"] * hasattr(family, "conditional_means")
    names += [*getattr(family, "other_means", ()), "plain"]
    if method is not None and method not in names:
        raise ValueError(f"moments must be one of {tuple(names)}, got {method!r}")
    if method in (None, "exact") and hasattr(family, "exact_mean"):
        if family.exact_mean(theta) is not None:
            return "exact"
        if method == "exact":
            raise ValueError("moments='exact': exact means cost too much here")
    if method is None:
        return "rao-blackwell" if "rao-blackwell" in names else "plain"
    return method


def anchor_moments(walk: Walk) -> Moments:
    """Mean of the statistics at the parameters of a walk, by the method its draws were made for."""
    theta, method = walk.theta, walk.means
    assert method is not None
    if method == "exact":
        mean = walk.family.exact_mean(theta)
        return Moments(mean, mean[None], "exact")
    if method in ("rao-blackwell", "plain"):
        return Moments(walk.mean, walk.batch_means, method)
    # Chain by chain, so that neighbours in the array are those in time.
    states = np.stack(walk.kept, axis=1).reshape(-1, *walk.kept[0].shape[1:])
    mean, batches = walk.family.other_means[method](theta, states)
    return Moments(mean, batches, method)
