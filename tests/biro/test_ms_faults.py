"""Every fault that a Measurement Set is known to have, really done to a copy."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from casacore.tables import table
from commands import python
from rights import DROP_RIGHTS

from biro.errors import DataError, InputError, MeasurementSetError
from biro.io.measurement_set import create_ms, read_ms, write_column
from biro.io.measurement_set.process import MeasurementSetProcess

Unpack = Callable[[str], Path]


@pytest.fixture
def ms(measurement_set: Unpack, tmp_path: Path) -> Path:
    """A copy of a small set (63 rows, 4 channels, RR RL LR LL) to be damaged."""
    return Path(shutil.copytree(measurement_set("sim_7_circ"), tmp_path / "copy.ms"))


@contextmanager
def opened(path: Path, **options: object) -> Iterator[table]:
    with table(str(path), readonly=False, ack=False, **options) as main:
        yield main


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Another process holds a write lock; gives its id."""
    code = (
        "import sys; from casacore.tables import table;"
        "t = table(sys.argv[1], readonly=False, ack=False, lockoptions='permanentwait');"
        "print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == b"locked"
        try:
            yield holder.pid
        finally:
            holder.kill()


EARLIER: set[int] = set()
"""Children that other tests have left in this process: pools, and those that a hanging storage held."""


@pytest.fixture(autouse=True)
def _count_from_here() -> None:
    EARLIER.clear()
    EARLIER.update(children())


def children() -> list[int]:
    """Processes that are ours and run casacore for us, zombies included."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(words[1]) == os.getpid():
                found.append(int(folder.name))
    return [pid for pid in found if pid not in EARLIER]


def test_no_such_path(tmp_path: Path) -> None:
    with pytest.raises(MeasurementSetError, match=r"none\.ms: no such file or directory"):
        read_ms(tmp_path / "none.ms")


def test_a_file(data_dir: Path) -> None:
    with pytest.raises(MeasurementSetError, match="a file, but a Measurement Set is a directory"):
        read_ms(data_dir / "vla_3c273_x.uvfits")


def test_a_folder_that_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(MeasurementSetError, match=r"not a Measurement Set \(it has no table\.dat\)"):
        read_ms(tmp_path)


def test_another_kind_of_table(ms: Path) -> None:
    with pytest.raises(
        MeasurementSetError, match=r"a casacore table .* not a Measurement Set: .* no ANTENNA1"
    ):
        read_ms(ms / "ANTENNA")


@pytest.mark.parametrize(
    ("file", "share"),
    [("table.dat", 0.5), ("table.f0", 0.5), ("table.f3_TSM1", 0.0), ("FIELD/table.f0", 0.0)],
)
def test_truncated(ms: Path, file: str, share: float) -> None:
    os.truncate(ms / file, int(share * (ms / file).stat().st_size))
    with pytest.raises(MeasurementSetError, match=r"copy\.ms: broken off while .*ing .*casacore says"):
        read_ms(ms, column="DATA")


def test_the_truncated_file_is_named(ms: Path) -> None:
    with opened(ms) as main:
        number = main.getdminfo("DATA")["SEQNR"]
    os.truncate(ms / f"table.f{number}_TSM1", 100)
    with pytest.raises(
        MeasurementSetError, match=rf"reading DATA from .*copy\.ms/table\.f{number}\*: casacore"
    ):
        read_ms(ms, column="DATA")


def truncated_everywhere(path: Path, shares: tuple[float, ...]) -> list[str]:
    """What reading gives with each file in turn cut short; "the same" where it is not needed."""
    whole = read_ms(path, column="DATA").digest()
    outcomes = []
    for file in sorted(path.rglob("*")):
        if not file.is_file() or not file.stat().st_size:
            continue
        data = file.read_bytes()
        for share in shares:
            os.truncate(file, int(share * (len(data) - 1)))
            begin = time.monotonic()
            try:
                said = "the same" if read_ms(path, column="DATA", time_limit=5).digest() == whole else "OTHER"
            except MeasurementSetError as error:
                said = str(error)
            assert time.monotonic() - begin < 60  # 5 s of silence, and the start of Python on a busy machine
            outcomes.append(f"{file.relative_to(path)} {share:g}: {said}")
            file.write_bytes(data)
    return outcomes


def test_each_file_in_turn_cut_short(ms: Path) -> None:
    """An error, or the same data: never other data, a hang or a crash of ours."""
    for folder in ("FEED", "FLAG_CMD", "HISTORY", "POINTING", "PROCESSOR", "SOURCE", "STATE"):
        for file in (ms / folder).glob("*"):
            os.truncate(file, 0)  # all at once: none of them is read
    for file in ms.glob("*/table.[il]*"):
        os.truncate(file, 0)  # and nothing hangs on what the subtables' table.info and table.lock say
    outcomes = truncated_everywhere(ms, (0.5,))
    assert len(outcomes) > 20
    assert not [line for line in outcomes if line.endswith("OTHER")]
    named = [line for line in outcomes if not line.endswith("the same")]
    assert all("copy.ms" in line for line in named)
    assert any(line.startswith("table.dat") for line in named)
    assert any(line.startswith("SPECTRAL_WINDOW/table.dat") for line in named)


def test_corruption_that_makes_casacore_loop_for_ever(measurement_set: Unpack, tmp_path: Path) -> None:
    path = Path(shutil.copytree(measurement_set("vla_3c273_x"), tmp_path / "copy.ms"))
    with (path / "table.f0").open("r+b") as file:
        file.seek(9)
        file.write(b"\x7f\xff\xff\xff")
    # casacore looks for 2 GB that are not there: for ever, or, where files are in memory, until a read fails.
    with pytest.raises(
        MeasurementSetError,
        match=r"(gave up after 2 s|broken off) while opening .*(: a file may be damaged|casacore says)",
    ):
        read_ms(path, time_limit=2)
    assert not children()


def test_a_crash_of_the_library_is_survived(ms: Path) -> None:
    """The child is sent what a wild pointer would send it, while it waits for a lock."""

    def crash() -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            for pid in set(children()) - {holder}:
                if b"biro.io.measurement_set.child" in Path(f"/proc/{pid}/cmdline").read_bytes() and _waits(
                    pid
                ):
                    os.kill(pid, signal.SIGSEGV)
                    return
            time.sleep(0.05)

    with locked(ms) as holder:
        thread = threading.Thread(target=crash)
        thread.start()
        with pytest.raises(MeasurementSetError, match=r"died with SIGSEGV while opening .*table\.dat"):
            read_ms(ms)
        thread.join()


def _waits(pid: int) -> bool:
    """Whether a process has the lock file open: it can do nothing but wait for the lock then."""
    held = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            held.append(os.readlink(link))
    return any("table.lock" in each for each in held)


def test_locked_by_another_process(ms: Path) -> None:
    with locked(ms) as holder:
        begin = time.monotonic()
        with pytest.raises(MeasurementSetError, match="gave up after 1 s while opening") as caught:
            read_ms(ms, time_limit=1)
        # The start of the child is not counted in the limit: leave it time on a busy machine.
        assert time.monotonic() - begin < 30
        assert f"locked by process {holder} ({sys.executable}" in str(caught.value)
        with pytest.raises(MeasurementSetError, match="gave up after 1 s"):
            create_and_write(ms)
    assert not children()
    assert read_ms(ms, time_limit=10).counts["usable"] == 1008


def create_and_write(ms: Path) -> None:
    with MeasurementSetProcess(ms, 1.0) as child:
        child.call("prepare", path=str(ms), column="NEW", source=None, mode="replace", rest=None)


def test_interrupt_ends_the_child(ms: Path) -> None:
    # Shells start what runs in the background with this signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt() -> None:
        time.sleep(1.5)
        os.kill(os.getpid(), signal.SIGINT)

    with locked(ms) as holder:
        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                read_ms(ms, time_limit=60)
        finally:
            signal.signal(signal.SIGINT, before)
        thread.join()
        assert set(children()) <= {holder}


@pytest.mark.parametrize(
    ("column", "value", "cause", "number"),
    [
        ("DATA", np.nan, "non-finite data", 16),
        ("DATA", np.inf, "non-finite data", 16),
        ("FLAG", True, "FLAG", 16),
        ("FLAG_ROW", True, "FLAG_ROW", 16),
        ("WEIGHT", np.nan, "non-finite weight", 16),
        ("WEIGHT", np.inf, "non-finite weight", 16),
        ("WEIGHT", 0.0, "zero weight", 16),
        ("WEIGHT", -2.0, "negative weight", 16),
        ("ANTENNA2", 0, "autocorrelation", 16),
    ],
)
def test_bad_values_are_counted_by_cause(
    ms: Path, column: str, value: object, cause: str, number: int
) -> None:
    with opened(ms) as main:
        cell = main.getcell(column, 0)
        main.putcell(column, 0, np.full_like(cell, value) if np.ndim(cell) else value)
    observation = read_ms(ms, column="DATA")
    counts = dict(observation.counts)
    assert (counts.pop("usable"), counts.pop("total"), counts.pop(cause)) == (1008 - number, 1008, number)
    assert not any(counts.values())
    (part,) = observation.partitions
    assert part.n_usable == 1008 - number
    assert np.isfinite(part.vis).all()
    assert (part.row_id[0] == 1) == (cause == "autocorrelation")


def test_the_first_cause_counts(ms: Path) -> None:
    """A visibility with every fault is counted once, under the first of `biro.observation.flags.CAUSES`."""
    with opened(ms) as main:
        main.putcell("DATA", 0, np.full((4, 4), np.nan + 0j))
        main.putcell("WEIGHT", 0, np.full(4, -np.inf, np.float32))
        main.putcell("FLAG", 0, np.eye(4, dtype=bool))
    counts = read_ms(ms, column="DATA").counts
    assert (counts["FLAG"], counts["non-finite data"], counts["non-finite weight"]) == (4, 12, 0)


def test_autocorrelations_when_wanted(ms: Path) -> None:
    with opened(ms) as main:
        main.putcell("ANTENNA2", 0, 0)
    assert read_ms(ms, autocorrelations=True).partitions[0].row_id[0] == 0


def test_all_flagged(ms: Path) -> None:
    with opened(ms) as main:
        main.putcol("FLAG", np.ones((63, 4, 4), bool))
    message = "0 of 1008 visibilities usable: FLAG 992, autocorrelation 16$"
    with opened(ms) as main:
        main.putcell("ANTENNA2", 0, 0)
    with pytest.raises(DataError, match=message):
        read_ms(ms)
    (part,) = read_ms(ms, allow_unusable=True).partitions
    assert (part.n_row, part.n_usable) == (62, 0)


def test_cells_without_a_value(ms: Path, tmp_path: Path) -> None:
    with opened(ms) as main:
        main.addrows(1)
        for name in main.colnames():
            if name not in ("DATA", "FLAG_CATEGORY"):
                main.putcell(name, 63, main.getcell(name, 62))
    observation = read_ms(ms, column="DATA")
    assert (observation.counts["no data"], observation.counts["usable"]) == (16, 1008)


def test_a_cell_of_another_shape(ms: Path) -> None:
    with opened(ms) as main:
        main.addrows(1)
        for name in main.colnames():
            if name not in ("DATA", "FLAG_CATEGORY"):
                main.putcell(name, 63, main.getcell(name, 62))
        main.putcell("DATA", 63, np.ones((5, 4), np.complex64))
    with pytest.raises(MeasurementSetError, match=r"DATA of row 63 has shape \(5, 4\), .* says \(4, 4\)"):
        read_ms(ms, column="DATA")


def test_uvw_all_zero(ms: Path) -> None:
    with opened(ms) as main:
        main.putcol("UVW", np.zeros((63, 3)))
    with pytest.raises(DataError, match="UVW is zero in all rows"):
        read_ms(ms)


def test_uvw_partly_zero_or_not_finite_or_stale(ms: Path) -> None:
    with opened(ms) as main:
        main.putcell("UVW", 3, np.zeros(3))
        main.putcell("UVW", 4, np.full(3, np.nan))
        main.putcell("UVW", 5, np.full(3, 5e4))
    observation = read_ms(ms)
    assert any("UVW is zero in 1 rows" in note for note in observation.notes)
    assert any(
        "baseline lengths of UVW and ANTENNA differ in 2 rows, by up to" in note for note in observation.notes
    )
    assert observation.counts["no data"] == 16
    assert np.isfinite(observation.partitions[0].uvw).all()


def test_w_of_zero_is_named(ms: Path) -> None:
    """Lengths of (u, v) alone are not those of ANTENNA: the note says why, and no row is called wrong."""
    with opened(ms) as main:
        uvw = main.getcol("UVW")
        uvw[:, 2] = 0.0
        main.putcol("UVW", uvw)
    notes = read_ms(ms).notes
    assert any("W is 0 in 63 rows" in note for note in notes)
    assert not any("lengths of UVW and ANTENNA differ" in note for note in notes)


def test_unknown_correlations(ms: Path) -> None:
    with opened(ms / "POLARIZATION") as polarization:
        polarization.putcell("CORR_TYPE", 0, np.array([5, 6, 21, 8], np.int32))
    with pytest.raises(DataError, match="unknown correlation types PP in data description 0; known are"):
        read_ms(ms)
    assert read_ms(ms, correlations="RR,LL").partitions[0].corr_type == ("RR", "LL")


def test_antenna_that_the_subtable_lacks(ms: Path) -> None:
    with opened(ms) as main:
        main.putcell("ANTENNA2", 0, 40)
    with pytest.raises(DataError, match=r"ANTENNA2 runs from .* to 40, .* has 7 rows"):
        read_ms(ms)


@pytest.mark.parametrize("column", ["SPECTRAL_WINDOW_ID", "POLARIZATION_ID"])
@pytest.mark.parametrize("number", [-1, 7])
def test_description_of_what_is_not_there(ms: Path, column: str, number: int) -> None:
    """Found by cutting files short."""
    with opened(ms / "DATA_DESCRIPTION") as description:
        description.putcell(column, 0, number)
    with pytest.raises(DataError, match=f"data description 0 is of .* {number}.*, but there are"):
        read_ms(ms)


def test_no_rows(ms: Path, tmp_path: Path) -> None:
    with table(str(ms), ack=False) as main, main.query("ANTENNA1 < 0") as none:
        none.copy(str(tmp_path / "empty.ms"), deep=True).close()
    with pytest.raises(DataError, match="the main table has no rows"):
        read_ms(tmp_path / "empty.ms")


WRITE = """
from biro.errors import DataError, MeasurementSetError
from biro.io.measurement_set import read_ms, write_column
observation = read_ms(sys.argv[1])
def models():
    print("a model was computed")
    yield observation.partitions[0].vis
try:
    write_column(sys.argv[1], "NEW", observation, models())
except MeasurementSetError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("folder_mode", "file_mode", "message"),
    [
        (0o555, 0o444, "read-only: no permission to create files in this directory"),
        (0o755, 0o444, "read-only: table.dat: Permission denied"),
        (0o755, 0o644, "a model was computed"),
    ],
)
def test_read_only_is_seen_before_any_work(ms: Path, folder_mode: int, file_mode: int, message: str) -> None:
    """With the rights of an ordinary user, whoever runs the test; the last case may write."""
    (ms / "table.dat").chmod(file_mode)
    ms.chmod(folder_mode)
    result = python("-c", DROP_RIGHTS + WRITE, ms, timeout=60)
    ms.chmod(0o755)
    assert result.stdout.strip().endswith(message), result.stdout + result.stderr


