r"""The anchored normaliser that a model gets by itself, from its data and what is known a priori.

It is anchored before sampling starts and fixed from then on. A few parameters (up to five) get
anchors on the principal axes of a Laplace approximation of the posterior, combined by their draws;
many get one, at the mode.
"""

import warnings

import numpy as np

from pymc_bayessum.normalizers.anchored.climbing import Data, NormalPrior, climb
from pymc_bayessum.normalizers.anchored.progress import progress
from pymc_bayessum.normalizers.anchored.rule import Anchored, anchored
from pymc_bayessum.normalizers.coordinates import Coordinates
from pymc_bayessum.normalizers.family import Family

__all__ = ["FEW_PARAMETERS", "axis_points", "default_anchored", "matched_prior"]

#: Number of parameters up to which several anchors are set.
FEW_PARAMETERS = 5
#: Draws in a rule with few parameters.
FEW_NODES = 50_000
#: Draws at each anchor on the way to the mode, with few parameters.
PILOT_NODES = 4000
#: Posterior sds at which the outer anchors stand.
SPREAD = 2.0
#: Prior sd where the prior cannot be drawn from, or has no finite scale.
VAGUE = 10.0


def default_anchored[A: Anchored](
    family: Family,
    data: Data,
    coordinates: Coordinates,
    prior: NormalPrior,
    start: np.ndarray | None = None,
    *,
    rng: np.random.Generator,
    progressbar: bool = True,
    kind: type[A] = Anchored,  # type: ignore[assignment]
) -> A:
    """Build an anchored normaliser from the statistics of data.

    Parameters
    ----------
    family : Family
    data : Data
    coordinates : Coordinates
        Of the parameters that are free.
    prior : NormalPrior
    start : ndarray, shape (r,), optional
        Where the climb to the mode begins, for example the mode of a pseudo-likelihood; the prior
        mean by default.
    rng : numpy.random.Generator
    progressbar : bool
    kind : type
        What to build: a wing's own kind of :class:`Anchored`.

    Returns
    -------
    Anchored

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum.normalizers.coordinates import plain
    >>> class Bits:
    ...     def statistics(self, states):
    ...         return states.sum(axis=1, keepdims=True).astype(float)
    ...     def sample(self, theta, n, rng, start=None):
    ...         return rng.random((n, 10)) < 1 / (1 + np.exp(-theta[0]))
    >>> rule = default_anchored(Bits(), Data(np.array([7.0]), 100), plain(1),
    ...                         NormalPrior(np.zeros(1), np.eye(1)), progressbar=False,
    ...                         rng=np.random.default_rng(0))
    >>> len(rule.anchors), bool(abs(rule.centre[0] - np.log(7 / 3)) < 0.05)
    (5, True)
    """
    if coordinates.size == 0:
        # Nothing is free: one anchor where the parameters are.
        theta = coordinates.parameters(np.zeros(0))
        return anchored(
            family, theta[None], n=PILOT_NODES, rng=rng, coordinates=coordinates, kind=kind
        )
    few = coordinates.size <= FEW_PARAMETERS
    many = max(5000, 10 * coordinates.size)
    with progress("Anchoring the normaliser", 8, progressbar) as report:
        mode = climb(
            family,
            data,
            coordinates,
            prior,
            prior.mean if start is None else start,
            n=PILOT_NODES if few else many,
            rng=rng,
            n_moments=PILOT_NODES if few else None,
            report=report,
            kind=kind,
        )
        points = axis_points(mode.point, mode.curvature) if few else mode.point[None]
        rule = anchored(
            family,
            coordinates.parameters(points),
            n=FEW_NODES if few else many,
            rng=rng,
            n_moments=int(np.clip(50 * data.n_rows, 20_000, 200_000)),
            coordinates=coordinates,
            start=mode.rule.states,
            kind=kind,
        )
        report(f"{len(points)} anchor(s), {rule.n_nodes} draws")
    trouble = None
    if not mode.converged:
        trouble = "the posterior mode was not reached"
    elif not rule.settled:
        trouble = "chains had not settled when draws began"
    if trouble is not None:
        warnings.warn(
            f"the default normaliser may be poor: {trouble}. Run pbs.check_normalizer on the "
            "result, or pass a normaliser anchored near the posterior with more draws",
            UserWarning,
            stacklevel=3,
        )
    return rule


def axis_points(mode: np.ndarray, curvature: np.ndarray) -> np.ndarray:
    """Place anchors at the mode and on the principal axes of a normal approximation.

    Parameters
    ----------
    mode : ndarray, shape (r,)
        Of one to five coordinates.
    curvature : ndarray, shape (r, r)
        Inverse covariance.

    Returns
    -------
    ndarray, shape (K, r)
        The mode, and two points on each axis, two sds away: five to nine points. A single axis has
        two more at half the distance; of five axes the narrowest has none.

    Examples
    --------
    >>> import numpy as np
    >>> [len(axis_points(np.zeros(r), np.eye(r))) for r in (1, 2, 3, 4, 5)]
    [5, 5, 7, 9, 9]
    """
    precision, axes = np.linalg.eigh(curvature)
    steps = (axes / np.sqrt(precision)).T[: FEW_PARAMETERS - 1]
    multiples = [SPREAD, -SPREAD]
    if len(mode) == 1:
        multiples += [0.5 * SPREAD, -0.5 * SPREAD]
    return np.stack([mode, *(mode + k * step for step in steps for k in multiples)])


def matched_prior(coordinates: Coordinates, draws: np.ndarray | None) -> NormalPrior:
    """Match a normal prior on coordinates to the quartiles of prior draws; vague without them.

    Parameters
    ----------
    coordinates : Coordinates
    draws : ndarray, shape (K, d), or None
        Of parameter vectors.

    Returns
    -------
    NormalPrior

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum.normalizers.coordinates import plain
    >>> matched_prior(plain(1), None).precision.tolist()
    [[0.01]]
    """
    if draws is None or len(draws) < 2:
        centre = coordinates.of(np.zeros(coordinates.read.shape[1]))
        return NormalPrior(centre, np.eye(coordinates.size) / VAGUE**2)
    low, middle, high = np.quantile(coordinates.of(draws), [0.25, 0.5, 0.75], axis=0)
    sd = np.maximum((high - low) / 1.349, 1e-6)
    return NormalPrior(middle, np.diag(1.0 / np.minimum(sd, 1e3) ** 2))
