"""Rules: nodes and weights that turn values of a summand into an estimate with a sd.

A zero-mean Gaussian process with kernel k, conditioned on the values y at distinct nodes X, gives
the sum (or expectation) of f under a measure the normal distribution with

    mean      w'y,                w = K^-1 mu,   K = k(X, X),   mu_i = E[k(X, x_i)]
    variance  A * (E[k(X, X')] - w'mu)

with the amplitude A of the kernel. The weights and the unit-amplitude variance depend on the
nodes alone, so they are computed once, before any summand is known (Kang, Briol, Karvonen and
Chen, BayesSum).
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pymc_bayessum.arguments import integer, real
from pymc_bayessum.embeddings import embed
from pymc_bayessum.kernels import Brownian, Kernel
from pymc_bayessum.measures import Geometric, Measure, NegativeBinomial, Poisson
from pymc_bayessum.measures.supports import Points, Support, batch_size, point_keys, take
from pymc_bayessum.solve import Gram, solve

__all__ = [
    "Estimate",
    "Reach",
    "Rule",
    "bayes_sum",
    "geometric_rule",
    "negative_binomial_rule",
    "poisson_rule",
]


@dataclass(frozen=True, eq=False)
class Estimate:
    """An estimated sum or expectation.

    Attributes
    ----------
    mean : float or ndarray
        The estimate.
    sd : float or ndarray
        Its standard deviation: of the posterior for a rule, of the sampling distribution for a
        Monte Carlo method.
    n_evals : int
        How many values of the summand it took.

    Examples
    --------
    >>> Estimate(mean=0.5, sd=0.1, n_evals=10).sd
    0.1
    """

    mean: Any
    sd: Any
    n_evals: int


@dataclass(frozen=True)
class Reach:
    """What a rule answers for.

    Attributes
    ----------
    lowest, highest : int or float or None
        Smallest and largest node where the nodes are numbers, otherwise ``None``. A summand with
        mass far outside is extrapolated, not seen.
    support : Support
        The set that is summed over.
    """

    lowest: float | None
    highest: float | None
    support: Support | None


@dataclass(frozen=True, eq=False)
class Rule:
    """Nodes and weights for sums or expectations under one measure.

    Made by `bayes_sum` and its relatives; not by hand.

    Attributes
    ----------
    nodes : ndarray of shape (N,) or (N, L), or a pair of arrays
        Where the summand is needed.
    weights : ndarray of shape (N,)
        May be negative.
    variance : float
        Posterior variance of the sum for a kernel of amplitude one, never below zero.
    log_base : ndarray of shape (N,)
        Log mass of the measure at the nodes; zeros for counting measure.
    kernel, measure
        What the rule was built from.
    gram : Gram
        The factorised Gram matrix of the nodes.
    reach : Reach
        The nodes' range and the support.
    clipped : float
        How far below zero rounding had pushed the variance before it was set to zero; 0 as a rule.
    log_abs_weights : ndarray of shape (N,)
        Log of the weights' absolute values, which stays finite where a weight underflows.

    Examples
    --------
    >>> import numpy as np
    >>> rule = poisson_rule(3.0, n=20)
    >>> estimate = rule.expectation(rule.nodes**2)       # E[X^2] = 3 + 9
    >>> round(estimate.mean, 6), estimate.n_evals
    (12.0, 20)
    >>> from scipy.special import gammaln
    >>> round(rule.log_sum(-gammaln(rule.nodes + 1)), 6)  # sum of 1/x! is e
    1.0
    """

    nodes: Points
    weights: np.ndarray
    variance: float
    log_base: np.ndarray
    kernel: Kernel | None
    measure: Measure | None
    gram: Gram = field(repr=False)
    reach: Reach
    clipped: float = 0.0
    log_abs_weights: np.ndarray = field(default=None, repr=False)  # type: ignore[arg-type]  # set in __post_init__

    def __post_init__(self) -> None:
        if self.log_abs_weights is None:
            with np.errstate(divide="ignore"):
                object.__setattr__(self, "log_abs_weights", np.log(np.abs(self.weights)))
        for name in ("weights", "log_base", "log_abs_weights"):
            array = np.asarray(getattr(self, name), dtype=float)
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def __len__(self) -> int:
        return len(self.weights)

    def __repr__(self) -> str:
        return (
            f"<Rule of {len(self)} nodes, {self.kernel} under {self.measure}, "
            f"variance {self.variance:.3g}, jitter {self.jitter:.3g}>"
        )

    @property
    def jitter(self) -> float:
        """What was added to the diagonal of the Gram matrix."""
        return self.gram.jitter

    def expectation(self, values: Any, amplitude: float | None = None) -> Estimate:
        r"""Estimate the expectation (for counting measure: the sum) of a function.

        The mean is :math:`w'y` and the sd :math:`\sqrt{A V}` with the unit-amplitude variance V.

        Parameters
        ----------
        values : array_like of shape (..., N)
            The function at the nodes; leading axes hold several functions.
        amplitude : float, optional
            Amplitude A of the kernel. By default its empirical-Bayes value y'K^-1 y / N (with
            N reduced by the dimension of the kernel's free polynomials, if it has any).

        Returns
        -------
        Estimate
            With ``mean`` and ``sd`` of the leading shape, floats when there is none.

        Examples
        --------
        >>> rule = poisson_rule(2.0, n=15)
        >>> round(rule.expectation(rule.nodes).mean, 8)
        2.0
        >>> rule.expectation(rule.nodes, amplitude=4.0).sd == 2.0 * rule.variance**0.5
        True
        """
        y = self._values("values", values)
        if not np.isfinite(y).all():
            raise ValueError("values must be finite, got NaN or infinity among them")
        mean = y @ self.weights
        if amplitude is None:
            spread = self.amplitude(y)
        else:
            spread = np.full(y.shape[:-1], _not_negative("amplitude", amplitude))
        with np.errstate(invalid="ignore"):
            sd = np.sqrt(spread * self.variance) if self.variance else np.zeros(y.shape[:-1])
        return Estimate(_plain(mean), _plain(sd), len(self))

    def amplitude(self, values: Any) -> Any:
        """Return the empirical-Bayes amplitude y'K^-1 y / N of values (..., N) at the nodes.

        It is the maximiser of the likelihood.

        Examples
        --------
        >>> import numpy as np
        >>> from pymc_bayessum.kernels import ExpHamming
        >>> from pymc_bayessum.measures import UniformCategorical
        >>> rule = bayes_sum(ExpHamming(50.0), UniformCategorical(2, 2), [[0, 0], [1, 1]])
        >>> round(rule.amplitude([1.0, 3.0]), 6)
        5.0
        """
        form = self.quadratic_form(values)
        count = self.gram.n_informative
        return form / count if count else form + np.inf

    def quadratic_form(self, values: Any) -> Any:
        """Return y'K^-1 y of values (..., N) at the nodes.

        Examples
        --------
        >>> rule = poisson_rule(2.0, n=3)     # kernel min(x, y) + 1
        >>> float(rule.quadratic_form([1.0, 3.0, 3.0]))
        5.0
        """
        return _plain(self.gram.quadratic_form(self._values("values", values)))

    def log_sum(self, log_values: Any, return_sd: bool = False) -> Any:
        r"""Estimate the log of the sum of exp(log_values) over the whole support.

        The raw summand f is divided by the base mass b at the nodes,

        .. math:: \log \sum_x f(x) \approx \log \sum_i w_i \, f(x_i) / b(x_i),

        a signed log-sum-exp that neither overflows nor underflows.

        Parameters
        ----------
        log_values : array_like of shape (..., N)
            log f at the nodes, ``-inf`` where f is zero.
        return_sd : bool
            Also return the sd of the logarithm: the posterior sd of the sum (with the
            empirical-Bayes amplitude) over the sum.

        Returns
        -------
        float or ndarray, or a pair of them
            Of the leading shape.

        Raises
        ------
        ValueError
            Where the signed sum is not positive and so has no logarithm.

        Examples
        --------
        >>> rule = geometric_rule(0.5, n=40)
        >>> log_f = -0.7 * rule.nodes         # a geometric series
        >>> import math
        >>> abs(rule.log_sum(log_f) + math.log1p(-math.exp(-0.7))) < 1e-6
        True
        """
        log_f = self._values("log_values", log_values)
        if np.isnan(log_f).any() or np.isposinf(log_f).any():
            raise ValueError("log_values must be finite or -inf, got NaN or +inf among them")
        if np.isneginf(self.log_base).any():
            raise ValueError(
                f"log_sum divides by the base mass, which is zero at node "
                f"{take(self.nodes, np.flatnonzero(np.isneginf(self.log_base))[0])}"
            )
        exponents = log_f - self.log_base
        terms = exponents + self.log_abs_weights
        shift = terms.max(axis=-1)
        shift = np.where(np.isfinite(shift), shift, 0.0)
        signed = (self.signs * np.exp(terms - shift[..., None])).sum(axis=-1)
        if not (signed > 0.0).all():
            raise ValueError(
                "the signed sum is not positive, so it has no logarithm: the rule cannot answer "
                "for this summand (too few nodes where it is large, or a summand that is zero at "
                f"every node); {int((signed <= 0.0).sum())} of {signed.size} sums are affected"
            )
        answer = _plain(np.log(signed) + shift)
        if not return_sd:
            return answer
        with np.errstate(over="ignore"):
            scaled = np.exp(exponents - (np.log(signed) + shift)[..., None])
            # A ratio f / base beyond all floats leaves the sum known but its sd unbounded.
            bounded = np.isfinite(scaled).all(axis=-1)
            sd = self.expectation(np.where(bounded[..., None], scaled, 0.0)).sd
        return answer, _plain(np.where(bounded, sd, np.inf))

    def _values(self, name: str, values: Any) -> np.ndarray:
        array = np.asarray(values)
        if array.dtype.kind not in "iufb":
            raise TypeError(f"{name} must be real numbers, got an array of dtype {array.dtype}")
        if array.ndim == 0 or array.shape[-1] != len(self):
            raise ValueError(
                f"{name} must have one entry for each of the {len(self)} nodes along its last "
                f"axis, got shape {array.shape}"
            )
        return array.astype(float)

    @property
    def signs(self) -> np.ndarray:
        """Signs of the weights, -1 or +1 (a weight that underflows to zero is positive)."""
        return np.where(self.weights < 0.0, -1.0, 1.0)


def bayes_sum(kernel: Kernel, measure: Measure, nodes: Points, jitter: float | None = None) -> Rule:
    """Build the rule of a kernel, a measure and distinct nodes.

    Solves K w = mu. The Gram matrix is dense and factorised with the smallest jitter that works,
    except on the integers with

    - `Brownian`: the weights are written down, as sums of the hat functions of the nodes, so that
      on consecutive nodes 0..M they are p(0), ..., p(M-1) and P(X >= M);
    - `IntegratedBrownian` and `Matern`: a banded system of well-conditioned differences is solved,
      in a time that grows like N, with no jitter. For `IntegratedBrownian` polynomials up to its
      order are free, so that the weights are exact for them and the posterior mean is the natural
      spline: within the nodes of degree 2 order + 1, beyond the first and last node of degree
      ``order``. Where the summand is not yet negligible at the first node (as at zero), let the
      first two dozen nodes be consecutive, so that the spline's free ends meet no gap;
    - `Polynomial`: solved in polynomials orthonormal on the nodes. With more nodes than its
      degree plus one the Gram matrix is singular; the weights are then the smallest that are
      exact for polynomials of that degree, and the jitter recorded is the smallest of the ladder.

    Parameters
    ----------
    kernel : Kernel
    measure : Measure
    nodes : batch of N points
        Distinct points of the measure's support.
    jitter : float, optional
        Added to the diagonal of K. By default the smallest that makes the factorisation work,
        usually zero; the rule records it.

    Raises
    ------
    ValueError
        For no nodes, repeated nodes, nodes outside of the support, or a jitter too small.

    Examples
    --------
    >>> from pymc_bayessum.kernels import Brownian
    >>> from pymc_bayessum.measures import Counting
    >>> rule = bayes_sum(Brownian(), Counting(4), [0, 2, 4])
    >>> rule.weights
    array([1.5, 2. , 1.5])
    """
    if not isinstance(kernel, Kernel):
        raise TypeError(f"kernel must be a Kernel, got {kernel!r}")
    if not isinstance(measure, Measure):
        raise TypeError(f"measure must be a Measure, got {measure!r}")
    if not kernel.accepts(measure.support):
        embed(kernel, measure)  # raises, and says which kernels live there
    points = distinct_points(measure.support, nodes)
    if jitter is not None:
        jitter = _not_negative("jitter", jitter)
    return Rule(
        nodes=points,
        log_base=measure.log_prob(points),
        kernel=kernel,
        measure=measure,
        reach=reach_of(measure.support, points),
        **solve(kernel, measure, points, jitter)._asdict(),
    )


def poisson_rule(
    mu: float,
    nodes: Points | None = None,
    n: int | None = None,
    kernel: Kernel | None = None,
) -> Rule:
    """Build a rule for sums over the naturals, reweighted by a Poisson distribution.

    ``rule.log_sum(log_f)`` estimates log sum_x f(x) over x = 0, 1, 2, ... from log f at the
    nodes, as the log of E[f(X) / p(X)] with X ~ Poisson(mu). Sound where f decays no slower than
    the Poisson mass, up to smooth factors; for heavier tails use `geometric_rule` or
    `negative_binomial_rule`.

    Parameters
    ----------
    mu : float
        Mean of the base distribution; best near the summand's own.
    nodes : array_like of shape (N,), optional
        Distinct integers from 0 upwards. Give either ``nodes`` or ``n``.
    n : int, optional
        Take the consecutive nodes 0, 1, ..., n - 1.
    kernel : Kernel, optional
        By default ``Brownian(1.0)``, k(x, y) = min(x, y) + 1. On consecutive nodes it sums f
        exactly up to the last node, and beyond it takes f / p for constant.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.special import gammaln
    >>> rule = poisson_rule(2.0, n=30)
    >>> x = rule.nodes
    >>> round(rule.log_sum(x * np.log(1.5) - gammaln(x + 1)), 10)  # sum of 1.5^x / x! is e^1.5
    1.5
    """
    return _naturals_rule(Poisson(mu), nodes, n, kernel)


def negative_binomial_rule(
    successes: float,
    p: float,
    nodes: Points | None = None,
    n: int | None = None,
    kernel: Kernel | None = None,
) -> Rule:
    """Build a rule for sums over the naturals, reweighted by a negative binomial distribution.

    Parameters
    ----------
    successes, p : float
        The distribution has mass C(x + successes - 1, x) p^successes (1 - p)^x.
    nodes, n, kernel
        As for `poisson_rule`.

    Examples
    --------
    >>> rule = negative_binomial_rule(2.0, 0.3, n=80)
    >>> import math
    >>> abs(rule.log_sum(rule.nodes * math.log(0.5)) - math.log(2.0)) < 1e-10
    True
    """
    return _naturals_rule(NegativeBinomial(successes, p), nodes, n, kernel)


def geometric_rule(
    p: float,
    nodes: Points | None = None,
    n: int | None = None,
    kernel: Kernel | None = None,
) -> Rule:
    """Build a rule for sums over the naturals, reweighted by a geometric distribution.

    Parameters
    ----------
    p : float
        The distribution has mass p (1 - p)^x.
    nodes, n, kernel
        As for `poisson_rule`.

    Examples
    --------
    >>> rule = geometric_rule(0.2, n=100)
    >>> import math
    >>> abs(rule.log_sum(rule.nodes * math.log(0.5)) - math.log(2.0)) < 1e-10
    True
    """
    return _naturals_rule(Geometric(p), nodes, n, kernel)


def distinct_points(support: Support | None, nodes: Points) -> Points:
    """Return nodes in their usual form; raise unless they are distinct points (of a support).

    Examples
    --------
    >>> from pymc_bayessum.measures import Naturals
    >>> distinct_points(Naturals(), [3.0, 1.0])
    array([3, 1])
    """
    if not isinstance(nodes, tuple) and np.ndim(nodes) == 0:
        raise ValueError(f"nodes must be a batch of points, got the single value {nodes!r}")
    if not isinstance(nodes, tuple) and np.size(nodes) == 0:
        raise ValueError("nodes must hold at least one point, got none")
    if support is None:
        points = tuple(map(np.asarray, nodes)) if isinstance(nodes, tuple) else np.asarray(nodes)
    else:
        try:
            points = support.as_points(nodes)
        except (TypeError, ValueError) as error:
            raise type(error)(f"nodes: {error}") from None
    if batch_size(points) == 0:
        raise ValueError("nodes must hold at least one point, got none")
    if support is not None and not (inside := np.asarray(support.contains(points))).all():
        some = _some(points, np.flatnonzero(~inside))
        raise ValueError(f"nodes must lie in {support}, got {some} outside of it")
    first: dict[Any, int] = {}
    repeated = [i for i, key in enumerate(point_keys(points)) if first.setdefault(key, i) != i]
    if repeated:
        raise ValueError(
            f"nodes must be distinct, got {_some(points, np.array(repeated))} more than once"
        )
    return points


def reach_of(support: Support, points: Points) -> Reach:
    """Describe what a rule with these nodes answers for."""
    if isinstance(points, tuple) or points.ndim != 1:
        return Reach(None, None, support)
    return Reach(points.min().item(), points.max().item(), support)


def _naturals_rule(
    base: Measure, nodes: Points | None, n: int | None, kernel: Kernel | None
) -> Rule:
    if (nodes is None) == (n is None):
        raise ValueError(
            "give either nodes (distinct integers) or n (for nodes 0, ..., n - 1), "
            f"got nodes={nodes!r} and n={n!r}"
        )
    if nodes is None:
        nodes = np.arange(integer("n", n, 1))
    return bayes_sum(Brownian(1.0) if kernel is None else kernel, base, nodes)


def _not_negative(name: str, value: Any) -> float:
    number = real(name, value)
    if number < 0.0:
        raise ValueError(f"{name} must not be negative, got {number}")
    return number


def _plain(array: np.ndarray) -> Any:
    """Return a float in place of an array without axes."""
    return float(array) if np.ndim(array) == 0 else array


def _some(points: Points, index: np.ndarray, most: int = 5) -> str:
    shown = [str(take(points, i)) for i in index[:most]]
    return ", ".join(shown) + (f" and {len(index) - most} more" if len(index) > most else "")
