"""Networks of ordinal items: a Potts model whose couplings multiply scores of categories."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_bayessum.graphs.layouts import as_edges, complete
from pymc_bayessum.graphs.potts import GraphDistribution, PottsRV, as_parameter
from pymc_bayessum.graphs.statistics import PottsLayout, static_shape
from pymc_bayessum.normalizers.drawn import apply_rv

__all__ = ["OrdinalMRF"]


class OrdinalMRFRV(PottsRV):
    """Random rows of an ordinal network."""

    name = "ordinal_mrf"
    _print_name = ("OrdinalMRF", "\\operatorname{OrdinalMRF}")


class OrdinalMRF(GraphDistribution):
    r"""Ordinal Markov random field: a network of items, each with its own number of categories.

    .. math::

       p(x) = \frac{1}{Z} \exp\Big(\sum_i \tau_i(x_i) + \sum_{i<j} \omega_{ij}\, x_i x_j\Big),
       \qquad x_i \in \{0, \ldots, C_i - 1\}

    with thresholds :math:`\tau` and interactions :math:`\omega` (Marsman, van den Bergh and
    Haslbeck, 2025). With ``scores`` :math:`s` the products are :math:`s_i(x_i) s_j(x_j)`; scores
    around zero and thresholds :math:`\alpha_i s + \beta_i s^2` are the Blume-Capel model.

    ========  ==========================================================================
    Support   rows of categories, one row a respondent
    logp      one number a row; log Z is computed once for each set of parameters
    Draws     exact by elimination up to 10 million table entries, else Gibbs
    ========  ==========================================================================

    Adding a number to all thresholds of an item does not change the model: hold those of the first
    category at zero, or let the prior decide.

    Parameters
    ----------
    name : str
        Name of the variable in the model (not in ``dist``).
    thresholds : tensor_like of float, shape (L, C), or a sequence of L vectors
        ``thresholds[i, c]`` belongs to category c of item i. Vectors of unequal length say how many
        categories each item has; so do numbers that end in -inf, and ``n_categories``.
    interactions : tensor_like of float, shape (L, L), (L (L - 1) / 2,), (E,) or a number
        A symmetric matrix, of which the upper triangle is read; or one number a pair ``i < j`` in
        the order of ``np.triu_indices(L, 1)``; or one for each of ``edges``; or one for all.
    edges : array_like of int, shape (E, 2), or networkx.Graph, optional
        Pairs of items that interact; all of them by default.
    n_categories : int or sequence of int, optional
        Categories of each item; thresholds beyond them are not used.
    scores : array_like of float, shape (C,) or (L, C), optional
        Scores of the categories; 0, 1, 2, ... by default.
    normalizer, sweeps, **kwargs
        As for `Potts`: exact where that is affordable (some millions of states, say 7 items of 7
        categories or 11 of 4), else anchored at the observed data.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_bayessum as pbs
    >>> pair = pbs.OrdinalMRF.dist([[0.0, 0.0], [0.0, 0.0, 0.0]], [0.5])
    >>> weights = np.exp(0.5 * np.outer([0, 1], [0, 1, 2]))
    >>> bool(np.isclose(pm.logp(pair, [1, 2]).eval(), np.log(weights[1, 2] / weights.sum())))
    True
    """

    rv_type = OrdinalMRFRV
    rv_op = staticmethod(apply_rv)
    about = ("n_categories", "scores")

    def __new__(
        cls,
        name: str,
        thresholds: Any = None,
        interactions: Any = None,
        edges: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Add the distribution to the current model."""
        return super().__new__(cls, name, thresholds, interactions, edges, **kwargs)

    @classmethod
    def dist(  # type: ignore[override]  # a distribution names its parameters
        cls, thresholds: Any = None, interactions: Any = None, edges: Any = None, **kwargs: Any
    ) -> Any:
        """Create the distribution outside of a model; arguments as above without the name."""
        return super().dist(thresholds, interactions, edges, **kwargs)

    @classmethod
    def layout(cls, h: Any, J: Any, edges: Any, **about: Any) -> tuple[PottsLayout, Any, Any]:
        """Turn thresholds and interactions into fields and couplings, and say of which model."""
        if h is None or J is None:
            missing = "thresholds" if h is None else "interactions"
            raise ValueError(f"{missing} must be given, got None")
        thresholds, lengths = _padded(h)
        n_items, most = shape = _known_shape(thresholds, 2)
        counts = _counts(about.get("n_categories"), lengths, thresholds, shape)
        has = np.arange(most) < counts[:, None]
        _check_observed(about.get("observed"), counts)
        pairs = complete(n_items) if edges is None else as_edges(edges, n_items)
        coupling, interactions = _couplings(as_parameter("interactions", J), pairs, n_items)
        table = np.where(has, _scores(about.get("scores"), shape, has), np.nan)
        layout = PottsLayout(n_items, most, pairs, "full", coupling, scores=table)
        if has.all():
            return layout, thresholds, interactions
        # What an item does not have is no parameter: whatever was written there is not read.
        where = pt.switch if isinstance(thresholds, Variable) else np.where
        return layout, where(has, thresholds, 0.0), interactions


