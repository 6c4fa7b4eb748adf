"""Model visibilities written into copies of UVFITS files, and into .npz."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from casacore.tables import table
from commands import works
from typer.testing import CliRunner
from uvfits_file import File

import biro
from biro.cli.app import app
from biro.errors import DataError, InputError
from biro.inference.posterior.posterior import Posterior
from biro.io.uvfits.write import write_uvfits
from biro.models.files.toml import from_toml
from biro.observation.observation import Observation
from biro.simulation.npz import write_npz
from biro.simulation.prediction import predict

C = 299792458.0
SKY = """
[[source]]
name = "core"
east = "3 mas"
north = "-2 mas"
I = "1.5 Jy"
V = "0.5 Jy"
"""
AXES = [("COMPLEX", 3, 1.0, 1.0, 1.0), ("FREQ", 3, 1.4e9, 2.0, 1e6), ("RA", 1, 187.5, 1.0, 1.0),
        ("STOKES", 4, -1.0, 1.0, -1.0), ("DEC", 1, 12.25, 1.0, 1.0)]  # fmt: skip


def stored(observation_of: Path, **options: object) -> Observation:
    """What `biro predict` reads."""
    return biro.read(observation_of, autocorrelations=True, allow_unusable=True, **options)


def numbers(observation: Observation, seed: int = 0) -> list[np.ndarray]:
    """Visibilities that differ everywhere."""
    rng = np.random.default_rng(seed)
    shapes = [part.vis.shape for part in observation.partitions]
    return [rng.normal(size=s) + 1j * rng.normal(size=s) for s in shapes]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return File().write(tmp_path / "data.uvfits")


@pytest.mark.parametrize("name", ["vla_3c273_x", "eht_fr_d_g_noisy"])
def test_a_copy_of_a_real_file(data_dir: Path, tmp_path: Path, name: str) -> None:
    """All but real and imaginary parts are those of the file to the bit; these are the model's in float32."""
    (real,) = data_dir.rglob(f"{name}.uvfits")
    before, out = real.read_bytes(), tmp_path / "model.uvfits"
    observation = stored(real)
    models = list(predict(observation, from_toml(SKY), backend="cpu"))
    report = write_uvfits(real, out, observation, iter(models))
    assert (report.n_written, report.n_flagged) == (sum(m.size for m in models), 0)
    assert real.read_bytes() == before
    again = stored(out)
    for part, old, model in zip(again.partitions, observation.partitions, models, strict=True):
        counted = old.weight > 0  # whatever does not count is 0 in an observation
        np.testing.assert_array_equal(part.vis[counted], model.astype(np.complex64)[counted])
        for item in ("weight", "uvw", "time", "antenna1", "antenna2", "chan_freq"):
            np.testing.assert_array_equal(getattr(part, item), getattr(old, item), item)
    after = out.read_bytes()
    assert len(after) == len(before)
    assert after[:2880] == before[:2880]
    assert after[-8640:] == before[-8640:]


def test_a_point_by_its_formula(path: Path, tmp_path: Path) -> None:
    """RR = (I + V) exp(2 pi i (u l + v m)), LL = (I - V) ...: docs/conventions.md, sections 2 and 3."""
    sky, out = tmp_path / "sky.toml", tmp_path / "model.uvfits"
    sky.write_text(SKY)
    said = works("predict", path, sky, "--out", out)
    assert "48 visibilities written; 0 outside the selection flagged" in said.output
    l, m = np.array([3, -2]) * np.pi / 648e6
    for part in stored(out).partitions:
        u, v = part.uvw[:, :2].T[:, :, None] * part.chan_freq / C
        phase = np.exp(2j * np.pi * (u * l + v * m))
        for k, flux in enumerate((2.0, 1.0)):  # float32 has 1e-7 of them; the first group is flagged
            np.testing.assert_allclose(part.vis[1:, :, k], flux * phase[1:], atol=3e-7)


@pytest.mark.parametrize(
    "made",
    [
        File(),
        File(bitpix=-64),
        File(cards={"BSCALE": 0.5, "BZERO": 3.0, "EQUINOX": 2000.0}),
        File(axes=AXES, data=np.ones((4, 1, 4, 1, 3, 3)), others=[]),
    ],
    ids=["plain", "double", "scaled", "other axes"],
)
def test_replaced_added_and_subtracted(made: File, tmp_path: Path) -> None:
    """Of each partition, in the order of correlations of an observation, which is not that of the file."""
    path, out = made.write(tmp_path / "data.uvfits"), tmp_path / "out.uvfits"
    observation = stored(path)
    models = numbers(observation)
    for mode, old, new in (("replace", 0, 1), ("add", 1, 1), ("subtract", 1, -1)):
        write_uvfits(path, out, observation, models, mode=mode)
        again = stored(out)
        assert [part.corr_type for part in again.partitions] == [p.corr_type for p in observation.partitions]
        for part, before, model in zip(again.partitions, observation.partitions, models, strict=True):
            counted = before.weight > 0
            expected = old * before.vis + new * model
            # Rounding of a float32 up to 1213.
            error = 1e-12 if made.bitpix == -64 else 1e-4
            np.testing.assert_allclose(part.vis[counted], expected[counted], atol=error, rtol=0)
            np.testing.assert_array_equal(part.weight, before.weight)


