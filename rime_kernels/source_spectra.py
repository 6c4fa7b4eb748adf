"""Spectra of lists of sources, times the beam that all antennas share, and the derivatives of both."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels.arrays import Beam, Sources
from rime_kernels.compile.jit import elementwise, serial_loop
from rime_kernels.inputs import beam_codes, forms_of
from rime_kernels.jones_beam import JonesBeam
from rime_kernels.physics import beam, brightness, form_codes, phase, spectral_forms

_variable, _factor = elementwise(brightness.spectral_variable), elementwise(brightness.spectral_factor)
_factor_slope = elementwise(brightness.spectral_slope)
_voltage, _voltage_slope = elementwise(beam.voltage), elementwise(beam.voltage_slope)
# Names that the compiled functions see: an attribute of a module would not be part of the cache.
_N_OWN, _is_table, _form_slopes = form_codes.N_OWN, spectral_forms.is_table, spectral_forms.form_slopes
_first_term, _log_power = spectral_forms.first_term, spectral_forms.log_power
_faraday, _faraday_slopes, _C = brightness.faraday, brightness.faraday_slopes, phase.SPEED_OF_LIGHT


class Spectra(NamedTuple):
    """S(nu)/S0 = f(p), p = sum over j of term_j x^j; of other forms the derivatives by each term."""

    factor: NDArray[np.float64]  # (n_batch, n_chan, n_source, n_stokes): f
    slope: NDArray[np.float64]  # the same shape: df/dp; 0 for sources of other forms
    powers: NDArray[np.float64]  # (n_term, n_chan, n_source): x^j
    others: NDArray[np.int64]  # (n_other,): sources of other forms, `spectral_forms`
    by_term: NDArray[np.float64]  # (n_batch, n_chan, n_other, n_stokes, n_term)


def spectra_of(sources: Sources, chan_freq: NDArray[np.float64], n_stokes: int) -> Spectra:
    """The spectra of the first n_stokes Stokes parameters, and what their slopes are made of."""
    n_term, is_log = sources.spectral_terms.shape[3], sources.log_spectrum
    x: NDArray[np.float64] = _variable(chan_freq[:, None] / sources.ref_freq, is_log)
    powers = x ** np.arange(n_term)[:, None, None]
    polynomial = np.einsum("bskj,jcs->bcsk", sources.spectral_terms[:, :, :n_stokes], powers)
    factor = _factor(polynomial, x[..., None], is_log[:, None])
    slope, forms = _factor_slope(factor, x[..., None], is_log[:, None]), forms_of(sources)
    others = np.flatnonzero(forms > form_codes.POWER_LAW)
    by_term = np.zeros((*factor.shape[:2], others.size, n_stokes, n_term))
    if others.size:
        of_others = np.zeros(by_term.shape[:-1])
        terms = np.ascontiguousarray(sources.spectral_terms[:, others, :n_stokes])
        _fill_forms(forms[others], chan_freq, sources.ref_freq[others], terms, of_others, by_term)
        factor[:, :, others], slope[:, :, others] = of_others, 0.0
    return Spectra(factor, slope, powers, others, by_term)


@serial_loop
def _fill_forms(
    forms: NDArray[np.float64], chan_freq: NDArray[np.float64], ref_freq: NDArray[np.float64],
    terms: NDArray[np.float64], factor: NDArray[np.float64], by_term: NDArray[np.float64],
) -> None:  # fmt: skip
    """Spectra (n_batch, n_chan, n_source, n_stokes) of other forms, and derivatives by their terms."""
    n_batch, n_chan, n_source, n_stokes, n_term = by_term.shape
    for b in range(n_batch):
        for s in range(n_source):
            form = forms[s]
            for c in range(n_chan):
                nu, x = chan_freq[c], math.log(chan_freq[c] / ref_freq[s])
                for k in range(n_stokes):
                    mine, out = terms[b, s, k], by_term[b, c, s, k]
                    first, power = _first_term(form, nu, mine), math.exp(_log_power(form, x, mine))
                    value, by_power, out[first], out[first + 1], out[first + 2], out[first + 3] = (
                        _form_slopes(
                            form, nu, power, mine[first], mine[first + 1], mine[first + 2], mine[first + 3]
                        )
                    )
                    factor[b, c, s, k] = value
                    if not _is_table(form):
                        for j in range(_N_OWN, n_term):
                            by_power *= x
                            out[j] = by_power


class Rotation(NamedTuple):
    """Faraday rotation and depolarisation of Q + iU: `brightness.faraday`."""

    factor: NDArray[np.complex128]  # (n_batch, n_chan, n_source)
    slopes: NDArray[np.complex128]  # (4, n_batch, n_chan, n_source): by RM, lambda0^2, slab, sigma


def rotation_of(sources: Sources, chan_freq: NDArray[np.float64]) -> Rotation | None:
    """The rotation of all sources; None where there is none."""
    if sources.faraday is None or not sources.polarised:
        return None
    out = np.empty((5, sources.n_batch, chan_freq.size, sources.n_source), np.complex128)
    _fill_rotation(chan_freq, np.ascontiguousarray(sources.faraday), out)
    return Rotation(out[0], out[1:])


@serial_loop
def _fill_rotation(
    chan_freq: NDArray[np.float64], faraday: NDArray[np.float64], out: NDArray[np.complex128]
) -> None:
    """The factor, and its four derivatives, (5, n_batch, n_chan, n_source)."""
    for b in range(out.shape[1]):
        for c in range(out.shape[2]):
            wave2 = (_C / chan_freq[c]) ** 2
            for s in range(out.shape[3]):
                rm, wave2_0, slab, sigma = (
                    faraday[b, s, 0],
                    faraday[b, s, 1],
                    faraday[b, s, 2],
                    faraday[b, s, 3],
                )
                re, im = _faraday(wave2, rm, wave2_0, slab, sigma)
                a, b_a, d, b_d, e, b_e, f, b_f = _faraday_slopes(wave2, rm, wave2_0, slab, sigma)
                out[0, b, c, s], out[1, b, c, s] = complex(re, im), complex(a, b_a)
                out[2, b, c, s], out[3, b, c, s] = complex(d, b_d), complex(e, b_e)
                out[4, b, c, s] = complex(f, b_f)


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


def argument_slopes(
    antenna_beam: Beam | JonesBeam, lm: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The derivatives of x / nu, x = scale nu r of the beam that all antennas share (`beam.argument_slopes`).

    By the scale, float64 (n_batch, n_source), and by l, m, float64 (n_batch, n_source, 2).
    """
    r = np.hypot(lm[..., 0], lm[..., 1])
    outward = lm / np.where(r == 0.0, 1.0, r)[..., None]
    return r, antenna_beam.scale[:, None, None] * outward


