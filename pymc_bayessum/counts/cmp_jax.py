"""All that the Conway-Maxwell-Poisson distributions have to tell JAX; loaded when JAX is used."""

import jax
import jax.numpy as jnp
from pytensor.link.jax.dispatch.random import jax_sample_fn

from pymc_bayessum.counts.cmp import CMPRV
from pymc_bayessum.counts.cmp_sums.jax_ops import from_mean
from pymc_bayessum.counts.cmp_sums.sums import LOG_LARGEST
from pymc_bayessum.counts.inflated import HurdleCMPRV, ZeroInflatedCMPRV
from pymc_bayessum.counts.random import draw_cmp_jax


@jax_sample_fn.register(CMPRV)
def _jax_draw(op, node):
    def sample(key, size, dtype, first, nu):
        shape = size if size is not None else jnp.broadcast_shapes(first.shape, nu.shape)
        eta, nu = _rates(op, first, nu)
        return draw_cmp_jax(key, eta, nu, shape).astype(dtype)

    return sample


@jax_sample_fn.register(ZeroInflatedCMPRV)
def _jax_draw_zero_inflated(op, node):
    return _with_zeros(op, draw_cmp_jax)


@jax_sample_fn.register(HurdleCMPRV)
def _jax_draw_hurdle(op, node):
    return _with_zeros(op, _draw_positive)


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
    return op.parametrization.log_rate(jnp.log(first), nu, _rate_of_mean), nu


def _rate_of_mean(log_mu, nu):
    rate, log_z, *_ = from_mean(log_mu, nu)
    known = jnp.where(jnp.isfinite(log_z), rate, jnp.nan)
    return jnp.where(log_mu >= LOG_LARGEST, nu * log_mu, known)


def _draw_positive(key, log_lam, nu, shape):
    """Draw as :func:`pymc_bayessum.counts.inflated.draw_positive_cmp` does."""
    log_lam, nu = jnp.broadcast_to(log_lam, shape), jnp.broadcast_to(nu, shape)
    small = log_lam < -jnp.log(2.0)

    def propose(state):
        key, x = state
        key, key_steps, key_accept, key_large = jax.random.split(key, 4)
        log_steps = jnp.log1p(-jax.random.uniform(key_steps, shape))
        steps = 1.0 + jnp.floor(log_steps / jnp.where(small, log_lam, -1.0))
        log_accept = -nu * jax.scipy.special.gammaln(steps + 1.0)
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
