"""Maximum likelihood on public data against long series in 40-digit arithmetic.

Estimates, standard errors and log-likelihoods were computed outside of this package, by Newton's
method on directly summed series.
"""

import functools
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.optimize import minimize

import pymc_bayessum as pbs

BIDS = ["leglrest", "rearest", "finrest", "whtknght", "bidprem"]
BIDS += ["insthold", "size", "sizesq", "regulatn"]


@dataclass(frozen=True)
class Oracle:
    """A regression of log rate or log mean, and of log nu, with its known optimum."""

    name: str
    form: str
    counts: np.ndarray
    design: np.ndarray
    nu_design: np.ndarray
    estimates: tuple[float, ...]
    log_likelihood: float
    standard_errors: tuple[float, ...] | None = None
    frequencies: np.ndarray | None = None

    @property
    def data(self) -> tuple[np.ndarray, ...]:
        weights = np.ones(len(self.counts)) if self.frequencies is None else self.frequencies
        return self.design, self.nu_design, self.counts, weights.astype(float)


@functools.cache
def likelihood(form: str):
    """Build log-likelihood, gradient and Hessian on a direction for all regressions of a form."""
    theta, weights = pt.vector("theta"), pt.vector("weights")
    design, nu_design = pt.matrix("design"), pt.matrix("nu_design")
    counts = pt.vector("counts", dtype="int64")
    n_first = design.shape[1]
    first = pt.exp((design * theta[:n_first]).sum(axis=1))
    nu = pt.exp((nu_design * theta[n_first:]).sum(axis=1))
    total = (weights * pm.logp(pbs.CMP.dist(**{form: first}, nu=nu), counts)).sum()
    gradient = pt.grad(total, theta)
    direction = pt.vector("direction")
    curvature = pt.grad((gradient * direction).sum(), theta)
    data = [design, nu_design, counts, weights]
    outputs = [total, gradient, curvature]
    return pytensor.function([theta, direction, *data], outputs, mode="FAST_COMPILE")


def ones(n: int) -> np.ndarray:
    return np.ones((n, 1))


def oracles() -> list[Oracle]:
    sales = pbs.datasets.sales(histogram=True)
    freight = pbs.datasets.freight()
    bids = pbs.datasets.takeoverbids()
    weevils = pbs.datasets.sitophilus()
    broken = freight["broken"].to_numpy()
    transfers = np.column_stack([np.ones(10), freight["transfers"]])
    extract = np.column_stack(
        [np.ones(40)] + [weevils["extract"] == level for level in ("Leaf", "Branch", "Seed")]
    ).astype(float)
    insects = weevils["ninsect"].to_numpy()
    covariates = np.column_stack([np.ones(len(bids)), bids[BIDS]])
    found = [
        Oracle(
            "sales",
            "lam",
            sales["sales"].to_numpy(),
            ones(len(sales)),
            ones(len(sales)),
            (np.log(0.97462412), np.log(0.12814296)),
            -7526.356208,
            (0.0196 / 0.97462412, 0.0117 / 0.12814296),
            sales["frequency"].to_numpy(),
        ),
        Oracle(
            "freight, rate",
            "lam",
            broken,
            transfers,
            ones(10),
            (13.82470728, 1.48382106, 1.75471779),
            -18.64489152,
            (6.2369, 0.68879, 0.44912),
        ),
        Oracle(
            "freight, rate, nu by transfers",
            "lam",
            broken,
            transfers,
            transfers,
            (15.58493132, 4.62657025, 1.89277040, 0.12047457),
            -17.34771930,
        ),
        Oracle(
            "freight, mean",
            "mu",
            broken,
            transfers,
            ones(10),
            (2.35337960, 0.26354199, np.log(5.73346674)),
            -18.679827,
            (0.05597919, 0.03353774, np.nan),
        ),
        Oracle(
            "takeoverbids, mean",
            "mu",
            bids["numbids"].to_numpy(),
            covariates,
            ones(len(bids)),
            (
                *(0.98966039, 0.26788846, -0.17318194, 0.06774906, 0.48129132, -0.68485466),
                *(-0.36789987, 0.17932803, -0.00758238, -0.03757742, np.log(1.75406509)),
            ),
            -180.087625,
        ),
        Oracle(
            "sitophilus, mean",
            "mu",
            insects,
            extract,
            ones(40),
            (3.44998755, -0.00636945, -0.05212907, -3.35467737, np.log(0.39567954)),
            -121.633410,
        ),
        Oracle(
            "sitophilus, mean, nu by extract",
            "mu",
            insects,
            extract,
            extract,
            (
                *(3.44998755, -0.00636945, -0.05212907, -3.35467737),
                *(-0.66519528, -0.38314473, -0.37242966, -0.11764534),
            ),
            -121.413973,
        ),
    ]
    syllables = {
        "slovak": ((6.57467633, 2.38946428), -160.026173),
        "hungarian": ((7.74414921, 2.15259705), -86168.090030),
    }
    for language, (estimates, log_likelihood) in syllables.items():
        frame = pbs.datasets.syllables(language, histogram=True)
        found.append(
            Oracle(
                language,
                "lam",
                frame["syllables"].to_numpy() - 1,
                ones(len(frame)),
                ones(len(frame)),
                tuple(np.log(estimates)),
                log_likelihood,
                None,
                frame["frequency"].to_numpy(),
            )
        )
    return found


