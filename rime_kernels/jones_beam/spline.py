"""Cubic B-splines on an even grid, at one place: the cell, and the weights of the four nodes about it."""

from __future__ import annotations

import functools

import numpy as np

from rime_kernels.compile.jit import scalar
from rime_kernels.compile.types import Compiled, Scalar


@scalar
def cell(place: float, n: int) -> tuple[float, float, float]:
    """The cell of a place in steps of the grid, held within its n nodes; the place in the cell.

    A place that is NaN stays NaN, in the first cell. Last: 1, or 0 where the place was held.
    """
    inside = 1.0
    if place < 0.0 or place > n - 1.0:
        place = 0.0 if place < 0.0 else n - 1.0
        inside = 0.0
    cell = 0
    if place >= 1.0:
        cell = min(int(place), n - 2)
    return cell, place - cell, inside


@functools.cache
def make_weights(single: bool) -> Compiled:
    """Function that gives the cubic B-splines of four nodes at t within the second and third."""
    real = np.float32 if single else np.float64
    one, three, four, six, sixth = real(1.0), real(3.0), real(4.0), real(6.0), real(1.0 / 6.0)

    @scalar
    def weights(t: Scalar) -> tuple[Scalar, Scalar, Scalar, Scalar]:
        s = one - t
        return (
            sixth * (s * s * s), sixth * (four - t * t * (six - three * t)),
            sixth * (four - s * s * (six - three * s)), sixth * (t * t * t),
        )  # fmt: skip

    return weights


@scalar
def slopes(t: float) -> tuple[float, float, float, float]:
    """Their derivatives."""
    s = 1.0 - t
    return -0.5 * s * s, 0.5 * t * (3.0 * t - 4.0), -0.5 * s * (3.0 * s - 4.0), 0.5 * t * t


@scalar
def turned(dl: float, dm: float, sin: float, cos: float) -> tuple[float, float]:
    """An offset on the sky in a frame that is turned by an angle, north through east."""
    return dl * cos - dm * sin, dl * sin + dm * cos
