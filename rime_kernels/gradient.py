"""From derivatives with respect to what the loops read to derivatives with respect to `Sources`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels import beam, brightness, phase
from rime_kernels._adjoint import Adjoint
from rime_kernels._inputs import beam_codes
from rime_kernels._jit import elementwise
from rime_kernels.arrays import Sources
from rime_kernels.envelope import GaussianFrame, pull_projections

_variable, _factor = elementwise(brightness.spectral_variable), elementwise(brightness.spectral_factor)
_factor_slope = elementwise(brightness.spectral_slope)
_voltage, _voltage_slope = elementwise(beam.voltage), elementwise(beam.voltage_slope)


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
    shape : float64 (n_batch, n_gaussian, 3)
        With respect to emaj, emin, pa.
    beam_scale : float64 (n_batch,), or None without a beam
    pointing : float64 (n_batch, n_time or 1, n_antenna, 2), or None without pointing errors
    template_scale : float64 (n_batch, n_template), or None
    template_shift : float64 (n_batch, n_template, 2), or None
    turnover : float64 (n_batch,), or None
        With respect to the turnover of `Rime.chi2`.
    """

    lm: NDArray[np.float64]
    stokes: NDArray[np.float64]
    spectral_terms: NDArray[np.float64]
    shape: NDArray[np.float64]
    beam_scale: NDArray[np.float64] | None = None
    pointing: NDArray[np.float64] | None = None
    template_scale: NDArray[np.float64] | None = None
    template_shift: NDArray[np.float64] | None = None
    turnover: NDArray[np.float64] | None = None

    @classmethod
    def joined(cls, parts: Sequence[Gradient]) -> Gradient:
        """One gradient from those of successive parts of a batch."""
        if len(parts) == 1:
            return parts[0]
        joined: dict[str, Any] = {}
        for field in fields(cls):
            columns = [getattr(part, field.name) for part in parts]
            joined[field.name] = None if columns[0] is None else np.concatenate(columns)
        return cls(**joined)

    def entries(self, start: int, stop: int) -> Gradient:
        """Those of some entries of the batch."""
        return self._each(lambda values: values[start:stop])

    def times(self, factor: float) -> Gradient:
        """All of them times a number."""
        return self._each(lambda values: factor * values)

    def _each(self, function: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> Gradient:
        made: dict[str, Any] = {
            name: None if values is None else function(values) for name, values in vars(self).items()
        }
        return Gradient(**made)

    def spoil(self, entries: NDArray[np.bool_]) -> None:
        """Make all derivatives of some entries of the batch NaN."""
        for values in vars(self).values():
            if values is not None:
                values[entries] = np.nan


def gradient_of(
    adjoint: Adjoint,
    sources: Sources,
    chan_freq: NDArray[np.float64],
    frame: GaussianFrame,
    template_lm: NDArray[np.float64],
) -> Gradient:
    """The chain rule from an engine's sums to the arrays of `Sources`.

    Parameters
    ----------
    adjoint : Adjoint
    sources : Sources
        Where the derivatives were taken.
    chan_freq : float64 (n_chan,), Hz
    frame : "tangent" or "uv"
    template_lm : float64 (n_template, 2)
        Centres of the templates.
    """
    n_source = sources.n_source
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        of_brightness = _of_brightness(adjoint.brightness[:, :, :, :n_source], sources, chan_freq)
        direction = phase.directions(sources.lm)
        lm = phase.pull_directions(direction, adjoint.direction[:, :n_source])
        lm += of_brightness.lm + adjoint.voltage_lm[:, :n_source]
        gaussian = direction[:, sources.n_point :]
        of_projection = adjoint.projection[:, : sources.n_gaussian]
        shape, by_projection = pull_projections(sources.shape, gaussian, frame, of_projection)
        lm[:, sources.n_point :] += by_projection
        template_scale, template_shift = _of_templates(adjoint.template, sources, template_lm)
    scale = pointing = None
    if sources.beam is not None:
        scale = of_brightness.beam_scale + adjoint.beam_scale
        if sources.beam.pointing is not None:
            pointing = np.broadcast_to(adjoint.pointing, sources.beam.pointing.shape).copy()
    return Gradient(
        lm, of_brightness.stokes, of_brightness.spectral_terms, shape, scale, pointing, template_scale,
        template_shift,
    )  # fmt: skip


class _OfBrightness(NamedTuple):
    """Derivatives by way of the brightness at each channel."""

    stokes: NDArray[np.float64]
    spectral_terms: NDArray[np.float64]
    beam_scale: NDArray[np.float64]
    lm: NDArray[np.float64]


def _of_brightness(
    gradient: NDArray[np.float64], sources: Sources, chan_freq: NDArray[np.float64]
) -> _OfBrightness:
    """B = S0 E^2 spectrum: with respect to S0, the spectrum's terms, and E's scale and direction.

    Letters of axes: b(atch), t(ime), c(han), s(ource), k for Stokes, j for terms of the spectrum.
    """
    n_stokes = gradient.shape[4]
    stokes, terms = np.zeros_like(sources.stokes), np.zeros_like(sources.spectral_terms)
    factor, factor_slope, powers = spectra_of(sources, chan_freq, n_stokes)
    voltage, slope = shared_voltage(sources, chan_freq)
    power = (voltage * voltage)[..., None]
    stokes[..., :n_stokes] = np.einsum("btcsk,bcsk->btsk", gradient, factor * power)
    of_factor = np.einsum("btcsk,btsk->bcsk", gradient, sources.stokes[..., :n_stokes])
    of_polynomial = of_factor * power * factor_slope
    of_polynomial = np.where(of_factor == 0.0, 0.0, of_polynomial)  # no flux: whatever the spectrum
    terms[:, :, :n_stokes] = np.einsum("bcsk,jcs->bskj", of_polynomial, powers)
    of_x = 2.0 * voltage * slope * np.sum(of_factor * factor, axis=-1)
    return _OfBrightness(stokes, terms, *_of_argument(of_x, sources, chan_freq))


class Spectra(NamedTuple):
    """S(nu)/S0 = f(p), p = sum over j of term_j x^j."""

    factor: NDArray[np.float64]  # (n_batch, n_chan, n_source, n_stokes): f
    slope: NDArray[np.float64]  # the same shape: df/dp
    powers: NDArray[np.float64]  # (n_term, n_chan, n_source): x^j


def spectra_of(sources: Sources, chan_freq: NDArray[np.float64], n_stokes: int) -> Spectra:
    """The spectra of the first n_stokes Stokes parameters, and what their slopes are made of."""
    n_term, is_log = sources.spectral_terms.shape[3], sources.log_spectrum
    x = _variable(chan_freq[:, None] / sources.ref_freq, is_log)
    powers = x ** np.arange(n_term)[:, None, None]
    polynomial = np.einsum("bskj,jcs->bcsk", sources.spectral_terms[:, :, :n_stokes], powers)
    factor = _factor(polynomial, x[..., None], is_log[:, None])
    return Spectra(factor, _factor_slope(factor, x[..., None], is_log[:, None]), powers)


def shared_voltage(
    sources: Sources, chan_freq: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """E and dE/dx of the beam that all antennas share, (n_batch, n_chan, n_source)."""
    code = beam_codes(sources)[0]
    if sources.beam is None or code == beam.NO_BEAM:
        one = np.ones((1, 1, 1))
        return one, np.zeros_like(one)
    x = np.hypot(sources.lm[..., 0], sources.lm[..., 1])[:, None] * chan_freq[:, None]
    x = sources.beam.scale[:, None, None] * x
    return _voltage(code, x), _voltage_slope(code, x)


def _of_argument(
    of_x: NDArray[np.float64], sources: Sources, chan_freq: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """With respect to the beam's scale, and to l, m, by way of x = scale nu r: `beam.argument_slopes`."""
    if sources.beam is None:
        return np.zeros(sources.n_batch), np.zeros_like(sources.lm)
    r = np.hypot(sources.lm[..., 0], sources.lm[..., 1])
    of_r_per_scale = np.einsum(
        "bcs,c->bs", np.broadcast_to(of_x, (*r.shape[:1], chan_freq.size, r.shape[1])), chan_freq
    )
    outward = sources.lm / np.where(r == 0.0, 1.0, r)[..., None]
    scale = sources.beam.scale[:, None]
    return np.sum(of_r_per_scale * r, axis=1), (scale * of_r_per_scale)[..., None] * outward


def _of_templates(
    gradient: NDArray[np.float64], sources: Sources, template_lm: NDArray[np.float64]
) -> tuple[NDArray[np.float64] | None, NDArray[np.float64] | None]:
    """With respect to scale and shift; from what the loops multiply: scale, change of l, m, n."""
    if sources.template_scale is None:
        return None, None
    n_template = sources.template_scale.shape[1]
    scale = gradient[:, :n_template, 0].copy()
    if sources.template_shift is None:
        return scale, None
    moved = phase.directions(template_lm + sources.template_shift)
    return scale, phase.pull_directions(moved, gradient[:, :n_template, 1:])
