"""Sources found in a dirty image, and the result of a search for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from biro.formatting import angle_text

if TYPE_CHECKING:
    from biro.images.dirty_image import DirtyImage
    from biro.models import SkyModel


@dataclass(frozen=True)
class FoundSource:
    """A point or an elliptical Gaussian that was fitted to the visibilities of Stokes I.

    Attributes
    ----------
    name : str
    kind : "point" or "gaussian"
    east, north : float
        Direction cosines from the phase centre.
    flux, flux_err : float, Jy
        The error is the formal one for noise as large as the residuals.
    position_err : float, rad
    emaj, emin, pa : float, rad
        FWHM and position angle; 0 for a point.
    spectral_index, spectral_index_err : float
        0 where the data cover too narrow a band to fit one.
    """

    name: str
    kind: Literal["point", "gaussian"]
    east: float
    north: float
    flux: float
    flux_err: float
    position_err: float
    emaj: float = 0.0
    emin: float = 0.0
    pa: float = 0.0
    spectral_index: float = 0.0
    spectral_index_err: float = 0.0

    def __str__(self) -> str:
        place = f"east {_signed(self.east)}, north {_signed(self.north)}"
        text = f"{self.name:<4} {self.kind:<8} {self.flux:.5g} +- {self.flux_err:.2g} Jy at {place}"
        if self.kind == "gaussian":
            size = (
                f"{angle_text(self.emaj)} x {angle_text(self.emin)}" if self.emin else angle_text(self.emaj)
            )
            text += f", {size}, PA {np.rad2deg(self.pa):.4g} deg"
        if self.spectral_index_err:
            text += f", spectral index {self.spectral_index:.3g} +- {self.spectral_index_err:.2g}"
        return text


@dataclass(frozen=True, eq=False)
class FoundSources:
    """The result of `biro.find_sources`.

    Attributes
    ----------
    sources : tuple of FoundSource
        Brightest first.
    sky : SkyModel
        The sources with priors around them, for `biro fit`.
    residual : DirtyImage
        Dirty image of the data minus these sources.
    noise_factor : float
        Rms of the residual visibilities over what the weights say.
    reason : str
        Why the search ended.
    """

    sources: tuple[FoundSource, ...]
    sky: SkyModel
    residual: DirtyImage
    noise_factor: float
    reason: str

    def __str__(self) -> str:
        lines = [str(source) for source in self.sources]
        return "\n".join([*lines, f"noise factor {self.noise_factor:.4g}; {self.reason}"])

    def to_toml(self) -> str:
        """The model file, with the fitted sources as comments."""
        head = [f"# {line}" for line in str(self).splitlines()]
        return "\n".join([*head, "", self.sky.to_toml()])

    def to_dict(self) -> dict[str, object]:
        """Figures for JSON: angles in rad, fluxes in Jy."""
        return {
            "sources": [vars(source) for source in self.sources],
            "noise_factor": self.noise_factor,
            "rms": self.residual.rms,
            "peak": vars(self.residual.peak),
            "reason": self.reason,
        }


def _signed(angle: float) -> str:
    """An angle of either sign, in rad, with a unit in which it is readable."""
    return ("-" if angle < 0 else "") + (angle_text(abs(angle)) if angle else "0")
