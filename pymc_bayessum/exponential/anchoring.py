"""The anchored normaliser that a family's model gets by itself, from its data and its prior."""

import warnings
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from pytensor.tensor.variable import TensorVariable

from pymc_bayessum.anchoring.files import as_fields
from pymc_bayessum.anchoring.prior import prior_draws
from pymc_bayessum.normalizers.anchored.climbing import Climb, Data, climb
from pymc_bayessum.normalizers.anchored.defaults import (
    FEW_PARAMETERS,
    axis_points,
    default_anchored,
    matched_prior,
)
from pymc_bayessum.normalizers.anchored.estimated import Estimated
from pymc_bayessum.normalizers.anchored.rule import Anchored, anchored
from pymc_bayessum.normalizers.coordinates import Coordinates, independent, plain, within
from pymc_bayessum.normalizers.family import Family
from pymc_bayessum.normalizers.protocol import Normalizer
from pymc_bayessum.progress import progress

__all__ = ["Anchors", "Prior", "anchor_family", "prior_of"]

#: Groups that get anchors of their own; of more, so many that lie far apart.
MOST_GROUPS = 12
#: Draws at each anchor of a group.
EACH = 4000


class Prior(NamedTuple):
    """What is known of parameters a priori.

    Draws (K, ..., d) where there are any, and the number of leading dimensions of one of them.
    """

    draws: np.ndarray | None
    n_batch: int


def prior_of(theta: TensorVariable) -> Prior:
    """Draw from the prior of a model's parameters (..., d), a tensor.

    Examples
    --------
    >>> import pymc as pm
    >>> prior_of(pm.Normal.dist(shape=3)).draws.shape
    (200, 3)
    """
    found = prior_draws([theta])
    draws = None if found is None or not np.isfinite(found[0]).all() else found[0].astype(float)
    return Prior(draws, theta.type.ndim - 1)


@dataclass(frozen=True, eq=False)
class Anchors[F: Family]:
    """How a model is anchored at data that are not known before it is asked."""

    family: F
    prior: Prior = field(repr=False)
    random_seed: Any = 0
    progressbar: bool = True

    def restored(self, dataset: xr.Dataset) -> Normalizer:
        """Return the anchors that a dataset holds."""
        return Estimated(Anchored(family=self.family, **as_fields(dataset, self.family)))


def anchor_family(
    family: Any,
    statistics: np.ndarray,
    about: Prior,
    *,
    rng: np.random.Generator,
    progressbar: bool = True,
    executor: Executor | None = None,
) -> Anchored:
    """Anchor a normaliser near the posterior of a model, from its prior and its data.

    Statistics (..., d) are those of the observed states; leading dimensions of the parameters are
    the last ones of these. Of a few parameters each group of rows has anchors of its own.
    """
    size = statistics.shape[-1]
    draws = None if about.draws is None else about.draws.reshape(-1, size)
    coordinates = _coordinates(family, size, rng)
    if draws is not None:
        coordinates = within(coordinates, draws)
    prior = matched_prior(coordinates, draws)
    groups = _groups(statistics, about)
    pooled = Data(statistics.reshape(-1, size).mean(axis=0), statistics.size // size)
    start = prior.mean
    if hasattr(family, "pseudo_mode") and coordinates.size and family.typical is not None:
        start = coordinates.of(family.pseudo_mode(family.typical))
    typical = family.typical
    if len(groups) == 1 or not 0 < coordinates.size <= FEW_PARAMETERS:
        return default_anchored(
            family,
            pooled,
            coordinates,
            prior,
            start,
            rng=rng,
            chains=typical,
            progressbar=progressbar,
            executor=executor,
        )
    with progress("Anchoring the normaliser", progressbar) as report:
        points, converged = [], True
        for number, data in enumerate(_spread(groups)):
            mode: Climb = climb(
                family,
                data,
                coordinates,
                prior,
                start,
                n=EACH,
                n_moments=EACH,
                rng=rng,
                chains=typical,
            )
            points += [*axis_points(mode.point, mode.curvature)]
            converged = converged and mode.converged
            report(f"mode {number + 1}")
        rule: Anchored = anchored(
            family,
            coordinates.parameters(np.stack(points)),
            n=EACH * len(points),
            n_moments=5 * EACH,
            coordinates=coordinates,
            start=mode.rule.states,
            rng=rng,
            executor=executor,
        )
    if not (converged and rule.settled):
        reason = "chains had not settled" if converged else "the mode was not reached"
        warnings.warn(
            f"the normaliser may be poor: {reason}. Run pbs.check_normalizer on the result",
            UserWarning,
            stacklevel=5,
        )
    return rule


def _coordinates(family: Any, size: int, rng: np.random.Generator) -> Coordinates:
    """Independent statistics, as far as draws without any preference show them."""
    if hasattr(family, "coordinates"):
        return family.coordinates()
    states = family.sample(np.zeros(size), 4 * size + 40, rng, family.typical)
    if family.typical is not None and len(family.typical):
        states = np.concatenate([states, family.typical[:40]])
    found = independent(family.statistics(states))
    return plain(size) if found.size == size else found


def _groups(statistics: np.ndarray, about: Prior) -> list[Data]:
    """Return data of each set of rows that share their parameters, as prior draws tell."""
    size = statistics.shape[-1]
    draws, n_batch = about
    batch = statistics.shape[-1 - n_batch : -1]
    if draws is None:
        label = np.arange(int(np.prod(batch)))
    else:
        full = np.broadcast_to(draws, (len(draws), *batch, size))
        columns = np.moveaxis(full, 0, -1).reshape(int(np.prod(batch)), -1)
        label = np.unique(columns.round(12), axis=0, return_inverse=True)[1].ravel()
    rows = statistics.reshape(-1, len(label), size)
    return [
        Data(part.mean(axis=0), len(part))
        for part in (rows[:, label == one].reshape(-1, size) for one in range(label.max() + 1))
    ]


def _spread(groups: list[Data]) -> list[Data]:
    """At most so many groups, each as far from the others as possible."""
    if len(groups) <= MOST_GROUPS:
        return groups
    means = np.stack([data.mean for data in groups])
    means = means / np.maximum(means.std(axis=0), 1e-12)
    chosen = [int(np.argmax(np.square(means - means.mean(axis=0)).sum(axis=1)))]
    while len(chosen) < MOST_GROUPS:
        away = np.square(means[:, None] - means[chosen]).sum(axis=2).min(axis=1)
        chosen.append(int(np.argmax(away)))
    return [groups[one] for one in chosen]
