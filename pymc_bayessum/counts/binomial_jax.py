"""What JAX has to know of the Conway-Maxwell-binomial distribution; loaded when JAX is used."""

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from pytensor.link.jax.dispatch import jax_funcify

from pymc_bayessum.counts.binomial import N_STEPS, LogOddsOfMean


@jax_funcify.register(LogOddsOfMean)
def _solve(op, node, **kwargs):
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
