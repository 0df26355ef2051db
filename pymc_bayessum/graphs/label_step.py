r"""A step of PyMC that updates hidden labels: Gibbs or Swendsen-Wang with the likelihood as field.

Given all other variables, labels :math:`z` of a Potts model with a likelihood that factorises over
sites are again a Potts model, with fields :math:`h_i(s) + f_i(s)` and the same couplings
(:mod:`pymc_bayessum.graphs.site_fields`). Its compiled chains make some sweeps at every step of the
sampler, while NUTS moves the rest.
"""

from dataclasses import replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from pymc.model import modelcontext
from pymc.step_methods import STEP_METHODS
from pymc.step_methods.compound import BlockedStep, Competence, StepMethodState
from pymc.util import get_random_generator
from scipy.stats import rankdata

from pymc_bayessum.arguments import integer
from pymc_bayessum.graphs.neighbours import adjacency
from pymc_bayessum.graphs.potts import PottsRV
from pymc_bayessum.graphs.samplers import GraphChain, choose_sampler
from pymc_bayessum.graphs.site_fields import Point, SiteFields
from pymc_bayessum.graphs.statistics import PottsLayout

__all__ = ["LabelStep", "ranked_labels"]

Moves = Literal["swendsen-wang", "gibbs"]

#: Sites that sweeps at one step visit, unless told otherwise, and the most sweeps.
SWEPT_SITES, MOST_SWEEPS = 200_000, 5
#: Steps, at most, for which first labels wait until the parameters have found them.
MOST_HELD = 50