def test_a_write_that_was_killed_is_recognised(ms: Path) -> None:
    observation = read_ms(ms)

    def models() -> Iterator[np.ndarray]:
        yield observation.partitions[0].vis
        for pid in children():
            os.kill(pid, signal.SIGKILL)

    with pytest.raises(MeasurementSetError, match=r"was killed \(out of memory\?\) while"):
        write_column(ms, "MODEL_NEW", observation, models())
    with pytest.raises(MeasurementSetError, match="column MODEL_NEW is incomplete"):
        read_ms(ms, column="MODEL_NEW")
    with pytest.raises(MeasurementSetError, match=r"column MODEL_NEW is incomplete.*Write it again"):
        write_column(ms, "MODEL_NEW", observation, [observation.partitions[0].vis], mode="add")
    report = write_column(ms, "MODEL_NEW", observation, [observation.partitions[0].vis])
    assert report.notes == ("column MODEL_NEW was left incomplete by a run that was interrupted",)
    assert np.array_equal(read_ms(ms, column="MODEL_NEW").partitions[0].vis, observation.partitions[0].vis)


@pytest.mark.parametrize("column", ["MODEL_NEW", "MODEL_DATA"])
def test_a_model_that_fails_leaves_the_set_as_it_was(ms: Path, column: str) -> None:
    """A new column is not made, and one that was there keeps its mark and its values."""
    observation = read_ms(ms)
    before = [part.vis for part in observation.partitions]
    write_column(ms, "MODEL_DATA", observation, before)

    def models() -> Iterator[np.ndarray]:
        raise InputError("pixels are too coarse")
        yield

    with pytest.raises(InputError, match="too coarse"):
        write_column(ms, column, observation, models())
    with table(str(ms), ack=False) as main:
        assert "MODEL_NEW" not in main.colnames()
    assert np.array_equal(read_ms(ms, column="MODEL_DATA").partitions[0].vis, before[0])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda vis: vis[:, :3], r"model 0 must have shape \(63, 4, 4\) .*, got \(63, 3, 4\)"),
        (lambda vis: vis.real, "model 0 must be complex, got float32"),
        (lambda vis: vis * np.nan, "model 0 has values that are not finite"),
    ],
)
def test_models_that_cannot_be_meant(ms: Path, spoil: Callable, message: str) -> None:
    observation = read_ms(ms)
    with pytest.raises(InputError, match=message):
        write_column(ms, "MODEL_NEW", observation, [spoil(observation.partitions[0].vis)])


