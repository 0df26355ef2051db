"""Anchors belong to their data: built when asked for, renewed, kept in files, never of others."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_bayessum as pbs
from pymc_bayessum.anchoring.variables import anchorable
from pymc_bayessum.diagnostics import check_normalizer
from pymc_bayessum.normalizers.anchored.anchorage import Anchorage, known_data

SITES = 8
POINT = {"theta": np.array([0.1, 0.2])}


def statistics(x):
    return np.stack([x.sum(axis=1), (x[:, 1:] == x[:, :-1]).sum(axis=1)], axis=1)


FAMILY = pbs.Family(statistics, sites=SITES, n_states=2)


def rows_at(theta, n=30, seed=0):
    x = pbs.ExponentialFamily.dist(theta, family=FAMILY, shape=(n, SITES))
    return pm.draw(x, random_seed=seed)


FEW, MANY = rows_at([-1.0, 0.3]), rows_at([1.0, 0.3])


def family_model(observed=None, normalizer="anchored", **kwargs):
    with pm.Model() as model:
        theta = pm.Normal("theta", 0.0, 2.0, shape=2)
        pbs.ExponentialFamily(
            "x", theta, family=FAMILY, normalizer=normalizer, observed=observed, **kwargs
        )
    return model


@pytest.fixture(scope="module")
def generative():
    return family_model(shape=FEW.shape)


@pytest.fixture(scope="module")
def few(generative):
    return pbs.anchor(pm.observe(generative, {"x": FEW}), progressbar=False)


def log_density(model):
    """Log-likelihood at points around a place, up to a constant."""
    function = model.compile_logp(vars=model.observed_RVs)
    return lambda points: np.array([function({"theta": point}) for point in points])


def anchors_of(model):
    (part,) = anchorable(model)
    return part.held.normalizer


@pytest.mark.usefixtures("plain")
def test_model_without_data_draws_but_has_no_logp(generative):
    assert pm.draw(generative["x"], random_seed=1).shape == FEW.shape
    with generative:
        prior = pm.sample_prior_predictive(2, random_seed=1)
    assert prior["prior"]["x"].shape == (1, 2, *FEW.shape)
    assert pm.draw(pm.do(generative, {"theta": [3.0, 0.0]})["x"], random_seed=1).mean() > 0.8
    with pytest.raises(ValueError, match=r"no data yet .* pm.observe.* pbs.anchor\(model, data="):
        generative.logp()


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize(("rows", "field"), [(FEW, -1.0), (MANY, 1.0)], ids=["few", "many"])
def test_observed_anew_is_anchored_anew(generative, few, rows, field):
    around = np.array([[field, 0.3], [field + 0.1, 0.2], [field - 0.1, 0.4]])
    exact = log_density(family_model(rows, "exact"))(around)
    for before in (generative, few):
        found = log_density(pm.observe(before, {"x": rows}))(around)
        np.testing.assert_allclose(np.diff(found), np.diff(exact), atol=0.3)


def test_anchors_of_one_model_are_not_those_of_another(few):
    many = pbs.anchor(pm.observe(few, {"x": MANY}), progressbar=False)
    assert anchors_of(many).rule.centre[0] > 0.5
    assert anchors_of(few).rule.centre[0] < -0.5
    again = pbs.anchor(pm.observe(few, {"x": MANY}), random_seed=1, progressbar=False)
    assert not np.array_equal(anchors_of(again).rule.anchors, anchors_of(many).rule.anchors)


def test_same_data_are_anchored_once(generative):
    model = pm.observe(generative, {"x": MANY})
    model.logp()
    first = anchors_of(model)
    model.logp()
    assert anchors_of(model) is first


def test_exact_normalisers_need_nothing():
    model = family_model(FEW, None)
    assert pbs.anchor(model) is model
    with pytest.raises(ValueError, match="x: its normaliser is exact or was given"):
        pbs.anchor(model, MANY)
    with pm.Model() as counts:
        pbs.CMP("y", mu=3.0, nu=1.0, observed=[1, 2])
    assert pbs.anchor(counts) is counts


def test_data_by_name(generative):
    with pytest.raises(ValueError, match=r"x has no data to be anchored at: pass data=\{'x'"):
        pbs.anchor(generative)
    with pytest.raises(ValueError, match="data names y; variables to anchor are: x"):
        pbs.anchor(generative, {"y": FEW})
    with pytest.raises(ValueError, match=r"observed states must have shape \(8,\), got \(30, 7\)"):
        pbs.anchor(generative, {"x": FEW[:, :7]})
    with pytest.raises(ValueError, match="not exactly one variable"):
        pbs.anchor(pm.Model(), FEW)


def test_rows_given_for_a_model_without_data():
    model = pbs.anchor(family_model(shape=FEW.shape), FEW, progressbar=False)
    assert model.logp() is not None
    seen = pm.observe(model, {"x": FEW})
    assert anchors_of(seen) is anchors_of(model)
    other = pm.observe(model, {"x": MANY})
    other.logp()
    assert anchors_of(other).rule.centre[0] > 0.5


@pytest.mark.usefixtures("plain")
def test_minibatches_use_what_was_chosen():
    with pm.Model() as model:
        theta = pm.Normal("theta", 0.0, 2.0, shape=2)
        batch = pm.Minibatch(FEW.astype("int32"), batch_size=10)
        pbs.ExponentialFamily(
            "x", theta, family=FAMILY, normalizer="anchored", observed=batch, total_size=len(FEW)
        )
    with pytest.raises(ValueError, match="x has no data"):
        pbs.anchor(model)
    pbs.anchor(model, FEW, progressbar=False)
    whole = pbs.anchor(family_model(FEW), progressbar=False)
    np.testing.assert_array_equal(anchors_of(model).rule.anchors, anchors_of(whole).rule.anchors)
    assert np.isfinite(model.compile_logp()(POINT))


@pytest.mark.usefixtures("plain")
def test_shared_data_are_compared_at_every_evaluation():
    with pm.Model() as model:
        data = pm.Data("data", FEW)
        theta = pm.Normal("theta", 0.0, 2.0, shape=2)
        pbs.ExponentialFamily("x", theta, family=FAMILY, normalizer="anchored", observed=data)
    logp = model.compile_logp()
    before = logp(POINT)
    for other in (MANY, FEW[:7]):
        with model:
            pm.set_data({"data": other})
        with pytest.raises(ValueError, match="anchored at other data: compile it again"):
            logp(POINT)
    assert np.isfinite(model.compile_logp()(POINT))  # anchored anew
    with model:
        pm.set_data({"data": FEW})
    assert logp(POINT) == before


@pytest.mark.usefixtures("plain")
def test_covariates_that_change_are_told():
    """Parameters X @ beta have as many directions as beta, and others once X is another."""
    with pm.Model() as model:
        covariates = pm.Data("covariates", np.array([[1.0], [0.5]]))
        beta = pm.Normal("beta", 0.0, 2.0, shape=1)
        pbs.ExponentialFamily(
            "x", covariates @ beta, family=FAMILY, normalizer="anchored", observed=FEW
        )
    point = {"beta": np.array([-0.4])}
    assert np.isfinite(model.compile_logp()(point))
    with model:
        pm.set_data({"covariates": np.array([[1.0], [-0.3]])})
    with pytest.raises(ValueError, match=r"covariates have changed .* pbs.anchor\(model\) renews"):
        model.compile_logp()(point)
    logp = pbs.anchor(model, progressbar=False).compile_logp(vars=model.observed_RVs)
    betas = np.array([-0.4, -0.6])
    found = [logp({"beta": beta[None]}) for beta in betas]
    exact = log_density(family_model(FEW, "exact"))(np.outer(betas, [1.0, -0.3]))
    np.testing.assert_allclose(np.diff(found), np.diff(exact), atol=0.3)
    other = pm.do(model, {"beta": np.array([0.3])})
    assert pm.draw(other["x"], random_seed=1).shape == FEW.shape


class TestFiles:
    def test_round_trip(self, few, generative, tmp_path):
        pbs.keep_anchors(xr.DataTree(), few).to_netcdf(tmp_path / "with space.nc")
        with xr.open_datatree(tmp_path / "with space.nc", engine="h5netcdf") as tree:
            model = pbs.anchor(pm.observe(generative, {"x": FEW}), tree)
        assert model.compile_logp()(POINT) == few.compile_logp()(POINT)
        first, second = anchors_of(few).rule, anchors_of(model).rule
        np.testing.assert_equal(first.report_at(POINT["theta"]), second.report_at(POINT["theta"]))

    def test_of_other_data(self, few, generative):
        tree = pbs.keep_anchors(xr.DataTree(), few)
        with pytest.raises(ValueError, match=r"x: .* anchored at other data"):
            pbs.anchor(pm.observe(generative, {"x": MANY}), tree)

    def test_of_another_model(self, few):
        tree = pbs.keep_anchors(xr.DataTree(), few)
        other = pbs.Family(lambda x: statistics(x)[:, ::-1], sites=SITES, n_states=2)
        with pm.Model() as model:
            theta = pm.Normal("theta", 0.0, 2.0, shape=2)
            pbs.ExponentialFamily("x", theta, family=other, normalizer="anchored", shape=FEW.shape)
        with pytest.raises(ValueError, match="x: the anchors were built for another model"):
            pbs.anchor(model, tree)

    def test_that_are_none(self, few, generative):
        with pytest.raises(ValueError, match=r"no group 'anchors'.* pbs.keep_anchors"):
            pbs.anchor(generative, xr.DataTree())
        tree = pbs.keep_anchors(xr.DataTree(), few)
        tree["anchors/x"] = tree["anchors/x"].to_dataset().drop_vars("nodes.rows")
        with pytest.raises(ValueError, match=r"x: these are no anchors: nodes.rows is not among"):
            pbs.anchor(generative, tree)
        with pytest.raises(ValueError, match="no anchors to keep"):
            pbs.keep_anchors(xr.DataTree(), generative)

    def test_check_of_draws_with_anchors_of_other_data(self, few, generative):
        draws = np.random.default_rng(0).normal([-1.0, 0.3], 0.1, size=(1, 60, 2))
        draws = xr.Dataset({"theta": (("chain", "draw", "theta_dim_0"), draws)})
        good = pbs.keep_anchors(xr.DataTree.from_dict({"posterior": draws}), few)
        assert "anchored at other data" not in check(good, few).attrs["report"]
        given = pbs.anchor(pm.observe(generative, {"x": FEW}), MANY, progressbar=False)
        assert "x is anchored at other data" in check(good, given).attrs["note"]
        bad = pbs.keep_anchors(xr.DataTree.from_dict({"posterior": draws}), given)
        found = check(bad, few)
        assert found.attrs["verdict"] == "not to be trusted"
        assert "anchored at other data" in found.attrs["report"]


def check(tree, model):
    return check_normalizer(tree.copy(), model, progressbar=False, random_seed=0)["normalizer"]


@pytest.mark.usefixtures("plain")
def test_lattices_beyond_elimination():
    with pm.Model() as model:
        J = pm.HalfNormal("J", 0.3)
        pbs.Ising("x", 0.0, J, pbs.graphs.grid(15, 16))
    images = pm.draw(model["x"], draws=2, random_seed=1)
    places = []
    for image in images:
        seen = pm.observe(model, {"x": image})
        assert np.isfinite(seen.compile_logp()({"J_log__": np.log(0.3)}))
        places.append(anchors_of(seen).centre[1])
    assert places[0] != places[1]
    tree = pbs.keep_anchors(xr.DataTree(), seen)
    back = pbs.anchor(pm.observe(model, {"x": images[1]}), tree)
    assert anchors_of(back).value(0.0, 0.2) == anchors_of(seen).value(0.0, 0.2)


def test_several_images_of_a_model_without_data():
    """Their common coupling has an axis for the rows; anchors are those of a model with data."""
    edges = pbs.graphs.grid(15, 16)
    with pm.Model() as model:
        J = pm.Normal("J", 0.3, 0.1)
        pbs.Ising("x", None, J, edges, shape=(2, 240))
    images = pm.draw(model["x"], random_seed=1)
    with pm.Model() as observed:
        pbs.Ising("x", None, pm.Normal("J", 0.3, 0.1), edges, observed=images)
    found = [
        anchors_of(pbs.anchor(each, progressbar=False)).centre
        for each in (pm.observe(model, {"x": images}), observed)
    ]
    np.testing.assert_allclose(*found, rtol=1e-12)


def test_ordinal_networks_without_data():
    with pm.Model() as model:
        omega = pm.Normal("omega", 0.0, 0.1)
        pbs.OrdinalMRF("x", np.zeros((12, 4)), omega, shape=(5, 12))
    with pytest.raises(ValueError, match="no data yet"):
        model.logp()


def test_networks():
    terms = [pbs.ergm.edges(), pbs.ergm.triangles()]
    with pm.Model() as model:
        theta = pm.Normal("theta", 0.0, 1.0, shape=2)
        pbs.ERGM("ties", theta, terms=terms, n_nodes=6, normalizer="anchored")
    with pytest.raises(ValueError, match="no data yet"):
        model.logp()
    network = np.zeros((6, 6), int)
    network[[0, 1], [1, 0]] = 1
    (part,) = anchorable(model)
    built = []
    part.set(
        Anchorage(
            lambda data: (
                built.append(data)
                or pbs.ERGM.dist(theta, terms=terms, n_nodes=6).owner.op.normalizer
            )
        )
    )
    pm.observe(model, {"ties": network}).logp()
    np.testing.assert_array_equal(built, [network])


def test_networks_as_shared_data():
    network = np.ones((4, 4), int) - np.eye(4, dtype=int)
    with pm.Model() as model:
        data = pm.Data("data", network)
        theta = pm.Normal("theta", 0.0, 1.0, shape=1)
        pbs.ERGM("ties", theta, terms=[pbs.ergm.edges()], observed=data)
    with model:
        pm.set_data({"data": 0 * network})
    assert known_data(model.rvs_to_values[model["ties"]]).sum() == 0


def test_networks_with_unknown_dyads_are_bound_to_them():
    network = np.zeros((5, 5))
    network[[0, 1, 1, 2], [1, 0, 2, 1]] = 1
    network[[3, 4], [4, 3]] = np.nan
    with pm.Model() as model:
        theta = pm.Normal("theta", 0.0, 1.0, shape=1)
        pbs.ERGM("ties", theta, terms=[pbs.ergm.edges()], observed=network)
    model.logp()
    with pytest.raises(ValueError, match="unknown dyads are summed out of the network"):
        pm.observe(model, {"ties": np.zeros((5, 5), int)}).logp()
