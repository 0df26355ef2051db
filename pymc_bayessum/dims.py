"""CMP for models with named dimensions (``pymc.dims``).

Import it by name, as ``pymc.dims`` itself: ``from pymc_bayessum.dims import CMP``.
"""

from typing import Any

from pymc.dims.distributions.core import DimDistribution
from pytensor.xtensor.random import as_xrv

from pymc_bayessum.counts.cmp import CMPRV, the_parametrization
from pymc_bayessum.rules.rule import Rule

__all__ = ["CMP"]


class CMP(DimDistribution):
    r"""Conway-Maxwell-Poisson counts, their dimensions matched by name.

    The distribution and its parameters are those of :class:`pymc_bayessum.CMP`.

    Parameters
    ----------
    mu, lam, mode : xtensor_like of float
        Exactly one: the mean, the rate, or :math:`\lambda^{1/\nu}`.
    nu : xtensor_like of float
        Dispersion (nu >= 0).
    normalizer : Rule, optional
    **kwargs
        ``observed``, ``dims``, ... as in any distribution of ``pymc.dims``.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc.dims as pmd
    >>> from pymc_bayessum.dims import CMP
    >>> with pm.Model(coords={"shop": ["a", "b", "c"]}) as model:
    ...     level = pmd.Normal("level", dims="shop")
    ...     nu = pmd.HalfNormal("nu")
    ...     sold = pmd.Data("sold", np.array([3, 0, 5]), dims="shop")
    ...     y = CMP("y", mu=pmd.math.exp(level), nu=nu, observed=sold)
    >>> y.dims
    ('shop',)
    """

    @staticmethod
    def xrv_op(*parameters: Any, parametrization: str, rule: Any, **kwargs: Any) -> Any:
        """Create the random variable for one parametrisation and rule."""
        op = CMPRV(parametrization=parametrization, rule=rule)
        return as_xrv(op)(*parameters, **kwargs)

    @classmethod
    def dist(  # type: ignore[override]
        cls,
        mu: Any = None,
        nu: Any = None,
        *,
        lam: Any = None,
        mode: Any = None,
        normalizer: Rule | None = None,
        **kwargs: Any,
    ) -> Any:
        """Create the distribution outside of a model."""
        parametrization, first = the_parametrization(mu, lam, mode, nu, normalizer)
        return super().dist([first, nu], parametrization=parametrization, rule=normalizer, **kwargs)
