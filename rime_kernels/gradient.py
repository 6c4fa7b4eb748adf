"""The gradient of chi2 with respect to `Sources`, by the chain rule from what an engine computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels.adjoint import Adjoint, of_varied
from rime_kernels.arrays import Sources
from rime_kernels.choices import GaussianFrame
from rime_kernels.deprecation import method_alias
from rime_kernels.jones_beam import JonesBeam
from rime_kernels.physics import phase
from rime_kernels.physics.envelope import pull_projections, unit_axes
from rime_kernels.source_spectra import argument_slopes


@dataclass(frozen=True, eq=False)
class Gradient:
    """Derivatives of chi2 with respect to the arrays of `Sources` and of its beam, in their shapes.

    Those with respect to Q, U and V are 0 where `Sources.polarised` is False. The derivative with respect
    to a flux of 0 is that of the spectrum there.

    Attributes
    ----------
    lm : float64 (n_batch, n_source, 2)
    stokes : float64 (n_batch, n_time or 1, n_source, 4)
    spectral_terms : float64 (n_batch, n_source, 4, n_term)
    shape : float64 (n_batch, n_gaussian + n_profile, 3)
        With respect to emaj, emin, pa; maj, min, pa of profiles.
    beam_scale : float64 (n_batch,), or None without a beam
    pointing : float64 (n_batch, n_time or 1, n_antenna, 2), or None without pointing errors
    turn : float64 (n_batch, n_antenna, 2), or None without `JonesBeam.turn`
    template_scale : float64 (n_batch, n_template), or None
    template_shift : float64 (n_batch, n_template, 2), or None
    scaled_dof : float64 (n_batch,), or None
        With respect to `scaled_dof` of `Rime.chi2`.
    profile : float64 (n_batch, n_profile, 8), or None without profiles
    antenna_terms : complex128 (n_batch, n_time_block, n_antenna, n_chan_block, 2, 2), or None
        With respect to the real part of `AntennaTerms.jones`, plus i times that to the imaginary part. 0 off
        the diagonal where there are templates without all four correlations: A has to stay diagonal there.
    faraday : float64 (n_batch, n_source, 4), or None without Faraday rotation
    """

    lm: NDArray[np.float64]
    stokes: NDArray[np.float64]
    spectral_terms: NDArray[np.float64]
    shape: NDArray[np.float64]
    beam_scale: NDArray[np.float64] | None = None
    pointing: NDArray[np.float64] | None = None
    template_scale: NDArray[np.float64] | None = None
    template_shift: NDArray[np.float64] | None = None
    scaled_dof: NDArray[np.float64] | None = None
    profile: NDArray[np.float64] | None = None
    antenna_terms: NDArray[np.complex128] | None = None
    faraday: NDArray[np.float64] | None = None
    turn: NDArray[np.float64] | None = None

    @classmethod
    def joined(cls, parts: Sequence[Gradient]) -> Gradient:
        """Join the gradients of successive parts of a batch."""
        if len(parts) == 1:
            return parts[0]
        joined: dict[str, Any] = {}  # arrays; None only for fields that may be
        for field in fields(cls):
            columns = [getattr(part, field.name) for part in parts]
            joined[field.name] = None if columns[0] is None else np.concatenate(columns)
        return cls(**joined)

    def entries(self, start: int, stop: int) -> Gradient:
        """The derivatives of the entries start .. stop - 1 of the batch."""
        return self._each(lambda values: values[start:stop])

    def plus(self, other: Gradient) -> Gradient:
        """The sum of both, of the same sources."""
        summed: dict[str, Any] = {  # arrays; None only for fields that may be
            name: None if values is None else values + getattr(other, name)
            for name, values in vars(self).items()
        }
        return Gradient(**summed)

    def times(self, factor: float) -> Gradient:
        """All derivatives times a number."""
        return self._each(lambda values: factor * values)

    def _each(self, function: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> Gradient:
        changed: dict[str, Any] = {  # arrays; None only for fields that may be
            name: None if values is None else function(values) for name, values in vars(self).items()
        }
        return Gradient(**changed)

    def set_nan(self, entries: NDArray[np.bool_]) -> None:
        """Make all derivatives of some entries of the batch NaN."""
        for values in vars(self).values():
            if values is not None:
                values[entries] = np.nan

    spoil = method_alias("Gradient.spoil", set_nan)


class Geometry(NamedTuple):
    """What the derivatives of all partitions with the same sources have in common; float64."""

    direction: NDArray[np.float64]  # (n_batch, n_source, 3): `phase.directions`
    axes: NDArray[np.float64]  # (n_batch, n_shape, 2, 3): `envelope.unit_axes`


def geometry_of(sources: Sources, frame: GaussianFrame) -> Geometry:
    """Directions and axes of sources."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        direction = phase.directions(sources.lm)
        return Geometry(direction, unit_axes(sources.shape, direction[:, sources.n_point :], frame))


