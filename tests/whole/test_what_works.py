"""The table of what works with what: every distribution, backend and way to fit.

One-parameter models, whose posterior is known on a grid.
"""

from importlib.util import find_spec

import numpy as np
import pymc as pm
import pytest

import pymc_bayessum as pbs

JAX = pytest.param(
    "JAX", marks=pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed")
)
QUIET = {"cores": 1, "random_seed": 1, "progressbar": False, "compute_convergence_checks": False}
COUNTS = np.array([0, 3, 0, 5, 2, 4, 0, 3, 6, 1])


def cmp_counts(t):
    pbs.CMP("y", mu=pm.math.exp(t), nu=0.7, observed=COUNTS)


def zero_inflated(t):
    pbs.ZeroInflatedCMP("y", psi=0.8, mu=pm.math.exp(t), nu=0.7, observed=COUNTS)


def hurdle(t):
    pbs.HurdleCMP("y", psi=0.7, mu=pm.math.exp(t), nu=0.7, observed=COUNTS)


def potts(t):
    rows = np.random.default_rng(0).integers(0, 3, (6, 6))
    pbs.Potts("y", h=[0.0, 0.1, 0.2], J=t, edges=pbs.graphs.grid(2, 3), observed=rows)


def ising(t):
    rows = np.random.default_rng(0).choice([-1, 1], (8, 6))
    pbs.Ising("y", h=0.1, J=t, edges=pbs.graphs.ring(6), observed=rows)


BUILDERS = [cmp_counts, zero_inflated, hurdle, potts, ising]


@pytest.fixture(scope="module", params=BUILDERS, ids=lambda f: f.__name__)
def model(request):
    with pm.Model() as model:
        request.param(pm.Normal("t", 0.5, 1.0))
    return model


GRID = np.linspace(-2.0, 3.0, 201)


@pytest.fixture(scope="module")
def known(model):
    """Log-probabilities on a grid, their slopes, and mean and sd of the posterior from them."""
    both = model.compile_fn([model.logp(), model.dlogp()])
    found = [both({"t": np.array(t)}) for t in GRID]
    values = np.array([value for value, _ in found])
    mass = np.exp(values - values.max())
    mean = mass @ GRID / mass.sum()
    sd = np.sqrt(mass @ (GRID - mean) ** 2 / mass.sum())
    return values, [slope for _, slope in found], mean, sd


@pytest.mark.parametrize("mode", [JAX, pytest.param("CVM", marks=pytest.mark.c_backend)])
def test_backends_agree(model, known, mode):
    values, slopes, _, _ = known
    both = model.compile_fn([model.logp(), model.dlogp()], mode=mode)
    for i in (0, 70, 130):
        value, slope = both({"t": np.array(GRID[i])})
        assert float(value) == pytest.approx(values[i], rel=1e-11, abs=1e-10)
        np.testing.assert_allclose(slope, slopes[i], rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("plain")
def test_map(model, known):
    point = pm.find_MAP(model=model, progressbar=False)
    assert float(point["t"]) == pytest.approx(GRID[known[0].argmax()], abs=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["pymc", "smc", "advi"])
def test_fits(model, known, method):
    _, _, mean, sd = known
    if method == "pymc":
        idata = pm.sample(300, tune=300, chains=1, nuts_sampler="pymc", model=model, **QUIET)
    elif method == "smc":
        idata = pm.sample_smc(500, chains=2, cores=1, model=model, random_seed=1, progressbar=False)
    else:
        options = {"obj_optimizer": pm.adam(learning_rate=0.01), "progressbar": False}
        fit = pm.fit(4000, method="advi", model=model, random_seed=1, **options)
        idata = fit.sample(1000, random_seed=1)
    draws = idata["posterior"]["t"]
    assert abs(float(draws.mean()) - mean) < 0.3 * sd
    assert 0.7 * sd < float(draws.std()) < 1.4 * sd
