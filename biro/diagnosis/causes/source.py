"""Residuals that a source explains which the model lacks, near the phase centre or far outside the field."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from biro.diagnosis.causes.brightness import fitted, place_text
from biro.diagnosis.causes.evidence import Candidate, linear
from biro.diagnosis.causes.least_squares import SolvedTerms, block_of, solve_beside
from biro.diagnosis.causes.samples import Array, Complex, Mask, ResidualSamples
from biro.display.formatting import ANGLES, FLUXES, unit_for
from biro.observation.correlations import STOKES_NAMES

N_PIXEL = 384
PER_FRINGE = 3.0
"""Pixels in a fringe of the longest baseline of an image."""
COARSER = 4.0
"""Each image has that many times the field of the one before, and as many times shorter baselines."""
MOST_PLANES = 24
PHASE = 0.4
"""Turns that w may put onto a phase within one plane."""
MIN_SAMPLES = 24
BEAM = 0.4
"""Half the width of the main lobe of the PSF, in fringes of the median baseline."""
POINT = 0.1
"""FWHM in such beams below which a Gaussian is a point."""
N_PEAK = 3
LEAST_TURNS = 1e-5
"""Turns across a channel below which the loss, (pi turns)^2/6, is under 2e-10."""
FEW_TURNS = 2e-3
"""Turns across a channel up to which two terms of the series of the loss are enough."""
MOST_THIN = 1 << 14
"""Visibilities that places are refined with, before all are."""
QUANTILES = (0.1, 0.25, 0.5)
"""Quantiles q of the baseline lengths: Gaussians of half a fringe there, 0.5 / q, are looked for."""
EARTH = 7.2921150e-5
"""Rate at which baselines turn, rad/s."""
GAUSS = math.pi**2 / (4.0 * math.log(2.0))
"""An envelope is exp(-GAUSS (FWHM q)^2), q in wavelengths (physics: section 5)."""


class KnownBrightness(Protocol):
    """Where the model of a field is bright: `biro.diagnosis.causes.bright_places.BrightPlaces`."""

    @property
    def field(self) -> tuple[float, float]:
        """Phase centre."""

    @property
    def sources(self) -> tuple[ResidualSource, ...]:
        """Peaks of the model's image."""

    @property
    def fluxes(self) -> tuple[float, ...]:
        """Flux density, Jy."""


@dataclass(frozen=True)
class ResidualSource:
    """A source that was found in residuals.

    Attributes
    ----------
    east, north, fwhm : float, rad
        Direction cosines from the phase centre; 0 FWHM of a point.
    """

    east: float
    north: float
    fwhm: float = 0.0

    @property
    def n_minus_1(self) -> float:
        """n - 1 of its direction."""
        return _n_minus_1(self.east, self.north)


def source_candidates(
    samples: ResidualSamples, places: Sequence[KnownBrightness] = ()
) -> Iterator[Candidate]:
    """The source of each field that explains most, as a point and as a Gaussian, in each Stokes parameter."""
    fields = sorted({part.phase_centre for part in samples.parts})
    for field in fields:
        known = [
            (s, f)
            for each in places
            if each.field == field
            for s, f in zip(each.sources, each.fluxes, strict=True)
        ]
        for name in STOKES_NAMES:
            view = StokesView.of(samples, field, name)
            if view.own.n >= MIN_SAMPLES and np.ptp(view.own.uvw[:2]) > 0:
                yield from _of_field(samples, view, known, len(fields))