@pytest.mark.parametrize("oracle", oracles(), ids=lambda oracle: oracle.name)
def test_maximum_likelihood(oracle):
    function = likelihood(oracle.form)
    scale = oracle.data[-1].sum()

    def value_and_gradient(theta):
        return function(theta, np.zeros(len(theta)), *oracle.data)[:2]

    def objective(theta):
        value, gradient = value_and_gradient(theta)
        return -value / scale, -gradient / scale

    def hessian(theta):
        return np.array([function(theta, e, *oracle.data)[2] for e in np.eye(len(theta))])

    start = np.zeros(len(oracle.estimates))
    if oracle.form == "mu":
        start[0] = np.log(oracle.counts.mean())
    # A trust region: covariates are raw, and steps may leave the range where log Z is answered.
    theta = minimize(
        objective, start, jac=True, hess=lambda x: -hessian(x) / scale, method="trust-exact"
    ).x
    for _ in range(8):  # Newton's method, to the last digits
        theta = theta - np.linalg.solve(hessian(theta), value_and_gradient(theta)[1])
    errors = np.sqrt(np.diag(np.linalg.inv(-hessian(theta))))

    np.testing.assert_array_less(np.abs(theta - oracle.estimates) / errors, 1e-5)
    found = float(value_and_gradient(theta)[0])
    assert found == pytest.approx(oracle.log_likelihood, abs=1e-6)
    if oracle.standard_errors is not None:
        known = np.isfinite(oracle.standard_errors)
        expected = np.array(oracle.standard_errors)[known]
        np.testing.assert_allclose(errors[known], expected, rtol=4e-3)


@pytest.mark.slow
@pytest.mark.usefixtures("plain")
def test_find_map_and_find_hessian_on_freight():
    """The same through PyMC's own functions, with one nu shared by the rows."""
    frame = pbs.datasets.freight()
    with pm.Model() as model:
        beta = pm.Flat("beta", shape=2)
        log_nu = pm.Flat("log_nu", initval=1.0)
        mu = pt.exp(beta[0] + beta[1] * frame["transfers"].to_numpy())
        pbs.CMP("broken", mu=mu, nu=pt.exp(log_nu), observed=frame["broken"].to_numpy())
        start = {"beta": np.array([2.0, 0.2]), "log_nu": 1.0}
        best = pm.find_MAP(start=start, progressbar=False, method="BFGS")
        curvature = pm.find_hessian(best, model=model, negate_output=False)
    errors = np.sqrt(np.diag(np.linalg.inv(-curvature)))
    np.testing.assert_allclose(best["beta"], [2.35337960, 0.26354199], atol=1e-5)
    assert best["log_nu"] == pytest.approx(np.log(5.73346674), abs=1e-4)
    np.testing.assert_allclose(errors[:2], [0.05597919, 0.03353774], rtol=1e-3)
