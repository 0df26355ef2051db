"""Work on all cores of this machine, for compiled functions that let go of the interpreter."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from threading import local
from typing import Any

import numpy as np

__all__ = ["in_parts", "in_threads"]

_inside = local()


@cache
def _pool() -> tuple[ThreadPoolExecutor, int]:
    count = max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
    return ThreadPoolExecutor(count), count


if hasattr(os, "register_at_fork"):
    # Threads do not survive a fork: a process that has inherited the pool would wait for ever.
    os.register_at_fork(after_in_child=_pool.cache_clear)


def _alone() -> bool:
    """Whether there are no further cores: no second one, or this is one of the threads."""
    return _pool()[1] == 1 or getattr(_inside, "pool", False)


def in_threads[T, R](work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Call ``work`` on every item, and yield the results in their order.

    What is called from there stays in its thread.

    Examples
    --------
    >>> list(in_threads(lambda x: x**2, range(4)))
    [0, 1, 4, 9]
    """

    def inside(item: T) -> R:
        _inside.pool = True
        return work(item)

    return map(work, items) if _alone() else _pool()[0].map(inside, items)


def in_parts(run: Callable[..., Any], n: int, *arguments: Any) -> None:
    """Call ``run(first, last, *arguments)`` on parts of 0 .. n-1, one for each core.

    Examples
    --------
    >>> import numpy as np
    >>> def fill(first, last, out):
    ...     out[first:last] = 1
    >>> out = np.zeros(5)
    >>> in_parts(fill, 5, out)
    >>> out.tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0]
    """
    if n < 2 or _alone():
        run(0, n, *arguments)
        return
    borders = np.linspace(0, n, min(n, _pool()[1]) + 1).astype(np.int64)
    for _ in in_threads(lambda part: run(*part, *arguments), pairwise(borders)):
        pass
