"""The command line: a fit from a file, and clear answers to bad input."""

import contextlib
import os
import signal
import time

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pymc_bayessum as pbs
from pymc_bayessum import datasets
from pymc_bayessum.__main__ import build_model, main, read_frame
from pymc_bayessum.cli import fit as fitting
from pymc_bayessum.cli.regression import Recipe, formula_model

FEW_DRAWS = ["--draws", "200", "--tune", "200", "--chains", "2"]


@pytest.fixture
def freight_csv(tmp_path):
    path = tmp_path / "freight.csv"
    datasets.freight().assign(hours=2.0, route=["a", "b"] * 5).to_csv(path, index=False)
    return path


@pytest.mark.slow
def test_fit_writes_result_table_and_picture(freight_csv, tmp_path, capsys):
    out = tmp_path / "result"
    words = ["fit-cmp", str(freight_csv), "--response", "broken", "--covariates", "transfers"]
    assert main([*words, *FEW_DRAWS, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "slope[transfers]" in printed
    assert "nu" in printed
    assert "…" not in printed
    assert "Not converged: " in printed  # 200 draws of two chains are too few
    assert "Normaliser check: GOOD" in printed
    # What is saved says the same again, with the verdict or when that has to be found.
    assert main(["check", f"{out}.nc"]) == 0
    assert capsys.readouterr().out.strip() in printed
    saved = az.from_netcdf(f"{out}.nc")
    saved.load().drop_nodes("normalizer").to_netcdf(tmp_path / "unchecked.nc")
    assert main(["check", str(tmp_path / "unchecked.nc")]) == 0
    assert "Normaliser check: GOOD" in capsys.readouterr().out
    assert out.with_suffix(".png").stat().st_size > 5000
    posterior = az.from_netcdf(out.with_suffix(".nc"))["posterior"]
    # The maximum-likelihood slope is 0.2635 with standard error 0.034.
    assert abs(float(posterior["slope"].mean()) - 0.2635) < 0.1
    assert posterior["slope"].coords["covariate"].values.tolist() == ["transfers"]


@pytest.mark.usefixtures("plain")
def test_offset_text_covariates_and_a_dispersion_of_its_own(freight_csv):
    frame = pd.read_csv(freight_csv)
    model = build_model(frame, "broken", ["transfers", "route"], ["transfers"], "hours")
    assert model.coords["covariate"] == ("transfers", "route_b")
    assert {"slope", "nu_slope", "intercept", "nu_intercept"} <= set(model.named_vars)
    assert np.isfinite(model.compile_logp()(model.initial_point()))


@pytest.mark.parametrize(
    ("change", "words", "answer"),
    [
        (None, ["--response", "broken", "--covariates", "weight"], "no column 'weight'"),
        (("broken", -1), ["--response", "broken"], "line 2 of the file holds -1"),
        (("broken", 1.5), ["--response", "broken"], "line 2 of the file holds 1.5"),
        (("broken", np.nan), ["--response", "broken"], "empty cells"),
        (None, ["--response", "route"], "it holds text"),
        (None, ["--response", "broken", "--covariates", "hours"], "same in every row"),
        (("hours", 0.0), ["--response", "broken", "--offset", "hours"], "must hold positive"),
        (None, ["--response", "broken", "--offset", "route"], "must hold positive numbers"),
        (None, ["--response", "broken", "--covariates", "broken"], "cannot explain itself"),
        (("hours", np.inf), ["--response", "broken", "--covariates", "hours"], "must be finite"),
        (("broken", np.inf), ["--response", "broken"], "line 2 of the file holds inf"),
        (None, ["--response", "broken", "--out", "no/where/at/all"], "no such directory"),
        (None, ["--covariates", "transfers"], "--response or --formula must say"),
        (None, ["--formula", "broken ~ transfers +"], "cannot be read"),
        (None, ["--formula", "broken ~ weight"], "no column 'weight'"),
        (None, ["--formula", "broken ~ 1", "--covariates", "hours"], "exclude each other"),
        (None, ["--formula", "broken ~ 1", "--response", "hours"], "is not the response"),
    ],
)
def test_bad_files_are_answered_in_one_line(freight_csv, capsys, change, words, answer):
    if change is not None:
        frame = pd.read_csv(freight_csv)
        column, value = change
        frame[column] = frame[column].astype(float)
        frame.loc[0, column] = value
        frame.to_csv(freight_csv, index=False)
    assert main(["fit-cmp", str(freight_csv), *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert answer in error
    assert error.count("\n") == 1


@pytest.mark.usefixtures("plain")
def test_a_formula_means_what_the_columns_mean(freight_csv):
    pytest.importorskip("bambi")
    frame = read_frame(freight_csv, "broken", ["transfers", "route", "hours"])
    frame["hours"] = np.arange(1.0, 11.0)
    model = formula_model(frame, "broken ~ transfers", ["route"], "hours", zero_inflated=True)
    backend = model.backend.model
    values = {"Intercept": 1.0, "transfers": 0.2, "nu_Intercept": 0.1, "nu_route": [0.3]}
    point = {
        name: np.asarray({**values, "psi_logodds__": 1.2}[name], dtype=float)
        for name in backend.initial_point()
    }
    found = backend.compile_logp(vars=backend.observed_RVs)(point)
    x, route = frame["transfers"].to_numpy(), (frame["route"] == "b").to_numpy()
    # Bambi's intercepts are the values at the means of the covariates.
    mu = frame["hours"].to_numpy() * np.exp(1.0 + 0.2 * (x - x.mean()))
    nu = np.exp(0.1 + 0.3 * (route - route.mean()))
    rv = pbs.ZeroInflatedCMP.dist(psi=1 / (1 + np.exp(-1.2)), mu=mu, nu=nu)
    assert found == pytest.approx(pm.logp(rv, frame["broken"].to_numpy()).eval().sum(), abs=1e-8)


def test_a_recipe_names_the_columns_that_it_needs():
    pytest.importorskip("bambi")
    recipe = Recipe("y", (), ["z"], "hours", formula="y ~ scale(x) + (1|g)")
    assert recipe.columns == ["g", "x", "z", "hours"]


def test_zero_inflation_and_numbers_that_are_names(freight_csv):
    frame = read_frame(freight_csv, "broken", ["transfers"], ["transfers"])
    model = build_model(frame, "broken", ["transfers"], zero_inflated=True)
    assert model.coords["covariate"] == ("transfers_1", "transfers_2", "transfers_3")
    assert "psi" in model.named_vars


@pytest.mark.parametrize(
    ("separator", "decimal", "said"),
    [
        (",", ".", ""),
        (";", ",", "semicolons and decimal commas"),
        (";", ".", "semicolons"),
        ("\t", ".", "tabs"),
        ("|", ".", "bars"),
        (" ", ".", "spaces"),
    ],
)
def test_separator_is_guessed_and_said(tmp_path, capsys, separator, decimal, said):
    frame = pd.DataFrame({"y": [3, 0, 2], "x": [0.5, 1.25, -2.0]})
    path = tmp_path / "table.csv"
    frame.to_csv(path, sep=separator, decimal=decimal, index=False)
    pd.testing.assert_frame_equal(read_frame(path, "y", ["x"]), frame)
    wanted = f"table.csv: columns separated by {said}, as it seems\n" if said else ""
    assert capsys.readouterr().out == wanted


@pytest.mark.parametrize(("kept", "said"), [(3, "the first 3 of 5 draws"), (0, "nothing was")])
def test_an_interrupted_fit_leaves_its_draws(monkeypatch, freight_csv, capsys, kept, said):
    """A sampler that is stopped hands over draws of unequal length, filled up with NaN."""

    def stopped(model, **options):
        draws = np.full((2, 4), np.nan)
        draws[:, :kept] = 1.0
        draws[0, :4] = 1.0
        return az.from_dict({"posterior": {"centre": draws, "nu": draws}})

    monkeypatch.setattr(fitting.pm, "sample", stopped)
    words = ["fit-cmp", str(freight_csv), "--response", "broken", "--draws", "5"]
    assert main(words) == 130
    error = capsys.readouterr().err
    assert error.startswith("interrupted: ")
    assert said in error
    assert error.count("\n") == 1
    result = freight_csv.with_name("freight_cmp.nc")
    assert result.exists() == bool(kept)
    if kept:
        assert az.from_netcdf(result)["posterior"].sizes["draw"] == 3


def test_an_interruption_after_the_draws_leaves_them(monkeypatch, freight_csv, capsys):
    """PyMC's predictions take Ctrl-C for the end of their loop; here it is the end of the fit."""

    def predict(*args, **options):
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        pytest.fail("went on")

    draws = np.ones((2, 5))
    sampled = az.from_dict({"posterior": {"centre": draws, "nu": draws}})
    monkeypatch.setattr(fitting.pm, "sample", lambda model, **options: sampled)
    monkeypatch.setattr(fitting.pm, "sample_posterior_predictive", predict)
    assert main(["fit-cmp", str(freight_csv), "--response", "broken", "--draws", "5"]) == 130
    assert capsys.readouterr().err.endswith("freight_cmp.nc holds all draws, unchecked\n")
    assert freight_csv.with_name("freight_cmp.nc").exists()


def test_what_check_cannot_read(tmp_path, freight_csv, capsys):
    assert main(["check", str(tmp_path / "none.nc")]) == 2
    assert "no such file" in capsys.readouterr().err
    assert main(["check", str(freight_csv)]) == 2
    assert "not a netCDF file" in capsys.readouterr().err
    az.from_dict({"posterior": {"a": np.zeros((1, 5))}}).to_netcdf(tmp_path / "else.nc")
    assert main(["check", str(tmp_path / "else.nc")]) == 2
    assert "neither a verdict nor the recipe" in capsys.readouterr().err


def test_version_is_told(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"pymc_bayessum {pbs.__version__}\n"


def test_missing_file(tmp_path, capsys):
    assert main(["fit-cmp", str(tmp_path / "none.csv"), "--response", "y"]) == 2
    assert "no such file" in capsys.readouterr().err


def test_a_directory_is_no_file(tmp_path, capsys):
    assert main(["fit-cmp", str(tmp_path), "--response", "y"]) == 2
    assert "is a directory" in capsys.readouterr().err


def test_bad_numbers_of_draws(capsys):
    for option in ("--draws", "--tune", "--chains"):
        with pytest.raises(SystemExit):
            main(["demo", option, "-5"])
        assert "whole number from 1 on" in capsys.readouterr().err


def test_trailing_commas_do_not_shift_columns(tmp_path):
    path = tmp_path / "commas.csv"
    path.write_text("y,x\n1,20,\n3,40,\n")
    assert read_frame(path, "y", ["x"])["y"].tolist() == [1, 3]


def test_a_response_named_like_a_parameter():
    frame = datasets.freight().rename(columns={"broken": "nu", "transfers": "slope"})
    model = build_model(frame, "nu", ["slope"])
    assert [rv.name for rv in model.observed_RVs] == ["nu_count"]


def test_help_names_every_option(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["fit-cmp", "--help"])
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    options = "response covariates formula nu-covariates categorical offset zero-inflated out seed"
    for option in options.split():
        assert f"--{option}" in printed
