"""The command line: each command, its answer for programs, its errors and exit codes."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from commands import biro, python
from matplotlib.figure import Figure

from biro import __version__
from biro.cli.options import keyword_options, quantity, read_options
from biro.cli.plot import draw_live, likelihood_of
from biro.errors import InputError
from biro.inference.posterior.posterior import Posterior
from biro.io.measurement_set import read_ms
from biro.io.sky_files import read_sky
from biro.models import SkyModel, write_sky
from biro.models.files.difmap import read_marks
from biro.models.quantities.units import convert
from biro.plots import standard
from biro.plots.progress_state import posterior_in_progress

SKY = """
[[source]]
name = "core"
east = "1 arcmin"
north = "0 arcmin"
I = "0.5 Jy"
"""
MODEL = """
[[source]]
name = "core"
east = "1 arcmin"
north = "0 arcmin"
I = { prior = "uniform", low = 0, high = 2000, unit = "mJy" }

[noise]
factor = 1
"""
EMPTIER = """
[[source]]
name = "core"
east = "6 arcmin"
north = "5 arcmin"
I = { prior = "uniform", low = 0, high = 2000, unit = "mJy" }

[noise]
factor = 1
"""
SIMULATE = [
    *("--telescope", "KAT-7", "--phase-centre", "05h00m00s -45d00m00s", "--start", "2026-03-01"),
    *("--integration", "60s", "--freq", "1.8GHz", "--chan-width", "1MHz", "--noise", "100mJy", "--seed", "1"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A simulated Measurement Set (obs.ms) and models to fit to it."""
    folder = tmp_path_factory.mktemp("cli")
    for name, text in (("sky", SKY), ("model", MODEL), ("emptier", EMPTIER)):
        (folder / f"{name}.toml").write_text(text)
    code, _, said = biro("simulate", folder / "obs.ms", folder / "sky.toml", *SIMULATE, "--duration", "10min")
    assert code == 0, said
    assert "210 rows, 10 times, 1 channel, linear feeds (those of KAT-7), noise 0.1 Jy" in said
    return folder


@pytest.fixture(scope="module")
def run(folder) -> Path:
    """A run of emcee on it."""
    code, out, said = biro(
        *("fit", folder / "obs.ms", folder / "model.toml", "-o", folder / "run", "--seed", "1", "--json"),
        *("--set", "n_walker=8", "--set", "max_steps=300", "--backend", "cpu"),
    )
    assert code == 0, said
    flux = json.loads(out)["parameters"]["core.I"]
    # 210 baselines, XX and YY: the closed form is 100 mJy / sqrt(420) = 4.9 mJy about the truth.
    assert flux["unit"] == "mJy"
    assert flux["median"] == pytest.approx(500.0, abs=4 * 4.9)
    assert 0.5 * (flux["high_68"] - flux["low_68"]) == pytest.approx(4.9, rel=0.25)
    return folder / "run"


def nested(folder: Path, model: str) -> Path:
    run = folder / f"nested-{model}"
    code, _, said = biro(
        *("fit", folder / "obs.ms", folder / f"{model}.toml", "-o", run, "--seed", "1"),
        *("--sampler", "dynesty", "--set", "n_live=30", "--set", "dlogz=0.5", "--no-pictures"),
    )
    assert code == 0, said
    return run


def test_the_maximum_alone(folder, tmp_path) -> None:
    """The flux of one point is linear: estimate and error are those of a weighted mean."""
    run = tmp_path / "quick"
    words = "fit", folder / "obs.ms", folder / "model.toml", "-o", run, "--sampler", "none", "--seed", "1"
    code, out, said = biro(*words, "--json", "--backend", "cpu", "--set", "n_sample=200")
    assert code == 0, said
    table = json.loads(out)
    found = json.loads((run / "maximum.json").read_text())["parameters"]["core.I"]
    assert found["unit"] == "mJy"
    assert table["parameters"]["core.I"]["best_fit"] == found["value"]
    (part,) = read_ms(folder / "obs.ms").partitions
    error = 1e3 / np.sqrt(part.weight[..., [0, 3]].sum())  # XX = YY = I; cross hands do not see it
    assert found["error"] == pytest.approx(error, rel=1e-4)
    assert abs(found["value"] - 500.0) < 4 * error
    assert table["log_evidence"] is not None
    assert (run / "report.html").is_file()
    code, out, said = biro("predict", folder / "obs.ms", run, "--column", "QUICK", "--backend", "cpu")
    assert code == 0, said


