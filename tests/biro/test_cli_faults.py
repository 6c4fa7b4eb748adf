"""Bad input on the command line: each fault is one clear line on stderr and exit code 2."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from casacore.tables import table
from commands import KAT_7, SOURCE
from test_ms_faults import locked
from typer.testing import CliRunner

from biro.cli.app import app
from biro.cli.guard import after_result
from biro.errors import InputError, OutputError
from biro.files.atomic import atomic_path
from biro.inference.posterior.posterior import Posterior
from biro.inference.posterior.samples import Provenance
from biro.io.measurement_set import read_ms
from biro.models.quantities.parameter import Column

CARDS = (
    *(b"SIMPLE  =                    T", b"BITPIX  =                  -32"),
    *(b"NAXIS   =           1000000000", b"END"),
)


def fails(*words: str | Path) -> str:
    """The one line that a command says before it ends with exit code 2."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    return one_line(result.exit_code, result.stdout, result.stderr)


def one_line(code: int, out: str, said: str) -> str:
    assert (code, out) == (2, ""), said
    *before, line = said.splitlines()
    # A prediction says first whether it smears.
    assert all(each.startswith("smearing") for each in before), said
    assert line.startswith("biro: ")
    return line.removeprefix("biro: ")


@contextmanager
def opened(path: Path) -> Iterator[table]:
    with table(str(path), readonly=False, ack=False) as main:
        yield main


@pytest.fixture
def sky(clean: Path) -> Path:
    return clean.parent / "sky.toml"


def test_locked(ms: Path) -> None:
    with locked(ms) as holder:
        line = fails("info", ms, "--time-limit", "1")
    assert "gave up after 1 s while opening" in line
    assert f"locked by process {holder}" in line


def test_an_impossible_model(clean: Path, tmp_path: Path) -> None:
    """Faults of models are those of tests/models/test_model_files.py; no command begins anything with one."""
    model = tmp_path / "bad.toml"
    model.write_text(SOURCE + 'I = "1 foo"\n')
    for words in (["predict", clean, model], ["fit", clean, model, "-o", tmp_path / "run"]):
        assert "bad.toml: source 'a'" in (line := fails(*words))
        assert "unknown unit 'foo' in '1 foo'" in line
    assert not (tmp_path / "run").exists()


def test_a_folder_that_is_no_run(clean: Path) -> None:
    assert "neither a finished run directory" in fails("predict", clean, clean.parent)


def test_files_that_mean_harm(clean: Path, tmp_path: Path) -> None:
    """What readers refuse (test_hostile_files.py, test_hostile_models.py) is one line here, too."""
    deep, huge = tmp_path / "deep.toml", tmp_path / "huge.toml"
    deep.write_text(".".join("a" * 100_000) + " = 1")
    huge.write_text("[[source]]\nname = 0x" + "f" * 5000)
    fits, run = tmp_path / "image.fits", tmp_path / "run"
    fits.write_bytes(b"".join(card.ljust(80) for card in CARDS).ljust(2880))
    run.mkdir()
    (run / "posterior.nc").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    os.mkfifo(tmp_path / "pipe")
    assert "a key of more than 32 parts" in fails("predict", clean, deep)
    assert "an integer of 20000 bits" in fails("fit", clean, huge, "-o", tmp_path / "new")
    assert "is a pipe or a device" in fails("predict", clean, tmp_path / "pipe")
    assert "NAXIS = 1e+09 in a header" in fails("predict", clean, "--image", fits)
    for words in (["plot", run], ["compare", run, run], ["predict", clean, run]):
        assert "is not a posterior of biro, or is damaged" in fails(*words)
    assert "no such file" in fails("info", "none\n.ms")
    assert "cannot be accessed: File name too long" in fails("info", "x" * 300)


def test_names_that_are_no_text(clean: Path, sky: Path, tmp_path: Path) -> None:
    """Bytes that are no UTF-8, on a terminal that may be ASCII."""
    odd = tmp_path / os.fsdecode(b"\xff\xfe\n.ms")
    shutil.copytree(clean, odd)
    for words in (["info", odd], ["predict", clean, tmp_path / os.fsdecode(b"\xff.toml")]):
        done = subprocess.run(
            [sys.executable, "-X", "utf8=0", "-m", "biro", *map(os.fsencode, words)],
            capture_output=True,
            check=False,
            env=os.environ | {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"},
        )
        assert (done.returncode, done.stdout) == (2, b""), done.stderr.decode(errors="replace")
        assert done.stderr.startswith(b"biro: ")
        assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"observation": 3}, "run.json does not record how the data were read"),
        ({"observation": "none.ms"}, "no such file"),
        ({"reading": {"fields": {"a": 1}}}, ""),
        ({"reading": {"channels": 1.5}}, ""),
        ({"reading": {"time_limit": "x"}}, "time_limit must be positive seconds"),
        ({"reading": {"nonsense": 1}}, "nonsense"),
        ({"reading": [1]}, "run.json does not record how the data were read"),
        ({"likelihood": {"precision": [], "memory_limit": {}}}, ""),
    ],
)
def test_runs_whose_record_was_changed(clean: Path, tmp_path: Path, facts: dict, message: str) -> None:
    record = {"format": 1, "run_id": "r", "settings": {}, "resumed": []}
    facts = {"observation": str(clean), **facts}
    (tmp_path / "run.json").write_text(json.dumps(record | {"facts": facts}))
    (tmp_path / "model.toml").write_text(SOURCE + 'I = "1 Jy"\n')
    digest = read_ms(clean).digest()
    Posterior(
        columns=(Column("noise.factor"),),
        samples=np.ones((4, 1)),
        log_likelihood=np.zeros(4),
        log_prior=np.zeros(4),
        provenance=Provenance("emcee", 1, data_digest=digest),
        effective=np.ones(1),
    ).save(tmp_path / "posterior.nc")
    assert message in fails("plot", tmp_path)


def test_after_a_result_only_what_cannot_be_written_is_told_as_such() -> None:
    """Bad input stays bad input: the same command would not write all."""
    with pytest.raises(InputError, match=r"^bad$"), after_result("the gains are in g", "again"):
        raise InputError("bad")
    with pytest.raises(OutputError, match=r"^the gains are in g, but /no/file: cannot be written.*; again$"):
        write_nowhere()


def write_nowhere() -> None:
    with after_result("the gains are in g", "again"), atomic_path(Path("/no/file")):
        pass


def test_a_sky_in_the_place_of_the_new_set(tmp_path: Path) -> None:
    sky = tmp_path / "x.csv"
    assert "the name of a sky model" in fails("simulate", sky, "sky.toml", *KAT_7)
    sky.write_text("text\n")
    assert "a text file" in fails("simulate", sky, "sky.toml", *KAT_7)
    noises = ("--noise", "1 Jy", "--sefd", "400 Jy")
    said = fails("simulate", tmp_path / "x.ms", "sky.toml", *KAT_7, *noises)
    assert said.endswith("give either --noise or --sefd"), said
