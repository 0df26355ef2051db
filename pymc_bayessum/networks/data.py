"""Networks as users hold them, read into 0/1 matrices."""

from typing import Any

import networkx as nx
import numpy as np

__all__ = ["as_matrices", "is_directed"]


def is_directed(observed: Any, directed: bool | None) -> bool:
    """Whether a network is directed: as said, or as its data tell.

    Examples
    --------
    >>> is_directed([[0, 1], [0, 0]], None)
    True
    """
    if directed is not None and not isinstance(directed, bool | np.bool_):
        raise TypeError(f"directed must be True, False or None, got {directed!r}")
    first = observed[0] if _is_list_of_graphs(observed) else observed
    if isinstance(first, nx.Graph):
        if directed is not None and directed != first.is_directed():
            kind = "directed" if first.is_directed() else "undirected"
            raise ValueError(f"directed={directed}, but observed is a graph of the {kind} kind")
        return first.is_directed()
    if directed is not None:
        return bool(directed)
    matrices = _numbers(observed)
    return not np.array_equal(matrices, np.swapaxes(matrices, -1, -2), equal_nan=True)


def as_matrices(observed: Any, directed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Read networks, (n, n) or (m, n, n), and which of their dyads are unknown: ties zero there.

    They come as a graph, a list of graphs or an array of zeros and ones, in which NaN or masked
    entries are unknown.

    Examples
    --------
    >>> ties, missing = as_matrices(nx.path_graph(3), directed=False)
    >>> ties.tolist(), bool(missing.any())
    ([[0, 1, 0], [1, 0, 1], [0, 1, 0]], False)
    """
    matrices = _numbers(observed)
    if matrices.ndim not in (2, 3) or matrices.shape[-1] != matrices.shape[-2]:
        raise ValueError(
            f"observed must be a graph, a square matrix or a stack of them, got shape "
            f"{matrices.shape}"
        )
    if matrices.shape[-1] < 2:
        raise ValueError(f"observed must have at least two nodes, got {matrices.shape[-1]}")
    missing = np.isnan(matrices)
    known = matrices[~missing]
    if not np.isin(known, (0.0, 1.0)).all():
        odd = known[~np.isin(known, (0.0, 1.0))][0]
        raise ValueError(
            f"observed must hold zeros and ones (NaN where unknown), got {odd:g}: a network with "
            "weights has to be cut to ties first"
        )
    diagonal = np.diagonal(matrices, axis1=-2, axis2=-1)
    if np.nan_to_num(diagonal).any():
        node = int(np.argwhere(np.nan_to_num(diagonal))[0][-1])
        raise ValueError(f"observed has a loop at node {node}: loops are not part of the model")
    if not directed and not np.array_equal(matrices, np.swapaxes(matrices, -1, -2), equal_nan=True):
        raise ValueError("observed must be symmetric for an undirected network: pass directed=True")
    between = ~np.eye(matrices.shape[-1], dtype=bool)
    missing &= between
    if missing[..., between].all():
        raise ValueError("observed must have a dyad that is known, got none")
    return np.nan_to_num(matrices).astype(np.int64), missing


def _is_list_of_graphs(observed: Any) -> bool:
    return (
        isinstance(observed, list | tuple)
        and len(observed) > 0
        and all(isinstance(graph, nx.Graph) for graph in observed)
    )


def _numbers(observed: Any) -> np.ndarray:
    """Matrices of networks as floats, unknown entries NaN."""
    if _is_list_of_graphs(observed):
        parts = [_numbers(graph) for graph in observed]
        if len({part.shape for part in parts}) > 1:
            raise ValueError(
                f"observed networks must have the same nodes, got {[len(p) for p in parts]} nodes"
            )
        return np.stack(parts)
    if isinstance(observed, nx.Graph):
        if observed.is_multigraph():
            raise ValueError("observed must be a Graph or a DiGraph, got a multigraph")
        weights = [data.get("weight", 1) for _, _, data in observed.edges(data=True)]
        odd = next((weight for weight in weights if weight != 1), 1)
        if odd != 1:
            raise ValueError(
                f"observed has weights on its edges ({odd!r}, ...): ties are there or not; remove "
                "the attribute 'weight' where it is no part of the model"
            )
        return nx.to_numpy_array(observed, dtype=float, weight=None)
    if np.ma.isMaskedArray(observed):
        return np.ma.filled(np.ma.asarray(observed, dtype=float), np.nan)
    try:
        return np.array(observed, dtype=float)
    except (TypeError, ValueError):
        raise TypeError(
            f"observed must be a networkx graph or a matrix of zeros and ones, got {observed!r}"
        ) from None
