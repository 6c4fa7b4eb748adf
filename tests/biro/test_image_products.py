"""What a fitted image gives to a user: profiles, files for other programs, its run directory, and refusals.

Oracles are images whose profile is a closed form, and samples whose distribution is known.
"""

import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits
from commands import works
from numpy.typing import NDArray
from typer.testing import CliRunner

import biro
from biro.cli.app import app
from biro.image_posterior.field import ImageField
from biro.image_posterior.operator import ImageOperator
from biro.image_posterior.results import sample_store
from biro.image_posterior.results.products import CALIBRATED
from biro.image_posterior.results.result import ImagePosterior
from biro.image_posterior.sampling import jax_room
from biro.image_posterior.short_baselines import at_one_place
from biro.imaging.psf import RestoringBeam
from biro.models import Gain, ImagePrior, Noise, PointSource, SkyModel
from biro.observation.observation import Observation
from biro.observation.stokes import PSEUDO_I, form_stokes
from biro.simulation import Channels, Track

ARCSEC = np.pi / 180.0 / 3600.0
N = 32
FIELD = ImageField(N, ARCSEC, (1.0, 0.5))
ABOUT = {
    "freq": 1.4e9,
    "bandwidth": 1e6,
    "freq_frame": "TOPO",
    "field": "f",
    "telescope": "VLA",
    "date": "2026-03-01",
    "origin": "a test",
}


def image_of(samples: NDArray[np.float64], **given: object) -> ImagePosterior:
    """A result with samples (n_sample, N, N)."""
    made = ImagePosterior(
        name="sky",
        prior="correlated-field",
        field=FIELD,
        samples=samples[:, None],
        is_map=len(samples) == 1,
        labels=("a",),
        chi2=(200.0,),
        n_data=(100,),
        noise=1.0,
        residual=np.zeros((1, N, N)),
        beam=RestoringBeam(4.0 * ARCSEC, 3.0 * ARCSEC, 0.3),
        about=ABOUT,
    )
    return replace(made, **given)  # type: ignore[arg-type]


def plane() -> NDArray[np.float64]:
    """Brightness 5 + 2 east + 3 north, in arcsec: linear, so that interpolation between pixels is exact."""
    axis = np.arange(N) - N // 2
    return np.asarray(5.0 - 2.0 * axis[None, :] + 3.0 * axis[:, None])


@pytest.mark.parametrize(
    "line",
    [
        "offset; line(-3.5 arcsec, 2 arcsec, 8 arcsec, -6.25 arcsec)",
        "image; line(20.5, 19, 9, 10.75)",
        "line [[19.5pix, 18pix], [8pix, 9.75pix]]",
    ],
)
def test_a_profile_of_a_plane_is_a_straight_line(line: str) -> None:
    along = image_of(plane()[None]).profile(line)
    east, north = along.east / ARCSEC, along.north / ARCSEC
    np.testing.assert_allclose(along.mean, 5.0 + 2.0 * east + 3.0 * north, rtol=1e-12)
    ends = [(east[0], north[0]), (east[-1], north[-1])]
    np.testing.assert_allclose(ends, [(-3.5, 2.0), (8.0, -6.25)], atol=1e-9)
    # Points are evenly spaced, at most a cell apart.
    steps = np.diff(along.offset / ARCSEC)
    np.testing.assert_allclose(steps, steps[0])
    assert 0.9 < steps[0] <= 1.0
    assert along.band is None
    assert "has no band" in str(along)


def test_a_profile_has_the_band_of_its_samples() -> None:
    rng = np.random.default_rng(1)
    samples = plane() + 0.5 * rng.normal(size=(4000, 1, 1))
    along = image_of(samples).profile("offset; line(0 arcsec, 0 arcsec, 10 arcsec, 0 arcsec)")
    assert along.band is not None
    assert along.sd is not None
    # 4000 normal draws: a standard deviation to 1.1 %, the 68 % interval of +- 1 sd to 3 %.
    np.testing.assert_allclose(along.sd, 0.5, rtol=0.05)
    np.testing.assert_allclose(np.diff(along.band, axis=0)[0], 2.0 * 0.5 * 0.9945, rtol=0.08)
    table = np.genfromtxt(along.csv().splitlines(), delimiter=",", names=True, skip_header=1)
    np.testing.assert_allclose(table["offset_arcsec"], np.arange(11.0), atol=1e-6)
    np.testing.assert_allclose(table["high_68_jy_per_pixel"], along.band[1], rtol=1e-6)
    assert len(along.plot().axes) == 1


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("image; circle(5, 5, 2)", "expected a line"),
        ("image; line(5, 5, 5, 5)", "both ends are the same point"),
        ("image; line(5, 5, 60, 5)", "an end lies outside of the image"),
    ],
)
def test_lines_that_have_no_profile_are_refused(line: str, match: str) -> None:
    with pytest.raises(biro.InputError, match=match):
        image_of(plane()[None]).profile(line)


