r"""How far each marginal posterior moves, where the weights of all parameters together fail.

In many dimensions importance weights grow uneven long before any single parameter has moved.  With
the covariance C of the draws and the log ratio r of the two posteriors, the first-order change of
a parameter's mean is :math:`(C \nabla r)_p` and that of its variance
:math:`(C\, \nabla^2 r\, C)_{pp}`: the first and second derivative of r along
:math:`u_p = C e_p / \sqrt{C_{pp}}`, the direction in which the posterior mean moves when the
parameter moves by one sd.  Two evaluations a parameter, one sd to either side of the posterior
mean, give both, in units of its sd and its variance.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

__all__ = ["MOST_PARAMETERS", "Moved", "moved_marginals", "weighted_marginals"]

#: Beyond this many parameters the evaluations would take too long.
MOST_PARAMETERS = 600


class Moved(NamedTuple):
    """By how much the marginals move from the approximate to the reference posterior.

    Attributes
    ----------
    shift : float
        Largest change of a mean, in sds.
    stretch : float
        Largest relative change of a sd.
    noise : float
        How much of the largest shift could be the reference's own error, in sds.
    """

    shift: float
    stretch: float
    noise: float


def weighted_marginals(draws: np.ndarray, weights: np.ndarray) -> Moved:
    """Return the largest changes of the marginals when draws get weights.

    Parameters
    ----------
    draws : ndarray, shape (S, P)
    weights : ndarray, shape (S,)
        They sum to one.

    Examples
    --------
    >>> import numpy as np
    >>> moved = weighted_marginals(np.array([[0.0], [2.0]]), np.array([0.25, 0.75]))
    >>> round(moved.shift, 2), round(moved.stretch, 2)
    (0.5, 0.13)
    """
    sds = draws.std(axis=0)
    varied = sds > 0.0
    if not varied.any():
        return Moved(0.0, 0.0, 0.0)
    mean = weights @ draws
    sd = np.sqrt(weights @ (draws - mean) ** 2)
    shift = np.abs(mean - draws.mean(axis=0))[varied] / sds[varied]
    stretch = np.abs(sd[varied] / sds[varied] - 1.0)
    return Moved(float(shift.max()), float(stretch.max()), 0.0)


def moved_marginals(
    draws: np.ndarray, change: Callable[[np.ndarray], tuple[float, float]]
) -> Moved:
    """Return the largest changes of the marginals of a posterior.

    Parameters
    ----------
    draws : ndarray, shape (S, P)
        Of the approximate posterior, in an unconstrained space.
    change : callable
        Log ratio of the reference to the approximate posterior at a point, and the part of it that
        two halves of the reference do not agree on.

    Examples
    --------
    A normal that the reference moves by .3 sd:

    >>> import numpy as np
    >>> draws = np.random.default_rng(0).normal(size=(4000, 1))
    >>> moved = moved_marginals(draws, lambda x: (float(0.3 * x[0]), 0.0))
    >>> round(moved.shift, 2), round(moved.stretch, 2)
    (0.3, 0.0)
    """
    centre = draws.mean(axis=0)
    covariance = np.atleast_2d(np.cov(draws, rowvar=False))
    sds = np.sqrt(np.diag(covariance))
    here, _ = change(centre)
    shifts, stretches, noises = [], [], []
    for column, sd in zip(covariance.T, sds, strict=True):
        if sd == 0.0:
            continue
        (above, noise_above), (below, noise_below) = (
            change(centre + sign * column / sd) for sign in (1.0, -1.0)
        )
        shifts.append((above - below) / 2.0)
        # To first order in the variance, from below: a change of -1 would leave nothing.
        variance = max(1.0 + above + below - 2.0 * here, 0.0)
        stretches.append(np.sqrt(variance) - 1.0)
        noises.append((noise_above - noise_below) / 2.0)
    return Moved(*(float(np.max(np.abs(part))) for part in (shifts, stretches, noises)))
