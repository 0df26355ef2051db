"""Simulation-based calibration by simuk: models are observed anew, and anchored anew."""

import numpy as np
import pymc as pm
import pytest

import pymc_bayessum as pbs
from pymc_bayessum.normalizers.anchored.anchorage import Anchorage

simuk = pytest.importorskip("simuk")

DRAWS = {
    "draws": 20,
    "tune": 20,
    "chains": 1,
    "cores": 1,
    "nuts_sampler": "pymc",
    # Not worth compiling for so few.
    "compile_kwargs": {"mode": "FAST_COMPILE"},
}


def bits():
    return pbs.Family(lambda x: x.sum(axis=1, keepdims=True).astype(float), sites=8, n_states=2)


def anchored_family():
    with pm.Model() as model:
        theta = pm.Normal("theta", 0.0, 1.0, shape=1)
        pbs.ExponentialFamily(
            "x", theta, family=bits(), normalizer="anchored", observed=np.eye(8, dtype=int)
        )
    return model


def exact_images():
    """Potts 6x6, eliminated."""
    image = np.arange(36) // 6 % 3
    with pm.Model() as model:
        J = pm.Normal("theta", 0.4, 0.2)
        pbs.Potts("x", None, J, pbs.graphs.grid(6, 6), n_states=3, observed=[image, image[::-1]])
    return model


def anchored_spins():
    image = np.where(np.arange(256) % 16 > 7, 1, -1)
    with pm.Model() as model:
        J = pm.Normal("theta", 0.3, 0.05)
        pbs.Ising("x", None, J, pbs.graphs.grid(16, 16), observed=[image, image])
    return model


def counts():
    with pm.Model() as model:
        pbs.CMP("x", mu=pm.Gamma("mu", 4.0, 1.0), nu=1.3, observed=[1, 2, 3])
    return model


@pytest.mark.parametrize(
    ("build", "n_anchored"),
    [(anchored_family, 2), (anchored_spins, 2), (exact_images, 0)],
    ids=["family", "anchored Ising", "exact Potts"],
)
def test_every_simulated_data_set_has_anchors_of_its_own(monkeypatch, build, n_anchored):
    built = []
    find = Anchorage.find

    def remembered(self, data):
        built.append(data.tobytes())
        return find(self, data)

    monkeypatch.setattr(Anchorage, "find", remembered)
    n = n_anchored or 3
    loop = simuk.SBC(build(), num_simulations=n, seed=1, sample_kwargs=DRAWS, progress_bar=False)
    loop.run_simulations()
    ranks = loop.simulations["prior_sbc"]["theta"]
    assert ranks.sizes["draw"] == n
    assert ((ranks >= 0) & (ranks <= 20)).all()
    assert len(set(built)) == n_anchored


def test_counts():
    loop = simuk.SBC(counts(), num_simulations=1, seed=1, sample_kwargs=DRAWS, progress_bar=False)
    loop.run_simulations()
    assert 0 <= loop.simulations["prior_sbc"]["mu"].item() <= 20
