"""What error draws may leave in a posterior."""

from typing import NamedTuple

__all__ = ["TARGET", "TOLERANCE", "Precision"]


class Precision(NamedTuple):
    """Errors that draws leave in a posterior.

    Attributes
    ----------
    mean : float
        Of its mean, in sds, along the axis where it is largest.
    sd : float
        Of its sd, relative, along the axis where it is largest.
    """

    mean: float
    sd: float

    def excess(self, target: "Precision") -> float:
        """How many times the target the worse of the two is."""
        return max(self.mean / target.mean, self.sd / target.sd)


#: What draws are made for, unless told otherwise.
TARGET = Precision(mean=0.03, sd=0.03)
#: Times the target at which an error counts as missed: it is itself known to a quarter only.
TOLERANCE = 1.5
