"""The diagnosis of a fit: errors under correlated residuals, thermal noise, priors against the data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import biro
from biro.diagnosis.correlated_errors import error_factor
from biro.diagnosis.data_faults import without_copies
from biro.diagnosis.partition_fit import PartitionFit
from biro.diagnosis.prior_conflict import prior_conflicts
from biro.diagnosis.residual_data import ResidualData
from biro.diagnosis.verdict_text import HOLDS, lines_of
from biro.diagnosis.whiteness import shares, whiteness
from biro.models.files.toml import from_toml
from biro.models.quantities.parameter import Parameter
from biro.models.quantities.prior import LogNormal, Normal, Uniform

N_ANTENNA, N_TIME, N_CHAN, SIGMA, FLUX = 8, 40, 4, 0.5, 2.0
PAIRS = np.array([(p, q) for p in range(N_ANTENNA) for q in range(p + 1, N_ANTENNA)])
SKY = """
[[source]]
name = "a"
type = "gaussian"
east = {{ prior = "uniform", low = {low}, high = 20, unit = "arcsec" }}
north = "0 arcsec"
fwhm = {{ prior = "uniform", low = 0, high = 30, unit = "arcsec" }}
I = {flux}

[noise]
{noise}
"""
WIDE = '{ prior = "uniform", low = 0, high = 10, unit = "Jy" }'


def white(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Noise of 1 in real and imaginary part, (time, baseline, chan, corr) unless another shape is given."""
    shape = shape or (N_TIME, len(PAIRS), N_CHAN, 2)
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


def observe(noise: np.ndarray, weight: float = SIGMA**-2, signal: object = FLUX) -> biro.Observation:
    """A point of 2 Jy at the phase centre with this noise (time, baseline, chan, corr), in units of SIGMA."""
    n_time = len(noise)
    place = np.random.default_rng(5).normal(scale=700.0, size=(N_ANTENNA, 2))
    turn = 2 * np.pi / 86400 * 60.0 * np.arange(n_time)
    turned = [[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]]
    uv = np.einsum("rst,ps->tpr", turned, place[PAIRS[:, 1]] - place[PAIRS[:, 0]]).reshape(-1, 2)
    return biro.Observation.from_arrays(
        vis=(np.asarray(signal) + SIGMA * noise).reshape(-1, *noise.shape[2:]),
        uvw=np.column_stack([uv, np.zeros(len(uv))]),
        antenna1=np.tile(PAIRS[:, 0], n_time),
        antenna2=np.tile(PAIRS[:, 1], n_time),
        time=np.repeat(5e9 + 60.0 * np.arange(n_time), len(PAIRS)),
        chan_freq=1e9 + 1e6 * np.arange(noise.shape[2]),
        corr_type=("XX", "YY")[: noise.shape[3]],
        weight=weight,
    )


def likelihood(
    obs: biro.Observation, flux: str = WIDE, low: float = -20.0, noise: str = ""
) -> biro.Likelihood:
    return biro.Likelihood(
        obs, from_toml(SKY.format(low=low, flux=flux, noise=noise)), backend="cpu", smearing="off"
    )


def in_time(rho: float) -> np.ndarray:
    noise = white(np.random.default_rng(1))
    for k in range(1, N_TIME):
        noise[k] = rho * noise[k - 1] + np.sqrt(1 - rho**2) * noise[k]
    return noise


def of_hands(rho: float) -> np.ndarray:
    rng = np.random.default_rng(2)
    return np.sqrt(rho) * white(rng, N_TIME, len(PAIRS), N_CHAN, 1) + np.sqrt(1 - rho) * white(rng)


def hanning() -> np.ndarray:
    wide = white(np.random.default_rng(3), N_TIME, len(PAIRS), N_CHAN + 2, 2)
    return (wide[:, :, :-2] / 4 + wide[:, :, 1:-1] / 2 + wide[:, :, 2:] / 4) / np.sqrt(0.375)


def factor_of(rho_at: object, n: int) -> float:
    """Root of the variance of the mean of n numbers over that of independent ones."""
    return np.sqrt(1 + 2 * sum((1 - k / n) * rho_at(k) for k in range(1, n)))


