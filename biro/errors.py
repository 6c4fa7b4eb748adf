"""The exceptions that biro raises on purpose; all of them are `BiroError`."""

from biro.models.errors import ModelError
from rime_kernels.errors import BackendError, BiroError, InputError

__all__ = [
    "BackendError",
    "BiroError",
    "InputError",
    "LikelihoodError",
    "MeasurementSetError",
    "ModelError",
    "RunError",
]


class MeasurementSetError(BiroError):
    """A Measurement Set is missing, broken, locked or read-only, or lacks a column or selection."""


class LikelihoodError(BiroError):
    """The likelihood cannot be evaluated for these parameters."""


class RunError(BiroError):
    """A run directory cannot be used: it is locked, its inputs have changed, or it is not from biro."""
