"""Whether the model of a partition is smeared as its data are: what averages take of a source."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from biro.choices import SmearingMode
from biro.display.formatting import angle_text, frequency_text, percent, plain
from biro.errors import InputError
from biro.models.components.direction import basis
from biro.observation.feeds.earth import pole_of_date
from biro.observation.partition import Partition
from rime_kernels import Smearing
from rime_kernels.arrays import Sources
from rime_kernels.physics.phase import SPEED_OF_LIGHT
from rime_kernels.smearing.rotation import rates

Array = NDArray[np.float64]

REQUESTED = "as requested"
"""Why a mode other than "auto" is taken."""
LIMIT = 1.0
"""How many times the noise of all visibilities of a partition together the loss must exceed."""
SMALL = 1e-3
"""Where no visibility has a weight: fraction of a source that the loss must exceed."""
_N_ROW, _N_SOURCE = 2000, 100
"""So many rows, evenly spread, and so many sources tell how much is lost."""


class BrightnessRings(NamedTuple):
    """How the brightness of an image lies about a phase centre.

    Attributes
    ----------
    distance : float64 (n_ring,), rad
        Of the farthest pixel of each ring.
    flux : float64 (n_ring,), Jy
        Sum of |I| of its pixels.
    """

    distance: Array
    flux: Array


@dataclass(frozen=True)
class SmearingChoice:
    """What was chosen for a partition.

    Attributes
    ----------
    smearing : Smearing or None
        What the kernels average over; None where nothing is smeared.
    reason : str
        Whether, and why.
    change : float
        Square root of the change of chi2 by the loss.
    """

    smearing: Smearing | None
    reason: str
    change: float = 0.0

    @property
    def mode(self) -> SmearingMode:
        """The choice, as it may be asked for."""
        return "off" if self.smearing is None else "on"

    def digest(self) -> str:
        """Hash of what is averaged over; empty where nothing is."""
        if self.smearing is None:
            return ""
        both = self.smearing.interval, self.smearing.chan_width
        return hashlib.sha256(b"".join(array.tobytes() for array in both)).hexdigest()

    def __str__(self) -> str:
        return f"smearing {self.mode}: {self.reason}"


def lines_of(choices: Sequence[SmearingChoice], labels: Sequence[str]) -> list[str]:
    """What was chosen and why: a line for each choice, with the partition that it matters most in."""
    lines = []
    for mode in ("on", "off"):
        alike = [i for i, choice in enumerate(choices) if choice.mode == mode]
        if not alike:
            continue
        most = max(alike, key=lambda i: choices[i].change)
        if len({str(choices[i]) for i in alike}) == 1 and len(alike) == len(choices):
            return [str(choices[most])]
        which = f"{len(alike)} of {len(choices)} partitions"
        lines.append(f"smearing {mode} in {which}: {choices[most].reason}, most in {labels[most]}")
    return lines


def modes_of(mode: SmearingMode | Sequence[SmearingMode], n_partition: int) -> list[SmearingMode]:
    """The mode of each partition, from one for all or one for each.

    Raises
    ------
    InputError
        An unknown word, or another number of them.
    """
    modes: list[SmearingMode] = [mode] * n_partition if isinstance(mode, str) else list(mode)
    if len(modes) != n_partition:
        raise InputError(f"smearing must be one word, or one for each of {n_partition} partitions: {modes}")
    for each in modes:
        if each not in get_args(SmearingMode):
            raise InputError(f'smearing must be "auto", "on" or "off", got {each!r}')
    return modes


def choose(
    part: Partition,
    sources: Sources | None,
    mode: SmearingMode,
    *,
    images: Sequence[BrightnessRings] = (),
) -> SmearingChoice:
    """Whether the model of a partition is smeared.

    Parameters
    ----------
    part : Partition
    sources : Sources or None
        Its sources for some draws of the prior, or for one theta. Their largest distances and median fluxes
        count.
    mode : "auto", "on" or "off"
        "auto" is on where the loss exceeds the noise of all visibilities together: where

            sum over sources and visibilities of  w (S (1 - sinc sinc))^2  >  1

        The pixels of an image in a ring count as one source.
    images : sequence of BrightnessRings
        Of those that `sources` scale, in their order, and then of others.

    Raises
    ------
    InputError
        "on" where neither interval nor width is known.
    """
    if mode == "off":
        return SmearingChoice(None, REQUESTED)
    smearing = smearing_of(part)
    if not (smearing.interval.any() or smearing.chan_width.any()):
        if mode == "on":
            raise InputError('smearing "on" needs the integration time or the channel width')
        return SmearingChoice(None, "neither the integration time nor the channel width is known")
    text, matters, change = _loss_text(part, smearing, _seen(sources, images))
    if mode == "on":
        return SmearingChoice(smearing, f"{REQUESTED}; {text}", change)
    return SmearingChoice(smearing if matters else None, text, change)


def smearing_of(part: Partition) -> Smearing:
    """What the visibilities of a partition were averaged over; 0 where that is not known.

    Rows that were integrated for a part of their interval (EXPOSURE) are averages over so long about the time
    that their uvw are of (TIME_CENTROID), as if that part were in one piece.
    """
    declination, pole_angle = pole_of_date(part.time.mean(keepdims=True), basis(part.phase_centre))
    return Smearing(
        float(declination[0]),
        np.zeros(part.n_row) if "interval" in part.guessed else part.averaged_over,
        np.zeros(part.n_chan) if "chan_width" in part.guessed else part.chan_width,
        pole_angle=float(pole_angle[0]),
    )


class _SourceExtents(NamedTuple):
    """Sources and rings of images: how far away, rad, how bright, Jy, and whether of an image, (n,) each."""

    distance: Array
    flux: Array
    of_image: NDArray[np.bool_]


def _seen(sources: Sources | None, images: Sequence[BrightnessRings]) -> _SourceExtents:
    """Largest distance and median of |I| of each source; images as their factors scale them."""
    distances, fluxes, scale = [np.zeros(0)], [np.zeros(0)], np.ones(0)
    if sources is not None:
        distance = np.hypot(sources.lm[..., 0], sources.lm[..., 1])
        distances.append(np.arcsin(np.minimum(distance, 1.0)).max(axis=0))
        fluxes.append(np.median(np.abs(sources.stokes[..., 0]).mean(axis=1), axis=0))
        if sources.template_scale is not None:
            scale = np.median(np.abs(sources.template_scale), axis=0)
    n_source = sum(each.size for each in distances)
    for i, rings in enumerate(images):
        distances.append(rings.distance)
        fluxes.append(rings.flux * (scale[i] if i < scale.size else 1.0))
    distance, flux = np.concatenate(distances), np.concatenate(fluxes)
    return _SourceExtents(distance, flux, np.arange(distance.size) >= n_source)


def _loss_text(part: Partition, smearing: Smearing, seen: _SourceExtents) -> tuple[str, bool, float]:
    """How much is lost, in words, whether that matters, and the square root of the change of chi2."""
    seconds, width = float(smearing.interval.max()), float(smearing.chan_width.max())
    over = [f"{seconds:.3g} s"] if seconds else []
    over += [frequency_text(width)] if width else []
    averages = " and ".join(over)
    if not seen.distance.size:
        return "the model has no source", False, 0.0
    rows = np.flatnonzero(part.row_weight)
    is_weighted = bool(rows.size)
    rows = rows if is_weighted else np.arange(part.n_row)
    some = rows[:: max(1, -(-rows.size // _N_ROW))]
    weight = part.row_weight[some] * (rows.size / some.size)
    change = 0.0
    for at in np.argsort(seen.flux * seen.distance**2)[::-1][:_N_SOURCE]:
        lost = seen.flux[at] * _loss(part, smearing, some, seen.distance[at])
        change += float(np.sum(weight * lost**2))
    at = int(np.argmax(seen.distance))
    farthest, what = float(seen.distance[at]), "an image" if seen.of_image[at] else "a source"
    if not farthest:
        return f"{what} at the phase centre has no loss", False, 0.0
    loss = float(_loss(part, smearing, some, farthest).max())
    text = (
        f"averaging over {averages} loses up to {percent(loss)} of {what} {angle_text(farthest)} from the "
        "phase centre"
    )
    if not is_weighted:
        return text, loss > SMALL, loss
    root = float(np.sqrt(change))
    return f"{text} ({plain(root)} sigma in all data)", root > LIMIT, root


def _loss(part: Partition, smearing: Smearing, rows: NDArray[np.int64], distance: float) -> Array:
    """1 - sinc sinc of a point in the worst direction, of some rows: see `averaging.smearing_loss`."""
    u, v, w = part.uvw[rows].T
    du, dv, _ = rates(u, v, w, smearing.declination, smearing.pole_angle)
    speed = np.hypot(du, dv)
    band = np.hypot(u, v) * distance / SPEED_OF_LIGHT * smearing.chan_width.max()
    turn = speed * smearing.interval[rows] * distance / SPEED_OF_LIGHT * part.chan_freq.max()
    return np.asarray(1.0 - np.sinc(np.minimum(band, 1.0)) * np.sinc(np.minimum(turn, 1.0)))
