"""The same work on one core or on many machines: any executor of ``concurrent.futures``."""

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor
from typing import Any

__all__ = ["as_executor", "in_order"]


def as_executor(executor: Any) -> Executor | None:
    """Return an executor, or raise for what is none."""
    if executor is not None and not isinstance(executor, Executor):
        raise TypeError(
            "executor must be a concurrent.futures.Executor (of a Dask client: "
            f"client.get_executor()), got {executor!r}"
        )
    return executor


def in_order[T, R](
    function: Callable[[T], R], items: Sequence[T], executor: Executor | None = None
) -> Iterator[R]:
    """Yield the results of a function, in the order of its arguments.

    Everything is handed to the executor at once. Should its workers die, which ends a process pool
    for good, what they had not finished is computed here. Without an executor all is, each result
    when it is asked for.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(2) as pool:
    ...     list(in_order(abs, [-3, 2], pool))
    [3, 2]
    """
    if executor is None:
        yield from map(function, items)
        return
    futures: list[Any] = []
    for item in items:
        try:
            futures.append(executor.submit(function, item))
        except BrokenExecutor:  # it was dead already
            futures.append(None)
    told = False
    try:
        for item, future in zip(items, futures, strict=True):
            try:
                result = function(item) if future is None else future.result()
            except (BrokenExecutor, CancelledError):
                if not told:
                    warnings.warn(
                        "workers of the executor have died; what they left is computed here",
                        RuntimeWarning,
                        stacklevel=3,
                    )
                    told = True
                result = function(item)
            except Exception as error:
                if not re.search("an('t|not) pickle|local object", str(error)):
                    raise
                raise TypeError(
                    f"the executor's processes cannot be sent what they need ({error}): define "
                    "functions at the top of a module, or use Dask's executor, which sends any"
                ) from None
            yield result
    finally:
        for future in futures:
            if future is not None:
                future.cancel()
