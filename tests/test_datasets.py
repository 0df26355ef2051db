"""The embedded data sets against published totals."""

import numpy as np
import pytest

from pymc_bayessum import datasets


def test_sales_matches_the_published_histogram():
    frame = datasets.sales()
    histogram = datasets.sales(histogram=True)
    assert len(frame) == 3168 == histogram["frequency"].sum()
    counts = np.bincount(frame["sales"])
    assert counts[0] == 514
    assert counts[21] == 2
    assert counts[30] == 1
    assert np.all(counts[22:30] == 0)


def test_freight_is_the_textbook_table():
    frame = datasets.freight()
    assert frame["broken"].tolist() == [16, 9, 17, 12, 22, 13, 8, 15, 19, 11]
    assert frame["transfers"].tolist() == [1, 0, 2, 0, 3, 1, 0, 1, 2, 0]


def test_takeoverbids_has_its_covariates():
    frame = datasets.takeoverbids()
    assert len(frame) == 126
    # Mean and variance of the bids as reported by Cameron and Johansson.
    assert frame["numbids"].mean() == pytest.approx(1.738, abs=5e-4)
    assert frame["numbids"].std() == pytest.approx(1.432, abs=5e-4)
    np.testing.assert_allclose(frame["sizesq"], frame["size"] ** 2, rtol=1e-6)


def test_sitophilus_is_balanced():
    frame = datasets.sitophilus()
    assert (frame["extract"].value_counts() == 10).all()


@pytest.mark.parametrize(("language", "total"), [("slovak", 117), ("hungarian", 57459)])
def test_syllables(language, total):
    frame = datasets.syllables(language)
    assert len(frame) == total
    assert frame["syllables"].min() == 1


@pytest.mark.parametrize("name", datasets.names())
def test_every_frame_says_where_it_comes_from_and_is_fresh(name):
    frame = datasets.load(name)
    assert frame.attrs["source"]
    frame["added"] = 0
    assert "added" not in datasets.load(name)


def test_unknown_names_are_answered():
    with pytest.raises(ValueError, match="name must be one of"):
        datasets.load("nothing")
    with pytest.raises(ValueError, match="language must be one of"):
        datasets.syllables("latin")
