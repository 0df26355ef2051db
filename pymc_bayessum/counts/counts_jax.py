"""All that distributions of counts have to tell JAX; loaded when JAX is used."""

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from pytensor.graph.fg import FunctionGraph
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.link.jax.dispatch.random import jax_sample_fn

from pymc_bayessum.counts.binomial import N_STEPS, LogOddsOfMean
from pymc_bayessum.counts.cmp import CMPRV
from pymc_bayessum.counts.cmp_sums.jax_ops import from_mean
from pymc_bayessum.counts.inflated import HurdleCMPRV, ZeroInflatedCMPRV
from pymc_bayessum.counts.n_mixture import NMixtureSum
from pymc_bayessum.counts.random import draw_cmp_jax


@jax_sample_fn.register(CMPRV)
def _jax_draw(op, node):
    def sample(key, size, dtype, first, nu):
        shape = size if size is not None else jnp.broadcast_shapes(first.shape, nu.shape)
        eta, nu = _rates(op, first, nu)
        return draw_cmp_jax(key, eta, nu, shape).astype(dtype)

    return sample


def _with_zeros(op, draw):
    def sample(key, size, dtype, psi, first, nu):
        shape = jnp.broadcast_shapes(psi.shape, first.shape, nu.shape) if size is None else size
        key_part, key_share = jax.random.split(key)
        eta, nu = _rates(op, first, nu)
        counts = draw(key_part, eta, nu, shape)
        return jnp.where(jax.random.uniform(key_share, shape) < psi, counts, 0).astype(dtype)

    return sample


def _rates(op, first, nu):
    first, nu = jnp.broadcast_arrays(jnp.asarray(first, float), jnp.asarray(nu, float))
    return op.parametrization.log_rate(jnp, jnp.log(first), nu, from_mean), nu


def _draw_positive(key, log_lam, nu, shape):
    """Draw as :func:`pymc_bayessum.counts.inflated.draw_positive_cmp` does."""
    log_lam, nu = jnp.broadcast_to(log_lam, shape), jnp.broadcast_to(nu, shape)
    small = log_lam < -jnp.log(2.0)

    def propose(state):
        key, x = state
        key, key_steps, key_accept, key_large = jax.random.split(key, 4)
        log_steps = jnp.log1p(-jax.random.uniform(key_steps, shape))
        steps = 1.0 + jnp.floor(log_steps / jnp.where(small, log_lam, -1.0))
        log_accept = -nu * gammaln(steps + 1.0)
        accepted = jnp.log1p(-jax.random.uniform(key_accept, shape)) <= log_accept
        # Where nothing was accepted the count stays zero and is drawn again.
        proposal = jnp.where(
            small,
            jnp.where(accepted, steps.astype(int), 0),
            draw_cmp_jax(key_large, jnp.where(small, 0.0, log_lam), nu, shape),
        )
        return key, jnp.where(x == 0, proposal, x)

    _, x = jax.lax.while_loop(
        lambda state: jnp.any(state[1] == 0), propose, (key, jnp.zeros(shape, int))
    )
    return x


jax_sample_fn.register(ZeroInflatedCMPRV, lambda op, node: _with_zeros(op, draw_cmp_jax))
jax_sample_fn.register(HurdleCMPRV, lambda op, node: _with_zeros(op, _draw_positive))


@jax_funcify.register(LogOddsOfMean)
def _log_odds(op, node, **kwargs):
    constant = node.inputs[1]
    longest = int(constant.data.max()) if hasattr(constant, "data") else None

    def solve(mu, n, nu):
        # A constant of one element is a plain number here.
        mu, n, nu = jnp.broadcast_arrays(mu, n, nu)
        size = longest if longest is not None else int(n.max())
        x = jnp.arange(size + 1)
        trials = n[..., None]
        inside = x <= trials
        log_choose = gammaln(trials + 1.0) - gammaln(x + 1.0)
        log_choose = log_choose - gammaln(jnp.where(inside, trials - x, 0.0) + 1.0)
        level = jnp.where(inside, nu[..., None] * log_choose, -jnp.inf)

        def step(_, state):
            odds, low, high = state
            share = jax.nn.softmax(level + x * odds[..., None], axis=-1)
            away = x - mu[..., None]
            excess = (share * away).sum(axis=-1)
            variance = (share * away**2).sum(axis=-1) - excess**2
            high = jnp.where(excess > 0.0, odds, high)
            low = jnp.where(excess > 0.0, low, odds)
            newton = odds - excess / variance
            safe = (newton > low) & (newton < high)
            new = jnp.where(safe, newton, 0.5 * (low + high))
            return jnp.where(excess == 0.0, odds, new), low, high

        bound = 800.0 + jnp.abs(nu) * n
        start = jnp.log(mu / (n - mu))
        odds, _, _ = jax.lax.fori_loop(0, N_STEPS, step, (start, -bound, bound))
        return jnp.where((mu > 0.0) & (mu < n), odds, jnp.nan)

    return solve


@jax_funcify.register(NMixtureSum)
def _sum(op, node, **kwargs):
    inputs = [v.type() for v in node.inputs[:3]]
    written = jax_funcify(FunctionGraph(inputs, op.written_out(*inputs), clone=False), **kwargs)
    return lambda c, s, y, *tables: written(c, s, y)