@pytest.mark.parametrize(
    ("noise", "expected", "tolerance"),
    [
        (white(np.random.default_rng(4)), 1.0, 0.05),
        (in_time(0.5), factor_of(lambda k: 0.5**k, N_TIME), 0.1),
        (in_time(0.9), factor_of(lambda k: 0.9**k, N_TIME), 0.15),
        (of_hands(0.5), np.sqrt(1.5), 0.05),
        # Products of the three weights at one and at two channels: 2/3 and 1/6.
        (hanning(), factor_of(lambda k: {1: 2 / 3, 2: 1 / 6}.get(k, 0.0), N_CHAN), 0.05),
        (np.repeat(white(np.random.default_rng(6), N_TIME, len(PAIRS), 1, 2), N_CHAN, 2), 2.0, 0.05),
        (1.3 * white(np.random.default_rng(7)), 1.3, 0.05),
    ],
    ids=[
        "white",
        "AR(1) 0.5",
        "AR(1) 0.9",
        "hands",
        "Hanning",
        "one channel four times",
        "noise understated",
    ],
)
def test_the_factor_of_the_errors(noise: np.ndarray, expected: float, tolerance: float) -> None:
    """Closed forms for a flux at the phase centre, whose visibilities are all alike.

    8960 samples know each correlation to 0.01; forty of them in time are summed up.
    """
    like = likelihood(observe(noise), noise="factor = 1")
    theta, sd = np.array([0.0, FLUX, 0.0]), np.full(3, np.nan)
    i = [name.endswith(".I") for name in like.parameter_names].index(True)
    theta[:] = 0.0
    theta[i], sd[i] = FLUX, SIGMA / np.sqrt(2 * noise.size)
    found = error_factor(like.residual_data(theta), like.residual_models, theta, sd, like.model.box)
    assert found.rms == pytest.approx(expected, rel=tolerance)
    assert found.largest == found.rms  # of one parameter


def test_the_largest_factor_of_the_errors() -> None:
    """Hands of the correlation 0.6: their mean has the variance 1.6, half their difference that of 0.4.

    The root mean square of both factors is 1, though one of the errors is 26 % too small.
    """
    noise = of_hands(0.6)
    obs = observe(noise, signal=0.0)
    sd = np.full(2, SIGMA / np.sqrt(2 * noise.size))
    hands = np.array([[1.0, 1.0], [1.0, -1.0]])
    for each in (obs, repeated(obs, obs.partitions[0].n_row)[0]):  # copies of rows count once
        (part,) = each.partitions

        def predict(theta: np.ndarray, shape: tuple[int, ...] = part.vis.shape) -> list[np.ndarray]:
            return [np.broadcast_to(theta @ hands + 0j, shape)]

        data, _ = without_copies([ResidualData(part, predict(np.zeros(2))[0], 1.0)])
        found = error_factor(data, predict, np.zeros(2), sd, (np.full(2, -1.0), np.full(2, 1.0)))
        # 8960 samples know the correlation to 0.01.
        assert found.rms == pytest.approx(1.0, abs=0.03)
        assert found.largest == pytest.approx(np.sqrt(1.6), abs=0.03)
    # Only where no error is too small is it said that errors hold.
    misfit = [PartitionFit("field/spw0", 9000, 1.0, 1.0, thermal=0.8, coherent=20.0)]
    assert HOLDS in lines_of(misfit, [], [], 1.0, 1.05)
    assert HOLDS not in lines_of(misfit, [], [], found.rms, found.largest)
    assert HOLDS not in lines_of(misfit, [], [])  # nothing was measured


@pytest.mark.parametrize("turn", [0.0, 0.3, 1.0, 2.5])
def test_thermal_noise_beside_a_fringe(turn: float) -> None:
    """A fringe of four times the noise, which turns by an angle of its own at each baseline and step.

    What is left of it in second differences is turn^4 of its power; fringes that turn by a constant angle go
    by their own mean, which knows their power to a few per cent at this signal to noise.
    """
    noise = white(np.random.default_rng(8), N_TIME, len(PAIRS), 1, 1)
    rate = turn * np.random.default_rng(9).uniform(-1, 1, len(PAIRS))
    fringe = 4.0 * np.exp(1j * (np.arange(N_TIME)[:, None] * rate + 7.0 * rate))[..., None, None]
    (part,) = observe(noise + fringe).partitions
    found = whiteness(ResidualData(part, np.full(part.vis.shape, FLUX + 0j), 1.0))
    assert found.coherent > 20
    # Mean square of real and imaginary part: 16/2 of the fringe and 1 of the noise.
    assert 1 / 3 * 0.9 < found.thermal < 0.5
    white_alone = whiteness(ResidualData(part, part.vis - SIGMA * noise.reshape(part.vis.shape), 1.0))
    assert abs(white_alone.coherent) < 5
    assert white_alone.thermal == pytest.approx(1.0, abs=0.1)


