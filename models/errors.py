"""What is raised when a sky model cannot be meant."""

from rime_kernels.errors import BiroError


class ModelError(BiroError, ValueError):
    """A sky model is wrong; the message names file, source, key, what was found and what is allowed."""
