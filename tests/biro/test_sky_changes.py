"""Priors and words of changes of a sky model, against the documented limits of shapes and the sphere."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import biro
from biro.diagnosis.causes.samples import ResidualSamples
from biro.diagnosis.causes.sky_changes import SkyChange, sky_changes
from biro.diagnosis.residual_data import ResidualData
from biro.models.quantities.prior import Uniform

BEAM = math.radians(2.0 / 3600.0)
HERE = 'east = "0 arcsec"\nnorth = "0 arcsec"\n'


def changes_of(kind: str, keys: str, folder: Path) -> list[SkyChange]:
    """The changes of one source of 1 Jy with fixed quantities."""
    path = folder / "sky.toml"
    path.write_text(f'[sky]\nref_freq = "5 GHz"\n[[source]]\nname = "g"\ntype = "{kind}"\nI = "1 Jy"\n{keys}')
    vis = np.ones((1, 1, 1), complex)
    observation = biro.Observation.from_arrays(
        vis, np.ones((1, 3)), [0], [1], [5e9], [5e9], ["I"], weight=1.0
    )
    samples = ResidualSamples.of([ResidualData(observation.partitions[0], vis, 1.0)], ["a", "b"])
    return list(sky_changes(biro.read_model(path), {}, samples, BEAM))


def prior_of(change: SkyChange, key: str) -> Uniform:
    prior = getattr(change.sky.sources[0], key)
    assert isinstance(prior, Uniform)
    return prior


@pytest.mark.parametrize(
    ("kind", "size", "key", "value", "low", "high"),
    [
        ("sersic", "effective_radius", "n", "1.0", 0.3, 8.0),
        ("beta-model", "core_radius", "beta", "0.6", 0.505, 8.0),
        ("limb-darkened-disc", "diameter", "limb_darkening", "0.2", 0.0, 1.0),
    ],
)
def test_numbers_of_shapes_are_free_within_their_limits(
    kind: str, size: str, key: str, value: str, low: float, high: float, tmp_path: Path
) -> None:
    """Limits as documented in the table of shapes of docs/model_files.md."""
    made = changes_of(kind, f'{HERE}{size} = "3 arcsec"\n{key} = {value}\n', tmp_path)
    (change,) = [each for each in made if key in each.keys]
    prior = prior_of(change, key)
    assert (prior.low, prior.high) == (low, high)


def test_a_crescent_can_turn_and_a_gradient_can_be_negative(tmp_path: Path) -> None:
    """A hole lies in any direction once in 360 deg; a spectral index may fall or rise outwards."""
    keys = 'diameter = "3 arcsec"\ninner_ratio = 0.5\noffset = 0.5\nhole_pa = "30 deg"\n'
    (change,) = [each for each in changes_of("crescent", HERE + keys, tmp_path) if "hole_pa" in each.keys]
    assert (prior_of(change, "hole_pa").low, prior_of(change, "hole_pa").high) == (-150.0, 210.0)
    made = changes_of("gradient-gaussian", f'{HERE}fwhm = "3 arcsec"\ngradient_along = 0.5\n', tmp_path)
    (change,) = [each for each in made if "gradient_along" in each.keys]
    assert prior_of(change, "gradient_along").low < 0.0


@pytest.mark.parametrize(
    ("dec", "ratio"), [("0d", 1.0), ("-60d", 2.0), ("89d", 1.0 / math.cos(math.radians(89)))]
)
def test_a_right_ascension_is_as_free_on_the_sky_as_a_declination(
    dec: str, ratio: float, tmp_path: Path
) -> None:
    made = changes_of("point", f'ra = "05h00m00s"\ndec = "{dec}00m00s"\n', tmp_path)
    (change,) = [each for each in made if each.keys == ("ra", "dec")]
    width = {key: prior_of(change, key).high - prior_of(change, key).low for key in ("ra", "dec")}
    # Half widths are rounded to two digits, by 5 % at most each.
    assert width["ra"] / width["dec"] == pytest.approx(ratio, rel=0.1)


def test_a_right_ascension_at_the_pole_is_free_once_round(tmp_path: Path) -> None:
    made = changes_of("point", 'ra = "05h00m00s"\ndec = "90d00m00s"\n', tmp_path)
    (change,) = [each for each in made if each.keys == ("ra", "dec")]
    prior = prior_of(change, "ra")
    assert 0.0 < prior.high - prior.low <= 360.0


def test_shapes_have_their_article(tmp_path: Path) -> None:
    for kind, size in (("gaussian", "fwhm"), ("exponential", "scale_length")):
        made = changes_of(kind, f'{HERE}{size} = "3 arcsec"\n', tmp_path)
        words = " ".join(f"{each.verdict}. {each.action}." for each in made)
        assert "a exponential" not in words
        assert "an exponential disc." in words
