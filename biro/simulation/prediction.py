"""Predict the model visibilities of a sky, an image or both for an observation."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError

if TYPE_CHECKING:
    from biro.images.templates import Templates
    from biro.models import BoundModel, ImageModel, SkyModel
    from biro.observation.observation import Observation
    from rime_kernels.arrays import Beam
    from rime_kernels.device import Backend

log = logging.getLogger(__name__)


def predict(
    observation: Observation,
    sky: SkyModel | None,
    *,
    image: ImageModel | None = None,
    accuracy: float = 1e-5,
    values: Mapping[str, float] | None = None,
    backend: Backend = "auto",
    precision: Literal["auto", "double", "single"] = "double",
    memory_limit: int | str | None = None,
) -> Iterator[NDArray[Any]]:
    """Model visibilities of each partition, one after the other.

    Parameters
    ----------
    observation : Observation
        Says where and at which frequencies; its visibilities are not looked at.
    sky : SkyModel or None
        None: the image alone.
    image : ImageModel, optional
        Added to the sources, and seen through the sky model's beam like them.
    accuracy : float
        Of the image's visibilities: rms error over rms.
    values : mapping name -> float, optional
        Values of the free parameters in the model's own units, by the names that fits give them. A
        noise factor is not needed.
    backend : "auto", "cpu" or "cuda"
    precision : "double", "single" or "auto"
        "auto" is double, except on a GPU whose float64 is slow.
    memory_limit : int or str, optional
        Bytes, or text such as "8 GB", that the work may take on the device.

    Returns
    -------
    iterator of complex64 or complex128 (n_row, n_chan, n_corr), Jy

    Raises
    ------
    InputError
        Free parameters without values, values without free parameters, neither sky nor image, or an image
        whose pixels are too coarse for the longest baselines.
    ModelError
        The sky cannot be seen from a phase centre of the observation, or the image not at its frequencies.
    BackendError
        `backend="cuda"` without a working GPU.
    """
    options = {"backend": backend, "memory_limit": memory_limit}
    if image is not None:
        check_image(observation, image)
    if sky is None:
        if image is None:
            raise InputError("there is nothing to predict: give a sky model, an image, or both")
        return _each_image(observation, image, None, {**options, "accuracy": accuracy})
    from biro.images.templates import Templates

    bound, theta = _bound(observation, sky, values or {})
    templates = Templates(observation, bound, accuracy=accuracy, backend=backend, memory_limit=memory_limit)
    templates.check()
    components = _each(
        observation, bound, theta, templates, {**options, "precision": resolve_precision(precision, backend)}
    )
    if image is None:
        return components
    beams = [bound.sources(theta, i).beam for i in range(len(observation.partitions))]
    images = _each_image(observation, image, beams, {**options, "accuracy": accuracy})
    return (one + other for one, other in zip(components, images, strict=True))


def check_image(observation: Observation, image: ImageModel, name: str = "image") -> None:
    """Refuse, by its name, an image that cannot be predicted: now, not when half of a column is written.

    Raises
    ------
    InputError, ModelError
        As `biro.images.prediction.check_image`, for any partition.
    """
    from biro.images.prediction import check_image
    from biro.models import ModelError

    for part in observation.partitions:
        try:
            check_image(part, image)
        except (InputError, ModelError) as error:
            raise type(error)(f"{name}: {error}") from None


def _bound(
    observation: Observation, sky: SkyModel, given: Mapping[str, float]
) -> tuple[BoundModel, NDArray[np.float64]]:
    """The model bound to the data, and one parameter vector."""
    from biro.models import Noise

    bound = dataclasses.replace(sky, noise=Noise(factor=1.0)).bind(observation.partition_views)
    # Noise and pointing errors are of the partitions and antennas that were fitted, which may be others.
    known = (*bound.parameter_names, "noise", "pointing")
    unknown = [name for name in given if name not in known and name.split(".")[0] not in known]
    if unknown:
        raise InputError(
            f"values are given for {', '.join(unknown)}, which the sky model does not leave free; a prior "
            "that only Python can say is not in the model.toml of a run"
        )
    lacking = [name for name in bound.parameter_names if name not in given]
    if lacking:
        raise InputError(
            f"the sky model has free parameters without values: {', '.join(lacking)}; fix them in the model, "
            "give values, or name the directory of a run that fitted them"
        )
    return bound, np.array([[given[name] for name in bound.parameter_names]], dtype=np.float64)


def resolve_precision(precision: str, backend: Backend) -> Literal["double", "single"]:
    """The precision that "auto" stands for: double, except on a GPU whose float64 is slow."""
    from rime_kernels import device

    if precision != "auto":
        return "single" if precision == "single" else "double"
    if device.resolve(backend)[0] == "cuda" and device.has_slow_float64():
        log.info("precision single: float64 is slow on %s", device.device_name())
        return "single"
    return "double"


def _each(
    observation: Observation,
    bound: Any,
    theta: NDArray[np.float64],
    templates: Templates,
    options: Mapping[str, Any],
) -> Iterator[NDArray[Any]]:
    from rime_kernels import Rime

    for i, part in enumerate(observation.partitions):
        rime = Rime(
            part.rows,
            template=templates.of(i),
            template_lm=templates.lm(i),
            extent=max(bound.extent(i), templates.extent(i)),
            **options,
        )
        log.info("%s: %s", observation.labels[i], rime.reason)
        yield rime.predict(templates.shifts.of(i, bound.sources(theta, i)))[0]


def _each_image(
    observation: Observation, image: ImageModel, beams: Sequence[Beam | None] | None, options: dict[str, Any]
) -> Iterator[NDArray[Any]]:
    from biro.images.prediction import predict_image

    for i, part in enumerate(observation.partitions):
        yield predict_image(part, image, beam=beams[i] if beams is not None else None, **options)
