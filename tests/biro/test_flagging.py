"""Interference found in visibilities and written into FLAG: strategies, causes, the set before and after."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from casacore.tables import table
from typer.testing import CliRunner

import biro
from biro.cli.app import app
from biro.errors import InputError, MeasurementSetError
from biro.flagging import find
from biro.flagging.find import CAUSES, FlaggedData, _waterfalls, find_interference, reach
from biro.flagging.pictures import occupancy, percentiles, waterfall
from biro.flagging.strategy import Mask, Strategy
from biro.io.measurement_set import create_ms
from biro.io.measurement_set import flags as of_sets
from biro.observation.flags import CAUSES as COUNTED
from rime_kernels import device
from rime_kernels.engine.device_threads import DeviceThread
from rime_kernels.flagging.options import WaterfallOptions
from rime_kernels.flagging.waterfalls import CAUSES as OF_KERNEL
from tests.rime_kernels.conftest import cuda_backend

__all__ = ["cuda_backend"]  # a fixture

N_TIME, N_CHAN = 50, 64
CHAN_FREQ = 1.4e9 + 1e6 * np.arange(N_CHAN)
INTERVAL = 8.0


def code(cause: str) -> int:
    return CAUSES.index(cause)


def made(seed: int = 1, gap: float = 0.0) -> tuple[FlaggedData, np.ndarray]:
    """Two baselines in shuffled rows, one of them with antennas swapped now and then; truth of interference.

    A line at channel 20 and a burst at integration 30, in the first baseline alone. After half of the times
    there is a gap, s.
    """
    rng = np.random.default_rng(seed)
    shape = (2, N_TIME, N_CHAN, 1)
    vis = 5 + rng.normal(size=shape) + 1j * rng.normal(size=shape)
    truth = np.zeros(shape, bool)
    truth[0, :, 20], truth[0, 30] = True, True
    vis[truth] += 30
    time = np.arange(N_TIME) * INTERVAL + gap * (np.arange(N_TIME) >= N_TIME // 2)
    order = rng.permutation(2 * N_TIME)
    swapped = rng.random(2 * N_TIME) < 0.3
    second = np.repeat([1, 2], N_TIME)[order]
    samples = FlaggedData(
        vis.reshape(-1, N_CHAN, 1)[order].astype(np.complex64),
        np.ones((2 * N_TIME, N_CHAN, 1), bool),
        np.where(swapped, second, 0).astype(np.int32),
        np.where(swapped, 0, second).astype(np.int32),
        5e9 + np.tile(time, 2)[order],
        np.stack([np.where(second == 1, 100.0, 1000.0), *np.zeros((2, 2 * N_TIME))], axis=1),
        CHAN_FREQ,
        np.full(N_CHAN, 1e6),
    )
    return samples, truth.reshape(-1, N_CHAN, 1)[order]


NARROW = WaterfallOptions(
    smoothing_time=5.0, smoothing_channels=4.0, extend_time=1, extend_channels=1, n_sigma=7.0
)
STRATEGY = Strategy("test", waterfalls=NARROW)


def test_interference_is_found_on_its_baseline() -> None:
    """7 sigma of Rice's law leave about 1e-9 to chance, and runs a little more."""
    samples, truth = made()
    found = find_interference(samples, STRATEGY)
    assert np.array_equal(found.flag, truth)
    assert found.counts["spectrum"] == N_TIME
    assert sum(found.counts.values()) == truth.size
    assert found.n_unjudged == 0


def test_an_integration_of_a_short_exposure_is_kept() -> None:
    """The last one has four times the noise of others: EXPOSURE says why, or nothing."""
    samples, _ = made()
    last = samples.time == samples.time.max()
    more = np.random.default_rng(7).normal(scale=15.0**0.5, size=(*samples.vis[last].shape, 2))
    samples.vis[last] += (more[..., 0] + 1j * more[..., 1]).astype(np.complex64)
    told = samples._replace(exposure=np.where(last, INTERVAL / 16, INTERVAL))
    untold = samples._replace(exposure=np.zeros(len(last)))
    kept, found = (find_interference(each, STRATEGY).code[last] for each in (told, untold))
    assert (found == code("integration")).mean() > 0.5
    assert not (kept == code("integration")).any()


