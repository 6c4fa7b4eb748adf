"""Mutated Measurement Sets, each read in a fork: something, or one line; for tests and by hand.

    python fuzz_tables.py SET FOLDER NUMBER [NAME ...]

prints a JSON document: for each spoilt table of `SPOILT` (or those that are named) and NUMBER files with
random bytes changed or cut off, what `read_ms` says of a copy of the set in FOLDER: "the same" data, "other"
data, or the line of its error. The child process in which casacore runs is a fork of this one, which takes a
tenth of the time of a new interpreter.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from casacore.tables import makearrcoldesc, makescacoldesc, table

from biro.errors import BiroError
from biro.io.measurement_set import process
from biro.io.measurement_set.child.__main__ import main as child_main
from biro.io.measurement_set.read import read_ms

Spoil = Callable[[Path], None]
LIMIT = 5.0
"""Seconds of silence of the child after which reading gives up."""
LONGEST = 700
"""Characters of a line, without the names of files in it."""


class Fork:
    """The part of `subprocess.Popen` that `MeasurementSetProcess` needs, of a fork that runs the child."""

    def __init__(self, *_: Any, stderr: Any, **__: Any) -> None:
        read_in, write_in = os.pipe()
        read_out, write_out = os.pipe()
        self.returncode: int | None = None
        self.pid = os.fork()
        if not self.pid:
            os.setsid()
            for source, target in ((read_in, 0), (write_out, 1), (stderr.fileno(), 2)):
                os.dup2(source, target)
            os.closerange(3, 256)
            try:
                child_main()
            except BaseException as error:  # as the traceback of a new interpreter ends
                os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
        os.close(read_in)
        os.close(write_out)
        self.stdin, self.stdout = os.fdopen(write_in, "wb", 0), os.fdopen(read_out, "rb", 0)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float) -> int:
        end = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end:
                raise process.subprocess.TimeoutExpired("fork", timeout)
            time.sleep(0.001)
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def put(column: str, change: Callable[[Any], Any], subtable: str = "") -> Spoil:
    """Change the values of a column."""

    def spoil(path: Path) -> None:
        with table(str(path / subtable), readonly=False, ack=False) as main:
            main.putcol(column, change(main.getcol(column)))

    return spoil


def cell(column: str, value: Any, subtable: str = "", row: int = 0) -> Spoil:
    """Change one cell, also its shape."""

    def spoil(path: Path) -> None:
        with table(str(path / subtable), readonly=False, ack=False) as main:
            try:
                main.putcell(column, row, value)
            except RuntimeError:  # its cells have one shape: in the new column the others are empty
                kind = {"f": 0.0, "c": 0j, "i": 0}[value.dtype.kind]
                main.renamecol(column, f"OLD_{column}")
                main.addcols(makearrcoldesc(column, kind, ndim=value.ndim))
                main.putcell(column, row, value)

    return spoil


def without(column: str, subtable: str = "") -> Spoil:
    """Remove a column."""

    def spoil(path: Path) -> None:
        with table(str(path / subtable), readonly=False, ack=False) as main:
            main.renamecol(column, f"OLD_{column}")

    return spoil


def of_type(column: str, value: Any, subtable: str = "", ndim: int | None = None) -> Spoil:
    """Put a column of another type in the place of one; its cells are empty where they are arrays."""

    def spoil(path: Path) -> None:
        with table(str(path / subtable), readonly=False, ack=False) as main:
            main.renamecol(column, f"OLD_{column}")
            made = makescacoldesc(column, value) if ndim is None else makearrcoldesc(column, value, ndim=ndim)
            main.addcols(made)

    return spoil


def no_rows(subtable: str) -> Spoil:
    def spoil(path: Path) -> None:
        with table(str(path / subtable), readonly=False, ack=False) as main:
            main.removerows(list(range(main.nrows())))

    return spoil


def first(value: Any) -> Callable[[Any], Any]:
    """The values with another first one."""

    def change(values: Any) -> Any:
        values = values.copy()
        values[0] = value
        return values

    return change


def file(name: str, change: Callable[[bytes], bytes]) -> Spoil:
    def spoil(path: Path) -> None:
        (path / name).write_bytes(change((path / name).read_bytes()))

    return spoil


SUBTABLES = ("ANTENNA", "DATA_DESCRIPTION", "FIELD", "OBSERVATION", "POLARIZATION", "SPECTRAL_WINDOW")
SPOILT: dict[str, Spoil] = {
    "table.dat empty": file("table.dat", lambda _: b""),
    "table.dat cut": file("table.dat", lambda data: data[: len(data) // 2]),
    "table.dat zeros": file("table.dat", lambda data: bytes(len(data))),
    "table.dat text": file("table.dat", lambda _: b"hello\n" * 20),
    "table.f0 empty": file("table.f0", lambda _: b""),
    "table.f0 zeros": file("table.f0", lambda data: bytes(len(data))),
    "table.f0 missing": lambda path: (path / "table.f0").unlink(),
    "table.info missing": lambda path: (path / "table.info").unlink(),
    "table.lock missing": lambda path: (path / "table.lock").unlink(),
    **{f"{name} missing": lambda path, name=name: shutil.rmtree(path / name) for name in SUBTABLES},
    **{f"{name} table.dat empty": file(f"{name}/table.dat", lambda _: b"") for name in SUBTABLES},
    **{f"{name} without rows": no_rows(name) for name in SUBTABLES},
    "SPECTRAL_WINDOW_ID 7": put("SPECTRAL_WINDOW_ID", first(7), "DATA_DESCRIPTION"),
    "SPECTRAL_WINDOW_ID -1": put("SPECTRAL_WINDOW_ID", first(-1), "DATA_DESCRIPTION"),
    "POLARIZATION_ID 7": put("POLARIZATION_ID", first(7), "DATA_DESCRIPTION"),
    "DATA_DESC_ID 7": put("DATA_DESC_ID", first(7)),
    "DATA_DESC_ID -1": put("DATA_DESC_ID", first(-1)),
    "FIELD_ID 7": put("FIELD_ID", first(7)),
    "FIELD_ID -1": put("FIELD_ID", first(-1)),
    "ANTENNA1 99": put("ANTENNA1", first(99)),
    "ANTENNA2 -1": put("ANTENNA2", first(-1)),
    "TIME nan": put("TIME", first(np.nan)),
    "TIME all inf": put("TIME", lambda values: values + np.inf),
    "INTERVAL nan": put("INTERVAL", first(np.nan)),
    "EXPOSURE -1": put("EXPOSURE", first(-1.0)),
    "UVW nan": put("UVW", first(np.nan)),
    "UVW of two": of_type("UVW", 0.0, ndim=1),
    "UVW a scalar": of_type("UVW", 0.0),
    "UVW text": of_type("UVW", "x"),
    "TIME an integer": of_type("TIME", 0),
    "TIME text": of_type("TIME", "x"),
    "ANTENNA1 real": of_type("ANTENNA1", 0.0),
    "ANTENNA1 text": of_type("ANTENNA1", "x"),
    "DATA real": of_type("DATA", 0.0, ndim=2),
    "DATA a scalar": of_type("DATA", 0j),
    "FLAG an integer": of_type("FLAG", 0, ndim=2),
    "FLAG_ROW an integer": of_type("FLAG_ROW", 0),
    "WEIGHT text": of_type("WEIGHT", "x"),
    "WEIGHT of three": cell("WEIGHT", np.ones(3, np.float32)),
    "DATA of another shape": cell("DATA", np.ones((2, 2), np.complex64)),
    "DATA missing": without("DATA"),
    **{f"{name} missing": without(name) for name in ("ANTENNA1", "TIME", "UVW", "FLAG_ROW", "SCAN_NUMBER")},
    "FLAG missing": without("FLAG"),
    "INTERVAL missing": without("INTERVAL"),
    "CHAN_FREQ missing": without("CHAN_FREQ", "SPECTRAL_WINDOW"),
    "CHAN_WIDTH missing": without("CHAN_WIDTH", "SPECTRAL_WINDOW"),
    "NAME missing": without("NAME", "ANTENNA"),
    "POSITION missing": without("POSITION", "ANTENNA"),
    "DISH_DIAMETER missing": without("DISH_DIAMETER", "ANTENNA"),
    "PHASE_DIR missing": without("PHASE_DIR", "FIELD"),
    "CORR_TYPE missing": without("CORR_TYPE", "POLARIZATION"),
    "SPECTRAL_WINDOW_ID missing": without("SPECTRAL_WINDOW_ID", "DATA_DESCRIPTION"),
    "CHAN_FREQ of no channels": cell("CHAN_FREQ", np.zeros(0), "SPECTRAL_WINDOW"),
    "no channels": lambda path: [
        cell(name, np.zeros(0), "SPECTRAL_WINDOW")(path) for name in ("CHAN_FREQ", "CHAN_WIDTH")
    ],
    "CHAN_WIDTH of one": cell("CHAN_WIDTH", np.ones(1), "SPECTRAL_WINDOW"),
    "CHAN_FREQ nan": cell("CHAN_FREQ", np.full(4, np.nan), "SPECTRAL_WINDOW"),
    "CHAN_FREQ text": of_type("CHAN_FREQ", "x", "SPECTRAL_WINDOW"),
    "CORR_TYPE of none": cell("CORR_TYPE", np.zeros(0, np.int32), "POLARIZATION"),
    "PHASE_DIR nan": cell("PHASE_DIR", np.full((1, 2), np.nan), "FIELD"),
    "PHASE_DIR of three": cell("PHASE_DIR", np.ones((1, 3)), "FIELD"),
    "PHASE_DIR of none": cell("PHASE_DIR", np.zeros((0, 0)), "FIELD"),
    "POSITION of two": of_type("POSITION", 0.0, "ANTENNA", ndim=1),
    "POSITION nan": put("POSITION", first(np.nan), "ANTENNA"),
    "NAME an integer": of_type("NAME", 0, "ANTENNA"),
    "time scale unknown": lambda path: _keyword(path, "TIME", {"type": "epoch", "Ref": "WRONG"}),
    "time scale no record": lambda path: _keyword(path, "TIME", "x"),
    "UVW frame no record": lambda path: _keyword(path, "UVW", 3),
    "subtable elsewhere": lambda path: _elsewhere(path),
}


def _keyword(path: Path, column: str, value: Any) -> None:
    with table(str(path), readonly=False, ack=False) as main:
        main.removecolkeyword(column, "MEASINFO")
        main.putcolkeyword(column, "MEASINFO", value)


def _elsewhere(path: Path) -> None:
    """A keyword of the main table is a text in place of a subtable."""
    with table(str(path), readonly=False, ack=False) as main:
        main.removekeyword("ANTENNA")
        main.putkeyword("ANTENNA", "nowhere")


def random_damage(rng: random.Random) -> Spoil:
    """Bytes of one file changed, put to 0, or cut off."""

    def spoil(path: Path) -> None:
        files = [each for each in sorted(path.rglob("table.*")) if each.is_file() and each.stat().st_size]
        names = ("table.dat", *(f"table.f{i}" for i in range(4)))
        place = rng.choice([each for each in files if rng.random() < 0.3 or each.name in names] or files)
        data = bytearray(place.read_bytes())
        kind = rng.choice(("cut", "zeros", "bytes", "bytes"))
        # Headers and descriptions, which say what the rest means, are at the beginning.
        start = int(rng.random() ** 3 * len(data))
        if kind == "cut":
            del data[start:]
        elif kind == "zeros":
            size = min(rng.choice((4, 64, 4096)), len(data) - start)
            data[start : start + size] = bytes(size)
        else:
            for _ in range(rng.choice((1, 3, 10))):
                data[min(len(data) - 1, start + rng.randrange(64))] = rng.choice(
                    (0, 1, 127, 255, rng.randrange(256))
                )
        place.write_bytes(data)

    return spoil


def outcome(path: Path, spoil: Spoil, whole: str) -> tuple[str, float]:
    """What reading a spoilt set gives, and how many seconds it takes."""
    spoil(path)
    begun = time.monotonic()
    try:
        observation = read_ms(path, time_limit=LIMIT)
        str(observation.summary())
        said = "the same" if observation.digest() == whole else "other"
    except BiroError as error:
        said = str(error)
    except Exception as error:
        said = f"CRASH {type(error).__name__}: {error}"
    return said, time.monotonic() - begun


def main(source: str, folder: str, number: str, *names: str) -> dict[str, tuple[str, float]]:
    """The outcomes by name."""
    expired = process.subprocess.TimeoutExpired
    process.subprocess = SimpleNamespace(Popen=Fork, PIPE=None, TimeoutExpired=expired)  # type: ignore[assignment]
    whole, found = read_ms(source).digest(), {}
    chosen = {name: SPOILT[name] for name in names or SPOILT}
    chosen |= {f"damage {i}": random_damage(random.Random(i)) for i in range(int(number))}
    for name, spoil in chosen.items():
        path = Path(folder, "copy.ms")
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(source, path)
        found[name] = outcome(path, spoil, whole)
    return found


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
