"""The highest peaks of a dirty image, at which sources are looked for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from biro.imaging.dirty_image import DirtyImage
from biro.source_finding.fitting.component import Component

MAX_CANDIDATES, CANDIDATE_HEIGHT = 12, 0.8
"""Number of peaks that are tried for one source, and their height at least, relative to the highest peak.

With few baselines a sidelobe may be higher than the source itself.
"""
RIM = 0.02
"""Fraction of the image, at each side, in which no source is looked for."""


def highest(image: DirtyImage) -> float:
    """The highest value of an image of Stokes I without its rim, Jy/beam."""
    return float(_inner(image)[0].max())


def peaks(image: DirtyImage, reach: tuple[float, float] = (0.0, 0.98)) -> Iterator[Component]:
    """Points at the highest local maxima of an image of Stokes I, as high as these.

    Parameters
    ----------
    image : DirtyImage
    reach : (float, float)
        Distances from the phase centre, as direction cosines, between which they lie.
    """
    from scipy.ndimage import maximum_filter

    (inner, rim), middle = _inner(image), image.dirty.shape[-1] // 2
    offset = (np.arange(inner.shape[-1]) + rim - middle) * image.cell
    least, most = reach[0], min(reach[1], 0.98)
    # What is farther than two pixels outside does not change which maxima are local.
    near = np.flatnonzero(np.abs(offset) <= most)
    cut = slice(max(0, near[0] - 2), near[-1] + 3) if near.size else slice(0)
    inner, offset = inner[cut, cut], offset[cut]
    distance = np.hypot(offset, offset[:, None])
    is_near = (distance >= least) & (distance <= most)
    tops = (inner == maximum_filter(inner, size=5)) & is_near
    if not tops.any():
        return
    y, x = np.nonzero(tops & (inner >= CANDIDATE_HEIGHT * inner[tops].max()))
    for i in np.argsort(-inner[y, x])[:MAX_CANDIDATES]:
        yield Component((float(-offset[x[i]]), float(offset[y[i]])), max(float(inner[y[i], x[i]]), 1e-12))


def _inner(image: DirtyImage) -> tuple[NDArray[np.float64], int]:
    """The plane of Stokes I without its rim, and how wide that is in pixels."""
    rim = max(1, round(RIM * image.dirty.shape[-1]))
    return image.dirty[0, rim:-rim, rim:-rim], rim
