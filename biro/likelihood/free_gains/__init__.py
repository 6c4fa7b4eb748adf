"""Gains that are integrated over, or solved for, at each sky: their cells, the maximum, the integral."""
