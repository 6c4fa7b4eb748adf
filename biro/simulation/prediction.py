"""Predict the model visibilities of a sky, an image or both for an observation."""

from __future__ import annotations

import dataclasses
import functools
import logging
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.beams.loading import beam_of
from biro.choices import SmearingMode
from biro.distributed.placement import Placement
from biro.distributed.remote_data import Model
from biro.errors import InputError
from biro.imaging.prediction import check_image as check_image_for_partition
from biro.imaging.prediction import predict_image
from biro.imaging.seen_image import rings_of
from biro.imaging.templates import Templates
from biro.io.gain_files import with_gains_read
from biro.io.ionosphere import with_ionosphere_read
from biro.models import BoundModel, ImageModel, ModelError, Noise, SkyModel
from biro.models.bound.jones_beams import PartitionBeam
from biro.observation.observation import Observation
from biro.observation.partition import Partition
from biro.observation.partition_header import PartitionHeader
from biro.observation.smearing import BrightnessRings, SmearingChoice, choose, lines_of, modes_of
from rime_kernels import Rime, device
from rime_kernels.arrays import Beam
from rime_kernels.choices import AnyPrecision, Backend, GaussianFrame, GridderName, Precision

log = logging.getLogger(__name__)

PRECISIONS = {"double": np.complex128, "single": np.complex64}
"""Types of predicted visibilities."""
LARGEST = 16
"""Bytes of a visibility of an image at most."""
# Parameters that a message names: gains are hundreds.
_MOST_NAMES = 8


@dataclass(frozen=True)
class _Device:
    """Where visibilities are computed, and how much memory that may take."""

    backend: Backend
    memory_limit: int | str | None


@dataclass(frozen=True)
class _Sums:
    """How the sums over sources are worked out."""

    precision: Precision
    gaussian_frame: GaussianFrame


