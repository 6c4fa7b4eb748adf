"""Interference found in what a sky leaves of the data of a Measurement Set."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from casacore.tables import table
from commands import works
from scipy import ndimage
from typer.testing import CliRunner

import biro
from biro.cli.app import app
from biro.io.data_set.index import PartitionRows
from biro.io.measurement_set import create_ms
from biro.io.measurement_set.opened import OpenedColumn
from biro.simulation.simulator import Channels, Track, simulate
from tests.biro.test_flagging import columns

FRINGES = """
[[source]]
name = "a"
type = "point"
east = "9 arcmin"
north = "0 arcmin"
I = { prior = "uniform", low = 0, high = 100, unit = "Jy" }

[[source]]
name = "b"
type = "point"
east = "-8 arcmin"
north = "5 arcmin"
I = "15 Jy"
"""


@pytest.fixture
def fringes(tmp_path: Path) -> tuple[Path, np.ndarray]:
    """Two sources, 15 to 20 times the noise, that beat against each other within a few channels.

    And the truth: of 2000 samples, and of one channel of the baselines of one antenna, 30 times the noise.
    """
    (tmp_path / "sky.toml").write_text(FRINGES)
    sky = biro.read_model(tmp_path / "sky.toml")
    observation = simulate(
        "VLA-A",
        sky,
        values={"a.I": 20.0},
        phase_centre=(1.3, 0.4),
        times=Track("2026-03-01", 400.0, 10.0),
        channels=Channels(1.4e9, 1e6, 48),
        noise=1.0,
        seed=1,
        backend="cpu",
        smearing="on",
    )
    create_ms(tmp_path / "fringes.ms", observation)
    rng = np.random.default_rng(2)
    with table(str(tmp_path / "fringes.ms"), readonly=False, ack=False) as main:
        data = main.getcol("DATA")
        truth = np.zeros(data.shape, bool)
        truth[main.getcol("ANTENNA1") == 3, 20] = True
        truth[..., 0].flat[rng.choice(truth[..., 0].size, 2000, replace=False)] = True
        # With the phase of what is there, or else some of it is hidden by noise and sources.
        data[truth] += 30.0 * data[truth] / np.abs(data[truth])
        main.putcol("DATA", data)
    return tmp_path / "fringes.ms", truth


def test_what_a_sky_explains_is_no_interference(
    fringes: tuple[Path, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found beside sources that hide it, in data that are read once."""
    path, truth = fringes
    before = columns(path)
    sky = biro.read_model(path.parent / "sky.toml")
    biro.flag(path)
    beside_fringes = columns(path)["FLAG"]
    biro.undo_flags(path)
    read: list[str] = []
    column = OpenedColumn._column

    def noted(self: OpenedColumn, name: str, part: PartitionRows) -> object:
        read.append(name)
        return column(self, name, part)

    monkeypatch.setattr(OpenedColumn, "_column", noted)
    report = biro.flag(path, sky=sky, values={"a.I": 20.0})
    of_residuals = columns(path)["FLAG"]
    assert report.n_found == of_residuals.sum()
    assert sorted(read) == ["DATA", "FLAG", "WEIGHT_SPECTRUM"]
    assert of_residuals[truth].mean() > 0.999
    # Fringes count for the noise of a baseline: 61 % is found beside them.
    assert beside_fringes[truth].mean() < 0.8
    # Away from interference, whose flags are widened in time, too, there are the false alarms of noise.
    near = ndimage.binary_dilation(truth, np.ones((1, 25, 1)))
    near |= (truth.sum(axis=1) > 5)[:, None]
    assert of_residuals[~near].mean() < 0.02
    # FLAG alone changes: DATA is still that with the sources.
    assert np.array_equal(columns(path)["DATA"], before["DATA"])


def test_the_command_takes_a_model(fringes: tuple[Path, np.ndarray]) -> None:
    path, truth = fringes
    (path.parent / "fixed.toml").write_text(
        FRINGES.replace(FRINGES.partition("I = ")[2].partition("\n")[0], '"20 Jy"')
    )
    words = ["flag", str(path), "--model", str(path.parent / "fixed.toml"), "--channels", "0:30"]
    works(*words)
    found = columns(path)["FLAG"]
    assert found[:, :30][truth[:, :30]].mean() > 0.999
    assert not found[:, 30:].any()
    with table(f"{path}/FLAG_CMD", ack=False) as rows:
        assert "of residuals" in rows.getcell("REASON", rows.nrows() - 1)
    done = CliRunner().invoke(app, ["flag", str(path), "--model", str(path.parent / "sky.toml"), "--dry-run"])
    assert (done.exit_code, "a.I" in done.stderr) == (2, True)
