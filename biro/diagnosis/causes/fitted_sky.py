"""The sky model of a fit, and what predicts the visibilities of others at its data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from biro.diagnosis.residual_data import ResidualData
from biro.models.bound.model import BoundModel
from biro.models.sky import SkyModel

Array = NDArray[np.float64]


class ThinPredictor(Protocol):
    """Other skies at few times and channels: `biro.likelihood.other_skies.ThinSkies`.

    Attributes
    ----------
    rows : list of int64 (n_row,)
        Of the data of each partition.
    steps : list of int
        Every so many channels are there.
    """

    rows: list[NDArray[np.int64]]
    steps: list[int]

    def taken(self, model: BoundModel) -> BoundModel:
        """A model at these times and channels."""

    def predict(self, model: BoundModel, thetas: Array) -> list[NDArray[np.complexfloating]]:
        """Model visibilities (n_batch, n_row, n_chan, n_corr) of each partition."""


class OtherModels(Protocol):
    """Other skies at the data of a likelihood: `biro.likelihood.other_skies.OtherSkies`."""

    sky: SkyModel
    values: dict[str, float]

    def bind(self, sky: SkyModel) -> BoundModel:
        """The parameters of a sky model with the data of the likelihood."""

    def predict(self, model: BoundModel, theta: Array) -> list[NDArray[np.complexfloating]]:
        """Model visibilities of each partition for one theta."""

    def thin(
        self, data: Sequence[ResidualData], chosen: Sequence[NDArray[np.int64]] | None = None
    ) -> ThinPredictor:
        """Predict these models at few times and channels, or at chosen rows of each partition."""


@dataclass(eq=False)
class FittedSky:
    """A sky model with its best values, from which changes begin.

    Attributes
    ----------
    others : OtherModels
    data : sequence of ResidualData
    sky : SkyModel
    values : dict of str to float
    """

    others: OtherModels
    data: Sequence[ResidualData]
    sky: SkyModel
    values: dict[str, float]
    _thin: list[ThinPredictor] = field(default_factory=list)

    @property
    def thin(self) -> ThinPredictor:
        """The predictor of few data, which is made once."""
        if not self._thin:
            self._thin.append(self.others.thin(self.data))
        return self._thin[0]

    def changed(self, sky: SkyModel, model: BoundModel, theta: Array) -> FittedSky:
        """This, with another sky model and the values of its parameters."""
        found = dict(zip(model.parameter_names, theta.tolist(), strict=True))
        return replace(self, sky=sky, values={**self.values, **found})
