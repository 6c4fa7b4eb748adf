"""Gains solved from a fixed sky: statistics, another minimiser, eht-imaging's gains, tables, bad input."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from casacore import tables
from commands import works
from scipy.optimize import least_squares
from typer.testing import CliRunner

import biro
from biro.calibration.casa_table import write_casa_table
from biro.cli.app import app
from biro.errors import InputError
from biro.io.measurement_set import create_ms, read_ms
from biro.models import Feeds, Gain, PointSource, SkyModel
from biro.simulation.gains import GainScatter
from biro.simulation.prediction import predict
from biro.simulation.simulator import Channels, Track, simulate
from rime_kernels.gain_solving import Reason
from tests.biro.test_antenna_terms import eht, observation

__all__ = ["eht", "observation"]  # fixtures
SKY = SkyModel(
    [
        PointSource("a", east="0 arcmin", north="0 arcmin", I="2 Jy"),
        PointSource("b", east="3 arcmin", north="-6 arcmin", I="1 Jy"),
    ],
    centre=(1.3, -0.8),
    feeds=Feeds(rotation="present"),
)
SCATTER = GainScatter(0.2, 1.0, 60.0)
PARALLEL = [0, 3]


def made(sky: SkyModel = SKY, scatter: GainScatter | None = SCATTER, **changed: object) -> biro.Observation:
    given = {"noise": 0.3, "seed": 1, "gains": scatter} | changed
    given = {"times": Track("2026-03-01T18:00", 1200.0, 20.0)} | given
    return simulate(
        "KAT-7",
        sky,
        phase_centre=(1.3, -0.8),
        channels=Channels(1.4e9, 1e6, 2),
        backend="cpu",
        **given,
    )


def part_of(data: biro.Observation, **changed: np.ndarray) -> biro.Observation:
    return replace(data, partitions=(replace(data.partitions[0], **changed),))


def without(
    data: biro.Observation, flagged: Callable[[biro.observation.Partition], np.ndarray]
) -> biro.Observation:
    """The data with the rows flagged that a function names."""
    part = data.partitions[0]
    return part_of(data, weight=np.where(flagged(part)[:, None, None], 0.0, part.weight))


def rephased(gain: np.ndarray, reference: int) -> np.ndarray:
    """Gains (n_interval, n_antenna, 2) relative to the phase of the reference's feeds."""
    return gain * np.exp(-1j * np.angle(gain[:, reference]))[:, None]


def test_gains_scatter_about_the_truth_as_their_errors_say() -> None:
    data = made()
    solved = biro.solve_gains(data, SKY, interval=60.0, backend="cpu")
    window, reference = solved.windows[0], data.antenna_names.index(solved.reference)
    truth = rephased(SCATTER.draw(data, 1).gain[::3, :, 0], reference)
    ratio = window.gain[:, 0] / truth
    assert window.usable.all()
    pulls = [np.log(np.abs(ratio)) / window.log_amplitude_error[:, 0]]
    others = np.arange(7) != reference
    pulls += [np.angle(ratio[:, others]) / window.phase_error[:, 0, others]]
    for pull in pulls:
        # 280 and 240 pulls, those of an interval correlated (phases by the reference: 6 share its noise, so
        # that 40 to 80 are independent): 4 standard deviations of the mean and of the deviation.
        assert abs(pull.mean()) < 4.0 / np.sqrt(40)
        assert abs(pull.std() - 1.0) < 4.0 / np.sqrt(2 * 40)
    figures = solved.to_dict()
    n_dof = 2 * figures["n_vis"] - figures["n_free"]
    assert figures["n_free"] == 20 * 2 * (2 * 7 - 1)
    # chi2 has the variance 2 n_dof.
    assert abs(figures["chi2_after"] - n_dof) < 4.0 * np.sqrt(2 * n_dof)