def test_what_is_not_selected_is_flagged(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.uvfits"
    observation = stored(path, spws=1, channels="0:2", correlations="LL", antennas=["A", "B"])
    report = write_uvfits(path, out, observation, numbers(observation))
    # Two of four groups, two of three channels, LL of the second IF; one of 48 was flagged already.
    assert (report.n_written, report.n_flagged) == (4, 48 - 4 - 1)
    again = stored(out)
    assert again.counts["usable"] == 4
    usable = again.partitions[1].weight > 0
    np.testing.assert_array_equal(np.argwhere(usable), [[0, 0, 1], [0, 1, 1], [3, 0, 1], [3, 1, 1]])
    np.testing.assert_array_equal(
        again.partitions[1].vis[usable], numbers(observation)[0].astype(np.complex64).ravel()
    )
    whole = stored(path)
    np.testing.assert_array_equal(again.partitions[0].row_id, whole.partitions[0].row_id)


def test_a_compressed_file(path: Path, tmp_path: Path) -> None:
    packed = tmp_path / "data.uvfits.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    observation = stored(packed)
    models = numbers(observation)
    write_uvfits(packed, tmp_path / "a.uvfits", observation, models)
    write_uvfits(path, tmp_path / "b.uvfits", observation, models)
    assert (tmp_path / "a.uvfits").read_bytes() == (tmp_path / "b.uvfits").read_bytes()


def test_in_small_blocks(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    observation = stored(path, fields="M87", channels="1:2")
    models = numbers(observation)
    write_uvfits(path, tmp_path / "whole.uvfits", observation, models)
    monkeypatch.setattr("biro.io.uvfits.groups.BLOCK_BYTES", 3 * 42 * 4)
    write_uvfits(path, tmp_path / "blocks.uvfits", observation, models)
    assert (tmp_path / "blocks.uvfits").read_bytes() == (tmp_path / "whole.uvfits").read_bytes()


def test_nothing_is_left_of_a_copy_that_fails(path: Path, tmp_path: Path) -> None:
    before, observation = path.read_bytes(), stored(path)
    good, bad = numbers(observation)
    out = tmp_path / "out.uvfits"
    out.write_bytes(b"an older file")
    bad[0, 0, 0] = np.nan
    cases = [
        ([good], "models has 1 arrays for 2 partitions"),
        ([good, bad], "values that are not finite"),
        ([good, good[:2]], "must have shape"),
        ([good.real, good], "must be complex"),
    ]
    for models, words in cases:
        with pytest.raises(InputError, match=words):
            write_uvfits(path, out, observation, models)
        with pytest.raises(InputError, match=words):
            write_npz(tmp_path / "out.npz", observation, models)
    with pytest.raises(InputError, match="is the file that is read, which is never changed"):
        write_uvfits(path, path, observation, [good, good])
    averaged = biro.read(path, average_channels=3)
    with pytest.raises(InputError, match="cannot write UVFITS from averaged data"):
        write_uvfits(path, out, averaged, numbers(averaged))
    short = File(parameters=File().parameters, others=[], axes=AXES, data=np.ones((4, 1, 4, 1, 3, 3)))
    with pytest.raises(DataError, match="has 4 rows, but M87/spw0 of the observation has others"):
        write_uvfits(short.write(tmp_path / "short.uvfits"), out, observation, [good, good])
    assert path.read_bytes() == before
    assert out.read_bytes() == b"an older file"
    assert {place.name for place in tmp_path.iterdir()} == {"data.uvfits", "out.uvfits", "short.uvfits"}


def test_integers_have_no_room(tmp_path: Path) -> None:
    path = File(bitpix=16).write(tmp_path / "integers.uvfits")
    observation = stored(path)
    with pytest.raises(DataError, match=r"integers.uvfits: stores integers, .*; write .npz"):
        write_uvfits(path, tmp_path / "out.uvfits", observation, numbers(observation))


def test_arrays(path: Path, tmp_path: Path) -> None:
    sky, out = tmp_path / "sky.toml", tmp_path / "model.npz"
    sky.write_text(SKY)
    works("predict", path, sky, "--out", out, "--spws", "1")
    observation = stored(path, spws=1)
    (model,) = predict(observation, from_toml(SKY), backend="cpu")
    (part,) = observation.partitions
    with np.load(out, allow_pickle=False) as found:
        np.testing.assert_array_equal(found["vis_0"], model)
        for name in ("row_id", "antenna1", "antenna2", "time", "uvw", "weight", "chan_freq"):
            np.testing.assert_array_equal(found[f"{name}_0"], getattr(part, name))
        assert found["labels"].tolist() == ["M87/spw1"]
        assert found["antenna_names"].tolist() == ["A", "B", "C"]
        assert found["corr_type_0"].tolist() == ["RR", "LL"]
        np.testing.assert_array_equal(found["phase_centre_0"], part.phase_centre)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "a UVFITS file has no columns; give --out"),
        (["--column", "A"], "a UVFITS file has no columns"),
        (["--out", "{0}/a.npz", "--column", "A"], "give --column or --out, not both"),
        (["--out", "{0}/a.txt"], "its name must end in .npz, .uvfits or .uvf"),
        (["--out", "{0}/data.uvfits"], "exists already; choose another name or give --overwrite"),
        (["--out", "{0}/data.uvfits", "--overwrite"], "is the file that is read, which is never changed"),
        (["--out", "{0}/none/a.npz"], "none/a.npz: cannot be written: No such file or directory"),
        (["--out", "{0}/none/a.uvfits"], "none/a.uvfits: cannot be written: No such file or directory"),
        (["--out", "{0}/sky.toml/a.uvfits"], "a.uvfits: cannot be written: Not a directory"),
        (["--out", "{0}/a.npz", "--subtract"], "an .npz file holds the model only"),
        (["--out", "{0}/a.uvfits", "--subtract", "--from", "DATA"], "--from names a column"),
    ],
)
def test_options_that_contradict(path: Path, tmp_path: Path, words: list[str], message: str) -> None:
    sky = tmp_path / "sky.toml"
    sky.write_text(SKY)
    given = [word.format(tmp_path) for word in words]
    said = CliRunner().invoke(app, ["predict", str(path), str(sky), *given])
    assert said.exit_code == 2
    assert message in " ".join(said.output.split())


