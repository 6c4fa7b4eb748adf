"""A map of a single dish that an image is fitted to beside visibilities."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import ClassVar

from biro.models.errors import ModelError
from biro.models.quantities.parameter import Fixed, QuantityLike, quantity, read_entry
from biro.models.quantities.prior import LogNormal
from biro.models.quantities.strict import Entry, read_path, short_repr, strict
from biro.models.quantities.units import ANGLE, FLUX, NUMBER


@strict
class SingleDish:
    """A map of Stokes I by a single dish, as data of the image that it stands in.

    Parameters
    ----------
    file : path of a FITS image
        In Jy/beam, with the beam (BMAJ, BMIN, BPA) in its header or here, or in Jy/pixel with the beam here.
        Relative to the working directory, or to the folder of the model file; kept as an absolute path.
    noise : flux density
        Rms noise of the map, per beam.
    calibration : number or log-normal prior
        What the flux of the sky is multiplied by in the map; by default log-normal with a median of 1 and a
        standard deviation of 5 %. A number is exact.
    emaj, emin, pa : angle, optional
        FWHM axes of the beam, and position angle of the major one, from north through east, in place of
        those of the header. Without emin the beam is round.
    """

    label: ClassVar[str] = "single_dish"
    file: Entry
    _: KW_ONLY
    noise: QuantityLike
    calibration: QuantityLike = LogNormal(0.05)
    emaj: QuantityLike = None
    emin: QuantityLike = None
    pa: QuantityLike = None

    def __post_init__(self) -> None:
        path = read_entry("file", read_path, self.file, "the path of a FITS image")
        object.__setattr__(self, "file", path)
        noise = read_entry("noise", quantity, self.noise, FLUX)
        if not isinstance(noise, Fixed) or not noise.value > 0.0:
            raise ModelError(f"noise: expected a flux per beam above 0, found {short_repr(self.noise)}")
        object.__setattr__(self, "noise", noise)
        scale = read_entry("calibration", quantity, self.calibration, NUMBER)
        if not isinstance(scale, LogNormal) and not (isinstance(scale, Fixed) and scale.value > 0.0):
            raise ModelError(
                "calibration: expected a number above 0 or a log-normal prior, found "
                f"{short_repr(self.calibration)}"
            )
        object.__setattr__(self, "calibration", scale)
        for key in ("emaj", "emin", "pa"):
            if getattr(self, key) is not None:
                value = read_entry(key, quantity, getattr(self, key), ANGLE)
                if not isinstance(value, Fixed) or (key != "pa" and not value.value > 0.0):
                    raise ModelError(f"{key}: expected an angle, found {short_repr(getattr(self, key))}")
                object.__setattr__(self, key, value)
        if self.emaj is None and (self.emin is not None or self.pa is not None):
            raise ModelError("emaj: is missing; a beam needs its major axis")


def read_single_dish(value: Entry) -> SingleDish:
    """A `SingleDish` from what a person wrote.

    Raises
    ------
    ModelError
        Neither one nor a table.
    """
    if isinstance(value, SingleDish):
        return value
    if not isinstance(value, dict):
        raise ModelError(
            'single_dish: expected a table, as { file = "map.fits", noise = "20 mJy" }, found '
            f"{short_repr(value)}"
        )
    missing = next((key for key in ("file", "noise") if key not in value), None)
    if missing:
        raise ModelError(f"single_dish: {missing!r} is missing")
    return SingleDish(**value)
