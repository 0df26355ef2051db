"""Whether draws and models are anchored at their own data."""

import pymc as pm
import xarray as xr

from pymc_bayessum.anchoring.variables import anchorable
from pymc_bayessum.normalizers.anchored.anchorage import fingerprint

__all__ = ["anchored_at_other_data"]


def anchored_at_other_data(tree: xr.DataTree, model: pm.Model) -> tuple[str, str]:
    """Say where draws, or the model, are anchored at other data than the model's.

    Parameters
    ----------
    tree : DataTree
        With a group ``anchors`` as :func:`~pymc_bayessum.keep_anchors` writes it, or without.
    model : pm.Model

    Returns
    -------
    doubt : str
        Of the draws: the model's own log Z is not the one that they were made with.
    note : str
        Of the model: what it is anchored at was chosen.
    """
    kept = tree["anchors"].children if "anchors" in tree.children else {}
    doubts, notes = [], []
    for part in anchorable(model):
        if part.data is None:
            continue
        own = fingerprint(part.data)
        if part.name in kept and kept[part.name].attrs.get("rows") != own:
            doubts.append(part.name)
        if part.held is not None and part.held.rows != own:
            notes.append(f"{part.name} is anchored at other data than it observes")
    doubt = (
        f"{', '.join(doubts)}: the draws were made with a normaliser anchored at other data than "
        "the model holds; sample again after pbs.anchor(model)"
    )
    return doubt if doubts else "", "; ".join(notes)
