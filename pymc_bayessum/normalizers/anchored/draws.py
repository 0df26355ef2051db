"""Draws of an exponential family at a fixed parameter value, of which the statistics are kept.

Where the family offers chains, many run side by side: burn-in lasts until the mean energy has
stopped moving, and as long again; draws are that many sweeps apart that energies are nearly
uncorrelated. Other families draw by themselves. States are forgotten once their statistics are
known: only the last ones stay, to go on from.
"""

from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple

import numpy as np

from pymc_bayessum.executors import in_order
from pymc_bayessum.normalizers.coordinates import Coordinates
from pymc_bayessum.normalizers.family import Family

__all__ = ["CHAINS", "Draws", "Walk", "chains_for", "draw_all", "some_of"]

#: Chains that are run side by side, at most.
CHAINS = 500
#: Chains by the size of a state, up to which they are used.
CHAINS_BY_SIZE = ((CHAINS, 512), (100, 1024), (50, 8192), (25, 32_768), (13, np.inf))
#: Sets of chains whose separate means tell the error of the whole.
N_BATCHES = 10
#: Sweeps after which burn-in ends whether energies have settled or not.
LONGEST_BURN_IN = 4000
#: Sweeps between draws, at most.
LONGEST_SPACING = 30
#: Numbers of statistics up to which each is watched, beside the energy.
FEW_STATISTICS = 8
#: Numbers of them up to which their correlations are, in choosing the sweeps between draws:
MOST_WATCHED = 2000
#: those of what is always watched, and of each of many others, that may be left.
FORGOTTEN, EACH_FORGOTTEN = 0.2, 0.5
#: Draws of each chain from which on that can be told.
FEWEST_ROUNDS = 8
#: Standard errors by which early and late draws may differ.
UNSTEADY = 5.0
#: Numbers of statistics that are held at once.
_BLOCK = 8_000_000


def chains_for(states: np.ndarray) -> int:
    """Return the number of chains that is worth its burn-in, for states (C, ...) of this size.

    A fifth of them can be held out, and ten equal sets made of the others.

    Examples
    --------
    >>> [chains_for(np.zeros((1, side**2))) for side in (16, 100, 500)]
    [500, 25, 13]
    """
    size = int(np.prod(states.shape[1:]))
    return next(count for count, most in CHAINS_BY_SIZE if size <= most)


