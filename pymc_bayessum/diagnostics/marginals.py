r"""How far each marginal posterior moves, where the weights of all parameters together fail.

In many dimensions importance weights grow uneven long before any single parameter has moved.  With
the covariance C of the draws and the log ratio r of the two posteriors, the first-order change of
a parameter's mean is :math:`(C \nabla r)_p` and that of its variance
:math:`(C\, \nabla^2 r\, C)_{pp}`: the first and second derivative of r along
:math:`u_p = C e_p / \sqrt{C_{pp}}`, the direction in which the posterior mean moves when the
parameter moves by one sd.  Two evaluations a parameter, one sd to either side of the posterior
mean, give both, in units of its sd and its variance.

One or two parameters need no derivatives: both posteriors are summed on a grid.  There too weights
may fail first, for a few draws of a tail that matters little can have most of the weight.
"""

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.special import softmax

__all__ = [
    "GRIDS",
    "MOST_PARAMETERS",
    "Change",
    "Moved",
    "moved_marginals",
    "summed_marginals",
    "weighted_marginals",
]

#: Beyond this many parameters the evaluations would take too long.
MOST_PARAMETERS = 600
#: For one and for two parameters: the coordinates of a grid along each axis, in posterior sds.
GRIDS = {1: np.linspace(-8.0, 8.0, 65), 2: np.linspace(-6.0, 6.0, 25)}
#: Share of a posterior that a grid may end on; sds by which half of its points may differ, and by
#: which draws may.
EDGE, COARSE, FOREIGN = 1e-3, 0.01, 0.25

#: Log ratio of the reference to the approximate posterior at a point of the unconstrained space,
#: and the part of it that two halves of the reference do not agree on.
type Change = Callable[[np.ndarray], tuple[float, float]]


class Moved(NamedTuple):
    """By how much the marginals move from the approximate to the reference posterior.

    The largest change of a mean, in sds, and of a sd, relative to itself; and how much of the
    former could be the reference's own error.
    """

    shift: float
    stretch: float
    noise: float


def weighted_marginals(draws: np.ndarray, weights: np.ndarray) -> Moved:
    """Return the largest changes of the marginals when draws (S, P) get weights that sum to one.

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
    mean, sd = _moments(weights, draws)
    shift = np.abs(mean - draws.mean(axis=0))[varied] / sds[varied]
    stretch = np.abs(sd[varied] / sds[varied] - 1.0)
    return Moved(float(shift.max()), float(stretch.max()), 0.0)


def summed_marginals(
    draws: np.ndarray,
    log_density: Callable[[np.ndarray], float],
    values: Callable[[np.ndarray], np.ndarray],
    change: Change,
) -> Moved | None:
    """Return the largest changes of the marginals of a posterior of one or two parameters.

    Draws (S, P) in an unconstrained space say where the approximate posterior is, ``log_density``
    what it is there, and ``values`` what a point is in the model's own terms. None is returned
    where the grid is too narrow or too coarse for either posterior, or draws say otherwise.

    Examples
    --------
    >>> import numpy as np
    >>> draws = np.random.default_rng(0).normal(size=(400, 1))
    >>> normal = lambda x: -0.5 * float(x @ x)
    >>> moved = summed_marginals(draws, normal, np.exp, lambda x: (0.1 * float(x[0]), 0.0))
    >>> exact = (np.exp(0.6) - np.exp(0.5)) / np.sqrt((np.e - 1.0) * np.exp(1.2))
    >>> bool(abs(moved.shift - exact) < 1e-6)
    True
    """
    ticks = GRIDS[draws.shape[1]]
    variances, axes = np.linalg.eigh(np.atleast_2d(np.cov(draws, rowvar=False)))
    standard = np.array(list(product(ticks, repeat=len(variances))))
    points = draws.mean(axis=0) + (standard * np.sqrt(np.maximum(variances, 0.0))) @ axes.T
    with np.errstate(all="ignore"):  # of what has no value far out
        plain = np.array([log_density(point) for point in points])
        ratio, noise = np.array([change(point) for point in points]).T
    if not np.isfinite(plain).any() or not np.isfinite([ratio, noise]).all():
        return None
    drawn = np.subtract(_moments(softmax(plain), standard), ([0.0], [1.0]))
    if not (np.abs(drawn) <= FOREIGN).all():
        return None
    theirs = np.array([values(point) for point in points])
    outer = np.abs(standard).max(axis=1) == ticks[-1]
    every_other = (np.rint((standard - ticks[0]) / (ticks[1] - ticks[0])) % 2 == 0).all(axis=1)
    found = []
    for log_mass in (plain, plain + ratio, plain + ratio + noise):
        whole, half = softmax(log_mass), softmax(np.where(every_other, log_mass, -np.inf))
        mean, sd = _moments(whole, theirs)
        rough = np.abs(np.subtract(_moments(half, theirs), (mean, sd)))
        if not ((sd > 0.0).all() and (rough <= COARSE * sd).all() and whole[outer].sum() <= EDGE):
            return None
        found.append((mean, sd))
    (mean, sd), (better, its_sd), (other, _) = found
    moved = np.abs([better - mean, its_sd - sd, other - better]) / its_sd
    return Moved(*map(float, moved.max(axis=1)))


def _moments(mass: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd of each column of values that have masses."""
    mean = mass @ values
    return mean, np.sqrt(mass @ (values - mean) ** 2)


def moved_marginals(draws: np.ndarray, change: Change) -> Moved:
    """Return the largest changes of the marginals, given draws (S, P) in an unconstrained space.

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
    varied = np.diag(covariance) > 0.0
    steps = covariance[varied] / np.sqrt(np.diag(covariance)[varied, None])
    here, _ = change(centre)
    pairs = [[change(centre + sign * step) for sign in (1.0, -1.0)] for step in steps]
    above, below = np.swapaxes(pairs, 0, 1)
    shifts, noises = (above - below).T / 2.0
    # To first order in the variance, from below: a change of -1 would leave nothing.
    variances = np.maximum(1.0 + (above + below)[:, 0] - 2.0 * here, 0.0)
    stretches = np.sqrt(variances) - 1.0
    return Moved(*(float(np.abs(part).max()) for part in (shifts, stretches, noises)))
