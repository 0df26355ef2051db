"""Expectations under distributions known only up to a constant, and tests of their fit.

`stein_rule` gives weights for expectations under an unnormalised p on sites (Stein BayesSum), and
`ksd` measures how far a sample is from p. Both stand on the discrete Stein kernel of
`pymc_bayessum.kernels.Stein`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from pymc_bayessum.arguments import as_generator, integer
from pymc_bayessum.kernels import Kernel
from pymc_bayessum.kernels.base import upper_blocks
from pymc_bayessum.kernels.stein import Stein, as_states
from pymc_bayessum.measures.supports import Points, Sites, Support
from pymc_bayessum.rules.rule import Rule, distinct_points, reach_of
from pymc_bayessum.solve import solve

__all__ = ["GoodnessOfFit", "ksd", "ksd_test", "stein_points", "stein_rule"]

LogProb = Callable[[np.ndarray], Any]
Statistic = Literal["u", "v"]


def stein_rule(
    kernel: Kernel,
    log_prob: LogProb,
    nodes: Points,
    n_states: int | None = None,
    jitter: float | None = None,
    theta: Any = None,
) -> Rule:
    r"""Build a rule for expectations under an unnormalised distribution on sites.

    The Stein kernel of p makes the mean of f its constant part, which gets a flat prior. With
    K the Gram matrix of the Stein kernel at the nodes,

    .. math:: w = \frac{K^{-1} 1}{1'K^{-1}1}, \qquad V = \frac{1}{1'K^{-1}1},

    so the weights sum to one (Stein BayesSum of Kang, Briol, Karvonen and Chen; in the continuous
    case Oates, Girolami and Chopin, 2017). The nodes need not come from p: distinct points spread
    over the space do as well where p is not far from uniform.

    Parameters
    ----------
    kernel : Kernel
        The base kernel, such as ``ExpHamming(0.01)``; a `Stein` kernel built from the same
        ``log_prob`` and ``n_states`` is taken as it is.
    log_prob : callable
        Log-probability up to a constant, from integer points (N, L) to (N,), or a compiled
        PyTensor function. p must be positive everywhere.
    nodes : array_like of int, shape (N, L)
        Distinct points with states 0, ..., n_states - 1.
    n_states : int
        States of each site, at least two; a family knows its own.
    jitter : float, optional
        Added to the diagonal of K; by default the smallest that works.

    Returns
    -------
    Rule
        With ``log_base`` zero and no measure. ``rule.expectation(values)`` estimates E_p[f], its
        sd with the restricted-likelihood amplitude on N - 1 degrees of freedom.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum.kernels import ExpHamming
    >>> log_prob = lambda x: 0.3 * x.sum(axis=1)
    >>> nodes = np.random.default_rng(0).permutation(np.indices((3,) * 4).reshape(4, -1).T)[:60]
    >>> rule = stein_rule(ExpHamming(0.05), log_prob, nodes, n_states=3)
    >>> estimate = rule.expectation(nodes.mean(axis=1))
    >>> p = np.exp(0.3 * np.arange(3))
    >>> bool(abs(estimate.mean - (p * np.arange(3)).sum() / p.sum()) < 1e-3)
    True
    """
    stein = _stein(kernel, log_prob, n_states, theta)
    points, support = stein_points(stein, nodes)
    return Rule(
        nodes=points,
        log_base=np.zeros(len(points)),
        kernel=stein,
        measure=None,
        reach=reach_of(support, points),
        **solve(stein, None, points, jitter)._asdict(),
    )


def stein_points(kernel: Stein, nodes: Points) -> tuple[np.ndarray, Support]:
    """Return nodes for a Stein kernel, checked, and the support they lie in."""
    x = np.asarray(nodes)
    if x.ndim != 2 or 0 in x.shape:
        raise ValueError(f"nodes must have shape (N, L) with N, L of at least 1, got {x.shape}")
    support = Sites(x.shape[1], kernel.n_states)
    return distinct_points(support, x), support


def ksd(
    samples: Points,
    log_prob: LogProb,
    kernel: Kernel,
    n_states: int | None = None,
    statistic: Statistic = "u",
    theta: Any = None,
) -> float:
    r"""Squared kernel Stein discrepancy between a sample and an unnormalised distribution.

    .. math:: U = \frac{1}{n (n - 1)} \sum_{i \ne j} k_p(x_i, x_j), \qquad
              V = \frac{1}{n^2} \sum_{i, j} k_p(x_i, x_j)

    U is unbiased and may be slightly negative where the sample fits; V is never negative and
    biased upwards by the mean of k_p(x, x) over n. Sums run over blocks: the memory is that of
    the sample.

    Parameters
    ----------
    samples : array_like of int, shape (n, L)
        States 0, ..., n_states - 1; repeats are allowed.
    log_prob : callable or Family
        Log-probability up to a constant, from integer points (N, L) to (N,), or a compiled
        PyTensor function. A family of sites goes with ``theta``.
    kernel : Kernel
        The base kernel, such as ``ExpHamming(0.1)``.
    n_states : int
        States of each site, at least two; a family knows its own.
    statistic : {"u", "v"}
        Which of the two.
    theta : array_like, shape (d,), optional
        Parameters of the family.

    See Also
    --------
    ksd_test : the bootstrap test of fit.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum.kernels import ExpHamming
    >>> x = np.random.default_rng(1).integers(0, 3, (200, 5))
    >>> fits = ksd(x, lambda x: np.zeros(len(x)), ExpHamming(0.3), 3)
    >>> does_not = ksd(x, lambda x: 0.8 * x.sum(axis=1), ExpHamming(0.3), 3)
    >>> bool(abs(fits) < 0.05 < does_not)
    True
    """
    stein, states = _checked_sample(samples, log_prob, kernel, n_states, statistic, theta)
    n = len(states)
    return float(_weighted_statistics(stein, states, np.full((1, n), 1.0 / n), statistic)[0])


@dataclass(frozen=True, eq=False)
class GoodnessOfFit:
    """Outcome of a test of fit.

    Attributes
    ----------
    statistic : float
        The squared kernel Stein discrepancy.
    p_value : float
        Share of bootstrap values at least as large, counting the sample itself.
    bootstrap : ndarray of shape (n_bootstrap,)
        The bootstrap values of the statistic, were the sample from p.
    """

    statistic: float
    p_value: float
    bootstrap: np.ndarray = field(repr=False)


def ksd_test(
    samples: Points,
    log_prob: LogProb,
    kernel: Kernel,
    n_states: int | None = None,
    n_bootstrap: int = 1000,
    statistic: Statistic = "u",
    rng: Any = None,
    theta: Any = None,
) -> GoodnessOfFit:
    r"""Bootstrap test of the hypothesis that a sample comes from an unnormalised distribution.

    The statistic of `ksd` is compared with its bootstrap values

    .. math:: \sum_{i \ne j} (w_i - 1/n) (w_j - 1/n) k_p(x_i, x_j),

    (all i, j for V), n w multinomial: the null distribution of a degenerate statistic (Arcones
    and Gine, 1992; Liu, Lee and Jordan, 2016). The draws are taken as independent; thin a Markov
    chain first.

    Parameters
    ----------
    samples, log_prob, kernel, n_states, statistic
        As for `ksd`.
    n_bootstrap : int
        Number of bootstrap values.
    rng : None, int or numpy.random.Generator

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_bayessum.kernels import ExpHamming
    >>> x = np.random.default_rng(1).integers(0, 3, (200, 5))
    >>> wrong = ksd_test(x, lambda x: 0.8 * x.sum(axis=1), ExpHamming(0.3), 3, rng=0)
    >>> wrong.p_value < 0.01
    True
    """
    stein, states = _checked_sample(samples, log_prob, kernel, n_states, statistic, theta)
    count = integer("n_bootstrap", n_bootstrap, 1)
    n = len(states)
    draws = as_generator(rng).multinomial(n, np.full(n, 1.0 / n), size=count)
    weights = (draws - 1.0) / n
    # The sample itself is one more row of weights, so that one pass over the pairs serves all.
    weights = np.vstack([weights, np.full(n, 1.0 / n)])
    values = _weighted_statistics(stein, states, weights, statistic)
    observed, bootstrap = float(values[-1]), values[:-1]
    p_value = (1 + int((bootstrap >= observed).sum())) / (count + 1)
    return GoodnessOfFit(observed, p_value, bootstrap)


def _weighted_statistics(
    stein: Stein, states: np.ndarray, weights: np.ndarray, statistic: str
) -> np.ndarray:
    """Sum w_i w_j k_p(x_i, x_j) for each row w; for "u" over i != j, times n / (n - 1)."""
    n = len(states)
    sums = np.zeros(len(weights))
    for rows, columns, block in upper_blocks(stein.on(states), n):
        if rows == columns and statistic == "u":
            np.fill_diagonal(block, 0.0)
        part = ((weights[:, rows] @ block) * weights[:, columns]).sum(axis=1)
        sums += part if rows == columns else 2.0 * part
    return sums * (n / (n - 1)) if statistic == "u" else sums


def _stein(kernel: Kernel, log_prob: Any, n_states: int | None, theta: Any) -> Stein:
    """Stein kernel of a log-probability with its number of states, or of a family at theta."""
    if hasattr(log_prob, "statistics"):
        family, n_states = log_prob, getattr(log_prob, "n_states", None)
        if theta is None:
            raise ValueError("theta must be given with a family: the member to compare with")
        if n_states is None:
            raise ValueError("a family must have sites and n_states for Stein's method")
        vector = np.asarray(theta, dtype=float)
        log_prob = lambda x: family.statistics(x) @ vector  # noqa: E731
    if n_states is None:
        raise ValueError("n_states must be given")
    if isinstance(kernel, Stein):
        if kernel.log_prob is not log_prob or kernel.n_states != n_states:
            raise ValueError(
                "kernel is a Stein kernel of another log_prob or n_states; give its base kernel"
            )
        return kernel
    if not isinstance(kernel, Kernel):
        raise TypeError(f"kernel must be a Kernel, got {kernel!r}")
    return Stein(kernel, log_prob, n_states)


def _checked_sample(
    samples: Points,
    log_prob: LogProb,
    kernel: Kernel,
    n_states: int | None,
    statistic: str,
    theta: Any,
) -> tuple[Stein, np.ndarray]:
    stein = _stein(kernel, log_prob, n_states, theta)
    states = as_states("samples", samples, stein.n_states)
    if len(states) < 2:
        raise ValueError(f"samples must hold at least two points, got {len(states)}")
    if statistic not in ("u", "v"):
        raise ValueError(f"statistic must be 'u' or 'v', got {statistic!r}")
    return stein, states
