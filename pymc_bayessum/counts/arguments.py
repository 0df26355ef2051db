"""Parameters of distributions of counts: made tensors, refused where no distribution has them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.pytensorf import floatX
from pytensor.graph.basic import Constant, Variable

from pymc_bayessum.counts.parametrization import chosen
from pymc_bayessum.rules.rule import Rule

__all__ = [
    "CMPArguments",
    "ZerosArguments",
    "as_float",
    "check_constants",
    "check_numbers",
    "stacked",
]

#: What PyMC asks of every distribution, or of one with named dimensions.
_OF_EVERY_DISTRIBUTION = {"rng", "shape", "size", "return_next_rng", "dim_lengths", "core_dims"}


class CMPArguments:
    """How a distribution of which CMP is a part is told which CMP is meant.

    It comes before a base class of PyMC, whose ``dist`` takes a list of parameters.
    """

    @classmethod
    def as_float(cls, x: Any) -> Any:
        """Return a parameter as a tensor."""
        return as_float(x)

    @classmethod
    def of_cmp(cls, own: Any, forms: Any, nu: Any, normalizer: Any, kwargs: Any) -> Any:
        """Check the arguments and create the variable; ``own`` parameters come before CMP's."""
        unknown = [repr(key) for key in kwargs if key not in _OF_EVERY_DISTRIBUTION]
        if unknown:
            known = ", ".join([*own, "mu", "lam", "mode", "nu", "normalizer"])
            raise TypeError(
                f"{cls.__name__} has no argument {', '.join(unknown)}; its parameters are {known}"
            )
        form, first = chosen(*forms)
        if nu is None:
            raise ValueError("nu must be given; nu = 1 is the Poisson distribution")
        if normalizer is not None:
            _check_rule(normalizer)
        given = {**own, form.name: first, "nu": nu}
        parameters = {name: cls.as_float(x) for name, x in given.items()}
        check_constants(parameters)
        values = list(parameters.values())
        return super().dist(values, parametrization=form, rule=normalizer, **kwargs)  # type: ignore[misc]  # PyMC's

    @classmethod
    def dist(
        cls,
        mu: Any = None,
        nu: Any = None,
        *,
        lam: Any = None,
        mode: Any = None,
        normalizer: Rule | None = None,
        **kwargs: Any,
    ) -> Any:
        """Create the distribution outside of a model.

        Raises
        ------
        ValueError
            If not exactly one of ``mu``, ``lam`` and ``mode`` is given, or if constant parameters
            are negative or not finite.
        """
        return cls.of_cmp({}, (mu, lam, mode), nu, normalizer, kwargs)


class ZerosArguments(CMPArguments):
    """The same with the share of the CMP part before."""

    @classmethod
    def dist(  # type: ignore[override]  # one parameter more
        cls,
        psi: Any,
        mu: Any = None,
        nu: Any = None,
        *,
        lam: Any = None,
        mode: Any = None,
        normalizer: Rule | None = None,
        **kwargs: Any,
    ) -> Any:
        """Create the distribution outside of a model."""
        return cls.of_cmp({"psi": psi}, (mu, lam, mode), nu, normalizer, kwargs)


def _check_rule(rule: Any) -> None:
    if not isinstance(rule, Rule):
        raise TypeError(f"normalizer must be None or a Rule, as made by poisson_rule, got {rule!r}")
    if isinstance(rule.nodes, tuple) or rule.nodes.ndim != 1 or np.any(rule.nodes < 0):
        raise ValueError("normalizer must be a rule on the naturals: one whole number >= 0 a node")


def stacked(x: Any) -> Any:
    """Return a list with tensors in it as one tensor, anything else as it is."""
    is_list = isinstance(x, (list, tuple)) and any(isinstance(entry, Variable) for entry in x)
    return pt.stack(x) if is_list else x


def as_float(x: Any) -> Any:
    """Return a float tensor; what is known beforehand stays a plain constant."""
    x = stacked(x)
    if isinstance(x, Variable) and not isinstance(x, Constant):
        return floatX(x)
    data = x.data if isinstance(x, Constant) else x
    return pt.constant(np.asarray(data, dtype=pytensor.config.floatX))


def check_constants(parameters: Mapping[str, Any], *, positive: Sequence[str] = ()) -> None:
    """Raise for constant parameters that no distribution has."""
    for name, x in parameters.items():
        if isinstance(x, Constant):
            check_numbers(name, x.data, positive=name in positive)


def check_numbers(name: str, numbers: Any, *, positive: bool = False) -> None:
    """Raise for numbers that no distribution has as this parameter."""
    values = np.asarray(numbers, dtype=float)
    if positive:
        is_allowed, words = values > 0, "> 0"
    elif name == "psi":
        is_allowed, words = (values >= 0) & (values <= 1), "between 0 and 1"
    else:
        is_allowed, words = values >= 0, ">= 0"
    bad = ~(np.isfinite(values) & is_allowed)
    if bad.any():
        raise ValueError(f"{name} must be finite and {words}, got {values[bad].flat[0]}")
