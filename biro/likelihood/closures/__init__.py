"""Closure phases and log closure amplitudes: what gains of antennas cannot change, with their covariance."""