def test_a_baseline_by_itself_has_the_gaps_that_it_has_among_others() -> None:
    """One has every 12th time alone: gaps for the partition, whose interval is 8 s, not for itself."""
    samples, _ = made()
    at = np.rint((samples.time - 5e9) / INTERVAL).astype(int)
    is_second = (samples.antenna1 == 2) | (samples.antenna2 == 2)

    def some(which: np.ndarray) -> FlaggedData:
        return FlaggedData(*(item[which] for item in samples[:6]), *samples[6:8])  # type: ignore[arg-type]

    kept = ~is_second | (at % 12 == 0)
    whole, second = find_interference(some(kept), STRATEGY), some(kept & is_second)
    among_others = second._replace(times=np.unique(samples.time[kept]), spacing=INTERVAL)
    by_itself = find_interference(among_others, STRATEGY)
    assert np.array_equal(by_itself.code, whole.code[is_second[kept]])
    n_near = reach(STRATEGY)
    (padded,) = _waterfalls(among_others, n_near, 1)
    assert padded.shape[1] == 5 + 4 * n_near
    assert next(_waterfalls(second, n_near, 1)).shape[1] == 5


@pytest.mark.cuda
@pytest.mark.parametrize("method", ["waterfalls", "spectra"])
def test_interference_is_found_on_a_gpu(cuda_backend: str, method: str) -> None:
    """As on the CPU, in a few times and channels."""
    samples, _ = made()
    early = samples.time < 5e9 + 6.5 * INTERVAL
    few = FlaggedData(*(item[early] for item in samples[:6]), CHAN_FREQ[17:23], np.full(6, 1e6))  # type: ignore[arg-type]
    few = few._replace(vis=few.vis[:, 17:23], usable=few.usable[:, 17:23])
    options = replace(NARROW, smoothing_time=0.0, smoothing_channels=1.0)
    strategy = Strategy("test", method, options)  # type: ignore[arg-type]
    found, expected = (find_interference(few, strategy, where) for where in ("cuda", "cpu"))
    assert np.array_equal(found.code, expected.code)
    assert found.n_unjudged == expected.n_unjudged
    assert found.flag.any() == (method == "waterfalls")


def test_devices_share_baselines_and_find_the_same(monkeypatch) -> None:
    """Of 1, 2 and 3 threads of pretended devices."""
    monkeypatch.setattr(device, "select", lambda _: None)
    samples, truth = made()
    alone, judged_by, judge = find_interference(samples, STRATEGY), set(), find.judge
    assert alone.flag[truth].all()

    def noted(*given):
        judged_by.add(threading.current_thread().name)
        return judge(*given)

    monkeypatch.setattr(find, "judge", noted)
    for n in (1, 2, 3):
        judged_by.clear()
        workers = [DeviceThread(i, "CPU") for i in range(n)]
        found = find_interference(samples, STRATEGY, devices=workers)
        assert len(judged_by) == min(n, 2)  # there are two baselines
        np.testing.assert_array_equal(found.code, alone.code)
        assert found.n_unjudged == alone.n_unjudged


def test_codes_of_the_kernel_are_the_first() -> None:
    assert CAUSES[: len(OF_KERNEL)] == OF_KERNEL
    assert COUNTED[-1] == "interference"  # looked for among what no other cause leaves out


def test_what_was_flagged_before_is_left_out() -> None:
    samples, truth = made()
    found = find_interference(samples._replace(usable=~truth), STRATEGY)
    assert not found.flag.any()
    assert found.counts["given"] == truth.sum()


def test_zeros_and_what_is_not_finite_are_flagged() -> None:
    samples, truth = made()
    samples.vis[3, 5], samples.vis[4, 6], samples.vis[4, 7] = 0, np.nan, complex(0, np.inf)
    code_of = find_interference(samples, STRATEGY).code
    assert code_of[3, 5, 0] == code("zero")
    assert code_of[4, 6, 0] == code_of[4, 7, 0] == code("not finite")
    clear = ~truth
    clear[3, 5], clear[4, 6:8] = False, False
    assert not code_of[clear].any()


def test_a_mask_flags_channels_that_it_touches_on_its_baselines() -> None:
    samples, _ = made()
    mask = Mask.of("1.4096 GHz..1.4114 GHz", "..500 m")
    strategy = Strategy("test", masks=(mask,), waterfalls=NARROW)
    is_masked = find_interference(samples, strategy).code == code("static mask")
    is_short = samples.uvw[:, 0] == 100.0
    # Channels are 1 MHz wide: 10 reaches from 1409.5 to 1410.5 MHz, 11 up to 1411.5.
    assert np.array_equal(np.flatnonzero(is_masked[is_short].all(axis=(0, 2))), [10, 11])
    assert is_masked.sum() == 2 * is_short.sum()
    everywhere = find_interference(samples, Strategy("test", masks=(Mask.of("0 Hz..2 GHz"),)))
    assert (everywhere.code == code("static mask")).all()