def test_priors_and_likelihoods_that_are_normal() -> None:
    """Likelihood 5 +- 1, prior 0 +- 0.5: 5 / sqrt(1.25) = 4.47 sigma apart."""
    posterior_variance = 1 / (1 + 4)
    mean, sd = np.array([5 * posterior_variance]), np.array([posterior_variance**0.5])
    parameter = Parameter("a.I", "Jy", Normal(mean=0.0, sd=0.5), None, "")
    (found,) = prior_conflicts([parameter], mean, sd)
    assert found.sigma == pytest.approx(5 / np.sqrt(1.25))
    assert "without its prior a.I would be 5.0 +- 1.0 Jy, 4 sigma from its prior (0 +- 0.5 Jy)" in found.text
    # 4.4 instead of 5 is 3.9 sigma; and no limits of a uniform prior are looked at here.
    assert prior_conflicts([parameter], 0.88 * mean, sd) == []
    assert prior_conflicts([Parameter("a.I", "Jy", Uniform(0.0, 1.0), None, "")], mean, sd) == []
    log = Parameter("g", "", LogNormal(sd=0.5), None, "")
    (found,) = prior_conflicts([log], np.exp(mean), np.exp(mean) * sd)
    assert found.sigma == pytest.approx(5 / np.sqrt(1.25))


def test_a_prior_that_contradicts_the_data_is_named_by_every_result() -> None:
    obs = observe(white(np.random.default_rng(10)))
    tight = '{ prior = "normal", mean = 1, sd = 0.02, unit = "Jy" }'
    # 2 +- 0.5 / sqrt(2 * 8960) Jy against 1 +- 0.02.
    for found in (
        biro.maximise(likelihood(obs, tight), seed=1).warnings(),
        biro.sample(likelihood(obs, tight), "none", seed=1, progress=False).summary().warnings(),
    ):
        assert found[0].startswith("PRIOR AND DATA DISAGREE: without its prior a.I would be ")
        sigma = float(found[0].split(" sigma")[0].split(", ")[-1])
        assert 25 < sigma < 60  # 49 in all, the less the worse the fit beside it


def test_limits_of_priors() -> None:
    """East is 0, 5 arcsec below its prior; the size of a point is 0, at its lower limit, and rightly so."""
    obs = observe(white(np.random.default_rng(11)))
    first, *_ = biro.maximise(likelihood(obs, low=5.0), seed=1).warnings()
    assert first.startswith(
        "PRIOR AND DATA DISAGREE: a.east is CUT OFF at the lower limit of its prior, 5 arcsec"
    )
    assert biro.maximise(likelihood(obs), seed=1).warnings() == []
    table = biro.sample(likelihood(obs), "none", seed=1, progress=False).summary()
    assert not any("CUT OFF" in line for line in table.warnings())
    if table["a.fwhm"].at_end:
        assert any(
            "UPPER LIMIT: a.fwhm is most probable at the lower limit" in line for line in table.notes()
        )


def test_what_is_no_data_is_named_first() -> None:
    obs = observe(white(np.random.default_rng(13)))
    (part,) = obs.partitions
    uvw, vis = part.uvw.copy(), part.vis.copy()
    uvw[::10], vis[5, 0, 0] = 0.0, 0.0
    spoiled = replace(obs, partitions=(replace(part, uvw=uvw, vis=vis),))
    first, second, *_ = biro.maximise(likelihood(spoiled), seed=1).warnings()
    # 40 times of 28 baselines.
    assert first.startswith("ROWS WITHOUT UVW: uvw is 0 in 112 of 1120 rows of two different antennas")
    assert second.startswith("ZERO VISIBILITIES: 1 of 8960 unflagged visibilities are exactly 0")


def repeated(obs: biro.Observation, n_row: int, n_copy: int = 1) -> tuple[biro.Observation, np.ndarray]:
    """The observation with so many copies of its first rows, and the row that each of its rows was."""
    (part,) = obs.partitions
    rows = np.arange(part.n_row)
    order = np.sort(np.concatenate([rows, *[rows[:n_row]] * n_copy]), kind="stable")
    whole = biro.Observation.from_arrays(
        part.vis[order],
        part.uvw[order],
        part.antenna1[order],
        part.antenna2[order],
        part.time[order],
        part.chan_freq,
        part.corr_type,
        weight=part.weight[order],
    )
    return whole, order


