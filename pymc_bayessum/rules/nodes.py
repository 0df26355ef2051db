"""Where to evaluate the summand: distinct draws, evenly spread points and graded grids."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import qmc

from pymc_bayessum.arguments import as_generator, integer, real
from pymc_bayessum.measures import (
    Measure,
    Product,
    ProductCategorical,
    UniformCategorical,
    UniformInterval,
    UniformSpins,
)
from pymc_bayessum.measures.base import require_measure
from pymc_bayessum.measures.supports import Points, point_keys, take

__all__ = ["distinct", "graded", "spread"]


def distinct(measure: Measure, n: int, rng: Any = None) -> Points:
    """Draw distinct nodes from a measure.

    Points are drawn one after the other in proportion to their mass, without replacement; a
    repeated node would cost an evaluation and teach nothing.

    Parameters
    ----------
    measure : Measure
    n : int
        Number of nodes, at least one and at most the number of points with mass.
    rng : None, int or numpy.random.Generator

    Examples
    --------
    >>> from pymc_bayessum import measures, nodes
    >>> x = nodes.distinct(measures.Poisson(30.0), 40, rng=0)
    >>> len(set(x.tolist()))
    40
    """
    require_measure("measure", measure)
    return measure.sample_distinct(integer("n", n, 1), rng)


def spread(measure: Measure, n: int, rng: Any = None) -> Points:
    """Spread distinct nodes evenly over a measure with independent coordinates.

    Scrambled Sobol points of the unit cube, each coordinate sent through the quantile function of
    the measure, without repeats. For smooth summands on many sites a rule on such nodes is about
    twice as accurate as one on draws; the nodes still cover the measure at random, so errors over
    seeds mean what they mean for draws.

    Parameters
    ----------
    measure : UniformCategorical, UniformSpins, ProductCategorical, UniformInterval
        Or a product of two of these.
    n : int
    rng : None, int or numpy.random.Generator
        For the scrambling.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum import measures, nodes
    >>> x = nodes.spread(measures.UniformCategorical(3, 3), 6, rng=0)
    >>> x.shape, len(np.unique(x, axis=0))
    ((6, 3), 6)
    """
    require_measure("measure", measure)
    n = integer("n", n, 1)
    if n > measure.support.size:
        raise ValueError(
            f"n must be at most the {int(measure.support.size)} points of {measure.support}, "
            f"got {n}"
        )
    rng = as_generator(rng)
    dimension, place = _placement(measure)
    size = 2 ** math.ceil(math.log2(n) + 1)
    while size < 1000 + 100 * n:
        cube = qmc.Sobol(dimension, rng=rng).random(size)
        points = place(cube)
        first = list({key: i for i, key in reversed(list(enumerate(point_keys(points))))}.values())
        if len(first) >= n:
            return take(points, np.sort(first)[:n])
        size *= 2
    raise ValueError(
        f"n = {n} is too close to the number of points with mass for evenly spread ones: "
        f"{size // 2} of them held {len(first)} different; use nodes.distinct"
    )


def _placement(measure: Measure) -> tuple[int, Callable[[np.ndarray], Points]]:
    """Dimension of the cube, and the map from points of the cube to points of the measure."""
    if isinstance(measure, UniformSpins):
        return measure.n_sites, lambda u: np.where(u < 0.5, -1, 1)
    if isinstance(measure, UniformCategorical):
        return measure.n_sites, lambda u: np.floor(measure.n_states * u).astype(np.int64)
    if isinstance(measure, ProductCategorical):
        # The last step is left out: rounding of the sum must not give one state too many.
        steps = np.cumsum(measure.probs, axis=1)[:, :-1]
        return measure.n_sites, lambda u: (u[:, :, None] >= steps).sum(axis=2)
    if isinstance(measure, UniformInterval):
        width = measure.high - measure.low
        return 1, lambda u: measure.low + width * u[:, 0]
    if isinstance(measure, Product):
        (size, first), (more, second) = map(_placement, (measure.first, measure.second))
        return size + more, lambda u: (first(u[:, :size]), second(u[:, size:]))
    raise TypeError(
        "measure must be UniformCategorical, UniformSpins, ProductCategorical, UniformInterval or "
        f"a product of two of these, got {measure!r}; nodes.distinct takes any measure"
    )


def _natural_spacing(x: float) -> float:
    return 0.3 * math.sqrt(x)


def graded(
    maximum: int,
    consecutive: int = 24,
    growth: float = 1.15,
    spacing: float | Callable[[float], float] | None = None,
) -> np.ndarray:
    """Grid on 0, ..., maximum that is consecutive near zero and grows coarser smoothly.

    The nodes are 0, 1, ..., consecutive, then steps that grow by a factor of at most ``growth``
    (or by one, which is as little as whole numbers allow) up to the cap ``spacing``. The last
    step, or the last two alike, are shortened so that the last node is ``maximum``.

    Parameters
    ----------
    maximum : int
        Last node.
    consecutive : int
        Nodes up to here have spacing one.
    growth : float
        At least one; a sudden jump of the spacing costs accuracy.
    spacing : float or callable, optional
        Largest spacing, or a function that gives it at a position. By default 0.3 sqrt(x): counts
        with variance proportional to their mean have constant width in sqrt(x).

    Examples
    --------
    >>> from pymc_bayessum.rules.nodes import graded
    >>> graded(30, consecutive=5, growth=1.5, spacing=6).tolist()
    [0, 1, 2, 3, 4, 5, 6, 8, 11, 15, 21, 26, 30]
    """
    maximum = integer("maximum", maximum)
    consecutive = integer("consecutive", consecutive)
    growth = real("growth", growth)
    if growth < 1.0:
        raise ValueError(f"growth must be at least 1, got {growth}")
    if spacing is None:
        spacing = _natural_spacing
    if not callable(spacing):
        cap = real("spacing", spacing)
        if cap < 1.0:
            raise ValueError(f"spacing must be at least 1, got {cap}")

        def spacing(x: float) -> float:
            return cap

    start = min(consecutive, maximum)
    steps: list[int] = []
    position, width, step = start, 1.0, 1
    while position < maximum:
        limit = float(spacing(position))
        if math.isnan(limit):
            raise ValueError(f"spacing must give a number, got NaN at {position}")
        width = max(min(width * growth, limit), 1.0)
        step = min(math.floor(width), max(step + 1, math.floor(step * growth)))
        steps.append(step)
        position += step
    if position > maximum:
        steps[-1] -= position - maximum
        if len(steps) > 1 and steps[-1] < steps[-2]:
            # What is left of the last step is shared with the one before: no lone short step.
            both = steps[-2] + steps[-1]
            steps[-2:] = [both - both // 2, both // 2]
    return np.concatenate([np.arange(start + 1), start + np.cumsum(steps, dtype=np.int64)])
