"""What a model's prior says of parameters, before any of them is anchored at data."""

from collections.abc import Sequence
from typing import Any

import pymc as pm
from pytensor.graph.basic import Variable

from pymc_bayessum.normalizers.interpreted import interpreted

__all__ = ["prior_draws"]

#: Prior draws that tell which parameters a model has.
PRIOR_DRAWS = 200


def prior_draws(parameters: Sequence[Any]) -> list[Any] | None:
    """Draw parameters (K, ...) from their prior together; None where that is not possible.

    Numbers stay what they are.

    Examples
    --------
    >>> normal, number = prior_draws([pm.Normal.dist(shape=3), 0.5])
    >>> normal.shape, number
    ((200, 3), 0.5)
    >>> prior_draws([pm.Flat.dist()]) is None
    True
    """
    random = [part for part in parameters if isinstance(part, Variable)]
    try:
        # Not worth compiling for a few hundred draws.
        options: Any = {"draws": PRIOR_DRAWS, "random_seed": 0, "mode": "FAST_COMPILE"}
        with interpreted():
            drawn = iter(pm.draw(random, **options) if random else [])
    except NotImplementedError:  # flat priors have no draws
        return None
    return [next(drawn) if isinstance(part, Variable) else part for part in parameters]
