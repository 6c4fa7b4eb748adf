"""Populations and data: the field that their sources lie in, and where they are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import biro
from biro.errors import InputError, ModelError
from biro.imaging.population_field import with_places
from biro.models import NumberPrior, PointSource, Population, SkyModel, Uniform
from biro.models.components.direction import lm_to_radec

C = 299792458.0
ARCSEC = np.pi / 180.0 / 3600.0
CENTRE = (1.0, 0.5)
FIELD = Population("field", number=NumberPrior("uniform", high=4), I=Uniform("0 Jy", "1 Jy"))
TRACK = {
    "start": "2026-03-01",
    "duration": "1 min",
    "integration": "30 s",
    "freq": "5 GHz",
    "chan_width": "1 MHz",
}


def observation(phase_centre: tuple[float, float] = CENTRE) -> biro.Observation:
    """Noise on 60 baselines of up to 2 km at 6 cm."""
    rng, n = np.random.default_rng(5), 60
    uvw = np.column_stack([rng.uniform(-2000.0, 2000.0, (n, 2)), np.zeros(n)])
    return biro.Observation.from_arrays(
        vis=rng.normal(size=(n, 1, 2)) + 1j * rng.normal(size=(n, 1, 2)),
        uvw=uvw,
        antenna1=np.zeros(n, int),
        antenna2=np.ones(n, int),
        time=np.arange(float(n)),
        chan_freq=[C / 0.06],
        corr_type=["XX", "YY"],
        weight=np.ones((n, 1, 2)),
        phase_centre=phase_centre,
    )


def test_a_field_is_that_of_the_default_image() -> None:
    data = observation()
    (placed,) = with_places(SkyModel([], populations=FIELD), data).populations
    image = biro.image(data)
    width = image.cell * image.dirty.shape[-1]
    assert placed.east == placed.north
    unit = {"arcmin": 60.0, "deg": 3600.0, "arcsec": 1.0}[placed.east.unit] * ARCSEC
    # Ends in a unit of angle are rounded in the last bit.
    assert [placed.east.low * unit, placed.east.high * unit] == pytest.approx(
        [-width / 2, width / 2], rel=1e-14
    )


def test_a_field_lies_about_the_phase_centre() -> None:
    """Offsets are from the centre of the model, the square is where the telescopes look."""
    data = observation()
    # The centre of the model lies 20 arcsec east and 10 arcsec south of the phase centre.
    centre = lm_to_radec(20 * ARCSEC, -10 * ARCSEC, CENTRE)
    (placed,) = with_places(SkyModel([], populations=FIELD, centre=centre), data).populations
    middle = [0.5 * (prior.low + prior.high) for prior in (placed.east, placed.north)]
    unit = {"arcmin": 60.0, "arcsec": 1.0}[placed.east.unit]
    # The norths at the two centres differ by 20 arcsec tan(dec): 5e-5 rad of 20 arcsec.
    assert np.multiply(middle, unit) == pytest.approx([-20.0, 10.0], abs=2e-3)


def test_a_place_that_is_given_stays() -> None:
    given = Population("a", number=NumberPrior("uniform", high=4), I="1 Jy", place=Uniform("-1 mas", "1 mas"))
    sky = SkyModel([], populations=given)
    assert with_places(sky, observation()) is sky
    core = SkyModel([PointSource("core", east="0 mas", north="0 mas", I="1 Jy")])
    assert with_places(core, observation()) is core


def test_a_field_needs_one_phase_centre() -> None:
    both = biro.join([observation(), observation((1.1, 0.5))])
    with pytest.raises(InputError, match="different phase centres"):
        with_places(SkyModel([], populations=FIELD), both)


def test_visibilities_of_an_open_number_are_refused(tmp_path: Path) -> None:
    sky, data = SkyModel([], populations=FIELD), observation()
    match = "population 'field': the number of its sources is not given; infer it with `biro fit`"
    with pytest.raises(ModelError, match=match):
        biro.Likelihood(data, sky)
    with pytest.raises(ModelError, match=match):
        biro.simulate("VLA-A", sky, phase_centre=CENTRE, **TRACK)
    with pytest.raises(ModelError, match="population 'field': a component list holds known sources only"):
        biro.models.write_sky(sky, tmp_path / "sky.osm")
    biro.models.write_sky(sky, tmp_path / "sky.toml")
    with pytest.raises(ModelError, match="population 'field' is seen through the beam of a model"):
        biro.read_sky(tmp_path / "sky.toml", beam=False)
    biro.Likelihood(data, with_places(sky, data).with_number({"field": 2}))


def test_an_empty_sky_has_no_visibilities() -> None:
    data = observation()
    empty = SkyModel([], populations=FIELD, noise=biro.models.Noise(factor=1.0)).with_number({"field": 0})
    likelihood = biro.Likelihood(data, empty)
    assert likelihood.n_param == 0
    chi2 = float((np.abs(data.partitions[0].vis) ** 2).sum())
    # Each complex visibility of weight 1 has the density exp(-|V|^2 / 2) / (2 pi); rounding of a sum of 120.
    exact = -0.5 * chi2 - data.partitions[0].vis.size * np.log(2.0 * np.pi)
    assert float(likelihood.log_likelihood(np.zeros((1, 0)))[0]) == pytest.approx(exact, rel=1e-12)


def test_an_image_that_is_fitted_has_no_population_beside_it() -> None:
    image = biro.models.ImagePrior("x", prior="smooth")
    with pytest.raises(InputError, match="population 'field' cannot stand beside a fitted image"):
        biro.fit_image(observation(), SkyModel([], images=[image], populations=FIELD), progress=False)
