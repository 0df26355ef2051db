"""CMP as a family for Bambi models."""

from __future__ import annotations

from typing import Any

from pymc_bayessum.counts.cmp import CMP

__all__ = ["bambi_family"]


def bambi_family(link: str = "log", nu_link: str = "log") -> Any:
    """Make the CMP, in mean form, a family for ``bambi.Model``.

    Parameters
    ----------
    link : {"log", "identity"}
        Link of the mean ``mu``, the parent parameter.
    nu_link : {"log", "identity"}
        Link of ``nu``, used when nu has a formula of its own
        (``bambi.Formula("y ~ x", "nu ~ x")``).

    Returns
    -------
    bambi.Family

    Raises
    ------
    ImportError
        If Bambi is not installed (``pip install "pymc-bayessum[bambi]"``).

    Examples
    --------
    >>> import pymc_bayessum as pbs
    >>> family = pbs.bambi_family()
    >>> family.likelihood.params
    ['mu', 'nu']

    With a data frame of counts, ``bambi.Model("y ~ x", data, family=family)`` builds the model.
    """
    try:
        import bambi as bmb
    except ImportError as error:
        raise ImportError('bambi_family needs Bambi: pip install "pymc-bayessum[bambi]"') from error
    for name, value in {"link": link, "nu_link": nu_link}.items():
        if value not in {"log", "identity"}:
            raise ValueError(f"{name} must be 'log' or 'identity', got {value!r}")
    likelihood = bmb.Likelihood("CMP", params=["mu", "nu"], parent="mu", dist=CMP)
    family = bmb.Family("cmp", likelihood, {"mu": link, "nu": nu_link})
    family.set_default_priors({"nu": bmb.Prior("LogNormal", mu=0.0, sigma=1.0)})
    return family
