"""An image among the sources of a sky model: fixed, or scaled by a parameter."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any, ClassVar, get_args

from biro.models.errors import ModelError
from biro.models.image import ImageModel, Interpolation
from biro.models.parameter import QuantityLike, quantity, under
from biro.models.source import check_name
from biro.models.strict import nearest, shown, strict
from biro.models.units import NUMBER


@strict
class ImageTerm:
    """Brightness of an image times a factor.

    Parameters
    ----------
    name : str
        Unique among sources and images; the factor's parameter is called "name.scale".
    file : path of a FITS image, or ImageModel
        In a model file: a path, relative to the folder of that file.
    scale : number, prior or tie, default 1
        What the brightness of every pixel is multiplied by.
    interpolation : "linear", "nearest" or "spectral-index"
        Between the planes of a cube, where `file` is a path; see `ImageModel`.
    """

    label: ClassVar[str] = "image"
    name: str
    _: KW_ONLY
    file: Any
    scale: QuantityLike = 1.0
    interpolation: str = "linear"

    def __post_init__(self) -> None:
        check_name(self.name)
        if not isinstance(self.file, ImageModel):
            if not isinstance(self.file, str) and not hasattr(self.file, "__fspath__"):
                raise ModelError(f"file: expected the path of a FITS image, found {shown(self.file)}")
            if not str(self.file):
                raise ModelError("file: expected the path of a FITS image, found none")
            object.__setattr__(self, "file", str(self.file))
        object.__setattr__(self, "scale", under("scale", quantity, self.scale, NUMBER))
        known = get_args(Interpolation)
        if self.interpolation not in known:
            found, hint = shown(self.interpolation), nearest(self.interpolation, known)
            raise ModelError(f"interpolation: one of {', '.join(known)}, found {found}{hint}")
