"""Smearing of models: against means of finely sampled data, baseline-dependent averages, the choice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from astropy.coordinates import CIRS, SkyCoord
from astropy.time import Time

from biro.errors import InputError
from biro.io.measurement_set import create_ms, read_ms
from biro.likelihood.likelihood import Likelihood
from biro.models import ImageModel, ImageTerm, Noise, PointSource, SkyModel, Uniform
from biro.models.components.direction import basis
from biro.observation.averaging import average_time
from biro.observation.feeds.earth import pole_of_date
from biro.observation.smearing import choose
from biro.simulation.prediction import predict
from biro.simulation.simulator import Channels, Track, simulate
from biro.simulation.uvw import earth_orientation
from rime_kernels.smearing import EARTH_RATE, turned

CENTRE = (1.3, -0.75)
SECONDS, WIDTH, N_TIME, N_CHAN = 480.0, 2e7, 24, 20
"""Of what is averaged, and how many integrations and channels make it up."""


def sky(noise=1.0, **free):
    near = PointSource("near", east="-3 arcmin", north="20 arcsec", I="1 Jy")
    far = PointSource("far", **({"east": "50 arcmin", "north": "-35 arcmin", "I": "2 Jy"} | free))
    return SkyModel([near, far], noise=Noise(factor=noise))


def fine():
    """Two long integrations of one wide channel, in short ones of narrow channels, as they would be."""
    return simulate(
        "KAT-7",
        sky(),
        phase_centre=CENTRE,
        times=Track("2026-03-01", 2 * SECONDS, SECONDS / N_TIME),
        channels=Channels(1.3e9, WIDTH / N_CHAN, N_CHAN),
        smearing="off",
    )


def coarse(**more):
    """The same in long integrations of one wide channel."""
    first = 1.3e9 + 0.5 * WIDTH * (1 - 1 / N_CHAN)
    settings = {
        "times": Track("2026-03-01", 2 * SECONDS, SECONDS),
        "channels": Channels(first, WIDTH, 1),
        "smearing": "on",
    }
    return simulate("KAT-7", sky(), phase_centre=CENTRE, **(settings | more))


def means(part, n_time):
    """Plain means over n_time integrations, in order, and over channels: (n_time, n_baseline, n_corr)."""
    n_baseline = part.n_row // len(part.times)
    vis = part.vis.reshape(-1, n_time, n_baseline, part.n_chan, part.n_corr)
    return vis.mean(axis=(1, 3))


def test_simulated_data_are_averages():
    expected = means(fine().partitions[0], N_TIME)
    found = coarse().partitions[0].vis.reshape(expected.shape)
    plain = coarse(smearing="off").partitions[0].vis.reshape(expected.shape)
    loss = np.abs(plain - expected).max()
    assert loss > 0.1
    # Means over so few points miss (1/24)^2 and (1/20)^2 of the loss.
    assert np.abs(found - expected).max() < 3e-3 * loss


def test_uvw_turn_about_the_pole_of_date():
    """Declination and north of date by astropy's CIRS; turned uvw by ERFA's orientation of the Earth."""
    time, half = 61100.3 * 86400.0, 300.0
    (declination,), (pole_angle,) = pole_of_date(np.array([time]), basis(CENTRE))
    of_date = CIRS(obstime=Time(time / 86400.0, format="mjd"))
    here, norther = (
        SkyCoord(CENTRE[0], CENTRE[1] + x, unit="rad").transform_to(of_date) for x in (0.0, 1e-4)
    )
    assert declination == pytest.approx(here.dec.rad, abs=1e-7)  # light is bent by the Sun
    # The north of 2000 stands at -pole_angle of date; aberration differs over 1e-4 rad by 1e-8.
    assert pole_angle == pytest.approx(-here.position_angle(norther).wrap_at("180d").rad, abs=3e-4 * 0.1)
    positions = np.random.default_rng(0).normal(size=(5, 3))
    before, now, after = earth_orientation(time + half * np.arange(-1, 2), CENTRE).antenna_uvw(positions)
    for sign, expected in ((-1, before), (1, after)):
        found = np.stack(turned(*now.T, sign * half * EARTH_RATE, declination, pole_angle), axis=-1)
        # The Earth's velocity changes within 300 s, which turns axes by 1e-8; the change is 0.02.
        np.testing.assert_allclose(found, expected, atol=1e-7)
        wrong = np.stack(turned(*now.T, sign * half * EARTH_RATE, CENTRE[1]), axis=-1)
        assert np.abs(wrong - expected).max() > 1e-5


def test_times_that_are_no_dates_have_the_pole_of_2000():
    # The frame of ICRS is 2e-7 rad away, nutation and aberration of the day 2000-01-01 1e-4.
    found = np.ravel(pole_of_date(np.zeros(1), basis(CENTRE)))
    assert found == pytest.approx((CENTRE[1], 0.0), abs=2e-4)


def bda():
    """Baseline-dependent averages, by numpy: long baselines over 8 integrations, short ones over 24.

    As an observation without visibilities, and the means.
    """
    observation = fine()
    (part,) = observation.partitions
    n_baseline = part.n_row // len(part.times)
    is_long = np.hypot(*part.uvw[:n_baseline, :2].T) > 60.0
    rows, interval, vis, time, weight = [], [], [], [], []
    short = part.interval
    for n, baselines in ((8, np.flatnonzero(is_long)), (N_TIME, np.flatnonzero(~is_long))):
        mean = means(part, n)
        for k in range(len(mean)):
            # The middle of an even number of integrations: uvw there is the mean of the two about it.
            first = (k * n + n // 2 - 1) * n_baseline + baselines
            rows.append(np.stack([first, first + n_baseline], axis=1))
            interval.append(np.full(baselines.size, n * short))
            time.append(part.time[rows[-1]].mean(axis=1))
            vis.append(mean[k, baselines])
            weight.append(np.full(baselines.size, float(n)))
    row, times = np.concatenate(rows), np.concatenate(time)
    distinct, index = np.unique(times.round(3), return_inverse=True)
    averaged = replace(
        part,
        uvw=part.uvw[row].mean(axis=1),
        antenna1=part.antenna1[row[:, 0]],
        antenna2=part.antenna2[row[:, 0]],
        time=distinct[index],
        time_index=index.astype(np.int32),
        chan_freq=part.chan_freq.mean(keepdims=True),
        chan_width=np.array([WIDTH]),
        chan_id=None,
        vis=np.concatenate(vis)[:, None],
        weight=np.broadcast_to(np.concatenate(weight)[:, None, None], (len(row), 1, part.n_corr)).copy(),
        row_id=np.arange(len(row)),
        row_interval=np.concatenate(interval),
        guessed=(),
    )
    return replace(observation, partitions=(averaged,))


def test_baseline_dependent_averages_are_read_and_predicted(tmp_path):
    made = bda()
    create_ms(tmp_path / "bda.ms", made)
    observation = read_ms(tmp_path / "bda.ms")
    (part,) = observation.partitions
    np.testing.assert_allclose(part.row_interval, made.partitions[0].row_interval)
    np.testing.assert_array_equal(part.chan_width, WIDTH)
    likelihood = Likelihood(observation, sky(), smearing="on", backend="cpu")
    assert (likelihood.choices.forms, likelihood.options.smearing) == (["row"], ["on"])
    (found,) = likelihood.predict(np.zeros(0))
    (plain,) = Likelihood(observation, sky(), smearing="off").predict(np.zeros(0))
    loss = np.abs(plain - part.vis).max()
    assert loss > 0.1
    # As above; the mean of uvw over two integrations is off by 1e-8 of it.
    assert np.abs(found - part.vis).max() < 5e-3 * loss
    # One interval for all rows, as sets without their own have it, is not enough.
    same = replace(observation, partitions=(replace(part, row_interval=None),))
    (wrong,) = Likelihood(same, sky(), smearing="on", form="row").predict(np.zeros(0))
    assert np.abs(wrong - part.vis).max() > 3e-2 * loss


def test_rubbish_intervals_are_not_believed(tmp_path):
    made = bda()
    (part,) = made.partitions
    create_ms(
        tmp_path / "bad.ms", replace(made, partitions=(replace(part, row_interval=9 * part.row_interval),))
    )
    assert read_ms(tmp_path / "bad.ms").partitions[0].row_interval is None


def test_averaging_in_time_keeps_what_each_row_lasted():
    (part,) = fine().partitions
    whole, _ = average_time(part, SECONDS)
    assert whole.row_interval is None
    assert whole.interval == pytest.approx(SECONDS)
    ragged, _ = average_time(part, 0.75 * SECONDS)
    np.testing.assert_allclose(np.unique(ragged.row_interval), [0.5 * SECONDS, 0.75 * SECONDS], rtol=1e-6)


def test_rows_are_averages_over_their_exposure(tmp_path):
    """The second of two integrations lost its first and last quarter: fine means over what is left."""
    observation = coarse()
    (part,) = observation.partitions
    half = np.where(part.time_index == 1, 0.5 * SECONDS, SECONDS)
    half[-1] = 0.999 * SECONDS  # less than 1 % is nothing
    create_ms(tmp_path / "half.ms", replace(observation, partitions=(replace(part, exposure=half),)))
    read = read_ms(tmp_path / "half.ms", allow_unusable=True)  # cross hands of 0 are no data
    found = read.partitions[0].exposure
    np.testing.assert_allclose(found[:-1], half[:-1])
    assert found[-1] == SECONDS
    assert read.partitions[0].interval == SECONDS
    text = "EXPOSURE is below INTERVAL in 48 % of the rows (240 of 480 s). biro treats them as averages"
    assert text in str(read.summary())
    whole = means(fine().partitions[0], N_TIME)
    sixths = means(fine().partitions[0], N_TIME // 4)
    expected = np.stack([whole[0], sixths[5:7].mean(axis=0)])
    (model,) = predict(read, sky(), smearing="on", backend="cpu")
    (unread,) = predict(observation, sky(), smearing="on", backend="cpu")
    model, unread = (vis.reshape(expected.shape)[:, :-1] for vis in (model, unread))
    loss = np.abs(next(predict(read, sky(), smearing="off")).reshape(whole.shape) - whole).max()
    # As in the first test; over 12 points, (1/12)^2.
    assert np.abs(model - expected[:, :-1]).max() < 5e-3 * loss
    assert np.abs(unread - expected[:, :-1]).max() > 0.1 * loss
    # Averaged in time, the whole from the first begin to the last end.
    averaged, _ = average_time(read.partitions[0], 2 * SECONDS)
    np.testing.assert_allclose(averaged.exposure[:-1], 1.75 * SECONDS, rtol=1e-6)
    create_ms(tmp_path / "same.ms", observation)
    same = read_ms(tmp_path / "same.ms")
    assert same.partitions[0].exposure is None
    assert "EXPOSURE" not in str(same.summary())


# ---- the choice


def test_auto_compares_the_loss_with_the_noise():
    clean = coarse(smearing="on")
    (part,) = clean.partitions
    # 18 of 42 baselines lose about a tenth of 2 Jy.
    loud, quiet = (replace(part, weight=np.full(part.weight.shape, w)) for w in (1e-4, 1e4))
    free = {"I": Uniform(1.0, 3.0, "Jy")}
    for each, mode in ((loud, "off"), (quiet, "on")):
        likelihood = Likelihood(replace(clean, partitions=(each,)), sky(**free))
        assert likelihood.options.smearing == [mode]
        (line,) = likelihood.choices.smearing
        assert line.startswith(f"smearing {mode}: averaging over 480 s and 20 MHz loses up to ")
        assert "of a source 1.02 deg from the phase centre" in line
        assert line.endswith("sigma in all data)")
    # Two partitions: each choice is stated once, with the number of partitions and that of the larger loss.
    fainter = replace(quiet, weight=quiet.weight / 4.0, spw_id=1)
    both = replace(clean, partitions=(quiet, fainter))
    (line,) = Likelihood(both, sky(**free)).choices.smearing
    assert line.startswith("smearing on in 2 of 2 partitions: averaging over 480 s and 20 MHz loses up to ")
    assert line.endswith(f", most in {both.labels[0]}")
    near = SkyModel([PointSource("p", east="0 deg", north="0 deg", I="2 Jy")], noise=Noise(factor=1.0))
    assert Likelihood(replace(clean, partitions=(quiet,)), near).options.smearing == ["off"]


def test_a_fit_knows_smearing():
    observation = coarse(noise=0.01, seed=3)
    free = {"I": Uniform(1.0, 3.0, "Jy")}
    likelihood = Likelihood(observation, sky(**free))
    step, theta = 1e-3, np.array([2.01])
    value, slope = likelihood.log_likelihood_and_gradient(theta)
    assert value == pytest.approx(likelihood.log_likelihood(theta), rel=1e-12)
    # chi2 is a parabola in a flux: differences are exact, up to rounding of 1e-15 of some thousand.
    pair = [likelihood.log_likelihood(theta + x) for x in (step, -step)]
    np.testing.assert_allclose(slope[0], (pair[0] - pair[1]) / (2 * step), rtol=1e-6)
    sigma = likelihood.fisher(theta)[0, 0] ** -0.5
    best = theta[0] + slope[0] * sigma**2
    assert abs(best - 2.0) < 4 * sigma
    # Without smearing the flux comes out too low by many sigma.
    off = Likelihood(observation, sky(**free), smearing="off")
    biased = theta[0] + off.log_likelihood_and_gradient(theta)[1][0] / off.fisher(theta)[0, 0]
    assert biased < 2.0 - 20 * sigma
    assert off.digest() != likelihood.digest()
    again = Likelihood(observation, sky(**free), smearing=likelihood.options.smearing)
    assert again.digest() == likelihood.digest()
    assert likelihood.description()["smearing"] == ["on"]


def test_what_cannot_be_is_refused():
    observation = coarse()
    (part,) = observation.partitions
    with pytest.raises(InputError, match=r'smearing must be "auto", "on" or "off", got \'yes\''):
        Likelihood(observation, sky(), smearing="yes")
    with pytest.raises(InputError, match="one for each of 1 partitions"):
        Likelihood(observation, sky(), smearing=["on", "off"])
    unknown = replace(part, guessed=("interval", "chan_width"))
    sources = next(iter(Likelihood(observation, sky()).model.at(np.zeros((1, 0))).sources()))
    with pytest.raises(InputError, match="needs the integration time or the channel width"):
        choose(unknown, sources, "on")
    assert "is known" in choose(unknown, sources, "auto").reason


# ---- images


def lit(centre=CENTRE):
    """Three pixels of an image of 1.7 deg, and the same as points, north up and east to the left."""
    pixels = np.zeros((1, 1, 128, 128))
    # 8, 20 and 50 arcmin from the middle: (y, x), Jy.
    places = {(74, 64): 1.0, (44, 84): 2.0, (100, 16): 1.5}
    cell = float(np.deg2rad(48.0 / 3600.0))
    for (y, x), flux in places.items():
        pixels[0, 0, y, x] = flux
    lm = np.array([[-(x - 64) * cell, (y - 64) * cell] for y, x in places])
    return ImageModel(pixels, cell, centre), lm, np.array(list(places.values()))


def direct(observation, lm, flux, seconds, width, n=65):
    """Plain means (Simpson's weights) of n times and n frequencies of an explicit sum; uvw of ERFA's Earth.

    Turned uvw are those of the antennas at each time, from the simulator's orientation of the Earth.
    """
    (part,) = observation.partitions
    n_minus_1 = np.sqrt(1.0 - np.sum(lm**2, axis=1)) - 1.0
    lmn = np.column_stack([lm, n_minus_1])
    offset, weight = np.linspace(-0.5, 0.5, n), np.ones(n)
    weight[1:-1:2], weight[2:-1:2] = 4.0, 2.0
    weight /= weight.sum()
    total = np.zeros(part.n_row, complex)
    for at, w in zip(offset, weight, strict=True):
        uvw = earth_orientation(part.times + at * seconds, CENTRE).antenna_uvw(observation.antenna_positions)
        turns = (uvw[part.time_index, part.antenna1] - uvw[part.time_index, part.antenna2]) @ lmn.T
        turns /= 299792458.0
        for nu, v in zip(part.chan_freq[0] + offset * width, weight, strict=True):
            total += w * v * (np.exp(2j * np.pi * nu * turns) @ flux)
    return total


def of_image(image, observation, **settings):
    found = next(predict(observation, None, image=image, accuracy=1e-6, backend="cpu", **settings))
    return found[:, 0, 0]


@pytest.mark.parametrize("centre", [CENTRE, (1.31, -0.745)])
def test_images_are_averages(centre):
    """An image about any centre as an explicit sum over its pixels, averaged finely by numpy."""
    observation = coarse()
    image, lm, flux = lit(centre)
    if centre != CENTRE:
        lmn = np.column_stack([lm, np.sqrt(1.0 - np.sum(lm**2, axis=1))]) @ basis(centre) @ basis(CENTRE).T
        lm = lmn[:, :2]
    expected = direct(observation, lm, flux, SECONDS, WIDTH)
    plain = of_image(image, observation, smearing="off")
    loss = np.abs(plain - expected).max()
    assert loss > 0.1
    found = of_image(image, observation, smearing="on")
    # 1e-6 of the visibilities, whose rms is about 3 Jy, a few times that in the worst row.
    assert np.abs(found - expected).max() < 1e-5
    # "auto" is on: a loss of 0.1 Jy against noise of 1 Jy in so many visibilities is not, of 0.01 Jy it is.
    (part,) = observation.partitions
    quiet = replace(observation, partitions=(replace(part, weight=1e4 * part.weight),))
    np.testing.assert_array_equal(of_image(image, quiet, smearing="auto"), found)


def test_images_and_points_of_a_model_are_smeared_alike():
    observation = coarse()
    image, lm, flux = lit()
    points = [
        PointSource(f"p{i}", east=f"{l!r} rad", north=f"{m!r} rad", I=f"{x!r} Jy")
        for i, ((l, m), x) in enumerate(zip(lm.tolist(), flux.tolist(), strict=True))
    ]
    term = ImageTerm("sky", file=image, scale=Uniform(0.5, 2.0, ""))
    alone = SkyModel([], images=[term], noise=Noise(factor=1.0))
    likelihood = Likelihood(observation, alone, smearing="on", image_accuracy=1e-6, backend="cpu")
    (found,) = likelihood.predict(np.ones(1))
    (expected,) = predict(observation, SkyModel(points), smearing="on", backend="cpu")
    (plain,) = predict(observation, SkyModel(points), smearing="off", backend="cpu")
    assert np.abs(plain - expected).max() > 0.1
    # The accuracy that was asked for, a few times that in the worst row.
    assert np.abs(found - expected).max() < 1e-5
    # Two points in the image, one beside it.
    pixels = image.pixels.copy()
    pixels[0, 0, 100, 16] = 0.0
    both = SkyModel([points[2]], images=[replace(term, file=replace(image, pixels=pixels))])
    (mixed,) = predict(
        observation, both, values={"sky.scale": 1.0}, smearing="on", accuracy=1e-6, backend="cpu"
    )
    assert np.abs(mixed - expected).max() < 1e-5
    # V is proportional to the scale: so is its derivative, and chi2 is a parabola.
    noisy = replace(observation, partitions=(replace(observation.partitions[0], vis=expected),))
    fit = Likelihood(noisy, alone, smearing="on", image_accuracy=1e-6, backend="cpu")
    slope = fit.log_likelihood_and_gradient(np.array([1.3]))[1][0]
    weight = observation.partitions[0].weight
    exact = -np.sum(weight * ((1.3 * expected - expected).conj() * expected).real)
    assert slope == pytest.approx(exact, rel=1e-5)
    (line,) = fit.choices.smearing
    assert line.startswith("smearing on: as requested; averaging over 480 s and 20 MHz loses up to ")
    assert " % of an image 48 arcmin from the phase centre" in line
