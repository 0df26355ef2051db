r"""Counts that PyMC mixes, truncates or censors: what they are predicted to be, number by number.

Their moments are not those of the counts inside, but their log-probability is known. Over draws
:math:`\theta_s` of the posterior the masses of row i,

.. math:: \bar p_i(x) = \frac{1}{S} \sum_s p(Y_i = x \mid \theta_s), \qquad x = 0, 1, \dots, K,

are those of its predictive distribution; K is large enough where they add up to one.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.censored import CensoredRV
from pymc.distributions.mixture import MixtureRV
from pymc.distributions.truncated import TruncatedRV
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace

from pymc_bayessum.normalizers.predicted import predicted

__all__ = ["MORE_SPREAD", "listed"]

#: What to say, and to try, where data are more spread.
MORE_SPREAD: dict[type, str] = {
    MixtureRV: "more spread than this mixture: try one more component, or a negative binomial one",
    TruncatedRV: "more spread than a truncated CMP can be: try a truncated negative binomial",
    CensoredRV: "more spread than a censored CMP can be: try a censored negative binomial",
}
#: So many masses are worth listing for each draw.
MOST_MASSES = 2_000_000
#: By so much their sum may differ from one.
MISSING = 1e-6


def _inside(op: Any, inputs: Sequence[Any]) -> Sequence[Any]:
    """Return the variables that are mixed, truncated or censored."""
    if isinstance(op, TruncatedRV):
        *parameters, _, _ = inputs
        return [op.base_rv_op.make_node(*parameters).default_output()]
    if isinstance(op, CensoredRV):
        return inputs[:1]
    return inputs[2:] if isinstance(op, MixtureRV) else []


def _says(rv: Any) -> bool:
    """Tell whether a variable, or one inside of it, has said what it predicts."""
    op, inputs = rv.owner.op, rv.owner.inputs
    return predicted(op, *inputs) is not None or any(map(_says, _inside(op, inputs)))


def listed(
    rv: Any,
    largest: int,
    variables: Sequence[Variable],
    draws: Sequence[Sequence[np.ndarray]],
    compile_kwargs: dict[str, Any],
) -> np.ndarray | None:
    """Return the predictive masses of 0, 1, ... along the first axis, rows along the others.

    None where they would be too many or do not add up to one, and for variables that hold no
    counts of ours. The ``largest`` number observed says how many are asked for first.
    """
    if type(rv.owner.op) not in MORE_SPREAD or not _says(rv):
        return None
    # PyMC may copy what it derives a log-probability from, with all variables but plain inputs.
    given = [variable.type() for variable in variables]
    [rv] = clone_replace([rv], dict(zip(variables, given, strict=True)), rebuild_strict=False)
    x = pt.lvector("x")
    masses = _masses(rv, pt.shape_padright(x, rv.type.ndim))
    function = pytensor.function([*given, x], masses, on_unused_input="ignore", **compile_kwargs)
    rows = function(*draws[0], np.arange(1)).size
    size = 2 * largest + 64
    while size * rows <= MOST_MASSES:
        numbers = np.arange(size)
        if _add_up(function(*draws[0], numbers)):
            found = sum(function(*draw, numbers) for draw in draws) / len(draws)
            if _add_up(found):
                return found
        size *= 2
    return None


def _add_up(masses: np.ndarray) -> bool:
    return bool(np.all(np.abs(masses.sum(axis=0) - 1.0) <= MISSING))


def _masses(rv: Any, x: Any) -> Any:
    """Return the probability of the numbers from 0 on, along the first axis of x."""
    op, inputs = rv.owner.op, rv.owner.inputs
    parts = _inside(op, inputs)
    if isinstance(op, MixtureRV):
        weights = inputs[1]
        if len(parts) == 1:  # all along its last axis
            return pt.sum(weights * _masses(parts[0], x[..., None]), axis=-1)
        return pt.add(*(weights[..., k] * _masses(part, x) for k, part in enumerate(parts)))
    if isinstance(op, TruncatedRV):
        # PyMC would sum the same tails for each number; at one of them is seen what they leave.
        *_, lower, upper = inputs
        one, _ = pt.broadcast_arrays(pt.ceil(pt.maximum(lower, 0)), upper)
        scale = _log_mass(rv, one) - _log_mass(parts[0], one)
        inside = pt.and_(pt.le(lower, x), pt.le(x, upper))
        return pt.switch(inside, pt.exp(_log_mass(parts[0], x) + scale), 0.0)
    if isinstance(op, CensoredRV):
        _, lower, upper = inputs
        masses = _masses(parts[0], x)
        up_to = pt.cumsum(masses, axis=0)
        between = pt.switch(pt.and_(pt.lt(lower, x), pt.lt(x, upper)), masses, 0.0)
        at_upper = pt.switch(pt.eq(x, upper), 1.0 - up_to + masses, between)
        return pt.switch(pt.eq(x, lower), up_to, at_upper)
    return pt.exp(_log_mass(rv, x))


def _log_mass(rv: Any, x: Any) -> Any:
    return pm.logp(rv, x, warn_rvs=False)
