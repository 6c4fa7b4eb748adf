"""Names among which an option chooses; the command line and Python take the same."""

from typing import Literal

Backend = Literal["auto", "cpu", "cuda"]
Precision = Literal["double", "single"]
AnyPrecision = Literal["auto", "double", "single"]
"""Precision of the sums over sources; each caller says what "auto" means."""
GaussianFrame = Literal["tangent", "uv"]
"""Plane of the sizes and angles of Gaussians: tangent plane or uv plane (physics: section 5)."""
GridderName = Literal["auto", "idg", "wprojection"]
Convention = Literal["casa", "fourier"]
"""Signs of uvw: as a Measurement Set stores them, or negated (physics: section 2)."""
