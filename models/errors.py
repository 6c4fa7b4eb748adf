"""The exception that is raised where a sky model is wrong."""

from rime_kernels.errors import BiroError


class ModelError(BiroError, ValueError):
    """A sky model is wrong; the message names file, source, key, what was found and what is allowed."""
