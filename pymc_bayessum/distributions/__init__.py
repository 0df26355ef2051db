"""PyMC distributions normalised by BayesSum rules."""
