"""Names and texts are the same on the command line and in Python; docs/cli.md lists the exceptions."""

import inspect
import re
import warnings
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import biro
from biro.cli.app import COMMANDS
from biro.cli.options import READING, read_options
from biro.errors import DataError, InputError
from biro.imaging.imager import Imaging
from biro.io.data_set.options import SetKeywords
from biro.models import PointSource
from biro.observation.selection import Selection, select_names, select_scans, select_times

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text().split("## The same in Python")[1]
DAY = 86400.0
SKY = biro.SkyModel([PointSource(name="core", ra="75 deg", dec="-45 deg", I="1 Jy")])


def resolved(name: str) -> object:
    """What a dotted name stands for."""
    first, *others = name.split(".")
    found: object = import_module(first)
    for k, part in enumerate(others, start=2):
        found = getattr(found, part, None) or import_module(".".join(name.split(".")[:k]))
    return found


def arguments(function: object) -> set[str]:
    """Names that a function can be called with, those of its options as well."""
    found = set()
    for name, parameter in inspect.signature(function).parameters.items():  # type: ignore[arg-type]
        if parameter.kind is inspect.Parameter.VAR_KEYWORD and function in (biro.image, biro.find_sources):
            found |= set(resolved("biro.imaging.cubes.cube.CubeOptions").__annotations__)  # type: ignore[attr-defined]
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD and function in (biro.flag,):
            found |= set(READING)
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD and function in (biro.read, biro.read_ms):
            found |= set(SetKeywords.__annotations__)
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD and function is biro.Likelihood:
            found |= set(biro.EngineOptions.__dataclass_fields__)
        else:
            found.add(name)
    return found


def rows(number: int) -> list[list[str]]:
    """Cells of a table of the page."""
    lines = [block for block in re.split(r"\n\n", PAGE) if block.startswith("|")][number].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


FUNCTIONS = {row[0].strip("`"): re.findall(r"`((?:biro|rime)\S+?)`", row[1]) for row in rows(0)}
EXCEPTIONS = {
    (command, option): cell
    for commands, options, cell in rows(1)
    for command in (re.findall(r"`(\w+)`", commands) or ["all"])
    for option in re.findall(r"`(-[\w-]+)`", options)
}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_each_option_has_an_argument_in_python(command) -> None:
    """The argument of the same name, or what the table of exceptions names."""
    have = set().union(*(arguments(resolved(name)) for name in FUNCTIONS.get(command.__name__, [])))
    for name, parameter in inspect.signature(command).parameters.items():
        typed = getattr(parameter.annotation, "__metadata__", (None,))[0]
        if parameter.annotation is inspect.Parameter.empty or type(typed).__name__ != "OptionInfo":
            continue
        if name in READING:
            assert name in arguments(biro.read)
            continue
        stated = [each for each in (typed.default, *(typed.param_decls or ())) if str(each).startswith("-")]
        words = [word.split("/")[0] for word in stated] or ["--" + name.replace("_", "-")]
        if name in have or any(word.strip("-").replace("-", "_") in have for word in words):
            continue
        cells = [EXCEPTIONS.get((where, word)) for where in (command.__name__, "all") for word in words]
        assert any(cells), f"biro {command.__name__} {words}: no name in Python, nor a line in docs/cli.md"


@pytest.mark.parametrize("cell", [*EXCEPTIONS.values(), *(f"`{f}`" for fs in FUNCTIONS.values() for f in fs)])
def test_names_of_the_page_exist(cell: str) -> None:
    """Dotted names can be imported, and functions have the arguments that are named."""
    for name, given in re.findall(r"`((?:biro|rime_kernels)[\w.]+)(?:\(([^)]*)\))?", cell):
        function = resolved(name)
        wanted = re.findall(r"(\w+)=", given)
        if "likelihood," not in given:  # options of samplers are no arguments of `sample`
            assert set(wanted) <= arguments(function), name


@pytest.mark.parametrize(
    "name", ["fields", "spws", "scans", "antennas", "channels", "correlations", "time_range"]
)
def test_a_selection_of_a_wrong_kind_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=rf"{name} must be .*, got 3\.5"):
        Selection(**{name: 3.5})  # type: ignore[arg-type]


def test_texts_of_options_select_what_pairs_and_lists_do() -> None:
    """One range of times and one list of names, written in both ways."""
    time = 58000.0 * DAY + np.arange(10.0) * 60.0
    text = "2017-09-04T00:02..2017-09-04T00:05"
    pair = tuple(text.split(".."))
    np.testing.assert_array_equal(select_times(text, time, 0.0), select_times(pair, time, 0.0))
    assert select_times(text, time, 0.0).sum() == 4  # minutes 2, 3, 4 and 5
    np.testing.assert_array_equal(select_times("..2017-09-04T00:05", time, 0.0), np.arange(10) <= 5)
    names = ("A", "B", "C,D")
    np.testing.assert_array_equal(
        select_names("A, C,D", ("A", "B", "C", "D"), "x"), [True, False, True, True]
    )
    np.testing.assert_array_equal(select_names("C,D", names, "x"), [False, False, True])
    np.testing.assert_array_equal(select_names("!A,!B", names, "x"), [False, False, True])
    for nothing in ("", ","):
        with pytest.raises(DataError, match="no field ''"):
            select_names(nothing, names, "field")
    np.testing.assert_array_equal(select_scans("2,4", np.array([1, 2, 4], np.int32)), [False, True, True])