def predict(
    observation: Observation,
    sky: SkyModel | None,
    *,
    image: ImageModel | None = None,
    accuracy: float = 1e-5,
    engine: GridderName = "auto",
    values: Mapping[str, float] | None = None,
    backend: Backend = "auto",
    precision: AnyPrecision = "double",
    gaussian_frame: GaussianFrame = "tangent",
    memory_limit: int | str | None = None,
    smearing: SmearingMode | Sequence[SmearingMode] = "auto",
    say: Callable[[str], None] = log.info,
) -> Iterator[Model]:
    """Model visibilities of each partition, one after the other.

    Parameters
    ----------
    observation : Observation
        Gives the baselines and frequencies; its visibilities are not used.
    sky : SkyModel or None
        None: the image alone is predicted.
    image : ImageModel, optional
        Added to the sources, and seen through the sky model's beam like them.
    accuracy : float
        Rms error of the image's visibilities over their rms.
    engine : "auto", "idg" or "wprojection"
        What grids images: see `rime_kernels.make_gridder`.
    values : mapping name -> float, optional
        Values of the free parameters in the model's own units, by the names that fits give them. A
        noise factor is not needed.
    backend : "auto", "cpu" or "cuda"
    precision : "double", "single" or "auto"
        "auto" is double, except on a GPU whose float64 is slow.
    gaussian_frame : "tangent" or "uv"
        In which plane elliptical Gaussians lie (physics: section 5).
    memory_limit : int or str, optional
        Bytes, or text such as "8 GB", that the work may take on the device.
    smearing : "auto", "on" or "off", or one of them for each partition
        Whether the model is averaged over integrations and channels, as data are. "auto" is on where the
        loss exceeds the noise; see `biro.observation.smearing.choose`.
    say : function of a str
        Called with what was chosen about smearing, and where the beam is centred.

    Returns
    -------
    iterator of complex64 or complex128 (n_row, n_chan, n_corr), Jy
        Where data are not in the memory of this process, the model is not either: `write_column` and `image`
        take what stands for it.

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
    place = _Device(backend, memory_limit)
    one_image = functools.partial(
        predict_image, accuracy=accuracy, engine=engine, backend=backend, memory_limit=memory_limit
    )
    modes = modes_of(smearing, len(observation.partitions))
    if image is not None:
        check_image(observation, image)
    if sky is None:
        if image is None:
            raise InputError("nothing to predict; give a sky model, an image, or both")
        choices = [
            choose(part, None, mode, images=_rings(part, image))
            for part, mode in zip(observation.partitions, modes, strict=True)
        ]
        _check_disk(observation, LARGEST)
        _tell(say, observation, choices)
        return _predict_image(observation, image, None, choices, one_image)
    bound, theta = _bind(observation, sky, values or {})
    if image is not None and bound.has_antenna_terms:
        raise InputError(
            "biro does not apply feeds, leakage and gains of the model to a separate image; write the "
            "image into the model as [[image]]"
        )
    templates = Templates(
        observation, bound, accuracy=accuracy, engine=engine, backend=backend, memory_limit=memory_limit
    )
    templates.check()
    sums = _Sums(resolve_precision(precision, backend), gaussian_frame)
    choices = [
        choose(
            part,
            bound.sources(theta, i),
            mode,
            images=[*templates.rings(i), *_rings(part, image)],
        )
        for i, (part, mode) in enumerate(zip(observation.partitions, modes, strict=True))
    ]
    _tell(say, observation, choices, sky)
    # With an image, the two and their sum are there at a time.
    of_sky = np.dtype(PRECISIONS[sums.precision]).itemsize
    _check_disk(observation, of_sky if image is None else of_sky + 2 * LARGEST)
    components = _predict_sky(observation, bound, theta, templates, choices, sums, place)
    if image is None:
        return components
    beams = [bound.beam_at(theta, i) for i in range(len(observation.partitions))]
    images = _predict_image(observation, image, beams, choices, one_image)
    return _added_up(components, images)


def _tell(
    say: Callable[[str], None],
    observation: Observation,
    choices: Sequence[SmearingChoice],
    sky: SkyModel | None = None,
) -> None:
    """Say what was chosen about smearing, and where the beam of a model is centred."""
    say(lines_of(choices, observation.labels)[0])
    beam = "" if sky is None else observation.beam_line(sky)
    if beam:
        say(beam)


def _check_disk(observation: Observation, n_byte: int) -> None:
    """Refuse models of so many bytes for a visibility that a disk with files has no room for."""
    parts = observation.partitions
    placement = Placement.of(parts)
    needed = placement.totals([n_byte * part.n_chan * part.n_corr for part in parts])
    remedy = "give another directory, or select less data"
    placement.check_disk(observation.cache_folder, needed, "model visibilities", remedy)


def _rings(part: Partition, image: ImageModel | None) -> list[BrightnessRings]:
    """How the brightness of an image lies about a phase centre; none without an image."""
    return [] if image is None else [rings_of(image, part.phase_centre)]


def check_image(observation: Observation, image: ImageModel, name: str = "image") -> None:
    """Refuse an image that cannot be predicted for a partition of an observation, before any is predicted.

    Parameters
    ----------
    observation : Observation
    image : ImageModel
    name : str
        How messages name the image.

    Raises
    ------
    InputError, ModelError
        As `biro.imaging.prediction.check_image`, for any partition.
    """
    for part in observation.partitions:
        try:
            check_image_for_partition(part, image)
        except (InputError, ModelError) as error:
            raise type(error)(f"{name}: {error}") from None


def _bind(
    observation: Observation, sky: SkyModel, values: Mapping[str, float]
) -> tuple[BoundModel, NDArray[np.float64]]:
    """The model bound to the data, and the parameter vector of these values, float64 (1, n_param)."""
    views = observation.partition_views
    sky = with_gains_read(dataclasses.replace(sky, noise=Noise(factor=1.0)), observation)
    sky = with_ionosphere_read(sky, observation)
    bound = sky.bind(views, beam_of(sky, views))
    # Noise and what antennas have are of the partitions and antennas that were fitted, which may be others.
    known = (*bound.parameter_names, "noise", "pointing", "feeds", "leakage", "ionosphere")
    unknown = [name for name in values if name not in known and name.split(".")[0] not in known]
    if unknown:
        raise InputError(
            f"the sky model has no free parameter {', '.join(unknown)}, but values are given for it "
            "(model.toml of a run lacks priors that exist in Python only)"
        )
    lacking = [name for name in bound.parameter_names if name not in values]
    if lacking:
        more = f" and {len(lacking) - _MOST_NAMES} more" if len(lacking) > _MOST_NAMES else ""
        raise InputError(
            f"the sky model has free parameters without values: {', '.join(lacking[:_MOST_NAMES])}{more}; "
            "replace their priors by numbers, or give the run directory of a finished fit instead "
            "(values= in Python)"
        )
    return bound, np.array([[values[name] for name in bound.parameter_names]], dtype=np.float64)


def resolve_precision(precision: str, backend: Backend) -> Precision:
    """The precision that "auto" stands for: double, except on a GPU whose float64 is slow."""
    if precision != "auto":
        return "single" if precision == "single" else "double"
    if device.resolve(backend)[0] == "cuda" and device.has_slow_float64():
        log.info("using single precision, because float64 is slow on %s", device.device_name())
        return "single"
    return "double"


def _predict_sky(
    observation: Observation,
    bound: BoundModel,
    theta: NDArray[np.float64],
    templates: Templates,
    choices: Sequence[SmearingChoice],
    sums: _Sums,
    place: _Device,
) -> Iterator[Model]:
    """Visibilities of the components and images of a sky model, partition by partition."""
    for i, part in enumerate(observation.partitions):
        sources = bound.sources(theta, i)
        choice = choices[i]
        rime = Rime(
            part.rows,
            **part.stored.rows_for_rime(),
            template=templates.of(i, choice.smearing),
            template_lm=templates.lm(i),
            extent=max(bound.extent(i), templates.extent(i)),
            precision=sums.precision,
            gaussian_frame=sums.gaussian_frame,
            backend=place.backend,
            smearing=choice.smearing if templates.needs_phases else None,
            memory_limit=place.memory_limit,
        )
        log.info("%s: %s; %s", observation.labels[i], rime.reason, choice)
        shifted = templates.shifts.of(i, sources)
        yield part.stored.predicted(rime, shifted).array(0, part.n_row)


def _predict_image(
    observation: Observation,
    image: ImageModel,
    beams: Sequence[Beam | PartitionBeam | None] | None,
    choices: Sequence[SmearingChoice],
    one_image: functools.partial[NDArray[np.complexfloating]],
) -> Iterator[Model]:
    """Visibilities of an image through the beam of each partition, partition by partition."""
    for i, part in enumerate(observation.partitions):
        beam = beams[i] if beams is not None else None
        of_all = functools.partial(one_image, image=image, beam=beam, smearing=choices[i].smearing)
        stored = part.stored.on_devices(of_all.keywords["backend"])
        yield stored.together(_image_of_rows, part.header, of_all, each=stored.rows).array(0, part.n_row)


def _image_of_rows(
    blocks: Sequence[NDArray[np.int64] | None],
    header: PartitionHeader,
    of_all: functools.partial[NDArray[np.complexfloating]],
) -> list[tuple[NDArray[np.complexfloating]]]:
    """Visibilities of an image in blocks of rows; one of None is all rows."""
    rows = [own for own in blocks if own is not None]
    if not rows:
        return [(of_all(header),)]
    vis = of_all(header, rows=np.concatenate(rows))
    ends = np.cumsum([own.size for own in rows])[:-1]
    return [(own,) for own in np.split(vis, ends)]


def _added_up(components: Iterator[Model], images: Iterator[Model]) -> Iterator[Model]:
    """Sums of models, partition by partition, where these are."""
    return map(operator.add, components, images)
