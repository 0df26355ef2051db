"""Hidden labels: fields of a likelihood, moves, and whole posteriors against enumeration."""

import itertools

import arviz_stats as azs
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.sampling.mcmc import assign_step_methods

import pymc_bayessum as pbs
from pymc_bayessum import graphs
from pymc_bayessum.graphs.label_step import ranked_labels
from pymc_bayessum.graphs.site_fields import sites_of
from pymc_bayessum.graphs.statistics import PottsLayout

MEANS = np.array([-1.0, 0.2, 1.3])


def all_states(n_sites, n_states):
    return np.array(list(itertools.product(range(n_states), repeat=n_sites)))


def marginals(states, log_weights, n_states):
    """Probability of every state of every site, (L, S), by listing."""
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    return np.stack([weights @ (states == s) for s in range(n_states)], axis=1)


def visited(step, model, name, n_steps, labels):
    """Share of steps that each site has each label, and its error by batches."""
    point = model.initial_point(0)
    step.setup_chain(np.random.default_rng(1), 0, n_steps)
    draws = []
    for _ in range(n_steps):
        point, _ = step.step(point)
        draws.append(point[name])
    shares = np.stack([np.equal(draws, label) for label in labels], axis=-1)
    batches = shares.reshape(20, -1, *shares.shape[1:]).mean(axis=1)
    return shares.mean(axis=0), batches.std(axis=0, ddof=1) / np.sqrt(20)


@pytest.mark.parametrize(("n_sites", "n_states"), [(1, 2), (5, 3), (64, 2), (100, 4)])
def test_the_site_of_every_element_is_found(n_sites, n_states):
    rng = np.random.default_rng(n_sites)
    table = rng.normal(size=(n_states, 2 * n_sites + 3))
    table[1, :n_sites] = table[0, :n_sites]  # two labels that only a third tells apart, or none
    table[:, -3:] = 1.0
    site = rng.integers(0, n_sites, table.shape[1])

    def elements(states):
        return table[states[site], np.arange(len(site))]

    found = sites_of(elements, n_sites, n_states, rng)
    differs = np.ptp(table, axis=0) > 0
    np.testing.assert_array_equal(found, np.where(differs, site, -1))


def test_elements_of_two_sites_are_told_whichever_two():
    rng = np.random.default_rng(0)
    for i, j in itertools.combinations(range(9), 2):

        def elements(z, i=i, j=j):
            return np.array([1.0 + z[i] * z[j], z[i] == z[j], z[i] + 0.1 * z[j], 3.0 * z[i]])

        assert sites_of(elements, 9, 2, rng).tolist() == [-2, -2, -2, i]


def test_minus_infinity_is_an_element_like_others_and_nan_is_not():
    rng = np.random.default_rng(0)
    impossible = np.array([[0.0, -np.inf, -1.0], [-np.inf, 0.0, 2.0]])
    found = sites_of(lambda z: impossible[z, [0, 1, 2]], 3, 2, rng)
    assert found.tolist() == [0, 1, 2]
    assert sites_of(lambda z: np.array([np.nan]), 3, 2, rng) is None


@pytest.mark.parametrize("moves", ["gibbs", None])
def test_steps_visit_labels_as_often_as_they_are_probable(moves):
    y = np.random.default_rng(3).normal(size=(3, 3))
    edges = graphs.grid(3, 3)
    h, J = np.array([0.0, 0.3, -0.2]), 0.7
    with pm.Model() as model:
        z = pbs.Potts("z", h, J, edges=edges)
        pm.Normal("y", pt.as_tensor(MEANS)[z].reshape((3, 3)), 1.0, observed=y)
        step = pbs.LabelStep(z, moves=moves)
    states = all_states(9, 3)
    agree = (states[:, edges[:, 0]] == states[:, edges[:, 1]]).sum(axis=1)
    likelihood = -0.5 * ((y.ravel() - MEANS[states]) ** 2).sum(axis=1)
    exact = marginals(states, h[states].sum(axis=1) + J * agree + likelihood, 3)
    found, error = visited(step, model, "z", 4000, (0, 1, 2))
    assert np.all(np.abs(found - exact) < 5 * error + 1e-3)


