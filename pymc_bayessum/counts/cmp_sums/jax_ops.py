"""The Conway-Maxwell-Poisson Ops in JAX, by the same nodes as the compiled sums.

Rows are vectors here and blocks of terms the steps of a loop, so that memory grows with the rows
alone. Loops need not be differentiated: derivatives are further outputs, joined by
``jax.custom_jvp``.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from pytensor.link.jax.dispatch.basic import jax_funcify

from pymc_bayessum.counts.cmp_sums import sums as kernels
from pymc_bayessum.counts.cmp_sums.near_zero import FIRST_SCALE, N_SCALES, OFFSET, load_rules
from pymc_bayessum.counts.cmp_sums.ops import CMPCumulants, CMPFromMean, CMPQuantile, CMPTail
from pymc_bayessum.counts.cmp_sums.sums import derivative_orders

_DROP = kernels.DROP
_TABLE = kernels._LOG_FACTORIAL
_RULES = load_rules()
_BLOCK = 16  # terms of a row that are summed at once


def _stirling_tail(x: Any) -> Any:
    q = 1.0 / (x * x)
    return (1.0 / 12.0 - q * (1.0 / 360.0 - q * (1.0 / 1260.0 - q / 1680.0))) / x


def _log_factorial(x: Any) -> Any:
    small = x < len(_TABLE)
    safe = jnp.where(small, float(len(_TABLE)), x)
    large = (safe + 0.5) * jnp.log(safe) - safe + 0.5 * np.log(2 * np.pi) + _stirling_tail(safe)
    return jnp.where(small, jnp.asarray(_TABLE)[jnp.where(small, x, 0).astype(int)], large)


def _nodes(eta: Any, nu: Any) -> tuple[Any, ...]:
    """Choose nodes for each row as ``kernels._terms`` does.

    Returns whether a row is answered for, its number of nodes, its mode m (a count), L(m), the log
    of what its terms are divided by, and a function from numbers j of nodes to terms p, distances
    d = x - m and g = L(x) - L(m), along a new last axis.
    """
    valid = (nu >= 0) & (nu <= kernels.MAX_PEAK) & (jnp.abs(eta) < 1e15)
    eta, nu = jnp.where(valid, eta, -1.0), jnp.where(valid, nu, 1.0)
    positive = jnp.where(nu > 0, nu, 1.0)
    log_mode = jnp.where(nu > 0, eta / positive, -jnp.inf)
    valid &= log_mode <= kernels.LOG_MAX_MODE
    mode = jnp.exp(jnp.minimum(log_mode, kernels.LOG_MAX_MODE))
    valid &= nu * mode <= kernels.MAX_PEAK
    bell = nu * mode >= 1.0
    decay = OFFSET * nu - eta
    argument = decay - nu * jnp.log(positive)
    decay = decay - nu * jnp.log(jnp.where(argument > 0, argument, 1.0))
    valid &= bell | (decay * kernels.MAX_WIDTH > 1.0)
    decay = jnp.where(decay * kernels.MAX_WIDTH > 1.0, decay, 1.0)
    square = jnp.where(bell, mode / positive, 1.0 / (decay * decay))

    near = (square >= FIRST_SCALE**2) & (nu * mode < kernels.NEAR_PEAK)
    centre = jnp.floor(mode)
    third = _DROP / (3.0 * positive)
    reach = 2.0 * _DROP * square
    safe_mode = jnp.where(bell, mode, 1.0)
    end = safe_mode + third + jnp.sqrt(third * third + reach)
    slope = jnp.log(jnp.maximum(end / safe_mode, 1.1))
    end = jnp.where(end > 1.1 * safe_mode, (end - safe_mode + _DROP / positive) / slope, end)
    short = bell & near & (end < kernels._SHORT)
    near &= ~short
    step = jnp.maximum(1.0, jnp.floor(kernels.SPACING * jnp.sqrt(square)))
    step = jnp.where(bell & ~short & ~near, step, 1.0)
    touch = 0.5 * _DROP * jnp.sqrt(square)
    slope = -eta + nu * jnp.log(jnp.maximum(touch, 1.0))
    slope = jnp.where(slope > 0, slope, 1.0)
    n_right = jnp.where(
        bell,
        jnp.ceil((end - centre) / step),
        jnp.ceil((_DROP + nu * touch) / slope) - centre,
    )
    n_right = jnp.maximum(n_right, 3.0)
    n_left = jnp.minimum(jnp.ceil(jnp.sqrt(reach) / step), jnp.floor(centre / step))
    n_left = jnp.where(bell, n_left, centre)
    lowest = kernels._SMALLEST_STIRLING
    cut = (centre + (n_right + 3) * step >= len(_TABLE)) & (centre - n_left * step < lowest)
    n_left = jnp.where(cut, jnp.floor((centre - lowest) / step), n_left)
    first = centre - n_left * step
    n = jnp.minimum(n_left + n_right + 1.0, kernels.N_TERMS)
    tabulated = first + (n + 4) * step < len(_TABLE)

    k = jnp.floor(jnp.log2(square / FIRST_SCALE**2))
    valid &= ~near | (k < N_SCALES)
    k = jnp.clip(k, 0, N_SCALES - 1).astype(int)
    n = jnp.where(near, jnp.asarray(_RULES.sizes)[k], n)
    n = jnp.where(valid, n, 0.0)
    far_centre = jnp.maximum(centre, 1.0)
    log_centre = jnp.log(far_centre)
    at_centre = _log_factorial(centre)
    x_near, l_near, w_near = (
        jnp.asarray(a) for a in (_RULES.nodes, _RULES.log_factorials, _RULES.weights)
    )

    columns = [eta, nu, n, near, k, centre, first, step, tabulated, at_centre, log_centre]
    columns = [a[..., None] for a in columns]

    def terms(j: Any) -> tuple[Any, Any, Any]:
        eta, nu, n, near, k, centre, first, step, tabulated, at_centre, log_centre = columns
        away = first - centre + step * j
        x = centre + away
        index = jnp.clip(x, 0, len(_TABLE) - 1).astype(int)
        safe, far_centre = jnp.maximum(x, lowest), jnp.maximum(centre, lowest)
        bend = (safe + 0.5) * jnp.log1p((safe - far_centre) / far_centre) - away
        bend = bend + (_stirling_tail(safe) - _stirling_tail(far_centre))
        g = jnp.where(tabulated, jnp.asarray(_TABLE)[index] - at_centre, away * log_centre + bend)
        exponent = jnp.where(
            tabulated, eta * away - nu * g, (eta - nu * log_centre) * away - nu * bend
        )
        column = jnp.minimum(j, x_near.shape[1] - 1)
        x, log_factorial = x_near[k, column], l_near[k, column]
        exponent = jnp.where(near, eta * x - nu * log_factorial, exponent)
        weight = jnp.where(near, w_near[k, column], 1.0)
        # Moments are taken about the mode, or zero.
        d = jnp.where(near, x - centre, away)
        g = jnp.where(near, log_factorial - at_centre, g)
        return jnp.where(j < n, weight * jnp.exp(exponent), 0.0), d, g

    rest = far_centre - 0.5 * log_centre - 0.5 * np.log(2 * np.pi) - _stirling_tail(far_centre)
    log_term = jnp.where(
        centre < len(_TABLE),
        eta * centre - nu * at_centre,
        centre * (eta - nu * log_centre) + nu * rest,
    )
    log_scale = jnp.where(near, 0.0, log_term + jnp.log(step))
    return valid, n, centre, at_centre, log_scale, terms


def _moments(eta: Any, nu: Any, order: int) -> tuple[Any, ...]:
    """Return derivatives of log Z in the order of ``derivative_orders``."""
    valid, n, centre, at_centre, log_scale, terms = _nodes(eta, nu)
    n_blocks = jnp.ceil(jnp.max(n) / _BLOCK).astype(int)

    def total_of(powers, x, y):
        """Sum p (d - x)^a (-g - y)^b, without the first term where a = b = 0."""

        def add(block, sums):
            j = block * _BLOCK + jnp.arange(_BLOCK)
            p, d, g = terms(j)
            d, g = d - x[..., None], -g - y[..., None]
            values = [p * d**a * g**b if a + b else jnp.where(j > 0, p, 0.0) for a, b in powers]
            return tuple(s + jnp.sum(v, axis=-1) for s, v in zip(sums, values, strict=True))

        return lax.fori_loop(0, n_blocks, add, tuple(jnp.zeros_like(x) for _ in powers))

    zero = jnp.zeros_like(log_scale)
    rest, x, y = total_of(derivative_orders(1), zero, zero)
    p0 = terms(jnp.zeros(1, int))[0][..., 0]
    total = jnp.where(valid, p0 + rest, 1.0)
    log_sum = jnp.where(p0 == 1.0, jnp.log1p(jnp.where(valid, rest, 0.0)), jnp.log(total))
    x, y = x / total, y / total
    outputs = [log_scale + log_sum, centre + x, y - at_centre]
    if order >= 2:
        # A second pass: about the mode alone they may cancel to the last digits.
        powers = derivative_orders(order)[3:]
        outputs += [s / total for s in total_of(powers, x, y)]
    return tuple(jnp.where(valid, value, 0.0 if i else jnp.inf) for i, value in enumerate(outputs))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def cumulants(order: int, eta: Any, nu: Any) -> tuple[Any, ...]:
    """Return derivatives of log Z up to an order, for arrays of one shape."""
    return _moments(eta, nu, order)


@cumulants.defjvp
def _cumulants_jvp(order, primals, tangents):
    return _derivatives_jvp(cumulants, 3, order, primals, tangents)


def _derivatives_jvp(function, highest, order, primals, tangents, *before):
    """Tangents of outputs that are derivatives, from the outputs of one order more.

    Those of the highest order that is computed are NaN; they are asked for, and not used, on the
    way to second derivatives.
    """
    (*_, by_eta, by_nu) = tangents
    orders = derivative_orders(order)
    known = min(order + 1, highest)
    values = dict(zip(derivative_orders(known), function(*before, known, *primals), strict=True))
    return (
        tuple(values[o] for o in orders),
        tuple(
            values.get((a + 1, b), jnp.nan) * by_eta + values.get((a, b + 1), jnp.nan) * by_nu
            for a, b in orders
        ),
    )


@jax.custom_jvp
def from_mean(log_mu: Any, nu: Any) -> tuple[Any, ...]:
    """Return eta, log Z, d eta/d log mu, d eta/d nu and E[L] for arrays of one shape."""
    usable = (
        (nu >= 0)
        & (nu < jnp.inf)
        & (log_mu > kernels.LOG_SMALLEST)
        & (log_mu < kernels.LOG_MAX_MODE + 1)
    )
    log_mu, nu = jnp.where(usable, log_mu, 0.0), jnp.where(usable, nu, 1.0)
    mu = jnp.exp(log_mu)

    def improve(state):
        count, eta, low, high, done = state
        k = dict(zip(derivative_orders(3), cumulants(3, eta, nu), strict=True))
        inside = jnp.isfinite(k[0, 0]) & (k[2, 0] > 1e-150)
        mean, variance = jnp.where(inside, k[1, 0], 1.0), jnp.where(inside, k[2, 0], 1.0)
        excess = jnp.where(jnp.isfinite(k[0, 0]), jnp.log(mean / mu), jnp.inf)
        high = jnp.where(~done & (excess > 0), jnp.minimum(high, eta), high)
        low = jnp.where(~done & (excess <= 0), jnp.maximum(low, eta), low)
        slope = variance / mean
        newton = -jnp.where(inside, excess, 0.0) / slope
        halley = newton / jnp.maximum(0.5, 1.0 + 0.5 * newton * (k[3, 0] / variance - slope))
        close = inside & (jnp.abs(halley) * jnp.maximum(1.0, jnp.sqrt(variance)) < 1e-9)
        step = jnp.where(inside, eta + halley, jnp.nan)
        middle = jnp.where(
            jnp.isfinite(low),
            jnp.where(jnp.isfinite(high), 0.5 * (low + high), low + 1.0),
            high - 0.1 * jnp.abs(high) - 1e-3,
        )
        step = jnp.where((step > low) & (step < high), step, middle)
        step = jnp.where(close, eta + halley, step)
        # A variance that vanishes cannot be solved with: such a row stays where it is.
        stuck = jnp.isfinite(k[0, 0]) & ~inside
        return count + 1, jnp.where(done | stuck, eta, step), low, high, done | close | stuck

    guess = _first_guess(mu, nu)
    infinite = jnp.full_like(guess, jnp.inf)
    state = (0, guess, -infinite, infinite, ~usable)
    _, eta, _, _, done = lax.while_loop(lambda s: (s[0] < 100) & ~jnp.all(s[4]), improve, state)
    k = dict(zip(derivative_orders(2), cumulants(2, eta, nu), strict=True))
    answered = usable & done & jnp.isfinite(k[0, 0]) & (k[2, 0] > 1e-150)
    variance = jnp.where(answered, k[2, 0], 1.0)
    zero = jnp.zeros_like(eta)
    return (
        jnp.where(answered, eta, zero),
        jnp.where(answered, k[0, 0], jnp.inf),
        jnp.where(answered, mu / variance, zero),
        jnp.where(answered, -k[1, 1] / variance, zero),
        jnp.where(answered, -k[0, 1], zero),
    )


def _first_guess(mu: Any, nu: Any) -> Any:
    """Do what ``kernels._first_guess`` does."""
    count = jnp.floor(mu + 0.5)
    f = jnp.clip(mu - count, -0.5, 0.5)
    log_ratio = nu * (jnp.log(jnp.maximum(count, 1.0)) - jnp.log(count + 1.0))
    ratio = jnp.where(count > 0, jnp.exp(log_ratio), 0.0)
    root = jnp.sqrt(f * f + 4.0 * ratio * (1.0 - f * f))
    below = jnp.where(root - f > 0, root - f, 1.0)
    log_odds = jnp.where(
        f > 0,
        jnp.log(jnp.where(f > 0, f + root, 1.0) / (2.0 * (1.0 - f))),
        jnp.where(root - f > 0, log_ratio + jnp.log(2.0 * (1.0 + f) / below), 0.5 * log_ratio),
    )
    three = nu * jnp.log(count + 1.0) + log_odds
    positive = jnp.where(nu > 0, nu, 1.0)
    mode = mu + (nu - 1.0) / (2.0 * positive) + (nu * nu - 1.0) / (24.0 * positive**2 * mu)
    far = nu * jnp.log(jnp.maximum(mode, 1e-300))
    off = jnp.where(jnp.abs(nu - 1.0) > 1e-6, 1.0 - nu, 1.0)
    bend = jnp.where(jnp.abs(nu - 1.0) > 1e-6, jnp.expm1(off * np.log(2.0)) / off, np.log(2.0))
    small = jnp.log(mu) + (nu - 1.0) * jnp.log((1.0 + (1.0 + bend) * mu + mu * mu) / (1.0 + mu))
    guess = jnp.where((nu * mu > 0.9) & (mu > 0.6), far, small)
    return jnp.where((nu >= 4.0) & (mu < 0.21 * nu), three, guess)


@from_mean.defjvp
def _from_mean_jvp(primals, tangents):
    log_mu, nu = primals
    by_mu, by_nu = tangents
    outputs = from_mean(log_mu, nu)
    eta, log_z, eta_mu, eta_nu, mean_l = outputs
    answered = jnp.isfinite(log_z)
    mu = jnp.where(answered, jnp.exp(log_mu), 0.0)
    k = dict(zip(derivative_orders(3), cumulants(3, eta, nu), strict=True))
    variance = jnp.where(answered & (k[2, 0] > 0), k[2, 0], 1.0)
    d_eta = eta_mu * by_mu + eta_nu * by_nu
    d_variance = k[3, 0] * d_eta + k[2, 1] * by_nu
    d_covariance = k[2, 1] * d_eta + k[1, 2] * by_nu
    tangent = (
        d_eta,
        mu * d_eta - mean_l * by_nu,
        eta_mu * by_mu - eta_mu * d_variance / variance,
        -(d_covariance + eta_nu * d_variance) / variance,
        -(k[1, 1] * d_eta + k[0, 2] * by_nu),
    )
    return outputs, tuple(jnp.where(answered, t, 0.0) for t in tangent)


def _tail_sums(x: Any, down: Any, eta: Any, nu: Any, active: Any) -> tuple[Any, ...]:
    """Sum terms outward from x by the first of them, with moments about x and L(x)."""

    def add(state):
        at, log_p, g, sums, going = state
        p = jnp.where(going, jnp.exp(log_p), 0.0)
        d = at - x
        sums = tuple(
            s + p * d**i * g**k for s, (i, k) in zip(sums, derivative_orders(2), strict=True)
        )
        change = jnp.where(down, -jnp.log(jnp.maximum(at, 1.0)), jnp.log(at + 1.0))
        move = jnp.where(down, -1.0, 1.0)
        going &= (log_p > -_DROP) & ~(down & (at <= 0))
        return at + move, log_p + move * eta - nu * change, g + change, sums, going

    zero = jnp.zeros_like(x)
    start = (x, zero, zero, tuple(zero for _ in derivative_orders(2)), active)
    *_, sums, _ = lax.while_loop(lambda s: jnp.any(s[4]), add, start)
    total = jnp.where(active, sums[0], 1.0)
    d, g, dd, dg, gg = (s / total for s in sums[1:])
    return total, d, g, dd - d * d, dg - d * g, gg - g * g


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def log_tail(upper: bool, order: int, x: Any, eta: Any, nu: Any) -> tuple[Any, ...]:
    """Return log P(X <= x), or of X > x, and derivatives, for arrays of one shape."""
    k = dict(zip(derivative_orders(2), cumulants(2, eta, nu), strict=True))
    answered = jnp.isfinite(k[0, 0]) & ~jnp.isnan(x)
    down = x < k[1, 0]
    edge = jnp.where(down, x, x + 1.0)
    summed = answered & (x >= 0) & (edge < 1e15)
    edge, eta, nu = (jnp.where(summed, a, b) for a, b in ((edge, 0.0), (eta, 0.0), (nu, 1.0)))
    log_z = jnp.where(summed, k[0, 0], 0.0)
    shift = _log_factorial(edge)
    log_first = eta * edge - nu * shift - log_z
    same = down != upper
    worth = summed & (same | (log_first > kernels._LEAST_LOG))
    total, d, g, dd, dg, gg = _tail_sums(edge, down, eta, nu, worth)
    log_q = jnp.minimum(log_first + jnp.log(total), 0.0)
    mean, minus_l = edge + d - k[1, 0], -(shift + g) - k[0, 1]
    second = (dd - k[2, 0], -dg - k[1, 1], gg - k[0, 2])
    q = jnp.where(worth & ~same, jnp.minimum(jnp.exp(log_q), 1.0 - 1e-16), 0.0)
    odds = q / (1.0 - q)
    squares = (mean * mean, mean * minus_l, minus_l * minus_l)
    values = [jnp.where(same, log_q, jnp.log1p(-q))]
    values += [jnp.where(same, a, -odds * a) for a in (mean, minus_l)]
    values += [
        jnp.where(same, a, -odds * (a + (1.0 + odds) * b))
        for a, b in zip(second, squares, strict=True)
    ]
    # Far out one side is everything: log 1 = 0, and nothing: -inf.
    everything = answered & ~(worth & (log_first > -1e300)) & jnp.where(x < 0, upper, ~same)
    outputs = [jnp.where(worth, v, 0.0) for v in values[: len(derivative_orders(order))]]
    outputs[0] = jnp.where(worth, outputs[0], jnp.where(everything, 0.0, -jnp.inf))
    return tuple(outputs)


@log_tail.defjvp
def _log_tail_jvp(upper, order, primals, tangents):
    return _derivatives_jvp(log_tail, 2, order, primals, tangents, upper)


def quantile(q: Any, eta: Any, nu: Any) -> Any:
    """Return the smallest count x with P(X <= x) >= q, for arrays of one shape."""
    k = dict(zip(derivative_orders(2), cumulants(2, eta, nu), strict=True))
    proper = jnp.isfinite(k[0, 0]) & (q > 0) & (q < 1)
    inside = jnp.where(proper, q, 0.5)

    def reaches(x):
        [upper, *_], [lower, *_] = log_tail(True, 1, x, eta, nu), log_tail(False, 1, x, eta, nu)
        eps = kernels._EPS
        return jnp.where(
            inside > 0.5,
            jnp.exp(upper) <= (1.0 - inside) * (1.0 + 1e-12) + eps,
            lower >= jnp.log(inside) - 1e-12,
        )

    def widen(state):
        low, high, step, found = state
        found = found | reaches(high)
        return (
            jnp.where(found, low, high),
            jnp.where(found, high, high + step),
            2.0 * step,
            found,
        )

    def halve(state):
        low, high = state
        middle = jnp.floor(0.5 * (low + high))
        reached = reaches(middle)
        open_ = high - low > 1.0
        return jnp.where(open_ & ~reached, middle, low), jnp.where(open_ & reached, middle, high)

    low = jnp.full_like(k[1, 0], -1.0)
    step = jnp.maximum(1.0, jnp.floor(jnp.sqrt(k[2, 0])))
    state = (low, jnp.maximum(0.0, jnp.floor(k[1, 0])), step, ~proper)
    low, high, *_ = lax.while_loop(lambda s: ~jnp.all(s[3]), widen, state)
    high = jnp.where(proper, high, low)
    low, high = lax.while_loop(lambda s: jnp.any(s[1] - s[0] > 1.0), halve, (low, high))
    edge = jnp.where(q == 0, 0.0, jnp.where(q == 1, jnp.inf, jnp.nan))
    return jnp.where(proper, high, jnp.where(jnp.isfinite(k[0, 0]), edge, jnp.nan))


def _rows(function: Any) -> Any:
    """Broadcast the arguments first."""

    def run(*inputs):
        return function(*jnp.broadcast_arrays(*inputs))

    return run


@jax_funcify.register(CMPCumulants)
def _jax_cumulants(op, **kwargs):
    return _rows(partial(cumulants, op.order))


@jax_funcify.register(CMPFromMean)
def _jax_from_mean(op, **kwargs):
    return _rows(from_mean)


@jax_funcify.register(CMPTail)
def _jax_tail(op, **kwargs):
    return _rows(partial(log_tail, op.upper, op.order))


@jax_funcify.register(CMPQuantile)
def _jax_quantile(op, **kwargs):
    return _rows(quantile)
