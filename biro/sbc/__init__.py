"""Simulation-based calibration: whether the posteriors of a model and a sampler mean what they say."""

from biro.sbc.procedure import run

__all__ = ["run"]
