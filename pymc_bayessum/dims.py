"""CMP and its relatives for models with named dimensions (``pymc.dims``).

Import them by name, as ``pymc.dims`` itself: ``from pymc_bayessum.dims import CMP``.
"""

from typing import Any, ClassVar

import numpy as np
import pytensor
from pymc.dims.distributions.core import DimDistribution
from pytensor.graph.basic import Variable
from pytensor.xtensor.random import as_xrv
from pytensor.xtensor.vectorization import XRV
from xarray import DataArray

from pymc_bayessum.counts.arguments import CMPArguments, ZerosArguments
from pymc_bayessum.counts.cmp import CMPRV, CMPBasedRV
from pymc_bayessum.counts.inflated import HurdleCMPRV, ZeroInflatedCMPRV
from pymc_bayessum.counts.observed import as_counts, check_coords
from pymc_bayessum.counts.parametrization import Parametrization
from pymc_bayessum.normalizers.predicted import predicted

__all__ = ["CMP", "HurdleCMP", "ZeroInflatedCMP"]


class CMPBased(CMPArguments, DimDistribution):
    """What the distributions share: arguments and data are checked as without names."""

    rv_type: ClassVar[type[CMPBasedRV]]

    def __new__(cls, name: str, *args: Any, observed: Any = None, **kwargs: Any) -> Any:
        """Add the variable to the model on the context stack."""
        if observed is not None:
            observed = as_counts(name, cls._as_xtensor(observed))
            check_coords(name, observed, observed.type.dims)
        return super().__new__(cls, name, *args, observed=observed, **kwargs)

    @classmethod
    def xrv_op(
        cls, *parameters: Any, parametrization: Parametrization, rule: Any, **kwargs: Any
    ) -> Any:
        """Create the random variable for one parametrisation and rule."""
        op = cls.rv_type(parametrization=parametrization, rule=rule)
        return as_xrv(op)(*parameters, **kwargs)

    @classmethod
    def as_float(cls, x: Any) -> Any:
        """Return a parameter with its dims; PyTensor would make a plain number single precision."""
        if not isinstance(x, (Variable, DataArray)):
            x = np.asarray(x, dtype=pytensor.config.floatX)
        return cls._as_xtensor(x).astype(pytensor.config.floatX)


class CMP(CMPBased):
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

    rv_type = CMPRV


class ZeroInflatedCMP(ZerosArguments, CMPBased):
    """Zero-inflated CMP counts, their dimensions matched by name.

    The distribution and its parameters are those of :class:`pymc_bayessum.ZeroInflatedCMP`.
    """

    rv_type = ZeroInflatedCMPRV


class HurdleCMP(ZerosArguments, CMPBased):
    """Hurdle CMP counts, their dimensions matched by name.

    The distribution and its parameters are those of :class:`pymc_bayessum.HurdleCMP`.
    """

    rv_type = HurdleCMPRV


@predicted.register(XRV)
def _named_predicted(op, *inputs):
    """Ask the Op without names, with parameters whose dimensions are in the variable's order."""
    rng, parameters = inputs[0], inputs[1 + len(op.extra_dims) :]
    dims = op.make_node(*inputs).outputs[1].type.dims
    in_order = [
        each.values.dimshuffle([each.dims.index(d) if d in each.dims else "x" for d in dims])
        for each in parameters
    ]
    return predicted(op.core_op, rng, None, *in_order)
