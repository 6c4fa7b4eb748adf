"""Brightness with knots in time, as a person writes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from astropy.time import Time

from biro.models import ModelError, PartitionView, PointSource, SkyModel, read_model, write_model
from biro.models.files import write_oskar
from biro.models.files.toml import from_toml

MakeView = Callable[..., PartitionView]
SOURCE = '[[source]]\nname = "a"\neast = "0 rad"\nnorth = "0 rad"\n'
STEADY = '[[source]]\nname = "b"\neast = "0 rad"\nnorth = "0 rad"\nI = "7 Jy"\n'


def fluxes(text: str, views: list[PartitionView]) -> list[np.ndarray]:
    """I (n_time, n_source) of each partition."""
    bound = from_toml(SOURCE + text).bind(views)
    theta = bound.prior_transform(np.full((1, bound.n_param), 0.5))
    return [sources.stokes[0, :, :, 0] for sources in bound.sources_of_all(theta)]


def test_linear_and_constant_between_knots_and_held_beyond(view: MakeView) -> None:
    # Times 0, 10, ... 50 s, and 100 s later; knots at 10, 30 and 110 s after the first of all.
    first, late = view("f/a", n_time=6), view("g/a", n_time=3)
    late = replace(late, time=late.time + 100.0)
    text = 'times = ["10 s", "0.5 min", "110 s"]\nI = ["1 Jy", "3 Jy", "11 Jy"]\n'
    linear = fluxes(text + STEADY, [first, late])
    knots = [10.0, 30.0, 110.0], [1.0, 3.0, 11.0]
    for found, times in zip(linear, (first.time, late.time), strict=True):
        np.testing.assert_allclose(found[:, 0], np.interp(times, *knots), rtol=1e-14)
        assert (found[:, 1] == 7.0).all()
    constant = fluxes(text + 'between = "constant"\n', [first, late])
    assert constant[0][:, 0].tolist() == [1, 1, 1, 3, 3, 3]
    assert constant[1][:, 0].tolist() == [3, 11, 11]


def test_dates(view: MakeView) -> None:
    start = Time("2021-05-04T12:00:00", scale="utc").mjd * 86400.0
    data = replace(view(), time=start + np.array([0.0, 30.0, 60.0]))
    (found,) = fluxes(
        'times = ["2021-05-04T12:00:00", "2021-05-04T12:01:00"]\nI = ["1 Jy", "2 Jy"]\n', [data]
    )
    # Julian dates in days have microseconds.
    np.testing.assert_allclose(found[:, 0], [1.0, 1.5, 2.0], atol=1e-6)


def test_names_and_files(view: MakeView, tmp_path: Path) -> None:
    prior = '{ prior = "uniform", low = "1 Jy", high = "2 Jy" }'
    model = from_toml(SOURCE + f'times = ["1 s", "2 s"]\nbetween = "constant"\nI = [{prior}, {prior}]\n')
    assert model.bind([view()]).parameter_names[:2] == ("a.I[0]", "a.I[1]")
    write_model(model, tmp_path / "model.toml")
    assert read_model(tmp_path / "model.toml") == model


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('times = "1 s"\nI = "1 Jy"', "times: expected a list of 2 to 10000 times, found '1 s'"),
        ('times = ["1 s"]\nI = ["1 Jy"]', "times: expected a list"),
        ('times = ["1 s", "2 m"]\nI = ["1 Jy", "1 Jy"]', "times: unit 'm' is not a time"),
        ('times = ["2 s", "1 s"]\nI = ["1 Jy", "1 Jy"]', "times: must ascend"),
        ('times = ["1 s", "2 s"]\nI = "1 Jy"', "times: has 2 knots, but I, Q, U, V have 1 elements"),
        ('times = ["1 s", "2 s"]\nI = ["1 Jy", "1 Jy", "1 Jy"]', "times: has 2 knots.* have 3 elements"),
        ('times = ["2021-05-04", "2021-15-04"]\nI = ["1 Jy", "1 Jy"]', "times: expected a date such as"),
        (
            'times = ["1 s", "2 s"]\nbetween = "spline"\nI = ["1 Jy", "1 Jy"]',
            "between: one of linear, constant",
        ),
        ('between = "linear"\nI = "1 Jy"', "between: sets the interpolation between times; give times"),
    ],
)
def test_what_is_refused(view: MakeView, text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        from_toml(SOURCE + text).bind([view()])


def test_component_lists_refuse_them(tmp_path: Path) -> None:
    source = PointSource("a", ra="0 deg", dec="0 deg", I=["1 Jy", "2 Jy"], times=["0 s", "9 s"])
    with pytest.raises(ModelError, match="brightness varies in time"):
        write_oskar(SkyModel([source]), tmp_path / "sky.osm")
