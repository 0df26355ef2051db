"""Whether draws and models are anchored at their own data."""

import pymc as pm
import xarray as xr

from pymc_bayessum.anchoring.variables import anchorable
from pymc_bayessum.normalizers.anchored.anchorage import fingerprint

__all__ = ["anchored_at_other_data"]


def anchored_at_other_data(tree: xr.DataTree, model: pm.Model) -> tuple[str, str]:
    """Say where draws, or the model, are anchored at other data than the model's.

    A doubt of the draws, whose tree tells with what :func:`~pymc_bayessum.keep_anchors` wrote that
    the model's own log Z is not the one that they were made with; and a note of the model, where
    what it is anchored at was chosen. Both are empty where there is nothing to say.
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
