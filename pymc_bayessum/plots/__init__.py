"""Pictures of a normaliser and of count-data fits, one a file, in the manner of arviz-plots.

Every function takes a DataTree, returns the :class:`arviz_plots.PlotCollection` it drew on, and
accepts ``backend`` (any that arviz-plots has), ``visuals`` (keyword arguments for each visual, or
``False`` to leave it out) and the keyword arguments of the collection, as arviz-plots does.
Information is carried by position, marker and line style; colour only repeats it, so that grey
print loses nothing.
"""

from pymc_bayessum.plots.dispersion import plot_dispersion
from pymc_bayessum.plots.network_fit import plot_network_fit
from pymc_bayessum.plots.normalizer import plot_normalizer
from pymc_bayessum.plots.rootogram import plot_rootogram

__all__ = ["plot_dispersion", "plot_network_fit", "plot_normalizer", "plot_rootogram"]
