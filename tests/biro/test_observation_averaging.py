"""Averaging and the loss it causes, noise and summary, against closed forms and simple sums."""

from __future__ import annotations

import json
import math
import tracemalloc
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy import optimize, special

from biro.errors import InputError
from biro.io.measurement_set import read_ms
from biro.observation import averaging, noise
from biro.observation.averaging import (
    EARTH_RATE,
    Averaging,
    average,
    average_channels,
    average_time,
    smearing_loss,
    time_bins,
)
from biro.observation.noise import measure_noise
from biro.observation.observation import Observation
from biro.observation.partition import Partition

C = 299792458.0


def track(n_time: int = 12, n_chan: int = 4, dec: float = 0.6, step: float = 10.0) -> Observation:
    """Two baselines of an Earth-rotation track with random weights and flags."""
    rng = np.random.default_rng(2)
    angle = 0.3 + EARTH_RATE * step * np.arange(n_time)
    baselines = np.array([[900.0, -400.0, 250.0], [-300.0, 2000.0, 600.0]])
    rows = []
    for x, y, z in baselines:
        u = np.sin(angle) * x + np.cos(angle) * y
        v = -np.sin(dec) * np.cos(angle) * x + np.sin(dec) * np.sin(angle) * y + np.cos(dec) * z
        w = np.cos(dec) * np.cos(angle) * x - np.cos(dec) * np.sin(angle) * y + np.sin(dec) * z
        rows.append(np.stack([u, v, w], axis=1))
    uvw = np.stack(rows, axis=1).reshape(-1, 3)
    shape = (2 * n_time, n_chan, 2)
    return Observation.from_arrays(
        vis=rng.normal(size=shape) + 1j * rng.normal(size=shape),
        uvw=uvw,
        antenna1=np.tile([0, 2], n_time),
        antenna2=np.tile([1, 1], n_time),
        time=np.repeat(5e9 + step * np.arange(n_time), 2),
        chan_freq=1.4e9 + 1e6 * np.arange(n_chan),
        corr_type=("XX", "YY"),
        weight=rng.uniform(0.5, 2, shape),
        flag=rng.random(shape) < 0.2,
        phase_centre=(0.0, dec),
        chan_width=1e6,
        interval=step,
    )


def test_time_averages_are_weighted_sums() -> None:
    (part,) = track().partitions
    averaged, longest = average_time(part, 30.0)
    assert (averaged.n_row, longest, averaged.times.tolist()) == (
        8,
        30.0,
        [5e9 + 10 + 30 * i for i in range(4)],
    )
    for i in range(averaged.n_row):
        baseline = (part.antenna1 == averaged.antenna1[i]) & (part.antenna2 == averaged.antenna2[i])
        mine = baseline & (np.abs(part.time - averaged.time[i]) < 15)
        assert mine.sum() == 3
        vis, weight = part.vis[mine], part.weight[mine]
        assert averaged.weight[i] == pytest.approx(weight.sum(axis=0))
        mean = (vis * weight).sum(axis=0) / np.maximum(weight.sum(axis=0), 1e-300)
        assert np.allclose(averaged.vis[i], mean, rtol=1e-13)
        row_weight = weight.sum(axis=(1, 2))
        assert averaged.uvw[i] == pytest.approx(row_weight @ part.uvw[mine] / row_weight.sum())
        assert averaged.row_id[i] == np.flatnonzero(mine)[0]


def test_channel_averages_are_weighted_sums() -> None:
    (part,) = track(n_chan=5).partitions
    averaged = average_channels(part, 2)
    assert averaged.chan_freq.tolist() == [1.4005e9, 1.4025e9, 1.404e9]
    assert averaged.chan_width.tolist() == [2e6, 2e6, 1e6]
    assert averaged.chan_id.tolist() == [0, 2, 4]
    assert averaged.weight[:, 1] == pytest.approx(part.weight[:, 2:4].sum(axis=1))
    assert averaged.vis[:, 2] == pytest.approx(part.vis[:, 4])


def test_averaging_in_blocks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    (part,) = track(n_chan=5).partitions
    whole = average_time(part, 30.0)[0], average_channels(part, 2)
    monkeypatch.setattr(averaging, "BLOCK_VISIBILITIES", 100)
    blocks = average_time(part, 30.0)[0], average_channels(part, 2)
    for one, other in zip(whole, blocks, strict=True):
        assert np.array_equal(one.vis, other.vis)
        assert np.array_equal(one.weight, other.weight)


