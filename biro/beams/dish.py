"""`DishBeam` as a function of direction and frequency, and how far it reaches."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from biro.beams.sampled import BeamFunction
from biro.models.components.beam import AnyBeam
from biro.models.components.jones_beam import DishBeam
from biro.models.components.source import si_value
from biro.models.quantities.units import ANGLE, FREQUENCY
from rime_kernels.compile.jit import elementwise
from rime_kernels.physics import beam as physics

Array = NDArray[np.float64]
_voltage = elementwise(physics.voltage)
# x at which the power is half: of exp(-4 ln2 x^2), cos^6 x and (2 J1(x) / x)^2.
_HALF_POWER = {"gaussian": 0.5, "cos3": 0.4715, "airy": 1.6163}
_DEFAULT_REACH = 6.0
ACCURACY = {"gaussian": 1e-6, "airy": 1e-6, "cos3": 3e-4}
"""How well each pattern is sampled; cos^3 has a kink where it stays constant."""


def dish_function(beam: DishBeam) -> BeamFunction:
    """E(x, y, nu) of the formulas of `DishBeam`, complex128 (..., 2, 2)."""
    feeds = [_feed(beam, i) for i in range(2)]

    def jones(x: Array, y: Array, freq: float) -> NDArray[np.complex128]:
        found = np.zeros((*x.shape, 2, 2), complex)
        for i, (pattern, scale, ratio, pa) in enumerate(feeds):
            dl, dm = _squint(beam, i, freq)
            dx, dy = x - dl, y - dm
            along = dx * math.sin(pa) + dy * math.cos(pa)
            across = dx * math.cos(pa) - dy * math.sin(pa)
            found[..., i, i] = _voltage(pattern, scale * freq * np.hypot(along, across / ratio))
        return found

    return jones


def dish_extent(beam: DishBeam, lowest: float) -> float:
    """Half the side of the grid: as given, or six half widths of the power beam at the lowest frequency."""
    if beam.extent is not None:
        return si_value(beam.extent, ANGLE)
    reach = [
        _DEFAULT_REACH * _HALF_POWER[beam.pattern] / (scale * lowest) * max(1.0, ratio)
        for _, scale, ratio, _ in (_feed(beam, i) for i in range(2))
    ]
    return min(1.0, max(reach) + math.hypot(*_squint(beam, 0, lowest)))


def _feed(beam: DishBeam, i_feed: int) -> tuple[int, float, float, float]:
    """Code of the pattern of a feed, x / (nu r), ratio and position angle."""
    made, ratio, pa = beam.of_feed(i_feed)
    value = si_value(getattr(made, made.key), made.dimension)
    return physics.CODES[made.kind], float(_scale(made, value)), ratio, pa


def _scale(made: AnyBeam, value: float) -> float:
    return float(made.scale(np.array(value)))


def _squint(beam: DishBeam, i_feed: int, freq: float) -> tuple[float, float]:
    """Where the beam of a feed is centred, east and north."""
    squint, pa = si_value(beam.squint, ANGLE), si_value(beam.squint_pa, ANGLE)
    if squint == 0.0:
        return 0.0, 0.0
    half = (0.5 if i_feed == 0 else -0.5) * squint * si_value(beam.ref_freq, FREQUENCY) / freq
    return half * math.sin(pa), half * math.cos(pa)
