"""Spectral cubes: their planes and frames, how each is imaged, and how they are written."""
