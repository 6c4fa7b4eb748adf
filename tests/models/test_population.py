"""Populations of sources as a user writes them, and the priors of their number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from biro.models import (
    Fixed,
    GaussianSource,
    HalfNormal,
    LogUniform,
    ModelError,
    Normal,
    NumberPrior,
    PointSource,
    Population,
    PowerLaw,
    SkyModel,
    Uniform,
)
from biro.models.components.population import log_share
from biro.models.files.toml import from_toml

TEXT = """
[[population]]
name = "field"
types = ["point", "gaussian"]
number = { prior = "poisson", mean = 5, high = 60 }
I = { prior = "power-law", index = 1.6, low = "0.1 mJy", high = "5 Jy" }
place = { prior = "normal", mean = "0 mas", sd = "0.4 mas" }
fwhm = { prior = "uniform", low = "0 mas", high = "1 mas" }
spectral_index = -0.7

[sky]
ref_freq = "8 GHz"
"""
FLUX = PowerLaw(1.6, "0.1 mJy", "5 Jy")
OFFSET = Normal("0 mas", "0.4 mas")
NUMBER = NumberPrior("uniform", high=4)


def population(**changes: Any) -> Population:
    given = {"name": "field", "number": NUMBER, "I": FLUX, "place": OFFSET}
    return Population(**(given | changes))


def test_a_population_reads_back_from_its_file() -> None:
    sky = from_toml(TEXT)
    (field,) = sky.populations
    expected = Population(
        "field",
        types=["point", "gaussian"],
        number=NumberPrior("poisson", mean=5, high=60),
        I=FLUX,
        east=OFFSET,
        north=OFFSET,
        fwhm=Uniform("0 mas", "1 mas"),
        spectral_index=-0.7,
    )
    assert field == expected
    assert SkyModel([], populations=[expected], ref_freq="8 GHz") == sky
    assert SkyModel([], populations=expected, ref_freq="8 GHz") == sky
    assert from_toml(sky.to_toml()) == sky
    anywhere = from_toml(TEXT.replace('{ prior = "normal", mean = "0 mas", sd = "0.4 mas" }', '"field"'))
    assert from_toml(anywhere.to_toml()) == anywhere != sky


def test_sources_have_the_priors_of_the_population() -> None:
    (field,) = from_toml(TEXT).populations
    shared = {"east": OFFSET, "north": OFFSET, "I": FLUX, "spectral_index": -0.7}
    assert field.source(3, "point") == PointSource("field3", **shared)
    assert field.source(60, "gaussian") == GaussianSource("field60", fwhm=Uniform("0 mas", "1 mas"), **shared)


def test_a_given_number_of_sources_takes_the_place_of_a_population() -> None:
    core = PointSource("core", east="0 mas", north="0 mas", I="1 Jy")
    sky = SkyModel(
        [core], populations=[population(), population(name="other", types=["gaussian"], fwhm="1 mas")]
    )
    made = sky.with_number({"field": 2, "other": ["gaussian"]})
    assert [source.name for source in made.sources] == ["core", "field1", "field2", "other1"]
    assert not made.populations
    assert sky.with_number({"field": 0, "other": 0}) == SkyModel([core])
    both = from_toml(TEXT).with_number({"field": ["gaussian", "point"]})
    assert [source.type for source in both.sources] == ["gaussian", "point"]


def test_a_sky_without_sources_has_one_of_no_flux() -> None:
    (dark,) = SkyModel([], populations=population()).with_number({"field": 0}).sources
    assert (dark.name, dark.I) == ("field0", (Fixed(0.0, "Jy"),))


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({}, "populations of the model: field; numbers are given for none"),
        ({"fields": 1}, "populations of the model: field; numbers are given for fields"),
        ({"field": ["point"] * 61}, "'field' has 0 to 60 sources, found 61"),
        ({"field": -1}, "'field' has 0 to 60 sources, found -1"),
        ({"field": 2}, "'field' has several types; give that of each source"),
        ({"field": ["disc"]}, "no source of type 'disc'"),
        ({"field": "point"}, "expected a number of sources or a list of their types"),
        ({"field": True}, "expected a number of sources"),
    ],
)
def test_numbers_that_cannot_be(numbers: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        from_toml(TEXT).with_number(numbers)


def test_number_priors_against_scipy() -> None:
    k = np.arange(-1, 70)
    poisson = np.exp(NumberPrior("poisson", mean=5, high=60).log_pmf(k))
    # Rounding of ln k!: 1e-14 of 180. What lies above 60 is 1e-40.
    np.testing.assert_allclose(poisson[k <= 60], stats.poisson.pmf(k[k <= 60], 5.0), rtol=1e-12)
    assert not poisson[k > 60].any()
    cut = NumberPrior("poisson", mean=2.5, low=1, high=3).log_pmf([1, 2, 3])
    whole = stats.poisson.pmf([1, 2, 3], 2.5)
    np.testing.assert_allclose(np.exp(cut), whole / whole.sum(), rtol=1e-14)
    np.testing.assert_allclose(np.exp(NumberPrior("jeffreys", high=2).log_pmf([0, 1, 2])) * 11, [6, 3, 2])
    uniform = NumberPrior("uniform", low=2, high=5)
    np.testing.assert_allclose(np.exp(uniform.log_pmf([[1, 2], [5, 6]])), [[0, 0.25], [0.25, 0]])
    assert uniform.log_pmf(2.5) == -math.inf


def test_shares_of_types_are_integrated_over() -> None:
    """The integral of p^2 (1 - p) over 0 .. 1 is 1/12; all numbers of Gaussians among three are alike."""
    assert np.exp(log_share([2, 1])) == pytest.approx(1 / 12, rel=1e-13)
    of_count = np.exp(log_share([[3, 0], [2, 1], [1, 2], [0, 3]])) * [1, 3, 3, 1]
    np.testing.assert_allclose(of_count, 0.25, rtol=1e-13)
    np.testing.assert_allclose(log_share([[0], [3]]), 0.0, atol=1e-14)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"prior": "poison", "high": 3},
            "prior: one of poisson, .*did you mean 'poisson'",
        ),
        ({"prior": "uniform"}, "'high' is missing: the largest number of sources"),
        ({"prior": "uniform", "high": 0}, "high: an integer of 1 to 1000, found 0"),
        ({"prior": "uniform", "high": 1001}, "high: an integer of 1 to 1000"),
        ({"prior": "uniform", "high": 2.5}, "high: an integer"),
        ({"prior": "uniform", "high": True}, "high: an integer"),
        ({"prior": "uniform", "high": 3, "low": -1}, "low: an integer of 0"),
        ({"prior": "uniform", "high": 3, "low": 3}, "low < high"),
        ({"prior": "uniform", "high": 3, "mean": 2}, 'mean: needs prior = "poisson"'),
        ({"prior": "poisson", "high": 3}, "mean: expected a number above 0, found None"),
        ({"prior": "poisson", "high": 3, "mean": 0}, "mean: expected a number above 0, found 0"),
        ({"prior": "poisson", "high": 3, "mean": -1}, "mean: expected a number above 0, found -1"),
        ({"prior": "poisson", "high": 3, "mean": math.inf}, "mean: expected a number above 0"),
        ({"prior": "poisson", "high": 3, "mean": 5}, "high: must be at least the mean, 5, found 3"),
        ({"prior": "uniform", "higher": 3}, "unknown key 'higher'"),
    ],
)
def test_numbers_without_a_prior(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        NumberPrior(**given)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"types": ["disc"]}, "types: one or more of point, gaussian, found 'disc'"),
        ({"types": ["gausian"]}, "did you mean 'gaussian'"),
        ({"types": []}, "types: expected a list of point, gaussian"),
        ({"types": ["point", "point"]}, "a type occurs twice"),
        ({"types": ["gaussian"]}, "a shape is emaj, emin, pa; .* found none"),
        ({"fwhm": "1 mas"}, r'fwhm: a point has no size; write types = \["gaussian"\]'),
        ({"number": 3}, "number: expected a prior .*; a known number of sources is so many"),
        ({"number": {"high": 3}}, "number: expected a prior such as"),
        ({"number": {"prior": "uniform"}}, "'high' is missing"),
        ({"place": "fields"}, r"place: \"field\", or a prior .* found 'fields' \(did you mean 'field'"),
        ({"place": "image"}, 'place: "field", or a prior'),
        ({"place": OFFSET, "east": OFFSET, "north": OFFSET}, "place: is given twice"),
        ({"place": None, "east": OFFSET}, "east and north go together"),
        ({"place": Uniform("1 Jy", "2 Jy")}, "place: "),
        ({"I": Normal("1 Jy", "0.1 Jy")}, "I: must not be negative"),
        ({"I": Uniform("-1 Jy", "1 Jy")}, "I: must not be negative"),
        ({"I": "0 Jy"}, "I: must not be negative"),
        ({"I": "core.I"}, "I: is tied to core.I; sources of a population have numbers and priors only"),
        ({"I": [FLUX, FLUX]}, "I: sources of a population are constant"),
        ({"I": HalfNormal("1 mas")}, "I: "),
        ({"orbit": {}}, "unknown key 'orbit'"),
        ({"name": "a b"}, "a name has letters"),
    ],
)
def test_populations_that_cannot_be(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words) as raised:
        population(**changes)
    assert "\n" not in str(raised.value)
    assert "field1" not in str(raised.value)


def test_names_are_unique() -> None:
    at = {"east": "0 mas", "north": "0 mas", "I": "1 Jy"}
    with pytest.raises(
        ModelError, match="population 'field': 'field2' is the name of a source or image 'field2'"
    ):
        SkyModel([PointSource("field2", **at)], populations=population())
    with pytest.raises(ModelError, match="population 'field': 'field' is the name of population 'field'"):
        SkyModel([], populations=[population(), population()])
    with pytest.raises(ModelError, match="'field1' is the name of population 'field'"):
        SkyModel([], populations=[population(), population(name="field1")])
    assert SkyModel([PointSource("field5", **at)], populations=population()).populations


def test_what_a_model_lacks_is_said_at_once() -> None:
    with pytest.raises(ModelError, match="ref_freq"):
        SkyModel([], populations=population(spectral_index=Uniform(-2, 0)))
    with pytest.raises(ModelError, match="expected Population, found 'field'"):
        SkyModel([], populations=["field"])
    with pytest.raises(ModelError, match="depends on the data"):
        SkyModel([], populations=population(place="field")).with_number({"field": 1})
    with pytest.raises(ModelError, match=r"expected tables \[\[population\]\]"):
        from_toml(TEXT.replace("[[population]]", "[population]"))
    with pytest.raises(ModelError, match="population 1: 'name' is missing"):
        from_toml(TEXT.replace('name = "field"', ""))


def test_any_prior_that_is_positive_may_be_that_of_a_flux() -> None:
    for prior in (LogUniform("1 mJy", "1 Jy"), HalfNormal("1 Jy"), Uniform("0 Jy", "1 Jy"), "2 Jy"):
        population(I=prior)