@pytest.mark.parametrize("bad", [{"time_range": "2017-04-10"}, {"scans": "2-4"}, {"uv_range": "5 km"}])
def test_text_that_is_no_range_is_refused_before_data_are_read(bad) -> None:
    """Both ways in name what was given and how it is written."""
    with pytest.raises(InputError, match="is not understood; write"):
        Selection(**bad)
    if "uv_range" not in bad:
        with pytest.raises(InputError, match=r"--.* is not understood; write"):
            read_options(bad)


def test_simulate_takes_the_names_of_the_command() -> None:
    """start, duration, ... give the observation that `Track` and `Channels` give."""
    from biro.simulation import Channels, Track

    where = {"phase_centre": "05h00m00s -45d00m00s", "seed": 1}
    one = biro.simulate(
        "KAT-7", SKY, start="2026-03-01", duration="20 min", integration="10 min", freq="1.4 GHz",
        chan_width="2 MHz", n_chan=2, sefd="400 Jy", **where,
    )  # fmt: skip
    # Radiometer equation: 400 / sqrt(2 x 2e6 x 600) Jy.
    two = biro.simulate(
        "KAT-7", SKY, times=Track("2026-03-01", 1200.0, 600.0), channels=Channels(1.4e9, 2e6, 2),
        noise=400.0 / np.sqrt(2 * 2e6 * 600.0), **where,
    )  # fmt: skip
    np.testing.assert_array_equal(one.partitions[0].vis, two.partitions[0].vis)
    np.testing.assert_array_equal(one.partitions[0].uvw, two.partitions[0].uvw)
    with pytest.raises(InputError, match="simulate needs start, duration, integration, or times"):
        biro.simulate("KAT-7", SKY, freq="1.4 GHz", chan_width="1 MHz", **where)
    with pytest.raises(InputError, match="frequency of the first channel '3 Jy'"):
        Channels("3 Jy", "1 MHz")


def test_the_earlier_name_of_the_size_of_images_goes_on() -> None:
    """n_pixel gives the image of size, with a warning; both together are refused."""
    observation = biro.simulate(
        "KAT-7", SKY, start="2026-03-01", duration="20 min", integration="10 min", freq="1.4 GHz",
        chan_width="2 MHz", phase_centre="05h00m00s -45d00m00s",
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wanted = biro.image(observation, size=32, cell="10 arcsec")
    with pytest.warns(DeprecationWarning, match=r"image\(n_pixel=\) is called image\(size=\) now"):
        found = biro.image(observation, n_pixel=32, cell="10 arcsec")
    np.testing.assert_array_equal(found.dirty, wanted.dirty)
    with pytest.raises(InputError, match="give size alone"):
        biro.image(observation, size=32, n_pixel=32)
    with pytest.warns(DeprecationWarning, match=r"Imaging\(n_pixel=\) is called Imaging\(size=\) now"):
        assert Imaging(n_pixel=32) == Imaging(size=32)
    with pytest.raises(InputError, match="give size alone"):
        Imaging(size=32, n_pixel=32)


def test_a_fit_gives_values_for_its_sky() -> None:
    """`best_values` are the best fit by name, of posteriors and maxima, and `SkyModel.at` takes them."""
    from tests.biro.test_data_notes import SKY as FREE

    observation = biro.simulate(
        "KAT-7", SKY, start="2026-03-01", duration="20 min", integration="10 min", freq="1.4 GHz",
        chan_width="2 MHz", phase_centre="05h00m00s -45d00m00s", noise="10 mJy", seed=1,
    )  # fmt: skip
    likelihood = biro.Likelihood(observation, FREE, backend="cpu")
    found = biro.maximise(likelihood, seed=1, progress=False)
    posterior = biro.sample(likelihood, "none", seed=1, progress=False, n_sample=100)
    for fit in (found, posterior):
        assert list(fit.best_values) == list(likelihood.parameter_names)
        assert list(fit.best_values.values()) == fit.best_fit.tolist()
        # 1 Jy with 10 mJy in 21 baselines, 2 times and 4 correlations: 1 mJy, of which five are allowed.
        assert fit.best_values["core.I"] == pytest.approx(1.0, abs=0.005)
    assert not FREE.at(found.best_values).bind(observation.partition_views).parameter_names[:-1]
