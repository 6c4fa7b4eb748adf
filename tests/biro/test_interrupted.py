"""Ctrl-C while a command writes: a line says what is there and what to do; the command then works.

The signal comes as the child in which casacore runs has been asked for a certain operation.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from casacore.tables import table
from commands import KAT_7, SOURCE
from matplotlib.figure import Figure
from typer.testing import CliRunner

from biro.cli.app import app
from biro.errors import MeasurementSetError
from biro.io.measurement_set import temporary
from biro.io.measurement_set.process import MeasurementSetProcess
from biro.io.measurement_set.temporary import made_beside
from biro.plots import standard

INCOMPLETE = "the other columns are unchanged, NEW, if it exists, is marked as incomplete: write it again"
FREE = SOURCE + 'I = { prior = "uniform", low = 0, high = 3, unit = "Jy" }\n'


@pytest.fixture(autouse=True)
def _python_hears_the_signal() -> Iterator[None]:
    """Shells start what runs in the background with this signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def command(*words: str | Path) -> tuple[int, str]:
    """Exit code and the last line on stderr."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    return result.exit_code, ["", *result.stderr.splitlines()][-1]


def interrupted(monkeypatch: pytest.MonkeyPatch, operation: str, *words: str | Path) -> str:
    """The line of a command that gets Ctrl-C once the child has been sent an operation."""
    send = MeasurementSetProcess.send

    def sent(self: MeasurementSetProcess, header: dict[str, Any], array: Any = None) -> None:
        send(self, header, array)
        if header["operation"] == operation:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(MeasurementSetProcess, "send", sent)
        code, line = command(*words)
    assert code == 130, line
    assert line.startswith("biro: interrupted; "), line
    return line.removeprefix("biro: interrupted; ")


def columns(path: Path, but: str) -> dict[str, np.ndarray]:
    with table(str(path), ack=False) as main:
        names = set(main.colnames()) - {but, "FLAG_CATEGORY"}
        return {name: np.asarray(main.getcol(name)) for name in names}


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("operation", "line"),
    [
        ("prepare", "nothing was written"),
        ("begin", INCOMPLETE),
        ("write", INCOMPLETE),
        ("finish", INCOMPLETE),
    ],
)
def test_a_column(ms: Path, monkeypatch: pytest.MonkeyPatch, operation: str, line: str) -> None:
    words = ("predict", ms, ms.parents[0] / "sky.toml", "--column", "NEW", "--smearing", "off")
    words[2].write_text(SOURCE + 'I = "1 Jy"\n')
    before = columns(ms, "NEW")
    assert interrupted(monkeypatch, operation, *words).startswith(line)
    assert same(columns(ms, "NEW"), before)
    assert command(*words)[0] == 0
    with table(str(ms), ack=False) as main:
        # 1 Jy at the phase centre; single precision of the column.
        np.testing.assert_allclose(main.getcol("NEW")[..., [0, 3]], 1.0, rtol=1e-6)


def test_a_column_in_place(ms: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sky = ms.parent / "sky.toml"
    sky.write_text(SOURCE + 'I = "1 Jy"\n')
    assert command("predict", ms, sky, "--column", "NEW", "--smearing", "off")[0] == 0
    words = ("predict", ms, sky, "--column", "NEW", "--subtract", "--smearing", "off")
    for operation in ("write", "finish"):
        line = interrupted(monkeypatch, operation, *words)
        assert line.startswith("the other columns are unchanged, NEW is unchanged")
        with table(str(ms), ack=False) as main:
            left = main.getcol("NEW")
        # As it was, or, where the child was faster than the signal, whole.
        assert np.allclose(left[..., [0, 3]], 1.0, atol=1e-6) or np.allclose(left, 0.0, atol=1e-6), operation


@pytest.mark.parametrize(
    ("operation", "line"),
    [
        ("prepare_flags", "no flags were written"),
        ("begin_flags", "biro flag SET --undo"),
        ("write_flags", "biro flag SET --undo"),
        ("finish_flags", "biro flag SET --undo"),
    ],
)
def test_flags(ms: Path, monkeypatch: pytest.MonkeyPatch, operation: str, line: str) -> None:
    before = columns(ms, "")
    said = interrupted(monkeypatch, operation, "flag", ms, "--select", "antenna=ant1")
    assert line in said.replace(str(ms), "SET"), said
    code, undone = command("flag", ms, "--undo")
    # There is nothing to undo where the version of the flags before was not yet made.
    assert code == (0 if operation in ("write_flags", "finish_flags") else 2) or operation == "begin_flags"
    assert same(columns(ms, ""), before), undone
    assert command("flag", ms, "--select", "antenna=ant1")[0] == 0
    with table(str(ms), ack=False) as main:
        assert main.getcol("FLAG").sum() == 18 * 4  # antenna 1 has 6 baselines of 7 antennas at 3 times


def test_undo(ms: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = columns(ms, "")
    assert command("flag", ms, "--select", "antenna=ant1")[0] == 0
    said = interrupted(monkeypatch, "undo_flags", "flag", ms, "--undo")
    assert "FLAG may be incomplete" in said
    command("flag", ms, "--undo")  # refused where the child was faster than the signal
    assert same(columns(ms, ""), before)


def test_corrected_data(ms: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sky = ms.parent / "sky.toml"
    sky.write_text(SOURCE + 'I = "1 Jy"\n')
    said = interrupted(monkeypatch, "write", "solve", ms, sky, "-o", ms.parent / "g", "--corrected")
    assert said.startswith(f"the gains are in {ms.parent}/g/gains.npz; ")
    assert "CORRECTED_DATA, if it exists, is marked as incomplete" in said
    assert (ms.parent / "g" / "gains.npz").is_file()


@pytest.mark.parametrize("operation", ["create", "fill_cells", "close_new"])
def test_a_new_set(ms: Path, monkeypatch: pytest.MonkeyPatch, operation: str) -> None:
    """An older set stays as it was, and nothing is left beside it."""
    sky, before = ms.parent / "sky.toml", columns(ms, "")
    sky.write_text(SOURCE + 'I = "2 Jy"\n')
    words = ("simulate", ms, sky, *KAT_7, "--seed", "2", "--overwrite", "--noise", "1 Jy")
    assert interrupted(monkeypatch, operation, *words) == f"{ms} was not made; what was there is as it was"
    assert same(columns(ms, ""), before)
    assert sorted(path.name for path in ms.parent.iterdir()) == ["copy.ms", "sky.toml"]


def test_pictures(clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The posterior is safe where pictures of a fit, or of `biro plot`, are interrupted."""

    def each_picture(*_: Any, **__: Any) -> Iterator[tuple[str, Figure]]:
        yield "Sky", Figure()
        signal.raise_signal(signal.SIGINT)
        yield "Data", Figure()

    run, model = tmp_path / "run", tmp_path / "model.toml"
    model.write_text(FREE)
    fit = ("fit", clean, model, "-o", run, "--backend", "cpu", "--seed", "1", "--sampler", "none")
    with monkeypatch.context() as patched:
        patched.setattr(standard, "each_picture", each_picture)
        for words in (fit, ("plot", run)):
            code, line = command(*words)
            assert code == 130
            assert line == (
                f"biro: interrupted; the posterior is in {run}/posterior.nc; 1 pictures are written. "
                f"`biro plot {run}` draws all"
            )
            assert (run / "posterior.nc").is_file()


