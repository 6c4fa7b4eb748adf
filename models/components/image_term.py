"""An image among the sources of a sky model: fixed, or scaled by a parameter."""

from __future__ import annotations

from dataclasses import KW_ONLY
from pathlib import Path
from typing import ClassVar, get_args

from biro.models.choices import Interpolation
from biro.models.components.image import ImageModel
from biro.models.components.source import check_name
from biro.models.errors import ModelError
from biro.models.quantities.parameter import QuantityLike, quantity, read_entry
from biro.models.quantities.strict import Entry, did_you_mean, short_repr, strict
from biro.models.quantities.units import ANGLE, NUMBER


@strict
class ImageTerm:
    """Brightness of an image times a factor.

    Parameters
    ----------
    name : str
        Unique among sources and images; the factor's parameter is called "name.scale".
    file : path of a FITS image, or ImageModel
        Relative to the working directory, or to the folder of the model file; kept as an absolute path.
    scale : number, prior or tie, default 1
        What the brightness of every pixel is multiplied by.
    east, north : angle, optional
        How far the image is moved (direction cosines, as offsets of sources are); numbers, priors or ties.
        By the phase by which a point at the image's centre moves: exact but for what w adds far from it, and
        seen through the beam where it was.
    interpolation : "linear", "nearest" or "spectral-index"
        Between the planes of a cube, where `file` is a path; see `ImageModel`.
    """

    label: ClassVar[str] = "image"
    name: str
    _: KW_ONLY
    file: Entry
    scale: QuantityLike = 1.0
    east: QuantityLike = None
    north: QuantityLike = None
    interpolation: str = "linear"

    @property
    def is_moved(self) -> bool:
        """Whether a shift was asked for."""
        return self.east is not None or self.north is not None

    def __post_init__(self) -> None:
        check_name(self.name)
        if not isinstance(self.file, ImageModel):
            if not isinstance(self.file, str) and not hasattr(self.file, "__fspath__"):
                raise ModelError(f"file: expected the path of a FITS image, found {short_repr(self.file)}")
            if not str(self.file):
                raise ModelError(
                    "file: expected the path of a FITS image, found none (an image that was in memory alone "
                    "cannot be read back: save it as FITS)"
                )
            object.__setattr__(self, "file", str(Path(self.file).absolute()))
        object.__setattr__(self, "scale", read_entry("scale", quantity, self.scale, NUMBER))
        for key in ("east", "north"):
            value = getattr(self, key)
            if value is not None:
                object.__setattr__(self, key, read_entry(key, quantity, value, ANGLE))
        known = get_args(Interpolation)
        if self.interpolation not in known:
            found, hint = short_repr(self.interpolation), did_you_mean(self.interpolation, known)
            raise ModelError(f"interpolation: one of {', '.join(known)}, found {found}{hint}")