def test_a_line_has_no_flux() -> None:
    with pytest.raises(biro.InputError, match="has no area and no flux"):
        image_of(plane()[None]).region("image; line(5, 5, 8, 8)")


def test_samples_median_and_spectrum_are_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    samples = rng.lognormal(size=(7, N, N))
    spectra = np.exp(rng.normal(size=(7, 5)))
    arrays = {"wavenumber": np.arange(1.0, 6.0), "power_spectrum": spectra}
    image = image_of(samples, arrays=arrays)
    names = {path.name for path in image.save(tmp_path / "run")}
    assert {"median.fits", "sd.fits", "samples.fits", "power_spectrum.csv", "power_spectrum.png"} <= names
    with fits.open(tmp_path / "run" / "samples.fits") as hdus:
        header, cube = hdus[0].header, hdus[0].data
    assert [header[f"CTYPE{i}"] for i in (3, 4, 5)] == ["FREQ", "STOKES", "SAMPLE"]
    assert header["BUNIT"] == "Jy/pixel"
    np.testing.assert_allclose(cube[:, 0, 0], samples, rtol=1e-6)  # float32
    np.testing.assert_allclose(
        fits.getdata(tmp_path / "run" / "median.fits").squeeze(), np.median(samples, axis=0), rtol=1e-6
    )
    table = np.loadtxt(tmp_path / "run" / "power_spectrum.csv", delimiter=",", skiprows=2)
    np.testing.assert_allclose(table[:, 1], np.median(spectra, axis=0), rtol=1e-6)
    np.testing.assert_allclose(table[:, 2:].T, np.percentile(spectra, (16, 84), axis=0), rtol=1e-6)


def test_contours_state_where_the_image_is_significant() -> None:
    samples = np.random.default_rng(3).normal(size=(200, N, N)) + np.where(plane() > 40.0, 8.0, 1.0)
    mean = image_of(samples).plot().axes[0]
    # 8 sd above 3 and 6, and 1 sd below: one set of contours at these two levels.
    (lines,) = [one for one in mean.collections if hasattr(one, "levels")]
    assert list(lines.levels) == [3.0, 6.0]


def observed(**given: object) -> Observation:
    """351 baselines at 2 times, two points."""
    sky = SkyModel(
        [
            PointSource("core", east="0 arcsec", north="0 arcsec", I="3 Jy"),
            PointSource("knot", east="30 arcsec", north="-40 arcsec", I="1 Jy"),
            *given.pop("more", ()),  # type: ignore[misc]
        ]
    )
    return biro.simulate(
        "VLA-C",
        sky,
        phase_centre="12h00m00s +40d00m00s",
        times=Track("2026-03-01", 2 * 3600.0, 3600.0),
        channels=Channels(1.4e9, 5e7, 1),
        noise=0.1,
        seed=3,
        progress=False,
    )


def diffuse(**given: object) -> SkyModel:
    prior = ImagePrior("diffuse", prior="smooth", size=24, cell="5 arcsec")
    return SkyModel([], images=[prior], noise=Noise(factor=1.0), **given)  # type: ignore[arg-type]


def test_a_run_directory_records_what_was_fitted_and_has_calibrated_data(tmp_path: Path) -> None:
    data, run = observed(), tmp_path / "run"
    phase = {"prior": "uniform", "low": "-180 deg", "high": "180 deg", "per": "integration"}
    sky = diffuse(gain=Gain(phase=phase))
    options = {"backend": "cpu", "progress": False, "pictures": False}
    made = biro.fit_image(data, sky, run_dir=run, facts={"observation": "a.ms"}, n_cycle=1, **options)
    record = json.loads((run / "run.json").read_text())
    assert record["finished"] is not None
    assert record["settings"]["sampler"] == "image, prior smooth"
    assert record["settings"]["options"] == {"n_cycle": 1}
    assert record["settings"]["data"] == data.digest()
    assert record["facts"] == {"observation": "a.ms"}
    assert biro.read_model(run / "model.toml") == sky
    assert (run / "log.txt").exists()
    with np.load(run / CALIBRATED) as file:
        vis, weight = file["vis_0"], file["weight_0"]
    parts = tuple(form_stokes(data.partitions, PSEUDO_I)[0])
    operator = ImageOperator(replace(data, partitions=parts), made.field, backend="cpu")
    chi2 = float((weight * np.abs(vis - operator.predict(made.mean)[0]) ** 2).sum())
    # Single precision of visibilities near 4 Jy against noise of 0.07 Jy.
    assert chi2 == pytest.approx(made.chi2[0], rel=1e-3)
    # Gains are phases: amplitudes are those that were measured.
    np.testing.assert_allclose(np.abs(vis), np.abs(parts[0].vis), rtol=1e-5)
    with pytest.raises(biro.InputError, match="has an image already"):
        biro.fit_image(data, sky, run_dir=run, **options)
    (run / "image.npz").unlink()
    with pytest.raises(biro.RunError, match="holds a run that differs"):
        biro.fit_image(data, diffuse(), run_dir=run, n_cycle=1, **options)


