"""Pictures of normalisers and of predicted counts, in the manner of arviz-plots."""

from pymc_bayessum.plots.plots import plot_dispersion, plot_normalizer, plot_rootogram

__all__ = ["plot_dispersion", "plot_normalizer", "plot_rootogram"]
