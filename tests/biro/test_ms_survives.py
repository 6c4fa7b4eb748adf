"""A set outlives what happens to whoever writes to it: full disks, kill -9, storage that does not answer."""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from casacore.tables import table
from commands import python
from own_mounts import run_with_mounts

import biro
from biro.errors import MeasurementSetError
from biro.io.measurement_set import read_ms, write_column
from biro.io.measurement_set.backup import FOLDER
from biro.io.measurement_set.column import ModelRows
from biro.io.measurement_set.process import MeasurementSetProcess

Unpack = Callable[[str], Path]


@pytest.fixture
def ms(measurement_set: Unpack, tmp_path: Path) -> Path:
    """A copy of a small set (63 rows, 4 channels, RR RL LR LL)."""
    return Path(shutil.copytree(measurement_set("sim_7_circ"), tmp_path / "copy.ms"))


def contents(path: Path) -> dict[str, np.ndarray]:
    """Every column of the main table but for the one that tests write, as casacore itself reads it."""
    with table(str(path), ack=False) as main:
        names = [name for name in main.colnames() if name not in ("NEW", "FLAG_CATEGORY")]
        return {name: np.asarray(main.getcol(name)) for name in names}


def files(path: Path) -> dict[str, str]:
    """Digests of all files but those that a write of a column may change."""
    changing = ("table.dat", "table.lock", "table.f9", "table.f9_TSM1", "table.dat_tmp")
    found = [file for file in path.rglob("*") if file.is_file() and file.name not in changing]
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in found
        if file.parent != path / FOLDER
    }


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


FULL_DISK = """
import shutil
from biro.errors import MeasurementSetError
from biro.io.measurement_set import create_ms, read_ms, write_column
source, disk, first = sys.argv[1:]
small_disk(disk, 6_000_000)
path = disk + "/copy.ms"
answers = []
observation = read_ms(source, column="DATA")

def models(left):
    yield observation.partitions[0].vis
    fill(disk, left)  # after the column is made and its first values are on their way

for left in (0, 4096, 16384)[: 3 if first == "new" else 2]:
    shutil.copytree(source, path)
    if first == "again":
        write_column(path, "NEW", observation, [observation.partitions[0].vis])
    try:
        write_column(path, "NEW", observation, models(left))
        said = "written"
    except MeasurementSetError as error:
        said = str(error)
    full = read_ms(path, column="DATA").digest() == observation.digest()
    os.unlink(disk + "/filler")
    shutil.copytree(path, f"{sys.argv[1]}.left{left}")
    report = write_column(path, "NEW", observation, [observation.partitions[0].vis])
    back = read_ms(path, column="NEW").partitions[0].vis
    answers.append([said, full, report.created, bool((back == observation.partitions[0].vis).all())])
    shutil.rmtree(path)

shutil.copytree(source, path)
fill(disk, 500_000)
for write in (
    lambda: write_column(path, "NEW", observation, [observation.partitions[0].vis]),
    lambda: create_ms(disk + "/new.ms", observation),
):
    try:
        write()
    except MeasurementSetError as error:
        answers.append([str(error), sorted(os.listdir(disk))])
print(json.dumps(answers), flush=True)
"""


@pytest.mark.parametrize("first", ["new", "again"])
def test_a_disk_that_fills_up(ms: Path, tmp_path: Path, first: str) -> None:
    """Really full: casacore refuses, or aborts, at another place for each number of bytes left."""
    before, stored = contents(ms), files(ms)
    (tmp_path / "disk").mkdir()
    *filled, column, whole = run_with_mounts(FULL_DISK, ms, tmp_path / "disk", first)
    for left, (said, readable, _, rewritten) in zip((0, 4096, 16384), filled, strict=False):
        assert "its disk is full (0.0 MB free), make room; the other columns are unchanged, NEW" in said
        assert readable
        assert rewritten
        copy = Path(f"{ms}.left{left}")
        assert same(contents(copy), before)
        assert files(copy) == stored
        assert not (copy / FOLDER).exists()
        with pytest.raises(MeasurementSetError, match="NEW"):  # incomplete, or not there
            read_ms(copy, column="NEW")
    assert (
        "column NEW needs 1.1 MB, but its disk has 0.5 MB free: make room; nothing was changed" in column[0]
    )
    assert "MB are free on its disk: make room" in whole[0]
    assert whole[1] == ["copy.ms", "filler"]