def test_double_model_too_large_for_the_column(ms: Path) -> None:
    """Refused before anything is written: no column is made, and one that is there keeps its values."""
    observation = read_ms(ms, column="DATA")
    too_large = np.full((63, 4, 4), 1e300 + 0j)
    with pytest.raises(InputError, match=r"up to 1e.300 Jy, but the column stores complex64"):
        write_column(ms, "MODEL_NEW", observation, [too_large])
    with table(str(ms), ack=False) as main:
        assert "MODEL_NEW" not in main.colnames()
    write_column(ms, "MODEL_NEW", observation, [np.full((63, 4, 4), 2e38 + 0j)])
    with pytest.raises(InputError, match="stores complex64"):
        write_column(ms, "MODEL_NEW", observation, [too_large])
    with pytest.raises(
        MeasurementSetError, match=r"a sum with the model is too large .* MODEL_NEW is unchanged"
    ):
        write_column(ms, "MODEL_NEW", observation, [np.full((63, 4, 4), 2e38 + 0j)], mode="add")
    assert (read_ms(ms, column="MODEL_NEW").partitions[0].vis == 2e38 + 0j).all()


@pytest.mark.parametrize("number", [0, 2])
def test_number_of_models(ms: Path, number: int) -> None:
    observation = read_ms(ms)
    with pytest.raises(InputError, match="models has"):
        write_column(ms, "MODEL_NEW", observation, [observation.partitions[0].vis] * number)


