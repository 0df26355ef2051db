"""Families of a user's own: exact sums, anchors, draws, groups, and answers to bad input."""

import itertools

import arviz as az
import numpy as np
import pymc as pm
import pytest
from scipy.special import logsumexp, softmax

import pymc_bayessum as pbs
from pymc_bayessum.exponential.listing import ListedSum, distinct
from pymc_bayessum.exponential.pairwise import GibbsChain, find_pairwise


def chain_statistics(x):
    """Sum of a row, and neighbours that agree."""
    return np.stack([x.sum(axis=1), (x[:, 1:] == x[:, :-1]).sum(axis=1)], axis=1)


def triple_statistics(x):
    """Sum of a row, and a product of three sites: not pairwise."""
    return np.stack([x.sum(axis=1), x[:, 0] * x[:, 1] * x[:, 2]], axis=1)


def chain_log_z(theta, sites, n_states=2):
    """Log Z of the chain by transfer matrices."""
    weight = np.exp(theta[0] * np.arange(n_states))
    transfer = np.exp(theta[1] * np.eye(n_states)) * weight
    total = weight
    for _ in range(sites - 1):
        total = total @ transfer
    return np.log(total.sum())


def swap_two(state, rng):
    i, j = rng.integers(0, len(state)), rng.integers(0, len(state))
    kept = state[i]
    state[i] = state[j]
    state[j] = kept
    return state


def kendall(x):
    """Inversions of rankings, with a minus sign."""
    n = x.shape[1]
    total = np.zeros(len(x))
    for i in range(n):
        for j in range(i + 1, n):
            total += x[:, i] > x[:, j]
    return -total.reshape(-1, 1)


@pytest.fixture(scope="module")
def small():
    return pbs.Family(chain_statistics, sites=6, n_states=3, names=["sum", "agree"])


@pytest.fixture(scope="module")
def rows(small):
    return small.sample([-0.2, 0.7], 40, np.random.default_rng(0))


@pytest.fixture(scope="module")
def model(small, rows):
    with pm.Model() as model:
        theta = pm.Normal("theta", 0.0, 1.0, shape=2)
        x = pbs.ExponentialFamily("x", theta, family=small, observed=rows)
        pm.Deterministic("phi", pbs.ExponentialFamily.statistics(x))
    return model


def test_log_likelihood_is_that_of_the_list(model, rows):
    logp = model.compile_logp(vars=model.observed_RVs, sum=False)
    for theta in ([0.0, 0.0], [-0.4, 1.2], [3.0, -2.0]):
        wanted = chain_statistics(rows) @ theta - chain_log_z(np.array(theta), 6, 3)
        np.testing.assert_allclose(logp({"theta": np.array(theta)})[0], wanted, rtol=1e-10)


def test_gradient_is_observed_less_expected(model, rows, small):
    slope = model.compile_dlogp(vars=[model["theta"]])({"theta": np.array([0.3, -0.4])})
    states = np.array(list(itertools.product(range(3), repeat=6)))
    chance = softmax(chain_statistics(states) @ [0.3, -0.4])
    expected = chance @ chain_statistics(states)
    prior = -np.array([0.3, -0.4])
    wanted = (chain_statistics(rows) - expected).sum(axis=0) + prior
    np.testing.assert_allclose(slope, wanted, rtol=1e-8)


def test_predictive_of_the_statistics(model):
    idata = pm.sample(300, tune=200, chains=1, random_seed=0, progressbar=False, model=model)
    quick = {"progressbar": False, "compile_kwargs": {"mode": "FAST_COMPILE"}}
    with model:
        drawn = pm.sample_posterior_predictive(
            idata, var_names=["x", "phi"], random_seed=0, **quick
        ).posterior_predictive
        pm.compute_log_likelihood(idata, **quick)
    states = drawn["x"].values.reshape(-1, 6)
    assert set(np.unique(states)) <= {0, 1, 2}
    found = chain_statistics(states)
    np.testing.assert_array_equal(drawn["phi"].values.reshape(-1, 2), found)
    assert np.isfinite(az.loo(idata).elpd)


