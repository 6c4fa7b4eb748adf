"""The planes of a cube: their frequencies in a frame, and the settings that they follow from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from biro.choices import AxisKind, SpectralFrame
from biro.display.formatting import FREQUENCIES, Printed, frequency_text, in_unit, range_text
from biro.errors import InputError
from biro.imaging.fits_header import Cards, FitsAxis
from biro.observation.observation import Observation
from biro.observation.partition import Partition
from rime_kernels.physics.phase import SPEED_OF_LIGHT

Array = NDArray[np.float64]
_VELREF = {"LSRK": 1, "BARY": 2, "TOPO": 3}
"""Codes of the frames in VELREF, as AIPS and CASA write them; 256 more says that velocities are radio."""
_RADIO = 256
_ALIKE = 0.01
"""Relative difference up to which channels of two windows are taken as equally far apart."""
_MOST_BLANK = 10
"""Planes for each channel of the data at most."""


@dataclass(frozen=True)
class Planes:
    """Settings of the planes of a cube.

    Attributes
    ----------
    frame : "TOPO", "GEO", "BARY", "LSRK" or None
        Frame of the frequencies. None: that of the data.
    channels_per_plane : int
        Channels that are averaged into each plane.
    axis : "frequency" or "velocity"
        What the spectral axis of the FITS file states; velocities are radio, v = c (1 - nu / rest_freq).
    rest_freq : float (Hz), text as "1420.40575 MHz", or None
        Of the line; needed for velocities.
    density : "plane" or "cube"
        Whether uniform and Briggs weights follow from the uv density of each plane, or of the whole cube.
    """

    frame: SpectralFrame | None = None
    channels_per_plane: int = 1
    axis: AxisKind = "frequency"
    rest_freq: float | str | None = None
    density: Literal["plane", "cube"] = "plane"

    def __post_init__(self) -> None:
        if self.frame is not None and self.frame not in get_args(SpectralFrame):
            raise InputError(f"frame must be TOPO, GEO, BARY or LSRK, got {self.frame!r}")
        n = self.channels_per_plane
        if not (isinstance(n, int | np.integer) and n >= 1):
            raise InputError(f"channels_per_plane must be an integer of 1 or more, got {n!r}")
        if self.axis not in get_args(AxisKind):
            raise InputError(f"axis must be frequency or velocity, got {self.axis!r}")
        if self.density not in ("plane", "cube"):
            raise InputError(f"density must be plane or cube, got {self.density!r}")
        if self.axis == "velocity" and self.rest_freq is None:
            raise InputError("a velocity axis needs the rest frequency of the line (rest_freq=, --rest-freq)")
        if self.rest_freq_hz is not None and not 0.0 < self.rest_freq_hz < np.inf:
            raise InputError(f"rest_freq must be a frequency above 0 Hz, got {self.rest_freq!r}")

    @property
    def rest_freq_hz(self) -> float | None:
        """Frequency of the line, Hz."""
        return (
            None if self.rest_freq is None else in_unit(self.rest_freq, "Hz", "rest_freq", unit_needed=True)
        )


@dataclass(frozen=True)
class SpectralAxis(Printed):
    """Planes at equal steps in frequency.

    Attributes
    ----------
    first : float, Hz
        Of the first channel.
    step : float, Hz
        From a channel to the next.
    n_plane : int
    channels_per_plane : int
    frame : str
    rest_freq : float or None, Hz
    kind : "frequency" or "velocity"
        What the file states.
    """

    first: float
    step: float
    n_plane: int
    channels_per_plane: int
    frame: str
    rest_freq: float | None
    kind: AxisKind

    @property
    def width(self) -> float:
        """From a plane to the next, Hz."""
        return self.step * self.channels_per_plane

    @property
    def freq(self) -> Array:
        """Frequency of the middle of each plane, float64 (n_plane,), Hz."""
        middle = self.first + 0.5 * self.step * (self.channels_per_plane - 1)
        return np.asarray(middle + self.width * np.arange(self.n_plane))

    @property
    def velocity(self) -> Array | None:
        """c (1 - nu / rest_freq) of each plane, float64 (n_plane,), m/s; None where no line is stated."""
        return None if self.rest_freq is None else SPEED_OF_LIGHT * (1.0 - self.freq / self.rest_freq)

    def __str__(self) -> str:
        ends = range_text(float(self.freq[0]), float(self.freq[-1]), FREQUENCIES, 8)
        text = f"{ends} {self.frame} in steps of {frequency_text(self.width)}"
        if self.kind == "frequency" or self.velocity is None or self.rest_freq is None:
            return text
        first, last = 1e-3 * self.velocity[0], 1e-3 * self.velocity[-1]
        step = 1e-3 * SPEED_OF_LIGHT * self.width / self.rest_freq
        return f"{first:.7g} to {last:.7g} km/s (radio, {self.frame}) in steps of {step:.4g} km/s; {text}"

    def to_dict(self) -> dict[str, object]:
        """For JSON: frequencies in Hz, velocities in m/s."""
        return {
            "frame": self.frame,
            "freq": self.freq,
            "width": self.width,
            "rest_freq": self.rest_freq,
            "velocity": self.velocity,
        }

    def channels(self, i_plane: int) -> Array:
        """Frequencies of the channels of a plane, float64 (channels_per_plane,), Hz."""
        n = self.channels_per_plane
        return np.asarray(self.first + self.step * (i_plane * n + np.arange(n)))

    @property
    def fits_axis(self) -> FitsAxis:
        """The axis of a FITS file."""
        if self.kind == "velocity" and self.rest_freq is not None:
            per_hertz = -SPEED_OF_LIGHT / self.rest_freq
            start = SPEED_OF_LIGHT + per_hertz * float(self.freq[0])
            return FitsAxis("VRAD", start, per_hertz * self.width, 1.0, "m/s")
        return FitsAxis("FREQ", float(self.freq[0]), self.width, 1.0, "Hz")

    @property
    def cards(self) -> Cards:
        """RESTFRQ, and the frame of velocities as VELREF, where a line is stated."""
        if self.rest_freq is None:
            return {}
        cards: Cards = {"RESTFRQ": self.rest_freq}
        if self.frame in _VELREF:
            cards["VELREF"] = _RADIO + _VELREF[self.frame]
        return cards


def factors_of(observation: Observation, frame: str) -> list[Array]:
    """Frequencies in a frame over those of each partition, float64 (n_time,) at its distinct times.

    Parameters
    ----------
    observation : Observation
        The mean of the antennas' positions stands for the place of the array.
    frame : str

    Raises
    ------
    InputError
        A frame whose velocity is not known, a window of one channel, or as `Observation.doppler`.
    """
    factors = []
    for part in observation.partitions:
        factors.append(observation.doppler(part, frame))
        if part.freq_frame != frame and part.n_chan == 1:
            raise InputError(
                f"spw {part.spw} has one channel, so biro cannot interpolate it to {frame}; leave out "
                "frame= (--frame)"
            )
    return factors


def spacing(part: Partition) -> float:
    """From a channel to the next, Hz; the width of a channel that is alone.

    That is the span of the channels over the number of median steps in it, so that small irregularities do
    not add up over many channels.
    """
    if part.n_chan == 1:
        return float(part.chan_width[0])
    median = float(np.median(np.abs(np.diff(part.chan_freq))))
    span = float(np.ptp(part.chan_freq))
    return span / round(span / median)


def make_axis(
    parts: Sequence[Partition], factors: Sequence[Array], planes: Planes, frame: str
) -> SpectralAxis:
    """The planes from the lowest to the highest channel, in the frame and at the first integration.

    Parameters
    ----------
    parts : sequence of Partition
    factors : sequence of float64 (n_time,)
        From `factors_of`.
    planes : Planes
    frame : str

    Raises
    ------
    InputError
        Two channels at one frequency, windows whose channels are not equally far apart, or so far from each
        other that most planes would be blank; fewer channels than a plane takes.
    """
    for part in parts:
        if len(np.unique(part.chan_freq)) < part.n_chan:
            raise InputError(
                f"spw {part.spw} has two channels at the same frequency; select channels (channels=, "
                "--channels)"
            )
    steps = np.array([spacing(part) * factor[0] for part, factor in zip(parts, factors, strict=True)])
    if steps.max() > (1.0 + _ALIKE) * steps.min():
        texts = ", ".join(f"{part.spw}: {frequency_text(spacing(part))}" for part in parts)
        raise InputError(
            f"the channel spacing differs between spectral windows ({texts}), but the planes of a cube are "
            "equally spaced; select windows (spws=, --spws)"
        )
    ends = [part.chan_freq * factor[0] for part, factor in zip(parts, factors, strict=True)]
    low, high, step = min(e.min() for e in ends), max(e.max() for e in ends), float(steps[0])
    n_chan = round((high - low) / step) + 1
    n_observed = sum(part.n_chan for part in parts)
    if n_chan > _MOST_BLANK * n_observed:
        raise InputError(
            f"{n_observed} channels are so far apart that the cube would have {n_chan} planes, most of "
            "them blank; select windows (spws=, --spws)"
        )
    n_plane = n_chan // planes.channels_per_plane
    if not n_plane:
        raise InputError(
            f"a plane of {planes.channels_per_plane} channels is too large, because the data have {n_chan} "
            "channels; give fewer (channels_per_plane=, --channels-per-plane)"
        )
    n_each = planes.channels_per_plane
    return SpectralAxis(float(low), step, n_plane, n_each, frame, planes.rest_freq_hz, planes.axis)
