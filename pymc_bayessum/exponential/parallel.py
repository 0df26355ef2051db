"""Compiled Markov chains side by side: threads for cores, a stream of numbers for each chain."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from pymc_bayessum.threads import in_parts

__all__ = ["run_parallel", "uniform"]

_STEP, _FIRST, _SECOND = (
    np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
_30, _27, _31, _11 = (np.uint64(number) for number in (30, 27, 31, 11))


@njit(cache=True, nogil=True)
def uniform(stream):
    """Return the next number of a stream, in [0, 1).

    SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014): the
    whole state is one integer (uint64, shape (1,)), so thousands of chains can have one each.

    Examples
    --------
    >>> stream = np.array([2], np.uint64)
    >>> numbers = [uniform(stream) for _ in range(10_000)]
    >>> bool(abs(np.mean(numbers) - 0.5) < 0.01)
    True
    """
    stream[0] += _STEP
    z = stream[0]
    z = (z ^ (z >> _30)) * _FIRST
    z = (z ^ (z >> _27)) * _SECOND
    z = z ^ (z >> _31)
    return (z >> _11) * (1.0 / 9007199254740992.0)


def run_parallel(
    kernel: Callable[..., None], arguments: tuple[Any, ...], starts: Any, rng: np.random.Generator
) -> np.ndarray:
    """Run a compiled kernel on blocks of chains, in as many threads as there are cores.

    ``kernel(*arguments, starts, streams, ends)`` releases the interpreter's lock, reads the first
    states of some chains (C, ...) and their streams of numbers, and writes their last states. Each
    chain has its own stream: results do not depend on the number of threads.

    Examples
    --------
    >>> def shift(by, starts, streams, ends):
    ...     ends[:] = starts + by
    >>> run_parallel(shift, (2,), np.arange(5), np.random.default_rng(0)).tolist()
    [2, 3, 4, 5, 6]
    """
    starts = np.ascontiguousarray(starts)
    ends = np.empty_like(starts)
    streams = rng.integers(2**64, size=(len(starts), 1), dtype=np.uint64)

    def run(first: int, last: int) -> None:
        part = slice(first, last)
        kernel(*arguments, starts[part], streams[part], ends[part])

    in_parts(run, len(starts))
    return ends
