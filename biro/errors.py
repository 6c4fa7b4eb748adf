"""Every exception that biro raises on purpose; all are `BiroError`."""

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
    """A Measurement Set is missing, broken, locked, read-only, or lacks what was asked for."""


class LikelihoodError(BiroError):
    """The likelihood cannot be evaluated for the parameters given."""


class RunError(BiroError):
    """A run directory cannot be used: locked, changed inputs, or not ours."""
