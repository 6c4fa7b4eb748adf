"""The measurement equation as a plain sum in float64: the reference that the fast code is tested against.

For a row (antennas p and q at one time) and a channel of frequency nu, `visibilities` is

    V_pq(nu) = sum over sources of  E_p  E_q  K_pq  envelope_pq  B

    K         phase_term           exp(+2 pi i (u l + v m + w (n - 1)) nu/c)        conventions, section 2
    B         corr_of_stokes       Stokes parameters, mapped to correlations        section 3
              spectrum             how each Stokes parameter changes with nu        section 4
              faraday_factor       how Q and U turn into each other                 section 4
    envelope  gaussian_envelope    1 for a point source                             section 5
              PROFILES             any other shape                                  section 5
    E         voltage_beam         of each antenna, 1 without a beam                section 6
              spline_beam          or a 2x2 matrix, with P: E_p P_p B P_q^H E_q^H   section 6

`seen_through_antennas` is A_p V_pq A_q^H with Jones matrices A of the antennas (section 6),
and `chi2` is sum w |V - D|^2 over rows, channels and correlations (section 7). Sections are those of
docs/conventions.md. Nothing here uses code of `rime_kernels`; rows and sources are its plain records.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import romb
from scipy.interpolate import BSpline
from scipy.optimize import brentq
from scipy.spatial.transform import Rotation
from scipy.special import j0, j1

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rime_kernels import Smearing
    from rime_kernels.arrays import AntennaTerms, Beam, Rows, Sources
    from rime_kernels.idg import ImageGrid
    from rime_kernels.jones_beam import JonesBeam

SPEED_OF_LIGHT = 299792458.0
EARTH_RATE = 7.2921158553e-5
# What each correlation has of I, Q, U and V.
OF_STOKES = {
    "I": (1, 0, 0, 0), "Q": (0, 1, 0, 0), "U": (0, 0, 1, 0), "V": (0, 0, 0, 1),
    "XX": (1, 1, 0, 0), "XY": (0, 0, 1, 1j), "YX": (0, 0, 1, -1j), "YY": (1, -1, 0, 0),
    "RR": (1, 0, 0, 1), "RL": (0, 1, 1j, 0), "LR": (0, 1, -1j, 0), "LL": (1, 0, 0, -1),
}  # fmt: skip
# A cubic B-spline about 0, NaN beyond its four pieces.
SPLINE = BSpline.basis_element(np.arange(-2.0, 3.0), extrapolate=False)


# ---- the measurement equation


def visibilities(
    rows: Rows, corr_type: Sequence[str], sources: Sources, frame: str = "tangent"
) -> NDArray[np.complex128]:
    """Sum over all sources: (n_batch, n_row, n_chan, n_corr)."""
    vis = np.zeros((sources.n_batch, rows.n_row, rows.n_chan, len(corr_type)), complex)
    if sources.antenna_terms is not None:
        return seen_through_antennas(rows, corr_type, sources, frame)
    for b in range(sources.n_batch):
        for s in range(sources.n_source):
            for c, nu in enumerate(rows.chan_freq):
                term = phase_term(rows.uvw, sources.lm[b, s], nu)
                if s >= sources.n_point:
                    term = term * _envelope(rows, sources, b, s, nu, frame)
                if hasattr(sources.beam, "coefficient"):
                    seen = _seen_through_beam(rows, corr_type, sources, b, s, c)
                    vis[b, :, c] += term[:, None] * seen
                    continue
                if sources.beam is not None:
                    for antenna in (rows.antenna1, rows.antenna2):
                        term = term * _voltage(rows, sources.beam, b, sources.lm[b, s], antenna, nu)
                vis[b, :, c] += term[:, None] * _brightness(rows, corr_type, sources, b, s, nu)
    return vis


def chi2(
    rows: Rows,
    corr_type: Sequence[str],
    sources: Sources,
    vis: NDArray[np.complex128],
    weight: NDArray[np.float64],
    frame: str = "tangent",
    template: NDArray[np.complex128] | None = None,
    template_lm: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """sum w |V - D|^2 of each entry of the batch, with templates where they are given: (n_batch,)."""
    if sources.antenna_terms is not None:
        model = seen_through_antennas(rows, corr_type, sources, frame, template, template_lm)
    else:
        model = visibilities(rows, corr_type, sources, frame)
        if template is not None:
            assert template_lm is not None
            model = model + moved_templates(rows, sources, template, template_lm)
    chi2: NDArray[np.float64] = np.sum(weight * np.abs(model - vis) ** 2, axis=(1, 2, 3))
    return chi2


def moved_templates(
    rows: Rows, sources: Sources, template: NDArray[np.complex128], template_lm: NDArray[np.float64]
) -> NDArray[np.complex128]:
    """Templates times their scales, and times the phase by which their centres move: as `visibilities`."""
    assert sources.template_scale is not None
    vis = np.zeros((sources.n_batch, *template.shape[1:]), complex)
    for t in range(len(template)):
        for b in range(sources.n_batch):
            shift = np.zeros(2) if sources.template_shift is None else sources.template_shift[b, t]
            for c, nu in enumerate(rows.chan_freq):
                turn = phase_term(rows.uvw, template_lm[t] + shift, nu)
                turn = turn * np.conj(phase_term(rows.uvw, template_lm[t], nu))
                vis[b, :, c] += sources.template_scale[b, t] * turn[:, None] * template[t, :, c]
    return vis


def seen_through_antennas(
    rows: Rows,
    corr_type: Sequence[str],
    sources: Sources,
    frame: str = "tangent",
    template: NDArray[np.complex128] | None = None,
    template_lm: NDArray[np.float64] | None = None,
) -> NDArray[np.complex128]:
    """V_pq = A_p X_pq A_q^H with the Jones matrices of `sources.antenna_terms`: as `visibilities`."""
    assert sources.antenna_terms is not None
    full = before_antennas(rows, corr_type, sources, frame, template, template_lm)
    return through_antennas(rows, corr_type, sources.antenna_terms, full)


def before_antennas(
    rows: Rows,
    corr_type: Sequence[str],
    sources: Sources,
    frame: str = "tangent",
    template: NDArray[np.complex128] | None = None,
    template_lm: NDArray[np.float64] | None = None,
) -> NDArray[np.complex128]:
    """X of all sources and templates, (n_batch, n_row, n_chan, 4), rows of its matrices for the feeds of p.

    0 where a template has no such correlation.
    """
    feeds, element = _feeds(corr_type)
    full = visibilities(rows, feeds, replace(sources, antenna_terms=None), frame)
    if template is not None:
        assert template_lm is not None
        full[..., element] += moved_templates(rows, sources, template, template_lm)
    return full


def through_antennas(
    rows: Rows, corr_type: Sequence[str], terms: AntennaTerms, full: NDArray[np.complex128]
) -> NDArray[np.complex128]:
    """A_p X A_q^H of X from `before_antennas`: (n_batch, n_row, n_chan, n_corr)."""
    time = terms.time_block[rows.time_index][:, None]
    a_p = terms.jones[:, time, rows.antenna1[:, None], terms.chan_block]
    a_q = terms.jones[:, time, rows.antenna2[:, None], terms.chan_block]
    seen = a_p @ full.reshape(*full.shape[:3], 2, 2) @ np.conj(np.swapaxes(a_q, -1, -2))
    return seen.reshape(full.shape)[..., _feeds(corr_type)[1]]


def _feeds(corr_type: Sequence[str]) -> tuple[list[str], list[int]]:
    """All correlations of the feeds, and which of them these are."""
    circular = corr_type[0] in ("RR", "RL", "LR", "LL")
    feeds = ["RR", "RL", "LR", "LL"] if circular else ["XX", "XY", "YX", "YY"]
    return feeds, [feeds.index(name) for name in corr_type]


# ---- its terms


def phase_term(uvw: NDArray[np.float64], lm: Sequence[float], nu: float) -> NDArray[np.complex128]:
    """K = exp(+2 pi i (u l + v m + w (n - 1)) nu/c) of each row."""
    l, m = lm
    n = np.sqrt(1.0 - l * l - m * m)
    turns = (uvw[:, 0] * l + uvw[:, 1] * m - uvw[:, 2] * (l * l + m * m) / (1.0 + n)) * nu / SPEED_OF_LIGHT
    return np.exp(2j * np.pi * (turns - np.rint(turns)))


def corr_of_stokes(corr_type: Sequence[str], stokes: NDArray[np.float64]) -> NDArray[np.complex128]:
    """Correlations (..., n_corr) of I, Q, U, V (..., 4)."""
    return stokes @ np.array([OF_STOKES[name] for name in corr_type], complex).T


def spectrum(nu: float, ref_freq: float, terms: NDArray[np.float64], is_log: bool) -> float:
    """S(nu) / S(nu0) from a0, a1, ... of a logarithmic, or c1, c2, ... of an ordinary polynomial."""
    if is_log:
        x = np.log(nu / ref_freq)
        return float((nu / ref_freq) ** sum(a * x**j for j, a in enumerate(terms)))
    x = nu / ref_freq - 1.0
    return float(1.0 + sum(c * x ** (j + 1) for j, c in enumerate(terms)))


def other_spectrum(form: int, nu: float, ref_freq: float, terms: NDArray[np.float64]) -> float:
    """S(nu) / S0 of the forms that are more than a polynomial, by their codes."""
    first, second, third, fourth = terms[:4]
    power = spectrum(nu, ref_freq, terms[4:], True) if form < 6 else 0.0
    if form == 2:  # absorbed by ionised gas
        return power * float(np.exp(-((nu / first) ** -2.1)))
    if form == 3:  # synchrotron, with the optical depth at the peak
        depth = brentq(lambda t: np.expm1(t) / t - 1.0 + second / third, 1e-9, 50.0, xtol=1e-15)
        y = nu / first
        return float(y**third * (1.0 - np.exp(-depth * y ** (second - third))) / (1.0 - np.exp(-depth)))
    if form == 4:  # lines: sigma = w / sqrt(8 ln 2), half width w / 2
        return third * float(np.exp(-4.0 * np.log(2.0) * ((nu - first) / second) ** 2)) + fourth * power
    if form == 5:
        return third * (second / 2.0) ** 2 / ((nu - first) ** 2 + (second / 2.0) ** 2) + fourth * power
    knots, values = terms[0::2][: len(terms) // 2], terms[1::2]
    knots, values = knots[knots > 0.0], values[: np.count_nonzero(knots > 0.0)]
    if form == 6:
        return float(np.interp(nu, knots, values))
    return float(np.exp(np.interp(np.log(nu), np.log(knots), np.log(values))))


def faraday_factor(nu: float, rm: float, wave2_0: float, slab: float, sigma: float) -> complex:
    """What multiplies Q + iU: rotation from lambda0, Burn's slab, and a screen of scatter sigma."""
    wave2 = (SPEED_OF_LIGHT / nu) ** 2
    lost = np.sinc(slab * wave2 / np.pi) * np.exp(-2.0 * sigma**2 * wave2**2)
    return complex(np.exp(2j * rm * (wave2 - wave2_0)) * lost)


