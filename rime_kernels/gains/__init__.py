"""Gains of antennas that are fitted to given model visibilities: sums over data, maximum, curvature."""
