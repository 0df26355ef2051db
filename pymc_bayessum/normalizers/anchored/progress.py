"""A progress bar for work whose steps tell what they found."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["progress"]


@contextmanager
def progress(title: str, total: int, shown: bool) -> Iterator[Callable[[str], None]]:
    """Show a progress bar while anchors are built; yields a function to be told what goes on."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[news]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, disable=not shown, transient=False) as bar:
        task = bar.add_task(title, total=total, news="")

        def report(news: str) -> None:
            bar.update(task, advance=1, news=news)

        yield report
        bar.update(task, completed=total)
