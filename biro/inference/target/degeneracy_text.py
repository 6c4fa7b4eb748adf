"""What unknown gains leave open, in words: the same words for every treatment of gains (physics: section 6).

A common phase of all antennas changes no visibility; a common amplitude of all gains makes up for the
flux densities of all sources; a phase between the two feeds turns Q + iU of all sources (and leakages); an
amplitude between the feeds mixes I and V; phases that are linear in the antennas' coordinates move the sky.
"""

from __future__ import annotations

from collections.abc import Sequence

PHASE = "a common phase of all antennas"
FLUX_SCALE = "the overall flux scale (amplitude gains x fluxes)"
BETWEEN_PHASE = "the R-L (or X-Y) phase offset, that is, the absolute polarisation angle"
BETWEEN_AMPLITUDE = "the R/L (or X/Y) amplitude ratio, that is, Stokes V"
POSITION = "the position of the whole sky (phase gains x positions)"
_FLUXES = ("I", "flux")
PLACES = ("east", "north", "ra", "dec", "l", "m")


def degeneracy(names: Sequence[str], *, closures: bool = False) -> str:
    """What a combination of these parameters is, or "" where it is none that gains leave open.

    Parameters
    ----------
    names : sequence of str
    closures : bool
        Whether gains are not parameters, since closures are fitted, which see none.
    """
    gains = {name.split("[")[0].split(".", 1)[1] for name in names if name.startswith("gain.")}
    leakages = [name for name in names if name.startswith("leakage")]
    others = (name for name in names if not name.startswith(("gain.", "leakage")))
    sky = {name.split("[")[0].rsplit(".", 1)[-1] for name in others}
    if not (gains or leakages or closures):
        return ""
    if sky & set(_FLUXES):
        return BETWEEN_AMPLITUDE if "ratio_amplitude" in gains else FLUX_SCALE
    if sky & {"Q", "U"}:
        return BETWEEN_PHASE
    if "V" in sky:
        return BETWEEN_AMPLITUDE
    if sky & set(PLACES):
        return POSITION
    return PHASE if not sky and any("phase" in kind for kind in gains) else ""