@pytest.mark.parametrize("average", [lambda p: average_time(p, 30.0), lambda p: average_channels(p, 4)])
def test_averaging_takes_little_memory(average, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(averaging, "BLOCK_VISIBILITIES", 4096)
    (part,) = track(n_chan=2048).partitions
    part = replace(part, vis=part.vis.astype(np.complex64), weight=part.weight.astype(np.float32))
    tracemalloc.start()
    average(part)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # The result is at most a third of the data; whole arrays in double would be 5 times the data.
    assert peak < part.vis.nbytes + part.weight.nbytes


def test_what_is_flagged_throughout_stays_out() -> None:
    observation = track()
    weight = np.array(observation.partitions[0].weight)
    weight[[0, 2, 4]] = 0
    part = replace(observation.partitions[0], weight=weight)
    averaged, _ = average_time(part, 30.0)
    assert not averaged.weight[0].any()
    assert not averaged.vis[0].any()
    assert averaged.uvw[0] == pytest.approx(part.uvw[[0, 2, 4]].mean(axis=0))


def test_time_bins_do_not_reach_across_gaps() -> None:
    times = np.array([0.0, 10, 20, 1000, 1010, 1030])
    assert time_bins(times, 20.0).tolist() == [0, 0, 1, 2, 2, 3]
    assert time_bins(times * (1 + 1e-7), 10.0).tolist() == [0, 1, 2, 3, 4, 5]


def test_time_bins_hold_times_of_one_scan() -> None:
    scan = np.array([1, 1, 2, 2, 2, 1], np.int32)
    assert time_bins(10.0 * np.arange(6), 1e3, scan).tolist() == [0, 0, 1, 1, 1, 2]
    # A new scan begins a bin, whose length counts from there.
    assert time_bins(10.0 * np.arange(6), 20.0, scan).tolist() == [0, 0, 1, 1, 2, 3]


@pytest.mark.parametrize("radius", [1e-4, 5e-4])
def test_bandwidth_loss_is_that_of_a_real_average(radius: float) -> None:
    (part,) = track().partitions
    bandwidth = np.full(part.n_chan, 40e6)
    loss = smearing_loss(part, bandwidth, 0.0, radius)
    # A flat band of many fine channels, a source in the direction of the longest baseline.
    length = np.hypot(part.uvw[:, 0], part.uvw[:, 1]).max()
    fine = (np.arange(4000) + 0.5) / 4000 * 40e6
    kept = abs(np.exp(2j * np.pi * length * radius / C * fine).mean())
    assert loss == pytest.approx(1 - kept, rel=1e-6)


def test_time_loss_is_that_of_a_real_average() -> None:
    radius, duration = 2e-3, 300.0
    (part,) = track(n_time=31).partitions
    loss = smearing_loss(part, np.zeros(part.n_chan), duration, radius)
    # The same rows in the worst of many directions, averaged over the whole 300 s; only the middle is
    # the loss's own epoch, so the two agree to the change of the rate within 300 s (2 %).
    worst = 0.0
    for angle in np.linspace(0, np.pi, 180, endpoint=False):
        l, m = radius * np.cos(angle), radius * np.sin(angle)
        n_minus_1 = -(radius**2) / (1 + np.sqrt(1 - radius**2))
        for antenna in (0, 2):
            uvw = part.uvw[part.antenna1 == antenna]
            phase = uvw @ [l, m, n_minus_1] * part.chan_freq.max() / C
            whole = np.exp(2j * np.pi * phase)
            kept = abs((whole[0] + whole[-1]) / 2 + whole[1:-1].sum()) / (len(whole) - 1)
            worst = max(worst, 1 - kept)
    assert worst > 0.01
    assert loss == pytest.approx(worst, rel=0.05)


def test_averaging_is_reported() -> None:
    observation = track()
    parts, record = average(
        observation.partitions, Averaging("1 min", 2, smearing_radius="5 arcmin"), np.array([25.0, 0, 25])
    )
    assert (record.seconds, record.channels) == (60.0, 2)
    assert record.radius == pytest.approx(5 / 60 * np.pi / 180)
    assert 0 < record.loss < 0.1
    assert (parts[0].n_chan, len(parts[0].times)) == (2, 2)
    _, by_default = average(observation.partitions, Averaging(average_channels=2), np.array([25.0, 0, 25]))
    # Half of lambda / D at 1.4 GHz for 25 m dishes.
    assert by_default.radius == pytest.approx(0.5 * C / 1.4e9 / 25)
    # Without diameters, ten times the resolution: 10 / (longest baseline in wavelengths).
    (part,) = observation.partitions
    length = np.hypot(part.uvw[:, 0], part.uvw[:, 1])[:, None] * part.chan_freq / C
    _, unknown = average(observation.partitions, Averaging(average_channels=2), np.zeros(3))
    assert unknown.radius == pytest.approx(10.0 / length[part.weight.any(axis=2)].max())
    assert average(observation.partitions, Averaging(), np.zeros(3))[1] is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"average_time": "-3 s"}, "average_time must be positive"),
        ({"average_time": "3 arcsec"}, "write a number with a unit such as s"),
        ({"average_channels": 2.0}, "must be a whole number >= 1, got 2.0"),
    ],
)
def test_averaging_that_cannot_be_meant(given: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Averaging(**given)


def test_channels_apart_are_not_averaged() -> None:
    (part,) = track(n_chan=4).partitions
    apart = replace(part, chan_freq=np.array([1e9, 1.1e9, 1.2e9, 1.3e9]))
    with pytest.raises(InputError, match="not adjacent"):
        average_channels(apart, 2)


def test_averaging_while_reading(measurement_set) -> None:
    observation = read_ms(measurement_set("wsrt_3c343.1"), average_time="60 s", average_channels=4)
    (part,) = observation.partitions
    # 18 times of 30 s, one 25 s off the grid: each pair makes one; 16 channels make 4.
    assert (len(part.times), part.n_chan) == (9, 4)
    assert part.weight.sum() == pytest.approx(108 * 16 * 4)
    assert "averaged      60 s x 4 channels" in str(observation.summary())


def test_noise_of_known_noise() -> None:
    rng = np.random.default_rng(4)
    shape = (2000, 8, 2)
    sigma = rng.uniform(0.5, 2, (2000, 1, 1))
    noise = sigma * (rng.normal(size=shape) + 1j * rng.normal(size=shape))
    (part,) = Observation.from_arrays(
        vis=noise + np.array([3.0, 2.0]) * np.exp(1j * np.arange(8))[:, None],
        uvw=np.ones((2000, 3)),
        antenna1=np.zeros(2000, int),
        antenna2=np.ones(2000, int),
        time=5e9 + 10.0 * np.arange(2000),
        chan_freq=1e9 + 1e6 * np.arange(8),
        corr_type=("XX", "YY"),
        weight=1 / (2 * sigma) ** 2,
    ).partitions
    found = measure_noise([part])
    # 64000 real numbers, each in two differences: the scatter of a MAD estimate is 0.5 %.
    assert found.ratio == pytest.approx(0.5, rel=0.02)
    # |x| of normal numbers with these sigmas is below its median, 0.6745 s, with a probability of 1/2.
    pairs = 2 * np.sqrt((sigma[1:] ** 2 + sigma[:-1] ** 2) / 2).ravel()
    median = optimize.brentq(lambda x: special.erf(x / pairs / math.sqrt(2)).mean() - 0.5, 0.1, 10)
    assert found.stated == pytest.approx(median / 0.67449, rel=0.02)
    assert found.measured / found.stated == pytest.approx(found.ratio)
    assert measure_noise([part], stokes_i=True).ratio == pytest.approx(0.5, rel=0.02)
    assert found.n_difference == 1999 * 16


def scans(n_pair: int, n_time: int, n_scan: int, n_chan: int, seed: int) -> Observation:
    """White noise of 1 Jy in real and imaginary part: scans of times 10 s apart, an hour from each other."""
    rng = np.random.default_rng([31, seed])
    time = (3600.0 * np.arange(n_scan)[:, None] + 10.0 * np.arange(n_time)).ravel()
    shape = (len(time) * n_pair, n_chan, 1)
    return Observation.from_arrays(
        vis=rng.normal(size=shape) + 1j * rng.normal(size=shape),
        uvw=np.ones((shape[0], 3)),
        antenna1=np.zeros(shape[0], int),
        antenna2=np.tile(1 + np.arange(n_pair), len(time)),
        time=5e9 + np.repeat(time, n_pair),
        interval=10.0,
        chan_freq=1e9 + 1e6 * np.arange(n_chan),
        corr_type=("XX",),
        weight=1.0,
    )


@pytest.mark.parametrize("n_chan", [1, 16])
def test_noise_of_scans_of_two_times_is_no_bound(n_chan: int) -> None:
    """No three times are neighbours: nothing shows that two of them differ by more than noise."""
    found = measure_noise(scans(45, 2, 8, n_chan, 0).partitions)
    assert not found.is_bound
    # 0.91 / sqrt(360) = 5 % at one channel: four standard errors.
    assert found.measured == pytest.approx(1.0, abs=0.2)
    # Residuals that are certainly more than noise may change between two times.
    first = (noise.BY_TIME, noise.FIRST)
    for changes in (None, False, True):
        chosen = noise.thermal_noise({first: 1.0}, {first: found.n_difference}, changes)
        assert chosen == (first, changes is True)


@pytest.mark.parametrize(("n_pair", "n_time", "n_scan"), [(1, 41, 1), (1, 161, 1), (10, 5, 1), (40, 3, 1)])
def test_white_noise_is_no_bound(n_pair: int, n_time: int, n_scan: int) -> None:
    """Second differences are less by chance in one of 740 sets (3 sigma), and by 2 % more in fewer."""
    sets = [scans(n_pair, n_time, n_scan, 1, seed) for seed in range(100)]
    # More than two of a hundred have a probability of 0.0004.
    assert sum(measure_noise(each.partitions).is_bound for each in sets) <= 2


def jittery(noise: np.ndarray, sky: float) -> Observation:
    """A source of `sky` Jy whose phase walks by 0.5 rad rms a time, alike in all channels."""
    n_time, n_chan = noise.shape
    walk = np.exp(0.5j * np.random.default_rng(6).normal(size=(n_time, 1)).cumsum(axis=0))
    return Observation.from_arrays(
        vis=(noise + sky * walk)[..., None],
        uvw=np.ones((n_time, 3)),
        antenna1=np.zeros(n_time, int),
        antenna2=np.ones(n_time, int),
        time=5e9 + 10.0 * np.arange(n_time),
        chan_freq=1e9 + 1e6 * np.arange(n_chan),
        corr_type=("I",),
    )


def test_noise_where_neighbouring_times_differ_by_more() -> None:
    """Channels of one time show the noise, unless it is smoothed over channels; one channel gives a limit."""
    rng = np.random.default_rng(7)
    white = rng.normal(size=(1000, 10)) + 1j * rng.normal(size=(1000, 10))
    found = measure_noise(jittery(white, 10.0).partitions)
    # 9000 differences: the scatter of a MAD estimate is 0.8 %.
    assert found.measured == pytest.approx(1.0, rel=0.03)
    assert not found.is_bound
    steady = measure_noise(jittery(white, 0.0).partitions)
    assert steady.measured == pytest.approx(1.0, rel=0.03)
    assert not steady.is_bound
    # Hanning smoothing: neighbouring channels have a correlation of 2/3, and differ by 0.58 times the noise.
    hanning = (white[:, :-2] + 2.0 * white[:, 1:-1] + white[:, 2:]) / np.sqrt(6.0)
    for limit in (hanning, white[:, :1]):
        noise = measure_noise(jittery(limit, 10.0).partitions)
        assert noise.is_bound
        assert noise.measured > 1.0
    assert "at most" in str(jittery(hanning, 10.0).summary())
    assert "at most" not in str(jittery(white, 10.0).summary())


@pytest.mark.parametrize("n_chan", [1, 4])
def test_noise_of_a_large_set_is_that_of_some_baselines(n_chan: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "MAX_SAMPLES", 6000)
    rng = np.random.default_rng(5)
    first, second = np.triu_indices(12, k=1)  # 66 baselines, of 500 times: 33000 visibilities a channel
    shape = (500 * 66, n_chan, 1)
    (part,) = Observation.from_arrays(
        vis=3 * (rng.normal(size=shape) + 1j * rng.normal(size=shape)),
        uvw=np.ones((shape[0], 3)),
        antenna1=np.tile(first, 500),
        antenna2=np.tile(second, 500),
        time=5e9 + np.repeat(10.0 * np.arange(500), 66),
        chan_freq=1e9 + 1e6 * np.arange(n_chan),
        corr_type=("I",),
    ).partitions
    found = measure_noise([part])
    # 33000 / 6000 = 5.5, rounded to even 6: 11 of 66 baselines; with four channels, one channel and the same.
    assert found.n_difference == 11 * 499
    # 11000 real numbers, each in two differences: the scatter of a MAD estimate is 1.1 %.
    assert found.measured == pytest.approx(3, rel=0.05)


def across_gaps(part: Partition) -> tuple[np.ndarray, np.ndarray]:
    """Differences / sqrt(2) of Stokes I, of each sample and the next of its baseline however long after."""
    hands = [name in ("RR", "LL", "XX", "YY") for name in part.corr_type]
    weight = part.weight[..., hands].astype(float).sum(axis=2)
    mean = (part.weight * part.vis)[..., hands].sum(axis=2) / np.maximum(weight, 1e-30)
    differences, expected = [], []
    for pair in np.unique(np.stack([part.antenna1, part.antenna2]), axis=1).T:
        rows = np.flatnonzero((part.antenna1 == pair[0]) & (part.antenna2 == pair[1]))
        rows = rows[np.argsort(part.time[rows])]
        for before, after in pairwise(rows):
            good = (weight[before] > 0) & (weight[after] > 0)
            differences.append((mean[after] - mean[before])[good] / np.sqrt(2))
            expected.append(np.sqrt((1 / weight[before][good] + 1 / weight[after][good]) / 2))
    return np.concatenate(differences), np.concatenate(expected)


@pytest.mark.parametrize(
    ("name", "readme", "measured"),
    [("vla_3c273_x", 0.034, 0.0275), ("wsrt_3c343.1", 0.205, 0.0394), ("vlba_j1033p6051_ku", 1.10, 1.097)],
)
def test_noise_of_real_sets(measurement_set, name: str, readme: float, measured: float) -> None:
    observation = read_ms(measurement_set(name))
    pairs = [across_gaps(part) for part in observation.partitions]
    difference, expected = (np.concatenate(items) for items in zip(*pairs, strict=True))
    if readme > 1:  # the README's figure of this set is the ratio to the noise by the weights
        difference = difference / expected
    # The README's figures are 1.4826 median |x| of differences across whatever gap: to its last digit.
    robust = 1.4826 * np.median(np.abs([difference.real, difference.imag]))
    assert robust == pytest.approx(readme, abs=0.6 * (0.01 if readme > 1 else 0.001))
    # Ours keep to neighbouring times, where the sky has not turned: less, never more.
    noise = observation.summary().noise["I"]
    ours = noise.ratio if readme > 1 else noise.measured
    assert ours == pytest.approx(measured, rel=5e-3)
    assert ours < robust
    # The gains of the VLA set change from time to time, so its noise is a limit; channels tell that of WSRT,
    # where XX and YY have the noise of the cross hands, which no source brightens: 0.053 Jy to 5 %.
    assert noise.is_bound == (name == "vla_3c273_x")
    if name == "wsrt_3c343.1":
        each = [observation.summary().noise[corr].measured for corr in ("XX", "XY", "YX", "YY")]
        assert each == pytest.approx([0.053] * 4, rel=0.05)


def test_summary_of_3c273(measurement_set) -> None:
    summary = read_ms(measurement_set("vla_3c273_x")).summary()
    assert (len(summary.antennas), summary.n_time, summary.interval) == (27, 23, 10.0)
    assert summary.counts["FLAG"] / summary.counts["total"] == pytest.approx(0.22, abs=0.005)
    text = str(summary)
    for piece in (
        "12h29m06.70",
        "+02d03m08.5",
        "stored as B1950_VLA",
        "8.085 GHz TOPO",
        "RR RL LR LL",
        "22.0 %",
    ):
        assert piece in text
    assert summary.resolution == pytest.approx(1 / summary.uv_wavelengths[1])
    assert summary.field_of_view == pytest.approx(C / 8.085e9 / 25)
    given = json.loads(json.dumps(summary.to_dict(), allow_nan=False))
    assert given["partitions"][0]["field"] == "3C273"
    assert given["noise"]["I"]["measured"] == pytest.approx(0.0275, abs=1e-3)


def test_no_noise_without_neighbours(measurement_set) -> None:
    # Three times hours apart have no neighbours, and JSON has no NaN.
    summary = read_ms(measurement_set("sim_7_circ")).summary()
    assert "not measured" in str(summary)
    assert json.loads(json.dumps(summary.to_dict(), allow_nan=False))["noise"]["RR"]["measured"] is None
