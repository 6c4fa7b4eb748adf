"""Simulated observations: telescopes, uvw tracks, noise, and visibilities that a sky model predicts."""

from biro.simulation.prediction import predict
from biro.simulation.simulator import Channels, Track, radiometer_noise, simulate
from biro.simulation.telescopes import telescope

__all__ = ["Channels", "Track", "predict", "radiometer_noise", "simulate", "telescope"]
