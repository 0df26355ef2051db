"""Exponential random graph models as PyMC distributions."""

import warnings
from concurrent.futures import Executor
from typing import Any

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant

from pymc_bayessum.arguments import as_generator
from pymc_bayessum.exponential.anchoring import Anchors, Prior, anchor_family, prior_of
from pymc_bayessum.exponential.distribution import (
    ExponentialFamilyRV,
    FamilyDistribution,
    as_theta,
    choose_normalizer,
    require_rows,
)
from pymc_bayessum.networks.data import as_matrices, is_directed
from pymc_bayessum.networks.family import NetworkFamily, completions, network_family
from pymc_bayessum.normalizers.anchored.anchorage import Anchorage, Held, fingerprint
from pymc_bayessum.normalizers.anchored.estimated import Estimated
from pymc_bayessum.normalizers.anchored.rule import Anchored, anchored
from pymc_bayessum.normalizers.drawn import apply_rv
from pymc_bayessum.normalizers.protocol import Facts, Normalizer

__all__ = ["ERGM"]

#: Completions drawn to tell the mean statistics of a network with unknown dyads.
COMPLETIONS = 400
#: Draws at each anchor for the sum over unknown dyads.
KNOWN_NODES = 10_000


class NetworkAnchors(Anchors[NetworkFamily]):
    """How a network model is anchored at networks that are not known before it is asked."""

    def __call__(self, data: np.ndarray, executor: Executor | None = None) -> Normalizer:
        """Anchor at networks, unless the model turns out to be degenerate."""
        rows = np.asarray(data).reshape(-1, *self.family.state_shape)
        family = self.family.starting_at(rows)
        statistics = family.statistics(family.typical).reshape(*np.shape(data)[:-2], -1)
        rng = as_generator(self.random_seed)
        return _anchored(family, statistics, self.prior, rng, self.progressbar, executor)


class ERGMRV(ExponentialFamilyRV):
    """Random networks."""

    name = "ergm"
    _print_name = ("ERGM", "\\operatorname{ERGM}")
    builder = NetworkAnchors


class ERGM(FamilyDistribution):
    r"""Exponential random graph model, with its normalising constant.

    .. math:: p(y \mid \theta) = \frac{e^{\theta \cdot \phi(y)}}{Z(\theta)}

    over all networks y on n nodes, where :math:`\phi` counts ties, triangles, shared partners and
    what else ``terms`` say.

    ========  ==========================================================================
    Support   matrices of zeros and ones (n, n) without loops; symmetric unless directed
    logp      exact where ties are independent or all networks can be listed (seven nodes,
              directed five), otherwise from draws at anchors near the posterior
    Draws     by Metropolis steps on ties (tie-no-tie)
    ========  ==========================================================================

    Parameters
    ----------
    name : str
        Name of the variable in the model (not in ``dist``).
    theta : tensor_like, shape (d,), or list of d scalars
        One parameter for each term.
    terms : list of Term
        From ``pbs.ergm``: ``edges()``, ``gwesp(0.5)``, ``nodematch(values)``, ...
    observed : networkx graph, array_like (n, n), or several of them
        Zeros and ones. Dyads that are NaN (or masked) are unknown and summed out.
    n_nodes : int, optional
        Needed in ``dist`` only.
    directed : bool, optional
        Where ``observed`` does not tell; undirected in ``dist``.
    fixed : array_like of bool, shape (n, n), optional
        Dyads that are what they are observed to be in every network of the model.
    normalizer, random_seed, **kwargs
        As for `ExponentialFamily`.

    Notes
    -----
    Some terms make degenerate models: nearly all of their mass lies on networks that are empty,
    full or nothing like the data, whatever theta. Such a model warns when it is built and the check
    of its fit says so.

    Examples
    --------
    >>> import networkx as nx
    >>> import pymc as pm
    >>> import pymc_bayessum as pbs
    >>> with pm.Model() as model:
    ...     theta = pm.Normal("theta", 0.0, 3.0, shape=2)
    ...     _ = pbs.ERGM("ties", theta, terms=[pbs.ergm.edges(), pbs.ergm.gwesp(0.5)],
    ...                  observed=nx.house_graph())
    >>> pm.draw(pbs.ERGM.dist([-1.0], terms=[pbs.ergm.edges()], n_nodes=4)).shape
    (4, 4)
    """

    rv_type: Any = ERGMRV
    rv_op = staticmethod(apply_rv)

    def __new__(
        cls,
        name: str,
        theta: Any,
        terms: Any = None,
        *,
        observed: Any = None,
        n_nodes: int | None = None,
        directed: bool | None = None,
        fixed: Any = None,
        normalizer: Any = None,
        random_seed: Any = 0,
        **kwargs: Any,
    ) -> Any:
        """Add the distribution to the current model."""
        networks, missing, known = None, np.zeros(0, bool), None
        if observed is None:
            family = _unobserved(terms, n_nodes, directed, fixed)
        else:
            data = _as_given(observed)
            direction = is_directed(data, directed)
            networks, missing = as_matrices(data, direction)
            size = networks.shape[-1]
            if missing.any() and isinstance(observed, SharedVariable):
                raise ValueError(f"{name}: unknown dyads are not for pm.Data, which may change")
            if n_nodes not in (None, size):
                raise ValueError(f"n_nodes={n_nodes}, but observed has {size} nodes")
            free, rows = _free(fixed, missing), networks.reshape(-1, size, size)
            family = network_family(terms, size, direction, networks=rows, free=free)
            if not family.valid(rows).all():
                raise ValueError(f"{name}: fixed dyads must be the same in all observed networks")
        theta = as_theta(theta, family)
        if networks is not None:
            require_rows(name, theta, networks.shape[:-2])
        found = choose_normalizer(family, normalizer)
        if networks is not None and missing.any():
            found, part = _with_missing(family, networks, missing, found, theta, random_seed)
            known = Anchorage.holding(_no_other_networks, Held(part, fingerprint(networks)))
        elif found is None:
            build = NetworkAnchors(family, prior_of(theta), random_seed)
            found = Anchorage(build) if networks is None else Anchorage.at(build, networks)
        return super().__new__(
            cls,
            name,
            theta,
            terms,
            family=family,
            normalizer=found,
            known=known,
            observed=observed if isinstance(observed, SharedVariable) else networks,
            **kwargs,
        )

    @classmethod
    def dist(
        cls,
        theta: Any,
        terms: Any = None,
        *,
        n_nodes: int | None = None,
        directed: bool | None = None,
        fixed: Any = None,
        normalizer: Any = None,
        family: NetworkFamily | None = None,
        known: Normalizer | Anchorage | None = None,
        **kwargs: Any,
    ) -> Any:
        """Create the distribution outside of a model; arguments as above without the name."""
        if family is None:
            family = _unobserved(terms, n_nodes, directed, fixed)
        theta = as_theta(theta, family)
        op = cls.rv_type(family, choose_normalizer(family, normalizer), known)
        return super().dist([theta], op=op, **kwargs)


