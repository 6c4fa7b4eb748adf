"""`predict`: visibilities of one sky that is given as plain arrays, without data or parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rime_kernels import check
from rime_kernels.arrays import Beam, Rows, Sources
from rime_kernels.choices import Backend, Convention, GaussianFrame, Precision
from rime_kernels.errors import InputError
from rime_kernels.jones_beam import JonesBeam
from rime_kernels.physics.brightness import stokes_to_corr
from rime_kernels.rime import Rime
from rime_kernels.smearing.smearing import Smearing

_FEEDS = {"linear": ("XX", "XY", "YX", "YY"), "circular": ("RR", "RL", "LR", "LL")}


@dataclass(frozen=True, eq=False)
class Spectrum:
    """How brightness changes with frequency (physics: section 4).

    Attributes
    ----------
    ref_freq : float or float64 (n_source,), Hz
        Where `stokes` is given.
    terms : float64 (n_source, n_term) or (n_source, 4, n_term)
        a0, a1, ... of (nu/nu0)^(a0 + a1 ln(nu/nu0) + ...); or, without `log`, c1, c2, ... of
        1 + c1 (nu/nu0 - 1) + c2 (nu/nu0 - 1)^2 + ...; the same for all Stokes, or for each.
    log : bool or bool (n_source,)
    """

    ref_freq: ArrayLike
    terms: ArrayLike
    log: ArrayLike = True


@dataclass(frozen=True, eq=False)
class Antennas:
    """Which antennas and time each row belongs to.

    Attributes
    ----------
    antenna1, antenna2 : int (n_row,)
    time : float64 (n_row,), s, optional
        Rows of equal time share a slot; without it all rows are of one time.
    """

    antenna1: ArrayLike
    antenna2: ArrayLike
    time: ArrayLike | None = None


@dataclass(frozen=True)
class Options:
    """How to compute; see `Rime`.

    Attributes
    ----------
    backend : "auto", "cpu" or "cuda"
    precision : "double" or "single"
    form : "auto", "factored" or "row"
    gaussian_frame : "tangent" or "uv"
    """

    backend: Backend = "auto"
    precision: Precision = "double"
    form: str = "auto"
    gaussian_frame: GaussianFrame = "tangent"


def predict(
    uvw: ArrayLike,
    chan_freq: ArrayLike,
    lm: ArrayLike,
    stokes: ArrayLike,
    *,
    spectrum: Spectrum | None = None,
    shape: ArrayLike | None = None,
    beam: Beam | JonesBeam | None = None,
    antennas: Antennas | None = None,
    corr: str | Sequence[str] = "linear",
    convention: Convention = "casa",
    smearing: Smearing | None = None,
    options: Options | None = None,
) -> NDArray[np.complexfloating]:
    """Visibilities of point and Gaussian sources.

        V = sum over sources of B(nu) envelope exp(+2 pi i (u l + v m + w (n - 1)) nu / c)

    (physics: sections 1 to 6). Antennas make it faster, and are needed for pointing errors and for
    brightness that changes in time; without them each row's own phase is computed.

    Parameters
    ----------
    uvw : float64 (n_row, 3), m
    chan_freq : float64 (n_chan,), Hz
    lm : float64 (n_source, 2)
        Direction cosines east and north of the phase centre.
    stokes : float64 (n_source, 4) or (n_time, n_source, 4), Jy
        I, Q, U, V of any sign, constant or per time slot (sorted distinct times).
    spectrum : Spectrum, optional
        Flat without it.
    shape : float64 (n_source, 3), rad, optional
        Gaussian FWHM axes emaj >= emin, and position angle from north through east; a source with
        emaj = 0 is a point, and so is every source without it.
    beam : Beam or JonesBeam, optional
        With one batch entry: `scale` of shape (1,), `pointing` of (1, n_time or 1, n_antenna, 2).
    antennas : Antennas, optional
    corr : "linear", "circular", or sequence of str
        Correlations wanted: XX XY YX YY, RR RL LR LL, or any list of names, "I" to "V" included.
    convention : "casa" or "fourier"
        Sign of the exponent: + or -.
    smearing : Smearing, optional
        Visibilities are averages over integrations and channels.
    options : Options, optional
        Backend, precision, form, frame of the Gaussians.

    Returns
    -------
    complex128, or complex64 in single precision (n_row, n_chan, n_corr), Jy

    Raises
    ------
    InputError
        An array of another shape, an unknown word, or a value out of range.
    BackendError
        `Options(backend="cuda")` without a device.

    Examples
    --------
    A source of 2 Jy, 0.001 rad east of the phase centre, on one baseline of 100 m:

    >>> import numpy as np
    >>> import rime_kernels
    >>> uvw = np.array([[100.0, 0.0, 0.0]])
    >>> chan_freq = np.array([1.0e9, 1.4e9])
    >>> lm, stokes = [[1e-3, 0.0]], [[2.0, 0.0, 0.0, 0.0]]
    >>> vis = rime_kernels.predict(uvw, chan_freq, lm, stokes, corr=["XX"])
    >>> vis.shape
    (1, 2, 1)
    >>> turns = 100.0 * 1e-3 * chan_freq / 299792458.0
    >>> np.allclose(vis[0, :, 0], 2.0 * np.exp(2j * np.pi * turns))
    True
    """
    check.one_of("convention", convention, ("casa", "fourier"))
    baselines = check.array("uvw", uvw, np.float64, ("row", 3))
    sign = 1.0 if convention == "casa" else -1.0
    rows = _rows(sign * baselines, chan_freq, antennas, corr)
    sources = _sources(lm, stokes, spectrum, shape, beam)
    chosen = options or Options()
    if antennas is None:
        chosen = _without_antennas(sources, chosen)
    return _rime(rows, sources, smearing, chosen).predict(sources)[0]


def _rime(rows: Rows, sources: Sources, smearing: Smearing | None, options: Options) -> Rime:
    return Rime(
        rows,
        backend=options.backend,
        precision=options.precision,
        form=options.form,
        gaussian_frame=options.gaussian_frame,
        extent=float(np.abs(sources.lm).max(initial=0.0)),
        smearing=smearing,
    )


def _rows(
    uvw: NDArray[np.float64], chan_freq: ArrayLike, antennas: Antennas | None, corr: str | Sequence[str]
) -> Rows:
    if isinstance(corr, str):
        check.one_of("corr", corr, tuple(_FEEDS))
        corr = _FEEDS[corr]
    zeros = np.zeros(len(uvw), np.int32)
    first, second, time = zeros, zeros, None
    if antennas is not None:
        first, second, time = (np.asarray(x) for x in (antennas.antenna1, antennas.antenna2, antennas.time))
    times = zeros if antennas is None or antennas.time is None else time
    return Rows.from_columns(uvw, first, second, np.asarray(times), chan_freq, stokes_to_corr(corr))


def _without_antennas(sources: Sources, options: Options) -> Options:
    """The row form, once nothing needs antennas."""
    if options.form == "factored":
        raise InputError('form="factored" needs antennas=Antennas(antenna1, antenna2, time)')
    if isinstance(sources.beam, JonesBeam):
        raise InputError("beams of Jones matrices need antennas=Antennas(antenna1, antenna2, time)")
    if sources.beam is not None and sources.beam.pointing is not None:
        raise InputError("pointing errors need antennas=Antennas(antenna1, antenna2, time)")
    return replace(options, form="row")


def _sources(
    lm: ArrayLike,
    stokes: ArrayLike,
    spectrum: Spectrum | None,
    shape: ArrayLike | None,
    beam: Beam | JonesBeam | None,
) -> Sources:
    """The sky as a batch of one, points before Gaussians."""
    sizes: dict[str, int] = {}
    directions = check.array("lm", lm, np.float64, ("source", 2), sizes)
    per_time = ("time", "source", 4) if np.ndim(stokes) == 3 else ("source", 4)
    flux = check.array("stokes", stokes, np.float64, per_time, sizes)
    axes = _shape(shape, sizes)
    for name, value in (("lm", directions), ("stokes", flux), ("shape", axes)):
        check.finite(name, value)
    ref_freq, terms, is_log = _spectrum(spectrum, sizes)
    is_gaussian = axes[:, 0] > 0.0
    order = np.argsort(is_gaussian, kind="stable")
    if isinstance(beam, JonesBeam) and beam.applies is not None:
        beam.check_batch(1, len(order))
        beam = replace(beam, applies=beam.applies[order])
    return Sources(
        directions[None, order],
        flux.reshape(1, -1, sizes["source"], 4)[:, :, order],
        ref_freq[order],
        terms[None, order],
        is_log[order],
        axes[None, is_gaussian],
        beam,
    )


def _shape(shape: ArrayLike | None, sizes: dict[str, int]) -> NDArray[np.float64]:
    axes = check.array(
        "shape", np.zeros((sizes["source"], 3)) if shape is None else shape, np.float64, ("source", 3), sizes
    )
    bad = np.flatnonzero(~(axes[:, 0] >= axes[:, 1]) | (axes[:, 1] < 0.0))
    if bad.size:
        emaj, emin, _ = axes[bad[0]]
        raise InputError(f"shape needs emaj >= emin >= 0 (rad), got {emaj:g}, {emin:g} for source {bad[0]}")
    return axes


def _spectrum(
    spectrum: Spectrum | None, sizes: dict[str, int]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """ref_freq (n_source,), terms (n_source, 4, n_term), log (n_source,)."""
    n_source = sizes["source"]
    spectrum = spectrum or Spectrum(1.0, np.zeros((n_source, 0)))
    per_source: tuple[int | str, ...] = ("source",)
    ref_freq = _spread(spectrum.ref_freq, n_source)
    is_log = _spread(spectrum.log, n_source)
    per_stokes = np.ndim(spectrum.terms) == 3
    axes = ("source", 4, "term") if per_stokes else ("source", "term")
    terms = check.array("spectrum.terms", spectrum.terms, np.float64, axes, sizes)
    check.finite("spectrum.terms", terms)
    if not per_stokes:
        terms = np.repeat(terms[:, None, :], 4, axis=1)
    return (
        check.array("spectrum.ref_freq", ref_freq, np.float64, per_source, sizes),
        terms,
        check.array("spectrum.log", is_log, np.bool_, per_source, sizes),
    )


def _spread(value: ArrayLike, n_source: int) -> NDArray[np.generic]:
    """A number for all sources, or one for each."""
    return np.full(n_source, value) if np.ndim(value) == 0 else np.asarray(value)
