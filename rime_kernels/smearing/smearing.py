"""`Smearing`: over how much time and frequency visibilities are averages."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rime_kernels import check
from rime_kernels.arrays import Rows
from rime_kernels.errors import InputError


@dataclass(frozen=True, eq=False)
class Smearing:
    """Visibilities are averages over an integration of each row and over the width of each channel.

        V = mean over t in (-interval/2, interval/2), nu in (-width/2, width/2) of V(uvw(t), chan_freq + nu)

    Both are flat, uvw are those at the middle and turn with the Earth (physics: section 6). Brightness,
    spectra, envelopes and scalar beams are those of each frequency; what is given for a time slot or for a
    channel (light curves, pointing errors, `JonesBeam`, `AntennaTerms`, templates) stays what it is there.

    Attributes
    ----------
    declination : float, rad
        Of the phase centre: 90 deg minus its distance from the pole of date, about which uvw turn.
    interval : float64 (n_row,), s
        How long each row was integrated; 0 for what is not smeared in time. Rows of one time slot may differ
        (baseline-dependent averaging): they need the row form.
    chan_width : float64 (n_chan,), Hz
        0 for what is not smeared in frequency.
    error : float
        Of the average, as a fraction of the loss of a point within `extent`, in every row: decides at how
        many times and frequencies V is computed. Rows are in groups, of which short baselines need fewer.

    Raises
    ------
    InputError
        A wrong shape or type, or values that are not finite or out of range.
    """

    declination: float
    interval: NDArray[np.float64]
    chan_width: NDArray[np.float64]
    error: float = 5e-5
    pole_angle: float = 0.0

    def __post_init__(self) -> None:
        check.coerce(self, "interval", np.float64, ("row",), {})
        check.coerce(self, "chan_width", np.float64, ("chan",), {})
        for name in ("interval", "chan_width"):
            values = getattr(self, name)
            check.finite(name, values)
            if values.min(initial=0.0) < 0.0:
                raise InputError(f"{name} must be at least 0, got {values.min():g}")
        if not abs(self.declination) <= 0.5 * math.pi + 1e-9:
            raise InputError(f"declination must lie within -pi/2 .. pi/2 rad, got {self.declination:g}")
        if not abs(self.pole_angle) <= math.pi:
            raise InputError(f"pole_angle must lie within -pi .. pi rad, got {self.pole_angle:g}")
        if not 0.0 < self.error < 1.0:
            raise InputError(f"error must lie between 0 and 1, a fraction of the loss; got {self.error:g}")

    def check_axes(self, rows: Rows) -> None:
        """Refuse intervals and widths that are not those of these rows.

        Raises
        ------
        InputError
        """
        found, expected = (self.interval.size, self.chan_width.size), (rows.n_row, rows.n_chan)
        if found != expected:
            raise InputError(
                f"smearing needs an interval of each of {expected[0]} rows and a width of each of "
                f"{expected[1]} channels, got {found[0]} and {found[1]}"
            )
        if np.any(self.chan_width >= 2.0 * rows.chan_freq):
            raise InputError("smearing.chan_width must be below twice the frequency of its channel")
