"""Names in data that would command a terminal, or write HTML, are shown as text wherever biro shows them."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
import pytest
from casacore.tables import table
from commands import KAT_7, biro

from biro import Likelihood, Observation, Posterior
from biro.errors import ModelError
from biro.files.foreign_text import visible, visible_texts
from biro.io.measurement_set import read_ms
from biro.models import read_model
from biro.plots.report import write_report

TITLE, RED, ROWS = "\x1b]0;gone\x07", "\x1b[31m<b>red</b>", "two\nrows\u202e"
"""Renames a window; changes colours, and would be bold in HTML; breaks a table, and turns a line around."""
SOURCE = '[[source]]\nname = "{name}"\neast = "0 arcsec"\nnorth = "0 arcsec"\nI = {flux}\n'
FITTED = '{ prior = "uniform", low = 0, high = 5, unit = "Jy" }'


def harmless(text: str) -> bool:
    """Whether a text has no character that a terminal obeys, but for the ends of its lines."""
    return not any(unicodedata.category(char).startswith("C") for char in text if char != "\n")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Path:
    """A simulated set whose telescope, field, window and an antenna have such names."""
    folder = tmp_path_factory.mktemp("foreign")
    (folder / "sky.toml").write_text(SOURCE.format(name="a", flux='"1 Jy"'))
    (folder / "model.toml").write_text(SOURCE.format(name="a", flux=FITTED))
    place = folder / "obs.ms"
    code, _, said = biro("simulate", place, folder / "sky.toml", *KAT_7, "--seed", "1", "--noise", "1 Jy")
    assert code == 0, said
    names = {
        "OBSERVATION": ("TELESCOPE_NAME", TITLE),
        "FIELD": ("NAME", RED),
        "ANTENNA": ("NAME", ROWS),
        "SPECTRAL_WINDOW": ("NAME", "\x9b1m"),
    }
    for subtable, (column, name) in names.items():
        with table(str(folder / "obs.ms" / subtable), readonly=False, ack=False) as opened:
            opened.putcell(column, 0, name)
    return place


def test_what_does_not_print_is_shown() -> None:
    assert visible(TITLE + ROWS) == r"\x1b]0;gone\x07two\nrows\u202e"
    assert visible("Sgr A* α µJy") == "Sgr A* α µJy"
    assert visible_texts({"a\x00": ["b\x7f", 1.5, None]}) == {r"a\x00": [r"b\x7f", 1.5, None]}


def test_info_shows_names_as_text(hostile) -> None:
    code, out, said = biro("info", hostile)
    assert (code, said) == (0, "")
    assert harmless(out)
    for name in (r"\x1b]0;gone\x07", r"\x1b[31m<b>red</b>/spw0:", r"two\nrows\u202e ant2"):
        assert name in out


def test_the_name_that_is_shown_selects(hostile) -> None:
    code, out, said = biro("info", hostile, "--fields", visible(RED), "--antennas", f"!{visible(ROWS)}")
    assert code == 0, said
    assert "6 antennas" in out


def test_errors_show_names_as_text(hostile) -> None:
    for words in (("--fields", "none"), ("--antennas", "none"), ("--spws", "none")):
        code, out, said = biro("info", hostile, *words)
        assert (code, out) == (2, "")
        assert harmless(said)
        assert said.count("\n") == 1
        assert "\\x" in said or "\\n" in said
    code, _, said = biro("info", hostile.parent / f"{RED}.ms")
    assert code == 2
    assert harmless(said)
    assert r"\x1b[31m<b>red</b>.ms" in said


def test_a_fit_shows_names_as_text(hostile, tmp_path) -> None:
    """In its messages, log, tables and report, where angle brackets are escaped as well."""
    run = tmp_path / "run"
    sky = hostile.parent / "model.toml"
    code, out, said = biro("-v", "fit", hostile, sky, "-o", run, "--sampler", "none", "--no-pictures")
    assert code == 0, said
    log = (run / "log.txt").read_text()
    likelihood = Likelihood(read_ms(hostile), read_model(sky))
    posterior = Posterior.load(run / "posterior.nc")
    report = write_report(run, posterior, likelihood, pictures={}).read_text()
    for text in (out, said, log, report, (run / "maximum.json").read_text()):
        assert harmless(text)
    assert r"noise.factor" in out
    assert r"\x1b[31m<b>red</b>" in said
    assert r"\x1b[31m&lt;b&gt;red&lt;/b&gt;" in report
    assert "<b>red" not in report


def test_images_take_such_names_into_their_headers(hostile, tmp_path) -> None:
    """A FITS header takes printable ASCII alone."""
    from astropy.io import fits

    code, _, said = biro("image", hostile, "-o", tmp_path / "image", "--size", "64")
    assert code == 0, said
    header = fits.getheader(tmp_path / "image.fits")
    assert (header["OBJECT"], header["TELESCOP"]) == (visible(RED), visible(TITLE))


def test_a_source_has_no_such_name(tmp_path) -> None:
    path = tmp_path / "sky.toml"
    path.write_text(SOURCE.format(name=r"\u001b]0;gone", flux=FITTED))
    with pytest.raises(ModelError, match="a name has letters") as caught:
        read_model(path)
    assert harmless(str(caught.value))
    path.write_text(SOURCE.format(name="a", flux=r'"\u001b[31m Jy"'))
    with pytest.raises(ModelError, match="I") as caught:
        read_model(path)
    assert harmless(str(caught.value))


def test_plain_arrays_have_such_names_as_well() -> None:
    observation = Observation.from_arrays(
        vis=np.ones((3, 1, 1), np.complex128),
        uvw=np.arange(9.0).reshape(3, 3),
        antenna1=np.array([0, 0, 1]),
        antenna2=np.array([1, 2, 2]),
        time=np.zeros(3),
        chan_freq=np.array([1e9]),
        weight=1.0,
        corr_type=("I",),
        phase_centre=(0.0, 0.0),
        telescope=TITLE,
        field=RED,
        antenna_names=[ROWS, "1", "2"],
    )
    assert harmless(str(observation.summary()))
    assert visible(ROWS) in str(observation.summary())
