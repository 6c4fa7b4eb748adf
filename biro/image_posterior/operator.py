"""Images to visibilities and back: predictions, adjoint, PSF and dirty images of the residuals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.errors import InputError
from biro.image_posterior.field import ImageField
from biro.imaging.frequency_nodes import lagrange
from biro.imaging.pixels import CoarsePixels, refuse_coarse
from biro.observation.observation import Observation
from biro.observation.partition import Partition
from rime_kernels.choices import Backend, GridderName
from rime_kernels.gridder_choice import make_gridder
from rime_kernels.idg import ImageGrid

if TYPE_CHECKING:
    from biro.image_posterior.primary_beam import PowerPattern
    from rime_kernels.gridding.gridder import Gridder

Array = NDArray[np.float64]
Vis = NDArray[np.complexfloating]
Operator = TypeVar("Operator", bound="ImageOperator")
REMEDY = "give a cell of at most {}, or leave cell out"


@dataclass(frozen=True, eq=False)
class Term:
    """One image of those whose visibilities add up to those of a partition.

    Attributes
    ----------
    mix : float64 (n_freq,)
        Coefficients of the planes at the frequency of this image.
    power : float64 (N, N) or None
        E^2 there.
    channels : float64 (n_chan,)
        Factor of the visibilities of this image in each channel.
    """

    mix: Array
    power: Array | None
    channels: Array

    def image(self, planes: Array) -> Array:
        """What the gridder predicts, (n_stokes, N, N), of planes (n_freq, n_stokes, N, N)."""
        only = np.flatnonzero(self.mix)
        is_plane = len(only) == 1 and self.mix[only[0]] == 1.0
        mixed = planes[only[0]] if is_plane else np.tensordot(self.mix, planes, axes=1)
        return mixed if self.power is None else mixed * self.power

    def add(self, planes: Array, image: Array) -> None:
        """Add the transpose of `image` to planes (n_freq, n_stokes, N, N)."""
        seen = image if self.power is None else image * self.power
        for plane, factor in zip(planes, self.mix, strict=True):
            if factor:
                plane += factor * seen


@dataclass(frozen=True, eq=False)
class Response:
    """R^T W R of the partitions of one pointing: P (psf * P x).

    Attributes
    ----------
    power : float64 (N, N) or None
        E^2 at the middle of the band.
    psf : float64 (2N, 2N), 1/Jy^2
        Not divided; its middle is pixel (N, N).
    """

    power: Array | None
    psf: Array


class ImageOperator:
    """Visibilities R x of images x at the rows of an observation, and the adjoint, by biro's gridders.

    With one plane, x is the same at all frequencies. With planes at `freq`, each channel lies on the
    polynomial through all planes (`biro.image_posterior.planes.choose_frequencies`).

    Parameters
    ----------
    observation : Observation
        In the memory of this process.
    field : ImageField
    freq : float64 (n_freq,), Hz, ascending, optional
        Of the planes of images.
    accuracy : float
        Relative error: see `rime_kernels.make_gridder`.
    engine : "auto", "idg" or "wprojection"
    backend : "auto", "cpu" or "cuda"
    memory_limit : int, str or None
    beams : sequence of PowerPattern, optional
        Beam of each partition, which multiplies images: x is then brightness without a beam.

    Attributes
    ----------
    observation : Observation
    field : ImageField
    freq : float64 (n_freq,) or None
    beams : list of PowerPattern or None
    data : list of complex (n_row, n_chan, n_corr), Jy
        Of each partition, as all visibilities here.
    weights : list of float64 (n_row, n_chan, n_corr), 1/Jy^2
        1/sigma^2 of each real and imaginary part.

    Raises
    ------
    InputError
        Pixels that are too coarse for the longest baseline, or data in other processes.
    """

    def __init__(
        self,
        observation: Observation,
        field: ImageField,
        *,
        freq: ArrayLike | None = None,
        accuracy: float = 1e-6,
        engine: GridderName = "auto",
        backend: Backend = "auto",
        memory_limit: int | str | None = None,
        beams: Sequence[PowerPattern] | None = None,
    ) -> None:
        self.observation = observation.whole("an image that is fitted")
        self.beams = None if beams is None else list(beams)
        self.field = field
        self.freq = None if freq is None else np.asarray(freq, np.float64)
        self._accuracy, self._engine = accuracy, engine
        self._backend, self._memory_limit = backend, memory_limit
        parts = self.observation.partitions
        self.data: list[Vis] = [part.vis for part in parts]
        self.weights: list[Array] = [np.asarray(part.weight, np.float64) for part in parts]
        coarse = [CoarsePixels.of(part.rows, field.grid) for part in parts]
        refuse_coarse(coarse, field.grid, REMEDY)
        self._gridders = [self.gridder_of(part, field.grid) for part in parts]
        self._terms = [
            _terms(part.chan_freq, self.freq, None if beams is None else beams[i])
            for i, part in enumerate(parts)
        ]

    @property
    def plan(self) -> list[str]:
        """How each partition is gridded, in words."""
        return [gridder.plan for gridder in self._gridders]

    @property
    def backend(self) -> str:
        """Where gridders work, "cpu" or "cuda"."""
        return "cuda" if any(gridder.backend == "cuda" for gridder in self._gridders) else "cpu"

    @property
    def plane_axis(self) -> tuple[int, ...]:
        """Length of the axis of planes in front of images; none where there is one plane."""
        return () if self.freq is None else (len(self.freq),)

    @property
    def n_data(self) -> list[int]:
        """Complex samples with a weight, of each partition."""
        return [int(np.count_nonzero(weight)) for weight in self.weights]

    def predict(self, images: ArrayLike) -> list[Vis]:
        """Visibilities of an image, of each partition.

        Parameters
        ----------
        images : float64 (n_stokes, N, N) or (n_freq, n_stokes, N, N), Jy/pixel
            Stokes I, or I, Q, U with V = 0, or I, Q, U, V.

        Returns
        -------
        list of complex (n_row, n_chan, n_corr), Jy
        """
        planes = self._planes(images)
        found: list[Vis] = []
        for part, gridder, terms in zip(
            self.observation.partitions, self._gridders, self._terms, strict=True
        ):
            vis = np.zeros(part.vis.shape, np.complex128)
            for term in terms:
                vis += gridder.predict(term.image(planes)) * term.channels[:, None]
            found.append(vis)
        return found

    def adjoint(self, vis: Sequence[ArrayLike], *, n_stokes: int = 1, weighted: bool = False) -> Array:
        """The image R^T v of visibilities of all partitions, or R^T W v.

        Real inner products agree: <R x, v> = sum of Re(conj(R x) v) is sum of x (R^T v).

        Parameters
        ----------
        vis : sequence of complex (n_row, n_chan, n_corr), Jy
        n_stokes : 1, 3 or 4
        weighted : bool
            Whether the weights W of the data multiply the visibilities.

        Returns
        -------
        float64 (n_stokes, N, N), or (n_freq, n_stokes, N, N) with planes
        """
        n, n_plane = self.field.size, 1 if self.freq is None else len(self.freq)
        n_grid = 1 if n_stokes == 1 else 4
        out = np.zeros((n_plane, n_grid, n, n))
        for values, gridder, terms, weight in zip(
            vis, self._gridders, self._terms, self.weights, strict=True
        ):
            for term in terms:
                given = np.ascontiguousarray(np.asarray(values) * term.channels[:, None])
                term.add(out, gridder.grid(given, weight if weighted else None, n_stokes=n_grid))
        out = out[:, :n_stokes]
        return out[0] if self.freq is None else out

    def residuals(self, model: Sequence[Vis]) -> list[Vis]:
        """Data less a model, of each partition."""
        return [data - vis for data, vis in zip(self.data, model, strict=True)]

    def chi2(self, model: Sequence[Vis]) -> list[float]:
        """Sum of w |D - V|^2 of each partition; its expectation is 2 N for N complex samples."""
        residuals = zip(self.weights, self.residuals(model), strict=True)
        return [float((weight * np.abs(residual) ** 2).sum()) for weight, residual in residuals]

    def absorbed(self, image: Array) -> Array | float:
        """What parameters that are fitted with the image take up of R^T W R x; there are none here."""
        return 0.0

    @cached_property
    def weight_sum(self) -> float:
        """R^T W R at the most sensitive place of the image, 1/Jy^2: what dirty images are divided by."""
        return float(self.psf[self.field.size, self.field.size])

    @cached_property
    def responses(self) -> list[Response]:
        """R^T W R of each pointing: the sum over them of P (psf * P x), as far as w-terms do not count."""
        groups: list[tuple[Array | None, list[int]]] = []
        for i in range(len(self.data)):
            power = None if self.beams is None else self.beams[i].middle
            same = (
                own for other, own in groups if power is None or other is None or np.array_equal(power, other)
            )
            group = next(same, None)
            if group is None:
                groups.append((power, [i]))
            else:
                group.append(i)
        return [Response(power, self._psf_of(group)) for power, group in groups]

    @cached_property
    def sensitivity(self) -> Array | None:
        """R^T W R of a source at each pixel, relative to the largest, float64 (N, N); None without beams."""
        if self.beams is None:
            return None
        n = self.field.size
        found = sum(one.power**2 * one.psf[n, n] for one in self.responses if one.power is not None)
        return np.asarray(found / np.max(found))

    @cached_property
    def psf(self) -> Array:
        """R^T W R of 1 Jy of Stokes I at the most sensitive place, not divided: float64 (2N, 2N).

        Its middle is pixel (N, N). Without beams the convolution with it is R^T W R of the field as far as
        w-terms do not change the PSF across the field.
        """
        if self.sensitivity is None:
            return self.responses[0].psf
        place = np.unravel_index(int(self.sensitivity.argmax()), self.sensitivity.shape)
        terms = [one.power[place] ** 2 * one.psf for one in self.responses if one.power is not None]
        return np.asarray(sum(terms))

    def _psf_of(self, which: Sequence[int]) -> Array:
        """The PSF of some partitions, without their beams."""
        wide = ImageGrid(2 * self.field.size, self.field.cell)
        out = np.zeros((2 * self.field.size, 2 * self.field.size))
        for i in which:
            part = self.observation.partitions[i]
            unit = np.broadcast_to(np.asarray(part.rows.stokes_to_corr)[:, 0], part.vis.shape)
            given = np.ascontiguousarray(unit, np.complex128)
            out += self.gridder_of(part, wide).grid(given, self.weights[i])[0]
        return out

    def dirty(self, vis: Sequence[Vis], *, n_stokes: int = 1) -> Array:
        """The dirty image of visibilities with natural weights, such as residuals, Jy/beam.

        It is of all planes together, float64 (n_stokes, N, N).
        """
        found = self.adjoint(vis, n_stokes=n_stokes, weighted=True) / self.weight_sum
        return np.asarray(found.sum(axis=0)) if self.plane_axis else found

    def _planes(self, images: ArrayLike) -> Array:
        given = np.asarray(images, np.float64)
        n, axis = self.field.size, self.plane_axis
        planes = given if axis or given.ndim != 3 else given[None]
        if planes.ndim != 4 or planes.shape[0] != (*axis, 1)[0] or planes.shape[2:] != (n, n):
            wanted = f"({''.join(f'{length}, ' for length in axis)}n_stokes, {n}, {n})"
            raise InputError(f"images must have shape {wanted}, got {given.shape}")
        if planes.shape[1] == 3:
            return np.concatenate([planes, np.zeros_like(planes[:, :1])], axis=1)
        return planes

    def gridder_of(self, part: Partition, grid: ImageGrid) -> Gridder:
        """A gridder of the rows of a partition for other pixels, with the options of this operator."""
        return make_gridder(
            part.rows,
            grid,
            engine=self._engine,
            accuracy=self._accuracy,
            backend=self._backend,
            memory_limit=self._memory_limit,
        )


def with_data(operator: Operator, data: Sequence[Vis], weights: Sequence[ArrayLike]) -> Operator:
    """An operator of the same rows with other data and weights, as with gains taken out.

    It keeps the PSF where the weights are equal.
    """
    made = object.__new__(type(operator))
    made.__dict__.update(operator.__dict__)
    made.data = list(data)
    made.weights = [np.asarray(weight, np.float64) for weight in weights]
    if not all(np.array_equal(*pair) for pair in zip(made.weights, operator.weights, strict=True)):
        for name in ("psf", "weight_sum", "responses", "sensitivity"):
            made.__dict__.pop(name, None)
    parts = zip(operator.observation.partitions, made.data, made.weights, strict=True)
    made.observation = replace(
        operator.observation,
        partitions=tuple(replace(part, vis=vis, weight=weight) for part, vis, weight in parts),
    )
    return made


def _terms(chan_freq: Array, freq: Array | None, beam: PowerPattern | None) -> list[Term]:
    """The images that a partition is the sum of."""
    if beam is not None:
        mixes = np.ones((len(beam.freq), 1)) if freq is None else lagrange(beam.freq, freq)
        rows = zip(mixes, beam.power, beam.coefficient, strict=True)
        return [Term(mix, power, channels) for mix, power, channels in rows]
    if freq is None:
        return [Term(np.ones(1), None, np.ones(len(chan_freq)))]
    hats = lagrange(chan_freq, freq).T
    return [Term(row, None, hat) for row, hat in zip(np.eye(len(freq)), hats, strict=True) if hat.any()]
