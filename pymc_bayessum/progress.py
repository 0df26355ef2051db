"""One progress bar for all long work: a clock that runs, and news of what was found."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["progress"]


@contextmanager
def progress(
    title: str, shown: bool | None = True, total: int | None = None
) -> Iterator[Callable[..., None]]:
    """Show a progress bar on standard error, or with None where that is a terminal.

    Yields a function that takes news in words, and counts one step. Where the total of steps is not
    known the bar runs, and its clock, until the end.

    Examples
    --------
    >>> with progress("Counting", shown=False, total=2) as report:
    ...     report("one")
    ...     report("two")
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[news]}"),
        TimeElapsedColumn(),
    )
    hidden = not (console.is_terminal if shown is None else shown)
    with Progress(*columns, console=console, disable=hidden) as bar:
        task = bar.add_task(title, total=total, news="")
        yield lambda news="": bar.update(task, advance=1, news=news)
        bar.update(task, total=total or 1, completed=total or 1)