def test_states_outside_have_no_probability(small):
    dist = pbs.ExponentialFamily.dist([0.1, 0.2], family=small)
    assert pm.logp(dist, np.full(6, 3)).eval() == -np.inf
    data = pm.pytensorf.pt.lmatrix("data")
    symbolic = pm.logp(dist, data).eval({data: np.array([[0] * 6, [1, 1, 1, 1, 1, 4]])})
    assert np.isclose(symbolic[0], 5 * 0.2 - chain_log_z(np.array([0.1, 0.2]), 6, 3))
    assert symbolic[1] == -np.inf


def test_draws_follow_the_list(small):
    theta = np.array([0.3, 0.5])
    drawn = pm.draw(pbs.ExponentialFamily.dist(theta, family=small), 4000, random_seed=1)
    listed, times = small.listing
    chance = softmax(listed @ theta + np.log(times))
    mean = chance @ listed
    sd = np.sqrt(chance @ (listed - mean) ** 2)
    away = chain_statistics(drawn).mean(axis=0) - mean
    assert (np.abs(away) < 4.0 * sd / np.sqrt(4000)).all()


@pytest.mark.usefixtures("plain")
def test_groups_have_parameters_of_their_own(small):
    group = np.array([0, 1, 1, 0, 2])
    x = small.sample([0.0, 0.5], 5, np.random.default_rng(3))
    value = np.array([[0.1, 0.2], [-0.3, 0.4], [0.5, 0.0]])
    wanted = [
        chain_statistics(row[None])[0] @ value[g] - chain_log_z(value[g], 6, 3)
        for row, g in zip(x, group, strict=True)
    ]
    with pm.Model() as looked_up:
        theta = pm.Normal("theta", shape=(3, 2))
        pbs.ExponentialFamily("x", theta[group], family=small, observed=x)
    logp = looked_up.compile_logp(vars=looked_up.observed_RVs, sum=False)({"theta": value})[0]
    np.testing.assert_allclose(logp, wanted, rtol=1e-10)
    with pm.Model() as each:
        theta = pm.Normal("theta", shape=(5, 2))
        pbs.ExponentialFamily("x", theta, family=small, observed=x)
    logp = each.compile_logp(vars=each.observed_RVs, sum=False)({"theta": value[group]})[0]
    np.testing.assert_allclose(logp, wanted, rtol=1e-10)


def test_groups_are_anchored_as_well_as_listed():
    family = pbs.Family(chain_statistics, sites=8, n_states=2)
    rng, group = np.random.default_rng(3), np.repeat([0, 1, 2], 8)
    truth = np.array([[-0.5, 0.6], [0.2, 0.0], [0.6, 1.0]])
    x = np.concatenate([family.sample(one, 8, rng) for one in truth])
    with pm.Model() as model:
        theta = pm.Normal("theta", 0.0, 1.0, shape=(3, 2))
        # Six seeds leave .002 to .015 in one group or another.
        how = {"normalizer": "anchored", "random_seed": 5}
        pbs.ExponentialFamily("x", theta[group], family=family, observed=x, **how)
    log_z = model["x"].owner.op.normalizer.unknown.normalizer.log_z
    axes = np.linspace(-1.8, 1.8, 31), np.linspace(-1.5, 2.5, 31)
    grid = np.array(list(itertools.product(*axes)))
    found, listed = log_z(np, grid), [chain_log_z(t, 8) for t in grid]
    for one in range(3):
        energy = grid @ chain_statistics(x[group == one]).sum(axis=0) - (grid**2).sum(axis=1) / 2
        ours, exact = softmax(energy - 8 * found), softmax(energy - 8 * np.array(listed))
        assert np.abs(ours - exact).sum() / 2 < 0.01


