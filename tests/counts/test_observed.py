"""Observed data are checked when a model is built: every bad case by what it says."""

import warnings

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from pymc.exceptions import ImputationWarning
from scipy import stats

import pymc_bayessum as pbs

DISTRIBUTIONS = [pbs.CMP, pbs.ZeroInflatedCMP, pbs.HurdleCMP]
MU = np.linspace(1.0, 3.0, 7)
Y = np.array([0, 2, 1, 3, 0, 4, 2])


def likelihood(distribution, observed, mu=MU, **kwargs):
    share = {} if distribution is pbs.CMP else {"psi": 0.8}
    return distribution("y", **share, mu=mu, nu=0.9, observed=observed, **kwargs)


pytestmark = pytest.mark.parametrize("distribution", DISTRIBUTIONS)


@pytest.mark.parametrize(
    "observed",
    [
        pd.DataFrame({"y": Y}),
        Y[:, None],
        Y[None, :1],
        Y[:1],
        Y[:5],
        3,
        pt.as_tensor(Y[:, None]),
        [[1], [2]],
    ],
    ids=["frame", "column", "row", "one", "fewer", "scalar", "tensor", "list"],
)
def test_a_shape_that_would_broadcast(distribution, observed):
    with pm.Model() as model, pytest.raises(ValueError, match="observed of y has shape"):
        likelihood(distribution, observed)
    assert not model.observed_RVs


def test_a_column_of_data_against_a_regression(distribution):
    """The lengths of what depends on `pm.Data` are known when the model is built."""
    with pm.Model():
        x = pm.Data("x", MU)
        beta = pm.Normal("beta")
        with pytest.raises(ValueError, match=r"shape \(7, 1\), its parameters have shape \(7,\)"):
            likelihood(distribution, pm.Data("col", Y[:, None]), mu=pm.math.exp(beta * x))
        with pytest.raises(ValueError, match=r"shape \(5,\), its parameters have shape \(7,\)"):
            likelihood(distribution, pm.Data("short", Y[:5]), mu=pm.math.exp(beta * x))
        likelihood(distribution, pm.Data("right", Y), mu=pm.math.exp(beta * x))


def test_parameters_may_have_fewer_rows_than_the_data(distribution):
    with pm.Model() as model:
        likelihood(distribution, np.tile(Y, (3, 1)))
        assert model["y"].type.shape == (3, 7)
    with pm.Model() as model:
        likelihood(distribution, Y[:, None], mu=2.0)
        assert model["y"].type.shape == (7, 1)


@pytest.mark.parametrize(
    ("bad", "said"), [(-1.0, "-1.0"), (2.5, "2.5"), (np.inf, "inf"), (-np.inf, "-inf")]
)
def test_no_counts_are_named_with_their_row(distribution, bad, said):
    values = Y.astype(float)
    values[3] = bad
    for observed in (values, list(values), pd.Series(values), pt.as_tensor(values)):
        with pm.Model(), pytest.raises(ValueError, match=f"row 3 holds {said}"):
            likelihood(distribution, observed)
    with pm.Model():
        data = pm.Data("data", values)
        with pytest.raises(ValueError, match=f"row 3 holds {said}"):
            likelihood(distribution, data)


def test_rows_of_a_table(distribution):
    table = np.tile(Y, (2, 1))
    table[1, 4] = -3
    with pm.Model(), pytest.raises(ValueError, match=r"row \(1, 4\) holds -3"):
        likelihood(distribution, table)


@pytest.mark.parametrize(
    "observed",
    [["a"] * 7, Y + 1j, Y.astype("timedelta64[s]"), Y.astype("datetime64[s]")],
    ids=["words", "complex", "durations", "dates"],
)
def test_what_is_no_number_is_no_count(distribution, observed):
    with pm.Model(), pytest.raises(TypeError, match="observed of y must hold counts"):
        likelihood(distribution, observed)


@pytest.mark.parametrize("large", [2**31, 10**14, 2**53 - 1])
@pytest.mark.parametrize(
    "container",
    [np.array, list, pd.Series, np.float64, np.uint64, xr.DataArray, pt.as_tensor, "masked"],
)
def test_counts_of_more_than_32_bits(distribution, large, container, plain):
    """PyMC itself would make them others."""
    values = [1, large, 3]
    if container == "masked":
        observed = np.ma.MaskedArray(values, [False, False, True])
    else:
        observed = container(values)
    share = {} if distribution is pbs.CMP else {"psi": 0.8}
    with pm.Model() as model, warnings.catch_warnings():
        warnings.simplefilter("ignore", ImputationWarning)
        distribution("y", **share, mu=2e12, nu=1.0, observed=observed)
        seen = model.compile_logp(vars=model.observed_RVs, sum=False)(model.initial_point())[0]
    # 1 - exp(-2e12) is one: without a zero the hurdle is zero inflation.
    expected = stats.poisson.logpmf(values[: len(seen)], 2e12) + np.log(0.8) * bool(share)
    np.testing.assert_allclose(seen, expected, rtol=1e-14)


