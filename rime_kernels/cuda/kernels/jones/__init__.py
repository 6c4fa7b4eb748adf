"""Kernels over tiles and over rows for antennas that see each source through a 2x2 matrix of their own."""
