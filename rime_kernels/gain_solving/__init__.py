"""Gains of antennas that make model visibilities fit data best, interval by interval, on the CPU."""

from rime_kernels.gain_solving.solver import Solution, solve_sums
from rime_kernels.gain_solving.sums import IntervalSums, sum_intervals
from rime_kernels.gain_solving.unknowns import Reason, SolveOptions, Unknowns

__all__ = ["IntervalSums", "Reason", "Solution", "SolveOptions", "Unknowns", "solve_sums", "sum_intervals"]