def test_a_part_of_large_data_is_judged_by_visibilities_as_by_their_sky(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The verdict on a sky comes from every third row or so of data and model, whatever gives the model."""
    monkeypatch.setattr("biro.observation.noise.MAX_SAMPLES", 2000)
    data = made(noise=0.1)
    wrong = SkyModel(
        [SKY.sources[0], replace(SKY.sources[1], I="0.5 Jy")], centre=SKY.centre, feeds=SKY.feeds
    )
    for sky, fits in ((SKY, True), (wrong, False)):
        model = part_of(data, vis=np.asarray(next(iter(predict(data, sky)))))
        by_sky, by_visibilities = biro.solve_gains(data, sky), biro.solve_gains(data, model)
        assert by_sky.fits == by_visibilities.fits == fits
        assert by_visibilities.verdict == by_sky.verdict


@pytest.mark.parametrize(("flux", "fits"), [("1 Jy", True), ("0.8 Jy", False)])
def test_a_sky_that_is_a_little_wrong_is_named(flux: str, fits: bool) -> None:
    """A flux that is 20 % off leaves residuals below twice the noise, which are coherent in time."""
    given = SkyModel([SKY.sources[0], replace(SKY.sources[1], I=flux)], centre=SKY.centre, feeds=SKY.feeds)
    solved = biro.solve_gains(made(noise=0.1), given)
    window = solved.windows[0]
    per_dof = window.chi2_after.sum() / (2 * window.n_vis.sum() - window.n_free.sum())
    assert solved.fits == fits
    assert bool(solved.verdict) != fits
    if fits:
        # 2 x 5040 real numbers less 60 x 26 of gains: sqrt(2 / 8520) = 0.015; five times that.
        assert per_dof == pytest.approx(1.0, abs=0.08)
    else:
        assert 1.2 < per_dof < 4.0  # below the square of twice the noise
        first = str(solved).splitlines()[0]
        assert first.startswith("THE MODEL DOES NOT FIT THE CALIBRATED DATA")
        assert f"chi2/dof {per_dof:.3g}" in first
        assert "thermal noise" in first
        assert solved.to_dict()["remarks"][0].splitlines()[0] == first


def test_another_minimiser_finds_the_same_gains(
    eht: dict[str, np.ndarray], observation: biro.Observation
) -> None:
    """scipy's least squares of real and imaginary parts, with cross hands, of a scan of eht-imaging."""
    given = replace(observation.partitions[0], vis=eht["vis_fr_d"])
    sky = replace(observation, partitions=(given,))
    solved = biro.solve_gains(
        observation, sky, interval="scan", cross_hands="on", snr_limit=0.0, backend="cpu"
    )
    part, window = observation.partitions[0], solved.windows[0]
    interval = solved.interval_of(0)
    chosen = 4
    rows = interval == chosen
    up = np.unique([part.antenna1[rows], part.antenna2[rows]])
    first, second = (np.searchsorted(up, a[rows]) for a in (part.antenna1, part.antenna2))
    root = np.sqrt(part.weight[rows, 0])

    def residual(x: np.ndarray) -> np.ndarray:
        gain = (x[0::2] + 1j * x[1::2]).reshape(-1, 2)
        model = gain[first][:, [0, 0, 1, 1]] * gain[second][:, [0, 1, 0, 1]].conj() * eht["vis_fr_d"][rows, 0]
        wide = root * (part.vis[rows, 0] - model)
        return np.concatenate([wide.real.ravel(), wide.imag.ravel()])

    start = eht["gain"][eht["scan_of_time"] == chosen][0, up].reshape(-1)
    found = least_squares(
        residual, np.stack([start.real, start.imag], -1).ravel(), xtol=1e-14, ftol=1e-14, gtol=1e-12
    )
    gain = (found.x[0::2] + 1j * found.x[1::2]).reshape(-1, 2)
    reference = np.searchsorted(up, int(window.reference[chosen, 0, 0]))
    gain *= np.exp(-1j * np.angle(gain[reference, 0]))
    # 1e-4 of an error of 1 % to 3 %; SciPy ends by its gradient, and this search far closer.
    np.testing.assert_allclose(window.gain[chosen, 0, up], gain, atol=1e-6)
    assert window.chi2_after[chosen].sum() == pytest.approx(2.0 * found.cost, rel=1e-9)
    # Errors: those of eht-imaging's true gains, all scans and stations that are up, feeds by one reference.
    truth = eht["gain"][np.searchsorted(eht["scan_of_time"], np.arange(10))]
    anchor = truth[np.arange(10), window.reference[:, 0, 0], 0]
    truth = truth * np.exp(-1j * np.angle(anchor))[:, None, None]
    usable = window.usable[:, 0]
    ratio = window.gain[:, 0][usable] / truth[usable]
    pull = np.log(np.abs(ratio)) / window.log_amplitude_error[:, 0][usable]
    # 120 pulls or so, half of them independent; the leakage and the sky are the true ones.
    assert 0.7 < pull.std() < 1.3
    assert abs(pull.mean()) < 4.0 / np.sqrt(50)


def test_a_model_with_the_solved_table_fits_as_well(tmp_path: Path) -> None:
    data = made()
    solved = biro.solve_gains(data, SKY, interval=60.0, chan_blocks=2, backend="cpu")
    solved.save(tmp_path / "gains.npz")
    with_table = replace(SKY, gain=[Gain(table=str(tmp_path / "gains.npz"))])
    (model,) = predict(data, with_table, backend="cpu")
    part = data.partitions[0]
    chi2 = np.sum((part.weight * np.abs(part.vis - model) ** 2)[..., PARALLEL])
    # Sums of 1e4 terms in different orders; the table has all digits.
    assert chi2 == pytest.approx(solved.to_dict()["chi2_after"], rel=1e-10)
    (plain,), (corrected,) = predict(data, SKY, backend="cpu"), solved.corrected()
    factor = np.divide(model, plain, out=np.ones_like(model), where=plain != 0.0)
    np.testing.assert_allclose(corrected[..., PARALLEL], (part.vis / factor)[..., PARALLEL], rtol=1e-12)


def test_gains_that_turn_with_the_feeds_are_those_of_a_fit() -> None:
    """Rotation "corrected", linear feeds: A = P^H G P, with cross hands that give the phase between feeds."""
    corrected = Feeds(rotation="corrected")
    sky = replace(SKY, feeds=corrected, sources=[replace(SKY.sources[0], Q="0.5 Jy"), SKY.sources[1]])
    data = made(sky)
    solved = biro.solve_gains(data, sky, interval=60.0, backend="cpu")
    assert solved.settings["cross_hands"] is True
    part = data.partitions[0]
    (model,) = predict(data, replace(sky, gain=[Gain(table=solved.solutions())]), backend="cpu")
    # All correlations have one weight, so that turning the data changes nothing but rounding.
    found = float(np.sum(part.weight * np.abs(part.vis - model) ** 2))
    assert found == pytest.approx(solved.to_dict()["chi2_after"], rel=1e-9)
    n_dof = 2 * data.partitions[0].n_usable - solved.to_dict()["n_free"]
    assert abs(found - n_dof) < 4.0 * np.sqrt(2 * n_dof)


@pytest.mark.parametrize(("mode", "scatter"), [("phase", (0.0, 1.0)), ("amplitude", (0.3, 0.0))])
def test_phases_and_amplitudes_alone(mode: str, scatter: tuple[float, float]) -> None:
    truth = GainScatter(*scatter, 60.0)
    data = made(scatter=truth, noise=0.1)
    solved = biro.solve_gains(data, SKY, interval=60.0, mode=mode, backend="cpu")
    window, reference = solved.windows[0], data.antenna_names.index(solved.reference)
    assert window.usable.all()
    gain = truth.draw(data, 1).gain[::3, :, 0]
    gain = rephased(gain, reference) if mode == "phase" else gain
    spread = window.phase_error if mode == "phase" else window.log_amplitude_error
    # 280 gains within 5 of their errors; the reference's phase is exact.
    assert (np.abs(window.gain[:, 0] - gain) < 5.0 * spread[:, 0] * np.abs(gain) + 1e-12).all()
    other = window.log_amplitude_error if mode == "phase" else window.phase_error
    assert not other.any()


def test_common_feeds_have_one_gain() -> None:
    data = made()
    solved = biro.solve_gains(data, SKY, feeds="common", backend="cpu", interval="track")
    window = solved.windows[0]
    np.testing.assert_array_equal(window.gain[..., 0], window.gain[..., 1])
    assert solved.to_dict()["n_free"] == 2 * 7 - 1


def test_what_has_too_little_data_is_flagged_and_named() -> None:
    data = made(noise=0.1)
    ant = data.antenna_names
    early = data.partitions[0].time_index < 3

    def alone(part: biro.observation.Partition) -> np.ndarray:
        """Of antenna 2 one baseline is left, of antenna 5 none in the first interval."""
        either = (part.antenna1 == 2) | (part.antenna2 == 2)
        kept = (part.antenna1 == 0) & (part.antenna2 == 2)
        gone = early & ((part.antenna1 == 5) | (part.antenna2 == 5))
        return (either & ~kept) | gone

    solved = biro.solve_gains(without(data, alone), SKY, interval=60.0, reference=ant[5], backend="cpu")
    reason = solved.windows[0].reason[:, 0]
    assert (reason[:, 2] == Reason.FEW_BASELINES).all()
    assert (reason[0, 5] == Reason.NO_DATA).all()
    assert (np.delete(reason, 2, axis=1)[1:] == Reason.SOLVED).all()
    text = str(solved)
    assert f"flagged: 40 too few baselines: {ant[2]} in all intervals" in text
    assert f"flagged: 2 no data: {ant[5]} in 1 interval" in text
    assert f"replaces {ant[5]} in 2 of 40 solutions" in text
    one = biro.solve_gains(
        without(data, lambda part: (part.antenna1 != 0) | (part.antenna2 != 1)),
        SKY,
        interval="track",
        min_baselines=1,
        backend="cpu",
    )
    # One baseline gives the product of two amplitudes.
    assert (one.windows[0].reason[0, 0, :2] == Reason.UNDETERMINED).all()
    assert not one.windows[0].usable.any()
    faint = biro.solve_gains(made(noise=20.0), SKY, backend="cpu")
    assert faint.to_dict()["flagged"]["low_snr"] + faint.to_dict()["flagged"]["not_converged"] > 400


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reference": "ant77"}, "no antenna 'ant77' for the reference"),
        ({"reference": "ant1"}, "reference antenna ant1 has no unflagged data"),
        ({"interval": "day"}, "interval must be integration, scan, track or a time as 60 s, got 'day'"),
        ({"chan_blocks": 3}, "chan_blocks must be 1 to the number of channels, 2, got 3"),
        ({"mode": "delay"}, "mode must be complex, phase or amplitude, got 'delay'"),
    ],
)
def test_bad_requests_are_refused_in_one_line(options: dict[str, object], message: str) -> None:
    data = without(made(), lambda part: (part.antenna1 == 0) | (part.antenna2 == 0))
    with pytest.raises(InputError, match=message):
        biro.solve_gains(data, SKY, backend="cpu", **options)


