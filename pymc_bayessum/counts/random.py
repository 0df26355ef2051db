"""Conway-Maxwell-Poisson draws by rejection, for NumPy, numba and JAX.

The mass function is log-concave for every nu >= 0, so a block of equal height around the mode and
a geometric tail on each side dominate it (Devroye, 1987, "A simple generator for discrete
log-concave distributions"). Only ratios of unnormalised probabilities are used: the draws are
exact whatever the normaliser, and the work a draw does not grow with the mean.

Beyond 2**53, where a double no longer tells a count from the next, a bell that has left zero is
drawn as the normal distribution it is to a relative error of the inverse root of nu times the
mode (1e-8 and less), and counts that an int64 cannot hold are drawn as the largest one it can.
"""

import math
from pathlib import Path
from typing import Any

import numba
import numpy as np

from pymc_bayessum.compiled_cache import version_of

# The block ends where the log-mass has fallen by about this much. The proposals accepted do not
# depend strongly on it: 1.0 accepts .70 to .85 of them over the whole parameter plane.
_BLOCK_DROP = 1.0
_LARGEST = 2.0**63 - 1024.0  # the largest double that an int64 holds
_LOG_LARGEST = math.log(_LARGEST)
_LAST_TOLD_APART = 2.0**53
_FIRST_STIRLING = 1024.0

#: What compiled draws are kept under: all that call these here, and by mean the sums for the rate.
_FOLDER = Path(__file__).parent
VERSION = version_of([*_FOLDER.glob("*.py"), *(_FOLDER / "cmp_sums").glob("*.*")])

NO_DRAW = "CMP draws need nu >= 0, and lam < 1 where nu = 0"


@numba.njit(cache=True)
def _stirling_tail(x):
    return (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / (1260.0 * x * x)) / (x * x)) / x


@numba.njit(cache=True)
def _log_fall(x, centre, log_lam, nu):
    """Log of the mass at x by that at a centre, without cancellation at large counts."""
    if min(x, centre) < _FIRST_STIRLING:
        fall = math.lgamma(x + 1.0) - math.lgamma(centre + 1.0)
        return (x - centre) * log_lam - nu * fall
    away = x - centre
    bend = (x + 0.5) * math.log1p(away / centre) - away + _stirling_tail(x) - _stirling_tail(centre)
    return away * (log_lam - nu * math.log(centre)) - nu * bend


@numba.njit(cache=True)
def draw_cmp(rng, log_lam, nu):
    """One draw, given ``log(lam)`` and ``nu``; -1 where no distribution exists."""
    if not (nu >= 0.0) or math.isnan(log_lam) or (nu == 0.0 and log_lam >= 0.0):
        return -1
    if log_lam == -math.inf:
        return 0
    log_mode = log_lam / nu if nu > 0.0 else -math.inf
    if log_mode > _LOG_LARGEST:
        return np.int64(_LARGEST)
    mode = math.floor(math.exp(log_mode))
    if mode > _LAST_TOLD_APART and nu * mode > 1e4:
        x = mode + (1.0 / nu - 1.0) / 2.0 + math.sqrt(mode / nu) * rng.standard_normal()
        return np.int64(min(max(x, 0.0), _LARGEST))

    slope = nu * math.log(mode + 1.0) - log_lam
    curvature = nu / (mode + 1.0)
    reach = 2.0 * _BLOCK_DROP / (slope + math.sqrt(slope * slope + 2.0 * _BLOCK_DROP * curvature))
    right = mode + math.floor(reach)
    left = max(mode - math.floor(reach), 0)
    # Ratios of neighbours in closed form: no cancellation at large counts. A tail heavier than the
    # block (two modes of nearly equal mass) is cut by moving the end of the block outward once.
    log_ratio_right = log_lam - nu * math.log(right + 1.0)
    if log_ratio_right * (right - left + 1.0) > -0.5:
        right += 1
        log_ratio_right = log_lam - nu * math.log(right + 1.0)
    log_right = _log_fall(right, mode, log_lam, nu)
    tail_right = math.exp(log_right + log_ratio_right) / -math.expm1(log_ratio_right)

    log_ratio_left = nu * math.log(left) - log_lam if left > 0 else -math.inf
    if log_ratio_left * (right - left + 1.0) > -0.5:
        left -= 1
        log_ratio_left = nu * math.log(left) - log_lam if left > 0 else -math.inf
    log_left = _log_fall(left, mode, log_lam, nu)
    tail_left = 0.0
    if left > 0:
        tail_left = math.exp(log_left + log_ratio_left) / -math.expm1(log_ratio_left)

    block = right - left + 1.0
    total = block + tail_right + tail_left
    while True:
        place = rng.random() * total
        if place < block:
            x = left + math.floor(place)
            log_accept = _log_fall(x, mode, log_lam, nu)
        elif place < block + tail_right:
            steps = 1.0 + math.floor(math.log(1.0 - rng.random()) / log_ratio_right)
            x = right + steps
            log_accept = _log_fall(x, right, log_lam, nu) - steps * log_ratio_right
        else:
            steps = 1.0 + math.floor(math.log(1.0 - rng.random()) / log_ratio_left)
            x = left - steps
            if x < 0:
                continue
            log_accept = _log_fall(x, left, log_lam, nu) - steps * log_ratio_left
        if math.log(1.0 - rng.random()) <= log_accept:
            return np.int64(min(x, _LARGEST))


