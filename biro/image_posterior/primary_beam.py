"""Primary beams in front of an image that is fitted, and data of several pointings about one centre."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.errors import InputError
from biro.image_posterior.field import ImageField
from biro.imaging.frequency_nodes import choose_nodes, lagrange
from biro.imaging.phase_centre import phasor, turned_uvw
from biro.imaging.seen_image import SeenImage
from biro.models import PointSource, SkyModel
from biro.models.components.direction import basis
from biro.models.components.image import ImageModel
from biro.models.components.jones_beam import GridBeam
from biro.observation.observation import Observation
from biro.observation.partition import Partition

Array = NDArray[np.float64]
Vis = NDArray[np.complexfloating]
SAME_CENTRE = 1e-12
"""Distance of phase centres, rad, below which they are one."""
LITTLE = 0.1
"""Sensitivity relative to the largest below which a pixel counts as hardly seen."""
_SCALAR = (
    'a fitted image takes a scalar beam that all antennas have in common; write [beam] kind = "cos3", '
    '"gaussian" or "airy", or leave [beam] out and fit apparent brightness'
)
BEAM_ERROR = 1e-5
"""Error of the beam at channels between its nodes, relative to its sum over the image."""


@dataclass(frozen=True, eq=False)
class PowerPattern:
    """E^2 of the beam of a partition at the pixels of an image.

    Attributes
    ----------
    freq : float64 (n_node,), Hz
    coefficient : float64 (n_node, n_chan)
        With which a channel is the sum over nodes.
    power : float64 (n_node, N, N)
    middle : float64 (N, N)
        At the middle of the band.
    """

    freq: Array
    coefficient: Array
    power: Array
    middle: Array


def power_patterns(
    observation: Observation, field: ImageField, sky: SkyModel, freq: ArrayLike | None = None
) -> list[PowerPattern] | None:
    """The beam of a model at the pixels of an image, of each partition; None where the model has no beam.

    Parameters
    ----------
    observation : Observation
        With the phase centres that it was observed with, from which beams point.
    field : ImageField
    sky : SkyModel
    freq : float64 (n_freq,), Hz, optional
        Planes of the image, which follow polynomials in between.

    Raises
    ------
    InputError
        The beam is fitted, or differs between antennas or times, or is one of Jones matrices.
    """
    if sky.beam is None:
        return None
    ra, dec = (f"{angle} rad" for angle in field.centre)
    dark = PointSource(name="centre", ra=ra, dec=dec, I="0 Jy")
    alone = replace(sky, image_priors=(), sources=(dark,), images=(), gain=None, constraints=())
    bound = replace(alone, noise=type(sky.noise)(factor=1.0)).bind(observation.partition_views)
    if bound.parameters:
        names = ", ".join(one.name for one in bound.parameters[:4])
        raise InputError(f"{names}: the beam in front of a fitted image must be fixed; write numbers")
    ones = ImageModel(np.ones((1, 1, field.size, field.size)), field.cell, field.centre)
    found = []
    for i, part in enumerate(observation.partitions):
        seen = SeenImage(part, ones, bound.fixed_beam(i))
        if seen.has_aterms:
            raise InputError(f"[beam]: the beam differs between antennas or times, and {_SCALAR}")
        found.append(_pattern(seen, part, None if freq is None else np.asarray(freq, np.float64)))
    return found


def check_scalar(sky: SkyModel) -> None:
    """Refuse beams of Jones matrices in front of an image that is fitted.

    Raises
    ------
    InputError
    """
    if isinstance(sky.beam, GridBeam):
        raise InputError(f'[beam] kind = "{sky.beam.kind}": the beam has Jones matrices, and {_SCALAR}')


def _pattern(seen: SeenImage, part: Partition, freq: Array | None) -> PowerPattern:
    def of_all(at: float) -> Array:
        mix = np.ones(1) if freq is None else lagrange(np.array([at]), freq)[0]
        return np.asarray(mix[:, None, None] * seen.planes(at)[0])

    each = choose_nodes(of_all, np.arange(part.n_chan), part.chan_freq, BEAM_ERROR)
    nodes = np.concatenate([one.freq for one in each])
    coefficient = np.zeros((len(nodes), part.n_chan))
    first = 0
    for one in each:
        coefficient[first : first + len(one.freq), one.channels] = one.coefficient.T
        first += len(one.freq)
    power = np.stack([seen.planes(float(at))[0] for at in nodes])
    return PowerPattern(nodes, coefficient, power, seen.planes(float(part.chan_freq.mean()))[0])


def mosaic_centre(observation: Observation) -> tuple[float, float]:
    """The middle of the phase centres of an observation, ICRS, rad: that of the image of them all."""
    centres = list(dict.fromkeys(part.phase_centre for part in observation.partitions))
    if not widest_separation(observation):
        return centres[0]
    x, y, z = np.mean([basis(centre)[2] for centre in centres], axis=0)
    return float(np.arctan2(y, x) % (2.0 * np.pi)), float(np.arctan2(z, np.hypot(x, y)))


def widest_separation(observation: Observation) -> float:
    """The largest distance between phase centres, rad."""
    outward = np.array([basis(part.phase_centre)[2] for part in observation.partitions])
    apart = np.linalg.norm(outward[:, None] - outward, axis=2).max()
    return float(2.0 * np.arcsin(0.5 * apart)) if apart > SAME_CENTRE else 0.0


def sensitivity_line(sensitivity: Array) -> str:
    """What a user must know of an image in front of which there is a beam."""
    share = float((sensitivity < LITTLE).mean())
    return (
        f"brightness is that without the primary beam; {share:.0%} of the pixels have less than "
        f"{LITTLE:g} of the largest sensitivity, and there the prior decides"
    )


def about(part: Partition, centre: tuple[float, float]) -> Partition:
    """A partition whose phase centre is another: uvw along its axes, and visibilities multiplied by a phasor.

    With u' the coordinates along the axes of the new centre, V' = V exp(-2 pi i (w' - w) nu/c) (physics:
    a source at the new centre has phase 0).
    """
    if centre == part.phase_centre:
        return part
    uvw, excess = turned_uvw(part, centre)
    vis = part.vis * phasor(excess[:, None], part.chan_freq).conj()[..., None]
    return replace(part, uvw=uvw, phase_centre=centre, vis=vis)


def about_centre(
    observation: Observation, centre: tuple[float, float], models: Sequence[Vis]
) -> tuple[Observation, list[Vis]]:
    """An observation, and models of its data, about one phase centre."""
    parts = [about(part, centre) for part in observation.partitions]
    pairs = zip(observation.partitions, models, strict=True)
    turned = [about(replace(part, vis=model), centre).vis for part, model in pairs]
    return replace(observation, partitions=tuple(parts)), turned