def test_data_that_gains_cannot_be_solved_from() -> None:
    data = made()
    dark = replace(SKY, sources=[PointSource("a", east="0 deg", north="0 deg", I="0 Jy")])
    with pytest.raises(InputError, match="the model is 0 Jy at all data"):
        biro.solve_gains(data, dark, backend="cpu")
    stokes = part_of(data, corr_type=("I", "Q", "U", "V"))
    with pytest.raises(InputError, match="gains of separate feeds act on correlations of feeds"):
        biro.solve_gains(stokes, SKY, backend="cpu")
    with pytest.raises(InputError, match="no data to solve gains from"):
        biro.solve_gains(without(data, lambda part: np.ones(part.n_row, bool)), SKY, backend="cpu")


def test_the_command_writes_tables_and_corrected_data(tmp_path: Path) -> None:
    data = made(noise=0.1)
    create_ms(tmp_path / "obs.ms", data)
    (tmp_path / "sky.toml").write_text(SKY.to_toml())
    words = [str(tmp_path / "obs.ms"), str(tmp_path / "sky.toml"), "-o", str(tmp_path / "gains")]
    options = ["--interval", "1 min", "--corrected", "--json", "--backend", "cpu"]
    done = works("solve", *words, *options)
    figures = json.loads(done.stdout)
    assert figures["n_solved"] == 280
    assert figures["n_uncorrected"] == 0
    assert {path.name for path in (tmp_path / "gains").iterdir()} == {
        "gains.npz",
        "gains.G",
        "gains.png",
        "solve.json",
    }
    table, file = biro.read_gains(tmp_path / "gains/gains.G"), biro.read_gains(tmp_path / "gains/gains.npz")
    # The table has one solution for each minute in single precision, the file one for each integration.
    np.testing.assert_allclose(table.time, file.time.reshape(20, 3).mean(axis=1), atol=1e-5)
    np.testing.assert_allclose(table.gain, file.gain[::3], rtol=1e-6)
    corrected = read_ms(tmp_path / "obs.ms", column="CORRECTED_DATA").partitions[0]
    (plain,) = predict(data, SKY, backend="cpu")
    residual = (corrected.vis - plain)[..., PARALLEL]
    # Noise of 0.1 Jy over gains that scatter by 0.2, 5 % of its power taken up by the solution.
    assert residual.real.std() == pytest.approx(0.1, rel=0.1)
    # What was there is not replaced without being asked to.
    again = CliRunner().invoke(app, ["solve", *words])
    assert again.exit_code == 2
    assert "exists already" in again.stderr
    # No table of CASA holds gains that rotate with the feeds: an older one would belong to other gains.
    (tmp_path / "sky.toml").write_text(replace(SKY, feeds=Feeds(rotation="corrected")).to_toml())
    (tmp_path / "gains/gains.G").rename(tmp_path / "kept.G")
    (tmp_path / "gains/gains.G").symlink_to(tmp_path / "kept.G")
    again = CliRunner().invoke(app, ["solve", *words, "--overwrite", *options])
    (line,) = (line for line in again.stderr.splitlines() if line.startswith("gains.G is not written"))
    assert "--corrected" not in line  # it was given
    assert (tmp_path / "gains/gains.npz").exists()
    assert not os.path.lexists(tmp_path / "gains/gains.G")
    assert (tmp_path / "kept.G/table.dat").exists()  # of a link, the link alone is removed
    taken_out = replace(SKY, feeds=Feeds(rotation="corrected"))
    turned = biro.solve_gains(data, taken_out, interval=60.0, backend="cpu")
    with pytest.raises(InputError, match="gains that biro applies after the feed rotation"):
        write_casa_table(tmp_path / "no.G", tmp_path / "obs.ms", turned)