def _padded(thresholds: Any) -> tuple[Any, np.ndarray | None]:
    """Thresholds as one table, and the lengths of its rows where they were given one by one."""
    if not isinstance(thresholds, list | tuple):
        return as_parameter("thresholds", thresholds, may_forbid=True), None
    rows = [as_parameter("thresholds", row, may_forbid=True) for row in thresholds]
    lengths = np.array([_known_shape(row, 1)[0] for row in rows])
    longest = int(lengths.max(initial=0))
    xp: Any = pt if any(isinstance(row, Variable) for row in rows) else np
    padded = [
        xp.concatenate([row, np.zeros(longest - length)])
        for row, length in zip(rows, lengths, strict=True)
    ]
    return xp.stack(padded), lengths


def _known_shape(thresholds: Any, n_dims: int) -> tuple[int, ...]:
    shape = static_shape(thresholds)
    if len(shape) != n_dims or None in shape:
        raise ValueError(
            "thresholds must be a table (L, C) of known shape, or a sequence of vectors, one an "
            f"item; got shape {shape}"
        )
    return shape


def _counts(
    given: Any, lengths: np.ndarray | None, thresholds: Any, shape: tuple[int, ...]
) -> np.ndarray:
    """Return the number of categories of each item."""
    n_items, most = shape
    counts = np.full(n_items, most) if lengths is None else lengths
    if not isinstance(thresholds, Variable):
        # Categories after the last that is not forbidden do not exist.
        allowed = ~np.isneginf(thresholds) & (np.arange(most) < counts[:, None])
        counts = most - np.argmax(allowed[:, ::-1], axis=1)
    if given is not None:
        values = np.asarray(given)
        if values.dtype.kind not in "iu" or values.shape not in ((), (n_items,)):
            raise ValueError(
                f"n_categories must be an integer or {n_items} integers, one an item, got {given!r}"
            )
        if (values > counts).any():
            raise ValueError(
                f"n_categories must be at most what thresholds have, {counts.tolist()}, got "
                f"{given!r}"
            )
        counts = np.broadcast_to(values, n_items)
    if (counts < 2).any():
        item = int(np.argmax(counts < 2))
        raise ValueError(f"item {item} must have at least two categories, got {counts[item]}")
    return counts


def _scores(given: Any, shape: tuple[int, ...], has: np.ndarray) -> np.ndarray:
    most = shape[1]
    scores = np.arange(most, dtype=float) if given is None else np.asarray(given, dtype=float)
    if scores.shape not in ((most,), shape):
        raise ValueError(f"scores must have shape ({most},) or {shape}, got {scores.shape}")
    scores = np.broadcast_to(scores, shape)
    if not np.isfinite(scores[has]).all():
        raise ValueError("scores must be finite for all categories that an item has")
    spread = np.ptp(np.where(has, scores, scores[:, :1]), axis=1)
    if (spread == 0.0).any():
        item = int(np.argmax(spread == 0.0))
        raise ValueError(f"scores of item {item} must differ between categories")
    return scores


def _couplings(interactions: Any, pairs: np.ndarray, n_items: int) -> tuple[Any, Any]:
    """Kind of the couplings, and one number for each edge (or one for all)."""
    symbolic = isinstance(interactions, Variable)
    shape = static_shape(interactions)
    if shape == ():
        return "scalar", interactions
    if len(shape) == 1 and shape[0] in (None, len(pairs)):
        return "edge", pt.specify_shape(interactions, len(pairs)) if symbolic else interactions
    if len(shape) == 2 and all(length in (None, n_items) for length in shape):
        if not symbolic and not np.allclose(interactions, interactions.T):
            raise ValueError("interactions must be symmetric where they are a matrix")
        lower, upper = pairs.min(axis=1), pairs.max(axis=1)
        return "edge", interactions[lower, upper]
    raise ValueError(
        f"interactions must be a number, {len(pairs)} numbers (one a pair) or a matrix "
        f"({n_items}, {n_items}), got shape {shape}"
    )


def _check_observed(observed: Any, counts: np.ndarray) -> None:
    """Refuse data that the model cannot have produced."""
    if observed is None:
        return
    if np.asanyarray(observed).dtype.kind not in "biuf":
        raise ValueError(
            "observed must hold numbers of categories, counted from zero, got "
            f"{np.asanyarray(observed).dtype} (pandas has them as .cat.codes, -1 where missing)"
        )
    rows = np.ma.masked_invalid(observed)  # missing entries are imputed, as anywhere in PyMC
    if rows.ndim < 1 or rows.shape[-1] != len(counts):
        raise ValueError(
            f"observed must have the {len(counts)} items on its last axis, got shape {rows.shape}"
        )
    wrong = np.ma.filled((rows < 0) | (rows >= counts) | (rows != np.floor(rows)), False)
    if wrong.any():
        place = tuple(np.argwhere(wrong)[0])
        raise ValueError(
            f"observed holds {rows[place]} for item {place[-1]}, allowed: 0 .. "
            f"{counts[place[-1]] - 1}; categories are counted from zero"
        )
