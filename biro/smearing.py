"""Whether the model of a partition is smeared as its data are: what averages take of a source."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.feeds.earth import pole_of_date
from biro.formatting import angle_text, frequency_text
from biro.models.components.direction import basis
from biro.observation.partition import Partition
from rime_kernels import Smearing
from rime_kernels.arrays import Sources
from rime_kernels.physics.phase import SPEED_OF_LIGHT
from rime_kernels.smearing.rotation import rates

Mode = Literal["auto", "on", "off"]
"""Averages over integrations and channels always, never, or where it makes a difference."""
Array = NDArray[np.float64]

LIMIT = 1.0
"""How many times the noise of all visibilities of a partition together the loss must exceed."""
SMALL = 1e-3
"""Where no visibility has a weight: fraction of a source that the loss must exceed."""
_N_ROW, _N_SOURCE = 2000, 100
"""So many rows, evenly spread, and so many sources tell how much is lost."""


@dataclass(frozen=True)
class Choice:
    """What was chosen for a partition.

    Attributes
    ----------
    smearing : Smearing or None
        What the kernels average over; None where nothing is smeared.
    reason : str
        Whether, and why.
    """

    smearing: Smearing | None
    reason: str

    @property
    def mode(self) -> Mode:
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


def modes_of(mode: Mode | Sequence[Mode], n_partition: int) -> list[Mode]:
    """The mode of each partition, from one for all or one for each.

    Raises
    ------
    InputError
        An unknown word, or another number of them.
    """
    modes: list[Mode] = [mode] * n_partition if isinstance(mode, str) else list(mode)
    if len(modes) != n_partition:
        raise InputError(f"smearing must be one word, or one for each of {n_partition} partitions: {modes}")
    for each in modes:
        if each not in get_args(Mode):
            raise InputError(f'smearing must be "auto", "on" or "off", got {each!r}')
    return modes


def choose(part: Partition, sources: Sources, mode: Mode, *, has_images: bool, on_gpu: bool) -> Choice:
    """Whether the model of a partition is smeared.

    Parameters
    ----------
    part : Partition
    sources : Sources
        Its sources for some draws of the prior, or for one theta. Their largest distances and median fluxes
        count.
    mode : "auto", "on" or "off"
        "auto" is on where the loss exceeds the noise of all visibilities together: where

            sum over sources and visibilities of  w (S (1 - sinc sinc))^2  >  1

        It is off where there are images, or a GPU was asked for: neither is computed with smearing.
    has_images : bool
        Whether the model has images.
    on_gpu : bool
        Whether backend="cuda" was asked for.

    Raises
    ------
    InputError
        "on" with images, or where neither interval nor width is known.
    """
    if mode == "off":
        return Choice(None, "as asked")
    smearing = smearing_of(part)
    if not (smearing.interval.any() or smearing.chan_width.any()):
        if mode == "on":
            raise InputError('smearing "on" needs the interval of the rows or the width of the channels')
        return Choice(None, "neither the interval of rows nor the width of channels is known")
    if mode == "on" and has_images:
        raise InputError('smearing is not computed for images: give smearing="off", or leave [[image]] out')
    text, matters = _loss_text(part, smearing, sources)
    if mode == "on":
        return Choice(smearing, f"as asked; {text}")
    if not matters:
        return Choice(None, text)
    if has_images:
        return Choice(None, f"images are not computed with it, though {text}")
    if on_gpu:
        return Choice(None, f'a GPU does not compute it (backend="cpu" does), though {text}')
    return Choice(smearing, text)


def smearing_of(part: Partition) -> Smearing:
    """What the visibilities of a partition were averaged over; 0 where that is not known."""
    interval = np.full(part.n_row, part.interval) if part.row_interval is None else part.row_interval
    declination, pole_angle = pole_of_date(float(part.time.mean()), basis(part.phase_centre))
    return Smearing(
        declination,
        np.zeros(part.n_row) if "interval" in part.guessed else interval,
        np.zeros(part.n_chan) if "chan_width" in part.guessed else part.chan_width,
        pole_angle=pole_angle,
    )


def _loss_text(part: Partition, smearing: Smearing, sources: Sources) -> tuple[str, bool]:
    """How much is lost, in words, and whether that matters."""
    seconds, width = float(smearing.interval.max()), float(smearing.chan_width.max())
    over = [f"{seconds:.3g} s"] if seconds else []
    over += [frequency_text(width)] if width else []
    averages = " and ".join(over)
    distance, flux = _distances_and_fluxes(sources)
    if not distance.size:
        return f"there is no source, of which averages over {averages} take a part", False
    rows = np.flatnonzero(part.weight.any(axis=(1, 2)))
    is_weighted = bool(rows.size)
    rows = rows if is_weighted else np.arange(part.n_row)
    some = rows[:: max(1, -(-rows.size // _N_ROW))]
    weight = part.weight[some].sum(axis=(1, 2), dtype=np.float64) * (rows.size / some.size)
    change = 0.0
    for at in np.argsort(flux * distance**2)[::-1][:_N_SOURCE]:
        change += float(np.sum(weight * (flux[at] * _loss(part, smearing, some, distance[at])) ** 2))
    farthest = float(distance.max())
    loss = float(_loss(part, smearing, some, farthest).max())
    text = f"averages over {averages} take up to {100 * loss:.2g} % of a source {angle_text(farthest)} away"
    if not is_weighted:
        return text, loss > SMALL
    return f"{text}, {np.sqrt(change):.2g} times the noise of all data", change > LIMIT**2


def _distances_and_fluxes(sources: Sources) -> tuple[Array, Array]:
    """Of each source, the largest distance from the phase centre, rad, and the median of |I|, Jy."""
    distance = np.hypot(sources.lm[..., 0], sources.lm[..., 1])
    flux = np.abs(sources.stokes[..., 0]).mean(axis=1)
    return np.arcsin(np.minimum(distance, 1.0)).max(axis=0), np.median(flux, axis=0)


def _loss(part: Partition, smearing: Smearing, rows: NDArray[np.int64], distance: float) -> Array:
    """1 - sinc sinc of a point in the worst direction, of some rows: see `averaging.smearing_loss`."""
    u, v, w = part.uvw[rows].T
    du, dv, _ = rates(u, v, w, smearing.declination, smearing.pole_angle)
    speed = np.hypot(du, dv)
    band = np.hypot(u, v) * distance / SPEED_OF_LIGHT * smearing.chan_width.max()
    turn = speed * smearing.interval[rows] * distance / SPEED_OF_LIGHT * part.chan_freq.max()
    return np.asarray(1.0 - np.sinc(np.minimum(band, 1.0)) * np.sinc(np.minimum(turn, 1.0)))
