"""Models with unknown constants: CMP on the sales data, and a Potts model of sequences."""

import time
from collections.abc import Iterator

import numpy as np
from scipy.optimize import minimize
from scipy.special import gammaln, logsumexp

from pymc_bayessum import bayes_sum, cmp_log_z, datasets, ksd, measures, poisson_rule
from pymc_bayessum.kernels import Brownian, ExpHamming

from .records import Record

# CMP on the sales data


def sales_moments() -> tuple[float, float, int]:
    """Sufficient statistics: mean count, mean log factorial, number of rows."""
    frame = datasets.sales(histogram=True)
    x, weight = (frame[name].to_numpy(dtype=float) for name in ("sales", "frequency"))
    total = weight.sum()
    return float(weight @ x / total), float(weight @ gammaln(x + 1.0) / total), int(total)


def series_log_z(lam: float, nu: float, terms: int = 20_000) -> float:
    """Plain sum of many terms; the summand falls below 1e-300 long before the end here."""
    x = np.arange(terms)
    return float(logsumexp(x * np.log(lam) - nu * gammaln(x + 1.0)))


def best_cmp(log_z, start: tuple[float, float]) -> np.ndarray:
    mean, mean_log, _ = sales_moments()

    def loss(log_parameters: np.ndarray) -> float:
        lam, nu = np.exp(log_parameters)
        value = float(log_z(lam, nu))
        return value - mean * np.log(lam) + nu * mean_log if np.isfinite(value) else 1e10

    found = minimize(
        loss,
        np.log(start),
        method="Nelder-Mead",
        options={"xatol": 1e-10, "fatol": 1e-14, "maxiter": 2000},
    )
    return np.exp(found.x)


def standard_errors(parameters: np.ndarray) -> np.ndarray:
    """From the observed information, with moments of the long series."""
    lam, nu = parameters
    x = np.arange(20_000)
    log_p = x * np.log(lam) - nu * gammaln(x + 1.0)
    p = np.exp(log_p - logsumexp(log_p))
    statistics = np.stack([x / lam, -gammaln(x + 1.0)])
    mean = statistics @ p
    information = (statistics * p) @ statistics.T - np.outer(mean, mean)
    # The second derivative of x log(lam) in lam adds (mean of the data - E[x]) / lam^2 = 0.
    return np.sqrt(np.diag(np.linalg.inv(sales_moments()[2] * information)))


def descend(weights_of, steps: int, rate: float = 1e-3) -> np.ndarray:
    """Gradient descent on (lam, nu) from (0.5, 1.2), kept positive, as in the literature."""
    mean, mean_log, _ = sales_moments()
    lam, nu = 0.5, 1.2
    for step in range(steps):
        x, log_base, weights = weights_of(step)
        log_factorial = gammaln(x + 1.0)
        terms = x * np.log(lam) - nu * log_factorial - log_base
        share = weights * np.exp(terms - terms.max())
        share = share / share.sum()
        lam += rate * (mean - share @ x) / lam
        nu += rate * (share @ log_factorial - mean_log)
        lam, nu = max(lam, 1e-6), max(nu, 0.0)
    return np.array([lam, nu])


