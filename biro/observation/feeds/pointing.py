"""Where the dishes of a partition pointed, which is where their beams are centred (physics: section 6)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import angle_text, sexagesimal
from biro.models.components.direction import Centre, basis

if TYPE_CHECKING:
    from biro.models.sky import SkyModel

Array = NDArray[np.float64]
SAME_PLACE = 1e-8
"""Directions within this are one, rad: 2 mas, the rounding of files."""
WIDE = 1e-4
"""Relative error of the width of a beam from which a statement has it."""


@dataclass(frozen=True, eq=False)
class DishPointing:
    """Where the dishes of one partition pointed.

    Attributes
    ----------
    centre : (float, float), rad
        ICRS: the mean of all antennas and times.
    origin : str
        What states it: "POINTING", "REFERENCE_DIR", ...
    time : float64 (n_time,), s
        MJD, ascending, on the time scale of the data.
    offset : float64 (n_time, n_antenna, 2) or None
        Direction cosines of each antenna about `centre`, interpolated linearly in time; None for 0.
    """

    centre: Centre
    origin: str
    time: Array | None = None
    offset: Array | None = None

    def at(self, times: Array) -> Array:
        """Offsets at some times (MJD, s), float64 (n_times or 1, n_antenna, 2), rad.

        Before the first and after the last time they are those of that.
        """
        assert self.time is not None
        assert self.offset is not None
        if len(self.time) == 1:
            return self.offset
        after = np.clip(np.searchsorted(self.time, times), 1, len(self.time) - 1)
        first, last = self.time[after - 1], self.time[after]
        share = np.clip((times - first) / (last - first), 0.0, 1.0)[:, None, None]
        return np.asarray((1.0 - share) * self.offset[after - 1] + share * self.offset[after])

    def about(self, phase_centre: Centre, times: Array, n_antenna: int) -> Array | None:
        """Direction cosines about a phase centre, float64 (n_times or 1, n_antenna, 2); None where all are 0.

        They are NaN 90 deg or more from it.
        """
        if self.offset is None:
            lm = np.zeros((1, n_antenna, 2))
            if distance(self.centre, phase_centre) < SAME_PLACE:
                return None
        else:
            lm = self.at(times)
        n = np.sqrt(1.0 - np.sum(lm**2, axis=-1, keepdims=True))
        turned = np.concatenate([lm, n], axis=-1) @ (basis(self.centre) @ basis(phase_centre).T)
        return np.ascontiguousarray(np.where(turned[..., 2:] > 0.0, turned[..., :2], np.nan))

    def renumbered(self, index: NDArray[np.int32], n_antenna: int, utc_offset: float) -> DishPointing:
        """Pointing by other numbers of antennas and on another time scale; new antennas have no offset."""
        if self.offset is None or self.time is None:
            return self
        offset = np.zeros((len(self.time), n_antenna, 2))
        offset[:, index] = self.offset
        return replace(self, time=self.time + utc_offset, offset=offset)

    @property
    def spread(self) -> float:
        """Largest distance of an antenna from the centre, rad."""
        return 0.0 if self.offset is None else float(np.hypot(*np.moveaxis(self.offset, -1, 0)).max())


def distance(one: Centre, other: Centre) -> float:
    """Angle between two directions, rad."""
    here, there = basis(one)[2], basis(other)[2]
    return float(np.arctan2(np.linalg.norm(np.cross(here, there)), here @ there))


def pointing_text(pointing: DishPointing | None, phase_centre: Centre) -> str:
    """Where the dishes pointed, relative to the phase centre, and what states it."""
    if pointing is None:
        return "not stated, assumed at the phase centre"
    apart = distance(pointing.centre, phase_centre)
    where = "at the phase centre" if apart < SAME_PLACE else f"{angle_text(apart)} from the phase centre"
    if pointing.offset is not None:
        where += f", antennas up to {angle_text(pointing.spread)} from their mean"
    return f"{where} ({pointing.origin})"


def per_field(fields: Iterable[tuple[str, str]]) -> str:
    """Texts of fields in one line: one text where all are alike."""
    found = dict(fields)
    if len(set(found.values())) == 1:
        return next(iter(found.values()))
    return "; ".join(f"{field} {text}" for field, text in found.items())


def beam_line(sky: SkyModel, fields: Sequence[tuple[str, Centre, DishPointing | None]]) -> str:
    """Where the beam of a model is centred in each field; empty for a model without one.

    Parameters
    ----------
    sky : SkyModel
    fields : sequence of (name, phase centre, pointing)
    """
    if sky.beam is None:
        return ""
    centre = sky.beam.centre
    if centre == "phase":
        why = "everybeam states it" if sky.beam.kind == "everybeam" else "the model states it"
        return f"beam: centred at the phase centre of each field ({why})"
    if centre == "pointing":
        each = [(name, pointing_text(pointing, phase)) for name, phase, pointing in fields]
        apart = [0.0 if one is None else distance(one.centre, phase) for _, phase, one in fields]
        text = f"where the dishes pointed: {per_field(each)}"
    else:
        apart = [distance(centre, phase) for _, phase, _ in fields]
        each = [
            (field[0], f"{angle_text(by)} from the phase centre")
            for field, by in zip(fields, apart, strict=True)
        ]
        text = f"at {' '.join(sexagesimal(*centre))} (the model states it): {per_field(each)}"
    wider = 0.5 * max(apart) ** 2
    if wider > WIDE:
        text += (
            f". So far from the phase centre the modelled beam is about {100 * wider:.2g} % too wide; to "
            "avoid "
            "this, phase the data to the pointing centre"
        )
    return f"beam: centred {text}"
