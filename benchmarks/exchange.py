"""The exchange algorithm for random networks, to compare with: exact in the limit, draw by draw.

Murray, Ghahramani and MacKay (2006); Caimo and Friel (2011). A proposal theta' is accepted by the
odds that data and a network drawn at theta' would be exchanged, in which the constants cancel.
"""

import numpy as np
from numba import njit

from pymc_bayessum.exponential.parallel import run_parallel, uniform
from pymc_bayessum.networks.changes import counts, room
from pymc_bayessum.networks.sampler import move


@njit(cache=True, nogil=True)
def _chains(terms, fixed, dyads, data, scale, prior_sd, n, thin, steps, starts, streams, ends):
    size = len(scale)
    observed = counts(terms, fixed, dyads, data[None, :])[0]
    drawn = np.empty((1, len(data)), np.uint8)
    layers, degrees = room(terms)
    for chain in range(len(starts)):
        stream, theta = streams[chain], starts[chain, 0].copy()
        proposed = np.empty(size)
        for row in range(n):
            for _ in range(thin):
                for k in range(size):
                    proposed[k] = theta[k]
                # Normal steps through the root of the covariance (Box and Muller).
                for k in range(size):
                    radius = np.sqrt(-2.0 * np.log(1.0 - uniform(stream)))
                    normal = radius * np.cos(2.0 * np.pi * uniform(stream))
                    for m in range(size):
                        proposed[m] += scale[m, k] * normal
                move(terms, proposed, fixed, dyads, steps, data, stream, layers, degrees, drawn[0])
                away = observed - counts(terms, fixed, dyads, drawn)[0]
                odds = 0.0
                for k in range(size):
                    odds += (proposed[k] - theta[k]) * away[k]
                    odds += (theta[k] ** 2 - proposed[k] ** 2) / (2.0 * prior_sd**2)
                if np.log(1.0 - uniform(stream)) < odds:
                    theta[:] = proposed
            ends[chain, row] = theta


def exchange(family, start, covariance, prior_sd, *, chains=8, n=2000, thin=5, steps=3000, rng=0):
    """Posterior draws (chains, n, d) under independent normal priors."""
    scale = 1.2 * np.linalg.cholesky(covariance)
    starts = np.tile(start, (chains, n, 1))
    arguments = (
        family.program,
        family.fixed,
        family.dyads,
        family.typical[0],
        scale,
        float(prior_sd),
        n,
        thin,
        steps,
    )
    return run_parallel(_chains, arguments, starts, np.random.default_rng(rng))
