"""The command line: a fit from a file, and clear answers to bad input."""

import arviz as az
import numpy as np
import pandas as pd
import pytest

from pymc_bayessum import datasets
from pymc_bayessum.__main__ import build_model, main, read_frame

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
    assert out.with_suffix(".png").stat().st_size > 5000
    posterior = az.from_netcdf(out.with_suffix(".nc"))["posterior"]
    # The maximum-likelihood slope is 0.2635 with standard error 0.034.
    assert abs(float(posterior["slope"].mean()) - 0.2635) < 0.1
    assert posterior["slope"].coords["covariate"].values.tolist() == ["transfers"]


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
    for option in ["--response", "--covariates", "--nu-covariates", "--offset", "--out", "--seed"]:
        assert option in printed
