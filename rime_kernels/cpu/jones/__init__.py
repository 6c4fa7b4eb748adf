"""Antenna terms that are 2x2 Jones matrices, on the CPU: what loops do with them in place of numbers."""