@pytest.mark.parametrize(("gap", "is_found"), [(0.0, True), (1000.0, False)])
def test_a_background_ends_at_a_gap(gap: float, is_found: bool) -> None:
    """A baseline whose amplitude is another after a gap of 100 integrations is not flagged there."""
    samples, truth = made(gap=gap)
    vis = samples.vis - 30 * truth
    late = samples.time > 5e9 + gap + INTERVAL * (N_TIME // 2 - 0.5)
    vis[late] += 20
    found = find_interference(samples._replace(vis=vis), STRATEGY)
    assert found.flag.any() == is_found


def test_some_baselines_are_judged_as_beside_all() -> None:
    """Those of every 11th integration alone: each is behind a gap, which the times of all baselines say."""
    samples, _ = made()
    is_second = np.maximum(samples.antenna1, samples.antenna2) == 2
    slot = np.round((samples.time - 5e9) / INTERVAL).astype(int)
    kept = ~is_second | (slot % 11 == 0)
    strategy = Strategy("low", waterfalls=replace(NARROW, n_sigma=2.0))
    all_of_them = FlaggedData(*(x[kept] for x in samples[:6]), *samples[6:8])  # type: ignore[arg-type,index]
    some = FlaggedData(*(x[kept & is_second] for x in samples[:6]), *samples[6:8])  # type: ignore[arg-type,index]
    expected = find_interference(all_of_them, strategy).code[is_second[kept]]
    among_others = some._replace(times=np.unique(samples.time), spacing=INTERVAL)
    found = find_interference(among_others, strategy).code
    assert np.array_equal(found, expected)
    assert found.any()
    assert not np.array_equal(find_interference(some, strategy).code, expected)


def test_too_few_visibilities_are_not_judged_and_counted() -> None:
    samples, _ = made()
    few = FlaggedData(*(item[:30, :1] if item.ndim == 3 else item for item in samples[:2]), *samples[2:])
    few = few._replace(
        antenna1=samples.antenna1[:30], antenna2=samples.antenna2[:30], time=samples.time[:30],
        uvw=samples.uvw[:30], chan_freq=CHAN_FREQ[:1], chan_width=np.array([1e6]),
    )  # fmt: skip
    found = find_interference(few, STRATEGY)
    assert found.n_unjudged == 30
    assert not found.code.any()


def test_spectra_are_judged_one_by_one() -> None:
    """11 sigma above a running median: a narrow line is found, and a burst in all channels is not."""
    samples, truth = made()
    found = find_interference(samples, Strategy("test", "spectra"))
    line = np.zeros(truth.shape, bool)
    line[:, 20] = truth[:, 20]
    burst = truth.all(axis=(1, 2))
    assert np.array_equal(found.flag[~burst], line[~burst])
    assert found.flag[burst].sum() <= 1
    assert set(np.unique(found.code)) == {0, code("channels")}


# Measurement Sets.


@pytest.fixture
def strategy_file(tmp_path: Path) -> Path:
    file = tmp_path / "narrow.toml"
    words = (f"{name} = {getattr(NARROW, name)!r}" for name in NARROW.__dataclass_fields__)
    file.write_text("\n".join(["[waterfalls]", *words]))
    return file


@pytest.fixture
def made_set(tmp_path: Path) -> tuple[Path, np.ndarray]:
    """A Measurement Set of `made`, with 10 flags, and the truth."""
    samples, truth = made()
    flag = np.zeros(truth.shape, bool)
    flag[7, 30:40] = True
    observation = biro.Observation.from_arrays(
        samples.vis, samples.uvw, samples.antenna1, samples.antenna2, samples.time, CHAN_FREQ, ["XX"],
        flag=flag, chan_width=1e6, antenna_positions=1e3 * np.eye(3), interval=INTERVAL,
    )  # fmt: skip
    path = tmp_path / "made.ms"
    create_ms(path, observation)
    with table(str(path), readonly=False, ack=False) as main:
        main.putcol("FLAG", flag)
        main.putcol("DATA", samples.vis)
        main.putcol("WEIGHT_SPECTRUM", np.ones(flag.shape, np.float32))
        main.putcell("FLAG_ROW", 11, True)
    return path, truth


def columns(path: Path) -> dict[str, np.ndarray]:
    """All columns of the main table."""
    with table(str(path), ack=False) as main:
        names = [name for name in main.colnames() if main.nrows() and main.iscelldefined(name, 0)]
        return {name: np.asarray(main.getcol(name)) for name in names}


def contents(path: Path) -> dict[str, bytes]:
    """All files of a set, except for its locks, which every opening writes to."""
    files = (file for file in path.rglob("*") if file.is_file() and file.name != "table.lock")
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def test_flags_are_written_and_brought_back(made_set: tuple[Path, np.ndarray], strategy_file: Path) -> None:
    """FLAG and FLAG_ROW alone change, by what was found; undone, all columns are as they were to the bit."""
    path, truth = made_set
    before = columns(path)
    report = biro.flag(path, strategy_file)
    after = columns(path)
    changed = {name for name in before if before[name].tobytes() != after[name].tobytes()}
    assert changed == {"FLAG", "FLAG_ROW"}
    expected = before["FLAG"] | truth
    expected[11] = before["FLAG"][11]  # flagged by FLAG_ROW already
    assert np.array_equal(after["FLAG"], expected)
    burst = truth.all(axis=(1, 2))
    assert burst.any()
    assert np.array_equal(after["FLAG_ROW"], before["FLAG_ROW"] | burst)
    assert report.written
    assert report.n_found == (expected & ~before["FLAG"]).sum()
    assert report.counts["given"] == 10 + N_CHAN
    assert report.counts["total"] == truth.size
    with table(str(path), ack=False) as main:
        assert "BIRO_COMPLETE" not in main.getcolkeywords("FLAG")
    with table(f"{path}/FLAG_CMD", ack=False) as rows:
        assert rows.getcell("COMMAND", rows.nrows() - 1).startswith("biro flag ")
        assert f"{report.n_found} visibilities" in rows.getcell("REASON", rows.nrows() - 1)
    with table(f"{path}/HISTORY", ack=False) as rows:
        assert rows.getcell("ORIGIN", rows.nrows() - 1) == "biro flag"
    # A version as CASA's flagmanager lists it.
    versions = Path(f"{path}.flagversions")
    assert (versions / "FLAG_VERSION_LIST").read_text().startswith("before_biro_1 : before biro flag")
    with table(str(versions / "flags.before_biro_1"), ack=False) as kept:
        assert np.array_equal(kept.getcol("FLAG"), before["FLAG"])
    assert biro.undo_flags(path) == "before_biro_1"
    restored = columns(path)
    assert all(before[name].tobytes() == restored[name].tobytes() for name in before)
    with pytest.raises(MeasurementSetError, match="no flags to restore"):
        biro.undo_flags(path)


def test_a_set_that_memory_has_no_room_for_is_flagged_by_baselines(
    made_set: tuple[Path, np.ndarray],
    strategy_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The same flags and shares, to the bit; one line says beforehand how much memory is taken."""
    path, _ = made_set
    expected = biro.flag(path, strategy_file)
    flags = columns(path)["FLAG"]
    biro.undo_flags(path)
    half = N_TIME * N_CHAN
    monkeypatch.setattr(
        of_sets, "free_memory", lambda: int(1.5 * half * of_sets.BYTES / of_sets.MEMORY_SHARE)
    )
    found = biro.flag(path, strategy_file)
    assert "reads the data in 2 groups of baselines: the flags are the same" in caplog.text
    assert np.array_equal(columns(path)["FLAG"], flags)
    assert found.counts == expected.counts
    one, other = found.to_dict(), expected.to_dict()
    amplitudes = [each["partitions"][0].pop("amplitudes") for each in (one, other)]  # type: ignore[index,union-attr,call-overload]
    assert one == other
    assert amplitudes[0]["before"] == [[None] * 5] * N_CHAN
    monkeypatch.setattr("biro.files.memory.free_memory", lambda: half)
    monkeypatch.setattr(of_sets, "free_memory", lambda: half)
    with pytest.raises(
        InputError, match=r"flagging the longest of its baselines needs .* select fewer channels"
    ):
        biro.flag(path, strategy_file, dry_run=True)


def test_a_dry_run_changes_nothing(made_set: tuple[Path, np.ndarray], strategy_file: Path) -> None:
    path, truth = made_set
    before = contents(path)
    report = biro.flag(path, strategy_file, dry_run=True)
    assert contents(path) == before
    assert not Path(f"{path}.flagversions").exists()
    assert not report.written
    assert report.n_found > N_TIME
    again = biro.flag(path, strategy_file, dry_run=True, channels="0:20")
    assert again.counts["total"] == 2 * N_TIME * 20
    assert again.n_found == truth[:, :20].sum() - 20 * bool(truth[11, :20].all())


def test_a_run_that_was_interrupted_is_undone_first(
    made_set: tuple[Path, np.ndarray], strategy_file: Path
) -> None:
    """What such a run leaves: a version, a mark, and some of the flags."""
    path, _ = made_set
    before = columns(path)
    biro.flag(path, strategy_file)
    with table(str(path), readonly=False, ack=False) as main:
        main.putcolkeyword("FLAG", "BIRO_COMPLETE", False)
        main.putcol("FLAG", before["FLAG"][:50], 0, 50)
    with pytest.raises(MeasurementSetError, match=r"FLAG is incomplete, .* --undo"):
        biro.flag(path, Strategy("all", masks=(Mask.of("1 Hz..9 GHz"),)))
    assert any("FLAG is incomplete" in note for note in biro.read(path).notes)
    biro.undo_flags(path)
    assert np.array_equal(columns(path)["FLAG"], before["FLAG"])
    assert not any("FLAG is incomplete" in note for note in biro.read(path).notes)


def test_sets_without_interference_are_left_alone(made_set: tuple[Path, np.ndarray]) -> None:
    path, _ = made_set
    before = contents(path)
    quiet = Strategy("quiet", waterfalls=WaterfallOptions(n_sigma=1e6, integration_sigma=0.0))
    assert not biro.flag(path, quiet).written
    assert contents(path) == before


def test_reading_with_a_flagger_leaves_interference_out(
    made_set: tuple[Path, np.ndarray], strategy_file: Path
) -> None:
    """Counted under a cause of its own; the set stays as it is, and flags are those that would be written."""
    path, truth = made_set
    before = contents(path)
    observation = biro.read(path, flagger=strategy_file)
    assert contents(path) == before
    (part,) = observation.partitions
    n_found = truth.sum() - truth[11].sum() - truth[7, 30:40].sum()
    assert observation.counts["interference"] == n_found
    assert observation.counts["usable"] == (part.weight > 0).sum()
    assert sum(observation.counts[cause] for cause in COUNTED) + observation.counts["usable"] == truth.size
    assert not part.vis[truth].any()
    assert any(note.startswith("flagger") and "spectrum" in note for note in observation.notes)
    assert f"interference      {n_found:>12}" in str(observation.summary())
    with pytest.raises(biro.InputError, match="'flaggr'; did you mean 'flagger'"):
        biro.read_ms(path, flaggr="wsrt")  # type: ignore[call-arg]
    with pytest.raises(InputError, match="flagger needs one column"):
        biro.read_columns(path, ["DATA", "DATA"], flagger="wsrt")


def test_real_data(measurement_set: Callable[[str], Path], tmp_path: Path) -> None:
    """Of the VLBA's set, what is written is what reading leaves out: less than 1 % of good data."""
    path = Path(shutil.copytree(measurement_set("vlba_j1033p6051_ku"), tmp_path / "copy.ms"))
    observation = biro.read(path, flagger="meerkat", autocorrelations=True)
    before = columns(path)["FLAG"]
    report = biro.flag(path)
    after = columns(path)["FLAG"]
    assert not (before & ~after).any()
    assert report.n_found == observation.counts["interference"] == (after & ~before).sum()
    assert 0 < report.n_found < 0.01 * report.counts["total"]


def test_antennas_of_one_name_are_told_apart(made_set: tuple[Path, np.ndarray], strategy_file: Path) -> None:
    """By their numbers, as everywhere; shares are those of antennas with names of their own."""
    path, _ = made_set
    expected = biro.flag(path, strategy_file, dry_run=True)
    with table(str(path / "ANTENNA"), readonly=False, ack=False) as antennas:
        antennas.putcol("NAME", ["ant"] * 3)
    found = biro.flag(path, strategy_file, dry_run=True)
    assert found.by_antenna() == dict(zip("012", expected.by_antenna().values(), strict=True))
    (part,) = found.to_dict()["partitions"]
    assert list(part["baselines"]) == ["0-1", "0-2"]


def test_pictures(made_set: tuple[Path, np.ndarray], strategy_file: Path) -> None:
    """The waterfall after flagging has no line and no burst; shares are those of the truth."""
    path, _ = made_set
    report = biro.flag(path, strategy_file, dry_run=True)
    (part,) = report.partitions
    before, after = (np.asarray(ax.images[0].get_array()) for ax in waterfall(part).axes[:2])
    assert before[:, 20].min() > 15 > np.nanmax(after)
    by_channel = occupancy(report).axes[0].lines[1].get_ydata()
    assert by_channel[20] == pytest.approx(51, abs=2)  # one of two baselines, and a row
    assert report.by_antenna()["0"] > report.by_antenna()["2"]
    panels = percentiles(part).axes
    # Bands from the 5th to the 95th and from the 25th to the 75th percentile, then the median.
    bands, _, lines = ([ax.patches[i].get_data().values for ax in panels] for i in range(3))
    # Of 49 amplitudes near 35 and 50 near 5, the median lies between or just above; afterwards it is near 5.
    assert lines[0][20] > 6 > lines[1][20] > 4
    upper = [np.nanmax(band) for band in bands]
    assert upper[0] > 30 > 10 > upper[1]
    # A channel is as wide as 1 MHz about its frequency, 1.4 GHz and so on.
    assert panels[0].get_xlim() == pytest.approx((1399.5, 1399.5 + N_CHAN))


def test_statistics(made_set: tuple[Path, np.ndarray], strategy_file: Path) -> None:
    """Shares of baselines, and percentiles of amplitudes by channel, as numpy finds them in the columns."""
    path, _ = made_set
    report = biro.flag(path, strategy_file)
    after = columns(path)
    found = report.to_dict()["partitions"][0]  # type: ignore[call-overload,index]
    flag = after["FLAG"] | after["FLAG_ROW"][:, None, None]
    second = np.maximum(after["ANTENNA1"], after["ANTENNA2"])
    assert found["baselines"] == {f"0-{i}": pytest.approx(flag[second == i].mean()) for i in (1, 2)}
    amplitude = np.abs(after["DATA"])
    for chan in (0, 20, 63):
        kept = amplitude[:, chan][~flag[:, chan]]
        expected = np.percentile(kept, [5, 25, 50, 75, 95], method="inverted_cdf")
        assert found["amplitudes"]["after"][chan] == expected.tolist()
    # The line is as strong as 30 in one of two baselines: gone afterwards.
    assert found["amplitudes"]["before"][20][3] > 25 > found["amplitudes"]["after"][20][4]


def test_the_command(made_set: tuple[Path, np.ndarray], strategy_file: Path, tmp_path: Path) -> None:
    path, _ = made_set

    def run(*words: object) -> tuple[int, str, str]:
        done = CliRunner().invoke(app, ["flag", *map(str, words)])
        return done.exit_code, done.stdout, done.stderr

    exit_code, out, _ = run(path, "--strategy", strategy_file, "--dry-run")
    assert exit_code == 0
    assert "nothing was written" in out
    exit_code, out, _ = run(path, "--strategy", strategy_file, "--pictures", tmp_path / "p", "--json")
    found = json.loads(out)
    assert (exit_code, found["written"], found["version"]) == (0, True, "before_biro_1")
    assert found["counts"]["spectrum"] > 0
    names = {file.name for file in (tmp_path / "p").iterdir()}
    assert names == {"flags.json", "occupancy.png", "percentiles-0.png", "waterfall-0.png"}
    (tmp_path / "p" / "flags.json").write_text("mine")
    again = (path, "--strategy", strategy_file, "--dry-run", "--pictures", tmp_path / "p")
    exit_code, _, message = run(*again)
    assert exit_code == 2
    assert "flags.json: exists already; choose another name or give --overwrite" in message
    assert (tmp_path / "p" / "flags.json").read_text() == "mine"
    assert run(*again, "--overwrite")[0] == 0
    exit_code, _, message = run(path, "--undo", "--dry-run")
    assert exit_code == 2
    assert "--undo restores all flags of the set" in message
    exit_code, _, message = run(path, "--undo")
    assert exit_code == 0
    assert "flags restored from version before_biro_1" in message
    exit_code, _, message = run(path, "--strategy", "wrst")
    assert (exit_code, message.count("\n")) == (2, 1)
    assert "did you mean 'wsrt'" in message
