"""Antenna beams and pointing errors (physics: section 6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY
from typing import ClassVar, TypeAlias

import numpy as np

from biro.models.components.direction import Centre, parse_direction
from biro.models.components.source import si_value
from biro.models.errors import ModelError
from biro.models.quantities.parameter import (
    Fixed,
    Quantity,
    QuantityLike,
    Series,
    quantity,
    read_entry,
    series,
)
from biro.models.quantities.strict import Entry, did_you_mean, short_repr, strict
from biro.models.quantities.units import ANGLE, FREQUENCY, LENGTH, PER_FREQUENCY, Dimension
from rime_kernels.arrays import BeamKind

SPEED_OF_LIGHT = 299792458.0
MAX_ORDER = 20
CENTRES = ("pointing", "phase")


def read_centre(beam: Entry) -> None:
    """Read where a beam is centred: a word of `CENTRES`, or a direction, which is kept in rad (ICRS)."""
    object.__setattr__(beam, "centre", read_entry("centre", _centre, beam.centre))


def _centre(value: object) -> str | Centre:
    if isinstance(value, str) and value in CENTRES:
        return value
    if isinstance(value, str) and not any(c.isdigit() for c in value):
        raise ModelError(
            f'expected "pointing", "phase" or a direction such as "05h00m00s -30d00m00s", '
            f"found {short_repr(value)}{did_you_mean(value, CENTRES)}"
        )
    return parse_direction(value)


@strict
class Cos3Beam:
    """E = cos^3(min(coefficient nu r, 1.0881)), r in radians: the WSRT's analytic voltage beam.

    Parameters
    ----------
    coefficient : inverse frequency, default "65 1/GHz"
    centre : "pointing", "phase" or a direction, default "pointing"
        Where the beam is centred: where the dishes pointed, as the data state it; the phase centre of each
        field; or a direction (ICRS).
    """

    label: ClassVar[str] = "beam"
    kind: ClassVar[BeamKind] = "cos3"
    key: ClassVar[str] = "coefficient"
    dimension: ClassVar[Dimension] = PER_FREQUENCY
    coefficient: QuantityLike = "65 1/GHz"
    _: KW_ONLY
    centre: Entry = "pointing"

    def __post_init__(self) -> None:
        read_centre(self)
        object.__setattr__(
            self, "coefficient", read_entry("coefficient", quantity, self.coefficient, PER_FREQUENCY)
        )

    def scale(self, value: np.ndarray) -> np.ndarray:
        """`arrays.Beam.scale` of the coefficient in 1/Hz."""
        return value

    def scale_slope(self, value: np.ndarray) -> np.ndarray:
        """Derivative of `scale`."""
        return np.ones_like(value)


@strict
class GaussianBeam:
    """E = exp(-2 ln 2 (r nu / (fwhm ref_freq))^2): the power beam is half at r = fwhm / 2.

    Parameters
    ----------
    fwhm : angle
        Full width of the power beam at half maximum, at
    ref_freq : frequency
    centre
        As for `Cos3Beam`.
    """

    label: ClassVar[str] = "beam"
    kind: ClassVar[BeamKind] = "gaussian"
    key: ClassVar[str] = "fwhm"
    dimension: ClassVar[Dimension] = ANGLE
    fwhm: QuantityLike
    ref_freq: QuantityLike
    _: KW_ONLY
    centre: Entry = "pointing"

    def __post_init__(self) -> None:
        read_centre(self)
        object.__setattr__(self, "fwhm", read_entry("fwhm", quantity, self.fwhm, ANGLE))
        ref_freq = read_entry("ref_freq", quantity, self.ref_freq, FREQUENCY)
        if not isinstance(ref_freq, Fixed) or not ref_freq.value > 0:
            raise ModelError("ref_freq: must be a positive number")
        object.__setattr__(self, "ref_freq", ref_freq)

    def scale(self, value: np.ndarray) -> np.ndarray:
        """`arrays.Beam.scale` of the width in rad."""
        return np.asarray(1.0 / (value * si_value(self.ref_freq, FREQUENCY)))

    def scale_slope(self, value: np.ndarray) -> np.ndarray:
        """Derivative of `scale`."""
        return np.asarray(-self.scale(value) / value)


@strict
class AiryBeam:
    """E = 2 J1(x) / x, x = pi diameter nu r / c: a uniformly lit dish.

    Parameters
    ----------
    diameter : length
    centre
        As for `Cos3Beam`.
    """

    label: ClassVar[str] = "beam"
    kind: ClassVar[BeamKind] = "airy"
    key: ClassVar[str] = "diameter"
    dimension: ClassVar[Dimension] = LENGTH
    diameter: QuantityLike
    _: KW_ONLY
    centre: Entry = "pointing"

    def __post_init__(self) -> None:
        read_centre(self)
        object.__setattr__(self, "diameter", read_entry("diameter", quantity, self.diameter, LENGTH))

    def scale(self, value: np.ndarray) -> np.ndarray:
        """`arrays.Beam.scale` of the diameter in m."""
        return np.asarray(np.pi / SPEED_OF_LIGHT * value)

    def scale_slope(self, value: np.ndarray) -> np.ndarray:
        """Derivative of `scale`."""
        return np.full_like(value, np.pi / SPEED_OF_LIGHT)


AnyBeam: TypeAlias = Cos3Beam | GaussianBeam | AiryBeam
BEAMS: dict[str, type[AnyBeam]] = {
    "cos3": Cos3Beam,
    "gaussian": GaussianBeam,
    "airy": AiryBeam,
}


@strict
class Pointing:
    """Pointing errors: where the beam of each antenna points, east and north of the beam's centre.

    A list is a polynomial in time, c0 + c1 t + c2 t^2 + ..., with t = -1 at the first and +1 at the last time
    of all the data (0 where there is one time only). A prior stands for one parameter per antenna.

    Parameters
    ----------
    east, north : angle or list of angles, default 0
        Of every antenna in `antennas`.
    antennas : list of str, default all
    antenna : {name: {"east": ..., "north": ...}}
        Antennas that have quantities of their own; these override.
    """

    label: ClassVar[str] = "pointing"
    _: KW_ONLY
    east: Entry = "0 rad"
    north: Entry = "0 rad"
    antennas: Entry = None
    antenna: Entry = None

    def __post_init__(self) -> None:
        for axis in ("east", "north"):
            object.__setattr__(self, axis, read_entry(axis, _polynomial, getattr(self, axis)))
        if self.antennas is not None:
            if not isinstance(self.antennas, (list, tuple)) or not all(
                isinstance(a, str) for a in self.antennas
            ):
                raise ModelError(f"antennas: expected a list of names, found {short_repr(self.antennas)}")
            object.__setattr__(self, "antennas", tuple(self.antennas))
        object.__setattr__(self, "antenna", self._own(self.antenna or {}))

    @staticmethod
    def _own(given: object) -> dict[str, dict[str, Series]]:
        if not isinstance(given, Mapping):
            raise ModelError(f"antenna: expected a table by antenna name, found {short_repr(given)}")
        own: dict[str, dict[str, Series]] = {}
        for name, axes in given.items():
            if not isinstance(axes, Mapping):
                raise ModelError(f"antenna.{name}: expected east and north, found {short_repr(axes)}")
            for axis in axes:
                if axis not in ("east", "north"):
                    hint = did_you_mean(axis, ("east", "north"))
                    raise ModelError(f"antenna.{name}: unknown key {short_repr(axis)}{hint}")
            own[str(name)] = {a: read_entry(f"antenna.{name}.{a}", _polynomial, v) for a, v in axes.items()}
        return own

    def named(self) -> set[str]:
        """Antennas that the model names."""
        return set(self.antennas or ()) | set(self.antenna)

    def coefficients(self, antenna: str) -> Iterator[tuple[int, int, Quantity]]:
        """(axis, power of t, quantity) of one antenna; axis 0 is east, 1 is north."""
        included = self.antennas is None or antenna in self.antennas
        for axis, key in enumerate(("east", "north")):
            common = getattr(self, key) if included else ()
            for power, item in enumerate(self.antenna.get(antenna, {}).get(key, common)):
                yield axis, power, item


def _polynomial(value: object) -> Series:
    made = series(value, ANGLE)
    if len(made) > MAX_ORDER + 1:
        raise ModelError(f"at most order {MAX_ORDER} in time, found {len(made) - 1}")
    return made