@pytest.mark.parametrize("column", ["DATA", "FLOAT_DATA", "", "MY DATA", "../X", "X_BIRO_OLD"])
def test_columns_that_are_never_written(ms: Path, column: str) -> None:
    observation = read_ms(ms)
    with pytest.raises(InputError, match="cannot write column"):
        write_column(ms, column, observation, [observation.partitions[0].vis])


def test_averaged_data_are_not_written(ms: Path) -> None:
    observation = read_ms(ms, average_channels=2)
    with pytest.raises(InputError, match="cannot write a column from averaged data"):
        write_column(ms, "MODEL_DATA", observation, [observation.partitions[0].vis])


def test_nothing_is_overwritten_by_a_new_set(ms: Path, tmp_path: Path) -> None:
    observation = read_ms(ms)
    with pytest.raises(MeasurementSetError, match="exists already"):
        create_ms(ms, observation)
    keep = tmp_path / "keep"
    keep.mkdir()
    with pytest.raises(MeasurementSetError, match="not a Measurement Set"):
        create_ms(keep, observation, overwrite=True)
    with pytest.raises(MeasurementSetError, match="no directory"):
        create_ms(tmp_path / "no" / "new.ms", observation)
    create_ms(ms, observation, overwrite=True)
    assert read_ms(ms).column == "DATA"
    assert json.dumps(read_ms(ms).summary().to_dict(), allow_nan=False)