def test_a_bright_source_outside_of_the_image_is_named_in_the_result() -> None:
    beyond = PointSource("beyond", east="200 arcsec", north="-150 arcsec", I="2 Jy")
    made = biro.fit_image(observed(more=[beyond]), diffuse(), backend="cpu", progress=False)
    first, second = made.remarks[:2]
    assert first.startswith("THE IMAGE DOES NOT FIT")
    # 200 and 150 arcsec; the image takes a part of the 2 Jy.
    expected = r"SOURCE OUTSIDE: about (1\.\d|2) Jy lie 3\.33 arcmin east and 2\.5 arcmin south of the"
    assert re.match(expected, second), second
    assert "Make the field larger" in second


def test_baselines_at_one_place_are_named_where_an_image_does_not_fit() -> None:
    data = observed()
    (part,) = data.partitions
    assert at_one_place(data) == ""
    near = (part.antenna1 == 3) & (part.antenna2 == 7)
    length = np.hypot(*part.uvw[:, :2].T)
    shrunk = np.where(near[:, None], part.uvw * (1e-3 * length.max() / length)[:, None], part.uvw)
    line = at_one_place(replace(data, partitions=(replace(part, uvw=shrunk),)))
    names = data.antenna_names
    limit = length[~near].max() * part.chan_freq[0] / 299792458.0 / 200.0
    assert f"({names[3]}-{names[7]})" in line
    assert f"--uv-range '{limit:.3g} lambda..'" in line


def test_data_that_are_all_flagged_are_refused() -> None:
    data = observed()
    (part,) = data.partitions
    empty = replace(data, partitions=(replace(part, weight=np.zeros_like(part.weight)),))
    with pytest.raises(biro.InputError, match="no visibility counts: all are flagged"):
        biro.fit_image(empty, diffuse(), backend="cpu", progress=False)


def test_samples_without_jax_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax_room, "find_spec", lambda name: None if name == "jax" else object())
    prior = ImagePrior("field", prior="correlated-field", size=N, cell="5 arcsec")
    with pytest.raises(
        biro.InputError, match=r'need jax, not installed here: pip install "biro-rime\[images\]"'
    ):
        biro.fit_image(observed(), SkyModel([], images=[prior]), backend="cpu", progress=False)


def test_jax_leaves_the_memory_of_a_gpu_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax", reason="jax is not installed")
    monkeypatch.delenv("XLA_PYTHON_CLIENT_PREALLOCATE", raising=False)
    with jax_room.double_precision():
        assert os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"


def test_the_command_prints_and_writes_profiles(tmp_path: Path) -> None:
    samples = plane() + 50.0 + np.random.default_rng(4).normal(size=(20, N, N))
    image_of(samples, remarks=("APPROXIMATE ERRORS: a remark",)).save(tmp_path / "run", pictures=False)
    line = "offset; line(0 arcsec, 0 arcsec, 10 arcsec, 0 arcsec)"
    files = [tmp_path / "p.csv", tmp_path / "p.png"]
    words = ["region", tmp_path / "run", line, "-o", files[0], "-o", files[1]]
    shown = works(*words)
    assert "mean [Jy/pixel]" in shown.stdout
    assert "APPROXIMATE ERRORS" in shown.stderr
    assert files[0].read_text().startswith("# APPROXIMATE ERRORS")
    assert files[1].stat().st_size > 1000
    (found,) = json.loads(works("region", tmp_path / "run", line, "--json").stdout)["profiles"]
    assert len(found["mean"]) == len(found["band"][0]) == 11
    again = CliRunner().invoke(app, [str(word) for word in words])
    assert again.exit_code == 2
    both = CliRunner().invoke(app, ["compare", str(tmp_path / "run"), str(tmp_path / "run")])
    assert both.exit_code == 2
    assert "has no ELBO; fit it with --set elbo=1" in both.stderr
    two = CliRunner().invoke(
        app, ["region", str(tmp_path / "run"), line, line, "-o", str(tmp_path / "q.csv")]
    )
    assert two.exit_code == 2


def test_chains_go_on_with_more_steps() -> None:
    """What the line NOT CONVERGED asks for is no other run."""
    from biro.image_posterior.results.run import MAY_CHANGE
    from biro.run.record import changes

    assert not changes({"options": {}}, {"options": {"n_steps": 6400, "n_iterations": 50}}, MAY_CHANGE)


