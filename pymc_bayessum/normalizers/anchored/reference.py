"""Independent draws around a posterior, to hold an estimated log Z of a family against."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pymc_bayessum.normalizers.anchored.averages import (
    CURVATURE_EACH,
    SET,
    averages_until,
    curvature_of,
    gradients,
)
from pymc_bayessum.normalizers.anchored.draws import Walk
from pymc_bayessum.normalizers.anchored.rule import Anchored, anchored
from pymc_bayessum.normalizers.protocol import Asked, ReferenceValue

__all__ = ["AnchoredReference", "AveragedReference"]

#: States drawn around the posterior for each of two independent halves of a reference, and the
#: most where they leave a larger error than they may, for there are many rows.
ANCHORED_NODES = 8_000
MOST_NODES = 32_000
#: Fewer of them where states are large, so that together they hold so many sites; but not fewer.
ALL_SITES = 30_000_000
FEWEST_NODES = 1000
#: What is wrong where draws around the posterior are of several kinds.
UNJOINED = (
    "the posterior reaches parameters at which chains remember where they began, and nothing joins "
    "the states that they stay in"
)
#: Principal axes of the posterior with an anchor on either side, where there are not more.
MOST_AXES = 4
#: V of the estimate at the posterior mean beyond which draws there tell of the estimate alone.
HOPELESS = 50.0
#: Error of posterior means, in sds, that draws may leave.
ERROR = 0.011
#: Draws for each parameter at the posterior mean, to know directions by.
BENDS_EACH = 50


class AnchoredReference:
    """States drawn at the posterior mean, and along its main axes where these are few.

    Two rules from independent draws; the reference is their mean.  They know log Z up to a
    constant, on which no posterior depends, and agree with the estimate at the posterior mean.
    """

    def __init__(self, rule: Any, asked: Asked):
        thetas = _parameters(asked)
        anchors = _anchors(thetas)
        joined = anchors
        if hasattr(rule.family, "joined"):
            joined = rule.family.joined(anchors, asked.rng)
        anchors = anchors if joined is None else joined

        def halves(n: int) -> list[Anchored]:
            return [
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

        affordable = ALL_SITES // int(np.prod(rule.states.shape[1:]))
        n = int(np.clip(affordable, FEWEST_NODES, ANCHORED_NODES))
        self.halves = halves(n)
        needed = n * (_error(self.halves[0], thetas) / ERROR) ** 2
        if n < min(needed, affordable):
            n = int(min(needed, affordable, MOST_NODES))
            self.halves = halves(n)
        self.description = f"{2 * n} states drawn around the posterior mean, where both agree"
        self.doubt = UNJOINED if joined is None else _doubt(rule.v(anchors[0]))
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


class AveragedReference:
    r"""Draws of the model at draws of the posterior, where parameters are many.

    The estimate itself, with the gradient and the curvature it should have on average over the
    posterior (see :mod:`~pymc_bayessum.normalizers.anchored.averages`): with the mean of the
    coordinates :math:`\bar c`,

    .. math:: \log Z(c) = \log \hat Z(c) + \delta \cdot (c - \bar c)
              + \tfrac12 (c - \bar c)^\top \Delta\, (c - \bar c) .

    Posterior means and sds follow from these averages, to first order, and nothing else is asked.
    """

    description = "draws of the model at draws of the posterior: mean slope and curvature of log Z"

    def __init__(self, rule: Anchored, asked: Asked):
        coordinates = rule.coordinates
        points = coordinates.of(_parameters(asked))
        self.rule, self.centre = rule, points.mean(axis=0)
        self.doubt = _doubt(rule.v(coordinates.parameters(self.centre)))
        n_bends = BENDS_EACH * coordinates.size
        walk = Walk(
            rule.family,
            coordinates.parameters(self.centre),
            coordinates,
            asked.rng,
            start=rule.states,
            curvature=n_bends,
        )
        walk.draw(-(-n_bends // walk.n_chains), every=n_bends)
        self.settled = walk.settled and rule.settled
        bend = walk.covariance
        assert bend is not None
        away = points - self.centre
        v = np.mean(np.sum(away @ bend * away, axis=1)) * len(away) / (len(away) - 1.0)
        # A posterior that the data alone have made would have this V with so many rows.
        rows = coordinates.size / v
        self.averages, _ = averages_until(
            rule, _sets(points, asked.rng), rows * bend, rows, ERROR,
            thin=walk.thin, start=walk.states, rng=asked.rng,
            n_bends=CURVATURE_EACH * coordinates.size,
        )  # fmt: skip
        left = self.averages.means - gradients(rule, self.averages.points)
        self.halves = [part.mean(axis=0) for part in np.array_split(left, 2)]
        self.bend = self.averages.covariance - curvature_of(rule, self.averages)

    def __call__(self, draw: Sequence[np.ndarray], theta: Sequence[np.ndarray]) -> ReferenceValue:
        """Return the estimate put right, and what two halves of the draws differ by."""
        (point,) = theta
        away = self.rule.coordinates.of(point) - self.centre
        first, second = (away @ half for half in self.halves)
        bent = 0.5 * np.sum(away @ self.bend * away, axis=-1)
        value = self.rule.log_z_at(np, point) + (first + second) / 2.0 + bent
        noise = float(np.mean(first - second) / 2.0)
        return ReferenceValue(
            np.asarray(value), sd=abs(noise) if self.settled else np.inf, noise=noise
        )


def _parameters(asked: Asked) -> np.ndarray:
    """Return the parameter vectors of the posterior's draws, (K, d)."""
    thetas = np.concatenate([np.atleast_2d(theta) for (theta,) in asked.values])
    return thetas.reshape(-1, thetas.shape[-1])


def _error(half: Anchored, thetas: np.ndarray) -> float:
    """Return the error of a posterior mean, in sds, that two such halves leave."""
    away = half.coordinates.of(thetas) - half.coordinates.of(half.centre)
    v = np.mean(np.sum(away @ half.held_out.covariances[0] * away, axis=1))
    # A posterior that the data alone have made would have this V with so many rows.
    rows = np.linalg.matrix_rank(away) / max(float(v), 1e-12)
    return rows * float(np.sqrt(np.mean(half.change_variance(np, thetas)) / 2.0))


def _sets(points: np.ndarray, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield posterior draws in sets, all of them in turn."""
    while True:
        order = rng.permutation(len(points))
        for part in np.array_split(order, -(-len(order) // SET)):
            yield points[np.resize(part, SET)]


def _doubt(variance: float) -> str | None:
    if variance <= HOPELESS:
        return None
    return (
        f"the anchors are too far from the draws: V is {variance:.3g} there, and beyond "
        f"{HOPELESS:g} log Z is a guess"
    )


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