class BrightnessAdjoint(NamedTuple):
    """Derivatives by way of the brightness, as `Adjoint` has them; float64."""

    stokes: NDArray[np.float64]  # (n_batch, n_time or 1, n_source, n_stokes): with respect to S0
    spectral_terms: NDArray[np.float64]  # (n_batch, n_source, n_stokes, n_term)
    argument: NDArray[np.float64]  # (n_batch, n_source): `Adjoint.argument`
    faraday: NDArray[np.float64]  # (n_batch, n_source, 4); (n_batch, 0, 4) where nothing turns


def pull_brightness(
    gradient: NDArray[np.float64], sources: Sources, chan_freq: NDArray[np.float64]
) -> BrightnessAdjoint:
    """The derivatives by way of B = S0 E^2 spectrum of what has this one with respect to B.

    Where Q and U are turned, by way of what is turned first.

    Letters of axes: b(atch), t(ime), c(han), s(ource), k for Stokes, j for terms of the spectrum.

    Parameters
    ----------
    gradient : float64 (n_batch, n_time or 1, n_chan, n_source, n_stokes)
    sources : Sources
    chan_freq : float64 (n_chan,), Hz
    """
    n_stokes = gradient.shape[4]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        factor, factor_slope, powers, others, by_term = spectra_of(sources, chan_freq, n_stokes)
        voltage, slope = shared_voltage(sources, chan_freq)
        power = (voltage * voltage)[..., None]
        rotation, faraday = rotation_of(sources, chan_freq), np.zeros((sources.n_batch, 0, 4))
        if rotation is not None:
            faraday = _pull_rotation(gradient, sources, factor * power, rotation)
            gradient = _turned_back(gradient, rotation.factor)
        stokes = np.einsum("btcsk,bcsk->btsk", gradient, factor * power)
        of_factor = np.einsum("btcsk,btsk->bcsk", gradient, sources.stokes[..., :n_stokes])
        # No flux: whatever the spectrum.
        of_polynomial = np.where(of_factor == 0.0, 0.0, of_factor * power * factor_slope)
        terms = np.einsum("bcsk,jcs->bskj", of_polynomial, powers)
        if others.size:
            of_others = (of_factor * power)[:, :, others, :, None]
            terms[:, others] = np.sum(np.where(of_others == 0.0, 0.0, of_others * by_term), axis=1)
        of_x = 2.0 * voltage * slope * np.where(of_factor == 0.0, 0.0, of_factor * factor).sum(axis=-1)
        return BrightnessAdjoint(stokes, terms, np.einsum("bcs,c->bs", of_x, chan_freq), faraday)


def _turned_back(gradient: NDArray[np.float64], factor: NDArray[np.complex128]) -> NDArray[np.float64]:
    """Derivatives by Q and U before they are turned, from those after: the conjugate factor."""
    back = (gradient[..., 1] + 1j * gradient[..., 2]) * np.conj(factor)[:, None]
    return np.stack([gradient[..., 0], back.real, back.imag, gradient[..., 3]], axis=-1)


def _pull_rotation(
    gradient: NDArray[np.float64], sources: Sources, factor: NDArray[np.float64], rotation: Rotation
) -> NDArray[np.float64]:
    """Derivatives by `Sources.faraday`, (n_batch, n_source, 4): Re of conj(gradient) d(factor) (Q + iU)."""
    conjugate = gradient[..., 1] - 1j * gradient[..., 2]
    product = np.zeros(rotation.factor.shape, np.complex128)
    for k, unit in ((1, 1.0), (2, 1j)):
        of_factor = np.einsum("btcs,bts->bcs", conjugate, sources.stokes[..., k])
        product += unit * np.where(of_factor == 0.0, 0.0, of_factor * factor[..., k])
    return np.einsum("bcs,jbcs->bsj", product, rotation.slopes).real