class LabelStep(BlockedStep):
    """Step method for unobserved labels of `Potts`, `Ising` or `OrdinalMRF`.

    All labels are updated at once, given everything else, by sweeps of compiled Gibbs or
    Swendsen-Wang moves. ``pm.sample`` uses it by itself for every such variable; NUTS of PyMC
    updates the continuous ones (other NUTS samplers, nutpie among them, know no discrete
    variables).

    Parameters
    ----------
    vars : variable or list of variables, optional
        Unobserved labels; by default all there are in the model. What depends on them must
        factorise over their sites: ``pm.Normal("y", m[z], s, observed=image.ravel())`` does, and
        so does anything else that is computed site by site.
    sweeps : int, optional
        Sweeps over all sites at each step; by default five, and fewer on images of more than
        40 000 pixels, down to one.
    moves : {"swendsen-wang", "gibbs"}, optional
        By default Swendsen-Wang, each sweep followed by one of Gibbs, where couplings reward
        agreement at the current point, and Gibbs alone elsewhere.
    start : bool
        Whether a chain that tunes and starts from the default labels takes labels by the rank of
        the data (:func:`.ranked_labels`) instead, and keeps them for a tenth of the tuning steps,
        50 at most, until the parameters have found them. Where all labels are equal, the prior
        alone would tell the parameters of the others.
    model, rng, initial_point, compile_kwargs, blocked
        As for all step methods of PyMC.

    Raises
    ------
    ValueError
        Where there are no unobserved labels, or a likelihood does not factorise over their sites.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_bayessum as pbs
    >>> image = np.random.default_rng(0).normal(np.eye(4) * 3.0)
    >>> with pm.Model():
    ...     J = pm.HalfNormal("J")
    ...     z = pbs.Potts("z", None, J, edges=pbs.graphs.grid(4, 4), n_states=2)
    ...     y = pm.Normal("y", 3.0 * z, 1.0, observed=image.ravel())
    ...     step = pbs.LabelStep([z], sweeps=5)
    >>> step.name, [value.name for value in step.vars]
    ('label_step', ['z'])
    """

    name = "label_step"
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {"changed": (np.float64, [])}
    _state_class = StepMethodState

    def __init__(
        self,
        vars: Any = None,
        *,
        sweeps: int | None = None,
        moves: Moves | None = None,
        start: bool = True,
        model: Any = None,
        rng: Any = None,
        initial_point: Point | None = None,
        compile_kwargs: dict[str, Any] | None = None,
        blocked: bool = True,
    ):
        model = modelcontext(model)
        self.sweeps = None if sweeps is None else integer("sweeps", sweeps, 1)
        if moves is not None and moves not in get_args(Moves):
            raise ValueError(f"moves must be None or one of {get_args(Moves)}, got {moves!r}")
        self.moves = moves
        self.rng = get_random_generator(rng)
        labels = _unobserved_labels(model, vars)
        self.vars = [model.rvs_to_values[z] for z in labels]
        default = model.initial_point(0)
        first = default if initial_point is None else initial_point
        self.conditionals = [_Conditional(model, z, first, compile_kwargs or {}) for z in labels]
        # Labels that somebody chose are not replaced.
        self._default = {
            z.name: default[z.name]
            for z in labels
            if start and model.rvs_to_initial_values.get(z) is None
        }
        self._number, self._hold = 0, 0
        self._started: dict[str, np.ndarray | None] = {}

    @staticmethod
    def competence(var: Any, has_grad: bool = False) -> Competence:
        """Labels of graph models, and nothing else."""
        return Competence.IDEAL if _is_labels(var) else Competence.INCOMPATIBLE

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Prepare for a new chain."""
        super().setup_chain(rng, tune, draws)
        self._number, self._hold = 0, min(MOST_HELD, -(-tune // 10))
        self._started = {}

    def step(self, point: Point) -> tuple[Point, list[dict[str, Any]]]:
        """Update all labels."""
        new = dict(point)
        changed = []
        for labels in self.conditionals:
            old = new[labels.name]
            if self._number == 0 and np.array_equal(old, self._default.get(labels.name, ())):
                self._started[labels.name] = labels.by_rank(new) if self._hold else None
            states = self._started.get(labels.name) if self._number < self._hold else None
            if states is None:
                sweeps = labels.sweeps if self.sweeps is None else self.sweeps
                states = labels.moved(new, sweeps, self.moves, self.rng)
            new[labels.name] = labels.layout.decode(states).astype(old.dtype)
            changed.append(np.mean(new[labels.name] != old))
        self._number += 1
        return new, [{"changed": float(np.mean(changed))}]


class _Conditional:
    """Labels of one variable given everything else."""

    def __init__(self, model: Any, variable: Any, point: Point, compile_kwargs: dict[str, Any]):
        self.name = variable.name
        self.layout: PottsLayout = variable.owner.op.layout
        _check_labels(self.name, self.layout, np.asarray(point[self.name]))
        self.fields = SiteFields(
            model, variable, self.layout, point, np.random.default_rng(0), compile_kwargs
        )
        self.sweeps = int(np.clip(SWEPT_SITES // self.fields.n_sites, 1, MOST_SWEEPS))
        # With a field for each state, spins are a Potts model of two states.
        self._given = replace(self.layout, field_kind="full", spins=False)

    def moved(
        self, point: Point, sweeps: int, moves: Moves | None, rng: np.random.Generator
    ) -> np.ndarray:
        """Return the states after some sweeps."""
        states = np.array(self.layout.encode(point[self.name]))
        fields, couplings = self._parameters(point)
        for row in np.ndindex(states.shape[:-1]):
            asked = moves if moves == "gibbs" else None
            name = choose_sampler(self._given, couplings[row], asked, 0.0)
            chain = GraphChain(self._given, fields[row], couplings[row], name)
            states[row] = chain.advance(states[row][None], sweeps, rng)[0]
        return states

    def by_rank(self, point: Point) -> np.ndarray | None:
        """Return states by the rank of the data; None where there are none, or it is forbidden."""
        data = self.fields.observed()
        fields, couplings = self._parameters(point)
        if data is None or np.isneginf(couplings).any():
            return None
        states = np.empty(self.fields.shape, dtype=np.int64)
        for row in np.ndindex(states.shape[:-1]):
            states[row] = ranked_labels(self.layout, data[row])
        chosen = np.take_along_axis(fields, states[..., None], axis=-1)
        return states if np.isfinite(chosen).all() else None

    def _parameters(self, point: Point) -> tuple[np.ndarray, np.ndarray]:
        """Return fields (..., L, S) and couplings (..., ) of the labels given everything else."""
        layout = self.layout
        h, J, likelihood = self.fields(point)
        batch = likelihood.shape[:-2]
        J = np.broadcast_to(J, batch + J.shape[J.ndim - len(layout.coupling_shape) :])
        return layout.expand_field(h) + likelihood, 2.0 * J if layout.spins else J


def _is_labels(variable: Any) -> bool:
    return variable.owner is not None and isinstance(variable.owner.op, PottsRV)


def _unobserved_labels(model: Any, wanted: Any) -> list[Any]:
    """Return the random variables to update."""
    if wanted is None:
        found = [variable for variable in model.free_RVs if _is_labels(variable)]
        if not found:
            raise ValueError(
                "LabelStep needs unobserved labels, and the model has none: a pbs.Potts, pbs.Ising "
                "or pbs.OrdinalMRF variable without observed="
            )
        return found
    given = list(wanted) if isinstance(wanted, list | tuple) else [wanted]
    if not given:
        raise ValueError("vars must hold at least one variable, got none")
    found = [model.values_to_rvs.get(variable, variable) for variable in given]
    for variable in found:
        name = getattr(variable, "name", variable)
        if variable in model.observed_RVs:
            raise ValueError(f"vars must be unobserved, but {name} is observed")
        if variable not in model.free_RVs:
            raise ValueError(f"vars must be variables of the model, {name} is none of them")
        if not _is_labels(variable):
            kind = getattr(variable.owner.op, "name", variable.owner.op)
            raise ValueError(
                f"vars must be labels of pbs.Potts, pbs.Ising or pbs.OrdinalMRF, {name} is {kind}"
            )
    return found


def _check_labels(name: str, layout: PottsLayout, labels: np.ndarray) -> None:
    """Check labels that a chain starts from."""
    if labels.ndim == 0 or labels.shape[-1] != layout.n_sites:
        raise ValueError(
            f"{name} must start from labels of shape (..., {layout.n_sites}), one for each site of "
            f"its graph, got {labels.shape}"
        )
    if not layout.valid(labels).all():
        allowed = "-1 and +1" if layout.spins else f"0 .. {layout.n_states - 1}"
        raise ValueError(f"{name} must start from labels {allowed}, got {np.unique(labels)[:10]}")


def ranked_labels(layout: PottsLayout, data: np.ndarray) -> np.ndarray:
    """Divide sites into as many groups of equal size as there are labels, by their data.

    Several columns are ranked along their first principal direction, turned so that the first
    column increases. Each site counts together with its neighbours: their mean has less noise,
    and labels that agree with their neighbours are what hidden labels are about. Data (L, C) are
    NaN where nothing was observed; labels are states 0 .. S-1.

    Examples
    --------
    >>> from pymc_bayessum import graphs
    >>> layout = PottsLayout(6, 2, graphs.chain(6), "none", "scalar")
    >>> ranked_labels(layout, np.array([[1.0], [0.0], [1.0], [5.0], [6.0], [5.0]])).tolist()
    [0, 0, 0, 1, 1, 1]
    """
    score = _smooth(layout, _first_direction(data))
    states = ((rankdata(score, method="ordinal") - 1) * layout.n_states) // layout.n_sites
    return np.minimum(states, layout.has_state.sum(axis=1) - 1).astype(np.int64)


def _first_direction(data: np.ndarray) -> np.ndarray:
    """Scores of rows on their first principal direction; zero where nothing was observed."""
    centred = data - np.nanmean(data, axis=0)
    scale = np.nanstd(data, axis=0)
    centred = np.where(np.isnan(centred), 0.0, centred) / np.where(scale > 0.0, scale, 1.0)
    direction = np.linalg.eigh(centred.T @ centred)[1][:, -1]
    return centred @ direction * (1.0 if direction[0] >= 0.0 else -1.0)


def _smooth(layout: PottsLayout, score: np.ndarray) -> np.ndarray:
    """Mean over a site and its neighbours."""
    start, site, _ = adjacency(layout.edges, layout.n_sites)
    degree = np.diff(start)
    owner = np.repeat(np.arange(layout.n_sites), degree)
    return (score + np.bincount(owner, score[site], layout.n_sites)) / (1 + degree)


STEP_METHODS.append(LabelStep)
