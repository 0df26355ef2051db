"""An interrupt that does not lose what was computed before it."""

import os
import signal
import sys
from typing import Any

__all__ = ["Interrupted", "as_usual", "while_importing"]

#: What ``sys.argv`` begins with while the command line is on its way.
COMMANDS = ("-m", "pymc-bayessum")


class Interrupted(KeyboardInterrupt):
    """An interrupt from the keyboard, with what was computed before it.

    Whoever does not catch it is interrupted as ever. In a session it is ``sys.last_value``.

    Parameters
    ----------
    message : str
        What there is, and how to go on.
    partial : Any
        What was computed: a fit to resume, a design, a normaliser, a check of fewer draws.

    Examples
    --------
    >>> try:
    ...     raise Interrupted("half of it is there", [1, 2])
    ... except KeyboardInterrupt as stop:
    ...     stop.partial
    [1, 2]
    """

    def __init__(self, message: str, partial: Any) -> None:
        super().__init__(message)
        self.partial = partial


def _leave(*args: Any) -> None:
    """End the process in one line: there is nothing yet to keep."""
    print("interrupted", file=sys.stderr, flush=True)
    os._exit(130)


def while_importing() -> None:
    """Let an interrupt end the command line quietly before it has come to its first line.

    Python imports the package before ``__main__``, which takes seconds. Elsewhere nothing changes.
    """
    begun = os.path.basename(next(iter(getattr(sys, "argv", [])), ""))
    if begun in COMMANDS and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def as_usual() -> None:
    """Let interrupts raise again."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)
