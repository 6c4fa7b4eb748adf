"""Spectra of lists of sources, times the beam that all antennas share, and the derivatives of both."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels.arrays import Sources
from rime_kernels.compile.jit import elementwise
from rime_kernels.inputs import beam_codes
from rime_kernels.physics import beam, brightness

_variable, _factor = elementwise(brightness.spectral_variable), elementwise(brightness.spectral_factor)
_factor_slope = elementwise(brightness.spectral_slope)
_voltage, _voltage_slope = elementwise(beam.voltage), elementwise(beam.voltage_slope)


class Spectra(NamedTuple):
    """S(nu)/S0 = f(p), p = sum over j of term_j x^j."""

    factor: NDArray[np.float64]  # (n_batch, n_chan, n_source, n_stokes): f
    slope: NDArray[np.float64]  # the same shape: df/dp
    powers: NDArray[np.float64]  # (n_term, n_chan, n_source): x^j


def spectra_of(sources: Sources, chan_freq: NDArray[np.float64], n_stokes: int) -> Spectra:
    """The spectra of the first n_stokes Stokes parameters, and what their slopes are made of."""
    n_term, is_log = sources.spectral_terms.shape[3], sources.log_spectrum
    x: NDArray[np.float64] = _variable(chan_freq[:, None] / sources.ref_freq, is_log)
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


def pull_brightness(
    gradient: NDArray[np.float64], sources: Sources, chan_freq: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The derivatives by way of B = S0 E^2 spectrum of what has this one with respect to B.

    Letters of axes: b(atch), t(ime), c(han), s(ource), k for Stokes, j for terms of the spectrum.

    Parameters
    ----------
    gradient : float64 (n_batch, n_time or 1, n_chan, n_source, n_stokes)
    sources : Sources
    chan_freq : float64 (n_chan,), Hz

    Returns
    -------
    float64 (n_batch, n_time or 1, n_source, n_stokes)
        With respect to S0.
    float64 (n_batch, n_source, n_stokes, n_term)
        With respect to the terms of the spectrum.
    float64 (n_batch, n_source)
        `Adjoint.argument`.
    """
    n_stokes = gradient.shape[4]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        factor, factor_slope, powers = spectra_of(sources, chan_freq, n_stokes)
        voltage, slope = shared_voltage(sources, chan_freq)
        power = (voltage * voltage)[..., None]
        stokes = np.einsum("btcsk,bcsk->btsk", gradient, factor * power)
        of_factor = np.einsum("btcsk,btsk->bcsk", gradient, sources.stokes[..., :n_stokes])
        # No flux: whatever the spectrum.
        of_polynomial = np.where(of_factor == 0.0, 0.0, of_factor * power * factor_slope)
        terms = np.einsum("bcsk,jcs->bskj", of_polynomial, powers)
        of_x = 2.0 * voltage * slope * np.where(of_factor == 0.0, 0.0, of_factor * factor).sum(axis=-1)
        return stokes, terms, np.einsum("bcs,c->bs", of_x, chan_freq)
