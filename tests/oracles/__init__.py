"""Slow float64 NumPy models that share no line with the package: layers, positions, attention, then transformer."""