def gradient_of(
    adjoint: Adjoint,
    sources: Sources,
    frame: GaussianFrame,
    template_lm: NDArray[np.float64],
    geometry: Geometry | None = None,
) -> Gradient:
    """The chain rule from an engine's sums to the arrays of `Sources`.

    Parameters
    ----------
    adjoint : Adjoint
    sources : Sources
        Where the derivatives were taken.
    frame : "tangent" or "uv"
    template_lm : float64 (n_template, 2)
        Centres of the templates.
    geometry : Geometry, optional
        `geometry_of` the sources, where it is known.
    """
    n_source, n_term = sources.n_source, sources.spectral_terms.shape[3]
    # Loops that make one Stokes parameter of another have all four; nobody asks where Q, U, V are 0.
    n_stokes = adjoint.stokes.shape[3] if sources.polarised else 1
    if sources.varied is not None:
        adjoint = of_varied(adjoint, *sources.varied)
    stokes, terms = np.zeros_like(sources.stokes), np.zeros_like(sources.spectral_terms)
    stokes[..., :n_stokes] = adjoint.stokes[:, :, :n_source, :n_stokes]
    terms[:, :, :n_stokes] = adjoint.spectral_terms[:, :n_source, :n_stokes, :n_term]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        by_scale, by_argument = _of_argument(adjoint.argument[:, :n_source], sources)
        direction, axes = geometry_of(sources, frame) if geometry is None else geometry
        lm = phase.pull_directions(direction, adjoint.direction[:, :n_source])
        lm += by_argument + adjoint.voltage_lm[:, :n_source]
        gaussian = direction[:, sources.n_point :]
        of_projection = adjoint.projection[:, : sources.n_shape]
        shape, by_projection = pull_projections(sources.shape, gaussian, frame, of_projection, axes)
        lm[:, sources.n_point :] += by_projection
        template_scale, template_shift = _of_templates(adjoint.template, sources, template_lm)
    scale = pointing = turn = None
    if sources.beam is not None:
        scale = by_scale + adjoint.beam_scale
        if sources.beam.pointing is not None:
            shape_of_pointing = (sources.n_batch, *sources.beam.pointing.shape[1:])
            pointing = np.broadcast_to(adjoint.pointing[..., :2], shape_of_pointing).copy()
        if isinstance(sources.beam, JonesBeam) and sources.beam.turn is not None:
            shape_of_turn = (sources.n_batch, *sources.beam.turn.shape[1:])
            turn = np.broadcast_to(adjoint.pointing[..., 2:].sum(axis=1), shape_of_turn).copy()
    profile = None if sources.profile is None else adjoint.profile[:, : sources.n_profile]
    faraday = None
    if sources.faraday is not None:
        turned = adjoint.faraday[:, :n_source]
        faraday = turned if turned.size else np.zeros_like(sources.faraday)
    return Gradient(
        lm,
        stokes,
        terms,
        shape,
        scale,
        pointing,
        template_scale,
        template_shift,
        profile=profile,
        faraday=faraday,
        antenna_terms=adjoint.jones,
        turn=turn,
    )


def _of_argument(
    argument: NDArray[np.float64], sources: Sources
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Derivatives with respect to the beam's scale, and to l, m, by way of x = scale nu r."""
    if sources.beam is None:
        return np.zeros(sources.n_batch), np.zeros_like(sources.lm)
    by_scale, by_lm = argument_slopes(sources.beam, sources.lm)
    return np.sum(argument * by_scale, axis=1), argument[..., None] * by_lm


def _of_templates(
    gradient: NDArray[np.float64], sources: Sources, template_lm: NDArray[np.float64]
) -> tuple[NDArray[np.float64] | None, NDArray[np.float64] | None]:
    """Derivatives with respect to scale and shift of templates, from scale and change of l, m, n."""
    if sources.template_scale is None:
        return None, None
    n_template = sources.template_scale.shape[1]
    scale = gradient[:, :n_template, 0].copy()
    if sources.template_shift is None:
        return scale, None
    moved = phase.directions(template_lm + sources.template_shift)
    return scale, phase.pull_directions(moved, gradient[:, :n_template, 1:])