def test_images_of_spins_with_couplings_of_their_own_each():
    # Three images, the second of them frustrated: no cluster moves there.
    y = np.random.default_rng(5).normal(size=(3, 6))
    edges, J = graphs.ring(6), np.array([0.4, -0.6, 1.1])
    with pm.Model(coords={"image": range(3), "site": range(6)}) as model:
        z = pbs.Ising("z", 0.2, J, edges=edges, coupling="scalar", dims=("image", "site"))
        pm.Normal("y", 0.8 * z, 1.0, observed=y, dims=("image", "site"))
        step = pbs.LabelStep()
    states = all_states(6, 2)
    spins = 2 * states - 1
    products = (spins[:, edges[:, 0]] * spins[:, edges[:, 1]]).sum(axis=1)
    energies = 0.2 * spins.sum(axis=1) + J[:, None] * products + 0.8 * y @ spins.T
    exact = np.stack([marginals(states, energy, 2) for energy in energies])
    found, error = visited(step, model, "z", 3000, (-1, 1))
    assert np.all(np.abs(found - exact) < 5 * error + 1e-3)


def posterior_by_listing(y, edges, n_states, prior_means, prior_sd, at):
    """Moments of J ~ HalfNormal(1) and of m, and marginals of labels; y has noise of sd one.

    Labels are listed, J is summed over a grid, and the means are integrated out label by label.
    """
    states = all_states(len(y), n_states)
    agree = (states[:, edges[:, 0]] == states[:, edges[:, 1]]).sum(axis=1)
    log_z = np.logaddexp.reduce(
        at[:, None] * np.arange(agree.max() + 1) + np.log(np.bincount(agree) + 1e-300), axis=1
    )
    log_prior = -0.5 * at**2 - log_z
    by_count = np.logaddexp.reduce(log_prior[:, None] + at[:, None] * np.arange(agree.max() + 1))
    # A normal mean with a normal prior: the evidence and the posterior mean of every label.
    evidence, means = np.zeros(len(states)), []
    for label in range(n_states):
        mine = states == label
        precision = mine.sum(axis=1) + 1 / prior_sd**2
        pull = mine @ y + prior_means[label] / prior_sd**2
        evidence += -0.5 * (mine @ y**2) + 0.5 * pull**2 / precision - 0.5 * np.log(precision)
        means.append(pull / precision)
    log_weights = evidence + by_count[agree]
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    of_count = np.bincount(agree, weights)
    grid = np.exp(log_prior[:, None] + at[:, None] * np.arange(len(of_count)) - by_count)
    coupling = grid @ of_count
    return (
        coupling @ at,
        np.stack(means, axis=1).T @ weights,
        marginals(states, log_weights, n_states),
    )


def hidden_model(y, edges, n_states, prior_means, prior_sd):
    with pm.Model() as model:
        J = pm.HalfNormal("J", 1.0)
        m = pm.Normal("m", prior_means, prior_sd, initval=prior_means)
        z = pbs.Potts("z", None, J, edges=edges, n_states=n_states)
        pm.Normal("y", m[z], 1.0, observed=y)
    return model


CASES = {"3x3": (3, 3, np.array([-1.2, 0.0, 1.2]), 2), "4x4": (4, 2, np.array([-1.0, 1.0]), 4)}


@pytest.fixture(scope="module", params=CASES, ids=str)
def sampled(request):
    side, n_states, means, seed = CASES[request.param]
    rng = np.random.default_rng(seed)
    truth = (np.indices((side, side)).sum(axis=0) * n_states // (2 * side - 1)).ravel()
    y, edges = rng.normal(means[truth]), graphs.grid(side, side)
    with hidden_model(y, edges, n_states, means, 0.6) as model:
        quiet = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}
        idata = pm.sample(3000, tune=500, chains=2, cores=1, random_seed=1, **quiet)
    exact = posterior_by_listing(y, edges, n_states, means, 0.6, np.linspace(1e-3, 6, 600))
    return model, idata, exact


def test_posterior_of_parameters_and_labels_is_that_of_listing(sampled):
    _, idata, (coupling, means, labels) = sampled
    posterior = idata.posterior.to_dataset()
    n_states = len(means)
    for s in range(n_states):
        posterior[f"is_{s}"] = (posterior["z"] == s).astype(float)
    error = azs.mcse(posterior.drop_vars("z"))
    found = posterior.mean(("chain", "draw"))
    assert abs(found["J"] - coupling) < 4 * error["J"]
    assert np.all(np.abs(found["m"] - means) < 4 * error["m"])
    for s in range(n_states):
        assert np.all(np.abs(found[f"is_{s}"] - labels[:, s]) < 4.5 * error[f"is_{s}"] + 1e-3)