def run_command(*words: str | Path) -> None:
    works(*words)


def test_a_run_predicts_as_it_was_fitted(tmp_path: Path) -> None:
    """With or without averages over channels, whatever `auto` would choose for these data.

    A point of flux S at (l, m) averaged over a channel of width B is S sinc(B tau), tau the delay
    (u l + v m + w (n - 1)) / c; integrations of 1 ms average nothing.
    """
    sky, free, obs, run = (tmp_path / name for name in ("sky.toml", "free.toml", "obs.ms", "run"))
    source = '[[source]]\nname = "a"\neast = "0.5 deg"\nnorth = "0 deg"\n'
    sky.write_text(source + 'I = "1 Jy"\n')
    free.write_text(source + 'I = { prior = "uniform", low = 0, high = 3, unit = "Jy" }\n')
    track = ("--phase-centre", "05h00m00s -45d00m00s", "--start", "2026-03-01", "--duration", "1 ms")
    channels = ("--integration", "1 ms", "--freq", "1.8 GHz", "--chan-width", "20 MHz", "--noise", "1 mJy")
    run_command("simulate", obs, sky, "--telescope", "KAT-7", "--seed", "1", *track, *channels)
    fit = ("--sampler", "none", "--seed", "1", "--no-pictures", "--backend", "cpu")
    for smearing in ("off", "on"):
        run_command("fit", obs, free, "-o", run / smearing, *fit, "--smearing", smearing)
        run_command("predict", obs, run / smearing, "--column", "NEW", "--backend", "cpu")
        flux = Posterior.load(run / smearing / "posterior.nc").best_fit[0]
        with table(str(obs), ack=False) as main:
            uvw, found = main.getcol("UVW"), np.abs(main.getcol("NEW")[:, 0, 0])
        angle = np.radians(0.5)
        delay = (uvw[:, 0] * np.sin(angle) + uvw[:, 2] * (np.cos(angle) - 1)) / C
        loss = np.sinc(2e7 * delay) if smearing == "on" else 1.0
        # Averages are good to 1e-5 of the flux; the column is in single precision. The loss is up to 0.02.
        np.testing.assert_allclose(found, flux * loss, atol=2e-5)
