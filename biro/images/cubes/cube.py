"""Spectral cubes of dirty images: one plane at a time is made, and written while the next is made."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from biro._version import __version__
from biro.data_set.models_of_rows import Model, gathered
from biro.errors import InputError
from biro.feeds.parallactic import HIGHEST, LOWEST
from biro.formatting import check_names
from biro.images.cubes.axis import AxisKind, Planes, factors_of, make_axis
from biro.images.cubes.cube_file import CubeFile, cube_file
from biro.images.cubes.doppler import SpectralFrame
from biro.images.cubes.figures import CubeLayout, PlaneFigures, SavedCube
from biro.images.cubes.interpolation import Cut, Interpolation
from biro.images.dirty_image import DirtyImage, image_files
from biro.images.fits_header import Cards, celestial_axes, image_cards, stokes_axis
from biro.images.imager import (
    FINER,
    Imager,
    Imaging,
    ImagingOptions,
    Samples,
    checked_model,
    choose_pixels,
    default_stokes,
    first_date,
    no_visibility,
    origin_of,
)
from biro.images.pieces import Piece, What
from biro.images.pixels import check_memory, refuse_coarse, single_phase_centre
from biro.images.psf import RestoringBeam
from biro.images.weights import UvDensity
from biro.observation.observation import Observation
from biro.observation.stokes import stokes_planes
from biro.progress import counted
from biro.stages import Stages
from rime_kernels import device
from rime_kernels.engine.device_threads import Devices, HostCPU, threads_of
from rime_kernels.engine.local_shards import Worker

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
    **options
        Fields of `biro.images.imager.Imaging` and of `biro.images.cubes.axis.Planes`; and devices, GPUs of
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
        what: What = "data",
        model: Sequence[Model] | None = None,
        **options: Unpack[CubeOptions],
    ) -> None:
        from rime_kernels.idg import ImageGrid

        given: dict[str, Any] = dict(options)
        devices = given.pop("devices", None)
        of_planes = [item.name for item in fields(Planes)]
        check_names(given, [*(item.name for item in fields(Imaging)), *of_planes, "devices"], "image")
        planes = Planes(**{name: given.pop(name) for name in of_planes if name in given})
        self._imaging = imaging = Imaging(**given)
        self._workers: Sequence[Worker] = [HostCPU()]
        self._n_ahead = 0
        if devices is not None:
            self._workers = threads_of(device.resolve(imaging.backend)[0], devices)
            self._n_ahead = len(self._workers)
        models = checked_model(model, observation.partitions) if what != "data" else None
        pairs = zip(observation.partitions, models or (), strict=models is not None)
        self._model = None if models is None else [gathered(part, each) for part, each in pairs]
        observation = observation.whole("a spectral cube")
        self._observation, parts = observation, observation.partitions
        centre, wanted = single_phase_centre(observation), imaging.stokes or default_stokes(parts)
        stokes, pieces = stokes_planes(wanted), [Piece(part, wanted) for part in parts]
        moments = [piece.moments() for piece in pieces]
        if not any(each.total for each in moments):
            raise no_visibility(wanted)
        cell, n_pixel = choose_pixels(observation, moments, imaging)
        check_memory(n_pixel, len(stokes))
        grid = ImageGrid(n_pixel, cell)
        refuse_coarse([piece.coarse(grid) for piece in pieces], grid, FINER)
        noise = [piece.noise for piece in pieces]
        frame = planes.frame or parts[0].freq_frame
        factors = factors_of(observation, frame)
        axis = make_axis(parts, factors, planes, frame)
        self.layout = CubeLayout(what, stokes, imaging.weighting_text, cell, n_pixel, centre, axis)
        self._interpolation = Interpolation(parts, noise, factors, axis)
        is_shared = planes.density == "cube" and imaging.weighting != "natural"
        self._density = UvDensity.of(parts, noise, n_pixel * cell) if is_shared else None

    def __repr__(self) -> str:
        return f"<Cube {self.layout}; save() writes it>"

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
        n_plane = self.layout.axis.n_plane
        if not 0 <= i_plane < n_plane:
            raise InputError(f"planes are numbered 0 to {n_plane - 1}, got {i_plane}")
        return self._made(i_plane, *self._interpolation.of_plane(i_plane))

    def _made(self, i_plane: int, samples: Samples, cuts: Sequence[Cut]) -> DirtyImage | None:
        """A plane of these visibilities, by what computes for this thread."""
        if not cuts:
            return None
        layout, axis = self.layout, self.layout.axis
        options = vars(self._imaging) | {"cell": layout.cell, "n_pixel": layout.n_pixel}
        imager = Imager(self._observation, samples=samples, density=self._density, **options)
        model = None if self._model is None else [self._model[cut.i_partition][cut.inside] for cut in cuts]
        made = imager.image(layout.what, model)
        return replace(made, freq=float(axis.freq[i_plane]), bandwidth=axis.width, freq_frame=axis.frame)

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
        planes = counted(self._planes(), "imaging", "planes", n_plane)
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

    def _planes(self) -> Iterator[DirtyImage | None]:
        """All planes in their order; devices take them in turn, and one waits for the next device."""
        n_plane, begun = self.layout.axis.n_plane, deque[Future[DirtyImage | None]]()
        for i in range(n_plane):
            work = partial(self._made, i, *self._interpolation.of_plane(i))
            begun.append(self._workers[i % len(self._workers)].submit(work))
            if len(begun) > self._n_ahead:
                yield begun.popleft().result()
        yield from (plane.result() for plane in begun)

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
    """The planes, each written in a thread while the next is made; two are held beside those under way."""
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
