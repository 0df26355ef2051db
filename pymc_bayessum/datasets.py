"""Small public count data sets, embedded, with their sources.

Every loader returns a fresh :class:`pandas.DataFrame` with one row an observation; where it came
from stands in ``frame.attrs["source"]``.
"""

from collections.abc import Mapping
from importlib import resources

import numpy as np
import pandas as pd

__all__ = ["freight", "load", "names", "sales", "sitophilus", "syllables", "takeoverbids"]

_SALES_FROM_ZERO = [
    *(514, 503, 457, 423, 326, 233, 195, 139, 101, 77, 56),
    *(40, 37, 22, 9, 7, 10, 9, 3, 2, 2, 2),
]
_SALES = dict(enumerate(_SALES_FROM_ZERO)) | {30: 1}
_SYLLABLES = {
    "hungarian": dict(enumerate([1421, 12333, 20711, 15590, 5544, 1510, 289, 60, 1], start=1)),
    "slovak": dict(enumerate([7, 33, 49, 22, 6], start=1)),
}


def _from_histogram(
    column: str, histogram: Mapping[int, int], source: str, as_histogram: bool
) -> pd.DataFrame:
    values = np.array(list(histogram), dtype=np.int64)
    frequencies = np.array(list(histogram.values()), dtype=np.int64)
    if as_histogram:
        frame = pd.DataFrame({column: values, "frequency": frequencies})
    else:
        frame = pd.DataFrame({column: np.repeat(values, frequencies)})
    frame.attrs["source"] = source
    return frame


def _from_csv(name: str, source: str) -> pd.DataFrame:
    with resources.files("pymc_bayessum").joinpath("data", f"{name}.csv").open() as file:
        frame = pd.read_csv(file)
    frame.attrs["source"] = source
    return frame


def sales(histogram: bool = False) -> pd.DataFrame:
    """Quarterly sales of one article of clothing: 3168 over-dispersed counts.

    Parameters
    ----------
    histogram : bool, default False
        Return one row a distinct count, with its ``frequency``, instead of one row an observation.

    Returns
    -------
    DataFrame
        Column ``sales`` (and ``frequency`` for the histogram).

    Examples
    --------
    >>> from pymc_bayessum import datasets
    >>> datasets.sales()["sales"].agg(["size", "max"]).tolist()
    [3168, 30]
    >>> datasets.sales(histogram=True).columns.tolist()
    ['sales', 'frequency']
    """
    source = (
        "Shmueli, Minka, Kadane, Borle and Boatwright (2005), A useful distribution for fitting "
        "discrete data: revival of the Conway-Maxwell-Poisson distribution, JRSS C 54(1)."
    )
    return _from_histogram("sales", _SALES, source, histogram)


def freight() -> pd.DataFrame:
    """Airfreight breakage: broken ampules by the number of transfers of a shipment; 10 rows.

    Columns ``broken`` and ``transfers``.

    Examples
    --------
    >>> from pymc_bayessum import datasets
    >>> datasets.freight().shape
    (10, 2)
    """
    return _from_csv(
        "freight", "Kutner, Nachtsheim and Neter (2003), Applied Linear Regression Models."
    )


def takeoverbids() -> pd.DataFrame:
    """Bids received by 126 firms that were takeover targets: under-dispersed counts.

    Response ``numbids`` and the covariates ``leglrest``, ``rearest``, ``finrest``, ``whtknght``,
    ``bidprem``, ``insthold``, ``size``, ``sizesq``, ``regulatn``, among others.

    Examples
    --------
    >>> from pymc_bayessum import datasets
    >>> len(datasets.takeoverbids())
    126
    """
    return _from_csv(
        "takeoverbids",
        "Cameron and Johansson (1997), Count data regression using series expansions: with "
        "applications, Journal of Applied Econometrics 12(3).",
    )


def sitophilus() -> pd.DataFrame:
    """Weevil progeny under four plant extracts: 40 over-dispersed counts.

    Columns ``extract`` (Control, Leaf, Branch or Seed) and ``ninsect``.

    Examples
    --------
    >>> from pymc_bayessum import datasets
    >>> sorted(datasets.sitophilus()["extract"].unique())
    ['Branch', 'Control', 'Leaf', 'Seed']
    """
    return _from_csv(
        "sitophilus", "Ribeiro et al. (2012): progeny of Sitophilus zeamais under plant extracts."
    )


def syllables(language: str = "hungarian", histogram: bool = False) -> pd.DataFrame:
    """Syllables a word in a Hungarian dictionary or a Slovak poem: under-dispersed counts.

    Parameters
    ----------
    language : {"hungarian", "slovak"}
        Which counts.
    histogram : bool, default False
        Return one row a distinct count, with its ``frequency``, instead of one row an observation.

    Returns
    -------
    DataFrame
        Column ``syllables`` (and ``frequency`` for the histogram); every word has at least one.

    Examples
    --------
    >>> from pymc_bayessum import datasets
    >>> len(datasets.syllables("slovak"))
    117
    """
    if language not in _SYLLABLES:
        raise ValueError(f"language must be one of {sorted(_SYLLABLES)}, got {language!r}")
    source = (
        "Wimmer, Koehler, Grotjahn and Altmann (1994), Towards a theory of word length "
        "distribution, Journal of Quantitative Linguistics 1(1)."
    )
    return _from_histogram("syllables", _SYLLABLES[language], source, histogram)


_LOADERS = {each.__name__: each for each in (freight, sales, sitophilus, syllables, takeoverbids)}


def names() -> list[str]:
    """Names that :func:`load` knows.

    Examples
    --------
    >>> from pymc_bayessum import datasets
    >>> datasets.names()
    ['freight', 'sales', 'sitophilus', 'syllables', 'takeoverbids']
    """
    return list(_LOADERS)


def load(name: str) -> pd.DataFrame:
    """Load a data set by its name.

    Parameters
    ----------
    name : str
        One of :func:`names`.

    Examples
    --------
    >>> from pymc_bayessum import datasets
    >>> datasets.load("freight").columns.tolist()
    ['broken', 'transfers']
    """
    if name not in _LOADERS:
        raise ValueError(f"name must be one of {names()}, got {name!r}")
    return _LOADERS[name]()
