"""Build, renew, keep and bring back the anchors of a model's normalisers."""

from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_bayessum.anchoring.files import as_dataset
from pymc_bayessum.anchoring.variables import Anchorable, anchorable
from pymc_bayessum.executors import as_executor
from pymc_bayessum.normalizers.anchored.anchorage import Anchorage, Held, fingerprint
from pymc_bayessum.normalizers.anchored.rule import Anchored

__all__ = ["anchor", "anchored_at_other_data", "keep_anchors"]

#: Group of a DataTree that holds anchors.
GROUP = "anchors"
NOTHING = "its normaliser is exact or was given, there is nothing to anchor"


def anchor(
    model: pm.Model | None = None,
    data: Any = None,
    *,
    random_seed: Any = 0,
    progressbar: bool = True,
    executor: Executor | None = None,
) -> pm.Model:
    """Build or renew the anchors of a model's normalisers.

    Models on large graphs, of networks and of families whose states cannot be listed have a
    normaliser from draws near their posterior: it is anchored at data. ``observed=`` does that by
    itself, and so does the log-probability of a model that was given other data; this is the same
    as a step of its own, with rows of your choice, or with anchors from a file. Normalisers that
    need no anchors stay what they are.

    Parameters
    ----------
    model : pm.Model, optional
        By default the one on the context stack.
    data : array_like, dict or DataTree, optional
        Rows to anchor at, those observed by default; by the name of the variable where there are
        several. Rows that are not observed are for data that are never seen as a whole
        (minibatches) or not yet. Or a DataTree with anchors that :func:`keep_anchors` wrote.
    random_seed : None, int or numpy.random.Generator
        The same anchors are built every time by default.
    progressbar : bool
    executor : concurrent.futures.Executor, optional
        Makes the draws at several anchors side by side: processes, or a Dask cluster
        (``client.get_executor()``). Anchors are the same as without.

    Returns
    -------
    pm.Model
        The model itself.

    Raises
    ------
    ValueError
        Where a variable has no data to be anchored at, or anchors from a file belong to other
        data or another model.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_bayessum as pbs
    >>> with pm.Model() as generative:
    ...     J = pm.HalfNormal("J", 0.3)
    ...     _ = pbs.Ising("x", 0.0, J, pbs.graphs.grid(15, 16))
    >>> image = pm.draw(generative["x"], random_seed=1)
    >>> model = pbs.anchor(pm.observe(generative, {"x": image}), progressbar=False)
    >>> bool(np.isfinite(model.compile_logp()({"J_log__": -1.0})))
    True
    """
    model, executor = pm.modelcontext(model), as_executor(executor)
    found = {part.name: part for part in anchorable(model)}
    if isinstance(data, xr.DataTree):
        _restore(found, data)
        return model
    given = _by_name(found, data)
    for name, part in found.items():
        build = part.builder(random_seed=random_seed, progressbar=progressbar)
        if build is None:
            if name in given:
                raise ValueError(f"{name}: {NOTHING}")
            continue
        rows = np.asarray(given[name]) if name in given else part.data
        if rows is None and hasattr(build, "without_data"):
            part.set(Anchorage(build))
        elif rows is None:
            raise ValueError(
                f"{name} has no data to be anchored at: pass data={{{name!r}: rows}}, or observe "
                "it with pm.observe"
            )
        else:
            held = Held(build(rows, executor), fingerprint(rows))
            part.set(Anchorage.holding(build, held, part.data))
    return model


def _by_name(found: Mapping[str, Anchorable], data: Any) -> Mapping[str, Any]:
    """Return rows by the name of their variable."""
    if data is None:
        return {}
    names = ", ".join(found) or "none"
    if not isinstance(data, Mapping):
        if len(found) != 1:
            raise ValueError(
                f"data must be a dict of rows by name where not exactly one variable is anchored; "
                f"here these are: {names}"
            )
        return dict.fromkeys(found, data)
    unknown = [name for name in data if name not in found]
    if unknown:
        raise ValueError(f"data names {', '.join(unknown)}; variables to anchor are: {names}")
    return data


def keep_anchors(idata: xr.DataTree, model: pm.Model | None = None) -> xr.DataTree:
    """Write the anchors of a model into a DataTree, for files.

    Parameters
    ----------
    idata : DataTree
        Receives a group ``anchors``, with one group for each variable.
    model : pm.Model, optional
        By default the one on the context stack.

    Returns
    -------
    DataTree
        The tree itself. ``pbs.anchor(model, idata)`` reads it.

    Raises
    ------
    ValueError
        Where the model has no anchors.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_bayessum as pbs
    >>> family = pbs.Family(lambda x: x.sum(axis=1, keepdims=True), sites=8, n_states=2)
    >>> with pm.Model() as model:
    ...     theta = pm.Normal("theta", shape=1)
    ...     _ = pbs.ExponentialFamily("x", theta, family=family, normalizer="anchored", shape=8)
    >>> _ = pbs.anchor(model, np.ones(8, int), progressbar=False)
    >>> list(keep_anchors(xr.DataTree(), model)["anchors"].children)
    ['x']
    """
    model = pm.modelcontext(model)
    groups = {}
    for part in anchorable(model):
        held = part.held
        rule = None if held is None else _rule_of(held.normalizer)
        if held is not None and rule is not None:
            groups[part.name] = as_dataset(rule).assign_attrs(rows=held.rows)
    if not groups:
        raise ValueError(
            "the model has no anchors to keep: its normalisers are exact, or have none"
        )
    idata[GROUP] = xr.DataTree.from_dict(groups)
    return idata


def _rule_of(normalizer: Any) -> Anchored | None:
    rule = normalizer if isinstance(normalizer, Anchored) else getattr(normalizer, "rule", None)
    return rule if isinstance(rule, Anchored) else None


def _restore(found: Mapping[str, Anchorable], tree: xr.DataTree) -> None:
    """Give variables the anchors that a tree holds."""
    if GROUP not in tree.children:
        raise ValueError(
            f"the tree has no group {GROUP!r}, only {list(tree.children)}; pbs.keep_anchors(idata, "
            "model) writes one"
        )
    kept = tree[GROUP].children
    unknown = [name for name in kept if name not in found]
    if unknown:
        raise ValueError(
            f"the tree holds anchors of {', '.join(unknown)}; variables to anchor are: "
            f"{', '.join(found) or 'none'}"
        )
    for name, group in kept.items():
        part, dataset = found[name], group.to_dataset()
        rows = str(dataset.attrs.get("rows", ""))
        if part.data is not None and rows != fingerprint(part.data):
            raise ValueError(
                f"{name}: the file's normaliser is anchored at other data than the model observes; "
                "pbs.anchor(model) builds one for these"
            )
        build: Any = part.builder(random_seed=0, progressbar=True)
        if build is None:
            raise ValueError(f"{name}: {NOTHING}")
        try:
            part.set(Anchorage.holding(build, Held(build.restored(dataset), rows)))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None


def anchored_at_other_data(tree: xr.DataTree, model: pm.Model) -> tuple[str, str]:
    """Say where draws, or the model, are anchored at other data than the model's.

    A doubt of the draws, whose tree tells with what :func:`~pymc_bayessum.keep_anchors` wrote that
    the model's own log Z is not the one that they were made with; and a note of the model, where
    what it is anchored at was chosen. Both are empty where there is nothing to say.
    """
    kept = tree[GROUP].children if GROUP in tree.children else {}
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
