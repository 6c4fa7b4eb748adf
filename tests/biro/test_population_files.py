"""Maps, counts, files and pictures of populations, read back by Astropy and by biro itself."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits
from astropy.table import Table
from astropy.wcs import WCS
from population_draws import BEAM, WIDTH, Truth, make_draws, random_rows

import biro
from biro.errors import DataError, InputError
from biro.imaging.psf import RestoringBeam
from biro.models.files import read_model
from biro.source_finding.populations.results.draws import SourceDraws
from biro.source_finding.populations.results.files import casa_regions, ds9_regions
from biro.source_finding.populations.results.result import PopulationResult

CENTRE = (np.deg2rad(359.99), np.deg2rad(-40.0))
# Far from the centre, so that the tangent plane and angles differ: 1000 beams are half a degree.
TRUTH = (Truth(-900.0, 300.0, 1.0), Truth(500.0, 1000.0, 0.3, 0.7), Truth(0.0, 3.0, 0.1, 0.3))


@pytest.fixture(scope="module")
def result() -> PopulationResult:
    """A Gaussian with a spectrum at the first place, points at the others."""
    draws = make_draws(random_rows(TRUTH, 400))
    n, is_first = len(draws), draws.east < -800.0 * WIDTH
    rng = np.random.default_rng(1)
    values = dict(draws.values)
    values["emaj"] = np.where(is_first, 2.0 * WIDTH * (1.0 + 0.05 * rng.standard_normal(n)), np.nan)
    values["emin"] = 0.5 * values["emaj"]
    values["pa"] = np.where(is_first, 0.5 + 0.05 * rng.standard_normal(n), np.nan)
    values["spectral_index"] = -0.7 + 0.1 * rng.standard_normal(n)
    made = SourceDraws("field", ("point", "gaussian"), 400, draws.draw, is_first.astype(np.int8), values)
    return PopulationResult(made, CENTRE, BEAM, 200.0, rng.standard_normal(400), ref_freq=1.4e9)


def sky_of(result: PopulationResult) -> list[tuple[float, float]]:
    """Right ascension and declination of the entries, deg, as Astropy computes them from the offsets."""
    wcs = WCS(naxis=2)
    wcs.wcs.ctype, wcs.wcs.crval, wcs.wcs.cdelt = ["RA---SIN", "DEC--SIN"], np.rad2deg(CENTRE), [1.0, 1.0]
    wcs.wcs.crpix = [0.0, 0.0]
    offsets = [(np.rad2deg(e.east.median), np.rad2deg(e.north.median)) for e in result.catalogue()]
    return [tuple(float(x) for x in wcs.wcs_pix2world(*offset, 0)) for offset in np.array(offsets) - 1.0]


def test_draws_are_read_back_exactly(result: PopulationResult, tmp_path: Path) -> None:
    result.save(tmp_path / "draws.npz")
    back = PopulationResult.load(tmp_path / "draws.npz")
    for name in ("name", "types", "n_draw"):
        assert getattr(back.draws, name) == getattr(result.draws, name)
    for name in ("draw", "kind"):
        one, other = getattr(back.draws, name), getattr(result.draws, name)
        assert one.dtype == other.dtype
        assert (one == other).all()
    assert list(back.draws.values) == list(result.draws.values)
    for key, array in result.draws.values.items():
        np.testing.assert_array_equal(back.draws.values[key], array)
    assert (back.centre, back.beam, back.n_effective, back.ref_freq) == (CENTRE, BEAM, 200.0, 1.4e9)
    np.testing.assert_array_equal(back.log_posterior, result.log_posterior)
    with np.load(tmp_path / "draws.npz") as file:
        np.testing.assert_array_equal(file["number"], result.draws.number)
    assert str(back) == str(result)


def test_files_that_are_no_draws_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.npz"):
        PopulationResult.load(tmp_path / "none.npz")
    np.savez(tmp_path / "other.npz", draw=np.zeros(2))
    with pytest.raises(DataError, match="draws of a population, or damaged"):
        PopulationResult.load(tmp_path / "other.npz")
    draws = make_draws([[TRUTH[0]], []])
    PopulationResult(draws, CENTRE, BEAM, 2.0).save(tmp_path / "good.npz")
    with np.load(tmp_path / "good.npz") as file:
        arrays = dict(file) | {"draw": np.array([7])}
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(DataError, match="draw must ascend"):
        PopulationResult.load(tmp_path / "bad.npz")


def test_the_sum_of_the_map_is_the_mean_number(result: PopulationResult, tmp_path: Path) -> None:
    for cell in (None, 3.3 * WIDTH):
        made = result.probability_map(cell)
        assert made.plane.sum() == pytest.approx(result.draws.number.mean(), rel=1e-12)  # rounding
    residual = result.probability_map(residual=True)
    assert residual.plane.sum() == pytest.approx(result.catalogue().n_other, abs=1e-12)
    small = PopulationResult(make_draws([[Truth(0.3, -0.7, 1.0)]] * 3), CENTRE, BEAM, 3.0)
    assert small.probability_map().cell == WIDTH / 5.0


def test_pixels_of_the_map_lie_where_the_header_says(result: PopulationResult, tmp_path: Path) -> None:
    result.probability_map(10.0 * WIDTH).write(tmp_path / "map.fits")
    with fits.open(tmp_path / "map.fits") as hdus:
        plane, wcs = hdus[0].data, WCS(hdus[0].header)
        assert hdus[0].header["BUNIT"] == "1/pixel"
    for entry, place in zip(result.catalogue(), sky_of(result), strict=True):
        x, y = (round(float(pixel)) for pixel in wcs.wcs_world2pix(*place, 0))
        # Sources scatter by 0.05 beams, and pixels are 10 wide: all are in one, unless it ends there.
        assert plane[y - 1 : y + 2, x - 1 : x + 2].sum() == pytest.approx(
            entry.probability, rel=1e-6
        )  # float32


def test_the_error_of_a_pixel_is_binomial() -> None:
    rows = [[Truth(0.0, 0.0, 1.0, 1.0, 1e-9)]] * 30 + [[]] * 70
    made = PopulationResult(make_draws(rows), CENTRE, BEAM, 50.0).probability_map(WIDTH)
    middle = len(made.plane) // 2
    assert made.plane[middle, middle] == 0.3
    assert made.error[middle, middle] == pytest.approx(np.sqrt(0.3 * 0.7 / 50.0), rel=1e-12)
    twice = PopulationResult(make_draws([row * 2 for row in rows]), CENTRE, BEAM, 50.0).probability_map(WIDTH)
    assert twice.error[middle, middle] == pytest.approx(2.0 * np.sqrt(0.3 * 0.7 / 50.0), rel=1e-12)
    assert made.error.min() == pytest.approx(np.sqrt(0.5) / 50.0)  # of a pixel that no draw has a source in
    assert made.per_beam(BEAM)[middle, middle] == pytest.approx(0.3 * np.pi / (4.0 * np.log(2.0)))


def test_maps_that_no_memory_holds_are_refused(result: PopulationResult) -> None:
    with pytest.raises(InputError, match=r"cell: .* makes a map of .* give .* or more"):
        result.probability_map(1e-3 * WIDTH)
    with pytest.raises(InputError, match="cell: an angle above 0"):
        result.probability_map(0.0)


def test_counts_of_known_fluxes(tmp_path: Path) -> None:
    rows = [[Truth(0, 0, 1.0), Truth(3, 0, 4.0)]] * 10 + [[Truth(0, 0, 1.0)]] * 30
    draws = make_draws(rows, scatter_ln_flux=0.0)
    counts = PopulationResult(draws, CENTRE, BEAM, 40.0).counts([0.5, 2.0, 8.0])
    assert counts.number.tolist() == [1.25, 0.25]
    # Of the draws 25 % have one more: beyond the 15.9 % that a band leaves out above.
    assert (counts.number_low.tolist(), counts.number_high.tolist()) == ([1.0, 0.0], [2.0, 1.0])
    assert counts.per_flux.tolist() == pytest.approx([1.0 / 1.5, 0.25 / 6.0])
    assert counts.per_flux_sd.tolist() == pytest.approx([0.0, np.sqrt(0.25 * 0.75) / 6.0])
    high = PopulationResult(draws, CENTRE, BEAM, 40.0).counts([0.1, 0.5, 2.0])
    assert high.number.tolist() == [1.25, 1.25]  # N(> S) has those beyond the last edge
    assert high.n_outside == 0.25
    assert "0.25 sources beyond the bins are not counted" in str(high)
    counts.write(tmp_path / "counts.csv")
    table = np.genfromtxt(tmp_path / "counts.csv", delimiter=",", names=True)
    assert table["n_above"].tolist() == [1.25, 0.25]
    with pytest.raises(InputError, match="edges: fluxes above 0 that ascend"):
        PopulationResult(draws, CENTRE, BEAM, 40.0).counts([2.0, 1.0])


def test_default_counts_hold_all_sources_above_zero() -> None:
    draws = make_draws([[Truth(0, 0, 1.0), Truth(3, 0, -0.5), Truth(5, 0, 0.01)]] * 20)
    counts = PopulationResult(draws, CENTRE, BEAM, 20.0).counts()
    assert counts.number[0] == 2.0
    assert (counts.n_not_positive, counts.n_outside) == (1.0, 0.0)
    assert (counts.per_flux * np.diff(counts.edges)).sum() == pytest.approx(2.0, rel=1e-12)


def test_everything_is_written(result: PopulationResult, tmp_path: Path) -> None:
    written = result.write(tmp_path / "out")
    names = {path.name for path in written}
    assert names == {path.name for path in (tmp_path / "out").iterdir()}
    assert {"sky.toml", "catalogue.crtf", "number.png", "field.png", "counts.png"} <= names
    assert (tmp_path / "out" / "summary.txt").read_text() == f"{result}\n"
    record = json.loads((tmp_path / "out" / "population.json").read_text())
    assert record["catalogue"]["entries"][0]["probability"] == 1.0
    assert sum(record["number"]["probability"]) == pytest.approx(1.0)
    with pytest.raises(InputError, match="has a population already"):
        result.write(tmp_path / "out")
    assert str(PopulationResult.load(tmp_path / "out")) == str(result)


def test_the_model_file_has_the_probable_sources_where_they_are(
    result: PopulationResult, tmp_path: Path
) -> None:
    result.write(tmp_path, pictures=False)
    model = read_model(tmp_path / "sky.toml")
    assert model == result.model()
    assert [source.name for source in model.sources] == ["field_1", "field_2"]  # the third has P = 0.3
    assert model.sources[0].type == "gaussian"
    biro.models.files.write_bbs(model, tmp_path / "sky.bbs")  # states right ascension and declination
    back = biro.read_sky(tmp_path / "sky.bbs")
    for source, place in zip(back.sources, [*sky_of(result)[1:2], *sky_of(result)[:1]], strict=True):
        ra, dec = np.rad2deg([source.ra.value, source.dec.value])
        # 1e-9 deg is a tenth of the rounding of a beam's thousandth.
        assert (ra - place[0] + 180.0) % 360.0 - 180.0 == pytest.approx(0.0, abs=1e-9)
        assert dec == pytest.approx(place[1], abs=1e-9)


def test_a_model_of_nothing_is_not_written(tmp_path: Path) -> None:
    draws = make_draws([[Truth(0, 0, 1.0)]] * 2 + [[]] * 8)
    result = PopulationResult(draws, CENTRE, BEAM, 10.0)
    (tmp_path / "sky.toml").write_text("of an earlier result")
    result.write(tmp_path, pictures=False)
    assert not (tmp_path / "sky.toml").exists()
    assert "there is no sky.toml" in (tmp_path / "summary.txt").read_text()


def test_the_table_is_read_by_astropy_and_biro(result: PopulationResult, tmp_path: Path) -> None:
    result.write(tmp_path, pictures=False)
    table = Table.read(tmp_path / "catalogue.fits")
    catalogue = result.catalogue()
    assert [str(name).strip() for name in table["Source_Name"]] == [entry.name for entry in catalogue]
    assert table["P"].tolist() == [entry.probability for entry in catalogue]
    for row, entry, place in zip(table, catalogue, sky_of(result), strict=True):
        assert (row["RA"] - place[0] + 180.0) % 360.0 - 180.0 == pytest.approx(0.0, abs=1e-10)
        assert row["DEC"] == pytest.approx(place[1], abs=1e-10)
        assert row["Total_flux_low"] < row["Total_flux"] < row["Total_flux_high"]
        assert row["E_RA"] == np.rad2deg(entry.east.error)
    assert table["DC_Maj"].to("rad").value[0] == pytest.approx(catalogue.entries[0].typical["emaj"])
    assert table["DC_Maj"].tolist()[1:] == [0.0, 0.0]
    sky = biro.read_sky(tmp_path / "catalogue.fits")
    assert [source.type for source in sky.sources] == ["gaussian", "point", "point"]
    assert sky.sources[0].I[0].value == catalogue.entries[0].flux.median


def test_regions_state_places_and_ellipses(result: PopulationResult) -> None:
    """CASA: [[ra, dec], [semi-major, semi-minor], pa from the north]. DS9: first semi-axis from the west."""
    catalogue = result.catalogue()
    casa, ds9 = casa_regions(catalogue).splitlines(), ds9_regions(catalogue).splitlines()
    assert casa[0] == "#CRTFv0"
    assert ds9[:2] == ["# Region file format: DS9 version 4.1", "icrs"]
    values = catalogue.entries[0].typical
    arcsec = [3600.0 * np.rad2deg(values[key]) for key in ("emaj", "emin")]
    pa = np.rad2deg(values["pa"])
    for line, expected in ((casa[1], pa), (ds9[2], pa + 90.0)):
        ra, dec, first, second, angle = (float(x) for x in re.findall(r"-?\d+\.\d+", line.split("#")[0])[:5])
        assert (ra, dec) == pytest.approx(sky_of(result)[0], abs=1e-10)
        assert (first, second) == pytest.approx([0.5 * each for each in arcsec], rel=1e-8)  # 9 digits
        assert angle == pytest.approx(expected, abs=1e-6)
    assert casa[2].startswith("symbol [[")
    assert ds9[3].startswith("point(")
    assert all(
        f"{entry.name} P={entry.probability:.2f}" in line
        for entry, line in zip(catalogue, casa[1:], strict=True)
    )


def test_regions_are_read_by_the_package_regions(result: PopulationResult) -> None:
    """The end of the major axis lies inside, and a point as far along the minor axis does not."""
    regions = pytest.importorskip("regions")
    units = pytest.importorskip("astropy.units")
    catalogue = result.catalogue()
    entry = catalogue.entries[0]
    for text, form in ((casa_regions(catalogue), "crtf"), (ds9_regions(catalogue), "ds9")):
        found = regions.Regions.parse(text, format=form)
        assert len(found) == len(catalogue)
        wcs = WCS(naxis=2)
        wcs.wcs.ctype, wcs.wcs.crval = ["RA---SIN", "DEC--SIN"], np.rad2deg([entry.ra, entry.dec])
        wcs.wcs.cdelt, wcs.wcs.crpix = [-1e-7, 1e-7], [1.0, 1.0]
        reach = 0.49 * entry.typical["emaj"] * units.rad
        along, across = (
            found[0].center.directional_offset_by((entry.typical["pa"] + turn) * units.rad, reach)
            for turn in (0.0, np.pi / 2)
        )
        assert found[0].contains(along, wcs)
        assert not found[0].contains(across, wcs)


def test_types_that_no_model_file_has_are_refused() -> None:
    draws = make_draws([[Truth(0, 0, 1.0)]] * 10)
    other = SourceDraws("field", ("nebula",), 10, draws.draw, draws.kind, draws.values)
    with pytest.raises(InputError, match="type 'nebula' is none of a model file"):
        PopulationResult(other, CENTRE, BEAM, 10.0).model()


def test_a_disc_is_written_as_a_disc() -> None:
    draws = make_draws([[Truth(0, 0, 1.0)]] * 10)
    values = dict(draws.values) | {"diameter": np.full(10, 2e-5)}
    disc = SourceDraws("field", ("disc",), 10, draws.draw, draws.kind, values)
    (source,) = PopulationResult(disc, CENTRE, BEAM, 10.0).model().sources
    assert (source.type, source.diameter.value, source.diameter.unit) == ("disc", 2e-5, "rad")


def test_the_number_is_drawn_as_bars(result: PopulationResult) -> None:
    axes = result.plot_number().axes[0]
    heights = [bar.get_height() for bar in axes.containers[0]]
    number = result.number_probability()
    assert heights == pytest.approx([p for p in number.probability if p >= 1e-3])


def test_the_field_has_east_to_the_left_and_names_entries(result: PopulationResult) -> None:
    figure = result.plot(np.ones((4, 4)), (0.02, -0.02, -0.02, 0.02))
    axes = figure.axes[0]
    left, right = axes.get_xlim()
    assert left > right
    texts = {text.get_text() for text in axes.texts}
    assert texts == {f"{e.name}  {e.probability:.2f}" for e in result.catalogue()}
    with pytest.raises(InputError, match="give its extent"):
        result.plot(np.ones((4, 4)))


def test_pictures_of_nothing() -> None:
    nothing = {key: np.zeros(0) for key in ("east", "north", "I")}
    draws = SourceDraws("field", ("point",), 3, np.zeros(0, np.int64), np.zeros(0, np.int8), nothing)
    result = PopulationResult(draws, CENTRE, RestoringBeam(WIDTH, WIDTH, 0.0), 3.0)
    assert result.plot().axes
    assert result.plot_number().axes
    with pytest.raises(InputError, match="no counts to draw"):
        result.plot_counts()