def _as_given(observed: Any) -> Any:
    if isinstance(observed, SharedVariable):
        return observed.get_value()
    return observed.data if isinstance(observed, Constant) else observed


def _unobserved(terms: Any, n_nodes: Any, directed: Any, fixed: Any) -> NetworkFamily:
    if n_nodes is None:
        raise ValueError("n_nodes must be given where no network is observed")
    if fixed is not None:
        raise ValueError("fixed says which dyads stay as observed: it needs observed=")
    return network_family(terms, n_nodes, bool(directed))


def _no_other_networks(data: np.ndarray) -> Normalizer:
    raise ValueError(
        "unknown dyads are summed out of the network that was observed, not of others: build the "
        "model again with that network and its unknown dyads"
    )


def _free(fixed: Any, missing: np.ndarray) -> np.ndarray | None:
    if fixed is None:
        return None
    held = np.asarray(fixed)
    shape = missing.shape[-2:]
    if held.shape != shape or held.dtype.kind not in "biu":
        raise ValueError(
            f"fixed must be a matrix of true and false of shape {shape}, got {held.dtype} "
            f"{held.shape}"
        )
    held = held.astype(bool)
    if (held & missing).any():
        raise ValueError("fixed names dyads that are unknown in observed")
    return ~held


def _anchored(
    family: NetworkFamily,
    statistics: np.ndarray,
    prior: Prior,
    rng: np.random.Generator,
    progressbar: bool = True,
    executor: Executor | None = None,
) -> Normalizer:
    if not family.remembers_start(family.pseudo_mode(family.typical), rng):
        how: Any = {"rng": rng, "progressbar": progressbar, "executor": executor}
        found = anchor_family(family, statistics, prior, **how)
        if not family.remembers_start(found.centre, rng):
            return Estimated(found)
    flagged = family.degenerate()
    warnings.warn(f"the fit will need {flagged.remedy(Facts(False))}", stacklevel=5)
    return flagged


def _with_missing(
    family: NetworkFamily,
    networks: np.ndarray,
    missing: np.ndarray,
    found: Normalizer | None,
    theta: Any,
    random_seed: Any,
) -> tuple[Normalizer, Normalizer]:
    """Find the normalisers of all networks, and of those that agree with what is known."""
    if networks.ndim != 2:
        raise ValueError("unknown dyads are summed out for one observed network, got several")
    part = completions(family, networks, missing)
    rng = as_generator(random_seed)
    guess = family.pseudo_mode(family.typical, known=~missing)
    if found is None:
        some = part.decode(part.sample(guess, COMPLETIONS, rng))
        mean = family.statistics(family.encode(some)).mean(axis=0)
        found = _anchored(family, mean[None], prior_of(theta), rng)
    if part.exact is not None:
        return found, part.exact
    rule = getattr(found, "rule", None)
    anchors = rule.anchors if isinstance(rule, Anchored) else guess[None]
    known: Anchored = anchored(
        part,
        anchors,
        n=max(KNOWN_NODES, 1000 * len(anchors)),
        rng=rng,
        constant=False,
    )
    return found, Estimated(known)
