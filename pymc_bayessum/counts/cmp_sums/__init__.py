"""Log-normaliser of the Conway-Maxwell-Poisson distribution, with all derivatives models need."""
