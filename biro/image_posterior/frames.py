"""Frames of a movie: equal parts of the time of an observation, and the visibilities of an image for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.errors import InputError
from biro.image_posterior.field import ImageField
from biro.image_posterior.operator import ImageOperator, Vis
from biro.models import Fixed, ImagePrior
from biro.models.quantities import units
from biro.observation.observation import Observation
from biro.observation.selection import to_utc

Array = NDArray[np.float64]
Index = NDArray[np.int64]
_ROUNDING = 1e-6
"""Part of a frame by which the last frame may be longer, so that rounding makes no further one."""


@dataclass(frozen=True, eq=False)
class FrameTimes:
    """Frames of equal length, one after another, which cover all times that count.

    Attributes
    ----------
    edges : float64 (n_frame + 1,), s
        MJD on the time scale of the data, ascending.
    rows : list of int64 (n_row,)
        The frame of each row, by partition.
    counts : int64 (n_frame,)
        Complex samples that count.
    utc_offset : float, s
        UTC less the time scale of the data.
    """

    edges: Array
    rows: list[Index]
    counts: Index
    utc_offset: float

    @property
    def n(self) -> int:
        """Number of frames."""
        return len(self.counts)

    @property
    def line(self) -> str:
        """What was chosen, for a user."""
        step = float(self.edges[1] - self.edges[0])
        first = to_utc(float(self.edges[0]), self.utc_offset)
        text = f"{self.n} frames of {duration_text(step)} from {first} UTC"
        n_empty = int(np.count_nonzero(self.counts == 0))
        if not n_empty:
            return text
        return f"{text}; {n_empty} without data follow{'s' * (n_empty == 1)} from the others by the prior"


def duration_text(seconds: float) -> str:
    """A length of time in a unit that suits it."""
    for size, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.4g} {name}"
    return f"{seconds:.4g} s"


def choose_frames(observation: Observation, prior: ImagePrior) -> FrameTimes | None:
    """The frames of an image; None where the image is one frame, and so constant.

    They begin half an integration before the first time that counts. With `frames` they end half an
    integration after the last one; with `frame` the last of them may end later.

    Raises
    ------
    InputError
        The data have one time, or fewer times than frames.
    """
    if prior.frames is None and prior.frame is None:
        return None
    parts = observation.partitions
    used = [part.times[np.unique(part.time_index[part.row_weight > 0.0])] for part in parts]
    # Spectral windows may round one time to several.
    times = np.unique(np.concatenate(used).round(2))
    key = "frames" if prior.frame is None else "frame"
    if len(times) < 2:
        raise InputError(f"{key}: the data have one time, and so no changes; leave {key} out")
    half = 0.5 * max(part.interval for part in parts) or 0.5 * float(np.diff(times).min())
    first, last = float(times[0]) - half, float(times[-1]) + half
    n, length = _number(prior, last - first)
    if n > len(times):
        raise InputError(
            f"{key} makes {n} frames, and the data have {len(times)} times; give at most {len(times)} frames"
        )
    if n == 1:
        return None
    edges = first + length * np.arange(n + 1, dtype=np.float64)
    rows = [np.searchsorted(edges[1:-1], part.time, side="right").astype(np.int64) for part in parts]
    counts = np.zeros(n, np.int64)
    for part, own in zip(parts, rows, strict=True):
        np.add.at(counts, own, np.count_nonzero(np.asarray(part.weight) > 0.0, axis=(1, 2)))
    return FrameTimes(edges, rows, counts, observation.utc_offset)


def _number(prior: ImagePrior, span: float) -> tuple[int, float]:
    """Number and length (s) of the frames of data that span so many seconds."""
    if prior.frame is None:
        n = int(prior.frames)
        return n, span / n
    assert isinstance(prior.frame, Fixed)
    length = float(prior.frame.value * units.factor(prior.frame.unit or "s", units.TIME))
    return max(1, int(np.ceil(span / length - _ROUNDING))), length


class FramesOperator(ImageOperator):
    """Visibilities of one image for each frame: each row is that of the image of its frame.

    Images are float64 (n_frame, 1, N, N), Jy/pixel, of Stokes I.

    Parameters
    ----------
    observation : Observation
    field : ImageField
    times : FrameTimes
    **options
        As of `ImageOperator`.

    Attributes
    ----------
    times : FrameTimes
        Others are those of `ImageOperator`.
    """

    def __init__(
        self, observation: Observation, field: ImageField, times: FrameTimes, **options: Any
    ) -> None:
        super().__init__(observation, field, **options)
        self.times = times
        self._rows = [
            [(frame, np.flatnonzero(own == frame)) for frame in np.unique(own)] for own in times.rows
        ]
        self._of_frames = [
            [self.gridder_of(part.some(rows, slice(None)), field.grid) for _, rows in own]
            for part, own in zip(self.observation.partitions, self._rows, strict=True)
        ]

    @property
    def plane_axis(self) -> tuple[int, ...]:
        """Number of frames."""
        return (self.times.n,)

    def predict(self, images: ArrayLike) -> list[Vis]:
        """Visibilities of the images of all frames, of each partition.

        Parameters
        ----------
        images : float64 (n_frame, 1, N, N), Jy/pixel

        Returns
        -------
        list of complex (n_row, n_chan, n_corr), Jy
        """
        planes = self._planes(images)
        found: list[Vis] = []
        for part, own, gridders in zip(self.observation.partitions, self._rows, self._of_frames, strict=True):
            vis = np.zeros(part.vis.shape, np.complex128)
            for (frame, rows), gridder in zip(own, gridders, strict=True):
                vis[rows] = gridder.predict(np.ascontiguousarray(planes[frame]))
            found.append(vis)
        return found

    def adjoint(self, vis: Sequence[ArrayLike], *, n_stokes: int = 1, weighted: bool = False) -> Array:
        """The images R^T v of visibilities of all partitions, or R^T W v; see `ImageOperator.adjoint`.

        Returns
        -------
        float64 (n_frame, n_stokes, N, N)
        """
        n, n_grid = self.field.size, 1 if n_stokes == 1 else 4
        out = np.zeros((self.times.n, n_grid, n, n))
        for values, own, gridders, weight in zip(vis, self._rows, self._of_frames, self.weights, strict=True):
            for (frame, rows), gridder in zip(own, gridders, strict=True):
                given = np.ascontiguousarray(np.asarray(values)[rows])
                by = np.ascontiguousarray(weight[rows]) if weighted else None
                out[frame] += gridder.grid(given, by, n_stokes=n_grid)
        return out[:, :n_stokes]

    def chi2_of_frames(self, model: Sequence[Vis]) -> Array:
        """Sum of w |D - V|^2 of each frame, float64 (n_frame,); its expectation is 2 N for N samples."""
        out = np.zeros(self.times.n)
        for rows, residual, weight in zip(self.times.rows, self.residuals(model), self.weights, strict=True):
            np.add.at(out, rows, (weight * np.abs(residual) ** 2).sum(axis=(1, 2)))
        return out
