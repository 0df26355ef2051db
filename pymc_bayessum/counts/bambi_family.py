"""CMP and its relatives as families for Bambi models."""

from typing import Any

from pymc_bayessum.counts.cmp import CMP
from pymc_bayessum.counts.inflated import HurdleCMP, ZeroInflatedCMP

__all__ = ["bambi_family"]

_KINDS: dict[str, Any] = {"cmp": CMP, "zero_inflated": ZeroInflatedCMP, "hurdle": HurdleCMP}
_OF_POSITIVES, _OF_SHARES = ("log", "identity"), ("logit", "probit", "cloglog", "identity")


def bambi_family(
    kind: str = "cmp", link: str = "log", nu_link: str = "log", psi_link: str = "logit"
) -> Any:
    """Make the CMP, in mean form, or a relative a family for ``bambi.Model``.

    Parameters
    ----------
    kind : {"cmp", "zero_inflated", "hurdle"}
        Which of :class:`CMP`, :class:`ZeroInflatedCMP` and :class:`HurdleCMP`. The latter two have
        the parameter ``psi``, the share of the CMP part, with a Beta(2, 2) prior as Bambi's own.
    link : {"log", "identity"}
        Link of the mean ``mu``, the parent parameter.
    nu_link : {"log", "identity"}
        Link of ``nu``, used when nu has a formula of its own
        (``bambi.Formula("y ~ x", "nu ~ x")``).
    psi_link : {"logit", "probit", "cloglog", "identity"}
        Link of ``psi``, used when psi has a formula of its own.

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
    >>> pbs.bambi_family("hurdle").likelihood.params
    ['mu', 'nu', 'psi']

    With a data frame of counts, ``bambi.Model("y ~ x", data, family=family)`` builds the model.
    """
    try:
        import bambi as bmb
    except ImportError as error:
        raise ImportError('bambi_family needs Bambi: pip install "pymc-bayessum[bambi]"') from error
    for name, value, allowed in (
        ("kind", kind, tuple(_KINDS)),
        ("link", link, _OF_POSITIVES),
        ("nu_link", nu_link, _OF_POSITIVES),
        ("psi_link", psi_link, _OF_SHARES),
    ):
        if value not in allowed:
            raise ValueError(f"{name} must be one of {allowed}, got {value!r}")
    links = {"mu": link, "nu": nu_link}
    priors = {"nu": bmb.Prior("LogNormal", mu=0.0, sigma=1.0)}
    if kind != "cmp":
        links["psi"] = psi_link
        priors["psi"] = bmb.Prior("Beta", alpha=2.0, beta=2.0)
    distribution = _KINDS[kind]
    likelihood = bmb.Likelihood(
        distribution.__name__, params=list(links), parent="mu", dist=distribution
    )
    family = bmb.Family(kind if kind == "cmp" else f"{kind}_cmp", likelihood, links)
    family.set_default_priors(priors)
    return family
