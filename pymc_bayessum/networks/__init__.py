"""Random networks: exponential random graph models."""
