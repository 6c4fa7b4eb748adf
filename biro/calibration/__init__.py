"""Gains of antennas solved from an observation and a sky that is fixed: a calibration solver of its own."""

from biro.calibration.solved_gains import SolvedGains
from biro.calibration.solving import solve_gains

__all__ = ["SolvedGains", "solve_gains"]
