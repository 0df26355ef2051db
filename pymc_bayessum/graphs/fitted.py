"""What every fit of a Potts model can say: its constant, log-likelihoods, and strong couplings."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pymc_bayessum.arguments import as_generator, integer, real
from pymc_bayessum.graphs.estimates import data_rows
from pymc_bayessum.graphs.family import PottsFamily
from pymc_bayessum.graphs.sequences import contact_scores
from pymc_bayessum.graphs.statistics import PottsLayout
from pymc_bayessum.normalizers.family import LogConstant

__all__ = ["FittedPotts"]


@dataclass(frozen=True, eq=False)
class FittedPotts:
    """Parameters of a Potts or Ising model that were fitted to data.

    Attributes
    ----------
    layout : PottsLayout
    h, J : ndarray
        In the layout's shapes (0.0 where absent).
    theta : ndarray, shape (d,)
        Both of them, stacked.
    """

    layout: PottsLayout
    h: Any
    J: Any
    theta: np.ndarray = field(repr=False)

    def log_constant(self, *, n_evals: int = 100_000, rng: Any = None) -> LogConstant:
        """Log Z of the fitted model with its error: exact where affordable, else annealed.

        Parameters
        ----------
        n_evals : int
            Energies to evaluate where it is not exact: draws times steps of annealing.
        rng : None, int or numpy.random.Generator

        Returns
        -------
        LogConstant
            With ``value`` and ``sd``.
        """
        n_evals = integer("n_evals", n_evals, 1000)
        family = PottsFamily(self.layout)
        return family.log_constant(self.theta, as_generator(rng), n_evals=n_evals)

    def log_likelihood(
        self, rows: Any, log_z: LogConstant | float | None = None, *, rng: Any = None
    ) -> np.ndarray:
        """Log-probabilities of rows, seen or held out.

        Parameters
        ----------
        rows : array_like of int, shape (n, L)
        log_z : LogConstant or float, optional
            That of :meth:`log_constant`, which is called where it is not given.
        rng : None, int or numpy.random.Generator

        Returns
        -------
        ndarray, shape (n,)
            The error of log Z, ``log_constant().sd``, is one and the same in all of them.
        """
        states = self.layout.encode(data_rows(self.layout, rows))
        constant = self.log_constant(rng=rng) if log_z is None else log_z
        value = constant.value if isinstance(constant, LogConstant) else real("log_z", constant)
        return self.layout.energy(states, self.h, self.J) - value

    def contact_scores(self, gap: int | None = None) -> np.ndarray:
        """Frobenius norms of the couplings of edges, (E,); see :func:`contact_scores`.

        Parameters
        ----------
        gap : int, optional
            A state that is left out.
        """
        tables = self.layout.expand_coupling(self.J)
        return contact_scores(tables, self.layout.edges, self.layout.n_sites, gap=gap)
