r"""A likelihood of hidden labels as fields on their sites.

Given everything else, labels that enter the log-probability site by site have

.. math:: \log p(z \mid \ldots) = \log p(z) + \sum_i f_i(z_i) + \text{const},
          \qquad f_i(s) = \sum_{k:\, i(k) = i} \ell_k(s),

where :math:`\ell_k` runs over the elements of all log-probabilities that mention z, and i(k) is the
one site an element depends on. With every label set to s the elements are :math:`\ell_k(s)`, so S
evaluations of the model give all fields. Which site an element belongs to is found by experiment:
labels that spell the number of their site in binary show it bit by bit, in
:math:`2 \log_2 L` evaluations, and an element that depends on two sites gives itself away, because
the two differ in some bit.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from pymc.model import Model
from pymc.pytensorf import compile as compile_function
from pymc.pytensorf import extract_obs_data
from pytensor.graph.traversal import ancestors

from pymc_bayessum.graphs.statistics import PottsLayout

__all__ = ["SiteFields", "sites_of"]

#: Points of the model, at most, at which elements are looked at.
ATTEMPTS = 10
#: Of these, points at which an element shows no difference before it is left for later.
LOOKS = 3
#: Random labellings that have to agree with the fields.
TRIALS = 4
#: Rounding: differences relative to an element itself that mean nothing,
ROUNDING = 1e-12
#: and relative to the difference between two labels.
LEEWAY = 1e-6

type Point = dict[str, np.ndarray]


class SiteFields:
    """The fields that the rest of a model puts on the labels, (..., L), of an unobserved variable.

    The sites are told at points around the one given. A `ValueError` where an element of a
    log-probability depends on more than one site, or cannot be computed.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_bayessum as pbs
    >>> with pm.Model() as model:
    ...     z = pbs.Potts("z", None, 0.5, edges=pbs.graphs.chain(3), n_states=2)
    ...     y = pm.Normal("y", 2.0 * z, observed=np.array([0.0, 2.0, 1.0]))
    >>> fields = SiteFields(model, z, z.owner.op.layout, model.initial_point(),
    ...                     np.random.default_rng(0), {})
    >>> h, J, likelihood = fields(model.initial_point())
    >>> (likelihood[:, 1] - likelihood[:, 0]).tolist()
    [-2.0, 2.0, 0.0]
    """

    def __init__(
        self,
        model: Model,
        variable: Any,
        layout: PottsLayout,
        point: Point,
        rng: np.random.Generator,
        compile_kwargs: dict[str, Any],
    ):
        self.layout, self.name = layout, variable.name
        self.shape = np.shape(point[variable.name])
        self.n_sites = int(np.prod(self.shape))
        value = model.rvs_to_values[variable]
        others = [part for part in model.basic_RVs if part is not variable]
        parts = [*others, *model.potentials]
        try:
            logps: Any = model.logp(vars=parts, sum=False)
        except ValueError as error:
            raise ValueError(self._unreadable(error)) from error
        mentioned = [
            (part, logp)
            for part, logp in zip(parts, logps, strict=True)
            if value in set(ancestors([logp]))
        ]
        self._parts = [part for part, _ in mentioned]
        self._data = [_numbers(model.rvs_to_values.get(part)) for part in self._parts]
        parameters: Any = model.replace_rvs_by_values(list(variable.owner.inputs[-2:]))
        self._names = [other.name for other in model.value_vars]
        self._evaluate = compile_function(
            model.value_vars,
            [*parameters, *(logp for _, logp in mentioned)],
            on_unused_input="ignore",
            **compile_kwargs,
        )
        self._sizes: list[int] = []
        self._site: Any = NO_SITE
        self._rng = rng
        self._look_around(model, point)

    def __call__(self, point: Point) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return h and J of the labels at a point, and the fields of all else, (..., L, S)."""
        states = range(self.layout.n_states)
        found = [self._at(point, np.full(self.n_sites, state)) for state in states]
        h, J, first = found[0]
        # What has shown no difference between labels so far may do so here.
        idle = self._idle
        if len(idle) and any(not np.array_equal(e[idle], first[idle]) for _, _, e in found[1:]):
            self._look(point)
        fields = np.stack([self._gathered(elements) for _, _, elements in found])
        # NaN is what no step would accept.
        fields[np.isnan(fields)] = -np.inf
        impossible = np.flatnonzero(np.isneginf(fields.max(axis=0)))
        if len(impossible):
            raise ValueError(
                f"{self.name}: no label is possible at {len(impossible)} sites, the first of them "
                f"{impossible[0]}: the log-probability of {self._mentioned()} is -inf for all"
            )
        return h, J, np.ascontiguousarray(fields.T).reshape(*self.shape, -1)

    def observed(self) -> np.ndarray | None:
        """Return means of what was observed at each site, (..., L, C); None where nothing was."""
        columns = []
        ends = np.cumsum(self._sizes)
        for data, size, end in zip(self._data, self._sizes, ends, strict=True):
            site = self._site[end - size : end]
            if data is None or not size or data.size % size or (site < 0).all():
                continue
            known = site >= 0
            count = np.bincount(site[known], minlength=self.n_sites)
            for column in data.reshape(size, -1).T:
                total = np.bincount(site[known], column[known], minlength=self.n_sites)
                columns.append(
                    np.divide(total, count, where=count > 0, out=np.full(len(count), np.nan))
                )
        return np.stack(columns, axis=-1).reshape(*self.shape, -1) if columns else None

    def _gathered(self, elements: np.ndarray) -> np.ndarray:
        """Add up the elements of each site; most often there is one, in the order of sites."""
        if self._in_order:
            return elements
        kept = self._kept
        return np.bincount(self._site[kept], elements[kept], minlength=self.n_sites)

    def _at(self, point: Point, states: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return h, J and all elements, one after the other, for states 0 .. S-1 of all sites."""
        labels = self.layout.decode(states.reshape(self.shape))
        values = (labels if name == self.name else point[name] for name in self._names)
        h, J, *terms = self._evaluate(*values)
        self._sizes = [np.size(term) for term in terms]
        if len(terms) == 1:
            return h, J, np.ravel(terms[0])
        return h, J, np.concatenate([np.ravel(term) for term in terms] or [np.zeros(0)])

    def _look(self, point: Point) -> bool:
        """Learn the sites of elements from a point; False where they are NaN there."""
        sizes = self.n_sites, self.layout.n_states
        try:
            found = sites_of(lambda states: self._at(point, states)[2], *sizes, self._rng)
        except (ValueError, TypeError, IndexError) as error:
            raise ValueError(self._unreadable(error)) from error
        if found is None:
            return False
        entangled = np.flatnonzero(found == ENTANGLED)
        if len(entangled):
            raise ValueError(self._not_by_site(int(entangled[0])))
        self._site = np.maximum(self._site, found)
        self._idle, self._kept = np.flatnonzero(self._site < 0), np.flatnonzero(self._site >= 0)
        self._in_order = np.array_equal(self._site, np.arange(self.n_sites))
        return True

    def _look_around(self, model: Model, point: Point) -> None:
        """Look at points near the start until every element has shown its site."""
        looks = 0
        for attempt in range(ATTEMPTS):
            # Farther and farther: near the start labels may make no difference yet.
            looks += self._look(_jittered(model, point, 2.0**attempt, self._rng))
            if looks and (looks == LOOKS or not len(self._idle)):
                return
        if not looks:
            raise ValueError(
                f"{self.name}: the log-probability of {self._mentioned()} is NaN for some labels "
                f"at all of {ATTEMPTS} points near the start; give parameters an initval"
            )

    def _mentioned(self) -> str:
        return ", ".join(part.name for part in self._parts) or "the model"

    def _unreadable(self, error: Exception) -> str:
        return (
            f"{self.name} has labels of shape {self.shape}, one for each of the "
            f"{self.layout.n_sites} sites of its graph, and the log-probability of "
            f"what depends on them cannot be computed: {str(error).splitlines()[0]}. Data and "
            "labels must have one shape: z.reshape(image.shape), or image.ravel()"
        )

    def _not_by_site(self, element: int) -> str:
        part = self._parts[int(np.searchsorted(np.cumsum(self._sizes), element, side="right"))]
        return (
            f"{part.name} does not factorise over the sites of {self.name}: an element of its "
            "log-probability depends on the labels of several sites, and LabelStep updates each "
            "given its neighbours in the graph only. Write it one element a site (a potential "
            "without its sum, data without a blur), put what ties labels together into the graph, "
            f"or pass step=pm.Metropolis([{self.name}]), which is slow but asks for nothing"
        )


#: In place of a site: none seen, and more than one.
NO_SITE, ENTANGLED = -1, -2


def sites_of(
    evaluate: Callable[[np.ndarray], np.ndarray],
    n_sites: int,
    n_states: int,
    rng: np.random.Generator,
) -> np.ndarray | None:
    """Find out which site each element of a function of states 0 .. S-1, (L,), depends on, (K,).

    -1 where no label makes a difference, -2 where several sites do. None where an element is NaN.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sites_of(lambda z: np.append(2.0 * z[[2, 0]], 7.0), 3, 2, rng).tolist()
    [2, 0, -1]
    >>> sites_of(lambda z: np.array([z[0] * z[2], z[1]]), 3, 2, rng).tolist()
    [-2, 1]
    """
    constant = [evaluate(np.full(n_sites, state)) for state in range(n_states)]
    table = np.stack(constant).astype(float)
    if np.isnan(table).any():
        return None
    number = np.arange(n_sites)
    site = np.full(table.shape[1], NO_SITE)
    clean = np.ones(table.shape[1], dtype=bool)
    for state in range(1, n_states):
        first, second = table[0], table[state]
        same = _close(first, second, 0.0)
        apart = (site == NO_SITE) & ~same
        if state > 1 and not apart.any():
            continue
        spread = _spread(table[[0, state]])
        found = np.zeros(len(site), dtype=np.int64)
        for bit in range((n_sites - 1).bit_length()):
            # With the complement beside it, what is made of two sites cannot pass for one.
            digit = number >> bit & 1
            seen, swapped = (evaluate(state * part) for part in (digit, 1 - digit))
            is_second = _close(seen, second, LEEWAY * spread)
            partner = np.where(is_second, first, second)
            clean &= is_second | _close(seen, first, LEEWAY * spread) | (~apart & ~same)
            clean &= _close(swapped, partner, LEEWAY * spread) | (~apart & ~same)
            found |= is_second.astype(np.int64) << bit
        clean &= ~apart | (found < n_sites)
        site[apart] = found[apart]
    site = np.where(clean, site, ENTANGLED)
    spread = _spread(table)
    for _ in range(TRIALS):
        states = rng.integers(0, n_states, n_sites)
        own = states[np.maximum(site, 0)] if n_sites else states
        expected = np.where(site >= 0, table[own, np.arange(len(site))], table[0])
        site = np.where(_close(evaluate(states), expected, LEEWAY * spread), site, ENTANGLED)
    return site


def _spread(table: np.ndarray) -> np.ndarray:
    """Range of the finite numbers of each column."""
    finite = np.isfinite(table)
    high = np.max(table, axis=0, where=finite, initial=-np.inf)
    low = np.min(table, axis=0, where=finite, initial=np.inf)
    return np.where(finite.any(axis=0), high, 0.0) - np.where(finite.any(axis=0), low, 0.0)


def _close(values: np.ndarray, wanted: np.ndarray, leeway: Any) -> np.ndarray:
    """Whether numbers, infinite ones included, are equal up to rounding and a leeway."""
    with np.errstate(invalid="ignore"):
        near = np.abs(values - wanted) <= leeway + ROUNDING * np.abs(wanted)
    return (values == wanted) | (near & np.isfinite(wanted))


def _jittered(model: Model, point: Point, width: float, rng: np.random.Generator) -> Point:
    """Return a point at which parameters that start out equal no longer are."""
    continuous = {value.name for value in model.continuous_value_vars}
    return {
        name: value + rng.uniform(-width, width, np.shape(value)) if name in continuous else value
        for name, value in point.items()
    }


def _numbers(value: Any) -> np.ndarray | None:
    """Observed data as an array of numbers, where they are known."""
    try:
        return None if value is None else np.asarray(extract_obs_data(value), dtype=float)
    except TypeError:  # a free variable
        return None