def make_with_a_file(target: Path) -> None:
    with made_beside(target.name, target) as new:
        new.mkdir()
        (new / "new").touch()


@pytest.mark.parametrize("moment", ["rename", "rmtree"])
def test_a_set_that_is_in_place_is_said_to_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Ctrl-C comes just after the new set is in its place, or while the old one is removed."""
    target, heard = tmp_path / "new.ms", []
    target.mkdir()
    (target / "old").touch()
    place = {"rename": Path, "rmtree": temporary.shutil}[moment]
    work = getattr(place, moment)

    def then_interrupted(path: Path, *words: Any, **more: Any) -> None:
        work(path, *words, **more)
        # The temporary folder of the new set, which is gone, is removed before the old set.
        if not heard and (target / "new").exists():
            heard.append(path)
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(place, moment, then_interrupted)
        with pytest.raises(KeyboardInterrupt, match=r"new\.ms was made$"):
            make_with_a_file(target)
    assert heard
    assert [path.name for path in tmp_path.rglob("*")] == ["new.ms", "new"]


def test_the_error_of_a_set_that_cannot_be_moved_is_said(tmp_path: Path) -> None:
    """There is a link that leads nowhere, so that nothing was moved aside."""
    target = tmp_path / "new.ms"
    target.symlink_to(tmp_path / "nowhere")
    with pytest.raises(MeasurementSetError, match="Not a directory"):
        make_with_a_file(target)
    assert [path.name for path in tmp_path.iterdir()] == ["new.ms"]
