"""Zero-inflated and hurdle Conway-Maxwell-Poisson distributions."""

from __future__ import annotations

from typing import Any

import pymc as pm
import pytensor.tensor as pt
from pymc.logprob.abstract import _icdf

from pymc_bayessum.counts.cmp import CMP, CMPRV

__all__ = ["HurdleCMP", "ZeroInflatedCMP"]


class _RejectedCMPRV(CMPRV):
    """CMP that PyMC truncates by rejection: truncation by quantiles would give floats."""


_icdf.register(_RejectedCMPRV, _icdf.dispatch(object))


class _CMPWithZeros:
    """Mixture of a point at zero, weight 1 - psi, and a CMP-based part, weight psi."""

    @classmethod
    def _component(cls, counts: Any, max_n_steps: int) -> Any:
        """Give the part that is not the point at zero."""
        return counts

    @classmethod
    def _parts(
        cls,
        psi: Any,
        mu: Any,
        nu: Any,
        lam: Any,
        mode: Any,
        normalizer: Any,
        max_n_steps: int,
    ) -> tuple[Any, list[Any]]:
        psi = pt.as_tensor_variable(psi)
        counts = CMP.dist(mu=mu, nu=nu, lam=lam, mode=mode, normalizer=normalizer)
        weights = pt.stack([1 - psi, psi], axis=-1)
        return weights, [pm.DiracDelta.dist(0), cls._component(counts, max_n_steps)]

    def __new__(
        cls,
        name: str,
        psi: Any,
        mu: Any = None,
        nu: Any = None,
        *,
        lam: Any = None,
        mode: Any = None,
        normalizer: Any = None,
        max_n_steps: int = 10_000,
        **kwargs: Any,
    ) -> Any:
        """Add the variable to the model on the context stack."""
        parts = cls._parts(psi, mu, nu, lam, mode, normalizer, max_n_steps)
        return pm.Mixture(name, *parts, **kwargs)

    @classmethod
    def dist(
        cls,
        psi: Any,
        mu: Any = None,
        nu: Any = None,
        *,
        lam: Any = None,
        mode: Any = None,
        normalizer: Any = None,
        max_n_steps: int = 10_000,
        **kwargs: Any,
    ) -> Any:
        """Create a variable outside a model."""
        parts = cls._parts(psi, mu, nu, lam, mode, normalizer, max_n_steps)
        return pm.Mixture.dist(*parts, **kwargs)


class ZeroInflatedCMP(_CMPWithZeros):
    r"""Zero-inflated Conway-Maxwell-Poisson distribution.

    .. math::

        f(x \mid \psi, \mu, \nu) = (1 - \psi) [x = 0] + \psi \, \mathrm{CMP}(x \mid \mu, \nu)

    ========  ==========================================
    Support   :math:`x \in \mathbb{N}_0`
    Mean      :math:`\psi \mu`
    Variance  :math:`\psi (\sigma^2 + (1 - \psi) \mu^2)`, :math:`\sigma^2` the variance of the CMP
    ========  ==========================================

    Parameters
    ----------
    psi : tensor_like of float
        Expected proportion of CMP draws (0 <= psi <= 1).
    mu, lam, mode : tensor_like of float
        Exactly one, as for :class:`CMP`; ``mu`` is the mean of the CMP part.
    nu : tensor_like of float
        Dispersion, as for :class:`CMP`.
    normalizer : Rule, optional
        As for :class:`CMP`.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_bayessum as pbs
    >>> x = pbs.ZeroInflatedCMP.dist(psi=0.7, mu=3.0, nu=1.0)
    >>> reference = pm.ZeroInflatedPoisson.dist(psi=0.7, mu=3.0)
    >>> bool(np.isclose(pm.logp(x, 0).eval(), pm.logp(reference, 0).eval()))
    True
    """


class HurdleCMP(_CMPWithZeros):
    r"""Hurdle Conway-Maxwell-Poisson distribution: zeros come from a process of their own.

    .. math::

        f(x \mid \psi, \mu, \nu) = \begin{cases}
            1 - \psi & x = 0 \\
            \psi \, \dfrac{\mathrm{CMP}(x \mid \mu, \nu)}{1 - \mathrm{CMP}(0 \mid \mu, \nu)}
              & x = 1, 2, \ldots
        \end{cases}

    ========  ==========================================
    Support   :math:`x \in \mathbb{N}_0`
    Mean      :math:`\psi \mu / (1 - 1 / Z)`
    ========  ==========================================

    Parameters
    ----------
    psi : tensor_like of float
        Probability of a positive count (0 <= psi <= 1).
    mu, lam, mode : tensor_like of float
        Exactly one, as for :class:`CMP`, of the distribution before its zeros are cut off.
    nu : tensor_like of float
        Dispersion, as for :class:`CMP`.
    normalizer : Rule, optional
        As for :class:`CMP`.
    max_n_steps : int, default 10_000
        How often a draw of the truncated part is tried before it is given up.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_bayessum as pbs
    >>> x = pbs.HurdleCMP.dist(psi=0.7, mu=3.0, nu=1.0)
    >>> reference = pm.HurdlePoisson.dist(psi=0.7, mu=3.0)
    >>> bool(np.isclose(pm.logp(x, 2).eval(), pm.logp(reference, 2).eval()))
    True
    """

    @classmethod
    def _component(cls, counts: Any, max_n_steps: int) -> Any:
        """Cut the zeros off."""
        op = counts.owner.op
        rng, size, *parameters = counts.owner.inputs
        rejected = _RejectedCMPRV(parametrization=op.parametrization, rule=op.rule)
        _, counts = rejected(*parameters, size=size, rng=rng, return_next_rng=True)
        return pm.Truncated.dist(counts, lower=1, max_n_steps=max_n_steps)
