"""The run directory: one run at a time, only its own, its record whole."""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from commands import python

import biro
from biro.errors import RunError
from biro.files.atomic import write_atomic
from biro.run.directory import RunDirectory
from biro.run.interrupt import RunInterrupted, stop_on_signal
from biro.run.lock import RunLock, holder_is_gone
from biro.run.record import read_record

SETTINGS = {"sampler": "emcee", "seed": 1, "options": {"n_walker": 32, "max_steps": 10}, "data": "a" * 64}


def test_what_is_recorded(tmp_path):
    with RunDirectory(tmp_path / "run", SETTINGS, facts={"backend": "cpu"}, model_toml="# model\n") as run:
        assert not run.finished
        run.posterior_path.write_bytes(b"x")
        run.finish()
        assert run.finished
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["settings"] == SETTINGS
    assert record["facts"] == {"backend": "cpu"}
    assert {"numpy", "emcee", "dynesty", "python"} <= record["versions"].keys()
    assert record["versions"]["biro-rime"] == biro.__version__  # that of the code, not of an old installation
    assert (tmp_path / "run" / "model.toml").read_text() == "# model\n"
    assert str(tmp_path) not in json.dumps(record)


def test_changes_are_named_all_at_once_and_some_are_allowed(tmp_path):
    with RunDirectory(tmp_path, SETTINGS):
        pass
    changed = SETTINGS | {"data": "b" * 64, "options": {"n_walker": 40, "max_steps": 99}}
    with pytest.raises(RunError, match=r"the data or their selection changed; n_walker was 32, is 40\."):
        RunDirectory(tmp_path, changed, may_change=("max_steps",))
    with RunDirectory(
        tmp_path, SETTINGS | {"options": {"n_walker": 32, "max_steps": 99}}, may_change=("max_steps",)
    ):
        pass


def test_a_run_killed_while_it_begins_begins_again(tmp_path):
    (tmp_path / ".run.json.123.tmp").write_text("{")
    with RunDirectory(tmp_path, SETTINGS, model_toml="# model\n"):
        pass
    (tmp_path / "model.toml").unlink()  # it is written after the record
    with RunDirectory(tmp_path, SETTINGS, model_toml="# model\n"):
        assert (tmp_path / "model.toml").read_text() == "# model\n"


def test_warnings_of_a_run_are_seen_without_any_logging_set_up(tmp_path):
    code = (
        "import logging, sys; from biro.run.directory import RunDirectory\n"
        "with RunDirectory(sys.argv[1], {}):\n"
        "    logging.getLogger('biro.inference.samplers.sampling').warning('disk is full')\n"
        "    logging.getLogger('biro.inference.samplers.sampling').info('hardly of interest')\n"
        "assert not logging.getLogger('biro').handlers\n"
    )
    done = python("-c", code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "disk is full\n"


def test_the_log_has_what_the_kernels_say_and_leaves_the_loggers_as_they_were(tmp_path):
    loggers = [logging.getLogger(name) for name in ("biro", "rime_kernels")]
    before = [(logger.level, list(logger.handlers)) for logger in loggers]
    with RunDirectory(tmp_path / "run", SETTINGS):
        logging.getLogger("rime_kernels.tuning").info("measuring")
    assert "INFO rime_kernels.tuning: measuring" in (tmp_path / "run" / "log.txt").read_text()
    assert [(logger.level, list(logger.handlers)) for logger in loggers] == before


def test_directories_of_others_and_broken_records_are_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(RunError, match=r"holds 'thesis\.tex' but no run.json"):
        RunDirectory(tmp_path, SETTINGS)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(RunError, match="cannot be read"):
        read_record(tmp_path)
    (tmp_path / "run.json").write_text('{"format": 99}')
    with pytest.raises(RunError, match="not of format"):
        read_record(tmp_path)
    with pytest.raises(RunError, match="cannot be made"):
        RunDirectory(tmp_path / "thesis.tex" / "run", SETTINGS)


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomic(path, b"old")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_a_flag_the_second_an_interrupt(number):
    before = signal.getsignal(number)
    with stop_on_signal() as stop:
        assert not stop
        signal.raise_signal(number)
        assert stop
        with pytest.raises(RunInterrupted, match=f"stopped by {number.name}; all is saved"):
            stop.raise_interrupted("all is saved")
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert signal.getsignal(number) is before


def test_whether_the_process_of_a_run_is_gone(tmp_path: Path) -> None:
    """It lives, was killed, has given the lock up, is on another host, or cannot be told."""
    place = tmp_path / "lock"
    assert not holder_is_gone(place)
    lock = RunLock(place)
    assert not holder_is_gone(place)
    lock.release()
    assert holder_is_gone(place)
    host = socket.gethostname()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    place.write_text(f"process {ended.pid} on {host}\n")
    assert holder_is_gone(place)
    place.write_text(f"process {ended.pid} on another.{host}\n")
    assert not holder_is_gone(place)
