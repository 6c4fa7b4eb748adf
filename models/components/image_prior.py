"""An image whose pixels are fitted: the prior of its brightness, and its pixels as far as they are given."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import ClassVar, get_args

from biro.models.choices import ImagePriorName, Regularisation
from biro.models.components.single_dish import read_single_dish
from biro.models.components.source import check_name
from biro.models.errors import ModelError
from biro.models.quantities.parameter import Fixed, QuantityLike, quantity, read_entry, series
from biro.models.quantities.prior import LogNormal, Normal, Prior
from biro.models.quantities.strict import Entry, did_you_mean, short_repr, strict
from biro.models.quantities.units import ANGLE, FLUX, NUMBER, TIME

STOKES = ("I", "IQU", "IQUV")
"""Stokes parameters that an image may have."""


@strict
class ImagePrior:
    """Brightness of the sky on a grid of pixels, which `biro.fit_image` fits to visibilities.

    Parameters
    ----------
    name : str
        Unique among sources and images.
    prior : "smooth", "correlated-field" or "pixels"
        "smooth": the most probable image alone, in seconds, without errors. "correlated-field": samples of a
        log-normal field whose power spectrum is fitted. "pixels": samples of independent pixels.
    size : int, optional
        Pixels along a side, even. Two of size, field and cell determine the third; what is not given is
        chosen from the data (`biro.image_posterior.field.choose_field`).
    field, cell : angle, optional
        Width of the image, and of a pixel.
    flux : flux density, prior, optional
        Of the whole image; a number is known to 1 %.
    regularisation : "starlet", "entropy" or "tv"
        For "smooth" alone: what images are preferred among those that fit; see
        `biro.image_posterior.maps.smooth`.
    stokes : "I", "IQU" or "IQUV", default "I"
        For "correlated-field" alone: what the image has. "IQU" takes Stokes V as 0. Polarised brightness is
        at most I by construction.
    spectral_index : number or normal prior, or a list of them, optional
        For "correlated-field" alone: a0, a1, ... of I(nu) = I(nu0) (nu/nu0)^(a0 + a1 ln(nu/nu0) + ...), all
        Stokes parameters alike. A number holds for all pixels. A prior makes a correlated field, of the mean
        and standard deviation of the prior. Without it brightness is equal at all frequencies.
    envelope : angle or log-normal prior, optional
        For "correlated-field" alone: FWHM of a circular Gaussian about the middle of the image that
        multiplies the brightness of the prior, so that flux far out is improbable.
    single_dish : SingleDish, optional
        A map of the same sky by a single dish, to which the image is fitted, too.
    frames : int, optional
        For "correlated-field" of Stokes I without a spectrum: number of equal parts of the time, each with an
        image of its own. Without it the image is constant.
    frame : time, optional
        Length of a frame in place of their number.
    """

    label: ClassVar[str] = "image"
    name: str
    _: KW_ONLY
    prior: str
    size: Entry = None
    field: QuantityLike = None
    cell: QuantityLike = None
    flux: QuantityLike = None
    regularisation: str = "starlet"
    stokes: str = "I"
    spectral_index: Entry = None
    envelope: QuantityLike = None
    single_dish: Entry = None
    frames: Entry = None
    frame: QuantityLike = None

    def __post_init__(self) -> None:
        check_name(self.name)
        for key, known in (("prior", get_args(ImagePriorName)), ("regularisation", get_args(Regularisation))):
            found = getattr(self, key)
            if found not in known:
                hint = did_you_mean(found, known)
                raise ModelError(f"{key}: one of {', '.join(known)}, found {short_repr(found)}{hint}")
        if self.size is not None and (
            isinstance(self.size, bool)
            or not isinstance(self.size, int)
            or not 16 <= self.size <= 1 << 14
            or self.size % 2
        ):
            raise ModelError(f"size: an even number of 16 to 16384, found {short_repr(self.size)}")
        for key in ("field", "cell"):
            if getattr(self, key) is not None:
                value = read_entry(key, quantity, getattr(self, key), ANGLE)
                if not isinstance(value, Fixed) or not value.value > 0.0:
                    raise ModelError(
                        f"{key}: expected an angle above 0, found {short_repr(getattr(self, key))}"
                    )
                object.__setattr__(self, key, value)
        if None not in (self.size, self.field, self.cell):
            raise ModelError("size, field, cell: two of them determine the third; leave one out")
        self._read_flux()
        if self.single_dish is not None:
            object.__setattr__(self, "single_dish", read_single_dish(self.single_dish))
        self._read_frames()
        if self.stokes not in STOKES:
            raise ModelError(
                f"stokes: one of {', '.join(STOKES)}, found {short_repr(self.stokes)}"
                f"{did_you_mean(self.stokes, STOKES)}"
            )
        if self.spectral_index is not None:
            object.__setattr__(
                self, "spectral_index", read_entry("spectral_index", _exponents, self.spectral_index)
            )
        self._read_envelope()
        for key, is_default in (
            ("stokes", not self.is_polarised),
            ("spectral_index", self.spectral_index is None),
            ("envelope", self.envelope is None),
            ("frames", self.frames is None),
            ("frame", self.frame is None),
        ):
            if not is_default and self.prior != "correlated-field":
                raise ModelError(
                    f'{key}: needs prior = "correlated-field", found prior = "{self.prior}"; change it, '
                    f"or leave {key} out"
                )

    def _read_flux(self) -> None:
        if self.flux is None:
            return
        value = read_entry("flux", quantity, self.flux, FLUX)
        if not isinstance(value, Fixed | Prior) or (isinstance(value, Fixed) and not value.value > 0.0):
            raise ModelError(f"flux: expected a flux above 0, or a prior, found {short_repr(self.flux)}")
        object.__setattr__(self, "flux", value)

    def _read_envelope(self) -> None:
        if self.envelope is None:
            return
        value = read_entry("envelope", quantity, self.envelope, ANGLE)
        if not isinstance(value, LogNormal) and not (isinstance(value, Fixed) and value.value > 0.0):
            raise ModelError(
                "envelope: expected an angle above 0, or a log-normal prior, found "
                f"{short_repr(self.envelope)}"
            )
        object.__setattr__(self, "envelope", value)

    def _read_frames(self) -> None:
        """Check the number or the length of frames.

        Raises
        ------
        ModelError
            Neither is one, both are given, or the image has polarisation or a spectrum.
        """
        if self.frames is not None and (
            isinstance(self.frames, bool) or not isinstance(self.frames, int) or self.frames < 1
        ):
            raise ModelError(f"frames: an integer from 1 on, found {short_repr(self.frames)}")
        if self.frame is not None:
            value = read_entry("frame", quantity, self.frame, TIME)
            if not isinstance(value, Fixed) or not value.value > 0.0:
                raise ModelError(f"frame: expected a time above 0, found {short_repr(self.frame)}")
            object.__setattr__(self, "frame", value)
        if self.frames is not None and self.frame is not None:
            raise ModelError("frames, frame: one determines the other; leave one out")
        if self.has_frames and (self.is_polarised or self.spectral_index is not None):
            raise ModelError("frames need Stokes I without a spectrum; leave stokes and spectral_index out")

    @property
    def has_frames(self) -> bool:
        """Whether the image may change in time."""
        return self.frames is not None or self.frame is not None

    @property
    def is_sampled(self) -> bool:
        """Whether the result has samples."""
        return self.prior != "smooth"

    @property
    def is_polarised(self) -> bool:
        """Whether the image has more than Stokes I."""
        return self.stokes != "I"


def _exponents(value: Entry) -> tuple[Fixed | Normal, ...]:
    """Numbers and normal priors of the coefficients of a spectrum.

    Raises
    ------
    ModelError
        Another prior, or a tie.
    """
    found = series(value, NUMBER)
    for one in found:
        if not isinstance(one, Fixed | Normal):
            raise ModelError(f"expected numbers or normal priors, found {short_repr(value)}")
    return tuple(one for one in found if isinstance(one, Fixed | Normal))
