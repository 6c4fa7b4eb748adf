"""`biro.image`: a dirty image or a spectral cube of visibilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Unpack, get_args, overload

from biro.choices import Imaged
from biro.display.formatting import given_text
from biro.display.progress import showing
from biro.distributed.remote_data import Model
from biro.errors import InputError
from biro.imaging.dirty_image import DirtyImage
from biro.imaging.imager import Imager, ImagingOptions
from biro.observation.flags import warn_of_reading
from biro.observation.observation import Observation

if TYPE_CHECKING:
    from biro.imaging.cubes.cube import Cube, CubeOptions


@overload
def image(
    observation: Observation,
    what: Imaged = "data",
    *,
    model: Sequence[Model] | None = None,
    cube: Literal[False] = False,
    progress: bool = True,
    **options: Unpack[ImagingOptions],
) -> DirtyImage: ...


@overload
def image(
    observation: Observation,
    what: Imaged = "data",
    *,
    model: Sequence[Model] | None = None,
    cube: Literal[True],
    progress: bool = True,
    **options: Unpack[CubeOptions],
) -> Cube: ...


def image(
    observation: Observation,
    what: Imaged = "data",
    *,
    model: Sequence[Model] | None = None,
    cube: bool = False,
    progress: bool = True,
    **options: object,
) -> DirtyImage | Cube:
    """A dirty image and its point spread function, of all partitions and channels together, or a cube.

        I_D(l, m) = Re sum w V exp(-2 pi i (u l + v m + w' (n - 1)) nu/c) / sum w       (physics: section 2)

    with w the weight of a visibility and w' the third component of uvw, so that a point source of 1 Jy in the
    middle of a pixel is a peak of 1 Jy/beam there, anywhere in the image.

    Parameters
    ----------
    observation : Observation
        Of one phase centre. Processes that share its data (`comm` of `biro.read`) make images of the blocks
        that each has, whose sum is the same to the bit for any number of them; of a cube, whole planes.
    what : "data", "model" or "residual"
        The last is data - model.
    model : sequence of complex (n_row, n_chan, n_corr), Jy, optional
        Model visibilities of each partition, as `Likelihood.predict` or `biro.simulation.predict` gives them.
    cube : bool
        A plane for each channel, or for each group of channels.
    progress : bool
        Show a bar on stderr of what takes longer than two seconds.
    **options
        Fields of `Imaging`: stokes, weighting, robust, cell, size, accuracy, backend, memory_limit. Of a
        cube, also those of `Planes`: frame, channels_per_plane, axis, rest_freq, density; and devices, GPUs
        that share its planes, as of `biro.Likelihood`.

    Returns
    -------
    DirtyImage, or Cube
        Planes of a cube are made when they are asked for, or written.

    Raises
    ------
    InputError
        Several phase centres, correlations without these Stokes parameters, a cell too coarse for the
        longest baseline, or an argument out of its range. Of a cube, also channels that are not equally far
        apart, and a frame that frequencies cannot be turned into.
    """
    if not isinstance(what, str) or what not in get_args(Imaged):
        shown = repr(what) if isinstance(what, str) else given_text(what)
        raise InputError(f"what must be data, model or residual, got {shown}")
    if what != "data" and model is None:
        raise InputError(f"an image of the {what} needs model=, the model visibilities of all partitions")
    warn_of_reading(observation)
    if cube:
        from biro.imaging.cubes.cube import Cube

        return Cube(observation, what, model, progress=progress, **options)  # type: ignore[arg-type]
    with showing(progress):
        return Imager(observation, **options).image(what, model)  # type: ignore[arg-type]
