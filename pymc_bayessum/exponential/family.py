r"""Exponential families of a user's own: statistics, and a way to draw."""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import softmax

from pymc_bayessum.arguments import as_generator, integer
from pymc_bayessum.exponential.chains import ProposalChain, SiteChain, compiled_metropolis
from pymc_bayessum.exponential.collinear import require_independent
from pymc_bayessum.exponential.listing import LARGEST_SUPPORT, ListedSum, distinct
from pymc_bayessum.exponential.pairwise import GibbsChain, Pairwise, find_pairwise

__all__ = ["Family", "Verified"]

#: Sweeps from a start to a draw.
SWEEPS = 200
#: Draws by which a sampler is judged.
TRIALS = 4000
#: Standard errors that moments of draws may be away.
TOLERANCE = 5.0


@dataclass(frozen=True)
class Verified:
    """What :meth:`Family.verify` found on a support of so many states.

    The largest difference between means of draws and of the list, in standard errors, of draws that
    the sampler made by itself (``moments``) and of exact ones that it moved on (``invariance``).
    """

    n_states: int
    moments: float
    invariance: float


class Family:
    r"""A discrete exponential family, :math:`p(x \mid \theta) \propto e^{\theta \cdot \phi(x)}`.

    Statistics and one way to draw are all that is needed; `ExponentialFamily` makes it a PyMC
    distribution.

    Parameters
    ----------
    statistics : callable
        ``statistics(x)`` of a batch of states along the first axis, returns :math:`\phi`, (N, d).
    sample : callable, optional
        ``sample(theta, n, rng, start)`` returns n states drawn at ``theta`` (d,); ``start`` is
        None or holds states to begin Markov chains from.
    sites, n_states : int, optional
        In place of ``sample``: states are rows of ``sites`` integers 0 .. ``n_states`` - 1, all of
        them allowed, and are drawn by Gibbs sampling (compiled where statistics are sums over
        sites and pairs of them, which is found out).
    propose : callable, optional
        In place of ``sample``: ``propose(state, rng)`` returns another state, with the same chance
        for the way back; states are drawn by Metropolis steps, compiled where numba can.
    start : array_like, optional
        One state to begin from, or several. Needed with ``propose`` unless data are observed.
    support : array_like, shape (M, ...), optional
        All states there are, where they can be listed. Up to a million make exact sums.
    names : sequence of str, optional
        Of the statistics.

    Examples
    --------
    Rows of six bits that like to agree with their neighbours:

    >>> import numpy as np
    >>> import pymc_bayessum as pbs
    >>> def statistics(x):
    ...     return np.stack([x.sum(axis=1), (x[:, 1:] == x[:, :-1]).sum(axis=1)], axis=1)
    >>> family = pbs.Family(statistics, sites=6, n_states=2)
    >>> family.sample(np.array([0.0, 1.0]), 3, np.random.default_rng(0)).shape
    (3, 6)
    """

    def __init__(
        self,
        statistics: Callable[[Any], Any],
        sample: Callable[..., Any] | None = None,
        *,
        sites: int | None = None,
        n_states: int | None = None,
        propose: Callable[..., Any] | None = None,
        start: Any = None,
        support: Any = None,
        names: Sequence[str] | None = None,
    ) -> None:
        if not callable(statistics):
            raise TypeError(f"statistics must be a function of states, got {statistics!r}")
        for name, function in (("sample", sample), ("propose", propose)):
            if function is not None and not callable(function):
                raise TypeError(f"{name} must be a function, got {function!r}")
        if (sites is None) != (n_states is None):
            raise ValueError("sites and n_states must be given together")
        if sample is None and propose is None and sites is None and support is None:
            raise ValueError(
                "a family needs a way to draw: give sample=, propose=, sites= and n_states=, or a "
                "support= that can be listed"
            )
        if sample is not None and propose is not None:
            raise ValueError("give sample= or propose=, not both")
        self._statistics, self._sample, self._propose = statistics, sample, propose
        self.sites = None if sites is None else integer("sites", sites, 1)
        self.n_states = None if n_states is None else integer("n_states", n_states, 1)
        self.support = None if support is None else _states("support", support)
        self._typical = None if start is None else _states("start", start)
        self._names = None if names is None else tuple(str(name) for name in names)
        self._n_statistics: int | None = None
        if self.sites is not None and self.n_states is not None:
            trial = np.random.default_rng(0).integers(0, self.n_states, (4, self.sites))
            self._require_statistics(trial)
        elif self.typical is not None:
            self._require_statistics(self.typical[:4])

    def __repr__(self) -> str:
        """Name with what is known of the states."""
        where = f", states of shape {self.state_shape}" if self.state_shape is not None else ""
        return f"Family({getattr(self._statistics, '__name__', 'statistics')}{where})"

    @property
    def typical(self) -> np.ndarray | None:
        """States to start from, (C, ...)."""
        if self._typical is None and self.support is not None:
            return self.support[:1]
        return self._typical

    @property
    def state_shape(self) -> tuple[int, ...] | None:
        """Shape of one state; None while no state is known."""
        if self.sites is not None:
            return (self.sites,)
        return None if self.typical is None else self.typical.shape[1:]

    @property
    def n_statistics(self) -> int:
        """Number of statistics, d."""
        if self._n_statistics is None:
            raise ValueError("the family has seen no state yet: give start=")
        return self._n_statistics

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the statistics."""
        if self._names is not None:
            return self._names
        return tuple(f"statistic {k}" for k in range(self.n_statistics))

    def starting_at(self, states: np.ndarray) -> "Family":
        """Return the same family, with chains that start at observed states."""
        family = copy(self)
        family._typical = _states("start", states)
        if self.sites is None:
            family._require_statistics(family._typical[:4])
        return family

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Return states as they are."""
        return np.asarray(values).astype(np.int64)

    decode = encode

    def valid(self, values: np.ndarray) -> np.ndarray:
        """Which rows are states of the family, as far as that is known."""
        values = np.asarray(values)
        whole = (values == np.floor(values)).reshape(len(values), -1).all(axis=1)
        if self.n_states is not None:
            return whole & ((values >= 0) & (values < self.n_states)).all(axis=1)
        if self.support is None:
            return whole
        return whole & np.isin(_keys(values.astype(np.int64)), _keys(self.support))

    def statistics(self, states: Any) -> np.ndarray:
        """Statistics of a batch of states (N, ...), checked: shape (N, d)."""
        found = np.asarray(self._statistics(states), dtype=float)
        if found.ndim != 2 or len(found) != len(states):
            raise ValueError(
                f"statistics must return one row for each state, shape ({len(states)}, d), got "
                f"{found.shape}"
            )
        if not np.isfinite(found).all():
            raise ValueError(
                f"statistics must be finite, got {found[~np.isfinite(found)][0]} for the state "
                f"{np.asarray(states)[~np.isfinite(found).all(axis=1)][0].tolist()}"
            )
        return found

    def _require_statistics(self, trial: np.ndarray) -> None:
        """Check statistics on a few states: one row for each, and of that state alone."""
        together = self.statistics(trial)
        alone = np.concatenate([self.statistics(trial[k : k + 1]) for k in range(len(trial))])
        if together.shape != alone.shape or not np.allclose(together, alone, rtol=1e-9, atol=1e-9):
            raise ValueError(
                "statistics of a state must not depend on the other states of the batch: sum over "
                "axis 1, not over axis 0"
            )
        self._n_statistics = together.shape[1]
        if self._names is not None and len(self._names) != self._n_statistics:
            raise ValueError(
                f"names must hold {self._n_statistics} names, one for each statistic, got "
                f"{len(self._names)}"
            )

    @cached_property
    def _pairwise(self) -> Pairwise | None:
        if self.sites is None or self.n_states is None:
            return None
        return find_pairwise(self.statistics, self.sites, self.n_states)

    @cached_property
    def _compiled(self) -> Callable[..., None] | None:
        assert self._propose is not None
        assert self.typical is not None
        if self.typical.ndim != 2:
            return None
        first = self.typical[0]
        return compiled_metropolis(self._propose, self._statistics, first, self.n_statistics)

    def chain(self, theta: np.ndarray) -> Any:
        """Return Markov chains at a parameter vector; None where ``sample`` draws by itself."""
        if self._sample is not None or self._listed_states is not None:
            return None
        return self._markov(theta)

    def _markov(self, theta: np.ndarray) -> Any:
        theta = np.asarray(theta, dtype=float)
        if self._propose is not None:
            if self.typical is None:
                raise ValueError("propose= needs a state to begin from: give start=")
            return ProposalChain(
                self._propose, self.statistics, self.typical, theta, self._compiled
            )
        if self._pairwise is not None:
            return GibbsChain(self._pairwise, theta)
        return SiteChain(self.statistics, self.sites or 0, self.n_states or 0, theta)

    def sample(self, theta: Any, n: int, rng: Any = None, start: Any = None) -> np.ndarray:
        """Draw n states, shape (n, ...), at a parameter vector (d,).

        Markov chains begin at ``start`` (C, ...); ``rng`` is None, an int or a Generator.
        """
        theta, rng = np.asarray(theta, dtype=float), as_generator(rng)
        if self._sample is not None:
            return self._own_draws(theta, n, rng, start)
        if self._listed_states is not None:
            chance = softmax(self._listed_statistics @ theta)
            return self._listed_states[rng.choice(len(chance), size=n, p=chance)]
        return self._chained(theta, n, rng, start, SWEEPS)

    def _chained(self, theta: np.ndarray, n: int, rng: Any, start: Any, sweeps: int) -> np.ndarray:
        chain = self._markov(theta)
        first = chain.start(n, rng) if start is None else start[np.arange(n) % len(start)]
        return chain.advance(first, sweeps, rng)

    def _own_draws(self, theta: np.ndarray, n: int, rng: Any, start: Any) -> np.ndarray:
        assert self._sample is not None
        states = np.asarray(self._sample(theta, n, rng, start))
        shape = self.state_shape
        if len(states) != n or (shape is not None and states.shape[1:] != shape):
            wanted = f"({n}, {', '.join(map(str, shape or ('...',)))})"
            raise ValueError(f"sample must return states of shape {wanted}, got {states.shape}")
        if states.dtype.kind not in "iub":
            raise ValueError(f"sample must return integers, got {states.dtype}")
        inside = self.valid(states)
        if not inside.all():
            raise ValueError(
                f"sample left the support: it returned {states[~inside][0].tolist()} at theta = "
                f"{theta.tolist()}"
            )
        return states

    @cached_property
    def _listed_states(self) -> np.ndarray | None:
        """All states, in the order of their statistics; None where there are too many."""
        if self.support is not None:
            return self.support if len(self.support) <= LARGEST_SUPPORT else None
        if self.sites is None or self.n_states is None:
            return None
        if self.sites * np.log(max(self.n_states, 1)) > np.log(LARGEST_SUPPORT) + 1e-9:
            return None
        size = self.n_states**self.sites
        digits = self.n_states ** np.arange(self.sites)
        return np.arange(size)[:, None] // digits % self.n_states

    @cached_property
    def _listed_statistics(self) -> np.ndarray:
        assert self._listed_states is not None
        return self.statistics(self._listed_states)

    @cached_property
    def listing(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Distinct statistics and their numbers of states; None where there are too many."""
        return None if self._listed_states is None else distinct(self._listed_statistics)

    @cached_property
    def exact(self) -> ListedSum | None:
        """The exact normaliser; None where there are too many states."""
        return None if self.listing is None else ListedSum(*self.listing)

    def exact_log_z(self, often: bool = False) -> Callable[[np.ndarray], float] | None:
        """Exact log Z as a function of a parameter vector; None where there is none."""
        exact = self.exact
        return None if exact is None else lambda theta: float(exact.log_z(np, theta))

    def require_reaction(self, rng: Any = 0) -> None:
        r"""Raise where draws of ``sample`` do not follow theta, or follow it the wrong way.

        A step d of theta moves the mean of :math:`d \cdot \phi` by its variance, to first order.
        """
        if self._sample is None:
            return
        rng, start = as_generator(rng), self.typical
        zero = np.zeros(self.n_statistics)
        before = self.statistics(self.sample(zero, 400, rng, start))
        spread = before.std(axis=0)
        moving = spread > 1e-9 * (1.0 + np.abs(before).max(axis=0))
        if not moving.any():
            raise ValueError(
                "sample returned states with the same statistics 400 times at theta = 0: it must "
                "draw at random"
            )
        for k in np.flatnonzero(moving):
            one = np.zeros_like(zero)
            one[k] = 1.0 / spread[k]
            after = self.statistics(self.sample(one, 400, rng, start))
            gain = (after[:, k].mean() - before[:, k].mean()) / spread[k]
            if gain < 5.0 * np.sqrt(2.0 / 400) / 2.0:
                raise ValueError(
                    f"sample ignores theta, or follows it the wrong way: raising that of "
                    f"{self.names[k]} from 0 to {one[k]:.3g} moved its mean by {gain:.2g} sds, "
                    "where about one was due"
                )

    def require_independent(self, rng: Any = 0) -> None:
        """Raise where statistics say the same on all states, as far as states are known."""
        d = self.n_statistics
        if self.listing is not None:
            require_independent(self.listing[0], self.names, "state")
            return
        rng, n = as_generator(rng), 40 + 4 * d
        if self.sites is not None and self.n_states is not None:
            states = rng.integers(0, self.n_states, (n, self.sites))
            alike = np.tile(np.arange(self.n_states)[:, None], self.sites)
            states = np.concatenate([states, alike])
        else:
            states = self.sample(np.zeros(d), n, rng, self.typical)
        if self.typical is not None:
            states = np.concatenate([states, self.typical])
        require_independent(self.statistics(states), self.names, "state that was drawn")

    def verify(self, theta: Any = None, rng: Any = 0) -> Verified:
        """Check draws against the list of all states: build a small instance and ask it.

        Means of all statistics and of their squares are compared, of draws that the sampler made
        by itself and of exact draws that it moved on (a Markov chain must leave those unchanged).

        Parameters
        ----------
        theta : array_like, shape (d,), optional
            Where to check; by default zero, and a random place where statistics matter.
        rng : None, int or numpy.random.Generator

        Returns
        -------
        Verified

        Raises
        ------
        ValueError
            Where draws are not those of the family, or there are too many states to list.

        Examples
        --------
        >>> import numpy as np
        >>> import pymc_bayessum as pbs
        >>> def shuffle(theta, n, rng, start):
        ...     return rng.integers(0, 2, (n, 4))
        >>> family = pbs.Family(lambda x: x.sum(axis=1, keepdims=True), shuffle,
        ...                     sites=4, n_states=2)
        >>> family.verify(theta=[1.0])
        Traceback (most recent call last):
            ...
        ValueError: draws are not those of the family at theta = [1.0]: ...
        """
        states = self._listed_states
        if self._sample is None and self._propose is None and self.sites is None:
            raise ValueError(
                "a family known by its support= draws from the list: nothing to verify"
            )
        if states is None:
            raise ValueError(
                "verify compares with the list of all states, and there are too many or they are "
                f"not known: build a small instance (up to {LARGEST_SUPPORT} states) with sites= "
                "and n_states=, or give support="
            )
        rng = as_generator(rng)
        listed = self._listed_statistics
        if theta is None:
            spread = np.maximum(listed.std(axis=0), 1e-12)
            places = [np.zeros(listed.shape[1]), rng.normal(size=listed.shape[1]) / spread]
        else:
            places = [np.asarray(theta, dtype=float)]
        moments, invariance = 0.0, 0.0
        for place in places:
            chance = softmax(listed @ place)
            exact = states[rng.choice(len(chance), size=TRIALS, p=chance)]
            own = self._moved(place, self.typical, SWEEPS, rng)
            moments = max(moments, _distance(self.statistics(own), listed, chance))
            moved = self._moved(place, exact, 1, rng)
            invariance = max(invariance, _distance(self.statistics(moved), listed, chance))
            if max(moments, invariance) > TOLERANCE:
                worst = "its own" if moments > TOLERANCE else "moved on from exact ones"
                raise ValueError(
                    f"draws are not those of the family at theta = {place.tolist()}: means of "
                    f"draws ({worst}) are {max(moments, invariance):.1f} standard errors from "
                    "those of the list of all states"
                )
        return Verified(len(states), moments, invariance)

    def _moved(self, theta: np.ndarray, start: Any, sweeps: int, rng: Any) -> np.ndarray:
        """Draws by the sampler itself, never by the list."""
        if self._sample is not None:
            return self._own_draws(theta, TRIALS, rng, start)
        moved = self._chained(theta, TRIALS, rng, start, sweeps)
        if not self.valid(moved).all():
            raise ValueError(
                f"propose left the support: it came to {moved[~self.valid(moved)][0].tolist()}"
            )
        return moved


def _distance(found: np.ndarray, listed: np.ndarray, chance: np.ndarray) -> float:
    """Largest difference of first and second moments, in standard errors."""
    centre = chance @ listed
    largest = 0.0
    for power in (1, 2):
        values, wanted = (found - centre) ** power, (listed - centre) ** power
        mean = chance @ wanted
        sd = np.sqrt(np.maximum(chance @ (wanted - mean) ** 2, 0.0) / len(found))
        # What hardly ever happens has no normal error: some tens of occurrences are allowed for.
        sd = sd + 10.0 * np.abs(wanted - mean).max(axis=0) / len(found) / TOLERANCE
        away = np.abs(values.mean(axis=0) - mean)
        largest = max(largest, float(np.max(away / np.maximum(sd, 1e-12))))
    return largest


def _states(name: str, values: Any) -> np.ndarray:
    """States along the first axis; a single one gets that axis."""
    array = np.asarray(values)
    if array.dtype.kind not in "iub" and not (
        array.dtype.kind == "f" and np.array_equal(array, np.floor(array))
    ):
        raise ValueError(f"{name} must hold integers, got {array.dtype}")
    if array.ndim == 0 or not array.size:
        raise ValueError(f"{name} must hold at least one state, got shape {array.shape}")
    array = array.astype(np.int64)
    return array[None] if array.ndim == 1 else array


def _keys(states: np.ndarray) -> np.ndarray:
    """One comparable value for each state."""
    flat = np.ascontiguousarray(states.reshape(len(states), -1))
    return flat.view(np.dtype((np.void, flat.dtype.itemsize * flat.shape[1]))).ravel()
