"""The exceptions that biro raises on purpose, all of them `BiroError`; and the warning about data."""

from biro.models.errors import ModelError
from rime_kernels.errors import BackendError, BiroError, InputError

__all__ = [
    "BackendError",
    "BiroError",
    "DataError",
    "DataNote",
    "InputError",
    "LikelihoodError",
    "MeasurementSetError",
    "ModelError",
    "OutputError",
    "RunError",
]


class DataError(BiroError):
    """Observed data are missing, broken or not understood, or lack what is selected."""


class DataNote(UserWarning):
    """Something of data was left out, or assumed, while they were read."""


class MeasurementSetError(DataError):
    """A Measurement Set is missing, broken, locked or read-only, or lacks a column."""


class LikelihoodError(BiroError):
    """The likelihood cannot be evaluated for these parameters."""


class OutputError(BiroError):
    """A result was computed, but not all could be written where it belongs; the text says what is where."""


class RunError(BiroError):
    """A run directory cannot be used: it is locked, its inputs have changed, or it is not from biro."""