def test_pm_sample_finds_the_step_by_itself(sampled):
    model, idata, _ = sampled
    _, chosen = assign_step_methods(model)
    assert [value.name for value in chosen[pbs.LabelStep]] == ["z"]
    assert 0 < float(idata.sample_stats["changed"].mean()) < 1


@pytest.mark.usefixtures("plain")
def test_posterior_predictive_follows_the_labels(sampled):
    model, idata, _ = sampled
    some = idata.isel(draw=slice(None, None, 20))
    with model:
        predicted = pm.sample_posterior_predictive(some, random_seed=1, progressbar=False)
    values = predicted.posterior_predictive["y"]
    expected = some.posterior["m"].isel(m_dim_0=some.posterior["z"].rename(z_dim_0="y_dim_0"))
    assert abs(float((values - expected).mean())) < 5 / np.sqrt(values.size)
    assert float((values - expected).std()) == pytest.approx(1.0, abs=5 / np.sqrt(2 * values.size))


def test_the_check_reads_hidden_labels_and_models_with_initial_values(sampled):
    model, idata, _ = sampled
    before = dict(model.rvs_to_initial_values)
    check = pbs.check_normalizer(idata.isel(draw=slice(None, None, 100)), model, progressbar=False)
    assert check["normalizer"].attrs["verdict"] == "good"
    assert all(np.array_equal(before[rv], model.rvs_to_initial_values[rv]) for rv in before)


def step_with(likelihood, **kwargs):
    """Build the step of nine labels with some likelihood, a function of their means."""
    with pm.Model() as model:
        m = pm.Normal("m", 0.0, 1.0, shape=2)
        z = pbs.Potts("z", None, 0.5, edges=graphs.grid(3, 3), n_states=2)
        likelihood(m[z], m)
        return pbs.LabelStep([z], **kwargs), model


BLUR = np.eye(9) + 0.1 * np.eye(9, k=1)


@pytest.mark.parametrize(
    "likelihood",
    [
        lambda at, m: pm.Normal("y", (BLUR * at).sum(axis=1), 1.0, observed=np.zeros(9)),
        lambda at, m: pm.Normal("y", at - at.mean(), 1.0, observed=np.zeros(9)),
        lambda at, m: pm.Potential("y", pm.logp(pm.Normal.dist(at, 1.0), np.zeros(9)).sum()),
        lambda at, m: pm.Potential("y", -((at[1:] - at[:-1]) ** 2)),
    ],
    ids=["blur", "mean", "sum", "differences"],
)
def test_a_likelihood_that_does_not_factorise_is_refused(likelihood):
    with pytest.raises(ValueError, match=r"y does not factorise over the sites of z.*Metropolis"):
        step_with(likelihood)


def test_labels_and_data_of_other_sizes_are_refused():
    with pytest.raises(ValueError, match=r"labels of shape \(9,\), one for each of the 9 sites"):
        step_with(lambda at, m: pm.Normal("y", at, 1.0, observed=np.zeros(4)))
    start = {"z": np.zeros(4, dtype=int), "m": np.zeros(2)}
    with pytest.raises(ValueError, match=r"z must start from labels of shape \(\.\.\., 9\)"):
        step_with(lambda at, m: pm.Normal("y", at, observed=np.zeros(9)), initial_point=start)
    start["z"] = np.full(9, 2)
    with pytest.raises(ValueError, match=r"z must start from labels 0 \.\. 1, got \[2\]"):
        step_with(lambda at, m: pm.Normal("y", at, observed=np.zeros(9)), initial_point=start)


def test_a_step_without_hidden_labels_is_refused():
    with pm.Model():
        m = pm.Normal("m")
        seen = pbs.Potts(
            "seen", None, m, edges=graphs.ring(4), n_states=2, observed=np.zeros(4, int)
        )
        with pytest.raises(ValueError, match="the model has none"):
            pbs.LabelStep()
        with pytest.raises(ValueError, match=r"vars must be labels of pbs\.Potts.*m is normal"):
            pbs.LabelStep([m])
        with pytest.raises(ValueError, match="seen is observed"):
            pbs.LabelStep(seen)
        with pytest.raises(ValueError, match="vars must be variables of the model"):
            pbs.LabelStep(pm.Normal.dist())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"sweeps": 0}, "sweeps must be"), ({"moves": "metropolis"}, "moves must be None or one of")],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        step_with(lambda at, m: pm.Normal("y", at, observed=np.zeros(9)), **arguments)


