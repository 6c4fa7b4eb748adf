"""Baselines along the axes of another phase centre, and the phase between the two."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biro.models.components.direction import basis
from biro.observation.partition_header import PartitionHeader
from rime_kernels.physics.phase import SPEED_OF_LIGHT

Array = NDArray[np.float64]


def turned_uvw(part: PartitionHeader, centre: tuple[float, float]) -> tuple[Array, Array]:
    """u' along the axes of a centre (ICRS, rad), float64 (n_row, 3), and w' - w, float64 (n_row,), m.

    Visibilities about the two centres are V = V' exp(2 pi i (w' - w) nu/c).
    """
    uvw = part.uvw @ (basis(part.phase_centre) @ basis(centre).T)
    return uvw, uvw[:, 2] - part.uvw[:, 2]


def phasor(excess: Array, freq: Array | float) -> NDArray[np.complex128]:
    """exp(2 pi i (w' - w) nu/c) of w' - w (m) and frequencies (Hz) that are broadcast together."""
    turns = excess * (freq / SPEED_OF_LIGHT)
    return np.asarray(np.exp(2j * np.pi * (turns - np.rint(turns))))
