"""Statistics that say the same: their parameters could not be told apart."""

from collections.abc import Sequence

import numpy as np

__all__ = ["require_independent"]

#: Size, relative to the largest, below which a direction counts as none.
TOLERANCE = 1e-9


def require_independent(statistics: np.ndarray, names: Sequence[str], states: str) -> None:
    """Raise where statistics (N, d) are constant or tied by a linear identity, and say which.

    They are those of states varied enough to show every direction, which have a name in the text.

    Examples
    --------
    >>> ones = np.arange(5.0)
    >>> require_independent(np.column_stack([ones, 4 - ones]), ["ones", "zeros"], "state")
    Traceback (most recent call last):
        ...
    ValueError: terms are collinear: +1 ones +1 zeros is the same for every state; leave one of ...
    """
    centred = statistics - statistics.mean(axis=0)
    scale = np.abs(centred).max(axis=0)
    size = np.maximum(np.abs(statistics).max(axis=0), 1.0)
    still = [name for name, moves in zip(names, scale > TOLERANCE * size, strict=True) if not moves]
    if still:
        verb = "are" if len(still) > 1 else "is"
        raise ValueError(f"{', '.join(still)} {verb} the same for every {states}: leave it out")
    _, sizes, directions = np.linalg.svd(np.linalg.qr(centred / scale, mode="r"))
    if len(sizes) == len(scale) and sizes[-1] > TOLERANCE * sizes[0]:
        return
    weight = directions[-1] / scale
    weight = weight / weight[np.argmax(np.abs(weight))]
    tied = [
        f"{value:+.3g} {name}"
        for value, name in zip(weight, names, strict=True)
        if abs(value) > TOLERANCE
    ]
    raise ValueError(
        f"terms are collinear: {' '.join(tied)} is the same for every {states}; leave one of them "
        "out"
    )