READ_ONLY = """
import shutil
from biro.errors import MeasurementSetError
from biro.io.measurement_set import read_ms, write_column
source, disk = sys.argv[1:]
small_disk(disk, 6_000_000)
shutil.copytree(source, disk + "/copy.ms")
read_only(disk)
observation = read_ms(disk + "/copy.ms", column="DATA")
def models():
    raise SystemExit("a model was worked out")
    yield
try:
    write_column(disk + "/copy.ms", "NEW", observation, models())
except MeasurementSetError as error:
    print(json.dumps(str(error)))
"""


def test_a_disk_that_is_read_only(ms: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    assert "read-only: no permission to create files" in run_with_mounts(READ_ONLY, ms, tmp_path / "disk")


WRITER = """
import os, signal, sys
from biro.io.measurement_set import read_ms, write_column
path, delay = sys.argv[1], float(sys.argv[2])
observation = read_ms(path, column="DATA")
def models():
    signal.setitimer(signal.ITIMER_REAL, delay)
    yield observation.partitions[0].vis
signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
write_column(path, "NEW", observation, models())
print("written")
"""


def test_kill_9_at_random_moments_of_a_write(ms: Path) -> None:
    """Of the whole program, so that only the next one can mend."""
    before, stored, rng = contents(ms), files(ms), random.Random(6)
    observation = read_ms(ms, column="DATA")
    model = observation.partitions[0].vis
    killed = 0
    for turn in range(6):
        words = [sys.executable, "-c", WRITER, str(ms), str(rng.uniform(1e-4, 0.06))]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        killed += done.returncode == -signal.SIGKILL
        assert done.returncode == -signal.SIGKILL or done.stdout == "written\n", done.stderr
        assert read_ms(ms, column="DATA", time_limit=60).digest() == observation.digest()
        assert same(contents(ms), before), turn
        try:
            found = read_ms(ms, column="NEW").partitions[0].vis
        except MeasurementSetError as error:
            said = str(error)
        else:
            said = "complete" if np.array_equal(found, model) else "wrong values"
        assert re.search("complete|no visibility column NEW", said), said
    assert killed
    assert files(ms) == stored
    write_column(ms, "NEW", observation, [model])
    assert np.array_equal(read_ms(ms, column="NEW").partitions[0].vis, model)
    assert not (ms / FOLDER).exists()


FLAGGER = """
import os, signal, sys
import biro
from biro.flagging.strategy import Mask, Strategy
from biro.io.measurement_set import flags
path, delay = sys.argv[1], float(sys.argv[2])
sent = flags._send
def send(*given):
    signal.setitimer(signal.ITIMER_REAL, delay)
    sent(*given)
flags._send, flags.CHUNK_FLAGS = send, 64
signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
biro.flag(path, Strategy("all", masks=(Mask.of("1 Hz..99 GHz"),)))
print("written")
"""


def test_kill_9_at_random_moments_of_flagging(ms: Path) -> None:
    """Flags are whole, or marked as incomplete and brought back by --undo; nothing else ever changes."""
    before, rng, killed = contents(ms), random.Random(7), 0
    for _ in range(3):
        words = [sys.executable, "-c", FLAGGER, str(ms), str(rng.uniform(1e-4, 0.01))]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        killed += done.returncode == -signal.SIGKILL
        assert done.returncode == -signal.SIGKILL or done.stdout == "written\n", done.stderr
        # The child of a killed run may live a little longer: its lock is waited for.
        notes = read_ms(ms, column="DATA", time_limit=60, allow_unusable=True).notes
        now = contents(ms)
        changed = {name for name in before if not np.array_equal(now[name], before[name])}
        assert changed <= {"FLAG", "FLAG_ROW"}
        assert not (before["FLAG"] & ~now["FLAG"]).any(), "flags are only ever added"
        half = any("incomplete" in note for note in notes)
        assert half or not changed or now["FLAG"].all()
        if half or changed:
            biro.undo_flags(ms)
        assert same(contents(ms), before)
    assert killed


DYING = """
import os, sys, time
from biro.io.measurement_set.backup import INFO, Backup
path = sys.argv[1]
backup = Backup(path)
backup.save(INFO)
os.truncate(os.path.join(path, INFO), 0)
print("broken", flush=True)
time.sleep(2.0)
os._exit(1)
"""


def test_a_write_begins_after_the_end_of_one_that_was_killed(ms: Path) -> None:
    """The child of a killed run lives a little longer, and casacore just empties table.info there."""
    observation, stored = read_ms(ms, column="DATA"), files(ms)
    words = [sys.executable, "-c", DYING, str(ms)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as dying:
        assert dying.stdout is not None
        assert dying.stdout.readline() == b"broken\n"
        write_column(ms, "NEW", observation, [observation.partitions[0].vis])
        assert dying.wait() == 1
    assert files(ms) == stored
    assert not (ms / FOLDER).exists()


@pytest.mark.parametrize(("file", "size"), [("table.f9", 0), ("table.f9", 300), ("table.info", 0)])
def test_a_header_that_a_killed_run_left_empty_is_restored(ms: Path, file: str, size: int) -> None:
    """casacore empties them before it fills them: the moment between is too short to be met by chance."""
    observation = read_ms(ms, column="DATA")
    info = (ms / "table.info").read_bytes()
    # Killed while it waits for the second model.
    program = WRITER.replace("vis\n", "vis\n    os.kill(os.getpid(), signal.SIGKILL)\n", 1)
    done = subprocess.run([sys.executable, "-c", program, str(ms), "60"], timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL
    time.sleep(0.5)  # until its child is gone too
    assert (ms / FOLDER / file).is_file()
    os.truncate(ms / file, size)
    assert read_ms(ms, column="DATA").digest() == observation.digest()
    assert (ms / "table.info").read_bytes() == info
    assert not (ms / FOLDER).exists()
    with pytest.raises(MeasurementSetError, match="is incomplete"):
        read_ms(ms, column="NEW")


def test_a_writer_that_loses_its_parent_leaves_headers_alone(ms: Path) -> None:
    """The kernel may kill it at any moment then: it writes nothing more, not even what closing would."""
    part = read_ms(ms, column="DATA").partitions[0]

    def headers() -> dict[str, int]:
        found = [file for file in ms.glob("table.*") if "_TSM" not in file.name and file.suffix != ".lock"]
        return {file.name: file.stat().st_mtime_ns for file in found}

    with MeasurementSetProcess(ms, 20.0) as child:
        child.call("prepare", None, path=str(ms), column="NEW", source=None, mode="replace", rest=None)
        child.call("begin")
        ModelRows.of(part).write(child, part.vis)
        before = headers()
        assert child.process.stdin is not None
        child.process.stdin.close()
        assert child.process.wait(20.0) == 0
        assert headers() == before
    with table(str(ms), ack=False) as main:
        assert main.getcolkeyword("NEW", "BIRO_COMPLETE") is False


def test_nothing_is_restored_while_the_writer_lives(ms: Path) -> None:
    """Another process reads meanwhile: it waits for the lock, and leaves the copies alone."""
    observation = read_ms(ms, column="DATA")
    read = "import sys; from biro.io.measurement_set import read_ms; read_ms(sys.argv[1], time_limit=1)"

    def models() -> Iterator[np.ndarray]:
        yield observation.partitions[0].vis
        os.truncate(ms / "table.info", 0)
        done = python("-c", read, ms)
        assert "gave up after 1 s" in done.stderr
        assert (ms / FOLDER / "table.info").stat().st_size
        assert not (ms / "table.info").stat().st_size

    write_column(ms, "NEW", observation, models())
    assert (ms / "table.info").stat().st_size


HUNG = """
import subprocess, time
fd = storage_that_hangs(sys.argv[1])
answers = []
for words in (["info", sys.argv[1]], ["predict", sys.argv[1], sys.argv[2]]):
    begin = time.monotonic()
    words = [sys.executable, "-m", "biro", *words, "--time-limit", "1"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    answers.append([done.returncode, done.stdout, done.stderr, time.monotonic() - begin])
print(json.dumps(answers), flush=True)
os._exit(0)
"""


def test_a_storage_that_never_answers(tmp_path: Path) -> None:
    (tmp_path / "hung.ms").mkdir()
    sky = tmp_path / "sky.toml"
    sky.write_text('[[source]]\nname = "a"\neast = "0 deg"\nnorth = "0 deg"\nI = "1 Jy"\n')
    for code, out, said, seconds in run_with_mounts(HUNG, tmp_path / "hung.ms", sky):
        assert (code, out) == (2, "")
        (line,) = said.splitlines()
        assert re.search("gave up after 1 s while looking (for table.dat|at it): its storage does not", line)
        assert seconds < 60  # most of it is the start of Python on a busy machine


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("table.dat", r"not a Measurement Set \(it has no table\.dat\)"),
        ("table.f0", "gave up after 1 s while opening .*storage does not respond"),
        ("table.f2_TSM1", "gave up after 1 s while reading DATA from .*storage does not respond"),
        ("FIELD/table.f0", "gave up after 1 s while reading .*storage does not respond"),
        ("table.lock", "gave up after 1 s while opening"),
    ],
)
def test_a_pipe_in_the_place_of_a_file(ms: Path, file: str, message: str) -> None:
    """To open it takes for ever."""
    with table(str(ms), ack=False) as main:
        number = main.getdminfo("DATA")["SEQNR"]
    place = ms / file.replace("f2_TSM1", f"f{number}_TSM1")
    place.unlink()
    os.mkfifo(place)
    with pytest.raises(MeasurementSetError, match=message):
        read_ms(ms, column="DATA", time_limit=1)


@pytest.mark.parametrize("name", ["line\nbreak.ms", "x" * 250, "ü 日本.ms", "'; rm -rf $HOME #.ms"])
def test_names_of_all_kinds(ms: Path, name: str) -> None:
    moved = ms.rename(ms.with_name(name))
    observation = read_ms(moved, column="DATA")
    write_column(moved, "NEW", observation, [observation.partitions[0].vis])
    assert read_ms(moved, column="NEW").counts == observation.counts


@pytest.mark.parametrize("name", [b"\xff\xfe.ms", b"x" * 300, b"a/" * 3000])
def test_names_that_casacore_cannot_take(tmp_path: Path, measurement_set: Unpack, name: bytes) -> None:
    path = tmp_path / os.fsdecode(name)
    if len(name) < 10:
        shutil.copytree(measurement_set("sim_7_circ"), path)
    with pytest.raises(
        MeasurementSetError, match=r"not a name in UTF-8|cannot be accessed: File name too long"
    ):
        read_ms(path)


FIRST = """
import os, sys
from casacore.tables import table
from biro.io.measurement_set.backup import INFO, Backup
path = sys.argv[1]
main = table(path, readonly=False, lockoptions="permanent", ack=False)
print("locked", flush=True)
sys.stdin.readline()
backup = Backup(path)
backup.save(INFO)
open(os.path.join(path, INFO), "w").close()
os.kill(os.getpid(), 9)
"""

SECOND = """
import sys
from biro.io.measurement_set.backup import INFO, Backup
from biro.io.measurement_set.child.casacore_table import open_for_writing
main = open_for_writing(sys.argv[1])
backup = Backup(sys.argv[1])
backup.save(INFO)
assert main.info()["type"] == "Measurement Set"
main.putcolkeyword("DATA", "OF_A_TEST", 1)
main.close()
backup.remove()
"""


def test_a_writer_that_waits_while_another_one_is_killed_keeps_what_that_one_backed_up(ms: Path) -> None:
    """It has looked for backups before it waited; its own must not replace a good one."""
    before = (ms / "table.info").read_bytes()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", FIRST, str(ms)], **pipes) as first:  # type: ignore[call-overload]
        assert first.stdout.readline() == "locked\n"
        second = subprocess.Popen([sys.executable, "-c", SECOND, str(ms)], stderr=subprocess.PIPE, text=True)
        time.sleep(4.0)  # to start Python and to wait for the lock
        assert second.poll() is None
        first.communicate("go\n")
    _, said = second.communicate(timeout=60)
    assert second.returncode == 0, said
    assert (ms / "table.info").read_bytes() == before
