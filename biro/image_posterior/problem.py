"""What an engine that fits an image is given, and what it returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biro.files.json_value import JsonValue
from biro.image_posterior.components import FreeComponents
from biro.image_posterior.operator import ImageOperator, Vis
from biro.image_posterior.single_dish import SingleDishData
from biro.models import ImagePrior, SkyModel
from biro.observation.observation import Observation

Array = NDArray[np.float64]
CHECKPOINT = "image-samples.npz"
"""Where a run directory has the state of an engine that has not converged."""


@dataclass(frozen=True, eq=False)
class PlanesData:
    """What an image of several Stokes parameters, frequencies or frames is fitted to.

    Attributes
    ----------
    observation : Observation
        With all four correlations of its feeds where the image is polarised.
    operator : ImageOperator
        Of all planes; its `data` lack the fixed components.
    components : list of complex (n_row, n_chan, n_corr), Jy
    reference : float, Hz
        Frequency of the image.
    """

    observation: Observation
    operator: ImageOperator
    components: list[Vis]
    reference: float


@dataclass(frozen=True, eq=False)
class ImageProblem:
    """What an engine is given.

    Attributes
    ----------
    observation : Observation
        Stokes I, as measured: with gains in it where the model has gains.
    operator : ImageOperator
        Of the observation; its `data` lack the fixed components.
    components : list of complex (n_row, n_chan, 1), Jy
        Visibilities of the fixed components.
    prior : ImagePrior
    sky : SkyModel
    noise : float
        Factor by which the noise is larger than the weights state.
    seed : int
    progress : bool
    run_dir : Path or None
        Where checkpoints go.
    options : mapping
        Of the engine.
    remarks : tuple of str
        On the data.
    noise_remark : str
        What may be wrong with `noise`; "" where nothing is.
    free : FreeComponents or None
        The components, where some have parameters with priors; `components` and the data of the operator
        then are as `fast_map.with_components` makes them, and before that without components.
    numbers : float64 (n_param,)
        Standard normal numbers of the parameters at which `components` are.
    closures : bool
        Whether closures alone are fitted.
    pointings : list of (float, float)
        Phase centre of each partition as observed; all data here are about one.
    planes : PlanesData or None
        Of an image with more than Stokes I at one frequency; the rest is Stokes I of the same data then.
    single_dish : SingleDishData or None
        A map that the image is fitted to, too.
    """

    observation: Observation
    operator: ImageOperator
    components: list[Vis]
    prior: ImagePrior
    sky: SkyModel
    noise: float
    seed: int
    progress: bool
    run_dir: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    noise_remark: str = ""
    free: FreeComponents | None = None
    numbers: Array = field(default_factory=lambda: np.zeros(0))
    closures: bool = False
    pointings: list[tuple[float, float]] = field(default_factory=list)
    planes: PlanesData | None = None
    single_dish: SingleDishData | None = None

    @property
    def is_adrift(self) -> bool:
        """Whether nothing but a convention fixes the position: closures alone, no component and no beam."""
        sky = self.sky
        return self.closures and not sky.sources and not sky.images and sky.beam is None

    @property
    def of_planes(self) -> ImageProblem:
        """The problem of all planes, without that of Stokes I."""
        if self.planes is None:
            return self
        given = self.planes
        return replace(
            self, observation=given.observation, operator=given.operator, components=given.components
        )


@dataclass(frozen=True, eq=False)
class FittedImage:
    """What an engine returns.

    Attributes
    ----------
    samples : float64 (n_sample, n_stokes, N, N), Jy/pixel
    is_map : bool
    centre : float64 (n_stokes, N, N) or (n_freq, n_stokes, N, N), Jy/pixel, or None
        The image at the gains that were taken out, of which chi2 and residuals are; None: the mean.
    operator : ImageOperator
        With the data that the image was fitted to: gains taken out, components subtracted.
    remarks : tuple of str
    facts : dict
        For JSON.
    arrays : dict of arrays
        Such as a power spectrum.
    noise : float or None
        Factor of the noise where the engine fitted it.
    n_free : int
        Real numbers that were fitted beside the image, such as parts of gains.
    components : list of complex (n_row, n_chan, n_corr), Jy, or None
        What the data of the operator lack; None: the components of the problem.
    """

    samples: Array
    is_map: bool
    operator: ImageOperator
    remarks: tuple[str, ...] = ()
    facts: dict[str, JsonValue] = field(default_factory=dict)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    noise: float | None = None
    n_free: int = 0
    centre: Array | None = None
    components: list[Vis] | None = None
