"""Causes of a misfit, found in residuals whose truth is known."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

import biro
from biro.diagnosis.causes.all_causes import candidates, find_causes
from biro.diagnosis.causes.correlation import in_frequency, in_time
from biro.diagnosis.causes.evidence import linear, sigma_of_log_p
from biro.diagnosis.causes.samples import MOST, ResidualSamples
from biro.diagnosis.finding import Finding
from biro.diagnosis.flag_command import lines_of as flag_lines
from biro.diagnosis.residual_data import ResidualData
from biro.diagnosis.verdict_text import lines_of as misfit_lines
from rime_kernels.physics.phase import SPEED_OF_LIGHT

Vis = NDArray[np.complex128]
ARCSEC = math.pi / 180 / 3600
N_ANTENNA, N_TIME, N_CHAN, SIGMA = 7, 12, 4, 0.2
INTERVAL = 20.0
FREQ = 1.4e9 * (1.0 + 0.01 * np.arange(N_CHAN))
P, Q = np.triu_indices(N_ANTENNA, 1)
N_BASELINE = len(P)
SLOT = np.repeat(np.arange(N_TIME), N_BASELINE)
FIRST, SECOND = np.tile(P, N_TIME), np.tile(Q, N_TIME)
NAMES = [f"A{i}" for i in range(N_ANTENNA)]


def baselines() -> NDArray[np.float64]:
    """An array of 400 m at declination 40 deg, turning for two hours."""
    places = np.random.default_rng(4).normal(size=(N_ANTENNA, 3)) * [200.0, 200.0, 60.0]
    rows = []
    for hour in np.linspace(-0.3, 0.3, N_TIME):
        s, c, sd, cd = math.sin(hour), math.cos(hour), math.sin(0.7), math.cos(0.7)
        turned = places @ np.array([[s, c, 0.0], [-sd * c, sd * s, cd], [cd * c, -cd * s, sd]]).T
        rows.append(turned[Q] - turned[P])
    return np.concatenate(rows)


UVW = baselines()


def point(east: float, north: float, fwhm: float = 0.0) -> Vis:
    """Visibilities of 1 Jy, (n_row, n_chan, 1), by the formulas of physics: sections 2 and 5."""
    l, m = east * ARCSEC, north * ARCSEC
    u, v, w = UVW.T[:, :, None] * FREQ / SPEED_OF_LIGHT
    n_minus_1 = math.sqrt(1 - l * l - m * m) - 1
    wide = np.exp(-((math.pi * fwhm * ARCSEC) ** 2) / (4 * math.log(2)) * (u * u + v * v))
    return (wide * np.exp(2j * math.pi * (u * l + v * m + w * n_minus_1)))[..., None]


def gains(values: NDArray[np.complex128]) -> Vis:
    """g_p conj(g_q) of each row, of gains (n_antenna,) or (n_time, n_antenna)."""
    g = np.broadcast_to(values, (N_TIME, N_ANTENNA))
    return (g[SLOT, FIRST] * g[SLOT, SECOND].conj())[:, None, None]


def one_gain(antenna: int, value: complex) -> Vis:
    values = np.ones(N_ANTENNA, complex)
    values[antenna] = value
    return gains(values)


MODEL = np.repeat(2.0 * point(15.0, -10.0) + 0.7 * point(-150.0, 210.0), 2, axis=2)
SHAPE = MODEL.shape
FULL = ["XX", "XY", "YX", "YY"]


def noise(rng: np.random.Generator, shape: tuple[int, ...] = SHAPE) -> Vis:
    return SIGMA * (rng.normal(size=shape) + 1j * rng.normal(size=shape))


def causes(data: Vis, model: Vis = MODEL, weight: object = SIGMA**-2, flag: object = False) -> list[Finding]:
    """What is found in data with a noise factor that was free."""
    return find_causes([residuals(data, model, weight, flag)], NAMES)


def residuals(
    data: Vis, model: Vis = MODEL, weight: object = SIGMA**-2, flag: object = False
) -> ResidualData:
    observation = biro.Observation.from_arrays(
        data,
        UVW[: len(data)],
        FIRST[: len(data)],
        SECOND[: len(data)],
        5e9 + INTERVAL * SLOT[: len(data)],
        FREQ[: data.shape[1]],
        FULL if data.shape[2] == 4 else ["XX", "YY"][: data.shape[2]],
        weight=weight,
        flag=flag,
        antenna_names=NAMES,
        interval=INTERVAL,
        chan_width=np.full(data.shape[1], 1e5),
    )
    (part,) = observation.partitions
    chi2 = float(np.sum(part.weight * np.abs(part.vis - model) ** 2))
    return ResidualData(part, model, math.sqrt(chi2 / max(1, 2 * np.count_nonzero(part.weight))))


def walk(rng: np.random.Generator) -> Vis:
    return gains(np.exp(1j * np.cumsum(0.06 * rng.normal(size=(N_TIME, N_ANTENNA)), axis=0)))


def bad(rng: np.random.Generator) -> Vis:
    data = MODEL + noise(rng)
    data[100, 2, 1] += 20.0
    return data


def steady(rng: np.random.Generator) -> Vis:
    data = MODEL + noise(rng)
    data[FIRST == 0, 2] += 1.0
    return data


def offset(rng: np.random.Generator) -> Vis:
    """The shortest baseline has an offset below its noise, constant over channels and hands."""
    here = int(np.argmin(np.hypot(*UVW[:N_BASELINE, :2].T)))
    own = np.arange(len(FIRST)) % N_BASELINE == here
    return MODEL + noise(rng) + 0.9 * SIGMA * own[:, None, None]


def flare(rng: np.random.Generator) -> Vis:
    """The first source alone is half as bright again at five times."""
    change = np.where((SLOT > 3) & (SLOT < 8), 1.0, 0.0)[:, None, None] * point(15.0, -10.0)
    return MODEL + change + noise(rng)


def test_times_are_utc_in_sets_of_another_scale() -> None:
    """A set in TAI of the year 1858 + 158: 37 s late, as a bad visibility at its first time shows."""
    data = MODEL + noise(np.random.default_rng(1))
    data[0, 2, 1] += 20.0
    texts = [find_causes([residuals(data)], NAMES, utc_offset=offset)[0].verdict for offset in (0.0, -37.0)]
    first, second = (np.datetime64(text.split(" at ")[1].split(" UTC")[0]) for text in texts)
    assert first - second == np.timedelta64(37, "s")


HOSTILE: dict[str, tuple[Callable[[np.random.Generator], Vis], str, str]] = {
    "source": (
        lambda rng: MODEL + 0.2 * point(90.0, 120.0) + noise(rng),
        "missing source",
        "arcmin north-east",
    ),
    "far": (lambda rng: MODEL + 3.0 * point(-1800.0, 0.0) + noise(rng), "missing source", " arcmin west"),
    "fluxes": (
        lambda rng: MODEL + 0.15 * point(-150.0, 210.0) - 0.1 * point(15.0, -10.0) + noise(rng),
        "source of the model",
        "mJy",
    ),
    "extended": (
        lambda rng: MODEL + point(0.0, 120.0, 200.0) + noise(rng),
        "missing extended source",
        "arcmin north",
    ),
    "phase": (lambda rng: MODEL * one_gain(3, np.exp(0.3j)) + noise(rng), "antenna gain", "A3"),
    "amplitude": (
        lambda rng: MODEL * one_gain(5, 1.15) + noise(rng),
        "antenna gain",
        "gain of A5 (amplitude +1",
    ),
    "all gains": (
        lambda rng: MODEL * gains(1 + 0.05 * rng.normal(size=N_ANTENNA)) + noise(rng),
        "antenna gain",
        "The gains of the antennas",
    ),
    "drift": (lambda rng: MODEL * walk(rng) + noise(rng), "gain drift", "change with time"),
    "flux": (
        lambda rng: MODEL * (1 + 0.3 * np.sin(SLOT / 3))[:, None, None] + noise(rng),
        "variable flux",
        "changes with time",
    ),
    "flare": (flare, "variable source", "arcsec south-east"),
    "index": (
        lambda rng: MODEL * ((FREQ / FREQ.mean()) ** -2.5)[:, None] + noise(rng),
        "spectrum of the model",
        "spectral index",
    ),
    "baseline": (
        lambda rng: MODEL * np.where((FIRST == 1) & (SECOND == 5), 0.7, 1.0)[:, None, None] + noise(rng),
        "baseline",
        "A1-A5 (",
    ),
    "interference": (steady, "offset", "antenna A0 in channel 2"),
    "offset": (offset, "offset", "constant offset of "),
    "visibility": (bad, "bad visibility", "channel 2 (1.428 GHz), YY"),
    "antenna noise": (
        lambda rng: MODEL + noise(rng) * np.where((FIRST == 2) | (SECOND == 2), 2.0, 1.0)[:, None, None],
        "noise of an antenna",
        "A2",
    ),
    "channel noise": (
        lambda rng: MODEL + noise(rng) * np.array([1.0, 1.0, 2.0, 1.0])[:, None],
        "noise of a channel",
        "channel 2",
    ),
    "hands": (
        lambda rng: MODEL + np.repeat(noise(rng, (*SHAPE[:2], 1)), 2, axis=2),
        "correlated hands",
        "XX and YY are correlated (1.00)",
    ),
    "channels": (
        lambda rng: MODEL + np.repeat(noise(rng, (SHAPE[0], 1, 2)), N_CHAN, axis=1),
        "correlated in frequency",
        "The noise of all channels of a row is correlated (1.00 to 1.00",
    ),
}


def of_baselines(rng: np.random.Generator) -> Vis:
    """A factor of its own of each baseline, 10 % in real and imaginary part, without what gains can do."""
    error = 0.1 * rng.normal(size=(2, N_BASELINE))
    for part, sign in zip(error, (1.0, -1.0), strict=True):
        of_gains = np.eye(N_ANTENNA)[P] + sign * np.eye(N_ANTENNA)[Q]
        part -= of_gains @ np.linalg.lstsq(of_gains, part, rcond=None)[0]
    return np.tile(1 + error[0] + 1j * error[1], N_TIME)[:, None, None]


def away(rng: np.random.Generator) -> Vis:
    """All sources move 12 arcsec east in the course of the observation."""
    u = UVW[:, 0][:, None] * FREQ / SPEED_OF_LIGHT
    moved = np.linspace(-6.0, 6.0, N_TIME)[SLOT][:, None] * ARCSEC
    return MODEL * np.exp(2j * math.pi * u * moved)[..., None] + noise(rng)


def turned(degrees: float, scale: float = 1.0) -> Vis:
    """The two sources at places that are turned from north through east, and farther out."""
    s, c = math.sin(math.radians(degrees)), math.cos(math.radians(degrees))
    places = ((2.0, 15.0, -10.0), (0.7, -150.0, 210.0))
    one = sum(f * point(scale * (c * e + s * n), scale * (c * n - s * e)) for f, e, n in places)
    return np.repeat(one, 2, axis=2)


HOSTILE |= {
    "closures": (lambda rng: MODEL * of_baselines(rng) + noise(rng), "closure errors", "errors of "),
    "conjugated": (
        lambda rng: np.where(((FIRST == 1) & (SECOND == 5))[:, None, None], MODEL.conj(), MODEL) + noise(rng),
        "conjugated",
        "Baseline A1-A5 is conjugated",
    ),
    "moving": (away, "moving position", " east between "),
    "turned": (lambda rng: turned(2.0) + noise(rng), "wrong uvw", "The uvw are turned by "),
    "scaled": (lambda rng: turned(0.0, 1.02) + noise(rng), "wrong uvw", "2.0 % too short"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_was_done_to_the_data_is_named_first(name: str) -> None:
    make, kind, words = HOSTILE[name]
    found = causes(make(np.random.default_rng(7)))
    assert found[0].kind == kind, found
    assert words in found[0].verdict
    assert found[0].significance > 5.0
    # Nothing else was done; what is left below 90 % would be another cause.
    assert found[0].explained > 0.9
    assert len(found) == 1
    assert found[0].verdict.endswith(".")
    assert found[0].remedy.endswith(".")


def test_a_model_that_is_not_smeared() -> None:
    """Averages of a source 40 arcmin away over 14 MHz take up to a fifth."""
    l = 2400.0 * ARCSEC
    u = UVW[:, 0][:, None, None]
    left = np.sinc(u * l / SPEED_OF_LIGHT * 14e6) * np.ones(SHAPE)
    model = np.repeat(3.0 * point(2400.0, 0.0), 2, axis=2)
    whole = residuals(model * left + noise(np.random.default_rng(3)), model)
    wide = biro.Observation.from_arrays(
        whole.partition.vis,
        UVW,
        FIRST,
        SECOND,
        whole.partition.time,
        FREQ,
        ["XX", "YY"],
        weight=SIGMA**-2,
        antenna_names=NAMES,
        interval=0.1,
        chan_width=np.full(N_CHAN, 14e6),
    ).partitions[0]
    (found,) = find_causes([ResidualData(wide, model, whole.factor)], NAMES)
    assert found.kind == "smearing"


def test_two_causes_are_both_named() -> None:
    rng = np.random.default_rng(11)
    data = (MODEL + 0.4 * point(90.0, 120.0)) * one_gain(3, np.exp(0.4j)) + noise(rng)
    found = causes(data)
    assert {each.kind for each in found} == {"missing source", "antenna gain"}
    # Shares are of one excess.
    assert 0.9 < sum(each.explained for each in found) <= 1.0


@pytest.mark.parametrize(
    ("east", "north", "words"),
    [
        (40.0, 0.0, "40.0 arcsec east"),
        (-40.0, 0.0, "40.0 arcsec west"),
        (0.0, 40.0, "40.0 arcsec north"),
        (-25.0, -25.0, "35.4 arcsec south-west"),
    ],
)
def test_a_missing_source_has_its_direction_from_the_source_of_the_model(
    east: float, north: float, words: str
) -> None:
    """An offset of so many arcsec from the fainter source of the model, which lies off the phase centre."""
    model = np.repeat(0.5 * point(15.0, -10.0), 2, axis=2)
    data = model + point(15.0 + east, -10.0 + north) + noise(np.random.default_rng(14))
    known = np.array([[15.0 * ARCSEC, -10.0 * ARCSEC, 0.0]])
    found = find_causes([replace(residuals(data, model), sources=known)], NAMES)
    assert found[0].kind == "missing source"
    # 2016 complex samples of 1 Jy at a noise of 0.2 Jy: a place is right to 0.1 arcsec.
    size, *direction = words.split(" ", 2)
    text = re.search(r", ([0-9.]+) (arcsec [a-z-]+) of a source of the model", found[0].verdict)
    assert text is not None, found[0].verdict
    assert float(text[1]) == pytest.approx(float(size), abs=0.5)
    assert text[2] == " ".join(direction)


def test_outliers_do_not_hide_a_missing_source() -> None:
    """Shares are of the excess for outliers, and of what these leave of it for the source."""
    rng = np.random.default_rng(15)
    data = MODEL + 0.3 * point(90.0, 120.0) + noise(rng)
    some = rng.choice(data.size, 12, replace=False)
    data.ravel()[some] += 16.0
    found = {each.kind: each for each in causes(data)}
    source, outliers = 0.3**2 * (data.size - 12), 16.0**2 * 12
    # Noise beside them, and the other within each, change either by its square root: a few per cent.
    assert found["bad visibilities"].explained == pytest.approx(outliers / (outliers + source), abs=0.05)
    assert found["missing source"].explained == pytest.approx(1.0, abs=0.1)
    (line, *_) = misfit_lines([], list(found.values()), [])
    assert line.startswith("THE MODEL DOES NOT FIT")
    assert "of the excess chi2 without the outliers)" in line
    assert "of the excess chi2)." in line


def test_a_command_counts_what_it_flags_besides() -> None:
    """Three bad visibilities of four of a row and correlation: a line for the row takes the fourth, too."""
    data = MODEL + noise(np.random.default_rng(16))
    data[100, :3, 1] += 20.0
    whole = ResidualSamples.of([residuals(data)], NAMES)
    bad = np.abs(whole.residual) > 10.0 * np.median(np.abs(whole.residual))
    assert np.count_nonzero(bad) == 3
    lines, n = flag_lines(whole, bad)
    assert n == 4
    assert len(lines) == 1


@pytest.mark.parametrize("seed", range(8))
def test_white_noise_has_no_cause(seed: int) -> None:
    """Noise of any level, with unequal weights, flags and few data, gives no finding."""
    rng = np.random.default_rng([3, seed])
    n_row = N_BASELINE * int(rng.choice([1, 3, N_TIME]))
    n_chan, n_corr = int(rng.integers(1, N_CHAN + 1)), int(rng.integers(1, 3))
    shape = (n_row, n_chan, n_corr)
    spread = np.exp(0.5 * rng.normal(size=shape))
    model = MODEL[:n_row, :n_chan, :n_corr]
    data = model + 30.0 * spread * noise(rng, shape)
    flag = rng.random(shape) < 0.2
    assert causes(data, model, SIGMA**-2 / spread**2, flag) == []


def jones(values: NDArray[np.complex128], brightness: NDArray[np.complex128]) -> Vis:
    """J_p B J_q^H of the first source, (n_row, n_chan, 4); physics: section 6."""
    left, right = values[FIRST], values[SECOND].conj().transpose(0, 2, 1)
    return (2.0 * point(15.0, -10.0))[..., 0, None] * (left @ brightness @ right).reshape(-1, 1, 4)


UNITY = np.tile(np.eye(2, dtype=complex), (N_ANTENNA, 1, 1))
POLARISED = np.array([[1.1, 0.05], [0.05, 0.9]], complex)
"""Q and U of 10 % and 5 % of Stokes I."""


def one_jones(antenna: int, matrix: list[list[complex]]) -> NDArray[np.complex128]:
    values = UNITY.copy()
    values[antenna] = matrix
    return values


def rotating() -> Vis:
    """Q and U turn by 40 deg in angle, 80 deg in (Q, U)."""
    angle = np.deg2rad(np.linspace(-40.0, 40.0, N_TIME))[SLOT]
    q, u = 0.2 * np.cos(angle), 0.2 * np.sin(angle)
    stokes = np.stack([1 + q, u, u, 1 - q], axis=-1)[:, None]
    return (2.0 * point(15.0, -10.0))[..., 0, None] * stokes


@pytest.mark.parametrize(
    ("made", "model", "kind", "words"),
    [
        (
            jones(one_jones(3, [[1, 0.1], [-0.1, 1]]), POLARISED),
            jones(UNITY, POLARISED),
            "leakage",
            "The leakage (D-terms) of A3 is wrong by ",
        ),
        (
            jones(one_jones(2, [[0, 1], [1, 0]]), POLARISED),
            jones(UNITY, POLARISED),
            "swapped feeds",
            "The two feeds of A2 are swapped",
        ),
        (
            jones(UNITY, POLARISED),
            jones(UNITY, np.eye(2, dtype=complex)),
            "polarisation of the model",
            "by Q +10 %, U +5.",
        ),
        (
            jones(UNITY, POLARISED) + 0.1 * point(90.0, 120.0) * np.array([0, 1, 1, 0]),
            jones(UNITY, POLARISED),
            "missing polarised source",
            "A source of Stokes U is missing 2.4",
        ),
        (
            rotating(),
            (2.0 * point(15.0, -10.0)) * np.array([1.2, 0, 0, 0.8]),
            "changing polarisation",
            "U -1",
        ),
    ],
)
def test_causes_in_cross_hands(made: Vis, model: Vis, kind: str, words: str) -> None:
    """What parallel hands show little of; Q and U of 0.2 at 40 deg are 0.15 and 0.13."""
    found = causes(made + noise(np.random.default_rng(14), made.shape), model)
    assert found[0].kind == kind, found
    assert words in found[0].verdict
    assert found[0].explained > 0.9


def test_what_cannot_be_tested_has_no_cause() -> None:
    few = slice(0, 3)
    assert causes((MODEL + noise(np.random.default_rng(1)))[few], MODEL[few]) == []
    nothing = np.zeros_like(MODEL)
    assert causes(nothing + noise(np.random.default_rng(1)), nothing) == []


def test_large_data_are_looked_at_in_part_and_the_worst_is_among_them() -> None:
    shape = (SHAPE[0], 512, 2)
    rng = np.random.default_rng(8)
    data = noise(rng, shape)
    data[3, 300, 1] += 50.0
    observation = biro.Observation.from_arrays(
        data, UVW, FIRST, SECOND, 5e9 + INTERVAL * SLOT, 1.4e9 + 1e5 * np.arange(512), ["XX", "YY"],
        weight=SIGMA**-2, antenna_names=NAMES, interval=INTERVAL,
    )  # fmt: skip
    (part,) = observation.partitions
    whole = ResidualData(part, np.zeros_like(part.vis), 1.0)
    assert ResidualSamples.of([whole], NAMES).n < 1.3 * MOST
    (found,) = find_causes([whole], NAMES)
    assert found.kind == "bad visibility"
    assert "A0-A4" in found.verdict
    assert "channel 300" in found.verdict


def test_the_worst_of_large_data_are_no_fair_sample() -> None:
    """What is kept for its large residuals must not make noise look like a flux that varies."""
    shape = (SHAPE[0], 512, 1)
    rng = np.random.default_rng(15)
    observation = biro.Observation.from_arrays(
        1.0 + noise(rng, shape), UVW, FIRST, SECOND, 5e9 + INTERVAL * SLOT, 1.4e9 + 1e5 * np.arange(512),
        ["XX"], weight=SIGMA**-2, antenna_names=NAMES, interval=INTERVAL,
    )  # fmt: skip
    (part,) = observation.partitions
    data = ResidualData(part, np.ones_like(part.vis), 1.0)
    samples = ResidualSamples.of([data], NAMES, most=1 << 14)
    assert samples.worst.sum() > 32
    assert not any(
        each.kind.startswith("variable") and each.significance() > 5.0 for each in candidates(samples, [], ())
    )


def test_outliers_of_a_students_t_are_no_misfit() -> None:
    data = bad(np.random.default_rng(2))
    whole = residuals(data)
    assert [each.kind for each in find_causes([whole], NAMES)] == ["bad visibility"]
    assert "bad visibility" not in [each.kind for each in find_causes([whole], NAMES, has_outliers=True)]


def test_inflation_of_hanning_noise() -> None:
    """Weights 1/4, 1/2, 1/4 give correlations 2/3 and 1/6: 1 + 2 (3/4 2/3 + 2/4 1/6) = 13/6."""
    rng = np.random.default_rng(5)
    wide = noise(rng, (SHAPE[0], N_CHAN + 2, 2))
    smooth = (0.25 * wide[:, :-2] + 0.5 * wide[:, 1:-1] + 0.25 * wide[:, 2:]) / math.sqrt(0.375)
    found = causes(MODEL + smooth)
    assert [each.kind for each in found] == ["correlated in frequency"]
    assert "Hanning" in found[0].verdict
    # 504 series of 4 channels give the correlations to 0.02, and the factor to 0.03.
    assert found[0].error_factor == pytest.approx(math.sqrt(13 / 6), abs=0.05)


@pytest.mark.parametrize("rho", [0.5, 0.9])
def test_inflation_of_autoregressive_noise(rho: float) -> None:
    """1 + 2 sum (1 - k/n) rho^k of series of n times."""
    values = noise(np.random.default_rng(6), (N_TIME, N_BASELINE, N_CHAN, 2))
    for k in range(1, N_TIME):
        values[k] = rho * values[k - 1] + math.sqrt(1 - rho**2) * values[k]
    (found,) = causes(MODEL + values.reshape(SHAPE))
    lag = np.arange(1, N_TIME)
    expected = math.sqrt(1 + 2 * np.sum((1 - lag / N_TIME) * rho**lag))
    assert found.kind == "correlated in time"
    # 168 series of 12 times: correlations to 0.02, sums over them to a few per cent.
    assert found.error_factor == pytest.approx(expected, rel=0.06)


def test_duplicated_rows() -> None:
    """Each integration stored twice: two numbers count as one, and errors are sqrt(2) too small."""
    values = noise(np.random.default_rng(9), (N_TIME // 2, N_BASELINE, N_CHAN, 2))
    (found,) = causes(MODEL + np.repeat(values, 2, axis=0).reshape(SHAPE))
    assert found.kind == "duplicated rows"
    assert found.error_factor == pytest.approx(math.sqrt(2), rel=0.03)  # correlations to 0.01


def test_independent_noise_has_no_inflation() -> None:
    samples = ResidualSamples.of([residuals(MODEL + noise(np.random.default_rng(1)))], NAMES)
    for correlation in (in_time(samples), in_frequency(samples)):
        # Two standard deviations of the first lag end the sum.
        assert correlation.inflation == pytest.approx(1.0, abs=0.1)


def test_p_of_linear_terms_is_uniform() -> None:
    """R^2 of 3 columns in 40 normal numbers; 400 values of p, Kolmogorov-Smirnov."""
    rng = np.random.default_rng(12)
    basis = np.linalg.qr(rng.normal(size=(40, 3)))[0]
    values = []
    for _ in range(400):
        data = rng.normal(size=40)
        values.append(math.exp(linear(float(data @ data), float(np.sum((basis.T @ data) ** 2)), 3, 40)[1]))
    steps = np.abs(np.sort(values) - (np.arange(400) + 0.5) / 400)
    assert steps.max() < 1.63 / math.sqrt(400)  # exceeded once in 100


def test_significance_of_a_tail() -> None:
    """Normal tails: 0.158655 beyond 1, 2.8665e-7 beyond 5."""
    assert sigma_of_log_p(math.log(0.15865525)) == pytest.approx(1.0, abs=1e-6)
    assert sigma_of_log_p(math.log(2.8665157e-7)) == pytest.approx(5.0, abs=1e-6)
    assert sigma_of_log_p(0.0) == 0.0
    # ln P(x > z) -> -z^2/2 - ln(z sqrt(2 pi)) far out.
    assert sigma_of_log_p(-0.5 * 1e4 - math.log(100 * math.sqrt(2 * math.pi))) == pytest.approx(100, abs=1e-4)
