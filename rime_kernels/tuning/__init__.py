"""Tuning of the CUDA kernels' shapes: measured by `tune`, remembered on disk, used by later calls."""

from rime_kernels.cuda.shapes.records import Tuned, saved
from rime_kernels.tuning.search import table, tune

__all__ = ["Tuned", "saved", "table", "tune"]
