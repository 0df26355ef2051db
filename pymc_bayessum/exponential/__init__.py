"""Any discrete exponential family: statistics, a way to draw, and its normalising constant."""