class Walk:
    """Draws at one parameter value (d,); more of them whenever asked. The first wait for burn-in.

    Statistics are kept in coordinates. Chains begin at ``start`` (C, ...), repeated as needed;
    where the family draws independently ``n_chains`` is the number of draws at a time. ``means``
    says how the mean of the statistics will be told, see :func:`.moment_method`: what that takes is
    kept, means over sets of chains or all states after all. Second moments of as many draws as
    ``curvature`` says are summed up, kept or not.

    ``sampler`` is the name of the chains, "exact" for independent draws of a family that has chains
    as well, "own" for one that has not; ``states`` (C, ...) are the last ones; ``burn_in`` and
    ``thin`` the sweeps before the first draw and between draws; ``settled`` tells whether the mean
    energy had stopped moving when burn-in ended.
    """

    def __init__(
        self,
        family: Family,
        theta: np.ndarray,
        coordinates: Coordinates,
        rng: np.random.Generator,
        *,
        start: np.ndarray | None = None,
        n_chains: int = CHAINS,
        means: str | None = None,
        curvature: int = 0,
    ):
        self.family: Any = family
        self.theta, self.coordinates, self.rng = theta, coordinates, rng
        self.n_chains, self.means = n_chains, means
        self.chain: Any = family.chain(theta) if hasattr(family, "chain") else None
        self.burn_in, self.thin, self.settled = 0, 1, True
        self.kept: list[np.ndarray] = []
        self._rounds: list[np.ndarray] = []
        self._batch = np.arange(n_chains) % min(N_BATCHES, n_chains)
        self._sums = np.zeros((self._batch.max() + 1, len(theta)))
        self._n_summed = 0
        self._moments: tuple[Any, ...] = (0, 0.0, 0.0)
        self._curvature_rounds = -(-curvature // n_chains)
        if self.chain is None:
            self.sampler = "exact" if hasattr(family, "chain") else "own"
            self.states: Any = start
        else:
            self.sampler = self.chain.name
            if start is None:
                self.states = self.chain.start(n_chains, rng)
            else:
                self.states = start[np.arange(n_chains) % len(start)]

    @property
    def rows(self) -> np.ndarray:
        """Reduced statistics, shape (rounds, chains, r)."""
        return np.stack(self._rounds)

    @property
    def n_rounds(self) -> int:
        """Draws made with every chain."""
        return self._n_summed

    @property
    def is_steady(self) -> bool:
        """Whether early and late draws have the same mean, and all chains the same."""
        rows = self.rows
        n = len(rows)
        if self.chain is None or n < FEWEST_ROUNDS:
            return True
        moved = rows[: n // 4].mean(axis=0) - rows[n // 2 :].mean(axis=0)
        noise = moved.std(axis=0, ddof=1) / np.sqrt(self.n_chains) + 1e-12
        drift = np.abs(moved.mean(axis=0)) / noise
        # Chains that each stay in a part of their own differ by more than their draws explain.
        within, between = rows.var(axis=0).mean(axis=0), rows.mean(axis=0).var(axis=0, ddof=1)
        apart = between - 3.0 * within / n > 0.1 * within + 1e-12
        return bool((drift < UNSTEADY).all() and not apart.any())

    @property
    def batch_means(self) -> np.ndarray:
        """Means of the statistics over sets of chains, shape (B, d)."""
        size = np.bincount(self._batch) * self._n_summed
        return self._sums / size[:, None]

    @property
    def mean(self) -> np.ndarray:
        """Mean of the statistics, shape (d,)."""
        return self._sums.sum(axis=0) / (self.n_chains * self._n_summed)

    @property
    def covariance(self) -> np.ndarray | None:
        """Covariance of the reduced statistics over all draws, (r, r), where it was asked for."""
        n, total, products = self._moments
        if not n:
            return None
        mean = total / n
        return (products - n * np.outer(mean, mean)) / (n - 1.0)

    def draw(self, rounds: int, every: int = 1) -> None:
        """Make some draws with every chain, and keep the statistics of each ``every``-th.

        Those between serve the means alone.
        """
        if self.chain is not None and not self.burn_in:
            self._burn_in()
            self._space_out()
        for number in range(rounds):
            self._advance(self.thin)
            kept = number % every == 0
            bends = self._n_summed < self._curvature_rounds
            if kept or bends or self.means == "plain":
                reduced = self._take_statistics()
                if bends:
                    self._add_moments(reduced)
                if kept:
                    self._rounds.append(reduced)
            if kept and self.means not in (None, "exact", "plain", "rao-blackwell"):
                self.kept.append(self.states)
            if self.means == "rao-blackwell":
                means = self.family.conditional_means(self.theta, self.states, self._batch)
                self._sums += means * np.bincount(self._batch)[:, None]
            self._n_summed += 1

    def _add_moments(self, rows: np.ndarray) -> None:
        """Add to the sums of statistics and of their products, relative to the first mean."""
        n, total, products = self._moments
        if not n:
            self._origin = rows.mean(axis=0)
        away = rows - self._origin
        self._moments = n + len(rows), total + away.sum(axis=0), products + away.T @ away

    def _advance(self, sweeps: int) -> None:
        if self.chain is None:
            self.states = self.family.sample(self.theta, self.n_chains, self.rng, self.states)
        else:
            self.states = self.chain.advance(self.states, sweeps, self.rng)

    def _take_statistics(self) -> np.ndarray:
        """Reduced statistics of the states, (C, r), in blocks: all may not fit in memory."""
        block = max(1, _BLOCK // max(1, len(self.theta)))
        parts = []
        for first in range(0, self.n_chains, block):
            some = slice(first, first + block)
            statistics = self.family.statistics(self.states[some])
            parts.append(self.coordinates.rows(statistics)[0])
            if self.means == "plain":
                for batch in range(len(self._sums)):
                    self._sums[batch] += statistics[self._batch[some] == batch].sum(axis=0)
        return np.concatenate(parts)

    def _summary(self) -> np.ndarray:
        """Energy, and the statistics themselves where they are few: fields may move slower."""
        few = len(self.theta) <= FEW_STATISTICS
        if hasattr(self.chain, "energy") and not few:
            return self.chain.energy(self.states)[:, None]
        statistics = self.family.statistics(self.states)
        energy = (statistics @ self.theta)[:, None]
        return np.hstack([energy, statistics]) if few else energy

    def _burn_in(self) -> None:
        """Run until the means over chains no longer move, and as long again."""
        done, block, calm = 0, 10, 0
        before = self._summary()
        while done < LONGEST_BURN_IN // 2 and calm < 2:
            self._advance(block)
            done += block
            after = self._summary()
            noise = np.sqrt((before.var(axis=0) + after.var(axis=0)) / self.n_chains) + 1e-12
            moved = np.abs(after.mean(axis=0) - before.mean(axis=0)) / noise
            calm = calm + 1 if moved.max() < 2.5 else 0
            before = after
            if done >= 10 * block:
                block *= 2
        self._advance(done)
        self.burn_in, self.settled = 2 * done, calm >= 2

    def _space_out(self) -> None:
        """Find the number of sweeps after which a chain has nearly forgotten where it was.

        Of many statistics some may be slower than the energy, which most of them make up; but the
        largest of many correlations is noise as well, and each may keep more of itself.
        """
        many = FEW_STATISTICS < self.coordinates.size <= MOST_WATCHED

        def centred() -> list[np.ndarray]:
            seen = [self._summary()]
            if many:
                seen.append(self.coordinates.rows(self.family.statistics(self.states))[0])
            return [each - each.mean(axis=0) for each in seen]

        first, left = centred(), (FORGOTTEN, EACH_FORGOTTEN)[: 1 + many]
        for self.thin in range(1, LONGEST_SPACING + 1):
            self._advance(1)
            kept = [
                (old * new).sum(axis=0)
                - share * np.sqrt((old**2).sum(axis=0) * (new**2).sum(axis=0))
                for old, new, share in zip(first, centred(), left, strict=True)
            ]
            if all((each <= 0.0).all() for each in kept):
                return


class Draws(NamedTuple):
    """Draws to be made: those of :meth:`Walk.draw`, of a walk with a generator of its own."""

    walk: Walk
    rounds: int
    every: int = 1

    def made(self) -> Walk:
        """Make them."""
        self.walk.draw(self.rounds, self.every)
        return self.walk


def draw_all(wanted: Sequence[Draws], executor: Executor | None = None) -> list[Walk]:
    """Make draws at several anchors, side by side where there is an executor.

    They are the same whoever made them; the walks are other objects where they came from another
    process.
    """
    walks = list(in_order(Draws.made, wanted, executor))
    for walk, (asked, *_) in zip(walks, wanted, strict=True):
        walk.family = asked.family  # and not one that has travelled
    return walks


def some_of(states: np.ndarray, n: int) -> np.ndarray:
    """Return at most n of the states, evenly spread."""
    if len(states) <= n:
        return states
    return states[np.linspace(0, len(states) - 1, n).astype(int)]