@pytest.mark.usefixtures("plain")
def test_theta_may_be_a_regression_or_scalars(small, rows):
    covariate = np.array([[1.0, 0.5], [0.0, 2.0]])
    with pm.Model() as regression:
        beta = pm.Normal("beta", shape=2)
        pbs.ExponentialFamily("x", (covariate * beta).sum(axis=1), family=small, observed=rows)
    with pm.Model() as scalars:
        first, second = pm.Normal("first"), pm.Normal("second")
        pbs.ExponentialFamily("x", [first, second], family=small, observed=rows)
    one = regression.compile_logp(vars=regression.observed_RVs)({"beta": np.array([0.4, -0.1])})
    point = {"first": np.float64(0.35), "second": np.float64(-0.2)}
    other = scalars.compile_logp(vars=scalars.observed_RVs)(point)
    assert np.isclose(one, other)


@pytest.mark.parametrize("forced", [False, True])
def test_anchored_posterior_is_the_exact_one(forced):
    sites = 8 if forced else 30
    family = pbs.Family(chain_statistics, sites=sites, n_states=2)
    x = family.sample([-0.2, 0.6], 4, np.random.default_rng(5))
    with pm.Model() as model:
        theta = pm.Normal("theta", 0.0, 1.0, shape=2)
        normalizer = "anchored" if forced else None
        pbs.ExponentialFamily("x", theta, family=family, observed=x, normalizer=normalizer)
    logp = model.compile_logp()
    first = np.linspace(-1.0, 0.6, 25)
    second = np.linspace(-0.5, 1.7, 25)
    grid = np.array(list(itertools.product(first, second)))
    total = chain_statistics(x).sum(axis=0)
    exact = np.array([t @ total - 4 * chain_log_z(t, sites) - t @ t / 2 for t in grid])
    found = np.array([logp({"theta": t}) for t in grid])
    assert np.abs(softmax(found) - softmax(exact)).sum() / 2 < 0.01


def test_proposals_make_a_sampler_compiled_or_not():
    everything = np.array(list(itertools.permutations(range(5))))
    compiled = pbs.Family(kendall, propose=swap_two, start=np.arange(5), support=everything)
    compiled.verify()

    def by_object(x):
        return kendall(np.array([list(map(int, row)) for row in x.tolist()]))

    plain = pbs.Family(by_object, propose=swap_two, start=np.arange(5), support=everything)
    assert plain._compiled is None
    assert compiled._compiled is not None
    rng = np.random.default_rng(0)
    theta = np.array([0.6])
    ends = plain._markov(theta).advance(np.tile(np.arange(5), (2000, 1)), 8, rng)
    chance = softmax(kendall(everything) @ theta)
    mean = float(chance @ kendall(everything)[:, 0])
    sd = np.sqrt(chance @ (kendall(everything)[:, 0] - mean) ** 2)
    assert abs(kendall(ends).mean() - mean) < 4.0 * sd / np.sqrt(2000)


def test_mallows_constant_is_the_closed_form():
    rankings = np.array(list(itertools.permutations(range(6))))
    family = pbs.Family(kendall, support=rankings)
    for theta in (0.2, 1.3):
        lengths = np.arange(1, 7)
        closed = np.log(np.expm1(-theta * lengths) / np.expm1(-theta)).sum()
        assert np.isclose(family.exact.log_z(np, np.array([theta])), closed)


def test_pairwise_statistics_are_found_and_drawn_by_gibbs():
    found = find_pairwise(chain_statistics, 5, 3)
    states = np.array(list(itertools.product(range(3), repeat=5)))
    away = chain_statistics(states) - chain_statistics(np.zeros((1, 5), int))
    np.testing.assert_allclose(found.changes(states), away)
    theta = np.array([0.2, 0.9])
    chain = GibbsChain(found, theta)
    rng = np.random.default_rng(0)
    ends = chain_statistics(chain.advance(chain.start(4000, rng), 40, rng))
    chance = softmax(chain_statistics(states) @ theta)
    mean = chance @ chain_statistics(states)
    sd = np.sqrt(chance @ (chain_statistics(states) - mean) ** 2)
    assert (np.abs(ends.mean(axis=0) - mean) < 4.0 * sd / np.sqrt(4000)).all()
    energy = chain.energy(states) - chain_statistics(states) @ theta
    np.testing.assert_allclose(energy, energy[0])
    assert find_pairwise(triple_statistics, 5, 2) is None