@pytest.fixture(scope="module")
def second(folder) -> Path:
    """Another set of the same field, a month later and with half the noise; its name is obs.ms, too."""
    (folder / "later").mkdir()
    words = [*SIMULATE, "--duration", "5min", "--start", "2026-04-01", "--noise", "50mJy", "--seed", "2"]
    code, _, said = biro("simulate", folder / "later" / "obs.ms", folder / "sky.toml", *words)
    assert code == 0, said
    return folder / "later" / "obs.ms"


def test_a_fit_of_two_sets(folder, second, tmp_path) -> None:
    """All sets stand before the model; the error is that of the weighted mean of both."""
    run, sets = tmp_path / "both", (folder / "obs.ms", second)
    model = tmp_path / "noisy.toml"
    model.write_text(MODEL.replace("factor = 1", ""))
    code, _, said = biro(
        *("fit", *sets, model, "-o", run, "--sampler", "none", "--seed", "1", "--json"),
        *("--correlations", "XX,YY", "--no-pictures", "--backend", "cpu"),
    )
    assert code == 0, said
    names = [f"{folder.name}/obs.ms", "later/obs.ms"]
    found = json.loads((run / "maximum.json").read_text())["parameters"]
    factors = [found[f"noise.factor[{name}/simulated/spw0]"]["value"] for name in names]
    parts = [read_ms(path, correlations="XX,YY").partitions[0] for path in sets]
    weight = sum(part.weight.sum() / factor**2 for part, factor in zip(parts, factors, strict=True))
    assert found["core.I"]["error"] == pytest.approx(1e3 / np.sqrt(weight), rel=1e-3)
    # 420 and 210 complex numbers: the factors are known to 1/sqrt(4 N), 2.4 and 3.5 %.
    assert factors == pytest.approx([1.0, 1.0], abs=4 * 0.035)
    facts = json.loads((run / "run.json").read_text())["facts"]
    assert facts["observation"] == [str(path) for path in sets]
    code, _, said = biro("plot", run)
    assert code == 0, said
    code, _, said = biro("plot", run, "--obs", second, "--obs", folder / "obs.ms")
    assert code == 2
    assert "the data differ from those of the fit" in said
    # The best fit of both is written into each by itself.
    code, _, said = biro("predict", shutil.copytree(second, tmp_path / "copy.ms"), run, "--backend", "cpu")
    assert code == 0, said


def test_two_sets_are_described_imaged_and_searched(folder, second, tmp_path) -> None:
    sets = (folder / "obs.ms", second)
    code, out, said = biro("info", *sets, "--json")
    assert code == 0, said
    assert json.loads(out)["counts"]["usable"] == (210 + 105) * 4
    words = ("--cell", "1arcmin", "--size", "64", "--backend", "cpu")
    code, out, said = biro("image", *sets, "-o", tmp_path / "both", *words, "--json")
    assert code == 0, said
    # Natural weights: the noise of Stokes I of both, sigma / sqrt(2 N) for N rows, in quadrature.
    expected = 1 / np.sqrt(2 * (210 / 0.1**2 + 105 / 0.05**2))
    assert json.loads(out)["noise"] == pytest.approx(expected, rel=1e-3)
    code, _, said = biro("find", *sets, "-o", tmp_path / "found.toml", *words)
    assert code == 0, said
    assert f"biro fit {sets[0]} {sets[1]} {tmp_path / 'found.toml'} -o RUN" in said


def test_help_is_quick_and_lists_exit_codes():
    started = time.perf_counter()
    done = python("-m", "biro", "--help", check=True)
    # The aim is 1 s on an idle machine (measured: 0.2 s); 5 s leaves room for a busy one.
    assert time.perf_counter() - started < 5.0
    assert "130 interrupted" in " ".join(done.stdout.split())
    words = "info fit sbc predict image find simulate compare plot demo tune"
    for command in words.split():
        assert f"  {command} " in done.stdout