def nobody() -> int:
    """The number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_temporary_folders_of_killed_processes_are_removed(
    ms: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    observation, other = read_ms(ms), tmp_path / ".other.ms.part1"
    old, recent, own = (tmp_path / f".new.ms.part{number}" for number in (nobody(), nobody(), os.getpid()))
    for draft in (old, recent, own, other):
        draft.mkdir()
        (draft / "table.dat").write_text("x")
        if draft is not recent:
            for path in (draft / "table.dat", draft):
                os.utime(path, (1e9, 1e9))
    create_ms(tmp_path / "new.ms", observation)
    assert (tmp_path / "new.ms").is_dir()
    # What has just changed may belong to a process on another machine.
    assert [draft.exists() for draft in (old, recent, other)] == [False, True, True]
    assert f"{old}: removed; a process that was killed had left it" in caplog.text


def test_a_set_that_was_moved_aside_and_never_replaced_comes_back(
    ms: Path, caplog: pytest.LogCaptureFixture
) -> None:
    observation = read_ms(ms)
    ms.rename(ms.with_name(f".{ms.name}.old{nobody()}"))
    with pytest.raises(MeasurementSetError, match="exists already"):
        create_ms(ms, observation)
    assert np.array_equal(read_ms(ms).partitions[0].vis, observation.partitions[0].vis)
    assert "restored, because a process that was replacing it was killed" in caplog.text
