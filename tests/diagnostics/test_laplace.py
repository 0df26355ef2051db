"""How far a mode moves, where that is known exactly."""

import numpy as np
import pymc as pm
import pytest

from pymc_bayessum.diagnostics.importance import smooth_weights
from pymc_bayessum.diagnostics.laplace import Laplace


def test_linear_change_of_a_correlated_normal():
    cov = np.array([[4.0, 1.9], [1.9, 1.0]])
    slope = np.array([0.1, -0.3])
    with pm.Model() as model:
        pm.MvNormal("x", [1.0, 2.0], cov)
    # The mode moves by cov @ slope: sqrt(slope' cov slope) in units of the posterior.
    shift = Laplace.at({"x": [1.0, 2.0]}, model).shift(lambda at: slope @ at["x"])
    assert shift == pytest.approx(np.sqrt(slope @ cov @ slope), rel=1e-6)


def test_transformed_and_discrete_variables():
    with pm.Model() as model:
        pm.Gamma("rate", 5.0, 2.0)
        pm.Poisson("count", 3.0)
    # Mode of the density of rate: 2; curvature of log p in log rate there: -2 * 2 = -4.
    point = {"rate": 2.0, "count": 3}
    shift = Laplace.at(point, model).shift(lambda at: 0.2 * float(np.log(at["rate"])) + at["count"])
    assert shift == pytest.approx(0.2 / np.sqrt(4.0), rel=1e-5)


def test_many_directions_are_sampled():
    with pm.Model() as model:
        pm.Normal("x", sigma=0.5, shape=200)
    shift = Laplace.at({"x": np.zeros(200)}, model).shift(lambda at: 0.1 * at["x"].sum())
    assert shift == pytest.approx(0.1 * 0.5 * np.sqrt(200), rel=0.35)


def test_no_mode_no_answer():
    with pm.Model() as model:
        x = pm.Flat("x")
        pm.Potential("bowl", x**2)
    assert Laplace.at({"x": 0.0}, model) is None


def test_how_far_a_mode_is():
    cov = np.array([[4.0, 1.9], [1.9, 1.0]])
    away = np.array([1.0, -0.5])
    with pm.Model() as model:
        pm.MvNormal("x", [1.0, 2.0], cov)
    distance = Laplace.at({"x": np.array([1.0, 2.0]) + away}, model).distance
    assert distance == pytest.approx(np.sqrt(away @ np.linalg.solve(cov, away)), rel=1e-6)


def test_a_point_without_a_reference_has_moved_any_distance():
    assert smooth_weights(np.array([-np.inf])).shift == np.inf