def test_help_imports_nothing_heavy():
    program = """
import sys
from biro.cli.app import main
try:
    main(["fit", "--help"])
except SystemExit:
    heavy = ("numba", "numpy", "scipy", "astropy", "matplotlib", "casacore")
    print([name for name in heavy if name in sys.modules])
"""
    done = python("-c", program, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_version():
    assert biro("--version") == (0, f"biro {__version__}\n", "")


def test_info_for_people_and_programs(folder):
    code, out, _ = biro("info", folder / "obs.ms")
    assert code == 0
    assert "KAT-7, 7 antennas" in out
    code, out, _ = biro(
        "info", folder / "obs.ms", "--json", "--correlations", "XX,YY", "--uv-range", "50 m.."
    )
    assert code == 0
    summary = json.loads(out)
    assert summary["telescope"] == "KAT-7"


def test_values_of_a_list_may_be_given_one_by_one(folder):
    command = ("info", folder / "obs.ms", "--json")
    one_by_one = biro(*command, "--correlations", "XX", "--correlations", "YY")
    assert one_by_one == biro(*command, "--correlations", "XX,YY")
    assert one_by_one != biro(*command, "--correlations", "YY")


def test_simulated_data_are_reproducible_and_circular_when_asked(folder, tmp_path):
    words = (folder / "sky.toml", *SIMULATE, "--duration", "10min")
    assert biro("simulate", tmp_path / "again.ms", *words)[0] == 0
    first, again = read_ms(folder / "obs.ms"), read_ms(tmp_path / "again.ms")
    np.testing.assert_array_equal(first.partitions[0].vis, again.partitions[0].vis)
    words = [word for word in words if word not in ("--noise", "100mJy")]
    assert biro("simulate", tmp_path / "c.ms", *words, "--feeds", "circular", "--sefd", "1000Jy")[0] == 0
    part = read_ms(tmp_path / "c.ms").partitions[0]
    assert part.corr_type == ("RR", "RL", "LR", "LL")
    # sigma = 1000 / sqrt(2 x 1e6 x 60) Jy, weight 1/sigma^2, stored in float32.
    np.testing.assert_allclose(part.weight, 120.0, rtol=1e-6)


def test_simulate_does_not_overwrite_unasked(folder):
    words = ("simulate", folder / "obs.ms", folder / "sky.toml", *SIMULATE, "--duration", "10min")
    code, _, said = biro(*words)
    assert code == 2
    assert "obs.ms: exists already; choose another name or give --overwrite" in said


def test_fit_leaves_pictures_and_a_report(run):
    assert (run / "report.html").stat().st_size > 10_000
    assert {path.name for path in run.glob("*.png")} >= {
        "sky.png",
        "posterior.png",
        "residuals.png",
        "traces.png",
    }


def test_a_folder_of_runs_is_named_with_the_runs_inside(run, tmp_path) -> None:
    for name in ("one", "two"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        shutil.copy(run / "posterior.nc", tmp_path / "runs" / name)
    runs = tmp_path / "runs"
    for words in (
        ("plot", runs),
        ("watch", runs),
        ("compare", runs, run),
        ("convert", runs, tmp_path / "b.mod"),
    ):
        code, _, said = biro(*words)
        assert code == 2
        assert f"{runs}: a folder of runs, expected one of them: {runs / 'one'}, {runs / 'two'}" in said


def test_a_run_is_written_as_a_list(folder, run, tmp_path) -> None:
    """Predicted from the list, the best fit is what `biro predict RUN` gives."""
    posterior = Posterior.load(run / "posterior.nc")
    flux = 1e-3 * posterior.best_fit[posterior.names.index("core.I")]
    for name in ("best.mod", "best.bbs", "best.osm", "best.lsm.txt", "best.toml"):
        code, _, said = biro("convert", run, tmp_path / name)
        assert code == 0, said
        (source,) = read_sky(tmp_path / name).sources
        (given,) = source.I
        # difmap's file has four digits behind the first one of the error, 1 % of the flux.
        close = 1e-6 if name == "best.mod" else 1e-12
        assert given.value * {"Jy": 1.0, "mJy": 1e-3}[given.unit] == pytest.approx(flux, rel=close)
    assert read_marks(tmp_path / "best.mod") == {"c1": ("I",)}
    code, _, said = biro("convert", run, tmp_path / "median.bbs", "--at", "median")
    assert code == 0, said
    (source,) = read_sky(tmp_path / "median.bbs").sources
    assert source.I[0].value == pytest.approx(1e-3 * posterior.summary()["core.I"].median, rel=1e-12)
    code, _, said = biro("convert", run, tmp_path / "again.bbs", "--apparent")
    assert (code, "--apparent is for lists" in said) == (2, True)


def test_a_list_is_fitted_where_it_has_marks_and_gets_priors(folder, tmp_path) -> None:
    """The flux that difmap was to fit is free; its position, without a mark, stays as it is."""
    (source,) = read_sky(folder / "sky.toml").sources
    place = tmp_path / "list.mod"
    write_sky(SkyModel(source), place)
    lines = place.read_text().splitlines()
    rest = lines[-1].split()[1:]
    place.write_text("\n".join([*lines[:-1], " ".join(["0.4v", *rest])]) + "\n")
    words = "--sampler", "none", "--json", "--backend", "cpu", "--no-pictures"
    code, out, said = biro("fit", folder / "obs.ms", place, "-o", tmp_path / "marked", *words)
    assert code == 0, said
    found = json.loads(out)["parameters"]
    assert list(found) == ["c1.I", "noise.factor"]
    # In mJy; the closed form of the error is 4.9 mJy.
    assert found["c1.I"]["best_fit"] == pytest.approx(500.0, abs=4 * 4.9)
    code, _, said = biro("convert", place, tmp_path / "free.toml", "--free", "--data", folder / "obs.ms")
    assert code == 0, said
    (free,) = read_sky(tmp_path / "free.toml").sources
    # Half of the flux to either side, in three figures.
    assert (free.I[0].low, free.I[0].high) == pytest.approx((200, 600), abs=2)
    assert free.east.low < convert(1.0, "arcmin", free.east.unit) < free.east.high
    code, _, said = biro("convert", place, tmp_path / "other.toml", "--free")
    assert (code, "--free and --data go together" in said) == (2, True)
    elsewhere = tmp_path / "elsewhere.skymodel"
    elsewhere.write_text("FORMAT = Name, Type, Ra, Dec, I\none, POINT, 01:00:00, +20.00.00, 1.0\n")
    code, _, said = biro("convert", elsewhere, tmp_path / "far.toml", "--free", "--data", folder / "obs.ms")
    assert (code, "no source is in the field: the nearest is" in said) == (0, True)
    assert (
        "no source is in the field"
        not in biro("convert", place, tmp_path / "near.toml", "--free", "--data", folder / "obs.ms")[2]
    )
    place.write_text(place.read_text().replace("0.4v", "0.5"))
    code, out, said = biro("fit", folder / "obs.ms", place, "-o", tmp_path / "plain", *words)
    assert code == 0, said
    assert list(json.loads(out)["parameters"]) == ["noise.factor"]


def test_fit_again_reads_the_finished_run_or_refuses(folder, run):
    words = ("fit", folder / "obs.ms", folder / "model.toml", "-o", run, "--no-pictures")
    options = ("--set", "n_walker=8", "--set", "max_steps=300")
    started = time.perf_counter()
    code, out, said = biro(*words, "--seed", "1", *options)
    assert code == 0, said
    assert "core.I" in out
    assert time.perf_counter() - started < 20.0
    problem, *_, finished = said.splitlines()
    assert problem.startswith("1 free parameter, 840 visibilities; ")
    assert "form" not in problem  # -v has it
    assert "is finished; reading its result" in finished
    code, _, said = biro(*words, "--seed", "2", *options)
    assert code == 2
    assert said.splitlines()[-1].startswith("biro: ")
    assert "seed was 1, is 2" in said


def test_the_plan_is_said_and_recorded_and_the_memory_limit_decides_nothing(folder, run):
    words = ("fit", folder / "obs.ms", folder / "model.toml", "-o", run, "--no-pictures", "--backend", "cpu")
    options = ("--seed", "1", "--set", "n_walker=8", "--set", "max_steps=300")
    code, _, said = biro("-v", *words, *options, "--memory-limit", "50 MB")
    assert code == 0, said
    label = read_ms(folder / "obs.ms").labels[0]
    (plan,) = [line.removeprefix("biro.cli.fit: ") for line in said.splitlines() if f"fit: {label}: " in line]
    assert "cpu: as asked" in plan
    record = json.loads((run / "run.json").read_text())
    assert record["facts"]["plan"][:-1] == [plan]
    assert record["facts"]["plan"][-1].endswith("MB of prepared data, in memory")
    assert record["facts"]["likelihood"]["memory_limit"] is None, "that of the run that began here"
    assert "memory_limit" not in record["settings"]


def test_plot_draws_again(run):
    (run / "report.html").unlink()
    (run / "sky.png").unlink()
    code, _, said = biro("plot", run)
    assert code == 0, said
    assert (run / "report.html").is_file()
    assert (run / "sky.png").is_file()


@pytest.fixture
def one_picture(monkeypatch) -> None:
    """In the place of those of a run, which take seconds to draw."""
    monkeypatch.setattr(standard, "each_picture", lambda *_, **__: [("Posterior of the run", Figure())])


@pytest.mark.usefixtures("one_picture")
def test_pictures_that_are_there_are_not_drawn_again(folder, run):
    words = ("fit", folder / "obs.ms", folder / "model.toml", "-o", run, "--seed", "1")
    options = ("--set", "n_walker=8", "--set", "max_steps=300")
    assert biro("plot", run)[0] == 0
    before = (run / "report.html").stat().st_mtime_ns
    code, _, said = biro(*words, *options)
    assert code == 0, said
    assert "drawn earlier" in said.splitlines()[-1]
    assert (run / "report.html").stat().st_mtime_ns == before
    (run / "posterior.png").unlink()
    assert "drawn earlier" not in biro(*words, *options)[2]
    assert (run / "posterior.png").is_file()


@pytest.mark.usefixtures("one_picture")
def test_plot_of_chosen_parameters_as_pdf(run):
    code, _, said = biro("plot", run, "--parameters", "core.I", "--format", "pdf")
    assert code == 0, said
    assert (run / "posterior.pdf").read_bytes().startswith(b"%PDF")
    code, _, said = biro("plot", run, "--parameters", "knot")
    assert code == 2
    assert said.splitlines()[-1] == "biro: no parameter 'knot'; there are core.I"


@pytest.mark.usefixtures("one_picture")
def test_watch_shows_what_a_run_has_saved_and_ends_with_it(run, tmp_path, monkeypatch):
    """A run whose record says that it goes on: the samples so far are those of its result."""
    monkeypatch.setattr(os, "nice", lambda more: more, raising=False)  # the tests go on as they were
    going = tmp_path / "going"
    shutil.copytree(run, going)
    record = json.loads((going / "run.json").read_text())
    (going / "run.json").write_text(json.dumps(record | {"finished": None}))
    likelihood = likelihood_of(going, None, record["settings"]["data"])
    posterior = posterior_in_progress(going, likelihood)
    result = Posterior.load(run / "posterior.nc")
    np.testing.assert_array_equal(posterior.samples, result.samples)
    assert not draw_live(going, likelihood, 5.0)
    page = (going / "live.html").read_text()
    assert '<meta http-equiv="refresh" content="5">' in page
    assert "so far" in page
    code, _, said = biro("watch", run)
    assert code == 0, said
    page = (run / "live.html").read_text()
    assert "http-equiv" not in page
    assert "finished" in page
    code, _, said = biro("watch", tmp_path)
    assert code == 2
    assert "a folder of runs, expected one of them" in said


def test_plot_takes_the_settings_of_the_run(folder, tmp_path):
    run = tmp_path / "run"
    words = ("--precision", "single", "--time-range", "2026-03-01..2026-03-02", "--channels", "0:1")
    code, _, said = biro(
        *("fit", folder / "obs.ms", folder / "model.toml", "-o", run, "--seed", "1", "--no-pictures"),
        *("--set", "n_walker=8", "--set", "max_steps=100", *words),
    )
    assert code == 0, said
    assert "1 free parameter, " in said
    assert "single precision, CPU" in said or "single precision, GPU" in said
    assert "emcee, seed 1: begins" in (run / "log.txt").read_text()
    assert biro("plot", run)[0] == 0
    assert "precision: single" in (run / "report.html").read_text()


def test_compare_prefers_the_truth(folder, run):
    runs = [nested(folder, "model"), nested(folder, "emptier")]
    code, out, said = biro("compare", *runs, "--json")
    assert code == 0, said
    table = json.loads(out)
    assert table["best"] == str(runs[0])
    code, out, _ = biro("compare", *runs)
    assert code == 0
    assert "ln B" in out
    code, _, said = biro("compare", runs[0], run)
    assert code == 2
    assert "has no evidence" in said


@pytest.fixture
def copy(folder, tmp_path) -> Path:
    return Path(shutil.copytree(folder / "obs.ms", tmp_path / "copy.ms"))


def test_predict_writes_the_model(folder, copy):
    code, _, said = biro("predict", copy, folder / "sky.toml", "--precision", "double")
    assert code == 0, said
    assert "MODEL_DATA (made), double precision: 210 rows written" in said
    part = read_ms(copy, column="MODEL_DATA", allow_unusable=True).partitions[0]  # zeros are no data
    # One source 1 arcmin to the east (physics, sections 2 and 3), stored as complex64.
    l = np.deg2rad(1 / 60)
    turns = (part.uvw[:, 0] * l - part.uvw[:, 2] * l * l / 2)[:, None] * part.chan_freq / 299792458.0
    np.testing.assert_allclose(part.vis[..., 0], 0.5 * np.exp(2j * np.pi * turns), rtol=2e-7, atol=1e-7)
    np.testing.assert_allclose(part.vis[..., 1], 0.0, atol=1e-12)


def gaussian_in_the_uv_frame(part) -> np.ndarray:
    """1 Jy, 9' x 4' at 35 deg, a degree from the phase centre: physics, sections 2 and 5, as DP3 has it."""
    ra, dec, centre = np.deg2rad([3.5, -44.2, -45.0])  # right ascension from that of the phase centre, 75 deg
    l = np.cos(dec) * np.sin(ra)
    m = np.sin(dec) * np.cos(centre) - np.cos(dec) * np.sin(centre) * np.cos(ra)
    u, v, w = (part.uvw[:, i, None] * part.chan_freq / 299792458.0 for i in range(3))
    emaj, emin, pa = np.deg2rad([9 / 60, 4 / 60, 35.0])
    a, b = u * np.sin(pa) + v * np.cos(pa), u * np.cos(pa) - v * np.sin(pa)
    envelope = np.exp(-(np.pi**2) / (4 * np.log(2)) * ((emaj * a) ** 2 + (emin * b) ** 2))
    return envelope * np.exp(2j * np.pi * (u * l + v * m + w * (np.sqrt(1 - l * l - m * m) - 1)))


def test_gaussians_of_a_component_list_in_the_frame_of_dp3(folder, copy, tmp_path):
    """The frame is that of the command line; of a run it is the one that the run was fitted in."""
    listed, model = tmp_path / "sky.txt", tmp_path / "free.toml"
    line = "a, GAUSSIAN, 05:14:00.0, -44.12.00.0, {}, 540, 240, 35\n"
    listed.write_text("format = Name, Type, Ra, Dec, I, MajorAxis, MinorAxis, Orientation\n" + line.format(1))
    expected = gaussian_in_the_uv_frame(read_ms(copy).partitions[0])
    words = ("--precision", "double", "--backend", "cpu", "--smearing", "off", "--column")
    code, _, said = biro("predict", copy, listed, "--gaussian-frame", "uv", *words, "UV")
    assert code == 0, said
    assert biro("predict", copy, listed, *words, "TANGENT")[0] == 0
    found, other = (read_ms(copy, column=name).partitions[0].vis[..., 0] for name in ("UV", "TANGENT"))
    np.testing.assert_allclose(found, expected, atol=2e-7)  # stored as complex64
    assert np.abs(other - expected).max() > 1e-3

    model.write_text(
        '[[source]]\nname = "a"\ntype = "gaussian"\nra = "05h14m00s"\ndec = "-44d12m00s"\n'
        'emaj = "540 arcsec"\nemin = "240 arcsec"\npa = "35 deg"\nframe = "phase_centre"\n'  # as in BBS
        'I = { prior = "uniform", low = 0, high = 9, unit = "Jy" }\n'
    )
    fit = ("fit", copy, model, "-o", tmp_path / "run", "--column", "UV", "--gaussian-frame", "uv")
    code, _, said = biro(*fit, "--sampler", "none", "--no-pictures", "--backend", "cpu", "--smearing", "off")
    assert code == 0, said
    flux = json.loads((tmp_path / "run" / "maximum.json").read_text())["parameters"]["a.I"]["value"]
    assert flux == pytest.approx(1.0, abs=1e-6)  # there is no noise in this column
    assert biro("predict", copy, tmp_path / "run", *words, "BEST")[0] == 0
    best = read_ms(copy, column="BEST").partitions[0].vis[..., 0]
    np.testing.assert_allclose(best, expected, atol=2e-6)


def test_predict_subtracts_a_component_list(folder, copy):
    listed = folder / "sky.txt"
    listed.write_text("format = Name, Type, Ra, Dec, I\na, POINT, 05:00:00.0, -45.00.00.0, 0.25\n")
    before = read_ms(copy).partitions[0]
    words = ("predict", copy, listed, "--column", "RESIDUAL", "--from", "DATA")
    assert biro(*words, "--subtract", "--precision", "double")[0] == 0
    after = read_ms(copy, column="RESIDUAL").partitions[0]
    # At the phase centre: 0.25 Jy in XX and YY. complex64 of numbers near 1: 1e-7.
    difference = np.array([0.25, 0, 0, 0.25])
    np.testing.assert_allclose(
        before.vis - after.vis, np.broadcast_to(difference, before.vis.shape), atol=2e-7
    )
    assert biro("predict", copy, listed, "--column", "RESIDUAL", "--add")[0] == 0
    restored = read_ms(copy, column="RESIDUAL").partitions[0]
    np.testing.assert_allclose(restored.vis, before.vis, atol=2e-7)


def test_predict_names_the_column_and_what_comes_from_the_run(folder, copy, tmp_path):
    """A run on CORRECTED_DATA states what its errors leave out; its model does not belong to DATA."""
    assert biro("predict", copy, folder / "sky.toml", "--column", "CORRECTED_DATA")[0] == 0
    words = ("-o", tmp_path / "run", "--sampler", "none", "--no-pictures", "--backend", "cpu")
    code, _, said = biro("fit", copy, folder / "model.toml", *words)
    assert code == 0, said
    assert said.count("the errors are given the calibration in CORRECTED_DATA") == 1
    subtract = ("predict", copy, tmp_path / "run", "--subtract", "--column", "RESIDUAL", "--from")
    code, _, said = biro(*subtract, "DATA")
    assert code == 0, said
    assert "RESIDUAL = DATA - model (made)" in said
    assert "CAUTION: the run was fitted to CORRECTED_DATA" in said
    assert "as requested" not in said
    assert "smearing off: as in the run" in said
    code, _, said = biro(*subtract, "CORRECTED_DATA")
    assert "RESIDUAL = CORRECTED_DATA - model (was there)" in said
    assert "CAUTION" not in said


FIT = "fit OBS {folder}/model.toml -o {tmp}/run"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("info nowhere.ms", "nowhere.ms: no such file or directory"),
        ("info {folder}", "not a Measurement Set"),
        ("info OBS --column CORRECTED", "no visibility column CORRECTED; there are DATA"),
        ("info OBS --scans one", "--scans 'one' is not understood"),
        ("info OBS --time-range 2020", "--time-range '2020' is not understood"),
        ("fit OBS none.toml -o {tmp}/run", "none.toml"),
        ("fit {folder}/model.toml OBS -o {tmp}/run", "write the data before the models"),
        ("fit OBS OBS {folder}/model.toml -o {tmp}/run", "given twice"),
        (f"{FIT} --set walkers", "name=value"),
        (f"{FIT} --set n_walkers=9", "did you mean 'n_walker'"),
        (f"{FIT} --set n_walker=3", "even number of walkers"),
        (f"{FIT} --memory-limit 8parsec", "memory_limit must be bytes, or text such as"),
        (f"{FIT} --devices both", "--devices takes all, how many GPUs, or their numbers as 0,1; got 'both'"),
        (f"{FIT} --devices 0,0", "devices must be"),
        (f"{FIT} --devices 2 --backend cpu", 'devices=2 are GPUs: they need backend="cuda"'),
        ("predict OBS SKY --memory-limit much", "memory_limit must be bytes, or text such as"),
        ("predict OBS {folder}/model.toml", "free parameters without values: core.I"),
        ("predict OBS SKY --add --subtract", "not both"),
        ("predict OBS SKY --from DATA", "--from needs --add or --subtract"),
        ("compare {tmp}/one {tmp}/two", "no such run directory"),
        ("plot {tmp}/no-run", "no such run directory"),
        ("demo -o SKY", "cannot be made"),
    ],
)
def test_errors_are_one_line_and_exit_2(folder, tmp_path, words, message):
    words = words.replace("OBS", "{folder}/obs.ms").replace("SKY", "{folder}/sky.toml").split()
    code, out, said = biro(*(word.format(folder=folder, tmp=tmp_path) for word in words))
    assert (code, out) == (2, "")
    *before, last = said.splitlines()
    assert last.startswith("biro: ")
    assert message in last
    most = {"fit": 3, "predict": 1}.get(words[0], 0)
    assert len(before) <= most, "a fit says first what it does and how, a prediction whether it smears"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--telescope", "VLA-Z"], "called 'VLA-Z'; known are EVN, KAT-7"),
        (["--freq", "1.4 parsec"], "--freq '1.4 parsec' is not understood"),
        (["--phase-centre", "05h00m00s +80d00m00s"], "never above 10 deg"),
        (["--phase-centre", "here"], "expected a direction"),
        (["--start", "tomorrow"], "is not understood"),
    ],
)
def test_errors_of_simulate(folder, tmp_path, change, message):
    words = ("simulate", tmp_path / "new.ms", folder / "sky.toml", *SIMULATE, "--duration", "10min", *change)
    code, _, said = biro(*words)
    assert code == 2
    assert message in said
    assert not (tmp_path / "new.ms").exists()


