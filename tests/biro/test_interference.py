"""Interference that a simulation adds: its truth, its strength, and a way through a set to the flags."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import works
from scipy import ndimage
from typer.testing import CliRunner

import biro
from biro.cli.app import app
from biro.errors import InputError
from biro.observation.observation import Observation
from biro.simulation.interference import KINDS, Interference

N_TIME, N_CHAN = 40, 96


def empty() -> Observation:
    """Three baselines without any signal; two correlations."""
    time = np.repeat(np.arange(N_TIME), 3)
    shape = (3 * N_TIME, N_CHAN, 2)
    return Observation.from_arrays(
        np.zeros(shape, complex), np.ones((3 * N_TIME, 3)), np.tile([0, 0, 1], N_TIME),
        np.tile([1, 2, 2], N_TIME), 5e9 + 8.0 * time, 1e9 + 1e6 * np.arange(N_CHAN), ["XX", "YY"],
    )  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_truth_is_where_visibilities_changed(kind: str) -> None:
    """By the strength, and more for a power law; the same in all correlations and for the same seed."""
    changed, (truth,) = Interference((kind,), 3.0).add(empty(), seed=4)
    vis = changed.partitions[0].vis
    has = truth[changed.partitions[0].time_index]
    assert all(np.array_equal(vis[..., corr] != 0, has) for corr in range(2))
    assert 0 < truth.mean() < 0.2
    size = np.abs(vis[has])
    low, high = (3.0, 300.0) if kind == "power law" else (3.0, 3.0)
    assert low - 1e-5 < size.min() <= size.max() < high + 1e-3  # of complex64
    assert np.array_equal(vis[..., 0], vis[..., 1])
    again, _ = Interference((kind,), 3.0).add(empty(), seed=4)
    assert np.array_equal(again.partitions[0].vis, vis)


def test_kinds_are_what_they_are_called() -> None:
    rng = np.random.default_rng(1)
    line = KINDS["line"](rng, N_TIME, N_CHAN) > 0
    assert line.all(axis=0).sum() == 1 == line.any(axis=0).sum()
    drifting = KINDS["drifting line"](rng, N_TIME, N_CHAN) > 0
    assert (drifting.sum(axis=1) == 1).all()
    assert drifting.any(axis=0).sum() > 1
    burst = KINDS["burst"](rng, N_TIME, N_CHAN) > 0
    assert burst.all(axis=1).sum() == 1 == burst.any(axis=1).sum()
    on = (KINDS["intermittent line"](rng, N_TIME, N_CHAN) > 0).any(axis=1)
    assert 0 < on.sum() < N_TIME


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="no kind of RFI 'lin'; there are line, lines"):
        Interference(("lin",), 1.0)
    with pytest.raises(InputError, match=r"a strength above 0 Jy, got 0\.0"):
        Interference(("line",), 0.0)


def test_simulated_interference_is_found(tmp_path: Path) -> None:
    """`biro simulate --rfi`, then `biro flag`: a line and a burst of 50 sigma are found.

    Flags are widened by a sample to each side; of the rest, below 1 % is flagged.
    """
    sky, out = tmp_path / "sky.toml", tmp_path / "obs.ms"
    sky.write_text('[[source]]\nname = "p"\ntype = "point"\neast = "0 deg"\nnorth = "0 deg"\nI = "1 Jy"\n')
    words = ["simulate", out, sky, "--telescope", "KAT-7", "--phase-centre", "75 deg -45 deg"]
    words += ["--start", "2026-03-01", "--duration", "10 min", "--integration", "10 s", "--freq", "1.4 GHz"]
    words += ["--chan-width", "1 MHz", "--n-chan", "96", "--noise", "100 mJy", "--seed", "3"]
    words += ["--rfi", "line, burst", "--rfi-strength", "5 Jy"]
    works(*words)
    with np.load(tmp_path / "obs.rfi.npz") as file:
        truth = file["interference"]
    observation = biro.read(out, flagger="meerkat")
    (part,) = observation.partitions
    found = part.weight == 0
    assert found[truth].all()
    profile = np.zeros((part.times.size, part.n_chan), bool)
    np.logical_or.at(profile, part.time_index, truth[:, :, 0])
    clear = ~ndimage.binary_dilation(profile, np.ones((3, 3)))[part.time_index]
    assert found[clear].mean() < 0.01
    refused = CliRunner().invoke(app, list(map(str, [*words, "--overwrite", "--rfi", "lin"])))
    assert refused.exit_code == 2
    assert "no kind of RFI 'lin'" in refused.stderr
