"""An interrupt that does not lose what was computed before it."""

from typing import Any

__all__ = ["Interrupted"]


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
