"""Every picture on every backend, and the numbers behind them."""

import importlib.util

import numpy as np
import pytest
import xarray as xr

import pymc_bayessum as pbs

BACKENDS = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            importlib.util.find_spec(library) is None, reason=f"{library} is not installed"
        ),
    )
    for name, library in [
        ("none", "numpy"),
        ("matplotlib", "matplotlib"),
        ("plotly", "webcolors"),
        ("bokeh", "bokeh"),
    ]
]


@pytest.fixture(autouse=True)
def no_screen(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    yield
    if importlib.util.find_spec("matplotlib"):
        import matplotlib.pyplot as plt

        plt.close("all")


def checked_tree(khat=0.3, names=("sales", "returns"), sd=1e-3):
    rng = np.random.default_rng(1)
    shape = (2, 30, len(names))
    dims = ("chain", "draw", "normalizer")
    group = xr.Dataset(
        {
            "log_z_error": (dims, rng.normal(size=shape) * 1e-3),
            "log_z_sd": (dims, np.full(shape, sd)),
            "pareto_k": khat,
            "pareto_k_alone": ("normalizer", np.full(len(names), khat)),
        },
        coords={"chain": [0, 1], "draw": np.arange(30), "normalizer": list(names)},
        attrs={"khat_threshold": 0.66},
    )
    return xr.DataTree.from_dict({"normalizer": group})


@pytest.fixture(scope="module")
def counts():
    """Poisson predictions of over-dispersed counts, by rows of different means."""
    rng = np.random.default_rng(2)
    mean = np.repeat([2.0, 8.0, 20.0], 60)
    replicated = rng.poisson(mean, size=(2, 100, 180))
    observed = rng.negative_binomial(2.0, 2.0 / (2.0 + mean))
    return xr.DataTree.from_dict(
        {
            "posterior_predictive": xr.Dataset(
                {
                    "y": (("chain", "draw", "row"), replicated),
                    "z": (("chain", "draw"), np.ones((2, 100))),
                }
            ),
            "observed_data": xr.Dataset({"y": ("row", observed)}),
        }
    )


def drawn(collection, visual, name="y", **selection):
    """What the backend "none" was asked to draw."""
    return collection.get_viz(visual, name, **selection)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("khat", [0.0, 0.6, np.inf])
def test_plot_normalizer_draws(backend, khat):
    pc = pbs.plot_normalizer(checked_tree(khat), backend=backend)
    assert dict(pc.viz["plot"].sizes) == {"normalizer": 2, "panel": 3}
    one = pbs.plot_normalizer(checked_tree(khat), normalizers="sales", backend=backend)
    assert one.viz["plot"].sizes["normalizer"] == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_plot_normalizer_without_sd(backend):
    pbs.plot_normalizer(checked_tree(sd=np.nan), backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["standing", "hanging"])
def test_plot_rootogram_draws(backend, kind, counts):
    pc = pbs.plot_rootogram(counts, kind=kind, backend=backend)
    # A variable that was not observed has no picture.
    assert list(pc.viz["plot"].data_vars) == ["y"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_plot_dispersion_draws(backend, counts):
    pbs.plot_dispersion(counts, backend=backend)


def test_errors_and_khat_are_where_they_should_be():
    tree = checked_tree(0.3)
    pc = pbs.plot_normalizer(tree, backend="none")
    error = drawn(pc, "error_error", "check", normalizer="returns", panel="error")
    expected = tree["normalizer"]["log_z_error"].sel(normalizer="returns").values.ravel()
    np.testing.assert_array_equal(error["y"], expected)
    np.testing.assert_array_equal(error["x"], np.arange(60))
    cloud = drawn(pc, "calibration_calibration", "check", normalizer="returns", panel="calibration")
    np.testing.assert_allclose(cloud["x"], -3.0)
    np.testing.assert_allclose(cloud["y"], np.log10(abs(expected)))
    khat = drawn(pc, "khat_khat", "check", normalizer="returns", panel="khat")
    assert khat["y"] == pytest.approx(0.3)


def test_tiny_errors_are_shown_in_their_own_unit():
    tree = checked_tree()
    tree["normalizer"]["log_z_error"] = tree["normalizer"]["log_z_error"] * 1e-9
    pc = pbs.plot_normalizer(tree, backend="none")
    label = drawn(pc, "ylabel_error", "check", normalizer="sales", panel="error")["string"]
    assert label == "error of log Z, in 1e-12"
    shown = drawn(pc, "error_error", "check", normalizer="sales", panel="error")["y"]
    expected = tree["normalizer"]["log_z_error"].sel(normalizer="sales").values.ravel()
    np.testing.assert_allclose(1e-12 * shown, expected)


def test_hanging_bars_end_at_the_difference_of_roots(counts):
    pc = pbs.plot_rootogram(counts, kind="hanging", max_bars=1000, backend="none")
    bars = drawn(pc, "observed_bars")
    observed = counts["observed_data"]["y"].values
    replicated = counts["posterior_predictive"]["y"].values.reshape(200, 180)
    for value in (0, 2, 7):
        at = np.flatnonzero(np.asarray(bars["x"]) == value)[0]
        top = np.sqrt((replicated == value).sum(axis=1).mean())
        assert np.asarray(bars["y_top"])[at] == pytest.approx(top)
        bottom = top - np.sqrt((observed == value).sum())
        assert np.asarray(bars["y_bottom"])[at] == pytest.approx(bottom)


def test_dispersion_shows_what_the_model_misses(counts):
    pc = pbs.plot_dispersion(counts, n_groups=3, backend="none")
    seen = 10 ** np.asarray(drawn(pc, "observed_markers")["y"])
    predicted = 10 ** np.asarray(drawn(pc, "predictive_markers")["y"])
    means = 10 ** np.asarray(drawn(pc, "predictive_markers")["x"])
    np.testing.assert_allclose(means, [2.0, 8.0, 20.0], rtol=0.05)
    np.testing.assert_allclose(predicted, means, rtol=0.2)  # Poisson: variance = mean
    observed = counts["observed_data"]["y"].values.reshape(3, 60)
    expected = ((observed - means[:, None]) ** 2).mean(axis=1)
    np.testing.assert_allclose(seen, expected, rtol=0.1)


def test_rows_of_equal_mean_are_one_group():
    rng = np.random.default_rng(3)
    tree = {
        "posterior_predictive": xr.Dataset(
            {"y": (("chain", "draw", "row"), rng.poisson(3.0, size=(1, 200, 300)))}
        ),
        "observed_data": xr.Dataset({"y": ("row", rng.poisson(3.0, size=300))}),
    }
    pc = pbs.plot_dispersion(xr.DataTree.from_dict(tree), backend="none")
    assert np.size(drawn(pc, "observed_markers")["x"]) == 1


def test_wide_counts_are_binned():
    rng = np.random.default_rng(4)
    tree = {
        "posterior_predictive": xr.Dataset(
            {"y": (("chain", "draw", "row"), rng.poisson(3000.0, size=(1, 50, 80)))}
        ),
        "observed_data": xr.Dataset({"y": ("row", rng.poisson(3000.0, size=80).astype(float))}),
    }
    tree = xr.DataTree.from_dict(tree)
    pc = pbs.plot_rootogram(tree, kind="hanging", max_bars=20, backend="none")
    assert np.size(drawn(pc, "observed_bars")["x"]) <= 22
    assert "in bins of" in drawn(pc, "xlabel")["string"]


def tree_of(replicated, observed):
    return xr.DataTree.from_dict(
        {
            "posterior_predictive": xr.Dataset({"y": (("chain", "draw", "row"), replicated[None])}),
            "observed_data": xr.Dataset({"y": ("row", observed)}),
        }
    )


def frequencies(tree, kind, **options):
    """Observed frequencies by where they are drawn, from either picture."""
    pc = pbs.plot_rootogram(tree, kind=kind, backend="none", **options)
    if kind == "standing":
        shown = drawn(pc, "observed_markers")
        seen = np.asarray(shown["y"])
    else:
        shown = drawn(pc, "observed_bars")
        seen = (np.asarray(shown["y_top"]) - np.asarray(shown["y_bottom"])) ** 2
    return dict(zip(np.asarray(shown["x"]).astype(int), seen.round(8), strict=True)), pc


@pytest.mark.parametrize("kind", ["standing", "hanging"])
def test_zero_is_never_merged_into_a_bin(kind):
    """Skewed counts over a wide range, most of them zero."""
    rng = np.random.default_rng(5)
    observed = rng.negative_binomial(0.2, 0.002, size=300)
    replicated = rng.negative_binomial(0.2, 0.002, size=(50, 300))
    shown, pc = frequencies(tree_of(replicated, observed), kind, max_bars=20)
    assert shown[0] == (observed == 0).sum() > 0
    assert sum(shown.values()) == pytest.approx(300)
    assert "zero alone" in drawn(pc, "xlabel")["string"]


@pytest.mark.parametrize("kind", ["standing", "hanging"])
def test_ends_near_the_largest_count(kind):
    """However far a few draws, or all of them, go; what lies beyond is in the last bar."""
    rng = np.random.default_rng(6)
    observed = rng.poisson(2.0, size=100)
    replicated = rng.poisson(2.0, size=(50, 100))
    replicated[0, 0] = 10_000
    for far in (replicated, replicated + 50):
        shown, pc = frequencies(tree_of(far, observed), kind)
        assert observed.max() <= max(shown) <= observed.max() + 4
        assert "and more" in drawn(pc, "xlabel")["string"]
        predicted = np.asarray(drawn(pc, "predictive_markers")["y"])
        total = predicted.sum() if kind == "standing" else (predicted**2).sum()
        assert total == pytest.approx(100)


@pytest.mark.parametrize("kind", ["standing", "hanging"])
def test_counts_that_do_not_occur_are_drawn(kind):
    observed = np.array([0, 0, 1, 1, 7])
    replicated = np.tile(observed, (10, 1))
    shown, _ = frequencies(tree_of(replicated, observed), kind)
    assert shown == {0: 2, 1: 2, 2: 0, 3: 0, 4: 0, 5: 0, 6: 0, 7: 1}


@pytest.mark.parametrize("kind", ["standing", "hanging"])
def test_nothing_but_zeros(kind):
    zeros = np.zeros(6, dtype=int)
    shown, _ = frequencies(tree_of(np.tile(zeros, (10, 1)), zeros), kind)
    assert shown == {0: 6, 1: 0}


def test_visuals_can_be_changed_and_left_out(counts):
    visuals = {"zero_line": False, "observed_bars": {"color": "red"}}
    pc = pbs.plot_rootogram(counts, kind="hanging", backend="none", visuals=visuals)
    assert "zero_line" not in pc.viz.children
    assert drawn(pc, "observed_bars")["color"] == "red"
    with pytest.raises(ValueError, match="valid keys"):
        pbs.plot_rootogram(counts, backend="none", visuals={"unknown": {}})
    with pytest.raises(ValueError, match="valid keys"):
        pbs.plot_normalizer(checked_tree(), backend="none", visuals={"unknown": {}})


def test_draws_on_a_given_collection(counts):
    pc = pbs.plot_rootogram(counts, kind="hanging", backend="none")
    assert pbs.plot_rootogram(counts, kind="hanging", plot_collection=pc) is pc


def test_bad_input_is_answered(counts):
    with pytest.raises(ValueError, match="check_normalizer"):
        pbs.plot_normalizer(counts)
    with pytest.raises(ValueError, match=r"among \['sales', 'returns'\], got \['other'\]"):
        pbs.plot_normalizer(checked_tree(), normalizers="other")
    with pytest.raises(ValueError, match="'standing' or 'hanging'"):
        pbs.plot_rootogram(counts, kind="lying")
    with pytest.raises(ValueError, match="must have the groups"):
        pbs.plot_rootogram(xr.DataTree())
    with pytest.raises(ValueError, match="which were observed"):
        pbs.plot_rootogram(counts, var_names="z")
    with pytest.raises(ValueError, match="between 1 and 180"):
        pbs.plot_dispersion(counts, n_groups=500, backend="none")
    broken = counts.copy()
    broken["observed_data"] = xr.Dataset({"y": ("row", np.full(180, 0.5))})
    with pytest.raises(ValueError, match="must hold counts"):
        pbs.plot_dispersion(broken)


def test_after_a_real_check():
    import pymc as pm

    rule = pbs.geometric_rule(0.4, n=30)
    with pm.Model() as model:
        rate = pm.Exponential("rate", 1.0)
        pbs.Unnormalized("y", lambda x, r: -r * x, rate, rule=rule, observed=[0, 2, 5])
    rates = np.random.default_rng(1).gamma(4.0, 0.1, size=(2, 40))
    draws = xr.Dataset({"rate": (("chain", "draw"), rates)})
    checked = pbs.check_normalizer(draws, model, progressbar=False)
    pc = pbs.plot_normalizer(checked, backend="none")
    error = drawn(pc, "error_error", "check", normalizer="y", panel="error")
    np.testing.assert_array_equal(error["y"], checked["normalizer"]["log_z_error"].values.ravel())
