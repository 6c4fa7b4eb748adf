"""Names among which an option chooses; the command line and Python take the same."""

from typing import Literal

Interpolation = Literal["nearest", "linear", "spectral-index"]
"""Interpolation between the planes of an image."""
ImagePriorName = Literal["smooth", "correlated-field", "pixels"]
"""Prior of an image that is fitted."""
Regularisation = Literal["starlet", "entropy", "tv"]
"""What the fast map prefers among images that fit."""
