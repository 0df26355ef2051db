"""Independent draws around a posterior, to hold an estimated log Z of a family against."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pymc_bayessum.normalizers.anchored.rule import Anchored, anchored
from pymc_bayessum.normalizers.protocol import Asked, ReferenceValue

__all__ = ["AnchoredReference"]

#: States drawn around the posterior for each of two independent halves of a reference.
ANCHORED_NODES = 8_000
#: Fewer of them where states are large, so that together they hold so many sites; but not fewer.
ALL_SITES = 30_000_000
FEWEST_NODES = 1000
#: Principal axes of the posterior with an anchor on either side, where there are not more.
MOST_AXES = 4
#: V of the estimate at the posterior mean beyond which draws there tell of the estimate alone.
HOPELESS = 50.0


class AnchoredReference:
    """States drawn at the posterior mean, and along its main axes where these are few.

    Two rules from independent draws; the reference is their mean.  They know log Z up to a
    constant, on which no posterior depends, and agree with the estimate at the posterior mean.
    """

    doubt: str | None = None

    def __init__(self, rule: Any, asked: Asked):
        thetas = np.concatenate([np.atleast_2d(theta) for (theta,) in asked.values])
        anchors = _anchors(thetas.reshape(-1, thetas.shape[-1]))
        size = int(np.prod(rule.states.shape[1:]))
        n = int(np.clip(ALL_SITES // size, FEWEST_NODES, ANCHORED_NODES))
        self.description = f"{2 * n} states drawn around the posterior mean, where both agree"
        self.halves: list[Anchored] = [
            anchored(
                rule.family,
                anchors,
                n=n,
                n_moments=n,
                rng=asked.rng,
                constant=False,
                start=rule.states,
            )
            for _ in range(2)
        ]
        variance = rule.v(anchors[0])
        if variance > HOPELESS:
            self.doubt = (
                f"the anchors are too far from the draws: V is {variance:.3g} there, and beyond "
                f"{HOPELESS:g} log Z is a guess"
            )
        level = rule.log_z_at(np, anchors[0])
        self.levels = [float(level - half.log_z_at(np, anchors[0])) for half in self.halves]

    def __call__(self, draw: Sequence[np.ndarray], theta: Sequence[np.ndarray]) -> ReferenceValue:
        """Return the mean of both halves, and what they differ by."""
        (point,) = theta
        first, second = (
            half.log_z_at(np, point) + level
            for half, level in zip(self.halves, self.levels, strict=True)
        )
        sd = max(
            np.sqrt(half.change_variance(np, one) / 2)
            for half in self.halves
            for one in point.reshape(-1, point.shape[-1])
        )
        if not all(half.settled for half in self.halves):
            sd = np.inf
        noise = float(np.mean(first - second) / 2)
        return ReferenceValue(np.asarray((first + second) / 2), sd=float(sd), noise=noise)


def _anchors(thetas: np.ndarray) -> np.ndarray:
    """Return the mean of parameter vectors, and points along the axes of their spread."""
    centre = thetas.mean(axis=0)
    _, singular, axes = np.linalg.svd(thetas - centre, full_matrices=False)
    sds = singular / np.sqrt(max(len(thetas) - 1, 1))
    main = sds > 1e-6 * max(sds.max(), 1e-12)
    if len(thetas) < 3 or main.sum() > MOST_AXES:
        return centre[None]
    steps = 1.5 * sds[main, None] * axes[main]
    return np.concatenate([centre[None], centre + steps, centre - steps])