def test_statistics_of_any_kind_are_drawn_site_by_site():
    pbs.Family(triple_statistics, sites=4, n_states=2).verify()


def test_samplers_that_break_the_contract_are_found():
    def ignores(theta, n, rng, start):
        return rng.integers(0, 2, (n, 5))

    def leaves(theta, n, rng, start):
        return np.full((n, 5), 2)

    def right(theta, n, rng, start):
        return (rng.random((n, 5)) < 1 / (1 + np.exp(-theta[0]))).astype(int)

    def stuck(state, rng):
        state[0] = 1
        return state

    ones = lambda x: x.sum(axis=1, keepdims=True)  # noqa: E731
    pbs.Family(ones, right, sites=5, n_states=2).verify()
    with pytest.raises(ValueError, match="draws are not those of the family"):
        pbs.Family(ones, ignores, sites=5, n_states=2).verify()
    with pytest.raises(ValueError, match="sample left the support"):
        pbs.Family(ones, leaves, sites=5, n_states=2).verify()
    with pytest.raises(ValueError, match="draws are not those of the family"):
        pbs.Family(ones, propose=stuck, start=np.zeros(5, int), sites=5, n_states=2).verify()
    with pytest.raises(ValueError, match="build a small instance"):
        pbs.Family(ones, right).verify()
    family = pbs.Family(ones, ignores, names=["ones"])
    with pm.Model(), pytest.raises(ValueError, match="sample ignores theta"):
        pbs.ExponentialFamily("x", pm.Normal("t", shape=1), family=family, observed=[0, 1, 1, 0, 1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"statistics": 3}, "statistics must be a function"),
        ({"statistics": chain_statistics}, "needs a way to draw"),
        ({"statistics": chain_statistics, "sites": 3}, "given together"),
        ({"statistics": chain_statistics, "sample": 3}, "sample must be a function"),
        ({"statistics": lambda x: x.sum(axis=1), "sites": 3, "n_states": 2}, "one row for each"),
        (
            {
                "statistics": lambda x: x.sum(axis=0)[None].repeat(len(x), 0),
                "sites": 3,
                "n_states": 2,
            },
            "must not depend on the other states",
        ),
        ({"statistics": lambda x: x / np.zeros(1), "sites": 3, "n_states": 2}, "must be finite"),
        ({"statistics": chain_statistics, "sites": 3, "n_states": 2, "names": ["a"]}, "2 names"),
        ({"statistics": chain_statistics, "support": [0.5]}, "support must hold integers"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_bad_families_are_refused(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        pbs.Family(**arguments)


@pytest.mark.parametrize("sites", [6, 40])
def test_statistics_that_say_the_same_are_named(sites):
    def twice(x):
        ones = x.sum(axis=1)
        return np.stack([ones, chain_statistics(x)[:, 1], x.shape[1] - ones], axis=1)

    family = pbs.Family(twice, sites=sites, n_states=2, names=["ones", "agree", "zeros"])
    with pm.Model(), pytest.raises(ValueError, match=r"collinear: \+1 ones \+1 zeros is the same"):
        pbs.ExponentialFamily("x", np.zeros(3), family=family, observed=np.zeros(sites, int))


def test_a_statistic_that_never_changes_is_named():
    def with_sum(x):
        return np.stack([x.sum(axis=1), np.abs(x - np.arange(x.shape[1])).sum(axis=1)], axis=1)

    family = pbs.Family(with_sum, propose=swap_two, names=["sum", "footrule"])
    with pm.Model(), pytest.raises(ValueError, match="sum is the same for every state"):
        pbs.ExponentialFamily("x", np.zeros(2), family=family, observed=np.arange(9)[::-1])


@pytest.mark.filterwarnings("ignore:The RandomType SharedVariables")
def test_draws_and_statistics_under_jax(small):
    pytest.importorskip("jax")
    theta = np.array([0.3, 0.5])
    states = pbs.ExponentialFamily.dist(theta, family=small, shape=(1000, 6))
    counted = pbs.ExponentialFamily.statistics(states)
    drawn, found = pm.draw([states, counted], mode="JAX", random_seed=1)
    np.testing.assert_array_equal(found, chain_statistics(drawn))
    listed, times = small.listing
    chance = softmax(listed @ theta + np.log(times))
    mean = chance @ listed
    sd = np.sqrt(chance @ (listed - mean) ** 2)
    assert (np.abs(found.mean(axis=0) - mean) < 4.0 * sd / np.sqrt(1000)).all()


def test_bad_models_are_refused(small):
    with pm.Model():
        theta = pm.Normal("theta", shape=3)
        with pytest.raises(ValueError, match=r"theta must have 2 entries \(sum, agree\).*got 3"):
            pbs.ExponentialFamily("x", theta, family=small, observed=np.zeros(6, int))
        with pytest.raises(ValueError, match=r"leading dimensions \(3,\).*states have \(4,\)"):
            pbs.ExponentialFamily(
                "x", np.zeros((3, 2)), family=small, observed=np.zeros((4, 6), int)
            )
        with pytest.raises(ValueError, match="theta must be finite"):
            pbs.ExponentialFamily("x", [np.nan, 0.0], family=small, observed=np.zeros(6, int))
        with pytest.raises(ValueError, match="shape \\(6,\\), got \\(5,\\)"):
            pbs.ExponentialFamily("x", theta[:2], family=small, observed=np.zeros(5, int))
        with pytest.raises(ValueError, match="not in the family's support"):
            pbs.ExponentialFamily("x", theta[:2], family=small, observed=np.full(6, 9))
        with pytest.raises(TypeError, match=r"family must be a pbs\.Family"):
            pbs.ExponentialFamily("x", theta[:2], family="ising", observed=np.zeros(6, int))
        with pytest.raises(ValueError, match="normalizer must be"):
            pbs.ExponentialFamily(
                "x", theta[:2], family=small, observed=np.zeros(6, int), normalizer="magic"
            )
    with pytest.raises(TypeError, match="variable of an exponential family"):
        pbs.ExponentialFamily.statistics(pm.Normal.dist())


def test_equal_rows_are_merged_and_sums_kept():
    rng = np.random.default_rng(0)
    table = rng.integers(0, 3, (500, 2)) * 0.1
    rows, times = distinct(table)
    assert times.sum() == 500
    assert len(rows) == 9
    theta = np.array([0.7, -1.1])
    assert np.isclose(ListedSum(rows, times).log_z(np, theta), logsumexp(table @ theta))


def test_stein_discrepancy_takes_a_family():
    family = pbs.Family(chain_statistics, sites=6, n_states=2)
    theta = np.array([0.3, 0.8])
    x = family.sample(theta, 400, np.random.default_rng(0))
    kernel = pbs.kernels.ExpHamming(0.3)
    by_hand = pbs.ksd(x, lambda x: chain_statistics(x) @ theta, kernel, 2)
    assert np.isclose(pbs.ksd(x, family, kernel, theta=theta), by_hand)
    assert pbs.ksd_test(x, family, kernel, theta=theta, rng=0).p_value > 0.05
    assert pbs.ksd_test(x, family, kernel, theta=[0.0, -0.5], rng=0).p_value < 0.01
    states = np.array(list(itertools.product([0, 1], repeat=6)))
    rule = pbs.stein_rule(kernel, family, states, theta=theta)
    exact = softmax(chain_statistics(states) @ theta) @ chain_statistics(states)
    np.testing.assert_allclose(rule.weights @ chain_statistics(states), exact, rtol=1e-4)
    with pytest.raises(ValueError, match="theta must be given"):
        pbs.ksd(x, family, kernel)
