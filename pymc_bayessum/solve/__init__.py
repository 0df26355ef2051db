"""How K⁻¹v is found: dense, in closed form, banded, or through features."""