@numba.njit(cache=True)
def _draw_rows(rng, log_lam, nu, out):
    for i in range(out.size):
        out[i] = draw_cmp(rng, log_lam[i], nu[i])


def draw_cmp_array(
    rng: np.random.Generator, log_lam: Any, nu: Any, size: Any = None, rows: Any = _draw_rows
) -> np.ndarray:
    """Draw by a loop over rows, broadcasting ``log_lam`` and ``nu`` to ``size``.

    Raises
    ------
    ValueError
        Where no distribution exists (nu < 0, or nu = 0 with lam >= 1).
    """
    if size is None:
        shape = np.broadcast_shapes(np.shape(log_lam), np.shape(nu))
    else:
        shape = tuple(np.atleast_1d(size))
    out = np.empty(shape, dtype=np.int64)
    rates, dispersions = (np.broadcast_to(x, shape).astype(float).ravel() for x in (log_lam, nu))
    rows(rng, rates, dispersions, out.reshape(-1))
    if np.any(out < 0):
        raise ValueError(NO_DRAW)
    return out


def draw_cmp_jax(key: Any, log_lam: Any, nu: Any, shape: tuple[int, ...]) -> Any:
    """Draw as :func:`draw_cmp` does, in JAX; -1 where no distribution exists."""
    import jax
    import jax.numpy as jnp
    from jax.scipy.special import gammaln

    log_lam = jnp.broadcast_to(jnp.asarray(log_lam, dtype=float), shape)
    nu = jnp.broadcast_to(jnp.asarray(nu, dtype=float), shape)
    log_mode = jnp.where(nu > 0, log_lam / jnp.where(nu > 0, nu, 1.0), -jnp.inf)
    exists = (nu >= 0) & ~((nu == 0) & (log_lam >= 0)) & ~jnp.isnan(log_lam)
    too_large = log_mode > _LOG_LARGEST
    mode = jnp.floor(jnp.exp(jnp.minimum(log_mode, _LOG_LARGEST)))
    normal = (mode > _LAST_TOLD_APART) & (nu * mode > 1e4)
    # Stand-in parameters where nothing is rejected keep the arithmetic below finite.
    usable = exists & (log_lam > -jnp.inf) & ~too_large & ~normal
    key, key_normal = jax.random.split(key)
    spread = jnp.sqrt(mode / jnp.where(normal, nu, 1.0)) * jax.random.normal(key_normal, shape)
    far = mode + (1.0 / jnp.where(normal, nu, 1.0) - 1.0) / 2.0 + spread
    far = jnp.where(too_large, _LARGEST, jnp.where(normal, far, 0.0))
    log_lam, nu = jnp.where(usable, log_lam, 0.0), jnp.where(usable, nu, 1.0)
    mode = jnp.where(usable, mode, 1.0)

    def log_fall(x, centre):
        safe, safe_centre = (jnp.maximum(y, _FIRST_STIRLING) for y in (x, centre))
        away = safe - safe_centre
        bend = (safe + 0.5) * jnp.log1p(away / safe_centre) - away
        bend = bend + _stirling_tail.py_func(safe) - _stirling_tail.py_func(safe_centre)
        stirling = away * (log_lam - nu * jnp.log(safe_centre)) - nu * bend
        direct = (x - centre) * log_lam - nu * (gammaln(x + 1.0) - gammaln(centre + 1.0))
        return jnp.where(jnp.minimum(x, centre) < _FIRST_STIRLING, direct, stirling)

    def log_ratio_left_of(x):
        return jnp.where(x > 0, nu * jnp.log(jnp.maximum(x, 1.0)) - log_lam, -jnp.inf)

    slope = nu * jnp.log(mode + 1.0) - log_lam
    curvature = nu / (mode + 1.0)
    reach = 2 * _BLOCK_DROP / (slope + jnp.sqrt(slope**2 + 2 * _BLOCK_DROP * curvature))
    right = mode + jnp.floor(reach)
    left = jnp.maximum(mode - jnp.floor(reach), 0.0)
    heavy = (log_lam - nu * jnp.log(right + 1.0)) * (right - left + 1.0) > -0.5
    right = right + heavy
    log_ratio_right = log_lam - nu * jnp.log(right + 1.0)
    log_right = log_fall(right, mode)
    tail_right = jnp.exp(log_right + log_ratio_right) / -jnp.expm1(log_ratio_right)
    left = left - (log_ratio_left_of(left) * (right - left + 1.0) > -0.5)
    log_ratio_left = log_ratio_left_of(left)
    log_left = log_fall(left, mode)
    tail_left = jnp.exp(log_left + log_ratio_left) / -jnp.expm1(log_ratio_left)
    block = right - left + 1.0
    total = block + tail_right + tail_left

    def propose(state):
        key, x, done = state
        key, key_place, key_steps, key_accept = jax.random.split(key, 4)
        place = jax.random.uniform(key_place, shape) * total
        log_steps = jnp.log1p(-jax.random.uniform(key_steps, shape))
        steps_right = 1.0 + jnp.floor(log_steps / log_ratio_right)
        steps_left = 1.0 + jnp.floor(log_steps / log_ratio_left)
        in_block, in_right = place < block, place < block + tail_right
        proposal = jnp.where(
            in_block,
            left + jnp.floor(place),
            jnp.where(in_right, right + steps_right, left - steps_left),
        )
        centre = jnp.where(in_block, mode, jnp.where(in_right, right, left))
        fall_of_hat = jnp.where(
            in_right,
            steps_right * log_ratio_right,
            steps_left * jnp.where(left > 0, log_ratio_left, -1.0),
        )
        log_accept = log_fall(jnp.maximum(proposal, 0.0), centre)
        log_accept = log_accept - jnp.where(in_block, 0.0, fall_of_hat)
        log_uniform = jnp.log1p(-jax.random.uniform(key_accept, shape))
        accepted = ~done & (proposal >= 0) & (log_uniform <= log_accept)
        return key, jnp.where(accepted, proposal, x), done | accepted

    start = (key, jnp.zeros(shape), ~usable)
    _, x, _ = jax.lax.while_loop(lambda state: ~jnp.all(state[2]), propose, start)
    x = jnp.minimum(jnp.where(usable, x, far), _LARGEST)
    return jnp.where(exists, x, -1.0).astype(int)
