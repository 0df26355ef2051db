"""Posterior probabilities of hidden labels."""

import numpy as np
import pytest
import xarray as xr

import pymc_bayessum as pbs

RNG = np.random.default_rng(0)
DRAWS = RNG.integers(0, 3, (2, 50, 4, 6))


def tree(**variables):
    dims = ("chain", "draw", "image", "pixel")
    data = {name: (dims[: np.ndim(v)], v) for name, v in variables.items()}
    return xr.DataTree.from_dict({"posterior": xr.Dataset(data, coords={"image": list("abcd")})})


def test_shares_of_draws_in_the_shape_of_the_image():
    found = pbs.label_probabilities(tree(z=DRAWS, J=np.zeros((2, 50))), shape=(2, 3))
    assert found.dims == ("image", "row", "column", "label")
    assert found.image.values.tolist() == list("abcd")
    np.testing.assert_allclose(found.sum("label"), 1.0)
    share = (DRAWS[:, :, 1] == 2).mean(axis=(0, 1)).reshape(2, 3)
    np.testing.assert_allclose(found.sel(image="b", label=2), share)


def test_labels_that_were_never_drawn_and_spins():
    found = pbs.label_probabilities(tree(z=DRAWS, other=DRAWS), "z", labels=4)
    assert found.label.values.tolist() == [0, 1, 2, 3]
    assert float(found.sel(label=3).max()) == 0.0
    spins = pbs.label_probabilities(tree(z=2 * (DRAWS > 0) - 1))
    assert spins.label.values.tolist() == [-1, 1]


@pytest.mark.parametrize(
    ("variables", "arguments", "message"),
    [
        ({"z": DRAWS}, {"group": "prior"}, "dt must have the group 'prior', has"),
        (
            {"z": DRAWS, "w": DRAWS},
            {},
            r"var_name must be one of the integer variables \['z', 'w'\]",
        ),
        ({"z": DRAWS}, {"shape": (2, 2)}, r"shape must hold 6 pixels, got \(2, 2\)"),
        ({"z": DRAWS}, {"labels": 2}, "labels must hold all that were drawn, 0 to 2, got 2"),
    ],
)
def test_bad_arguments_are_named(variables, arguments, message):
    with pytest.raises(ValueError, match=message):
        pbs.label_probabilities(tree(**variables), **arguments)