def sales(seeds: int, quick: bool = False) -> Iterator[Record]:
    """Fit by the exact series, the default rule, ten-node rules and Monte Carlo."""
    mean, _, _ = sales_moments()
    begin = time.perf_counter()
    exact = best_cmp(series_log_z, (0.9, 0.15))
    spent = time.perf_counter() - begin
    sd = standard_errors(exact)
    log_z = series_log_z(*exact)

    def report(
        method: str, n: int, seed: int, found: np.ndarray, seconds: float, setting: str = ""
    ):
        for name, value, true, error in zip(("lam", "nu"), found, exact, sd, strict=True):
            yield Record(
                "cmp",
                "sales",
                method,
                n,
                seed,
                float(value),
                float(error),
                float(true),
                name,
                setting,
                seconds,
            )

    def log_z_error(method: str, n: int, value: float, seed: int = 0):
        return Record("cmp", "sales", method, n, seed, value, exact=log_z, quantity="log Z")

    yield from report("exact series", 20_000, 0, exact, spent)
    cmp_log_z(0.0, 1.0)  # compiles; the times below are of warm code
    begin = time.perf_counter()
    ours = best_cmp(lambda lam, nu: cmp_log_z(np.log(lam), nu), (0.9, 0.15))
    yield from report("default rule", 96, 0, ours, time.perf_counter() - begin)
    yield log_z_error("default rule", 96, float(cmp_log_z(np.log(exact[0]), exact[1])))

    # min(x, y) gives no weight to zero: nine of the ten nodes 0, ..., 9 are left.
    ten = {
        "ten nodes, min(x, y)": bayes_sum(Brownian(0.0), measures.Poisson(mean), np.arange(1, 10)),
        "ten nodes, min(x, y) + 1": poisson_rule(mean, n=10),
    }
    for method, rule in ten.items():
        x = rule.nodes.astype(float)
        summand = x * np.log(exact[0]) - exact[1] * gammaln(x + 1.0)
        yield log_z_error(method, 10, rule.log_sum(summand))
        for steps in (800,) if quick else (800, 8000):
            begin = time.perf_counter()
            found = descend(lambda step, r=rule, x=x: (x, r.log_base, r.weights), steps)
            seconds = time.perf_counter() - begin
            yield from report(method, 10, 0, found, seconds, f"{steps} steps")
    base = measures.Poisson(mean)
    for seed in range(seeds):
        rng = np.random.default_rng(seed)

        def fresh(step: int, rng=rng):
            x = base.sample(30, rng).astype(float)
            return x, base.log_prob(x), np.full(30, 1.0 / 30.0)

        begin = time.perf_counter()
        found = descend(fresh, 800)
        seconds = time.perf_counter() - begin
        yield from report("Monte Carlo, 30 draws", 30, seed, found, seconds, "800 steps")


# A Potts model of sequences

N_SITES, N_STATES, BETA = 15, 3, 1.0 / 2.269
FREQUENCIES = np.array([0.4, 0.4, 0.2])
FIRST, SECOND = np.triu_indices(N_SITES, 1)
N_FIELDS = N_SITES * N_STATES
DECAY = 0.1104
#: Sites split in two, so that all 3^15 points are the pairs of two short lists.
HALF = 7


def one_hot(x: np.ndarray) -> np.ndarray:
    return (x[:, :, None] == np.arange(N_STATES)).reshape(len(x), -1).astype(float)


def statistics(x: np.ndarray) -> np.ndarray:
    """Sufficient statistics times beta: a field for each state of a site, a coupling a pair."""
    return BETA * np.hstack([one_hot(x), x[:, FIRST] == x[:, SECOND]])


def sequences(seed: int, n: int = 2000) -> np.ndarray:
    return np.random.default_rng([seed, 2000]).choice(N_STATES, (n, N_SITES), p=FREQUENCIES)


def discrepancy(log_prob, x: np.ndarray) -> float:
    return ksd(x, log_prob, ExpHamming(DECAY), N_STATES)


def conditional_products(
    theta: np.ndarray, data: np.ndarray, n_parts: int, rng: np.random.Generator
) -> measures.Mixture:
    """Mixture of products of the sites' conditionals given rows of the data."""
    around = data[rng.integers(0, len(data), n_parts)]
    couplings = np.zeros((N_SITES, N_SITES))
    couplings[FIRST, SECOND] = theta[N_FIELDS:]
    couplings += couplings.T
    hot = one_hot(around).reshape(n_parts, N_SITES, N_STATES)
    field = theta[:N_FIELDS].reshape(N_SITES, N_STATES)
    field = BETA * (field + np.einsum("ij,mis->mjs", couplings, hot))
    probs = np.exp(field - logsumexp(field, axis=2, keepdims=True))
    parts = [measures.ProductCategorical(p) for p in probs]
    return measures.Mixture(np.full(n_parts, 1.0 / n_parts), parts)