@pytest.mark.parametrize("options", [["--weights", "scatter", "--taper", "200 m"], ["--weights", "equal"]])
def test_weights_of_corrected_data_come_from_the_stored_column(tmp_path: Path, options: list[str]) -> None:
    """Stored weights are 1/0.3^2, weights of corrected data |g_p g_q|^2 of that; pictures of others stay."""
    create_ms(tmp_path / "obs.ms", made(times=Track("2026-03-01T18:00", 400.0, 40.0)))
    (tmp_path / "sky.toml").write_text(SKY.to_toml())
    gains = tmp_path / "gains"
    gains.mkdir()
    for name in ("gains-7.png", "gains-1999-paper.png"):
        (gains / name).touch()
    words = ["solve", f"{tmp_path / 'obs.ms'}", f"{tmp_path / 'sky.toml'}", "-o", f"{gains}", "--corrected"]
    words += ["--interval", "track", "--backend", "cpu", "--json", *options]
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code == 2
    assert "gains-7.png: exists already" in refused.stderr
    assert (gains / "gains-7.png").exists()
    done = CliRunner().invoke(app, [*words, "--overwrite"])
    assert done.exit_code in (0, 4), done.stderr  # 4: gains that vary by the minute do not fit as one
    assert json.loads(done.stdout)["n_solved"] == 14
    assert sorted(path.name for path in gains.glob("*-*.png")) == ["gains-1999-paper.png"]
    if "equal" in options:
        assert "CORRECTED_WEIGHT_SPECTRUM is not written" in done.stderr
        return
    found = read_ms(tmp_path / "obs.ms", column="CORRECTED_DATA")
    assert found.weight_origin == "CORRECTED_WEIGHT_SPECTRUM"
    part, gain = found.partitions[0], biro.read_gains(gains / "gains.npz").gain[0, :, 0, 0]
    expected = np.abs(gain[part.antenna1] * gain[part.antenna2]) ** 2 / 0.3**2
    # Single precision of the column.
    np.testing.assert_allclose(part.weight[:, 0, 0], expected, rtol=1e-5)