@pytest.mark.usefixtures("plain")
def test_several_measurements_some_missing_and_data_in_another_order_make_the_same_fields():
    rng = np.random.default_rng(0)
    y = rng.normal(size=(2, 9))
    order, seen = rng.permutation(9), np.arange(9) != 4

    def plain(at, m):
        pm.Normal("y", at, 1.0, observed=y)

    def scattered(at, m):
        pm.Normal("first", at[order], 1.0, observed=y[0, order])
        pm.Normal("second", at, 1.0, observed=y[1])

    def missing(at, m):
        pm.Normal("y", at[seen], 1.0, observed=y[0, seen])

    point = {"m": np.array([-1.0, 2.0]), "z": np.zeros(9, dtype=int)}
    likelihood = -0.5 * (y[..., None] - point["m"]) ** 2
    for build, rows in ((plain, [1, 1]), (scattered, [1, 1]), (missing, [1, 0])):
        step, _ = step_with(build)
        expected = np.einsum("r,rls->ls", rows, likelihood)
        if build is missing:
            expected[4] = 0.0
        found = step.conditionals[0].fields(point)[2]
        difference = (found - expected)[:, 1] - (found - expected)[:, 0]
        np.testing.assert_allclose(difference, 0.0, atol=1e-12)


def test_elements_that_show_their_site_late_and_sites_without_a_possible_label():
    # As long as both means are within 300 of it a pixel says nothing about its label.
    y = np.append(np.zeros(8), 500.0)
    step, _ = step_with(lambda at, m: pm.Uniform("y", at - 300.0, at + 300.0, observed=y))
    point = {"m": np.array([0.0, 400.0]), "z": np.zeros(9, dtype=int)}
    point, _ = step.step(point)
    assert point["z"].tolist() == [0] * 8 + [1]
    with pytest.raises(ValueError, match=r"no label is possible at 8 sites, the first of them 0"):
        step.step(point | {"m": np.full(2, 500.0)})


def test_a_masked_image_has_its_missing_pixels_drawn_with_the_labels():
    y = np.ma.masked_array(np.linspace(-2, 2, 9), mask=np.arange(9) == 4)
    with pytest.warns(pm.exceptions.ImputationWarning):
        step, model = step_with(lambda at, m: pm.Normal("y", at, 1.0, observed=y))
    point = model.initial_point(0) | {"m": np.array([-1.0, 1.0]), "y_unobserved": np.array([9.0])}
    field = step.conditionals[0].fields(point)[2]
    np.testing.assert_allclose(field[:, 1] - field[:, 0], 2 * np.where(y.mask, 9.0, y.data))


def test_first_labels_follow_the_ranks_of_the_data():
    layout = PottsLayout(12, 3, graphs.grid(4, 3), "none", "scalar")
    image = np.array([0.0, 1.0, 0.5, 0.1, 4.0, 5.0, 4.5, 5.5, 9.0, 8.0, 9.5, 8.5])
    rows = np.repeat([0, 1, 2], 4)
    rows = np.sort(rows).reshape(3, 4).T.ravel()  # columns of the image are alike
    values = np.sort(image).reshape(3, 4).T.ravel()
    np.testing.assert_array_equal(ranked_labels(layout, values[:, None]), rows)
    # Channels that move against each other are one direction, and one missing pixel of a
    # channel stands in its middle.
    both = np.column_stack([values, -values])
    both[4, 1] = np.nan
    np.testing.assert_array_equal(ranked_labels(layout, both), rows)


def test_chains_start_from_the_data_unless_labels_were_chosen():
    y = np.arange(9)  # and data that may be exchanged are data
    step, model = step_with(lambda at, m: pm.Normal("y", at, 1.0, observed=pm.Data("data", y)))
    step.setup_chain(np.random.default_rng(0), 10, 10)
    point, _ = step.step(model.initial_point(0))
    assert point["z"][:3].tolist() == [0, 0, 0]
    assert point["z"][6:].tolist() == [1, 1, 1]
    chosen = np.array([1, 0, 0, 0, 0, 0, 0, 0, 0])
    far = {"m": np.array([40.0, -400.0]), "z": chosen}  # where no other label has a chance
    step.setup_chain(np.random.default_rng(0), 10, 10)
    assert step.step(far)[0]["z"].tolist() == [0] * 9