def train(
    data: np.ndarray, n: int, method: str, seed: int, refresh: int, steps: int = 1000
) -> np.ndarray:
    """Adam on the log-likelihood with an estimated constant, nodes drawn again now and then."""
    rng = np.random.default_rng(seed)
    theta = 0.01 * rng.normal(size=N_FIELDS + len(FIRST))
    target = statistics(data).mean(axis=0)
    first, second = np.zeros_like(theta), np.zeros_like(theta)
    for step in range(steps):
        if step % refresh == 0:
            base = conditional_products(theta, data, 10, rng)
            if method == "MC":
                x = base.sample(n, rng)
                weights, log_base = np.full(n, 1.0 / n), base.log_prob(x)
            else:
                x = base.sample_distinct(n, rng)
                rule = bayes_sum(ExpHamming(DECAY), base, x)
                weights, log_base = rule.weights, rule.log_base
            features = statistics(x)
        terms = features @ theta - log_base
        share = weights * np.exp(terms - terms.max())
        if share.sum() <= 0.0:
            # The rule has no answer this far from where its nodes were drawn.
            share = np.exp(terms - terms.max())
        slope = target - share @ features / share.sum()
        first = 0.9 * first + 0.1 * slope
        second = 0.999 * second + 0.001 * slope**2
        size = first / (1.0 - 0.9 ** (step + 1))
        theta = theta + 1e-3 * size / (np.sqrt(second / (1.0 - 0.999 ** (step + 1))) + 1e-8)
    return theta


def exact_fit(data: np.ndarray) -> np.ndarray:
    """Maximum likelihood with the constant summed over all 3^15 points."""
    left, right = (
        measures.UniformCategorical(size, N_STATES).support.enumerate()
        for size in (HALF, N_SITES - HALF)
    )
    hot_left, hot_right = one_hot(left), one_hot(right)
    inside_left, inside_right = SECOND < HALF, FIRST >= HALF
    across = ~(inside_left | inside_right)
    agree_left = (left[:, FIRST[inside_left]] == left[:, SECOND[inside_left]]).astype(float)
    agree_right = (
        right[:, FIRST[inside_right] - HALF] == right[:, SECOND[inside_right] - HALF]
    ).astype(float)
    target = statistics(data).mean(axis=0)
    cut = HALF * N_STATES

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        field, coupling = theta[:N_FIELDS], theta[N_FIELDS:]
        bridge = np.zeros((HALF, N_SITES - HALF))
        bridge[FIRST[across], SECOND[across] - HALF] = coupling[across]
        energy = hot_left @ np.kron(bridge, np.eye(N_STATES)) @ hot_right.T
        energy += (hot_left @ field[:cut] + agree_left @ coupling[inside_left])[:, None]
        energy += hot_right @ field[cut:] + agree_right @ coupling[inside_right]
        energy *= BETA
        top = energy.max()
        p = np.exp(energy - top)
        total = p.sum()
        p /= total
        side_left, side_right = p.sum(axis=1), p.sum(axis=0)
        joint = (hot_left.T @ p @ hot_right).reshape(HALF, N_STATES, N_SITES - HALF, N_STATES)
        equal = np.einsum("isjs->ij", joint)
        mean = np.empty(len(theta))
        mean[:N_FIELDS] = np.concatenate([side_left @ hot_left, side_right @ hot_right])
        pairs = mean[N_FIELDS:]
        pairs[inside_left], pairs[inside_right] = side_left @ agree_left, side_right @ agree_right
        pairs[across] = equal[FIRST[across], SECOND[across] - HALF]
        return float(np.log(total) + top - theta @ target), BETA * mean - target

    start = np.zeros(N_FIELDS + len(FIRST))
    return minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 60}).x


def potts(seeds: int, quick: bool = False) -> Iterator[Record]:
    """Squared discrepancy of trained models to fresh data, with the time training took."""
    data, fresh = sequences(0), sequences(1)
    log_frequencies = np.log(FREQUENCIES)
    true = discrepancy(lambda x: log_frequencies[x].sum(axis=1), fresh)
    yield Record("potts", "sequences", "true model", 0, 0, true, quantity="ksd2")
    if not quick:
        theta = exact_fit(data)
        value = discrepancy(lambda x: statistics(x) @ theta, fresh)
        yield Record("potts", "sequences", "exact constant", 3**15, 0, value, quantity="ksd2")
    for refresh in (20,) if quick else (100, 20):
        for n in (50,) if quick else (50, 100, 200, 400):
            for method in ("MC", "BayesSum"):
                for seed in range(seeds):
                    begin = time.perf_counter()
                    theta = train(data, n, method, seed, refresh)
                    seconds = time.perf_counter() - begin
                    value = discrepancy(lambda x, theta=theta: statistics(x) @ theta, fresh)
                    yield Record(
                        "potts",
                        "sequences",
                        method,
                        n,
                        seed,
                        value,
                        quantity="ksd2",
                        setting=f"refresh {refresh}",
                        seconds=seconds,
                    )