@dataclass(frozen=True, eq=False)
class StokesView:
    """Samples of a field as those of one Stokes parameter, whose sources look in them as those of Stokes I.

    Attributes
    ----------
    stokes : str
    own : ResidualSamples
        With residuals and model divided by `turn`, and `root` of 1 Jy of the Stokes parameter.
    chosen : bool (n,)
        Which of all samples they are.
    turn : complex128 (n_chosen,)
        What the Stokes parameter gives the correlation of each, over its modulus.
    """

    stokes: str
    own: ResidualSamples
    chosen: Mask
    turn: Complex

    @classmethod
    def of(cls, samples: ResidualSamples, field: tuple[float, float], stokes: str) -> StokesView:
        """The samples of a field that have this Stokes parameter in them."""
        factor = samples.in_stokes(stokes)
        chosen = samples.is_of(field) & (factor != 0)
        own, factor = samples.only(chosen), factor[chosen]
        size = np.abs(factor)
        turn = np.asarray(factor / size)
        if np.any(factor != 1.0):
            turned = {"residual": own.residual * turn.conj(), "model": own.model * turn.conj()}
            own = own.with_values(root=own.root * size, **turned)
        return cls(stokes, own, chosen, turn)

    def after(self, samples: ResidualSamples, tangent: Array, change: Complex) -> ResidualSamples:
        """All samples, those of the view changed along their tangents and less a part of the residuals."""
        left = self.own.changed(tangent).less(change)
        model, residual = samples.model.copy(), samples.residual.copy()
        model[self.chosen], residual[self.chosen] = left.model * self.turn, left.residual * self.turn
        return samples.with_values(model=model, residual=residual)


