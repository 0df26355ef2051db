"""PyTensor's graphs without a compiler, where few numbers are asked for."""

from typing import Any

import numpy as np
import pytensor
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Variable

__all__ = ["PLAIN", "evaluated", "interpreted"]

#: Every operation by its own Python code.
PLAIN = Mode(linker="py", optimizer="fast_run").excluding("fusion", "inplace")


def interpreted() -> Any:
    """Return a context in which PyTensor calls no C++ compiler.

    In any mode it folds constants and links the graphs inside of operations by C code wherever
    there is a compiler, a second for each operation the first time: two minutes for a check of
    latent counts.
    """
    return pytensor.config.change_flags(cxx="")


def evaluated(x: Variable) -> np.ndarray:
    """Return the value of a variable that depends on nothing unknown.

    Examples
    --------
    >>> evaluated(pytensor.shared(2.0) + 1.0)
    array(3.)
    """
    with interpreted():
        return np.asarray(x.eval(mode="FAST_COMPILE"))
