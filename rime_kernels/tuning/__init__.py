"""Tuning of the CUDA kernels' shapes: measured by `tune`, remembered on disk, used by later calls."""

from rime_kernels.cuda.launch_shapes.records import Tuned, saved
from rime_kernels.tuning.search import Search, table, tune
from rime_kernels.tuning.trial import most_processes

__all__ = ["Search", "Tuned", "most_processes", "saved", "table", "tune"]
