"""Normalising constants of discrete models inside PyMC, by Bayesian quadrature for sums."""

__version__ = "0.1.0"
