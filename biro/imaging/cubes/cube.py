"""Spectral cubes of dirty images: one plane at a time is made, and written while the next is made."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from biro._version import __version__
from biro.choices import AxisKind, Imaged, SpectralFrame
from biro.deprecation import with_new_names
from biro.display.formatting import check_names, html_text
from biro.display.progress import counted
from biro.display.stages import Stages
from biro.distributed.in_order import workers_for
from biro.distributed.remote_data import Model, rows_of
from biro.errors import InputError
from biro.imaging.cubes.axis import Planes, factors_of, make_axis
from biro.imaging.cubes.cube_file import CubeFile, cube_file
from biro.imaging.cubes.figures import CubeLayout, PlaneFigures, SavedCube
from biro.imaging.cubes.interpolation import ChannelInterpolation, cut_out
from biro.imaging.dirty_image import DirtyImage, image_files
from biro.imaging.fits_header import Cards, celestial_axes, image_cards, stokes_axis
from biro.imaging.imager import (
    FINER,
    RENAMED,
    ImagedVisibilities,
    Imager,
    Imaging,
    ImagingOptions,
    checked_model,
    choose_pixels,
    default_stokes,
    first_date,
    no_visibility,
    origin_of,
)
from biro.imaging.pieces import pieces_of
from biro.imaging.pixels import check_memory, refuse_coarse, single_phase_centre
from biro.imaging.psf import RestoringBeam
from biro.imaging.weights import UvDensity
from biro.io.data_set.writable_models import BLOCK_VISIBILITIES
from biro.observation.feeds.parallactic import HIGHEST, LOWEST
from biro.observation.observation import Observation
from biro.observation.partition import Partition
from biro.observation.stokes import stokes_planes, stokes_visibilities
from rime_kernels.engine.device_threads import Devices

Array = NDArray[np.float64]


class CubeOptions(ImagingOptions, total=False):
    """The fields of `Imaging` and of `Planes` as keyword arguments."""

    frame: SpectralFrame | None
    channels_per_plane: int
    axis: AxisKind
    rest_freq: float | str | None
    density: Literal["plane", "cube"]
    devices: Devices | None


class Cube:
    """A spectral cube of dirty images, whose planes are made one by one when they are asked for.

    Parameters
    ----------
    observation : Observation
        Of one phase centre.
    what : "data", "model" or "residual"
    model : sequence of complex (n_row, n_chan, n_corr), Jy, optional
        Model visibilities of each partition.
    progress : bool
        Show a bar on stderr while `save` makes the planes.
    **options
        Fields of `biro.imaging.imager.Imaging` and of `biro.imaging.cubes.axis.Planes`; and devices, GPUs of
        one kind that `save` shares planes out to: "all", how many, or their numbers. A plane is made by one
        of them, so that results are the same to the bit for any number. Default: one GPU, or the CPU.

    Attributes
    ----------
    layout : CubeLayout
        Its pixels and planes.

    Raises
    ------
    InputError
        As `biro.image`; or what names no devices.
    BackendError
        Devices that are not there, or of different kinds.
    """

    def __init__(
        self,
        observation: Observation,
        what: Imaged = "data",
        model: Sequence[Model] | None = None,
        *,
        progress: bool = True,
        **options: Unpack[CubeOptions],
    ) -> None:
        from rime_kernels.idg import ImageGrid

        self._progress = progress
        given: dict[str, Any] = with_new_names(options, RENAMED, "image")
        devices = given.pop("devices", None)
        of_planes = [item.name for item in fields(Planes)]
        check_names(given, [*(item.name for item in fields(Imaging)), *of_planes, "devices"], "image")
        planes = Planes(**{name: given.pop(name) for name in of_planes if name in given})
        self._imaging = imaging = Imaging(**given)
        if devices is not None and observation.is_distributed:
            raise InputError(
                "GPUs cannot share the planes of a cube if MPI processes or files hold the data; remove "
                "--devices (devices= in Python)"
            )
        self._model = checked_model(model, observation.partitions) if what != "data" else None
        self._observation, parts = observation, observation.partitions
        centre, wanted = single_phase_centre(observation), imaging.stokes or default_stokes(parts)
        stokes, pieces = stokes_planes(wanted), pieces_of(observation, wanted, Stages(), imaging.backend)
        moments = pieces.each("moments")
        if not any(each.total for each in moments):
            raise no_visibility(wanted)
        cell, n_pixel = choose_pixels(observation, moments, imaging)
        check_memory(n_pixel, len(stokes))
        grid = ImageGrid(n_pixel, cell)
        refuse_coarse(pieces.each("coarse", grid), grid, FINER)
        frame = planes.frame or parts[0].freq_frame
        factors = factors_of(observation, frame)
        axis = make_axis(parts, factors, planes, frame)
        self._workers = workers_for(parts[0].distributed, imaging.backend, devices, axis.n_plane)
        self.layout = CubeLayout(what, stokes, imaging.weighting_text, cell, n_pixel, centre, axis)
        self._interpolation = ChannelInterpolation(parts, wanted, factors, axis)
        is_shared = planes.density == "cube" and imaging.weighting != "natural"
        self._density = _density_of(parts, wanted, n_pixel * cell) if is_shared else None

    def __repr__(self) -> str:
        return f"<Cube {self.layout}; save() writes the file>"

    def _repr_html_(self) -> str:
        return html_text(f"{self.layout}\nsave() writes the file")

    def plane(self, i_plane: int) -> DirtyImage | None:
        """A plane, or None where it is blank because no visibility belongs to it.

        Parameters
        ----------
        i_plane : int
            From 0, in the order of the frequencies.

        Raises
        ------
        InputError
            There is no such plane.
        """
        axis = self.layout.axis
        if not 0 <= i_plane < axis.n_plane:
            raise InputError(f"planes are numbered 0 to {axis.n_plane - 1}, got {i_plane}")
        return next(self._made([i_plane]))

    def save(self, prefix: str | os.PathLike[str], *, overwrite: bool = False) -> SavedCube:
        """Make all planes, and write PREFIX.fits with its beams and PREFIX-psf.fits.

        A plane is written while the next is made; blank ones are NaN. The files take their names when the
        last plane is written; after an error there are none.

        Raises
        ------
        InputError
            A file is there already and `overwrite` is not given, or cannot be written; or all planes are
            blank.
        """
        files, layout = cube_files(prefix), self.layout
        for path in files:
            if path.exists() and not overwrite:
                raise InputError(f"{path}: exists already; choose another name or give --overwrite")
        n_plane, n_stokes, n_pixel = layout.axis.n_plane, len(layout.stokes), layout.n_pixel
        stages, figures = Stages(), list[PlaneFigures]()
        planes = counted(self._made(range(n_plane)), "imaging", "planes", n_plane, show=self._progress)
        cards, history = self._cards("Jy/beam") | {"CASAMBM": True}, self._history()
        with (
            cube_file(files[0], cards, history, (n_plane, n_stokes, n_pixel)) as image,
            cube_file(files[1], self._cards(""), history, (n_plane, 1, n_pixel)) as psf,
        ):
            for plane in _written(planes, image, psf, layout, stages):
                figures.append(PlaneFigures.of(plane))
            if not any(each.n_vis for each in figures):
                raise InputError(f"all planes are blank: {self._interpolation.unused()}")
            image.write_beams(_beams(figures))
        return SavedCube(layout, files, figures, self._interpolation.unused(), stages)

    def _made(self, planes: Sequence[int]) -> Iterator[DirtyImage | None]:
        """Planes of these numbers, in their order."""
        imaging = replace(self._imaging, cell=self.layout.cell, size=self.layout.n_pixel)
        work = partial(_image_of, self.layout.what, self._density, imaging)
        asked = (self._visibilities(i) for i in planes)
        for i, made in zip(planes, self._workers.map(work, asked), strict=True):
            yield None if made is None else self._described(i, made)

    def _visibilities(self, i_plane: int) -> _Plane | None:
        """What a plane is made of; None where it is blank."""
        samples, cuts = self._interpolation.of_plane(i_plane)
        if not cuts:
            return None
        observation, model = self._observation, self._model
        models = None
        if model is not None:
            models = [rows_of(model[i], rows, channels) for i, rows, channels in cuts]
        # Without what else there is; a partition may be cut into several parts.
        one_of_each = {i: part for part, (i, _, _) in zip(samples.parts, cuts, strict=True)}
        return _Plane(replace(observation, partitions=tuple(one_of_each.values())), samples, models)

    def _described(self, i_plane: int, made: DirtyImage) -> DirtyImage:
        axis = self.layout.axis
        return replace(
            made,
            freq=float(axis.freq[i_plane]),
            bandwidth=axis.width,
            freq_frame=axis.frame,
            date=first_date(self._observation),
        )

    def _cards(self, unit: str) -> Cards:
        """Cards of the FITS header: axes RA, DEC (SIN), STOKES, FREQ or VRAD, and the place of the array."""
        layout, observation = self.layout, self._observation
        part, axis = observation.partitions[0], layout.axis
        axes = celestial_axes(layout.centre, layout.cell, layout.n_pixel)
        cards = image_cards(
            [*axes, stokes_axis(layout.stokes), axis.fits_axis],
            unit=unit,
            freq_frame=axis.frame,
            field=part.field,
            telescope=observation.telescope,
            date=first_date(observation),
        )
        place = observation.antenna_positions.mean(axis=0)
        if LOWEST < np.linalg.norm(place) < HIGHEST:
            cards |= {f"OBSGEO-{name}": float(value) for name, value in zip("XYZ", place, strict=True)}
        return cards | axis.cards

    def _history(self) -> list[str]:
        return [
            f"biro {__version__}: spectral cube of the {self.layout.what}",
            f"from {origin_of(self._observation)}",
            f"{self.layout.weighting} weights",
            f"{self.layout.axis}",
        ]


class _Plane(NamedTuple):
    """What a plane is made of: an observation of some of its visibilities, all with weights, their model."""

    observation: Observation
    samples: ImagedVisibilities
    model: Sequence[Model] | None


def _image_of(
    what: Imaged, density: UvDensity | None, imaging: Imaging, plane: _Plane | None
) -> DirtyImage | None:
    if plane is None:
        return None
    imager = Imager(plane.observation, samples=plane.samples, density=density, **vars(imaging))
    return imager.image(what, plane.model)


def _density_of(parts: Sequence[Partition], stokes: str, field: float) -> UvDensity:
    """The density of all visibilities, of which some channels at a time are taken."""
    density, total = UvDensity.empty(parts, field), 0.0
    for part in parts:
        rows, step = np.arange(part.n_row), max(1, BLOCK_VISIBILITIES // max(1, part.n_row * part.n_corr))
        for first in range(0, part.n_chan, step):
            own = cut_out(part, rows, np.arange(part.n_chan)[first : first + step])
            noise = stokes_visibilities(own, own.vis, stokes)[1]
            density.add(own, noise)
            total += float(noise.sum())
    return replace(density, total=total)


def cube_files(prefix: str | os.PathLike[str]) -> list[Path]:
    """Paths of the cube and of its PSF that `Cube.save` writes for a prefix, which may end in ".fits"."""
    return image_files(prefix)[:2]


def _beams(figures: Sequence[PlaneFigures]) -> list[RestoringBeam | None]:
    """The beam of each plane; that of the nearest plane where one is blank.

    Programs ask for a beam for each plane: spectral-cube 0.7 cannot change the unit of an axis without.
    """
    seen = np.array([i for i, plane in enumerate(figures) if plane.n_vis])
    return [figures[int(seen[np.abs(seen - i).argmin()])].beam for i in range(len(figures))]


def _written(
    planes: Iterator[DirtyImage | None], image: CubeFile, psf: CubeFile, layout: CubeLayout, stages: Stages
) -> Iterator[DirtyImage | None]:
    """The planes, each written in a thread while the next is made; two are kept beside those under way."""
    blank = np.full((1, layout.n_pixel, layout.n_pixel), np.nan)
    n_byte = 4 * blank.size * (len(layout.stokes) + 1)

    def write(plane: DirtyImage | None) -> float:
        began = time.perf_counter()
        dirty, lobe = (blank, blank) if plane is None else (plane.dirty, plane.psf[None])
        image.write(np.broadcast_to(dirty, (len(layout.stokes), *blank.shape[1:])))
        psf.write(lobe)
        return time.perf_counter() - began

    def wait(writing: Future[float] | None) -> None:
        if writing is not None:
            stages.add("writing", writing.result(), n_byte, "bytes")

    with ThreadPoolExecutor(1) as writer:
        last: Future[float] | None = None
        for plane in planes:
            if plane is not None:
                stages.include(plane.stages)
            wait(last)
            last = writer.submit(write, plane)
            yield plane
        wait(last)