def test_usage_errors_exit_2():
    assert biro("info")[0] == 2
    assert biro("fit", "a", "b")[0] == 2
    assert biro("unknown")[0] == 2


def test_debug_shows_the_trace_wherever_it_stands():
    for words in (["--debug", "info", "nowhere.ms"], ["info", "nowhere.ms", "--debug"]):
        done = python("-m", "biro", *words)
        assert done.returncode == 1
        assert "Traceback" in done.stderr
        assert "MeasurementSetError" in done.stderr


def test_text_to_arguments():
    given = {
        "fields": "a, b",
        "scans": "1,2",
        "time_range": "..2020-01-01",
        "average_channels": 4,
        "column": None,
    }
    assert read_options(given) == {
        "fields": ["a", "b"],
        "scans": [1, 2],
        "time_range": (None, "2020-01-01"),
        "average_channels": 4,
    }
    assert keyword_options(["n-live=100", "dlogz=0.5", "method=unif"]) == {
        "n_live": 100,
        "dlogz": 0.5,
        "method": "unif",
    }
    assert quantity("2 h", "s", "--duration") == 7200.0
    assert quantity("30", "s", "--duration") == 30.0
    with pytest.raises(InputError, match="--duration '2 m' is not understood"):
        quantity("2 m", "s", "--duration")