def test_corrected_data_hold_every_row_and_every_flagged_visibility(tmp_path: Path) -> None:
    """D / (g_p g_q^*) where both gains are there, flagged or not; DATA itself in the rows that were not read.

    CASA's applycal corrects flagged visibilities, too, and leaves data without a solution as they are.
    """
    set_path = tmp_path / "obs.ms"
    create_ms(set_path, made(noise=0.1))
    (tmp_path / "sky.toml").write_text(SKY.to_toml())
    with tables.table(str(set_path), readonly=False, ack=False) as table:
        flag = table.getcol("FLAG")
        flag[::7] = True
        table.putcol("FLAG", flag)
        stored = table.getcol("DATA")
        antenna1, antenna2 = table.getcol("ANTENNA1"), table.getcol("ANTENNA2")
    words = ["solve", str(set_path), str(tmp_path / "sky.toml"), "-o", str(tmp_path / "gains")]
    options = ["--interval", "1 min", "--antennas", "!0", "--corrected", "--backend", "cpu"]
    done = works(*words, *options)
    unread = (antenna1 == 0) | (antenna2 == 0)
    assert f"{np.count_nonzero(unread)} left as in DATA" in done.stderr
    solved = biro.read_gains(tmp_path / "gains/gains.npz")
    with tables.table(str(set_path), ack=False) as table:
        corrected, time = table.getcol("CORRECTED_DATA"), table.getcol("TIME")
    which = np.abs(time[:, None] - solved.time).argmin(axis=1)
    first, second = (solved.gain[which, antenna, 0] for antenna in (antenna1, antenna2))
    np.testing.assert_array_equal(corrected[unread], stored[unread])
    expected = stored[..., PARALLEL] / (first * second.conj())[:, None]
    # Single precision of the column.
    np.testing.assert_allclose(corrected[~unread][..., PARALLEL], expected[~unread], rtol=1e-5, atol=1e-6)