class TestStore:
    """Many samples go into samples.zarr."""

    @pytest.fixture
    def image(self, monkeypatch: pytest.MonkeyPatch) -> ImagePosterior:
        monkeypatch.setattr(sample_store, "LARGE", 5 * 4 * N * N)
        samples = plane() + np.random.default_rng(8).normal(size=(12, N, N))
        spectra = {"wavenumber": np.arange(1.0, 4.0), "power_spectrum": np.ones((12, 3))}
        return image_of(samples, arrays=spectra, remarks=("APPROXIMATE ERRORS: a remark",))

    def test_xarray_reads_it_back(self, image: ImagePosterior, tmp_path: Path) -> None:
        xarray = pytest.importorskip("xarray", reason="xarray is not installed")
        pytest.importorskip("zarr", reason="zarr is not installed")
        image.save(tmp_path, pictures=False)
        assert not (tmp_path / "samples.fits").exists()
        with xarray.open_zarr(tmp_path / sample_store.STORE, consolidated=False, chunks=None) as found:
            # float32 has 24 bits.
            np.testing.assert_allclose(found["image"], image.samples, rtol=1e-7)
            assert found["image"].dims == ("sample", "stokes", "y", "x")
            np.testing.assert_array_equal(found["power_spectrum"], image.arrays["power_spectrum"])
            # The plane is 5 + 2 east + 3 north, in arcsec, but for noise of mean 0 that all pixels share out.
            mean = found["image"].mean(("sample", "stokes"))
            plain = 5.0 + 2.0 * found["x"] / ARCSEC + 3.0 * found["y"] / ARCSEC
            # 12 draws of unit variance for each of 1024 pixels: 0.29 each, 4.5 of them at most.
            assert float(abs(mean - plain).max()) < 1.3
            assert found.attrs["remarks"] == list(image.remarks)
            assert found["stokes"].values.tolist() == ["I"]
        # A later result takes its place, whole.
        replace(image, samples=image.samples[:8], arrays={}).save(tmp_path, overwrite=True, pictures=False)
        with xarray.open_zarr(tmp_path / sample_store.STORE, consolidated=False, chunks=None) as found:
            assert found.sizes["sample"] == 8
        assert not [one for one in tmp_path.iterdir() if one.name.startswith(".")]

    def test_chunks_hold_some_samples(
        self, image: ImagePosterior, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        zarr = pytest.importorskip("zarr", reason="zarr is not installed")
        monkeypatch.setattr(sample_store, "_CHUNK", 5 * 4 * N * N)
        image.save(tmp_path, pictures=False)
        assert zarr.open(tmp_path / sample_store.STORE)["image"].chunks == (5, 1, N, N)

    def test_few_samples_stay_in_fits(self, image: ImagePosterior, tmp_path: Path) -> None:
        replace(image, samples=image.samples[:4]).save(tmp_path, pictures=False)
        assert (tmp_path / "samples.fits").exists()
        assert not (tmp_path / sample_store.STORE).exists()

    @pytest.mark.parametrize("name", ["xarray", "zarr"])
    def test_a_missing_package_is_named_in_one_line(
        self,
        image: ImagePosterior,
        tmp_path: Path,
        name: str,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setitem(sys.modules, name, None)
        image.save(tmp_path, pictures=False)
        assert (tmp_path / "samples.fits").exists()
        (line,) = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
        assert f"{name} is not installed" in line
        assert 'pip install "biro-rime[formats]"' in line

    def test_a_map_has_no_samples(self, image: ImagePosterior) -> None:
        with pytest.raises(biro.InputError, match="it is the most probable image alone"):
            replace(image, samples=image.samples[:1], is_map=True).to_xarray()


def test_the_command_redraws_all_pictures(tmp_path: Path) -> None:
    spectra = {"wavenumber": np.arange(1.0, 4.0), "power_spectrum": np.ones((4, 3))}
    image_of(plane() + np.arange(4.0)[:, None, None], arrays=spectra).save(tmp_path)
    made = sorted(tmp_path.glob("*.png"))
    assert [path.name for path in made] == ["image.png", "power_spectrum.png"]
    for path in made:
        path.unlink()
    works("plot", tmp_path)
    assert sorted(tmp_path.glob("*.png")) == made
    works("plot", tmp_path, "--format", "pdf")
    assert [path.name for path in sorted(tmp_path.glob("*.pdf"))] == ["image.pdf", "power_spectrum.pdf"]
    refused = CliRunner().invoke(app, ["plot", str(tmp_path), "--parameters", "core.I"])
    assert refused.exit_code == 2
    assert "--parameters: pictures of an image are drawn from" in refused.stderr