@pytest.mark.parametrize(
    ("n_copy", "part_of_rows", "expected"),
    [(1, 1.0, 2.0**0.5), (3, 1.0, 2.0), (1, 0.25, (0.75 + 0.25 * 4) ** 0.5 / 1.25**0.5)],
)
def test_copies_of_rows_are_named_and_counted_once(n_copy: int, part_of_rows: float, expected: float) -> None:
    """A mean with weights m of n numbers has the variance sum m^2 / (sum m)^2; 1 / sum m is stated."""
    obs = observe(white(np.random.default_rng(14)))
    n_row = obs.partitions[0].n_row
    whole, order = repeated(obs, int(part_of_rows * n_row), n_copy)
    found = biro.maximise(likelihood(whole), seed=1)
    (line,) = found.warnings()
    assert line.startswith(f"DUPLICATED ROWS: {len(order) - n_row} of {len(order)} rows repeat another row")
    assert found.error_factor == pytest.approx(expected, rel=1e-6)  # counted, not measured


def test_a_slow_change_that_no_single_visibility_shows() -> None:
    """A flux that falls by 10 %: a tenth of the noise of a visibility, 11 sigma of all together."""
    rng = np.random.default_rng(16)
    fall = 1.0 + np.linspace(0.05, -0.05, N_TIME)[:, None, None, None]
    shape = (N_TIME, len(PAIRS), N_CHAN, 2)
    obs = observe(white(rng), signal=(FLUX * fall * np.ones(shape)))
    line, holds = biro.maximise(likelihood(obs), seed=1).warnings()
    assert line.startswith("THE MODEL DOES NOT FIT (field/spw0): significance ")
    assert holds == HOLDS  # the mean flux is right, as is its error
    assert "The flux changes with time" in line


def test_errors_beside_copies_of_rows_do_not_hold() -> None:
    """A polarised source is missing, which leaves errors of Stokes I as they are; copies of rows do not."""
    shape = (20, len(PAIRS), 1, 2)
    obs = observe(white(np.random.default_rng(17), *shape), signal=FLUX + np.array([0.3, -0.3]))
    lines = biro.maximise(likelihood(obs, noise="factor = 1"), seed=1).warnings()
    assert HOLDS in lines
    whole, _ = repeated(obs, 50)  # of 560
    lines = biro.maximise(likelihood(whole, noise="factor = 1"), seed=1).warnings()
    assert lines[0].startswith("DUPLICATED ROWS")
    assert any(line.startswith("THE MODEL DOES NOT FIT") for line in lines)
    assert HOLDS not in lines


def test_sound_fits_carry_no_line() -> None:
    """24 fits of sound data of many sizes: with 5 sigma of each test, one line in a thousand fits."""
    lines = []
    for seed in range(24):
        rng = np.random.default_rng([12, seed])
        shape = rng.choice([1, 2, 5, 20]), len(PAIRS), rng.choice([1, 4]), rng.choice([1, 2])
        fixed = "factor = 1" if seed % 2 else ""
        lines += biro.maximise(likelihood(observe(white(rng, *shape)), noise=fixed), seed=seed).warnings()
    assert lines == []


def test_a_maximum_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sampler none has the diagnosis of its maximum; residuals of it are made from one prediction."""
    calls = {"residual_data": 0, "remarks": 0, "predict": 0}
    for name in calls:
        original = getattr(biro.Likelihood, name)

        def counted(self, theta, name=name, original=original):
            calls[name] += 1
            return original(self, theta)

        monkeypatch.setattr(biro.Likelihood, name, counted)
    like = likelihood(observe(white(np.random.default_rng(4))), noise="factor = 1")
    posterior = biro.sample(like, "none", seed=1, progress=False)
    assert posterior.fits
    assert calls == {"residual_data": 1, "remarks": 1, "predict": 2}


def test_thermal_noise_of_few_shares_is_not_below_that_of_the_data() -> None:
    """Residuals far above the noise, with the least amplitude in the middle: differences leave the noise.

    Before, the mean power of all three took the place of that of the differences, which came out negative.
    """
    rng = np.random.default_rng(3)
    size = np.array([60.0, 20.0, 60.0])[:, None]
    turned = size * np.exp(
        1j * (rng.uniform(0, 6, 400) + rng.uniform(-0.1, 0.1, 400) * np.arange(3)[:, None])
    )
    noise = (rng.normal(size=(3, 400)) + 1j * rng.normal(size=(3, 400))) / np.sqrt(2)
    found = dict(shares(list(turned + noise)))
    # Rms of the real part of the noise is 1/sqrt(2), and the fringe leaves some more.
    assert min(found.values()) * np.sqrt(np.mean(np.abs(turned + noise) ** 2)) > 1.0
