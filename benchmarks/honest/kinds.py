"""Each kind of data with the fit that a user would make of it, and what an honest fit does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from common.types import Options

from biro.observation.observation import Observation
from honest.field import Array, Field, Vis, noise, observe

SIGMA = 0.25
"""Noise of the real and of the imaginary part, Jy."""
TRUTH = {"g.I": 2.0, "g.east": 30.0, "g.north": -20.0, "g.fwhm": 50.0}
FIXED = "\n[noise]\nfactor = 1\n"
_HEAD = '[sky]\nref_freq = "1.4 GHz"\n'


@dataclass(frozen=True)
class Case:
    """One data set.

    Attributes
    ----------
    observation : Observation
    model : str
        That is fitted.
    truth : mapping
        The true values of its parameters.
    options : mapping
        Of the likelihood.
    log_evidence : float, optional
        The exact ln Z, where it is known.
    """

    observation: Observation
    model: str
    truth: Mapping[str, float]
    options: Options = field(default_factory=dict)
    log_evidence: float | None = None


@dataclass(frozen=True)
class Kind:
    """A kind of data.

    Attributes
    ----------
    name, about : str
        `about` is what the page says of it.
    honest : "right", "says it" or "cannot see"
        What an honest fit does: its errors are right, or a warning stands above its table, or neither can be.
    why : str
        For the page.
    make : function of a random generator
        Gives a `Case`.
    """

    name: str
    about: str
    honest: str
    why: str
    make: Callable[[np.random.Generator], Case]


def prior(kind: str, unit: str = "", **values: float) -> str:
    numbers = "".join(f", {key} = {value}" for key, value in values.items())
    return f'{{ prior = "{kind}"{numbers}' + (f', unit = "{unit}" }}' if unit else " }")


def source(name: str, flux: str, east: str = '"0 arcsec"', north: str = '"0 arcsec"', more: str = "") -> str:
    kind = "gaussian" if "fwhm" in more else "point"
    head = f'\n[[source]]\nname = "{name}"\ntype = "{kind}"\n'
    return f"{head}east = {east}\nnorth = {north}\nI = {flux}\n{more}"


GAUSSIAN = source(
    "g",
    prior("log-uniform", "Jy", low=0.1, high=20),
    prior("uniform", "arcsec", low=-60, high=100),
    prior("uniform", "arcsec", low=-100, high=60),
    f"fwhm = {prior('uniform', 'arcsec', low=0, high=150)}\n",
)


def observation(where: Field, vis: Vis, weight: float | Array, corr: tuple[str, ...]) -> Observation:
    """The data as biro takes them; vis complex (n_row, n_chan, n_corr)."""
    return Observation.from_arrays(
        vis, where.uvw, where.antenna1, where.antenna2, where.time, where.freq, corr,
        weight=weight, chan_width=where.width, interval=where.interval,
        antenna_names=[f"A{i}" for i in range(where.n_antenna)],
    )  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """The usual case: one Gaussian with fitted flux, place and size, in XX and YY (or Stokes I)."""

    corr: tuple[str, ...] = ("XX", "YY")
    model: str = _HEAD + GAUSSIAN
    truth: Mapping[str, float] = field(default_factory=lambda: TRUTH)
    options: Options = field(default_factory=lambda: {"smearing": "off"})
    array: Options = field(default_factory=dict)
    stated: float = SIGMA
    signal: Callable[[Field, np.random.Generator], Vis] = lambda where, rng: gaussian(where)
    disturb: Callable[[Field, Vis, np.random.Generator], Vis] = lambda where, vis, rng: vis
    errors: Callable[[Field, np.random.Generator, tuple[int, ...]], Vis] = lambda where, rng, shape: noise(
        rng, shape, SIGMA
    )
    weight: Callable[[Field, Vis], Array] | None = None

    def __call__(self, rng: np.random.Generator) -> Case:
        where = observe(rng, **self.array)
        signal = self.signal(where, rng)
        both = np.repeat(signal[..., None], len(self.corr), axis=-1)
        vis = self.disturb(where, both + self.errors(where, rng, both.shape), rng)
        weight = np.full(vis.shape, self.stated**-2) if self.weight is None else self.weight(where, vis)
        return Case(observation(where, vis, weight, self.corr), self.model, self.truth, self.options)


def gaussian(where: Field) -> Vis:
    return TRUTH["g.I"] * where.source(TRUTH["g.east"], TRUTH["g.north"], TRUTH["g.fwhm"])


USUAL = Plan()
STOKES_I = Plan(corr=("I",))


def beside(flux: float, distance: float, fwhm: float = 0.0) -> Callable[[Field, np.random.Generator], Vis]:
    """The Gaussian, and a source of this flux (Jy) at a distance (arcsec) from it."""

    def signal(where: Field, rng: np.random.Generator) -> Vis:
        angle = rng.uniform(0.0, 2.0 * np.pi)
        east = TRUTH["g.east"] + distance * np.cos(angle)
        north = TRUTH["g.north"] + distance * np.sin(angle)
        return gaussian(where) + flux * where.source(east, north, fwhm)

    return signal


def seen_through(
    gains: Callable[[Field, np.random.Generator], Vis],
) -> Callable[[Field, np.random.Generator], Vis]:
    """The Gaussian through gains of antennas."""
    return lambda where, rng: gaussian(where) * where.gains(gains(where, rng))


def one_antenna(gain: complex) -> Callable[[Field, np.random.Generator], Vis]:
    def gains(where: Field, rng: np.random.Generator) -> Vis:
        of = np.ones(where.n_antenna, complex)
        of[rng.integers(where.n_antenna)] = gain
        return of

    return gains


def of_all_antennas(where: Field, rng: np.random.Generator) -> Vis:
    """Amplitudes of 5 % and phases of 3 deg."""
    return np.asarray(np.exp(noise(rng, (where.n_antenna,), 0.05)))


def drifting(where: Field, rng: np.random.Generator) -> Vis:
    steps = rng.normal(size=(where.slot.max() + 1, where.n_antenna))
    return np.asarray(np.exp(0.08j * np.cumsum(steps, axis=0)))


def correlated(rho: float, where: Field, rng: np.random.Generator, shape: tuple[int, ...]) -> Vis:
    """AR(1) along the times of each baseline."""
    n_time = where.slot.max() + 1
    made = noise(rng, (n_time, shape[0] // n_time, *shape[1:]), SIGMA)
    for k in range(1, n_time):
        made[k] = rho * made[k - 1] + np.sqrt(1.0 - rho**2) * made[k]
    return made.reshape(shape)


def hanning(where: Field, rng: np.random.Generator, shape: tuple[int, ...]) -> Vis:
    """Weights 1/4, 1/2, 1/4 along the channels, scaled to the stated noise."""
    x = noise(rng, (shape[0], shape[1] + 2, *shape[2:]), SIGMA / np.sqrt(0.375))
    return np.asarray(0.25 * x[:, :-2] + 0.5 * x[:, 1:-1] + 0.25 * x[:, 2:])


def alike_in_hands(where: Field, rng: np.random.Generator, shape: tuple[int, ...]) -> Vis:
    return np.repeat(noise(rng, (*shape[:2], 1), SIGMA), shape[2], axis=2)


def one_noisy_antenna(where: Field, rng: np.random.Generator, shape: tuple[int, ...]) -> Vis:
    times = np.where((where.antenna1 == 2) | (where.antenna2 == 2), 3.0, 1.0)
    return times[:, None, None] * noise(rng, shape, SIGMA)


def every_row_twice(where: Field, vis: Vis, rng: np.random.Generator) -> Vis:
    """Each odd time slot has the noise of the one before it, so that data of a steady sky are there twice."""
    signal = np.repeat(gaussian(where)[..., None], vis.shape[2], axis=-1)
    error = (vis - signal).reshape(where.slot.max() + 1, -1, *vis.shape[1:])
    error[1::2] = error[::2]
    return np.asarray(signal + error.reshape(vis.shape))


def outliers(share: float, where: Field, vis: Vis, rng: np.random.Generator) -> Vis:
    bad = rng.random(vis.shape) < share
    vis[bad] += 100.0 * SIGMA * np.exp(2j * np.pi * rng.random(int(bad.sum())))
    return vis


def one_outlier(where: Field, vis: Vis, rng: np.random.Generator) -> Vis:
    vis[tuple(rng.integers(n) for n in vis.shape)] += 60.0 * SIGMA
    return vis


def interference(where: Field, vis: Vis, rng: np.random.Generator) -> Vis:
    """Steady, on the baselines of one antenna in one channel."""
    vis[where.antenna1 == 0, 2] += 3.0 * np.exp(0.3j)
    return vis


def flare(where: Field, rng: np.random.Generator) -> Vis:
    n_time = where.slot.max() + 1
    return gaussian(where) * np.where(where.slot < n_time // 4, 1.5, 1.0)[:, None]


def systematic(fraction: float, where: Field, vis: Vis, rng: np.random.Generator) -> Vis:
    signal = np.repeat(gaussian(where)[..., None], vis.shape[2], axis=-1)
    return vis + signal * noise(rng, vis.shape, fraction)


def through_a_beam(fwhm: float, where: Field, rng: np.random.Generator) -> Vis:
    """Two sources, one near the half-power point of a beam (arcsec); the fit has another width."""
    beam = [np.exp(-4.0 * np.log(2.0) * (x / fwhm) ** 2) for x in (0.0, 900.0)]
    return 2.0 * beam[0] * where.source(0.0, 0.0) + 3.0 * beam[1] * where.source(900.0, 0.0)


def negated(where: Field, rng: np.random.Generator) -> Vis:
    return gaussian(where).conj()


BEAM = (
    _HEAD
    + source("g", prior("uniform", "Jy", low=0, high=20))
    + source("far", prior("uniform", "Jy", low=0, high=20), '"900 arcsec"')
    + '\n[beam]\nkind = "gaussian"\nfwhm = "30 arcmin"\nref_freq = "1.4 GHz"\n'
)
BEAM_TRUTH = {"g.I": 2.0, "far.I": 3.0}
FRINGES = _HEAD + source("g", '"1 Jy"', prior("uniform", "arcsec", low=-3, high=3)) + FIXED
QUANTILES = (np.arange(2000) + 0.5) / 2000.0
"""Number of draws of the prior at which a likelihood is averaged: ln Z is right to 1e-3, as 500 show."""


def log_evidence(vis: Vis, sigma: float, models: Iterable[Vis]) -> float:
    """ln of the mean likelihood (physics: section 7) of models at evenly spaced quantiles of the prior."""
    chi2 = np.array([np.sum(np.abs(vis - model[..., None]) ** 2) for model in models]) / sigma**2
    values = -0.5 * chi2 - vis.size * np.log(2.0 * np.pi * sigma**2)
    return float(np.logaddexp.reduce(values) - np.log(len(values)))


def fringes(rng: np.random.Generator) -> Case:
    """One baseline that sees three fringes of the prior; the place is drawn from the prior."""
    where = observe(rng, 2, 2, 1, size=1.0, hours=0.2)
    where = replace(where, uvw=where.uvw * (19000.0 / np.hypot(*where.uvw[0, :2])))
    east = rng.uniform(-3.0, 3.0)
    vis = where.source(east, 0.0)[..., None] + noise(rng, (*where.shape, 2), 0.6)
    data = observation(where, vis, 0.6**-2, ("XX", "YY"))
    exact = log_evidence(vis, 0.6, (where.source(x, 0.0) for x in 6.0 * QUANTILES - 3.0))
    return Case(data, FRINGES, {"g.east": east}, {"smearing": "off"}, exact)


def upper_limit(rng: np.random.Generator) -> Case:
    """A source below the noise: its flux is drawn from the log-uniform prior."""
    where = observe(rng, 5, 6, 1)
    flux = float(np.exp(rng.uniform(np.log(1e-6), np.log(10.0))))
    vis = flux * where.source(0.0, 0.0)[..., None] + noise(rng, (*where.shape, 2), 0.5)
    text = _HEAD + source("g", prior("log-uniform", "Jy", low=1e-6, high=10)) + FIXED
    one = where.source(0.0, 0.0)
    exact = log_evidence(vis, 0.5, (1e-6 * 1e7**x * one for x in QUANTILES))
    return Case(observation(where, vis, 4.0, ("XX", "YY")), text, {"g.I": flux}, {"smearing": "off"}, exact)


def few(rng: np.random.Generator) -> Case:
    """Six visibilities of Stokes I."""
    where = observe(rng, 4, 1, 1)
    flux = float(rng.uniform(0.0, 3.0))
    vis = flux * where.source(0.0, 0.0)[..., None] + noise(rng, (*where.shape, 1), 0.5)
    text = _HEAD + source("g", prior("uniform", "Jy", low=0, high=3)) + FIXED
    one = where.source(0.0, 0.0)
    exact = log_evidence(vis, 0.5, (3.0 * x * one for x in QUANTILES))
    return Case(observation(where, vis, 4.0, ("I",)), text, {"g.I": flux}, {"smearing": "off"}, exact)


def with_gains(gains: str, rng: np.random.Generator) -> Case:
    """Amplitudes of 10 % and phases of 20 deg, drawn from the priors of the model."""
    where = observe(rng, 5, 6, 1)
    amplitude, phase = rng.normal(size=(2, where.n_antenna)) * np.array([[0.1], [0.35]])
    flux, far = rng.uniform(1.0, 3.0), rng.uniform(0.2, 1.0)
    sky = flux * where.source(0.0, 0.0) + far * where.source(90.0, 40.0)
    vis = (sky * where.gains(np.exp(amplitude + 1j * phase)))[..., None]
    vis = vis + noise(rng, (*where.shape, 1), 0.1)
    text = _HEAD + source("g", prior("uniform", "Jy", low=1, high=3))
    text += source("far", prior("uniform", "Jy", low=0.2, high=1), '"90 arcsec"', '"40 arcsec"') + FIXED
    text += f'\n[gain]\nreference = "none"\namplitude = {prior("log-normal", sd=0.1)}\n'
    text += f"phase = {prior('normal', 'rad', mean=0, sd=0.35)}\n"
    truth = {"g.I": float(flux), "far.I": float(far)}
    return Case(observation(where, vis, 100.0, ("I",)), text, truth, {"smearing": "off", "gains": gains})


def noise_entry(text: str) -> str:
    return f"{_HEAD}{GAUSSIAN}\n[noise]\n{text}\n"


_POINT = Plan(
    signal=lambda where, rng: 2.0 * where.source(30.0, -20.0),
    truth={name: value for name, value in TRUTH.items() if name != "g.fwhm"},  # which is at its limit
)
KINDS = (
    Kind("sound", "noise and sky as in the model", "right", "", USUAL),
    Kind("sound, Stokes I", "one correlation", "right", "", STOKES_I),
    Kind("sound, noise not fitted", "factor = 1", "right", "",
         replace(USUAL, model=_HEAD + GAUSSIAN + FIXED)),
    Kind("sound, Student's t", "noise is Gaussian, the model has tails", "right",
         "",
         replace(USUAL, model=noise_entry('distribution = "student-t"'))),
    Kind("six visibilities", "one flux, one time", "right", "", few),
    Kind("no size", "a point, fitted as a Gaussian: its size is at the limit of the prior", "right", "",
         _POINT),
    Kind("three fringes", "one baseline, three modes in the prior", "says it",
         "several modes, all found and weighted; the exact "
         "posteriors of the first twelve contain the true value in nine", fringes),
    Kind("upper limit", "an undetected source with a log-uniform flux", "right",
         "`maximise` gives a one-sided interval", upper_limit),
    Kind("gains integrated over", "10 % and 20 deg, priors as drawn", "says it",
         "intervals are right; only the priors fix the flux scale, which biro states in every such fit",
         partial(with_gains, "marginalise")),
    Kind("systematic noise", "10 % of each visibility, declared", "right", "",
         replace(USUAL, model=noise_entry("factor = 1\nsystematic = 0.1"), disturb=partial(systematic, 0.1))),
    Kind("noise correlated in time, fitted", 'AR(1) of 0.9; correlation = "time"', "right", "",
         replace(USUAL, model=noise_entry('correlation = "time"'), errors=partial(correlated, 0.9))),
    Kind("Hanning, fitted", 'channels smoothed; correlation = "chan"', "right", "",
         replace(USUAL, model=noise_entry('correlation = "chan"'), errors=hanning)),
    Kind("weights in other units", "noise ten times the stated one", "says it",
         "intervals are right, because the noise factor is fitted", replace(USUAL, stated=SIGMA / 10.0)),
    Kind("outliers, Student's t", "1 % are 100 sigma off", "right", "the noise of the model has tails",
         replace(USUAL, model=noise_entry('distribution = "student-t"'), disturb=partial(outliers, 0.01))),
    Kind("missing source", "0.4 Jy, 2 arcmin off, Stokes I", "says it", "peak of the residuals",
         replace(STOKES_I, signal=beside(0.4, 120.0))),
    Kind("missing source far out", "10 Jy, 30 arcmin off", "says it", "peak of the residuals",
         replace(USUAL, signal=beside(10.0, 1800.0))),
    Kind("missing extended emission", "2 Jy, 6 arcmin wide", "says it",
         "residuals of short baselines, if they exceed 5 sigma",
         replace(USUAL, signal=beside(2.0, 60.0, 360.0))),
    Kind("amplitude of one antenna", "20 % too high", "says it",
         "residuals by antenna, if they exceed 5 sigma; most baselines resolve the source",
         replace(USUAL, signal=seen_through(one_antenna(1.2)))),
    Kind("phase of one antenna", "17 deg", "says it",
         "residuals by antenna, if they exceed 5 sigma; most baselines resolve the source",
         replace(USUAL, signal=seen_through(one_antenna(np.exp(0.3j))))),
    Kind("all gains", "5 % and 3 deg", "says it",
         "residuals by antenna, if they exceed 5 sigma; parameters of the sky absorb the rest",
         replace(USUAL, signal=seen_through(of_all_antennas))),
    Kind("drifting phases", "a walk of 5 deg a step", "says it", "residuals by antenna and time",
         replace(USUAL, signal=seen_through(drifting))),
    Kind("flare", "1.5 times the flux in the first quarter", "says it", "residuals by time",
         replace(USUAL, signal=flare)),
    Kind("smearing switched off", "channels of 16 MHz, a source 20 arcmin off", "says it",
         "loss of amplitude computed from the channel widths",
         replace(USUAL, array={"width": 1.6e7, "spacing": 1.6e7}, truth={"g.I": 2.0, "far.I": 3.0},
                 model=_HEAD + source("g", prior("uniform", "Jy", low=0, high=20))
                 + source("far", prior("uniform", "Jy", low=0, high=20), '"1200 arcsec"'),
                 signal=lambda where, rng: 2.0 * where.source(0.0, 0.0) + 3.0 * where.smeared(1200.0, 0.0))),
    Kind("beam too narrow", "34 arcmin given as 30, two sources", "cannot see",
         "the flux of the source off axis absorbs it; one pointing does not measure a beam",
         replace(USUAL, model=BEAM, truth=BEAM_TRUTH, signal=partial(through_a_beam, 34.0 * 60.0))),
    Kind("wrong spectral index", "-2 over a band of a third, fixed at 0", "says it", "residuals by frequency",
         replace(USUAL, array={"spacing": 1.5e8}, signal=lambda where, rng: TRUTH["g.I"] * where.source(
             TRUTH["g.east"], TRUTH["g.north"], TRUTH["g.fwhm"], -2.0))),
    Kind("outliers, Gaussian noise", "1 % are 100 sigma off", "says it", "tails of the residuals",
         replace(USUAL, disturb=partial(outliers, 0.01))),
    Kind("one bad visibility", "60 sigma off", "says it", "the largest residual",
         replace(USUAL, disturb=one_outlier)),
    Kind("steady interference", "one antenna, one channel", "says it", "residuals by antenna and channel",
         replace(USUAL, disturb=interference)),
    Kind("noise correlated in time", "AR(1) of 0.9, fitted as white", "says it", "autocorrelation in time",
         replace(USUAL, errors=partial(correlated, 0.9))),
    Kind("Hanning", "channels smoothed, fitted as independent", "says it", "correlation of channels",
         replace(USUAL, array={"n_chan": 16}, errors=hanning)),
    Kind("hands with the same noise", "XX and YY fitted as independent", "says it", "correlation of hands",
         replace(USUAL, errors=alike_in_hands)),
    Kind("rows stored twice", "the noise of each time again in the next", "says it", "equal residuals",
         replace(USUAL, disturb=every_row_twice)),
    Kind("noise of one antenna", "three times as high as stated", "says it", "scatter by antenna",
         replace(USUAL, errors=one_noisy_antenna)),
    Kind("prior in conflict", "flux 1 +- 0.05 Jy, truth 2", "says it", "likelihood against prior",
         replace(USUAL, model=_HEAD + source("g", prior("normal", "Jy", mean=1, sd=0.05)),
                 truth={"g.I": 2.0}, signal=lambda where, rng: 2.0 * where.source(0.0, 0.0))),
    Kind("sign of uvw", "conjugated visibilities", "cannot see",
         "the mirrored sky fits as well; compare with a known position", replace(USUAL, signal=negated)),
    Kind("flux scale", "all visibilities 10 % too bright", "cannot see",
         "a brighter source fits as well; only another calibrator shows it",
         replace(USUAL, signal=lambda where, rng: 1.1 * gaussian(where))),
)  # fmt: skip