@pytest.mark.parametrize("large", [2**53, 2**60, 1e17])
def test_counts_that_doubles_do_not_tell_apart(distribution, large):
    for observed in (np.array([1, large]), [1, large], pt.as_tensor(np.array([1, large]))):
        with pm.Model(), pytest.raises(ValueError, match=r"below 2\*\*53: row 1 holds \d"):
            likelihood(distribution, observed, mu=2.0)


@pytest.mark.parametrize(
    "observed",
    [Y.astype(float), Y.astype(np.int8), Y.tolist(), pd.Series(Y), xr.DataArray(Y), Y > 1],
    ids=["floats", "bytes", "list", "series", "xarray", "booleans"],
)
def test_whole_numbers_of_any_type(distribution, observed):
    with pm.Model() as model:
        likelihood(distribution, observed)
    seen = model.rvs_to_values[model["y"]]
    assert seen.dtype == "int64"
    np.testing.assert_array_equal(seen.data, np.asarray(observed).astype(int))


@pytest.mark.parametrize("below", [0.5, -1.0, np.inf, np.nan, 1e300])
def test_a_mask_holds_whatever_lies_below_it(distribution, below):
    values = Y.astype(float)
    values[2] = below
    masked = np.ma.masked_array(values, np.arange(7) == 2)
    with pm.Model() as model, pytest.warns(ImputationWarning):
        likelihood(distribution, masked)
    np.testing.assert_array_equal(model.rvs_to_values[model["y_observed"]].data, np.delete(Y, 2))
    assert model["y_unobserved"].type.shape == (1,)


@pytest.mark.parametrize(
    "observed",
    [
        np.where(np.arange(7) == 2, np.nan, Y),
        pd.Series(np.where(np.arange(7) == 2, np.nan, Y)),
        pd.Series(Y).astype("Int64").mask(np.arange(7) == 2),
        [0, 2, np.nan, 3, 0, 4, 2],
    ],
    ids=["array", "series", "nullable", "list"],
)
def test_nan_is_missing(distribution, observed):
    with pm.Model() as model, pytest.warns(ImputationWarning):
        likelihood(distribution, observed)
    np.testing.assert_array_equal(model.rvs_to_values[model["y_observed"]].data, np.delete(Y, 2))


def test_missing_data_in_a_tensor(distribution):
    """PyMC imputes arrays only."""
    with pm.Model(), pytest.raises(ValueError, match="row 2 holds nan"):
        likelihood(distribution, pt.as_tensor(np.where(np.arange(7) == 2, np.nan, Y)))


def test_lists_of_tensors(distribution):
    with pm.Model() as model:
        rates = [pm.Gamma(f"rate_{i}", 2, 1) for i in range(2)]
        likelihood(distribution, [pt.constant(3), pt.constant(1)], mu=rates)
    assert model["y"].type.shape == (2,)
    with pm.Model(), pytest.raises(ValueError, match="row 1 holds -1"):
        likelihood(distribution, [pt.constant(3), pt.constant(-1)], mu=2.0)


def test_an_unknown_keyword_is_named(distribution):
    message = f"{distribution.__name__} has no argument 'sigma'; its parameters are .*nu"
    with pm.Model(), pytest.raises(TypeError, match=message):
        likelihood(distribution, Y, sigma=2.0)
    share = {} if distribution is pbs.CMP else {"psi": 0.8}
    with pytest.raises(TypeError, match="has no argument 'alpha'"):
        distribution.dist(**share, mu=1.0, nu=1.0, alpha=1.0)


def test_coords_of_another_length(distribution):
    coords = {"row": range(5)}
    with pm.Model(coords=coords):
        with pytest.raises(ValueError, match=r"shape \(7,\), its dims \('row',\) have .* \(5,\)"):
            likelihood(distribution, Y, dims="row")
        with pytest.raises(ValueError, match=r"parameters of y have shape \(7,\), its dims"):
            likelihood(distribution, None, dims="row")
        with pytest.raises(ValueError, match=r"shape \(5, 1\), its dims"):
            likelihood(distribution, Y[:5, None], mu=2.0, dims="row")


@pytest.mark.usefixtures("plain")
def test_fractions_that_come_later(distribution):
    """`pm.set_data` is no reason to round."""
    with pm.Model() as model:
        likelihood(distribution, pm.Data("counts", Y.astype(float)))
        logp = model.compile_logp()
        assert np.isfinite(logp({}))
        pm.set_data({"counts": Y + 0.5})
        assert logp({}) == -np.inf
