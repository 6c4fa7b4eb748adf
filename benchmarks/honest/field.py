"""A small field observed by an array of antennas, as explicit sums in float64 (physics: sections 2 to 5)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.constants import speed_of_light

Array = NDArray[np.float64]
Vis = NDArray[np.complex128]
ARCSEC = np.deg2rad(1.0 / 3600.0)


@dataclass(frozen=True, eq=False)
class Field:
    """Where visibilities are measured.

    Attributes
    ----------
    uvw : float64 (n_row, 3), m
    antenna1, antenna2, slot : int (n_row,)
        `slot` counts the times.
    time : float64 (n_row,), s
    freq, width : float64 (n_chan,), Hz
    n_antenna : int
    interval : float, s
    """

    uvw: Array
    antenna1: NDArray[np.int64]
    antenna2: NDArray[np.int64]
    slot: NDArray[np.int64]
    time: Array
    freq: Array
    width: Array
    n_antenna: int
    interval: float

    @property
    def shape(self) -> tuple[int, int]:
        """(n_row, n_chan)."""
        return len(self.uvw), len(self.freq)

    def source(
        self, east: float, north: float, fwhm: float = 0.0, index: float = 0.0, *, freq: Array | None = None
    ) -> Vis:
        """Visibilities of a round Gaussian of 1 Jy, complex (n_row, n_chan); angles in arcsec."""
        freq = self.freq if freq is None else freq
        l, m = east * ARCSEC, north * ARCSEC
        n = np.sqrt(1.0 - l * l - m * m)
        u, v, w = self.uvw.T
        turns = (u * l + v * m + w * (n - 1.0))[:, None] * freq / speed_of_light
        length = ((u - w * l / n) ** 2 + (v - w * m / n) ** 2)[:, None] * (freq / speed_of_light) ** 2
        envelope = np.exp(-((np.pi * fwhm * ARCSEC) ** 2) / (4.0 * np.log(2.0)) * length)
        return np.asarray(envelope * np.exp(2j * np.pi * turns) * (freq / self.freq[0]) ** index)

    def smeared(self, east: float, north: float, n: int = 33) -> Vis:
        """A point of 1 Jy averaged over each channel by the rule of midpoints."""
        offsets = (np.arange(n) + 0.5) / n - 0.5
        return np.mean([self.source(east, north, freq=self.freq + x * self.width) for x in offsets], axis=0)

    def gains(self, per_antenna: NDArray[np.complexfloating]) -> Vis:
        """g_p g_q^* of gains (n_antenna,) or (n_time, n_antenna), complex (n_row, 1)."""
        of_row = np.broadcast_to(per_antenna, (self.slot.max() + 1, self.n_antenna))
        first, second = of_row[self.slot, self.antenna1], of_row[self.slot, self.antenna2]
        return np.asarray(first * second.conj())[:, None]


def observe(
    rng: np.random.Generator,
    n_antenna: int = 7,
    n_time: int = 24,
    n_chan: int = 4,
    *,
    size: float = 700.0,
    hours: float = 3.0,
    width: float = 1e6,
    spacing: float = 1e7,
) -> Field:
    """Track a source at declination 40 deg with antennas at random places; 1.4 GHz."""
    places = rng.normal(size=(n_antenna, 3)) * size * np.array([1.0, 1.0, 0.3])
    p, q = np.triu_indices(n_antenna, 1)
    angles = (np.arange(n_time) - 0.5 * (n_time - 1)) / n_time * np.deg2rad(15.0 * hours)
    sin, cos = np.sin(np.deg2rad(40.0)), np.cos(np.deg2rad(40.0))
    uvw = []
    for angle in angles:
        s, c = np.sin(angle), np.cos(angle)
        turn = np.array([[s, c, 0.0], [-sin * c, sin * s, cos], [cos * c, -cos * s, sin]])
        seen = places @ turn.T
        uvw.append(seen[p] - seen[q])
    interval = 3600.0 * hours / n_time
    slot = np.repeat(np.arange(n_time), len(p))
    return Field(
        uvw=np.concatenate(uvw),
        antenna1=np.tile(p, n_time),
        antenna2=np.tile(q, n_time),
        slot=slot,
        time=5e9 + interval * slot,
        freq=1.4e9 + spacing * np.arange(n_chan),
        width=np.full(n_chan, width),
        n_antenna=n_antenna,
        interval=interval,
    )


def noise(rng: np.random.Generator, shape: tuple[int, ...], sigma: float) -> Vis:
    """Complex noise whose real and imaginary parts have this sigma."""
    return np.asarray(sigma * (rng.normal(size=shape) + 1j * rng.normal(size=shape)))
