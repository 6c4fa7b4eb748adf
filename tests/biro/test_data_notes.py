"""What was left out or assumed while data were read: warned of once in Python, printed by commands."""

import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import biro
from biro.cli.app import app
from biro.errors import DataNote, InputError
from biro.models.files.toml import from_toml
from biro.simulation import Channels, Track

SKY = from_toml("""
[[source]]
name = "core"
type = "point"
ra = "75 deg"
dec = "-45 deg"
I = { prior = "uniform", low = 0, high = 5, unit = "Jy" }
""")


@pytest.fixture(scope="module")
def sound() -> biro.Observation:
    return biro.simulate(
        "KAT-7", SKY, phase_centre="75 deg -45 deg", times=Track("2026-03-01", "20 min", "10 min"),
        channels=Channels("1.4 GHz", "2 MHz"), noise="10 mJy", seed=1, values={"core.I": 1.0},
    )  # fmt: skip


def notes(function, *arguments, **options) -> list[str]:
    """The texts of the warnings of a call."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function(*arguments, **options)
    return [str(each.message) for each in caught if issubclass(each.category, DataNote)]


def test_a_note_is_shown_once_for_an_observation(sound) -> None:
    """The likelihood warns where it is made; another one of the same data, and samplers, do not."""
    odd = replace(sound, source="odd.ms", notes=("UVW is used",))
    assert notes(biro.Likelihood, odd, SKY, backend="cpu") == ["odd.ms: UVW is used"]
    assert notes(biro.Likelihood, odd, SKY, backend="cpu") == []
    other = replace(odd, source="other.ms")
    assert notes(biro.image, other, size=32) == ["other.ms: UVW is used"]
    assert notes(lambda: biro.maximise(biro.Likelihood(other, SKY, backend="cpu"), progress=False)) == []


def test_sound_data_have_no_note(sound) -> None:
    assert notes(biro.Likelihood, sound, SKY, backend="cpu") == []


def test_measurements_that_were_not_made_are_named(sound) -> None:
    """Counts of what has no measurement are in the warning, as in the line of a command."""
    lacking = replace(sound, source="zeros.ms", counts={**sound.counts, "exactly zero": 7})
    (text,) = notes(biro.Likelihood, lacking, SKY, backend="cpu")
    assert "7 exactly zero" in text


def test_flag_of_uvfits_says_what_to_do(data_dir: Path) -> None:
    """Both ways to leave interference out of a file that is never changed."""
    path = data_dir / "vla_3c273_x.uvfits"
    with pytest.raises(InputError, match=r"--flagger meerkat.*--select LINE -o COPY"):
        biro.flag(path)
    done = CliRunner().invoke(app, ["flag", str(path)])
    assert done.exit_code == 2
    assert "--flagger meerkat" in done.output
