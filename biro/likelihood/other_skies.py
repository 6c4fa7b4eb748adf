"""Visibilities of other skies at the data of a likelihood: what a diagnosis compares its model with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.diagnosis.residual_data import ResidualData
from biro.likelihood.engines import PartitionEngines
from biro.likelihood.options import EngineOptions
from biro.models.bound.model import BoundModel
from biro.models.components.beam_cube import AntennaBeams, BeamCube
from biro.models.components.partition_view import SampledTimes
from biro.models.sky import SkyModel
from biro.observation.observation import Observation
from biro.observation.partition import Partition

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Predicted = list[NDArray[np.complexfloating]]
MOST_THIN = 1 << 12
"""Visibilities that other skies are fitted to."""


@dataclass(eq=False)
class OtherSkies:
    """Model visibilities of any sky model, seen as a likelihood sees its own.

    Attributes
    ----------
    observation : Observation
        All data.
    sky : SkyModel
        The model of the likelihood.
    beam : BeamCube, AntennaBeams or None
    options : EngineOptions
    without_gains : bool
        Gains of the model were taken out of the data instead.
    engines : PartitionEngines
    places : list of (int64 (n_row,), slice)
        Rows and channels of each partition that residuals are compared at.
    values : dict of str to float
        Best fit, by name of the parameter.
    """

    observation: Observation
    sky: SkyModel
    beam: BeamCube | AntennaBeams | None
    options: EngineOptions
    without_gains: bool
    engines: PartitionEngines
    places: list[tuple[Index, slice]]
    values: dict[str, float]

    def bind(self, sky: SkyModel) -> BoundModel:
        """The parameters of a sky model with the data of this likelihood; raises ModelError."""
        views = self.observation.partition_views
        return sky.bind(views, self.beam, without_gains=self.without_gains)

    def predict(self, model: BoundModel, theta: ArrayLike) -> Predicted:
        """Model visibilities of each partition for one theta, at `places`."""
        batch = model.at(theta)
        parts = self.observation.partitions
        if all(_is_all(part, *place) for part, place in zip(parts, self.places, strict=True)):
            return [vis[0] for vis in self.engines.predict(batch)]
        return [self.engines.predict_some(batch, i, *some) for i, some in enumerate(self.places)]

    def thin(self, data: Sequence[ResidualData], chosen: Sequence[Index] | None = None) -> ThinSkies:
        """Predict these models at few times and channels of `places`, or at chosen rows of all `data`."""
        most = MOST_THIN // max(len(data), 1)
        rows, steps, samples, parts = [], [], [], []
        for i, (each, whole) in enumerate(zip(data, self.observation.partitions, strict=True)):
            part, (_, place) = each.partition, self.places[i]
            if chosen is not None:
                some, step = chosen[i], 1
            else:
                slots, step = _few(part.vis.shape[1:], len(part.times), part.n_row, most)
                some = np.flatnonzero(np.isin(part.time_index, slots))
            channels = slice(None, None, step)
            parts.append(part.some(some, channels))
            times = np.searchsorted(whole.times, parts[-1].times).astype(np.int64)
            samples.append(SampledTimes(times, np.arange(whole.n_chan)[place][channels]))
            rows.append(some)
            steps.append(step)
        return ThinSkies(self, rows, steps, samples, replace(self.observation, partitions=tuple(parts)))


class ThinSkies:
    """`OtherSkies` at few times and channels, for many theta at once.

    Attributes
    ----------
    rows : list of int64 (n_row,)
        Of the data of each partition.
    steps : list of int
        Every so many channels are there.
    """

    def __init__(
        self,
        skies: OtherSkies,
        rows: list[Index],
        steps: list[int],
        samples: list[SampledTimes],
        observation: Observation,
    ) -> None:
        self.rows, self.steps, self._samples = rows, steps, samples
        own = self.taken(skies.bind(skies.sky))
        here = replace(skies.options, backend="cpu", devices=None, comm=None, memory_limit=None)
        self._engines = PartitionEngines(observation, own, here)

    def taken(self, model: BoundModel) -> BoundModel:
        """A model at these times and channels."""
        return model.taken(self._samples)

    def predict(self, model: BoundModel, thetas: Array) -> Predicted:
        """Model visibilities (n_batch, n_row, n_chan, n_corr) of each partition, of a `taken` model."""
        return self._engines.predict(model.at(thetas))


def _is_all(part: Partition, rows: Index, channels: slice) -> bool:
    all_channels = len(range(*channels.indices(part.n_chan))) == part.n_chan
    return part.distributed is None and rows.size == part.n_row and all_channels


def _few(shape: tuple[int, ...], n_time: int, n_row: int, most: int) -> tuple[Index, int]:
    """Times, evenly spread, and a step of channels, so that about `most` visibilities are left."""
    n_chan, n_corr = shape
    per_time = max(1.0, n_row * n_corr / max(n_time, 1))
    step = int(min(n_chan, max(1, round(per_time * n_chan * min(n_time, 8) / most))))
    n_kept = int(np.clip(most / (per_time * -(-n_chan // step)), min(n_time, 4), n_time))
    return np.unique(np.linspace(0, n_time - 1, n_kept).round().astype(np.int64)), step
