"""An interrupt at any stage keeps what was computed before it."""

import subprocess
import sys
import warnings

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_bayessum as pbs
from pymc_bayessum.diagnostics.evaluation import Evaluator
from pymc_bayessum.graphs import chain_climbing
from pymc_bayessum.interrupts import Interrupted
from pymc_bayessum.normalizers.anchored.climbing import Data, NormalPrior
from pymc_bayessum.normalizers.anchored.defaults import default_anchored
from pymc_bayessum.normalizers.coordinates import plain


class After:
    """Interrupts the n-th call."""

    def __init__(self, function, n):
        self.function, self.left = function, n

    def __call__(self, *args, **kwargs):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return self.function(*args, **kwargs)


def test_active_design():
    kernel, measure = pbs.kernels.Brownian(), pbs.measures.Poisson(5.0)

    def f(x):
        return np.exp(-x / 10.0)

    with pytest.raises(Interrupted, match=r"17 evaluations .* resume=") as stop:
        pbs.active_bayes_sum(After(f, 17), kernel, measure, 25, rng=0)
    partial = stop.value.partial
    assert len(partial.values) == 17
    whole = pbs.active_bayes_sum(f, kernel, measure, 25, rng=0)
    again = pbs.active_bayes_sum(f, kernel, measure, 25, resume=partial)
    assert again.estimate.mean == pytest.approx(whole.estimate.mean, rel=1e-3)
    with pytest.raises(Interrupted) as stop:
        pbs.active_bayes_sum(After(f, 0), kernel, measure, 25, rng=0)
    assert stop.value.partial is None


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).choice(2, p=[0.3, 0.7], size=(500, 4))


def test_fit(monkeypatch, rows):
    how = {"field_kind": "shared", "coupling_kind": "scalar", "rng": 0, "progressbar": False}
    start = np.array([1.0, -1.0]), -1.0
    edges = pbs.graphs.ring(4)
    climbing = "pymc_bayessum.normalizers.anchored.climbing.anchored"
    from pymc_bayessum.normalizers.anchored.rule import anchored

    monkeypatch.setattr(climbing, After(anchored, 2))
    with pytest.raises(Interrupted, match="resume=") as stop:
        pbs.fit_potts(rows, edges, start=start, **how)
    partial = stop.value.partial
    assert not partial.converged
    assert len(partial.history) == 2
    monkeypatch.undo()
    resumed = pbs.fit_potts(rows, edges, resume=partial, **how)
    whole = pbs.fit_potts(rows, edges, start=start, **how)
    assert resumed.converged
    sd = np.sqrt(np.diag(whole.covariance))
    np.testing.assert_allclose(resumed.theta / sd, whole.theta / sd, atol=0.2)
    monkeypatch.setattr(climbing, After(anchored, 0))
    with pytest.raises(KeyboardInterrupt) as early:
        pbs.fit_potts(rows, edges, start=start, **how)
    assert not isinstance(early.value, Interrupted)


def test_stochastic_fit(monkeypatch, rows):
    how = {"method": "stochastic", "n_chains": 100, "rng": 0, "progressbar": False}
    edges = pbs.graphs.ring(4)
    # One look ends the first round.
    monkeypatch.setattr(chain_climbing, "look", After(chain_climbing.look, 1))
    monkeypatch.setattr(chain_climbing, "TOLERANCE", 0.0)
    with pytest.raises(Interrupted, match="resume=") as stop:
        pbs.fit_potts(rows, edges, **how)
    monkeypatch.undo()
    partial = stop.value.partial
    assert isinstance(partial, pbs.StochasticPottsFit)
    assert len(partial.history) == 1
    assert not partial.converged
    assert pbs.fit_potts(rows, edges, resume=partial, progressbar=False).converged


INTERRUPTED_IMPORT = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            os.kill(os.getpid(), signal.SIGINT)

# What runs in the background of a shell ignores interrupts, and so would this.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv = ["pymc-bayessum", "--version"]
sys.meta_path.insert(0, Interrupt())
import pymc_bayessum.__main__
"""


def test_command_line_while_it_is_imported():
    command = [sys.executable, "-c", INTERRUPTED_IMPORT]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 130
    assert ended.stdout == ""
    assert ended.stderr == "interrupted\n"


class Bits:
    """Ten bits with one common parameter, whose draws can be interrupted."""

    def __init__(self, n_calls):
        self.left = n_calls

    def statistics(self, states):
        return states.sum(axis=1, keepdims=True).astype(float)

    def sample(self, theta, n, rng, start=None):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return rng.random((n, 10)) < 1 / (1 + np.exp(-theta[0]))


def test_anchoring():
    def build(n_calls):
        family = Bits(n_calls)
        default_anchored(
            family,
            Data(np.array([7.0]), 5000),  # so many rows that more draws are asked for
            plain(1),
            NormalPrior(np.zeros(1), np.eye(1)),
            rng=np.random.default_rng(0),
            chains=np.zeros((1, 600)),
            progressbar=False,
        )
        return family

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the target is beyond what is drawn at most
        calls = 100_000 - build(100_000).left
    with pytest.raises(Interrupted, match="fewer than asked for") as stop:
        build(calls - 1)
    rule = stop.value.partial
    assert not rule.settled
    step = float(rule.log_z_at(np, np.array([0.9])) - rule.log_z_at(np, np.array([0.8])))
    exact = 10 * np.log((1 + np.exp(0.9)) / (1 + np.exp(0.8)))
    assert step == pytest.approx(exact, abs=0.01)


def test_check(monkeypatch):
    def log_f(x, rate):
        return -rate * x

    with pm.Model() as model:
        rate = pm.HalfNormal("rate")
        rule = pbs.geometric_rule(0.5, n=40)
        pbs.Unnormalized("y", log_f, rate, rule=rule, observed=[0, 3, 2, 1] * 3)
    rates = np.random.default_rng(1).gamma(40.0, 0.015, size=(2, 30))
    tree = xr.DataTree.from_dict({"posterior": xr.Dataset({"rate": (("chain", "draw"), rates)})})
    whole = pbs.check_normalizer(tree.copy(), model, progressbar=False)["normalizer"]
    at = Evaluator.at
    calls = iter(range(100))

    def some(self, draw):
        if next(calls) >= 46:  # five of them tell how long a draw takes
            raise KeyboardInterrupt
        return at(self, draw)

    monkeypatch.setattr(Evaluator, "at", some)
    with pytest.raises(Interrupted, match=r"the check of \d+ of 60 draws") as stop:
        pbs.check_normalizer(tree, model, progressbar=False)
    part = stop.value.partial["normalizer"]
    assert part.attrs["verdict"] == whole.attrs["verdict"]
    n = part.sizes["draw"]
    assert 30 < n < 60
    np.testing.assert_array_equal(part["log_z"].values.ravel(), whole["log_z"].values.ravel()[:n])
