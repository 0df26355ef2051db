"""A progress bar for work whose steps tell what they found."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["progress"]


@contextmanager
def progress(title: str, shown: bool) -> Iterator[Callable[[str], None]]:
    """Show a progress bar while anchors are built; yields a function to be told what goes on.

    How many steps there will be is not known, so the bar runs, and its clock, until the end.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[news]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, disable=not shown, transient=False) as bar:
        task = bar.add_task(title, total=None, news="")
        yield lambda news: bar.update(task, news=news)
        bar.update(task, total=1, completed=1)
