r"""How far draws alone may put a posterior off, told by draws that are left out.

The chains fall into ten sets. Without each of them in turn the rule is built again and the
posterior's mean and sd are computed with it; how these scatter tells the error that the draws
leave in them (the jackknife, Tukey 1958), however the draws of a chain are correlated.
"""

import numpy as np
from scipy.special import logsumexp, softmax
from scipy.stats import norm, qmc

from pymc_bayessum.normalizers.anchored.climbing import Climb, Data, NormalPrior
from pymc_bayessum.normalizers.anchored.draws import N_BATCHES
from pymc_bayessum.normalizers.anchored.errors import Precision
from pymc_bayessum.normalizers.anchored.mixture import pooled
from pymc_bayessum.normalizers.anchored.rule import Anchored, Part

__all__ = ["posterior_precision"]

#: Points at which a posterior is summed for its mean and sd: a power of two, for Sobol's sequence.
POINTS = 256
#: Sds of the normal approximation that the points spread by.
WIDE = 1.4


def posterior_precision(
    rule: Anchored, parts: list[Part], data: Data, prior: NormalPrior, mode: Climb
) -> Precision:
    """Predict the errors that the draws of a rule leave in a posterior.

    ``parts`` are these draws; ``mode`` is where the posterior is, and how wide.
    """
    coordinates = rule.coordinates
    anchors, centre = coordinates.of(rule.anchors), coordinates.of(rule.centre)
    root = np.linalg.cholesky(np.linalg.inv(mode.curvature))
    uniform = qmc.Sobol(len(root), rng=np.random.default_rng(0)).random(POINTS)
    standard = WIDE * norm.ppf(np.clip(uniform, 1e-9, 1.0 - 1e-9))
    points = mode.point + standard @ root.T
    log_base = -0.5 * np.sum((standard / WIDE) ** 2, axis=1)
    known = np.array([prior.log_density(point) for point in points]) - log_base
    known += data.n_rows * (points @ (coordinates.select @ data.mean))
    means, log_sds = [], []
    for left_out in range(N_BATCHES):
        rows = [part.rows[part.chain % N_BATCHES != left_out] for part in parts]
        nodes, _ = pooled(rows, anchors)
        slope = coordinates.select @ rule.moments.without(left_out)
        shift = rule.slope.trust * (slope - nodes.share(centre) @ nodes.rows)
        log_z = logsumexp(points @ nodes.rows.T + nodes.log_weights, axis=1)
        weights = softmax(known - data.n_rows * (log_z + (points - centre) @ shift))
        mean = weights @ standard
        means.append(mean)
        log_sds.append(0.5 * np.log(weights @ (standard - mean) ** 2))
    scale = np.exp(np.mean(log_sds, axis=0))
    return Precision(float((_jackknife(means) / scale).max()), float(_jackknife(log_sds).max()))


def _jackknife(values: list[np.ndarray]) -> np.ndarray:
    """Return the standard error of a function of all draws from its values without some."""
    return np.sqrt((len(values) - 1.0) * np.var(values, axis=0))
