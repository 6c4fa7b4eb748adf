"""Names among which an option chooses; the command line and Python take the same."""

from typing import Literal

Interpolation = Literal["nearest", "linear", "spectral-index"]
"""Interpolation between the planes of an image."""
