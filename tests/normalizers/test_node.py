"""The one node: how a log Z enters a graph, is found again, and is asked what it is worth."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from pytensor.compile.mode import Mode
from pytensor.graph.replace import vectorize_graph

import pymc_bayessum as pbs
from pymc_bayessum import graphs, kernels, measures
from pymc_bayessum.normalizers import Given, LogZ, Normalizer, log_normalizer, log_z

# No compiler in the way: these tests are about the graph.
PYTHON = Mode(linker="py", optimizer="fast_compile")


def compiled(inputs, outputs):
    return pytensor.function(inputs, outputs, mode=PYTHON, on_unused_input="ignore")


@pytest.fixture(scope="module")
def counting_rule():
    return pbs.bayes_sum(kernels.Brownian(), measures.Counting(40), np.arange(41))


class Logarithmic:
    """A user's own: the logarithmic series sum over x >= 1 of q^x / x, by its first terms."""

    is_absolute = True

    def __init__(self, n_terms):
        self.x = np.arange(1, n_terms + 1)

    def log_z(self, xp, eta):
        return xp.log(xp.sum(xp.exp(eta[..., None] * self.x) / self.x, axis=-1))

    def sd(self, xp, eta):
        return None

    def reference(self, asked):
        return Given(lambda eta: np.log(-np.log1p(-np.exp(eta))), "the closed form")

    def remedy(self, facts):
        return f"more than {len(self.x)} terms"


def own_model(n_terms):
    observed = np.random.default_rng(1).logseries(0.8, size=200)
    with pm.Model() as model:
        eta = pm.Normal("eta", -0.3, 0.2)
        value = log_z(Logarithmic(n_terms), eta)
        pm.Potential("y", pt.sum(eta * observed - value))
    draws = np.random.default_rng(2).normal(np.log(0.8), 0.04, size=(2, 200))
    return model, xr.Dataset({"eta": (("chain", "draw"), draws)})


class TestOwn:
    def test_good(self):
        model, posterior = own_model(400)
        checked = pbs.check_normalizer(posterior, model, progressbar=False)["normalizer"]
        assert checked.attrs["verdict"] == "good"
        assert checked["reference"].item() == "the closed form"
        assert float(abs(checked["log_z_error"]).max()) < 1e-12

    def test_not_good_with_its_own_remedy(self):
        model, posterior = own_model(4)
        checked = pbs.check_normalizer(posterior, model, progressbar=False)["normalizer"]
        assert checked.attrs["verdict"] == "not to be trusted"
        assert checked.attrs["advice"] == "y: more than 4 terms"

    def test_what_does_not_meet_the_protocol(self):
        with pytest.raises(TypeError, match="object has no is_absolute, log_z, sd, reference"):
            log_z(object(), 1.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: log_normalizer(lambda x: -1.0 * x, pbs.geometric_rule(0.5, n=5)),
        lambda: pm.logp(pbs.CMP.dist(lam=2.0, nu=1.5), 3),
        lambda: pm.logp(pbs.CMP.dist(mu=2.0, nu=1.5), 3),
        lambda: pm.logp(pbs.CMP.dist(mu=2.0, nu=1.5, normalizer=pbs.poisson_rule(2.0, n=20)), 3),
        lambda: pm.logp(pbs.Ising.dist(0.1, 0.2, graphs.ring(5)), np.ones(5, int)),
        lambda: pbs.potts_rule(np.zeros(3), 0.2, graphs.ring(9), n=50, rng=0).log_z(
            np.zeros(3), 0.3
        ),
        lambda: pbs.anchored_rule(0.0, 0.3, graphs.ring(5), ising=True, n=200, rng=0).log_z(
            0.1, 0.3
        ),
    ],
    ids=["rule", "rate", "mean", "cmp rule", "exact", "fixed base", "anchored"],
)
def test_every_normaliser_meets_the_protocol_behind_one_kind_of_node(make):
    (found,) = pbs.find_normalizers(make())
    assert isinstance(found.log_z.owner.op, LogZ)
    assert isinstance(found.normalizer, Normalizer)
    theta = [np.asarray(part.eval(mode=PYTHON)) for part in found.theta]
    value = found.log_z.eval(mode=PYTHON)
    np.testing.assert_allclose(found.normalizer.log_z(np, *theta), value, rtol=1e-12)
    sd = found.normalizer.sd(np, *theta)
    assert sd is None or np.all(sd >= 0.0)


class TestNode:
    def test_named_until_compilation(self, counting_rule, capsys):
        value = log_normalizer(lambda x: -x, counting_rule)
        pytensor.dprint(value)
        assert "LogZ{RuleSum}" in capsys.readouterr().out
        nodes = pytensor.function([], value, mode=PYTHON).maker.fgraph.toposort()
        assert not any(isinstance(node.op, LogZ) for node in nodes)

    def test_equal_where_it_computes_the_same(self, counting_rule):
        a = pt.vector("a", shape=(41,))
        twice = [log_normalizer(a, counting_rule) for _ in range(2)]
        assert twice[0].owner.op == twice[1].owner.op

    def test_batches(self, counting_rule):
        a, batch = pt.vector("a", shape=(41,)), pt.matrix("batch", shape=(None, 41))
        value = vectorize_graph(log_normalizer(a, counting_rule), {a: batch})
        assert isinstance(value.owner.op, LogZ)
        exact = np.log(41.0) + np.array([0.0, 1.0])
        rows = np.array([[0.0], [1.0]]) * np.ones(41)
        np.testing.assert_allclose(compiled([batch], value)(rows), exact)


class TestFinding:
    def test_bare_graph(self):
        assert pbs.find_normalizers(pt.logsumexp(pt.vector("a"))) == []

    def test_in_a_graph(self, counting_rule):
        t, u = pt.scalars("t", "u")
        value = log_normalizer(lambda x: t * x, counting_rule)
        (found,) = pbs.find_normalizers([u - 3.0 * value])
        assert found.rule is counting_rule
        assert found.parameters == (t,)
        assert found.log_z is value

    def test_in_a_model(self, counting_rule):
        with pm.Model() as model:
            slope = pm.Normal("slope")
            scale = pm.HalfNormal("scale")
            x = pm.Data("x", [1.0, 2.0, 4.0])
            rate = pm.Deterministic("rate", slope * x)
            value = log_normalizer(lambda n: rate[:, None] * n, counting_rule)
            pm.Potential("first", -value)
            pm.Potential("second", -5.0 * log_normalizer(lambda n: -scale * n, counting_rule))
        first, second = pbs.find_normalizers(model)
        assert (first.name, second.name) == ("first", "second")
        assert first.parameters == (slope,)
        assert second.parameters == (scale,)
        exact = np.log(np.exp(-np.outer([1.0, 2.0, 4.0], np.arange(41))).sum(axis=1))
        np.testing.assert_allclose(compiled([slope], first.log_z)(-1.0), exact)

    def test_wrong_type(self):
        with pytest.raises(TypeError, match="graph must be a PyMC model"):
            pbs.find_normalizers(3)
