"""Beams as 2 x 2 Jones matrices, as a user writes them: FITS cubes, or MeerKAT's beam from katbeam."""

from __future__ import annotations

from dataclasses import KW_ONLY
from pathlib import Path
from typing import ClassVar, TypeAlias

import numpy as np

from biro.models.components.beam_cube import BeamCube
from biro.models.errors import ModelError
from biro.models.quantities.parameter import Fixed, QuantityLike, quantity, read_entry
from biro.models.quantities.strict import Entry, short_repr, strict
from biro.models.quantities.units import ANGLE, NUMBER, Dimension


class _Stretched:
    """What beams on a grid share: a number that directions on the grid are multiplied by."""

    label: ClassVar[str] = "beam"
    key: ClassVar[str] = "width"
    dimension: ClassVar[Dimension] = NUMBER

    def scale(self, value: np.ndarray) -> np.ndarray:
        """`JonesBeam.scale` of the number."""
        return value

    def scale_slope(self, value: np.ndarray) -> np.ndarray:
        """Derivative of `scale`."""
        return np.ones_like(value)


@strict
class FitsBeam(_Stretched):
    """Full 2 x 2 voltage beams E(x, y, nu) from eight FITS cubes, the same for all antennas.

    The grid is that of the antenna's frame, which turns on the sky with the parallactic angle where the mount
    is alt-azimuth.

    Parameters
    ----------
    file : str, or BeamCube
        Path with $(corr) and $(reim) in it, such as "beam_$(corr)_$(reim).fits"; see `biro.read_beam`.
        Relative to the working directory, or to the folder of the model file; kept as an absolute path.
    width : number, prior or tie, default 1
        What directions on the grid are multiplied by: 1.02 makes the beam 2 % wider.
    turns : bool, default True
        Whether the beam turns on the sky as the mounts of the antennas say.
    """

    kind: ClassVar[str] = "fits"
    _: KW_ONLY
    file: Entry
    width: QuantityLike = 1.0
    turns: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.file, BeamCube):
            if not isinstance(self.file, str) and not hasattr(self.file, "__fspath__"):
                raise ModelError(
                    f"file: expected a path with $(corr) and $(reim), found {short_repr(self.file)}"
                )
            object.__setattr__(self, "file", str(Path(self.file).absolute()))
        object.__setattr__(self, "width", read_entry("width", quantity, self.width, NUMBER))


@strict
class KatBeam(_Stretched):
    """MeerKAT's voltage beam, from the package katbeam; real, without cross-hands.

    Parameters
    ----------
    model : str, default "MKAT-AA-L-JIM-2020"
    extent : angle, default "3 deg"
        Half the side of the grid on which it is sampled.
    width, turns
        As for `FitsBeam`.
    """

    kind: ClassVar[str] = "katbeam"
    _: KW_ONLY
    model: str = "MKAT-AA-L-JIM-2020"
    extent: QuantityLike = "3 deg"
    width: QuantityLike = 1.0
    turns: bool = True

    def __post_init__(self) -> None:
        extent = read_entry("extent", quantity, self.extent, ANGLE)
        if not isinstance(extent, Fixed) or not extent.value > 0:
            raise ModelError(f"extent: must be a positive angle, found {short_repr(self.extent)}")
        object.__setattr__(self, "extent", extent)
        object.__setattr__(self, "width", read_entry("width", quantity, self.width, NUMBER))


GridBeam: TypeAlias = FitsBeam | KatBeam
GRID_BEAMS: dict[str, type[GridBeam]] = {"fits": FitsBeam, "katbeam": KatBeam}