def gaussian_envelope(
    uvw: NDArray[np.float64], lm: Sequence[float], shape: NDArray[np.float64], nu: float, frame: str
) -> NDArray[np.float64]:
    """exp(-pi^2/(4 ln 2) ((emaj a)^2 + (emin b)^2) (nu/c)^2) of each row, for FWHM axes emaj and emin."""
    a, b = axis_coordinates(uvw, lm, shape, nu, frame)
    return np.exp(-(np.pi**2) / (4.0 * np.log(2.0)) * (a**2 + b**2))


def axis_coordinates(
    uvw: NDArray[np.float64], lm: Sequence[float], shape: NDArray[np.float64], nu: float, frame: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The axes times the coordinates of each row along them, in wavelengths: pure numbers."""
    (l, m), (emaj, emin, pa) = lm, shape
    n = np.sqrt(1.0 - l * l - m * m)
    u, v, w = uvw.T
    if frame == "tangent":
        u, v = u - w * l / n, v - w * m / n
    along = (u * np.sin(pa) + v * np.cos(pa)) * nu / SPEED_OF_LIGHT
    across = (u * np.cos(pa) - v * np.sin(pa)) * nu / SPEED_OF_LIGHT
    return emaj * along, emin * across


def disc(
    a: NDArray[np.float64], b: NDArray[np.float64], parameters: NDArray[np.float64], nu: float
) -> NDArray[np.complex128]:
    """2 J1(z)/z, z = pi hypot(a, b): a uniform disc, the axes its diameters."""
    z = np.pi * np.hypot(a, b)
    safe = np.where(z == 0.0, 1.0, z)
    return np.where(z == 0.0, 1.0, 2.0 * j1(safe) / safe).astype(complex)


def ring(
    a: NDArray[np.float64], b: NDArray[np.float64], parameters: NDArray[np.float64], nu: float
) -> NDArray[np.complex128]:
    """J0(z), z = pi hypot(a, b): an infinitely thin ring, the axes its diameters."""
    return j0(np.pi * np.hypot(a, b)).astype(complex)


def gradient_gaussian(
    a: NDArray[np.float64], b: NDArray[np.float64], parameters: NDArray[np.float64], nu: float
) -> NDArray[np.complex128]:
    """Sums over the sky, in units of the axes, of 2^(-4 (x^2 + y^2)) (nu/nu0)^(p0 x + p1 y).

    Trapezoids over a Gaussian are exact to rounding up to a, b of 40 where they are 0.02 wide: its transform
    is repeated every 1 / 0.02, and 1e-150 at a distance of 10.
    """
    x = 0.02 * np.arange(-200, 201)
    assert max(np.abs(a).max(), np.abs(b).max()) < 40.0
    p0, p1, ref_freq = parameters[:3]

    def along(a: NDArray[np.float64], gradient: float) -> NDArray[np.complex128]:
        bright = 2.0 ** (-4.0 * x**2) * (nu / ref_freq) ** (gradient * x)
        return np.exp(2j * np.pi * a[:, None] * x) @ bright / np.sum(2.0 ** (-4.0 * x**2))

    return along(a, p0) * along(b, p1)


# Envelopes of profiles by their code, `rime_kernels.physics.profiles`; tests add to it.
PROFILES: dict[int, Callable[..., NDArray[np.complex128]]] = {0: disc, 1: ring, 12: gradient_gaussian}


def voltage_beam(kind: str, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """E(x): cos^3(min(x, 1.0881)), exp(-2 ln2 x^2), or 2 J1(x) / x."""
    if kind == "cos3":
        return np.cos(np.minimum(x, 1.0881)) ** 3
    if kind == "gaussian":
        return np.exp(-2.0 * np.log(2.0) * x**2)
    safe = np.where(x == 0.0, 1.0, x)
    return np.where(x == 0.0, 1.0, 2.0 * j1(safe) / safe)


def _envelope(
    rows: Rows, sources: Sources, b: int, s: int, nu: float, frame: str
) -> NDArray[np.float64] | NDArray[np.complex128]:
    """The envelope of source s, a Gaussian or a profile, in entry b of the batch: (n_row,)."""
    shape, i = sources.shape[b, s - sources.n_point], s - (sources.n_source - sources.n_profile)
    if i < 0:
        return gaussian_envelope(rows.uvw, sources.lm[b, s], shape, nu, frame)
    assert sources.profile is not None
    assert sources.profile_kind is not None
    along, across = axis_coordinates(rows.uvw, sources.lm[b, s], shape, nu, frame)
    return PROFILES[int(sources.profile_kind[i])](along, across, sources.profile[b, i], nu)


def _brightness(
    rows: Rows, corr_type: Sequence[str], sources: Sources, b: int, s: int, nu: float
) -> NDArray[np.complex128]:
    """B of source s in entry b of the batch, of each row: (n_row, n_corr)."""
    stokes = sources.stokes[b, np.minimum(rows.time_index, sources.stokes.shape[1] - 1), s]
    form = 0 if sources.spectral_form is None else sources.spectral_form[s]
    given = [(nu, sources.ref_freq[s], sources.spectral_terms[b, s, k]) for k in range(4)]
    if form > 1:
        factors = [other_spectrum(int(form), *each) for each in given]
    else:
        factors = [spectrum(*each, bool(sources.log_spectrum[s])) for each in given]
    bright = stokes * np.array(factors)
    if sources.faraday is not None:
        turned = (bright[:, 1] + 1j * bright[:, 2]) * faraday_factor(nu, *sources.faraday[b, s])
        bright = np.stack([bright[:, 0], turned.real, turned.imag, bright[:, 3]], axis=1)
    return corr_of_stokes(corr_type, bright)


def _voltage(
    rows: Rows, beam: Beam, b: int, lm: NDArray[np.float64], antenna: NDArray[np.int32], nu: float
) -> NDArray[np.float64]:
    """E of one antenna of each row, towards a source: (n_row,)."""
    error = np.zeros((rows.n_row, 2))
    if beam.pointing is not None:
        error = beam.pointing[b, np.minimum(rows.time_index, beam.pointing.shape[1] - 1), antenna]
    r = np.hypot(lm[0] - error[:, 0], lm[1] - error[:, 1])
    return voltage_beam(beam.kind, beam.scale[b] * nu * r)


def feed_rotation(phi: float, circular: bool) -> NDArray[np.complex128]:
    """P, 2x2: diag(e^-i phi, e^+i phi), or [[cos phi, sin phi], [-sin phi, cos phi]] of linear feeds."""
    if circular:
        return np.diag([np.exp(-1j * phi), np.exp(1j * phi)])
    return np.array([[np.cos(phi), np.sin(phi)], [-np.sin(phi), np.cos(phi)]], complex)


def spline_beam(beam: JonesBeam, which: int, c: int, x: float, y: float) -> NDArray[np.complex128]:
    """E(x, y), 2x2, of one class and channel: a sum over all nodes, of which 4 x 4 are near enough."""
    along = []
    for place, first, step, n in (
        (x, beam.grid[0], beam.grid[1], beam.coefficient.shape[3]),
        (y, beam.grid[2], beam.grid[3], beam.coefficient.shape[2]),
    ):
        at = np.clip((place - first) / step, 0.0, n - 3.0)
        along.append(np.nan_to_num(SPLINE(at - np.arange(-1.0, n - 1.0))))
    return np.einsum("yxab,x,y->ab", beam.coefficient[which, c], *along)


def _seen_through_beam(
    rows: Rows, corr_type: Sequence[str], sources: Sources, b: int, s: int, c: int
) -> NDArray[np.complex128]:
    """E_p P_p B P_q^H E_q^H of source s in entry b of the batch, of each row: (n_row, n_corr)."""
    circular = corr_type[0] in ("RR", "RL", "LR", "LL")
    feeds = ["RR", "RL", "LR", "LL"] if circular else ["XX", "XY", "YX", "YY"]
    bright = _brightness(rows, feeds, sources, b, s, rows.chan_freq[c]).reshape(-1, 2, 2)
    out = np.empty((rows.n_row, 2, 2), complex)
    jones = {}
    for r, time in enumerate(rows.time_index):
        for antenna in (rows.antenna1[r], rows.antenna2[r]):
            if (time, antenna) not in jones:
                jones[time, antenna] = _jones(sources, b, s, c, time, antenna, circular)
        out[r] = jones[time, rows.antenna1[r]] @ bright[r] @ jones[time, rows.antenna2[r]].conj().T
    return out.reshape(-1, 4)[:, [feeds.index(name) for name in corr_type]]


def _jones(
    sources: Sources, b: int, s: int, c: int, time: int, antenna: int, circular: bool
) -> NDArray[np.complex128]:
    """E P of one antenna at one time, towards source s."""
    beam = sources.beam
    angle, phi = (x[min(time, len(x) - 1), antenna] for x in (beam.angle, beam.feed_angle))
    phi = phi[c] if np.ndim(phi) else phi
    if beam.turn is not None:
        offset, rm = beam.turn[min(b, len(beam.turn) - 1), antenna]
        phi = phi + offset - rm * beam.wavelength2[c]
    rotation = feed_rotation(phi, circular)
    if beam.applies is not None and not beam.applies[s]:
        return rotation
    l, m = sources.lm[b, s]
    if beam.pointing is not None:
        errors = beam.pointing[min(b, len(beam.pointing) - 1)]
        l, m = np.array([l, m]) - errors[min(time, len(errors) - 1), antenna]
    scale = beam.scale[min(b, beam.scale.size - 1)]
    x, y = l * np.cos(angle) - m * np.sin(angle), l * np.sin(angle) + m * np.cos(angle)
    classes = np.atleast_2d(beam.antenna_class)
    which = classes[min(time, len(classes) - 1), antenna]
    return spline_beam(beam, which, c, x / scale, y / scale) @ rotation


# ---- beside it


def direct_image(
    rows: Rows,
    corr_type: Sequence[str],
    image: NDArray[np.float64],
    grid: ImageGrid,
    screens: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.complex128]] | None = None,
    slot: NDArray[np.int32] | None = None,
) -> NDArray[np.complex128]:
    """Sum over the pixels of an image (n_stokes, N, N): (n_row, n_chan, n_corr).

    Pixel (x, y) lies at l = l0 - (x - N/2) cell, m = m0 + (y - N/2) cell. `screens` gives A-terms at
    given l, m: (n_slot, n_antenna, n_pixel), or (..., 2, 2); `slot` the slot of each time index.
    """
    y, x = np.nonzero(np.any(image != 0.0, axis=0))
    l, m = grid.l0 - (x - grid.n_pixel / 2) * grid.cell, grid.m0 + (y - grid.n_pixel / 2) * grid.cell
    lmn = np.stack([l, m, -(l * l + m * m) / (1.0 + np.sqrt(1.0 - l * l - m * m))])
    stokes = np.zeros((x.size, 4))
    stokes[:, : len(image)] = image[:, y, x].T
    bright = corr_of_stokes(corr_type, stokes)
    if screens is not None:
        feeds = (
            ["RR", "RL", "LR", "LL"] if corr_type[0] in ("RR", "RL", "LR", "LL") else ["XX", "XY", "YX", "YY"]
        )
        element = [feeds.index(name) for name in corr_type]
        matrix = corr_of_stokes(feeds, stokes).reshape(-1, 2, 2)
        jones = screens(l, m)
        jones = jones if jones.ndim == 5 else jones[..., None, None] * np.eye(2)
    out = np.zeros((rows.n_row, rows.n_chan, len(corr_type)), complex)
    for r in range(rows.n_row):
        if screens is not None:
            assert slot is not None
            s = slot[rows.time_index[r]]
            p, q = jones[s, rows.antenna1[r]], jones[s, rows.antenna2[r]]
            seen = p @ matrix @ np.conj(np.swapaxes(q, -1, -2))
            bright = seen.reshape(-1, 4)[:, element]
        turns = np.outer(rows.chan_freq / SPEED_OF_LIGHT, rows.uvw[r] @ lmn)
        out[r] = np.exp(2j * np.pi * (turns - np.rint(turns))) @ bright
    return out


def averaged(
    function: Callable[[Rows], NDArray[Any]], rows: Rows, smearing: Smearing, n: int
) -> NDArray[Any]:
    """The mean by Romberg's method over 2^n + 1 times and frequencies, uvw turned about the pole."""
    pole = np.array([0.0, np.cos(smearing.declination), np.sin(smearing.declination)])
    offsets = np.linspace(-0.5, 0.5, 2**n + 1)
    of_times = []
    for time in offsets:
        angle = EARTH_RATE * time * smearing.interval
        uvw = Rotation.from_rotvec(angle[:, None] * pole).apply(rows.uvw)
        nodes = [replace(rows, uvw=uvw, chan_freq=rows.chan_freq + x * smearing.chan_width) for x in offsets]
        of_times.append(romb(np.stack([function(at) for at in nodes]), dx=offsets[1] - offsets[0], axis=0))
    return np.asarray(romb(np.stack(of_times), dx=offsets[1] - offsets[0], axis=0))


def derivative(function: Callable[[float], NDArray[np.float64]], step: float) -> NDArray[np.float64]:
    """d function(x) / dx at x = 0 by central differences of sixth order."""
    pairs = [function(k * step) - function(-k * step) for k in (1, 2, 3)]
    return (45.0 * pairs[0] - 9.0 * pairs[1] + pairs[2]) / (60.0 * step)
