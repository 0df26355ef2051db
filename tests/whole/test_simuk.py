"""Simulation-based calibration by simuk: models are observed anew, and anchored anew."""

import numpy as np
import pymc as pm
import pytest

import pymc_bayessum as pbs
from pymc_bayessum.normalizers.anchored.anchorage import Anchorage

simuk = pytest.importorskip("simuk")


def bits():
    return pbs.Family(lambda x: x.sum(axis=1, keepdims=True).astype(float), sites=8, n_states=2)


def anchored_family():
    with pm.Model() as model:
        theta = pm.Normal("theta", 0.0, 1.0, shape=1)
        pbs.ExponentialFamily(
            "x", theta, family=bits(), normalizer="anchored", observed=np.eye(8, dtype=int)
        )
    return model


def counts():
    with pm.Model() as model:
        pbs.CMP("x", mu=pm.Gamma("mu", 4.0, 1.0), nu=1.3, observed=[1, 2, 3])
    return model


def test_every_simulated_data_set_has_anchors_of_its_own(monkeypatch):
    built = []
    find = Anchorage.find

    def remembered(self, data):
        built.append(data.tobytes())
        return find(self, data)

    monkeypatch.setattr(Anchorage, "find", remembered)
    draws = {"draws": 20, "tune": 20, "chains": 1, "cores": 1}
    loop = simuk.SBC(
        anchored_family(), num_simulations=2, seed=1, sample_kwargs=draws, progress_bar=False
    )
    loop.run_simulations()
    assert loop.simulations["prior_sbc"]["theta"].sizes["draw"] == 2
    assert len(set(built)) == 2


def test_counts():
    draws = {"draws": 20, "tune": 20, "chains": 1, "cores": 1}
    loop = simuk.SBC(counts(), num_simulations=1, seed=1, sample_kwargs=draws, progress_bar=False)
    loop.run_simulations()
    assert 0 <= loop.simulations["prior_sbc"]["mu"].item() <= 20