def _of_field(
    samples: ResidualSamples, view: StokesView, known: Sequence[tuple[ResidualSource, float]], n_field: int
) -> Iterator[Candidate]:
    own = view.own
    length = np.hypot(own.uvw[0], own.uvw[1])
    sizes = [0.0] + [0.5 / q for q in np.quantile(length[length > 0], QUANTILES)]
    if view.stokes != "I":
        sizes = sizes[:1]
    thin = own.only(np.arange(own.n) % -(-own.n // MOST_THIN) == 0)
    best: dict[bool, tuple[float, ResidualSource]] = {}
    places = 1.0
    for size in sizes:
        peaks, n_place = _peaks(own, np.exp(-GAUSS * (size * length) ** 2))
        places += n_place
        for east, north in peaks:
            source = refined(thin, ResidualSource(east, north, size))
            drop = _fit(thin, source)[1]
            if bool(size) not in best or drop > best[bool(size)][0]:
                best[bool(size)] = (drop, source)
    beam = _beam(own)
    for is_wide, (_, found) in best.items():
        source = refined(own, found, 2)
        if is_wide and source.fwhm < POINT * beam:  # a point by another name
            continue
        solved = _beside(own, source)
        n_term = 4 if is_wide else 3
        gain, log_p = linear(own.square, solved.drop, n_term, own.n_real, places * n_field)
        flux = float(solved.terms[0][0, 0])
        near = _near(source, known, beam)
        kind = "missing extended source" if is_wide else "missing source"
        if view.stokes != "I":
            kind = "missing polarised source"
        elif near is not None and source.fwhm < beam and abs(flux) < abs(near[1]):
            kind = "source of the model"
        after = partial(view.after, samples, solved.tangent, flux * template(own, source))
        texts = partial(_texts, own, source, kind, view.stokes, None if near is None else near[0])
        yield Candidate(kind, solved.drop, gain, n_term, log_p, after, texts)


def _beam(own: ResidualSamples) -> float:
    """Half the width of the main lobe of the PSF, rad."""
    return BEAM / max(float(np.median(np.hypot(own.uvw[0], own.uvw[1]))), 1e-300)


def _near(
    source: ResidualSource, known: Sequence[tuple[ResidualSource, float]], beam: float
) -> tuple[ResidualSource, float] | None:
    """The source of the model within a beam of one that was found, and its flux; the brightest of several."""
    close = [
        each for each in known if math.hypot(source.east - each[0].east, source.north - each[0].north) < beam
    ]
    return max(close, key=lambda each: abs(each[1]), default=None)


def highest(own: ResidualSamples) -> ResidualSource | None:
    """A point at the highest peak of the residual images."""
    if own.n < MIN_SAMPLES or not np.ptp(own.uvw[:2]) > 0:
        return None
    peaks, _ = highest_few(own)
    return peaks[0] if peaks else None


def highest_few(own: ResidualSamples) -> tuple[list[ResidualSource], float]:
    """Points at the highest peaks of the residual images, and how many places they are chosen from."""
    peaks, places = _peaks(own, np.ones(own.n))
    return [ResidualSource(*peak) for peak in peaks], places


def fit_source(own: ResidualSamples, source: ResidualSource) -> tuple[float, float]:
    """Flux of a source in the residuals, Jy, and the decrease of sum |r|^2."""
    found, drop = _fit(own, source)
    return float(found[0]), drop


def template(
    own: ResidualSamples, source: ResidualSource, is_smeared: bool = True, uvw: Array | None = None
) -> Complex:
    """sqrt(w)/s times the visibility of 1 Jy there, averaged over channels, complex128 (n,).

    `uvw` (3, n), in wavelengths, takes the place of that of the samples.
    """
    u, v, w = own.uvw if uvw is None else uvw
    turns = u * source.east + v * source.north + w * source.n_minus_1
    wide = np.exp(-GAUSS * source.fwhm**2 * (u * u + v * v)) if source.fwhm else 1.0
    across = turns * own.relative_width if is_smeared and own.chan_width.any() else np.zeros(1)
    largest = np.abs(across).max(initial=0.0)
    lost = _kept_across(across, largest) if largest > LEAST_TURNS else 1.0
    return unit_phase(turns) * (own.root * wide * lost)


def _kept_across(across: Array, largest: float) -> Array:
    """sinc of turns across a channel; of few turns by its series, whose next term is below 1e-16."""
    if largest > FEW_TURNS:  # by the tangent of half the angle, as in `unit_phase`
        half = 0.5 * np.pi * across
        half[half == 0.0] = 1e-300
        t = np.tan(half)
        return np.asarray(t / (half * (1.0 + t * t)))
    square = (np.pi * across) ** 2
    return np.asarray(1.0 - square / 6.0 * (1.0 - square / 20.0))


def unit_phase(turns: Array) -> Complex:
    """exp(2 pi i turns), complex128 of the same shape, by the tangent of half the angle.

    NumPy has vector instructions for that tangent, and none for a complex exponential: a tenth of the time.
    """
    t = np.tan(np.pi * (turns - np.rint(turns)))
    scale = 1.0 / (1.0 + t * t)
    found = np.empty(np.shape(turns), np.complex128)
    found.real, found.imag = 2.0 * scale - 1.0, 2.0 * t * scale
    return found


def _n_minus_1(east: float, north: float) -> float:
    square = min(east * east + north * north, 1.0)
    return -square / (1.0 + math.sqrt(1.0 - square))


def _fit(own: ResidualSamples, source: ResidualSource) -> tuple[Array, float]:
    return fitted(own, [template(own, source)])


def refined(own: ResidualSamples, source: ResidualSource, n_step: int = 6) -> ResidualSource:
    """Gauss-Newton steps of flux, place and size, each taken only if chi2 falls."""
    u, v = own.uvw[:2]
    t = template(own, source)
    drop = fitted(own, [t])[1]
    longest = float(np.hypot(u, v).max())
    for _ in range(n_step):
        columns = [t, 2j * np.pi / longest * u * t, 2j * np.pi / longest * v * t]
        if source.fwhm:
            columns.append(-2.0 * GAUSS * source.fwhm / longest * (u * u + v * v) * t)
        found, _ = fitted(own, columns)
        if not found[0]:
            break
        steps = found[1:] / found[0] / longest
        before, scale = drop, 1.0
        for _ in range(4):
            moved = ResidualSource(
                source.east + scale * float(steps[0]),
                source.north + scale * float(steps[1]),
                max(source.fwhm + scale * float(steps[2]), 0.1 * source.fwhm) if source.fwhm else 0.0,
            )
            if math.hypot(moved.east, moved.north) < 1.0:
                there = template(own, moved)
                now = fitted(own, [there])[1]
                if now > drop:
                    source, t, drop = moved, there, now
                    break
            scale *= 0.3
        if drop - before < 1e-4 * drop:
            break
    return source


def _peaks(own: ResidualSamples, taper: Array) -> tuple[list[tuple[float, float]], float]:
    """Highest peaks of residual images from fine to coarse, and how many places they are chosen from."""
    length = np.hypot(own.uvw[0], own.uvw[1])
    longest = _typical_longest(length, taper)
    found: list[tuple[float, float, float]] = []
    places, done = 0.0, 0.0
    while longest > 0:
        used = (length <= longest) & (taper > 1e-3)
        if np.count_nonzero(used) < MIN_SAMPLES:
            break
        cell = 1.0 / (PER_FRINGE * longest)
        reach = min(_reach(own, used, longest), 1.0)
        half = min(0.5 * N_PIXEL * cell, reach)
        if half > done:
            heights, places_here = _image(own, used, taper, cell, half)
            found += heights
            places += places_here
            done = half
        if done >= 0.7 or 0.5 * N_PIXEL * cell >= 1.0:
            break
        longest /= COARSER
    found.sort(reverse=True)
    return [(east, north) for _, east, north in found[:N_PEAK]], places


def _typical_longest(length: Array, taper: Array) -> float:
    seen = length[taper > 0.05]
    return float(np.quantile(seen, 0.995)) if len(seen) else 0.0


def _reach(own: ResidualSamples, used: Mask, longest: float) -> float:
    """Distance at which averages over channels and times take half of what baselines see."""
    width = float(np.median(own.chan_width[used] / own.freq[used]))
    turn = float(np.median(own.interval[used])) * EARTH
    worst = longest * max(width, turn, 1e-12)
    return 0.6 / (0.5 * worst)


def _image(
    own: ResidualSamples, used: Mask, taper: Array, cell: float, half: float
) -> tuple[list[tuple[float, float, float]], float]:
    """Decrease of chi2 by a source at each pixel, from FFTs of planes of w; the highest few.

    A visibility is put into the next cell of the uv grid; the image is divided by what that takes of it. With
    w = a u + b v + w', the pixels are those of l + a (n - 1) and m + b (n - 1), and planes are of w'.
    """
    u, v, w = own.uvw[:, used]
    slope = np.linalg.lstsq(np.stack([u, v], axis=1), w, rcond=1e-6)[0]
    w = w - slope[0] * u - slope[1] * v
    weight = (own.root * taper)[used]
    value, power = weight * own.residual[used], float(np.sum(weight**2))
    n = N_PIXEL
    while n > 64 and (n // 2) * 0.5 * cell >= half:
        n //= 2
    span = max(float(np.ptp(w)), 1e-300)
    half = min(half, math.sqrt(2.0 * MOST_PLANES * PHASE / span))  # where n - 1 is about half^2 / 2
    n_plane = min(MOST_PLANES, max(1, math.ceil(span * abs(_n_minus_1(min(half, 1.0), 0.0)) / PHASE)))
    plane = np.minimum(((w - w.min()) / span * n_plane).astype(np.int64), n_plane - 1)
    axis = fft.fftshift(np.fft.fftfreq(n)) * n * cell
    square = axis[:, None] ** 2 + axis[None, :] ** 2
    n_minus_1 = -square / (1.0 + np.sqrt(np.maximum(1.0 - square, 0.0)))
    place = (np.rint(v * n * cell).astype(np.int64) % n) * n + np.rint(u * n * cell).astype(np.int64) % n
    screen = _turned(n_minus_1 * (w.min() + 0.5 * span / n_plane))
    step = _turned(n_minus_1 * span / n_plane) if n_plane > 1 else screen
    total = np.zeros((n, n), np.float32)
    for k in range(n_plane):
        here = plane == k
        key = place[here]
        grid = np.bincount(key, value[here].real, n * n) + 1j * np.bincount(key, value[here].imag, n * n)
        total += (fft.fftshift(fft.fft2(grid.reshape(n, n).astype(np.complex64))) * screen).real
        screen = screen * step
    peaks, places = _highest(total.astype(np.float64), axis, square, power, half, n)
    return [
        (height, east - slope[0] * bend, north - slope[1] * bend)
        for height, east, north in peaks
        for bend in [_n_minus_1(east, north)]
    ], places


def _turned(turns: Array) -> NDArray[np.complex64]:
    return np.asarray(unit_phase(-turns), np.complex64)


def _highest(
    total: Array, axis: Array, square: Array, power: float, half: float, n: int
) -> tuple[list[tuple[float, float, float]], float]:
    lost = np.sinc(np.fft.fftshift(np.fft.fftfreq(n)))
    height = (total / (lost[:, None] * lost[None, :])) ** 2 / max(power, 1e-300)
    height[square > min(half, 0.999) ** 2] = 0.0
    places = float(np.count_nonzero(height))
    peaks = []
    for _ in range(N_PEAK):
        y, x = divmod(int(np.argmax(height)), n)
        if not height[y, x] > 0:
            break
        peaks.append((float(height[y, x]), float(axis[x]), float(axis[y])))
        height[max(0, y - 3) : y + 4, max(0, x - 3) : x + 4] = 0.0
    return peaks, places


def _beside(own: ResidualSamples, source: ResidualSource) -> SolvedTerms:
    return solve_beside([block_of(own, template(own, source)[None])], own.tangent_part)


def _texts(
    own: ResidualSamples, source: ResidualSource, kind: str, stokes: str, near: ResidualSource | None
) -> tuple[str, str]:
    t = template(own, source)
    flux = float(_beside(own, source).terms[0][0, 0])
    error = math.sqrt(own.square / own.n_real) / math.sqrt(float(np.vdot(t, t).real))
    unit = unit_for([flux], FLUXES)
    size = f"{unit.text(flux)} +- {unit.text(error, 2)} {unit.name}"
    place = f"{place_text(source.east, source.north)} of the phase centre"
    if source.fwhm:
        angle = unit_for([source.fwhm], ANGLES)
        size += f", about {angle.text(source.fwhm, 2)} {angle.name} across"
    if stokes != "I" and near is not None:
        return (
            f"Stokes {stokes} of the source {place} is wrong ({size} more).",
            "Fit its `Q`, `U` and `V`. Check leakages and the cross-hand phase.",
        )
    if stokes != "I":
        return (
            f"A source of Stokes {stokes} is missing {place} ({size}).",
            "Add a [[source]] there with priors on `Q`, `U` and `V`, or calibrate the leakages.",
        )
    if kind == "source of the model":
        return (
            f"The source {place} does not fit (residual {size}).",
            "Fit its flux, position, size and spectrum, or add a component. Check the beam (`[beam]`) and "
            "smearing (`--smearing`).",
        )
    if flux < 0:
        return (
            f"The model is too bright {place} ({size}), or its shape is wrong.",
            "Fit the sizes of the sources nearby if they are fixed; else add a component.",
        )
    what = "Extended emission" if source.fwhm else "A source"
    if near is not None:
        away = place_text(source.east - near.east, source.north - near.north)
        return (
            f"{what} is missing {place} ({size}), {away} of a source of the model.",
            "Check the position of that source, the frame of its coordinates, uvw and frequencies. If "
            "they are right, add a [[source]].",
        )
    return (
        f"{what} is missing {place} ({size}).",
        "Add a [[source]] there to the model (in Python with `biro.add_source`).",
    )