def test_a_table_has_the_times_of_the_set_whatever_their_scale(tmp_path: Path) -> None:
    """Rows of CASA's applycal are matched by TIME as it stands, which a set of the VLA may have in TAI.

    CASA 6.7 applied such a table of the 3C273 data as biro did, to 4e-7, and matched wrong integrations with
    times in UTC. Its own tables have the times of the set, and call them UTC.
    """
    set_path, sky_path = tmp_path / "obs.ms", tmp_path / "sky.toml"
    create_ms(set_path, made())
    with tables.table(f"{set_path}", readonly=False, ack=False) as table:
        table.putcolkeyword("TIME", "MEASINFO", {"type": "epoch", "Ref": "TAI"})
        times, scans = np.unique(table.getcol("TIME")), table.getcol("SCAN_NUMBER")
    sky_path.write_text(SKY.to_toml())
    words = ["solve", str(set_path), str(sky_path), "-o", str(tmp_path / "gains"), "--backend", "cpu"]
    works(*words)
    with tables.table(str(tmp_path / "gains/gains.G"), ack=False) as table:
        np.testing.assert_allclose(np.unique(table.getcol("TIME")), times, rtol=0, atol=1e-5)
        assert table.getcolkeyword("TIME", "MEASINFO")["Ref"] == "TAI"
        assert set(table.getcol("SCAN_NUMBER")) <= {-1, *scans}
    # In a model both files give the data the same gains.
    data, found = biro.read_ms(set_path), []
    assert data.utc_offset == pytest.approx(-37.0)  # TAI - UTC since 2017 (IERS Bulletin C)
    for name in ("gains.G", "gains.npz"):
        model = replace(SKY, gain=[Gain(table=[str(tmp_path / "gains" / name)])])
        found.append(next(iter(predict(data, model, backend="cpu"))))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)  # the table is in single precision
