"""Log Z of any exponential family from draws at anchors near the posterior."""

from pymc_bayessum.normalizers.anchored.climbing import Climb, Data, NormalPrior, climb
from pymc_bayessum.normalizers.anchored.defaults import default_anchored
from pymc_bayessum.normalizers.anchored.rule import Anchored, anchored

__all__ = ["Anchored", "Climb", "Data", "NormalPrior", "anchored", "climb", "default_anchored"]
