r"""Draws of random networks by Metropolis steps on ties, compiled, chains side by side.

Half of the proposals take a tie off and half look at any dyad (Morris, Handcock and Hunter,
"Specification of exponential-family random graph models: terms and computational aspects", 2008),
so that sparse networks do not spend their time on ties that will not form. With T ties among D
free dyads a tie is chosen with probability :math:`1 / 2T + 1 / 2D` and a dyad without one with
:math:`1 / 2D` (:math:`1 / D` where there is no tie to take).
"""

import numpy as np
from numba import njit

from pymc_bayessum.exponential.parallel import run_parallel, uniform
from pymc_bayessum.networks.changes import TIES, Program, change, fill, read_bit, room, toggle

__all__ = ["move", "run_chains"]


@njit(cache=True, nogil=True, error_model="numpy")
def move(terms, theta, fixed, dyads, steps, start, stream, layers, degrees, end):
    """Move one chain by so many steps from a packed state, and write where it ends."""
    kinds, slots, weights, tables = terms.kinds, terms.slots, terms.weights, terms.tables
    directed, paths = terms.directed, terms.paths
    n_free = len(dyads)
    delta = np.empty(len(theta))
    fill(terms, fixed, dyads, start, layers, degrees, np.zeros(len(theta)))
    tied = np.empty(n_free, np.int64)
    place = np.empty(n_free, np.int64)
    n_tied = 0
    for d in range(n_free):
        if read_bit(start, d):
            tied[n_tied] = d
            place[d] = n_tied
            n_tied += 1
    for _ in range(steps):
        if n_tied > 0 and uniform(stream) < 0.5:
            d = tied[int(uniform(stream) * n_tied)]
        else:
            d = int(uniform(stream) * n_free)
        i, j = dyads[d, 0], dyads[d, 1]
        change(layers, degrees, kinds, slots, weights, tables, directed, i, j, delta)
        gain = 0.0
        for t in range(len(theta)):
            gain += theta[t] * delta[t]
        present = layers[TIES, i, j]
        n_with = n_tied if present else n_tied + 1
        # Chances of proposing the tie away, and of proposing it anew without it.
        away = 0.5 / n_with + 0.5 / n_free
        anew = 0.5 / n_free if n_with > 1 else 1.0 / n_free
        log_ratio = gain + np.log(away / anew)
        if present:
            log_ratio = -log_ratio
        if log_ratio < 0.0 and uniform(stream) >= np.exp(log_ratio):
            continue
        toggle(layers, degrees, directed, paths, i, j)
        if present:
            n_tied -= 1
            last = tied[n_tied]
            tied[place[d]] = last
            place[last] = place[d]
        else:
            tied[n_tied] = d
            place[d] = n_tied
            n_tied += 1
    end[:] = 0
    for a in range(n_tied):
        end[tied[a] >> 3] |= np.uint8(1 << (tied[a] & 7))


@njit(cache=True, nogil=True)
def _move_all(terms, theta, fixed, dyads, steps, starts, streams, ends):
    layers, degrees = room(terms)
    for chain in range(len(starts)):
        start, end, stream = starts[chain], ends[chain], streams[chain]
        move(terms, theta, fixed, dyads, steps, start, stream, layers, degrees, end)


def run_chains(
    terms: Program,
    theta: np.ndarray,
    fixed: np.ndarray,
    dyads: np.ndarray,
    starts: np.ndarray,
    steps: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Run chains side by side, each by so many proposals from its packed state (C, bytes).

    The fixed ties (F, 2) stay, the dyads (D, 2) may change. Draws do not depend on the number of
    threads.
    """
    return run_parallel(_move_all, (terms, theta, fixed, dyads, steps), starts, rng)
